"""Waits for the layout that Design shows: not seen where it is quick, else with a word over the map and a Stop."""

from __future__ import annotations

from concurrent.futures import Future

from streamlit.delta_generator import DeltaGenerator

from .. import compute
from . import figures_panel, quality_panel
from .waiting import awaited, soon

_FRAME = '<div class="ps-frame" aria-hidden="true"></div>'


def render(job: Future[compute.Laid | str], middle: DeltaGenerator, right: DeltaGenerator) -> compute.Laid | str | None:
    """The layout or why there is none, to be drawn below in the columns of the map and the figures.

    None where the visitor has stopped it; frames of the same size then stand in both columns. While it is waited for
    the last map and figures, which Streamlit lets stand until the end of a run, are faint; where there are none the
    frames stand, too (the style sheet chooses).
    """
    over, map_frame, figures_frame = middle.container(key="laying-out"), middle.empty(), right.empty()
    if soon([job]):
        return job.result()
    map_frame.html(_FRAME)
    with figures_frame.container(gap="xsmall", key="figures-frame"):
        figures_panel.render(None)
        quality_panel.unknown()
    with over:
        told = awaited([job], "Laying the pattern out …", older="")
    if told is None:
        return None
    map_frame.empty()
    figures_frame.empty()
    return told[0]
