"""Small things that every layer uses and that know nothing of kernels."""
