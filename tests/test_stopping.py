"""Deadlines and signals: whatever is cut short ends soon, with bounds that hold, and goes on from there."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import waiting as waiting_method
from conftest import small_working_sets, unsolved

import dmkl
from dmkl import KernelStack
from dmkl._util import stopping
from dmkl._util.stopping import (
    Stopped,
    deadline,
    end_if_late,
    must_stop,
    received,
    request_here,
    requests_made,
    seconds_left,
    sent,
    stop_requested,
    stopped_by,
)
from dmkl.model import load_model
from dmkl.oracles import ORACLES, smo
from dmkl.problems.vskl import MixedNormMKL
from dmkl.runtime import Local
from dmkl.solvers import methods
from dmkl.solvers.api import SolveInterrupted

pytestmark = unsolved

LATE = 20.0  # seconds; the goal is 5, but machines are busy


class Clock:
    """A clock that is told the time."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stopping, "time", clock)
    return clock


# --- limits


def late() -> bool:
    try:
        end_if_late()
    except Stopped:
        return True
    return False


def test_there_is_time_without_limits() -> None:
    assert not must_stop()
    assert not late()
    assert seconds_left() == np.inf


def test_the_two_moments_of_a_deadline(clock: Clock) -> None:
    with deadline(10.0):
        assert seconds_left() == 10.0
        clock.now += 10 + 0.9 * stopping.GRACE
        assert seconds_left() < 0
        assert not must_stop()
        assert must_stop(step=stopping.GRACE)  # one that would end too late
        clock.now += 0.2 * stopping.GRACE
        assert must_stop()
        assert not late()
        clock.now += stopping.PATIENCE
        assert late()
    assert not must_stop()


def test_who_asks_late_still_has_time_for_certificates(clock: Clock) -> None:
    with deadline(1.0):
        clock.now += 100  # one call of BLAS
        assert must_stop()
        clock.now += 0.9 * stopping.PATIENCE
        assert must_stop()
        assert not late()
        clock.now += 0.2 * stopping.PATIENCE
        assert late()
    with deadline(1.0):
        clock.now += 100  # a pass that never asked
        assert late()


def test_the_nearest_deadline_counts(clock: Clock) -> None:
    with deadline(10.0):
        with deadline(100.0):
            assert seconds_left() == 10.0
        with deadline(1.0):
            assert seconds_left() == 1.0
        assert seconds_left() == 10.0


def test_limits_belong_to_a_call_and_its_threads(clock: Clock) -> None:
    def other() -> bool:
        return must_stop()

    with deadline(1.0), ThreadPoolExecutor(1) as pool:
        clock.now += 100
        assert must_stop()
        assert not pool.submit(other).result()  # somebody else's call
        assert pool.submit(stopping.Tasks().run, other).result()
        assert all(Local(2).map(lambda _: must_stop(), [(i,) for i in range(4)]))


def test_tasks_that_nobody_waits_for_end() -> None:
    begun, ended = threading.Event(), []

    def work(number: int) -> None:
        if number == 1:
            begun.wait()
            raise ZeroDivisionError
        begun.set()
        while not late():
            time.sleep(0.001)
        ended.append(number)

    with pytest.raises(ZeroDivisionError):
        list(Local(2).map(work, [(1,), (2,)]))
    assert ended == [2]


def test_late_tasks_do_not_begin(clock: Clock) -> None:
    for workers in (1, 2):
        with deadline(1.0):
            numbers = Local(workers).map(abs, [(i,) for i in range(9)])
            done = [next(numbers)]
            clock.now += 100
            assert must_stop()
            clock.now += 100
            with pytest.raises(Stopped):
                done += numbers
        assert 1 <= len(done) <= 8


def test_limits_travel(clock: Clock) -> None:
    with deadline(7.0), stopped_by(()) as request:
        limits = sent()
    with received(limits):
        assert seconds_left() == 7.0
        request_here(requests_made())
        assert not stop_requested()
    request_here((request.name,))
    with received(limits):
        assert stop_requested()
        assert must_stop()


