"""Progress on a terminal and without one, and the estimate of the time left."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dmkl.cli.console import Console, ProgressDisplay
from dmkl.events import Note, PointDone, Progress, RoundDone


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def finished(number: int, gap: float, seconds: float) -> RoundDone:
    return RoundDone(1, 2, 30, 0, number, 10, 3, gap, 1e-3, 2.0, 1.9, seconds)


def test_lines_come_every_few_seconds_with_the_time_left() -> None:
    clock, lines = Clock(), []
    display = ProgressDisplay(lines.append, clock)
    for done in range(21):
        clock.now = float(done)
        display.show(Progress("tiles", done, 100))
    assert lines == [
        "tiles    5/100 about 2 m left",
        "tiles    10/100 about 2 m left",
        "tiles    15/100 about 85 s left",
        "tiles    20/100 about 80 s left",
    ]


def test_classes_proved_running_gap_and_pass() -> None:
    clock, lines = Clock(), []
    display = ProgressDisplay(lines.append, clock)
    for turn in range(3):
        for done in range(1, 5):
            display.show(Progress("solving", done, 4))
        for done in range(1, 3):
            display.show(Progress("pass", done, 2))
        clock.now += 10
        display.show(finished(2 * turn, 0.1**turn, clock.now))
    proved = "classes  4/10 proved   4 running   worst gap 1.0e-2 of 0.001"
    assert lines[-1] == f"{proved}   about 30 s left"
    clock.now += 10
    display.show(Progress("pass", 1, 2))
    assert lines[-1].startswith(proved)
    assert lines[-1].endswith("pass     1/2 number 4")
    display.clear()
    clock.now += 10
    display.show(Progress("tiles", 1, 4))
    assert lines[-1] == "tiles    1/4"


def judged(done: int) -> PointDone:
    return PointDone(1, "L1MKL C=5", 0.91234, 3, 9, done, 12)


def test_points_of_a_search() -> None:
    clock, lines = Clock(), []
    display = ProgressDisplay(lines.append, clock)
    for done in range(1, 5):
        display.show(judged(done))
        clock.now += 4
    point = "fold 2   L1MKL C=5   0.9123"
    assert lines == [f"tuned    3/12 {point}   about 36 s left"]


def test_quiet_says_nothing_and_notes_come_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    loud = "a note\ntuned    3/12   fold 2   L1MKL C=5   0.9123\nround    1   5/10 proved   worst gap inf of 0.001"
    for verbosity, said in ((-1, ""), (0, "a note\n"), (1, loud)):
        console = Console(verbosity=verbosity)
        with console.progress():
            console.observe(Note("a note"))
            console.observe(judged(3))
            console.observe(finished(5, float("inf"), 1.0))
        assert capfd.readouterr().err.startswith(said)


def on_a_terminal(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """The output of a command on a terminal of its own."""
    mine, its = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=its, stderr=its, close_fds=True)
    os.close(its)
    shown = b""
    try:
        while piece := os.read(mine, 65536):
            shown += piece
    except OSError:  # how a terminal says that nobody writes any more
        pass
    finally:
        os.close(mine)
    assert process.wait(60) == 0
    return shown.decode()


BARS = """
import time
from dmkl.cli.console import Console
from dmkl.events import Progress, RoundDone
console = Console()
with console.progress():
    for done in range(1, 4):
        console.observe(Progress("solving", done, 3))
        console.observe(Progress("pass", done, 3))
    console.observe(RoundDone(1, 2, 30, 0, 7, 10, 3, 0.02, 0.001, 2.0, 1.9, 5.0))
    time.sleep(0.5)  # bars are drawn ten times a second
    console.line("train", *["words"] * 8, seconds=1.0)
"""


@pytest.mark.parametrize("variable", ["NO_COLOR", "COLORTERM"])
def test_bars_on_a_terminal(tmp_path: Path, variable: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "90", variable: "1"}
    shown = on_a_terminal([sys.executable, "-c", BARS], environment, tmp_path)
    assert "7/10" in shown
    assert re.search(r"proved   3 running   worst gap 2.0e-2 of 0.001", shown)
    assert re.search(r"train    (words   ){7}words +1.0 s\r\n", shown)  # in one line, however narrow the terminal is
    coloured = re.search(r"\x1b\[[0-9;]*3[0-9]", shown) is not None
    assert coloured == (variable != "NO_COLOR")


def test_a_terminal_is_left_as_it_was(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dmkl", "train", "--example", "digits", "-q", "-o", "run"]
    assert on_a_terminal(command, {**os.environ, "TERM": "xterm"}, tmp_path) == ""
