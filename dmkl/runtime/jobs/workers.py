"""Worker jobs of a batch scheduler, through dask-jobqueue 0.9.0, with what it lacks for a run without supervision.

Dask-jobqueue never replaces a job that ends before its worker connects, keeps an entry for a job whose submission
failed, and then fails to close. So its entries (`cluster.workers`) are compared with the scheduler's queue: jobs that
are gone are removed and started again, within a budget. One internal of dask-jobqueue is used (`Job._call`): hence the
pinned version. The tests run on a real SLURM.

Workers find the Dask scheduler through a file, so the script of a job does not depend on the port.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import logging
import os
import platform
import shlex
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import Client, Status
from distributed.deploy.spec import ProcessInterface

from dmkl._util.files import make_folder, write_atomically, write_json
from dmkl._util.units import parse_seconds
from dmkl.errors import ClusterError
from dmkl.runtime import connections
from dmkl.runtime.connections import (
    Absence,
    ClusterSize,
    Note,
    Refused,
    WorkerFacts,
    check_workers,
    close_client,
    close_cluster,
    connect_client,
    silent,
    workers_of,
)
from dmkl.runtime.jobs import PENDING, QueuedJob, Scheduler
from dmkl.runtime.jobs.profile import Profile
from dmkl.runtime.tls import require_private, security

NAME = "dmkl"  # of the Dask cluster; its workers are dmkl-0, dmkl-1 ...
Arguments = dict[str, Any]  # keyword arguments of dask-jobqueue, which is untyped
SCHEDULER_FILE, STATE_FILE, ARRAY_SCRIPT = "scheduler.json", "state.json", "workers.sh"


@dataclass(frozen=True)
class WatchOptions:
    """How worker jobs are watched.

    Attributes
    ----------
    starting
        Seconds that a running job has until its worker connects.
    settled
        Seconds of work after which the end of a job no longer counts against the budget.
    poll
        Seconds between two looks at the queue while the first worker is awaited.
    death_timeout
        Seconds after which a worker that cannot reach the scheduler ends.
    adaptation
        Options of Dask's `adapt`. A job is given back after a minute without work: a new one has to queue.
    longest_delay
        Seconds, the longest wait before jobs that keep ending early are started again.
    array
        The number of jobs from which on they are first submitted as one job array, where the scheduler has arrays.
    """

    starting: float = 120.0
    settled: float = 60.0
    poll: float = 1.0
    death_timeout: int = 60
    adaptation: Mapping[str, str | int] = field(default_factory=lambda: {"interval": "5s", "wait_count": 12})
    longest_delay: float = 60.0
    array: int = 8


OPTIONS = WatchOptions()


class WorkerJobs:
    """A connection to a Dask scheduler in this process, whose workers are jobs."""

    renewable = True
    together = False

    def __init__(self, scheduler: Scheduler, profile: Profile, folder: Path, note: Note = silent) -> None:
        require_private(profile.interface, tls=profile.tls, insecure=profile.insecure)
        self.note = note
        self._scheduler, self._profile, self._folder = scheduler, profile, folder.absolute()
        self._options = OPTIONS
        self._security = security(profile.tls)
        self._failures: list[str] = []  # messages of submissions that failed
        self._array: dict[str, str] = {}  # numbers of jobs in an array, by the names of the workers that they will be
        self._cluster: Any = None
        self._client: Client | None = None
        self._connected: dict[str, float] = {}  # when a job's worker was first seen
        self._deaths = 0  # early ends of jobs in a row
        self._relaunched = 0
        self._next_launch = 0.0
        self._all_queued = False
        self._last_note = ""

    @property
    def patience(self) -> float:
        """Seconds without a worker: long while all jobs are queued; a job that runs connects soon or never."""
        return parse_seconds(self._profile.wait) if self._all_queued else self._options.starting

    def connect(self) -> Client:
        self._scheduler.require_commands(", or use --cluster local:N")
        make_folder(self._folder)
        if self._profile.log_directory:
            make_folder(Path(self._profile.log_directory).expanduser())
        self._cancel_jobs()
        self._start()
        self._await_first()
        self._client = connect_client(self._cluster, "the scheduler is in this very process", security=self._security)
        check_workers(self._client)
        return self._client

    def _start(self) -> None:
        self._failures.clear()
        self._array.clear()
        secure = {"protocol": "tls://", "security": self._security} if self._security else {}
        options: dict[str, object] = {"dashboard_address": "127.0.0.1:0", "port": self._profile.port}
        if self._profile.interface:
            options["interface"] = self._profile.interface
        self._cluster = getattr(dask_jobqueue(), self._scheduler.cluster_class)(
            name=NAME,
            job_cls=job_class(self._scheduler),
            scheduler_options=options,
            silence_logs=logging.CRITICAL,
            failures=self._failures,
            array=self._array,
            **secure,
            **job_options(self._scheduler, self._profile, self._folder),
        )
        write_json(self._folder / SCHEDULER_FILE, {"address": self._cluster.scheduler_address})
        if self._profile.maximum_jobs:
            limits = {"minimum_jobs": self._profile.least_jobs, "maximum_jobs": self._profile.maximum_jobs}
            self._cluster.adapt(**limits, **self._options.adaptation)
        else:
            self._submit_array()
            self._cluster.scale(self._profile.jobs)

    def _submit_array(self) -> None:
        """Submit many jobs with one command; what is gone later is replaced one by one."""
        count = array_size(self._scheduler, self._profile)
        if not count:
            return
        path = self._folder / ARRAY_SCRIPT
        write_atomically(path, worker_script(self._scheduler, self._profile, self._folder).encode())
        try:
            number = self._scheduler.submit_script(path)
        except OSError as error:  # a site may allow no arrays, or only short ones
            self.note(f"{self._scheduler.submit[0]} refused a job array ({error}); the jobs are submitted one by one")
            return
        self._array |= {f"{NAME}-{index}": f"{number}_{index}" for index in range(count)}

    def _await_first(self) -> None:
        absence = Absence()
        while not self._watch(list(self._cluster.scheduler_info["workers"].values())):
            if not absence.tolerated(0, self.patience):
                raise ClusterError(
                    f"no worker came up in {self.patience:.0f} s",
                    f"the jobs' logs are in {self._logs}; see also {self._scheduler.show_queue}",
                )
            time.sleep(self._options.poll)

    @property
    def _logs(self) -> str:
        return self._profile.log_directory or str(self._folder)

    def size(self, client: Client) -> ClusterSize:
        """As the profile says and not as jobs have started: decisions that use it must not depend on the queue."""
        own = self._profile
        return ClusterSize(own.most_jobs, own.cores * own.most_jobs, own.worker_bytes * own.least_jobs)

    def watch(self, client: Client) -> int:
        return self._watch(list(workers_of(client).values()))

    def _watch(self, workers: list[WorkerFacts]) -> int:
        """Compare workers, queue and dask-jobqueue's entries; replace jobs that are gone."""
        now = time.monotonic()
        connected = {str(worker["name"]) for worker in workers}
        entries = dict(self._cluster.workers)
        try:
            jobs = self._scheduler.jobs(job_name(self._folder))
        except OSError as error:  # without an answer no job can be taken for dead
            self._note_once(f"{self._scheduler.queue[0]} does not answer ({error})")
            return len(workers)
        for name in connected:
            self._connected.setdefault(str(getattr(entries.get(name), "job_id", "")), now)
        gone = {
            name: str(entry.job_id)
            for name, entry in entries.items()
            if name not in connected and str(entry.job_id) not in jobs
        }
        self._all_queued = bool(jobs) and not workers and all(job.state == PENDING for job in jobs.values())
        if gone:
            self._remove(gone, now)
        if len(entries) - len(gone) < len(self._cluster.worker_spec) and now >= self._next_launch:
            self._cluster.scale(len(self._cluster.worker_spec))
        self._write_state(jobs, len(workers))
        return len(workers)

    def _remove(self, gone: dict[str, str], now: float) -> None:
        """Remove the entries of jobs that are gone; early ends count against the budget."""
        early = sum(now - self._connected.get(job, now) < self._options.settled for job in gone.values())
        self._relaunched += len(gone)
        self._deaths = self._deaths + early if early else 0
        message = self._failures[-1] if self._failures else ""
        self._failures.clear()
        submit = self._scheduler.submit[0]
        if message and not any(part in message for part in self._scheduler.transient):
            raise Refused(
                f"{submit} refused a worker job: {message}",
                "correct the cluster profile; dmkl train --dry-run prints the job script",
            )
        if self._deaths > self._profile.relaunches:
            reason = f"; {submit} failed with: {message}" if message else ""
            raise Refused(
                f"{self._deaths} worker jobs died before they had worked for a minute{reason}",
                f"the jobs' logs are in {self._logs}",
            )
        self._cluster.sync(_remove_entries, self._cluster, list(gone), callback_timeout=connections.LIMITS.call)
        self._next_launch = now + min(self._options.longest_delay, 2.0 ** max(0, self._deaths - 2) - 1.0)
        self.note(f"{len(gone)} worker job(s) gone, started again" + (f" ({message})" if message else ""))

    def _write_state(self, jobs: dict[str, QueuedJob], workers: int) -> None:
        """The queue as `dmkl status` shows it."""
        states: dict[str, int] = {}
        for job in jobs.values():
            states[job.state] = states.get(job.state, 0) + 1
        reasons = sorted({job.reason for job in jobs.values() if job.state == PENDING} - {"None", ""})
        facts = {"workers": workers, "jobs": states, "reasons": reasons, "relaunched": self._relaunched}
        where = {"host": platform.node(), "pid": os.getpid(), "user": getpass.getuser()}
        with contextlib.suppress(Exception):  # a full disk is reported where it matters
            write_json(self._folder / STATE_FILE, {"time": time.time(), **facts, **where})
        if self._all_queued:
            queued, why = states.get(PENDING, 0), ", ".join(reasons) or "no reason"
            self._note_once(f"waiting for {self._scheduler.title}: {queued} job(s) queued ({why})")

    def _note_once(self, text: str) -> None:
        if text != self._last_note:
            self.note(text)
        self._last_note = text

    def close(self) -> None:
        close_client(self._client)
        cluster, self._client, self._cluster = self._cluster, None, None
        if cluster is None:
            return
        close_cluster(cluster)
        self._cancel_jobs()
        (self._folder / SCHEDULER_FILE).unlink(missing_ok=True)

    def _cancel_jobs(self) -> None:
        """Cancel the jobs of this run's folder, also those that a killed coordinator left behind."""
        with contextlib.suppress(OSError):
            self._scheduler.cancel_jobs(job_name(self._folder))


