"""The command line: data on standard output, progress and messages on standard error, exit code 0 only for success."""

import os
import sys

import click

from appliance.cli.ask import ask
from appliance.cli.bench import bench
from appliance.cli.calibrate import calibrate
from appliance.cli.demo import demo
from appliance.cli.documents import list_documents, remove
from appliance.cli.ingest import ingest
from appliance.cli.options import common_options
from appliance.cli.output import printable_line
from appliance.cli.serve import serve
from appliance.cli.status import status
from appliance.cli.verify import verify
from appliance.errors import ApplianceError
from models.errors import ModelError
from storage.errors import StorageError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="appliance", message="appliance %(version)s")
@common_options
def cli() -> None:
    """Answers questions about your documents from what the model already read. Nothing leaves this computer.

    \b
    appliance ingest ~/Documents/handbook
    appliance ask "How many days of leave do I have?"
    appliance serve
    """


for command in (ingest, ask, serve, list_documents, remove, status, verify, bench, calibrate, demo):
    cli.add_command(command)


def main() -> None:
    """Run a command; every error is one line on standard error."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
        sys.exit(130)
    except (ApplianceError, ModelError, StorageError) as error:
        click.echo(printable_line(f"error: {error}"), err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone; there is nobody to tell
        sys.exit(1)
    except OSError as error:
        line = f"error: {error.filename or 'the disk'}: {error.strerror}: check the disk and its rights"
        click.echo(printable_line(line), err=True)
        sys.exit(1)
    except Exception as error:  # the last resort: a person gets one line, a developer the trace
        if os.environ.get("APPLIANCE_TRACEBACK"):
            raise
        reason = " ".join(str(error).split())[:200] or "no reason given"
        click.echo(
            f"error: this should not happen ({type(error).__name__}: {reason}): report it with the output of the same"
            " command under APPLIANCE_TRACEBACK=1",
            err=True,
        )
        sys.exit(70)
    sys.exit(code if isinstance(code, int) else 0)


__all__ = ["cli", "main"]
