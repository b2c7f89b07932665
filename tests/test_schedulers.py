"""Requirements on every batch scheduler in the table, by the syntax of its documentation, and with commands that
stand in for its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed import Status

import dmkl
from dmkl.cli.main import main
from dmkl.errors import ClusterError, ConfigError
from dmkl.runtime import open_runtime
from dmkl.runtime.jobs import PENDING, RUNNING, SCHEDULERS, QueuedJob, default_scheduler
from dmkl.runtime.jobs.coordinator import TIMER, coordinator_script
from dmkl.runtime.jobs.profile import Profile, read_profile, template
from dmkl.runtime.jobs.workers import OPTIONS, WorkerJobs, job_name, worker_script

NO_QUEUES = NO_COORDINATOR = NO_SHELL_SCRIPT = {"htcondor"}
COORDINATED = [name for name in SCHEDULERS if name not in NO_COORDINATOR]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the profile of every scheduler, and an empty home."""
    (tmp_path / "cluster").mkdir()
    for name, scheduler in SCHEDULERS.items():
        (tmp_path / f"cluster/{name}.toml").write_text(template(name, scheduler.title, scheduler.notes))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def is_shell(script: str) -> bool:
    return subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


# Requirements on all, also on those that a walk adds


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_worker_job_says_what_the_profile_says(folder: Path, name: str) -> None:
    scheduler = SCHEDULERS[name]
    asked: dict[str, object] = {"account": "ours", "cores": 3, "memory": "2 GiB", "walltime": "90 m"}
    asked |= {} if name in NO_QUEUES else {"queue": "long"}
    profile = read_profile(name, {**asked, "job_script_prologue": ["module load python"]})
    script = worker_script(scheduler, profile, folder / "run")
    assert script.startswith("#!")
    for word in (scheduler.directive, job_name(folder / "run"), "ours", "module load python", profile.queue):
        assert word in script
    for word in (f"--scheduler-file {folder}/run/scheduler.json", "--nthreads 3", "--name dmkl-0"):
        assert word in script
    assert name in NO_SHELL_SCRIPT or is_shell(script)
    assert not (folder / "run").exists()


@pytest.mark.parametrize("name", COORDINATED)
def test_a_coordinators_job_says_what_the_profile_says(folder: Path, name: str) -> None:
    scheduler = SCHEDULERS[name]
    profile = read_profile(name, {"queue": "long", "account": "ours", "coordinator": {"walltime": "90 m", "cores": 3}})
    script = coordinator_script(scheduler, profile, folder / "run", "a b", ["dmkl", "train", "it's.toml"])
    header = [line for line in script.splitlines() if line.startswith(scheduler.directive)]
    for word in ("dmkl-a_b", f"{folder}/run/coordinator.", "long", "ours", "3", "30"):
        assert any(word in line for line in header), word
    assert f"job {scheduler.job_number} on" in script
    again = f"{shlex.join(scheduler.submit)} {'<' if scheduler.reads_stdin else ''}{folder}/run/coordinator.sh"
    assert f"  if {scheduler.requeue or again}; then {'sleep 60; ' if scheduler.requeue else ''}exit; fi\n" in script
    assert scheduler.sends_notice == ("sleep 5220;" not in script)  # 90 minutes but for the 3 of the notice
    assert """dmkl train 'it'"'"'s.toml' &""" in script
    assert is_shell(script)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_an_empty_queue_is_read(name: str) -> None:
    assert SCHEDULERS[name].read_queue("") == {}
    assert len({*SCHEDULERS[name].programs}) == 3


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_profile_is_printed_for_it(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "profile", name]) == 0
    text = capsys.readouterr().out
    assert f"dmkl train CONFIG --cluster {name}\n" in text
    assert all(f"# {note}\n" in text for note in SCHEDULERS[name].notes)
    assert max(map(len, text.splitlines())) <= 125
    (folder / "printed.toml").write_text(text)
    assert read_profile(f"{name}:printed.toml") == Profile(interface="lo")


@pytest.mark.parametrize("name", SCHEDULERS)
def test_directives_that_a_site_refuses_are_left_out(folder: Path, name: str) -> None:
    scheduler, run = SCHEDULERS[name], folder / "run"

    def logs(skipped: list[str]) -> list[bool]:
        """Whether the scripts have directives that name the log."""
        profile = read_profile(name, {"job_directives_skip": skipped})
        scripts = [worker_script(scheduler, profile, run)]
        if name not in NO_COORDINATOR:
            scripts.append(coordinator_script(scheduler, profile, run, "x", ["dmkl"]))
        named = re.compile(rf"^(#\S+ -|Output = |Error = |Log = ).*{re.escape(str(run))}", re.MULTILINE)
        return [bool(named.search(script)) for script in scripts]

    assert all(logs([]))
    assert not any(logs([str(run)]))


# What the documentation of each says

