"""natten: the parameters of NATTEN's one-dimensional neighborhood attention."""

from __future__ import annotations

import json

from ._forms import local
from ._frame import Request, Target, Unsupported, Written, cover, need_tokens, one_pattern


def write(request: Request) -> Written:
    """JSON of `kernel_size`, `dilation`, `stride` and `is_causal`, as `natten.na1d` takes them.

    Causal windows (dilated or not) are exact. Without causal NATTEN moves the window in at the borders instead of
    cutting it off, so a symmetric window is a cover of the pairs that the moved windows add. Queries are the keys,
    one pattern for all heads, and `kernel_size * dilation` must not exceed the length.

    Source: natten.na1d; its checks of arguments as of NATTEN at 0bce7af.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import check, export
    >>> print(export(ps.causal & ps.window(6, 0), ps.Problem(64), to="natten").content)
    {"kernel_size": 7, "stride": 1, "dilation": 1, "is_causal": true}
    <BLANKLINE>
    >>> str(check(ps.window(3, 3), ps.Problem(64), to="natten"))
    'cover(+12)'
    """
    need_tokens(request.problem)
    problem = request.problem
    if problem.q_len != problem.kv_len or problem.offset:
        raise Unsupported("it takes as many queries as keys, at the same positions")
    one_pattern(request.layout)
    form, length = local(request), problem.kv_len
    if form is None or form.sinks:
        raise Unsupported("it has windows only, dilated or not: this pattern is none")
    causal = form.right == 0 and length > 1
    if not causal and form.left != form.right:
        raise Unsupported(f"its windows are causal or symmetric, this one has {form.left} and {form.right} taps")
    kernel = form.left + 1 if causal else form.left + form.right + 1
    if form.rate == 1:
        kernel = min(kernel, length)  # a window beyond the length is the whole length
    if kernel < 2:
        raise Unsupported("its kernel_size is at least 2, and this pattern keeps the query alone")
    if kernel * form.rate > length:
        raise Unsupported(f"kernel_size * dilation must not exceed the length {length}, got {kernel} * {form.rate}")
    added = 0 if causal else (length * kernel * problem.heads) - request.layout.pairs
    given = {"kernel_size": kernel, "stride": 1, "dilation": form.rate, "is_causal": causal}
    return Written(json.dumps(given) + "\n", cover(added))


TARGET = Target(
    name="natten",
    about="the parameters of NATTEN's one-dimensional neighborhood attention",
    consumer="NATTEN at 0bce7af, na1d",
    suffix=".json",
    media_type="application/json",
    write=write,
    proof="gpu",
    grouped="own",  # docs/backends.md
)
