"""What to cite: dmkl, and the paper of the formulation."""

from __future__ import annotations

from dmkl.report.contents import Contents
from dmkl.report.markup import NOTHING, Section, paragraph, section
from dmkl.version import __version__

PAPERS = {  # by the name of the formulation in its registry
    "vskl": "J. Aflalo, A. Ben-Tal, C. Bhattacharyya, J. Saketha Nath and S. Raman. Variable Sparsity Kernel Learning. "
    "Journal of Machine Learning Research 12, 2011.",
    "l1": "F. Bach, G. R. G. Lanckriet and M. I. Jordan. Multiple kernel learning, conic duality, and the SMO "
    "algorithm. International Conference on Machine Learning, 2004.",
    "lp": "M. Kloft, U. Brefeld, S. Sonnenburg and A. Zien. Non-sparse regularization and efficient training with "
    "multiple kernels. Technical report UCB/EECS-2010-21, University of California, Berkeley, 2010.",
    "spicy": "T. Suzuki and R. Tomioka. SpicyMKL. Mathematical Engineering Technical Report METR 2009-45, The "
    "University of Tokyo, 2009.",
    "shared": "S. S. Bucak, R. Jin and A. K. Jain. Multi-label Multiple Kernel Learning by Stochastic Approximation: "
    "Application to Visual Object Recognition. Neural Information Processing Systems, 2010.",
    "obscure": "F. Orabona, L. Jie and B. Caputo. Multi Kernel Learning with Online-Batch Optimization. Journal of "
    "Machine Learning Research 13, 2012.",
    "mikl": "M. Kowalski, M. Szafranski and L. Ralaivola. Multiple Indefinite Kernel Learning with Mixed Norm "
    "Regularization. International Conference on Machine Learning, 2009.",
    "uniform": "V. Vapnik. Statistical Learning Theory. Wiley-Interscience, 1998.",
}


def citations(contents: Contents) -> Section:
    name = contents.config["formulation"]["name"]
    source = "Support vector machines are described in:" if name == "uniform" else "The formulation was proposed in:"
    return section(
        "How to cite",
        paragraph(f"The dmkl developers. dmkl: multiple kernel learning with certificates. Version {__version__}."),
        paragraph(source, PAPERS[name]) if name in PAPERS else NOTHING,
    )
