"""Papers' and libraries' own numbers: counts and densities that they state, against ours, each with its source.

A *stated sparsity* is the share that is left out, so density is one less it.
"""

from __future__ import annotations

import io
from math import ceil, floor, log2

import numpy as np
import pytest
import torch

import pattern_studio as ps
from pattern_studio.exporters import export, to_block_mask


def density(text: str, tokens: int, block: int = 128) -> float:
    """Token density of all pairs."""
    return ps.lower(ps.parse(text), q_len=tokens, block=block).pairs / tokens**2


def keys_per_row(text: str, tokens: int, head: int = 0) -> np.ndarray:
    """How many keys each query sees, int [tokens]."""
    return ps.dense_mask(ps.parse(text).resolve(head, 0), ps.Problem(tokens))[0].sum(1)


# Generalized Neighborhood Attention (arXiv:2504.16922), table 5 and section 4: HunyuanVideo has 30 x 48 x 80 tokens,
# FLUX at 4K has 256 x 256. The table has sliding tile attention's (arXiv:2502.04507) sparsities beside its own.
@pytest.mark.parametrize(
    ("text", "tokens", "stated"),
    [
        ("sliding_tile(window=(3, 3, 3))", 115_200, 0.910),  # 18 x 24 x 24
        ("sliding_tile(window=(5, 5, 5))", 115_200, 0.583),  # 30 x 40 x 40
        ("neighborhood(grid(t=30, h=48, w=80), kernel=(18, 24, 24))", 115_200, 0.910),
        ("neighborhood(grid(h=256, w=256), kernel=(80, 80))", 65_536, 0.902),
    ],
)
def test_sparsities_of_video_and_image_windows(text, tokens, stated):
    assert round(1 - density(text, tokens), 3) == stated


def test_speedup_that_flux_could_have():
    """ "Can realize the full 10.2x analytical op-level speedup" (arXiv:2504.16922, section 4.3): one by the density."""
    assert round(1 / density("neighborhood(grid(h=256, w=256), kernel=(80, 80))", 65_536), 1) == 10.2


def test_causal_block_mask_of_torch():
    """torch's own test of BlockMask prints sparsity=46.88% for causal attention over 2048 tokens, block 128."""
    layout = ps.lower(ps.causal, q_len=2048, block=128)
    assert f"{100 * (1 - layout.tiles() / 256):.2f}%" == "46.88%"
    assert f"{to_block_mask(layout).sparsity():.2f}%" == "46.88%"


def test_longformers_keys():
    """Hugging Face's Longformer gives attention weights of x + attention_window + 1 keys, x of them global."""
    from transformers import LongformerConfig

    window = LongformerConfig().attention_window
    keys = keys_per_row(f"longformer(window={window + 1}, global_tokens=(0,))", 2048)
    assert window == 512
    assert set(keys[window:-window]) == {1 + window + 1}
    assert keys[0] == 2048


def test_bigbirds_blocks():
    """BigBird (arXiv:2007.14062) with Hugging Face's block and number of random blocks: 2 + 3 + 3 blocks a query.

    A random block may be one that the window or the global blocks have already.
    """
    from transformers import BigBirdConfig

    config = BigBirdConfig()
    text = f"bigbird(block={config.block_size}, random_blocks={config.num_random_blocks})"
    keys = keys_per_row(text, 4096)
    assert (keys[:128] == 4096).all()
    assert keys[128:].max() == (2 + 3 + 3) * 64
    assert keys[128:].min() >= (2 + 3) * 64 - 64


def test_streaming_llms_cache():
    """StreamingLLM (arXiv:2309.17453): the cache "4 + 1020" of its table."""
    assert keys_per_row("streaming_llm(sinks=4, recent=1020)", 2048).max() == 1024


def test_mistrals_span():
    """Mistral 7B (arXiv:2310.06825), section 2: 32 layers of window 4096 span approximately 131K tokens."""
    row = ps.lower(ps.mistral(4096), ps.Problem(1, 8192), block=(1, 1)).rows
    reach = 8191 - int(row.start[0])
    assert int(row.length.sum()) == 4096
    assert round(32 * reach / 1000) == 131


