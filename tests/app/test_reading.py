"""Any text gets an answer: a pattern, or a problem with its place. And patterns in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pattern_studio_app.components.text_bar import status
from pattern_studio_app.numbers import count, fraction, percent, scaled
from pattern_studio_app.presets import PRESETS
from pattern_studio_app.reading import MAX_TEXT, SHOWN, pointer, read
from pattern_studio_app.words import names, sentence

import pattern_studio as ps

from ..strategies import plain

HOSTILE = {
    "a megabyte": "causal & " * 120_000,
    "a megabyte of nothing": " " * 1_000_000,
    "open brackets": "(" * 20_000,
    "closed nesting": "(" * 5_000 + "causal" + ")" * 5_000,
    "tildes": "~" * 20_000 + "causal",
    "shifts": "causal" + " >> 1" * 5_000,
    "differences": " - ".join(["causal"] * 5_000),
    "transposes": "causal" + ".T" * 10_000,
    "a huge number": f"sink({'9' * 10_000})",
    "null": "causal\0",
    "surrogate": "causal \ud800",
    "code": "__import__('os').system('true')",
    "html": "<script>alert(1)</script>",
    "lines": "causal &\n\n windw(3, 0)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_read_or_refused_in_words(name):
    reading = read(HOSTILE[name])
    assert (reading.pattern is None) == bool(reading.problem)
    assert "<script" not in status(HOSTILE[name], reading)


@given(st.text(max_size=200))
def test_any_text_has_a_status_line(text):
    reading = read(text)
    if reading.column is not None:
        assert 0 <= reading.column <= len(text)
    assert status(text, reading).startswith('<div class="ps-status')


def test_the_caret_stands_under_the_place():
    text = "causal & windw(3, 0)"
    shown = status(text, read(text))
    assert f'role="alert">{" " * 9}<span class="wrong">^' in shown
    assert "did you mean" in shown


def test_a_place_far_to_the_right_of_a_long_text_is_quoted():
    text = "causal & (" + " | ".join(f"sink({n})" for n in range(60)) + " | windw(3, 0))"
    reading = read(text)
    excerpt, at = pointer(text, reading.column)
    assert excerpt[at:].startswith("windw")
    assert excerpt.startswith("…")
    assert len(excerpt) <= SHOWN + 1
    assert "windw(3, 0)" in status(text, reading)


def test_too_long_a_text_says_how_long():
    assert read("x" * (MAX_TEXT + 1)).problem.startswith("expected at most 50,000 characters, got 50,001")


@given(plain)
def test_every_pattern_has_a_sentence(pattern):
    assert sentence(pattern).endswith(".")
    assert names(pattern)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("causal", "Each query sees itself and everything before it: dense causal attention."),
        ("window(3, 2)", "Each query sees itself, the 3 keys before it and the 2 after it."),
        ("causal & window(1, 0)", "Each query sees itself and the key before it; nothing ahead of itself."),
        ("dense", "Each query sees every key."),
        ("causal & (sink(1) | strided(2))", "Each query sees the first key, plus every 2nd key counted from itself; "
         "nothing ahead of itself."),
        ("causal & docs", "Each query sees every key; nothing ahead of itself; nothing outside its document."),
        ("~causal", "A free-form pattern of 1 word."),
    ],
)  # fmt: skip
def test_sentences(text, said):
    assert sentence(ps.parse(text)) == said


def test_numbers_have_three_significant_digits():
    assert [percent(x) for x in (0.0, 0.12345, 0.9996, 1.0, 1e-7, None)] == [
        "0 %", "12.3 %", "100 %", "100 %", "< 0.001 %", "none",
    ]  # fmt: skip
    assert [fraction(x) for x in (0.5, 0.0012345, 12.3)] == ["0.500", "0.00123", "12.3"]
    assert [count(n) for n in (0, 999_999, 1_000_000)] == ["0", "999,999", "1.00 M"]
    assert [scaled(x, "FLOP") for x in (12, 7.64e8, 2e15)] == ["12 FLOP", "764 MFLOP", "2.00 PFLOP"]


def test_presets_can_all_be_read_and_lowered():
    for preset in PRESETS:
        pattern = preset.work.reading.pattern
        assert pattern is not None, preset.title
        assert str(ps.parse(preset.work.text)) == preset.work.text, preset.title
        layer = preset.work.layer if "layers" in names(pattern) else None
        assert ps.lower(pattern, preset.work.problem(), block=preset.work.block, layer=layer).empty_rows == 0
