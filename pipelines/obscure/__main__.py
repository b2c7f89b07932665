"""OBSCURE on MNIST (Orabona, Jie and Caputo 2012, section 5): its cost and quality, stage by stage.

    python -m pipelines.obscure {size,epochs,norm,kernels,full} [--quick] [--folder DIR]

size     seconds to a certified gap while training sets grow, with the slope; test error; once more on digits 0 and 1,
         where samples that matter stop growing in number
epochs   objective over epochs: the paper's two stages against its 1/t rate and stage 1 alone
norm     p from 1.01 to 2: test error, kernels with weight, seconds
kernels  from 4 to 64 kernels at p = 1.01: seconds to a certified gap, and updates of stage 1
full     60,000 digits: ten epochs of the paper's stages and the certified optimum, with time and memory (40 minutes)

Tables go to the folder as markdown and JSON. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipelines.obscure import runs

PARTS = {"size": runs.size, "epochs": runs.epochs, "norm": runs.norm, "kernels": runs.kernels, "full": runs.full}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="+", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="small sizes, under 30 s; no goals")
    parser.add_argument("--folder", type=Path, default=Path("runs/obscure"), help="for results")
    options = parser.parse_args()
    folder = options.folder / "quick" if options.quick else options.folder
    missed = [PARTS[what](folder, options.quick) for what in options.what]
    return int(any(missed) and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
