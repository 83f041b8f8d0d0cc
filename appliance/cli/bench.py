"""`appliance bench …`"""

import click


@click.group()
def bench() -> None:
    """Measure this computer; nothing here is a test."""
