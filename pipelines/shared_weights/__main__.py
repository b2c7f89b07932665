"""One kernel combination for all classes (Bucak, Jin and Jain 2010): its cost and quality against other methods.

    python -m pipelines.shared_weights {scaling,curves,thousand} [--quick]
           [--views NAME ...] [--splits N] [--folder DIR]

scaling   SVM calls to a certified gap while classes grow from 10 to 1,000 and samples stay the same
curves    mean average precision over training time on Caltech-101 (30 training images a class) and multilabel sets, and
          how much the smoothing delta and the step eta matter to the paper's algorithm; draws SVG files
thousand  1,000 classes, n = 5,000, 12 kernels through the command line: time and resident memory

Data of `curves`: see ../shared/DATA.md. Tables go to the folder as markdown and JSON. Exits with 1 when a goal is
missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipelines.shared_weights import curves, scaling, thousand


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("scaling", "curves", "thousand"))
    parser.add_argument("--quick", action="store_true", help="small sizes, under 40 s; no goals")
    parser.add_argument("--views", nargs="+", default=[], help="of Caltech-101, instead of all nine (curves)")
    parser.add_argument("--splits", type=int, default=1, help="how many of Caltech-101's ten (curves)")
    parser.add_argument("--folder", type=Path, default=Path("runs/shared_weights"), help="for results")
    options = parser.parse_args()
    folder = options.folder / "quick" if options.quick else options.folder
    if options.what == "scaling":
        missed = scaling.run(folder, options.quick)
    elif options.what == "curves":
        missed = curves.run(folder, options.quick, options.views, options.splits)
    else:
        missed = thousand.run(folder, options.quick)
    return int(missed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
