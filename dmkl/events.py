"""Events of a run. The library emits them and never prints; progress bars and logs are observers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """`done` of `total` units of a stage ('tiles', 'pass', 'solving') are finished; a stage may begin repeatedly."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class RoundDone:
    """One round of the outer loop is finished: counters since the start and the worst certified gap of all classes.

    `handovers` counts the times that a method did not reach the tolerance and another went on.
    """

    round: int
    passes: int
    svm_calls: int
    handovers: int
    finished: int  # classes
    classes: int
    kernels: int  # with weight in any class
    gap: float
    tol: float
    objective: float  # sum over all classes
    dual: float  # its certified lower bound
    seconds: float


@dataclass(frozen=True)
class PointDone:
    """One point of a search has been scored on one fold: `done` of `total`, its leading metric and its cost."""

    fold: int
    formulation: str
    score: float
    passes: int
    svm_calls: int
    done: int
    total: int


@dataclass(frozen=True)
class Note:
    """A message for the user that is neither progress nor an error."""

    text: str


Event = Progress | RoundDone | PointDone | Note
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """An observer that does nothing."""
