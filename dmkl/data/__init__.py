"""From files to checked values: labels, named views, data sets, and their training and test rows."""

from dmkl.data.batches import load_batches
from dmkl.data.dataset import Dataset, View, make_view
from dmkl.data.examples import EXAMPLES
from dmkl.data.folds import Fold, check_folds, make_folds
from dmkl.data.labels import Labels, encode_like, make_labels
from dmkl.data.load import announced, load_dataset, load_split, read_source, split
from dmkl.data.readers import READERS, read_arrays

__all__ = [
    "EXAMPLES",
    "READERS",
    "Dataset",
    "Fold",
    "Labels",
    "View",
    "announced",
    "check_folds",
    "encode_like",
    "load_batches",
    "load_dataset",
    "load_split",
    "make_folds",
    "make_labels",
    "make_view",
    "read_arrays",
    "read_source",
    "split",
]
