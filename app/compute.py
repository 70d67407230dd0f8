"""What pages show, computed: cached by content, bounded, and free of widgets.

Keys are the pattern's hash, the problem and the block size, never arrays; a pattern's hash covers its
whole meaning, so an entry can't be stale.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st
from numpy.typing import NDArray

from pattern_studio import BlockLayout, Pattern, Problem, StudioError, diff, lower, plot
from pattern_studio.diff import Diff
from pattern_studio.exporters import Export, export
from pattern_studio.metrics import LayoutStats, stats_of_layout
from pattern_studio.plot import Viewport, density_map
from pattern_studio.plot.colours import Colours

from . import captures
from .captures import Source
from .jobs import Jobs, Wish
from .map_view import map_view
from .state import State
from .words import layer_cases, names
from .work import Work

if TYPE_CHECKING:
    from pattern_studio.capture import Capture
    from pattern_studio.metrics import Report

HEAD_DIM = 64  # channels that costs are quoted for
LAYERS = 10  # kinds of layers that are drawn
SEEN = 16  # tokens of the smallest cell in pictures of attention
CELLS = 128  # across the longest of them, each with its words
QUALITY = ("minded_damage", "damage", "recall", "output_error", "oracle", "density")
TOO_DEEP = "nested too deeply to be worked with; split it into several patterns"
TOO_LARGE = "this pattern needs more memory than there is at this length; take a shorter problem or a larger block"

Key = tuple[str, Problem, tuple[int, int], int | None]
Laid = tuple[BlockLayout, LayoutStats]


def key_of(work: Work, pattern: Pattern) -> Key:
    """What layouts and figures of a work depend on. Raises StudioError where the problem is none."""
    return pattern.hash, work.problem(), work.block, work.layer if "layers" in names(pattern) else None


def design(state: State) -> Laid:
    """The layout and figures of what is shown.

    Raises:
        StudioError: the pattern and the problem don't fit.
    """
    return layout_of(state, state.pattern)


def layout_of(state: State, pattern: Pattern) -> Laid:
    """The same for another pattern on the problem that is shown."""
    laid = _design(key_of(state.shown, pattern), pattern)
    if isinstance(laid, str):
        raise StudioError(laid)
    return laid


@st.cache_resource(max_entries=16, show_spinner=False)
def _design(key: Key, _pattern: Pattern) -> Laid | str:
    """A layout and its figures, or why there are none, which can take as long to find out."""
    _, problem, block, layer = key
    try:
        layout = lower(_pattern, problem, block=block, layer=layer)
        return layout, stats_of_layout(_pattern, layout, layer)
    except StudioError as error:
        return str(error)
    except RecursionError:
        return TOO_DEEP
    except MemoryError:
        return TOO_LARGE


def design_job(visitor: str, state: State, colours: Colours | None = None) -> Wish[Laid | str]:
    """`design` of what is shown on its way, or why there is none; its map in these colours, if any, comes at once then.

    Raises:
        StudioError: the problem is none.
    """

    def work() -> Laid | str:
        try:
            laid = design(state)
            if colours is None:
                return laid
            map_of(state, colours)
        except StudioError as error:
            return str(error)
        for span in layer_cases(state.pattern)[:LAYERS]:
            _design(key_of(replace(state.shown, layer=span.start), state.pattern), state.pattern)
        return laid

    # What is looked at, and in which colours, is no part of the key: who looks closer waits for the same layout.
    return _layouts().ask(visitor, key_of(state.shown, state.pattern), work)


def beside_job(visitor: str, state: State, other: Pattern) -> Wish[tuple[BlockLayout, LayoutStats, Diff] | str]:
    """The layout and figures of another pattern and how it differs from what is shown, or why not, on their way."""

    def work() -> tuple[BlockLayout, LayoutStats, Diff] | str:
        try:
            return *layout_of(state, other), compared(state, other)
        except StudioError as error:
            return str(error)

    key = key_of(state.shown, state.pattern), key_of(state.shown, other), state.shown.layer
    return _layouts().ask(visitor, key, work)


@st.cache_resource(show_spinner=False)
def _layouts() -> Jobs[Any]:
    # Most take hundredths of a second: they wait neither for a visitor's slow one nor for one that is being stopped.
    return Jobs(kept=16, workers=4, ends=True)


def map_of(state: State, colours: Colours) -> dict[str, Any]:
    """The tile map of what is shown, as `map_view` gives it, in these colours. Raises StudioError as `design` does."""
    layout, _ = design(state)
    key = key_of(state.shown, state.pattern)
    return _map(key, state.head, state.viewport, colours, layout, state.pattern, state.shown.layer)


@st.cache_resource(max_entries=16, show_spinner=False)
def _map(
    key: Key,
    head: int,
    viewport: Viewport | None,
    colours: Colours,
    _layout: BlockLayout,
    _pattern: Pattern,
    _layer: int,
) -> dict[str, Any]:
    return map_view(_layout, _pattern, head, _layer, viewport, colours)


def capture() -> Capture:
    """The capture that this visitor has chosen. Its module needs torch, which takes seconds to load: no page waits."""
    return captures.chosen().load()


def quality(source: Source, pattern: Pattern, block: tuple[int, int], docs: tuple[int, ...] | None) -> Report:
    """What the pattern keeps of a capture's attention; seconds of work, see jobs.py.

    Raises:
        StudioError: the pattern does not fit the capture's heads, layers or tokens.
    """
    from pattern_studio.metrics import analyze

    try:
        return analyze(pattern, source.load(), block=block, docs=docs, metrics=QUALITY)
    except RecursionError:
        raise StudioError(TOO_DEEP) from None


def exported(state: State, target: str, allow: tuple[str, ...] = ()) -> Export | str:
    """What is shown, written for a target; where it can't hold it as exactly as is asked, the reason."""
    try:
        return _exported(key_of(state.shown, state.pattern), target, allow, state.pattern)
    except StudioError as error:
        return str(error)


