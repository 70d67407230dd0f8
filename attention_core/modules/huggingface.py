"""Hugging Face transformers: patterns in any model that takes an attention function, `attn_implementation`.

    model = use_pattern(AutoModelForCausalLM.from_pretrained(name), "causal & (window(511, 0) | sink(4))")

The pattern is added to the model's own mask, so a decoder stays causal and padding stays out. It is kept
in the model's config, as text, and saved with it; `register()` before loading such a model makes the
name known. transformers is imported when a function here is called for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from operator import and_
from typing import Any, TypeVar

import torch
from torch import Tensor

import pattern_studio as ps
from pattern_studio.errors import StudioError
from pattern_studio.problem import Problem, block_shape

from .conditions import Item, TokenMask, key_ranges
from .dense import check_cells
from .run import run_plan
from .source import PatternSource

NAME = "pattern_studio"
REFUSED = ("softcap", "position_bias", "s_aux", "head_mask", "output_attentions")

Model = TypeVar("Model", bound=torch.nn.Module)


def register(name: str = NAME) -> None:
    """Make the attention function and its mask known to transformers under a name.

    Both are needed: without a mask of its own transformers would pass none, and causality with it.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, model_mask)


def use_pattern(model: Model, pattern: str | ps.Pattern, *, block: int | tuple[int, int] = 128) -> Model:
    """Let a transformers model attend under a pattern, from the next forward on; returns the model.

    `layers({...})` and `heads({...})` give layers and heads patterns of their own. Positions are those
    of the text: where an item is padded on the left, position 0 is its first real token, so that what
    an item computes does not depend on its neighbours in the batch. Each call makes plans for its
    lengths, found again in the cache that all modules share; in generation that is one plan a step for
    each distinct pattern. Raises StudioError for text that doesn't parse, a layer or head without a
    pattern, encoder-decoder models, and, in a forward, for what the kernels don't do (soft-capped
    scores, position biases, attention sinks as parameters, attention weights).

    Source: transformers' attention interface (AttentionInterface, AttentionMaskInterface).
    """
    config = model.config.get_text_config()  # type: ignore[union-attr,operator]
    if config.is_encoder_decoder:
        raise StudioError("encoder-decoder models are not served: their cross-attention asks for a pattern of its own")
    given = ps.parse(pattern) if isinstance(pattern, str) else pattern
    if not isinstance(given, ps.Pattern):
        raise StudioError(f"pattern must be a Pattern or its text, got {type(pattern).__name__}")
    for layer in range(config.num_hidden_layers):
        for head in range(config.num_attention_heads):
            given.resolve(head, layer)
    register()
    config.pattern_studio = {"pattern": str(given), "block": list(block_shape(block))}
    model.set_attn_implementation(NAME)  # type: ignore[operator]
    return model


@dataclass(frozen=True, eq=False)
class ModelMask:
    """A model's own mask, as what it is made of; transformers hands it to every layer.

    `own` is the part with a name, a pattern on the cache's positions; `real` bool [batch, kv_len] the keys that are
    no padding; `allowed` bool [batch, 1, q_len, kv_len] what has no name. Query row r stands at
    q_offset + r, key k at kv_offset + k.
    """

    own: ps.Pattern
    q_len: int
    kv_len: int
    q_offset: int
    kv_offset: int = 0
    real: Tensor | None = None
    allowed: Tensor | None = None

    @property
    def ndim(self) -> int:
        """4: generate() makes masks ahead for static caches, and the model then asks whether it has one."""
        return 4

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """One item where all are alike; the first layer reads the masks for all."""
        ranges = [None] if self.real is None else key_ranges(self.real)
        masks = [None] if self.allowed is None else [TokenMask.of(table) for table in self.allowed.cpu().numpy()]
        count = max(len(ranges), len(masks))
        items = tuple(self._item(ranges[n % len(ranges)], masks[n % len(masks)]) for n in range(count))
        return items if len(set(items)) > 1 else items[:1]

    def _item(self, keys: tuple[tuple[int, int], ...] | None, mask: TokenMask | None) -> Item:
        # The padding in front is a document of its own, so the text's positions start at 0.
        front = keys[0][0] if keys else 0
        return Item(keys, (front, self.kv_len - front) if front else None, mask)