NAME, TIME = r"[A-Za-z][\w.-]{0,200}", r"\d+:[0-5]\d:[0-5]\d"
PATH = r"(/[\w./%$-]+|'/[\w ./%$-]+'(/worker-\$JOB_ID\.log)?)"
PBS_SYNTAX = (
    f"-N {NAME}",
    "-q long",
    "-A ours",
    f"-l walltime={TIME}",
    "-j oe",
    f"-o {PATH}",
    "-S /bin/bash",
    "-r y",
)
SYNTAX = {  # options that sbatch(1), msub, qsub(1B), qsub(1), bsub and oarsub(1) have, with the values that they take
    "slurm": (
        f"-J {NAME}",
        f"-o {PATH}",
        "--open-mode=append",
        "--requeue",
        r"--signal=B:USR1@\d+",
        "-p long",
        "-A ours",
        "-n 1",
        r"--cpus-per-task=\d+",
        r"--mem=\d+M",
        f"-t {TIME}",
        r"--array=0-\d+",
    ),
    "moab": (*PBS_SYNTAX, r"-l nodes=1:ppn=\d+,mem=\d+mb"),
    "pbs": (*PBS_SYNTAX, r"-l select=1:ncpus=\d+:mem=\d+mb"),
    "sge": (
        f"-N {NAME}",
        "-q long",
        "-P ours",
        r"-l mem_free=\d+M",
        f"-l h_rt={TIME}",
        "-cwd",
        "-j y",
        f"-o {PATH}",
        "-S /bin/bash",
        "-r y",
        r"-pe smp \d+",
    ),
    "lsf": (
        f"-J {NAME}",
        f"-o {PATH}",
        "-r",
        "-q long",
        '-P "ours"',
        r"-n \d+",
        r'-R "span\[hosts=1\]"',
        r"-M \d+MB",
        r"-W \d+:[0-5]\d",
    ),
    "oar": (
        f"-n {NAME}",
        rf"-[OE] ({PATH}|/[\w ./-]+)",
        "-q long",
        "--project ours",
        rf"-l /nodes=1/core=\d+,walltime={TIME}",
    ),
}
PROFILES: list[dict[str, object]] = [
    {},
    {"queue": "long", "account": "ours", "cores": 3, "memory": "2 GiB", "walltime": "90 m"},
    {"cores": 64, "memory": "1.5 TB", "walltime": "2-00:00:00", "jobs": 100},
    {"memory": "900 MB", "walltime": "100 s", "minimum_jobs": 1, "maximum_jobs": 30},
]


@pytest.mark.parametrize("name", SYNTAX)
@pytest.mark.parametrize("asked", PROFILES)
def test_every_directive_is_one_that_the_scheduler_has(folder: Path, name: str, asked: dict[str, Any]) -> None:
    scheduler = SCHEDULERS[name]
    own = {key: asked[key] for key in ("cores", "memory", "walltime") if key in asked}
    profile = read_profile(name, {**asked, "coordinator": own})
    for place in (folder / "run", folder / "a run"):
        worker = worker_script(scheduler, profile, place)
        coordinator = coordinator_script(scheduler, profile, place, "photos", ["dmkl"])
        for script in (worker, coordinator):
            directives = [line for line in script.splitlines()[1:] if line.startswith(scheduler.directive)]
            assert len(directives) >= 4
            for line in directives:
                option = line.removeprefix(f"{scheduler.directive} ")
                assert any(re.fullmatch(known, option) for known in SYNTAX[name]), option


HEADERS = {  # of the second profile, without the lines of the log: worker jobs and the coordinator
    "slurm": (
        "-J NAME; -p long; -A ours; -n 1; --cpus-per-task=3; --mem=2048M; -t 01:30:00",
        (
            "-J dmkl-x; --open-mode=append; --requeue; --signal=B:USR1@180; -p long; -A ours; -n 1; "
            "--cpus-per-task=3; --mem=2048M; -t 01:30:00"
        ),
    ),
    "moab": (
        "-N NAME; -q long; -A ours; -l nodes=1:ppn=3,mem=2048mb; -l walltime=01:30:00; -j oe; -S /bin/bash",
        ("-N dmkl-x; -j oe; -S /bin/bash; -r y; -q long; -A ours; -l nodes=1:ppn=3,mem=2048mb; -l walltime=01:30:00"),
    ),
    "pbs": (
        "-N NAME; -q long; -A ours; -l select=1:ncpus=3:mem=2048mb; -l walltime=01:30:00; -j oe; -S /bin/bash",
        (
            "-N dmkl-x; -j oe; -S /bin/bash; -r y; -q long; -A ours; -l select=1:ncpus=3:mem=2048mb; "
            "-l walltime=01:30:00"
        ),
    ),
    "sge": (
        "-N NAME; -q long; -P ours; -l mem_free=683M; -l h_rt=01:30:00; -cwd; -j y; -S /bin/bash; -pe smp 3",
        "-N dmkl-x; -j y; -S /bin/bash; -r y; -q long; -P ours; -pe smp 3; -l mem_free=683M; -l h_rt=01:30:00",
    ),
    "lsf": (
        '-J NAME; -q long; -P "ours"; -n 3; -R "span[hosts=1]"; -W 01:30; -M 2048MB',
        '-J dmkl-x; -r; -q long; -P "ours"; -n 3; -R "span[hosts=1]"; -M 2048MB; -W 01:30',
    ),
    "oar": (
        "-n NAME; -q long; --project ours; -l /nodes=1/core=3,walltime=01:30:00",
        "-n dmkl-x; -q long; --project ours; -l /nodes=1/core=3,walltime=01:30:00",
    ),
}
LOGS = {  # of worker jobs
    "slurm": "-o RUN/worker-%j.log",
    "moab": "-o RUN/",
    "pbs": "-o RUN/",
    "sge": "-o RUN/worker-$JOB_ID.log",
    "lsf": "-o RUN/worker-%J.log",
    "oar": "-O RUN/worker-%jobid%.log",
}


