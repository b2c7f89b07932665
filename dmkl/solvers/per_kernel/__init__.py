"""MIKL: coefficients for every sample and kernel, kernels of any kind."""
