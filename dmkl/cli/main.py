"""The `dmkl` command. Commands import what is heavy inside their bodies, so that --help is immediate."""

from __future__ import annotations

import sys

import click

from dmkl.cli.cluster import cluster
from dmkl.cli.doctor import doctor
from dmkl.cli.info import info
from dmkl.cli.kernels import kernels
from dmkl.cli.predict import evaluate, predict
from dmkl.cli.status import status
from dmkl.cli.submit import submit
from dmkl.cli.train import train
from dmkl.cli.tune import tune
from dmkl.errors import ConfigError, DmklError, ResourceError
from dmkl.version import __version__

EXIT_CODES = """\b
Exit codes: 0 done, 1 internal error, 2 wrong usage or configuration, 3 out of time (the best model is saved),
4 data that cannot be used, 5 damaged or foreign store, 6 too little memory or disk, 7 cluster not reachable,
8 output exists or cannot be written, 9 not solved to the tolerance, 130 interrupted."""


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dmkl")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Multiple kernel learning with a proof of optimality, from a laptop to a cluster."""


for command in (kernels, train, tune, submit, status, predict, evaluate, info, cluster, doctor):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; every refusal is one line and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        cli.main(arguments, prog_name="dmkl", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _refuse(ConfigError.exit_code, error.format_message())
    except (KeyboardInterrupt, click.Abort):
        return _refuse(130, "interrupted; the same command again goes on where it was")
    except DmklError as error:
        _trace(arguments)
        return _refuse(error.exit_code, str(error))
    except MemoryError:
        _trace(arguments)
        return _refuse(ResourceError.exit_code, "out of memory; set a limit with --memory")
    except BrokenPipeError:  # a reader like `head` went away
        return 1
    except Exception as error:
        _trace(arguments)
        return _refuse(1, f"internal error: {type(error).__name__}: {error}; please report it with --debug's output")
    return 0


def _refuse(code: int, text: str) -> int:
    one_line = " ".join(text.split())
    sys.stderr.write(f"error: {one_line}\n")
    return code


def _trace(arguments: list[str]) -> None:
    if "--debug" in arguments:
        import traceback

        traceback.print_exc()
