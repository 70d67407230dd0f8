"""Exports run by consumers that need a GPU, against float64. `make test-gpu` runs those whose packages are installed.

Elsewhere they are skipped, with what is missing; the contracts are then held by each target's own test. An output may
be off by at most twice what dense attention of the same dtype is.
"""

from __future__ import annotations

import io
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import pattern_studio as ps
from pattern_studio.exporters import export
from tests.exporters.flex import dense, run_source

HEADS, DIM = 4, 128
CUDA = torch.cuda.is_available()


def needs(package: str, *parts: str) -> pytest.MarkDecorator:
    """Skips where there is no CUDA device, or where the package is not installed."""
    missing = [] if CUDA else ["a CUDA device"]
    try:
        missing += [] if all(map(find_spec, (package, *parts))) else [f"the package {package}"]
    except ModuleNotFoundError:
        missing.append(f"the package {package}")
    return pytest.mark.skipif(bool(missing), reason=f"runs an export on its consumer: needs {' and '.join(missing)}")


def tensors(tokens: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """q, k and v, [1, HEADS, tokens, DIM] on CUDA, with gradients."""
    made = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, HEADS, tokens, DIM, generator=made).to("cuda", dtype).requires_grad_()  # the same on any card
        for _ in range(3)
    ]


def masked(pattern: ps.Pattern, tokens: int, **more: object) -> np.ndarray:
    return ps.dense_mask(pattern, ps.Problem(tokens, heads=HEADS, **more))


def close(out: torch.Tensor, inputs: list[torch.Tensor], mask: np.ndarray, what: str = "the output") -> None:
    """The output of a consumer, [1, HEADS, tokens, DIM], against float64 and the error of dense attention."""
    wanted, _ = dense(*(x.detach().cpu().double() for x in inputs), mask)
    with sdpa_kernel(SDPBackend.MATH):
        same = scaled_dot_product_attention(*inputs, attn_mask=torch.from_numpy(mask).cuda())
    budget = 2 * float((same.detach().cpu().double() - wanted).abs().max())
    error = float((out.detach().cpu().double() - wanted).abs().max())
    assert error <= budget, f"{what} is off by {error:.3g}, and dense attention by {budget / 2:.3g}"


def arrays(file: bytes) -> dict[str, torch.Tensor]:
    with np.load(io.BytesIO(file), allow_pickle=False) as found:
        return {name: torch.from_numpy(found[name]) for name in found.files if name != "header"}


@needs("torch")
@pytest.mark.parametrize(
    "text",
    ["causal & (window(63, 0) | sink(4))", "heads({range(0, 2): causal, 2: window(40, 40), 3: causal & strided(9)})"],
)
def test_flex_attention(text):
    from torch.nn.attention.flex_attention import flex_attention

    pattern = ps.parse(text)
    module = run_source(export(pattern, ps.Problem(512, heads=HEADS), 128, "flex_attention").content)
    inputs = tensors(512, torch.bfloat16)
    out = torch.compile(flex_attention)(*inputs, block_mask=module.block_mask("cuda"))
    close(out, inputs, masked(pattern, 512))


def flash_attention_4(pattern: ps.Pattern, tokens: int):
    """The output of FlashAttention-4 and its inputs, before any backward."""
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch
    from flash_attn.cute.interface import flash_attn_func

    file = export(pattern, ps.Problem(tokens, heads=HEADS), 128, "flash_attention_4")
    parts = arrays(file.data)
    size = tuple(parts.pop("block_size").tolist())
    lists = [
        BlockSparseTensorsTorch(
            **{
                name.removeprefix("bwd_"): part.cuda()
                for name, part in parts.items()
                if name.startswith("bwd_") == backward
            },
            block_size=size,
        )
        for backward in (False, True)
    ]
    inputs = tensors(tokens, torch.bfloat16)
    found = flash_attn_func(
        *(x.transpose(1, 2) for x in inputs), block_sparse_tensors=lists[0], block_sparse_tensors_bwd=lists[1]
    )
    return (found[0] if isinstance(found, tuple) else found).transpose(1, 2), inputs


TILED = ps.heads(
    {range(0, 2): ps.chunk(256), range(2, 4): ps.blocks.from_mask(np.tri(4, dtype=bool) | np.eye(4, 4, 2, bool), 128)}
)


@needs("flash_attn", "flash_attn.cute")
@pytest.mark.filterwarnings("ignore")  # its compiler warns of parts of its own
def test_flash_attention_4():
    out, inputs = flash_attention_4(TILED, 512)
    close(out, inputs, masked(TILED, 512))