async def _remove_entries(cluster: Any, names: list[str]) -> None:
    """Remove entries in the cluster's event loop, so that nothing else changes them meanwhile."""
    for name in names:
        entry = cluster.workers.pop(name, None)
        if entry is not None:
            entry.status = Status.closed


def array_size(scheduler: Scheduler, profile: Profile) -> int:
    """The number of worker jobs that are first submitted as one job array; 0 if jobs are submitted one by one."""
    fixed = 0 if profile.maximum_jobs else profile.jobs
    arrays = scheduler.array and profile.allows(scheduler.array)
    return fixed if arrays and fixed >= OPTIONS.array else 0


def worker_script(scheduler: Scheduler, profile: Profile, folder: Path) -> str:
    """The script of the first worker job, or of the array of all of them, as it is submitted; nothing is started or
    written."""
    secure = {"protocol": "tls://", "security": security(profile.tls)} if profile.tls else {}
    count = array_size(scheduler, profile)
    more = [scheduler.array.format(last=count - 1)] if count else []
    name = f"{NAME}-{scheduler.array_index if count else 0}"
    job = job_class(scheduler)(None, name, **secure, **job_options(scheduler, profile, folder, more))
    return str(job.job_script())


def job_name(folder: Path) -> str:
    """One name for all worker jobs of a run, so that a coordinator finds those that an earlier one left behind."""
    return f"dmkl-{hashlib.blake2b(str(folder.absolute()).encode(), digest_size=4).hexdigest()}"


