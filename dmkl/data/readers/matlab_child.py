"""A program: `matlab_child.py FILE.mat OUT.npz BYTES` writes the variables that `matlab.py` can use.

It is a process of its own because scipy's parser may crash on a damaged file, and allocates as much memory as the file
claims to need.
"""

from __future__ import annotations

import resource
import sys
from typing import Any

V7_3 = 3  # exit codes
UNREADABLE = 4


def main(source: str, target: str, limit: str) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import numpy as np
    from scipy.io import loadmat

    try:
        variables = loadmat(source, appendmat=False)
    except NotImplementedError:  # how scipy refuses the HDF5-based format
        return V7_3
    except Exception as error:
        print(str(error) or type(error).__name__, file=sys.stderr)
        return UNREADABLE
    names: list[str] = []
    arrays: dict[str, Any] = {}
    for name, value in variables.items():
        if name.startswith("__"):
            continue
        number = len(names)
        if hasattr(value, "tocsr"):
            csr = value.tocsr()
            parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": np.array(csr.shape)}
            arrays |= {f"{number}.{part}": values for part, values in parts.items()}
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biufU" and value.size:
            arrays[str(number)] = value
        else:
            continue
        names.append(name)
    np.savez(target, allow_pickle=False, names=np.array(names, dtype=np.str_), **arrays)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