@pytest.mark.parametrize("name", HEADERS)
def test_the_directives_are_these(folder: Path, name: str) -> None:
    scheduler, run = SCHEDULERS[name], folder / "run"
    own = {key: PROFILES[1][key] for key in ("cores", "memory", "walltime")}
    profile = read_profile(name, {**PROFILES[1], "coordinator": own})
    scripts = worker_script(scheduler, profile, run), coordinator_script(scheduler, profile, run, "x", ["dmkl"])
    for script, expected in zip(scripts, HEADERS[name], strict=True):
        begin = f"{scheduler.directive} "
        found = [line.removeprefix(begin) for line in script.splitlines() if line.startswith(begin)]
        logs = [line for line in found if str(run) in line]
        found = [line.replace(job_name(run), "NAME") for line in found if line not in logs]
        assert found == expected.split("; ")
        assert logs
    assert f"{scheduler.directive} {LOGS[name].replace('RUN', str(run))}\n" in scripts[0]


def test_htcondors_submit_description(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"account": "ours", "cores": 3, "memory": "2 GiB", "walltime": "90 m"}
    settings |= {"job_script_prologue": ["export WHO='me and you'"], "job_extra_directives": ['+Group = "a=b"']}
    words = [word for key, value in settings.items() for word in ("-s", f"cluster.{key}={json.dumps(value)}")]
    assert main(["train", "--example", "digits", "-o", "run", "--cluster", "htcondor", "--dry-run", *words]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "#!/usr/bin/env condor_submit"
    assert [line for line in lines if line][-1] == "Queue"
    found = dict(line.split(" = ", 1) for line in lines if " = " in line)
    run = folder / "run/cluster"
    expected = {
        "batch_name": job_name(run),
        "RequestMemory": "2048",
        "periodic_remove": "JobStatus == 5 || (JobStatus == 2 && time() - EnteredCurrentStatus > 5400)",
        "Output": f"{run}/worker-$(ClusterId).out",
        "accounting_group": "ours",
        "+Group": '"a=b"',
        "MY.DaskWorkerCores": "3",
        "RequestCpus": "MY.DaskWorkerCores",
        "Executable": "/bin/sh",
    }
    assert {key: found[key] for key in expected} == expected
    inner = found["Arguments"].removeprefix('"').removesuffix('"').replace('""', '"')  # quotes of the new syntax
    _option, script = re.fullmatch(r"(-c) '(.*)'", inner).groups()  # type: ignore[union-attr]
    script = script.replace("''", "'")
    assert script.startswith("export WHO='me and you'; ")
    assert f"--scheduler-file {run}/scheduler.json --name dmkl-0 --nthreads 3" in script
    assert is_shell(script)
    assert not (folder / "run").exists()


def test_htcondors_own_lines_may_be_skipped(folder: Path) -> None:
    profile = read_profile("htcondor", {"job_directives_skip": ["RequestDisk", "periodic_remove"]})
    script = worker_script(SCHEDULERS["htcondor"], profile, folder)
    assert "RequestCpus" in script
    assert "RequestDisk" not in script
    assert "periodic_remove" not in script


def test_grid_engine_takes_the_parallel_environment_of_the_site(folder: Path) -> None:
    own = {"cores": 2, "job_extra_directives": ["-pe threaded 2"]}
    profile = read_profile("sge", {**own, "job_directives_skip": ["mem_free"], "coordinator": own})
    scripts = (
        worker_script(SCHEDULERS["sge"], profile, folder),
        coordinator_script(SCHEDULERS["sge"], profile, folder, "x", ["x"]),
    )
    for script in scripts:
        assert "#$ -pe threaded 2\n" in script
        assert "smp" not in script
        assert "mem_free" not in script


def test_lsf_asks_for_whole_minutes_and_says_its_unit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "lsf.conf").write_text("LSF_UNIT_FOR_LIMITS=GB\n")
    monkeypatch.setenv("LSF_ENVDIR", str(folder))
    script = worker_script(SCHEDULERS["lsf"], read_profile("lsf", {"walltime": "61 s", "memory": "3 GB"}), folder)
    assert re.findall("^#BSUB -[MW] .*", script, re.MULTILINE) == ["#BSUB -W 00:02", "#BSUB -M 2862MB"]


# Queues, as documents and users print them

