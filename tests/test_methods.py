"""The table of methods, the typed state of algorithms, and what all of them share: the gap, batches, precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import unsolved
from numpy.typing import NDArray

import dmkl
from dmkl import KernelStack
from dmkl._util.machine import in_batches
from dmkl.data.sample_sets import SampleSets
from dmkl.errors import ConfigError, StoreError
from dmkl.oracles import ORACLES
from dmkl.problems import FORMULATIONS
from dmkl.problems.targets import Signs
from dmkl.runtime import Local
from dmkl.solvers import methods
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.loop import OPTIONS, run
from dmkl.solvers.precision import sum_dtype
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import MethodState, NoState, State, load_state, save_state
from dmkl.stack import open_stack
from dmkl.store import KernelStore

CASES: list[tuple[Any, list[str], bool]] = [
    (dmkl.UniformMKL(), ["svm"], True),
    (dmkl.UniformMKL(loss="logistic"), ["newton", "proximal"], False),
    (dmkl.VSKL(), ["automatic", "newton", "interior", "mirror", "mirror-paper"], True),
    (dmkl.VSKL(q=0.75), ["automatic", "newton", "interior", "mirror", "mirror-paper"], True),
    (dmkl.VSKL(q=0.3), ["reweighted"], True),
    (dmkl.L1MKL(), ["automatic", "newton", "interior", "mirror", "mirror-paper"], True),
    (dmkl.LpMKL(), ["automatic", "newton", "interior", "mirror", "mirror-paper"], True),
    (dmkl.SpicyMKL(), ["newton", "proximal"], False),
    (dmkl.SharedMKL(), ["bundle", "mirror", "mirror-paper"], True),
    (dmkl.SharedMKL(stop="paper"), ["mirror-paper"], True),
    (dmkl.SharedMKL(mode="max"), ["sa", "sa-paper", "mirror-paper"], True),
    (dmkl.SharedMKL(mode="max", stop="paper"), ["sa-paper", "mirror-paper"], True),
    (dmkl.Obscure(C=1.0), ["exact", "obscure", "stochastic", "online", "pegasos"], False),
    (dmkl.Obscure(C=1.0, loss="logistic"), ["exact", "obscure", "stochastic", "online", "pegasos"], False),
    (dmkl.Obscure(C=1.0, loss="softmax"), ["exact", "obscure", "stochastic", "online", "pegasos"], False),
    (dmkl.Obscure(C=1.0, loss="squared"), ["exact", "obscure", "stochastic", "online"], False),
    (dmkl.MIKL(), ["interior", "newton", "fista", "plain"], False),
]
NAMES = [repr(case[0]) for case in CASES]


@pytest.fixture
def problem() -> tuple[KernelStack, NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=40) > 0, 1.0, -1.0)
    K = np.stack([np.exp(-((X[:, None, c] - X[None, :, c]) ** 2)) for c in range(3)])
    return KernelStack.from_array(K), y


@pytest.mark.parametrize(("formulation", "names", "oracles"), CASES, ids=NAMES)
def test_every_formulation_has_its_methods(formulation: Any, names: list[str], oracles: bool) -> None:
    assert [method.name for method in methods.methods_of(formulation)][: len(names)] == names
    assert methods.find(formulation).name == names[0]
    for name in names:
        assert methods.find(formulation, name, "smo").oracles == oracles


def test_every_formulation_in_the_registry_has_a_method() -> None:
    assert set(FORMULATIONS.values()) <= set(methods.METHODS)


@pytest.mark.parametrize(("formulation", "names", "oracles"), CASES, ids=NAMES)
def test_what_would_not_be_used_is_refused_before_any_work(
    problem: Any, formulation: Any, names: list[str], oracles: bool
) -> None:
    stack, y = problem
    listed = ", ".join(sorted(method.name for method in methods.methods_of(formulation)))
    with pytest.raises(ConfigError, match=rf"unknown method 'steepest' of {type(formulation).__name__}.*{listed}"):
        dmkl.solve(stack, y, formulation, method="steepest")
    if not oracles:
        with pytest.raises(ConfigError, match="oracle 'libsvm' would not be used"):
            dmkl.solve(stack, y, formulation, oracle="libsvm")
    assert stack.passes == 0


@pytest.mark.parametrize(("formulation", "names", "oracles"), CASES, ids=NAMES)
def test_the_default_has_a_name(
    problem: Any, formulation: Any, names: list[str], oracles: bool, tmp_path: Path
) -> None:
    """Naming the default method and the default oracle is the same as leaving them out, also to a checkpoint."""
    stack, y = problem
    kept = tmp_path / "checkpoint"
    plain = dmkl.solve(stack, y, formulation, tol=0.05, checkpoint=str(kept))
    named = dmkl.solve(stack, y, formulation, tol=0.05, method=names[0], oracle="smo", checkpoint=kept)
    np.testing.assert_array_equal(plain.coef, named.coef)
    assert named.history == []  # it went on from the end


EVERY = [(formulation, method.name) for formulation, *_ in CASES for method in methods.methods_of(formulation)]
SLOW = ("online", "stochastic", "pegasos")  # the paper's stages, which may need many epochs
ROUNDS = 8


@unsolved
@pytest.mark.parametrize(
    ("formulation", "method"), EVERY, ids=[f"{type(formulation).__name__}-{method}" for formulation, method in EVERY]
)
def test_every_method_proves_its_gap_and_continues_with_the_same_bits(
    problem: Any, formulation: Any, method: str, tmp_path: Path
) -> None:
    """The conformance test of methods: it runs over the table as it is."""
    stack, y = problem
    tol = 0.05
    best = dmkl.solve(stack, y, formulation, tol=1e-3)
    straight = dmkl.solve(stack, y, formulation, method=method, tol=tol, max_rounds=ROUNDS)
    for _ in range(straight.rounds):  # one round a process
        cut = dmkl.solve(
            stack, y, formulation, method=method, tol=tol, max_rounds=ROUNDS, max_seconds=0, checkpoint=tmp_path / "cut"
        )
    primal, dual = np.atleast_1d(straight.objective), np.atleast_1d(straight.dual)
    assert (dual <= np.atleast_1d(best.objective) * (1 + 1e-9)).all()
    assert (primal >= np.atleast_1d(best.dual) * (1 - 1e-9)).all()
    assert straight.converged or straight.rule or method in SLOW
    if straight.converged:
        assert (relative_gap(primal, dual) <= tol).all()
    assert np.array_equal(straight.weights, cut.weights)
    assert np.array_equal(straight.coef, cut.coef)


WITH_ORACLES = [
    (formulation, method.name, oracle)
    for formulation, *_ in CASES
    for method in methods.methods_of(formulation)
    for oracle in (ORACLES if method.oracles else [methods.DEFAULT_ORACLE])
]


@unsolved
@pytest.mark.parametrize(
    ("formulation", "method", "oracle"),
    WITH_ORACLES,
    ids=[f"{type(formulation).__name__}-{method}-{oracle}" for formulation, method, oracle in WITH_ORACLES],
)
def test_every_method_has_the_same_bits_on_a_cluster(
    store: KernelStore, two_workers: Any, formulation: Any, method: str, oracle: str
) -> None:
    """The cluster's conformance test: every formulation, method and oracle on workers that read a store."""
    options: dict[str, Any] = {"method": method, "oracle": oracle, "tol": 0.05, "max_rounds": 2}
    here = dmkl.solve(KernelStack.open(store.path), store.labels, formulation, **options)
    submitted = two_workers.submitted
    there = dmkl.solve(open_stack(store.path, runtime=two_workers), store.labels, formulation, **options)
    assert two_workers.submitted > submitted, "tasks ran on the workers"
    for name in ("weights", "coef", "intercept", "objective", "dual", "passes", "svm_calls"):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name), err_msg=name)


