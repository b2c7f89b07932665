"""Where tasks run: in this process (`Local`) or on a Dask cluster (`DaskRuntime`), behind one interface, `Runtime`.

`open.py` opens what `--cluster` names, and `diagnostics.py` has Dask show what happens there. `connections.py` and
`jobs/` connect to clusters, `tls.py` decides who may.
"""

from dmkl.runtime.base import Local, Runtime
from dmkl.runtime.diagnostics import Diagnostics
from dmkl.runtime.open import open_runtime

__all__ = ["Diagnostics", "Local", "Runtime", "open_runtime"]