def job_options(scheduler: Scheduler, profile: Profile, folder: Path, more: Sequence[str] = ()) -> Arguments:
    """A profile and `more` directives as dask-jobqueue's arguments. All that matter are set, so that its own
    configuration files do not."""
    logs = Path(profile.log_directory).expanduser().absolute() if profile.log_directory else folder.absolute()
    arguments = ["--dashboard-address", "127.0.0.1:0"]
    if profile.lifetime:
        lifetime, stagger = profile.lifetime
        arguments += ["--lifetime", f"{lifetime:.0f}s", "--lifetime-stagger", f"{stagger:.0f}s"]
    own: Arguments = scheduler.worker_options(profile, job_name(folder), logs)
    ours = [line for line in own.get("job_extra_directives", ()) if profile.allows(f"{scheduler.directive} {line}")]
    directives = [*ours, *profile.job_extra_directives, *more]
    return {
        "cores": profile.cores,
        "processes": 1,
        "memory": f"{profile.worker_bytes} B",
        "job_name": job_name(folder),
        "job_directives_skip": list(profile.job_directives_skip),
        "job_script_prologue": list(profile.job_script_prologue),
        "interface": profile.interface or None,
        "local_directory": profile.local_directory or None,
        "python": profile.python or sys.executable,
        "worker_extra_args": arguments,
        "death_timeout": OPTIONS.death_timeout,
        "scheduler_file": str(folder.absolute() / SCHEDULER_FILE),
        **own,
        "job_extra_directives": scheduler.extra_directives(directives),
    }


