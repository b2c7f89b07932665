"""PBS Professional and OpenPBS (https://openpbs.org)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import ClassVar

from dmkl.runtime.jobs import HELD, PENDING, RUNNING, QueuedJob, Scheduler
from dmkl.runtime.jobs.profile import CoordinatorProfile, Profile, clock_time, megabytes

STATES = {"Q": PENDING, "W": PENDING, "H": PENDING, "T": PENDING, "R": RUNNING, "E": "EXITING", "S": "SUSPENDED"}


class Pbs(Scheduler):
    """PBS's commands and directives. Its users may not requeue jobs: a coordinator submits its script again."""

    title = "PBS"
    cluster_class = "PBSCluster"
    directive = "#PBS"
    submit: ClassVar[tuple[str, ...]] = ("qsub",)
    cancel = ("qdel",)
    queue: ClassVar[tuple[str, ...]] = ("qstat", "-w", "-u", "{user}")
    show_queue = "qstat -u $USER"
    own_command = "pbsnodes"
    job_number = "${PBS_JOBID%%.*}"
    variables, kept_variables = "PBS_", ("PBS_SERVER", "PBS_DEFAULT", "PBS_CONF_FILE", "PBS_EXEC", "PBS_HOME")
    transient: ClassVar[tuple[str, ...]] = ("cannot connect", "Connection refused", "timed out", "Expired credential")

    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        # Job ID, user, queue, name, session, nodes, tasks, memory, time, state, elapsed time
        lines = re.findall(r"^(\d+)\S* +\S+ +\S+ +(\S+) +\S+ +\S+ +\S+ +\S+ +\S+ +([A-Z]) ", output, re.MULTILINE)
        return {
            number: QueuedJob(name, STATES.get(state, state), HELD if state == "H" else "")
            for number, name, state in lines
        }

    def resources(self, cores: int, memory: str) -> str:
        """A request for cores and memory of one machine, as -l takes it."""
        return f"select=1:ncpus={cores}:mem={megabytes(memory)}mb"

    def worker_options(self, profile: Profile, name: str, logs: Path) -> dict[str, object]:
        return {
            "queue": profile.queue or None,
            "account": profile.account or None,
            "resource_spec": self.resources(profile.cores, profile.memory),
            "walltime": clock_time(profile.walltime),
            "job_extra_directives": ["-j oe", f"-o {shlex.quote(f'{logs}/')}", "-S /bin/bash"],
        }

    def coordinator_directives(self, own: CoordinatorProfile, name: str, log: Path, notice: float) -> list[str]:
        return [
            f"-N {name}",
            "-j oe",
            f"-o {shlex.quote(str(log.with_suffix('.out')))}",  # written when the job ends, over what was there
            "-S /bin/bash",
            "-r y",
            *([f"-q {own.queue}"] if own.queue else []),
            *([f"-A {own.account}"] if own.account else []),
            f"-l {self.resources(own.cores, own.memory)}",
            f"-l walltime={clock_time(own.walltime)}",
        ]


PBS = Pbs()