def model_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | ModelMask | None = None,
    device: torch.device | str = "cpu",
    **options: Any,
) -> ModelMask:
    """What transformers calls in place of building a mask: causality and windows by name, padding by ranges.

    A mask function that has no name here (packed sequences, image blocks, one of the user's) is
    evaluated by transformers for all pairs, and obeyed exactly.
    """
    from transformers.masking_utils import causal_mask_function, prepare_padding_mask, sdpa_mask

    if isinstance(attention_mask, ModelMask):  # made ahead by generate(), for this very step
        return attention_mask
    function = causal_mask_function if mask_function is None else mask_function
    own, allowed = _named(function), None
    q_offset, kv_offset = int(q_offset), int(kv_offset)
    real = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    real = None if real is None else real[:, kv_offset : kv_offset + kv_length].bool()
    if own is None:
        check_cells(batch_size, 1, q_length, kv_length, "a mask function that pattern_studio has no name for")
        allowed = sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            q_offset,
            kv_offset,
            mask_function=function,
            device=device,
            allow_is_causal_skip=False,
            use_vmap=options.get("use_vmap", False),
        )
    own = ps.dense if own is None else own  # a pattern has no truth value
    return ModelMask(own, q_length, kv_length, q_offset, kv_offset, real, allowed)


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: ModelMask | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: out [batch, q_len, heads, value_dim], and no weights."""
    for name in REFUSED:
        if options.get(name) is not None and options[name] is not False:
            raise StudioError(f"attn_implementation 'pattern_studio' has no {name}; leave it out, or use 'eager'")
    config: Any = module.config
    stored = getattr(config, NAME, None)
    if stored is None:
        raise StudioError(
            'the model\'s config has no pattern; give it one with use_pattern(model, "causal & window(511, 0)")'
        )
    (batch, heads, q_len, _), kv_len = query.shape, key.shape[2]
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        attention_mask = ModelMask(ps.causal if causal else ps.dense, q_len, kv_len, kv_len - q_len)
    elif isinstance(attention_mask, Tensor):
        attention_mask = _prepared(attention_mask, batch, heads, q_len, kv_len)
    mask = attention_mask
    if (q_len, kv_len) != (mask.q_len, mask.kv_len):
        raise StudioError(
            f"the model's mask is for q_len {mask.q_len} and kv_len {mask.kv_len}, this layer has {q_len} and "
            f"{kv_len}; its attention is of a kind that is not served"
        )
    source = _source(
        stored["pattern"], tuple(stored["block"]), getattr(module, "layer_idx", None), mask.own, mask.kv_offset
    )
    problem = Problem(q_len, kv_len, mask.q_offset - mask.kv_offset, heads)
    plan = source.plan(problem, mask.items, causal=False, extra=0, device=query.device)
    out, _ = run_plan(plan, len(mask.items) > 1, query, key, value, scaling, dropout)
    return out.transpose(1, 2).contiguous(), None


@lru_cache(maxsize=512)
def _source(text: str, block: tuple[int, int], layer: int | None, own: ps.Pattern, kv_offset: int) -> PatternSource:
    pattern = ps.parse(text) & own
    if kv_offset:  # a cache that has let go of its first keys: its key 0 stands at kv_offset
        pattern = ((pattern >> -kv_offset).T >> -kv_offset).T
    return PatternSource(pattern, block=block, layer=layer)


def _named(function: Callable[..., Any]) -> ps.Pattern | None:
    """The pattern of a mask function of transformers' own, known by its code; None for any other."""
    from transformers import masking_utils as known

    if function is known.causal_mask_function:
        return ps.causal
    if function is known.bidirectional_mask_function:
        return ps.dense
    code = getattr(function, "__code__", None)
    inside = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    if code is known.and_masks(known.causal_mask_function).__code__:
        named = [_named(part) for part in inside[0]]
        return None if None in named else reduce(and_, (part for part in named if part is not None))
    if code is known.sliding_window_overlay(1).__code__:
        return ~(ps.causal >> -inside[0])  # later than `window` tokens before the query
    if code is known.sliding_window_bidirectional_overlay(1).__code__:
        return ps.window(inside[0], inside[0])
    return None


def _prepared(mask: Tensor, batch: int, heads: int, q_len: int, kv_len: int) -> ModelMask:
    """A 4-D mask that the user made: bool, True is allowed, or 0 where allowed and the lowest number elsewhere."""
    fits = mask.ndim == 4 and mask.shape[0] in (1, batch) and mask.shape[1] in (1, heads)
    if not fits or tuple(mask.shape[2:]) != (q_len, kv_len):
        raise StudioError(
            f"a prepared mask must have the shape [batch or 1, heads or 1, q_len, kv_len] with q_len {q_len} and "
            f"kv_len {kv_len}, got {list(mask.shape)}"
        )
    if mask.dtype != torch.bool:
        lowest = torch.finfo(mask.dtype).min
        if not bool(((mask == 0) | (mask <= lowest)).all()):
            raise StudioError(
                "a prepared float mask may hold 0 (allowed) and the dtype's lowest number or -inf (blocked) only; "
                "biases on scores are served by 'eager'"
            )
        mask = mask == 0
    return ModelMask(ps.dense, q_len, kv_len, kv_len - q_len, allowed=mask)
