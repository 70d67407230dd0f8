"""A finished fit: what it was fitted on, what it keeps beside what it must beat, its heads, and the way to Design."""

from __future__ import annotations

from base64 import b64encode
from html import escape

import streamlit as st

from pattern_studio import BlockLayout, Problem, lower, plot
from pattern_studio.exporters import export

from .. import numbers
from ..events import Opened
from ..fit_spec import FREE, LOSS, FitSpec
from ..fitting import Fit
from ..reading import MAX_TEXT
from ..session import sends
from ..theme import colours
from ..work import Work
from . import figures_panel

MOST = 32  # heads of a layer that are drawn
TRANSFER = (
    "Free tiles list where this text's attention lay and hardly transfer. Measured on SmolLM2-135M (two layers, 4,096 "
    "tokens, tiles of 64 x 8, density 10 %) they kept 83.8 % of the text they were fitted to and 51.6 % of another, of "
    "which a plain window with 4 sinks kept 54.3 %."
)
TRANSFER_BY_LOSS = (
    "Half of a tile's worth is the mean of its diagonal, which carries over to other text better than single tiles do. "
    "Measured on SmolLM2-135M (30 layers, 4,096 tokens, tiles of 64 x 8, density 25 %) on one text, fitted to another, "
    "and the other way round: with a floor of 0 such a pattern added 0.42 and 1.97 % to the loss; chosen by attention "
    "mass, with a floor of 25 %, 2.78 and 2.90 %."
)


def render(spec: FitSpec, found: Fit) -> None:
    """Draw the result of a fit; `spec` is what the form says now."""
    fitted, work = found.fitted, work_of(found)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            "Open in Design",
            type="primary",
            key="open fit",
            disabled=len(work.text) > MAX_TEXT,
            on_click=sends(Opened(work), leave_for="Design"),
        )
        first = min(found.heads)
        file = export(fitted.pattern, work.problem(), fitted.block, to="json", layer=first)
        st.download_button(
            "Save", file.content, "fitted.json", file.media_type, key="save fit", icon=":material/download:",
            help="The whole pattern as JSON, for Python and the command line.", on_click="ignore",
        )  # fmt: skip
        if len(work.text) > MAX_TEXT:
            st.html(
                f'<div class="ps-wrong" role="alert">{len(work.text):,} characters, more than the {MAX_TEXT:,} that '
                "Design takes: save it, or take larger blocks or a smaller density.</div>"
            )
        else:
            st.html(
                f'<div class="ps-note">{len(work.text):,} characters of text; Undo in Design brings back yours</div>'
            )
    st.html(f'<div class="ps-note">{"<br>".join(escape(line) for line in told(found))}</div>')
    _table(found)
    if found.spec != spec:
        st.html('<div class="ps-note">The form has been changed since; this is the fit before.</div>')
    _heads(found)


def told(found: Fit) -> list[str]:
    """In words: what the fit saw, what was held out, and what follows."""
    fitted = found.fitted
    lines = [f"Fitted on {fitted.fit.on}. Capture: {found.capture}."]
    if fitted.held_out is None:
        lines.append("Nothing was held out: these figures say what it keeps of this text, not of another.")
    else:
        lines.append(f"Held out: {fitted.held_out.on}.")
    if found.spec.by == LOSS:
        lines.append("Chosen by what the loss minds, not by the attention mass that recall is of.")
    if found.spec.layout == FREE:
        lines.append(TRANSFER_BY_LOSS if found.spec.by == LOSS else TRANSFER)
    return lines


def work_of(found: Fit) -> Work:
    """The fitted pattern with the problem that it was fitted for; a pattern by layer shows its first one."""
    block_q, block_k = found.fitted.block
    first = min(found.heads)
    return Work(
        text=str(found.fitted.pattern),
        q_len=found.tokens,
        heads=found.heads[first],
        block_q=block_q,
        block_k=block_k,
        layer=first if len(found.heads) > 1 else 0,
    )


def _table(found: Fit) -> None:
    heads = ("", "block density", "recall, fitted rows", "recall, held out")
    titles = (
        "One pattern for all heads where it is static.",
        "Active tiles / tiles of the model's own dense mask, all heads and layers.",
        "Mean share of dense attention's probability that is kept on the rows the fit saw.",
        "The same on rows or a text that the fit did not see.",
    )
    head = "".join(f'<th title="{escape(title)}">{name}</th>' for name, title in zip(heads, titles, strict=True))
    body = ""
    for n, line in enumerate(found.lines):
        name = f"<b>{escape(line.title)}</b>" if n == 0 else escape(line.title)
        cells = "".join(f"<td>{numbers.percent(value)}</td>" for value in (line.density, line.seen, line.unseen))
        body += f"<tr><td>{name}</td>{f'<td colspan=3>{escape(line.note[:160])}</td>' if line.note else cells}</tr>"
    st.html(f'<table class="ps-rows ps-figures"><tr>{head}</tr>{body}</table>')


def _heads(found: Fit) -> None:
    """Every head's tiles, with its density and recall on hover."""
    c, fitted = colours(), found.fitted
    for number, count in found.heads.items():
        figures_panel.group(f"Layer {number}", "each head's tiles; density and recall on hover")
        layout = layout_of(found, number)
        pictures = ""
        for head in range(min(count, MOST)):
            data = b64encode(plot.thumbnail(layout, head, 96, c)).decode()
            words = (
                f"head {head}: block density {numbers.percent(fitted.density[number][head])}, recall "
                f"{numbers.percent(fitted.fit.heads[number][head])}"
            )
            pictures += (
                f'<img class="ps-head" style="width:72px" alt="Layer {number}, {words}" title="{words}" '
                f'src="data:image/png;base64,{data}">'
            )
        st.html(f'<div style="display:flex;flex-wrap:wrap;gap:6px">{pictures}</div>')


def layout_of(found: Fit, number: int) -> BlockLayout:
    """The fitted pattern lowered for one layer."""
    problem = Problem(found.tokens, heads=found.heads[number])
    return lower(found.fitted.pattern, problem, block=found.fitted.block, layer=number)