QUEUES = {
    "slurm": (
        "12|PENDING|Resources|dmkl-1|a\n13|RUNNING|None|x\n14_3|PENDING|Priority|y\nnot a job\n",
        {
            "12": QueuedJob("dmkl-1|a", PENDING, "Resources"),
            "13": QueuedJob("x", RUNNING, "None"),
            "14_3": QueuedJob("y", PENDING, "Priority"),
        },
    ),
    "pbs": (
        """
pbs01:
Job ID                        Username        Queue           Jobname         SessID   NDS  TSK   Memory Time  S Time
----------------------------- --------------- --------------- --------------- -------- ---- ----- ------ ----- - -----
1234.pbs01                    me              workq           dmkl-0f1e2d3c      23456    1     2    2gb 01:00 R 00:10
1235.pbs01                    me              workq           dmkl-0f1e2d3c        --     1     2    2gb 01:00 Q   --
1236.pbs01                    me              workq           a_job_with_a_n*      --     1     2    2gb 01:00 H   --
1237.pbs01                    me              workq           STDIN             23457    1     2    --  01:00 E 00:59
""",
        {
            "1234": QueuedJob("dmkl-0f1e2d3c", RUNNING),
            "1235": QueuedJob("dmkl-0f1e2d3c", PENDING),
            "1236": QueuedJob("a_job_with_a_n*", PENDING, "held"),
            "1237": QueuedJob("STDIN", "EXITING"),
        },
    ),
    "moab": (
        """
<Data>
 <Object>queue</Object>
 <cluster LocalActiveNodes="68" LocalAllocProcs="1360" time="1553503935"/>
 <queue count="1" option="active">
  <job AWDuration="140875" Account="ours" DRMJID="5096381.mg1" EEDuration="44150" GJID="5096381" Group="us"
   JobID="5096381" JobName="dmkl-0f1e2d3c" MasterHost="n4545" ReqProcs="20" State="Running" User="me"/>
 </queue>
 <queue count="1" option="eligible">
  <job Account="ours" EEDuration="72423" GJID="Moab.7" Group="us" JobID="Moab.7" JobName="dmkl-0f1e2d3c"
   ReqProcs="20" StartTime="0" State="Idle" SubmissionTime="1553431244" User="me"/>
 </queue>
 <queue count="2" option="blocked">
  <job BlockReason="IdlePolicy" JobID="1859934" JobName="job.sh" State="Idle" User="me"/>
  <job JobID="1859935" JobName="job.sh" State="UserHold" User="me"/>
 </queue>
 <queue count="1" option="completed" purgetime="86400">
  <job GJID="5087810" JobID="5087810" JobName="old" State="Completed" User="me"/>
 </queue>
</Data>
""",
        {
            "5096381": QueuedJob("dmkl-0f1e2d3c", RUNNING),
            "Moab.7": QueuedJob("dmkl-0f1e2d3c", PENDING),
            "1859934": QueuedJob("job.sh", PENDING, "IdlePolicy"),
            "1859935": QueuedJob("job.sh", PENDING, "held"),
        },
    ),
    "sge": (
        """<?xml version='1.0'?>
<job_info  xmlns:xsd="http://www.w3.org/2001/XMLSchema">
  <queue_info>
    <job_list state="running">
      <JB_job_number>389524</JB_job_number>
      <JAT_prio>0.50500</JAT_prio>
      <JB_name>dmkl-0f1e2d3c</JB_name>
      <JB_owner>me</JB_owner>
      <state>r</state>
      <JAT_start_time>2011-11-23T17:20:34</JAT_start_time>
      <queue_name>all.q@node002</queue_name>
      <slots>1</slots>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>389632</JB_job_number>
      <JB_name>dmkl-0f1e2d3c</JB_name>
      <state>qw</state>
      <queue_name></queue_name>
    </job_list>
    <job_list state="pending"><JB_job_number>389633</JB_job_number><JB_name>x</JB_name><state>hqw</state></job_list>
    <job_list state="pending"><JB_job_number>389634</JB_job_number><JB_name>x</JB_name><state>Eqw</state></job_list>
  </job_info>
</job_info>
""",
        {
            "389524": QueuedJob("dmkl-0f1e2d3c", RUNNING),
            "389632": QueuedJob("dmkl-0f1e2d3c", PENDING),
            "389633": QueuedJob("x", PENDING, "held"),
            "389634": QueuedJob("x", "ERROR"),
        },
    ),
    "lsf": (
        (
            "109|RUN|dmkl-0f1e2d3c|-\n"
            "110|PEND|dmkl-0f1e2d3c|Job slot limit reached; Not enough hosts;\n"
            "111|PSUSP|a|b|-\n112|SSUSP|x|-\n113|EXIT|x|-\n"
        ),
        {
            "109": QueuedJob("dmkl-0f1e2d3c", RUNNING),
            "110": QueuedJob("dmkl-0f1e2d3c", PENDING, "Job slot limit reached; Not enough hosts"),
            "111": QueuedJob("a", PENDING, "b|-"),
            "112": QueuedJob("x", "SUSPENDED"),
        },
    ),
    "htcondor": (
        (
            "5\t0\t2\tdmkl-0f1e2d3c\tundefined\n6\t0\t1\tdmkl-0f1e2d3c\tundefined\n"
            "7\t0\t5\tx\tError from slot1@node: Failed to execute '/bin/sh'\n"
        ),
        {
            "5.0": QueuedJob("dmkl-0f1e2d3c", RUNNING),
            "6.0": QueuedJob("dmkl-0f1e2d3c", PENDING),
            "7.0": QueuedJob("x", "HELD", "Error from slot1@node: Failed to execute '/bin/sh'"),
        },
    ),
    "oar": (
        """{
   "42" : {"name" : "dmkl-0f1e2d3c", "state" : "Running", "message" : "FIFO scheduling OK", "owner" : "me"},
   "43" : {"name" : null, "state" : "Waiting", "message" : "Karma = 0.014"},
   "44" : {"name" : "x", "state" : "Hold", "message" : ""},
   "45" : {"name" : "x", "state" : "toLaunch"},
   "46" : {"name" : "x", "state" : "Terminated"}
}""",
        {
            "42": QueuedJob("dmkl-0f1e2d3c", RUNNING, "FIFO scheduling OK"),
            "43": QueuedJob("", PENDING, "Karma = 0.014"),
            "44": QueuedJob("x", PENDING, "held"),
            "45": QueuedJob("x", "TOLAUNCH"),
        },
    ),
}


