"""The errors of dmkl: one class a cause, one exit code a class.

A message says what is wrong, the hint says what to do. The command line prints one line of each and exits with the
code of the class; it shows a traceback only with `--debug`.
"""

from __future__ import annotations

LONGEST_MESSAGE = 300  # characters of the message of another library
MOST_NAMES = 20  # in a hint; a table may have hundreds of columns
INTERNAL, INTERRUPTED = 1, 130
EXIT_CODES = {
    0: "done",
    INTERNAL: "internal error",
    2: "wrong usage or configuration",
    3: "out of time; the best model is saved",
    4: "data that cannot be used",
    5: "damaged or foreign store or model",
    6: "too little memory or disk",
    7: "cluster not reachable",
    8: "output exists or cannot be written",
    9: "not solved, or not to the tolerance",
    10: "a rerun with a different result",
    INTERRUPTED: "interrupted",
}


class DmklError(Exception):
    """Base of all errors of dmkl; `str()` is the message and the hint in one line."""

    exit_code = INTERNAL
    remedy = "see dmkl --help"  # the hint of errors without one of their own

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class ConfigError(DmklError):
    """A configuration, an option or a name that does not exist or does not fit the problem."""

    exit_code = 2
    remedy = "correct it in the configuration, after -s or in the environment"


class DeadlineReached(DmklError):
    """The time of `--max-time` is over; the best certified state so far has been saved."""

    exit_code = 3
    remedy = "run the same command with a larger --max-time to continue"


class Interrupted(DmklError):
    """Ctrl-C or SIGTERM ended a run; the best certified state so far has been saved."""

    exit_code = INTERRUPTED
    remedy = "run the same command again to continue"


class DataError(DmklError):
    """Data, labels or kernels that cannot be used as they are."""

    exit_code = 4
    remedy = "correct the data, or name other arrays in [data] and [views]"


class StoreError(DmklError):
    """A kernel store or model file that is damaged, foreign or of another version."""

    exit_code = 5
    remedy = "check the path; build or copy a damaged file again"


class ResourceError(DmklError):
    """Too little memory or disk space; found out before the work starts."""

    exit_code = 6
    remedy = "raise --memory, free memory or disk space, or use fewer samples or kernels"


class ClusterError(DmklError):
    """A Dask cluster that cannot be reached or is lost."""

    exit_code = 7
    remedy = "check that scheduler and workers run, then run the same command again"


class OutputError(DmklError):
    """An output that cannot be written: it exists, is read-only, or the disk is full."""

    exit_code = 8
    remedy = "check the path, or choose another -o"


class SolverError(DmklError):
    """A problem that the solver, oracle or formulation cannot solve."""

    exit_code = 9
    remedy = "try another [formulation], or another tol or max_rounds in [solve]"


class NotTheSame(DmklError):
    """A run that was repeated with a different result."""

    exit_code = 10
    remedy = "compare versions and data; dmkl info shows both runs"


def one_line(error: Exception) -> str:
    """The first line of the message of an error, or the name of its class if it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0][:LONGEST_MESSAGE] if lines else type(error).__name__


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint at the most similar known name, with a list of the known names (the most similar ones of a long list)."""
    import difflib

    similar = difflib.get_close_matches(name, known, n=1)
    shown = known if len(known) <= MOST_NAMES else difflib.get_close_matches(name, known, n=MOST_NAMES, cutoff=0.0)
    listed = "known: " + ", ".join(sorted(shown)) + (", ..." if len(shown) < len(known) else "")
    return f"did you mean '{similar[0]}'? ({listed})" if similar else listed
