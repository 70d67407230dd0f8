"""What to fit: the layout, its budget, its tiles, and what is held out."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from .. import captures
from ..events import FitSet
from ..fit_spec import BY_DISTANCE, LATER, LAYOUTS, NOTHING, WORTHS, FitSpec
from ..session import follow, on
from .problem_form import BLOCKS_K, BLOCKS_Q


def render(spec: FitSpec) -> None:
    """Draw the fields, one below the other, as the chosen capture can honour them."""
    _choice("layout", "Layout", list(LAYOUTS), spec.layout, lambda name: LAYOUTS[name][0], LAYOUTS[spec.layout][1])
    _by(spec)
    left, right = st.columns(2, gap="small")
    with left:
        _percent(
            "density",
            "Block density, %",
            1,
            spec.density,
            "Active tiles / tiles of the model's own dense mask, over all heads and layers together.",
        )
        _choice("block_q", "Block, rows", list(BLOCKS_Q), spec.block_q, str, "Query rows of a tile.")
    with right:
        _percent(
            "floor",
            "Floor, % of mean",
            0,
            spec.floor,
            "No head falls below this share of the mean budget, and with free tiles no query block: a budget that only "
            "chases mass starves heads and rows, which costs more loss than recall says. By loss, 0 is what was "
            "measured.",
        )
        _choice("block_k", "Block, keys", list(BLOCKS_K), spec.block_k, str, "Keys of a tile.")
    sources = captures.all_sources()
    others = {key: f"another text: {one.title}" for key, one in sources.items() if key != captures.chosen().key}
    options = {NOTHING: "nothing"} | ({LATER: "the second half of the rows"} if spec.spares_rows else {}) | others
    _choice(
        "held_out",
        "Held out",
        list(options),
        held_out(spec, options),
        options.__getitem__,
        "What the fit does not see and is measured on. Another text is another capture of the same model and length, "
        "which you upload under Capture; earlier rows alone can only be fitted by families, and by mass.",
    )


def _by(spec: FitSpec) -> None:
    """What is chosen by, or a sentence on how to get what it takes."""
    able = captures.chosen().gradients
    _choice(
        "by",
        "Chosen by",
        list(WORTHS),
        spec.by,
        WORTHS.__getitem__,
        "Attention mass: what keeps most of this text's attention. What the loss minds: what should cost the model's "
        "loss on this text most to leave out; half of a free tile's worth is then the mean of its diagonal "
        f"(by_distance={BY_DISTANCE}), as it was measured.",
        disabled=not able,
    )
    if not able:
        st.html(
            '<div class="ps-note">To choose by loss, record what it minds: on the Quality page, or by '
            '<code style="white-space:nowrap">pattern-studio capture --gradients</code>.</div>'
        )


def held_out(spec: FitSpec, options: dict[str, str]) -> str:
    """What is held out where the wish can't be honoured: nothing."""
    return spec.held_out if spec.held_out in options else NOTHING


def _percent(field: str, label: str, least: int, value: float, text: str) -> None:
    shown = round(100 * value)
    key = follow(f"fit {field}", shown)
    st.slider(
        label, least, 100, shown, key=key, on_change=on(key, lambda percent: FitSet(field, percent / 100)), help=text
    )


def _choice(
    field: str,
    label: str,
    options: list,
    value: object,
    words: Callable[..., str],
    text: str | None = None,
    disabled: bool = False,
) -> None:
    key = follow(f"fit {field}", value)
    st.selectbox(
        label,
        options,
        options.index(value),
        key=key,
        format_func=words,
        on_change=on(key, lambda chosen: FitSet(field, chosen)),
        disabled=disabled,
        help=text,
    )