@pytest.mark.parametrize("name", QUEUES)
def test_a_queue_is_read(name: str) -> None:
    output, expected = QUEUES[name]
    assert SCHEDULERS[name].read_queue(output) == expected


def test_oar_says_null_when_there_are_no_jobs() -> None:
    assert SCHEDULERS["oar"].read_queue("null\n") == {}


# Commands that print what the scheduler's own print. The queue is the file `number`, the job's number.

COPY = 'for script; do :; done; cp "$script" submitted; echo "$0" >>calls; env >environment'
COMMANDS = {
    "slurm": {
        "sbatch": f"{COPY}; echo 17 >number; echo 17",
        "squeue": '[ ! -e number ] || echo "$(cat number)|PENDING|None|dmkl-digits"',
        "scancel": 'echo "$@" >>cancelled; rm -f number',
    },
    "moab": {
        "msub": f"{COPY}; echo Moab.17 >number; echo; echo Moab.17",
        "showq": 'echo "<Data><queue option=\\"eligible\\">"; [ ! -e number ] || '
        'echo "<job JobID=\\"$(cat number)\\" JobName=\\"dmkl-digits\\" State=\\"Idle\\"/>"; echo "</queue></Data>"',
        "canceljob": 'echo "$@" >>cancelled; rm -f number',
    },
    "pbs": {
        "qsub": f"{COPY}; echo 17 >number; echo 17.head",
        "qstat": 'test "$1 $2 $3" = "-w -u me" || exit 2; '
        '[ ! -e number ] || echo "$(cat number).head me workq dmkl-digits -- 1 1 4gb 01:00 Q --"',
        "qdel": 'echo "$@" >>cancelled; rm -f number',
        "pbsnodes": "",
    },
    "sge": {
        "qsub": f"{COPY}; echo 17 >number; echo 'Your job 17 (\"dmkl-digits\") has been submitted'",
        "qstat": 'echo "<job_info>"; [ ! -e number ] || echo "<job_list state=\\"pending\\">'
        "<JB_job_number>$(cat number)</JB_job_number><JB_name>dmkl-digits</JB_name>"
        '<state>qw</state></job_list>"; echo "</job_info>"',
        "qdel": 'echo "$@" >>cancelled; rm -f number',
        "qconf": "",
    },
    "lsf": {
        "bsub": 'cat >submitted; echo "$0" >>calls; env >environment; echo 17 >number; '
        'echo "Job <17> is submitted to queue <normal>."',
        "bjobs": '[ -e number ] || { echo "No unfinished job found" >&2; exit 255; }; '
        'echo "$(cat number)|PEND|dmkl-digits|New job is waiting for scheduling;"',
        "bkill": 'echo "$@" >>cancelled; rm -f number',
    },
    "htcondor": {
        "condor_submit": f"{COPY}; echo 17 >number; echo 'Submitting job(s).'; "
        "echo '1 job(s) submitted to cluster 17.'",
        "condor_q": '[ ! -e number ] || printf "$(cat number)\\t0\\t1\\tdmkl-digits\\tundefined\\n"',
        "condor_rm": 'echo "$@" >>cancelled; rm -f number',
    },
    "oar": {
        "oarsub": 'if [ "$1" = -S ]; then [ -x "$2" ] && cp "$2" submitted; else '
        'for given; do printf "%s\\n" "$given"; done >submitted; fi; '
        'echo "$0" >>calls; env >environment; echo 17 >number; '
        'echo "[ADMISSION RULE] 2 constraints"; echo OAR_JOB_ID=17',
        "oarstat": 'if [ -e number ]; then echo "{\\"$(cat number)\\": {\\"name\\": \\"dmkl-digits\\", '
        '\\"state\\": \\"Waiting\\"}}"; else echo null; fi',
        "oardel": 'echo "$@" >>cancelled; rm -f number',
    },
}
NUMBERS = dict.fromkeys(COMMANDS, "17") | {"moab": "Moab.17", "htcondor": "17.0"}
OF_A_JOB = {  # a variable that describes a job to itself
    "slurm": "SLURM_JOB_ID",
    "moab": "PBS_JOBID",
    "pbs": "PBS_JOBID",
    "sge": "SGE_O_HOST",
    "lsf": "LSB_JOBID",
    "htcondor": "_CONDOR_JOB_AD",
    "oar": "OAR_JOB_ID",
}
OF_THE_SITE = {"slurm": "SLURM_CONF", "pbs": "PBS_SERVER", "sge": "SGE_ROOT", "lsf": "LSF_ENVDIR"}

