"""The paper's stages 1 and 2: online and proximal stochastic subgradient steps (Algorithms 1 and 2 of Orabona et al.).

    stage 1    theta_{t+1} = theta_t - eta z_t
    stage 2    theta_{t+1} = (1 - lambda eta_t / q) theta_t - eta_t z_t,     eta_t = q / (lambda t + s_t),
               projected on ||w||_{2,p} <= R

where z_t is a subgradient of the loss of one sample. What is stored are coefficients theta / q = scale * coef: the
norm's mirror map takes those, and shrinking changes the scale alone. So a step of size eta changes coefficients by
eta / q. Samples come in shuffled batches; updates inside a batch correct the scores of the samples that follow, so any
batch gives the same as one sample at a time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from dmkl._util.jit import jit
from dmkl._util.stopping import Stopped, must_stop
from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.events import Progress
from dmkl.problems.obscure_terms import AskedLoss, PNorm, RowLoss, subgradient, weigh
from dmkl.solvers.obscure_kernel_values import (
    NO_SAMPLES,
    BatchValues,
    background,
    batch_values,
    may_run_ahead,
)
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import Arrays, MethodState
from dmkl.stack import Source

ONLINE, PROXIMAL, EXACT = range(3)
STAGES = ("online", "stochastic", "exact")
TIME, PULL, SCALE, WEIGHT, COUNT, UPDATES = range(6)  # places in `Learner.numbers`
NUMBERS = 6
FARTHEST = 1e200  # forms above this are of steps that diverge


@dataclass(frozen=True)
class SubgradientOptions:
    """Constants of stages 1 and 2."""

    part: int = 8192  # samples in one step of the solver: the work that is lost when a run is killed


OPTIONS = SubgradientOptions()


@dataclass(frozen=True)
class ObscureState(MethodState):
    """What OBSCURE keeps: in stages 1 and 2 the learner, in stage 3 a dual point.

    Sparse matrices are saved as their parts.
    """

    seen: Float64  # (stages, 2): how many samples each stage has looked at, and in how many seconds
    point: csr_array | None = None  # (n, m): a dual point
    place: Samples | None = None  # (3,): stage, epoch, batch
    constants: Float64 | None = None  # (2,): radius, step
    forms: Float64 | None = None  # (s,)
    numbers: Float64 | None = None  # see `Learner`
    theta: csr_array | None = None  # (n, m)
    ledger: csr_array | None = None  # (n, m)

    def arrays(self) -> dict[str, NDArray[Any]]:
        flat: dict[str, NDArray[Any]] = {}
        for name, value in super().arrays().items():
            if issparse(value):
                flat |= {f"{name}.{part}": getattr(value, part) for part in ("data", "indices", "indptr")}
                flat[f"{name}.shape"] = np.array(value.shape)
            else:
                flat[name] = value
        return flat

    @classmethod
    def read(cls, arrays: Arrays) -> Self:
        values = {name: value for name, value in arrays.items() if "." not in name}
        for name in {name.partition(".")[0] for name in arrays if "." in name}:
            parts = tuple(arrays[f"{name}.{part}"] for part in ("data", "indices", "indptr"))
            matrix = csr_array(parts, shape=tuple(arrays[f"{name}.shape"].tolist()))
            matrix.check_format(full_check=True)
            values[name] = matrix
        return super().read(values)

    def milestone(self) -> Samples | None:
        return self.place


def no_samples() -> Float64:
    """`ObscureState.seen` before the first sample."""
    return np.zeros((len(STAGES), 2))


@dataclass
class Learner:
    """Everything that the next step of stages 1 and 2 depends on; theta / q = scale * coef.

    `numbers` holds t and s_t of stage 2, the scale, the sum of the scales of how many samples of this epoch, and the
    number of updates so far. The ledger serves the average over an epoch: for each change of a coefficient, the sum of
    scales that came before it.
    """

    stage: int
    epoch: int  # of this stage, from 0
    batch: int  # of this epoch
    coef: Float64  # (n, m); rows are zero except for samples that have had a loss
    ledger: Float64  # (n, m)
    forms: Float64  # (s,) of coef
    numbers: Float64  # (NUMBERS,)
    radius: float  # of the projection in stage 2
    step: float  # of the coefficients in stage 1: eta / q
    seen: Float64  # see `ObscureState`

    @classmethod
    def start(cls, n: int, m: int, s: int, *, stage: int, step: float) -> Learner:
        """The learner before the first sample."""
        numbers = np.zeros(NUMBERS)
        numbers[SCALE] = 1.0
        nothing = np.zeros((n, m)), np.zeros((n, m)), np.zeros(s), numbers
        return cls(stage, 0, 0, *nothing, np.inf, step, no_samples())

    @classmethod
    def of(cls, own: ObscureState) -> Learner:
        """The learner that a state keeps, as a copy."""
        assert own.place is not None
        assert own.constants is not None
        assert own.forms is not None
        assert own.numbers is not None
        assert own.theta is not None
        assert own.ledger is not None
        stage, epoch, batch = (int(value) for value in own.place)
        radius, step = (float(value) for value in own.constants)
        coef, ledger = own.theta.toarray(), own.ledger.toarray()
        return cls(
            stage, epoch, batch, coef, ledger, own.forms.copy(), own.numbers.copy(), radius, step, own.seen.copy()
        )

    def state(self) -> ObscureState:
        """What a state keeps of the learner."""
        return ObscureState(
            self.seen,
            place=np.array([self.stage, self.epoch, self.batch]),
            constants=np.array([self.radius, self.step]),
            forms=self.forms,
            numbers=self.numbers,
            theta=csr_array(self.coef),
            ledger=csr_array(self.ledger),
        )

    def end_epoch(self) -> None:
        """Begin the next epoch."""
        self.batch, self.epoch = 0, self.epoch + 1

    def enter(self, stage: int, radius: float = np.inf) -> None:
        """Begin a stage where the one before ended."""
        self.stage, self.epoch, self.batch, self.radius = stage, 0, 0, radius
        self.numbers[[TIME, PULL]] = 0.0

    def average(self) -> Float64:
        """(n, m): the mean of theta / q over the samples of this epoch."""
        return np.asarray((self.numbers[WEIGHT] * self.coef - self.ledger) / max(self.numbers[COUNT], 1.0))

    def fold(self) -> None:
        """Multiply the coefficients by the scale and begin a new average, at the end of an epoch."""
        scale = float(self.numbers[SCALE])
        self.coef *= scale
        self.forms *= scale * scale
        self.ledger[:] = 0.0
        self.numbers[[SCALE, WEIGHT, COUNT]] = 1.0, 0.0, 0.0

    @property
    def last(self) -> Float64:
        """(n, m): theta / q."""
        return np.asarray(self.numbers[SCALE] * self.coef)


def learn(
    problem: Problem, source: Source, loss: RowLoss, norm: PNorm, lam: float, learner: Learner, *, ahead: bool
) -> bool:
    """Let the learner go on in its epoch for one part of it, or less where the time is up.

    Parameters
    ----------
    problem : Problem
    source : Source
        The kernel values of the problem's stack.
    loss : RowLoss
    norm : PNorm
    lam : float
        lambda.
    learner : Learner
        Changed in place.
    ahead : bool
        Whether the next batch is asked for while the learner meets the present one.

    Returns
    -------
    bool
        Whether it has met all batches of the epoch.
    """
    started = time.perf_counter()
    rng = np.random.default_rng([problem.seed, learner.stage, learner.epoch])
    batches = source.batches(rng)
    first = learner.batch
    before = sum(map(len, batches[:first]))
    ends = np.cumsum([len(samples) for samples in batches[first:]])
    part = batches[first : first + int(np.searchsorted(ends, OPTIONS.part)) + 1]
    if not part:  # the time was up when it had met the last one
        return True
    seen = 0
    with background(problem.stack.runtime) as later:

        def ask(samples: Samples, before: Samples) -> Callable[[], BatchValues]:
            return later(batch_values, problem.stack, source, learner.coef, samples, before)

        asked = ask(part[0], NO_SAMPLES)
        for samples, following in itertools.zip_longest(part, part[1:]):
            try:
                values = asked()
            except Stopped:
                if not seen:
                    raise
                break
            early = ahead and following is not None and may_run_ahead(problem.stack, following, samples)
            if early:
                asked = ask(following, samples)
            _meet(loss, norm, lam, learner, values)
            if following is not None and not early:
                asked = ask(following, NO_SAMPLES)
            learner.batch += 1
            seen += len(samples)
            problem.observer(Progress(STAGES[learner.stage], before + seen, problem.n))
            if must_stop():
                break
    learner.seen[learner.stage] += seen, time.perf_counter() - started
    problem.stack.passes += learner.batch == len(batches)
    return learner.batch == len(batches)


def _meet(loss: RowLoss, norm: PNorm, lam: float, learner: Learner, values: BatchValues) -> None:
    """Take the steps of one batch."""
    samples = values.samples
    coef, ledger = learner.coef[samples], learner.ledger[samples]
    fixed = learner.step if learner.stage == ONLINE else 0.0
    constants = norm.q, lam, learner.radius, fixed
    G = values.scores(learner.coef)
    changed = coef, ledger, learner.forms, learner.numbers
    if isinstance(loss, AskedLoss):
        take_steps_of(loss, samples, values.K, G, *changed, *constants)
    else:
        take_steps(values.K, G, loss.Y[samples], loss.labels[samples], *changed, *constants)
    learner.coef[samples], learner.ledger[samples] = coef, ledger


# for parts of a step: a real call counts references to each of its arrays, which takes 5 % of the time
inlined = jit(inline="always")


@jit()
def step_size(numbers: Float64, q: float, lam: float, radius: float, norm: float, slope: float) -> float:
    """1 / (lam t + s_t), after s_t has moved to balance the two rates of Theorem 3; 1 / (lam t) if radius is inf."""
    numbers[TIME] += 1.0
    past = lam * numbers[TIME] + numbers[PULL]
    length = (lam * norm + slope) / radius
    numbers[PULL] += 0.5 * (np.sqrt(past * past + q * length * length) - past)
    return float(1.0 / (lam * numbers[TIME] + numbers[PULL]))


@jit()
def take_steps(
    K: FloatArray,
    G: Float64,
    Y: Float64,
    labels: Samples,
    coef: Float64,
    ledger: Float64,
    forms: Float64,
    numbers: Float64,
    q: float,
    lam: float,
    radius: float,
    fixed: float,
) -> None:
    """Take the steps of all samples of a batch in turn, under the multiclass loss or hinges.

    Stage 1 has steps of the same size, fixed = eta / q > 0. Stage 2 has fixed = 0, a rate of its own, and stays inside
    the radius. G[a, i] holds the scores of coef under kernel a for sample i of the batch, K the kernel values inside
    the batch; `coef` and `ledger` are the rows of the batch. Everything from G to `numbers` is changed in place.
    """
    s, size, m = G.shape
    weights, own, scores, pull = np.empty(s), np.empty(s), np.empty(m), np.empty(m)
    norm = weigh(forms, q, weights)
    for i in range(size):
        weighted_scores(G, i, weights, numbers[SCALE], scores)
        square = subgradient(scores, Y[i], labels[i], pull)
        norm = take_step(i, pull, square, norm, K, G, coef, ledger, forms, numbers, weights, own, q, lam, radius, fixed)


def take_steps_of(
    loss: AskedLoss,
    samples: Samples,
    K: FloatArray,
    G: Float64,
    coef: Float64,
    ledger: Float64,
    forms: Float64,
    numbers: Float64,
    q: float,
    lam: float,
    radius: float,
    fixed: float,
) -> None:
    """The same under a loss that compiled code does not know."""
    s, size, m = G.shape
    weights, own, scores = np.empty(s), np.empty(s), np.empty(m)
    norm = weigh(forms, q, weights)
    with np.errstate(over="ignore", invalid="ignore"):  # `FARTHEST` is asked afterwards
        for i in range(size):
            weighted_scores(G, i, weights, numbers[SCALE], scores)
            pull = loss.pull(int(samples[i]), scores)
            square = float(pull @ pull)
            norm = take_step(
                i, pull, square, norm, K, G, coef, ledger, forms, numbers, weights, own, q, lam, radius, fixed
            )


@inlined
def weighted_scores(G: Float64, i: int, weights: Float64, scale: float, scores: Float64) -> None:
    """Write the scores of sample i to `scores`."""
    for r in range(G.shape[2]):
        total = 0.0
        for a in range(G.shape[0]):
            total += weights[a] * G[a, i, r]
        scores[r] = scale * total


@inlined
def take_step(
    i: int,
    pull: Float64,
    square: float,
    norm: float,
    K: FloatArray,
    G: Float64,
    coef: Float64,
    ledger: Float64,
    forms: Float64,
    numbers: Float64,
    weights: Float64,
    own: Float64,
    q: float,
    lam: float,
    radius: float,
    fixed: float,
) -> float:
    """The step of sample i, whose loss has minus the subgradient `pull` with this square.

    Returns the norm ||N||_q of the coefficients, whose kernel weights it writes to `weights`; `own` is room to work.
    """
    s, size, m = G.shape
    if fixed > 0:
        step = fixed
    else:
        for a in range(s):
            own[a] = square * K[a, i, i]
        slope = weigh(own, q, np.empty(s)) if square > 0 else 0.0
        step = step_size(numbers, q, lam, radius, numbers[SCALE] * norm, slope)
        numbers[SCALE] *= 1.0 - lam * step
        if numbers[SCALE] <= 0.0:  # the first step of the 1 / t rate: there is nothing to shrink yet
            numbers[SCALE] = 1.0
    if square > 0:
        step /= numbers[SCALE]
        numbers[UPDATES] += 1.0
        for a in range(s):
            change = step * square * K[a, i, i]
            for r in range(m):
                change += 2.0 * pull[r] * G[a, i, r]
            forms[a] = max(forms[a] + step * change, 0.0)
        for r in range(m):
            if pull[r] != 0.0:
                coef[i, r] += step * pull[r]
                ledger[i, r] += numbers[WEIGHT] * step * pull[r]
                for a in range(s):
                    for j in range(i + 1, size):
                        G[a, j, r] += step * pull[r] * K[a, i, j]
        norm = weigh(forms, q, weights)
    if fixed <= 0 and numbers[SCALE] * norm > radius:
        numbers[SCALE] = radius / norm
    numbers[WEIGHT] += numbers[SCALE]
    numbers[COUNT] += 1.0
    return norm
