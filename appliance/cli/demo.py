"""`appliance demo`, which `installer/run.sh` runs."""

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import ingest_bar, print_json


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def demo(as_json: bool) -> None:
    """Ingest a sample folder into the collection `demo` and ask five questions, reading everything and from KV."""
    from appliance.demo import ask_samples, ingest_samples
    from appliance.service import Appliance

    with Appliance.open(current_settings()) as appliance:
        with ingest_bar() as progress:
            ingested = ingest_samples(appliance, progress)
        report = ask_samples(appliance, ingested)
        if as_json:
            print_json(report.as_json())
            return
        click.echo(report.as_table())
        note = appliance.describe()["note"]
        if note:
            click.echo(f"({note})", err=True)
        click.echo('next: installer/run.sh serve, or installer/run.sh ask --collection demo "…"', err=True)
