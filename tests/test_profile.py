"""Profiles, job scripts, keys and status: all of batch jobs that can be tested without a scheduler."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import psutil
import pytest

from dmkl.cli.main import main
from dmkl.errors import ClusterError, ConfigError, OutputError
from dmkl.run import RunDirectory, run_status
from dmkl.run.status import seconds_left
from dmkl.runtime import open_runtime
from dmkl.runtime.connections import LIMITS, Absence
from dmkl.runtime.jobs.coordinator import coordinator_script
from dmkl.runtime.jobs.profile import (
    CoordinatorProfile,
    Profile,
    clock_time,
    read_profile,
    seconds_of,
    template,
)
from dmkl.runtime.jobs.slurm import SLURM
from dmkl.runtime.jobs.workers import WorkerJobs, dask_jobqueue, job_name, worker_script
from dmkl.runtime.tls import is_loopback, make_keys, require_private, security


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the profile that the command prints, and an empty home."""
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster/slurm.toml").write_text(template("slurm", "SLURM"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_the_printed_profile_is_valid_and_names_every_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "profile", "slurm"]) == 0
    text = capsys.readouterr().out
    assert text == (folder / "cluster/slurm.toml").read_text()
    assert read_profile("slurm") == Profile(interface="lo")
    without_marks = "\n".join(re.sub(r"^# (?=\w+ = )", "", line) for line in text.splitlines())
    table = tomllib.loads(without_marks)  # every default, written out
    assert set(table) == {field.name for field in dataclasses.fields(Profile)}
    assert set(table["coordinator"]) == {field.name for field in dataclasses.fields(CoordinatorProfile)}
    (folder / "all.toml").write_text(without_marks)
    assert read_profile("slurm:all.toml") == Profile(interface="lo")
    assert main(["cluster", "profile", "slrm"]) == 2
    assert "did you mean 'slurm'? (known: " in capsys.readouterr().err


def test_without_a_profile_the_command_that_makes_one_is_named(folder: Path) -> None:
    (folder / "cluster/slurm.toml").unlink()
    with pytest.raises(
        ConfigError, match=r"make one: mkdir -p cluster; dmkl cluster profile slurm > cluster/slurm\.toml"
    ):
        read_profile("slurm")


def test_a_profile_is_found_by_name_path_and_in_the_home(folder: Path) -> None:
    (folder / "cluster/big.toml").write_text("cores = 8\n")
    (folder / "other.toml").write_text("cores = 3\n")
    assert read_profile("slurm:big").cores == 8
    assert read_profile("slurm:other.toml").cores == 3
    home = folder / "home/.config/dmkl"
    home.mkdir(parents=True)
    (home / "far.toml").write_text("cores = 5\n")
    assert read_profile("slurm:far").cores == 5


