"""`appliance demo`"""

import click


@click.command()
def demo() -> None:
    """x"""
