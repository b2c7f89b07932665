"""ML-MKL-SA and its full gradients (Bucak, Jin and Jain 2010), written anew from the paper, against our methods.

With delta = 0 the algorithm is as printed. With delta > 0 the paper draws classes from gamma' and keeps the estimates
(8) and (9), which are those for gamma. Here they are for gamma', as ours are, and a test shows that this is right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import save_npz, three_classes
from exact_svm import ExactOracle, Vector, exact_alpha

import dmkl
from dmkl.cli.main import main
from dmkl.errors import ConfigError
from dmkl.oracles import ORACLES
from dmkl.solvers.shared_full import FullGradientState
from dmkl.solvers.shared_max import MinimaxState, SaddleIterates
from dmkl.stack import KernelStack

C, N, M, S = 1.0, 36, 4, 5
CONFIG = """
[data]
path = "data.npz"
test = 0.25
[[kernels]]
kernel = "rbf"
width = ["0.5 median", "1 median"]
[formulation]
name = "shared"
mode = "max"
stop = "paper"
[solve]
tol = 1e-6
"""


@pytest.fixture
def problem() -> tuple[Vector, Any]:
    """Four classes, and Gaussian kernels of single features that tell different classes apart."""
    rng = np.random.default_rng(4)
    classes = np.arange(N) % M
    X = 1.5 * np.eye(S)[classes] + rng.normal(size=(N, S))
    K = np.stack([np.exp(-((X[:, None, a] - X[None, :, a]) ** 2)) for a in range(S)])
    return K + 0.05 * np.eye(N), classes


@pytest.fixture(autouse=True)
def _exact_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ORACLES._entries, "exact", ExactOracle())


# The paper.


def svm(K: Vector, y: Vector, p: Vector, intercept: bool) -> tuple[float, Vector]:
    """H_k at p, and (alpha y)' K^a (alpha y) of every kernel."""
    alpha = exact_alpha(sum(p[a] * K[a] for a in range(len(K))), y, C, intercept=intercept)
    forms = np.array([(alpha * y) @ kernel @ (alpha * y) for kernel in K])
    return float(alpha.sum()) - 0.5 * float(p @ forms), forms


def by_p(forms: Vector, factor: float) -> Vector:
    """(8); the factor gamma_j / gamma'_j is missing in the paper, and 1 where classes are drawn from gamma."""
    return -0.5 * factor * forms


def by_gamma(H: float, j: int, chance: float) -> Vector:
    """(9); `chance` is gamma_j in the paper, which is the probability of j where classes are drawn from gamma."""
    gradient = np.zeros(M)
    gradient[j] = H / chance
    return gradient


def ml_mkl_sa(
    K: Vector, Y: Vector, eta: float, delta: float, intercept: bool, draws: list[np.random.Generator]
) -> tuple[list[Vector], list[Vector]]:
    """Algorithm 1: p_1, p_2 ... and gamma_1, gamma_2 ...; one generator a step draws the class."""
    gamma, p = np.ones(M) / M, np.ones(len(K)) / len(K)
    ps, gammas = [p], [gamma]
    for rng in draws:
        smooth = (1 - delta) * gamma + delta / M
        j = int(rng.choice(M, 1, p=smooth)[0])
        H, forms = svm(K, Y[:, j], p, intercept)
        p = p * np.exp(-eta * by_p(forms, gamma[j] / smooth[j]))
        p = p / p.sum()
        gamma = gamma * np.exp(eta * by_gamma(H, j, smooth[j]))
        gamma = gamma / gamma.sum()
        ps, gammas = [*ps, p], [*gammas, gamma]
    return ps, gammas


def full_gradients(K: Vector, Y: Vector, eta: float, steps: int, mode: str) -> tuple[list[Vector], list[Vector]]:
    """(6) and (7), where gamma descends in print, though L is to be maximised over it; Algorithm 1 has it right.

    The sum of the classes is the same with gamma = 1 for every class (section 2, before 2.1).
    """
    gamma, p = np.ones(M) / M if mode == "max" else np.ones(M), np.ones(len(K)) / len(K)
    ps, gammas = [p], [gamma]
    for _ in range(steps):
        found = [svm(K, Y[:, k], p, True) for k in range(M)]
        H, forms = np.array([one[0] for one in found]), np.array([one[1] for one in found])
        p = p * np.exp(eta * 0.5 * gamma @ forms)
        p = p / p.sum()
        if mode == "max":
            gamma = gamma * np.exp(eta * H)
            gamma = gamma / gamma.sum()
        ps, gammas = [*ps, p], [*gammas, gamma]
    return ps, gammas


