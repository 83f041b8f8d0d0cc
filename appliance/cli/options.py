"""Options every command has, given before or after its name, and what they become."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from appliance.budgets import parse_budgets, parse_size
from appliance.settings import MOST_NEIGHBOURS, Settings, settings_from
from models.resolve import looks_like_hub_name

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--home", type=click.Path(path_type=Path), help="Data folder [APPLIANCE_HOME, else the platform's]."),
    click.option(
        "--model", metavar="DIR|HUB-NAME", help="Language model; default: the embedded SmolLM2-135M-Instruct."
    ),
    click.option(
        "--embedding", metavar="DIR|HUB-NAME", help="Embedding model; default: the embedded all-MiniLM-L6-v2."
    ),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Where the model runs; default: auto."),
    click.option(
        "--weights", type=click.Choice(["bf16", "int8", "int4"]), help="How the weights are kept; default: bf16."
    ),
    click.option(
        "--profile",
        metavar="measured|paper|CODEC",
        help="Which codec a block is kept in by how hot it is; default: measured (see `appliance calibrate`).",
    ),
    click.option(
        "--budgets",
        metavar="GPU,PINNED,PAGEABLE",
        help="Memory for KV: three sizes (4GiB,2GiB,8GiB) or shares of the chunks (5%,5%,10%); default: what is free.",
    ),
    click.option(
        "--neighbours",
        type=click.IntRange(0, MOST_NEIGHBOURS),
        help="Chunks that stand before a chunk when it is read once more in idle time, for `fusion`; default: 10.",
    ),
    click.option("--disk-budget", metavar="SIZE", help="The most KV may take on disk; default: half of what is free."),
    click.option(
        "--placer", type=click.Choice(["auto", "triton", "compiled", "plain"]), hidden=True, help="Force a twin."
    ),
    click.option("--linears", type=click.Choice(["auto", "packed", "plain"]), hidden=True, help="Force a twin."),
    click.option(
        "--attention",
        type=click.Choice(["auto", "triton", "compiled", "grouped", "plain"]),
        hidden=True,
        help="Force a twin.",
    ),
    click.option(
        "--decoding", type=click.Choice(["auto", "graph", "eager", "plain"]), hidden=True, help="Force a twin."
    ),
    click.option("--scheduling", type=click.Choice(["auto", "plain"]), hidden=True, help="Force a twin."),
    click.option("--reads", type=click.Choice(["direct", "buffered"]), hidden=True, help="Force a twin."),
)


def common_options(command: F) -> F:
    """Add the common options; their values are kept in the context and not passed to the function."""
    for option in reversed(_OPTIONS):
        command = _kept(option)(command)
    return command


def current_settings() -> Settings:
    """The settings of the running command: what stands after its name wins over what stands before."""
    chosen: dict[str, Any] = click.get_current_context().meta.get(__name__, {})
    settings = settings_from(chosen.get("home"), chosen.get("model"), chosen.get("embedding"))
    twins = ("placer", "linears", "attention", "decoding", "scheduling")
    same = ("device", "weights", "profile", *twins, "neighbours")
    named: dict[str, Any] = {name: chosen[name] for name in same if name in chosen}
    named |= _budgets(chosen)
    if chosen.get("reads") == "buffered":
        named["direct_reads"] = False
    return replace(settings, **named)


def _budgets(chosen: dict[str, Any]) -> dict[str, Any]:
    """The budgets that were named. Raises UsageError."""
    found: dict[str, Any] = {}
    try:
        if "budgets" in chosen:
            found["budgets"] = parse_budgets(chosen["budgets"])
        if "disk_budget" in chosen:
            found["disk_bytes"] = parse_size(chosen["disk_budget"])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return found


def _kept(option: Callable[[F], F]) -> Callable[[F], F]:
    """The option, storing its value in the context (click runs the group's callbacks before the command's)."""

    def decorate(command: F) -> F:
        decorated = option(command)
        parameter = decorated.__click_params__[-1]  # type: ignore[attr-defined]
        parameter.expose_value = False
        parameter.callback = _keep
        return decorated

    return decorate


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> object:
    """Runs while options are read, before any command imports a library: the place to close the way to the hub."""
    if value is not None and parameter.name is not None:
        context.meta.setdefault(__name__, {})[parameter.name] = value
    if parameter.name in ("model", "embedding"):
        _close_the_hub(context.meta.get(__name__, {}))
    return value


def _close_the_hub(chosen: dict[str, Any]) -> None:
    """The libraries read these at import. Only a hub name the user typed opens the way to the hub."""
    asked = any(looks_like_hub_name(chosen[name]) for name in ("model", "embedding") if name in chosen)
    # Torch's idle threads spin for milliseconds by default, on the very cores that load and place: halved load times.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    os.environ["HF_HUB_OFFLINE"] = "0" if asked else "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
