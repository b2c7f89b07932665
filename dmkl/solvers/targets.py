"""What a loss is fitted to, signs of classes or real targets, and on which samples first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Table
from dmkl.data import Labels
from dmkl.problems.losses import Loss, LossLike, loss_constant, loss_of, loss_value
from dmkl.solvers.problem import Formulation, Problem
from dmkl.solvers.working_sets import first_sets, whole


class WithLoss(Formulation):
    """A formulation with a loss: a registered name, a table with parameters, or a `Loss`."""

    weighted: ClassVar[bool] = True

    loss: LossLike
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", loss_constant(self.loss))  # tables cannot be hashed
        self.own_loss()

    def own_loss(self) -> Loss:
        return loss_of(self.loss, self.epsilon)

    def constants(self) -> Table:
        return {**super().constants(), "loss": loss_value(self.loss)}

    def task_of(self, y: Any) -> str:
        """Numbers of more than two values are targets for a loss that takes them, also when they are whole."""
        values = np.asarray(y)
        numbers = values.ndim == 1 and values.dtype.kind in "iuf" and len(np.unique(values)) > 2
        return "regression" if self.own_loss().regression and numbers else "auto"

    @classmethod
    def usual_values(cls, labels: Labels, given: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """The hinge is not for real targets."""
        loss = {"loss": ("squared",)} if labels.task == "regression" else {}
        return {**cls.usual, **loss, **given}

    def targets(self, labels: Labels) -> Float64:
        """(n, m): the targets of a regression, or -1/+1 for one class against the rest."""
        if labels.task != "regression" or not self.own_loss().regression:
            return labels.signs()
        return np.asarray(labels.values[:, None], dtype=np.float64)


def first_samples(problem: Problem, loss: Loss) -> NDArray[np.bool_]:
    """(n, m): all of them, or random ones of either side where the loss lets most of them go."""
    if whole(problem.n) or not loss.sparse:
        return np.ones(problem.Y.shape, dtype=bool)
    return first_sets(np.where(np.median(problem.Y, axis=0) < problem.Y, 1.0, -1.0), problem.seed)
