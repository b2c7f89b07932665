"""Grid Engine: SGE and its descendants, such as Son of Grid Engine, Univa and Altair Grid Engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from dmkl.runtime.jobs import HELD, PENDING, RUNNING, QueuedJob, Scheduler
from dmkl.runtime.jobs.profile import CoordinatorProfile, Profile, clock_time, megabytes


class Sge(Scheduler):
    """Grid Engine's commands and directives."""

    title = "Grid Engine"
    cluster_class = "SGECluster"
    directive = "#$"
    submit, cancel = ("qsub",), ("qdel",)
    number = r"(?<=[Jj]ob )\d+"
    queue, show_queue = ("qstat", "-u", "{user}", "-xml"), "qstat"
    own_command = "qconf"
    job_number = "$JOB_ID"
    variables = "SGE_O_"
    transient = ("unable to contact qmaster", "commlib error", "got no response", "timeout")
    notes = (
        "cores > 1 asks for the parallel environment smp. Where yours has another name, give it, for example:",
        'job_extra_directives = ["-pe threaded 4"]. Memory is mem_free, for each core; a site that wants another',
        'resource, such as h_vmem, gets it by job_directives_skip = ["mem_free"] and a line "-l h_vmem=4G".',
    )

    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        jobs = ElementTree.fromstring(output).iter("job_list") if output.strip() else ()
        return {job.findtext("JB_job_number", ""): _queued(job) for job in jobs}

    def worker_options(self, profile: Profile, name: str, logs: Path) -> dict[str, object]:
        return {
            "queue": profile.queue or None,
            "project": profile.account or None,
            "resource_spec": _memory(profile.cores, profile.memory),
            "walltime": clock_time(profile.walltime),
            "job_extra_directives": [
                f"-o {shlex.quote(str(logs))}/worker-$JOB_ID.log",
                "-S /bin/bash",
                *_cores(profile.cores, profile.job_extra_directives),
            ],
        }

    def coordinator_directives(self, own: CoordinatorProfile, name: str, log: Path, notice: float) -> list[str]:
        return [
            f"-N {name}",
            "-j y",
            f"-o {shlex.quote(str(log.with_suffix('.out')))}",
            "-S /bin/bash",
            "-r y",
            *([f"-q {own.queue}"] if own.queue else []),
            *([f"-P {own.account}"] if own.account else []),
            *_cores(own.cores, own.job_extra_directives),
            f"-l {_memory(own.cores, own.memory)}",
            f"-l h_rt={clock_time(own.walltime)}",
        ]


def _cores(cores: int, given: Sequence[str]) -> list[str]:
    """A request for the cores of one machine, unless the profile names the site's own parallel environment."""
    return [] if cores == 1 or any(re.match(r"-pe\b", line) for line in given) else [f"-pe smp {cores}"]


def _memory(cores: int, memory: str) -> str:
    """A request for memory, which Grid Engine counts for each core."""
    return f"mem_free={-(-megabytes(memory) // cores)}M"


def _queued(job: ElementTree.Element) -> QueuedJob:
    code = job.findtext("state", "")  # letters such as qw, hqw, r, t, Eqw
    state = "ERROR" if "E" in code else PENDING if "q" in code else RUNNING
    return QueuedJob(job.findtext("JB_name", ""), state, HELD if code.startswith("h") else "")


SGE = Sge()
