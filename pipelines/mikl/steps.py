"""Forward-backward steps, accelerated against plain."""

from __future__ import annotations

from pathlib import Path

import dmkl
from pipelines.mikl.titanic import NORMS, kernels, table, titanic

TOL = 1e-4
SHARES = (0.1, 0.001)  # of the largest lam


def run(folder: Path, quick: bool) -> bool:
    """Print the table; whether acceleration fails to save steps anywhere."""
    data = titanic()
    train = data.splits[0]
    K, y = kernels(data.X[train], data.X[train]), data.y[train]
    stack = dmkl.KernelStack.from_array(K, workers=1)
    rows, missed = [], False
    for norm in NORMS:
        for share in SHARES[: 1 if quick else None]:
            lam = share * dmkl.MIKL.largest(stack, y, norm)
            fits = {
                method: dmkl.solve(stack, y, dmkl.MIKL(norm=norm, lam=lam), tol=TOL, method=method, max_rounds=1)
                for method in ("fista", "plain", "")
            }
            taken = {method: int(fit.state.own["iterations"][0]) for method, fit in fits.items()}
            missed |= taken["fista"] > taken["plain"] or not fits["fista"].converged
            rows.append([norm, f"{lam:.3g}", *(shown(fits[method], taken[method]) for method in fits)])
    table(folder / "steps.md", ["norm", "lam", "accelerated", "plain", "50 accelerated, then Newton"], rows)
    return missed


def shown(fit: dmkl.Fit, taken: int) -> str:
    return f"{taken:,}" if fit.converged else f"gap {fit.gap:.0e} after {taken:,}"
