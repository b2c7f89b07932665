"""HTCondor (https://htcondor.org)."""

from __future__ import annotations

from pathlib import Path

from dmkl.errors import ConfigError
from dmkl.runtime.jobs import PENDING, RUNNING, QueuedJob, Scheduler
from dmkl.runtime.jobs.profile import Profile, megabytes, seconds_of

STATES = {"1": PENDING, "2": RUNNING, "3": "REMOVED", "4": "COMPLETED", "5": "HELD", "6": "TRANSFERRING"}
STATES |= {"7": "SUSPENDED"}
WRITTEN = ("MY.DaskWorkerName", "RequestCpus", "RequestDisk")  # by dask-jobqueue, and may be skipped
DISK = "1 GB"  # of a job: room for logs and what Dask spills


class HTCondor(Scheduler):
    """HTCondor's commands and its submit description, which takes the place of a script with directives.

    There are no queues, and no jobs of a coordinator: its script would have to go back into the queue by itself. What
    is held, and what runs for longer than its walltime, is removed, so that it is started again.
    """

    title = "HTCondor"
    cluster_class = "HTCondorCluster"
    directive = ""
    submit, cancel = ("condor_submit",), ("condor_rm",)
    queue = ("condor_q", "{user}", "-autoformat:t", "ClusterId", "ProcId", "JobStatus", "JobBatchName", "HoldReason")
    show_queue = "condor_q"
    job_number = "$(ClusterId)"
    variables = "_CONDOR_JOB"
    transient = ("Failed to connect", "Can't find address", "timed out", "temporarily")
    notes = (
        'Lines of job_extra_directives are those of a submit description, such as "requirements = Memory > 8000".',
        "account is the accounting_group. There is no queue, and no [coordinator]: dmkl submit is refused.",
    )

    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        lines = (line.split("\t", 4) for line in output.splitlines())
        return {
            f"{cluster}.{process}": QueuedJob(name, STATES.get(state, state), "" if why == "undefined" else why)
            for cluster, process, state, name, why in (line for line in lines if len(line) == 5)
        }

    def worker_options(self, profile: Profile, name: str, logs: Path) -> dict[str, object]:
        if profile.queue:
            raise ConfigError(
                f"HTCondor has no queues, so the profile cannot ask for '{profile.queue}'",
                "leave queue out; requirements go into job_extra_directives",
            )
        late = f"JobStatus == 2 && time() - EnteredCurrentStatus > {seconds_of(profile.walltime):.0f}"
        lines = {
            "batch_name": name,
            "RequestMemory": str(megabytes(profile.memory)),
            "periodic_remove": f"JobStatus == 5 || ({late})",
            "Output": f"{logs}/worker-$(ClusterId).out",
            "Error": f"{logs}/worker-$(ClusterId).err",
            "Log": f"{logs}/worker-$(ClusterId).log",
            "Stream_Output": "True",
            "Stream_Error": "True",
            **({"accounting_group": profile.account} if profile.account else {}),
        }
        return {
            "disk": DISK,
            "job_directives_skip": [key for key in WRITTEN if not profile.allows(key)],
            "job_extra_directives": [f"{key} = {value}" for key, value in lines.items()],
        }

    def extra_directives(self, lines: list[str]) -> object:
        parts = [line.partition("=") for line in lines]
        for key, sign, _ in parts:
            if not (key.strip() and sign):
                raise ConfigError(
                    f"'{key}' is not a line of HTCondor's submit description",
                    'write job_extra_directives like "requirements = Memory > 8000"',
                )
        return {key.strip(): value.strip() for key, _, value in parts}


HTCONDOR = HTCondor()
