"""Worker jobs under SLURM, through dask-jobqueue 0.9.0, with what it lacks for a run that nobody watches.

It never replaces a job that dies before its worker connects, leaves a ghost behind a failed sbatch, and then fails to
close. So the queue is compared with what it believes: jobs that are gone are forgotten and started again within a
budget. That touches internals (`workers`, `_created`, `_lock`): hence the pinned version, and tests on a real SLURM.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

from distributed import Client

from dmkl._util.files import make_folder, write_json
from dmkl._util.units import parse_seconds
from dmkl.errors import ClusterError
from dmkl.runtime.jobs import NAME, SCHEDULER, Job, command, dask_jobqueue, job_class, job_name, options, queued
from dmkl.runtime.keys import security
from dmkl.runtime.links import (
    CALL_SECONDS,
    CLOSE_SECONDS,
    Loneliness,
    Note,
    Refused,
    check_workers,
    close_client,
    close_cluster,
    connected,
    silent,
    workers_of,
)
from dmkl.runtime.profile import Profile, require_private

STARTING = 120.0  # seconds a running job may take until its worker connects
SETTLED = 60.0  # seconds of work after which a job's death costs nothing of the budget
POLL = 1.0
CALM = {"interval": "5s", "wait_count": 12}  # a minute without work before a job is given back: new ones queue
TRANSIENT = (
    "Unable to contact",
    "Socket timed out",
    "Connection refused",
    "temporarily",
    "Zero Bytes",
    "Communication",
)
STATE = "state.json"


class SlurmJobs:
    """A scheduler in this process, and workers in jobs."""

    renewable = True

    def __init__(self, profile: Profile, folder: Path, note: Note = silent) -> None:
        require_private(profile.interface, tls=profile.tls, insecure=profile.insecure)
        self.note = note
        self._profile, self._folder = profile, folder.absolute()
        self._security = security(profile.tls)
        self._failures: list[str] = []
        self._cluster: Any = None
        self._client: Client | None = None
        self._met: dict[str, float] = {}  # when a job's worker was first seen
        self._deaths = 0
        self._relaunched = 0
        self._next_launch = 0.0
        self._queued = False
        self._told = ""

    @property
    def patience(self) -> float:
        """A queue may be long; a job that runs connects soon or never."""
        return parse_seconds(self._profile.wait) if self._queued else STARTING

    def connect(self) -> Client:
        if shutil.which("sbatch") is None:
            raise Refused(
                "there is no sbatch on this machine", "run where SLURM's commands are, or use --cluster local:N"
            )
        make_folder(self._folder)
        if self._profile.log_directory:
            make_folder(Path(self._profile.log_directory).expanduser())
        self._cancel_jobs()
        self._start()
        self._await_first()
        self._client = connected(self._cluster, "the scheduler is in this very process", security=self._security)
        check_workers(self._client)
        return self._client

    def _start(self) -> None:
        self._failures.clear()
        secure = {"protocol": "tls://", "security": self._security} if self._security else {}
        scheduler: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "port": self._profile.port}
        if self._profile.interface:
            scheduler["interface"] = self._profile.interface
        self._cluster = dask_jobqueue().SLURMCluster(
            name=NAME,
            job_cls=job_class(),
            scheduler_options=scheduler,
            silence_logs=logging.CRITICAL,
            failures=self._failures,
            **secure,
            **options(self._profile, self._folder),
        )
        write_json(self._folder / SCHEDULER, {"address": self._cluster.scheduler_address})
        if self._profile.maximum_jobs:
            limits = {"minimum_jobs": self._profile.least_jobs, "maximum_jobs": self._profile.maximum_jobs}
            self._cluster.adapt(**limits, **CALM)
        else:
            self._cluster.scale(self._profile.jobs)

    def _await_first(self) -> None:
        lonely = Loneliness()
        while not self._watch(list(self._cluster.scheduler_info["workers"].values())):
            if not lonely.borne(0, self.patience):
                raise ClusterError(
                    f"no worker came up in {self.patience:.0f} s",
                    f"the jobs' logs are in {self.logs}; see also squeue --me",
                )
            time.sleep(POLL)

    @property
    def logs(self) -> str:
        return self._profile.log_directory or str(self._folder)

    def size(self, client: Client) -> tuple[int, int]:
        """As the profile says and not as jobs have started: what is decided by it must not depend on the queue."""
        return self._profile.cores * self._profile.most_jobs, self._profile.worker_bytes * self._profile.least_jobs

    def look(self, client: Client) -> int:
        return self._watch(list(workers_of(client).values()))

    def _watch(self, workers: list[dict[str, Any]]) -> int:
        """Compare workers, queue and what dask-jobqueue believes; replace what has died."""
        now = time.monotonic()
        connected_names = {str(worker["name"]) for worker in workers}
        believed = dict(self._cluster.workers)
        try:
            jobs = queued("--name", job_name(self._folder))
        except OSError as error:  # no answer is no reason to judge anybody dead
            self._tell(f"squeue does not answer ({error})")
            return len(workers)
        for name in connected_names:
            self._met.setdefault(str(getattr(believed.get(name), "job_id", "")), now)
        dead = {
            name: str(job.job_id)
            for name, job in believed.items()
            if name not in connected_names and str(job.job_id) not in jobs
        }
        self._queued = bool(jobs) and not workers and all(job.state == "PENDING" for job in jobs.values())
        if dead:
            self._bury(dead, now)
        if len(believed) - len(dead) < len(self._cluster.worker_spec) and now >= self._next_launch:
            self._cluster.scale(len(self._cluster.worker_spec))
        self._report(jobs, len(workers))
        return len(workers)

    def _bury(self, dead: dict[str, str], now: float) -> None:
        """Forget jobs that are gone; those that died young count against the budget."""
        young = sum(now - self._met.get(job, now) < SETTLED for job in dead.values())
        self._relaunched += len(dead)
        self._deaths = self._deaths + young if young else 0
        failures, said = len(self._failures), self._failures[-1] if self._failures else ""
        self._failures.clear()
        if failures and not any(sign in said for sign in TRANSIENT):
            raise Refused(f"sbatch refused a worker job: {said}", "mend the cluster profile; see it with --dry-run")
        if self._deaths > self._profile.relaunches:
            why = f"; sbatch said: {said}" if said else ""
            raise Refused(
                f"{self._deaths} worker jobs died before they had worked for a minute{why}",
                f"the jobs' logs are in {self.logs}",
            )
        self._cluster.sync(_forget, self._cluster, list(dead), callback_timeout=CALL_SECONDS)
        self._next_launch = now + min(60.0, 2.0 ** max(0, self._deaths - 2) - 1.0)
        self.note(f"{len(dead)} worker job(s) gone, started again" + (f" ({said})" if said else ""))

    def _report(self, jobs: dict[str, Job], workers: int) -> None:
        """The queue as `dmkl status` tells it."""
        states: dict[str, int] = {}
        for job in jobs.values():
            states[job.state] = states.get(job.state, 0) + 1
        reasons = sorted({job.reason for job in jobs.values() if job.state == "PENDING"} - {"None"})
        facts = {"workers": workers, "jobs": states, "reasons": reasons, "relaunched": self._relaunched}
        where = {"host": platform.node(), "pid": os.getpid(), "user": getpass.getuser()}
        with contextlib.suppress(Exception):  # a full disk is told of by what matters
            write_json(self._folder / STATE, {"time": time.time(), **facts, **where})
        if self._queued:
            self._tell(
                f"waiting for SLURM: {states.get('PENDING', 0)} job(s) queued ({', '.join(reasons) or 'no reason'})"
            )

    def _tell(self, text: str) -> None:
        if text != self._told:
            self.note(text)
        self._told = text

    def close(self) -> None:
        close_client(self._client)
        cluster, self._client, self._cluster = self._cluster, None, None
        if cluster is None:
            return
        with contextlib.suppress(Exception):  # ghosts would fail its assertions
            ghosts = [name for name, job in cluster.workers.items() if not job.job_id]
            cluster.sync(_forget, cluster, ghosts, callback_timeout=CLOSE_SECONDS)
        close_cluster(cluster)
        self._cancel_jobs()
        (self._folder / SCHEDULER).unlink(missing_ok=True)

    def _cancel_jobs(self) -> None:
        """Those of this run's folder, also such as an earlier coordinator left behind when it was killed."""
        with contextlib.suppress(OSError):
            left = queued("--name", job_name(self._folder))
            if left:
                command("scancel", *left)


async def _forget(cluster: Any, names: list[str]) -> None:
    async with cluster._lock:
        for name in names:
            job = cluster.workers.pop(name, None)
            if job is not None:
                cluster._created.discard(job)
