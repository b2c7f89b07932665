"""Bundle methods for SharedMKL: the kernel weights that all classes share, from cutting planes of the SVMs."""
