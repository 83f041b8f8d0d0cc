"""What the models floor raises. Every message is one line that names the thing and the mend."""


class ModelError(Exception):
    """Base of all model errors."""


class ModelMissing(ModelError):
    """The named model is not on this computer."""


class ModelRefused(ModelError):
    """The model's architecture, rotary kind, template or weights cannot be served; the message names which."""


class PromptTooLong(ModelError):
    """The prompt does not fit the model's window; the message gives both numbers."""


class UnknownStrategy(ModelError):
    """No strategy has this name."""


class StrategyRefused(ModelError):
    """A strategy's parameter is out of its range."""


class DeviceUnavailable(ModelError):
    """The device asked for cannot be used; the message says why."""
