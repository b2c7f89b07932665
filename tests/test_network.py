"""A network that is really cut during a run: coordinator and workers are in separate network namespaces.

The cut is as short as the limits of distributed, lowered here, allow it to be noticed. A whole minute, with the limits
that users have: DMKL_CUT=60 python -m pytest -m long tests/test_network.py
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import assert_same_model
from test_crash import write_data

pytestmark = pytest.mark.long

CUT = float(os.environ.get("DMKL_CUT", "20"))  # seconds
NOTICED = {} if CUT >= 60 else {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s"}  # distributed fails below 11
LIMIT = 300.0 + 2 * CUT
HEAD, BACK = "10.77.0.1", "10.77.0.2"
IMPATIENT = """
import sys
from dmkl.cli.main import main
from dmkl.runtime import connections
connections.LIMITS = connections.ConnectionLimits(patience=20.0)
sys.exit(main(sys.argv[1:]))
"""


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True, timeout=30).stdout


class Hosts:
    """Two hosts with a cable between them: `head`, where the coordinator is, and `back`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = {place: f"dmkl-{os.getpid()}-{place}" for place in ("head", "back")}
        self._started: list[subprocess.Popen[str]] = []

    def up(self) -> None:
        for name in self.names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        head, back = self.names.values()
        ip("-n", head, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", back)
        for name, address in ((head, HEAD), (back, BACK)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def cable(self, state: str) -> None:
        ip("-n", self.names["back"], "link", "set", "eth0", state)

    def start(self, place: str, *command: str) -> subprocess.Popen[str]:
        """A command on a host, in a process group of its own."""
        log = (self.folder / f"{place}.log").open("a")
        with log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.names[place], *command],
                cwd=self.folder,
                env={**os.environ, **NOTICED},
                stdout=subprocess.PIPE if "train" in command else log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def dask(self, place: str, *arguments: str, again: bool = False) -> None:
        """Start a Dask command; with `again` it is started again whenever it ends, as a service manager does."""
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        forever = ["sh", "-c", 'while :; do "$@"; sleep 1; done', "again"] if again else []
        self.start(place, *forever, *command)

    def scheduler(self, place: str, address: str) -> str:
        """Start a scheduler, and wait until it answers; its address."""
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        self.dask(place, "scheduler", "--host", address, "--port", "8786", "--scheduler-file", str(file))
        until(file.exists, self._started[-1])
        return f"tcp://{address}:8786"

    def down(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for name in self.names.values():
            with contextlib.suppress(subprocess.CalledProcessError):
                for pid in ip("netns", "pids", name).split():  # workers, whose nannies are in other groups
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                ip("netns", "delete", name)


@pytest.fixture
def hosts(calm: Path) -> Iterator[Hosts]:
    hosts = Hosts(calm)
    try:
        try:
            hosts.up()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces are not allowed here ({getattr(error, 'stderr', error)})")
        yield hosts
    finally:
        hosts.down()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and the model of the in-process run."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the ip command (iproute2)")
    folder = tmp_path_factory.mktemp("network")
    write_data(folder, 60)
    command = [sys.executable, "-m", "dmkl", "train", "config.toml", "-q", "-o", "calm", "-s", "run.kernels=store"]
    subprocess.run(command, cwd=folder, check=True, timeout=LIMIT)
    return folder


def train(hosts: Hosts, out: str, address: str, *, impatient: bool = False) -> subprocess.Popen[str]:
    program = ["-c", IMPATIENT] if impatient else ["-m", "dmkl"]
    arguments = (
        "train",
        "config.toml",
        "-o",
        out,
        "-s",
        "run.kernels=store",
        "--cluster",
        address,
        "-s",
        "cluster.insecure=true",
    )
    return hosts.start("head", sys.executable, *program, *arguments)


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def cut_in_the_middle(hosts: Hosts, process: subprocess.Popen[str], out: str) -> float:
    """Cut the network for a while in the middle of a run; the time of the cut."""
    until((hosts.folder / out / "checkpoint").exists, process)
    hosts.cable("down")
    moment = time.time()
    time.sleep(CUT)
    hosts.cable("up")
    return moment


def assert_same(folder: Path, out: str, after: float) -> None:
    assert_same_model(folder / "calm", folder / out)
    events = [json.loads(line) for line in (folder / out / "events.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "RoundDone"]
    assert rounds[-1]["time"] > after, "the cut came after the last round"


def ended(process: subprocess.Popen[str], code: int) -> str:
    said = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == code, said
    return said


def test_a_coordinator_that_was_cut_off_connects_again(hosts: Hosts) -> None:
    address = hosts.scheduler("back", BACK)
    for _ in range(2):
        hosts.dask("back", "worker", address, "--nthreads", "1")
    process = train(hosts, "coordinator", address)
    after = cut_in_the_middle(hosts, process, "coordinator")
    said = ended(process, 0)
    assert "the cluster is gone" in said
    assert_same(hosts.folder, "coordinator", after)


def test_workers_that_were_cut_off_and_started_again_change_nothing(hosts: Hosts) -> None:
    address = hosts.scheduler("head", HEAD)
    for _ in range(2):
        hosts.dask("back", "worker", address, "--nthreads", "1", again=True)
    process = train(hosts, "workers", address)
    after = cut_in_the_middle(hosts, process, "workers")
    ended(process, 0)
    assert_same(hosts.folder, "workers", after)


def test_workers_that_never_come_back_end_the_run_in_one_line(hosts: Hosts) -> None:
    address = hosts.scheduler("head", HEAD)
    hosts.dask("back", "worker", address, "--nthreads", "1")
    process = train(hosts, "lonely", address, impatient=True)
    until((hosts.folder / "lonely/checkpoint").exists, process)
    hosts.cable("down")
    said = ended(process, 7)
    assert "the cluster has had no worker for 20 s" in said
    assert "run the same command again; it continues from its checkpoint" in said
    hosts.cable("up")
    after = time.time()
    hosts.dask("back", "worker", address, "--nthreads", "1")
    ended(train(hosts, "lonely", address), 0)
    assert_same(hosts.folder, "lonely", after)
