"""The whole state of a solver between rounds: small arrays, so that saving it takes milliseconds."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.errors import StoreError
from dmkl.files import write_atomically

Float64 = NDArray[np.float64]
DIGEST = 32  # bytes of the checksum in front of a checkpoint


@dataclass(frozen=True)
class State:
    """What one round hands to the next. `gap` per class is certified over all samples; infinite before the first."""

    weights: Float64  # (s,) or (m, s)
    coef: Float64  # (n, m): beta = alpha * y
    intercept: Float64  # (m,)
    primal: Float64  # (m,)
    dual: Float64  # (m,)
    working: NDArray[np.bool_]  # (n, m): samples in each class's compact problem
    active: NDArray[np.bool_]  # (m, s): and kernels
    round: int = 0
    svm_calls: int = 0
    oracle_calls: int = 0
    passes: int = 0
    room: int = 0  # bytes that the blocks of one batch of classes may take

    @classmethod
    def first(cls, weights: Float64, working: NDArray[np.bool_], *, room: int = 0) -> State:
        """The state before the first round: nothing learnt, no bound known, every kernel in."""
        n, m = working.shape
        unknown = np.full(m, np.inf)
        active = np.ones((m, weights.shape[-1]), dtype=bool)
        return cls(weights, np.zeros((n, m)), np.zeros(m), unknown, -unknown, working, active, room=room)

    @property
    def gap(self) -> Float64:
        """(P - L) / max(|P|, 1e-12) per class, infinite where there is no bound yet."""
        with np.errstate(invalid="ignore"):
            gap = (self.primal - self.dual) / np.maximum(np.abs(self.primal), 1e-12)
        return np.where(np.isnan(gap), np.inf, gap)


def save_state(path: Path, state: State, identity: str) -> None:
    """Write a checkpoint with its checksum, keeping the one before under `.previous`."""
    arrays = {field.name: np.asarray(getattr(state, field.name)) for field in dataclasses.fields(State)}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, identity=np.array(identity), **arrays)
    data = buffer.getvalue()
    if path.exists():
        path.replace(path.with_name(path.name + ".previous"))
    write_atomically(path, hashlib.blake2b(data, digest_size=DIGEST).digest() + data)


def load_state(path: Path, identity: str) -> State | None:
    """The newest undamaged checkpoint of this very problem; None if there is none."""
    for candidate in (path, path.with_name(path.name + ".previous")):
        try:
            raw = candidate.read_bytes()
        except FileNotFoundError:
            continue
        digest, data = raw[:DIGEST], raw[DIGEST:]
        if hashlib.blake2b(data, digest_size=DIGEST).digest() != digest:
            continue  # cut off or damaged: the one before is whole
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            if str(arrays["identity"]) != identity:
                raise StoreError(f"the checkpoint {candidate} belongs to another problem", "use another run directory")
            values: dict[str, Any] = {field.name: arrays[field.name] for field in dataclasses.fields(State)}
        counters = {name: int(values[name]) for name in ("round", "svm_calls", "oracle_calls", "passes", "room")}
        return State(**{**values, **counters})
    return None
