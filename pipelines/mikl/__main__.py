"""MIKL's experiment of Kowalski, Szafranski and Ralaivola (2009): Titanic with a Good, a Bad and an Ugly kernel.

    python -m pipelines.mikl {errors,steps} [--quick] [--splits N] [--folder DIR]

errors  150 training and 2,051 test samples; a linear kernel, Gaussians of width 0.1 and 100; six norms, lam from 1 to
        1e5 by 5-fold cross-validation along a warm-started path, mean test error over the splits next to the paper's,
        which is of one split; and each kernel alone with the norm "2" at its lowest test error, as in the paper
steps   forward-backward steps to a certified gap of 1e-4, accelerated against plain, for the six norms

Data: titanic.npz in $DMKL_DATA or ../shared/data (see ../shared/DATA.md). Tables are printed and go to the folder as
markdown. Exits with 1 when a goal is missed: a mean error more than 1.5 points above the paper's, or acceleration that
does not save steps.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipelines.mikl import errors, steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("errors", "steps"))
    parser.add_argument("--quick", action="store_true", help="small sizes, under 30 s; no goals")
    parser.add_argument("--splits", type=int, default=100, help="how many of the hundred (errors)")
    parser.add_argument("--folder", type=Path, default=Path("runs/mikl"), help="for results")
    options = parser.parse_args()
    folder = options.folder / "quick" if options.quick else options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if options.what == "errors":
        missed = errors.run(folder, 2 if options.quick else options.splits)
    else:
        missed = steps.run(folder, options.quick)
    return int(missed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
