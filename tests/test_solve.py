"""`solve` with UniformMKL: against scikit-learn, certified, the same from every backend, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_working_sets, three_classes, unsolved, whole, with_options
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

import dmkl
from dmkl.errors import ConfigError, DataError, ResourceError, SolverError, StoreError
from dmkl.events import Event, RoundDone
from dmkl.oracles import ORACLES
from dmkl.problems import FORMULATIONS
from dmkl.runtime import Local
from dmkl.solvers import fixed_weights, loop
from dmkl.solvers.loop import LoopOptions
from dmkl.solvers.state import load_state
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore


def averaged(K: np.ndarray) -> np.ndarray:
    return K.mean(axis=0, dtype=np.float64)


def svm_bounds(K: np.ndarray, y: np.ndarray, C: float) -> tuple[float, float]:
    """Bounds on the optimum from scikit-learn: the dual value of its alpha, the primal value with its intercept."""
    svm = SVC(kernel="precomputed", C=C, tol=1e-9).fit(K, y)
    beta = np.zeros(len(y))
    beta[svm.support_] = svm.dual_coef_[0]
    scores = K @ beta
    slack = np.maximum(0, 1 - y * (scores + svm.intercept_[0]))
    return float(np.abs(beta).sum() - beta @ scores / 2), float(beta @ scores / 2 + C * slack.sum())


@pytest.fixture(scope="module")
def K(store: KernelStore) -> np.ndarray:
    return whole(store)


@pytest.fixture(scope="module")
def y(store: KernelStore) -> np.ndarray:
    assert store.labels is not None
    return store.labels.values


@pytest.fixture
def client(two_workers: Any) -> Any:
    return two_workers.client


@pytest.mark.parametrize("part", [False, True])
def test_one_class_is_solved_in_threads_where_the_workers_are_of_this_machine(
    store: KernelStore, two_workers: Any, part: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits are those of workers elsewhere, who do the work themselves."""
    assert store.labels is not None
    problem, chosen = dmkl.L1MKL(C=1.0), np.flatnonzero(store.labels.values != 2)

    y = store.labels.values == 0

    def fit(runtime: Any) -> dmkl.Fit:
        stack = open_stack(store.path, runtime=runtime)
        if part:
            return dmkl.solve(stack.restrict(chosen), y[chosen], problem)
        return dmkl.solve(stack, y, problem)

    submitted = two_workers.submitted
    near = fit(two_workers)
    assert two_workers.submitted == submitted
    monkeypatch.setattr(two_workers, "together", False)
    far = fit(two_workers)
    assert two_workers.submitted > submitted
    for other in (far, fit(Local(1))):
        assert np.array_equal(near.coef, other.coef)
        assert np.array_equal(near.weights, other.weights)
        assert near.passes == other.passes


@pytest.mark.parametrize("oracle", list(ORACLES))
@pytest.mark.parametrize("C", [0.1, 10.0, 1000.0])
def test_objectives_are_scikit_learns(K: np.ndarray, y: np.ndarray, C: float, oracle: str) -> None:
    stack = KernelStack.from_array(K.astype(np.float64))
    fit = dmkl.solve(stack, y, dmkl.UniformMKL(C=C), tol=1e-5, oracle=oracle)
    for k in range(3):
        dual, primal = svm_bounds(averaged(K), np.where(y == k, 1.0, -1.0), C)
        assert dual * (1 - 1e-9) <= fit.objective[k] <= primal * (1 + 1e-5)
        assert fit.dual[k] <= primal * (1 + 1e-9)
    assert fit.converged
    assert (fit.gap <= 1e-5).all()


def test_the_certificate_is_what_the_result_says(K: np.ndarray, y: np.ndarray) -> None:
    stack = KernelStack.from_array(K.astype(np.float64))
    fit = dmkl.solve(stack, y, dmkl.UniformMKL(C=5.0), tol=1e-4)
    combined = np.tensordot(fit.weights, K.astype(np.float64), 1)
    for k in range(3):
        signs, beta = np.where(y == k, 1.0, -1.0), fit.coef[:, k]
        assert ((beta * signs >= 0) & (beta * signs <= 5.0)).all()
        assert abs(beta.sum()) < 1e-8
        scores = combined @ beta
        slack = np.maximum(0, 1 - signs * (scores + fit.intercept[k]))
        assert fit.objective[k] == pytest.approx(beta @ scores / 2 + 5 * slack.sum(), rel=1e-9)
        assert fit.dual[k] == pytest.approx(np.abs(beta).sum() - beta @ scores / 2, rel=1e-9)


