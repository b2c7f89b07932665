"""The conformance test of batch schedulers: it runs over the table as it is, and needs none of their commands."""

from __future__ import annotations

import re
import subprocess
import warnings
from pathlib import Path

import pytest

from dmkl.runtime.jobs import SCHEDULERS
from dmkl.runtime.jobs.coordinator import coordinator_script
from dmkl.runtime.jobs.profile import Profile
from dmkl.runtime.jobs.workers import job_name, worker_script

PROFILE = Profile(queue="long", account="team", cores=2, walltime="1 h", jobs=1)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_makes_its_scripts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, folder = SCHEDULERS[name], tmp_path / "run/cluster"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of dask-jobqueue, about options that are missing
        worker = worker_script(scheduler, PROFILE, folder)
    coordinator = coordinator_script(scheduler, PROFILE, folder, "a run", ["dmkl", "train", "it's.toml"])
    for script in (worker, coordinator):
        assert script.startswith("#!")
        directives = [line for line in script.splitlines() if line.startswith(scheduler.directive)]
        assert any("long" in line for line in directives)
        assert any(re.search("0?1:00:00", line) for line in directives)
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert job_name(folder) in worker
    assert str(folder / "scheduler.json") in worker
    assert scheduler.job_number in coordinator
    assert scheduler.requeue[0] in coordinator
    assert not folder.exists()  # scripts are text: nothing was written or started

    assert scheduler.read_queue("") == {}
    assert len(scheduler.programs) == len(set(scheduler.programs)) == 3
    monkeypatch.setenv(f"{scheduler.variables}SOMETHING", "1")
    assert f"{scheduler.variables}SOMETHING" not in scheduler.environment()
