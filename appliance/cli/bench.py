"""`appliance bench …`"""

from dataclasses import replace
from pathlib import Path

import click

from appliance.cli.bench_decode import decode
from appliance.cli.bench_harag import harag
from appliance.cli.bench_paths import paths
from appliance.cli.bench_planner import planner
from appliance.cli.bench_quality import quality
from appliance.cli.bench_throughput import throughput
from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, stage_bar

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

    with stage_bar() as progress:
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
    with stage_bar() as progress:
        result = run_retrieval_bench(replace(chosen, questions=questions, ks=depths, dump=dump), progress=progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(result.as_table())


@bench.command()
@_DATA
@click.option("--questions", default=24, show_default=True)
@click.option("--codecs", "names", metavar="A,B,A+B,…", help="Keys and values, or both; default: all that are known.")
@click.option("--prompt-tokens", default=2048, show_default=True, help="The most a prompt may have.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw error against size into this .svg or .png file.")
@_DUMP
@_JSON
@common_options
def codecs(
    data: tuple[Path, ...],
    questions: int,
    names: str | None,
    prompt_tokens: int,
    plot: Path | None,
    dump: Path | None,
    as_json: bool,
) -> None:
    """What each codec takes, costs, and does to answers, over real questions."""
    from appliance.benches.codec_samples import named_pairs
    from appliance.benches.codecs import CodecsBenchSettings, run_codecs_bench

    pairs = named_pairs(names) if names else None
    chosen = CodecsBenchSettings(data, questions, pairs, prompt_tokens, plot, dump)
    with stage_bar() as progress:
        result = run_codecs_bench(current_settings(), chosen, progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(result.as_table())


bench.add_command(decode)
bench.add_command(harag)
bench.add_command(paths)
bench.add_command(planner)
bench.add_command(quality)
bench.add_command(throughput)