def test_shapes_of_a_binary_and_a_multiclass_fit(K: np.ndarray, y: np.ndarray) -> None:
    stack = KernelStack.from_array(K)
    binary = dmkl.solve(stack, np.where(y == 1, 1, -1), dmkl.UniformMKL())
    assert isinstance(binary.objective, float)
    assert binary.coef.shape == (len(y),)
    assert binary.weights.shape == (stack.s,)
    assert binary.classes == ("-1", "1")
    several = dmkl.solve(stack, y, dmkl.UniformMKL())
    assert several.objective.shape == several.gap.shape == several.intercept.shape == (3,)
    assert several.coef.shape == (len(y), 3)
    assert several.svm_calls == 3
    assert several.passes == 1


def test_every_way_to_write_the_same_labels_is_the_same_problem(K: np.ndarray, y: np.ndarray) -> None:
    stack = KernelStack.from_array(K)
    codes = dmkl.solve(stack, y, dmkl.UniformMKL())
    names = dmkl.solve(stack, np.array(["ant", "bee", "cat"])[y], dmkl.UniformMKL())
    indicator = dmkl.solve(stack, np.eye(3)[y], dmkl.UniformMKL())
    assert np.array_equal(codes.coef, names.coef)
    assert np.array_equal(codes.coef, indicator.coef)
    assert names.classes == ("ant", "bee", "cat")


def test_permuting_kernels_changes_nothing_but_rounding(K: np.ndarray, y: np.ndarray) -> None:
    fit = dmkl.solve(KernelStack.from_array(K.astype(np.float64)), y, dmkl.UniformMKL(), tol=1e-6)
    other = dmkl.solve(KernelStack.from_array(K[::-1].astype(np.float64)), y, dmkl.UniformMKL(), tol=1e-6)
    np.testing.assert_allclose(fit.objective, other.objective, rtol=1e-6)


def fits_of_backends(store: KernelStore, client: Any) -> dict[str, dmkl.Fit]:
    assert store.labels is not None
    question = (store.labels, dmkl.UniformMKL(C=10.0))
    return {
        "memory": dmkl.solve(open_stack(store.path, backend="memory", workers=1), *question),
        "disk": dmkl.solve(open_stack(store.path, backend="disk", workers=4), *question),
        "cluster": dmkl.solve(KernelStack.open(store.path, client=client), *question),
        "client": dmkl.solve(KernelStack.open(store.path), *question, client=client),
        "array": dmkl.solve(KernelStack.from_array(whole(store), largest_tile=40), *question, client=client),
    }


def test_every_backend_gives_the_same_model(store: KernelStore, client: Any) -> None:
    fits = fits_of_backends(store, client)
    for name, fit in fits.items():
        assert np.array_equal(fit.coef, fits["memory"].coef), name
        assert np.array_equal(fit.objective, fits["memory"].objective), name