@st.cache_resource(max_entries=64, show_spinner=False)
def _exported(key: Key, target: str, allow: tuple[str, ...], _pattern: Pattern) -> Export:
    _, problem, block, layer = key
    try:
        return export(_pattern, problem, block, to=target, layer=layer, allow=allow)
    except RecursionError:
        raise StudioError(TOO_DEEP) from None
    except MemoryError:
        raise StudioError(TOO_LARGE) from None


@st.cache_resource(show_spinner=False)
def _jobs() -> Jobs[Any]:
    return Jobs(kept=64)


def compared(state: State, other: Pattern) -> Diff:
    """What is shown beside another pattern, pair by pair. Raises StudioError as `design` does."""
    return _compared(key_of(state.shown, state.pattern), other.hash, state.pattern, other, state.shown.layer)


@st.cache_resource(max_entries=16, show_spinner=False)
def _compared(key: Key, other: str, _a: Pattern, _b: Pattern, layer: int) -> Diff:
    try:
        return diff(_a, _b, key[1], key[2], layer=layer, examples=1)
    except RecursionError:
        raise StudioError(TOO_DEEP) from None
    except MemoryError:
        raise StudioError(TOO_LARGE) from None


def job(visitor: str, key: Hashable, work: Callable[[], Any]) -> Future[Any]:
    """Any work that takes its time, on its way: done or not, once for all visitors who ask for the same key."""
    return _jobs().ask(visitor, key, work)


def quality_job(visitor: str, pattern: Pattern, block: tuple[int, int], docs: tuple[int, ...] | None) -> Wish[Report]:
    """`quality` of the chosen capture on its way: done or not, computed once for all who ask for the same."""
    source = captures.chosen()  # here: where the work is done no visitor is known
    key = (source.key, pattern.hash, block, docs)
    return _jobs().ask(visitor, key, lambda: quality(source, pattern, block, docs))


def picture_block(block: tuple[int, int], tokens: int) -> tuple[int, int]:
    """Cells for pictures of attention: the block where it is large enough to be seen, else as many of it as are.

    >>> picture_block((64, 1), 1024), picture_block((64, 8), 8192)
    ((64, 16), (64, 64))
    """
    seen = max(SEEN, -(-tokens // CELLS))
    return (-(-seen // block[0]) * block[0], -(-seen // block[1]) * block[1])


def mass_job(visitor: str, layer: int, block: tuple[int, int]) -> Future[tuple[int, NDArray]]:
    """The dense attention of a layer of the chosen capture by cell, float32 [heads, rows, keys], on its way.

    It comes with the layer's number; a layer that is not there stands for the first one. The cells are those of
    `picture_block`.
    """
    source = captures.chosen()

    def work() -> tuple[int, NDArray]:
        from pattern_studio.metrics import block_mass

        capture = source.load()
        there = layer if layer in capture.layers else min(capture.layers)
        return there, block_mass(capture, there, picture_block(block, len(capture.tokens)))

    return _jobs().ask(f"{visitor} mass", ("mass", source.key, layer, block), work)


def active_cells(state: State, layer: int, head: int, shape: tuple[int, int]) -> NDArray:
    """Which cells of the chosen capture's attention hold a pair of the pattern, bool [rows, keys]."""
    heads, tokens = capture().layers[layer].heads, len(capture().tokens)
    layout = lower(state.pattern, q_len=tokens, heads=heads, block=shape, layer=layer, docs=state.shown.problem().docs)
    cells = density_map(layout, head, max_cells=(layout.q_blocks, layout.kv_blocks))
    return cells.pairs > 0


def thumbnail(state: State, head: int, side: int, colours: Colours) -> bytes:
    """A small PNG of one head. Raises StudioError as `design` does."""
    return _thumbnail(key_of(state.shown, state.pattern), head, side, colours, design(state)[0])


@st.cache_resource(max_entries=128, show_spinner=False)
def _thumbnail(key: Key, head: int, side: int, colours: Colours, _layout: BlockLayout) -> bytes:
    return plot.thumbnail(_layout, head, side, colours)


def layer_thumbnail(state: State, layer: int, side: int, colours: Colours) -> bytes:
    """The same of the shown head in another layer."""
    there = replace(state, shown=replace(state.shown, layer=layer))
    return thumbnail(there, state.head, side, colours)


def forward_flops(layout: BlockLayout) -> int:
    """Floating-point operations of a forward pass at HEAD_DIM: two products of 2 D for each pair in an active tile."""
    return 4 * HEAD_DIM * layout.tile_pairs


def dense_flops(problem: Problem) -> int:
    """The same for a dense pass over all pairs."""
    return 4 * HEAD_DIM * problem.heads * problem.q_len * problem.kv_len
