"""Moab (https://adaptivecomputing.com) above Torque."""

from __future__ import annotations

from xml.etree import ElementTree

from dmkl.runtime.jobs import HELD, PENDING, RUNNING, QueuedJob
from dmkl.runtime.jobs.pbs import Pbs
from dmkl.runtime.jobs.profile import megabytes

WAITING = {"active": "", "eligible": "", "blocked": "blocked"}  # parts of the queue, and why their jobs wait


class Moab(Pbs):
    """Moab's commands; its directives are those of PBS, with Torque's resources."""

    title = "Moab"
    cluster_class = "MoabCluster"
    submit, cancel = ("msub", "-E"), ("canceljob",)  # -E sets MOAB_JOBID
    number = r"(?:Moab\.)?\d+"
    queue, show_queue = ("showq", "-u", "{user}", "--xml"), "showq -u $USER"
    own_command = ""
    job_number = "${MOAB_JOBID:-${PBS_JOBID%%.*}}"
    transient = ("timed out", "cannot connect", "connection refused")

    def read_queue(self, output: str) -> dict[str, QueuedJob]:
        found = {}
        for queue in ElementTree.fromstring(output).iter("queue") if output.strip() else ():
            part = queue.get("option", "")
            for job in queue.iter("job") if part in WAITING else ():
                state = job.get("State", "")
                reason = HELD if state.endswith("Hold") else job.get("BlockReason", WAITING[part])
                state = {"Running": RUNNING, "Starting": RUNNING}.get(state, state.upper())
                number = job.get("GJID") or job.attrib["JobID"]  # the number that msub printed
                found[number] = QueuedJob(job.get("JobName", ""), state if part == "active" else PENDING, reason)
        return found

    def resources(self, cores: int, memory: str) -> str:
        return f"nodes=1:ppn={cores},mem={megabytes(memory)}mb"


MOAB = Moab()
