"""Models: made from a fit, saved, loaded, scored."""

from dmkl.model.files import load_model, save_model
from dmkl.model.metrics import per_class, score, score_like
from dmkl.model.model import Model, Source, check_views, make_model, support_per_class

__all__ = [
    "Model",
    "Source",
    "check_views",
    "load_model",
    "make_model",
    "per_class",
    "save_model",
    "score",
    "score_like",
    "support_per_class",
]
