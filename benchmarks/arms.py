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


def hopper_deterministic(case: Case, layout: ps.BlockLayout) -> Forward:
    """The same, with gradients that are bitwise repeatable."""
    from attention_core import block_sparse_attention, plan

    ready = plan(layout, device="cuda")
    return lambda q, k, v: block_sparse_attention(q, k, v, ready, backend="hopper", deterministic=True)


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
    torch.compiler.reset()  # else the ninth cell is one too many for its cache, and runs uncompiled
    compiled = torch.compile(flex_attention, dynamic=False)
    gqa = case.kv_heads != case.heads
    return lambda q, k, v: compiled(q, k, v, block_mask=block_mask, enable_gqa=gqa)


def fa4(case: Case, layout: ps.BlockLayout) -> Forward:
    """FlashAttention-4 (CuTe DSL), with the lists that our exporter writes for it."""
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch
    from flash_attn.cute.interface import flash_attn_func

    forward, backward = (
        BlockSparseTensorsTorch(*_none(*lists), *lists, block_size=case.block)
        for lists in (_full_lists(case, layout, 128), _full_lists(case, layout, 128, by_key=True))
    )

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found = flash_attn_func(
            *(x.transpose(1, 2) for x in (q, k, v)), block_sparse_tensors=forward, block_sparse_tensors_bwd=backward
        )
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return run


def fa4_dense(case: Case, layout: ps.BlockLayout) -> Forward:
    """FlashAttention-4 without a pattern."""
    from flash_attn.cute.interface import flash_attn_func

    causal = str(case.pattern) == "causal"

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found = flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=causal)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return run


def cudnn_bsa(case: Case, layout: ps.BlockLayout) -> Forward:
    """cuDNN frontend's block-sparse attention: its own forward and backward, joined to autograd."""
    from cudnn.block_sparse_attention import block_sparse_attention_backward, block_sparse_attention_forward

    counts, index = _full_lists(case, layout, 128)
    width = int(counts.max())
    told = {"q2k_block_nums": counts, "sparse_block_size": 128}
    index = index[..., :width].contiguous()

    class Attend(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            out, lse = tuple(block_sparse_attention_forward(q, k, v, index, width, **told))[:2]
            ctx.save_for_backward(q, k, v, out, lse)
            return out

        @staticmethod
        def backward(ctx, dout):
            q, k, v, out, lse = ctx.saved_tensors
            found = block_sparse_attention_backward(dout.contiguous(), q, k, v, out, lse, index, width, **told)
            return tuple(found)[:3]

    return Attend.apply


def _full_lists(case: Case, layout: ps.BlockLayout, block: int, by_key: bool = False) -> tuple[Tensor, Tensor]:
    """Counts and indices int32 of the full blocks of each query block, or key block; partial tiles are refused."""
    if case.block != (block, block):
        raise ps.StudioError(f"it is timed at blocks of {block}, got {case.block}")
    kinds = torch.stack([torch.from_numpy(layout.tile_kinds(h)) for h in range(case.heads)]).cuda()
    if (kinds > ps.TileKind.FULL).any():
        raise ps.StudioError("partial tiles need a mask in its own language, which is not written")
    full = kinds == ps.TileKind.FULL
    full = full.mT.contiguous() if by_key else full  # they want lists in one piece
    order = torch.argsort(full.to(torch.int8), dim=-1, descending=True, stable=True)
    return full.sum(-1).to(torch.int32)[None], order.to(torch.int32)[None]


def _none(counts: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(counts), torch.zeros_like(index)


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
    "hopper_deterministic": hopper_deterministic,
    "flex": flex,
    "fa4": fa4,
    "cudnn_bsa": cudnn_bsa,
    "fa4_dense": fa4_dense,  # dense, as the next two: the speed-up is counted against the fastest
    "sdpa_cudnn": _sdpa(SDPBackend.CUDNN_ATTENTION),
    "sdpa_flash": _sdpa(SDPBackend.FLASH_ATTENTION),
}
