"""Report: what analyze() found, typed, and as JSON values, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .predicts import CORRELATIONS, described, first_figure

if TYPE_CHECKING:
    from .cost import CostFigures
    from .density import DensityFigures
    from .distance import DistanceFigures
    from .divergence import DivergenceFigures
    from .locality import LocalityFigures
    from .output_error import OutputErrorFigures
    from .recall import RecallFigures


@dataclass(frozen=True)
class Figures:
    """The figures of a head, a layer or the whole capture: `figures` maps each key to what its metric found.

    The first metrics have properties; they are None where the metric was not asked for.
    """

    figures: Mapping[str, Any]

    @property
    def minded_damage(self) -> float | None:
        """Damage by what the model minds of rows, layers and its residual stream, 0 is best; None where not known."""
        return self.figures.get("minded_damage")

    @property
    def weighted_damage(self) -> float | None:
        """Damage with layers weighed by how much the model minds each, 0 (best) to 1; None where that is not known."""
        return self.figures.get("weighted_damage")

    @property
    def damage(self) -> float | None:
        """One figure that ranks patterns by what they cost the loss, 0 (best) to 1; also None for an output of 0."""
        return self.figures.get("damage")

    @property
    def recall(self) -> RecallFigures | None:
        """Mass recall over rows: mean, p1, min."""
        return self.figures.get("recall")

    @property
    def output_error(self) -> OutputErrorFigures | None:
        """Relative error of the attention output: rel_l2, rel_l1, cosine."""
        return self.figures.get("output_error")

    @property
    def oracle_recall(self) -> float | None:
        """Mean recall of the best choice of equally many tiles."""
        return self.figures.get("oracle_recall")

    @property
    def regret(self) -> float | None:
        """Oracle recall - mean recall, at least 0."""
        return self.figures.get("regret")

    @property
    def divergence(self) -> DivergenceFigures | None:
        """Kullback-Leibler, total variation and Jensen-Shannon, means over rows."""
        return self.figures.get("divergence")

    @property
    def distance(self) -> DistanceFigures | None:
        """Dense and kept attention mass by distance."""
        return self.figures.get("distance")

    @property
    def locality(self) -> LocalityFigures | None:
        """Kept pairs by distance."""
        return self.figures.get("locality")

    @property
    def density(self) -> DensityFigures | None:
        """Token and block densities, labelled."""
        return self.figures.get("density")

    @property
    def cost(self) -> CostFigures | None:
        """Flops, bytes and estimated milliseconds."""
        return self.figures.get("cost")

    def as_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold; an infinite figure is None there, as is one that was not measured."""
        damages = [name for name in CORRELATIONS if name in self.figures] or ["damage"]
        first = {key: None for key in (*damages, "damage", "recall", "output_error", "oracle_recall", "regret")}
        return {**first, **_plain(self.figures)}


@dataclass(frozen=True)
class HeadReport(Figures):
    """One query head of a layer."""

    head: int

    def as_dict(self) -> dict[str, Any]:
        return {"head": self.head, **super().as_dict()}


@dataclass(frozen=True, eq=False)
class LayerReport(Figures):
    """One layer. `row_recall` is each row's mass recall, float64 [heads, rows], None where recall was not asked for."""

    layer: int
    heads: tuple[HeadReport, ...]
    row_recall: NDArray[np.float64] | None

    def as_dict(self) -> dict[str, Any]:
        return {"layer": self.layer, **super().as_dict(), "heads": [head.as_dict() for head in self.heads]}


@dataclass(frozen=True, eq=False)
class Report(Figures):
    """What a pattern keeps of a capture's dense attention: over all layers, and layer by layer.

    `capture` names the model, `text` what it read; `causal` is its own dense mask.
    """

    pattern: str
    hash: str
    capture: str
    text: str
    tokens: int
    causal: bool
    block: tuple[int, int]
    layers: tuple[LayerReport, ...]

    @property
    def warning(self) -> str | None:
        """What may be a mistake: rows that keep no key, as where a pattern lists blocks of another length."""
        empty = self.figures.get("empty_rows")
        if not empty:
            return None
        rows = self.tokens * sum(len(layer.heads) for layer in self.layers)
        return (
            f"{empty:,} of {rows:,} query rows (over heads and layers) keep no key: a pattern that lists positions or "
            f"blocks may have been made for another length than {self.tokens:,} tokens."
        )

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values: the whole's figures, then `layers`, each with its `heads`."""
        return {
            "pattern": self.pattern,
            "capture": self.capture,
            **super().as_dict(),
            "hash": self.hash,
            "text": self.text,
            "tokens": self.tokens,
            "causal": self.causal,
            "block": list(self.block),
            "warning": self.warning,
            "layers": [layer.as_dict() for layer in self.layers],
        }

    def to_html(self) -> str:
        """The report as one HTML page with Plotly figures, whole without a network; some 5 MB, most of it Plotly.

        Raises:
            StudioError: plotly (the extra `app`) is not installed.
        """
        from .html import to_html

        return to_html(self)

    def to_markdown(self) -> str:
        """The report as Markdown: a table over layers and heads, then every other figure of the whole."""
        values = self.as_dict()
        capture, text = (" ".join(said.split()) for said in (self.capture, self.text))
        first = first_figure(self.figures)
        damages = [name for name in CORRELATIONS if name in self.figures] or ["damage"]
        lines = [
            f"# `{self.pattern}`",
            "",
            f"Against the dense {'causal' if self.causal else 'full'} attention of {capture}, {self.tokens} "
            f"tokens of: {text}. Block {self.block[0]} x {self.block[1]}."
            + ("" if first is None else f" {described(first)}")
            + (f" {self.warning}" if self.warning else ""),
            "",
            f"| layer | head | {' | '.join(name.replace('_', ' ') for name in damages)} | recall | p1 | min | "
            "output error (rel. L2) | oracle recall | regret |",
            f"|---|---|{'---|' * len(damages)}---|---|---|---|---|---|",
            _row("all", "all", values, damages),
        ]
        for layer in values["layers"]:
            lines.append(_row(layer["layer"], "all", layer, damages))
            lines += [_row(layer["layer"], head["head"], head, damages) for head in layer["heads"]]
        shown = {"warning", *damages, *Figures({}).as_dict(), *(field.name for field in fields(self))}
        rest = {key: value for key, value in values.items() if key not in shown}
        lines += ["", "| figure | value |", "|---|---|"]
        return "\n".join([*lines, *(f"| {name} | {_text(value)} |" for name, value in _flat(rest))]) + "\n"


def _row(layer: object, head: object, values: Mapping[str, Any], damages: Sequence[str]) -> str:
    recall, error = values["recall"] or {}, values["output_error"] or {}
    cells = (
        *(values[name] for name in damages),
        *(recall.get(key) for key in ("mean", "p1", "min")),
        error.get("rel_l2"),
    )
    return f"| {' | '.join(map(_text, (layer, head, *cells, values['oracle_recall'], values['regret'])))} |"


def _text(value: object) -> str:
    if value is None:
        return "-"
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return repr(shown)[1:-1].replace("|", "\\|")  # a token may hold a line break or a bar


def _flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Nested figures as (dotted name, value) pairs."""
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value, 1))
    else:
        return [(name, value)]
    return [pair for key, part in items for pair in _flat(part, f"{name}.{key}" if name else str(key))]


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
