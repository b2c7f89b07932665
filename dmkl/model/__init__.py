"""Models: made from a fit, saved, loaded, scored."""

from dmkl.model.calibration import Calibration, calibrate, load_calibration
from dmkl.model.files import load_model, save_model
from dmkl.model.metrics import per_class, score, score_like
from dmkl.model.model import Model, Source, check_views, make_model, support_per_class
from dmkl.model.predictions import Predictions, load_predictions, predictions, save_predictions

__all__ = [
    "Calibration",
    "Model",
    "Predictions",
    "Source",
    "calibrate",
    "check_views",
    "load_calibration",
    "load_model",
    "load_predictions",
    "make_model",
    "per_class",
    "predictions",
    "save_model",
    "save_predictions",
    "score",
    "score_like",
    "support_per_class",
]
