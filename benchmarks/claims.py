"""`python -m benchmarks.claims`: what densities keep of a capture (the bundled one), beside what the guide promised.

Writes gallery/claims/<date>.json and .md; minutes of work. Every pattern is static. `oracle` chose its tiles on the
very text that it is measured on, head by head: no pattern with as many tiles keeps more mass. With `--model` the
texts and the loss are those of benchmarks.predictors, of every layer, and `fitted` joins: tiles per head and layer
fitted to one text, measured on another and their loss on a third. Its files end in the model's name, and in the tokens
where `--tokens` asks for other than the usual, and are written anew after every cell: a run that was stopped goes on,
and the table says which cells were not run. Several can take some `--blocks` and `--densities` each, for `--join`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

import pattern_studio as ps
from pattern_studio.capture import Capture, bundled
from pattern_studio.generators import GENERATORS
from pattern_studio.learned import fit_blocks
from pattern_studio.metrics import analyze, block_mass

from .predictors.studies import STUDIES, Study
from .where import Clock, add_options, device_of, stamp

DENSITIES = (0.50, 0.25, 0.10, 0.05, 0.02)
FAMILIES = ("local_window", "dilated_sparse", "global_local", "oracle")
BLOCKS = ((128, 128), (64, 64), (64, 8), (64, 1))
PROMISED = {0.50: 0.99, 0.25: 0.98, 0.10: 0.95, 0.05: 0.93, 0.02: 0.90}  # the low end of the guide's table
LOSS_BLOCK = (64, 64)
SAME = ("model", "text", "tokens", "layers", "loss_text")  # of two files whose cells can be put together


@dataclass(frozen=True)
class Claim:
    """One cell. `density` was asked for and `achieved`: active tiles / tiles of the causal triangle.

    recall, output_error: means over layers, as analyze() has them; `recall_interval` is 1.96 standard errors of the
    heads' means, `output_error_interval` of the layers' errors (None with one layer). `loss_added` in nats a token (a
    pair of passages for an encoder), with its 95 % interval, where a text was given; `drift` is an encoder's, 1 -
    cosine of its embeddings. `why_not` says why a cell is empty.
    """

    density: float
    family: str
    block: tuple[int, int]
    achieved: float | None = None
    recall: float | None = None
    recall_interval: float | None = None
    output_error: float | None = None
    output_error_interval: float | None = None
    loss_added: float | None = None
    loss_interval: tuple[float | None, float | None] | None = None
    drift: float | None = None
    why_not: str | None = None


def pattern_of(
    family: str, density: float, block: tuple[int, int], capture: Capture, fitted: Capture | None = None
) -> ps.Pattern:
    """The pattern of a cell; a StudioError where the budget pays for none. `fitted` is the text to fit to."""
    problem = ps.Problem(len(capture.tokens))
    if family == "fitted":
        if fitted is None:
            raise ps.StudioError("expected a capture to fit to, got none; choose --model")
        return fit_blocks(fitted, density, block).pattern
    if family != "oracle":
        # Study texts are short: 64 global tokens would be a quarter of all.
        fewer = {"global_tokens": problem.q_len // 64} if fitted is not None and family == "global_local" else {}
        return GENERATORS[family](density, problem, block, causal=capture.causal, **fewer).pattern
    own = ps.causal if capture.causal else ps.dense
    triangle = ps.lower(own, problem, block=block).tile_kinds() > 0
    budget = int(density * triangle.sum())
    if not budget:
        raise ps.StudioError(f"a density of {density} pays for no tile of {int(triangle.sum())}")
    chosen = {}
    for layer in capture.layers:
        heads = {}
        for head, mass in enumerate(block_mass(capture, layer, block)):
            rows = np.minimum(block[0], problem.q_len - np.arange(0, problem.q_len, block[0]))
            total = np.where(triangle, mass * rows[:, None], -1)
            best = np.argsort(-total, axis=None, kind="stable")[:budget]
            mask = np.zeros(total.size, bool)
            mask[best] = True
            heads[head] = ps.blocks.from_mask(mask.reshape(total.shape), block)
        chosen[layer] = ps.heads(heads)
    return own & ps.layers(chosen)


def claim(family: str, density: float, block: tuple[int, int], capture: Capture, study: Study | None = None) -> Claim:
    """One cell, measured; with a study its loss, too."""
    try:
        pattern = pattern_of(family, density, block, capture, study and study.fitted)
    except ps.StudioError as error:
        return Claim(density, family, block, why_not=str(error))
    report = analyze(pattern, capture, block=block, metrics=["recall", "output_error", "density"])
    assert report.recall  # asked for, as is the next
    assert report.output_error
    heads = np.array([head.recall.mean for layer in report.layers for head in layer.heads if head.recall])
    errors = [layer.output_error.rel_l2 for layer in report.layers if layer.output_error]
    own = ps.causal if capture.causal else ps.dense
    triangle = ps.lower(own, q_len=len(capture.tokens), block=block).tiles() * len(heads)
    loss = study.loss(pattern, block) if study else None
    return Claim(
        density,
        family,
        block,
        report.figures["tiles"].active / triangle,
        report.recall.mean,
        interval(heads),
        report.output_error.rel_l2,
        interval([error for error in errors if error is not None]),
        loss and loss["added"],
        loss and (loss["low"], loss["high"]),
        loss and loss.get("drift"),
    )


def interval(values: Sequence[float] | np.ndarray) -> float | None:
    """1.96 standard errors of the mean; None of fewer than two values.

    >>> round(interval([1.0, 3.0]), 9), interval([1.0])
    (1.96, None)
    """
    return 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None


def losses(text: str, tokens: int, told: Callable[[str], None]) -> dict[tuple[float, str], tuple]:
    """Nats that each family adds to SmolLM2's loss on a text, and their interval; 64 x 64 tiles, families only."""
    from pattern_studio.capture.load import load_model
    from pattern_studio.metrics.loss import next_token_loss

    loaded = load_model("smollm2", head=True)
    ids = loaded.ids(text, tokens)
    found = {}
    for density in DENSITIES:
        for family in FAMILIES[:-1]:
            try:
                pattern = GENERATORS[family](density, ps.Problem(tokens), LOSS_BLOCK).pattern
            except ps.StudioError:
                continue
            report = next_token_loss(loaded.model, ids, pattern, block=LOSS_BLOCK)
            found[density, family] = report.added, (report.added_low, report.added_high)
            told(f"{density} {family}: {report.added:+.4f}")
    return found


