"""The gallery as one page of HTML: no script, nothing to fetch, light and dark as the reader's system says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from . import charts, picture
from .named import Named

STYLE = Path(__file__).parent / "style.css"
KEY = (("full", "full tile: every pair allowed"), ("part", "allowed"), ("reach", "partial tile"), ("ground", "empty"))
ARMS = {"ours": "portable kernels", "hopper": "Hopper kernels"}  # of ours; others go by the names that results have
ADDRESS = re.compile(r"arXiv:(\d{4}\.\d{5})")


def page(
    named: Sequence[Named], figures: Mapping[str, Any], capture: str, held: Mapping[str, Mapping[str, str]]
) -> str:
    """The whole page.

    `figures` are those of `gallery.figures` by name; `capture` says in words what was measured on; `held` is how each
    export target holds each preset, as `gallery.matrix.kept` reads it.

    Every drawing is in the page once and used twice, in the overview and beside its pattern.
    """
    families = [(family, list(group)) for family, group in groupby(named, key=lambda one: one.family)]
    links = "".join(f'<a href="#{_slug(family)}">{escape(family)}</a>' for family, _ in families)
    links += '<a href="#exports">Exports</a>'
    drawings = "".join(_symbol(one) for one in named)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<title>Gallery of attention patterns: Pattern Studio</title>",
            f"<style>\n{STYLE.read_text()}</style>\n</head>\n<body>",
            f'<svg width="0" height="0" style="position:absolute" aria-hidden="true">{drawings}</svg>',
            f'<nav aria-label="Families"><div class="wrap"><b>Pattern Studio, gallery</b>{links}</div></nav>',
            f'<div class="wrap">\n{_opening(named, figures, capture)}\n<main>',
            *(_family(family, group, figures) for family, group in families),
            _exports(held),
            f"</main>\n{_closing(capture)}\n</div>\n</body>\n</html>\n",
        ]
    )


def _symbol(one: Named) -> str:
    below, above = picture.levels(picture.cells_of(one))
    tall, wide = below.shape
    return f'<symbol id="map-{one.name}" viewBox="0 0 {wide} {tall}">{picture.drawing(below, above)}</symbol>\n'


def _map(one: Named, words: str) -> str:
    hidden = f'role="img" aria-label="{escape(words)}"' if words else 'aria-hidden="true"'
    return f'<svg class="map" {hidden}><use href="#map-{one.name}"/></svg>'


def _opening(named: Sequence[Named], figures: Mapping[str, Any], capture: str) -> str:
    points = [
        (
            one.name,
            one.title,
            one.family == "Ours",
            figures[one.name]["kept"]["token_density_of_causal"],
            figures[one.name]["kept"]["recall"],
        )
        for one in named
        if figures[one.name]["kept"]
    ]
    key = "".join(f'<li><i style="background:var(--{name})"></i>{words}</li>' for name, words in KEY)
    return f"""<header class="first"><div>
<h1>{len(named)} attention patterns, drawn and measured</h1>
<p class="lead">The literature's static patterns and a few of ours. Each is one line of text, a predicate on positions
without any length in it. Every picture is drawn from that line, every figure is computed from it.</p>
<p class="small">Pictures: queries downwards, keys to the right. Of heads or layers that differ one is drawn. The chart
shows the {len(points)} patterns that suit a decoder, as written here, on {escape(capture)}: how much of the model's
attention each keeps, and for how many of its pairs. No pattern but <em>Found columns</em> was tuned for this, so it
compares shapes and sizes as they stand, not ideas at their best.</p>
<ul class="key">{key}</ul></div>
<figure>{charts.scatter(points, "Mass recall against density of the patterns that suit a decoder")}
<figcaption>Higher and further left is better. Ours are orange. Each point leads to its pattern.</figcaption></figure>
</header>"""


def _family(family: str, group: Sequence[Named], figures: Mapping[str, Any]) -> str:
    sheet = "".join(f'<li><a href="#{one.name}">{_map(one, "")}{escape(one.title)}</a></li>' for one in group)
    plates = "\n".join(_plate(one, figures[one.name]) for one in group)
    return f"""<section id="{_slug(family)}"><div class="sheet"><h2>{escape(family)}</h2><ul>{sheet}</ul></div>
{plates}</section>"""


def _plate(one: Named, found: Mapping[str, Any]) -> str:
    problem = one.problem
    which = [f"{problem.q_len} tokens, tiles of {one.block}"]
    which += [f"head {one.head} of {problem.heads}"] if problem.heads > 1 else []
    which += [f"layer {one.layer}"] if one.layer is not None else []
    which += [f"documents of {', '.join(map(str, problem.docs))} tokens"] if problem.docs else []
    source = ADDRESS.sub(lambda hit: f'<a href="https://arxiv.org/abs/{hit[1]}">{hit[0]}</a>', escape(one.source))
    return f"""<article class="plate" id="{one.name}">
