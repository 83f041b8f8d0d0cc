"""`appliance list` and `appliance rm DOCUMENT`."""

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, print_table, printable_line, size_text


@click.command("list")
@click.option("--collection", default=None, help="Only this collection.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def list_documents(collection: str | None, as_json: bool) -> None:
    """List the documents."""
    from appliance.listing import list_summaries

    settings = current_settings()
    summaries = list_summaries(settings.home, collection, settings.model)
    if as_json:
        print_json({"documents": [summary.as_json() for summary in summaries]})
        return
    rows = [
        (
            s.id[:8],
            s.collection,
            s.title[:48],
            s.kind,
            s.pages or "–",
            f"{s.chunks_with_kv}/{s.chunks}",
            size_text(s.kv_bytes),
            ", ".join(s.flags).replace("_", " "),
        )
        for s in summaries
    ]
    print_table(("id", "collection", "title", "kind", "pages", "KV chunks", "KV", "notes"), rows)


@click.command("rm")
@click.argument("document")
@common_options
def remove(document: str) -> None:
    """Delete a document (by id, path, file name or title) and every copy of it here; the file itself stays."""
    from appliance.removal import open_and_remove

    click.echo(printable_line(f"removed {open_and_remove(current_settings().home, document)}"), err=True)
