"""Performance: results read from anyone's file, speed-ups and predictions against numbers worked out here, the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_studio_app import timing_folder
from pattern_studio_app.components import speedup_plot
from pattern_studio_app.components.time_panel import milliseconds
from pattern_studio_app.events import PerformanceSet
from pattern_studio_app.performance_view import KEPT, Given
from pattern_studio_app.prediction import MODEL_CARD, Subject, predicted
from pattern_studio_app.state import State, reduce
from pattern_studio_app.time_model import fitted
from pattern_studio_app.timing_file import MAX_BYTES, OtherStudyError, read
from pattern_studio_app.timings import measured
from scipy.optimize import nnls

import pattern_studio as ps
from pattern_studio.metrics import layout_cost
from pattern_studio.metrics.cost import CALIBRATIONS
from pattern_studio.plot.colours import DARK, LIGHT
from tests.app.timing_rows import H100, RESULTS, TEXT, data, linear, row, subject

# Reading


def test_the_projects_own_results_are_read_to_the_last_digit():
    rows, found = json.loads(H100.read_bytes())["rows"], read(H100.read_bytes(), H100.name)
    assert len(found.rows) == len(rows) == 44
    for one, raw in zip(found.rows, rows, strict=True):
        assert (one.ms, one.tflops, one.density, one.arm, one.direction) == tuple(
            raw[name] for name in ("ms", "tflops", "density", "arm", "pass")
        )
        assert (one.tokens, one.dim, one.heads, list(one.block)) == tuple(
            raw["shape"][n] for n in ("S", "D", "H", "block")
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.json: expected whole JSON, got something else; take a result of benchmarks.run"),
        (b"\x80\x04pickle", "expected whole JSON"),
        (b"PK\x03\x04", "expected whole JSON"),
        (b"[" * 100_000, "expected whole JSON"),
        (b'{"rows": [' + b"9" * 5000 + b"]}", "expected whole JSON"),
        (data(row())[:-9], "expected whole JSON"),
        (data(row(ms=float("nan"))), "expected whole JSON"),
        (data(row(ms=float("inf"))), "expected whole JSON"),
        (b" " * (MAX_BYTES + 1), "expected at most 4,194,304 bytes, got 4,194,305"),
        (b"[]", 'expected an object with a list of "rows", got none'),
        (b'{"rows": []}', 'expected an object with a list of "rows"'),
        (b'{"rows": [3]}', 'expected an object with a list of "rows"'),
        (b'{"rows": [' + b"{}," * 20_000 + b"{}]}", "expected at most 20,000 rows, got 20,001"),
        (data(row(), row(ms=-1)), "x.json, row 2: expected ms as a number above 0, got -1"),
        (data(row(ms="2")), "row 1: expected ms as a number above 0, got '2'"),
        (data(row(ms=True)), "expected ms as a number above 0, got True"),
        (data(row(ms=10**400)), "expected ms as a number above 0"),
        (data(row(density=1.01)), "expected density as a number up to 1, got 1.01"),
        (data(row(S=0)), "expected shape.S as a whole number from 1 on, got 0"),
        (data(row(D=64.0)), "expected shape.D as a whole number from 1 on, got 64.0"),
        (data(row(block=[128])), "expected shape.block as two numbers, got a list"),
        (data(row(shape=None)), "expected shape as an object, got None"),
        (data(row(card="")), "expected card as 1 to 200 printable characters, got ''"),
        (data(row(card="a\x00b")), "expected card as 1 to 200 printable characters"),
        (data(row(arm="a" * 201)), "expected arm as 1 to 200 printable characters"),
        (data(row(hash=7)), "expected hash as a text, got 7"),
        (data(row(tiles=[1, 2, 3])), "expected tiles as numbers of full, band, bits, got a list"),
        (data(row(tiles={"full": 1, "band": 2})), "expected tiles as numbers of full, band, bits, got a dict"),
        (data(row(tiles={"full": 1, "band": True, "bits": 0})), "expected tiles.band as a whole number from 0 on"),
        (
            data(row(tiles={"full": 1, "band": 0, "bits": -1})),
            "expected tiles.bits as a whole number from 0 on, got -1",
        ),
        (data(row(**{"pass": "sideways"})), "expected pass as forward or backward, got 'sideways'"),
    ],
)
def test_a_hostile_file_gets_one_sentence(content, message):
    with pytest.raises(ps.StudioError) as error:
        read(content, "x.json")
    assert message in str(error.value)
    assert len(str(error.value)) < 250
    assert "\n" not in str(error.value)


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*row(), *row()["shape"], "rows"]), inner, max_size=5)
), max_leaves=12), st.sampled_from([*row(), *row()["shape"]]))  # fmt: skip
def test_nothing_but_a_sentence_comes_out_of_a_strange_value(value, key):
    for content in ({"rows": [row(**{key: value})]}, {"rows": value}, value):
        try:
            found = read(json.dumps(content).encode(), "x.json")
        except ps.StudioError:
            continue
        assert all(one.ms > 0 and 0 < one.density <= 1 and one.tokens > 0 for one in found.rows)


def test_a_folder_is_read_and_other_studies_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "good.json").write_bytes(data(row()))
    (tmp_path / "bad.json").write_bytes(b"{")
    (tmp_path / "other.json").write_bytes(b'{"rows": [{"recall": 1}]}')
    (tmp_path / "folder.json").mkdir()
    files, notes = timing_folder.read_folder(tmp_path)
    assert [file.name for file in files] == ["good.json"]
    assert notes == ("bad.json: expected whole JSON, got something else; take a result of benchmarks.run",)
    (tmp_path / "good.json").write_bytes(data(row(), row()))  # a changed file is read again
    assert len(timing_folder.read_folder(tmp_path)[0][0].rows) == 2
    monkeypatch.setenv(timing_folder.VARIABLE, str(tmp_path))
    assert {"good.json", H100.name} <= {file.name for file in timing_folder.installed()[0]}
    monkeypatch.setenv(timing_folder.VARIABLE, str(tmp_path / "none"))
    assert "PATTERN_STUDIO_RESULTS: expected a folder with results" in timing_folder.installed()[1][0]
    with pytest.raises(OtherStudyError):
        read((RESULTS / "2026-11-28-lowering.json").read_bytes(), "lowering.json")


def test_times_that_are_no_kernels_are_read_past():
    whole = row(**{"pass": "end_to_end", "clock": "host"})
    alone = row(**{"pass": "end_to_end_one_thread", "clock": "host"})
    plan = row(**{"pass": "plan", "tflops": 0.0})  # of which no operation is counted
    assert [one.ms for one in read(data(whole, row(ms=1.5, clock="card"), alone, plan), "x").rows] == [1.5]


def test_what_a_visitor_brings_is_kept_in_bounds_and_a_bad_file_changes_nothing():
    given_files = Given()
    for n in range(KEPT + 2):
        given_files = given_files.taken(f"{n}.json", data(row()))
    assert [file.name for file in given_files.files] == [f"{n}.json" for n in range(2, KEPT + 2)]
    wrong = given_files.taken("a\nb.json", b"{")
    assert wrong.files == given_files.files
    assert wrong.problem.startswith("a?b.json: expected whole JSON")
    assert (wrong.taken("x", data(row())).problem, wrong.count) == ("", KEPT + 3)
    state = reduce(State(), PerformanceSet("given", wrong))
    assert state.performance.given == wrong


# Speed-ups


def test_speed_up_is_dense_time_over_time_of_the_same_run_and_shape():
    fast, slow = (
        row(arm="sdpa_cudnn", pattern="dense", density=1.0, ms=10.0),
        row(arm="sdpa_flash", pattern="dense", ms=12),
    )
    other_shape, other_run = row(S=8192), row(date="2026-11-29")
    cells = measured([read(data(slow, fast, row(), other_shape, other_run), "x")], "forward")
    assert [one.speed_up for one in cells] == [10 / 12, 1.0, 5.0, None, None]
    assert cells[2].dense == ("sdpa_cudnn", 10.0)
    assert measured([read(data(row()), "x"), read(data(fast), "y")], "forward")[0].dense is None  # another run


def test_both_is_the_sum_where_both_were_measured():
    rows = [row(ms=2.0, tflops=300.0), row(**{"pass": "backward"}, ms=6.0, tflops=100.0), row(pattern="local_0.05")]
    (one,) = measured([read(data(*rows), "x")], "both")
    assert (one.ms, one.tflops) == (8.0, (2 * 300 + 6 * 100) / 8)


def test_a_cell_that_was_timed_twice_stays_two_cells():
    rows = [row(ms=1.0), row(ms=2.0), row(ms=10.0, **{"pass": "backward"}), row(ms=20.0, **{"pass": "backward"})]
    assert [one.ms for one in measured([read(data(*rows), "x")], "both")] == [11.0, 22.0]


# Predictions


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_models_own_card_is_predicted_by_the_model(direction):
    asked = subject()
    cost = layout_cost(asked.layout, 128)
    told = predicted(asked, direction, [])
    assert (told.ms, told.error) == (getattr(cost, f"{direction}_ms"), getattr(cost, f"{direction}_error"))
    assert (told.alike, told.beyond) == (True, None)
    assert not predicted(subject(block=64), direction, []).alike


def test_fitting_the_projects_own_results_gives_the_models_numbers():
    rows = [one for one in read(H100.read_bytes(), "x").rows if one.arm == "ours" and one.direction == "forward"]
    flops = np.array([2 * 2 * one.dim * one.heads * one.density * one.tokens**2 for one in rows])
    work = np.stack([np.ones(len(flops)), flops], 1)
    fit, stated = fitted(work, np.array([one.ms for one in rows])), CALIBRATIONS["forward"]
    call_ms, per_flop = fit.weights
    assert call_ms == pytest.approx(stated.call_ms, rel=1e-3)
    assert 1e-9 / per_flop == pytest.approx(stated.teraflops, rel=1e-3)
    assert (fit.error, fit.worst) == (pytest.approx(stated.error, abs=1e-3), pytest.approx(stated.worst, abs=1e-3))


def test_another_card_is_predicted_from_its_own_cells():
    rows = read(data(*linear()), "x").rows
    asked = subject(card="Card X")
    told = predicted(asked, "forward", rows)
    assert told.ms == pytest.approx(0.5 + 4 * 128 * asked.layout.tile_pairs / 200e9)
    assert told.error < 1e-9
    assert told.basis == "a line fitted to 4 cells on Card X, D 128, block 128 x 128"
    assert (told.alike, told.beyond) == (True, False)
    both = predicted(asked, "both", rows)
    assert both.ms == pytest.approx(1.0 + (4 + 10) * 128 * asked.layout.tile_pairs / 200e9)
    assert not predicted(subject(card="Card X", dim=64), "forward", rows).alike
    assert predicted(subject("dense", card="Card X"), "forward", rows).beyond  # more than any of the cells


def test_the_kernels_that_auto_takes_are_predicted_where_enough_is_known_of_them():
    slow = linear()
    fast = [one | {"arm": "hopper", "ms": one["ms"] / 2} for one in slow if one["arm"] == "ours"]
    asked = subject(card="Card X")
    portable = predicted(asked, "forward", read(data(*slow), "x").rows)
    told = predicted(asked, "forward", read(data(*slow, *fast), "x").rows)
    assert told.ms == pytest.approx(portable.ms / 2)
    assert told.basis == "a line fitted to 4 cells of our Hopper kernels on Card X, D 128, block 128 x 128"
    few = read(data(*slow, *fast[:-1]), "x").rows
    assert predicted(asked, "forward", few) == portable


def by_tiles(**more) -> list[dict]:
    """Cells of a made-up card: .5 ms a call, 2 us a block of rows, 10, 30 and 50 us a tile by kind."""
    made = []
    for n in range(1, 13):
        full, band, bits = 40 * n, 30 * (n % 4), 20 * (n % 3)
        tokens = 2048 * (1 + 5 * n % 12)
        rows = 2 * (tokens // 128)
        ms = 0.5 + 0.002 * rows + 0.01 * full + 0.03 * band + 0.05 * bits
        tiles = {"full": full, "band": band, "bits": bits}
        same = {"card": "Card X", "arm": "hopper", "S": tokens, "H": 2, "ms": ms, "tiles": tiles, **more}
        made += [row(**same), row(**same | {"pass": "backward"})]
    return made


def test_full_and_masked_tiles_are_told_apart_where_cells_say_their_tiles():
    pattern = ps.parse("causal & window(1023, 0)")
    layout = ps.lower(pattern, q_len=4096, heads=2, block=128)
    asked = Subject(pattern, layout, 128, 2, "Card X")
    told = predicted(asked, "forward", read(data(*by_tiles()), "x").rows)
    full, band = (layout.tiles(kind) for kind in (ps.TileKind.FULL, ps.TileKind.BAND))
    assert layout.tiles() == full + band
    assert told.ms == pytest.approx(0.5 + 0.002 * 64 + 0.01 * full + 0.03 * band)
    assert told.error < 1e-9
    assert told.basis == (
        "what rows and full, banded and bit-masked tiles took in 12 cells of our Hopper kernels on Card X, D 128, "
        "block 128 x 128"
    )
    # Far shorter ones wait for the host, and are no measure of this one.
    short = [one | {"shape": one["shape"] | {"S": 256}, "ms": 9.0} for one in by_tiles()]
    assert predicted(asked, "forward", read(data(*by_tiles(), *short), "x").rows) == told
    # Too few that say their tiles: all that are as near, by their work alone.
    few = [{key: value for key, value in one.items() if key != "tiles"} for one in by_tiles()]
    less = predicted(asked, "forward", read(data(*few, *by_tiles()[:6]), "x").rows)
    assert less.basis.startswith("a line fitted to 15 cells of our Hopper kernels")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_parts_of_times_are_the_least_squares_that_are_not_negative(seed, parts):
    rng = np.random.default_rng(seed)
    work = np.concatenate([np.ones((14, 1)), rng.uniform(0, 100, (14, parts - 1))], 1)
    ms = rng.uniform(0.5, 2, 14) * (work @ rng.uniform(0, 1, parts) + 0.1)
    fit = fitted(work, ms)
    wanted, _ = nnls(work / ms[:, None], np.ones(14))
    assert (fit is None) == (not wanted[1:].any())
    if fit is not None:
        assert fit.weights == pytest.approx(wanted, rel=1e-5, abs=1e-7)
        left_out = [
            abs(work[n] @ nnls(np.delete(work, n, 0) / np.delete(ms, n)[:, None], np.ones(13))[0] / ms[n] - 1)
            for n in range(14)
        ]
        assert (fit.error, fit.worst) == pytest.approx((np.median(left_out), max(left_out)), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    "rows",
    [
        linear()[:3],  # too few
        [row(ms=float(n + 1)) for n in range(9)],  # all of the same work
        [row(ms=5 - 10 * d, density=d) for d in (0.05, 0.1, 0.2, 0.4)],  # more work in less time
        linear(arm="flex"),  # not our kernels
        linear(card="Card Y"),
    ],
)
def test_no_prediction_where_the_cells_cannot_tell(rows):
    assert predicted(subject(card="Card X"), "forward", read(data(*rows), "x").rows) is None


def test_a_measured_cell_is_this_pattern_on_these_tensors_only():
    asked = subject()
    exact = row(card=MODEL_CARD, pattern=TEXT.replace(" ", ""))
    other = [
        {"pattern": "causal"},
        {"S": 8192},
        {"H": 8},
        {"Hkv": 2},
        {"D": 64},
        {"B": 2},
        {"block": [64, 64]},
        {"card": "Y"},
    ]
    rows = read(data(exact, row(card=MODEL_CARD, hash=asked.pattern.hash), *(exact | row(**{"card": MODEL_CARD} | {
        "pattern": TEXT} | one) for one in other)), "x").rows  # fmt: skip
    assert [asked.is_cell(one) for one in rows] == [True, True] + [False] * len(other)


# The picture


@pytest.mark.parametrize("c", [LIGHT, DARK])
def test_the_picture_has_every_cell_its_line_and_the_stars(c):
    cells = [one for one in measured([read(data(*linear()), "x")], "forward") if not one.is_dense]
    made = speedup_plot.figure(cells, [("predicted", 0.3, 2.5, 0.07)], c)
    line, ours, star = made.data
    assert [x * y for x, y in zip(line.x, line.y, strict=True)] == pytest.approx([1, 1])
    assert sorted(ours.x) == [0.05, 0.1, 0.2, 0.4]
    assert list(ours.y) == [one.speed_up for one in cells]
    assert all("measured: " in text for text in ours.text)
    assert (star.name, star.marker.symbol, star.x, star.y) == ("this pattern, predicted", "star-open", (0.3,), (2.5,))
    assert "our portable kernels: 4 cells, at most" in speedup_plot.in_words(cells)
    several = measured([read(data(*linear(), *linear(S=8192), *linear(arm="<b>flex")), "x")], "forward")
    names = [one.name for one in speedup_plot.figure([o for o in several if not o.is_dense], [], c).data]
    assert names == [
        "1 / density",
        "&lt;b&gt;flex, 4,096",
        "our portable kernels, 8,192",
        "our portable kernels, 4,096",
    ]


def test_a_time_reads_with_its_unit():
    assert (milliseconds(0.40665), milliseconds(1234.0)) == ("0.407 ms", "1.23 s")
