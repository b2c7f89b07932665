"""Table 1 of the VSKL paper on this machine: object categories by many kernels, the same kernels for every method.

    python -m pipelines.object_categories {caltech101,flowers17,leaves100,digits} [--quick] [--splits N]
                                          [--views all] [--folder DIR]

Kernels: exp(-D / (width * mean D)) of every view's distance at five widths, in groups by view. VSKL (q = 1, 2, 3,
inf), L1MKL, the SVM on the average kernel and the best single kernel choose the scale of the widths, normalisation and
C (the last also the kernel) by cross-validation on training samples, over the same grid. Prints a table, and writes
table.md and table.json to the folder; finished cells stay there, so the same command goes on after an interruption.
Data: ../shared/DATA.md; digits need none. Exits with 1 when data are missing or the folder holds another run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from pipelines.object_categories.datasets import COLLECTIONS
from pipelines.object_categories.journal import Journal
from pipelines.object_categories.kernels import Setting, kept_distances
from pipelines.object_categories.report import write
from pipelines.object_categories.selection import Plan, progress, run_split

SPLITS = 3
WHOLE = ((0.25, 1.0, 4.0, 16.0), (False, True), (0.1, 1.0, 10.0, 100.0, 1000.0), 3)
QUICK = ((1.0, 4.0), (False, True), (1.0, 10.0), 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=list(COLLECTIONS))
    parser.add_argument("--quick", action="store_true", help="one split, some of the classes, a small grid")
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"how many training and test sets ({SPLITS})")
    parser.add_argument("--views", choices=("paper", "all"), default="paper", help="of Caltech-101: 4 or all 9")
    parser.add_argument("--folder", type=Path, help="for results and distances (runs/object_categories/DATA)")
    options = parser.parse_args()
    name = "-".join([options.data] + ["all"] * (options.views == "all") + ["quick"] * options.quick)
    folder = options.folder or Path("runs/object_categories") / name
    collection = COLLECTIONS[options.data](options.views == "all")
    if options.quick:
        collection = collection.fewer(collection.quick_classes)
    scales, centred, Cs, folds = QUICK if options.quick else WHOLE
    plan = Plan([Setting(s, c) for c in centred for s in scales], Cs, folds, collection.cv_classes)
    splits = collection.splits[: 1 if options.quick else options.splits]
    journal = Journal(folder, {"data": options.data, "views": options.views, "quick": options.quick, "plan": str(plan)})
    for number, split in enumerate(splits):
        progress(f"split {number}: distances of {len(split.train)} training and {len(split.test)} test samples")
        samples = np.concatenate([split.train, split.test])
        distances = kept_distances(collection.views, samples, folder, number)
        run_split(collection, split, number, distances, plan, journal)
    print(write(collection, journal, len(splits), folder, options.quick))
    return 0


if __name__ == "__main__":
    sys.exit(main())
