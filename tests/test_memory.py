"""Training stays within the memory it is given: the resident set of a real process, as the system measured it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmkl.memory import Budget, available, peak_resident, resident

CONFIG = """
[data]
path = "data.npz"
test = 0
[[kernels]]
kernel = "rbf"
width = {widths}
[formulation]
C = 10.0
"""


def dmkl(folder: Path, *arguments: str) -> tuple[dict[str, object], int]:
    """Run a command; its JSON, and the largest resident set it ever had."""
    out = folder / "out.json"
    with out.open("w") as file:
        process = subprocess.Popen([sys.executable, "-m", "dmkl", *arguments, "--json"], cwd=folder, stdout=file)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return json.loads(out.read_text()), usage.ru_maxrss * 1024


@pytest.mark.long
@pytest.mark.parametrize(("n", "kernels"), [(5000, 40), (12000, 6)], ids=["whole average matrix", "working sets"])
def test_a_store_four_times_the_limit(tmp_path: Path, n: int, kernels: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, n)
    X = (rng.normal(size=(n, 10)) + 3.0 * np.eye(10)[y]).astype(np.float32)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    widths = [f"{factor} median" for factor in np.linspace(0.5, 2.0, kernels).round(3).tolist()]
    (tmp_path / "config.toml").write_text(CONFIG.format(widths=widths))
    built, peak = dmkl(tmp_path, "kernels", "config.toml", "-o", "k.zarr")
    size = int(str(built["nbytes"]))
    limit = size // 4
    assert peak < 2e9
    trained, peak = dmkl(tmp_path, "train", "k.zarr", "-o", "run", "--memory", str(limit))
    facts = trained["train"]
    assert isinstance(facts, dict)
    print(
        f"\nn = {n:,}, {kernels} kernels: store {size / 1e6:,.0f} MB, limit {limit / 1e6:,.0f} MB, "
        f"peak {peak / 1e6:,.0f} MB, {facts['rounds']} rounds, {facts['passes']} passes, {facts['seconds']:.1f} s"
    )
    assert facts["converged"]
    assert facts["backend"] == "disk"
    assert peak <= limit


def test_budgets_count_what_is_resident() -> None:
    assert 0 < resident() <= 1.05 * peak_resident()  # the system counts pages in batches
    assert available() > 0
    budget = Budget.default()
    assert resident() < budget.limit
    before = budget.left
    ballast = np.ones(20_000_000)
    assert budget.left < before - 0.9 * ballast.nbytes
