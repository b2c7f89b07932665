"""Where tasks run: in this process (`Local`) or on a Dask cluster (`Cluster`), behind one question, `map`."""

from dmkl.runtime.base import Runtime
from dmkl.runtime.launch import open_runtime
from dmkl.runtime.local import Local

__all__ = ["Local", "Runtime", "open_runtime"]