def to_markdown(values: dict) -> str:
    """The table, dated and labelled."""
    drift = " drift |" if _has(values, "drift") else ""
    tokens = f"{values['tokens']} tokens of " if values["loss_text"] and values.get("tokens") else ""
    own = "all tiles" if values.get("causal") is False else "the causal triangle"
    spread = ", with 1.96 standard errors over layers" if _has(values, "output_error_interval") else ""
    lines = [
        f"# What densities keep, {values['date']}",
        "",
        f"Measured on: {values['model']}; layers {', '.join(map(str, values['layers']))}; {tokens}{values['text']}. "
        f"Density: active tiles of {own}. Recall: mean over layers, heads and rows, with 1.96 standard errors over "
        f"heads. Output error: relative L2, mean over layers{spread}. `oracle` chose its tiles per head on this very "
        f'text. Loss: {values["loss_text"] or "not run"}. The guide promised a "quality retention" at each density '
        "without saying of what; it holds here where mean recall reaches the low end of its range.",
        "",
        "| density asked | tiles | family | achieved | recall | output error | loss added (nats) |"
        f"{drift} guide | holds |",
        f"|---|---|---|---|---|---|---|{'---|' if drift else ''}---|---|",
    ]
    for row in values["claims"]:
        guide = PROMISED[row["density"]]
        start = f"| {row['density']:.0%} | {row['block'][0]} x {row['block'][1]} | {row['family']} | "
        if row["why_not"]:
            lines.append(f"{start}- | - | - | - |{' - |' if drift else ''} {guide:.2f} | - |")
            continue
        error = f"{row['output_error']:.3f}{_within(row.get('output_error_interval'))}"
        loss = "" if row["loss_added"] is None else f"{row['loss_added']:+.3f}"
        moved = f" {row['drift']:.3f} |" if drift else ""
        if loss:
            loss += " ({:+.3f} to {:+.3f})".format(*row["loss_interval"])
        lines.append(
            f"{start}{row['achieved']:.3f} | {row['recall']:.3f} ± {row['recall_interval']:.3f} | "
            f"{error} | {loss} |{moved} {guide:.2f} | {'yes' if row['recall'] >= guide else 'no'} |"
        )
    measured = [row for row in values["claims"] if not row["why_not"]]
    empty = len(values["claims"]) - len(measured)
    held = [row for row in measured if row["recall"] >= PROMISED[row["density"]]]
    real = [row for row in held if row["family"] != "oracle"]
    lines += [
        "",
        f"The guide's figure holds in {len(held)} of {len(measured)} measured cells, {len(real)} of them without the "
        f"oracle. {empty} cell{' is' if empty == 1 else 's are'} empty: their budget pays for less than the "
        "family's least pattern, which at this length is a large share of the tiles; a longer text leaves fewer empty. "
        "The loss is that of another text than the recall beside it.",
        *(["", f"Not run: {said}."] if (said := not_run(values)) else []),
        *(["", f"Recall promised and kept, loss all the same: {_worst(held)}."] if drift and held else []),
    ]
    return "\n".join(lines) + "\n"


