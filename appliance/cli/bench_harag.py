"""`appliance bench harag`"""

from pathlib import Path

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, stage_bar


def _shares(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[float, float, float]:
    try:
        gpu, pinned, pageable = (float(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter("name three percentages of the chunks, as 5,5,10") from error
    return gpu, pinned, pageable


@click.command()
@click.option(
    "--data",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A question set (SQuAD, NQ, MuSiQue, HotpotQA, JSONL); may be repeated, mixed evenly.",
)
@click.option(
    "--questions",
    default=512,
    show_default=True,
    help="The most to measure, of half of all that the data hold; the other half is learned from.",
)
@click.option("--top-k", default=8, show_default=True, help="Chunks in each prompt.")
@click.option("--chunk-tokens", default=256, show_default=True)
@click.option(
    "--budget-shares",
    default="5,5,10",
    show_default=True,
    callback=_shares,
    help="Percent of the chunks that the tiers gpu, pinned, pageable hold.",
)
@click.option("--chunks", default=1000, show_default=True, help="The least the corpus has.")
@click.option("--answers", default=128, show_default=True, help="Measured questions that are answered, for quality.")
@click.option("--thresholds", is_flag=True, help="Also the paper's other settings of its thresholds.")
@click.option("--codecs", metavar="A,B,C,D", help="Of harag_measured, hottest first; default: as calibrated.")
@click.option(
    "--preload/--no-preload",
    default=True,
    help="Begin harag_measured with what is hot in its tiers, as idle work leaves it; else with all on disk.",
)
@click.option("--plots", type=click.Path(path_type=Path), help="Draw the paper's Figures 10 to 16 into this folder.")
@click.option("--dump", type=click.Path(path_type=Path), help="Write ids, spans, answers, times here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def harag(
    data: tuple[Path, ...],
    questions: int,
    top_k: int,
    chunk_tokens: int,
    budget_shares: tuple[float, float, float],
    chunks: int,
    answers: int,
    thresholds: bool,
    codecs: str | None,
    preload: bool,
    plots: Path | None,
    dump: Path | None,
    as_json: bool,
) -> None:
    """Hotness-aware KV against TurboRAG: HA-RAG's own experiments, interleaved, past the page cache."""
    from appliance.benches.harag import HaragBenchSettings, run_harag_bench
    from appliance.benches.harag.table import table_of
    from storage.codecs import CodecPair

    pairs = tuple(CodecPair.named(name.strip()) for name in codecs.split(",")) if codecs else ()
    chosen = HaragBenchSettings(
        data, questions, top_k, chunk_tokens, budget_shares, chunks, answers, thresholds, pairs, preload, plots, dump
    )
    with stage_bar() as progress:
        result = run_harag_bench(current_settings(), chosen, progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(table_of(result))
