"""The whole state of a solver between rounds: small arrays, so that saving it takes milliseconds.

Coefficients of all classes are sparse columns: they take as much memory as there are support vectors.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

import numpy as np
from scipy.sparse import csc_array

from dmkl._util.files import check_members, write_atomically
from dmkl._util.types import Array, Float64, Mask
from dmkl.data.sample_sets import SampleSets
from dmkl.errors import StoreError, one_line
from dmkl.solvers.certificate import relative_gap

COUNTERS = ("round", "svm_calls", "oracle_calls", "passes", "handovers", "room")
COLUMN_PARTS = ("data", "indices", "indptr")
DIGEST = 32  # bytes of the checksum in front of a checkpoint

Arrays: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True)
class MethodState:
    """The part of a state that belongs to one algorithm: a frozen dataclass whose fields are arrays.

    Fields without a default have to be in a checkpoint; a field that is None is not saved.
    """

    def arrays(self) -> dict[str, Array]:
        """The arrays to save, by field."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def read(cls, arrays: Arrays) -> Self:
        """The state with these arrays; ValueError unless they are those that `arrays` would give."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown = set(arrays) - set(fields)
        missing = {
            name
            for name, field in fields.items()
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        } - set(arrays)
        if unknown or missing:
            words = [f"without {', '.join(sorted(missing))}"] if missing else []
            words += [f"with unknown {', '.join(sorted(unknown))}"] if unknown else []
            raise ValueError(f"a state of the method {' and '.join(words)}")
        return cls(**arrays)

    def milestone(self) -> Array | None:
        """How far an algorithm is that certifies seldom: a change of it counts as progress. None for all others."""
        return None

    def rule(self, tol: float) -> str:
        """The rule of its own by which the algorithm has ended, in words; empty while it goes on to the tolerance."""
        return ""

    def iterations(self) -> list[dict[str, float]]:
        """One row for each iteration inside the rounds, for methods that record them."""
        return []


@dataclass(frozen=True)
class NoState(MethodState):
    """The part of an algorithm that keeps nothing."""


Own = TypeVar("Own", bound=MethodState)


@dataclass(frozen=True)
class State:
    """What one round hands to the next. `gap` is certified over all samples, and infinite before the first round."""

    weights: Float64  # (s,) or (m, s)
    coef: csc_array  # csc_array (n, m): beta = alpha * y; (n, m s) where every kernel has its own, class after class
    intercept: Float64  # (m,)
    primal: Float64  # (m,), or (1,) where all classes are one problem
    dual: Float64
    working: SampleSets  # (n, m): the samples in each class's compact problem
    active: Mask  # (m, s): the kernels in it
    round: int = 0
    svm_calls: int = 0
    oracle_calls: int = 0
    passes: int = 0
    handovers: int = 0  # from methods that did not reach the tolerance on a block to the next
    room: int = 0  # bytes that the blocks of one batch of classes may take
    own: MethodState = field(default_factory=NoState)  # of this algorithm alone

    @classmethod
    def first(cls, weights: Float64, working: SampleSets, *, room: int = 0, bounds: int = 0) -> State:
        """The state before the first round: nothing learnt, all kernels active, no bound known.

        There is one bound for each class, or `bounds` of them.
        """
        n, m = working.shape
        unknown = np.full(bounds or m, np.inf)
        active = np.ones((m, weights.shape[-1]), dtype=bool)
        return cls(weights, no_columns(n, m), np.zeros(m), unknown, -unknown, working, active, room=room)

    @property
    def gap(self) -> Float64:
        """(m,) or (1,): the certified relative gap, infinite where there is no bound yet."""
        return relative_gap(self.primal, self.dual)

    def own_as(self, own_type: type[Own]) -> Own:
        """The algorithm's own part, which has to be of this type."""
        if not isinstance(self.own, own_type):
            raise TypeError(f"the state keeps {type(self.own).__name__}, not {own_type.__name__}")
        return self.own


