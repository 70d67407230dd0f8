"""From a Hugging Face config to a kernel: read the config, lower its pattern, run it, compare with transformers.

python -m gallery.stories.config_to_kernel
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

import pattern_studio as ps
from attention_core import block_sparse_attention, plan
from pattern_studio.exporters import export

CONFIG = {
    "model_type": "gemma2",
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "sliding_window": 64,
}


def theirs(layer_type: str, tokens: int) -> torch.Tensor:
    """transformers' own mask of a layer type, bool [1, 1, tokens, tokens]; True takes part."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask, sliding_window_causal_mask_function

    sliding = layer_type == "sliding_attention"
    rule = sliding_window_causal_mask_function(CONFIG["sliding_window"]) if sliding else causal_mask_function
    return sdpa_mask(1, tokens, tokens, mask_function=rule, allow_is_causal_skip=False)


def main(tokens: int = 512) -> dict[int, float]:
    """Print the story and return the largest difference of each layer's output from transformers'."""
    from transformers import Gemma2Config

    convention = ps.read_config(CONFIG)
    print(convention)
    pattern = convention.pattern
    print(f"\nas one pattern: {pattern}\n")

    made = torch.Generator().manual_seed(0)
    heads, kv_heads, dim = (CONFIG[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    q = torch.randn(1, heads, tokens, dim, generator=made, dtype=torch.float64)
    k, v = torch.randn(2, 1, kv_heads, tokens, dim, generator=made, dtype=torch.float64)
    found = {}
    for layer, kind in enumerate(Gemma2Config(**CONFIG).layer_types):
        layout = ps.lower(pattern, ps.Problem(tokens, heads=heads), block=64, layer=layer)
        out = block_sparse_attention(q, k, v, plan(layout))
        wanted = scaled_dot_product_attention(q, k, v, theirs(kind, tokens), enable_gqa=True)
        found[layer] = (out - wanted).abs().max().item()
        print(
            f"layer {layer}, {kind}: {layout.tiles()} of {layout.q_blocks * layout.kv_blocks * heads} tiles are "
            f"computed; the output differs from transformers' mask under SDPA by at most {found[layer]:.1e}"
        )
    text = export(pattern, ps.Problem(tokens, heads=heads), 128, "flex_attention", layer=0).content
    assert isinstance(text, str)
    print("\nlayer 0 for FlexAttention, from the generated file:\n")
    print("def mask_mod" + text.partition("def mask_mod")[2].partition("\n\n")[0])
    return found


if __name__ == "__main__":
    main()
