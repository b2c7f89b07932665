"""One suite for every oracle in the registry: exact references, scikit-learn, certificates, features, hard inputs."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from dmkl.errors import ResourceError, SolverError
from dmkl.oracles import ORACLES, SvmResult, solve_svm, svm_bounds
from dmkl.oracles.base import checked_kernel

Float64Array = NDArray[np.float64]
oracles = pytest.mark.parametrize("oracle", list(ORACLES))
warm_starting = pytest.mark.parametrize("oracle", [name for name in ORACLES if "warm_start" in ORACLES[name].supports])
tight = {"libsvm": 1e-6}  # kernel rows in float32; every other oracle reaches 1e-9


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread() -> Iterator[None]:
    """On a busy machine BLAS threads wait for each other, for longer than all of these tests take."""
    with threadpool_limits(1):
        yield


def gaussian(n: int, seed: int = 0, *, dimension: int = 5, classes: int = 4) -> tuple[Float64Array, Any]:
    """A sum of Gaussian kernels of two widths, and labels their classes overlap in."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    X = rng.normal(size=(classes, dimension))[labels] + rng.normal(size=(n, dimension))
    D = ((X[:, None] - X) ** 2).sum(axis=2) / dimension
    return 0.5 * np.exp(-D) + 0.5 * np.exp(-D / 4.0), labels


def one_against_rest(labels: Any, c: int = 0) -> Float64Array:
    return np.where(labels == c, 1.0, -1.0)


def box(y: Float64Array, upper: Float64Array) -> tuple[Float64Array, Float64Array]:
    return np.where(y > 0, 0.0, -upper), np.where(y > 0, upper, 0.0)


def exact_optimum(
    K: Float64Array, y: Float64Array, upper: Float64Array, linear: Float64Array, intercept: bool
) -> tuple[float, Float64Array]:
    """By enumeration: every sample at its lower bound, at its upper bound or free, the free ones solved for."""
    n, p, (lo, hi) = len(y), y * linear, box(y, upper)
    best, best_beta = -np.inf, np.zeros(n)
    for state in itertools.product((0, 1, 2), repeat=n):
        fixed, free = np.array(state), np.flatnonzero(np.array(state) == 2)
        beta = np.where(fixed == 0, lo, np.where(fixed == 1, hi, 0.0))
        size = len(free) + intercept
        A, rhs = np.zeros((size, size)), np.zeros(size)
        A[: len(free), : len(free)] = K[np.ix_(free, free)]
        rhs[: len(free)] = (p - K @ beta)[free]
        if intercept:
            A[: len(free), -1] = A[-1, : len(free)] = 1.0
            rhs[-1] = -beta.sum()
        if len(free):
            beta[free] = np.linalg.solve(A, rhs)[: len(free)]
        if (beta < lo - 1e-12).any() or (beta > hi + 1e-12).any() or (intercept and abs(beta.sum()) > 1e-12):
            continue
        value = float(p @ beta - 0.5 * beta @ K @ beta)
        if value > best:
            best, best_beta = value, beta
    return best, best_beta


def assert_certified(
    result: SvmResult, K: Any, y: Float64Array, upper: Any, *, linear: Any = 1.0, intercept: bool = True, tol: float
) -> None:
    """What SvmResult promises, from scratch."""
    beta = result.alpha * y
    assert (result.alpha >= 0.0).all()
    assert (result.alpha <= upper).all()
    if intercept:
        assert abs(beta.sum()) <= 1e-9 * max(result.alpha.sum(), 1e-300)
    scores = K.astype(np.float64) @ beta
    np.testing.assert_allclose(result.scores, scores, rtol=0.0, atol=1e-14 * (np.abs(K) @ result.alpha).max())
    primal, dual, _ = svm_bounds(beta, scores, y, upper, linear, intercept)
    assert (result.primal, result.dual) == pytest.approx((primal, dual), rel=1e-9, abs=1e-12)
    assert -1e-9 <= result.gap <= tol


