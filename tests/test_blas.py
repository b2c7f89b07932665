"""One rule for the threads of BLAS: one, unless work that is alone asks for more."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # brings a BLAS of its own
from threadpoolctl import ThreadpoolController, threadpool_limits

import dmkl
from dmkl._util import machine
from dmkl.runtime import Local
from dmkl.runtime.blas import all_blas_threads, one_blas_thread
from dmkl.solvers import api, methods

TWO = 2


def threads() -> set[int]:
    return {one.num_threads for one in ThreadpoolController().select(user_api="blas").lib_controllers}


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """BLAS as it is on a machine of two cores; OpenBLAS takes more threads than there are cores."""
    assert scipy.linalg
    monkeypatch.setattr(machine, "cores", lambda: TWO)
    with threadpool_limits(TWO, user_api="blas"):
        yield


def test_one_thread_inside_and_as_before_outside() -> None:
    assert threads() == {TWO}
    with one_blas_thread():
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {TWO}


def test_the_last_thread_to_leave_restores() -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with one_blas_thread():
            inside.set()
            leave.wait()

    with ThreadPoolExecutor(1) as pool:
        with one_blas_thread():
            other = pool.submit(stay)
            inside.wait()
        assert threads() == {1}
        leave.set()
        other.result()
    assert threads() == {TWO}


def test_work_that_is_alone_has_all_cores() -> None:
    with one_blas_thread():
        with all_blas_threads() as count:
            assert (count, threads()) == (TWO, {TWO})
            with all_blas_threads():
                assert threads() == {TWO}
            assert threads() == {TWO}
        assert threads() == {1}
        with pytest.raises(ZeroDivisionError), all_blas_threads():
            raise ZeroDivisionError
        assert threads() == {1}
    with all_blas_threads() as count:
        assert (count, threads()) == (TWO, {TWO})  # nothing was limited
    assert threads() == {TWO}


def test_it_has_no_more_cores_than_it_may_use() -> None:
    with one_blas_thread(cores=1), one_blas_thread(cores=4), all_blas_threads() as count:
        assert (count, threads()) == (1, {1})
    with threadpool_limits(1, user_api="blas"), one_blas_thread(), all_blas_threads():
        assert threads() == {1}  # what the user asked for


def test_work_beside_others_keeps_one_thread() -> None:
    def ask() -> set[int]:
        with one_blas_thread(), all_blas_threads():
            return threads()

    with ThreadPoolExecutor(1) as pool, one_blas_thread():
        assert pool.submit(ask).result() == {1}
        with all_blas_threads():
            assert threads() == {TWO}
            assert pool.submit(ask).result() == {1}
            assert threads() == {1}  # alone no longer
        assert threads() == {1}
    assert threads() == {TWO}


def ask_in_task(_: int) -> tuple[int, ...]:
    with all_blas_threads():
        return tuple(threads())


def test_tasks_have_one_thread_and_a_single_task_may_have_all() -> None:
    for workers in (1, 2):
        with one_blas_thread(cores=TWO):
            assert list(Local(workers).map(ask_in_task, [(0,)])) == [(TWO,)]
    assert set(Local(2).map(ask_in_task, [(i,) for i in range(6)])) == {(1,)}
    assert threads() == {TWO}


def ask_in_process(answers: Any) -> None:
    with one_blas_thread(cores=TWO), all_blas_threads() as count:
        answers.put(count)


def test_processes_of_a_pool_and_workers_of_a_cluster_have_one_thread(two_workers: Any) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=ask_in_process, args=(answers,))
    process.start()
    assert answers.get(timeout=60) == 1
    process.join()
    assert list(two_workers.map(ask_in_task, [(0,), (1,)])) == [(1,), (1,)]


def test_solve_has_one_thread_and_gives_them_back(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Whatever a solver does between its tasks."""
    seen: list[tuple[set[int], int]] = []
    find = methods.Method.solver

    def watched(method: methods.Method, *arguments: Any) -> Any:
        with all_blas_threads() as most:
            pass
        seen.append((threads(), most))
        return find(method, *arguments)

    monkeypatch.setattr(methods.Method, "solver", watched)
    X = rng.normal(size=(40, 3))
    for workers in (1, 2):
        stack = dmkl.KernelStack.from_array(np.stack([np.outer(x, x) for x in X.T]), workers=workers)
        assert api.solve(stack, X[:, 0] > 0, dmkl.SharedMKL(C=1.0)).converged
    assert seen == [({1}, 1), ({1}, TWO)]
    assert threads() == {TWO}
