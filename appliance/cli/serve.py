"""`appliance serve`"""

import click

from appliance.cli.options import common_options, current_settings


@click.command()
@click.option("--port", default=7860, show_default=True, type=click.IntRange(1, 65535))
@common_options
def serve(port: int) -> None:
    """Open the page on this computer (127.0.0.1 only). Waiting KV is computed while nobody asks."""
    from appliance.service import Appliance
    from ui.environment import prepare_environment

    with Appliance.open(current_settings()) as appliance:
        prepare_environment(appliance.home.cache)  # before Gradio is imported
        from ui.server import enter_empty_folder
        from ui.server import serve as serve_page

        enter_empty_folder(appliance.home.cache / "empty")
        appliance.prepare()
        appliance.start_idle_work()
        serve_page(appliance, port, on_ready=lambda url: click.echo(f"open {url} (Ctrl-C stops)", err=True))
