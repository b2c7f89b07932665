"""SLURM (https://slurm.schedmd.com)."""

from __future__ import annotations

import shlex
from pathlib import Path

from dmkl.runtime.jobs import QueuedJob, Scheduler
from dmkl.runtime.jobs.profile import CoordinatorProfile, Profile, clock_time, megabytes


class Slurm(Scheduler):
    """SLURM's commands and directives."""

    title = "SLURM"
    cluster_class = "SLURMCluster"
    directive = "#SBATCH"
    submit = ("sbatch", "--parsable")
    cancel = ("scancel",)
    queue = ("squeue", "--me", "-h", "-r", "-o", "%i|%T|%r|%j")
    show_queue = "squeue --me"
    job_number = "$SLURM_JOB_ID"
    requeue = 'scontrol requeue "$SLURM_JOB_ID"'
    sends_notice = True
    array, array_index = "--array=0-{last}", "$SLURM_ARRAY_TASK_ID"
    variables, kept_variables = "SLURM", ("SLURM_CONF", "SLURM_CLUSTERS")
    transient = (
        "Unable to contact",
        "Socket timed out",
        "Connection refused",
        "temporarily",
        "Zero Bytes",
        "Communication",
    )

    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        lines = (line.split("|", 3) for line in output.splitlines())
        return {line[0]: QueuedJob(line[3], line[1], line[2]) for line in lines if len(line) == 4}

    def worker_options(self, profile: Profile, name: str, logs: Path) -> dict[str, object]:
        return {
            "queue": profile.queue or None,
            "account": profile.account or None,
            "job_mem": f"{megabytes(profile.memory)}M",
            "walltime": clock_time(profile.walltime),
            "job_extra_directives": [f"-o {shlex.quote(str(logs / 'worker-%j.log'))}"],
        }

    def coordinator_directives(self, own: CoordinatorProfile, name: str, log: Path, notice: float) -> list[str]:
        return [
            f"-J {name}",
            f"-o {shlex.quote(str(log))}",
            "--open-mode=append",
            "--requeue",
            f"--signal=B:USR1@{notice:.0f}",
            *([f"-p {own.queue}"] if own.queue else []),
            *([f"-A {own.account}"] if own.account else []),
            "-n 1",
            f"--cpus-per-task={own.cores}",
            f"--mem={megabytes(own.memory)}M",
            f"-t {clock_time(own.walltime)}",
        ]


SLURM = Slurm()
