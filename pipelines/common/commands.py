"""dmkl's commands run as a user runs them, and what the system measured of their processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ran:
    """A command's JSON and what it took."""

    facts: dict[str, Any]
    seconds: float
    peak: int  # bytes: the largest resident set
    read: int  # bytes it asked files for, wherever they came from
    from_disk: int  # those of them that the page cache did not have
    written: int


def dmkl(folder: Path, *arguments: str) -> Ran:
    """Run a command in a folder; it ends with the caller, who is told in a line when it fails."""
    started = time.perf_counter()
    with (folder / "out.json").open("w") as out:
        process = subprocess.Popen([sys.executable, "-m", "dmkl", *arguments, "--json", "-q"], cwd=folder, stdout=out)
        try:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, its counters still there
        except BaseException:
            process.terminate()
            process.wait()
            raise
        seconds = time.perf_counter() - started
        counters = _counters(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"dmkl {' '.join(arguments)} failed with {process.returncode}")
    facts = json.loads((folder / "out.json").read_text())
    return Ran(facts, seconds, usage.ru_maxrss * 1024, counters["rchar"], counters["read_bytes"], counters["wchar"])


def _counters(pid: int) -> dict[str, int]:
    """What a process and its threads have read and written."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}
