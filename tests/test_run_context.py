"""The context of a run: made once, locked, handed to every stage; its stages, deadline and signals."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import save_npz, three_classes

from dmkl.config import Config, parse_config
from dmkl.errors import ConfigError, OutputError, ResourceError
from dmkl.events import Event, Note, RoundDone
from dmkl.run import RunContext, RunDirectory, StageListener, interruptible, open_run, read_experiment, train_run
from dmkl.run.context import Deadline, IgnoreStages, memory_budget
from dmkl.run.directory import KernelRecord, ScoreRecord, TrainRecord
from dmkl.stack import open_stack
from dmkl.store import KernelStore


@pytest.fixture
def config(tmp_path: Path) -> Config:
    save_npz(tmp_path / "data.npz", three_classes(90))
    table = {
        "data": {"path": str(tmp_path / "data.npz")},
        "kernels": [{"kernel": "rbf", "width": ["0.5 median", "1 median"]}],
        "formulation": {"name": "vskl", "C": 10},
        "run": {"kernels": "store", "memory": "8 GB", "workers": 1},
    }
    return parse_config(table)


class Recorder(IgnoreStages):
    """Keeps the stages in order."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def kernels_ready(self, record: KernelRecord) -> None:
        self.stages.append(f"{record['kernels']} kernels")

    def trained(self, record: TrainRecord) -> None:
        self.stages.append(record["formulation"])

    def scored(self, record: ScoreRecord) -> None:
        self.stages.append(f"{record['n']} scored")

    def report_written(self, path: str) -> None:
        self.stages.append(Path(path).name)


def test_a_run_from_its_context(config: Config, tmp_path: Path) -> None:
    events: list[Event] = []
    recorder: StageListener = Recorder()
    directory = RunDirectory(str(tmp_path / "run"))  # text is a path too
    with open_run(config, directory, observer=events.append, listener=recorder) as run:
        assert run.memory.limit == 8 * 10**9
        assert run.runtime.workers == 1
        assert run.store is None
        with pytest.raises(OutputError, match="another process is working on"), open_run(config, directory):
            pass
        result = train_run(run)
        assert isinstance(run.store, KernelStore)
    assert recorder.stages == ["4 kernels", "VSKL q=2 C=10", "27 scored", "report.html"]
    assert result.directory is directory
    assert json.loads(directory.scores.read_text())["train"]["gap"] == result.summary["train"]["gap"]
    logged = [json.loads(line)["event"] for line in directory.events.read_text().splitlines()]
    assert logged == [type(event).__name__ for event in events if isinstance(event, RoundDone | Note)]
    assert "RoundDone" in logged
    with pytest.raises(OutputError, match="holds a finished run"), open_run(config, directory):
        pass


def test_a_store_is_trained_on_as_it_is(config: Config, tmp_path: Path) -> None:
    with open_run(config, RunDirectory(tmp_path / "first")) as run:
        first = train_run(run)
        store = run.store
    with open_run(config, RunDirectory(tmp_path / "second"), store=store) as run:
        second = train_run(run)
        assert run.store is store
    assert second.summary["train"]["objective"] == first.summary["train"]["objective"]
    assert not (tmp_path / "second/kernels.zarr").exists()


def test_what_is_refused_leaves_no_directory_and_no_lock(config: Config, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "a/b")
    with open_run(config, directory):
        assert (directory.path / ".lock").exists()
    assert not (tmp_path / "a").exists()


def test_a_run_of_an_earlier_version_is_continued(config: Config, tmp_path: Path) -> None:
    """A key that did not exist then has its default; another value is another run."""
    directory = RunDirectory(tmp_path / "run")
    assert not directory.claim(config)
    table = json.loads(directory.config.read_text())
    del table["tune"]["metric"]
    directory.config.write_text(json.dumps(table))
    assert directory.check(config)
    directory.config.write_text(json.dumps({**table, "tune": {**table["tune"], "folds": 7}}))
    with pytest.raises(OutputError, match=r"holds an unfinished run with a different \[tune\] section"):
        directory.check(config)


def test_a_deadline_counts_from_its_start() -> None:
    assert Deadline().left == np.inf
    deadline = Deadline(0.2)
    deadline.start()
    first = deadline.left
    time.sleep(0.01)
    assert 0 < deadline.left < first <= 0.2
    deadline.seconds = 1e-9
    time.sleep(0.001)
    assert deadline.left == 0


def test_the_deadline_is_the_configurations(config: Config, tmp_path: Path) -> None:
    from dataclasses import replace

    limited = replace(config, solve=replace(config.solve, max_time="2 m"))
    with open_run(limited, RunDirectory(tmp_path / "run")) as run:
        assert run.deadline.seconds == 120.0
    with open_run(config, RunDirectory(tmp_path / "run")) as run:
        assert run.deadline.seconds == np.inf


def test_the_memory_limit(config: Config) -> None:
    from dataclasses import replace

    def limited(memory: str) -> Config:
        return replace(config, run=replace(config.run, memory=memory))

    assert memory_budget(limited("4 GB"), 10**9).limit == 4 * 10**9
    assert memory_budget(limited(""), 10**9).limit == 10**9
    assert memory_budget(limited("")).limit > 10**8
    with pytest.raises(ResourceError, match="the memory limit '1 kB' is too small: dmkl itself takes"):
        memory_budget(limited("1 kB"))


def test_the_first_sigterm_interrupts_and_later_ones_do_not() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def body() -> None:
        with interruptible():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # ignored while the body cleans up

    with pytest.raises(KeyboardInterrupt):
        body()
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_leave_signals_alone() -> None:
    seen = []

    def work() -> None:
        with interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_exactly_one_source_is_read(tmp_path: Path) -> None:
    assert read_experiment(None, "digits", {"formulation.C": "3"}).config.formulation.params["C"] == 3
    for target, example in ((None, None), ("config.toml", "digits")):
        with pytest.raises(ConfigError, match="exactly one of a configuration file"):
            read_experiment(target, example, {})


def test_the_context_opens_the_stack_of_its_store(config: Config, tmp_path: Path) -> None:
    with open_run(config, RunDirectory(tmp_path / "run")) as run:
        with pytest.raises(AssertionError, match="the kernels are prepared first"):
            run.open_stack()
        train_run(run)
        stack = run.open_stack()
        assert isinstance(run, RunContext)
        assert run.store is not None
        assert stack.memory.limit == run.memory.limit
        assert stack.s == run.store.s
        by_text = open_stack(str(run.store.path), workers=1)
        assert np.array_equal(by_text.combine(np.ones(stack.s)), stack.combine(np.ones(stack.s)))