def wait_to_be_stopped(_: int) -> bool:
    """A task of a cluster that ends when it hears of a request."""
    until = time.monotonic() + LATE
    while not must_stop() and time.monotonic() < until:
        time.sleep(0.01)
    return stop_requested()


def test_workers_hear_of_requests_and_deadlines(two_workers: Any) -> None:
    assert not any(two_workers.map(late, [(), ()]))  # imports this module
    with stopped_by(()) as request, deadline(100.0):
        threading.Timer(0.5, request.make).start()
        assert list(two_workers.map(wait_to_be_stopped, [(0,), (1,)])) == [True, True]
    with deadline(-stopping.GRACE):
        assert list(two_workers.map(wait_to_be_stopped, [(0,), (1,)])) == [False, False]
    with deadline(-100.0), pytest.raises(Stopped):
        list(two_workers.map(wait_to_be_stopped, [(0,)]))


# --- signals


def kill(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_request_where_somebody_asks(number: signal.Signals) -> None:
    before, told = signal.getsignal(number), []
    with stopped_by((signal.SIGINT, signal.SIGTERM), lambda: told.append(must_stop())) as request:
        with deadline(np.inf):
            assert not must_stop()
            kill(number)
            assert must_stop()
            kill(signal.SIGTERM)  # batch systems send several
        assert request.made
        assert told == [True]
        with pytest.raises(KeyboardInterrupt):
            kill(signal.SIGINT)
    assert signal.getsignal(number) is before


def test_elsewhere_it_interrupts() -> None:
    with stopped_by((signal.SIGINT, signal.SIGTERM)) as request:
        with pytest.raises(KeyboardInterrupt):
            kill(signal.SIGTERM)
        assert request.made  # threads that still run see it


# --- every method, cut short anywhere


class Ticks:
    """A clock that goes on by one whenever it is looked at: the same cut in every run."""

    def __init__(self) -> None:
        self._count = itertools.count()

    def monotonic(self) -> float:
        return float(next(self._count))


FORMULATIONS: list[Any] = [
    dmkl.UniformMKL(C=10.0),
    dmkl.UniformMKL(loss="logistic"),
    dmkl.VSKL(q=2.0, C=10.0),
    dmkl.L1MKL(C=10.0),
    dmkl.LpMKL(p=2.0, C=10.0),
    dmkl.SpicyMKL(C=0.3),
    dmkl.SharedMKL(C=10.0),
    dmkl.SharedMKL(C=10.0, mode="max"),
    dmkl.Obscure(p=1.25, C=1.0),
]
EVERY = [(one, method.name) for one in FORMULATIONS for method in methods.methods_of(one)]
NAMES = [f"{dmkl.solvers.describe(one)}-{method}".replace(" ", "-") for one, method in EVERY]
SLOW = ("online", "stochastic", "pegasos", "sa-paper")  # the papers', which may need many rounds


@pytest.fixture(scope="module")
def noisy() -> tuple[KernelStack, Any]:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(90, 4)), rng.integers(0, 3, 90)
    X[:, :3] += 1.5 * np.eye(3)[y]
    K = np.stack([np.exp(-((X[:, None, c] - X[None, :, c]) ** 2)) for c in range(4)])
    return KernelStack.from_array(K, largest_tile=30, workers=1), y


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rounds, and SVMs that pause."""
    small_working_sets(monkeypatch, start=8, least_growth=10)
    monkeypatch.setattr(smo, "PORTION", 1000)


def tick(monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
    monkeypatch.setattr(stopping, "time", Ticks())
    monkeypatch.setattr(stopping, "PATIENCE", patience)


@pytest.mark.parametrize(("formulation", "method"), EVERY, ids=NAMES)
def test_cut_short_anywhere_the_bounds_hold_and_the_same_call_goes_on(
    noisy: Any, rounds: None, formulation: Any, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, y = noisy
    tol, most = (0.5, 4) if method in SLOW else (1e-3, 60)
    best = dmkl.solve(stack, y, formulation, tol=1e-5)
    highest, lowest = np.atleast_1d(best.objective) * (1 + 1e-9), np.atleast_1d(best.dual) * (1 - 1e-9)
    cut = 0
    for patience, asked in itertools.product((0.0, 1000.0), (0, 3, 20, 100)):
        kept = {"method": method, "tol": tol, "checkpoint": tmp_path / f"{patience}-{asked}"}
        with monkeypatch.context() as patch:
            tick(patch, patience)
            fit = dmkl.solve(stack, y, formulation, max_seconds=asked, **kept)
        assert fit.out_of_time != fit.converged
        cut += fit.out_of_time
        assert np.isfinite(fit.gap).all()
        assert (np.atleast_1d(fit.dual) <= highest).all()
        assert (np.atleast_1d(fit.objective) >= lowest).all()
        again = dmkl.solve(stack, y, formulation, max_rounds=most, **kept)
        assert again.converged or method in SLOW
        assert again.rounds >= fit.rounds
        assert (np.atleast_1d(again.dual) <= highest).all()
        assert (np.atleast_1d(again.objective) >= lowest).all()
    assert cut >= 3


@pytest.mark.parametrize("patience", [0.0, 1000.0])
@pytest.mark.parametrize(
    "formulation", [dmkl.L1MKL(C=10.0), dmkl.VSKL(q=2.0, C=3.0), dmkl.LpMKL(p=2.0, C=3.0)], ids=repr
)
def test_the_objective_is_that_of_the_model(
    noisy: Any, rounds: None, formulation: MixedNormMKL, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, y = noisy
    K, Y = stack.source.as_array(), np.where(np.arange(3) == y[:, None], 1.0, -1.0)
    norm = formulation.norm(stack.groups)
    for asked in (0, 5, 20, 80):
        with monkeypatch.context() as patch:
            tick(patch, patience)
            fit = dmkl.solve(stack, y, formulation, max_seconds=asked, tol=1e-7)
        for k in range(3):
            products = K @ fit.coef[:, k]
            norms = fit.weights[k] * np.sqrt(np.maximum(products @ fit.coef[:, k], 0.0))
            f = fit.weights[k] @ products + fit.intercept[k]
            value = norm.regulariser(norms) + formulation.C * np.maximum(1.0 - Y[:, k] * f, 0.0).sum()
            assert value == pytest.approx(fit.objective[k], rel=1e-9)


def test_without_time_for_anything_there_is_a_model_without_kernels(
    noisy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, y = noisy
    tick(monkeypatch, 0.0)
    fit = dmkl.solve(stack, y, dmkl.L1MKL(C=2.0), max_seconds=-100)
    assert not fit.coef.any()
    np.testing.assert_allclose(fit.objective, [2 * 2.0 * (y == k).sum() for k in range(3)])
    np.testing.assert_array_equal(fit.dual, 0)
    np.testing.assert_array_equal(fit.intercept, -1)
    assert (fit.out_of_time, fit.rounds, fit.converged) == (True, 0, False)


def test_tuning_ends_between_and_inside_fits(noisy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack, y = noisy
    points = dmkl.grid(dmkl.L1MKL, C=(0.1, 1.0))
    whole = dmkl.tune(stack, y, points, folds=2)
    monkeypatch.setattr(stopping, "PATIENCE", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(stopping, "time", Ticks())
        with pytest.raises(dmkl.errors.DeadlineReached):
            dmkl.tune(stack, y, points, folds=2, folder=tmp_path, max_seconds=20)
    again = dmkl.tune(stack, y, points, folds=2, folder=tmp_path)
    assert [row.mean for row in again.rows] == [row.mean for row in whole.rows]


# --- the SVM solver


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intercept", [True, False])
def test_pauses_of_the_svm_change_no_bit(dtype: Any, intercept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 8))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=500) > 0, 1.0, -1.0)
    K = np.exp(-0.05 * ((X[:, None] - X) ** 2).sum(axis=2)).astype(dtype)
    found, paused = [], []
    ask = smo.must_stop
    monkeypatch.setattr(smo, "must_stop", lambda: paused.append(1) or ask())
    for portion in (10**12, 100_000, 1):
        monkeypatch.setattr(smo, "PORTION", portion)
        paused.clear()
        found.append(ORACLES["smo"](K, y, 300.0, intercept=intercept, tol=1e-6))
        assert bool(paused) == (portion < 10**12)
    for other in found[1:]:
        assert np.array_equal(found[0].alpha, other.alpha)
        assert (found[0].steps, found[0].dual) == (other.steps, other.dual)


@pytest.mark.parametrize("after", [1, 2, 5, 20])
def test_an_svm_cut_short_is_certified(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 8))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=400) > 0, 1.0, -1.0)
    K = np.exp(-0.05 * ((X[:, None] - X) ** 2).sum(axis=2))
    whole = ORACLES["smo"](K, y, 300.0, tol=1e-8)
    count = itertools.count(1)
    monkeypatch.setattr(smo, "PORTION", 1000)
    monkeypatch.setattr(smo, "must_stop", lambda: next(count) >= after)
    cut = ORACLES["smo"](K, y, 300.0, tol=1e-8)
    assert cut.gap > 1e-8
    assert cut.steps < whole.steps
    assert cut.dual <= whole.primal
    assert cut.primal >= whole.dual
    assert abs((cut.alpha * y).sum()) < 1e-9 * cut.alpha.sum()
    assert (cut.alpha >= 0).all()
    assert (cut.alpha <= 300).all()


# --- the clock on the wall


@pytest.fixture(scope="module")
def lasting() -> tuple[KernelStack, Any]:
    """Noisy labels, on which a round of the default methods lasts."""
    rng = np.random.default_rng(0)
    n = 2500
    X = rng.normal(size=(n, 12)).astype(np.float32)
    y = np.where(X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=n) > 1, 1, -1)
    y[rng.random(n) < 0.1] *= -1
    K = np.empty((8, n, n), np.float32)
    for a in range(8):
        Z = X[:, 3 * (a % 4) : 3 * (a % 4) + 3]
        square = (Z**2).sum(axis=1)
        K[a] = np.exp((2 * Z @ Z.T - square[:, None] - square) / (2.0 if a < 4 else 6.0))
    return KernelStack.from_array(K), y


LONG: list[Any] = [dmkl.L1MKL(C=1.0), dmkl.SpicyMKL(C=3.0, loss="logistic"), dmkl.Obscure(p=1.05, C=10.0)]


@pytest.mark.parametrize("formulation", LONG, ids=[type(one).__name__ for one in LONG])
def test_a_deadline_ends_a_long_round(lasting: Any, formulation: Any, tmp_path: Path) -> None:
    stack, y = lasting
    started = time.monotonic()
    fit = dmkl.solve(stack, y, formulation, tol=1e-12, max_seconds=0.2, checkpoint=tmp_path / "kept")
    assert time.monotonic() - started < 0.2 + LATE
    assert fit.out_of_time or fit.converged
    assert fit.gap <= 1
    assert (tmp_path / "kept").exists()


# --- signals in rounds that last


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The arguments of `solve` for a problem whose round lasts until it has to stop."""
    monkeypatch.setattr(methods, "METHODS", {kind: list(known) for kind, known in methods.METHODS.items()})
    waiting_method.register()
    X = np.random.default_rng(0).normal(size=(80, 3))
    stack = KernelStack.from_array(np.stack([np.outer(x, x) for x in X.T]))
    return {"stack": stack, "y": X[:, 0] > 0, "formulation": dmkl.UniformMKL(C=1.0), "method": "waiting"}


