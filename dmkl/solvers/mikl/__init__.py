"""MIKL: kernels of any kind, coefficients for every sample and kernel."""
