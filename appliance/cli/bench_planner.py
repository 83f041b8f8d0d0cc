"""`appliance bench planner`"""

from pathlib import Path

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, stage_bar


@click.command()
@click.option("--data", multiple=True, type=click.Path(path_type=Path), help="Documents, a folder, or a question set.")
@click.option("--questions", default=500, show_default=True, help="Pairs of auto and full over all cases.")
@click.option("--dump", type=click.Path(path_type=Path), help="Write every pair here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def planner(data: tuple[Path, ...], questions: int, dump: Path | None, as_json: bool) -> None:
    """Whether `auto` is ever slower than reading everything again: short, long, cold, busy disk, no KV."""
    from appliance.benches.planner import PlannerBenchSettings, run_planner_bench, table_of

    with stage_bar() as progress:
        result = run_planner_bench(current_settings(), PlannerBenchSettings(data, questions, dump), progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(table_of(result))