@pytest.fixture
def interrupted(tmp_path: Path) -> Iterator[list[float]]:
    """Ctrl-C when the first round has begun, with the checkpoint `kept`; its time will be in the list."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are for the main thread")
    over, moments = threading.Event(), []

    def press() -> None:
        while not (tmp_path / "kept").exists():
            if over.wait(0.01):
                return
        if not over.wait(0.2):
            moments.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    yield moments
    over.set()
    thread.join()


def test_a_deadline_is_kept_inside_a_round(waiting: Any) -> None:
    started = time.monotonic()
    fit = dmkl.solve(**waiting, max_seconds=0.1)
    assert stopping.GRACE < time.monotonic() - started < stopping.GRACE + LATE
    assert fit.rounds == 1
    assert fit.gap <= 1e-3


def test_ctrl_c_reaches_the_caller_with_the_best_solution(
    waiting: Any, interrupted: list[float], tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as stopped:
        dmkl.solve(**waiting, tol=1e-14, checkpoint=tmp_path / "kept")
    assert time.monotonic() - interrupted[0] < LATE
    assert isinstance(stopped.value, SolveInterrupted)
    assert stopped.value.fit.gap < 0.1
    assert stopped.value.fit.rounds == 1
    assert "interrupted with a gap of" in str(stopped.value)
    assert signal.getsignal(signal.SIGINT) is before
    assert not stop_requested()
    again = dmkl.solve(**waiting, tol=0.1, checkpoint=tmp_path / "kept", max_seconds=0.1)
    assert again.converged
    assert again.rounds == 1  # the checkpoint is the one before the round that was cut short, which is done again


def test_a_caller_that_handles_ctrl_c_itself_is_left_alone(
    waiting: Any, interrupted: list[float], tmp_path: Path
) -> None:
    class Mine(Exception):
        pass

    def mine(*_: Any) -> None:
        raise Mine

    before = signal.signal(signal.SIGINT, mine)
    try:
        with pytest.raises(Mine):
            dmkl.solve(**waiting, checkpoint=tmp_path / "kept")
    finally:
        signal.signal(signal.SIGINT, before)


# --- processes

CONFIG = """
[data]
path = "data.npz"
test = 0.1
[[kernels]]
kernel = "rbf"
width = ["0.5 median", "1 median", "2 median"]
[formulation]
name = "uniform"
C = 10.0
[solve]
method = "waiting"
tol = 1e-14
baselines = true
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 6)), rng.integers(0, 3, 100)
    np.savez(tmp_path / "data.npz", y=y, X_a=X[:, :3], X_b=X[:, 3:])
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path