def steps_to_stop(ps: list[Vector]) -> int:
    """Section 3.4: the first t with |mean(p_1 .. p_t) - mean(p_1 .. p_(t-1))| < 0.01 |mean(p_1 .. p_t)|."""
    averages = [np.mean(ps[:t], axis=0) for t in range(1, len(ps) + 1)]
    pairs = zip(averages[1:], averages, strict=False)
    changes = [np.linalg.norm(new - old) / np.linalg.norm(new) for new, old in pairs]
    return 2 + int(np.flatnonzero(np.array(changes) < 0.01)[0])


# Our code.


def signs(classes: Any) -> Vector:
    return np.where(classes[:, None] == np.arange(M), 1.0, -1.0)


def solved(K: Vector, classes: Any, method: str, formulation: dmkl.SharedMKL, **options: Any) -> dmkl.Fit:
    how: dict[str, Any] = {"method": method, "oracle": "exact", "seed": 3, "tol": 1e-12, "warn": False}
    return dmkl.solve(KernelStack.from_array(K), classes, formulation, **how | options)


def walked(K: Vector, classes: Any, rounds: int, method: str = "sa-paper", **constants: Any) -> SaddleIterates:
    """Where a method for the worst class is after so many rounds."""
    fit = solved(K, classes, method, dmkl.SharedMKL(C=C, mode="max", **constants), max_rounds=rounds)
    return fit.state.own_as(MinimaxState).iterates


