"""Batch schedulers: what dmkl must know of one, and the table of those that it knows.

A scheduler is its commands, how their output reads, and its lines of a job script: `slurm.py` has those of SLURM.
Everything else about jobs is the same for all schedulers: `profile.py` reads what a site wants of its jobs,
`workers.py` starts worker jobs and watches them, `coordinator.py` runs a whole command as a job.

Another scheduler is one file with a subclass of `Scheduler`, and one line here.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, NamedTuple

from dmkl._util.registry import Registry
from dmkl.errors import ClusterError, ConfigError
from dmkl.runtime.jobs.profile import CoordinatorProfile, Profile

PENDING, RUNNING, HELD = "PENDING", "RUNNING", "held"  # states and a reason, whatever the scheduler calls them


class QueuedJob(NamedTuple):
    """A job of this user in the queue: its name, its state (`PENDING` if it waits), and why it waits."""

    name: str
    state: str
    reason: str = ""


class Scheduler(ABC):
    """One batch scheduler. A subclass sets the attributes, and says how its queue reads and what its jobs ask for.

    In `queue`, `{user}` stands for the name of the user.
    """

    title: ClassVar[str]  # its name in messages
    cluster_class: ClassVar[str]  # of dask_jobqueue
    directive: ClassVar[str]  # the beginning of a line of the job script that the scheduler reads
    submit: ClassVar[tuple[str, ...]]  # followed by the path of a script; prints the job's number
    reads_stdin: ClassVar[bool] = False  # whether `submit` reads the script from its standard input instead
    number: ClassVar[str] = r"\d+"  # regular expression: the job's number in what `submit` prints
    cancel: ClassVar[tuple[str, ...]]  # followed by the numbers of jobs
    queue: ClassVar[tuple[str, ...]]  # prints what `read_queue` reads
    nothing_queued: ClassVar[str] = ""  # the error message of `queue` when there are no jobs, if that is an error
    show_queue: ClassVar[str]  # the command for a person who wants to see the queue
    own_command: ClassVar[str] = ""  # a command that tells it from a scheduler whose commands have the same names
    job_number: ClassVar[str]  # shell expression: the number of the job that runs the script
    requeue: ClassVar[str] = ""  # shell command: ends this job, back into the queue; "": it submits its script again
    sends_notice: ClassVar[bool] = False  # whether a directive has USR1 sent before the walltime; else a timer does
    array: ClassVar[str] = ""  # the directive that makes a job an array of jobs NUMBER_0 to NUMBER_{last}
    array_index: ClassVar[str] = ""  # shell expression: the index in the array of the job that runs the script
    variables: ClassVar[str]  # how the environment variables begin that describe a job to itself
    kept_variables: ClassVar[tuple[str, ...]] = ()  # those that do not
    transient: ClassVar[tuple[str, ...]] = ()  # parts of the messages of failures that pass by themselves
    notes: ClassVar[tuple[str, ...]] = ()  # what its users must know when they write a profile
    command_seconds: ClassVar[float] = 20.0  # limit for one command

    @abstractmethod
    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        """The jobs in the output of `queue`, by number, written as `number` finds it in the output of `submit`."""

    @abstractmethod
    def worker_options(self, profile: Profile, name: str, logs: Path) -> dict[str, object]:
        """Arguments of dask-jobqueue's job class that only this scheduler has: queue, account, memory, walltime; and
        `job_extra_directives`, which name the log file in the folder `logs`."""

    def coordinator_directives(self, own: CoordinatorProfile, name: str, log: Path, notice: float) -> list[str]:
        """What the coordinator's job asks for: its name and log, to be requeued when its node fails, queue, account,
        cores, memory and walltime; with `sends_notice`, the signal USR1 `notice` seconds before the walltime.

        A scheduler without this method cannot run a coordinator.
        """
        raise ConfigError(
            f"dmkl submit cannot run a coordinator as a job of {self.title}",
            f"run dmkl train on a machine with {self.submit[0]}; after an interruption the same command continues",
        )

    def extra_directives(self, lines: list[str]) -> object:
        """Directives as dask-jobqueue's job class takes them."""
        return lines

    def missing(self) -> list[str]:
        """Commands of the scheduler that are not on this machine."""
        other = self.own_command and shutil.which(self.own_command) is None
        return [name for name in self.programs if other or shutil.which(name) is None]

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
        if self.reads_stdin:
            output = self.command(*self.submit, given=path.read_text(encoding="utf-8"))
        else:
            output = self.command(*self.submit, str(path))
        number = re.search(self.number, output)
        if number is None:
            raise OSError(f"{self.submit[0]} printed no job number: {output.strip()!r}")
        return number[0]

    def jobs(self, name: str = "") -> dict[str, QueuedJob]:
        """This user's jobs in the queue, by number; only those of a name if one is given."""
        try:
            output = self.command(*(word.replace("{user}", getpass.getuser()) for word in self.queue))
        except OSError as error:
            if not self.nothing_queued or self.nothing_queued not in str(error):
                raise
            output = ""
        try:
            found = self.read_queue(output)
        except (ValueError, LookupError, TypeError, AttributeError, SyntaxError) as error:  # the last one: of XML
            raise OSError(f"{self.queue[0]} printed no queue: {output.strip()[:80]!r}") from error
        return {number: job for number, job in found.items() if name in ("", job.name)}

    def cancel_jobs(self, name: str) -> None:
        """Cancel all jobs of a name."""
        if left := self.jobs(name):
            self.command(*self.cancel, *left)

    def command(self, *words: str, given: str | None = None) -> str:
        """The output of a command, which reads the text `given`; OSError when it fails or takes too long."""
        try:
            done = subprocess.run(
                words,
                input=given,
                capture_output=True,
                text=True,
                timeout=self.command_seconds,
                check=False,
                env=self.environment(),
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
SCHEDULERS.register("moab", "dmkl.runtime.jobs.moab:MOAB")  # before PBS, whose commands its machines have too
SCHEDULERS.register("pbs", "dmkl.runtime.jobs.pbs:PBS")
SCHEDULERS.register("sge", "dmkl.runtime.jobs.sge:SGE")
SCHEDULERS.register("lsf", "dmkl.runtime.jobs.lsf:LSF")
SCHEDULERS.register("htcondor", "dmkl.runtime.jobs.htcondor:HTCONDOR")
SCHEDULERS.register("oar", "dmkl.runtime.jobs.oar:OAR")
