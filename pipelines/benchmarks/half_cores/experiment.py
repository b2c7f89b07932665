"""A fit on one, two and four workers of half a core each, without and with slow links between them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pipelines.benchmarks.half_cores.hosts import Link, Switch, core_share
from pipelines.benchmarks.slow_network import address_in, ended_together, started
from pipelines.common.caltech256 import write_shape
from pipelines.common.commands import dmkl
from pipelines.common.data import MissingData
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table

SHARE = 0.5  # of a core, for each worker
SLOW = Link(delay=0.02, rate=12.5e6)
LINKS: dict[str, Link | None] = {"fast links": None, "slow links": SLOW}
GOALS = {"fast links": 3.4, "slow links": 3.0}
WORKER_MEMORY = "4 GB"
MEASURED = "seconds", "faster", "processor, s", "waited, %"


def run(context: Context) -> Outcome:
    check_rights()
    settings = context.settings
    best: dict[tuple[str, int], Row] = {}
    with tempfile.TemporaryDirectory(dir=context.folder) as name:
        folder = Path(name)
        write_shape(folder, settings["classes"])
        dmkl(folder, "kernels", "config.toml", "-o", "k.zarr")
        for repeat in range(settings["repeats"]):
            for links, link in LINKS.items():
                for count in settings["workers"]:
                    key = f"{links}, {count} workers, {repeat}"
                    job = context.cell(
                        key, lambda count=count, link=link: fitted(folder, count, link, settings["memory"])
                    )
                    context.progress(f"{key}: {job['seconds']:.2f} s")
                    if (links, count) not in best or job["seconds"] < best[links, count]["seconds"]:
                        best[links, count] = job
    tables = [Table(f"A fit, {links}", rows_of(links, best), MEASURED) for links in LINKS]
    most = max(settings["workers"])
    goals = [
        Goal(
            f"{links}: {most} workers, times as fast as one",
            faster(links, most, best),
            ">=",
            GOALS[links],
            measured=True,
        )
        for links in LINKS
    ]
    different = len({job["bits"] for job in best.values()}) - 1
    return Outcome(tables, [*goals, Goal("fits that differ in a bit", different, "<=", 0)])


def check_rights() -> None:
    """MissingData unless small computers can be made here."""
    name = f"dmkl-{os.getpid()}-probe"
    try:
        with core_share(name, SHARE), Switch(SLOW, [name]):
            pass
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingData(f"control groups or network namespaces cannot be made here ({error})") from error


def rows_of(links: str, best: dict[tuple[str, int], Row]) -> list[Row]:
    return [
        {
            "workers": count,
            "seconds": job["seconds"],
            "faster": faster(links, count, best),
            "processor, s": job["busy"],
            "waited, %": 100 * job["waited"],
            "tasks": job["tasks"],
            "bits": job["bits"],
        }
        for (where, count), job in sorted(best.items())
        if where == links
    ]


def faster(links: str, count: int, best: dict[tuple[str, int], Row]) -> float:
    return float(best[links, 1]["seconds"]) / float(best[links, count]["seconds"])


def fitted(folder: Path, count: int, link: Link | None, memory: int) -> Row:
    """A fit on so many workers, with a coordinator in a process of its own."""
    with cluster(folder, count, link) as (address, before):
        command = [*before, sys.executable, "-m", "pipelines.benchmarks.cluster.job", "fit", str(folder)]
        options = ["--cluster", address, "--workers", str(count), "--memory", str(memory)]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        found: Row = json.loads(done.stdout)
        return found


@contextlib.contextmanager
def cluster(folder: Path, count: int, link: Link | None) -> Iterator[tuple[str, list[str]]]:
    """A scheduler and workers: its address, and what is put before the coordinator's command."""
    names = [f"dmkl-{os.getpid()}-{number}" for number in range(count + 1)]
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(Switch(link, names)) if link else None
        places = [switch.command(name) if switch else [] for name in names]
        hosts = [switch.address(name) if switch else "127.0.0.1" for name in names]
        shares = [stack.enter_context(core_share(name, SHARE)) for name in names[1:]]
        local = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        file = Path(local) / "scheduler.json"
        processes = stack.enter_context(ended_together())
        scheduler = ["--host", hosts[0], "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        processes.append(started("dask_scheduler", *scheduler, before=places[0]))
        address = address_in(file)
        for place, host, share in zip(places[1:], hosts[1:], shares, strict=True):
            worker = [address, "--host", host, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
            worker += ["--local-directory", local, "--memory-limit", WORKER_MEMORY]
            limited = ["sh", "-c", f'echo $$ > {share} && exec "$@"', "sh", *place]
            processes.append(started("dask_worker", *worker, before=limited))
        yield address, places[0]