def draws(rounds: int) -> list[np.random.Generator]:
    """The generator of every step: a round has its own, and 4 sqrt(m) 2^round steps."""
    found: list[np.random.Generator] = []
    for number in range(rounds):
        found += [np.random.default_rng([3, number])] * int(np.ceil(4 * np.sqrt(M) * 2**number))
    return found


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "no intercept"])
@pytest.mark.parametrize(("delta", "eta"), [(0.0, 0.01), (0.2, 0.01), (0.2, 0.05), (1.0, 0.01)])
def test_sa_has_the_papers_iterates(problem: Any, delta: float, eta: float, intercept: bool) -> None:
    """After one, two, three rounds: p and gamma, and the sums of all that were before, of which (10) is the average."""
    K, classes = problem
    for rounds in (1, 2, 3):
        ours = walked(K, classes, rounds, delta=delta, eta=eta, intercept=intercept)
        ps, gammas = ml_mkl_sa(K, signs(classes), eta, delta, intercept, draws(rounds))
        np.testing.assert_allclose(ours.weights, ps[-1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.gamma, gammas[-1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.average[0], np.mean(ps[:-1], axis=0), rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.average[1], np.mean(gammas[:-1], axis=0), rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.weight_sum, np.sum(ps[:-1], axis=0), rtol=1e-10)
    assert np.abs(ps[-1] - ps[0]).max() > 0.02  # it went somewhere


def test_the_printed_estimates_are_biased_where_classes_are_drawn_from_gamma_prime(problem: Any) -> None:
    """Proposition 1 summed over all classes: true of the estimates used here, not of (8) and (9) as printed."""
    K, classes = problem
    Y, delta = signs(classes), 0.5
    rng = np.random.default_rng(0)
    p, gamma = rng.dirichlet(np.ones(S)), rng.dirichlet(np.ones(M))
    smooth = (1 - delta) * gamma + delta / M
    found = [svm(K, Y[:, k], p, True) for k in range(M)]
    H, forms = np.array([one[0] for one in found]), np.array([one[1] for one in found])
    full_p, full_gamma = -0.5 * gamma @ forms, H  # (6)
    ours_p = sum(smooth[k] * by_p(forms[k], gamma[k] / smooth[k]) for k in range(M))
    ours_gamma = sum(smooth[k] * by_gamma(H[k], k, smooth[k]) for k in range(M))
    printed_p = sum(smooth[k] * by_p(forms[k], 1.0) for k in range(M))
    printed_gamma = sum(smooth[k] * by_gamma(H[k], k, gamma[k]) for k in range(M))
    np.testing.assert_allclose(ours_p, full_p, rtol=1e-12)
    np.testing.assert_allclose(ours_gamma, full_gamma, rtol=1e-12)
    assert np.abs(printed_p / full_p - 1).max() > 0.05
    assert np.abs(printed_gamma / full_gamma - 1).max() > 0.05


@pytest.mark.parametrize("eta", [0.01, 0.05])
def test_full_gradients_have_the_papers_iterates(problem: Any, eta: float) -> None:
    """Rounds of `mirror-paper` have 4 sqrt(m) 2^round / m steps for the worst class, 25 for the sum."""
    K, classes = problem
    for rounds in (1, 2, 3):
        ours = walked(K, classes, rounds, "mirror-paper", eta=eta)
        steps = sum(2 * 2**number for number in range(rounds))
        ps, gammas = full_gradients(K, signs(classes), eta, steps, "max")
        assert ours.steps == steps
        np.testing.assert_allclose(ours.weights, ps[-1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.gamma, gammas[-1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.average[0], np.mean(ps[:-1], axis=0), rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.average[1], np.mean(gammas[:-1], axis=0), rtol=0, atol=1e-10)
    for rounds in (1, 2):
        fit = solved(K, classes, "mirror-paper", dmkl.SharedMKL(C=C, eta=eta), max_rounds=rounds)
        walk = fit.state.own_as(FullGradientState).iterates
        ps, _ = full_gradients(K, signs(classes), eta, 25 * rounds, "sum")
        np.testing.assert_allclose(walk.weights, ps[-1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(walk.weight_sum, np.sum(ps[:-1], axis=0), rtol=1e-10)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("mode", "method"), [("max", "sa-paper"), ("max", "mirror-paper"), ("sum", "mirror-paper")])
def test_the_papers_stop_ends_a_run_that_keeps_its_certificate(
    problem: Any, mode: str, method: str, tmp_path: Path
) -> None:
    K, classes = problem
    formulation = dmkl.SharedMKL(C=C, mode=mode, eta=0.05, stop="paper")
    fit = solved(K, classes, method, formulation, warn=True, checkpoint=tmp_path / "state")
    if method == "sa-paper":
        ps, _ = ml_mkl_sa(K, signs(classes), 0.05, 0.2, True, draws(5))
    else:
        ps, _ = full_gradients(K, signs(classes), 0.05, 150, mode)
    assert isinstance(fit.state.own, MinimaxState | FullGradientState)
    walk = fit.state.own.iterates
    assert walk.steps == steps_to_stop(ps) > 5
    assert walk.change < 0.01
    assert fit.rule == "the paper's stop, a change of the average weights by less than 1 %"
    assert not fit.converged
    assert not fit.out_of_time
    np.testing.assert_allclose(walk.weight_sum, np.sum(ps[: walk.steps], axis=0), rtol=1e-10)
    optimum = solved(K, classes, "bundle" if mode == "sum" else "sa", dmkl.SharedMKL(C=C, mode=mode), tol=1e-6)
    assert fit.dual <= optimum.objective * (1 + 1e-9)
    assert optimum.dual <= fit.objective * (1 + 1e-9)
    assert fit.gap == pytest.approx((fit.objective - fit.dual) / fit.objective)
    again = solved(K, classes, method, formulation, checkpoint=tmp_path / "state")
    assert (again.history, again.rule) == ([], fit.rule)  # it had ended
    np.testing.assert_array_equal(again.coef, fit.coef)
    loose = solved(K, classes, method, formulation, tol=0.9)
    assert loose.converged
    assert not loose.rule


def test_the_papers_stop_is_for_the_papers_methods(problem: Any) -> None:
    K, classes = problem
    with pytest.raises(ConfigError, match="unknown method 'bundle' of SharedMKL"):
        solved(K, classes, "bundle", dmkl.SharedMKL(stop="paper"))
    with pytest.raises(ConfigError, match="stop should be gap or paper, not 'never'"):
        dmkl.SharedMKL(stop="never")


def test_the_command_line_says_what_ended_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_npz(tmp_path / "data.npz", three_classes(120))
    (tmp_path / "config.toml").write_text(CONFIG)
    assert main(["train", str(tmp_path / "config.toml"), "-o", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr()
    rule = "ended by the paper's stop, a change of the average weights by less than 1 %"
    assert f"({rule})" in " ".join(shown.out.split())
    assert "NOT proved" not in shown.out
    assert "warn" not in shown.err.lower()
    report = (tmp_path / "run" / "report.html").read_text()
    assert "<strong>Ended by the paper&#39;s stop, a change of the average weights by less than 1 %:</strong>" in report
