"""Record a capture from a model in a folder of this machine, for the visitor who sits at it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import streamlit as st

from pattern_studio import StudioError

from .captures import BUNDLED, Source, source_of
from .record_spec import RecordSpec
from .tasks import Task
from .uploads import MAX_BYTES

if TYPE_CHECKING:
    from pattern_studio.capture import Capture

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_TOKENS = 8192
MAX_TEXT = 1_000_000  # characters
SAMPLES = 2  # sets of drawn next tokens that gradients are measured of, beside the text's own


def why_not() -> str:
    """Why nothing can be recorded here, with what to do about it; "" where it can."""
    if st.get_option("server.address") not in LOOPBACK:
        return (
            "Recording reads folders of the machine that serves this page, so the server has to be bound to that "
            "machine alone: start it with pattern-studio app, or --server.address=127.0.0.1."
        )
    if importlib.util.find_spec("transformers") is None:
        return "Recording needs transformers: pip install 'pattern-studio[models]', then start the app again."
    return ""


def layer_numbers(text: str) -> list[int]:
    """Layers from a text such as "0, 7, 20".

    >>> layer_numbers("7, 0")
    [0, 7]

    Raises:
        StudioError: something else than distinct whole numbers.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", part) for part in parts) or len(set(map(int, parts))) < len(parts):
        raise StudioError(f"expected layers such as 0, 7, 20, got {text[:60]!r}; write distinct whole numbers")
    return sorted(map(int, parts))


def record(spec: RecordSpec, task: Task) -> Source:
    """Load the model, let it read, and keep q, k and v of the layers; the file in between is gone afterwards.

    With `spec.gradients` also what its loss minds of their outputs, with `spec.minds` what damage is weighed by.

    Raises:
        StudioError: the folder, the layers or the tokens are none that can be recorded, or either of these is asked for
            of a model that does not predict the next token, with what to do.
        Stopped: the visitor has stopped it.
    """
    if reason := why_not():
        raise StudioError(reason)
    numbers = layer_numbers(spec.layers)
    if not 1 <= spec.tokens <= MAX_TOKENS or len(spec.text) > MAX_TEXT:
        raise StudioError(
            f"expected 1 to {MAX_TOKENS:,} tokens of a text of at most {MAX_TEXT:,} characters, got {spec.tokens:,} "
            f"tokens of {len(spec.text):,} characters; take fewer"
        )
    import torch

    from pattern_studio.capture import Capture
    from pattern_studio.capture.folder import load_folder
    from pattern_studio.capture.to_file import estimated_bytes, record_to_file

    task.say(f"Loading the model in {spec.folder.strip()[-60:]}", 0, len(numbers) + 1 + spec.gradients + spec.minds)
    loaded = load_folder(spec.folder)
    try:
        gradients = 2 * (1 + SAMPLES) if spec.gradients else 0  # bytes of an element of all draws, in bfloat16
        size = estimated_bytes(loaded.model.config, spec.tokens, len(numbers), gradients=gradients, minds=spec.minds)
        if size > MAX_BYTES:
            raise StudioError(f"expected a capture of at most {MAX_BYTES:,} bytes, got {size:,}; take fewer layers")
        text = spec.text.strip() or "".join(BUNDLED.load().tokens)
        ids = loaded.ids(text, min(spec.tokens, len(loaded.ids(text))))
        task.say(f"{loaded.name} reads {len(ids):,} tokens", 1)
        done: list[int] = []

        def progress(number: int) -> None:
            done.append(number)
            task.say(f"Recorded layer {number}", 1 + len(done))

        with TemporaryDirectory(prefix="pattern-studio-") as folder, task.watching():
            file = Path(folder) / "capture.safetensors"
            record_to_file(
                loaded.model,
                {"input_ids": torch.tensor([ids])},
                file,
                layers=numbers,
                model_name=f"{loaded.name}; licence not stated",
                text=f"{'pasted text' if spec.text.strip() else BUNDLED.load().text}, first {len(ids)} tokens",
                tokens=tuple(loaded.tokenizer.decode([token]) for token in ids),
                progress=progress,
            )
            if spec.gradients or spec.minds:
                _measured(Capture.load(file), spec, ids, task).save(file)
            data = file.read_bytes()
    except (AttributeError, TypeError, RuntimeError, IndexError, KeyError) as error:
        raise StudioError(
            f"expected a language model or encoder that reads token ids, got {type(error).__name__} from "
            f"{loaded.name}: {' '.join(str(error).split())[:200]}; record it in Python"
        ) from error
    return source_of(Capture.load(data), data)


def _measured(capture: Capture, spec: RecordSpec, ids: tuple[int, ...], task: Task) -> Capture:
    """The capture of these tokens with what is asked for, by the same folder's model with its output layer."""
    import torch

    from pattern_studio.capture.folder import load_folder
    from pattern_studio.learned import loss_gradients, measured_minds
    from pattern_studio.metrics.sensitivity import layer_sensitivity

    if not capture.causal:
        raise StudioError(
            "expected a model that predicts the next token to measure what its loss minds, got an encoder; record it "
            "without"
        )
    model, done = load_folder(spec.folder, head=True).model, 1 + len(capture.layers)
    if spec.minds:
        task.say("What the model minds of layers and rows", done)
        weights = layer_sensitivity(model, ids, capture)
        capture = replace(capture, sensitivity=weights, minds=measured_minds(model, ids, capture))
    if spec.gradients:
        task.say("What the loss minds of them", done + spec.minds)
        # Not float16, in which the gradients of some models would be 0.
        found = loss_gradients(model, ids, samples=SAMPLES, layers=list(capture.layers)).to(torch.bfloat16)
        capture = replace(capture, gradients=found)
    return capture
