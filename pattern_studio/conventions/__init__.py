"""Conventions doctor: what a Hugging Face config or a flash (left, right) pair means, and whether a pattern matches.

The same number means different windows in different places: `sliding_window=W` counts the query
itself, flash's `left` does not, an encoder's `local_attention` counts both sides. `read_config` and
`read_flash` turn settings into patterns; `check` holds a pattern against them and names the slip.
"""

from .check import Checkup, Finding, check
from .flash import read_flash
from .huggingface import read_config
from .meaning import Convention, Meaning

__all__ = ["Checkup", "Convention", "Finding", "Meaning", "check", "read_config", "read_flash"]
