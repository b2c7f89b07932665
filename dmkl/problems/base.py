"""What every formulation knows: its constants, the targets it fits, the values of its constants worth trying.

A formulation is a frozen dataclass whose docstring opens with its objective. How it is solved is not its business:
`dmkl.solvers.methods` is the table from a formulation to its methods.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import numpy as np

from dmkl._util.types import Float64, Table
from dmkl.data import Labels
from dmkl.errors import ConfigError
from dmkl.problems.losses import Loss, LossLike, loss_constant, loss_of, loss_value
from dmkl.problems.targets import RealTargets, Signs, Targets
from dmkl.stack import KernelStack

Constant: TypeAlias = float | str | bool | Table | Loss | None  # of a formulation
Values: TypeAlias = dict[str, Sequence[Constant]]  # constants by name, each with the values to try
Candidates: TypeAlias = Mapping[str, Sequence[Constant]]  # the same, read-only

MINOR: Final = {"minor": True}  # metadata of a field that `describe` mentions only when it differs from its default


def describe(formulation: Formulation, *, without: str = "") -> str:
    """A short name with the constants, such as 'VSKL q=2 C=10'; the constant `without` is left out."""
    words = [type(formulation).__name__]
    for field in dataclasses.fields(formulation):
        value = getattr(formulation, field.name)
        if field.name != without and (not field.metadata.get("minor") or value != field.default):
            words.append(f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}")
    return " ".join(words)


def require_positive(name: str, value: float) -> None:
    """Refuse a constant that is not positive and finite (ConfigError)."""
    if not (value > 0 and np.isfinite(value)):
        raise ConfigError(f"{name} should be positive and finite, not {value}")


def require_positive_C(C: float) -> None:
    """Refuse a C that is not positive and finite (ConfigError)."""
    require_positive("C", C)


@dataclass(frozen=True)
class WithoutKernels:
    """The model that uses no kernel: bounds that are known before any work."""

    primal: Float64  # (m,), or (1,) where all classes are one problem
    dual: Float64  # of the same shape
    intercept: Float64  # (m,)

    @classmethod
    def of(cls, loss: Loss, Y: Targets, *, intercept: bool = True) -> WithoutKernels:
        """The best constant scores under a loss, or scores of zero, for each column of Y."""
        n, m = Y.shape
        nothing = np.zeros(n)
        primal, dual, b = np.zeros((3, m))
        for k, y in enumerate(Y):
            b[k] = loss.intercept(y, nothing) if intercept else 0.0
            primal[k], dual[k] = loss.total(y, nothing + b[k]), -loss.conjugate(y, nothing)
        return cls(primal, dual, b)


@dataclass(frozen=True)
class Formulation(ABC):
    """An optimisation problem with its constants."""

    paper: ClassVar[str] = ""  # the publication to cite, with its year at the end
    weighted: ClassVar[bool] = False  # whether sample weights are supported
    per_kernel: ClassVar[bool] = False  # whether every sample has a coefficient for every kernel, not one in all
    usual: ClassVar[Candidates]  # values worth trying, in the order of a path

    def constants(self) -> Table:
        """The constants by name, in the plain values of a configuration file."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def task_of(self, y: object) -> str:
        """The task that labels of unknown task stand for; 'auto' finds it out from their values."""
        return "auto"

    def targets(self, labels: Labels) -> Targets:
        """What the scores of every sample are fitted to; -1/+1 for each class against the rest."""
        return Signs(labels.members())

    @abstractmethod
    def stretch(self, start: Formulation) -> float:
        """The factor that makes coefficients fitted with the constants of `start` feasible for these constants."""

    @property
    @abstractmethod
    def strength(self) -> float:
        """How strongly the formulation regularises; comparable between formulations of the same class."""

    @classmethod
    def usual_values(cls, labels: Labels, given: Candidates) -> Values:
        """The values to try of all constants that do not depend on the kernels; `given` ones are kept."""
        return {**cls.usual, **given}

    @classmethod
    def usual_grids(cls, stack: KernelStack, labels: Labels, given: Candidates) -> list[Values]:
        """Tables of values to try, every table a grid of its own.

        There are several tables where the values of one constant depend on another constant. Where they depend on the
        kernels this takes one pass over them.
        """
        return [cls.usual_values(labels, given)]

    @abstractmethod
    def without_kernels(self, Y: Targets, counts: Float64) -> WithoutKernels:
        """The bounds of the model that uses no kernel, for targets (n, m) with factors of the losses (n,)."""

    @abstractmethod
    def baseline(self, weights: Float64) -> Formulation:
        """The comparable formulation without learnt weights; `weights` (s,) or (m, s) are those that were learnt."""


class WithLoss(Formulation):
    """A formulation with a choice of loss: a registered name, a table with parameters, or a `Loss`."""

    weighted: ClassVar[bool] = True

    loss: LossLike
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", loss_constant(self.loss))  # a table cannot be hashed
        self.own_loss()

    def own_loss(self) -> Loss:
        """The loss with its parameters."""
        return loss_of(self.loss, self.epsilon)

    def constants(self) -> Table:
        return {**super().constants(), "loss": loss_value(self.loss)}

    def task_of(self, y: object) -> str:
        """Numbers with more than two values are regression targets if the loss takes them, also whole numbers."""
        values = np.asarray(y)
        numbers = values.ndim == 1 and values.dtype.kind in "iuf" and len(np.unique(values)) > 2
        return "regression" if self.own_loss().regression and numbers else "auto"

    def without_kernels(self, Y: Targets, counts: Float64) -> WithoutKernels:
        return WithoutKernels.of(self.own_loss().counting(counts), Y)

    @classmethod
    def usual_values(cls, labels: Labels, given: Candidates) -> Values:
        """For a regression the squared loss: the hinge has no real targets."""
        loss = {"loss": ("squared",)} if labels.task == "regression" else {}
        return {**cls.usual, **loss, **given}

    def targets(self, labels: Labels) -> Targets:
        """The targets of a regression, or -1/+1 for each class against the rest."""
        if labels.task != "regression" or not self.own_loss().regression:
            return Signs(labels.members())
        return RealTargets(np.asarray(labels.values[:, None], dtype=np.float64))


def grids_below_largest(
    values: Values, constant: str, choice: str, largest: Callable[[str], float], shares: Sequence[float]
) -> list[Values]:
    """Tables for `usual_grids`: one for each value of `choice`, with `shares` of that value's largest useful constant.

    Values of the constant that were given stay as they are. The others have two digits, because people read them.
    """
    if constant in values:
        return [values]
    tables = []
    for one in values[choice]:
        most = largest(str(one))
        tables.append({**values, choice: (one,), constant: tuple(float(f"{share * most:.1e}") for share in shares)})
    return tables