<figure>{_map(one, picture.alt(one))}
<div class="axis"><span>0</span><span>keys</span><span>{problem.kv_len}</span></div>
<figcaption>{"; ".join(which)}</figcaption></figure>
<div><h3><a href="#{one.name}">{escape(one.title)}</a></h3><p class="source">{source}</p>
<p class="note">{escape(one.note)}</p><pre class="text"><code>{escape(one.text)}</code></pre>
<div class="about">{_counts(found["drawn"])}{_quality(found)}{_cost(found)}{_bars(one, found)}</div></div>
</article>"""


def _counts(drawn: Mapping[str, Any]) -> str:
    tiles = drawn["tiles"]
    rows = [
        ("token density, of all pairs", _percent(drawn["token_density"])),
        ("token density, of the causal triangle", _percent(drawn["token_density_of_causal"])),
        ("block density", _percent(drawn["block_density"])),
        ("tiles, full / partial", f"{tiles['full']:,} / {tiles['partial']:,}"),
        ("block efficiency", _percent(drawn["block_efficiency"])),
    ]
    return _table("As drawn, all heads", rows)


def _quality(found: Mapping[str, Any]) -> str:
    kept = found["kept"]
    if kept is None:
        return f'<p class="none"><b>On the capture</b>Not measured: {escape(found["why_not"])}.</p>'
    rows = [
        ("mass recall, mean of all rows", _percent(kept["recall"])),
        ("mass recall, 1st percentile of rows", _percent(kept["recall_p1"])),
        ("the oracle's, for as many tiles", _percent(kept["oracle_recall"])),
        ("error of the output, relative L2", f"{kept['output_error']:.2g}"),
        ("forward cost of the tiles", f"{kept['gflop']:.3g} GFLOP"),
    ]
    return _table("On the capture, 1,024 tokens", rows)


def _cost(found: Mapping[str, Any]) -> str:
    """What a pass is predicted to cost, and what was measured; each labelled as what it is."""
    rows: list[tuple[str, str]] = []
    known = found["predicted"]
    if known:
        beyond = ", beyond what the model was fitted to" if known["beyond"] else ""
        rows = [
            ("tiles to compute, of all", _percent(known["of_dense"])),
            ("arithmetic, counted", f"{known['flops'] / 1e12:.3g} TFLOP"),
            (
                "time, predicted",
                f"{known['forward_ms']:.3g} ms \N{PLUS-MINUS SIGN} {100 * known['error']:.2g} %{beyond}",
            ),
        ]
    rows += [
        (f"time, measured, {ARMS.get(one['arm'], one['arm'])}, {one['pass'].replace('_', ' ')}", _measured(one))
        for one in found["measured"]
    ]
    if not found["measured"]:
        rows.append(("time, measured", "none: no benchmark has this pattern"))
    where = f"{known['tokens']:,} tokens, {known['heads']} heads, H100" if known else "as drawn"
    return _table(f"Forward pass, {where}", rows)


def _measured(one: Mapping[str, Any]) -> str:
    beside = f", dense {one['dense_ms']:.3g} ms" if one["dense_ms"] else ""
    where = f"{one['tokens']:,} tokens, {one['heads']} heads, D {one['head_dim']}"
    if one["block"] not in (None, [128, 128]):
        where += ", block {} x {}".format(*one["block"])
    if one["docs"]:
        where += f", {len(one['docs'])} documents of {min(one['docs']):,} to {max(one['docs']):,} tokens"
    when = f", {one['date']}" if one["date"] else ""
    return f"{one['ms']:.3g} ms{beside}; {where}; {one['card']}{when}"


def _bars(one: Named, found: Mapping[str, Any]) -> str:
    allowed = f"Share of the pairs at each distance that {one.title} allows"
    bands = found["drawn"]["by_distance"]
    of = (
        "Of the keys behind a query, allowed ones"
        if charts.is_causal(bands)
        else "Of the keys on both sides, allowed ones"
    )
    out = f"""<figure>{charts.allowed_bars(bands, allowed)}
