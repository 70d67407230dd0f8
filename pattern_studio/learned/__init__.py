"""Patterns that read content: block scores from q and k, learned gates, patterns fitted to a capture."""