def train(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, waiting_method.__file__, "train", "config.toml", "-o", "run", *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until_solving(process: subprocess.Popen[str], folder: Path) -> None:
    while not (folder / "run/checkpoint").exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    time.sleep(0.3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_saves_its_model(folder: Path, number: signal.Signals) -> None:
    process = train(folder)
    until_solving(process, folder)
    started = time.monotonic()
    process.send_signal(number)
    said = process.communicate(timeout=60)[0]
    assert time.monotonic() - started < LATE
    assert process.returncode == 130, said
    assert "stopping: the best model so far is being saved" in said
    assert "error: interrupted with a gap of" in said
    assert "hint: the best model is in run; run the same command again to continue" in said
    assert max(load_model(folder / "run/model.zarr.zip").about["gap"]) <= 1
    assert (folder / "run/report.html").exists()
    assert not (folder / "run/scores.json").exists()
    process = train(folder, "--max-time", "0.5 s")
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 3, said
    assert "continuing the unfinished run" in said


def test_a_run_out_of_time_ends_soon(folder: Path) -> None:
    process = train(folder, "--max-time", "0.5 s")
    until_solving(process, folder)
    started = time.monotonic()
    said = process.communicate(timeout=60)[0]
    assert time.monotonic() - started < LATE
    assert process.returncode == 3, said
    assert "out of time with a gap of" in said
    assert (folder / "run/report.html").exists()
    assert max(load_model(folder / "run/model.zarr.zip").about["gap"]) <= 1


@pytest.mark.long
def test_a_run_on_workers_that_is_asked_to_stop(folder: Path) -> None:
    process = train(folder, "--cluster", "local:2")
    until_solving(process, folder)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert (folder / "run/model.zarr.zip").exists()