@needs("flash_attn", "flash_attn.cute")
@pytest.mark.filterwarnings("ignore")  # its compiler warns of parts of its own
def test_flash_attention_4_backward():
    out, inputs = flash_attention_4(TILED, 512)
    mask, upstream = masked(TILED, 512), torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(out, inputs, upstream.to(out))
    exact = [x.detach().cpu().double().requires_grad_() for x in inputs]
    wanted = torch.autograd.grad(dense(*exact, mask)[0], exact, upstream.double())
    with sdpa_kernel(SDPBackend.MATH):
        same = scaled_dot_product_attention(*inputs, attn_mask=torch.from_numpy(mask).cuda())
    usual = torch.autograd.grad(same, inputs, upstream.to(out))
    for name, got, right, other in zip("qkv", found, wanted, usual, strict=True):
        error, budget = (float((x.cpu().double() - right).abs().max()) for x in (got, other))
        assert error <= 2 * budget, f"d{name} is off by {error:.3g}, and dense attention's by {budget:.3g}"


@needs("flashinfer")
@pytest.mark.parametrize("text", ["causal & (window(63, 0) | sink(4))", "chunk(128)"])
@pytest.mark.parametrize("block", [(64, 64), (16, 128)])
def test_flashinfer_bsr(text, block):
    from flashinfer.sparse import BlockSparseAttentionWrapper

    pattern = ps.parse(text)
    parts = arrays(export(pattern, ps.Problem(512, heads=HEADS), block, "flashinfer_bsr").data)
    inputs = tensors(512, torch.float16)
    wrapper = BlockSparseAttentionWrapper(torch.zeros(2**27, dtype=torch.uint8, device="cuda"))
    mask = parts["mask"].cuda() if "mask" in parts else None
    wrapper.plan(parts["indptr"].cuda(), parts["indices"].cuda(), 512, 512, *block, HEADS, HEADS, DIM, mask=mask)
    out = wrapper.run(*(x.detach()[0].transpose(0, 1).contiguous() for x in inputs))
    close(out.transpose(0, 1)[None], inputs, masked(pattern, 512))


@needs("flashinfer")
def test_flashinfer_variable():
    from flashinfer.sparse import VariableBlockSparseAttentionWrapper

    lengths = (100, 212, 200)
    problem = ps.Problem(512, heads=HEADS, docs=lengths)
    parts = arrays(export(ps.docs, problem, 64, "flashinfer_variable").data)
    inputs = tensors(512, torch.float16)
    wrapper = VariableBlockSparseAttentionWrapper(torch.empty(2**27, dtype=torch.uint8, device="cuda"))
    sizes = {name: parts[name].cuda() for name in ("block_mask_map", "block_row_sz", "block_col_sz")}
    wrapper.plan(**sizes, num_qo_heads=HEADS, num_kv_heads=HEADS, head_dim=DIM, q_data_type=torch.float16)
    out = wrapper.run(*(x.detach()[0].contiguous() for x in inputs))
    close(out[None], inputs, masked(ps.docs, 512, docs=lengths))


@needs("natten")
@pytest.mark.filterwarnings("ignore:return_lse is deprecated:FutureWarning")  # NATTEN's call where it was built without
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")  # kernels of its own
@pytest.mark.parametrize("text", ["causal & window(62, 0)", "dilated(15, 0, rate=4)"])
def test_natten(text):
    import json

    from natten import na1d

    pattern = ps.parse(text)
    given = json.loads(export(pattern, ps.Problem(512, heads=HEADS), 128, "natten").content)
    inputs = tensors(512, torch.float16)
    out = na1d(*(x.detach().transpose(1, 2).contiguous() for x in inputs), **given)
    close(out.transpose(1, 2), inputs, masked(pattern, 512))


@needs("torch")
@pytest.mark.parametrize("text", ["causal & (window(63, 0) | sink(4))", "bigbird(block=64)"])
def test_flex_mask_mod_in_cudnn(text):
    """cuDNN's attention under the mask that the exported mask_mod makes."""
    from torch.nn.attention.flex_attention import create_mask

    pattern = ps.parse(text)
    module = run_source(export(pattern, ps.Problem(512, heads=HEADS), 128, "flex_mask_mod").content)
    inputs = tensors(512, torch.bfloat16)
    mask_mod = module.mask_mod_on("cuda") if hasattr(module, "mask_mod_on") else module.mask_mod  # it may have tables
    made = create_mask(mask_mod, 1, HEADS, 512, 512, device="cuda")
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = scaled_dot_product_attention(*inputs, attn_mask=made)
    close(out, inputs, masked(pattern, 512))
