"""Record a capture: a folder with a model, its layers, a text; watched while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import streamlit as st

from .. import captures, recording
from ..events import CaptureChosen
from ..session import follow, on, sends, visitor
from ..tasks import tasks
from . import figures_panel, progress

KIND = "record"


def render(kept: captures.Store) -> None:
    """Draw the form, or one sentence on why nothing can be recorded here."""
    figures_panel.group("Record from a model on this machine")
    if reason := recording.why_not():
        st.html(f'<div class="ps-note">{reason}</div>')
        return
    _field(kept, "folder", st.text_input, "Folder", placeholder="/models/mine", help="As save_pretrained leaves it.")
    with st.container(horizontal=True, gap="small"):
        _field(kept, "layers", st.text_input, "Layers", placeholder="0, 7, 20")
        _field(kept, "tokens", st.number_input, "Tokens", min_value=1, max_value=recording.MAX_TOKENS, step=1)
    _field(kept, "text", st.text_area, "Text", height=80, placeholder="Nothing here: the text of the bundled capture")
    name = visitor()

    def begin() -> None:
        spec = kept.record
        tasks().begin(name, KIND, 2, lambda task: recording.record(spec, task))

    _field(
        kept,
        "gradients",
        st.checkbox,
        "Also what the loss minds",
        help="For a fit that is chosen by it, of a model that predicts the next token: six to nine times the time, "
        "and a training step's memory.",
    )
    _field(
        kept,
        "minds",
        st.checkbox,
        "Also what damage is weighed by",
        help="How much the model minds each layer and row, of a model that predicts the next token: with it damage "
        "ranked patterns best on two models. A run for each layer, ten to twenty times one run's time, and a training "
        "step's memory.",
    )
    st.button(
        "Record",
        key="record",
        disabled=not kept.record.folder.strip(),
        help="Loads the model on the CPU and lets it read the text once. No code of the folder runs; only "
        "safetensors weights are read.",
        on_click=begin,
    )


def watch() -> None:
    """How far a recording is, or why it failed; a finished one is chosen. Call it last on a page."""
    task = tasks().of(visitor(), KIND)
    if task is not None:
        progress.render(task, KIND, _take)


def _take(source: captures.Source) -> None:
    captures.store().add(source)
    tasks().forget(visitor(), KIND)
    sends(CaptureChosen(source.key))()
    st.rerun()


def _field(kept: captures.Store, name: str, widget: Callable[..., Any], label: str, **options: Any) -> None:
    def typed(value: Any) -> None:
        kept.record = replace(kept.record, **{name: value})

    value = getattr(kept.record, name)
    key = follow(f"record {name}", value)
    widget(label, value=value, key=key, on_change=on(key, typed), **options)