def job_class(scheduler: Scheduler) -> Any:
    """Dask-jobqueue's job class of a scheduler; its workers read the Dask scheduler's address from a file."""
    base: Any = getattr(dask_jobqueue(), scheduler.cluster_class).job_cls

    class WorkerJob(base):  # type: ignore[misc] # dask-jobqueue is imported at run time only, and untyped
        job_id_regexp = f"(?P<job_id>{scheduler.number})"

        def __init__(
            self,
            _address: object = None,
            name: str | None = None,
            *,
            scheduler_file: str,
            failures: list[str] | None = None,
            array: dict[str, str] | None = None,
            **options: Any,
        ) -> None:
            super().__init__(f"--scheduler-file {shlex.quote(scheduler_file)}", name, **options)
            self._failures = failures if failures is not None else []
            self._array = array if array is not None else {}

        async def start(self) -> None:
            if self.name in self._array:
                self.job_id = self._array.pop(self.name)
                await ProcessInterface.start(self)
                return
            try:
                await super().start()
            except (RuntimeError, OSError, ValueError) as error:
                lines = str(error).partition("stderr:")[2].split("\n")
                self._failures.append(next((line.strip() for line in lines if line.strip()), str(error)))
                raise

        async def close(self) -> None:
            await super().close()
            self.status = Status.closed  # dask-jobqueue leaves it as it was, which closing the cluster refuses

        @staticmethod
        async def _call(cmd: list[str], **options: Any) -> str:
            heard = [word.removesuffix(" 2> /dev/null") for word in cmd]  # LSF's command would say nothing
            return str(await base._call(heard, env=scheduler.environment(), **options))

    return WorkerJob


def dask_jobqueue() -> Any:
    """The library, without the SIGINT handler that importing it installs."""
    if threading.current_thread() is not threading.main_thread() and "dask_jobqueue" not in sys.modules:
        raise Refused("dask-jobqueue can only be imported by the main thread", "import dask_jobqueue there first")
    before = signal.getsignal(signal.SIGINT)
    try:
        import dask_jobqueue
    except ImportError:
        raise Refused("dask-jobqueue is not installed", "pip install 'dmkl[jobs]'") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
    return dask_jobqueue
