"""Classifiers with one combination of kernels for all classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.estimators.base import KernelClassifier
from dmkl.problems import Formulation
from dmkl.solvers import Obscure, SharedMKL


@dataclass(kw_only=True, eq=False, repr=False)
class SharedMKLClassifier(KernelClassifier):
    """One set of sparse kernel weights for all classes, good for the classes together or for the hardest one.

    With y_ik = 1 if sample i is in class k and -1 otherwise, and with p >= 0, sum_a p_a = 1,

        min over p  sum_k H_k(p)    or    min over p  max_k H_k(p),    where
        H_k(p) = min  1/2 sum_a ||w_ka||^2 / p_a + C sum_i [1 - y_ik (sum_a <w_ka, phi_a(x_i)> + b_k)]+

    Parameters
    ----------
    C : float, default 1.0
        Factor of the losses, positive. A larger C fits the training samples more closely.
    mode : {"sum", "max"}, default "sum"
        Whether the sum over the classes is minimised, or the class with the largest objective.
    intercept : bool, default True
        Whether every class has an intercept b_k.
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (m, s)
        The weights p, in every row the same; m is 1 for two classes.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    L1MKLClassifier : Weights of its own for every class.
    ObscureClassifier : One combination with a multiclass loss.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import SharedMKLClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.permutation(np.arange(60) % 3)
    >>> X = 3 * np.eye(3)[y] + rng.normal(size=(60, 3))
    >>> model = SharedMKLClassifier(C=10).fit(X, y)
    >>> model.predict(4 * np.eye(3))
    array([0, 1, 2])
    >>> bool((model.kernel_weights_ == model.kernel_weights_[0]).all())
    True
    """

    formulation: ClassVar[type[Formulation]] = SharedMKL

    C: float = 1.0
    mode: str = "sum"
    intercept: bool = True


@dataclass(kw_only=True, eq=False, repr=False)
class ObscureClassifier(KernelClassifier):
    """One p-norm combination of kernels for all classes with a multiclass loss, without an intercept.

        min  lam/2 ||w||_{2,p}^2 + 1/n sum_i l_i,    lam = 1 / (C n),    ||w||_{2,p} = (sum_a ||w_a||^p)^(1/p)

    where w_a holds the coefficients of all classes of kernel a, and the loss of sample i is [1 - (f_y(x_i) - max_{k !=
    y} f_k(x_i))]+ with y its class, or the sum over the classes of [1 - y_ik f_k(x_i)]+.

    Parameters
    ----------
    p : float, default 1.5
        In (1, 2]. The closer to 1, the sparser the combination; p = 2 is the sum of the kernels.
    C : float, default 1.0
        Sets lam = 1 / (C n), positive. A larger C fits the training samples more closely.
    loss : {"multiclass", "hinge"}, default "multiclass"
        The multiclass loss, or the hinge losses of each class against the rest.
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (m, s)
        Weights of the kernels, in every row the same; m is 1 for two classes.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    LpMKLClassifier : A p-norm with one problem for each class.
    SharedMKLClassifier : Sparse weights for all classes.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import ObscureClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.permutation(np.arange(60) % 3)
    >>> X = 3 * np.eye(3)[y] + rng.normal(size=(60, 3))
    >>> model = ObscureClassifier(p=1.1, C=10).fit(X, y)
    >>> model.predict(4 * np.eye(3))
    array([0, 1, 2])
    """

    formulation: ClassVar[type[Formulation]] = Obscure

    p: float = 1.5
    C: float = 1.0
    loss: str = "multiclass"