def not_run(values: dict) -> str:
    """The cells that the table should have and has not, by tiles and density; empty where none is missing."""
    done, families = {_key(row) for row in values["claims"]}, values.get("families", FAMILIES)
    told = []
    for block in BLOCKS:
        left = {density: [f for f in families if (block, density, f) not in done] for density in DENSITIES}
        whole = [f"{density:.0%}" for density, missing in left.items() if len(missing) == len(families)]
        some = [f"{density:.0%} ({', '.join(f)})" for density, f in left.items() if 0 < len(f) < len(families)]
        if len(whole) == len(DENSITIES):
            told.append(f"{block[0]} x {block[1]}")
        elif whole or some:
            told.append(f"{block[0]} x {block[1]} at {', '.join([*whole, *some])}")
    return "; ".join(told)


def _has(values: dict, name: str) -> bool:
    return any(row.get(name) is not None for row in values["claims"])


def _within(interval: float | None) -> str:
    return "" if interval is None else f" ± {interval:.3f}"


def _worst(held: list[dict]) -> str:
    """The cell whose recall holds and whose output suffers most."""
    row = max(held, key=lambda one: one["drift"])
    return (
        f"{row['family']} at {row['density']:.0%}, {row['block'][0]} x {row['block'][1]}, keeps {row['recall']:.3f} of "
        f"the mass and moves the embeddings by {row['drift']:.3f}"
    )


