"""`python -m benchmarks.predictors.table`: the studies' files as tables of rank correlations, in gallery/claims.

Reads the newest benchmarks/results/*-predictors-<model>.json of each model and writes
gallery/claims/<date>-predictors.md and .json.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .combined import damage, layer_weighted_error, lost_turned_error, minded_damage, weighted_damage
from .correlate import correlation, misled, spearman

ROOT = Path(__file__).parents[2]
BUDGET = "density.token"  # what every comparison of patterns knows without a model
SHOWN = 12
SPLITS = 20
# Patterns of a later model on which `combined.lost_turned_error` was chosen, as the others were on the two first ones.
SEEN = {"Qwen2.5-Coder": 35}
# Always shown, wherever they stand: what people go by.
FIRST = (
    "combined.minded_damage",
    "damage",
    "combined.weighted_damage",
    "combined.layer_weighted_error",
    "combined.lost_turned_error",
    "recall.mean",
    "output_error.rel_l2",
    BUDGET,
)


def columns_of(values: dict[str, Any]) -> dict[str, list[float]]:
    """Each figure that every row has, with the combined ones."""
    rows = values["rows"]
    columns = {
        name: [row["figures"][name] for row in rows]
        for name in rows[0]["figures"]
        if all(name in row["figures"] for row in rows)
    }
    if values["sensitivity"] is not None:
        columns["combined.layer_weighted_error"] = [layer_weighted_error(row, values["sensitivity"]) for row in rows]
        columns["combined.weighted_damage"] = [weighted_damage(row, values["sensitivity"]) for row in rows]
        columns["combined.lost_turned_error"] = [lost_turned_error(row, values["sensitivity"]) for row in rows]
        if "minded.lost" in columns:
            columns["combined.minded_damage"] = [minded_damage(row, values["sensitivity"]) for row in rows]
    return {"damage": [damage(row) for row in rows]} | columns


def losses_of(values: dict[str, Any]) -> list[float]:
    """What is to be predicted, for each row."""
    return [row["loss"][values["target"]] for row in values["rows"]]


def ceiling_of(values: dict[str, Any]) -> float:
    """Rho of the same loss on the text of the metrics: what measuring it on another text would predict."""
    name = "added" if values["target"] == "added" else "moved"
    return spearman([row["loss_on_metrics_text"][name] for row in values["rows"]], losses_of(values))


def loss_too(values: dict[str, Any]) -> dict[str, Any] | None:
    """Where the target is not the loss: rho of the figures in `FIRST`, and of the strongest, with the loss itself.

    `again` is rho of that loss with itself on the text of the metrics: near 0 it is noise, and nothing can predict it.
    """
    if values["target"] == "added":
        return None
    loss = [row["loss"]["added"] for row in values["rows"]]
    rhos = {name: spearman(figure, loss) for name, figure in columns_of(values).items()}
    strongest = max(rhos, key=lambda name: abs(rhos[name]))
    return {
        "rhos": {name: rhos[name] for name in (*FIRST, strongest) if name in rhos},
        "again": spearman([row["loss_on_metrics_text"]["added"] for row in values["rows"]], loss),
    }


def unseen(values: dict[str, Any]) -> dict[str, Any] | None:
    """Rho of the figures in `FIRST` over a later model's patterns that they were not chosen on.

    `combined.minded_damage` is not among them: it was chosen with all of them in view.
    """
    (seen,) = [count for name, count in SEEN.items() if name in values["model"]] or [None]
    if seen is None:
        return None
    loss = losses_of(values)[seen:]
    rhos = {name: spearman(figure[seen:], loss) for name, figure in columns_of(values).items() if name in FIRST}
    rhos.pop("combined.minded_damage", None)
    return {"patterns": len(loss), "rhos": rhos}


def fresh_of(values: dict[str, Any]) -> dict[str, Any]:
    """Rho of the figures in `FIRST`, and of the loss on the metrics' text, over patterns that nothing was chosen on."""
    loss, columns = losses_of(values), columns_of(values)
    said = {key: values[key] for key in ("metrics_text", "loss_is", "machine")}
    rhos = {name: asdict(correlation(columns[name], loss)) for name in FIRST if name in columns}
    return said | {"patterns": len(loss), "ceiling": ceiling_of(values), "rhos": rhos}


