"""Attention modules: the nn.MultiheadAttention drop-in, transformer blocks and adapters of frameworks."""
