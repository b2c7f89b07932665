"""Every way dmkl refuses: one class a cause, one exit code a class.

A message says what was given and what was expected; the hint says what to do next. The command line prints both on
one line and exits with the code; a traceback is shown only with `--debug`.
"""

from __future__ import annotations

LONGEST = 300  # characters of a foreign message
LISTED = 20  # names in a hint; a table may have hundreds of columns


class DmklError(Exception):
    """Base of all refusals; `str()` is the whole one-line message."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class ConfigError(DmklError):
    """A configuration, an option or a name that does not exist or does not fit."""

    exit_code = 2


class DeadlineReached(DmklError):
    """`--max-time` passed; the best certified state so far has been saved."""

    exit_code = 3


class DataError(DmklError):
    """Data, labels or kernels that cannot be used as they are."""

    exit_code = 4


class StoreError(DmklError):
    """A kernel store or model file that is damaged, foreign or of another version."""

    exit_code = 5


class ResourceError(DmklError):
    """Not enough memory or disk for what was asked, found out before the work starts."""

    exit_code = 6


class ClusterError(DmklError):
    """A Dask cluster that cannot be reached or has gone away."""

    exit_code = 7


class OutputError(DmklError):
    """A place that cannot be written: it exists, is read-only, or the disk is full."""

    exit_code = 8


class SolverError(DmklError):
    """A solver, oracle or formulation that cannot answer what it was asked."""

    exit_code = 9


def one_line(error: Exception) -> str:
    """The first line of an error's message, or its class when it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:LONGEST] if lines else type(error).__name__


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint for a misspelt name: the nearest known one, then the list, or of a long one the nearest again."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    shown = known if len(known) <= LISTED else difflib.get_close_matches(name, known, n=LISTED, cutoff=0.0)
    listed = "known: " + ", ".join(sorted(shown)) + (", ..." if len(shown) < len(known) else "")
    return f"did you mean '{near[0]}'? ({listed})" if near else listed