def halves(read: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each study: rho on a random half of its patterns, of the figure that the other halves of all choose.

    The choice is the figure whose weakest correlation on those is the best; `SPLITS` times.
    """
    columns, losses = [columns_of(one) for one in read], [losses_of(one) for one in read]
    names = [name for name in columns[0] if all(name in one for one in columns)]
    random = np.random.default_rng(0)
    found: list[list[float]] = [[] for _ in read]
    chosen: Counter[str] = Counter()

    def rho(study: int, name: str, part: np.ndarray) -> float:
        return abs(spearman(np.array(columns[study][name])[part], np.array(losses[study])[part]))

    for _ in range(SPLITS):
        orders = [random.permutation(len(one)) for one in losses]
        name = max(names, key=lambda n: min(rho(at, n, order[::2]) for at, order in enumerate(orders)))
        chosen[name] += 1
        for at, order in enumerate(orders):
            found[at].append(rho(at, name, order[1::2]))
    return [
        {"mean": float(np.mean(each)), "low": float(np.percentile(each, 10)), "chosen": dict(chosen.most_common())}
        for each in found
    ]


def study(values: dict[str, Any]) -> dict[str, Any]:
    """Every figure's correlation with the target, the strongest first, and its worst advice."""
    rows, loss, columns = values["rows"], losses_of(values), columns_of(values)
    budget = columns[BUDGET]
    found = []
    for name, figure in columns.items():
        if len(set(figure)) < 2:
            continue
        rho = correlation(figure, loss, None if name == BUDGET else budget)
        worst = misled(figure, loss)
        found.append(
            {"figure": name, **asdict(rho)}
            | {"misled": worst and {"cost": worst.cost, "chosen": _said(rows[worst.chosen], figure[worst.chosen]),
                                    "other": _said(rows[worst.other], figure[worst.other])}}
        )  # fmt: skip
    found.sort(key=lambda one: -abs(one["rho"]))
    left_out = sorted({name for row in rows for name in row["figures"]} - set(columns))
    return {
        "model": values["model"],
        "target": values["target"],
        "loss_is": values["loss_is"],
        "metrics_text": values["metrics_text"],
        "tokens": values["tokens"],
        "patterns": len(rows),
        "loss_range": [min(loss), max(loss)],
        "ceiling": ceiling_of(values),
        "loss_too": loss_too(values),
        "unseen": unseen(values),
        "machine": values["machine"],
        "anew": values.get("anew"),
        "missing_in_some": left_out,
        "figures": found,
    }


def _said(row: dict[str, Any], figure: float) -> str:
    budget = "" if row["requested"] is None else f" {row['requested']:.0%}"
    return f"{row['family']}{budget}, {row['block'][0]}x{row['block'][1]} ({figure:.3g})"


def to_markdown(date: str, studies: list[dict[str, Any]]) -> str:
    """A table for each model."""
    lines = [
        f"# Which metric predicts the loss, {date}",
        "",
        "Each pattern is measured on one text and put, untrained, into the model on another. Rho is Spearman's, with "
        "its 95 % interval by bootstrap over patterns; *beyond density* is the partial rank correlation with token "
        "density taken out. *Worst advice* is the pair where choosing by the figure costs the most: what it prefers, "
        "what would have been better, and the difference. `heads.*`, `rows.*` and `layers.*` are worst cases and means "
        "of squares over heads, rows and layers; `combined.layer_weighted_error` weighs each layer's squared output "
        "error by what that layer costs alone under one reference pattern; `combined.weighted_damage` is a floor "
        "for rows times the output error of heads, weighed likewise: reports show it first as weighted damage where a "
        "capture says how much the model minds each layer, else `damage`, which needs no model. The orders of their "
        "means were chosen on the MiniLM study and on SmolLM2 at 256 tokens, so their correlations there are a "
        "little too good; `combined.lost_turned_error` has the error of heads as a third factor and was chosen on "
        "those two and on the first patterns of Qwen2.5-Coder, on which nothing else was chosen but "
        "`combined.minded_damage`: the mass lost by the rows that the loss minds, times the output error of heads as "
        "before, times the most that a layer's change is of the residual stream. It was chosen with all patterns of "
        "SmolLM2 and of Qwen2.5-Coder in view, so what counts for it is the fresh patterns below; it needs a decoder. "
        "Reports show it first where a capture says what the model minds.",
    ]
    lines += ["", "Safest on all models, by the weakest of their correlations: " + _safest(studies) + "."]
    for one in studies:
        by_name = {row["figure"]: row for row in one["figures"]}
        chosen = [row["figure"] for row in one["figures"]][:SHOWN]
        chosen += [name for name in FIRST if name in by_name and name not in chosen]
        lines += [
            "",
            f"## {one['model']}",
            "",
            f"{one['patterns']} patterns; {one['tokens']} tokens of {one['metrics_text']} for the metrics; "
            f"{one['loss_is']}: {one['loss_range'][0]:.3f} to {one['loss_range'][1]:.3f}. The same loss on the text of "
            f"the metrics has rho {one['ceiling']:.3f}. The best figure of random halves of the patterns has on the "
            f"other halves rho {one['other_half']['mean']:.3f} (in one of ten below {one['other_half']['low']:.3f}); "
            f"it was {', '.join(f'{name} {times}x' for name, times in one['other_half']['chosen'].items())}.",
        ]
        if one["loss_too"]:
            rhos = sorted(one["loss_too"]["rhos"].items(), key=lambda pair: -abs(pair[1]))
            lines += [
                "",
                f"The target is the drift and not the loss. With the loss itself, `added`, rho is "
                f"{', '.join(f'{name} {rho:+.3f}' for name, rho in rhos)} (the strongest of all first); that loss has "
                f"rho {one['loss_too']['again']:+.3f} with itself on the text of the metrics: so few pairs measure "
                "little of what a pattern does.",
            ]
        if one["unseen"]:
            rhos = sorted(one["unseen"]["rhos"].items(), key=lambda pair: -abs(pair[1]))
            lines += [
                "",
                f"Over the {one['unseen']['patterns']} patterns that nobody had looked at when the last predictor was "
                f"chosen: {', '.join(f'{name} {rho:+.3f}' for name, rho in rhos)}.",
            ]
        if one.get("anew"):
            lines += [
                "",
                f"{one['anew']['rows']} of the patterns, fitted ones that another machine fits a little differently, "
                "were measured anew when the figures of `minded` were added.",
            ]
        for fresh in one.get("fresh", []):
            told = ", ".join(
                f"{name} {_cut(rho['rho'])} ({_cut(rho['low'])} to {_cut(rho['high'])})"
                for name, rho in sorted(fresh["rhos"].items(), key=lambda pair: -abs(pair[1]["rho"]))
            )
            lines += [
                "",
                f"Fresh: over {fresh['patterns']} patterns that nothing was chosen on, of other spans, seeds, tiles, "
                f"densities and heads, metrics on {fresh['metrics_text']}, {fresh['loss_is']}: {told}. The same loss "
                f"on the text of the metrics has rho {_cut(fresh['ceiling'])}. Three digits are cut, not rounded.",
            ]
        lines += [
            "",
            "| figure | rho | 95 % | beyond density | worst advice |",
            "|---|---|---|---|---|",
        ]
        for name in sorted(chosen, key=lambda name: -abs(by_name[name]["rho"])):
            row = by_name[name]
            beyond = "-" if row["beyond_density"] is None else f"{row['beyond_density']:+.3f}"
            worst = row["misled"]
            advice = "none" if worst is None else f"{worst['chosen']} over {worst['other']}: {worst['cost']:.3f}"
            lines.append(
                f"| {name} | {row['rho']:+.3f} | {row['low']:+.3f} to {row['high']:+.3f} | {beyond} | {advice} |"
            )
        rest = [row for row in one["figures"] if row["figure"] not in chosen]
        told = ", ".join(f"{row['figure']} {row['rho']:+.2f}" for row in rest)
        lines += ["", f"The others: {told}."]
        if one["missing_in_some"]:
            lines += ["", f"Not a number for every pattern, so left out: {', '.join(one['missing_in_some'])}."]
    return "\n".join(lines) + "\n"


def _cut(rho: float) -> str:
    """With three digits, never rounded away from 0."""
    return f"{math.trunc(1000 * rho) / 1000:+.3f}"


def safest(studies: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Figures that every study has and that point the same way in all, with their weakest |rho|, the best first."""
    each = [{row["figure"]: row["rho"] for row in one["figures"]} for one in studies]
    shared = [name for name in each[0] if all(name in one and one[name] * each[0][name] > 0 for one in each)]
    return sorted(((name, min(abs(one[name]) for one in each)) for name in shared), key=lambda pair: -pair[1])


def _safest(studies: list[dict[str, Any]]) -> str:
    known = dict(safest(studies))
    told = [f"{name} {least:.3f}" for name, least in list(known.items())[:5]]
    return ", ".join(told) + f"; recall.mean {known['recall.mean']:.3f}, {BUDGET} {known[BUDGET]:.3f}"


def newest(folder: Path) -> list[Path]:
    """The last file of each model."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*-predictors-*.json")):
        found[path.stem.split("-predictors-")[1]] = path
    return [found[name] for name in sorted(found, reverse=True)]


def fresh_paths(path: Path) -> list[Path]:
    """The files of fresh patterns of a study's model, one for each pair of texts."""
    return sorted(path.parent.glob(f"*-fresh-{path.stem.split('-predictors-')[1]}*.json"))


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--out", type=Path, default=ROOT / "gallery" / "claims")
    options = parser.parse_args()
    read = [json.loads(path.read_text("utf-8")) for path in newest(options.results)]
    date = max(one["machine"]["date"] for one in read)
    studies = [
        study(one) | {"other_half": half, "fresh": [fresh_of(json.loads(path.read_text("utf-8"))) for path in paths]}
        for one, half, paths in zip(read, halves(read), map(fresh_paths, newest(options.results)), strict=True)
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / f"{date}-predictors.json"
    kept.write_text(json.dumps(studies, indent=1, allow_nan=False) + "\n")
    kept.with_suffix(".md").write_text(to_markdown(date, studies), encoding="utf-8")


if __name__ == "__main__":
    main()
