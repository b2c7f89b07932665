"""`solve`: from a stack of kernels, labels and a formulation to a certified fit. `solve_path`: many fits in a row."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csc_array

from dmkl._util.in_memory import in_memory
from dmkl._util.stopping import stopped_by
from dmkl._util.types import Float64, StrPath
from dmkl.data import Labels, make_labels
from dmkl.errors import ConfigError, DataError
from dmkl.events import Observer, ignore
from dmkl.problems.base import Constant, Formulation, WithoutKernels, describe
from dmkl.runtime.blas import one_blas_thread
from dmkl.solvers import methods
from dmkl.solvers.certificate import rounding_of_scores
from dmkl.solvers.loop import Checkpoint, run
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import State, column
from dmkl.stack import KernelStack, on_cluster

F = TypeVar("F", bound=Formulation)


@dataclass(frozen=True)
class Fit:
    """A certified solution of one formulation on one stack of kernels, for n samples, s kernels and m classes.

    m is the number of problems: 1 for two classes or a regression, else one for each class or label.

    Attributes
    ----------
    formulation : Formulation
        The problem that was solved.
    objective : float or array (m,)
        The primal value, as `dmkl/docs/theory/formulations.md` defines it: one for each class, or a float where m is 1
        or the classes share one objective (SharedMKL, Obscure).
    dual : float or array (m,)
        A lower bound of the optimum, shaped as `objective`.
    gap : float or array (m,)
        (objective - dual) / |objective|, certified over all samples and kernels, shaped as `objective`.
    weights : array (m, s) or (s,)
        Weights of the kernels: a row for each class, or (s,) where the classes share them (UniformMKL, SharedMKL,
        Obscure). Row 0 is that of the only class where m is 1.
    intercept : float or array (m,)
        A float where m is 1.
    passes : int
        Passes over the kernels.
    svm_calls, oracle_calls : int
        SVMs that were solved, and maximisations over (alpha, gamma), each of which may take several SVMs.
    rounds : int
        Rounds of the outer loop.
    converged : bool
        Whether every gap is at most the tolerance.
    out_of_time : bool
        Whether `max_seconds` ended the run, or a request to stop.
    rule : str
        What ended the run in place of the tolerance, in words: the paper's stop (`SharedMKL(stop="paper")`), or a
        stationary point of a problem that is not convex (VSKL with q < 1/2). Empty for all else.
    classes : tuple of str
        Names of the classes or labels, in the order of the columns of `coef`.
    task : str
        "binary", "multiclass", "multilabel" or "regression".
    history : list of dict
        One entry for each round of this run, with the fields of `dmkl.events.RoundDone`.
    state : State
        The last state, from which a neighbouring problem can start.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(axis=2))])
    >>> fit = dmkl.solve(dmkl.KernelStack.from_array(K), X[:, 0] > 0, dmkl.L1MKL(C=10.0))
    >>> fit.weights.shape, fit.coef.shape, fit.converged
    ((1, 2), (60,), True)
    """

    formulation: Formulation
    objective: float | Float64
    dual: float | Float64
    gap: float | Float64
    weights: Float64
    intercept: float | Float64
    passes: int
    svm_calls: int
    oracle_calls: int
    rounds: int
    converged: bool
    out_of_time: bool
    rule: str
    classes: tuple[str, ...]
    task: str
    history: list[dict[str, float]]
    state: State

    @property
    def coef(self) -> Float64:
        """Coefficients beta = alpha * y: (n,) where m is 1, else (n, m).

        Where every kernel has coefficients of its own (MIKL) they are shaped (n, s) where m is 1, else (m, n, s).
        """
        coef = self.coef_matrix
        if self.per_kernel:
            apart = coef.reshape(len(coef), -1, self.weights.shape[-1]).transpose(1, 0, 2)
            return apart[0] if len(apart) == 1 else apart
        return coef[:, 0] if coef.shape[1] == 1 else coef

    @property
    def per_kernel(self) -> bool:
        """Whether every sample has a coefficient for every kernel, instead of one that the kernels' weights divide."""
        return bool(self.formulation.per_kernel)

    @property
    def coef_matrix(self) -> Float64:
        """Coefficients (n, m), also where m is 1; (n, m s) where every kernel has its own, class after class."""
        return np.asarray(self.state.coef.toarray())

    @property
    def block_steps(self) -> float:
        """SVMs for each joint maximisation over (alpha, gamma), which the VSKL paper counts as BCA steps."""
        return self.svm_calls / max(self.oracle_calls, 1)

    @property
    def iterations(self) -> list[dict[str, float]]:
        """One row for each iteration inside the rounds, for methods that record them; else empty."""
        return self.state.own.iterations()

    @property
    def worst_gap(self) -> float:
        """The largest gap of all classes."""
        return float(np.max(self.gap))


