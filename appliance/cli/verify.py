"""`appliance verify`"""

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json


@click.command()
@click.option("--rebuild", is_flag=True, help="Make the catalog again from the stored documents and block files.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def verify(rebuild: bool, as_json: bool) -> None:
    """Read everything that is stored and check it. Damaged KV is set aside and computed again when needed."""
    from appliance.rebuild import RebuildReport, open_and_rebuild
    from appliance.verify import VerifyReport, open_and_verify

    settings = current_settings()
    report: RebuildReport | VerifyReport = open_and_rebuild(settings) if rebuild else open_and_verify(settings.home)
    if as_json:
        print_json(report.as_json())
    else:
        click.echo(", ".join(f"{name} {value}" for name, value in report.as_json().items() if name != "problems"))
    for problem in report.problems:
        click.echo(f"problem: {problem}", err=True)
    if report.problems:
        click.get_current_context().exit(1)