Machine = Callable[[str], Path]


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes the same folder one on a machine with the commands of a scheduler, inside one of its jobs."""

    def make(name: str) -> Path:
        (folder / "bin").mkdir()
        for program, body in COMMANDS[name].items():
            (folder / "bin" / program).write_text(f"#!/bin/sh\ncd {folder}\n{body}\n")
            (folder / "bin" / program).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("LOGNAME", "me")
        for variable in (OF_A_JOB[name], OF_THE_SITE.get(name, "ELSE")):
            monkeypatch.setenv(variable, "3")
        return folder

    return make


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NO_COORDINATOR])
def test_a_run_is_submitted_seen_and_cancelled(machine: Machine, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder, scheduler, number = machine(name), SCHEDULERS[name], NUMBERS[name]
    command = ["submit", "--example", "digits", "-o", "run", "--cluster", name]
    assert main([*command, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert not (folder / "run").exists()
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == number
    assert (folder / "submitted").read_text() + "\n" == shown
    environment = (folder / "environment").read_text()
    assert f"\n{OF_A_JOB[name]}=" not in f"\n{environment}"
    assert f"\n{OF_THE_SITE.get(name, 'ELSE')}=3\n" in f"\n{environment}"
    assert main(["status", "run"]) == 0
    assert f"queued   job {number}" in capsys.readouterr().out
    assert main(command) == 7
    cancel = shlex.join([*scheduler.cancel, number])
    assert f"in the queue already, as job {number}\nhint: {cancel} would end it" in capsys.readouterr().err
    (queued,) = scheduler.jobs().items()
    assert (queued[0], queued[1].name, queued[1].state) == (number, "dmkl-digits", PENDING)
    assert scheduler.jobs("other") == {}
    scheduler.cancel_jobs("dmkl-digits")
    assert (folder / "cancelled").read_text() == f"{number}\n"
    assert scheduler.jobs() == {}


@pytest.mark.parametrize("name", COMMANDS)
def test_workers_are_submitted_by_the_script_that_was_shown(
    machine: Machine, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, scheduler = machine(name), SCHEDULERS[name]
    command = ["train", "--example", "digits", "-o", "run", "--cluster", name, "-s", "cluster.jobs=1", "--dry-run"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert not (folder / "run").exists()
    jobs = WorkerJobs(scheduler, read_profile(name, {"jobs": 1}), folder / "run/cluster")
    (folder / "run/cluster").mkdir(parents=True)
    try:
        jobs._start()
        until((folder / "number").exists)
        until(lambda: [entry.job_id for entry in jobs._cluster.workers.values()] == [NUMBERS[name]])
        submitted = (folder / "submitted").read_text()
        if name == "oar":  # its directives are arguments
            assert submitted.split() == shown.replace("#OAR ", "").split("\n", 1)[1].split()
        else:
            assert submitted + "\n" == shown
        assert f"\n{OF_A_JOB[name]}=" not in f"\n{(folder / 'environment').read_text()}"
        (folder / "number").unlink()
        assert jobs._watch([]) == 0  # the job is gone, and started again
        until((folder / "number").exists)
        assert len((folder / "calls").read_text().splitlines()) == 2
    finally:
        jobs.close()
    assert NUMBERS[name] in (folder / "cancelled").read_text()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_no_queue_is_not_taken_for_an_empty_one(machine: Machine, name: str) -> None:
    folder, scheduler = machine(name), SCHEDULERS[name]
    program = folder / "bin" / scheduler.queue[0]
    program.write_text("#!/bin/sh\necho down >&2\nexit 1\n")
    with pytest.raises(OSError, match="down"):
        scheduler.jobs()
    for said in ("<p>service", "[3]") if name in ("moab", "sge", "oar") else ():
        program.write_text(f"#!/bin/sh\necho '{said}'\n")
        with pytest.raises(OSError, match=re.escape(f"{scheduler.queue[0]} printed no queue: '{said}'")):
            scheduler.jobs()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_scheduler_of_a_machine_is_found(machine: Machine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {program.name for program in (machine(name) / "bin").iterdir()}
    monkeypatch.setattr("dmkl.runtime.jobs.shutil.which", lambda program: program if program in here else None)
    assert default_scheduler() == name
    found = {other for other in COMMANDS if len(SCHEDULERS[other].missing()) < 3}
    assert found == {name}  # PBS and Grid Engine have commands of the same names


def test_doctor_looks_for_schedulers(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine("lsf")
    assert main(["doctor"]) in (0, 1)
    said = capsys.readouterr().out
    assert "lsf: bsub, bjobs, bkill found" in said
    assert re.search("schedulers: no commands of .*PBS, Grid Engine, HTCondor, OAR.* here", said)


def test_output_that_has_no_number_is_refused(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    folder = machine("pbs")
    (folder / "bin/qsub").write_text("#!/bin/sh\necho no such luck\n")
    assert main(["submit", "--example", "digits", "-o", "run", "--cluster", "pbs"]) == 7
    assert "qsub refused the job: qsub printed no job number: 'no such luck'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message", "passes"),
    [
        ("pbs", "cannot connect to server head", True),
        ("pbs", "qsub: Unknown queue", False),
        ("lsf", "long: No such queue. Job not submitted.", False),
    ],
)
def test_a_submission_that_fails_is_reported_and_its_cluster_closes(
    machine: Machine, name: str, message: str, passes: bool
) -> None:
    folder, scheduler = machine(name), SCHEDULERS[name]
    submit = scheduler.submit[0]
    (folder / "bin" / submit).write_text(f"#!/bin/sh\necho {shlex.quote(message)} >&2\nexit 1\n")
    notes: list[str] = []
    jobs = WorkerJobs(scheduler, read_profile(name, {"jobs": 1}), folder / "run/cluster", notes.append)
    (folder / "run/cluster").mkdir(parents=True)
    jobs._start()
    try:
        until(lambda: jobs._failures)
        if passes:
            assert jobs._watch([]) == 0
            assert notes == [f"1 worker job(s) gone, started again ({message})"]
        else:
            with pytest.raises(ClusterError, match=f"{submit} refused a worker job: {message}"):
                jobs._watch([])
        jobs._cluster.close(timeout=20)  # dask-jobqueue asserts that no entry is left open
        assert jobs._cluster.status == Status.closed
    finally:
        jobs.close()


# Job arrays

ARRAY = """#!/bin/sh
cd {folder}
exec 9>lock; flock 9
for script; do :; done
number=$((40 + $(ls submitted-* 2>/dev/null | wc -l)))
cp "$script" submitted-$number
if grep -q -- --array "$script"; then
  {array}
