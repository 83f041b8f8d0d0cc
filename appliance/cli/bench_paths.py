"""`appliance bench paths`"""

from pathlib import Path

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, stage_bar


@click.command()
@click.option(
    "--data",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Question sets (SQuAD, NQ, MuSiQue, HotpotQA, JSONL) to retrieve for; the simulated prompts always run.",
)
@click.option("--questions", default=1000, show_default=True, help="Of the simulation, and at most of each set.")
@click.option("--known-chunks", default=50, show_default=True, help="Chunks of the simulated knowledge base.")
@click.option("--shared-chunks", default=300, show_default=True, help="Simulated uploads that users share.")
@click.option("--skew", default=1.0, show_default=True, help="Zipf's exponent of how often a chunk is asked for.")
@click.option("--seed", default=20261121, show_default=True, help="Of every draw.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def paths(
    data: tuple[Path, ...],
    questions: int,
    known_chunks: int,
    shared_chunks: int,
    skew: float,
    seed: int,
    as_json: bool,
) -> None:
    """Storage and computing that alternative paths save over a prefix cache: FusionRAG's simulation."""
    from appliance.benches.paths import PathsBenchSettings, run_paths_bench
    from appliance.benches.paths_workload import Draw

    draw = Draw(questions, seed, known_chunks=known_chunks, shared_chunks=shared_chunks, skew=skew)
    chosen = PathsBenchSettings(data, draw)
    if data:
        from appliance.engine import text_cutter
        from models.loading import resolve_model

        settings = current_settings()
        embedding, starts = resolve_model(settings.embedding), text_cutter(settings)
        chosen = PathsBenchSettings(data, draw, embedding, starts, settings.chunk_tokens)
    with stage_bar() as progress:
        result = run_paths_bench(chosen, progress=progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(result.as_table())