def solve(
    stack: KernelStack,
    y: ArrayLike | Labels,
    formulation: Formulation,
    *,
    tol: float = 1e-3,
    oracle: str | None = None,
    method: str | None = None,
    client: object = None,
    seed: int = 0,
    sample_weight: ArrayLike | None = None,
    max_rounds: int = 100,
    max_seconds: float = np.inf,
    start: Fit | None = None,
    checkpoint: StrPath | None = None,
    observer: Observer = ignore,
    warn: bool = True,
) -> Fit:
    """Solve a formulation to a certified relative gap for every class.

    Parameters
    ----------
    stack : KernelStack
        The s kernels over n samples.
    y : array (n,) or (n, m), or Labels
        -1/+1, any two labels, class labels (one class against the rest), an indicator matrix (n, m), or real targets.
        A dask array is computed, an xarray.DataArray taken by its values.
    formulation : Formulation
        The problem with its constants.
    tol : float
        The relative gap to reach, (objective - dual) / |objective|.
    oracle : str, optional
        The SVM solver, "smo" (the default) or "libsvm"; refused by methods that solve no SVMs.
    method : str, optional
        The algorithm, one of the formulation's methods (`dmkl.solvers.methods`); its default if left out.
    client : distributed.Client, optional
        Runs the tasks on its workers.
    seed : int
        Seed of everything random.
    sample_weight : array (n,), optional
        How many times the loss of each sample counts, positive; once by default.
    max_rounds : int
        The most rounds of the outer loop.
    max_seconds : float
        The most time, without that of reading labels and checking kernels. A round that would take more than a few
        seconds longer is cut short.
    start : Fit, optional
        A fit of the same samples and classes with other constants, whose solution saves rounds.
    checkpoint : str or path, optional
        Where the state is saved after every round; a run that was cut short continues from there.
    observer : callable
        Receives the events of `dmkl.events`.
    warn : bool
        Whether to warn of a gap above `tol`.

    Returns
    -------
    Fit
        The best solution; `converged` says whether every gap is at most `tol`.

    Warns
    -----
    ConvergenceWarning
        Of scikit-learn: if a gap is above `tol`, and the formulation has no rule of its own that ended the run. It says
        what to try.

    Raises
    ------
    ConfigError
        If an option is out of its range, or the method or oracle is unknown or would not be used.
    DataError
        If the labels or sample weights do not fit the stack.
    SolverError
        If the kernels are indefinite and the formulation needs semidefinite ones, or numbers are not finite.
    StoreError
        If the checkpoint is damaged or belongs to another problem.
    ResourceError
        If a compact problem does not fit in memory.
    KeyboardInterrupt
        At Ctrl-C, once the checkpoint is saved. Its attribute `fit` is the best solution so far. A second Ctrl-C does
        not wait for that.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(axis=2))])
    >>> stack = dmkl.KernelStack.from_array(K)
    >>> fit = dmkl.solve(stack, X[:, 0] > 0, dmkl.VSKL(q=2, C=10.0), tol=1e-4)
    >>> fit.dual <= fit.objective, fit.gap <= 1e-4
    (True, True)
    """
    if not (tol > 0 and np.isfinite(tol)):
        raise ConfigError(f"tol should be positive, not {tol}")
    chosen = methods.find(formulation, method, oracle)  # refuses unknown and unused names before any work
    y = in_memory(y, "y")
    labels = y if isinstance(y, Labels) else make_labels(y, formulation.task_of(y))
    if len(labels) != stack.n:
        raise DataError(f"{len(labels)} labels for a stack of {stack.n} samples")
    Y = formulation.targets(labels)
    warm = _warm(start, formulation, (*Y.shape, stack.s)) if start else None
    counts = None if sample_weight is None else _counts(sample_weight, formulation, stack.n)
    runtime, opened = stack.runtime, None
    if client is not None:
        stack, opened = on_cluster(stack, client)
        runtime = opened
    near = stack.in_this_process() if Y.shape[1] == 1 else stack
    if near is not stack:  # of one class only the work inside it is shared out: threads do that faster
        stack, runtime = near, near.runtime
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
    kept = Checkpoint(Path(checkpoint), identify(problem, formulation)) if checkpoint is not None else None
    python_handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # nobody else does: neither do we
    with stopped_by((signal.SIGINT,) if python_handles else ()) as interrupt:
        try:
            with one_blas_thread(cores=None if runtime.remote else runtime.workers):
                solver = chosen.solver(formulation, problem)
                outcome = run(problem, solver, max_rounds=max_rounds, max_seconds=max_seconds, checkpoint=kept)
        finally:
            if opened is not None:
                opened.close()
    state = outcome.state
    if not outcome.converged:
        state = _bounded(state, formulation.without_kernels(problem.Y, problem.counts), tol)
    fit = Fit(
        formulation=formulation,
        objective=_number_if_one(state.primal),
        dual=_number_if_one(state.dual),
        gap=_number_if_one(state.gap),
        weights=state.weights,
        intercept=_number_if_one(state.intercept),
        passes=state.passes,
        svm_calls=state.svm_calls,
        oracle_calls=state.oracle_calls,
        rounds=state.round,
        converged=outcome.converged,
        out_of_time=outcome.out_of_time,
        rule=outcome.rule,
        classes=labels.classes,
        task=labels.task,
        history=outcome.history,
        state=state,
    )
    if interrupt.made:
        raise SolveInterrupted(fit)
    if warn and not (fit.converged or fit.rule):
        _warn(fit, problem, max_rounds)
    return fit


