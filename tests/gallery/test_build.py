"""The kept figures and the kept page are today's; the page stands alone and can be read without seeing it."""

from __future__ import annotations

import doctest
import json
from html.parser import HTMLParser

import pytest

import gallery.build
import gallery.charts
import gallery.costs
import gallery.matrix
import gallery.named
import gallery.page
import gallery.picture
import pattern_studio as ps
from gallery.build import FIGURES, SITE
from gallery.costs import measured, predicted, timed_rows
from gallery.figures import drawn, figures
from gallery.named import FOLDER, Named, load
from pattern_studio.capture import bundled
from pattern_studio.metrics import layout_cost

NAMED = gallery.named.gallery()
KEPT = json.loads(FIGURES.read_text())
STALE = "run `make gallery` and look at the change"


@pytest.mark.parametrize("module", [gallery.charts, gallery.costs, gallery.named, gallery.page, gallery.picture])
def test_examples_run(module):
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed


@pytest.mark.parametrize("one", NAMED, ids=lambda one: one.name)
def test_kept_counts_are_todays(one):
    assert _flat(drawn(one)) == pytest.approx(_flat(KEPT[one.name]["drawn"])), STALE
    assert KEPT[one.name]["text"] == one.text


def test_every_named_pattern_has_figures_and_no_other():
    assert list(KEPT) == [one.name for one in NAMED]


@pytest.mark.parametrize("name", ["streaming_llm", "duo_attention", "gemma"])
def test_kept_quality_is_todays(name):
    found = figures(load(FOLDER / f"{name}.txt"), bundled())["kept"]
    assert _flat(found) == pytest.approx(_flat(KEPT[name]["kept"]), rel=2e-3), STALE


@pytest.mark.parametrize("name", ["mistral", "bigbird", "packed_documents", "swin"])
def test_kept_costs_are_todays(name):
    found = predicted(load(FOLDER / f"{name}.txt"))
    assert found == KEPT[name]["predicted"], STALE
    assert (found is None) == (name in ("packed_documents", "swin"))


def test_predicted_times_are_the_cost_models_and_labelled():
    cost = KEPT["mistral"]["predicted"]
    layout = ps.lower(ps.mistral(128), q_len=32768, heads=16, block=128)
    assert (cost["flops"], cost["forward_ms"]) == (
        layout_cost(layout, 128).forward_flops,
        pytest.approx(layout_cost(layout, 128).forward_ms, rel=5e-3),
    )
    assert cost["beyond"], "less dense than any measured cell"
    assert not KEPT["causal_bigbird"]["predicted"]["beyond"]
    text = SITE.read_text()
    assert f"{cost['forward_ms']:.3g} ms \N{PLUS-MINUS SIGN} 7.4 %, beyond what the model was fitted to" in text
    assert text.count("time, predicted") == sum(bool(one["predicted"]) for one in KEPT.values())


def test_measured_times_need_a_card():
    rows = timed_rows()
    assert rows
    assert all(row["card"].startswith("NVIDIA") for row in rows)
    for name, found in KEPT.items():
        assert found["measured"] == measured(load(FOLDER / f"{name}.txt"), rows), STALE
    shape = {"B": 1, "H": 16, "Hkv": 16, "S": 8192, "D": 64}
    row = {"card": "A card", "pattern": "mistral( 128 )", "shape": shape, "arm": "ours", "pass": "forward", "ms": 9.0}
    one = load(FOLDER / "mistral.txt")
    others = [row | {"card": ""}, row | {"pattern": "mistral(64)"}, row | {"hash": ps.mistral(64).hash}]
    (found,) = measured(one, [*others, row])
    assert found == {"card": "A card", "date": None, "arm": "ours", "pass": "forward", "ms": 9.0, "dense_ms": None} | {
        "tokens": 8192, "heads": 16, "head_dim": 64, "block": None, "docs": None,
    }  # fmt: skip
    assert '<th scope="row">time, measured, portable kernels, forward</th>' in shown("mistral", found)
    assert "<td>9 ms; 8,192 tokens, 16 heads, D 64; A card</td>" in shown("mistral", found)


def shown(name: str, *rows: dict) -> str:
    """The page of a pattern with these measured rows, and of one that the capture has, for its overview."""
    some = [load(FOLDER / f"{each}.txt") for each in (name, "streaming_llm")]
    return gallery.page.page(some, KEPT | {name: KEPT[name] | {"measured": list(rows)}}, "c", gallery.matrix.kept())