def test_a_formulation_without_methods_of_its_own_has_those_it_derives_from() -> None:
    class Mine(dmkl.VSKL):
        pass

    assert methods.find(Mine()).name == "automatic"
    with pytest.raises(ValueError, match="registered twice"):
        methods.register(dmkl.VSKL, "interior", "somewhere:else", when=methods._convex)


@dataclass(frozen=True)
class Position(MethodState):
    """Of an algorithm that certifies seldom."""

    epoch: NDArray[np.int64]
    sums: NDArray[np.float64] | None = None

    def milestone(self) -> NDArray[np.int64]:
        return self.epoch


def first_state(n: int = 4) -> State:
    return State.first(np.ones(2), SampleSets.whole(n, 1))


def test_typed_states_survive_a_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    for own in (Position(np.array([3])), Position(np.array([4]), np.ones(5))):
        save_state(file, replace(first_state(), own=own), "problem")
        loaded = load_state(file, "problem", Position)
        assert loaded is not None
        again = loaded.own_as(Position)
        np.testing.assert_array_equal(again.epoch, own.epoch)
        assert (again.sums is None) == (own.sums is None)
        with pytest.raises(StoreError, match="with unknown epoch"):
            load_state(file, "problem", NoState)
    with pytest.raises(TypeError, match="keeps Position, not NoState"):
        loaded.own_as(NoState)
    save_state(file, first_state(), "problem")
    with pytest.raises(StoreError, match="without epoch"):
        load_state(file, "problem", Position)


