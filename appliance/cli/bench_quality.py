"""`appliance bench quality`"""

from pathlib import Path

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, stage_bar


def _names(text: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text is not None else default


def _ratios(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError as error:
        raise click.BadParameter("name shares of 0 to 1, as 0.05,0.15") from error


@click.command()
@click.option(
    "--data",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Documents, a folder, or a question set (SQuAD, NQ, MuSiQue, HotpotQA, JSONL); may be repeated.",
)
@click.option("--strategies", metavar="A,B,…", help="Beside full, reuse and near; default: blend,craft,epic,fusion.")
@click.option("--ratios", default="0.15", show_default=True, callback=_ratios, help="Shares computed again.")
@click.option("--select", metavar="A,B,…", help="How fusion chooses; default: paper,last,spread.")
@click.option("--codecs", metavar="A,B,A+B,…", default="bf16", show_default=True, help="What blocks are kept in.")
@click.option("--questions", default=32, show_default=True)
@click.option("--prompt-tokens", default=2048, show_default=True, help="The most a prompt may have.")
@click.option(
    "--chooser",
    default="embedding",
    show_default=True,
    help="How neighbours are chosen: embedding, document, none, or prompt (an oracle, of the question's own chunks).",
)
@click.option("--answer-tokens", default=16, show_default=True, help="The longest answer.")
@click.option("--answers", default=64, show_default=True, help="Questions that every method also answers itself.")
@click.option("--exact-first/--no-exact-first", default=True, help="A prompt's first chunk keeps its exact block.")
@click.option("--cold", is_flag=True, help="Blocks from files, past the page cache, instead of from memory.")
@click.option("--against", metavar="bf16|int8|int4", help="Compare with these weights' full; default: those measured.")
@click.option("--plots", type=click.Path(path_type=Path), help="Draw quality against ratio and time into this folder.")
@click.option("--dump", type=click.Path(path_type=Path), help="Write ids, spans, answers, logits, times here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def quality(
    data: tuple[Path, ...],
    strategies: str | None,
    ratios: tuple[float, ...],
    select: str | None,
    codecs: str,
    questions: int,
    prompt_tokens: int,
    chooser: str,
    answer_tokens: int,
    answers: int,
    exact_first: bool,
    cold: bool,
    against: str | None,
    plots: Path | None,
    dump: Path | None,
    as_json: bool,
) -> None:
    """How near each strategy's answers come to reading everything again, over real questions."""
    from appliance.benches.quality import SELECTING, QualityBenchSettings, run_quality_bench
    from models.selection import SELECTS
    from storage.codecs import CodecPair

    settings = current_settings()
    chosen = QualityBenchSettings(
        data,
        strategies=_names(strategies, SELECTING),
        ratios=ratios,
        selects=_names(select, tuple(SELECTS)),
        codecs=tuple(CodecPair.named(name) for name in _names(codecs, ())),
        questions=questions,
        prompt_tokens=prompt_tokens,
        neighbours=settings.neighbours,
        chooser=chooser,
        answer_tokens=answer_tokens,
        answers=answers,
        exact_first=exact_first,
        cold=cold,
        against=against,
        plots=plots,
        dump=dump,
    )
    with stage_bar() as progress:
        result = run_quality_bench(settings, chosen, progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(result.as_table())
