"""Arrays of Dask and of xarray as numpy arrays, data frames of Dask as those of pandas.

Neither library is imported here: whoever passes such an array has imported its library.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from dmkl._util.machine import require_free
from dmkl._util.types import Array
from dmkl.errors import DataError


def in_memory(values: Any, what: str) -> Any:
    """A dask.array or an xarray.DataArray as a numpy array, a dask.dataframe as a table of pandas, an xarray.Dataset as
    a dict of its variables; anything else as it is.

    Parameters
    ----------
    values : what a caller passed
    what : its name in messages

    Raises
    ------
    DataError
        If the lengths of a dask array are unknown, or the variables of a dataset begin with different dimensions.
    ResourceError
        If a dask array does not fit in the memory that is free. Nothing is computed then.
    """
    if _is_a(values, "dask.dataframe", "DataFrame") or _is_a(values, "dask.dataframe", "Series"):
        return values.compute()  # a table of pandas, whose columns have names
    if _is_a(values, "xarray", "Dataset"):
        return _variables(values, what)
    if _is_a(values, "xarray", "DataArray"):
        values = values.data
    return _computed(values, what) if _is_a(values, "dask.array", "Array") else values


def _is_a(values: object, library: str, name: str) -> bool:
    found = sys.modules.get(library)
    return found is not None and isinstance(values, getattr(found, name, ()))


def _variables(dataset: Any, what: str) -> dict[str, Any]:
    """The variables by name; all have the samples as their first dimension."""
    variables = {str(name): variable for name, variable in dataset.data_vars.items()}
    first = {name: variable.dims[0] if variable.dims else "none" for name, variable in variables.items()}
    one, samples = next(iter(first.items()), ("", ""))
    for name, dimension in first.items():
        if dimension != samples:
            raise DataError(
                f"{what}: variable '{one}' begins with the dimension '{samples}', variable '{name}' with '{dimension}'",
                "samples come first in every variable; Dataset.transpose changes the order",
            )
    return variables


def _computed(array: Any, what: str) -> Array:
    """The values of a dask array, computed at once and copied block by block: its blocks are not held beside it."""
    import dask.array

    if any(math.isnan(length) for length in array.shape):
        raise DataError(f"{what} is a dask array of unknown length", "call its method compute_chunk_sizes() before")
    require_free(array.nbytes, f"{what}, a dask array of shape {array.shape},", "use fewer samples or columns")
    values: Array = np.empty(array.shape, array.dtype)
    client = _client()
    if client is None:
        dask.array.store(array, values, lock=False, scheduler="threads")  # other processes cannot write into `values`
    else:
        _gather(client, array, values)
    return values


def _client() -> Any:
    """The current Dask client, None if there is none."""
    distributed: Any = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.get_client()
    except ValueError:
        return None


def _gather(client: Any, array: Any, values: Array) -> None:
    """Have the workers compute an array, and fetch its blocks one by one."""
    from dask.array.core import slices_from_chunks
    from dask.core import flatten
    from distributed import futures_of

    held = client.persist(array)
    blocks = {future.key: future for future in futures_of(held)}
    for key, place in zip(flatten(held.__dask_keys__()), slices_from_chunks(held.chunks), strict=True):
        values[place] = blocks[key].result()