<figcaption>{of}, by distance in tokens</figcaption></figure>"""
    if found["kept"]:
        mass = f"Attention mass by distance, and what {one.title} keeps of it"
        out += f"""<figure>{charts.mass_bars(found["kept"]["mass_by_distance"], mass)}
<figcaption>The model's attention by distance: kept in blue, lost in orange</figcaption></figure>"""
    return out


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    body = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows)
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>"


def _exports(held: Mapping[str, Mapping[str, str]]) -> str:
    """Which library holds which preset; reasons of refusals are shown on hover and read out."""
    names = list(next(iter(held.values())))
    head = "".join(f'<th scope="col"><span>{escape(name)}</span></th>' for name in names)
    rows = []
    for preset, cells in held.items():
        shown = []
        for cell in cells.values():
            kind, _, rest = cell.partition(" ")
            words = {"exact": "exact", "cover": rest}.get(kind, "no")
            title = {"exact": "the very same pairs", "cover": f"covers it: {rest} pairs"}.get(kind, cell[4:])
            shown.append(
                f'<td class="{words if words in ("exact", "no") else "cover"}" title="{escape(title)}">{words}</td>'
            )
        rows.append(f'<tr><th scope="row"><code>{escape(preset)}</code></th>{"".join(shown)}</tr>')
    return f"""<section id="exports"><div class="sheet"><h2>Exports</h2>
<p class="note">Which library holds which preset: <b>exact</b>, or with so many more pairs (written only when asked for
by name), or <b>no</b>; each cell's title has the reason. 1,024 tokens and 4 heads, the best of blocks 128, 64 and 16.
</p>
<div class="matrix" tabindex="0" role="region" aria-label="Which library holds which preset">
<table><thead><tr><td></td>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div></div></section>"""


def _closing(capture: str) -> str:
    return f"""<footer><p class="small"><b>Words.</b> Density is the fraction kept. A tile is full, partial or empty;
active is full or partial. Block density counts active tiles, block efficiency is the allowed share of the pairs inside
them. Mass recall of a query is the dense softmax probability that the pattern keeps; the oracle keeps the best tiles
for the same number of tiles. The cost is four operations for each pair of an active tile and each of 64 dimensions,
over both layers and nine heads. A predicted time is the cost model's for one NVIDIA H100 80GB HBM3, D 128, block 128:
an estimate from ten measured cells of other patterns, with the median error of cells left out. Measured times are rows
of <code>benchmarks/results</code> with card and date, of blocks of 128 unless said; times of a CPU are not among
them.</p>
<p class="small"><b>Measured on</b> {escape(capture)}, tiles of 64. Made by <code>make gallery</code> from the files in
<code>gallery/patterns</code>; the figures are in <code>gallery/figures.json</code>, the table of
exports in <code>gallery/compatibility.md</code>.</p></footer>"""


def _slug(family: str) -> str:
    return re.sub(r"[^a-z]+", "-", family.lower())


def _percent(share: float | None) -> str:
    """Three significant digits.

    >>> _percent(0.12345), _percent(0.999999), _percent(1.0), _percent(None)
    ('12.3 %', '99.9 %', '100 %', 'none')
    """
    if share is None:
        return "none"
    return f"{min(100 * share, 99.9 if share < 1 else 100):.3g} %"
