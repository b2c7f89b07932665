"""Batch schedulers: what dmkl must know of one, and the table of those that it knows.

A scheduler is its commands, how their output reads, and its lines of a job script: `slurm.py` has those of SLURM.
Everything else about jobs is the same for all schedulers: `profile.py` reads what a site wants of its jobs,
`workers.py` starts worker jobs and watches them, `coordinator.py` runs a whole command as a job.

Another scheduler is one file with a subclass of `Scheduler`, and one line here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, NamedTuple

from dmkl._util.registry import Registry
from dmkl.errors import ClusterError
from dmkl.runtime.jobs.profile import CoordinatorProfile, Profile

PENDING = "PENDING"  # the state of a job that waits in the queue, whatever the scheduler calls it


class QueuedJob(NamedTuple):
    """A job of this user in the queue: its name, its state (`PENDING` if it waits), and why it waits."""

    name: str
    state: str
    reason: str


class Scheduler(ABC):
    """One batch scheduler. A subclass sets the attributes, and says how its queue reads and what its jobs ask for."""

    title: ClassVar[str]  # its name in messages
    cluster_class: ClassVar[str]  # of dask_jobqueue
    directive: ClassVar[str]  # the beginning of a line of the job script that the scheduler reads
    submit: ClassVar[tuple[str, ...]]  # followed by the path of a script; prints the job's number
    cancel: ClassVar[tuple[str, ...]]  # followed by the numbers of jobs
    requeue: ClassVar[tuple[str, ...]]  # followed by a job's number
    queue: ClassVar[tuple[str, ...]]  # prints what `read_queue` reads
    show_queue: ClassVar[str]  # the command for a person who wants to see the queue
    job_number: ClassVar[str]  # shell expressions: the number of the job that runs the script,
    restarts: ClassVar[str]  # and how often it has been requeued
    variables: ClassVar[str]  # how the environment variables begin that describe a job to itself
    kept_variables: ClassVar[tuple[str, ...]] = ()  # those that do not
    transient: ClassVar[tuple[str, ...]] = ()  # parts of the messages of failures that pass by themselves
    command_seconds: ClassVar[float] = 20.0  # limit for one command

    @abstractmethod
    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        """The jobs in the output of `queue`, by number: the digits alone, as dask-jobqueue stores them."""

    @abstractmethod
    def worker_options(self, profile: Profile, logs: Path) -> dict[str, object]:
        """Arguments of dask-jobqueue's job class that only this scheduler has: account, memory, walltime; and
        `job_extra_directives`, which name the log file in the folder `logs`."""

    @abstractmethod
    def coordinator_directives(self, own: CoordinatorProfile, name: str, log: Path, notice: float) -> list[str]:
        """What the coordinator's job asks for: its name and log, to be requeued when its node fails, the signal USR1
        `notice` seconds before its walltime, queue, account, cores, memory and walltime."""

    def missing(self) -> list[str]:
        """Commands of the scheduler that are not on this machine."""
        return [name for name in self.programs if shutil.which(name) is None]

    @property
    def programs(self) -> tuple[str, ...]:
        """The commands that a machine needs to start jobs and to watch them."""
        return self.submit[0], self.queue[0], self.cancel[0]

    def require_commands(self, otherwise: str = "") -> None:
        """Refuse a machine without the command that submits jobs."""
        if shutil.which(self.submit[0]) is None:
            hint = f"run where {self.title}'s commands are{otherwise}"
            raise ClusterError(f"there is no {self.submit[0]} on this machine", hint)

    def submit_script(self, path: Path) -> str:
        """Submit a job script; the job's number."""
        output = self.command(*self.submit, str(path))
        number = re.search(r"\d+", output)
        if number is None:
            raise OSError(f"{self.submit[0]} printed no job number: {output.strip()!r}")
        return number[0]

    def jobs(self, name: str = "") -> dict[str, QueuedJob]:
        """This user's jobs in the queue, by number; only those of a name if one is given."""
        found = self.read_queue(self.command(*self.queue))
        return {number: job for number, job in found.items() if name in ("", job.name)}

    def cancel_jobs(self, name: str) -> None:
        """Cancel all jobs of a name."""
        if left := self.jobs(name):
            self.command(*self.cancel, *left)

    def command(self, *words: str) -> str:
        """The output of a command; OSError when it fails or takes too long."""
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=self.command_seconds, check=False, env=self.environment()
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"{words[0]} took more than {self.command_seconds:.0f} s") from error
        if done.returncode:
            raise OSError((done.stderr.strip().splitlines() or [f"{words[0]} failed"])[-1])
        return done.stdout

    def environment(self) -> dict[str, str]:
        """The environment without the variables that describe this job, which jobs it submits would take for theirs."""
        kept = self.kept_variables
        return {key: value for key, value in os.environ.items() if not key.startswith(self.variables) or key in kept}


SCHEDULERS: Registry[Scheduler] = Registry("batch scheduler")


def find_scheduler(cluster: str) -> Scheduler | None:
    """The scheduler that the text of --cluster names ('slurm' or 'slurm:PROFILE'); None if it names none."""
    name = cluster.partition(":")[0]
    if name not in SCHEDULERS:
        return None
    return SCHEDULERS[name]


def default_scheduler() -> str:
    """The name of the first scheduler whose commands are on this machine, or of the first of all."""
    here = (name for name, scheduler in SCHEDULERS.items() if not scheduler.missing())
    return next(here, next(iter(SCHEDULERS)))


SCHEDULERS.register("slurm", "dmkl.runtime.jobs.slurm:SLURM")
