"""Regressors for one real target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.estimators.base import KernelRegressor, WeightedRegressor
from dmkl.problems import Formulation
from dmkl.problems.losses import LossLike
from dmkl.solvers import Obscure, SpicyMKL, UniformMKL


@dataclass(kw_only=True, eq=False, repr=False)
class UniformMKLRegressor(WeightedRegressor):
    """The average kernel: the baseline that learnt kernel weights have to beat.

        min  1/2 ||w||^2 + C sum_i l(y_i, <w, phi(x_i)> + b)

    where phi belongs to the kernel (K_1 + ... + K_s) / s.

    Parameters
    ----------
    C : float, default 1.0
        Factor of the losses, positive. A larger C fits the training samples more closely.
    loss : {"squared", "epsilon"}, mapping or Loss, default "squared"
        l(y, f) is (y - f)^2 or [|y - f| - epsilon]+; or a table such as `{"name": "epsilon", "epsilon": 0.2}`; or a
        loss object.
    epsilon : float, default 0.1
        Errors up to this size, in the unit of y, cost nothing with the loss "epsilon".
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (1, s)
        1 / s everywhere.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    SpicyMKLRegressor : Learns few kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import UniformMKLRegressor
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1]
    >>> bool(UniformMKLRegressor(C=100).fit(X, y).score(X, y) > 0.95)
    True
    """

    formulation: ClassVar[type[Formulation]] = UniformMKL

    C: float = 1.0
    loss: LossLike = "squared"
    epsilon: float = 0.1


@dataclass(kw_only=True, eq=False, repr=False)
class SpicyMKLRegressor(WeightedRegressor):
    """Few kernels of very many for a real target, optionally with an elastic net.

        min  sum_i l(y_i, sum_a <w_a, phi_a(x_i)> + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2

    Parameters
    ----------
    C : float, default 1.0
        Factor of the sparse penalty: here a larger C uses fewer kernels. It may be 0 if `ridge` is positive.
    loss : {"squared", "epsilon"}, mapping or Loss, default "squared"
        l(y, f) is (y - f)^2 or [|y - f| - epsilon]+; or a table such as `{"name": "epsilon", "epsilon": 0.2}`; or a
        loss object.
    epsilon : float, default 0.1
        Errors up to this size, in the unit of y, cost nothing with the loss "epsilon".
    ridge : float, default 0.0
        Factor of the squared penalty, at least 0. A larger value shrinks the model and makes the weights more equal.
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (1, s)
        Weights d >= 0 of the kernels, most of them 0, with w_a = d_a sum_i c_i phi_a(x_i) for common coefficients c.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    SpicyMKLClassifier : The same for classes.
    ObscureRegressor : A p-norm, between few kernels and all of them equally.
    UniformMKLRegressor : The average kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import SpicyMKLRegressor
    >>> X = np.random.default_rng(0).normal(size=(80, 4))
    >>> y = np.sin(X[:, 0])
    >>> views = {"informative": [0], "noise": [1, 2, 3]}
    >>> model = SpicyMKLRegressor(C=0.5, views=views).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> used = {name.split("/")[0] for name, d in zip(model.kernel_names_, model.kernel_weights_[0]) if d > 0}
    >>> used
    {'informative'}
    """

    formulation: ClassVar[type[Formulation]] = SpicyMKL

    C: float = 1.0
    loss: LossLike = "squared"
    epsilon: float = 0.1
    ridge: float = 0.0


@dataclass(kw_only=True, eq=False, repr=False)
class ObscureRegressor(KernelRegressor):
    """One p-norm combination of kernels for a real target, without an intercept.

        min  lam/2 ||w||_{2,p}^2 + 1/n sum_i l(y_i, f(x_i)),   lam = 1 / (C n),   ||w||_{2,p} = (sum_a ||w_a||^p)^(1/p)

    Centre the target first, for example with `TransformedTargetRegressor` of scikit-learn.

    Parameters
    ----------
    p : float, default 1.5
        In (1, 2]. The closer to 1, the sparser the combination; p = 2 is the sum of the kernels.
    C : float, default 1.0
        Sets lam = 1 / (C n), positive. A larger C fits the training samples more closely.
    loss : {"squared", "epsilon"}, mapping or Loss, default "squared"
        l(y, f) is (y - f)^2 or [|y - f| - epsilon]+; or a table such as `{"name": "epsilon", "epsilon": 0.2}`; or a
        loss object.
    epsilon : float, default 0.1
        Errors up to this size, in the unit of y, cost nothing with the loss "epsilon".
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (1, s)
        Weights u >= 0 of the kernels, with w_a = u_a sum_i c_i phi_a(x_i) for common coefficients c.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    ObscureClassifier : The same for classes, with a multiclass loss.
    SpicyMKLRegressor : Few kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import ObscureRegressor
    >>> X = np.random.default_rng(0).normal(size=(80, 4))
    >>> y = np.sin(X[:, 0])
    >>> model = ObscureRegressor(p=1.1, C=10, views={"informative": [0], "noise": [1, 2, 3]}).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    formulation: ClassVar[type[Formulation]] = Obscure

    p: float = 1.5
    C: float = 1.0
    loss: LossLike = "squared"
    epsilon: float = 0.1
