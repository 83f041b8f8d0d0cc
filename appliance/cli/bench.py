"""`appliance bench …`"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json

_DATA = click.option(
    "--data",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Documents, a folder, or a question set (SQuAD, NQ, MuSiQue, HotpotQA, JSONL); may be repeated.",
)
_DUMP = click.option("--dump", type=click.Path(path_type=Path), help="Write ids, spans, answers, logits, times here.")
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")


@click.group()
def bench() -> None:
    """Measure this computer. Results belong in docs/benchmarks.md with command, hardware and date."""


@bench.command()
@_DATA
@click.option("--questions", default=5, show_default=True)
@click.option("--top-k", default=8, show_default=True, help="Chunks in each prompt.")
@click.option("--rounds", default=5, show_default=True, help="How often each question is asked.")
@_DUMP
@_JSON
@common_options
def ttft(data: tuple[Path, ...], questions: int, top_k: int, rounds: int, dump: Path | None, as_json: bool) -> None:
    """Time to first token: everything read again, against KV from memory and from cold disk."""
    from appliance.benches.ttft import TtftBenchSettings, run_ttft_bench, table_of

    with _bar() as progress:
        result = run_ttft_bench(current_settings(), TtftBenchSettings(data, questions, top_k, rounds, dump), progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(table_of(result))


@bench.command()
@_DATA
@click.option("--questions", type=click.IntRange(min=1), help="Of each set, evenly spread; default: all.")
@click.option("--k", "ks", default="1,4,8", show_default=True, help="Depths of recall.")
@_DUMP
@_JSON
@common_options
def retrieval(data: tuple[Path, ...], questions: int | None, ks: str, dump: Path | None, as_json: bool) -> None:
    """Recall@k and MRR of vectors, of words, and of both together."""
    from appliance.benches.retrieval import RetrievalBenchSettings, run_retrieval_bench
    from appliance.engine import text_cutter
    from models.loading import resolve_model

    if not data:
        raise click.UsageError("name at least one question set with --data")
    settings = current_settings()
    depths = tuple(int(part) for part in ks.split(",") if part.strip().isdecimal())
    if not depths or min(depths) < 1:
        raise click.UsageError(f"--k {ks!r}: give depths such as 1,4,8")
    chosen = RetrievalBenchSettings(
        data, resolve_model(settings.embedding), token_starts=text_cutter(settings), chunk_tokens=settings.chunk_tokens
    )
    with _bar() as progress:
        result = run_retrieval_bench(replace(chosen, questions=questions, ks=depths, dump=dump), progress=progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(result.as_table())


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error whose name and length change with the stage."""
    from tqdm import tqdm

    with tqdm(file=sys.stderr, dynamic_ncols=True, leave=False, mininterval=0.3) as bar:

        def tell(stage: str, done: int, total: int) -> None:
            bar.set_description_str(stage, refresh=False)
            bar.total = total
            bar.update(done - bar.n)

        yield tell
