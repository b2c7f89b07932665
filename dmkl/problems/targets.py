"""What scores are fitted to: signs of classes against the rest, which take little memory, or real targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Array, Float64, Samples
from dmkl.data.sample_sets import SampleSets


class Targets(ABC):
    """The targets (n, m) of n samples in m problems; a column is made when it is asked for."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(n, m)."""

    @abstractmethod
    def column(self, k: int) -> Float64:
        """(n,): the targets of problem k."""

    @abstractmethod
    def at(self, samples: Samples, k: int) -> Float64:
        """The targets of some samples in problem k."""

    @abstractmethod
    def among(self, classes: Sequence[int]) -> Targets:
        """Those of some of the problems."""

    @abstractmethod
    def sides(self) -> SampleSets:
        """The samples on the upper side of every problem: the positive ones, or those above the median."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest absolute value."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """Arrays that determine the targets, to be hashed."""

    def __iter__(self) -> Iterator[Float64]:
        return (self.column(k) for k in range(self.shape[1]))

    def columns(self, classes: Sequence[int]) -> Float64:
        """(n, classes): the targets of some problems; the columns are contiguous."""
        return np.array([self.column(k) for k in classes]).T

    def dense(self) -> Float64:
        """(n, m): all of them, for methods that have as many variables."""
        return np.stack(list(self), axis=1)


@dataclass(frozen=True)
class Signs(Targets):
    """-1/+1; the positive samples of each class are all that is kept."""

    positive: SampleSets

    @property
    def shape(self) -> tuple[int, int]:
        return self.positive.shape

    @property
    def largest(self) -> float:
        return 1.0

    def column(self, k: int) -> Float64:
        return np.where(self.positive.mask(k), 1.0, -1.0)

    def at(self, samples: Samples, k: int) -> Float64:
        return np.where(self.positive.mask(k)[samples], 1.0, -1.0)

    def among(self, classes: Sequence[int]) -> Signs:
        return Signs(self.positive.among(classes))

    def sides(self) -> SampleSets:
        return self.positive

    def arrays(self) -> dict[str, Array]:
        return self.positive.arrays()


@dataclass(frozen=True)
class RealTargets(Targets):
    """Those of regressions."""

    values: Float64  # (n, m)

    @property
    def shape(self) -> tuple[int, int]:
        n, m = self.values.shape
        return n, m

    @property
    def largest(self) -> float:
        return float(np.abs(self.values).max())

    def column(self, k: int) -> Float64:
        return np.asarray(self.values[:, k])

    def at(self, samples: Samples, k: int) -> Float64:
        return np.asarray(self.values[samples, k])

    def among(self, classes: Sequence[int]) -> RealTargets:
        return RealTargets(np.ascontiguousarray(self.values[:, list(classes)]))

    def sides(self) -> SampleSets:
        return SampleSets.of_masks(np.median(self.values, axis=0) < self.values)

    def arrays(self) -> dict[str, Array]:
        return {"values": self.values}
