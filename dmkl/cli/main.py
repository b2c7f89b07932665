"""The `dmkl` command. Commands import heavy modules inside their bodies, so that --help is immediate."""

from __future__ import annotations

import sys

import click

from dmkl.cli.cluster import cluster
from dmkl.cli.doctor import doctor
from dmkl.cli.info import info
from dmkl.cli.init import init
from dmkl.cli.kernels import kernels
from dmkl.cli.predict import evaluate, predict
from dmkl.cli.reference import completion
from dmkl.cli.report import report
from dmkl.cli.rerun import rerun
from dmkl.cli.status import status
from dmkl.cli.submit import submit
from dmkl.cli.train import train
from dmkl.cli.tune import tune
from dmkl.errors import EXIT_CODES, INTERNAL, INTERRUPTED, ConfigError, DmklError, ResourceError
from dmkl.version import __version__

LONGEST_LINE = 2000  # characters: names in a file may be of any length
EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dmkl")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Multiple kernel learning with a certificate of optimality, from a laptop to a cluster."""


COMMANDS = (
    init,
    kernels,
    train,
    tune,
    submit,
    status,
    rerun,
    report,
    predict,
    evaluate,
    info,
    cluster,
    doctor,
    completion,
)
for command in COMMANDS:
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; an error prints one line with the problem and one with the remedy."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        cli.main(arguments, prog_name="dmkl", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command_path = context.command_path if context else "dmkl"
        return _refuse(ConfigError.exit_code, error.format_message(), f"see {command_path} --help")
    except (KeyboardInterrupt, click.Abort):
        return _refuse(INTERRUPTED, "interrupted", "run the same command again to continue")
    except DmklError as error:
        _trace(arguments)
        return _refuse(error.exit_code, error.message, error.hint or error.remedy)
    except MemoryError:
        _trace(arguments)
        return _refuse(ResourceError.exit_code, "out of memory", "set a limit with --memory")
    except BrokenPipeError:  # a reader like `head` went away
        return 1
    except Exception as error:
        _trace(arguments)
        problem = f"internal error: {type(error).__name__}: {error}"
        return _refuse(INTERNAL, problem, "please report it with the output of dmkl --debug")
    return 0


def _refuse(code: int, problem: str, remedy: str) -> int:
    for label, text in (("error", problem), ("hint", remedy)):
        sys.stderr.write(f"{label}: {_harmless(text)}\n")
    return code


def _harmless(text: str) -> str:
    """One line without control characters: names in a file could hold some that steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text[:LONGEST_LINE].split()))


def _trace(arguments: list[str]) -> None:
    if "--debug" in arguments:
        import traceback

        traceback.print_exc()