def test_single_values_are_overridden(folder: Path) -> None:
    profile = read_profile("slurm", {"walltime": "8 h", "coordinator": {"memory": "1 GB"}})
    assert (profile.walltime, profile.memory) == ("8 h", "4 GB")
    assert (profile.submission.memory, profile.submission.walltime) == ("1 GB", "8 h")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"waltime": "1 h"}, "unknown key 'waltime'.*did you mean 'walltime'"),
    ({"cores": "two"}, "cores should be a whole number"),
    ({"cores": 0}, "cores and jobs of .* should be at least 1"),
    ({"memory": "lots"}, "not an amount of memory"),
    ({"walltime": "soon"}, "not a time"),
    ({"minimum_jobs": 3, "maximum_jobs": 2}, "at least minimum_jobs"),
    ({"coordinator": {"memery": "1 GB"}}, "unknown key 'memery' in .coordinator.*did you mean 'memory'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_a_profile_cannot_say_is_refused(folder: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_profile("slurm", change)


def test_a_profile_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no cluster profile cluster/slrm\.toml or .*did you mean 'slurm'"):
        read_profile("slurm:slrm")
    with pytest.raises(ConfigError, match=r"no cluster profile none\.toml"):
        read_profile("slurm:none.toml")


def test_patience_starts_again_when_a_queued_job_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("dmkl.runtime.connections.time.monotonic", lambda: clock[0])
    absence = Absence()
    for now, workers, patience, tolerated in [
        (0, 0, 100, True),
        (99, 0, 100, True),
        (99, 0, 10, True),  # runs now
        (108, 0, 10, True),
        (108.5, 1, 10, True),
        (117, 0, 10, True),  # lost again
        (126, 0, 10, True),
        (128, 0, 10, False),
    ]:
        clock[0] = now
        assert absence.tolerated(workers, patience) == tolerated, now


def test_times() -> None:
    assert seconds_of("1-12:00:00") == 36 * 3600
    assert seconds_of("00:30:05") == 1805
    assert clock_time("36 h") == "36:00:00"
    assert clock_time("1-00:00:10") == "24:00:10"


@pytest.mark.parametrize("walltime", ["4 m", "1 h", "2-00:00:00"])
def test_workers_leave_before_their_walltime(walltime: str) -> None:
    lifetime = Profile(walltime=walltime).lifetime
    assert lifetime is not None
    assert lifetime[0] + lifetime[1] <= seconds_of(walltime) - 30
    assert lifetime[1] >= 20
    assert lifetime[0] - lifetime[1] > 0
    assert Profile(walltime="2 m").lifetime is None


def test_a_workers_limit_is_below_its_jobs(folder: Path) -> None:
    assert Profile(memory="4 GiB").worker_bytes == 4 * 2**30 - 2**28
    assert Profile(memory="400 MB").worker_bytes == 300_000_000


def test_the_script_says_what_the_profile_says(folder: Path) -> None:
    profile = read_profile(
        "slurm",
        {
            "queue": "gpu",
            "account": "me",
            "cores": 4,
            "job_extra_directives": ["--constraint=avx2"],
            "job_script_prologue": ["module load python"],
            "python": "/opt/python",
            "local_directory": "/scratch",
        },
    )
    before = sorted(folder.rglob("*"))
    script = worker_script(SLURM, profile, folder / "a run/cluster")
    assert script.splitlines()[0] == "#!/usr/bin/env bash"
    for line in ("-p gpu", "-A me", "--cpus-per-task=4", "--mem=3815M", "-t 01:00:00", "--constraint=avx2"):
        assert f"#SBATCH {line}\n" in script
    assert f"#SBATCH -o '{folder}/a run/cluster/worker-%j.log'" in script
    assert "\nmodule load python\n/opt/python -m distributed.cli.dask_worker --scheduler-file" in script
    for words in ("--nthreads 4", "--lifetime 3210s", "--interface lo", "--local-directory /scratch", "--name dmkl-0"):
        assert words in script
    assert "--nworkers" not in script
    assert sorted(folder.rglob("*")) == before


def test_jobs_of_one_run_have_one_name(folder: Path) -> None:
    assert job_name(Path("run/cluster")) == job_name(folder / "run/cluster")
    assert job_name(Path("run/cluster")) != job_name(Path("run2/cluster"))


def test_dry_run_prints_the_script_and_does_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--example", "digits", "--dry-run", "-o", "run"]
    before = sorted(folder.rglob("*"))
    assert main([*command, "--cluster", "slurm", "-s", "cluster.walltime='03:00:00'", "-s", "cluster.queue=long"]) == 0
    shown = capsys.readouterr().out
    assert (
        shown
        == worker_script(SLURM, read_profile("slurm", {"walltime": "3 h", "queue": "long"}), folder / "run/cluster")
        + "\n"
    )
    assert "#SBATCH -p long" in shown
    assert main(command) == 2
    assert "add --cluster slurm" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_importing_dask_jobqueue_leaves_ctrl_c_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    dask_jobqueue()
    assert signal.getsignal(signal.SIGINT) is before


def test_without_slurm_it_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    for command in ("train", "submit"):
        assert main([command, "--example", "digits", "-o", "run", "--cluster", "slurm"]) == 7
        assert "there is no sbatch on this machine" in capsys.readouterr().err


def test_a_public_scheduler_needs_tls_or_a_word(folder: Path) -> None:
    for host in ("", "eth0", "192.168.1.5"):
        with pytest.raises(ClusterError, match=r"dmkl cluster keys.*cluster\.insecure=true"):
            require_private(host, tls=False, insecure=False)
        require_private(host, tls="keys", insecure=False)
        require_private(host, tls=False, insecure=True)
    require_private("lo", tls=False, insecure=False)
    with (
        pytest.raises(ClusterError, match="would run anybody's code"),
        open_runtime("slurm", settings={"interface": ""}),
    ):
        pass


def test_what_is_loopback() -> None:
    assert all(is_loopback(host) for host in ("lo", "localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"))
    assert not any(is_loopback(host) for host in ("", "0.0.0.0", "10.0.0.1", "no.such.host.invalid"))


def test_keys_are_private_and_never_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = os.umask(0)
    try:
        assert main(["cluster", "keys", "-o", "keys"]) == 0
    finally:
        os.umask(before)
    keys = folder / "keys"
    assert {path.name for path in keys.iterdir()} == {"ca.pem", "cert.pem", "key.pem"}
    assert keys.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in keys.iterdir())
    checked = ["openssl", "verify", "-CAfile", str(keys / "ca.pem"), str(keys / "cert.pem")]
    assert subprocess.run(checked, capture_output=True, check=False).returncode == 0
    assert main(["cluster", "keys", "-o", "keys"]) == 8
    assert "holds keys already" in capsys.readouterr().err
    assert security(str(keys)).require_encryption
    with pytest.raises(ClusterError, match="make them with: dmkl cluster keys"):
        security(True)
    (keys / "key.pem").chmod(0o644)
    with pytest.raises(ClusterError, match="other users can read"):
        security(str(keys))


