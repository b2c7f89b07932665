"""The timeline of workers counts exactly, in bins that stay few however long a run takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmkl.runtime import Local
from dmkl.runtime.timeline import OTHERS, Timeline, TimelineOptions

BINS, WORKERS = TimelineOptions().bins, TimelineOptions().workers


@given(st.lists(st.tuples(st.floats(1e9, 1e9 + 1e5), st.floats(0, 1e4)), min_size=1, max_size=30))
def test_no_second_is_lost(tasks: list[tuple[float, float]]) -> None:
    timeline = Timeline()
    for start, length in tasks:
        timeline.add("a", "f", start, start + length)
    table = timeline.to_dict()
    assert table["bins"] <= BINS
    assert table["start"] <= min(start for start, _ in tasks)
    assert table["start"] + table["bins"] * table["width"] >= max(start + length for start, length in tasks)
    (row,) = table["rows"]
    seconds = sum(length for _, length in tasks)
    assert row["seconds"] == pytest.approx(seconds, abs=1e-3)
    assert sum(row["shares"]) * table["width"] == pytest.approx(seconds, abs=6e-4 * table["bins"] * table["width"])


def test_tasks_stand_where_they_ran() -> None:
    timeline = Timeline()
    timeline.add("a", "f", 1000.0, 1001.0)
    timeline.add("b", "g", 1003.0, 1004.0)
    table = timeline.to_dict()
    for row, second in zip(table["rows"], (0.0, 3.0), strict=True):
        times = np.array(row["bins"]) * table["width"]
        assert times.min() == second
        assert times.max() < second + 1.0
        assert set(row["shares"]) == {1.0}


def test_more_workers_than_can_be_shown_are_summed() -> None:
    timeline = Timeline()
    for number in range(3 * WORKERS):
        timeline.add(f"w{number}", "f", 5.0, 6.0)
    rows = {row["worker"]: row["seconds"] for row in timeline.to_dict()["rows"]}
    assert len(rows) == WORKERS + 1
    assert rows[OTHERS] == pytest.approx(2 * WORKERS)


def square(value: int) -> int:
    return value * value


def test_threads_tell_what_they_did() -> None:
    for workers in (1, 3):
        runtime = Local(workers)
        assert list(runtime.map(square, [(i,) for i in range(50)])) == [i * i for i in range(50)]
        rows = runtime.timeline().to_dict()["rows"]
        assert {row["function"] for row in rows} == {"square"}
        assert all(("thread" in row["worker"]) for row in rows)


def test_dask_workers_tell_what_they_did(two_workers: Any) -> None:
    before = counted(two_workers)
    assert list(two_workers.map(square, [(i,) for i in range(20)])) == [i * i for i in range(20)]
    after, again = counted(two_workers), counted(two_workers)
    assert after > before
    assert again == after  # a task is counted once, however often the scheduler reports it


def counted(runtime: Any) -> float:
    rows = runtime.timeline().to_dict()["rows"]
    return sum(row["seconds"] for row in rows if row["function"] == "square")
