"""`appliance bench throughput`"""

from pathlib import Path

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, stage_bar


@click.command()
@click.option("--data", multiple=True, type=click.Path(path_type=Path), help="Documents, a folder, or a question set.")
@click.option("--askers", default=4, show_default=True, help="How many ask at once.")
@click.option("--questions", default=8, show_default=True, help="In each round, both ways.")
@click.option("--new-tokens", default=32, show_default=True, help="The longest an answer may be.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--top-k", default=4, show_default=True, help="Chunks in each prompt.")
@click.option("--strategy", default="auto", show_default=True)
@click.option("--dump", type=click.Path(path_type=Path), help="Write every answer with ids and times here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def throughput(
    data: tuple[Path, ...],
    askers: int,
    questions: int,
    new_tokens: int,
    rounds: int,
    top_k: int,
    strategy: str,
    dump: Path | None,
    as_json: bool,
) -> None:
    """Questions a second: several askers at once, against one after another."""
    from appliance.asking import Asked
    from appliance.benches.throughput import ThroughputBenchSettings, run_throughput_bench, table_of

    chosen = ThroughputBenchSettings(data, questions, askers, new_tokens, rounds, top_k, strategy, dump)
    Asked("?", strategy=strategy)  # an unknown one is refused before anything is read
    with stage_bar() as progress:
        result = run_throughput_bench(current_settings(), chosen, progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(table_of(result))
