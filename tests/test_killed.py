"""Local workers killed in the middle of every kind of task: the model is that of an undisturbed run."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import assert_same_model
from test_crash import write_data

from dmkl._util.machine import Budget
from dmkl._util.units import parse_bytes
from dmkl.config import read_config
from dmkl.run import RunContext, RunDirectory, train_run
from dmkl.runtime import Local, Runtime, open_runtime
from dmkl.store.format import PAGE
from dmkl.store.store import GRAM

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),
]  # distributed complains of what is done to it here

WORK = {
    "building the store": "fill_tile",
    "a pass": "score_runs",
    "filling": "fill_shared_blocks",
    "blocks and their subproblems": "answer_chunk",
}


def trained(folder: Path, out: str, runtime: Runtime) -> None:
    config = read_config(folder / "config.toml", {"run.kernels": "store", "run.tile": "200", "run.memory": "8 GB"})
    budget = Budget(parse_bytes(config.run.memory))
    train_run(RunContext(config, RunDirectory(folder / out), runtime, budget))


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    write_data(folder, 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        trained(folder, "calm", Local(1))
    return folder


class Killer(threading.Thread):
    """Kills the first worker that runs a kind of task. The worker is stopped first so that it cannot finish.

    Or cuts the tiles of a store short, which the worker may have mapped, and lets the worker go on.
    """

    def __init__(self, runtime: Any, kind: str, store: Path | None = None) -> None:
        super().__init__(daemon=True)
        self._store = store
        self._scheduler = runtime._connection._cluster.scheduler
        self._pids = runtime.client.run(os.getpid)
        self._kind = f"dmkl-{kind}"
        self.killed: str | None = None
        self.over = False

    def run(self) -> None:
        while self.killed is None and not self.over:
            for address, pid in self._pids.items():
                if not self._at_work(address):
                    continue
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.2)  # what it has already sent arrives
                self.killed = self._at_work(address)
                if self.killed and self._store:
                    for path in self._store.glob(f"{GRAM}/*/*"):
                        os.truncate(path, PAGE)
                os.kill(pid, signal.SIGKILL if self.killed and not self._store else signal.SIGCONT)
                if self.killed:
                    return
            time.sleep(0.001)

    def _at_work(self, address: str) -> str | None:
        try:
            return next((t.key for t in self._scheduler.workers[address].processing if self._kind in t.key), None)
        except RuntimeError:  # the scheduler changed it meanwhile
            return None


@pytest.mark.parametrize("kind", WORK.values(), ids=WORK)
def test_a_worker_killed_at_work_changes_nothing(calm: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(calm)
    with open_runtime("local:2") as runtime:
        killer = Killer(runtime, kind)
        killer.start()
        trained(calm, kind, runtime)
        killer.over = True
        killer.join()
        assert killer.killed, f"no worker was met at {kind}"
    assert_same_model(calm / "calm", calm / kind)


@pytest.mark.parametrize("kind", ["score_runs", "fill_shared_blocks"])
def test_tiles_cut_short_under_their_maps_change_nothing(
    calm: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(calm)
    out = RunDirectory(calm / f"cut-{kind}")
    with open_runtime("local:2") as runtime:
        killer = Killer(runtime, kind, out.store)
        killer.start()
        trained(calm, out.path.name, runtime)
        killer.over = True
        killer.join()
        assert killer.killed, f"no worker was met at {kind}"
    assert_same_model(calm / "calm", out.path)
    assert "has been computed again" in out.events.read_text()
