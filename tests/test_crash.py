"""A run that is killed repeatedly ends with the model of an undisturbed run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_same_model

from dmkl.model import load_model

CONFIG = """
[data]
path = "data.npz"
test = 0
[[kernels]]
kernel = "rbf"
width = ["0.25 median", "0.35 median", "0.5 median", "0.7 median", "1 median", "1.4 median", "2 median", "2.8 median"]
[formulation]
name = "vskl"
q = 2.0
C = 10.0
[run]
memory = "{memory}"
"""
KILLS = 5


def write_data(folder: Path, classes: int = 100, memory: str = "420 MB") -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), 20)
    views = {f"X_v{v}": 0.7 * rng.normal(size=(classes, 20))[y] + rng.normal(size=(len(y), 20)) for v in range(3)}
    np.savez(folder / "data.npz", y=y, **views)
    (folder / "config.toml").write_text(CONFIG.format(memory=memory))


def start(folder: Path, out: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "dmkl", "train", "config.toml", "-q", "-o", out], cwd=folder)


@pytest.mark.long
def test_kill_9_at_random_moments_changes_nothing(tmp_path: Path) -> None:
    write_data(tmp_path, memory="360 MB")  # rounds of few classes
    assert start(tmp_path, "calm").wait() == 0
    rng = np.random.default_rng(1)
    kills = 0
    while kills < KILLS:
        process = start(tmp_path, "killed")
        checkpoint = tmp_path / "killed" / "checkpoint"
        seen = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        while process.poll() is None and not (checkpoint.exists() and checkpoint.stat().st_mtime_ns > seen):
            time.sleep(0.005)  # at least one round a life, else five lives might see none
        time.sleep(rng.uniform(0.0, 0.4))
        assert process.poll() is None, "the run ended before it could be killed five times"
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    assert start(tmp_path, "killed").wait() == 0
    calm, killed = (load_model(tmp_path / name / "model.zarr.zip") for name in ("calm", "killed"))
    assert_same_model(tmp_path / "calm", tmp_path / "killed")
    assert calm.about == killed.about
    events = [json.loads(line) for line in (tmp_path / "killed/events.jsonl").read_text().splitlines()]
    rounds = [event["round"] for event in events if event["event"] == "RoundDone"]
    redone = len(rounds) - len(set(rounds))
    print(f"\n{calm.about['rounds']} rounds, {KILLS} kills: {redone} finished rounds computed again")
    assert redone == 0  # what a kill costs is the round it cut, never one that was finished
