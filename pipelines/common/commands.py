"""The commands of dmkl, and the time, memory and bytes that the system measured for their processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOK = "DMKL_TOOK"  # names the file descriptor that `watched` writes to


@dataclass(frozen=True)
class Ran:
    """The JSON output of a command, its time, memory and bytes."""

    facts: dict[str, Any]
    seconds: float
    peak: int  # bytes: the largest resident set
    read: int  # bytes it asked files for, wherever they came from
    from_disk: int  # those of them that the page cache did not have
    written: int


def dmkl(folder: Path, *arguments: str) -> Ran:
    """Run a command in a folder; it ends with the caller. A failure is one line."""
    command = [sys.executable, "-m", "dmkl", *arguments, "--json", "-q"]
    with (folder / "out.json").open("w") as out, (folder / "took.json").open("w") as took:
        process = subprocess.Popen(
            [sys.executable, __file__, *command],
            cwd=folder,
            stdout=out,
            pass_fds=(took.fileno(),),
            env=os.environ | {TOOK: str(took.fileno())},
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        raise SystemExit(f"dmkl {' '.join(arguments)} failed with {code}")
    facts = json.loads((folder / "out.json").read_text())
    return Ran(facts, **json.loads((folder / "took.json").read_text()))


def watched(command: list[str]) -> int:
    """Run a command from a process that is small itself, and write down what it took: the system counts what a process
    held before it became another program, which is all that its parent holds."""
    started = time.perf_counter()
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, its counters still there
    seconds = time.perf_counter() - started
    counters = _counters(process.pid)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    took = {"seconds": seconds, "peak": usage.ru_maxrss * 1024, "written": counters["wchar"]}
    took |= {"read": counters["rchar"], "from_disk": counters["read_bytes"]}
    with os.fdopen(int(os.environ[TOOK]), "w") as file:
        json.dump(took, file)
    return process.returncode


def _counters(pid: int) -> dict[str, int]:
    """Bytes that a process and its threads have read and written."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


if __name__ == "__main__":
    sys.exit(watched(sys.argv[1:]))
