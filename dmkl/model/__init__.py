"""Models: made from a fit, saved, loaded, scored."""

from dmkl.model.calibration import Calibration, calibrate, load_calibration
from dmkl.model.metrics import METRICS, leading_metric, measure, per_class
from dmkl.model.model import Model, TrainingKernels, check_views, load_model, make_model, save_model, support_per_class
from dmkl.model.predictions import Predictions, held_out_predictions, load_predictions, save_predictions

__all__ = [
    "METRICS",
    "Calibration",
    "Model",
    "Predictions",
    "TrainingKernels",
    "calibrate",
    "check_views",
    "held_out_predictions",
    "leading_metric",
    "load_calibration",
    "load_model",
    "load_predictions",
    "make_model",
    "measure",
    "per_class",
    "save_model",
    "save_predictions",
    "support_per_class",
]
