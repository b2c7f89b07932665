"""Real losses of a Dask cluster: workers, values, the scheduler. The results are those of an undisturbed run."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Future

from dmkl.errors import ClusterError
from dmkl.runtime import dask, open_runtime
from dmkl.runtime.connections import LIMITS
from dmkl.runtime.dask import OPTIONS
from dmkl.runtime.tls import make_keys
from dmkl.stack.sources import Source
from dmkl.stack.tiles import StoredSource
from dmkl.store import KernelStore

pytestmark = pytest.mark.filterwarnings("ignore")  # distributed complains of what is done to it here


HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}  # where workers find the functions below


def square(x: int) -> int:
    time.sleep(0.05)
    return x * x


def deadly(folder: str, times: int, x: int) -> int:
    """A task that kills its worker the first few times."""
    mark = Path(folder) / f"{x}-{time.monotonic_ns()}"
    if len(list(Path(folder).glob(f"{x}-*"))) < times:
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def worker_pid() -> int:
    return os.getpid()


def parent_pid() -> int:
    return os.getppid()


def add(x: int, y: int) -> int:
    time.sleep(0.05)
    return x + y


def sum_while_cut_short(source: Source, file: str) -> float:
    """A task under which the file of a tile is cut short, the first time."""
    tile, mark = source.tile(0, 0, 0), Path(f"{file}-cut")
    if not mark.exists():
        mark.touch()
        os.truncate(file, 0)
    return float(tile.sum())


@contextmanager
def processes() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Dask commands, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen(command, env=HERE, **quiet))
        return started[-1]

    try:
        yield start
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def await_scheduler(port: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                return
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmkl.runtime.dask.OPTIONS", replace(OPTIONS, poll=0.5))
    monkeypatch.setattr("dmkl.runtime.connections.LIMITS", replace(LIMITS, close=1.0, connect=5.0))


@pytest.fixture
def one_worker() -> Iterator[Any]:
    with open_runtime("local:1") as runtime:
        yield runtime


def test_a_task_that_kills_its_workers_is_asked_again(one_worker: Any, tmp_path: Path) -> None:
    assert list(one_worker.map(deadly, [(str(tmp_path), 5, 3)])) == [3]  # four attempts, then KilledWorker
    assert len(list(tmp_path.iterdir())) == 5


def test_a_held_value_whose_maker_kills_is_made_again(one_worker: Any, tmp_path: Path) -> None:
    held = one_worker.hold(deadly, str(tmp_path), 5, 3)
    assert list(one_worker.map(add, [(held, 1), (held, 2)])) == [4, 5]


def test_a_tile_that_is_cut_short_while_it_is_read_costs_a_worker(
    one_worker: Any, store: KernelStore, tmp_path: Path
) -> None:
    mine = KernelStore(Path(shutil.copytree(store.path, tmp_path / "copy.zarr")))
    source, whole = StoredSource(mine), float(mine.read_tile(0, 0, 0).sum())
    before = one_worker.client.run(worker_pid)
    assert list(one_worker.map(sum_while_cut_short, [(source, str(mine.tile_path(0, 0)))])) == [whole]
    assert set(one_worker.client.run(worker_pid).values()).isdisjoint(before.values()), "killed by SIGBUS"


def test_a_task_that_always_kills_ends_the_run_in_one_line(one_worker: Any, tmp_path: Path) -> None:
    one_worker._options = replace(one_worker._options, resubmits=1)
    with pytest.raises(ClusterError, match="killed the workers that ran it, 2 times over"):
        list(one_worker.map(deadly, [(str(tmp_path), 1000, 3)]))
    assert len(list(tmp_path.iterdir())) == 8


def test_workers_killed_at_work_change_nothing(one_worker: Any) -> None:
    held = one_worker.hold(square, 7)
    pid = next(one_worker.map(worker_pid, [()]))
    timer = threading.Timer(0.4, os.kill, (pid, signal.SIGKILL))
    timer.start()
    assert list(one_worker.map(add, ((held, x) for x in range(40)))) == [49 + x for x in range(40)]
    assert next(one_worker.map(worker_pid, [()])) != pid


def test_a_cancelled_wait_is_no_answer(one_worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distributed's loop may cancel whatever waits in it."""
    gathered, said = dask._gathered, []

    async def cancelled_once(client: Client, future: Future) -> object:
        if not said:
            said.append(future.key)
            raise asyncio.CancelledError
        return await gathered(client, future)

    monkeypatch.setattr(dask, "_gathered", cancelled_once)
    assert list(one_worker.map(square, [(3,), (4,)])) == [9, 16]
    assert said