def test_tls_is_in_the_script(folder: Path) -> None:
    keys = make_keys(folder / "keys")
    script = worker_script(SLURM, read_profile("slurm", {"tls": "keys", "interface": "eth7"}), folder)
    for words in (
        "--protocol tls://",
        f"--tls-ca-file {keys}/ca.pem",
        f"--tls-cert {keys}/cert.pem",
        "--interface eth7",
    ):
        assert words in script


def test_plain_connections_beyond_this_machine_are_refused_unless_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dmkl.runtime.connections.LIMITS", dataclasses.replace(LIMITS, connect=0.2))
    command = ["train", "--example", "digits", "-o", "run", "--cluster", "tcp://192.0.2.1:9"]
    assert main(command) == 7
    said = capsys.readouterr().err
    assert said.startswith("error: a scheduler on 192.0.2.1 without TLS would run anybody's code\nhint: make keys with")
    assert "-s cluster.insecure=true" in said
    assert main([*command, "-s", "cluster.insecure=true"]) == 7
    assert "no scheduler answers at tcp://192.0.2.1:9" in capsys.readouterr().err
    assert not (folder / "run").exists()
    for settings, message in [
        ({"walltime": "1 h"}, "unknown key 'walltime'"),
        ({"insecure": "false"}, "insecure should be true or false"),
    ]:
        with pytest.raises(ConfigError, match=message), open_runtime("tcp://192.0.2.1:9", settings=settings):
            pass


@pytest.mark.long
def test_nothing_of_ours_listens_beyond_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers, workers, their supervisors and all dashboards listen on loopback only, according to the system."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = ["bash", str(Path(__file__).parents[1] / "cluster/by-hand.sh"), "1", port]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "Starting established connection" in line:  # the worker is there
                break
        assert listening(process.pid) == {"127.0.0.1"}
    finally:
        process.terminate()
        process.communicate(timeout=30)
    with open_runtime("local:1"):
        assert listening(os.getpid()) == {"127.0.0.1"}


def test_a_scheduler_of_slurm_jobs_listens_where_it_was_told_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sbatch", "squeue", "scancel"):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\necho Submitted batch job 7\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    jobs = WorkerJobs(SLURM, read_profile("slurm", {"jobs": 1}), folder / "run/cluster")
    (folder / "run/cluster").mkdir(parents=True)
    try:
        jobs._start()
        assert listening(os.getpid()) == {"127.0.0.1"}
    finally:
        jobs.close()
    script = worker_script(SLURM, read_profile("slurm"), folder / "run/cluster")
    assert "--interface lo" in script
    assert "--dashboard-address 127.0.0.1:0" in script