def main() -> None:
    """Measure every cell and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "gallery" / "claims")
    parser.add_argument("--capture", type=Path, help="another capture than the bundled one, which is short")
    parser.add_argument("--loss-text", type=Path, help="also run SmolLM2 on this text")
    parser.add_argument("--loss-tokens", type=int, default=1024)
    parser.add_argument("--model", choices=STUDIES, help="a whole model with its loss, instead of a capture")
    parser.add_argument("--tokens", type=int, help="of each text of the model")
    parser.add_argument("--blocks", nargs="+", default=[f"{a}x{b}" for a, b in BLOCKS], help="only these tiles")
    parser.add_argument("--densities", nargs="+", type=float, choices=DENSITIES, default=DENSITIES)
    parser.add_argument("--join", type=Path, nargs="+", help="only put the cells of these files into one")
    add_options(parser)
    options = parser.parse_args()
    clock, device = Clock(options.minutes), device_of(options)
    machine = stamp(device)
    name = f"{machine['date']}-{options.model}" if options.model else machine["date"]
    if options.model and options.tokens not in (None, STUDIES[options.model][1]):
        name += f"-{options.tokens}"
    if options.join:
        _write(options.out / name, join([json.loads(path.read_text("utf-8")) for path in options.join]))
        return
    study: Study | None = None
    if options.model:
        kind, usual = STUDIES[options.model]
        study = kind(options.tokens or usual, device, options.jargon)
        capture = study.capture
    else:
        capture = (bundled() if options.capture is None else Capture.load(options.capture)).to(device)
    families = (*FAMILIES[:-1], "fitted", FAMILIES[-1]) if study else FAMILIES
    said = study and study.said
    values = {
        "date": machine["date"],
        "machine": machine,
        "model": capture.model,
        "text": capture.text,
        "tokens": len(capture.tokens),
        "layers": list(capture.layers),
        "causal": capture.causal,
        "families": families,
        "loss_text": said,
        "claims": [],
    }
    kept = options.out / f"{name}.json"
    if kept.exists():
        before = json.loads(kept.read_text("utf-8"))
        if all(before.get(key) == values[key] for key in SAME):
            values["claims"] = before["claims"]
    cells, done = values["claims"], {_key(one) for one in values["claims"]}
    blocks = [block for block in BLOCKS if f"{block[0]}x{block[1]}" in options.blocks]
    for density, block, family in product(options.densities, blocks, families):
        if (block, density, family) in done:
            continue
        if clock.over:
            print(f"{options.minutes:g} minutes are over", flush=True)
            break
        cells.append(asdict(claim(family, density, block, capture, study)))
        print(cells[-1], flush=True)
        if study:
            _write(options.out / name, join([values]))
    if options.loss_text is not None:
        text = options.loss_text.read_text("utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        said = (
            f"SmolLM2 with all 30 layers under the family's pattern at 64 x 64, second half of the first "
            f"{options.loss_tokens} tokens of {options.loss_text.name} (sha256 {digest}), interval 95 % over that text"
        )
        added = losses(text, options.loss_tokens, lambda line: print(line, flush=True))
        for cell in cells:
            if cell["block"] == LOSS_BLOCK and (cell["density"], cell["family"]) in added:
                cell["loss_added"], cell["loss_interval"] = added[cell["density"], cell["family"]]
    _write(options.out / name, join([values | {"loss_text": said}]))


def join(parts: list[dict]) -> dict:
    """Files of one study as one, cells in their usual order; a StudioError where they are of different ones.

    >>> one = {"model": "m", "text": "t", "tokens": 8, "layers": [0], "loss_text": None, "families": ["oracle"]}
    >>> cell = {"block": [64, 64], "density": 0.5, "family": "oracle"}
    >>> made = join([one | {"claims": [cell | {"density": 0.1}]}, one | {"claims": [cell]}])
    >>> [each["density"] for each in made["claims"]]
    [0.5, 0.1]
    """
    said = [[part[key] for key in SAME] for part in parts]
    if any(one != said[0] for one in said):
        raise ps.StudioError(f"expected files of one study, got {said}; join those of one model and text")
    cells = {_key(cell): cell for part in parts for cell in part["claims"]}
    order = product(BLOCKS, DENSITIES, parts[0]["families"])
    return parts[0] | {"claims": [cells[key] for key in order if key in cells]}


def _key(cell: dict) -> tuple[tuple[int, ...], float, str]:
    return tuple(cell["block"]), cell["density"], cell["family"]


def _write(stem: Path, values: dict) -> None:
    """Both files: a name that ends in a date stays whole, as `with_suffix` would not leave it."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_name(f"{stem.name}.json").write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")
    stem.with_name(f"{stem.name}.md").write_text(to_markdown(values), encoding="utf-8")


if __name__ == "__main__":
    main()