@oracles
@pytest.mark.parametrize("C", [0.05, 1.0, 1e4])
def test_exact_optimum_of_the_plain_problem(oracle: str, C: float) -> None:
    K, _ = gaussian(6, seed=int(C))
    y = np.array([1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
    best, beta = exact_optimum(K, y, np.full(6, C), np.ones(6), True)
    result = solve_svm(K, y, C, oracle, tol=1e-6)
    assert result.dual <= best * (1 + 1e-9)
    assert result.primal >= best * (1 - 1e-9)
    np.testing.assert_allclose(result.alpha * y, beta, atol=2e-3 * np.abs(beta).max())
    assert_certified(result, K, y, C, tol=1e-6)


@oracles
@pytest.mark.parametrize(
    "extras",
    [c for k in (1, 2, 3) for c in itertools.combinations(("linear", "upper", "no_intercept"), k)],
    ids=" and ".join,
)
def test_every_feature_is_exact_or_refused(oracle: str, extras: tuple[str, ...]) -> None:
    K, _ = gaussian(6, seed=len(extras))
    y = np.array([1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
    linear = np.array([1.0, 0.3, -0.5, 2.0, 0.0, 1.0]) if "linear" in extras else None
    upper = np.array([1.0, 0.0, 0.2, 30.0, 2.0, 0.7]) if "upper" in extras else np.full(6, 2.0)
    intercept = "no_intercept" not in extras
    options: dict[str, Any] = {"linear": linear, "intercept": intercept, "tol": tight.get(oracle, 1e-9)}
    if not set(extras) <= ORACLES[oracle].supports:
        with pytest.raises(SolverError, match="smo"):
            solve_svm(K, y, upper, oracle, **options)
        return
    ones = np.ones(6) if linear is None else linear
    best, beta = exact_optimum(K, y, upper, ones, intercept)
    result = solve_svm(K, y, upper, oracle, **options)
    assert result.dual == pytest.approx(best, rel=1e-8)
    np.testing.assert_allclose(result.alpha * y, beta, atol=1e-3)
    assert_certified(result, K, y, upper, linear=ones, intercept=intercept, tol=options["tol"])


@pytest.mark.parametrize(
    "oracle", [name for name in ORACLES if {"linear", "upper", "no_intercept"} <= ORACLES[name].supports]
)
def test_random_small_problems_are_exact(oracle: str) -> None:
    rng = np.random.default_rng(0)
    for k in range(80):
        n, upper = int(rng.integers(1, 5)), rng.choice([0.0, 0.1, 1.0, 10.0, 1e3], 4)
        X = rng.normal(size=(n, int(rng.integers(1, 6)))) * 10.0 ** rng.integers(-2, 3)
        K = X @ X.T + 1e-3 * np.trace(X @ X.T) / n * np.eye(n)
        y, upper = rng.choice([-1.0, 1.0], n), upper[:n] if k % 2 else np.full(n, upper.max())
        linear, intercept = (rng.normal(size=n) if k % 3 else np.ones(n)), bool(k % 5 % 2)
        best, _ = exact_optimum(K, y, upper, linear, intercept)
        start = np.abs(rng.normal(size=n)) if k % 4 == 0 else None
        result = solve_svm(K, y, upper, oracle, linear=linear, intercept=intercept, alpha=start, tol=1e-6)
        close = 1e-6 * abs(best) + 1e-12 * upper.sum()
        assert result.primal - result.dual <= 2.0 * close, f"problem {k}"
        assert abs(result.dual - best) <= 2.0 * close, f"problem {k}"


@oracles
def test_agrees_with_a_general_solver(oracle: str) -> None:
    K, labels = gaussian(15, seed=3)
    y, C = one_against_rest(labels), 2.0
    reference = minimize(
        lambda beta: 0.5 * beta @ K @ beta - y @ beta,
        np.zeros(15),
        jac=lambda beta: K @ beta - y,
        method="SLSQP",
        bounds=list(zip(*box(y, np.full(15, C)), strict=True)),
        constraints={"type": "eq", "fun": np.sum, "jac": np.ones_like},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    result = solve_svm(K, y, C, oracle, tol=1e-6)
    assert result.dual == pytest.approx(-reference.fun, rel=2e-6)
    np.testing.assert_allclose(result.alpha * y, reference.x, atol=5e-3)


@oracles
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [0.3, 30.0])
def test_agrees_with_scikit_learn(oracle: str, dtype: Any, C: float) -> None:
    K, labels = gaussian(160, seed=1)
    K, y = K.astype(dtype), one_against_rest(labels)
    reference = SVC(C=C, kernel="precomputed", tol=1e-6).fit(K, y)
    tol = 10.0 * tight.get(oracle, 1e-7)
    result = solve_svm(K, y, C, oracle, tol=tol)
    np.testing.assert_allclose(result.scores + result.intercept, reference.decision_function(K), atol=2e-2)
    assert np.count_nonzero(result.alpha > 1e-4 * C) == pytest.approx(reference.n_support_.sum(), abs=2)
    beta = np.zeros(160)
    beta[reference.support_] = reference.dual_coef_[0]
    primal, dual, _ = svm_bounds(beta, K.astype(float) @ beta, y, C, 1.0, True)
    assert dual <= result.primal * (1 + 1e-9)
    assert primal >= result.dual * (1 - 1e-9)
    assert_certified(result, K, y, C, tol=tol)


@oracles
@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
def test_tolerance_is_the_certified_gap(oracle: str, tol: float) -> None:
    K, labels = gaussian(200)
    assert_certified(
        solve_svm(K, one_against_rest(labels), 5.0, oracle, tol=tol), K, one_against_rest(labels), 5.0, tol=tol
    )


@oracles
@pytest.mark.parametrize("C", [1.0, 1e3])
@pytest.mark.parametrize("intercept", [True, False])
def test_tight_tolerances_are_reached(oracle: str, C: float, intercept: bool) -> None:
    if not intercept and "no_intercept" not in ORACLES[oracle].supports:
        pytest.skip("declared unsupported")
    K, labels = gaussian(120, dimension=2)
    y, tol = one_against_rest(labels), tight.get(oracle, 1e-9) * (100 if oracle in tight and C > 1 else 1)
    result = solve_svm(K, y, C, oracle, tol=tol, intercept=intercept)
    assert_certified(result, K, y, C, intercept=intercept, tol=tol)
    at_rounding = solve_svm(K, y, C, oracle, tol=0.0, intercept=intercept, max_steps=10**6)
    assert abs(at_rounding.gap) <= tol


def duplicated() -> Float64Array:
    K, _ = gaussian(20)
    return np.ascontiguousarray(K[np.ix_(np.arange(40) // 2, np.arange(40) // 2)])


HARD = {
    "duplicates": duplicated(),
    "zero kernel": np.zeros((40, 40)),
    "rank one": np.outer(np.linspace(-1, 1, 40), np.linspace(-1, 1, 40)),
    "identity": np.eye(40),
    "constant": np.ones((40, 40)),
    "large": 1e6 * gaussian(40)[0],
    "small": 1e-6 * gaussian(40)[0],
}


@oracles
@pytest.mark.parametrize("kernel", list(HARD))
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e5])
def test_hard_kernels(oracle: str, kernel: str, C: float) -> None:
    y = one_against_rest(np.arange(40) % 3)
    result = solve_svm(HARD[kernel], y, C, oracle, tol=1e-3, max_steps=10**6)
    assert_certified(result, HARD[kernel], y, C, tol=1e-3)


@oracles
@pytest.mark.parametrize("labels", [[1.0] * 5, [-1.0] * 5, [1.0, -1.0, -1.0, -1.0, -1.0]], ids=str)
def test_few_labels_of_a_sign(oracle: str, labels: list[float]) -> None:
    K, _ = gaussian(5)
    y = np.array(labels)
    assert_certified(solve_svm(K, y, 1.0, oracle), K, y, 1.0, tol=1e-3)
    one = solve_svm(K[:1, :1].copy(), y[:1], 1.0, oracle)
    assert (one.primal, one.dual, one.alpha[0]) == (0.0, 0.0, 0.0)


@oracles
def test_no_weight_at_all(oracle: str) -> None:
    K, labels = gaussian(12)
    result = solve_svm(K, one_against_rest(labels), 0.0, oracle)
    assert (result.primal, result.dual, result.intercept, result.gap) == (0.0, 0.0, 0.0, 0.0)


@oracles
def test_an_indefinite_kernel_ends_with_a_feasible_point(oracle: str) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    K, y = np.tanh(X @ X.T - 1.0), one_against_rest(np.arange(40) % 2)
    result = solve_svm(K, y, 1.0, oracle, max_steps=10**5)
    assert (result.alpha >= 0.0).all()
    assert (result.alpha <= 1.0).all()
    assert abs(result.alpha @ y) < 1e-9


@oracles
def test_same_input_same_bits_on_any_thread(oracle: str) -> None:
    K, labels = gaussian(250)
    prepared = ORACLES[oracle].prepare(K.astype(np.float32))

    def run(c: int) -> tuple[bytes, bytes, float, int]:
        result = solve_svm(prepared, one_against_rest(labels, c % 4), 10.0, oracle, tol=1e-5)
        return result.alpha.tobytes(), result.scores.tobytes(), result.intercept, result.steps

    alone = [run(c) for c in range(4)] * 4
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(16))) == alone


@warm_starting
@pytest.mark.parametrize("change", ["C", "kernel", "nothing"])
def test_a_warm_start_takes_clearly_fewer_steps(oracle: str, change: str) -> None:
    K, labels = gaussian(400)
    wide, _ = gaussian(400, dimension=3)
    warm = cold = 0
    for c in range(4):
        y = one_against_rest(labels, c)
        before = solve_svm(K, y, 1.0, oracle)
        K2, C2 = (0.99 * K + 0.01 * wide if change == "kernel" else K), (1.2 if change == "C" else 1.0)
        cold += solve_svm(K2, y, C2, oracle).steps
        result = solve_svm(K2, y, C2, oracle, alpha=np.where(before.alpha >= 1.0, C2, before.alpha))
        assert_certified(result, K2, y, C2, tol=1e-3)
        warm += result.steps
    assert warm == 0 if change == "nothing" else warm < 0.7 * cold


@oracles
def test_any_warm_start_is_repaired(oracle: str) -> None:
    K, labels = gaussian(60)
    y = one_against_rest(labels)
    alpha = np.random.default_rng(0).normal(size=60) * 100.0
    for start in (alpha, np.where(y > 0, 5.0, 0.0), np.full(60, 1e9)):
        assert_certified(solve_svm(K, y, 1.0, oracle, alpha=start, tol=1e-5), K, y, 1.0, tol=1e-5)


@warm_starting
def test_steps_can_be_limited_and_continued(oracle: str) -> None:
    K, labels = gaussian(300)
    y, steps, alpha = one_against_rest(labels), 0, np.zeros(300)
    while (result := solve_svm(K, y, 10.0, oracle, alpha=alpha, max_steps=20)).gap > 1e-3:
        assert result.steps == 20
        assert_certified(result, K, y, 10.0, tol=np.inf)
        steps, alpha = steps + result.steps, result.alpha
    assert steps > 40


@oracles
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_kernel_may_be_read_only_and_is_left_alone(oracle: str, dtype: Any) -> None:
    K, labels = gaussian(50)
    K = K.astype(dtype)
    K.flags.writeable = False
    before, y = K.tobytes(), one_against_rest(labels)
    result = solve_svm(K, y, 1.0, oracle)
    assert K.tobytes() == before
    same = solve_svm(ORACLES[oracle].prepare(K), y.astype(int), 1, oracle)
    other = solve_svm(ORACLES["smo"].prepare(K), y, np.full(50, 1.0), oracle)
    assert result.alpha.tobytes() == same.alpha.tobytes() == other.alpha.tobytes()


GOOD = np.eye(4)
LABELS = np.array([1.0, -1.0, 1.0, -1.0])
BAD: dict[str, dict[str, Any]] = {
    "square": {"K": np.ones((4, 3))},
    "float32 or float64": {"K": np.eye(4, dtype=int)},
    "C-contiguous": {"K": np.asfortranarray(np.arange(16.0).reshape(4, 4))},
    "diagonal": {"K": np.diag([1.0, np.nan, 1.0, 1.0])},
    "NaN": {"K": np.where(np.eye(4) == 1, 1.0, np.nan)},
    "y has shape": {"y": LABELS[:3]},
    "y has values": {"y": np.array([0.0, 1.0, 0.0, 1.0])},
    "upper has shape": {"C": np.ones(3)},
    "negative": {"C": -1.0},
    "finite": {"C": np.inf},
    "upper has NaN or infinite": {"C": np.array([1.0, np.nan, 1.0, 1.0])},
    "alpha has shape": {"alpha": np.ones(5)},
    "tol": {"tol": -1.0},
    "max_steps": {"max_steps": -1},
}


@oracles
@pytest.mark.parametrize("words", list(BAD))
def test_bad_input_is_refused_in_words(oracle: str, words: str) -> None:
    options: dict[str, Any] = {"K": GOOD, "y": LABELS, "C": 1.0, "oracle": oracle}
    with pytest.raises(SolverError, match=words):
        solve_svm(**options | BAD[words])


def test_libsvm_refuses_a_copy_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmkl.oracles.libsvm.available", lambda: 100)
    with pytest.raises(ResourceError, match="'smo'"):
        ORACLES["libsvm"].prepare(checked_kernel(GOOD))


def test_importing_oracles_does_not_import_libsvm() -> None:
    code = "import sys, dmkl.oracles; sys.exit('libsvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
