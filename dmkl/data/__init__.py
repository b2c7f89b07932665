"""From files to checked values: labels, named views, data sets, and their division into parts."""

from dmkl.data.dataset import Dataset, View, make_view
from dmkl.data.examples import EXAMPLES
from dmkl.data.labels import Labels, encode_like, make_labels
from dmkl.data.load import announced, load_batches, load_dataset, load_split, read_source
from dmkl.data.readers import READERS, read_arrays
from dmkl.data.splits import Fold, check_folds, make_folds, split

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
