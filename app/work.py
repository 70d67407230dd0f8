"""Work: what is being designed, the text as typed and the problem."""

from __future__ import annotations

from dataclasses import dataclass

from pattern_studio import Problem, StudioError

from .reading import Reading, read

PRESET = "causal & (window(255, 0) | sink(4))"
MAX_LENGTH = 1_048_576  # query rows or keys
MAX_HEADS = 256
MAX_BLOCK = 1024
MAX_BESIDE = 3  # more pictures would not fit side by side


@dataclass(frozen=True)
class Work:
    """What is being designed: the text as typed, and the problem. This is what undo brings back.

    `kv_len` None means as many keys as query rows; `docs` are document lengths as typed; `layer` is for
    patterns that differ by layer; `beside` are texts that the pattern is compared with.
    """

    text: str = PRESET
    q_len: int = 1024
    kv_len: int | None = None
    heads: int = 9
    block_q: int = 64
    block_k: int = 64
    docs: str = ""
    layer: int = 0
    beside: tuple[str, ...] = ()

    @property
    def reading(self) -> Reading:
        return read(self.text)

    @property
    def block(self) -> tuple[int, int]:
        return self.block_q, self.block_k

    def problem(self) -> Problem:
        """The problem, or a StudioError where lengths and documents don't fit."""
        kv_len = self.q_len if self.kv_len is None else self.kv_len
        return Problem(self.q_len, kv_len, None, self.heads, document_lengths(self.docs))


def document_lengths(text: str) -> tuple[int, ...] | None:
    """Document lengths from a text such as "512, 256, 256"; an empty text means no documents.

    Raises:
        StudioError: something else than whole numbers.
    """
    if not text.strip():
        return None
    parts = [part.strip() for part in text.replace(";", ",").split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        raise StudioError(f"expected document lengths such as 512, 256, 256, got {text[:60]!r}; write whole numbers")
    return tuple(int(part) for part in parts)
