"""The registry: every target, listed here by hand, and `export` and `check`, which go through it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..errors import StudioError
from ..expr import Pattern
from ..problem import Problem, block_shape
from . import (
    block_sparse_attention,
    deepspeed,
    flash_attention_4,
    flashinfer_bsr,
    flashinfer_variable,
    flex_attention,
    flex_mask_mod,
    huggingface,
    json,
    magi_attention,
    minference,
    natten,
    npz,
    safetensors,
    spargeattn,
    vertical_slash,
    xformers,
)
from ._frame import Export, Fidelity, Request, Target, Unsupported

TARGETS: dict[str, Target] = {
    module.TARGET.name: module.TARGET
    for module in (
        flex_attention,
        flex_mask_mod,
        flash_attention_4,
        deepspeed,
        xformers,
        huggingface,
        minference,
        vertical_slash,
        natten,
        flashinfer_bsr,
        flashinfer_variable,
        block_sparse_attention,
        spargeattn,
        magi_attention,
        json,
        npz,
        safetensors,
    )
}
BY_NAME = ("cover", "lossy")  # fidelities that are given only when asked for


def targets() -> list[str]:
    """The names of all targets, as `export(to=...)` takes them."""
    return list(TARGETS)


def export(
    pattern: Pattern,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    to: str = "flex_attention",
    *,
    layer: int | None = None,
    allow: str | Iterable[str] = (),
) -> Export:
    """Write a pattern for a target: text or bytes, with how faithful they are.

    `block` is one number or `(block_q, block_k)` tokens; `layer` is needed by patterns that differ by layer. Only an
    exact export is given, unless `allow` names another fidelity: "cover" (pairs are added) or "lossy" (pairs are
    missing).

    Raises:
        StudioError: an unknown target, one that can't hold the pattern, or one that holds it not exactly and that was
            not asked for by name.

    >>> import pattern_studio as ps
    >>> file = export(ps.causal & ps.window(255, 0), ps.Problem(q_len=1024), 128, to="json")
    >>> str(file.fidelity), file.suffix
    ('exact', '.json')
    """
    target = checked(pattern, problem, to)
    asked = {allow} if isinstance(allow, str) else set(allow)
    if unknown := sorted(asked - {*BY_NAME}):
        raise StudioError(f"allow takes {' or '.join(map(repr, BY_NAME))}, got {unknown[0]!r}")
    try:
        written = target.write(Request(pattern, problem, block_shape(block), layer))
    except Unsupported as reason:
        raise StudioError(f"{to} can't hold this pattern: {reason}") from None
    kind = written.fidelity.kind
    if kind in BY_NAME and kind not in asked:
        change = f"adds {written.fidelity.pairs:,}" if kind == "cover" else f"drops {written.fidelity.pairs:,}"
        reason = f": {written.fidelity.reason}" if written.fidelity.reason else ""
        raise StudioError(
            f"{to} can't hold this pattern exactly, it {change} pairs{reason}; "
            f"take another target or ask for it by name (allow={kind!r})"
        )
    return Export(to, written.content, target.suffix, target.media_type, written.fidelity, written.notes)


def check(
    pattern: Pattern,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    to: str = "flex_attention",
    *,
    layer: int | None = None,
) -> Fidelity:
    """How faithfully a target holds a pattern, without an error where it does not.

    >>> import pattern_studio as ps
    >>> str(check(ps.causal, ps.Problem(0), to="flex_attention"))
    'unsupported(it takes at least one query and one key, got q_len 0 and kv_len 0)'
    """
    target = checked(pattern, problem, to)
    try:
        return target.write(Request(pattern, problem, block_shape(block), layer)).fidelity
    except Unsupported as reason:
        return Fidelity("unsupported", reason=str(reason))


def _target(name: str) -> Target:
    if name in TARGETS:
        return TARGETS[name]
    close = difflib.get_close_matches(str(name), TARGETS, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"the targets are {', '.join(TARGETS)}"
    raise StudioError(f"unknown target {name!r}; {hint}")


def checked(pattern: Pattern, problem: Problem, to: str) -> Target:
    """The target, after a look at what comes with it."""
    if not isinstance(pattern, Pattern):
        raise StudioError(f"export takes a Pattern, got {type(pattern).__name__}; read text with parse()")
    if not isinstance(problem, Problem):
        raise StudioError(f"export takes a Problem, got {type(problem).__name__}; write Problem(q_len=...)")
    return _target(to)
