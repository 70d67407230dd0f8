"""What the pointer is told: the same verdict as the predicate, and reasons that hold."""

from __future__ import annotations

import numpy as np
import pytest
from pattern_studio_app.reasons import reasons

import pattern_studio as ps

TEXTS = [
    "causal & (window(5, 0) | sink(2))",
    "causal & window(5, 0)",
    "window(3, 3) | globals(cols=(0, 9))",
    "causal",
    "dense",
    "causal & docs & (window(9, 0) | strided(4) | sink(1))",
    "(causal & window(3, 0)) | rect(range(4, 8), range(20, 28))",
    "causal & window(9, 0) - rect(range(8, 16), range(0, 8))",
    "causal & heads({0: window(3, 0) | sink(1), 1: dense})",
    "layers({0: causal & (window(2, 0) | sink(3)), 1: dense})",
    "causal ^ window(4, 4)",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("head", [0, 1])
def test_every_sentence_agrees_with_explain(text, head):
    pattern, problem = ps.parse(text), ps.Problem(24, 32, heads=2, docs=(20, 12))
    i, j = (part.ravel() for part in np.meshgrid(np.arange(8, 32), np.arange(32), indexing="ij"))
    words, which = reasons(pattern, i, j, problem, (8, 8), head, 0)
    for query, key, n in zip(i, j, which, strict=True):
        found = ps.explain(pattern, int(query), int(key), problem, head=head, layer=0, block=8)
        sentence = words[n]
        says_no = (
            sentence.endswith(" forbids it")
            or "does not keep it" in sentence
            or sentence.startswith(("neither", "none of"))
        )
        assert says_no != found.allowed, (query, key, sentence)


def test_the_words_name_what_decides():
    pattern = ps.parse("causal & (window(5, 0) | sink(2))")
    words, which = reasons(pattern, np.array([20, 20, 20, 3]), np.array([1, 8, 18, 9]), ps.Problem(32), (8, 8), 0, 0)
    assert [words[n] for n in which] == [
        "sink(2) keeps it",
        "neither window(5, 0) nor sink(2) keeps it",
        "window(5, 0) keeps it",
        "causal forbids it",
    ]


def test_a_long_term_is_shortened():
    text = f"blocks((8, 8), ({', '.join('(0, 2)' for _ in range(30))}))"
    words, _ = reasons(ps.parse(text), np.array([0]), np.array([0]), ps.Problem(64), (8, 8), 0, 0)
    assert words[0].endswith("… keeps it")
    assert len(words[0]) < 60
