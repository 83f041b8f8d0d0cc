"""What the application floor raises. Every message is one line that names the thing and the mend."""


class ApplianceError(Exception):
    """Base of all application errors."""


class DocumentRejected(ApplianceError):
    """A file cannot become a document (empty, encrypted, oversized, wrong type, unreadable)."""


class NothingToIngest(ApplianceError):
    """The given paths hold no file that could be a document."""


class NoDocuments(ApplianceError):
    """A question came before any document."""


class UnknownCollection(ApplianceError):
    """No collection has this name."""


class UnknownDocument(ApplianceError):
    """No document has this identifier, path or title."""


class QuestionRefused(ApplianceError):
    """The question is empty or does not fit the model's window."""


class PortInUse(ApplianceError):
    """The port of the page is taken."""


class Busy(ApplianceError):
    """As many questions wait as may wait."""
