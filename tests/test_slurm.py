"""Runs in jobs of a real SLURM on this machine (cluster/testbed/slurm), and failures of jobs.

Not run by default: pytest -m slurm. Wants the packages of `cluster/testbed/slurm install`. Any number of sessions
can run at once: each has a SLURM of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_same_model
from test_crash import write_data

from dmkl.runtime import open_runtime
from dmkl.runtime.jobs.workers import WatchOptions
from dmkl.runtime.tls import make_keys

pytestmark = pytest.mark.slurm

TESTBED = Path(__file__).parents[1] / "cluster/testbed/slurm"
PROFILE = """
interface = "lo"
cores = 1
memory = "900 MB"
walltime = "10 m"
jobs = 2
[coordinator]
memory = "1500 MB"
"""
CLASSES = 60
LIMIT = 400.0  # seconds for whatever is waited for: the machine may be busy with other things
SBATCH = """#!/bin/sh
for script; do :; done
cp "$script" "{folder}/$(date +%s%N).sbatch"
exec {sbatch} "$@"
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """A SLURM of two nodes; the value is a function that runs commands of the testbed."""
    if shutil.which("sbatch") is None:
        pytest.skip("SLURM is not installed; cluster/testbed/slurm install")
    root = tmp_path_factory.mktemp("slurm")
    environment = {**os.environ, "DMKL_SLURM": str(root)}

    def testbed(*arguments: str) -> str:
        command = [sys.executable, str(TESTBED), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(root / "slurm.conf")
    try:
        testbed("start", "2")
        yield testbed
    finally:
        testbed("stop")
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a profile, and the model of the in-process run."""
    folder = tmp_path_factory.mktemp("calm")
    write_data(folder, CLASSES)
    (folder / "cluster").mkdir()
    (folder / "cluster/slurm.toml").write_text(PROFILE)
    dmkl(folder, "train", "config.toml", "-q", "-o", "calm", "-s", "run.kernels=store")
    return folder


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture
def folder(calm: Path, slurm: Callable[..., str]) -> Iterator[Path]:
    """After each test, also one that fails, no process runs and the queue is empty."""
    yield calm
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.communicate()
    STARTED.clear()
    until(emptied)


def emptied() -> bool:
    """Whether the queue is empty; jobs are cancelled on every call, because a coordinator may requeue itself."""
    left = slurm_says("squeue", "-h", "-o", "%A")
    if left:
        slurm_says("scancel", *left, code=None)
    return not left


def dmkl(folder: Path, *arguments: str, code: int = 0, timeout: float = LIMIT) -> str:
    """Run a dmkl command to its end; its output."""
    command = [sys.executable, "-m", "dmkl", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def begin(folder: Path, out: str, *more: str) -> subprocess.Popen[str]:
    arguments = ("train", "config.toml", "-o", out, "--cluster", "slurm", "-s", "run.kernels=store", *more)
    command = [sys.executable, "-m", "dmkl", *arguments]
    STARTED.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return STARTED[-1]


def ended(process: subprocess.Popen[str]) -> str:
    said = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0, said
    return said


def slurm_says(*command: str, code: int | None = 0) -> list[str]:
    """The words of a command's output; it is repeated while slurmctld is too busy to answer."""
    deadline = time.monotonic() + LIMIT
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
        if code is None or done.returncode == code:
            return done.stdout.split()
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.5)


def jobs() -> list[str]:
    return slurm_says("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%A")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def solving(folder: Path, out: str) -> Callable[[], bool]:
    """Whether the run is in the middle: some rounds are finished, and others are not."""
    return lambda: (folder / out / "checkpoint").exists()


def building(folder: Path, out: str) -> Callable[[], bool]:
    return lambda: (folder / out / "kernels.zarr/gram/c").exists()


