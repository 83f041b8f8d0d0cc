"""`appliance status`"""

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, size_text


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def status(as_json: bool) -> None:
    """Say what is stored, what was chosen and why, and what went wrong so far."""
    from appliance.status import read_status

    found = read_status(current_settings())
    if as_json:
        print_json(found)
        return
    click.echo(f"data folder   {found['home']}  ({size_text(found['disk_free_bytes'])} free)")
    click.echo(f"models        {found['model']}, {found['embedding']}")
    without, damaged = found["chunks_without_kv"], found["blocks_damaged"]
    click.echo(f"stored        {found['documents']} documents, {found['chunks']} chunks ({without} without KV)")
    click.echo(f"KV            {found['blocks']} blocks, {size_text(found['kv_bytes'])}, {damaged} damaged so far")
    for name, choice in found["engine"].items():
        click.echo(f"{name:<13} {choice}")
    for note in found["notes"]:
        click.echo(f"note          {note}")
