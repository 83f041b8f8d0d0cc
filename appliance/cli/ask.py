"""`appliance ask "QUESTION"`"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import ingest_bar, print_json, printable, printable_line
from appliance.errors import DocumentRejected
from appliance.settings import DEFAULT_COLLECTION, DEFAULT_MAX_NEW_TOKENS, DEFAULT_TOP_K

if TYPE_CHECKING:
    from appliance.service import Appliance


@click.command()
@click.argument("question")
@click.option("--collection", default=DEFAULT_COLLECTION, show_default=True)
@click.option("--strategy", default="auto", show_default=True, metavar="auto|full|reuse|fusion|blend|craft|epic")
@click.option(
    "--ratio", default=0.15, show_default=True, help="Share of the passages that fusion, blend, craft and epic reread."
)
@click.option("--select", default="spread", show_default=True, metavar="spread|last|paper", help="How fusion chooses.")
@click.option("--top-k", default=DEFAULT_TOP_K, show_default=True, help="Chunks given to the model.")
@click.option("--max-new-tokens", default=DEFAULT_MAX_NEW_TOKENS, show_default=True)
@click.option(
    "--attach",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file the question is about: it is read into the collection first. May be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def ask(
    question: str,
    collection: str,
    strategy: str,
    ratio: float,
    select: str,
    top_k: int,
    max_new_tokens: int,
    attach: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Ask about the documents; the answer comes with its sources, best first."""
    from appliance.asking import Asked
    from appliance.service import AnswerFinished, AnswerText, Appliance

    asked = Asked(question, collection, strategy, top_k, max_new_tokens, ratio, select)
    # Attaching writes, which only one process may do.
    with Appliance.open(current_settings(), read_only_if_busy=not attach) as appliance:
        if attach:
            asked = replace(asked, documents=_attach(appliance, attach, collection))
        # The models are loaded before the clock starts.
        appliance.prepare(collection)
        for event in appliance.ask(**vars(asked)):
            if isinstance(event, AnswerText) and not as_json:
                click.echo(printable(event.text), nl=False)
            if isinstance(event, AnswerFinished):
                answer = event.answer
    if as_json:
        print_json(answer.as_json())
        return
    click.echo("\n")
    for number, source in enumerate(answer.sources, 1):
        page = f", page {source.page}" if source.page is not None else ""
        where = f"(characters {source.start}–{source.end}, score {source.score:.3f})"
        click.echo(printable_line(f"[{number}] {source.document}{page} {where}"))
    timing, tokens = answer.timing, answer.tokens
    again = f", {tokens['recomputed']} of the passages reread" if tokens["recomputed"] else ""
    click.echo(
        f"first token after {timing['ttft']:.0f} ms ({answer.strategy}; {tokens['reused']} of {tokens['prompt']} tokens"
        f" reused{again})",
        err=True,
    )
    for warning in answer.warnings:
        click.echo(printable_line(f"warning: {warning}"), err=True)


def _attach(appliance: "Appliance", files: tuple[Path, ...], collection: str) -> tuple[str, ...]:
    """Read the files; returns their documents' ids. Raises DocumentRejected where one could not be read."""
    with ingest_bar() as progress:
        report = appliance.attach(files, collection, progress)
    failed = [entry.error or entry.path for entry in report.documents if entry.state == "failed"]
    if report.error is not None or failed:
        raise DocumentRejected(report.error or "; ".join(failed))
    return report.document_ids
