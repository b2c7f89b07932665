"""Batch schedulers: worker jobs, the coordinator as a job, and the table of the schedulers that dmkl knows.

`base.py` says what dmkl must know of a scheduler, `slurm.py` says it of SLURM, `profile.py` reads what a site wants of
its jobs, `workers.py` starts worker jobs and watches them, `coordinator.py` runs a whole command as a job.

Another scheduler is one file with a subclass of `Scheduler`, and one line here.
"""

from dmkl._util.registry import Registry
from dmkl.runtime.jobs.base import Scheduler

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
