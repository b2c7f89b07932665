"""What a solver is given, and what it must be able to do."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Table
from dmkl.data import Labels
from dmkl.events import Observer, ignore
from dmkl.runtime import Runtime
from dmkl.solvers.state import State
from dmkl.stack import KernelStack


@dataclass(frozen=True)
class Problem:
    """Problems over one stack: column k of Y holds the -1/+1 labels of class k, or real targets."""

    stack: KernelStack
    Y: NDArray[np.float64]  # (n, m)
    tol: float
    oracle: str
    runtime: Runtime  # where the classes' tasks run
    method: str = ""  # how a compact problem is solved; the formulation's own choice unless named
    seed: int = 0
    start: State | None = None  # where a neighbouring problem ended, its coefficients feasible here
    sample_weight: Float64 | None = None  # (n,) how many times each sample counts, once unless given
    observer: Observer = ignore

    @property
    def counts(self) -> Float64:
        """(n,): what every sample's loss is multiplied by, and so every bound of alpha."""
        return np.ones(self.n) if self.sample_weight is None else self.sample_weight

    @property
    def n(self) -> int:
        return int(self.Y.shape[0])

    @property
    def m(self) -> int:
        return int(self.Y.shape[1])


class Solver(Protocol):
    """An algorithm as `init` and `step` over explicit state; the loop does everything else."""

    def init(self, problem: Problem) -> State:
        """The state before the first round."""

    def step(self, problem: Problem, state: State) -> State:
        """One round: improve the classes whose gap is above the tolerance, and certify them over all samples."""

    def leave(self, problem: Problem, state: State) -> State:
        """The state to make a model of when the loop ends early: no class without coefficients."""


MINOR: Any = {"minor": True}  # metadata of a formulation's fields that are only worth a word when not as by default


def describe(formulation: Any, *, without: str = "") -> str:
    """'VSKL q=2 C=10': the name, then its constants, less one if so asked."""
    words = [type(formulation).__name__]
    for field in dataclasses.fields(formulation):
        value = getattr(formulation, field.name)
        if field.name != without and (not field.metadata.get("minor") or value != field.default):
            words.append(f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}")
    return " ".join(words)


def shares_of_largest(
    values: dict[str, Sequence[Any]],
    constant: str,
    kind: str,
    largest: Callable[[Any], float],
    shares: Sequence[float],
) -> list[dict[str, Sequence[Any]]]:
    """Tables for `usual_grids`: the constant as it is given, or for each value of `kind` these shares of its largest
    useful value, in two digits, for they are read by people."""
    if constant in values:
        return [values]
    tables = []
    for one in values[kind]:
        most = largest(one)
        tables.append({**values, kind: (one,), constant: tuple(float(f"{share * most:.1e}") for share in shares)})
    return tables


class Formulation(ABC):
    """An optimisation problem with its constants; it knows the solver that takes it."""

    __dataclass_fields__: ClassVar[
        dict[str, dataclasses.Field[Any]]
    ]  # every formulation is a dataclass of its constants
    weighted: ClassVar[bool] = False  # whether samples may count more than once, or less
    per_kernel: ClassVar[bool] = False  # a coefficient for every sample and kernel, not one for a sample
    usual: ClassVar[Mapping[str, Sequence[Any]]]  # values of constants that are worth trying, in the order of a path

    def constants(self) -> Table:
        """The constants in the plain values of a configuration file, by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @abstractmethod
    def solver(self, problem: Problem) -> Solver:
        """Check that this problem can be solved, before any work, and say by whom."""

    def task_of(self, y: Any) -> str:
        """The task of labels that nobody named: 'auto' finds it out from the values."""
        return "auto"

    def targets(self, labels: Labels) -> NDArray[np.float64]:
        """(n, m): what the scores of a sample are fitted to; -1/+1 for one class against the rest."""
        return labels.signs()

    @abstractmethod
    def stretch(self, start: Any) -> float:
        """What coefficients of a fit with other constants are multiplied by to be feasible, and near, in this one."""

    @property
    @abstractmethod
    def strength(self) -> float:
        """How strongly it regularises, to be compared with others of its kind."""

    @classmethod
    def usual_values(cls, labels: Labels, given: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """The constants to try that need no look at the kernels, those `given` as they are."""
        return {**cls.usual, **given}

    @classmethod
    def usual_grids(
        cls, stack: KernelStack, labels: Labels, given: Mapping[str, Sequence[Any]]
    ) -> list[dict[str, Sequence[Any]]]:
        """Values of all constants to try together; more than one table where what is worth trying depends on another
        constant, or on the kernels (one pass)."""
        return [cls.usual_values(labels, given)]

    @abstractmethod
    def baseline(self, weights: NDArray[np.float64]) -> Formulation:
        """The same without learning weights, as comparable as can be to a fit that learnt these."""
