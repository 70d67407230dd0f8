"""minference: MInference's JSON of head patterns, for heads that are a window with sinks."""

from __future__ import annotations

import json

from ..errors import StudioError
from ..expr import Pattern
from ..patterns.causal import Causal
from ..patterns.heads import Heads
from ..patterns.layers import Layers
from ..patterns.sink import Sink
from ..patterns.window import Window
from ..problem import whole
from ._bundle import parsed
from ._forms import Local, local
from ._frame import Request, Target, Unsupported, Written, need_tokens, readable

MAX_BYTES = 16 << 20
KIND = "stream_llm"


def write(request: Request) -> Written:
    """A list of one layer: `{"head": ["stream_llm", sinks, window, score]}`, in tokens, the query itself counted.

    MInference's other kinds are budgets for a choice that it makes anew for each input (`vertical_and_slash`) or top
    blocks (`block_sparse`): no mask can be given, so only heads that are `causal & (window(w - 1, 0) | sink(n))` are
    written, exactly. Queries are the keys. Layers that the file does not list get MInference's default, so repeat the
    entry for each layer.

    Source: MInference, modules/minference_forward.py at 0647e2c and ops/streaming_kernel.py at 070ce7c.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import export
    >>> pattern = ps.parse("heads({0: causal & (window(63, 0) | sink(4)), 1: causal})")
    >>> print(export(pattern, ps.Problem(256, heads=2), to="minference").content)
    [{"0": ["stream_llm", 4, 64, 1.0], "1": ["stream_llm", 0, 256, 1.0]}]
    <BLANKLINE>
    """
    need_tokens(request.problem)
    problem = request.problem
    if problem.q_len != problem.kv_len or problem.offset:
        raise Unsupported("it is for prefilling: as many queries as keys, at the same positions")
    found = {}
    forms: dict[Pattern, Local | None] = {}
    for head in range(problem.heads):
        alone = request.pattern.resolve(head, request.layer)
        if alone not in forms:
            forms[alone] = local(request, head)
        form = forms[alone]
        if form is None or form.right or form.rate > 1:
            raise Unsupported(
                f"head {head} is no causal window with sinks; its other kinds are budgets for a choice made at run time"
            )
        found[str(head)] = [KIND, form.sinks, min(form.left + 1, problem.kv_len), 1.0]
    note = "one layer: repeat its entry for every layer of the model, since layers that are not listed get a default"
    return Written(json.dumps([found]) + "\n", notes=(note,))


def read(source: bytes) -> Pattern:
    """The `stream_llm` heads as patterns, by layer where there are several; other kinds are refused."""
    layers = parsed(readable(source, MAX_BYTES))
    if not isinstance(layers, list) or not layers or not all(isinstance(heads, dict) and heads for heads in layers):
        raise StudioError("expected a list with one object of heads per layer")
    made = [Heads({_index(head): _pattern(entry) for head, entry in heads.items()}) for heads in layers]
    return made[0] if len(made) == 1 else Layers(dict(enumerate(made)))


def _index(text: str) -> int:
    if not text.isdecimal() or len(text) > 5:
        raise StudioError(f"expected head numbers as keys, got {text[:40]!r}")
    return int(text)


def _pattern(entry: object) -> Pattern:
    match entry:
        case [str(kind), sinks, window, _]:
            pass
        case _:
            raise StudioError(f"expected [kind, sinks, window, score], got {str(entry)[:80]}")
    if kind != KIND:
        raise StudioError(
            f"a {kind[:40]!r} head is a budget for a choice made at run time, not a mask; only {KIND} is read"
        )
    return Causal() & (Window(whole("a window", window, 1) - 1, 0) | Sink(whole("the sinks", sinks, 0)))


TARGET = Target(
    name="minference",
    about="MInference's JSON of head patterns, for windows with sinks",
    consumer="MInference at 0647e2c, kind stream_llm",
    suffix=".json",
    media_type="application/json",
    write=write,
    proof="contract",
    read=read,
)
