"""What the tests' ranks do: functions that a fresh process can import."""

from __future__ import annotations

import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import pattern_studio as ps
from attention_core import plan
from attention_core.distributed import distributed_block_sparse_attention, distributed_plan, rows
from attention_core.ops import block_sparse_attention
from benchmarks.distributed_run.sent import Sent


def shard(x: Tensor, positions: Tensor) -> Tensor:
    return x[:, :, positions].detach().clone().requires_grad_()


def both_passes(rank, group, text, problem, block, tensors, options):
    """(rows, out, lse, key rows, dq, dk, dv) of this rank, for upstream gradients of the whole."""
    deterministic = options.get("deterministic", False)
    options = {name: x for name, x in options.items() if name != "deterministic"}
    return passes_of(_plan(rank, group, text, problem, block, tensors, options), group, tensors, deterministic)


def passes_of(made, group, tensors, deterministic=False):
    """`both_passes` by a plan that may have been used before."""
    queries, keys = made.query_positions, made.key_positions
    q, k, v = shard(tensors["q"], queries), shard(tensors["k"], keys), shard(tensors["v"], keys)
    out, lse = distributed_block_sparse_attention(q, k, v, made, group, return_lse=True, deterministic=deterministic)
    seen = torch.where(lse == -torch.inf, 0.0, lse)
    ((out * tensors["dout"][:, :, queries]).sum() + (seen * tensors["dlse"][:, :, queries]).sum()).backward()
    gradients = [x.grad.double().numpy() for x in (q, k, v)]
    return queries.numpy(), out.detach().double().numpy(), lse.detach().double().numpy(), keys.numpy(), *gradients


def by_programs(rank, group, function, *arguments):
    """What a function of this file returns where rows are moved by the Triton programs, in Triton's interpreter."""
    served, rows._served = rows._served, lambda k, v: True
    try:
        return function(rank, group, *arguments)
    finally:
        rows._served = served


def one_device(text, problem, block, tensors):
    """(out, lse, dq, dk, dv) of the whole on one device."""
    made = plan(ps.lower(ps.parse(text), problem, block=block))
    q, k, v = (tensors[name].clone().requires_grad_() for name in "qkv")
    out, lse = block_sparse_attention(q, k, v, made, return_lse=True)
    seen = torch.where(lse == -torch.inf, 0.0, lse)
    ((out * tensors["dout"]).sum() + (seen * tensors["dlse"]).sum()).backward()
    return tuple(x.double().numpy() for x in (out.detach(), lse.detach(), q.grad, k.grad, v.grad))


def sent_bytes(rank, group, text, problem, block, tensors, options):
    """(bytes handed over in a forward pass, those of forward and backward, those that were counted)."""
    made = _plan(rank, group, text, problem, block, tensors, options)
    q, k, v = (shard(tensors[name], made.query_positions if name == "q" else made.key_positions) for name in "qkv")
    with torch.autograd.set_multithreading_enabled(False), Sent(rank, made.needs.ranks) as sent:
        out = distributed_block_sparse_attention(q, k, v, made, group)
        forward = sent.bytes
        out.sum().backward()
    between = made.bytes_between(k.shape[3], v.shape[3], k.element_size(), k.shape[0])
    return forward, sent.bytes - forward, between[rank].sum(), between[:, rank].sum()


def mismatched(rank, group, text, problem, block, tensors, options):
    """The last rank lowers another pattern."""
    text = f"{text} & window(1, 0)" if rank == dist.get_world_size(group) - 1 else text
    return both_passes(rank, group, text, problem, block, tensors, options)


def leaves(rank, group, *arguments):
    """The last rank dies when all have agreed and run once: the others must not hang."""
    return _again(rank, group, lambda: os._exit(1), *arguments)


def sleeps(rank, group, *arguments):
    """The last rank hangs for longer than the group waits, when all have agreed and run once."""
    return _again(rank, group, lambda: time.sleep(14), *arguments)


def _again(rank, group, fault, text, problem, block, tensors, options):
    made = _plan(rank, group, text, problem, block, tensors, options)
    passes_of(made, group, tensors)
    if rank == dist.get_world_size(group) - 1:
        fault()
    return passes_of(made, group, tensors)


def mismatched_shapes(rank, group, text, problem, block, tensors, options):
    """The last rank has another batch size."""
    if rank == dist.get_world_size(group) - 1:
        tensors = {name: x.repeat(2, *[1] * (x.ndim - 1)) for name, x in tensors.items()}
    return both_passes(rank, group, text, problem, block, tensors, options)


def compiled(rank, group, text, problem, block, tensors, options):
    """Graphs of the first compiled call, graphs of a later one, and (eager, compiled) output and gradients."""
    from torch._dynamo.testing import CompileCounterWithBackend

    made = _plan(rank, group, text, problem, block, tensors, options)
    for part, _ in made.steps:
        _ = part.by_query, part.by_key  # as plan() does on CUDA
    inputs = [shard(tensors[x], made.query_positions if x == "q" else made.key_positions) for x in "qkv"]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return distributed_block_sparse_attention(q * 1.5, k, v, made, group, backend="triton").sin()

    first, later = CompileCounterWithBackend("aot_eager"), CompileCounterWithBackend("aot_eager")
    torch.compile(attend, backend=first)(*inputs)
    torch.compiler.reset()
    found = torch.compile(attend, backend=later, fullgraph=True)(*inputs)
    both = [(out.detach(), *torch.autograd.grad(out.sum(), inputs)) for out in (attend(*inputs), found)]
    return first.frame_count, later.frame_count, list(zip(*both, strict=True))


def trained(rank, group, steps, gradients, *pattern):
    """The losses of the gallery's training script."""
    from gallery.training.context_parallel import train

    return train(group, steps, gradients, *pattern)


def _plan(rank, group, text, problem, block, tensors, options):
    layout = ps.lower(ps.parse(text), problem, block=block)
    return distributed_plan(layout, dist.get_world_size(group), rank, kv_heads=tensors["k"].shape[1], **options)


def tensors_for(problem: ps.Problem, batch: int, kv_heads: int, dims: tuple[int, int], seed: int, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "q": (batch, problem.heads, problem.q_len, dims[0]),
        "k": (batch, kv_heads, problem.kv_len, dims[0]),
        "v": (batch, kv_heads, problem.kv_len, dims[1]),
        "dout": (batch, problem.heads, problem.q_len, dims[1]),
        "dlse": (batch, problem.heads, problem.q_len),
    }
    return {
        name: torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype) for name, shape in shapes.items()
    }


def joined(parts, whole):
    """The ranks' parts in the order of the whole: (out, lse, dq, dk, dv)."""
    found = [np.full(x.shape, np.nan, x.dtype) for x in whole]
    for queries, out, lse, keys, dq, dk, dv in parts:
        all_places = queries, queries, queries, keys, keys
        for x, part, places in zip(found, (out, lse, dq, dk, dv), all_places, strict=True):
            x[:, :, places] = part
    return found
