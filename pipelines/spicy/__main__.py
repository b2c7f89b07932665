"""Many kernels, few of them used (SpicyMKL, Suzuki and Tomioka 2009): the paper's figures 2 to 4, and a check.

    python -m pipelines.spicy {kernels,samples,course,equal} [--quick] [--splits N] [--folder DIR]

kernels   figure 3: seconds for 50 to 6,000 kernels on 200 samples of ringnorm and splice, hinge and logistic
samples   figure 4: seconds for 20 kernels while samples grow, with accuracy beside the average kernel's
course    figure 2: gap and active kernels at every proximal iteration, ionosphere with 442 kernels
equal     the same function as L1MKL after converting the constant, on four UCI sets

Data: ringnorm is generated, splice, ionosphere, liver, sonar and pima are .npz files in $DMKL_DATA or ../shared/data.
Tables are printed; with a folder they are kept there as markdown and JSON, and figures drawn as SVG. Goals are in the
four modules; `--quick` has those only that do not depend on time. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipelines.shared_weights.results import show, write
from pipelines.spicy import course, equal, kernels, samples
from pipelines.spicy.drawing import draw

PARTS = {"kernels": kernels.run, "samples": samples.run, "course": course.run, "equal": equal.run}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=tuple(PARTS))
    parser.add_argument("--quick", action="store_true", help="small sizes, one split; no goals of time")
    parser.add_argument("--splits", type=int, help="how many random draws of samples and kernels (kernels, samples)")
    parser.add_argument("--folder", type=Path, help="for tables and figures; without one they are printed only")
    options = parser.parse_args()
    found = PARTS[options.what](options.quick, options.splits)
    show(found.parts)
    if options.folder is not None:
        write(options.folder, options.what, found.parts, found.facts)
        draw(options.folder / f"{options.what}.svg", found.panels)
    return int(found.missed)


if __name__ == "__main__":
    sys.exit(main())