def save_state(path: Path, state: State, identity: str) -> None:
    """Write a checkpoint with its checksum; the one before stays under `.previous`."""
    plain = [field.name for field in dataclasses.fields(State) if field.name not in ("coef", "working", "own")]
    arrays = {name: np.asarray(getattr(state, name)) for name in plain}
    arrays |= {f"coef.{part}": getattr(state.coef, part) for part in COLUMN_PARTS}
    arrays["coef.shape"] = np.array(state.coef.shape)
    arrays |= {f"working.{name}": values for name, values in state.working.arrays().items()}
    arrays |= {f"own.{name}": values for name, values in state.own.arrays().items()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, identity=np.array(identity), **arrays)
    data = buffer.getvalue()
    checked = hashlib.blake2b(data, digest_size=DIGEST).digest() + data
    write_atomically(path, checked, keep=path.with_name(path.name + ".previous"))


def load_state(path: Path, identity: str, own_type: type[MethodState] = NoState) -> State | None:
    """The newest undamaged checkpoint of this very problem, or None; `own_type` is the type of its own part."""
    for candidate in (path, path.with_name(path.name + ".previous")):
        if not candidate.is_file():
            continue
        raw = candidate.read_bytes()
        digest, data = raw[:DIGEST], raw[DIGEST:]
        if hashlib.blake2b(data, digest_size=DIGEST).digest() != digest:
            continue  # cut off or damaged: the one before is whole
        try:
            return _read(data, identity, own_type, candidate)
        except StoreError:
            raise
        except Exception as error:  # a file can have a correct checksum and wrong arrays
            raise StoreError(
                f"the checkpoint {candidate} is damaged ({one_line(error)})", "remove it to begin again"
            ) from error
    return None


def _read(data: bytes, identity: str, own_type: type[MethodState], where: Path) -> State:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        check_members(arrays.zip, len(data))
        if "working" in arrays:
            raise _of_another_version(where, "with working sets as one array")
        if str(arrays["identity"]) != identity:
            raise StoreError(f"the checkpoint {where} belongs to another problem", "use another run directory")
        values = {name: arrays[name] for name in arrays if "." not in name and name != "identity"}
        values |= {name: int(values[name]) for name in COUNTERS}
        working = SampleSets.read(_under("working.", arrays))
        parts = tuple(arrays[f"coef.{part}"] for part in COLUMN_PARTS)
        coef = csc_array(parts, shape=tuple(arrays["coef.shape"].tolist()))
        try:
            kept = own_type.read(_under("own.", arrays))
        except (ValueError, KeyError) as error:  # other arrays than this version's
            raise _of_another_version(where, one_line(error)) from error
        state = State(coef=coef, working=working, own=kept, **values)
    _check(state)
    return state


def _under(prefix: str, arrays: Arrays) -> dict[str, Array]:
    """The arrays whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def _of_another_version(where: Path, why: str) -> StoreError:
    return StoreError(
        f"the checkpoint {where} was written by another version of dmkl ({why})",
        "continue with that version, or remove the checkpoint to begin again",
    )


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
    if state.active.dtype != bool or not np.isfinite(state.coef.data).all():
        raise ValueError("wrong types, or coefficients that are not finite")


def no_columns(n: int, m: int) -> csc_array:
    """(n, m) without entries."""
    return csc_array((n, m), dtype=np.float64)


def column(coef: csc_array, k: int) -> Float64:
    """(n,): column k, dense."""
    result = np.zeros(coef.shape[0])
    span = slice(coef.indptr[k], coef.indptr[k + 1])
    result[coef.indices[span]] = coef.data[span]
    return result


def dense(coef: csc_array, classes: Sequence[int]) -> Float64:
    """(n, classes): some columns, dense."""
    return np.stack([column(coef, k) for k in classes], axis=1)


def with_columns(coef: csc_array, new: Mapping[int, Float64]) -> csc_array:
    """The same matrix with some columns replaced."""
    n, m = coef.shape
    rows: list[Array] = []
    values: list[Float64] = []
    for k in range(m):
        span = slice(coef.indptr[k], coef.indptr[k + 1])
        rows.append(np.flatnonzero(new[k]) if k in new else coef.indices[span])
        values.append(new[k][rows[k]] if k in new else coef.data[span])
    starts = np.concatenate([[0], np.cumsum([len(part) for part in rows])])
    return csc_array((np.concatenate(values), np.concatenate(rows), starts), shape=(n, m))
