"""`appliance ingest FOLDER|FILE…`"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import ingest_bar, print_json, printable_line, size_text
from appliance.settings import DEFAULT_COLLECTION, KV_POLICIES

if TYPE_CHECKING:
    from appliance.ingest import DocumentEntry


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--collection", default=DEFAULT_COLLECTION, show_default=True, help="Documents searched together.")
@click.option(
    "--kv",
    type=click.Choice(KV_POLICIES),
    default="now",
    show_default=True,
    help="now: compute KV before returning; idle: `serve` does it while nobody asks; off: never store it.",
)
@click.option("--dry-run", is_flag=True, help="Say tokens, bytes and hours; store nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def ingest(paths: tuple[Path, ...], collection: str, kv: str, dry_run: bool, as_json: bool) -> None:
    """Read files and folders (txt, md, html, pdf, docx), once. Unchanged files cost nothing."""
    failed = _estimate(paths, collection, kv, as_json) if dry_run else _ingest(paths, collection, kv, as_json)
    if failed:
        click.get_current_context().exit(1)


def _estimate(paths: tuple[Path, ...], collection: str, kv: str, as_json: bool) -> bool:
    """Print what a run would cost; returns whether a file failed."""
    from appliance.ingest import open_and_estimate

    estimate = open_and_estimate(current_settings(), paths, collection, kv)
    if as_json:
        print_json(estimate.as_json())
    else:
        _print_entries(estimate.documents)
        click.echo(
            f"{estimate.chunks} new chunks, {estimate.kv_tokens} tokens, {size_text(estimate.kv_bytes)} of KV,"
            f" about {estimate.hours * 60:.1f} minutes at {estimate.tokens_per_s:.0f} tokens/s; nothing stored"
        )
    return estimate.failed


def _ingest(paths: tuple[Path, ...], collection: str, kv: str, as_json: bool) -> bool:
    """Read the files and print the report; returns whether a file failed."""
    from appliance.service import Appliance

    with Appliance.open(current_settings()) as appliance, ingest_bar() as progress:
        report = appliance.ingest(list(paths), collection, kv, progress)
    if as_json:
        print_json(report.as_json())
    else:
        _print_entries(report.documents)
        click.echo(
            f"{report.chunks} new chunks, {size_text(report.kv_bytes)} of KV in {report.seconds:.1f} s"
            f" ({report.model_seconds:.1f} s of it in the models)"
        )
        if report.chunks_without_room:
            click.echo(
                f"{report.chunks_without_room} chunks are without KV, the disk budget is spent: they are searched all"
                " the same and read again when asked for; name a larger --disk-budget, or remove documents"
            )
    if report.error is not None:
        click.echo(printable_line(f"error: {report.error}"), err=True)
    return report.failed


def _print_entries(entries: tuple["DocumentEntry", ...]) -> None:
    """Failures on standard error, the rest as a short list."""
    for entry in entries:
        if entry.error is None:
            line = f"{entry.state:<10} {entry.path}  {entry.chunks} chunks"
        else:
            # Lines of the parser name the file alone; which of two of the same name is meant, the path says.
            where = "" if entry.path in entry.error else f"  ({entry.path})"
            line = f"{entry.state:<10} {entry.error}{where}"
        click.echo(printable_line(line), err=entry.state == "failed")
        for note in entry.notes:
            click.echo(f"{'':<10} {note}")
