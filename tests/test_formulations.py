"""The conformance suite of formulations: whatever is registered is certified, symmetric in kernels and resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import unsolved, whole

import dmkl
from dmkl.solvers import FORMULATIONS
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore

NEEDED = {"obscure": {"C": 1.0}, "mikl": {"lam": 20.0}}  # constants without a default that fits these data
TOL = 1e-3
EVERY = pytest.mark.parametrize("name", list(FORMULATIONS))


def made(name: str) -> Any:
    return FORMULATIONS[name](**NEEDED.get(name, {}))


@EVERY
def test_the_gap_is_proved(name: str, store: KernelStore) -> None:
    fit = dmkl.solve(open_stack(store.path), store.labels, made(name), tol=TOL)
    objective, dual = np.atleast_1d(fit.objective), np.atleast_1d(fit.dual)
    assert fit.converged
    assert (dual <= objective * (1 + 1e-9)).all()
    assert (objective - dual <= TOL * objective * (1 + 1e-9)).all()
    assert (fit.weights >= 0).all()
    assert fit.passes > 0


@EVERY
def test_the_order_of_the_kernels_is_of_no_meaning(name: str, store: KernelStore) -> None:
    K = whole(store).astype(np.float64)
    order = np.random.default_rng(0).permutation(len(K))
    groups = np.array([0, 0, 0, 1, 1, 1])
    one = dmkl.solve(KernelStack.from_array(K, groups=groups), store.labels, made(name), tol=TOL)
    two = dmkl.solve(KernelStack.from_array(K[order], groups=groups[order]), store.labels, made(name), tol=TOL)
    np.testing.assert_allclose(one.objective, two.objective, rtol=2 * TOL)


@unsolved
@EVERY
def test_a_run_cut_short_ends_where_a_straight_one_does(name: str, store: KernelStore, tmp_path: Path) -> None:
    straight = dmkl.solve(open_stack(store.path), store.labels, made(name), tol=TOL)
    for _ in range(straight.rounds):  # one round a process
        cut = dmkl.solve(
            open_stack(store.path), store.labels, made(name), tol=TOL, max_seconds=0, checkpoint=tmp_path / "state"
        )
    assert cut.converged
    assert np.array_equal(straight.weights, cut.weights)
    assert (straight.state.coef != cut.state.coef).nnz == 0
