"""IBM Spectrum LSF 10.1.0.2 and later (https://www.ibm.com/docs/en/spectrum-lsf)."""

from __future__ import annotations

import shlex
from pathlib import Path

from dmkl.runtime.jobs import PENDING, RUNNING, QueuedJob, Scheduler
from dmkl.runtime.jobs.profile import CoordinatorProfile, Profile, megabytes, seconds_of

STATES = {"PEND": PENDING, "PSUSP": PENDING, "WAIT": PENDING, "RUN": RUNNING, "USUSP": "SUSPENDED"}
STATES |= {"SSUSP": "SUSPENDED", "UNKWN": "UNKNOWN"}
ENDED = ("DONE", "EXIT")


class Lsf(Scheduler):
    """LSF's commands and directives. It rounds a walltime up to a minute."""

    title = "LSF"
    cluster_class = "LSFCluster"
    directive = "#BSUB"
    submit, reads_stdin, cancel = ("bsub",), True, ("bkill",)
    number = r"(?<=Job <)\d+"
    queue = ("bjobs", "-noheader", "-o", "jobid stat job_name pend_reason delimiter='|'")
    nothing_queued = "No unfinished job found"
    show_queue = "bjobs"
    job_number = "$LSB_JOBID"
    requeue = 'brequeue "$LSB_JOBID"'
    variables = "LSB_"
    transient = ("LSF is down", "Please wait", "Batch daemon not responding", "Communication time out", "LIM is down")

    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        lines = [line.split("|", 3) for line in output.splitlines()]
        return {
            number: QueuedJob(name, STATES.get(state, state), "" if reason == "-" else reason.strip(" ;"))
            for number, state, name, reason in (line for line in lines if len(line) == 4)
            if state not in ENDED
        }

    def worker_options(self, profile: Profile, name: str, logs: Path) -> dict[str, object]:
        return {
            "queue": profile.queue or None,
            "project": profile.account or None,
            "ncpus": profile.cores,
            "walltime": hours_and_minutes(profile.walltime),
            "use_stdin": True,
            "lsf_units": "mb",  # otherwise searched in the configuration of LSF
            "job_directives_skip": [*profile.job_directives_skip, "#BSUB -M "],  # it has no unit
            "job_extra_directives": [
                f"-M {megabytes(profile.memory)}MB",
                f"-o {shlex.quote(str(logs / 'worker-%J.log'))}",
            ],
        }

    def coordinator_directives(self, own: CoordinatorProfile, name: str, log: Path, notice: float) -> list[str]:
        return [
            f"-J {name}",
            f"-o {shlex.quote(str(log))}",
            "-r",
            *([f"-q {own.queue}"] if own.queue else []),
            *([f'-P "{own.account}"'] if own.account else []),
            f"-n {own.cores}",
            *(['-R "span[hosts=1]"'] if own.cores > 1 else []),
            f"-M {megabytes(own.memory)}MB",
            f"-W {hours_and_minutes(own.walltime)}",
        ]


def hours_and_minutes(walltime: str) -> str:
    """A walltime as HH:MM, rounded up."""
    hours, minutes = divmod(-(-round(seconds_of(walltime)) // 60), 60)
    return f"{hours:02d}:{minutes:02d}"


LSF = Lsf()
