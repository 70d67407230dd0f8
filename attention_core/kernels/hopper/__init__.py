"""Fused kernels for compute capability 9.0 in Triton's Gluon; what they serve is said in serves.py."""
