"""Runs some of the proving ground while an engine is developed; a line a problem, and the worst at the end.

    python -m pipelines.benchmarks.proving_ground --list --only vskl            names of problems
    python -m pipelines.benchmarks.proving_ground --only vskl --most 20 --default-only
    python -m pipelines.benchmarks.proving_ground --only "vskl iris,l1 growth"  all words of one of the parts
    python -m pipelines.benchmarks.proving_ground --only mikl --save before.jsonl
    python -m pipelines.benchmarks.proving_ground --only mikl --against before.jsonl
    python -m pipelines.benchmarks.proving_ground --failed before.jsonl --against before.jsonl

Words are found in the names of problems; "n300" is one, "n3" is not it. `--most` draws some of the problems that are
left, always the same. Seconds do not count what numba compiles. Limits are longer on a busy machine. Times below 0.02 s
count as that much in ratios. The fastest method has a star. Exits with 1 if the default did not solve a problem.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pipelines.benchmarks.proving_ground.fits import (
    Limits,
    busyness,
    contradiction,
    default_of,
    fitted,
    ratio_of_default,
    seconds_of,
)
from pipelines.benchmarks.proving_ground.problems import choose, problems
from pipelines.benchmarks.proving_ground.profiles import FLOOR, within
from pipelines.benchmarks.proving_ground.worker import Crew
from pipelines.common.data import MissingData
from pipelines.common.experiment import Row

CLOSE = 1.2  # times the best method's seconds
LONG = 5.0  # seconds
SHOWN = 15  # of the worst
BUSY = 1.2  # where times are too long to be trusted
WAITED = 0.2  # seconds from which it is said that a fit waited


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.benchmarks.proving_ground",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="WORDS", help="all of these words in the name; commas mean 'or'")
    parser.add_argument("--skip", default="", metavar="WORDS", help="not those with all of these words")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="so many problems, drawn from those")
    parser.add_argument("--largest", type=int, default=0, metavar="N", help="problems of up to so many samples")
    parser.add_argument("--failed", type=Path, metavar="FILE", help="only what these results have unsolved or over 5 s")
    parser.add_argument("--default-only", action="store_true", help="the default method alone")
    parser.add_argument("--methods", default="", metavar="NAMES", help="these methods alone, with commas")
    parser.add_argument("--limit", type=float, default=0.0, metavar="S", help="seconds that a method may take")
    parser.add_argument("--list", action="store_true", help="print the names and do nothing")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write results, a JSON line a problem")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with results that were saved earlier")
    options = parser.parse_args(arguments)
    chosen = choose(options.only, options.skip, options.largest, options.most)
    if options.failed:
        known = read(options.failed)
        chosen = [problem for problem in chosen if problem.name in known and _failed(default_of(known[problem.name]))]
    if options.list:
        print(*(problem.name for problem in chosen), f"{len(chosen)} of {len(problems())} problems", sep="\n")
        return 0
    limits = Limits(options.limit, most=options.limit, slow=options.limit) if options.limit else Limits()
    methods = [name for name in options.methods.split(",") if name]
    before = read(options.against) if options.against else {}
    rows, crew, started = [], Crew(), time.monotonic()
    try:
        for number, problem in enumerate(chosen, 1):
            try:
                row = fitted(crew, problem, limits, methods, options.default_only)
            except (MissingData, RuntimeError) as error:
                print(f"{number:4d}/{len(chosen)} {problem.name}: {error}", flush=True)
                continue
            if not row["fits"]:
                continue
            print(f"{number:4d}/{len(chosen)} {line(row, before.get(problem.name))}", flush=True)
            rows.append(row)
            if options.save:
                with options.save.open("w" if len(rows) == 1 else "a") as file:
                    file.write(json.dumps(row) + "\n")
    except KeyboardInterrupt:
        print()
    finally:
        crew.close()
    print(summary(rows, before))
    busy = busyness()
    print(f"{time.monotonic() - started:.0f} s" + f"; a busy machine, {busy:.1f} times as slow" * (busy > BUSY))
    return int(any(default_of(row)["status"] not in ("solved", "refused") for row in rows))


def _failed(fit: Row) -> bool:
    return fit["status"] != "solved" or fit["seconds"] > LONG


def read(path: Path) -> dict[str, Row]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["name"]: row for row in rows}


def line(row: Row, before: Row | None = None) -> str:
    """One problem: its name, its methods with their seconds, and what the default took before."""
    parts = []
    solved = seconds_of(row)
    for name, fit in row["fits"].items():
        if fit["status"] == "solved":
            best = name == min(solved, key=solved.__getitem__) and len(row["fits"]) > 1
            parts.append(f"{name} {fit['seconds']:.3f}" + "*" * best + _waited(fit))
        elif fit["status"] in ("late", "stalled"):
            gap = f"{fit['gap']:.1e}" if fit["gap"] is not None else "none"
            parts.append(f"{name} {fit['status'].upper()} {fit['seconds']:.1f} gap {gap}")
        else:
            parts.append(f"{name} {fit['status'].upper()} {fit['seconds']:.1f}")
    if before:
        parts.append(f"before: {outcome(default_of(before))}")
    text = f"{row['name']}  (s {row['s']}, m {row['m']})".ljust(76)
    lines = [f"{text} {'  '.join(parts)}"]
    for name, fit in row["fits"].items():
        lines += [f"          {name}: {fit['note']}"] if fit["note"] else []
        lines += [f"          {name}: {text}" for text in fit.get("warnings", [])]
    if text := contradiction(row):
        lines.append(f"          CONTRADICTION: {text}")
    return "\n".join(lines)


def _waited(fit: Row) -> str:
    """A note about a fit that worked for less than half of its time: others had the cores, or threads waited."""
    waited = fit["seconds"] > max(WAITED, 2 * fit.get("cpu", fit["seconds"]))
    return f" (cpu {fit['cpu']:.2f})" if waited else ""


def outcome(fit: Row) -> str:
    return f"{fit['seconds']:.3f}" if fit["status"] == "solved" else fit["status"].upper()


def summary(rows: Sequence[Row], before: dict[str, Row]) -> str:
    """How many are solved, and the worst."""
    if not rows:
        return "no problems"
    lines = [""]
    fits = {row["name"]: default_of(row) for row in rows}
    counts: dict[str, int] = {}
    for fit in fits.values():
        counts[fit["status"]] = counts.get(fit["status"], 0) + 1
    lines.append(
        f"default: {len(rows)} problems, " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items()))
    )
    unsolved = [name for name, fit in fits.items() if fit["status"] not in ("solved", "refused")]
    if unsolved:
        lines += ["", "not solved:"]
        lines += [
            f"  {fits[name]['status']:8s} {_gap(fits[name])} {fits[name]['seconds']:7.1f} s  {name}"
            for name in unsolved
        ]
    slowest = sorted((fit["seconds"], name) for name, fit in fits.items() if fit["status"] == "solved")[::-1]
    lines += ["", "slowest of those solved:"] + [f"  {seconds:8.3f} s  {name}" for seconds, name in slowest[:SHOWN]]
    raced = {row["name"]: ratio_of_default(row) for row in rows if len(row["fits"]) > 1}
    if raced:
        share = within(list(raced.values()), CLOSE)
        lines += [
            "",
            f"default within {CLOSE} of the best: {100 * share:.0f} % of {len(raced)} (floor {FLOOR} s); worst:",
        ]
        worst = sorted(((ratio, name) for name, ratio in raced.items() if ratio > CLOSE), reverse=True)
        lines += [f"  {ratio:8.1f} x  {name}" for ratio, name in worst[:SHOWN]]
    lines += compared(fits, before)
    return "\n".join(lines)


def compared(fits: dict[str, Row], before: dict[str, Row]) -> list[str]:
    """Where the default became faster or slower, and what it solves or does not solve any more."""
    pairs = {name: (default_of(before[name]), fit) for name, fit in fits.items() if name in before}
    if not pairs:
        return []
    both = {
        name: max(new["seconds"], FLOOR) / max(old["seconds"], FLOOR)
        for name, (old, new) in pairs.items()
        if old["status"] == new["status"] == "solved"
    }
    lines = ["", f"against before, {len(pairs)} problems:"]
    lines += [
        f"  {old['status']} -> {new['status']}  {name}"
        for name, (old, new) in pairs.items()
        if old["status"] != new["status"]
    ]
    changed = sorted((ratio, name) for name, ratio in both.items() if not 1 / CLOSE <= ratio <= CLOSE)
    return lines + [f"  {ratio:6.2f} x the time  {name}" for ratio, name in changed]


def _gap(fit: Row) -> str:
    return f"gap {fit['gap']:.1e}" if fit.get("gap") is not None else "no gap     "


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the worker is ended, and what is known is printed
    sys.exit(main())