@pytest.fixture
def compact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets so small, and room for a whole matrix so little, that working sets have to be used."""
    with_options(monkeypatch, fixed_weights, whole_share=0.0)
    small_working_sets(monkeypatch, start=10, least_growth=20)


@pytest.mark.parametrize("C", [0.05, 1.0, 100.0])
def test_working_sets_reach_the_same_optimum(K: np.ndarray, y: np.ndarray, C: float, compact: None) -> None:
    stack = KernelStack.from_array(K.astype(np.float64))
    fit = dmkl.solve(stack, y, dmkl.UniformMKL(C=C), tol=1e-4)
    assert fit.converged
    assert fit.rounds > 1
    for k in range(3):
        dual, primal = svm_bounds(averaged(K), np.where(y == k, 1.0, -1.0), C)
        assert dual * (1 - 1e-9) <= fit.objective[k] <= primal * (1 + 1e-4)
        assert fit.dual[k] <= primal * (1 + 1e-9)


def test_working_sets_give_the_same_bits_on_a_cluster(store: KernelStore, client: Any, compact: None) -> None:
    fits = fits_of_backends(store, client)
    assert all(np.array_equal(fit.coef, fits["memory"].coef) for fit in fits.values())


def test_blocks_are_gathered_in_batches_that_fit(store: KernelStore, compact: None) -> None:
    assert store.labels is not None
    stack = open_stack(store.path, backend="disk", workers=2)  # 3 classes: too few to have tasks cut their blocks
    free = dmkl.solve(stack, store.labels, dmkl.UniformMKL())
    one_block = 150 * 150 * 8
    tight = type("Tight", (), {"left": 2.2 * one_block, "limit": 1, "require": lambda *_: None})()
    stack.memory = tight
    batched = dmkl.solve(stack, store.labels, dmkl.UniformMKL())
    assert batched.passes > free.passes
    assert np.array_equal(batched.coef, free.coef)


def test_a_set_too_large_for_the_memory_is_refused_with_the_figure(store: KernelStore, compact: None) -> None:
    assert store.labels is not None
    stack = open_stack(store.path, backend="disk", memory=1)
    with pytest.raises(ResourceError, match=r"a block of \d+ samples needs.*raise --memory"):
        dmkl.solve(stack, store.labels, dmkl.UniformMKL())


@unsolved
def test_a_run_cut_short_goes_on_and_ends_the_same(store: KernelStore, tmp_path: Path, compact: None) -> None:
    assert store.labels is not None
    question = (store.labels, dmkl.UniformMKL(C=100.0))
    straight = dmkl.solve(open_stack(store.path), *question, tol=1e-6)
    assert straight.rounds > 2
    kept = tmp_path / "checkpoint"
    cut = dmkl.solve(open_stack(store.path), *question, tol=1e-6, max_rounds=1, checkpoint=kept)
    assert not cut.converged
    rounds: list[Event] = []
    resumed = dmkl.solve(open_stack(store.path), *question, tol=1e-6, checkpoint=kept, observer=rounds.append)
    assert next(event.round for event in rounds if isinstance(event, RoundDone)) == 2
    assert np.array_equal(resumed.coef, straight.coef)
    assert (resumed.passes, resumed.svm_calls) == (straight.passes, straight.svm_calls)


@unsolved
def test_a_damaged_checkpoint_falls_back_to_the_one_before(store: KernelStore, tmp_path: Path, compact: None) -> None:
    assert store.labels is not None
    kept = tmp_path / "checkpoint"
    question = (open_stack(store.path), store.labels, dmkl.UniformMKL(C=100.0))
    dmkl.solve(*question, tol=1e-9, max_rounds=2, checkpoint=kept)
    kept.write_bytes(kept.read_bytes()[:-10])
    with pytest.raises(StoreError, match="belongs to another problem"):
        load_state(kept, "another")
    again = dmkl.solve(*question, tol=1e-6, checkpoint=kept)
    assert again.converged


def test_a_checkpoint_of_another_problem_is_refused(store: KernelStore, tmp_path: Path) -> None:
    assert store.labels is not None
    kept = tmp_path / "checkpoint"
    stack = open_stack(store.path)
    dmkl.solve(stack, store.labels, dmkl.UniformMKL(C=1.0), checkpoint=kept)
    with pytest.raises(StoreError, match="belongs to another problem; use another run directory"):
        dmkl.solve(stack, store.labels, dmkl.UniformMKL(C=2.0), checkpoint=kept)


def test_wrong_questions_are_refused_before_any_work(K: np.ndarray, y: np.ndarray) -> None:
    stack = KernelStack.from_array(K)
    for wrong, kind, message in [
        (lambda: dmkl.solve(stack, y[:-1], dmkl.UniformMKL()), DataError, "149 labels for a stack of 150 samples"),
        (lambda: dmkl.solve(stack, np.ones(150), dmkl.UniformMKL()), DataError, "one class only"),
        (lambda: dmkl.solve(stack, np.linspace(0, 1, 150), dmkl.UniformMKL()), DataError, "real-valued labels"),
        (lambda: dmkl.solve(stack, y, dmkl.UniformMKL(), oracle="smoo"), ConfigError, "did you mean 'smo'"),
        (lambda: dmkl.solve(stack, y, dmkl.UniformMKL(), tol=0.0), ConfigError, "tol should be positive"),
        (lambda: dmkl.UniformMKL(C=-1.0), ConfigError, "C should be positive and finite, not -1"),
    ]:
        with pytest.raises(kind, match=message):
            wrong()
    assert stack.passes == 0


def test_indefinite_kernels_are_refused(tmp_path: Path) -> None:
    from dmkl.config import KernelConfig
    from dmkl.kernels import plan_bank
    from dmkl.store import build_store

    data = three_classes(60)
    store = build_store(tmp_path / "k.zarr", plan_bank([KernelConfig("sigmoid")], data), data, Local(1))
    with pytest.raises(SolverError, match="UniformMKL needs positive semidefinite kernels and 'points/sigmoid"):
        dmkl.solve(open_stack(store.path), data.labels, dmkl.UniformMKL())


@pytest.mark.parametrize("name", list(FORMULATIONS))
def test_every_formulation_is_documented_and_importable(name: str) -> None:
    cls = FORMULATIONS[name]
    assert cls.__doc__
    assert getattr(dmkl, cls.__name__) is cls


def test_what_is_not_solved_is_warned_of_and_says_what_to_try(
    K: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_working_sets(monkeypatch, start=8, least_growth=4)
    stack, formulation = KernelStack.from_array(K.astype(np.float64)), dmkl.L1MKL(C=10.0)
    with pytest.warns(ConvergenceWarning) as rounds:
        fit = dmkl.solve(stack, y, formulation, tol=1e-6, max_rounds=1)
    with pytest.warns(ConvergenceWarning) as path:
        list(dmkl.solve_path(stack, y, [formulation], tol=1e-6, max_rounds=1))
    with pytest.warns(
        ConvergenceWarning, match=r"Allow more max_seconds; with a checkpoint the same call continues\.$"
    ):
        dmkl.solve(stack, y, formulation, tol=1e-6, max_seconds=-100)
    text = (
        f"L1MKL C=10: the certified gap is {fit.worst_gap:.1e} after 1 round, above tol = 1e-06. Allow more max_rounds."
    )
    for seen in (rounds, path):
        assert [(str(one.message), one.filename) for one in seen] == [(text, __file__)]
    monkeypatch.setattr(loop, "OPTIONS", LoopOptions(stalled=0))
    with pytest.warns(
        ConvergenceWarning,
        match=r"try the method 'newton' or 'interior' or 'mirror' or 'mirror-paper', kernels of similar scale",
    ):
        dmkl.solve(stack, y, formulation, tol=1e-6)


def test_kernels_too_large_for_their_digits_are_said_to_be_so() -> None:
    X, y = load_breast_cancer(return_X_y=True)  # columns of up to 4,254, not standardised
    K = np.stack([(1.0 + part @ part.T) ** 2 for part in np.array_split(X, 4, axis=1)])
    stack = KernelStack.from_array(K, groups=np.arange(4))
    with pytest.warns(ConvergenceWarning, match="rounding alone makes such a gap: standardise the features"):
        fit = dmkl.solve(stack, y, dmkl.VSKL(q=2, C=1.0))
    assert fit.dual <= fit.objective
    assert fit.worst_gap < 1e-2


def test_the_warning_can_be_left_out(K: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    small_working_sets(monkeypatch, start=8, least_growth=4)
    options: Any = {"tol": 1e-6, "max_rounds": 1, "warn": False}
    stack = KernelStack.from_array(K.astype(np.float64))
    assert not dmkl.solve(stack, y, dmkl.L1MKL(C=10.0), **options).converged
    assert not next(dmkl.solve_path(stack, y, [dmkl.L1MKL(C=10.0)], **options)).converged
    dmkl.tune(stack, y, [dmkl.L1MKL(C=10.0)], folds=2, **options)
    with pytest.warns(ConvergenceWarning, match=r"2 of 2 fits did not reach tol = 1e-06, the largest gap is") as seen:
        dmkl.tune(stack, y, [dmkl.L1MKL(C=10.0)], folds=2, **options | {"warn": True})
    assert [warning.filename for warning in seen] == [__file__]
