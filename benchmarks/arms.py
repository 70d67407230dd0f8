"""The arms of the benchmark: ours and the peers that are installed. Each makes a forward and a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import pattern_studio as ps

from .cases import Case

Forward = Callable[[Tensor, Tensor, Tensor], Tensor]


def ours(case: Case, layout: ps.BlockLayout) -> Forward:
    """This project's fused core."""
    from attention_core import block_sparse_attention, plan

    ready = plan(layout, device="cuda")
    return lambda q, k, v: block_sparse_attention(q, k, v, ready, backend="triton")


def hopper(case: Case, layout: ps.BlockLayout) -> Forward:
    """This project's core for compute capability 9.0."""
    from attention_core import block_sparse_attention, plan

    ready = plan(layout, device="cuda")
    return lambda q, k, v: block_sparse_attention(q, k, v, ready, backend="hopper")


def flex(case: Case, layout: ps.BlockLayout) -> Forward:
    """torch's FlexAttention, compiled, with the same block mask (and mask_mod where tiles are partial)."""
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    if case.block not in ((128, 128), (64, 64)):
        raise ps.StudioError(
            f"FlexAttention is timed at blocks of 128 and 64, got {case.block}: its tiles must divide them"
        )
    kinds = torch.stack([torch.from_numpy(layout.tile_kinds(h)) for h in range(case.heads)]).cuda()
    full, partial = kinds == ps.TileKind.FULL, kinds > ps.TileKind.FULL

    def lists(mask: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.argsort(mask.to(torch.int8), dim=-1, descending=True, stable=True)
        return mask.sum(-1).to(torch.int32)[None], order.to(torch.int32)[None]

    mask_mod = None
    if partial.any():
        low, high = -(2**30), 2**30
        if case.docs is None:  # the partial cells of the grid are bands or documents
            bands = layout.bands
            low, high = int(max(bands[:, 0].max(), low)), int(min(bands[:, 1].min(), high))
            if low > -(2**29):

                def mask_mod(b, h, q_idx, kv_idx):
                    return (kv_idx <= q_idx) & (q_idx - kv_idx <= -low)
            else:

                def mask_mod(b, h, q_idx, kv_idx):
                    return kv_idx <= q_idx
        else:
            ends = torch.tensor(case.docs).cumsum(0)
            document = torch.bucketize(torch.arange(case.length), ends, right=True).cuda()

            def mask_mod(b, h, q_idx, kv_idx):
                return (kv_idx <= q_idx) & (document[q_idx] == document[kv_idx])

    block_mask = BlockMask.from_kv_blocks(
        *lists(partial), *lists(full), BLOCK_SIZE=case.block, mask_mod=mask_mod, seq_lengths=(case.length, case.length)
    )
    compiled = torch.compile(flex_attention, dynamic=False)
    gqa = case.kv_heads != case.heads
    return lambda q, k, v: compiled(q, k, v, block_mask=block_mask, enable_gqa=gqa)


def _sdpa(backend: SDPBackend) -> Callable[[Case, ps.BlockLayout], Forward]:
    def make(case: Case, layout: ps.BlockLayout) -> Forward:
        causal = str(case.pattern) == "causal"

        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=case.kv_heads != case.heads
                )

        return run

    return make


ARMS: dict[str, Callable[[Case, ps.BlockLayout], Forward]] = {
    "ours": ours,
    "hopper": hopper,
    "flex": flex,
    "sdpa_cudnn": _sdpa(SDPBackend.CUDNN_ATTENTION),  # dense: the speed-up is counted against it
    "sdpa_flash": _sdpa(SDPBackend.FLASH_ATTENTION),
}
