"""A worker job as SLURM is told of it: dask-jobqueue's script from a profile, and SLURM's own commands.

Everything here but `command` is text from values, so it is tested where there is no SLURM.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from dmkl.runtime.keys import security
from dmkl.runtime.links import Refused
from dmkl.runtime.profile import Profile, slurm_time

NAME = "dmkl"  # of the Dask cluster; its workers are dmkl-0, dmkl-1 ...
COMMAND_SECONDS = 20.0  # for squeue, scancel and sbatch
SCHEDULER = "scheduler.json"


class Job(NamedTuple):
    """A line of squeue."""

    state: str
    reason: str


def job_name(folder: Path) -> str:
    """One name for all worker jobs of a run, so that a coordinator finds those its predecessor left."""
    return f"dmkl-{hashlib.blake2b(str(folder.absolute()).encode(), digest_size=4).hexdigest()}"


def dask_jobqueue() -> Any:
    """The library, without the SIGINT handler that importing it installs."""
    if threading.current_thread() is not threading.main_thread() and "dask_jobqueue" not in sys.modules:
        raise Refused("dask-jobqueue can only be imported by the main thread", "import dask_jobqueue there first")
    before = signal.getsignal(signal.SIGINT)
    try:
        import dask_jobqueue
    except ImportError:
        raise Refused("dask-jobqueue is not installed", "pip install 'dmkl[slurm]'") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
    return dask_jobqueue


def options(profile: Profile, folder: Path) -> dict[str, Any]:
    """A profile in dask-jobqueue's words. Nothing is left to its own configuration files that would be missed."""
    logs = Path(profile.log_directory).expanduser().absolute() if profile.log_directory else folder.absolute()
    arguments = ["--dashboard-address", "127.0.0.1:0"]
    if profile.lifetime:
        lifetime, stagger = profile.lifetime
        arguments += ["--lifetime", f"{lifetime:.0f}s", "--lifetime-stagger", f"{stagger:.0f}s"]
    return {
        "queue": profile.queue or None,
        "account": profile.account or None,
        "cores": profile.cores,
        "processes": 1,
        "memory": f"{profile.worker_bytes} B",
        "job_mem": f"{profile.job_megabytes}M",
        "walltime": slurm_time(profile.walltime),
        "job_name": job_name(folder),
        "job_extra_directives": [f"-o {shlex.quote(str(logs / 'worker-%j.log'))}", *profile.job_extra_directives],
        "job_directives_skip": list(profile.job_directives_skip),
        "job_script_prologue": list(profile.job_script_prologue),
        "interface": profile.interface or None,
        "local_directory": profile.local_directory or None,
        "python": profile.python or sys.executable,
        "worker_extra_args": arguments,
        "death_timeout": 60,
        "scheduler_file": str(folder.absolute() / SCHEDULER),
    }


def job_class() -> Any:
    """dask-jobqueue's job, told of the scheduler by a file: so the script is the same whatever the port."""
    base: Any = dask_jobqueue().SLURMCluster.job_cls

    class WorkerJob(base):  # type: ignore[misc] # dask-jobqueue is there at run time only, and untyped
        def __init__(
            self,
            scheduler: Any = None,
            name: Any = None,
            *,
            scheduler_file: str,
            failures: list[str] | None = None,
            **options: Any,
        ) -> None:
            super().__init__(f"--scheduler-file {shlex.quote(scheduler_file)}", name, **options)
            self._failures = failures if failures is not None else []

        async def _submit_job(self, script_filename: str) -> str:
            try:
                return str(await self._call(["sbatch", script_filename], env=outside()))
            except (RuntimeError, OSError) as error:
                said = str(error).partition("stderr:")[2].split("\n")
                self._failures.append(next((line.strip() for line in said if line.strip()), str(error)))
                raise

    return WorkerJob


def outside() -> dict[str, str]:
    """The environment without what SLURM tells a job of itself, which the jobs it submits would take for theirs."""
    kept = ("SLURM_CONF", "SLURM_CLUSTERS")
    return {key: value for key, value in os.environ.items() if not key.startswith("SLURM") or key in kept}


def job_script(profile: Profile, folder: Path) -> str:
    """What sbatch is given for the first worker; nothing is started or written."""
    secure = {"protocol": "tls://", "security": security(profile.tls)} if profile.tls else {}
    job = job_class()(None, f"{NAME}-0", config_name="slurm", **secure, **options(profile, folder))
    return str(job.job_script())


def command(*words: str) -> str:
    """What a SLURM command says; OSError when it fails or takes too long."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False, env=outside()
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{words[0]} took more than {COMMAND_SECONDS:.0f} s") from error
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or [f"{words[0]} failed"])[-1])
    return done.stdout


def queued(*selection: str) -> dict[str, Job]:
    """Jobs of this user in the queue."""
    lines = (line.split("|") for line in command("squeue", "--me", "-h", "-o", "%A|%T|%r", *selection).splitlines())
    return {line[0]: Job(line[1], line[2]) for line in lines if len(line) == 3}
