"""Links: a work as the parameters of an address, and back. What comes back may be hostile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pattern_studio import StudioError

from .work import MAX_BESIDE, MAX_BLOCK, MAX_HEADS, MAX_LENGTH, Work, document_lengths

MAX_LINK = 6000  # characters of text in a link: browsers and chat programs cut longer ones

# Parameter -> (field of Work, lowest, highest).
_NUMBERS = {
    "q": ("q_len", 1, MAX_LENGTH),
    "kv": ("kv_len", 1, MAX_LENGTH),
    "h": ("heads", 1, MAX_HEADS),
    "bq": ("block_q", 1, MAX_BLOCK),
    "bk": ("block_k", 1, MAX_BLOCK),
    "layer": ("layer", 0, 65535),
}
_BESIDE = tuple(f"vs{n + 1}" for n in range(MAX_BESIDE))  # texts to compare with


def to_params(work: Work) -> dict[str, str] | None:
    """The parameters of a link to a work; None where its text is too long for one.

    >>> to_params(Work())
    {'p': 'causal & (window(255, 0) | sink(4))', 'q': '1024', 'h': '9', 'bq': '64', 'bk': '64'}
    """
    if len(work.text) + sum(map(len, work.beside)) > MAX_LINK:
        return None
    params = {"p": work.text}
    for name, (field, _, _) in _NUMBERS.items():
        value = getattr(work, field)
        if value is not None and not (name == "layer" and value == 0):
            params[name] = str(value)
    if work.docs.strip():
        params["docs"] = work.docs
    return params | dict(zip(_BESIDE, work.beside, strict=False))


def from_params(params: Mapping[str, str]) -> tuple[Work, tuple[str, ...]] | None:
    """The work that a link means and notes on what in it is wrong; None for an address without a work.

    >>> work, notes = from_params({"p": "causal", "q": "-5"})
    >>> work.text, work.q_len, notes
    ('causal', 1024, ("the link's q: expected a whole number from 1 to 1,048,576, got '-5'; 1024 is used",))
    """
    work, notes, known = Work(), [], False
    if "p" in params:
        known, work = True, replace(work, text=params["p"])
    for name, (field, low, high) in _NUMBERS.items():
        if name not in params:
            continue
        known, text = True, params[name]
        # At most 9 digits, so that no number is too long to be read at all.
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if low <= value <= high:
            work = replace(work, **{field: value})
        else:
            used = getattr(work, field)
            notes.append(
                f"the link's {name}: expected a whole number from {low} to {high:,}, got {text[:40]!r}; "
                f"{'as many as query rows' if used is None else used} is used"
            )
    if "docs" in params:
        known = True
        try:
            document_lengths(params["docs"])
            work = replace(work, docs=params["docs"])
        except StudioError as error:
            notes.append(f"the link's docs: {error}; none are used")
    beside = tuple(params[name] for name in _BESIDE if params.get(name, "").strip())
    if beside:
        known, work = True, replace(work, beside=beside)
    if work.kv_len == work.q_len:
        work = replace(work, kv_len=None)
    return (work, tuple(notes)) if known else None