def test_a_result_that_arrives_slowly_is_fetched_once(one_worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over a slow network: its way takes longer than the time between two looks at the cluster."""
    gather, said = Client.gather, []

    async def slowly(client: Client, future: Future) -> object:
        said.append(future.key)
        await asyncio.sleep(0.3)
        return await gather(client, future, asynchronous=True)

    monkeypatch.setattr(Client, "gather", lambda client, future, **_: slowly(client, future))
    monkeypatch.setattr(one_worker, "_options", replace(one_worker._options, attention=0.01))
    assert list(one_worker.map(square, [(3,)])) == [9]
    assert len(said) == 1


def test_a_supervisor_killed_with_its_worker_is_replaced() -> None:
    with open_runtime("local:1") as runtime:
        scheduler = runtime._connection._cluster.scheduler  # type: ignore[attr-defined] # of a local cluster, as this one is
        held = runtime.hold(square, 7)
        assert next(runtime.map(add, [(held, 1)])) == 50
        nanny = next(iter(runtime._connection._cluster.workers.values()))  # type: ignore[attr-defined] # as above
        os.kill(nanny.process.pid, signal.SIGKILL)
        assert next(runtime.map(add, [(held, 2)])) == 51
        deadline = time.monotonic() + 60  # the one that answered may itself be in the middle of being replaced
        while len(scheduler.workers) != 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_cluster_of_ours_that_is_gone_is_built_again() -> None:
    notes: list[str] = []
    with open_runtime("local:1", note=notes.append) as runtime:
        held = runtime.hold(square, 7)
        assert next(runtime.map(add, [(held, 1)])) == 50
        cluster = runtime._connection._cluster  # type: ignore[attr-defined]
        answers = []
        for x, answer in enumerate(runtime.map(add, ((held, x) for x in range(20)))):
            answers.append(answer)
            if x == 3:
                cluster.sync(cluster.scheduler.close)
        assert answers == [49 + x for x in range(20)]
    assert any("gone" in note for note in notes)


def test_a_scheduler_killed_and_started_again_changes_nothing() -> None:
    port, notes = free_port(), []
    address = f"tcp://127.0.0.1:{port}"
    with processes() as start:
        scheduler = start("scheduler", "--host", "127.0.0.1", "--port", port)
        start("worker", address, "--nthreads", "1")

        def restart() -> None:
            scheduler.kill()
            scheduler.wait()
            time.sleep(1)
            start("scheduler", "--host", "127.0.0.1", "--port", port)
            start("worker", address, "--nthreads", "1")

        await_scheduler(port)
        with open_runtime(address, note=notes.append) as runtime:
            held = runtime.hold(square, 7)
            answers = []
            for x, answer in enumerate(runtime.map(add, ((held, x) for x in range(20)))):
                answers.append(answer)
                if x == 3:
                    threading.Thread(target=restart).start()
            assert answers == [49 + x for x in range(20)]
    assert notes


def test_a_scheduler_that_stays_away_ends_the_run_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmkl.runtime.dask.OPTIONS", replace(OPTIONS, poll=0.5, recovery=2.0))
    with open_runtime("local:1") as runtime:
        cluster = runtime._connection._cluster  # type: ignore[attr-defined]
        monkeypatch.setattr("dmkl.runtime.connections.LocalCluster", _refuse)
        cluster.sync(cluster.scheduler.close)
        with pytest.raises(ClusterError, match="the cluster is gone"):
            list(runtime.map(square, [(1,)]))


def _refuse(*_: Any, **__: Any) -> None:
    raise OSError("no more clusters")


def test_a_cluster_without_workers_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmkl.runtime.connections.LIMITS", replace(LIMITS, close=1.0, connect=5.0, patience=1.0))
    port = free_port()
    with processes() as start:
        start("scheduler", "--host", "127.0.0.1", "--port", port)
        worker = start("worker", f"tcp://127.0.0.1:{port}", "--nthreads", "1")
        await_scheduler(port)
        with open_runtime(f"tcp://127.0.0.1:{port}") as runtime:
            worker.terminate()
            worker.wait()
            with pytest.raises(ClusterError, match="no worker for 1 s"):
                list(runtime.map(square, [(1,)]))


def test_the_tasks_own_errors_are_its_own(one_worker: Any) -> None:
    with pytest.raises(TimeoutError, match="mine"):
        list(one_worker.map(_raise, [(TimeoutError("mine"),)]))
    with pytest.raises(OSError, match="mine too"):
        list(one_worker.map(_raise, [(OSError("mine too"),)]))


def _raise(error: Exception) -> None:
    raise error


def test_tls_lets_in_who_has_the_keys_and_nobody_else(tmp_path: Path) -> None:
    ours, others = make_keys(tmp_path / "ours"), make_keys(tmp_path / "others")
    flags = ["--tls-ca-file", str(ours / "ca.pem"), "--tls-cert", str(ours / "cert.pem")]
    flags += ["--tls-key", str(ours / "key.pem")]
    port = free_port()
    address = f"tls://127.0.0.1:{port}"
    with processes() as start:
        start("scheduler", "--host", "127.0.0.1", "--port", port, "--protocol", "tls", *flags)
        start("worker", address, "--nthreads", "1", *flags)
        await_scheduler(port)
        with open_runtime(address, settings={"tls": str(ours)}) as runtime:
            assert list(runtime.map(square, [(3,)])) == [9]
        with (
            pytest.raises(ClusterError, match="no scheduler answers"),
            open_runtime(address, settings={"tls": str(others)}),
        ):
            pass