def _warn(fit: Fit, problem: Problem, max_rounds: int) -> None:
    """Warn the caller outside of dmkl that a fit is not solved, and say what to try."""
    from sklearn.exceptions import ConvergenceWarning

    rounds = f"{fit.rounds} round" + "s" * (fit.rounds != 1)
    gap = f"the certified gap is {fit.worst_gap:.1e} after {rounds}, above tol = {problem.tol:g}"
    text = f"{describe(fit.formulation)}: {gap}. {_remedy(fit, problem, max_rounds)}"
    warnings.warn(text, ConvergenceWarning, stacklevel=depth_outside())


def _remedy(fit: Fit, problem: Problem, max_rounds: int) -> str:
    if fit.out_of_time:
        return "Allow more max_seconds; with a checkpoint the same call continues."
    if fit.rounds >= max_rounds:
        return "Allow more max_rounds."
    if _is_rounding(fit, problem):
        return (
            "The kernels' values are so large that rounding alone makes such a gap: standardise the features, or "
            "normalise the kernels."
        )
    others = [f"'{other.name}'" for other in methods.methods_of(fit.formulation) if other.name != problem.method]
    another = f"the method {' or '.join(others)}, " if others else ""
    return f"Further rounds gain nothing: try {another}kernels of similar scale, or a larger tol."


def _is_rounding(fit: Fit, problem: Problem) -> bool:
    """Whether the rounding of scores, as a share of the targets, is as large as the tolerance."""
    if fit.per_kernel:
        return False
    diagonals = problem.stack.source.diagonal(np.arange(problem.n))
    weights = np.broadcast_to(fit.weights, (problem.m, problem.stack.s))  # classes may share them
    roundings = (rounding_of_scores(diagonals, own, column(fit.state.coef, k)) for k, own in enumerate(weights))
    return max(roundings) > 0.5 * problem.tol * problem.Y.largest


