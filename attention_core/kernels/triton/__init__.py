"""Portable fused kernels: one family of Triton programs that runs every pattern. A pattern is data."""
