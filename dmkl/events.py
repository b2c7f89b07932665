"""What happens, as values. The library emits events and never prints; progress bars and logs are observers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """`done` of `total` units of a stage ('tiles', 'pass', 'solving') are finished; stages begin again and again."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class RoundDone:
    """One round of the outer loop: counters so far and the worst certified gap over the classes."""

    round: int
    passes: int
    svm_calls: int
    finished: int
    classes: int
    kernels: int  # with weight in any class
    gap: float
    tol: float
    objective: float  # all classes' together, and what is proved to be below it
    dual: float
    seconds: float


@dataclass(frozen=True)
class PointDone:
    """One point of a search is judged on one fold: `done` of `total`, its leading metric, and what it took."""

    fold: int
    formulation: str
    score: float
    passes: int
    svm_calls: int
    done: int
    total: int


@dataclass(frozen=True)
class Note:
    """Something a person would want to know that is neither progress nor an error."""

    text: str


Event = Progress | RoundDone | PointDone | Note
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The observer of those who do not watch."""
