"""`python -m benchmarks.retrieval`: whether a model under a pattern still copies what stands far back, kept and dated.

Random tokens stand at a depth of a text and again at its end (`pattern_studio.metrics.retrieval`): dense, then under
each pattern, untrained. Writes gallery/claims/<date>-retrieval-<model>.json and .md, anew after every pattern, and goes
on where it was stopped. Needs the extra `models`, Debian's jargon-text (or `--jargon`) and the model's package.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pattern_studio as ps
from pattern_studio.capture.load import load_model
from pattern_studio.metrics.retrieval import copy_probe

from .predictors.studies import SPANS
from .predictors.texts import SOURCE, chapters
from .where import Clock, add_options, device_of, stamp

# What far tokens come through: nothing but layer upon layer; every eighth key; three heads of nine, of one KV head.
PATTERNS = (
    "causal & (window(127, 0) | sink(4))",
    "causal & (window(127, 0) | sink(4) | dilated(8191, 0, rate=8))",
    "heads({0:3: causal, 3:9: causal & (window(127, 0) | sink(4))})",
)
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
BLOCK = 64
SAME = ("model", "text", "tokens", "needle", "draws", "seed", "depths")  # of a file that is gone on with


def probed(model: Any, ids: tuple[int, ...], pattern: str, **options: Any) -> dict[str, Any]:
    """The probe of one pattern, and its token density of the causal triangle, a mean over heads."""
    parsed = ps.parse(pattern)
    config = model.config.get_text_config()
    problem = ps.Problem(len(ids), heads=config.num_attention_heads)
    pairs = ps.lower(parsed, problem, block=BLOCK).pairs
    whole = config.num_attention_heads * len(ids) * (len(ids) + 1) // 2
    report = copy_probe(model, ids, parsed, block=BLOCK, **options).as_dict()
    return {"pattern": pattern, "token_density_of_causal": pairs / whole, "rows": report["rows"]}


def to_markdown(values: dict[str, Any]) -> str:
    """A table for each pattern."""
    lines = [
        f"# What is still retrieved, {values['date']}",
        "",
        f"{values['model']}; {values['tokens']} tokens of {values['text']}. {values['needle']} random tokens stand at "
        "a depth of the text and again at its end; loss in nats a token and the share of tokens whose best guess is "
        f"right, over all of the second time but its first, mean of {values['draws']} draws. Untrained; every layer "
        "has the pattern. Density: token density of the causal triangle.",
    ]
    for one in values["probes"]:
        lines += [
            "",
            f"`{one['pattern']}`, density {one['token_density_of_causal']:.3f}:",
            "",
            "| depth | distance | dense loss | loss | dense accuracy | accuracy |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {row['depth']:.2f} | {row['distance']} | {row['dense_loss']:.3f} | {row['sparse_loss']:.3f} | "
            f"{row['dense_accuracy']:.2f} | {row['sparse_accuracy']:.2f} |"
            for row in one["rows"]
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Probe every pattern that the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="what load_model takes: smollm2, qwen, a folder")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--needle", type=int, default=16)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--patterns", nargs="+", default=PATTERNS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "gallery" / "claims")
    add_options(parser)
    options = parser.parse_args()
    clock, device = Clock(options.minutes), device_of(options)
    loaded, machine = load_model(options.model, head=True), stamp(device)
    loaded.model.to(device)
    values: dict[str, Any] = {
        "date": machine["date"],
        "machine": machine,
        "model": loaded.name,
        "text": f"{SOURCE}, chapters {SPANS['loss'][0]} on",
        "tokens": options.tokens,
        "needle": options.needle,
        "draws": options.draws,
        "seed": 0,
        "depths": list(DEPTHS),
        "probes": [],
    }
    stem = options.out / f"{machine['date']}-retrieval-{Path(options.model).name}"
    if stem.with_suffix(".json").exists():
        kept = json.loads(stem.with_suffix(".json").read_text("utf-8"))
        if all(kept[key] == values[key] for key in SAME):
            values = kept
    ids = loaded.ids(chapters(*SPANS["loss"], options.jargon), options.tokens)
    for pattern in options.patterns:
        if pattern in [one["pattern"] for one in values["probes"]]:
            continue
        if clock.over:
            print(f"{options.minutes:g} minutes are over", flush=True)
            break
        values["probes"].append(
            probed(loaded.model, ids, pattern, depths=DEPTHS, needle=options.needle, draws=options.draws)
        )
        print(values["probes"][-1], flush=True)
        options.out.mkdir(parents=True, exist_ok=True)
        stem.with_suffix(".json").write_text(json.dumps(values, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        stem.with_suffix(".md").write_text(to_markdown(values), encoding="utf-8")


if __name__ == "__main__":
    main()
