"""Where tasks run: in this process (`Local`) or on a Dask cluster (`Cluster`), behind one question, `map`."""

from dmkl.runtime.base import Runtime
from dmkl.runtime.launch import is_slurm, open_runtime
from dmkl.runtime.local import Local
from dmkl.runtime.profile import read_profile

__all__ = ["Local", "Runtime", "is_slurm", "open_runtime", "read_profile"]