def depth_outside() -> int:
    """The `stacklevel` that names the line outside of dmkl, for a warning of the caller of this function."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dmkl."):
        frame, depth = frame.f_back, depth + 1
    return depth


class SolveInterrupted(KeyboardInterrupt):
    """Ctrl-C during `solve`, after the checkpoint was saved; `fit` is the best solution so far."""

    def __init__(self, fit: Fit) -> None:
        super().__init__(fit)
        self.fit = fit

    def __str__(self) -> str:
        return f"solve was interrupted with a gap of {self.fit.worst_gap:.1e}; the exception's `fit` is the solution"


def _bounded(state: State, nothing: WithoutKernels, tol: float) -> State:
    """The state with the bounds of no kernels for problems that are not solved, and none used where that is better."""
    unsolved = state.gap > tol
    worse = unsolved & (state.primal > nothing.primal)
    dual = np.where(unsolved, np.maximum(state.dual, nothing.dual), state.dual)
    m = len(state.intercept)
    classes = np.broadcast_to(worse, m)
    coef = csc_array(state.coef.multiply(np.repeat(~classes, state.coef.shape[1] // m)[None]))
    coef.eliminate_zeros()
    return dataclasses.replace(
        state,
        primal=np.where(worse, nothing.primal, state.primal),
        dual=dual,
        intercept=np.where(classes, nothing.intercept, state.intercept),
        coef=coef if worse.any() else state.coef,
    )


def _counts(sample_weight: ArrayLike, formulation: Formulation, n: int) -> Float64:
    if not formulation.weighted:
        raise ConfigError(
            f"{type(formulation).__name__} does not support sample weights",
            "use UniformMKL, VSKL, L1MKL, LpMKL or SpicyMKL",
        )
    counts = np.asarray(in_memory(sample_weight, "sample_weight"), dtype=np.float64)
    if counts.shape != (n,):
        raise DataError(f"sample weights of shape {counts.shape} for {n} samples")
    if not ((counts > 0) & np.isfinite(counts)).all():
        raise DataError("sample weights should be positive and finite", "leave out samples that do not count")
    return counts


def _warm(start: Fit, formulation: Formulation, shape: tuple[int, int, int]) -> State:
    """The last state of `start`, its alpha stretched to the new C: feasible, and at its bounds where it was."""
    state = start.state
    if (*state.working.shape, state.weights.shape[-1]) != shape or start.per_kernel != formulation.per_kernel:
        n, m, s = shape
        raise ConfigError(f"the fit to start from is not of {n} samples, {m} classes and {s} kernels")
    return dataclasses.replace(state, coef=state.coef * formulation.stretch(start.formulation))


def identify(problem: Problem, formulation: Formulation) -> str:
    """A digest of everything that a checkpoint has to agree on to be continued; the tolerance may change."""
    digest = hashlib.blake2b(digest_size=16)
    for values in problem.Y.arrays().values():
        digest.update(values.tobytes())
    if problem.stack.own_groups:
        digest.update(problem.stack.groups.tobytes())
    if problem.sample_weight is not None:
        digest.update(problem.sample_weight.tobytes())
    default = problem.method == methods.find(formulation).name
    method = "" if default else problem.method  # as in checkpoints from before the default had a name
    digest.update(repr((formulation, problem.stack.identity, problem.oracle, method, problem.seed)).encode())
    return digest.hexdigest()


def _number_if_one(values: Float64) -> float | Float64:
    return float(values[0]) if len(values) == 1 else values


class SolveOptions(TypedDict, total=False):
    """The options of `solve` that are the same for every fit of a path."""

    tol: float
    oracle: str | None
    method: str | None
    client: object
    seed: int
    sample_weight: ArrayLike | None
    max_rounds: int
    max_seconds: float
    observer: Observer
    warn: bool


def grid(formulation: Callable[..., F], **values: Sequence[Constant]) -> list[F]:
    """Formulations for every combination of constants, ordered so that neighbours differ in one constant by one step.

    Parameters
    ----------
    formulation : type
        The class of the formulation.
    **values : sequence
        The values of each constant, by its name.

    Returns
    -------
    list of Formulation
        One for each combination. The first constant changes fastest, upwards and downwards in turn.

    Examples
    --------
    >>> import dmkl
    >>> [(point.q, point.C) for point in dmkl.grid(dmkl.VSKL, q=(1, 2, 3), C=(1, 10))]
    [(1, 1), (2, 1), (3, 1), (3, 10), (2, 10), (1, 10)]
    """
    order: list[tuple[Constant, ...]] = [()]
    for choices in values.values():
        turns = itertools.cycle([order, order[::-1]])
        order = [(*point, value) for value in choices for point in next(turns)]
    return [formulation(**dict(zip(values, point, strict=True))) for point in order]


def solve_path(
    stack: KernelStack,
    y: ArrayLike | Labels,
    formulations: Iterable[Formulation],
    *,
    start: Fit | None = None,
    folder: StrPath | None = None,
    **options: Unpack[SolveOptions],
) -> Iterator[Fit]:
    """Solve one formulation after the other, each from the solution of the one before.

    Parameters
    ----------
    stack : KernelStack
        The s kernels over n samples.
    y : array (n,) or (n, m), or Labels
        As for `solve`.
    formulations : iterable of Formulation
        The problems in the order of the path, as `grid` makes them.
    start : Fit, optional
        The fit that the first one starts from.
    folder : str or path, optional
        A folder for a checkpoint of each fit; a path that was cut short continues from there.
    **options
        The other options of `solve`.

    Yields
    ------
    Fit
        The fit of each formulation, as soon as it is done.

    Warns
    -----
    ConvergenceWarning
        As `solve` does, for every fit with a gap above `tol`.

    Raises
    ------
    DmklError
        As `solve` does.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> stack = dmkl.KernelStack.from_array(np.stack([X @ X.T, (1 + X @ X.T) ** 2]))
    >>> points = dmkl.grid(dmkl.LpMKL, p=(1, 2), C=(0.1, 1.0))
    >>> [fit.converged for fit in dmkl.solve_path(stack, X[:, 0] > 0, points)]
    [True, True, True, True]
    """
    y = in_memory(y, "y")  # once for all fits
    for formulation in formulations:
        name = f"{describe(formulation).replace(' ', '-')}.checkpoint"
        kept = Path(folder) / name if folder is not None else None
        start = solve(stack, y, formulation, start=start, checkpoint=kept, **options)
        yield start
