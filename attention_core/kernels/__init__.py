"""Kernels, one file each. They import torch only; `attention_core.ops` validates and dispatches."""
