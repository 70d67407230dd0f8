"""The models of the study: for each a text to fit to, a capture of another, and the loss on a third."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

import pattern_studio as ps
from pattern_studio.capture import Capture
from pattern_studio.capture.load import load_model
from pattern_studio.capture.record import record
from pattern_studio.learned import measured_minds
from pattern_studio.metrics.embedding import embed, embedding_loss
from pattern_studio.metrics.loss import added_interval, position_losses

from ..where import JARGON
from .texts import SOURCE, chapters

Spans = dict[str, tuple[int, int]]  # chapters by what they are for, the last one not included
SPANS: Spans = {"fit": (1, 4), "metrics": (4, 6), "loss": (6, 11)}
OTHER_SPANS: Spans = {"fit": (1, 4), "metrics": (7, 9), "loss": (9, 12)}
CPU = torch.device("cpu")


class Study(ABC):
    """One model. `fitted` and `capture` are its captures of the first two texts; `said` names the loss in words.

    `target` is the number of `loss` that figures are to predict.
    """

    target: ClassVar[str] = "added"
    fitted: Capture
    capture: Capture
    said: str

    @abstractmethod
    def loss(self, pattern: ps.Pattern, block: tuple[int, int]) -> dict[str, Any]:
        """What the pattern adds on the third text: `added`, its interval `low`, `high`, and the dense loss."""

    @abstractmethod
    def calibration(self, pattern: ps.Pattern, block: tuple[int, int], layer: int | None) -> dict[str, float]:
        """What one layer under the pattern (None: all) does on the text of the metrics.

        `added` is the loss, `moved` how far what the model says moves, which is never below 0.
        """


class Decoder(Study):
    """SmolLM2-135M: next-token loss of the second half of the text."""

    MODEL: ClassVar[str] = "smollm2"

    def __init__(self, tokens: int, device: torch.device = CPU, jargon: Path = JARGON, spans: Spans = SPANS) -> None:
        self.loaded = load_model(self.MODEL, head=True)
        self.loaded.model.to(device)
        self.spans = spans
        self.ids = {use: self.loaded.ids(chapters(*span, jargon), tokens) for use, span in spans.items()}
        self.fitted, plain = (self._capture(use).to(device) for use in ("fit", "metrics"))
        minds = measured_minds(self.loaded.model, self.ids["metrics"], plain)
        self.capture = replace(plain, minds=minds).to(device)
        self.dense = {use: position_losses(self.loaded.model, self.ids[use], ps.dense, layers=[]) for use in
                      ("metrics", "loss")}  # fmt: skip
        scored = f"tokens {tokens // 2} to {tokens - 1} of {SOURCE}, chapters {spans['loss'][0]} on"
        self.said = f"next-token loss of {scored}, in nats"

    def _capture(self, use: str) -> Capture:
        return record(
            self.loaded.model,
            {"input_ids": torch.tensor([self.ids[use]], device=self.loaded.model.device)},
            layers=range(self.loaded.model.config.num_hidden_layers),
            model_name=self.loaded.name,
            text=f"{SOURCE}, chapters {self.spans[use][0]} on",
            tokens=tuple(map(str, self.ids[use])),
        )

    def loss(self, pattern: ps.Pattern, block: tuple[int, int]) -> dict[str, Any]:
        added = position_losses(self.loaded.model, self.ids["loss"], pattern, block=block) - self.dense["loss"]
        low, high = added_interval(added)
        return {"added": float(added.mean()), "low": low, "high": high, "dense": float(self.dense["loss"].mean())}

    def calibration(self, pattern: ps.Pattern, block: tuple[int, int], layer: int | None) -> dict[str, float]:
        layers = None if layer is None else [layer]
        sparse = position_losses(self.loaded.model, self.ids["metrics"], pattern, block=block, layers=layers)
        off = sparse - self.dense["metrics"]
        return {"added": float(off.mean()), "moved": float(off.square().mean())}


class Qwen(Decoder):
    """Qwen2.5-Coder-0.5B: the same of a model of another family, maker and size."""

    MODEL: ClassVar[str] = "qwen"


class Encoder(Study):
    """all-MiniLM-L6-v2: how far embeddings move, and the contrastive loss of finding the passage that follows.

    The target is the drift: a dozen pairs are too few for the loss, whose interval is wider than most differences.
    """

    PAIRS = 12
    target: ClassVar[str] = "drift"

    def __init__(self, tokens: int, device: torch.device = CPU, jargon: Path = JARGON, spans: Spans = SPANS) -> None:
        self.loaded = load_model("minilm")
        self.loaded.model.to(device)
        self.tokens, self.jargon, self.spans = tokens, jargon, spans
        self.fitted, self.capture = (self._capture(use).to(device) for use in ("fit", "metrics"))
        self.pairs = {use: self._passages(use) for use in ("metrics", "loss")}
        self.dense = {use: self._embedded(use, None, (128, 128)) for use in ("metrics", "loss")}
        read = f"{tokens} tokens of {SOURCE}, chapters {spans['loss'][0]} on"
        self.said = (
            f"drift, 1 - cosine of the embeddings of {len(self.pairs['loss'])} passages of {read} "
            "(and `added`, the contrastive loss of finding the one that follows, in nats)"
        )

    def _passages(self, use: str) -> list[Sequence[int]]:
        """Left, right, left, right ...: passages one after the other, each with the model's first and last token.

        As many as the text has, up to `PAIRS`.
        """
        first, *body, last = self.loaded.tokenizer(
            chapters(*self.spans[use], self.jargon), truncation=False, verbose=False
        ).input_ids
        size = self.tokens - 2
        pairs = min(self.PAIRS, len(body) // size // 2)
        return [[first, *body[at * size : (at + 1) * size], last] for at in range(2 * pairs)]

    def _capture(self, use: str) -> Capture:
        ids = self._passages(use)[0]
        return record(
            self.loaded.model,
            {"input_ids": torch.tensor([ids], device=self.loaded.model.device)},
            layers=range(self.loaded.model.config.num_hidden_layers),
            model_name=self.loaded.name,
            text=f"{SOURCE}, chapters {self.spans[use][0]} on",
            tokens=tuple(map(str, ids)),
        )

    def _embedded(self, use: str, pattern: ps.Pattern | None, block: tuple[int, int]):
        vectors = embed(self.loaded.model, self.pairs[use], pattern, block=block)
        return vectors[::2], vectors[1::2]

    def loss(self, pattern: ps.Pattern, block: tuple[int, int]) -> dict[str, Any]:
        report = embedding_loss(*self.dense["loss"], *self._embedded("loss", pattern, block), pattern, self.tokens)
        told = {"added": report.added, "low": report.added_low, "high": report.added_high, "dense": report.dense}
        return told | {"drift": report.drift}

    def calibration(self, pattern: ps.Pattern, block: tuple[int, int], layer: int | None) -> dict[str, float]:
        only = pattern
        if layer is not None:
            only = ps.layers({n: pattern if n == layer else ps.dense for n in self.capture.layers})
        report = embedding_loss(*self.dense["metrics"], *self._embedded("metrics", only, block), only, self.tokens)
        return {"added": report.added, "moved": report.drift}


STUDIES = {"smollm2": (Decoder, 512), "minilm": (Encoder, 256), "qwen": (Qwen, 256)}
