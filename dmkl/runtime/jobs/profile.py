"""The profile of a cluster: what a site wants of worker jobs and of the coordinator's job, read strictly from TOML.

`--cluster slurm` reads `cluster/slurm.toml`, and `slurm:NAME` reads `cluster/NAME.toml` (both are searched in the
current folder, then in `~/.config/dmkl`); `slurm:PATH.toml` reads that file. A `[cluster]` table of the experiment, or
`-s cluster.KEY=VALUE`, replaces single values. `dmkl cluster profile slurm` prints a profile with every key.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dmkl._util.units import parse_bytes, parse_seconds
from dmkl.config import construct, key, require_table, toml_value
from dmkl.errors import ConfigError, did_you_mean

PLACES = (Path("cluster"), Path("~/.config/dmkl"))
WALLTIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d)")
WIDTH = 36  # columns of the template before the comments


@dataclass(frozen=True)
class JobLimits:
    """Memory and lifetime of a worker inside the memory and walltime of its job.

    Attributes
    ----------
    supervisor_bytes
        Bytes of the job's memory for the worker's supervisor (Dask's nanny), which is a Python of its own.
    least_share
        The share of a small job's memory that the worker gets at least.
    shortest
        Seconds of walltime below which workers do not leave before it.
    margin
        Seconds before the walltime by which every worker has left.
    stagger_share, least_stagger, most_stagger
        The spread of the times at which workers leave: a share of the walltime, between two numbers of seconds.
    """

    supervisor_bytes: int = 256 << 20
    least_share: float = 0.75
    shortest: float = 180.0
    margin: float = 30.0
    stagger_share: float = 0.1
    least_stagger: float = 20.0
    most_stagger: float = 900.0


LIMITS = JobLimits()


@dataclass(frozen=True)
class CoordinatorProfile:
    """The job of `dmkl submit`. An empty queue, account or walltime is that of the workers."""

    queue: str = key("", "partition or queue; default: that of the workers")
    account: str = key("", "default: that of the workers")
    cores: int = key(1, "threads of the coordinator")
    memory: str = key("4 GB", "of the job")
    walltime: str = key("", "default: that of the workers")
    job_extra_directives: tuple[str, ...] = key((), "more directives of the scheduler")
    notice: str = key("3 m", "time before its walltime at which it stops its workers and goes back into the queue")
    requeues: int = key(100, "how often it goes back into the queue before it gives up")


@dataclass(frozen=True)
class Profile:
    """The jobs of a batch scheduler. Each job is one worker process with `cores` threads, because dask-jobqueue never
    replaces a job that held several."""

    queue: str = key("", "partition or queue")
    account: str = key("", "the account or project that pays")
    cores: int = key(1, "threads of a worker; a job is one worker")
    memory: str = key("4 GB", "of a job")
    walltime: str = key("1 h", "of a job; [DAYS-]HH:MM:SS works too")
    jobs: int = key(2, "number of worker jobs")
    minimum_jobs: int = key(0, "with maximum_jobs: the number of jobs follows the work, between the two")
    maximum_jobs: int = key(0, "0: always as many jobs as `jobs` says")
    job_extra_directives: tuple[str, ...] = key((), "more directives of the scheduler")
    job_directives_skip: tuple[str, ...] = key((), "parts of directives that the site refuses")
    job_script_prologue: tuple[str, ...] = key((), "shell lines before the command, such as 'module load python'")
    interface: str = key("", "network interface of scheduler and workers; default: the host's own address")
    port: int = key(0, "of the Dask scheduler; 0: any free port")
    local_directory: str = key("", "folder for temporary files of workers, such as /scratch")
    log_directory: str = key("", "folder for the logs of jobs; default: RUN/cluster")
    python: str = key("", "default: the Python that runs dmkl")
    tls: bool | str = key(False, "true: encrypt with the keys of `dmkl cluster keys`; or the folder of the keys")
    insecure: bool = key(False, "true: allow a network without encryption")
    wait: str = key("24 h", "how long to wait for a first worker while all jobs are queued")
    relaunches: int = key(20, "number of jobs that may end within their first minute before the run stops")
    coordinator: CoordinatorProfile = field(
        default_factory=CoordinatorProfile, metadata={"means": "the job of `dmkl submit`"}
    )

    @property
    def most_jobs(self) -> int:
        return self.maximum_jobs or self.jobs

    @property
    def least_jobs(self) -> int:
        """The number of jobs whose memory can be counted on."""
        return max(1, self.minimum_jobs) if self.maximum_jobs else self.jobs

    @property
    def worker_bytes(self) -> int:
        """A worker's limit, below its job's, so that its supervisor notices before the scheduler ends both."""
        whole = parse_bytes(self.memory)
        return max(whole - LIMITS.supervisor_bytes, int(LIMITS.least_share * whole))

    @property
    def lifetime(self) -> tuple[float, float] | None:
        """Seconds after which a worker leaves by itself, and the spread of that time between workers; None for short
        jobs. A worker that is ended at its walltime loses its results, and so do workers that leave together."""
        whole = seconds_of(self.walltime)
        if whole < LIMITS.shortest:
            return None
        stagger = max(LIMITS.least_stagger, min(LIMITS.stagger_share * whole, LIMITS.most_stagger))
        return whole - LIMITS.margin - stagger, stagger

    def allows(self, directive: str) -> bool:
        """Whether the site takes a directive."""
        return not any(part in directive for part in self.job_directives_skip)

    @property
    def submission(self) -> CoordinatorProfile:
        """The coordinator's job, its empty values filled in from the workers'."""
        own = self.coordinator
        return replace(
            own,
            queue=own.queue or self.queue,
            account=own.account or self.account,
            walltime=own.walltime or self.walltime,
        )


def read_profile(cluster: str, overrides: Mapping[str, object] | None = None) -> Profile:
    """Read and check a profile, before anything is started.

    Parameters
    ----------
    cluster
        The text of --cluster: 'SCHEDULER', 'SCHEDULER:NAME' or 'SCHEDULER:PATH.toml'.
    overrides
        Values that replace those of the file.

    Raises
    ------
    ConfigError
        If there is no such file, or a key or value is wrong.
    """
    path = _find(cluster)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read the cluster profile {path}: {error}") from None
    where = f"the cluster profile {path}"
    values = {**table, **(overrides or {})}
    nested = [require_table(source.get("coordinator", {}), f"coordinator of {where}") for source in (table, values)]
    values["coordinator"] = {**nested[0], **nested[1]}
    profile = construct(Profile, values, where)
    _check(profile, where)
    return profile


def _find(cluster: str) -> Path:
    scheduler, _, named = cluster.partition(":")
    name = named or scheduler
    if name.endswith(".toml"):
        candidates = [Path(name).expanduser()]
    else:
        candidates = [place.expanduser() / f"{name}.toml" for place in PLACES]
    for path in candidates:
        if path.is_file():
            return path
    known = sorted({path.stem for place in PLACES for path in place.expanduser().glob("*.toml")})
    made = f"make one: mkdir -p {PLACES[0]}; dmkl cluster profile {scheduler} > {PLACES[0]}/{scheduler}.toml"
    searched = " or ".join(str(path) for path in candidates)
    raise ConfigError(f"no cluster profile {searched}", did_you_mean(name, known) if named and known else made)


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


def template(name: str, title: str, notes: Sequence[str] = ()) -> str:
    """A profile with every key, its default and its meaning, as TOML: valid, and for this one machine.

    Parameters
    ----------
    name, title
        The scheduler's name in --cluster and in messages.
    notes
        Lines on what is particular to the scheduler.
    """
    own = {"interface": "lo"}
    meanings = {"interface": 'of scheduler and workers; "lo" is this machine only'}
    lines = [
        f"# The jobs that dmkl starts through {title}: dmkl train CONFIG --cluster {name}",
        f"# Save this as cluster/{name}.toml or as ~/.config/dmkl/{name}.toml. More profiles are more files, for",
        f"# --cluster {name}:NAME. Values behind a # are defaults. One value for one run: -s cluster.walltime='8 h'.",
        f"# Print the job script without starting anything: dmkl train CONFIG --cluster {name} --dry-run",
        "#",
        '# An interface that other machines reach, such as "ib0", needs tls = true and keys: `dmkl cluster keys` makes',
        "# them in a folder that all nodes see; or insecure = true on a network that nobody else uses.",
        *(["#"] if notes else []),
        *(f"# {note}" for note in notes),
        "",
    ]
    for table in (Profile, CoordinatorProfile):
        if table is CoordinatorProfile:
            lines += ["", "[coordinator]  # the job of `dmkl submit`"]
        for one in dataclasses.fields(table):
            if one.name != "coordinator":
                value, means = own.get(one.name, one.default), meanings.get(one.name, one.metadata["means"])
                setting = ("" if one.name in own else "# ") + f"{one.name} = {toml_value(value)}"
                lines.append(f"{setting:<{WIDTH}}# {means}")
    return "\n".join(lines) + "\n"


def seconds_of(walltime: str) -> float:
    """The seconds of '2 h' or '30 m' as everywhere in dmkl, or of '1-12:00:00' and '02:00:00'."""
    match = WALLTIME.fullmatch(walltime.strip())
    if match is None:
        return parse_seconds(walltime)
    days, hours, minutes, seconds = (int(match[part] or 0) for part in ("days", "h", "m", "s"))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def clock_time(walltime: str) -> str:
    """The same as HH:MM:SS."""
    minutes, seconds = divmod(round(seconds_of(walltime)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}"


def megabytes(memory: str) -> int:
    """An amount of memory in units of 2^20 bytes, rounded up."""
    return -(-parse_bytes(memory) // (1 << 20))
