"""A SLURM profile: what a cluster wants to be told, read strictly from TOML; every value can be overridden.

`--cluster slurm` reads `cluster/slurm.toml`, `slurm:NAME` `cluster/NAME.toml` (both looked for here, then in
`~/.config/dmkl`), and `slurm:PATH.toml` that file. A `[cluster]` table of the experiment, or `-s cluster.KEY=VALUE`,
replaces single values.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dmkl._util.units import parse_bytes, parse_seconds
from dmkl.config import construct
from dmkl.errors import ClusterError, ConfigError, did_you_mean

PLACES = (Path("cluster"), Path("~/.config/dmkl"))
NANNY_BYTES = 256 << 20  # of a job's memory that the worker's supervisor and its Python take
SHORT = 180.0  # seconds: jobs this short are left to their walltime
MARGIN = 30.0  # seconds before the walltime by which every worker has left
WALLTIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d)")


@dataclass(frozen=True)
class Coordinator:
    """The job of `dmkl submit`. What is empty is taken from the workers' values."""

    queue: str = ""
    account: str = ""
    cores: int = 1
    memory: str = "4 GB"
    walltime: str = ""
    job_extra_directives: tuple[str, ...] = ()
    notice: str = "3 m"  # before the walltime: when it stops its workers and puts itself back into the queue
    requeues: int = 100  # then it gives up


@dataclass(frozen=True)
class Profile:
    """Worker jobs, one process each: `cores` threads, because dask-jobqueue never replaces one of several processes."""

    queue: str = ""
    account: str = ""
    cores: int = 1
    memory: str = "4 GB"
    walltime: str = "1 h"  # or SLURM's own [DAYS-]HH:MM:SS
    jobs: int = 2
    minimum_jobs: int = 0  # with maximum_jobs: as many jobs as there is work for, between the two
    maximum_jobs: int = 0
    job_extra_directives: tuple[str, ...] = ()
    job_directives_skip: tuple[str, ...] = ()
    job_script_prologue: tuple[str, ...] = ()
    interface: str = ""  # network interface of scheduler and workers; default: the host's own address
    port: int = 0  # of the scheduler; 0 = any
    local_directory: str = ""
    log_directory: str = ""  # default: RUN/cluster
    python: str = ""  # default: the Python that runs dmkl
    tls: bool | str = False  # true: the keys of `dmkl cluster keys`; or the folder they are in
    insecure: bool = False  # allow a network without TLS
    wait: str = "24 h"  # how long to wait for a first worker while all jobs are queued
    relaunches: int = 20  # jobs that may die before they have worked for a minute
    coordinator: dict[str, Any] = field(default_factory=dict)

    @property
    def most_jobs(self) -> int:
        return self.maximum_jobs or self.jobs

    @property
    def least_jobs(self) -> int:
        """Jobs whose memory is counted on."""
        return max(1, self.minimum_jobs) if self.maximum_jobs else self.jobs

    @property
    def worker_bytes(self) -> int:
        """A worker's limit stays below its job's, so that its nanny notices before SLURM kills both."""
        whole = parse_bytes(self.memory)
        return max(whole - NANNY_BYTES, int(0.75 * whole))

    @property
    def job_megabytes(self) -> int:
        return -(-parse_bytes(self.memory) // (1 << 20))

    @property
    def lifetime(self) -> tuple[float, float] | None:
        """Seconds after which a worker leaves by itself and their spread: SIGTERM at the walltime loses results, and
        so do workers that leave together."""
        whole = seconds_of(self.walltime)
        if whole < SHORT:
            return None
        stagger = max(20.0, min(0.1 * whole, 900.0))
        return whole - MARGIN - stagger, stagger

    @property
    def submission(self) -> Coordinator:
        own = construct(Coordinator, self.coordinator, "[coordinator] of the cluster profile")
        return replace(
            own,
            queue=own.queue or self.queue,
            account=own.account or self.account,
            walltime=own.walltime or self.walltime,
        )


def read_profile(name: str, overrides: Mapping[str, Any] | None = None) -> Profile:
    """The profile of 'slurm' or 'slurm:NAME_OR_PATH', checked before anything is started."""
    path = _found(name)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read the cluster profile {path}: {error}") from None
    overrides = dict(overrides or {})
    where = f"the cluster profile {path}"
    own = [table.get("coordinator", {}), overrides.pop("coordinator", {})]
    if not all(isinstance(part, dict) for part in own):
        raise ConfigError(f"coordinator of {where} should be a table")
    nested = {**own[0], **own[1]}
    profile = construct(Profile, {**table, **overrides, **({"coordinator": nested} if nested else {})}, where)
    _check(profile, where)
    return profile


def _found(cluster: str) -> Path:
    _, _, name = cluster.partition(":")
    if name.endswith(".toml"):
        candidates = [Path(name).expanduser()]
    else:
        candidates = [place.expanduser() / f"{name or 'slurm'}.toml" for place in PLACES]
    for path in candidates:
        if path.is_file():
            return path
    known = sorted({path.stem for place in PLACES for path in place.expanduser().glob("*.toml")})
    looked = " or ".join(str(path) for path in candidates)
    hint = did_you_mean(name or "slurm", known) if known else "start from cluster/slurm.toml of dmkl's repository"
    raise ConfigError(f"no cluster profile {looked}", hint)


def _check(profile: Profile, where: str) -> None:
    coordinator = profile.submission
    for text in (profile.memory, coordinator.memory):
        parse_bytes(text)
    for text in (profile.walltime, coordinator.walltime):
        seconds_of(text)
    for text in (profile.wait, coordinator.notice):
        parse_seconds(text)
    if min(profile.cores, profile.jobs, coordinator.cores) < 1 or profile.relaunches < 0 or coordinator.requeues < 0:
        raise ConfigError(f"cores and jobs of {where} should be at least 1, relaunches and requeues at least 0")
    if profile.maximum_jobs < profile.minimum_jobs or profile.minimum_jobs < 0:
        raise ConfigError(f"maximum_jobs of {where} should be at least minimum_jobs")
    if not 0 <= profile.port < 65536:
        raise ConfigError(f"port of {where} should be below 65536")


def seconds_of(walltime: str) -> float:
    """'2 h' as everywhere in dmkl, or SLURM's '1-12:00:00' and '02:00:00'."""
    match = WALLTIME.fullmatch(walltime.strip())
    if match is None:
        return parse_seconds(walltime)
    days, hours, minutes, seconds = (int(match[part] or 0) for part in ("days", "h", "m", "s"))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def slurm_time(walltime: str) -> str:
    """The same as SLURM reads it."""
    minutes, seconds = divmod(round(seconds_of(walltime)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}"


def is_loopback(host: str) -> bool:
    """Whether an address, a host or an interface is reached from this machine only."""
    if host in ("lo", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        pass
    if host in {name for _, name in socket.if_nameindex()}:
        return False
    try:
        return all(ipaddress.ip_address(str(info[4][0])).is_loopback for info in socket.getaddrinfo(host, None))
    except (OSError, ValueError):
        return False


def require_private(host: str, *, tls: bool | str, insecure: bool) -> None:
    """A scheduler and its workers run what they are sent: beyond loopback only with TLS, or when told so in so many
    words. `host` is an address, a name or an interface; '' is the host's own public address."""
    if tls or insecure or is_loopback(host):
        return
    raise ClusterError(
        f"a scheduler on {host or 'a public address'} without TLS would run anybody's code",
        "make keys with: dmkl cluster keys, and use tls:// or, of SLURM, tls = true "
        "(on a network that is yours alone: -s cluster.insecure=true)",
    )
