"""Small computers on this machine: processes with a share of a core, and slow links between them.

A share of a core is a quota of a control group. A computer of its own is a network namespace, whose packets go through
a switch in this process, with a delay and a rate: the kernels of many machines cannot do that. Both need root.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import selectors
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PERIOD = 20_000  # microseconds, of which a process may compute its share
GROUPS = Path("/sys/fs/cgroup")
NAMESPACES = Path("/run/netns")
CLONE_NEWNET, TUNSETIFF, TUN_WITHOUT_HEADER = 0x40000000, 0x400454CA, 0x1001
PACKET = 9000  # bytes at most
BUFFER = 0.25  # seconds that packets may wait for a link, before it drops more
SUBNET = "10.78.0"


@contextlib.contextmanager
def core_share(name: str, share: float) -> Iterator[Path]:
    """The file that takes the numbers of processes that together may use so much of a core; they have to end first."""
    first_version = GROUPS / "cpu" / "cpu.shares"
    folder = (GROUPS / "cpu" if first_version.exists() else GROUPS) / name
    folder.mkdir()
    try:
        quota = int(share * PERIOD)
        if first_version.exists():
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (folder / "cpu.max").write_text(f"{quota} {PERIOD}")
        yield folder / "cgroup.procs"
    finally:
        folder.rmdir()


@dataclass(frozen=True)
class Link:
    """A network that every packet crosses: the delay, and the rate of each computer either way."""

    delay: float  # seconds from one computer to another
    rate: float  # bytes per second


@dataclass
class Port:
    """Where the packets of one computer come from and go to."""

    file: int
    sending: float = 0.0  # until when its link is busy,
    receiving: float = 0.0  # either way


@dataclass
class Switch:
    """Computers with a link each. Packets are handed on in one thread."""

    link: Link
    names: Sequence[str]
    ports: dict[int, Port] = field(default_factory=dict)  # by the last number of the address

    def address(self, name: str) -> str:
        return f"{SUBNET}.{self.names.index(name) + 1}"

    def command(self, name: str) -> list[str]:
        """What is put before a command that runs on this computer."""
        return ["ip", "netns", "exec", name]

    def __enter__(self) -> Switch:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        try:
            for name in self.names:
                ip("netns", "add", name)
                port = _in_namespace(name, _tun)
                self.ports[self.names.index(name) + 1] = Port(port)
                for command in (
                    ("link", "set", "lo", "up"),
                    ("address", "add", f"{self.address(name)}/24", "dev", "eth0"),
                    ("link", "set", "eth0", "mtu", str(PACKET), "up"),
                ):
                    ip("-n", name, *command)
        except BaseException:
            self._close()
            raise
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._close()

    def _close(self) -> None:
        for port in self.ports.values():
            os.close(port.file)
        for name in self.names:
            if (NAMESPACES / name).exists():
                ip("netns", "delete", name)

    def _run(self) -> None:
        due: list[tuple[float, int, int, bytes]] = []  # (when, a running number, to whom, what)
        number = 0
        with selectors.DefaultSelector() as ready:
            for port in self.ports.values():
                ready.register(port.file, selectors.EVENT_READ, port)
            while not self._ended.is_set():
                wait = min(0.1, due[0][0] - time.monotonic()) if due else 0.1
                for key, _ in ready.select(max(wait, 0.0)):
                    packet, now = os.read(key.fd, PACKET + 100), time.monotonic()
                    number += 1
                    self._send(key.data, packet, now, number, due)
                while due and due[0][0] <= time.monotonic():
                    _, _, place, packet = heapq.heappop(due)
                    with contextlib.suppress(OSError):
                        os.write(self.ports[place].file, packet)

    def _send(
        self, sender: Port, packet: bytes, now: float, number: int, due: list[tuple[float, int, int, bytes]]
    ) -> None:
        """Queue an IPv4 packet to one of the computers, or drop it, as a switch does whose links are busy."""
        if packet[0] >> 4 != 4 or packet[19] not in self.ports:
            return
        receiver, took = self.ports[packet[19]], len(packet) / self.link.rate
        left = max(now, sender.sending) + took
        arrived = max(left, receiver.receiving) + took
        if arrived - now > BUFFER:
            return
        sender.sending, receiver.receiving = left, arrived
        heapq.heappush(due, (arrived + self.link.delay, number, packet[19], packet))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


def _in_namespace(name: str, work: Callable[[], int]) -> int:
    """What a function gives in a network namespace; only a thread of its own goes there."""
    found: list[int] = []
    errors: list[BaseException] = []

    def there() -> None:
        try:
            namespace = os.open(NAMESPACES / name, os.O_RDONLY)
            if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            os.close(namespace)
            found.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=there)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


def _tun() -> int:
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH14s", b"eth0", TUN_WITHOUT_HEADER, b""))
    return file