def assert_same(folder: Path, out: str, *, after: float = 0.0) -> None:
    """The model is that of an undisturbed run, the queue is empty, and rounds were finished after the fault."""
    assert_same_model(folder / "calm", folder / out)
    until(lambda: not jobs())
    events = [json.loads(line) for line in (folder / out / "events.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "RoundDone"]
    assert rounds[-1]["time"] > after, "the fault came after the last round"
    assert len({event["round"] for event in rounds}) == len(rounds), "a finished round was computed again"


def supervisors(folder: Path, out: str) -> list[int]:
    """The supervisors of workers in this run's jobs, without those of other test sessions."""
    return [int(pid) for pid in slurm_says("pgrep", "-f", f"dask_worker.*{folder}/{out}/cluster/scheduler.json")]


def kill_workers(folder: Path, out: str) -> None:
    """Kill the supervisors: their workers go with them, and their jobs end."""
    for pid in supervisors(folder, out):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_jobs_train_the_same_model_by_the_script_that_was_shown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = dmkl(folder, "train", "config.toml", "--cluster", "slurm", "--dry-run", "-o", "run", "-s", "cluster.jobs=1")
    assert not (folder / "run").exists()
    wrapper = tmp_path / "bin/sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(SBATCH.format(folder=tmp_path, sbatch=shutil.which("sbatch")))
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    ended(begin(folder, "run", "-s", "cluster.jobs=1"))
    assert_same(folder, "run")
    (given,) = tmp_path.glob("*.sbatch")
    assert shown == given.read_text() + "\n"
    status = json.loads(dmkl(folder, "status", "run", "--json"))
    assert (status["state"], status["finished"], status["classes"]) == ("finished", CLASSES, CLASSES)


@pytest.mark.parametrize("moment", [building, solving])
def test_a_cancelled_job_changes_nothing(folder: Path, moment: Callable[..., Callable[[], bool]]) -> None:
    out = f"cancelled-{moment.__name__}"
    process = begin(folder, out)
    until(moment(folder, out))
    number = slurm_says("squeue", "-h", "-t", "RUNNING", "-o", "%A")[0]
    slurm_says("scancel", number)
    until(lambda: "CANCELLED" in (folder / out / f"cluster/worker-{number}.log").read_text())
    gone = time.time()
    ended(process)
    assert_same(folder, out, after=gone)


def test_all_jobs_cancelled_are_started_again(folder: Path) -> None:
    process = begin(folder, "all")
    until(solving(folder, "all"))
    slurm_says("scancel", *jobs())
    gone = time.time()
    said = ended(process)
    assert "gone, started again" in said
    assert_same(folder, "all", after=gone)


def test_workers_killed_change_nothing(folder: Path) -> None:
    process = begin(folder, "killed")
    until(solving(folder, "killed"))
    kill_workers(folder, "killed")
    gone = time.time()
    ended(process)
    assert_same(folder, "killed", after=gone)


def test_a_node_that_dies_changes_nothing(folder: Path, slurm: Callable[..., str]) -> None:
    process = begin(folder, "node")
    until(solving(folder, "node"))
    slurm("kill-node", slurm_says("squeue", "-h", "-t", "RUNNING", "-o", "%N")[0])
    gone = time.time()
    try:
        ended(process)
        assert_same(folder, "node", after=gone)
    finally:
        for name in ("n1", "n2"):
            slurm("start-daemon", name)
        until(lambda: len(slurm_says("sinfo", "-h", "-N", "-t", "idle", "-o", "%N")) == 2)


def test_a_coordinator_killed_goes_on_and_clears_up(folder: Path) -> None:
    process = begin(folder, "again")
    until(solving(folder, "again"))
    process.kill()
    process.communicate()
    assert jobs()
    ended(begin(folder, "again"))
    assert_same(folder, "again")


def test_a_coordinator_terminated_takes_its_jobs_along(folder: Path) -> None:
    process = begin(folder, "terminated")
    until(solving(folder, "terminated"))
    process.terminate()
    said = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 130
    assert "run the same command again to continue" in said
    until(lambda: not jobs())
    ended(begin(folder, "terminated"))
    assert_same(folder, "terminated")


def test_slurmctld_down_for_a_while_changes_nothing(folder: Path, slurm: Callable[..., str]) -> None:
    process = begin(folder, "down")
    until(solving(folder, "down"))
    slurm("kill-daemon", "slurmctld")
    kill_workers(folder, "down")
    gone = time.time()
    time.sleep(8)
    slurm("start-daemon", "slurmctld")
    ended(process)
    assert_same(folder, "down", after=gone)


def test_an_encrypted_run(folder: Path, tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")
    ended(begin(folder, "tls", "-s", f"cluster.tls={keys}"))
    assert_same(folder, "tls")


def release_workers(job: str) -> None:
    """Start the two worker jobs of a coordinator's job that are held in the queue."""
    until(lambda: len(jobs()) == 3)
    for worker in set(jobs()) - {job}:
        slurm_says("scontrol", "update", f"JobId={worker}", "StartTime=now")


def test_a_submitted_run_goes_back_into_the_queue_and_on(folder: Path) -> None:
    held = ("-s", "run.kernels=store", "-s", 'cluster.job_extra_directives=["--begin=now+1hour"]')
    job = json.loads(dmkl(folder, "submit", "config.toml", "-o", "sub", "--json", *held))["job"]
    assert json.loads(dmkl(folder, "status", "sub", "--json"))["job"] == job
    assert "in the queue already" in dmkl(folder, "submit", "config.toml", "-o", "sub", code=7)
    release_workers(job)
    until(solving(folder, "sub"))
    slurm_says("scancel", "--signal=USR1", "--batch", job)  # what SLURM does at notice before the walltime
    log = folder / "sub/cluster/coordinator.log"
    until(lambda: "back into the queue" in log.read_text())
    until(lambda: "restart 1" in log.read_text())
    release_workers(job)
    until(lambda: (folder / "sub/scores.json").exists())
    assert_same(folder, "sub")
    assert "finished" in dmkl(folder, "status", "sub")


def test_a_coordinator_at_its_walltime_goes_back_into_the_queue(folder: Path) -> None:
    """Its workers are kept in the queue, so that it still runs when SLURM sends the signal before the walltime."""
    held = ("-s", "run.kernels=store", "-s", 'cluster.job_extra_directives=["--begin=now+1hour"]')
    job = json.loads(dmkl(folder, "submit", "config.toml", "-o", "walltime", "--json", *held))["job"]
    log = folder / "walltime/cluster/coordinator.log"
    until(lambda: len(jobs()) == 3)
    slurm_says("scontrol", "update", f"JobId={job}", "EndTime=now+100seconds")  # less than the notice of 3 m
    until(lambda: "back into the queue" in log.read_text())
    slurm_says("scontrol", "update", f"JobId={job}", "TimeLimit=60")  # else its next turn would be as short
    until(lambda: "restart 1" in log.read_text())
    release_workers(job)
    until(lambda: (folder / "walltime/scores.json").exists())
    assert_same(folder, "walltime")


def test_a_worker_that_hangs_until_its_walltime_changes_nothing(folder: Path) -> None:
    process = begin(folder, "hangs", "-s", "cluster.jobs=1")
    until(solving(folder, "hangs"))
    (number,) = jobs()
    for pid in supervisors(folder, "hangs"):
        for child in slurm_says("pgrep", "-P", str(pid)):
            os.kill(int(child), signal.SIGSTOP)
    slurm_says("scontrol", "update", f"JobId={number}", "EndTime=now+1seconds")
    until(lambda: number not in jobs())
    gone = time.time()
    ended(process)
    assert "DUE TO TIME LIMIT" in (folder / f"hangs/cluster/worker-{number}.log").read_text()
    assert_same(folder, "hangs", after=gone)


def hog(folder: str) -> int:
    """A task that needs more memory than its worker has, the first two times."""
    mark = Path(folder) / str(time.monotonic_ns())
    if len(list(Path(folder).iterdir())) < 2:
        mark.touch()
        filled = [np.ones(10_000_000) for _ in range(40)]
        time.sleep(5)
        return len(filled)
    return 0


def test_a_task_that_outgrows_its_job_is_asked_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.chdir(folder)
    (tmp_path / "marks").mkdir()
    with open_runtime("slurm", settings={"jobs": 1}, folder=tmp_path / "cluster") as runtime:
        assert list(runtime.map(hog, [(str(tmp_path / "marks"),)])) == [0]
    assert len(list((tmp_path / "marks").iterdir())) == 2
    until(lambda: not jobs())


def test_what_sbatch_refuses_is_one_line(folder: Path) -> None:
    command = ("train", "config.toml", "-o", "bad", "--cluster", "slurm", "-s", "cluster.queue=nowhere")
    said = dmkl(folder, *command, code=7)
    assert said.splitlines()[-2].startswith("error: sbatch refused a worker job")
    assert "partition" in said


def test_jobs_that_cannot_start_end_the_run(folder: Path) -> None:
    settings = ("-s", 'cluster.job_script_prologue=["exit 1"]', "-s", "cluster.relaunches=3")
    said = dmkl(folder, "train", "config.toml", "-o", "dead", "--cluster", "slurm", *settings, code=7)
    assert "worker jobs died before they had worked for a minute" in said
    assert str(folder / "dead/cluster") in said.splitlines()[-1]
    until(lambda: not jobs())


def test_time_in_the_queue_is_no_time_to_start(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmkl.runtime.jobs.workers.OPTIONS", WatchOptions(starting=30.0))
    monkeypatch.chdir(folder)
    settings = {"jobs": 1, "job_extra_directives": ["--begin=now+45seconds"]}
    started = time.monotonic()
    with open_runtime("slurm", settings=settings, folder=tmp_path) as runtime:
        assert list(runtime.map(abs, [(-1,)])) == [1]
    assert time.monotonic() - started > 30
    until(lambda: not jobs())


def test_a_queue_that_does_not_move_is_not_waited_for_for_ever(folder: Path) -> None:
    settings = ("-s", 'cluster.job_extra_directives=["--begin=now+1hour"]', "-s", 'cluster.wait="3 s"')
    said = dmkl(folder, "train", "config.toml", "-o", "wait", "--cluster", "slurm", *settings, code=7)
    assert "waiting for SLURM: 2 job(s) queued (BeginTime)" in said
    assert "no worker came up in 3 s" in said
    until(lambda: not jobs())


def slow(x: int) -> int:
    time.sleep(1.0)
    return x


def test_as_many_jobs_as_there_is_work_for(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    soon = WatchOptions(adaptation={"interval": "1s", "wait_count": 3})
    monkeypatch.setattr("dmkl.runtime.jobs.workers.OPTIONS", soon)
    monkeypatch.chdir(folder)
    seen: list[int] = []
    with open_runtime("slurm", settings={"minimum_jobs": 1, "maximum_jobs": 3}, folder=tmp_path) as runtime:
        assert runtime.workers == 3
        assert len(jobs()) == 1
        answers = []
        for x in runtime.map(slow, ((x,) for x in range(150))):
            answers.append(x)
            seen.append(len(jobs()))
            if seen[-1] == 3 and x > 30:
                break
        assert answers == list(range(len(answers)))
        assert max(seen) == 3
        until(lambda: len(jobs()) == 1)  # without work
        slurm_says("scancel", *jobs())
        assert list(runtime.map(slow, [(7,)])) == [7]
        assert len(jobs()) <= 3
    until(lambda: not jobs())


def test_many_workers_are_one_array_and_are_replaced_one_by_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr("dmkl.runtime.jobs.workers.OPTIONS", WatchOptions(array=2))
    monkeypatch.chdir(folder)
    with open_runtime("slurm", settings={"jobs": 2}, folder=tmp_path) as runtime:
        assert list(runtime.map(abs, [(-1,)])) == [1]
        numbers = numbers_in_queue()
        assert sorted(number.partition("_")[2] for number in numbers) == ["0", "1"]
        assert len({number.partition("_")[0] for number in numbers}) == 1
        slurm_says("scancel", numbers[0])
        assert list(runtime.map(slow, ((x,) for x in range(40)))) == list(range(40))
        left = numbers_in_queue()
        assert numbers[1] in left
        assert [number for number in left if "_" not in number]
    until(lambda: not jobs())


def numbers_in_queue() -> list[str]:
    return sorted(slurm_says("squeue", "-h", "-r", "-t", "PENDING,RUNNING", "-o", "%i"))


def test_a_run_whose_jobs_come_and_go_gives_the_same_model(folder: Path) -> None:
    limits = ("-s", "cluster.minimum_jobs=1", "-s", "cluster.maximum_jobs=3")
    process = begin(folder, "adapt", *limits)
    until(solving(folder, "adapt"))
    slurm_says("scancel", *jobs())
    gone = time.time()
    ended(process)
    assert_same(folder, "adapt", after=gone)