class Slow:
    """Certifies nothing; its milestone changes `steps` times."""

    own_type = Position

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def init(self, problem: Problem) -> State:
        return replace(first_state(problem.n), own=Position(np.array([0])))

    def step(self, problem: Problem, state: State) -> State:
        epoch = state.own_as(Position).epoch
        return replace(state, own=Position(np.minimum(epoch + 1, self.steps)))

    def leave(self, problem: Problem, state: State) -> State:
        return state


def test_a_milestone_is_progress(problem: Any) -> None:
    """The loop goes on while a milestone changes, and gives up some rounds after the last change."""
    stack, y = problem
    question = Problem(stack, Signs(SampleSets.of_masks(y[:, None] > 0)), 1e-3, "smo", Local(1))
    for steps in (0, 7):
        assert run(question, Slow(steps), max_rounds=100).state.round == max(steps, 1) + OPTIONS.stalled


def test_the_relative_gap() -> None:
    assert relative_gap(2.0, 1.5) == 0.25
    assert relative_gap(-2.0, -2.5) == 0.25
    assert relative_gap(0.0, 0.0) == 0.0
    assert relative_gap(2e-200, 1.5e-200) == 0.25  # there is no scale but that of the numbers
    assert relative_gap(np.inf, -np.inf) == np.inf
    assert relative_gap(2.0, 2.5) == 0.25  # a contradiction is no proof
    assert relative_gap(np.array([2.0, 0.0]), np.array([2.5, 0.0])).tolist() == [0.25, 0.0]
    assert isinstance(relative_gap(2.0, 1.5), float)
    gaps = relative_gap(np.array([2.0, np.inf]), np.array([1.5, 0.0]))
    np.testing.assert_array_equal(gaps, [0.25, np.inf])


def test_batches_fit_and_keep_the_order() -> None:
    sizes = {0: 3, 1: 4, 2: 9, 3: 1, 4: 5, 5: 1}
    batches = list(in_batches(sizes, lambda batch: sum(sizes[k] for k in batch), 7))
    assert batches == [[0, 1], [2], [3, 4, 5]]
    assert list(in_batches([], len, 1)) == []


def test_sums_are_in_float32_only_where_rounding_stays_below_the_tolerance() -> None:
    narrow, double = np.dtype(np.float32), np.dtype(np.float64)
    assert sum_dtype(narrow, 5000, 1e-3) == narrow
    assert sum_dtype(narrow, 5000, 1e-5) == double
    assert sum_dtype(narrow, 500, 1e-3) == double
    assert sum_dtype(double, 5000, 1e-3) == double
