"""Classifiers. The first solve one problem for each class, the class against the rest, and a single problem for two
classes; `SharedMKLClassifier` and `ObscureClassifier` learn one combination of kernels for all classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.estimators.base import KernelClassifier, WeightedClassifier
from dmkl.problems import Formulation
from dmkl.problems.losses import LossLike
from dmkl.solvers import L1MKL, MIKL, VSKL, LpMKL, Obscure, SharedMKL, SpicyMKL, UniformMKL


@dataclass(kw_only=True, eq=False, repr=False)
class UniformMKLClassifier(WeightedClassifier):
    """The average kernel: the baseline that learnt kernel weights have to beat.

    Each class has its own problem, with y_i = 1 for its samples and y_i = -1 for the others:

        min  1/2 ||w||^2 + C sum_i l(y_i, <w, phi(x_i)> + b)

    where phi belongs to the kernel (K_1 + ... + K_s) / s.

    Parameters
    ----------
    C : float, default 1.0
        Factor of the losses, positive. A larger C fits the training samples more closely.
    intercept : bool, default True
        Whether there is an intercept b; False is possible with the hinge loss only.
    loss : {"hinge", "logistic", "squared"}, mapping or Loss, default "hinge"
        l(y, f) is [1 - y f]+, log(1 + exp(-y f)) or (y - f)^2; or a table of a name and parameters; or a loss object.
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (m, s)
        1 / s everywhere; m is 1 for two classes, otherwise the number of classes.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    L1MKLClassifier : Learns few kernels.
    LpMKLClassifier : Learns weights between few kernels and all kernels equally.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import UniformMKLClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "above", "below")
    >>> model = UniformMKLClassifier(C=10).fit(X, y)
    >>> model.predict([[1, 0], [0, 1]])
    array(['above', 'below'], dtype='<U5')
    >>> model.kernel_weights_.round(3)
    array([[0.333, 0.333, 0.333]])
    """

    formulation: ClassVar[type[Formulation]] = UniformMKL

    C: float = 1.0
    intercept: bool = True
    loss: LossLike = "hinge"


@dataclass(kw_only=True, eq=False, repr=False)
class VSKLClassifier(WeightedClassifier):
    """Variable sparsity kernel learning: few kernels inside each view, and all views or few of them.

    Each class has its own problem, with y_i = 1 for its samples and y_i = -1 for the others:

        min  1/2 [ sum_j ( sum_{a in j} ||w_a|| )^(2q) ]^(1/q) + C sum_i [1 - y_i (sum_a <w_a, phi_a(x_i)> + b)]+

    where j runs over the groups of kernels: the views, or what `group` in a kernel's table says.

    Parameters
    ----------
    q : float, default 2.0
        In (0, inf]. With q = inf the largest group alone is penalised, 1/2 max_j (sum_{a in j} ||w_a||)^2, so every
        group is used; a smaller q prefers the better groups. Below 1 (composite kernel learning) hardly any weight is
        left for the others; q = 1/2 is `L1MKLClassifier`. Below 1/2 the others have none, and the problem is not
        convex: the model is a stationary point, and `gap_` only bounds how much better another one can be.
    C : float, default 1.0
        Factor of the losses, positive. A larger C fits the training samples more closely.
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (m, s)
        Weights d of the kernels for each class, w_a = d_a sum_i alpha_i y_i phi_a(x_i); m is 1 for two classes.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    L1MKLClassifier : The same with all kernels in one group.
    LpMKLClassifier : Without groups, less sparse.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import VSKLClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> y = np.where(X[:, 0] > X[:, 2], "yes", "no")
    >>> model = VSKLClassifier(q=np.inf, C=10, views={"first": [0, 1], "last": [2, 3]}).fit(X, y)
    >>> model.predict([[1, 0, -1, 0], [-1, 0, 1, 0]])
    array(['yes', 'no'], dtype='<U3')
    >>> model.kernel_weights_.shape, bool(model.gap_ <= 1e-3)
    ((1, 6), True)
    """

    formulation: ClassVar[type[Formulation]] = VSKL

    q: float = 2.0
    C: float = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class L1MKLClassifier(WeightedClassifier):
    """Few kernels of many: the classical l1-norm multiple kernel learning.

    Each class has its own problem, with y_i = 1 for its samples and y_i = -1 for the others:

        min  1/2 ( sum_a ||w_a|| )^2 + C sum_i [1 - y_i (sum_a <w_a, phi_a(x_i)> + b)]+

    Parameters
    ----------
    C : float, default 1.0
        Factor of the losses, positive. A larger C fits the training samples more closely.
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (m, s)
        Weights d >= 0 of the kernels for each class, most of them 0; every row sums to 1, up to the tolerance.
        m is 1 for two classes.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    SpicyMKLClassifier : The same models with other losses, an elastic net and a constant C of another meaning.
    SharedMKLClassifier : The same weights for all classes.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import L1MKLClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> kernels = [{"kernel": "linear", "normalise": ["centre", "unit-trace"]}]
    >>> model = L1MKLClassifier(kernels=kernels, views={"informative": [0], "noise": [1, 2, 3]}).fit(X, y)
    >>> model.kernel_names_
    ['informative/linear()', 'noise/linear()']
    >>> bool(model.kernel_weights_[0, 0] > 0.9)
    True
    """

    formulation: ClassVar[type[Formulation]] = L1MKL

    C: float = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class LpMKLClassifier(WeightedClassifier):
    """Kernel weights of bounded p-norm: from few kernels (p = 1) to all of them equally (p = inf).

    Each class has its own problem, with y_i = 1 for its samples and y_i = -1 for the others:

        min  1/2 ( sum_a ||w_a||^r )^(2/r) + C sum_i [1 - y_i (sum_a <w_a, phi_a(x_i)> + b)]+,   r = 2p / (p + 1)

    Parameters
    ----------
    p : float, default 2.0
        In [1, inf]: p = 1 is `L1MKLClassifier`, p = inf the SVM on the sum of the kernels.
    C : float, default 1.0
        Factor of the losses, positive. A larger C fits the training samples more closely.
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (m, s)
        Weights d >= 0 of the kernels for each class; every row has the p-norm 1, up to the tolerance. m is
        1 for two classes.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    ObscureClassifier : A p-norm with one combination of kernels for all classes and a multiclass loss.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import LpMKLClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "above", "below")
    >>> model = LpMKLClassifier(p=2, C=10).fit(X, y)
    >>> bool(abs(np.linalg.norm(model.kernel_weights_) - 1) < 0.01)
    True
    """

    formulation: ClassVar[type[Formulation]] = LpMKL

    p: float = 2.0
    C: float = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class SpicyMKLClassifier(WeightedClassifier):
    """Few kernels of very many, with any of three losses and optionally an elastic net.

    Each class has its own problem, with y_i = 1 for its samples and y_i = -1 for the others:

        min  sum_i l(y_i, sum_a <w_a, phi_a(x_i)> + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2

    Parameters
    ----------
    C : float, default 1.0
        Factor of the sparse penalty: here a larger C uses fewer kernels. It may be 0 if `ridge` is positive.
    loss : {"hinge", "logistic", "squared"}, mapping or Loss, default "hinge"
        l(y, f) is [1 - y f]+, log(1 + exp(-y f)) or (y - f)^2; or a table of a name and parameters; or a loss object.
    ridge : float, default 0.0
        Factor of the squared penalty, at least 0. A larger value shrinks the model and makes the weights more equal.
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (m, s)
        Weights d >= 0 of the kernels for each class, most of them 0, with w_a = d_a sum_i c_i phi_a(x_i) for common
        coefficients c. m is 1 for two classes.
    <shared attributes>

    Raises
    ------
    <shared errors>

    See Also
    --------
    SpicyMKLRegressor : The same for a real target.
    L1MKLClassifier : The same models with the hinge loss; there a larger C fits more closely.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import SpicyMKLClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 6))
    >>> y = np.where(X[:, 0] > X[:, 1], "above", "below")
    >>> views = {f"column {k}": [k] for k in range(6)}
    >>> model = SpicyMKLClassifier(C=0.1, loss="logistic", kernels=[{"kernel": "linear"}], views=views)
    >>> int((model.fit(X, y).kernel_weights_ > 0).sum())
    6
    >>> int((model.set_params(C=4).fit(X, y).kernel_weights_ > 0).sum())
    2
    """

    formulation: ClassVar[type[Formulation]] = SpicyMKL

    C: float = 1.0
    loss: LossLike = "hinge"
    ridge: float = 0.0


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
    y} f_k(x_i))]+ with y its class, or another one.

    Parameters
    ----------
    p : float, default 1.5
        In (1, 2]. The closer to 1, the sparser the combination; p = 2 is the sum of the kernels.
    C : float, default 1.0
        Sets lam = 1 / (C n), positive. A larger C fits the training samples more closely.
    loss : {"multiclass", "softmax", "hinge", "logistic", "squared"}, mapping or Loss, default "multiclass"
        The multiclass loss; log sum_k exp f_k(x_i) - f_y(x_i), the logistic loss of all classes together; or the sum
        over the classes of another one, each class against the rest; or a table of a name and parameters; or a loss
        object.
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
    ObscureRegressor : The same for a real target.
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
    loss: LossLike = "multiclass"


@dataclass(kw_only=True, eq=False, repr=False)
class MIKLClassifier(KernelClassifier):
    """Kernels or similarities of any kind, also indefinite and asymmetric ones, with sparse coefficients.

    The scores are f(x) = sum_{i,a} alpha_ia k_a(x_i, x). Each class has its own problem, with y_i = 1 for its samples
    and y_i = -1 for the others:

        min  sum_i [1 - y_i f(x_i)]+^2 + lam/Q ||alpha||_{PQ;r}^Q

    Parameters
    ----------
    norm : {"1", "2", "21;1", "21;2", "12;1", "12;2"}, default "21;2"
        "PQ;r": the inner P-norm runs over the kernels of one sample (r = 1) or over the samples of one kernel (r = 2),
        the outer Q-norm over the rest; "1" and "2" are the 1-norm and the 2-norm of all coefficients. So "21;2" uses
        few kernels, "21;1" few samples, "1" few coefficients.
    lam : float, default 1.0
        Factor of the penalty, positive. A larger lam makes the coefficients smaller or sparser.
    <shared parameters>

    Attributes
    ----------
    kernel_weights_ : array of shape (m, s)
        Each kernel's share of the coefficients of a class; m is 1 for two classes. The coefficients themselves are
        `model_.coef`, of shape (number of support samples, m s).
    <shared attributes>

    Raises
    ------
    ConfigError
        From `fit`, if a constant is out of its range, or if a kernel or a column is unknown.
    DataError
        From `fit` and `predict`, if a view is missing or has the wrong shape.

    See Also
    --------
    dmkl.repair : Makes an indefinite kernel positive semidefinite, for the other estimators.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import MIKLClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "above", "below")
    >>> model = MIKLClassifier(norm="1", kernels=[{"kernel": "sigmoid"}, {"kernel": "linear"}]).fit(X, y)
    >>> model.predict([[1, 0], [0, 1]])
    array(['above', 'below'], dtype='<U5')
    """

    formulation: ClassVar[type[Formulation]] = MIKL

    norm: str = "21;2"
    lam: float = 1.0
