"""Export: every target, how faithfully it holds the pattern, the code or file, and the doctor; and all presets."""

from __future__ import annotations

from html import escape

import streamlit as st

from pattern_studio import StudioError
from pattern_studio.exporters import TARGETS, Export, Fidelity

from .. import compute, exporting, numbers, session
from ..components import doctor_panel, export_list, matrix_table, text_bar
from ..components.waiting import soon_or_awaited, when_done
from ..events import TargetChosen
from ..session import follow, on
from ..state import State

LINES = 400  # of code that are shown; the file has all
INEXACT = ("cover", "lossy")
STYLE = """<style>
[class*="st-key-target-"] div:has(> [data-testid="stRadioCaption"]) { display: flex; flex-direction: row;
  align-items: center; justify-content: space-between; gap: 8px; width: 100%; }
[class*="st-key-target-"] [data-testid="stRadioCaption"] { margin: 0; padding: 0; white-space: nowrap; }
[class*="st-key-target-"] [role="radiogroup"] { gap: 0.2rem; width: 100%; }
.st-key-elsewhere { row-gap: 0; }
.st-key-elsewhere button { min-height: 22px; padding: 0; }
</style>"""


def render() -> None:
    """Draw the page; what takes its time is written beside it."""
    state = session.state()
    text_bar.render(state, export=False)
    st.html(STYLE)
    mine, every = st.tabs(["This pattern", "Every preset"])
    with every:
        matrix_table.render(state)
    with mine:
        _mine(state)


def _mine(state: State) -> None:
    try:
        job = compute.design_job(session.visitor(), state)
        found = soon_or_awaited([job], "Laying the pattern out …")
    except StudioError as error:
        found = [str(error)]
    if found is None:
        return
    [laid] = found
    if isinstance(laid, str):
        st.html(f'<div class="ps-wrong" role="alert">{escape(laid[:600])}</div>')
        return
    pairs = laid[1].pairs
    jobs = [exporting.fidelities_job(session.visitor(), state)]
    when_done(jobs, lambda held: _page(state, held, pairs), "Trying the pattern with every target …")


def _page(state: State, held: dict[str, Fidelity], pairs: int) -> None:
    left, middle, right = st.columns([22, 48, 30], gap="medium")
    with left:
        _targets(state, held, pairs)
    with middle:
        _head(state)
        jobs = [exporting.export_job(session.visitor(), state, allow) for allow in ((), INEXACT)]
        when_done(jobs, lambda exact, inexact: _file(state, exact, inexact), "Writing the file …")
    with right:
        doctor_panel.render(state)


def _targets(state: State, held: dict[str, Fidelity], pairs: int) -> None:
    key = follow("target", state.target)
    st.radio(
        "Target",
        list(TARGETS),
        list(TARGETS).index(state.target),
        key=key,
        captions=[short(held[name], pairs) for name in TARGETS] if held else None,
        on_change=on(key, TargetChosen),
    )
    if not held:
        st.html(
            f'<div class="ps-note">Beyond {exporting.LONG:,} tokens some targets take minutes, so they are tried one '
            "by one, when chosen.</div>"
        )


def short(fidelity: Fidelity, pairs: int) -> str:
    """A fidelity in a word; `pairs` are the pattern's, which what is added is compared with.

    >>> short(Fidelity("exact"), 8), short(Fidelity("cover", 2), 8), short(Fidelity("unsupported", reason="no"), 8)
    ('exact', '+25.0 %', 'no')
    """
    share = numbers.percent(fidelity.pairs / pairs) if pairs else numbers.count(fidelity.pairs)
    return {"exact": "exact", "cover": f"+{share}", "lossy": f"-{share}"}.get(fidelity.kind, "no")


def _head(state: State) -> None:
    target = TARGETS[state.target]
    st.html(
        f'<div class="ps-note">{escape(target.about)}, for {escape(target.consumer)}</div>'
        f'<div class="ps-note" data-proof="{target.proof}">{escape(exporting.PROOF[target.proof])}</div>'
    )


def _file(state: State, exact: Export | str, inexact: Export | str) -> None:
    result = exact
    if isinstance(exact, str):
        st.warning(exact, icon=":material/info:")
        result = inexact
        if isinstance(result, str) or not st.toggle("Write it all the same", key=f"inexact {state.target}"):
            return
    assert isinstance(result, Export)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(str(result.fidelity), color="blue" if result.fidelity.kind == "exact" else "orange")
        st.html(f'<div class="ps-note">{len(result.data):,} bytes</div>', width="stretch")
        export_list.download(result, "Save the file")
    for note in result.notes:
        st.html(f'<div class="ps-note">{escape(note)}</div>')
    _content(result)


def _content(result: Export) -> None:
    content, suffix = result.content, result.suffix
    if isinstance(content, bytes):
        st.markdown("A binary file. Read it in Python:")
        reader = "import numpy\n\narrays = numpy.load({name!r}, allow_pickle=False)"
        if result.target in ("npz", "safetensors"):  # our own; the others are for their consumers
            reader = "from pattern_studio.exporters import read\n\nlayout = read({name!r})"
        st.code(reader.format(name=f"pattern{suffix}"), language="python")
        return
    lines = content.splitlines()
    st.code("\n".join(lines[:LINES]), language={".py": "python", ".json": "json"}.get(suffix), height=480)
    if len(lines) > LINES:
        st.html(f'<div class="ps-note">The first {LINES} of {len(lines):,} lines; the file has all.</div>')
