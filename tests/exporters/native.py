"""What the three native formats are tested with: designs, and ways to spoil a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import lru_cache

from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import export, read
from tests.exporters.trees import exportable
from tests.strategies import blocks, problems

designs = st.tuples(exportable, problems(), blocks)
SAMPLE = (
    ps.parse("heads({0: causal & window(9, 0), 1: random(2, unit=8) | docs, 2: empty})"),
    ps.Problem(50, 70, q_offset=18, heads=3, docs=(30, 0, 40)),
    (16, 8),
)


@lru_cache
def sample(to: str) -> bytes:
    """A small file with every kind of run."""
    return export(*SAMPLE, to=to).data


@lru_cache
def sample_layout() -> ps.BlockLayout:
    return ps.lower(SAMPLE[0], SAMPLE[1], block=SAMPLE[2])


def survives(data: bytes) -> str:
    """Read bytes that may be anything: the error's text, or "" where they read as the sample; in a second of CPU."""
    begin = time.process_time()
    try:
        found = read(data)
    except ps.StudioError as error:
        outcome = str(error)
    else:
        outcome = ""
        assert found == (SAMPLE[0] if isinstance(found, ps.Pattern) else sample_layout())
    assert time.process_time() - begin < 1
    return outcome


def changed(header: dict, **fields: object) -> dict:
    """A header with some fields replaced (None: as it is in JSON)."""
    return header | fields


# field -> (its hostile value, what the error says)
HEADERS: dict[str, tuple[Callable[[dict], dict], str]] = {
    "newer version": (
        lambda h: changed(h, version=2),
        "expected a file of version 1, got version 2; update Pattern Studio",
    ),
    "no version": (
        lambda h: {k: v for k, v in h.items() if k != "version"},
        "the file's version must be a whole number",
    ),
    "newer language": (lambda h: changed(h, language=99), "of language 1, got language 99; update"),
    "other schema": (lambda h: changed(h, schema="pattern-studio/other"), "expected a schema that can be read"),
    "schema of a kind": (lambda h: changed(h, schema=[1]), "expected a schema that can be read"),
    "other text": (lambda h: changed(h, pattern="causal"), "the pattern's hash is .*, but the file says"),
    "other hash": (lambda h: changed(h, hash="0" * 16), "the text was changed or damaged"),
    "code for a text": (
        lambda h: changed(h, pattern="__import__('os')"),
        "only the words of the language|unknown word",
    ),
    "text of a kind": (lambda h: changed(h, pattern=7), "expected the file's pattern to be a str, got 7"),
    "unknown field": (lambda h: changed(h, more=1), "missing or unknown: .'more'."),
    "missing field": (lambda h: {k: v for k, v in h.items() if k != "block"}, "missing or unknown: .'block'."),
    "lengths of a kind": (lambda h: changed(h, problem=h["problem"] | {"q_len": "50"}), "q_len must be a whole number"),
    "a huge length": (lambda h: changed(h, problem=h["problem"] | {"q_len": 10**40}), "q_len must lie between"),
    "many heads": (lambda h: changed(h, problem=h["problem"] | {"heads": 10**9}), "heads must lie between 1 and 65536"),
    "documents that don't add up": (
        lambda h: changed(h, problem=h["problem"] | {"docs": [1]}),
        "must add up to kv_len 70",
    ),
    "documents of a kind": (
        lambda h: changed(h, problem=h["problem"] | {"docs": ["a"]}),
        "a document length must be a whole",
    ),
    "a problem of a kind": (lambda h: changed(h, problem=[]), "expected the file's problem to be a dict"),
    "a problem without heads": (lambda h: changed(h, problem={"q_len": 5}), "expected a problem with docs, heads"),
    "a block of a kind": (lambda h: changed(h, block="ab"), "expected the file's block to be a list"),
    "a block of three": (lambda h: changed(h, block=[1, 2, 3]), "block must be one number or"),
    "a layer of a kind": (lambda h: changed(h, layer=-1), "the layer must lie between"),
}


def text(header: object) -> bytes:
    return json.dumps(header).encode()
