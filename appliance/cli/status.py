"""`appliance status`"""

from typing import Any

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, print_table, printable_line, size_text

DEFAULT_HOT = 10


@click.command()
@click.option(
    "--hot",
    type=click.IntRange(min=1),
    is_flag=False,
    flag_value=DEFAULT_HOT,
    metavar="[N]",
    help=f"Also the N chunks asked for most [{DEFAULT_HOT}], and how many blocks are in each class of hotness.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def status(hot: int | None, as_json: bool) -> None:
    """Say what is stored, what was chosen and why, and what went wrong so far."""
    from appliance.status import read_status

    found = read_status(current_settings(), hot)
    if as_json:
        print_json(found)
        return
    free, budget = size_text(found["disk_free_bytes"]), size_text(found["disk_budget_bytes"])
    click.echo(f"data folder   {found['home']}  ({free} free, {budget} for KV)")
    click.echo(f"models        {found['model']}, {found['embedding']}")
    without, damaged = found["chunks_without_kv"], found["blocks_damaged"]
    click.echo(f"stored        {found['documents']} documents, {found['chunks']} chunks ({without} without KV)")
    click.echo(f"KV            {found['blocks']} blocks, {size_text(found['kv_bytes'])}, {damaged} damaged so far")
    for line in _codec_lines(found):
        click.echo(line)
    for name, choice in found["engine"].items():
        click.echo(f"{name:<13} {choice}")
    for line in _memory_lines(found):
        click.echo(printable_line(line))
    for note in found["notes"]:
        click.echo(f"note          {note}")
    if hot is not None:
        _print_hot(found)


def _codec_lines(found: dict[str, Any]) -> list[str]:
    codecs = [f"{name} {each['blocks']} ({size_text(each['bytes'])})" for name, each in found["codecs"].items()]
    lines = [f"blocks in     {', '.join(codecs)}; {found['blocks_to_reencode']} wait for another"] if codecs else []
    near = found["neighbours"]
    if near["ready"] or near["wanted"]:
        lines.append(f"neighbours    {near['ready']} of {near['wanted']} chunks were read behind theirs")
    if found["profile"] is not None:
        lines.append(f"profile       {found['profile']['name']}: {found['profile']['reason']}")
    return lines


def _memory_lines(found: dict[str, Any]) -> list[str]:
    """What the last process kept in memory, what refused it any, and what background work could not do."""
    lines, memory = [], found["memory"]
    if memory is not None:
        tiers = {name: state for name, state in memory.items() if isinstance(state, dict) and "budget_bytes" in state}
        granted = ", ".join(f"{name} {size_text(state['budget_bytes'])}" for name, state in tiers.items())
        lines.append(f"memory        {granted}: {memory['reason']}")
        lines += [
            f"{name:<13} refused memory {state['refusals']} times, last: {state['reason'] or 'no reason given'}"
            for name, state in tiers.items()
            if state["refusals"]
        ]
        lines += [
            f"{name:<13} failed {state['failures']} times: its blocks were read from disk"
            for name, state in tiers.items()
            if state.get("failures")
        ]
        if memory.get("leases", {}).get("expired"):
            lines.append(f"leases        {memory['leases']['expired']} were held for too long")
    if found["idle_failure"] is not None:
        lines.append(f"idle work     could not go on: {found['idle_failure']}")
    return lines


def _print_hot(found: dict[str, Any]) -> None:
    if found["profile"] is not None:
        click.echo()
        rows = [
            (each["name"], f"{each['share']:.0%}", each["codec"], each["blocks"], each["reason"])
            for each in found["profile"]["classes"]
        ]
        print_table(("class", "share", "codec", "blocks", "reason"), rows)
    click.echo()
    if not found["hot"]:
        click.echo("nothing was asked for so far")
        return
    chunks = [
        (
            *(f"{each['score']:.2f}", each["uses"], each["codec"] or "no KV"),
            *("" if each["bytes"] is None else size_text(each["bytes"]), each["chunk"], each["document"]),
        )
        for each in found["hot"]
    ]
    print_table(("score", "uses", "codec", "size", "chunk", "document"), chunks)
