"""The text form: canonical, round-tripping, and closed to hostile input."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from tests import strategies


@settings(max_examples=200)
@given(strategies.patterns())
def test_text_round_trips(pattern):
    again = ps.parse(str(pattern))
    assert again == pattern
    assert again.hash == pattern.hash
    assert eval(str(pattern), vars(ps) | {"range": range}) == pattern  # canonical text is valid Python


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" causal&(window(63,0)|sink( 4 )) ", "causal & (window(63, 0) | sink(4))"),
        ("causal - window(3, 0) & dense", "causal & ~window(3, 0) & dense"),
        ("(dense >> 2) & causal", "dense >> 2 & causal"),
        ("dense >> (-2)", "dense >> -2"),
        (
            "heads({0:2: dense, 2:8:2: causal, 3: empty})",
            "heads({range(0, 2): dense, range(2, 8, 2): causal, 3: empty})",
        ),
        ("rect(0:128, 5 : 9)", "rect(range(0, 128), range(5, 9))"),
        ("globals(cols=[3, 4, 5, 1_000])", "globals(cols=(range(3, 6), 1000))"),
        ("(causal |\n window(1, 1)).within(docs)", "(causal | window(1, 1)).within(docs)"),
        ("~(causal & dense).T", "~(causal & dense).T"),
        ("dense ^ (causal ^ empty)", "dense ^ (causal ^ empty)"),
        ("random(3, unit=block, seed=7)", "random(3, unit=block, seed=7)"),
        ("dense # all of it", "dense"),
    ],
)
def test_canonical_text(text, canonical):
    assert str(ps.parse(text)) == canonical
    assert ps.parse(canonical) == ps.parse(text)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 0, "expected a pattern"),
        ("causal & windw(3, 0)", 9, "unknown word 'windw'; did you mean 'window'?"),
        ("causal & window", 9, r"window needs its arguments: window\(left, right\)"),
        ("causal & window(3)", 9, r"window\(left, right\): missing a required argument: 'right'"),
        ("causal & window(3, x)", 19, "unknown word 'x'"),
        ("causal & window(3, -1)", 9, "window's right must lie between 0"),
        ("causal and dense", 0, r"'and' or 'or' \(use & and \|\)"),
        ("not causal", 0, r"'not' \(use ~\)"),
        ("causal()", 0, "causal takes no arguments"),
        ("causal + dense", 0, r"an operator other than & \| ~ - \^ >>"),
        ("causal >> 1.5", 10, "expected a whole number, got 1.5"),
        ("causal &", 8, "not a pattern expression"),
        ("causal & (dense", 0, "not a pattern expression"),
        ("heads({0:2: dense, 2: causal}) & wndow(1, 0)", 33, "did you mean 'window'"),
        ("rect(0:4, 0:4) | rct(0:4, 0:4)", 17, "did you mean 'rect'"),
        ("causal.within(dense)", 14, r"within\(\) takes docs"),
        ("causal.__class__", 0, r"\.__class__ \(patterns have \.T and \.within"),
        ("causal.hash()", 0, r"no \.hash\(\)"),
        ("__import__('os')", 0, "unknown word '__import__'"),
        ("(lambda: dense)()", 0, "only the words of the language can be called"),
        ("window(*(1, 2))", 0, r"\* and \*\* are not part of the language"),
        ("window(0x10, 0)", 7, "a number runs into a word"),
        ("sink(n=1, n=2)", 0, "sink is given one argument twice"),
        ("[dense for x in dense]", 0, "got listcomp"),
        ("'causal'", 0, "expected a pattern, got 'causal'"),
        ("causal\x00", 0, "not readable as text|not a pattern"),
        ("dense\n& snk(3)", 8, "did you mean 'sink'"),
    ],
)
def test_errors_point_at_the_place(text, column, message):
    with pytest.raises(ps.ParseError, match=message) as caught:
        ps.parse(text)
    if column:
        assert caught.value.column == column


HOSTILE = {
    "deep brackets": "(" * 50_000 + "dense" + ")" * 50_000,
    "deep negation": "~" * 240_000 + "dense",
    "deep calls": "heads({0: " * 20_000 + "dense" + "})" * 20_000,
    "deep powers": "dense >> " + "-" * 240_000 + "1",
    "long union": "dense|" * 41_000 + "dense",
    "long mixed": "dense|causal&" * 19_000 + "dense",
    "huge number": "sink(" + "9" * 240_000 + ")",
    "huge range": "globals(cols=(range(0, 99999999999999, 2),))",
    "huge list": "globals(cols=(" + "1," * 124_000 + "))",
    "huge steps": "globals(cols=(range(0, 2000000000, 2), 1))",
    "many heads": "heads({0:999999999: dense})",
    "not text": "\ud800" * 10,
    "a million blanks": " " * 250_000,
    "too long": "d" * 1_000_000,
    "colons": "1:" * 124_000,
    "digits": "1" * 249_000 + "a",
    "underscores": "1_" * 124_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_an_error_or_a_pattern_within_a_second(name):
    # In a process of its own: a crash or a hang there is a failure here.
    script = (
        "import sys, time, pattern_studio as ps\n"
        "text = sys.stdin.buffer.read().decode('utf-8', 'surrogatepass')\n"
        "begin = time.process_time()\n"
        "try:\n    ps.parse(text)\n    what = 'pattern'\n"
        "except ps.StudioError as error:\n    what = 'error'\n    assert len(str(error)) < 2000, 'long message'\n"
        "print(what, time.process_time() - begin)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        input=HOSTILE[name].encode("utf-8", "surrogatepass"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]
    what, seconds = done.stdout.split()
    assert what in (b"error", b"pattern")
    assert float(seconds) < 5  # of CPU time; well under one on a quiet core


@settings(max_examples=300)
@given(st.text(alphabet=st.sampled_from("causalwindosk()&|~^->.,:{}[]T0123456789=\"' \n#*@"), max_size=60))
def test_fuzzed_text_never_raises_anything_else(text):
    with contextlib.suppress(ps.StudioError):
        assert ps.parse(str(ps.parse(text))) == ps.parse(text)


def test_parse_is_quick_for_long_unions():
    begin = time.process_time()
    pattern = ps.parse(" | ".join(f"rect({n}:{n + 1}, 0:4)" for n in range(800)))
    assert len(pattern.children) == 800
    assert time.process_time() - begin < 20
