"""`solve`: from a stack, labels and a formulation to a certified fit."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import StrPath
from dmkl.data import Labels, make_labels
from dmkl.errors import ConfigError, DataError
from dmkl.events import Observer, ignore
from dmkl.problems.base import Formulation
from dmkl.solvers import methods
from dmkl.solvers.loop import Checkpoint, run
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import State
from dmkl.stack import KernelStack, on_cluster


@dataclass(frozen=True)
class Fit:
    """The result. With m > 1 classes `intercept` is (m,), and so are `objective`, `dual` and `gap` unless the classes
    share one objective."""

    formulation: Any
    objective: Any  # primal value, as FORMULATIONS defines it
    dual: Any  # lower bound
    gap: Any  # (objective - dual) / |objective|, certified over all samples
    weights: NDArray[np.float64]  # (s,), or (m, s) when every class has its own
    intercept: Any
    passes: int
    svm_calls: int
    oracle_calls: int
    rounds: int
    converged: bool
    out_of_time: bool
    classes: tuple[str, ...]
    task: str
    history: list[dict[str, Any]]
    state: State  # where the solver ended: what a neighbouring problem starts from

    @property
    def coef(self) -> NDArray[np.float64]:
        """Coefficients beta = alpha * y: (n,) for one class, else (n, m); with their own for every kernel, those of the
        formulation: (n, s) for one class, else (m, n, s)."""
        coef = self.coef_matrix
        if self.per_kernel:
            apart = coef.reshape(len(coef), -1, self.weights.shape[-1]).transpose(1, 0, 2)
            return apart[0] if len(apart) == 1 else apart
        return coef[:, 0] if coef.shape[1] == 1 else coef

    @property
    def per_kernel(self) -> bool:
        """Whether every sample has a coefficient for every kernel, and not one that the kernels' weights divide."""
        return bool(self.formulation.per_kernel)

    @property
    def coef_matrix(self) -> NDArray[np.float64]:
        """Coefficients (n, m), also for one class; (n, m s) where every kernel has its own, class after class."""
        return np.asarray(self.state.coef.toarray())

    @property
    def block_steps(self) -> float:
        """SVM calls for each joint maximisation over (alpha, gamma): what the VSKL paper counts as BCA steps."""
        return self.svm_calls / max(self.oracle_calls, 1)

    @property
    def iterations(self) -> list[dict[str, float]]:
        """What methods that iterate inside a round tell of each iteration; empty for the others."""
        return self.state.own.iterations()

    @property
    def worst_gap(self) -> float:
        return float(np.max(self.gap))


def solve(
    stack: KernelStack,
    y: Any,
    formulation: Formulation,
    *,
    tol: float = 1e-3,
    oracle: str | None = None,
    method: str | None = None,
    client: Any = None,
    seed: int = 0,
    sample_weight: Any = None,
    max_rounds: int = 100,
    max_seconds: float = np.inf,
    start: Fit | None = None,
    checkpoint: StrPath | None = None,
    observer: Observer = ignore,
) -> Fit:
    """Solve to a certified relative gap of `tol` for every class.

    `y` holds -1/+1, any two labels, class labels (one-vs-rest) or an indicator matrix (n, m). With a
    `distributed.Client`, tasks fan out over its workers. `sample_weight` (n,) says how many times each sample's loss
    counts. `start` is a fit of the same samples and classes with other
    constants, which saves rounds. With a `checkpoint` path the state is saved after every round, and a run that was
    cut short goes on from there.
    """
    if not (tol > 0 and np.isfinite(tol)):
        raise ConfigError(f"tol should be positive, not {tol}")
    labels = y if isinstance(y, Labels) else make_labels(y, formulation.task_of(y))
    if len(labels) != stack.n:
        raise DataError(f"{len(labels)} labels for a stack of {stack.n} samples")
    chosen = methods.find(formulation, method, oracle)  # refuses unknown names before any work
    Y = formulation.targets(labels)
    warm = _warm(start, formulation, (*Y.shape, stack.s)) if start else None
    counts = None if sample_weight is None else _counts(sample_weight, formulation, len(Y))
    runtime = stack.runtime
    if client is not None:
        stack, runtime = on_cluster(stack, client)
    problem = Problem(
        stack,
        Y,
        tol,
        oracle or methods.DEFAULT_ORACLE,
        runtime,
        method=chosen.name,
        seed=seed,
        start=warm,
        sample_weight=counts,
        observer=observer,
    )
    solver = chosen.solver(formulation, problem)
    kept = Checkpoint(Path(checkpoint), identify(problem, formulation)) if checkpoint is not None else None
    try:
        outcome = run(problem, solver, max_rounds=max_rounds, max_seconds=max_seconds, checkpoint=kept)
    finally:
        if client is not None:
            runtime.close()
    state = outcome.state
    return Fit(
        formulation=formulation,
        objective=_shaped(state.primal),
        dual=_shaped(state.dual),
        gap=_shaped(state.gap),
        weights=state.weights,
        intercept=_shaped(state.intercept),
        passes=state.passes,
        svm_calls=state.svm_calls,
        oracle_calls=state.oracle_calls,
        rounds=state.round,
        converged=outcome.converged,
        out_of_time=outcome.out_of_time,
        classes=labels.classes,
        task=labels.task,
        history=outcome.history,
        state=state,
    )


def _counts(sample_weight: Any, formulation: Formulation, n: int) -> NDArray[np.float64]:
    if not formulation.weighted:
        raise ConfigError(
            f"{type(formulation).__name__} cannot weigh samples", "use UniformMKL, VSKL, L1MKL, LpMKL or SpicyMKL"
        )
    counts = np.asarray(sample_weight, dtype=np.float64)
    if counts.shape != (n,):
        raise DataError(f"sample weights of shape {counts.shape} for {n} samples")
    if not ((counts > 0) & np.isfinite(counts)).all():
        raise DataError("sample weights should be positive and finite", "leave out samples that do not count")
    return counts


def _warm(start: Fit, formulation: Any, shape: tuple[int, int, int]) -> State:
    """Where `start` ended, its alpha stretched to the new C: feasible, and at its bounds where it was."""
    state = start.state
    if (*state.working.shape, state.weights.shape[-1]) != shape or start.per_kernel != formulation.per_kernel:
        n, m, s = shape
        raise ConfigError(f"the fit to start from is not of {n} samples, {m} classes and {s} kernels")
    return dataclasses.replace(state, coef=state.coef * formulation.stretch(start.formulation))


def identify(problem: Problem, formulation: Any) -> str:
    """What a checkpoint must agree on to be gone on with; the tolerance may change."""
    digest = hashlib.blake2b(problem.Y.tobytes(), digest_size=16)
    digest.update(problem.stack.groups.tobytes())
    if problem.sample_weight is not None:
        digest.update(problem.sample_weight.tobytes())
    default = problem.method == methods.find(formulation).name
    method = "" if default else problem.method  # as in checkpoints from before the default had a name
    digest.update(repr((formulation, problem.stack.identity, problem.oracle, method, problem.seed)).encode())
    return digest.hexdigest()


def _shaped(values: NDArray[np.float64]) -> Any:
    return float(values[0]) if len(values) == 1 else values
