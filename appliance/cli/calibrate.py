"""`appliance calibrate`"""

from pathlib import Path

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, printable, stage_bar


@click.command()
@click.option(
    "--data",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Documents or question sets to measure with; default: what is stored.",
)
@click.option("--questions", type=click.IntRange(min=1), default=16, show_default=True)
@click.option(
    "--bounds",
    default="0.001,0.002,0.005,0.01",
    show_default=True,
    help="Most KL above bf16 for each class of hotness, hottest first.",
)
@click.option(
    "--top1-bound",
    default=0.05,
    show_default=True,
    help="Quality gate: how much less often than under bf16 rounding alone the best token may agree with full's.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def calibrate(data: tuple[Path, ...], questions: int, bounds: str, top1_bound: float, as_json: bool) -> None:
    """Measure how much codecs and strategies change this model's answers, and choose those that are good enough.

    The choice is kept in the data folder, for this model; blocks are encoded again in idle time, and `auto` answers
    with the fastest strategy within the bound.
    """
    from appliance.calibrating import run_calibration
    from appliance.service import Appliance

    try:
        limits = tuple(float(part) for part in bounds.split(","))
    except ValueError as error:
        raise click.UsageError(f"--bounds {bounds!r}: give numbers such as 0.001,0.002,0.005,0.01") from error
    with Appliance.open(current_settings()) as appliance, stage_bar() as progress:
        report = run_calibration(appliance, data, questions, limits, progress=progress, top1_bound=top1_bound)
    if as_json:
        print_json(report.as_json())
    else:
        click.echo(printable(report.as_table()))
