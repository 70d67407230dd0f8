"""analyze(): measure a pattern against the dense attention of a capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..capture import Capture
from ..expr import Pattern
from . import METRICS, metric
from .base import Metric, StreamedMetric
from .chunk import chunks
from .recall import Recall
from .report import HeadReport, LayerReport, Report
from .subject import Subject, chosen_layers, subjects


def analyze(
    pattern: Pattern,
    capture: Capture,
    *,
    block: int | tuple[int, int] = 128,
    layers: Sequence[int] | None = None,
    docs: tuple[int, ...] | None = None,
    metrics: Sequence[str] = METRICS,
    sensitivity: Sequence[float] | None = None,
) -> Report:
    """What the pattern keeps of the capture's dense attention, exactly, every row of every head.

    Streams through query rows a chunk at a time: memory grows with tokens and tiles, never with
    tokens squared. Query head h reads KV head `h // (heads / kv_heads)`. The dense mask is the
    capture's own; pairs of the pattern outside it are counted (`pairs_outside_dense`) and keep
    nothing. Computed in float32, or float64 for a float64 capture, on the capture's device.

    Args:
        pattern: any pattern; it is resolved for each head and layer.
        capture: q, k, v of a real model.
        block: tile size in tokens, one number or (block_q, block_k): what tile figures refer to.
        layers: layer numbers of the capture, by default all.
        docs: document lengths, for patterns that need them; the dense mask does not change.
        metrics: names from METRICS, by default all.
        sensitivity: how much the model's loss minds each of the capture's layers, one weight from 0 up
            for each in the order of their numbers; by default what the capture says, if it does.

    Raises:
        StudioError: a layer or metric that is not there, heads that differ from the pattern's, weights
            that are no sensitivity of the layers, or tiles too many to keep their mass.

    >>> import pattern_studio as ps
    >>> from pattern_studio.capture import bundled
    >>> report = analyze(ps.parse("causal & (window(63, 0) | sink(4))"), bundled(), metrics=["recall", "oracle"])
    >>> round(report.recall.mean, 3), round(report.oracle_recall, 3), [layer.layer for layer in report.layers]
    (0.556, 0.863, [7, 20])
    """
    chosen = [metric(name) for name in dict.fromkeys(metrics)]
    if sensitivity is not None:
        chosen_layers(capture, layers)  # what is no capture is said as such
        capture = replace(capture, sensitivity=sensitivity)
    found = [
        (subject, _measured(subject, chosen))
        for subject in subjects(pattern, capture, block=block, layers=layers, docs=docs)
    ]
    whole: dict[str, Any] = {}
    for index, kind in enumerate(chosen):
        whole |= kind.over_layers([measured[index] for _, measured in found])
    return Report(
        figures=whole,
        pattern=str(pattern),
        hash=pattern.hash,
        capture=capture.model,
        text=capture.text,
        tokens=len(capture.tokens),
        causal=capture.causal,
        block=found[0][0].layout.block,
        layers=tuple(_layer_report(subject, measured) for subject, measured in found),
    )


def _measured(subject: Subject, chosen: Sequence[type[Metric]]) -> list[Metric]:
    measured = [kind(subject) for kind in chosen]
    streamed = [one for one in measured if isinstance(one, StreamedMetric)]
    if streamed:
        for chunk in chunks(subject):
            for one in streamed:
                one.add(chunk)
    for one in streamed:
        one.finish()
    return measured


def _layer_report(subject: Subject, measured: Sequence[Metric]) -> LayerReport:
    def collect(heads: slice) -> dict[str, Any]:
        return {key: value for one in measured for key, value in one.figures(heads).items()}

    heads = tuple(HeadReport(collect(slice(head, head + 1)), head) for head in range(subject.layer.heads))
    rows = next((one.rows for one in measured if isinstance(one, Recall)), None)
    return LayerReport(collect(slice(None)), subject.number, heads, rows)
