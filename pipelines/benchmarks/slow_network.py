"""Dask's own scheduler and workers on this machine, with a network between them of a chosen delay."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def slow(address: str, delay: float) -> Iterator[str]:
    """Another address of a scheduler, which delays every byte."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    ready, found = threading.Event(), []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def send() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(due - time.monotonic())
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()

        sender = asyncio.create_task(send())
        while data := await reader.read(1 << 20):
            queue.put_nowait((time.monotonic() + delay, data))
        queue.put_nowait((time.monotonic() + delay, b""))
        await sender

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        with contextlib.suppress(asyncio.CancelledError):  # the end
            await asyncio.gather(forward(reader, back), forward(there, writer), return_exceptions=True)

    async def serve() -> None:
        stop = asyncio.Event()
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        found.extend((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), stop))
        ready.set()
        await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    own, loop, stop = found
    try:
        yield f"tcp://127.0.0.1:{own}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def started(program: str, *arguments: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """One of Dask's programs; `before` is put before its command."""
    command = [*before, sys.executable, "-m", f"distributed.cli.{program}", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def address_in(file: Path) -> str:
    """The address that a scheduler writes to its file."""
    while not (file.exists() and file.read_text()):
        time.sleep(0.1)
    return str(json.loads(file.read_text())["address"])


@contextmanager
def ended_together() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the block."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        yield processes
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def workers(count: int, delay: float) -> Iterator[str]:
    """A scheduler and workers, with a delay between them if one is given."""
    with tempfile.TemporaryDirectory() as name, ended_together() as processes:
        file = Path(name) / "scheduler.json"
        here = ("--host", "127.0.0.1", "--no-dashboard")
        processes.append(started("dask_scheduler", *here, "--port", "0", "--scheduler-file", str(file)))
        with slow(address_in(file), delay) as address:
            for _ in range(count):
                local = ("--local-directory", name, "--memory-limit", "6 GB")
                processes.append(started("dask_worker", address, *here, "--nthreads", "1", *local))
            yield address