else
  echo "$number|PENDING|None|NAME" >>queue
fi
echo $number
"""


@pytest.mark.parametrize("allowed", [True, False])
def test_many_workers_start_as_one_array(machine: Machine, monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    folder, scheduler = machine("slurm"), SCHEDULERS["slurm"]
    monkeypatch.setattr("dmkl.runtime.jobs.workers.OPTIONS", replace(OPTIONS, array=3))
    array = 'for k in 0 1 2; do echo "${number}_$k|PENDING|None|NAME"; done >>queue'
    refused = "echo 'Invalid job array specification' >&2; rm submitted-$number; exit 1"
    name = job_name(folder / "run/cluster")
    (folder / "bin/sbatch").write_text(ARRAY.format(folder=folder, array=array if allowed else refused))
    (folder / "bin/squeue").write_text(f"#!/bin/sh\ntouch {folder}/queue; sed s/NAME/{name}/ {folder}/queue\n")
    profile, notes = read_profile("slurm", {"jobs": 3}), list[str]()
    jobs = WorkerJobs(scheduler, profile, folder / "run/cluster", notes.append)
    (folder / "run/cluster").mkdir(parents=True)
    try:
        jobs._start()
        until(lambda: sum(bool(entry.job_id) for entry in jobs._cluster.workers.values()) == 3)
        numbers = {worker: entry.job_id for worker, entry in jobs._cluster.workers.items()}
        if not allowed:
            assert {*numbers.values()} == {"40", "41", "42"}
            reason = "Invalid job array specification"
            assert notes == [f"sbatch refused a job array ({reason}); the jobs are submitted one by one"]
            return
        assert numbers == {"dmkl-0": "40_0", "dmkl-1": "40_1", "dmkl-2": "40_2"}
        submitted = (folder / "submitted-40").read_text()
        assert submitted == worker_script(scheduler, profile, folder / "run/cluster")
        assert "#SBATCH --array=0-2\n" in submitted
        assert "--name dmkl-$SLURM_ARRAY_TASK_ID " in submitted
        assert jobs._watch([]) == 0
        assert notes == ["waiting for SLURM: 3 job(s) queued (no reason)"]
        lines = (folder / "queue").read_text().splitlines(keepends=True)
        (folder / "queue").write_text("".join(line for line in lines if not line.startswith("40_1|")))
        assert jobs._watch([]) == 0  # the lost job of the array is replaced by a single one
        until(lambda: getattr(jobs._cluster.workers.get("dmkl-1"), "job_id", None) == "41")
        assert "--array" not in (folder / "submitted-41").read_text()
        assert "--name dmkl-1 " in (folder / "submitted-41").read_text()
        assert jobs._cluster.workers["dmkl-2"].job_id == "40_2"
    finally:
        jobs.close()


def test_few_workers_and_a_number_that_changes_are_no_array(folder: Path) -> None:
    for settings, array in [
        ({"jobs": 7}, False),
        ({"jobs": 8}, True),
        ({"jobs": 8, "maximum_jobs": 20}, False),
        ({"jobs": 8, "job_directives_skip": ["--array"]}, False),
    ]:
        script = worker_script(SCHEDULERS["slurm"], read_profile("slurm", settings), folder)
        assert ("#SBATCH --array=0-7\n" in script) == array
    assert "array" not in worker_script(SCHEDULERS["pbs"], read_profile("pbs", {"jobs": 8}), folder)


# Coordinators that go back into the queue


@pytest.mark.parametrize(
    ("name", "variable", "number", "back"),
    [
        ("pbs", "PBS_JOBID", "5.head", "qsub run/coordinator.sh"),
        ("sge", "JOB_ID", "5", "qsub run/coordinator.sh"),
        ("oar", "OAR_JOB_ID", "5", "oarsub -S run/coordinator.sh"),
        ("lsf", "LSB_JOBID", "5", "brequeue 5"),
    ],
)
def test_a_coordinator_goes_back_by_its_own_timer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, variable: str, number: str, back: str
) -> None:
    program = folder / "bin" / back.split()[0]
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "{program.name} $@" >>{folder}/asked\nkill -TERM $PPID\n')
    program.chmod(0o755)
    own = {"walltime": "1 s", "notice": "0.5 s", "requeues": 2}
    profile = read_profile(name, {"coordinator": own})
    waits = "trap 'echo stopped; exit 130' TERM; for i in $(seq 200); do sleep 0.05; done"
    run = folder / "run"
    run.mkdir()
    monkeypatch.setattr("dmkl.runtime.jobs.coordinator.TIMER", TIMER.replace("{seconds:.0f}", "{seconds:.1f}"))
    script = coordinator_script(SCHEDULERS[name], profile, run, "x", ["bash", "-c", waits])
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", variable: number}
    codes = []
    for _ in range(3):
        shortened = script.replace("sleep 60", "sleep 0")
        done = subprocess.run(["bash", "-c", shortened], env=environment, timeout=20, check=False, cwd=folder)
        codes.append(done.returncode)
    assert codes == [0, 0, 3]
    asked = (folder / "asked").read_text().replace(f"{folder}/", "").splitlines()
    assert asked == [back] * 2
    log = (run / "coordinator.log").read_text()
    assert [f"restart {turn}" in log for turn in range(4)] == [True, True, True, False]
    assert "stopped after 2 turns in the queue" in log
    written = json.loads((run / "job.json").read_text())
    assert (written["job"], written["user"]) == ("5", os.getuid())
    assert abs(written["time"] - time.time()) < 60


def test_a_command_that_ends_takes_the_timer_along(folder: Path) -> None:
    script = coordinator_script(SCHEDULERS["pbs"], read_profile("pbs"), folder, "x", ["true"])
    seconds = re.search(r"sleep (\d+);", script)
    assert seconds is not None
    marked = script.replace(f"sleep {seconds[1]}", f"sleep {seconds[1]}.{os.getpid()}")
    assert subprocess.run(["bash", "-c", marked], timeout=20, check=False).returncode == 0
    until(lambda: subprocess.run(["pgrep", "-f", f"sleep {seconds[1]}.{os.getpid()}"], check=False).returncode == 1)


def test_a_run_that_is_submitted_again_has_all_its_turns(machine: Machine) -> None:
    folder = machine("pbs")
    (folder / "run/cluster").mkdir(parents=True)
    (folder / "run/cluster/turns").write_text("100\n")
    assert main(["submit", "--example", "digits", "-o", "run", "--cluster", "pbs", "--json"]) == 0
    assert not (folder / "run/cluster/turns").exists()


# Names


def test_a_cluster_that_is_none_is_refused_with_the_known_schedulers() -> None:
    with pytest.raises(ConfigError, match=r"'slrm' is not a cluster; use none, .*\(slurm, moab, pbs, sge, lsf"):
        open_runtime("slrm").__enter__()
    with pytest.raises(ConfigError, match=r"unknown batch scheduler 'slrm'; did you mean 'slurm'.*sge"):
        SCHEDULERS["slrm"]


def test_no_other_module_knows_a_scheduler_by_its_commands() -> None:
    package = Path(dmkl.__file__).parent
    commands = "sbatch|squeue|scancel|scontrol|SBATCH|q(sub|stat|del)|b(sub|jobs|kill)|msub|showq|condor_q|oarsub"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(rf"\b({commands})\b|SLURM_", path.read_text())
    }
    assert {path.rpartition("/")[0] for path in found} == {"runtime/jobs"}
    assert {Path(path).stem for path in found} <= {*SCHEDULERS}


def test_the_guide_has_every_scheduler() -> None:
    guide = (Path(dmkl.__file__).parent / "docs/guide/clusters.md").read_text()
    for name in COMMANDS:
        assert f"| `{name}` | " in guide


# Kubernetes


def test_the_manifest_of_the_guide_is_consistent_and_encrypted() -> None:
    guide = (Path(dmkl.__file__).parent / "docs/guide/kubernetes.md").read_text()
    cluster, coordinator = yaml.safe_load_all(guide.split("```yaml\n")[1].split("```")[0])
    name = cluster["metadata"]["name"]
    address = f"tls://{name}-scheduler.default.svc.cluster.local:8786"  # the operator's convention
    (worker,), (scheduler,) = (cluster["spec"][part]["spec"]["containers"] for part in ("worker", "scheduler"))
    (job,) = coordinator["spec"]["template"]["spec"]["containers"]
    assert address in worker["command"]
    assert job["command"][-2:] == ["--cluster", address]
    assert scheduler["command"][:4] == ["dask", "scheduler", "--protocol", "tls"]
    keys = ["--tls-ca-file", "/keys/ca.pem", "--tls-cert", "/keys/cert.pem", "--tls-key", "/keys/key.pem"]
    assert all(one["command"][-6:] == keys for one in (worker, scheduler))
    service = cluster["spec"]["scheduler"]["service"]
    assert service["selector"]["dask.org/cluster-name"] == name
    assert [port["port"] for port in service["ports"]] == [8786]
    assert all({"name": "keys", "mountPath": "/keys", "readOnly": True} in one["volumeMounts"] for one in (worker, job))


def test_the_operators_plain_address_is_refused_unless_told() -> None:
    address = "photos-scheduler.default.svc.cluster.local:8786"
    with pytest.raises(ClusterError, match=r"without TLS would run anybody's code.*insecure=true"):
        open_runtime(f"tcp://{address}").__enter__()
    with pytest.raises(ClusterError, match="no TLS keys"):
        open_runtime(f"tls://{address}", settings={"tls": "/nowhere"}).__enter__()
