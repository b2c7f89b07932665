"""The whole state of a solver between rounds: small arrays, so that saving it takes milliseconds."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from dmkl._util.archives import check_members
from dmkl._util.files import write_atomically
from dmkl._util.types import Float64
from dmkl.errors import StoreError, one_line
from dmkl.solvers.columns import no_columns

COUNTERS = ("round", "svm_calls", "oracle_calls", "passes", "room")
COLUMN_PARTS = ("data", "indices", "indptr")
DIGEST = 32  # bytes of the checksum in front of a checkpoint


@dataclass(frozen=True)
class State:
    """What one round hands to the next. `gap` per class is certified over all samples; infinite before the first."""

    weights: Float64  # (s,) or (m, s)
    coef: Any  # csc_array (n, m): beta = alpha * y; (n, m s) where every kernel has its own, class after class
    intercept: Float64  # (m,)
    primal: Float64  # (m,), or (1,) when all classes are one problem
    dual: Float64
    working: NDArray[np.bool_]  # (n, m): samples in each class's compact problem
    active: NDArray[np.bool_]  # (m, s): and kernels
    round: int = 0
    svm_calls: int = 0
    oracle_calls: int = 0
    passes: int = 0
    room: int = 0  # bytes that the blocks of one batch of classes may take
    own: dict[str, NDArray[Any]] = field(default_factory=dict)  # what only this algorithm keeps

    @classmethod
    def first(cls, weights: Float64, working: NDArray[np.bool_], *, room: int = 0, bounds: int = 0) -> State:
        """Before the first round: nothing learnt, every kernel in, no bound known (one a class unless told)."""
        n, m = working.shape
        unknown = np.full(bounds or m, np.inf)
        active = np.ones((m, weights.shape[-1]), dtype=bool)
        return cls(weights, no_columns(n, m), np.zeros(m), unknown, -unknown, working, active, room=room)

    @property
    def gap(self) -> Float64:
        """(P - L) / max(|P|, 1e-12) per class, infinite where there is no bound yet."""
        with np.errstate(invalid="ignore"):
            gap = (self.primal - self.dual) / np.maximum(np.abs(self.primal), 1e-12)
        return np.where(np.isnan(gap), np.inf, gap)


def save_state(path: Path, state: State, identity: str) -> None:
    """Write a checkpoint with its checksum, keeping the one before under `.previous`."""
    plain = [field.name for field in dataclasses.fields(State) if field.name not in ("coef", "own")]
    arrays = {name: np.asarray(getattr(state, name)) for name in plain}
    arrays |= {f"coef.{part}": getattr(state.coef, part) for part in COLUMN_PARTS}
    arrays["coef.shape"] = np.array(state.coef.shape)
    arrays |= {f"own.{name}": values for name, values in state.own.items()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, identity=np.array(identity), **arrays)
    data = buffer.getvalue()
    checked = hashlib.blake2b(data, digest_size=DIGEST).digest() + data
    write_atomically(path, checked, keep=path.with_name(path.name + ".previous"))


def load_state(path: Path, identity: str) -> State | None:
    """The newest undamaged checkpoint of this very problem; None if there is none."""
    for candidate in (path, path.with_name(path.name + ".previous")):
        if not candidate.is_file():
            continue
        raw = candidate.read_bytes()
        digest, data = raw[:DIGEST], raw[DIGEST:]
        if hashlib.blake2b(data, digest_size=DIGEST).digest() != digest:
            continue  # cut off or damaged: the one before is whole
        try:
            return _read(data, identity, candidate)
        except StoreError:
            raise
        except Exception as error:  # anybody can write a right checksum before wrong arrays
            raise StoreError(
                f"the checkpoint {candidate} is damaged ({one_line(error)})", "remove it to begin again"
            ) from error
    return None


def _read(data: bytes, identity: str, where: Path) -> State:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        check_members(arrays.zip, len(data))
        if str(arrays["identity"]) != identity:
            raise StoreError(f"the checkpoint {where} belongs to another problem", "use another run directory")
        values: dict[str, Any] = {name: arrays[name] for name in arrays if "." not in name and name != "identity"}
        values |= {name: int(values[name]) for name in COUNTERS}
        values["own"] = {name.removeprefix("own."): arrays[name] for name in arrays if name.startswith("own.")}
        parts = tuple(arrays[f"coef.{part}"] for part in COLUMN_PARTS)
        state = State(coef=csc_array(parts, shape=tuple(arrays["coef.shape"].tolist())), **values)
    _check(state)
    return state


def _check(state: State) -> None:
    """ValueError unless the parts fit each other."""
    n, m = state.working.shape
    s = state.weights.shape[-1]
    state.coef.check_format(full_check=True)
    shapes = (state.active.shape, state.intercept.shape, state.primal.shape, state.dual.shape)
    if shapes[:2] != ((m, s), (m,)) or shapes[2] != shapes[3] or shapes[2] not in ((m,), (1,)):
        raise ValueError(f"shapes {shapes} for {n} samples, {m} classes and {s} kernels")
    if state.coef.shape not in ((n, m), (n, m * s)) or state.weights.shape not in ((s,), (m, s)):
        raise ValueError(f"coefficients of shape {state.coef.shape}, weights of shape {state.weights.shape}")
    if state.working.dtype != bool or state.active.dtype != bool or not np.isfinite(state.coef.data).all():
        raise ValueError("wrong types, or coefficients that are no numbers")
