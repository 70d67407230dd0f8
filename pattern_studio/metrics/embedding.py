"""End to end for an encoder: what a pattern does to its embeddings and to the loss that it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from ..errors import StudioError
from ..expr import Pattern

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SCALE = 20.0  # what sentence-transformers' training multiplies cosines by


@dataclass(frozen=True)
class EmbeddingReport:
    """Losses in nats a pair, and how far the embeddings move.

    - dense, sparse: mean contrastive losses without and with the pattern; `added` is their difference and
      `added_low`, `added_high` its 95 % interval over these pairs.
    - dense_accuracy, sparse_accuracy: how often the right partner is the nearest.
    - drift: mean 1 - cosine of a passage's embeddings with and without the pattern; 0 is best.
    """

    pattern: str
    pairs: int
    tokens: int
    dense: float
    sparse: float
    added_low: float
    added_high: float
    dense_accuracy: float
    sparse_accuracy: float
    drift: float

    @property
    def added(self) -> float:
        """Nats a pair that the pattern adds."""
        return self.sparse - self.dense

    def as_dict(self) -> dict[str, Any]:
        """The same as values that JSON can hold."""
        return {**asdict(self), "added": self.added}


def embed(
    model: PreTrainedModel,
    passages: Sequence[Sequence[int]],
    pattern: Pattern | None = None,
    *,
    block: int | tuple[int, int] = 128,
) -> Tensor:
    """Embeddings of passages, the mean of the last hidden states made unit vectors, float64 [passages, hidden_size].

    Args:
        model: an encoder of transformers in eval mode.
        passages: token ids, with the model's own first and last tokens; all of one length: `swapped` takes no padding.
        pattern: for all layers, or by `heads()` and `layers()`; None leaves the model's own attention.

    Raises:
        StudioError: passages of different or no lengths, a model in training mode, or what `swapped` refuses.
    """
    from .swap import swapped  # needs transformers

    lengths = sorted({len(passage) for passage in passages})
    if len(lengths) != 1 or not lengths[0]:
        raise StudioError(
            f"expected passages of one length of at least 1 token, got lengths {lengths}; cut them to the shortest"
        )
    if model.training:
        raise StudioError("expected a model in eval mode, got one in training mode; call model.eval()")
    tokens = torch.tensor([list(passage) for passage in passages], device=model.device)
    with torch.no_grad():
        if pattern is None:
            hidden = model.base_model(tokens).last_hidden_state
        else:
            with swapped(model, pattern, block=block):
                hidden = model.base_model(tokens).last_hidden_state
    return normalize(hidden.double().mean(1), dim=-1).cpu()


def embedding_loss(
    left: Tensor, right: Tensor, sparse_left: Tensor, sparse_right: Tensor, pattern: Pattern, tokens: int
) -> EmbeddingReport:
    """Compares embeddings of pairs of passages, row n of `left` with row n of `right`, without and with a pattern.

    The loss of a pair is the cross-entropy of finding its right among all rights by `20 * cosine`: what the
    sentence-transformers models are trained on. Take passages that follow one another in a text.

    Args:
        left, right: of `embed` without a pattern, [pairs, hidden_size], at least two pairs.
        sparse_left, sparse_right: the same passages under the pattern.
        tokens: of a passage.

    Raises:
        StudioError: fewer than two pairs, or shapes that differ.

    Source: MultipleNegativesRankingLoss of sentence-transformers (Henderson et al., arXiv:1705.00652).

    >>> import pattern_studio as ps
    >>> one = torch.eye(2).double()
    >>> report = embedding_loss(one, one, one, one.flip(0), ps.dense, tokens=8)
    >>> round(report.dense, 6), round(report.sparse, 6), report.dense_accuracy, report.sparse_accuracy, report.drift
    (0.0, 20.0, 1.0, 0.0, 0.5)
    """
    shapes = {tuple(part.shape) for part in (left, right, sparse_left, sparse_right)}
    if len(shapes) != 1 or left.dim() != 2 or len(left) < 2:
        raise StudioError(
            f"expected four arrays of one shape [pairs, hidden_size] with at least 2 pairs, got {sorted(shapes)}; "
            "embed the same passages twice"
        )
    rows = torch.arange(len(left))
    scores = [SCALE * one @ other.T for one, other in ((left, right), (sparse_left, sparse_right))]  # [pairs, pairs]
    dense, sparse = (cross_entropy(each, rows, reduction="none") for each in scores)
    dense_hits, sparse_hits = (float((each.argmax(1) == rows).double().mean()) for each in scores)
    added = sparse - dense
    half = 1.96 * float(added.std()) / len(added) ** 0.5
    moved = torch.cat([left - sparse_left, right - sparse_right]).square().sum(1) / 2  # of unit vectors: 1 - cosine
    return EmbeddingReport(
        str(pattern), len(left), tokens, float(dense.mean()), float(sparse.mean()),
        float(added.mean()) - half, float(added.mean()) + half, dense_hits, sparse_hits, float(moved.mean()),
    )  # fmt: skip