def test_both_arms_of_ours_are_shown_with_card_and_date_as_they_were_timed_last():
    one = load(FOLDER / "packed_documents.txt")
    own = [*one.problem.docs, one.problem.docs[0]]
    row = {"card": "NVIDIA H200", "pattern": one.name, "hash": one.pattern.hash, "pass": "forward", "docs": own}
    row |= {"shape": {"B": 1, "H": 16, "Hkv": 16, "S": sum(own), "D": 128, "block": [128, 128]}}
    rows = [
        row | {"arm": "ours", "ms": 3.0, "date": "2026-11-30"},
        row | {"arm": "ours", "ms": 9.0, "date": "2026-11-29"},  # before the kernel was made faster
        row | {"arm": "hopper", "ms": 2.0, "date": "2026-11-29"},
        row | {"arm": "hopper", "ms": 7.0, "date": "2026-12-01", "docs": [sum(own)]},  # another packing
    ]
    found = measured(one, rows)
    assert sorted((row["arm"], row["ms"], row["date"], row["docs"]) for row in found) == [
        ("hopper", 2.0, "2026-11-29", None),
        ("ours", 3.0, "2026-11-30", None),
    ]
    page = shown(one.name, *found)
    where = f"{sum(own):,} tokens, 16 heads, D 128"
    assert f"portable kernels, forward</th><td>3 ms; {where}; NVIDIA H200, 2026-11-30</td>" in page
    assert f"Hopper kernels, forward</th><td>2 ms; {where}; NVIDIA H200, 2026-11-29</td>" in page
    (other,) = measured(one, rows[3:])
    assert f"<td>7 ms; {where}, 1 documents of {sum(own):,} to {sum(own):,} tokens; " in shown(one.name, other)


def test_a_named_pattern_finds_its_rows_by_hash():
    """At the greatest length and head dim that is not beyond the predictions', beside dense attention of that run."""
    one = load(FOLDER / "gemma.txt")
    layer = one.layer
    assert layer is not None

    def row(name: str, tokens: int, dim: int, ms: float, **more: object) -> dict:
        shape = {"B": 1, "H": 16, "Hkv": 16, "S": tokens, "D": dim}
        return {"card": "C", "date": "d", "pattern": name, "shape": shape, "arm": "ours", "pass": "forward", "ms": ms,
                **more}  # fmt: skip

    same = {"hash": one.pattern.hash, "layer": layer}
    rows = [
        row("gemma", 8192, 128, 1.0, **same),
        row("gemma", 32768, 64, 2.0, **same),
        row("gemma", 32768, 128, 3.0, **same),
        row("gemma", 65536, 128, 4.0, **same),
        row("gemma", 32768, 128, 5.0, **same | {"layer": layer + 1}),
        row("dense", 32768, 128, 30.0, arm="sdpa_flash"),
        row("dense", 32768, 128, 20.0, arm="sdpa_cudnn"),
        row("dense", 32768, 128, 10.0, arm="sdpa_cudnn") | {"date": "another"},
    ]
    (found,) = measured(one, rows)
    assert (found["ms"], found["tokens"], found["head_dim"], found["dense_ms"]) == (3.0, 32768, 128, 20.0)


def test_unfit_patterns_have_no_figure_but_a_reason():
    for name, found in KEPT.items():
        assert (found["kept"] is None) == bool(found["why_not"]), name
    reasons = {name: found["why_not"] for name, found in KEPT.items() if found["why_not"]}
    assert "the bundled model is a decoder" in reasons["bigbird"]
    assert "the bundled capture is one text" in reasons["packed_documents"]
    assert "for 12 heads, and the bundled model has 9" in reasons["longformer_dilated"]


def test_figures_of_a_pattern_worked_out_by_hand():
    one = Named("n", "N", "Ours", "S", "N.", "causal & window(1, 0)", ps.causal & ps.window(1, 0), ps.Problem(4), 2)
    found = drawn(one)
    assert (found["pairs"], found["token_density"], found["token_density_of_causal"]) == (7, 7 / 16, 0.7)
    assert found["block_density"] == 0.75
    assert found["by_distance"] == [
        {"first": 0, "last": 0, "past": 1.0},
        {"first": 1, "last": 3, "past": 0.5, "ahead": 0.0},
    ]


def test_kept_page_is_todays():
    assert SITE.read_text() == gallery.build.site(KEPT), STALE
    assert SITE.stat().st_size < 1_500_000


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> _Reader:
    reader = _Reader()
    reader.feed(SITE.read_text())
    reader.close()
    assert reader.open == [], "every element is closed"
    return reader


def test_page_needs_nothing_but_itself(page):
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "img", "object", "embed"}
    assert "url(" not in SITE.read_text()
    assert "@import" not in SITE.read_text()
    for tag, attrs in page.tags:
        assert "src" not in attrs
        address = attrs.get("href") or "#"
        assert address.startswith("#") or (tag == "a" and address.startswith("https://arxiv.org/abs/"))


def test_links_within_the_page_lead_somewhere(page):
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.tags:
        if (attrs.get("href") or "").startswith("#"):
            assert attrs["href"][1:] in ids


def test_every_picture_has_words_or_is_beside_some(page):
    drawings = [attrs for tag, attrs in page.tags if tag == "svg"]
    assert len(drawings) > 2 * len(NAMED)
    for attrs in drawings:
        assert attrs.get("aria-hidden") == "true" or attrs.get("aria-label")


def test_page_follows_light_and_dark():
    assert "prefers-color-scheme: dark" in SITE.read_text()


def _flat(value: object, name: str = "") -> dict[str, float]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        return {name: value}  # type: ignore[dict-item]
    return {key: part for at, inner in items for key, part in _flat(inner, f"{name}.{at}").items()}
