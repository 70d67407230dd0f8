"""What every exporter shares: the request, what is written, how faithful it is, and the target's entry.

Exporters are siblings and import no other exporter; modules of this folder whose name begins with `_` serve them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Literal

from ..errors import StudioError
from ..expr import Pattern
from ..layout import BlockLayout
from ..leaf import BlockUnit, Leaf
from ..lowering import lower
from ..patterns.docs import Within
from ..problem import Problem


@dataclass(frozen=True)
class Fidelity:
    """How well a target holds a pattern.

    - `exact`: the very same pairs.
    - `cover`: all of the pattern's pairs and `pairs` more (summed over heads).
    - `lossy`: `pairs` of the pattern's pairs are missing (summed over heads).
    - `unsupported`: nothing was written; `reason` says why and what would fit.

    >>> str(Fidelity("cover", 240)), str(Fidelity("exact"))
    ('cover(+240)', 'exact')
    """

    kind: str
    pairs: int = 0
    reason: str = ""

    def __str__(self) -> str:
        shown = {"cover": f"+{self.pairs}", "lossy": f"-{self.pairs}", "unsupported": self.reason}
        return f"{self.kind}({shown[self.kind]})" if self.kind in shown else self.kind


EXACT = Fidelity("exact")


def cover(added: int) -> Fidelity:
    """`exact` where nothing is added, else `cover`."""
    return Fidelity("cover", added) if added else EXACT


class Unsupported(Exception):  # noqa: N818 - not an error of the caller: `check` turns it into a Fidelity
    """Raised by an exporter whose target can't hold the pattern in any way; the text says why and what would fit."""


@dataclass(frozen=True)
class Request:
    """What is to be exported: a pattern (for one `layer`, where it differs by layer), a problem and a block size."""

    pattern: Pattern
    problem: Problem
    block: tuple[int, int]
    layer: int | None = None

    @cached_property
    def layout(self) -> BlockLayout:
        """The pattern lowered at the block size that was asked for."""
        return lower(self.pattern, self.problem, block=self.block, layer=self.layer)

    def lowered(self, block: tuple[int, int]) -> BlockLayout:
        """The pattern lowered at a block size that the target prescribes.

        Raises Unsupported where the pattern itself depends on the block size (`unit=block`).
        """
        if block == self.block:
            return self.layout
        if uses_block(self.pattern):
            raise Unsupported(
                f"it takes blocks of {block[0]} x {block[1]}, and with unit=block the pattern is another one there; "
                f"ask for block=({block[0]}, {block[1]}) or give the unit in tokens"
            )
        return lower(self.pattern, self.problem, block=block, layer=self.layer)


@dataclass(frozen=True)
class Written:
    """What an exporter returns: text or bytes, how faithful they are, and what a reader should know."""

    content: str | bytes
    fidelity: Fidelity = EXACT
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """One entry of the registry: `name` is the file's name; `about` says in one line what it is for.

    `consumer` is the project whose contract it is, with the version that was read. `read` is the importer, from the
    file's bytes, for formats that can be read back. `head_dims` are the head dimensions that the consumer takes, and
    `grouped` what it does where several query heads share a KV head; None where nothing was read about it:

    - "own": it takes fewer KV heads than query heads by itself.
    - "repeat": k and v must be repeated, one for each query head.
    - "maps": it takes one pattern for each KV head.

    `proof` is how the tests hold the export to its consumer:

    - "run": the consumer itself runs it, on the CPU, in every run of the tests.
    - "gpu": the consumer needs a GPU. `make test-gpu` runs it where its package is installed; elsewhere as "contract".
    - "contract": the consumer is not run. Names, shapes, dtypes, polarity and counts are checked, and its rule is
      written out and compared with the pattern pair by pair.
    """

    name: str
    about: str
    consumer: str
    suffix: str
    media_type: str
    write: Callable[[Request], Written]
    proof: Literal["run", "gpu", "contract"]
    read: Callable[[bytes], BlockLayout | Pattern] | None = None
    head_dims: range | tuple[int, ...] | None = None
    grouped: Literal["own", "repeat", "maps"] | None = None


@dataclass(frozen=True)
class Export:
    """A finished export. `content` is text or bytes, to be saved under a name that ends in `suffix`.

    `notes` hold what the target does not say by itself, such as another block size than asked for.
    """

    target: str
    content: str | bytes
    suffix: str
    media_type: str
    fidelity: Fidelity
    notes: tuple[str, ...] = ()

    @property
    def data(self) -> bytes:
        """The content as bytes (text in UTF-8)."""
        return self.content.encode() if isinstance(self.content, str) else self.content


def uses_block(pattern: Pattern) -> bool:
    """Whether the pattern means something else at another block size."""
    own = is_dataclass(pattern) and any(isinstance(getattr(pattern, f.name), BlockUnit) for f in fields(pattern))
    return own or any(uses_block(part) for part in pattern.parts())


def uses_length(pattern: Pattern) -> bool:
    """Whether the pattern means something else where there are more keys; documents keep their own lengths."""
    if isinstance(pattern, Within):
        return False
    own = isinstance(pattern, Leaf) and pattern.reads_length
    return own or any(uses_length(part) for part in pattern.parts())


def need_tokens(problem: Problem) -> None:
    """Refuse problems without queries or keys, which no kernel takes."""
    if not problem.q_len or not problem.kv_len:
        raise Unsupported(
            f"it takes at least one query and one key, got q_len {problem.q_len} and kv_len {problem.kv_len}"
        )


def one_pattern(layout: BlockLayout) -> None:
    """Refuse patterns that differ by head, for targets with one pattern for all heads."""
    if layout.groups > 1:
        raise Unsupported(
            f"it has one pattern for all heads, and this one has {layout.groups}: "
            "export each head's pattern by itself (pattern.resolve(head=...), or export --head)"
        )


def readable(source: bytes, most: int) -> bytes:
    """The bytes of a file to be read, if they are not too many."""
    if len(source) > most:
        raise StudioError(f"expected a file of at most {most:,} bytes, got {len(source):,}; is it another format?")
    return source
