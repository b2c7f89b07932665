"""Requirements on every batch scheduler in the table, and a test scheduler that is made of shell scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from distributed import Status

import dmkl
from dmkl.cli.main import main
from dmkl.errors import ClusterError, ConfigError
from dmkl.runtime import open_runtime
from dmkl.runtime.jobs import PENDING, SCHEDULERS, QueuedJob, Scheduler
from dmkl.runtime.jobs.coordinator import coordinator_script
from dmkl.runtime.jobs.profile import CoordinatorProfile, Profile, clock_time, read_profile, template
from dmkl.runtime.jobs.slurm import SLURM
from dmkl.runtime.jobs.workers import WorkerJobs, job_name, worker_script


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the profile of every scheduler, and an empty home."""
    (tmp_path / "cluster").mkdir()
    for name, scheduler in SCHEDULERS.items():
        (tmp_path / f"cluster/{name}.toml").write_text(template(name, scheduler.title))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_worker_job_says_what_the_profile_says(folder: Path, name: str) -> None:
    scheduler = SCHEDULERS[name]
    asked = {"queue": "long", "account": "ours", "cores": 3, "memory": "2 GiB", "walltime": "90 m"}
    profile = read_profile(name, {**asked, "job_script_prologue": ["module load python"]})
    script = worker_script(scheduler, profile, folder / "run")
    assert script.startswith("#!")
    for word in (scheduler.directive, job_name(folder / "run"), "long", "ours", "module load python"):
        assert word in script
    for word in (f"--scheduler-file {folder}/run/scheduler.json", "--nthreads 3", "--name dmkl-0"):
        assert word in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert not (folder / "run").exists()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_coordinators_job_says_what_the_profile_says(folder: Path, name: str) -> None:
    scheduler = SCHEDULERS[name]
    profile = read_profile(name, {"queue": "long", "account": "ours", "coordinator": {"walltime": "90 m", "cores": 3}})
    script = coordinator_script(scheduler, profile, folder / "run", "a b", ["dmkl", "train", "it's.toml"])
    header = [line for line in script.splitlines() if line.startswith(scheduler.directive)]
    for word in ("dmkl-a_b", f"{folder}/run/coordinator.log", "long", "ours", "3"):
        assert any(word in line for line in header), word
    assert f'{" ".join(scheduler.requeue)} "{scheduler.job_number}"' in script
    assert """dmkl train 'it'"'"'s.toml' &""" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize("name", SCHEDULERS)
def test_an_empty_queue_is_read(name: str) -> None:
    assert SCHEDULERS[name].read_queue("") == {}
    assert len({*SCHEDULERS[name].programs}) == 3


class Torque(Scheduler):
    """A scheduler that dmkl does not know, with the commands of PBS."""

    title = "Torque"
    cluster_class = "PBSCluster"
    directive = "#PBS"
    submit, cancel, requeue = ("qsub",), ("qdel",), ("qrerun",)
    queue, show_queue = ("qstat", "-u", "me"), "qstat"
    job_number, restarts = "$PBS_JOBID", "${PBS_RESTARTS:-0}"
    variables, kept_variables = "PBS_", ("PBS_SERVER",)
    transient = ("Cannot connect",)

    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        states = {"Q": PENDING, "R": "RUNNING"}
        lines = (line.split() for line in output.splitlines())
        return {number: QueuedJob(name, states[state], "None") for number, name, state in lines}

    def worker_options(self, profile: Profile, logs: Path) -> dict[str, object]:
        return {
            "account": profile.account or None,
            "walltime": clock_time(profile.walltime),
            "job_extra_directives": [f"-j oe -o {logs}"],
        }

    def coordinator_directives(self, own: CoordinatorProfile, name: str, log: Path, notice: float) -> list[str]:
        return [f"-N {name}", f"-o {log}", f"-l walltime={clock_time(own.walltime)}", f"-l ncpus={own.cores}"]


