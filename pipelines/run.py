"""Runs experiments: the papers' tables and figures on real data, and the race against other libraries.

    python -m pipelines.run                          list them
    python -m pipelines.run titanic mnist            whole; the numbers go to pipelines/results and RESULTS.md
    python -m pipelines.run titanic --again          whole, once more, and compare
    python -m pipelines.run all --quick              a reduced run of a minute each; printed, not saved
    python -m pipelines.run --results                write RESULTS.md again from the records

Finished parts of an interrupted run are kept in `--folder` (runs/pipelines/NAME), and the same command continues. An
experiment whose data are missing is skipped, with a line about how to get them. Exits with 1 when a second run has
other numbers, else with 3 when data are missing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from pipelines.common import machine, record, results
from pipelines.common.data import MissingData
from pipelines.common.drawing import draw
from pipelines.common.experiment import Experiment, Outcome, Row, known

OTHER_NUMBERS, DATA_MISSING = 1, 3


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments, or 'all'")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is kept")
    parser.add_argument("--again", action="store_true", help="compare with the kept run instead of replacing it")
    parser.add_argument("--results", action="store_true", help="write RESULTS.md from the kept runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/pipelines"), help="for what runs keep on the way")
    options = parser.parse_args(arguments)
    if not options.names and not options.results:
        for name in known():
            print(f"{name:30s} {Experiment.load(name).words['title']}")
        return 0
    names = known() if options.names == ["all"] else options.names
    ends = [attempt(name, options.folder, options.quick, options.again) for name in names]
    if not options.quick:
        results.write()
    return OTHER_NUMBERS if OTHER_NUMBERS in ends else max(ends, default=0)


def attempt(name: str, folder: Path, quick: bool, again: bool) -> int:
    """The exit code of one experiment."""
    try:
        return 0 if run(name, folder, quick, again) else OTHER_NUMBERS
    except MissingData as missing:
        print(f"{name} is not run: {missing}", file=sys.stderr)
        return DATA_MISSING


def run(name: str, folder: Path, quick: bool, again: bool) -> bool:
    """Run one experiment; False if it should repeat the recorded run and does not."""
    experiment = Experiment.load(name)
    if again and not quick and record.read(name) is None:
        raise SystemExit(f"{name} has not been run: python -m pipelines.run {name}")
    place = folder / (name + "-quick" * quick + "-again" * again)
    before, started = machine.described(*experiment.code), time.time()
    outcome = experiment.run(place, quick)
    date = time.strftime("%Y-%m-%d")
    settings = experiment.whole | (experiment.quick if quick else {})
    found = record.made(outcome, settings, before, date, time.time() - started)
    print(results.shown(experiment.words["title"], found), flush=True)
    same = True
    if again and not quick:
        same = compared(name, found)
    elif not quick:
        keep(name, outcome, found)
    shutil.rmtree(place)  # whole, so nothing has to go on from here
    return same


def keep(name: str, outcome: Outcome, found: Row) -> None:
    """The record and the figures of a whole run."""
    for figure, panels in outcome.figures.items():
        record.RESULTS.mkdir(exist_ok=True)
        draw(record.RESULTS / f"{figure}.svg", panels)
    record.write(found, name)


def compared(name: str, found: Row) -> bool:
    """Whether this run repeats the recorded one; if so, note the date in the record."""
    kept = record.read(name)
    assert kept is not None
    different = record.differences(kept, found)
    if not different:
        record.write(kept | {"again": found["date"]}, name)
        print(f"{name}: all numbers came out the same again")
        return True
    for line in different:
        print(f"{name} is not the same again: {line}", file=sys.stderr)
    if changed := record.changed_surroundings(kept, found):
        why = "another processor or library rounds sums in another order: last digits differ, and what hangs on them"
        print(f"{name}: {'; '.join(changed)} ({why})", file=sys.stderr)
    return False


if __name__ == "__main__":
    sys.exit(main())
