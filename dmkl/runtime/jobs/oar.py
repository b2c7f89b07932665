"""OAR (https://oar.imag.fr)."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from dmkl.runtime.jobs import HELD, PENDING, RUNNING, QueuedJob, Scheduler
from dmkl.runtime.jobs.profile import CoordinatorProfile, Profile, clock_time

STATES = {"Waiting": PENDING, "toAckReservation": PENDING, "Hold": PENDING, "Running": RUNNING}
ENDED = ("Terminated", "Error")


class Oar(Scheduler):
    """OAR's commands and directives. It gives memory with the cores, so jobs do not ask for any.

    oarsub takes the rest of a coordinator's line as it is, without quotes; worker jobs are submitted by dask-jobqueue,
    which makes arguments of their lines.
    """

    title = "OAR"
    cluster_class = "OARCluster"
    directive = "#OAR"
    submit, cancel = ("oarsub", "-S"), ("oardel",)
    number = r"(?<=OAR_JOB_ID=)\d+"
    queue, show_queue = ("oarstat", "-u", "-J"), "oarstat -u"
    job_number = "$OAR_JOB_ID"
    variables = "OAR_"
    transient = ("cannot connect to executor", "DB connection error", "timed out")
    notes = (
        "OAR gives memory with the cores: `memory` is only the limit of the worker. Where nodes have a property for",
        "the memory of a core, ask for it: job_extra_directives = [\"-p 'memcore >= 4000'\"].",
    )

    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        jobs = json.loads(output or "{}") or {}  # "null" if there are none
        return {
            number: QueuedJob(
                job.get("name") or "",
                STATES.get(job["state"], job["state"].upper()),
                HELD if job["state"] == "Hold" else job.get("message") or "",
            )
            for number, job in jobs.items()
            if job["state"] not in ENDED
        }

    def worker_options(self, profile: Profile, name: str, logs: Path) -> dict[str, object]:
        log = shlex.quote(str(logs / "worker-%jobid%.log"))
        return {
            "queue": profile.queue or None,
            "project": profile.account or None,
            "walltime": clock_time(profile.walltime),
            "memory_per_core_property_name": "not_applicable",
            "job_extra_directives": [f"-O {log}", f"-E {log}"],
        }

    def coordinator_directives(self, own: CoordinatorProfile, name: str, log: Path, notice: float) -> list[str]:
        own_log = log.with_suffix(".out")
        return [
            f"-n {name}",
            f"-O {own_log}",
            f"-E {own_log}",
            *([f"-q {own.queue}"] if own.queue else []),
            *([f"--project {own.account}"] if own.account else []),
            f"-l /nodes=1/core={own.cores},walltime={clock_time(own.walltime)}",
        ]


OAR = Oar()