@pytest.fixture
def torque(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, on a machine with the commands of that scheduler: they keep the queue in a file."""
    programs = {
        "qsub": """env > environment; cp "$1" submitted.sh; echo "17 dmkl-digits Q" >> queue; echo 17.head""",
        "qstat": "cat queue 2>/dev/null || true",
        "qdel": 'for job; do echo "$job" >> cancelled; done; rm -f queue',
    }
    (folder / "bin").mkdir()
    for name, body in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PBS_JOBID", "3")
    monkeypatch.setenv("PBS_SERVER", "head")
    monkeypatch.setattr(SCHEDULERS, "_entries", dict(SCHEDULERS._entries))
    SCHEDULERS.register("torque", Torque())
    (folder / "cluster/torque.toml").write_text(template("torque", "Torque"))
    return folder


def test_another_scheduler_is_one_class_and_one_line(torque: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = ["--example", "digits", "-o", "run", "--cluster", "torque", "-s", "cluster.queue=long"]
    assert main(["train", *source, "--dry-run"]) == 0
    script = capsys.readouterr().out
    name = job_name(torque / "run/cluster")
    for line in (f"-N {name}", "-q long", "-l walltime=01:00:00", f"-j oe -o {torque}/run/cluster"):
        assert f"#PBS {line}\n" in script
    assert f"--scheduler-file {torque}/run/cluster/scheduler.json --name dmkl-0" in script
    assert "SBATCH" not in script
    assert main(["submit", *source, "--dry-run"]) == 0
    script = capsys.readouterr().out
    assert "#PBS -N dmkl-digits\n" in script
    assert 'qrerun "$PBS_JOBID"' in script
    assert not re.search("SBATCH|SLURM|scontrol", script)
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert not (torque / "run").exists()
    assert main(["cluster", "profile", "torque"]) == 0
    assert "dmkl train CONFIG --cluster torque" in capsys.readouterr().out


def test_another_scheduler_submits_lists_and_cancels(torque: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["submit", "--example", "digits", "-o", "run", "--cluster", "torque"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "17"
    assert (torque / "submitted.sh").read_text() == (torque / "run/cluster/coordinator.sh").read_text()
    environment = (torque / "environment").read_text()
    assert "PBS_SERVER=head" in environment
    assert "PBS_JOBID" not in environment
    assert main(command) == 7
    assert "in the queue already, as job 17\nhint: qdel 17 would end it" in capsys.readouterr().err
    scheduler = SCHEDULERS["torque"]
    assert scheduler.jobs() == {"17": ("dmkl-digits", PENDING, "None")}
    assert scheduler.jobs("other") == {}
    scheduler.cancel_jobs("dmkl-digits")
    assert (torque / "cancelled").read_text() == "17\n"
    assert main(["doctor"]) in (0, 1)
    assert "torque: qsub, qstat, qdel found" in capsys.readouterr().out


def test_another_schedulers_workers_are_submitted_by_its_commands(torque: Path) -> None:
    jobs = WorkerJobs(SCHEDULERS["torque"], read_profile("torque", {"jobs": 1}), torque / "run/cluster")
    (torque / "run/cluster").mkdir(parents=True)
    try:
        jobs._start()
        deadline = time.monotonic() + 20
        while not (torque / "queue").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        expected = worker_script(SCHEDULERS["torque"], read_profile("torque"), torque / "run/cluster")
        assert (torque / "submitted.sh").read_text() == expected
        assert "PBS_JOBID" not in (torque / "environment").read_text()
    finally:
        jobs.close()
    assert "17" in (torque / "cancelled").read_text()


def test_a_cluster_that_is_none_is_refused_with_the_known_schedulers(torque: Path) -> None:
    with pytest.raises(ConfigError, match=r"'slrm' is not a cluster; use none, .*slurm\[.*torque\["):
        open_runtime("slrm").__enter__()
    with pytest.raises(ConfigError, match=r"unknown batch scheduler 'slrm'; did you mean 'slurm'.*torque"):
        SCHEDULERS["slrm"]


def test_scheduler_output_that_is_not_understood_is_refused(torque: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (torque / "bin/qsub").write_text("#!/bin/sh\necho no such luck\n")
    assert main(["submit", "--example", "digits", "-o", "run", "--cluster", "torque"]) == 7
    assert "qsub refused the job: qsub printed no job number: 'no such luck'" in capsys.readouterr().err


def test_the_queue_of_slurm_is_read() -> None:
    output = "12|PENDING|Resources|dmkl-1|a\n13|RUNNING|None|x\nnot a job\n"
    assert SLURM.read_queue(output) == {
        "12": QueuedJob("dmkl-1|a", PENDING, "Resources"),
        "13": QueuedJob("x", "RUNNING", "None"),
    }


def test_no_other_module_knows_a_scheduler_by_its_commands() -> None:
    package = Path(dmkl.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\b(sbatch|squeue|scancel|scontrol|SBATCH|SLURM_)", path.read_text())
    }
    assert found == {"runtime/jobs/slurm.py"}


@pytest.mark.parametrize(("message", "passes"), [("Cannot connect to head", True), ("no such queue", False)])
def test_a_submission_that_fails_is_reported_and_its_cluster_closes(torque: Path, message: str, passes: bool) -> None:
    (torque / "bin/qsub").write_text(f"#!/bin/sh\necho {message} >&2\nexit 1\n")
    notes: list[str] = []
    profile = read_profile("torque", {"jobs": 1})
    jobs = WorkerJobs(SCHEDULERS["torque"], profile, torque / "run/cluster", notes.append)
    (torque / "run/cluster").mkdir(parents=True)
    jobs._start()
    try:
        deadline = time.monotonic() + 20
        while not jobs._failures:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if passes:
            assert jobs._watch([]) == 0
            assert notes == [f"1 worker job(s) gone, started again ({message})"]
        else:
            with pytest.raises(ClusterError, match=f"qsub refused a worker job: {message}"):
                jobs._watch([])
        jobs._cluster.close(timeout=20)  # dask-jobqueue asserts that no entry is left open
        assert jobs._cluster.status == Status.closed
    finally:
        jobs.close()