def listening(pid: int) -> set[str]:
    """Addresses at which a process and its children take connections."""
    process = psutil.Process(pid)
    found: set[str] = set()
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # a command that has ended
            found |= {c.laddr.ip for c in one.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    return found


def test_the_coordinators_script(folder: Path) -> None:
    profile = read_profile("slurm", {"walltime": "2 h", "coordinator": {"queue": "long", "requeues": 3}})
    command = ["python", "-m", "dmkl", "train", "it's.toml"]
    script = coordinator_script(SLURM, profile, Path("run/cluster"), "a b", command)
    for line in ("-J dmkl-a_b", "--open-mode=append", "--requeue", "--signal=B:USR1@180", "-p long", "-t 02:00:00"):
        assert f"#SBATCH {line}\n" in script
    assert """python -m dmkl train 'it'"'"'s.toml' &""" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def coordinate(folder: Path, command: str, *, number: int | None = None, restart: int = 0) -> tuple[int, str]:
    """Run a coordinator's script as SLURM would, and signal it."""
    requeue = folder / "bin/scontrol"
    requeue.parent.mkdir(exist_ok=True)
    requeue.write_text("#!/bin/sh\necho requeued $2\nkill -TERM $PPID\nsleep 0.2\nkill -KILL $PPID\n")
    requeue.chmod(0o755)
    profile = Profile(interface="lo", coordinator=CoordinatorProfile(requeues=2))
    script = coordinator_script(SLURM, profile, folder, "x", ["bash", "-c", command])
    environment = {**os.environ, "PATH": f"{requeue.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    (folder / "turns").write_text(f"{restart}\n")
    process = subprocess.Popen(["bash", "-c", script], env=environment)
    if number is not None:
        deadline = time.monotonic() + 10
        while not (folder / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
    process.wait(timeout=20)
    said = (folder / "coordinator.log").read_text()
    for name in ("begun", "coordinator.log"):
        (folder / name).unlink(missing_ok=True)
    return process.returncode, said


WAITS = "trap 'echo stopped; exit 130' TERM; touch begun; for i in $(seq 100); do sleep 0.05; done"


def test_the_coordinators_script_requeues_only_what_was_cut_short(folder: Path) -> None:
    assert coordinate(folder, "exit 3")[0] == 3
    code, said = coordinate(folder, WAITS, number=signal.SIGTERM)
    assert code == 130
    assert "stopped" in said
    assert "requeued" not in said
    code, said = coordinate(folder, WAITS, number=signal.SIGUSR1)
    assert "stopped" in said
    assert "requeued 7" in said
    code, said = coordinate(folder, WAITS, number=signal.SIGUSR1, restart=2)
    assert code == 3
    assert "stopped after 2 turns" in said
    done = "trap 'echo done; exit 0' TERM; touch begun; for i in $(seq 100); do sleep 0.05; done"
    code, said = coordinate(folder, done, number=signal.SIGUSR1)  # it was finished just then
    assert code == 0
    assert "requeued" not in said


def test_submit_prints_or_refuses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["submit", "--example", "digits", "-o", "run", "--dry-run", "-s", "cluster.queue=long", "--tol", "1e-4"])
        == 0
    )
    script = capsys.readouterr().out
    assert "#SBATCH -p long\n" in script
    assert f"-m dmkl train --example digits -o {folder}/run -s cluster.queue=long" in script
    assert """-s solve.tol=0.0001 -s 'run.cluster="slurm"'""" in script
    assert main(["submit", "--example", "digits", "--cluster", "local:2"]) == 2
    assert "needs a batch scheduler, not 'local:2'" in capsys.readouterr().err
    assert not (folder / "run").exists()


def round_done(number: int, seconds: float, finished: int, gap: float | None) -> dict[str, Any]:
    facts = {"round": number, "passes": number, "svm_calls": 9, "finished": finished, "classes": 10, "kernels": 3}
    return {"time": time.time(), "event": "RoundDone", **facts, "gap": gap, "seconds": seconds}


def test_the_time_left() -> None:
    assert seconds_left([], 1e-3) is None
    assert seconds_left([round_done(1, 10, 5, 0.1)], 1e-3) == 10
    assert seconds_left([round_done(1, 10, 2, None), round_done(2, 20, 6, None)], 1e-3) == 10
    falling = [round_done(1, 10, 0, 1e-1), round_done(2, 20, 0, 1e-2)]
    assert seconds_left(falling, 1e-4) == pytest.approx(20)
    assert seconds_left([round_done(1, 10, 0, 0.1), round_done(2, 20, 0, 0.1)], 1e-3) is None
    assert seconds_left([round_done(1, 10, 0, None)], 1e-3) is None


def test_status_is_read_from_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(folder / "run")
    with pytest.raises(OutputError, match="not a run directory"):
        run_status(run)
    run.cluster.mkdir(parents=True)
    (run.cluster / "job.json").write_text(json.dumps({"job": "12", "time": time.time()}))
    assert main(["status", "run"]) == 0
    assert "queued   job 12" in capsys.readouterr().out
    jobs = {"time": time.time(), "workers": 1, "jobs": {"RUNNING": 1, "PENDING": 2}, "reasons": ["Resources"]}
    (run.cluster / "state.json").write_text(json.dumps({**jobs, "relaunched": 0}))
    (run.path / "config.json").write_text(json.dumps({"solve": {"tol": 1e-4}}))
    lines = [round_done(1, 900, 9, 0.5), round_done(2, 10, 2, None), round_done(3, 20, 6, 0.25)]
    run.events.write_text("\n".join(json.dumps(line) for line in lines) + '\n{"event": "Round')
    assert main(["status", "run"]) == 0
    shown = capsys.readouterr().out
    assert "running   job 12" in shown
    assert "1 worker   2 pending, 1 running   because of Resources" in shown
    assert "round 3   3 passes   6 of 10 classes proved   worst gap 2.5e-1 of 0.0001   about 10 s left" in shown
    assert main(["status", "run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["state"], facts["eta"], facts["queue"]) == ("running", 10, {"RUNNING": 1, "PENDING": 2})
    run.scores.write_text("{}")
    assert main(["status", "run"]) == 0
    assert "finished" in capsys.readouterr().out


def test_a_folder_with_jobs_only_is_a_new_run(folder: Path) -> None:
    from dmkl.run import read_experiment

    config = read_experiment(None, "digits", {}).config
    run = RunDirectory(folder / "run")
    run.cluster.mkdir(parents=True)
    assert not run.check(config)
    (run.path / "thesis.tex").touch()
    with pytest.raises(OutputError):
        run.check(config)
