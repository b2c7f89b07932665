"""Training stays within the memory it is given: the resident set of a real process, as the system measured it."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmkl._util.machine import Budget, available, peak_resident, resident

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


# a process begins with the peak of the one that started it: so a small one stands between this one and the measured
BETWEEN = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def dmkl(folder: Path, *arguments: str) -> tuple[dict[str, object], int]:
    """Run a command; its JSON, and the largest resident set it ever had."""
    command = [sys.executable, "-c", BETWEEN, sys.executable, "-m", "dmkl", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), int(done.stderr.splitlines()[-1]) * 1024


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
    with mmap.mmap(-1, 160_000_000) as ballast:  # numpy may get freed memory again, which is resident already
        np.frombuffer(ballast, np.uint8)[:] = 1
        assert budget.left < before - 0.9 * len(ballast)


@pytest.mark.long
@pytest.mark.parametrize(("suffix", "output"), [("npy", "csv"), ("npz", "parquet"), ("csv", "csv"), ("parquet", "csv")])
def test_predicting_ten_times_as_many_takes_no_more(tmp_path: Path, suffix: str, output: str) -> None:
    """Neither data nor kernel values of all new samples are ever in memory: 240,000 x 3,000 of them would be 5.8 GB."""
    rng = np.random.default_rng(0)
    n, width = 3000, 20
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, width)) + 0.5 * np.eye(width)[y]
    table = suffix in ("csv", "parquet")
    arrays = {f"x{column:02}": values for column, values in enumerate(X.T)} if table else {"X": X}
    np.savez(tmp_path / "data.npz", y=y, **arrays)
    (tmp_path / "config.toml").write_text(CONFIG.format(widths=["1 median"]))
    dmkl(tmp_path, "train", "config.toml", "-o", "run")
    peaks = []
    for many in (24_000, 240_000):
        file = f"X.{suffix}"
        write(tmp_path / file, rng.normal(size=(many, width)))
        told, peak = dmkl(tmp_path, "predict", "run", file, "-o", f"{many}.{output}", "--explain", "--workers", "2")
        assert told["n"] == many
        peaks.append(peak)
    print(f"\n{suffix} to {output}: peak {peaks[0] / 1e6:,.0f} MB for 24,000, {peaks[1] / 1e6:,.0f} MB for 240,000")
    assert peaks[1] < peaks[0] + 100e6  # pyarrow keeps some of what it has freed


def write(path: Path, X: np.ndarray) -> None:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    if path.suffix == ".npy":
        np.save(path, X)
    elif path.suffix == ".npz":
        np.savez(path, X=X)
    else:
        table = pyarrow.table({f"x{column:02}": values for column, values in enumerate(X.T)})
        writer = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
        writer(table, path)
