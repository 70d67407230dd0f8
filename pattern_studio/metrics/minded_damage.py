"""minded_damage: what a pattern costs a model's loss, where it is known which rows and layers that minds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from .base import StreamedMetric
from .chunk import Chunk
from .subject import Subject
from .turned import turned, weighed

ROWS = 32  # whose changes are projected at a time


@dataclass(frozen=True)
class MindedFigures:
    """What `minded_damage` is made of; 0 is best. `lost`, 0 to 1; `turned`, 0 to 1, None without weights; `stirred`."""

    lost: float
    turned: float | None
    stirred: float


class MindedDamage(StreamedMetric):
    """How much a pattern hurts, `sqrt(lost * turned * stirred)`, from 0 (best) up. It has no unit: it ranks, no more.

    - `lost = sum of w_i (1 - r_i)^2 / sum of w_i`, r_i a row's mass recall and w_i how much the loss minds that row of
      that head (`Capture.minds`), over rows, heads and layers.
    - `turned = (sum over layers of v_l (mean over the layer's heads of (1 - c_h)^8))^(1/8)`, c_h the cosine of a
      head's output with and without the pattern (below 0 counts as 0) and v_l the layers' weights with sum 1
      (`Capture.sensitivity`).
    - `stirred = max over layers of the mean over tokens of |W d|^2 / |h|^2`: d how the outputs of the layer's heads
      change, W their projection and h the residual stream that enters the layer. A pattern without the sink makes
      heads say a lot that say next to nothing: no cosine and no recall tells how much.

    `lost` and `stirred` are over the second half of the text, whose rows have a context to lose. A head or a layer
    alone has no other to be weighed against. Where `lost` has no row to weigh, or the dense output is 0 throughout,
    both keys are None, as `minded_damage` is where weights are all 0. It needs a decoder.

    Source: ours. Chosen on SmolLM2-135M and Qwen2.5-Coder-0.5B at 256 tokens; rank correlations there and on patterns
    that nothing was chosen on are in gallery/claims, from `python -m benchmarks.predictors`.

    Keys, both only where a capture has `minds`: `minded` (MindedFigures), and `minded_damage` where it has a
    `sensitivity` too.

    >>> from dataclasses import replace
    >>> import pattern_studio as ps
    >>> from pattern_studio.capture import LayerMinds, Minds, bundled
    >>> from pattern_studio.metrics import analyze
    >>> made = LayerMinds(torch.ones(9, 1024), torch.eye(576), torch.full((1024,), 9.0))  # made up, not measured
    >>> capture = replace(bundled(), minds=Minds({7: made, 20: made}))
    >>> texts = "causal", "causal & (window(255, 0) | sink(4))", "causal & window(255, 0)"
    >>> reports = [analyze(ps.parse(text), capture, metrics=["minded_damage"]) for text in texts]
    >>> [round(report.minded_damage, 3) for report in reports]
    [0.0, 0.137, 0.641]
    """

    def __init__(self, subject: Subject) -> None:
        self.minds, self.weight, self.heads = subject.minds, subject.weight, subject.layer.heads
        self.known = subject.minds is not None
        self.first, self.rows = subject.layer.tokens // 2, subject.layer.tokens
        # Per head: |o|^2, |o_M|^2, o . o_M, the weighed lost mass squared and its weights.
        self.sums = torch.zeros(5, self.heads, dtype=torch.float64)
        # Sums over rows of (W d)_g . (W d)_h / |h|^2: of any heads together, the change is the sum over their pairs.
        self.pairs = torch.zeros(self.heads, self.heads, dtype=torch.float64)
        self.changes: list[Tensor] = []
        self.projection: Tensor | None = None

    def add(self, chunk: Chunk) -> None:
        if self.minds is None:
            return
        o, sparse = chunk.dense_out.double(), chunk.sparse_out.double()
        outputs = [part.sum((1, 2)) for part in (o.square(), sparse.square(), o * sparse)]
        first = max(self.first - chunk.first, 0)  # of the second half, within the chunk
        weights = self.minds.rows[chunk.heads, chunk.first + first : chunk.stop].double()
        lost = (1 - chunk.recall[:, first:].double()).square()
        sums = [*outputs, (weights * lost).sum(1), weights.sum(1)]
        self.sums[:, chunk.heads] += torch.stack(sums).cpu()
        self.changes.append((chunk.sparse_out - chunk.dense_out)[:, first:])
        if chunk.heads.stop == self.heads:  # the stretch's last chunk
            self._stir(torch.cat(self.changes), chunk.first + first)
            self.changes = []

    def _stir(self, change: Tensor, first: int) -> None:
        """Adds the rows of all heads from `first` on, [heads, rows, head_dim]."""
        assert self.minds is not None
        if self.projection is None:  # [heads, head_dim, width]
            self.projection = self.minds.projection.to(change.dtype).T.unflatten(0, (self.heads, -1))
        for at in range(0, change.shape[1], ROWS):
            some = change[:, at : at + ROWS]
            stream = self.minds.stream[first + at : first + at + some.shape[1]].to(change.dtype)
            moved = (some @ self.projection / stream.sqrt()[:, None]).flatten(1)  # [heads, rows * width]
            self.pairs += (moved @ moved.T).double().cpu()

    def finish(self) -> None:
        self.projection = self.minds = None  # the next layer's come

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        return _figures([self], None if self.weight is None else [1], heads)

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        weights = [part.weight for part in layers if part.weight is not None]  # all of them or none
        return _figures(layers, weights or None)


def _figures(
    layers: Sequence[MindedDamage], weights: Sequence[float] | None, heads: slice = slice(None)
) -> dict[str, Any]:
    if not layers[0].known:
        return {}
    sums = [part.sums[:, heads] for part in layers]
    dense, *_, lost, minded = torch.cat(sums, 1).sum(1).tolist()
    if not dense or not minded:
        return {"minded": None} | ({} if weights is None else {"minded_damage": None})
    way = None if weights is None else weighed([turned(*each[:3]) for each in sums], weights)
    # Rounding can leave a sum that is 0 a little below.
    stirred = max(max(float(part.pairs[heads, heads].sum()), 0) / (part.rows - part.first) for part in layers)
    found = MindedFigures(lost / minded, way, stirred)
    if weights is None:
        return {"minded": found}
    return {"minded": found, "minded_damage": None if way is None else (found.lost * way * stirred) ** 0.5}


METRIC = MindedDamage