def test_gemmas_layers():
    """Gemma 3 (arXiv:2503.19786), five local layers for every global one: Hugging Face's config says which."""
    from transformers import Gemma3TextConfig

    config = Gemma3TextConfig()
    pattern = ps.gemma(layers=config.num_hidden_layers, window=config.sliding_window, every=6)
    local = [pattern.resolve(layer=n) != ps.causal for n in range(config.num_hidden_layers)]
    assert local == [kind == "sliding_attention" for kind in config.layer_types]
    assert local[:6] == [True] * 5 + [False]


@pytest.mark.parametrize(("h", "w", "window"), [(14, 14, 7), (12, 8, 4)])
def test_swins_windows(h, w, window):
    """Swin (arXiv:2103.14030): the windows of Hugging Face's Swin, and what its shifted layers mask.

    Their cost in pairs is M x M for each of the hw patches.
    """
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinLayer, window_partition

    layout = ps.lower(ps.swin(h, w, window), q_len=h * w, block=16)
    assert layout.pairs == h * w * window**2
    layer = SwinLayer(SwinConfig(window_size=window), 4, (h, w), 1, shift_size=window // 2)
    masks = layer.get_attn_mask(h, w, torch.float32, "cpu")  # [windows, M * M, M * M], -100 where it is masked
    for shifted in (False, True):
        places = torch.arange(h * w).view(1, h, w, 1)
        if shifted:
            places = places.roll((-(window // 2), -(window // 2)), (1, 2))
        theirs = np.zeros((h * w, h * w), bool)
        for n, own in enumerate(window_partition(places, window).reshape(-1, window**2).tolist()):
            theirs[np.ix_(own, own)] = masks[n].numpy() == 0 if shifted else True
        np.testing.assert_array_equal(ps.dense_mask(ps.swin(h, w, window, shifted), ps.Problem(h * w))[0], theirs)


@pytest.mark.parametrize(("h", "w"), [(16, 16), (12, 20)])
def test_criss_cross_of_axial_attention(h, w):
    """CCNet (arXiv:1811.11721): each position sees the H + W - 1 positions of its row and column.

    So many weights has cc_attention/functions.py of speedinghzl/CCNet at 00af149: `size = (n, h+w-1, h, w)`.
    """
    assert set(keys_per_row(f"axial_image({h}, {w})", h * w)) == {h + w - 1}


@pytest.mark.parametrize(("segment", "rate"), [(64, 1), (128, 2), (256, 4)])
def test_longnets_cost(segment, rate):
    """LongNet (arXiv:2307.02486): N / w segments of (w / r) squared pairs, N w / r^2 in all, not causal.

    `gathering` and `dense_to_sparse` of torchscale's dilated_attention.py at 11e745e cut segments so and keep one key
    in r. There the heads' offsets grow by groups of heads (head // (heads / r)), in the preset with each head.
    """
    pairs = ps.lower(ps.longnet((segment,), (rate,)), q_len=1024, block=64).pairs
    assert pairs == 1024 // segment * (segment // rate) ** 2 == 1024 * segment // rate**2


@pytest.mark.parametrize("tokens", [64, 256])
def test_sparse_transformers_two_steps(tokens):
    """Sparse Transformer (arXiv:1904.10509): heads of about sqrt(n) keys, all in two steps.

    get_attn_mask of openai/sparse_attention's attention.py at 199cdd3 has `local` of the last l keys, the query
    counted, one less than the paper's text, and `strided` of distances that l divides: together the same.
    """
    root = int(tokens**0.5)
    query, key = np.indices((tokens, tokens))
    local, strided = (key <= query) & (query - key < root), (key <= query) & ((query - key) % root == 0)
    window, stride = (
        ps.dense_mask(p, ps.Problem(tokens))[0] for p in (ps.causal & ps.window(root, 0), ps.causal & ps.strided(root))
    )
    assert window.sum(1).max() == root + 1
    assert stride.sum(1).max() == root
    both = ps.dense_mask(ps.sparse_transformer_strided(root), ps.Problem(tokens))[0]
    np.testing.assert_array_equal(both, window | stride)
    np.testing.assert_array_equal(both, local | strided)
    assert ((both.astype(int) @ both.astype(int) > 0) == np.tri(tokens, dtype=bool)).all()


def test_logsparses_cells():
    """LogSparse (arXiv:1907.00235), section 4.2: cell k sees itself and those 2^0, 2^1, ... up to 2^floor(log2 k) back.

    Counted from 0; the paper counts cells from 1.
    """
    keys = keys_per_row("logsparse()", 512)
    assert keys[0] == 1
    assert keys[1:].tolist() == [floor(log2(k)) + 2 for k in range(1, 512)]


@pytest.mark.parametrize(("tokens", "part"), [(64, 16), (96, 32), (100, 20)])
def test_logsparses_local_and_restart_attention(tokens, part):
    """The authors' default, as AIStream-Peelout/flow-forecast keeps it (transformer_bottleneck.py, 3ef2bbf).

    Their `row_mask` goes back from the query by subsequences of `sub_len`: in each the last ceil(log2 sub_len) cells,
    then cells 1, 2, 4, ... before those, as far as sub_len.
    """
    near = ceil(log2(part))
    steps = [near - 1 + 2**level for level in range(near) if near - 1 + 2**level <= part]
    times = tokens // part
    text = f"logsparse(window={near}, levels={near}, restart={part}, times={times})"
    mask = ps.dense_mask(ps.parse(text), ps.Problem(tokens))[0]
    theirs = np.zeros_like(mask)
    for row in range(tokens):
        for base in range(row, max(-1, row - times * part), -part):
            for back in (*range(near), *steps):
                if base - back >= 0:
                    theirs[row, base - back] = True
    np.testing.assert_array_equal(mask, theirs)


def test_logsparses_count_of_the_last_cell():
    """Their code takes (win_len // sub_len) * 2 * log_l keys for the last cell: 32 in 4 subsequences of 16 cells."""
    assert keys_per_row("logsparse(window=4, levels=4, restart=16, times=4)", 64)[-1] == 4 * 2 * 4


@pytest.mark.parametrize("levels", [1, 3, 5])
def test_flat_butterflys_blocks(levels):
    """Pixelated Butterfly (arXiv:2112.00029): log2 k + 1 blocks a row for a maximum stride of k.

    FlatBlockButterflySparsityConfig of HazyResearch/fly at 7c3f233, blocksparse_linear.py: its layout adds up the first
    `n_factors` factors of a butterfly, which share the diagonal and have one partner each.
    """
    keys = keys_per_row(f"butterfly(unit=4, levels={levels})", 4 * 2**levels)
    assert set(keys) == {4 * (levels + 1)}


# DeepSpeed 0.17.6, sparsity_config.py: sums of make_layout(2048) at block 16 (64 for BigBird) over the heads, run once;
# every layout was equal to ours block by block. Where the last window is cut short (65 blocks with windows of 4) its
# Fixed takes the sequence's last block as global; a pattern has no last block, and its docstring says so.
@pytest.mark.parametrize(
    ("text", "heads", "block", "stated"),
    [
        ("deepspeed_fixed()", 2, 16, 8960),
        ("deepspeed_fixed(causal=True)", 2, 16, 4608),
        ("deepspeed_fixed(horizontal=True)", 2, 16, 14912),
        ("deepspeed_fixed(heads=4, global_patterns=4)", 4, 16, 17920),
        ("deepspeed_variable(local_blocks=(4, 2, 3), global_indices=(0, 5))", 2, 16, 1268),
        ("deepspeed_variable(horizontal=True)", 2, 16, 1520),
        ("deepspeed_variable(causal=True)", 2, 16, 888),
        ("deepspeed_longformer()", 2, 16, 1268),
        ("deepspeed_longformer(causal=True)", 2, 16, 762),
        ("bigbird(block=64, random_blocks=0, global_blocks=2)", 1, 64, 212),
    ],
)
def test_layouts_of_deepspeed(text, heads, block, stated):
    file = export(ps.parse(text), ps.Problem(2048, heads=heads), block, "deepspeed", allow="cover")
    with np.load(io.BytesIO(file.data), allow_pickle=False) as arrays:
        assert arrays["layout"].sum() == stated
