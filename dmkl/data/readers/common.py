"""What the readers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dmkl.data.dataset import Block

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Arrays: TypeAlias = "dict[str, Block]"
Length: TypeAlias = Callable[[Mapping[str, tuple[int, ...]]], int]  # samples, from the shapes of all arrays
Stream: TypeAlias = "Callable[[Path, int, Length], Iterator[Arrays] | None]"


def as_csr(matrix: Any) -> csr_array:
    """Any two-dimensional scipy matrix or array as a checked `csr_array`."""
    from scipy.sparse import csr_array

    csr = csr_array(matrix)
    csr.check_format(full_check=True)  # foreign indices may point outside the matrix
    return csr


def csr_from_parts(data: Any, indices: Any, indptr: Any, shape: Any) -> csr_array:
    """A `csr_array` of its four parts as written to a file."""
    from scipy.sparse import csr_array

    if data.dtype == np.float16:  # scipy computes with single precision or more
        data = data.astype(np.float32)
    csr = csr_array((data, indices, indptr), shape=tuple(int(side) for side in shape))
    csr.check_format(full_check=True)
    return csr
