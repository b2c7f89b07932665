"""SharedMKL: one combination of kernels for all classes."""
