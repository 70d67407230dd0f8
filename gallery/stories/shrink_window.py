"""Shrink a window until a head breaks, on the attention of a real model, and give every head the window that it needs.

    python -m gallery.stories.shrink_window

A head breaks where the window, with four sinks, keeps less than KEEP of its dense attention, the mean over all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pattern_studio as ps
from pattern_studio.capture import Capture, bundled
from pattern_studio.metrics import analyze, layout_stats

KEEP = 0.7
WINDOWS = (1024, 512, 256, 128, 64, 32)


def with_window(window: int) -> ps.Pattern:
    """The last `window` keys and four sinks."""
    return ps.causal & (ps.window(window - 1, 0) | ps.sink(4))


def recall_by_head(pattern: ps.Pattern, capture: Capture, layer: int) -> list[float]:
    """Mean mass recall of each head."""
    report = analyze(pattern, capture, layers=[layer], metrics=["recall"])
    return [head.recall.mean for head in report.layers[0].heads if head.recall]


def smallest_windows(table: dict[int, list[float]]) -> list[int]:
    """For each head the smallest window before it breaks, from recall by window and head."""
    heads = len(next(iter(table.values())))
    out = []
    for head in range(heads):
        fine = [window for window, recall in table.items() if recall[head] >= KEEP]
        out.append(min(fine))
    return out


def main(layer: int = 20, windows: Sequence[int] = WINDOWS) -> dict[str, float]:
    """Print the story and return its end: recall and token density of the pattern by head and of one window for all."""
    capture = bundled()
    table = {window: recall_by_head(with_window(window), capture, layer) for window in windows}
    print(f"{capture.model.split(',')[0]}, layer {layer}: mass recall of a window and four sinks, by head\n")
    print("window " + "".join(f"{f'head {head}':>8}" for head in range(len(table[windows[0]]))))
    for window, recall in table.items():
        print(f"{window:6} " + "".join(f"{value:7.2f}{' ' if value >= KEEP else '*'}" for value in recall))
    chosen = smallest_windows(table)
    print(f"\n* below {KEEP}: broken. The smallest windows that hold: {chosen}")

    each = ps.heads({head: with_window(window) for head, window in enumerate(chosen)})
    problem = ps.Problem(len(capture.tokens), heads=len(chosen))

    def density(pattern: ps.Pattern) -> float:
        found = layout_stats(pattern, problem).density.token_of_causal
        assert found is not None
        return found

    # One window for all heads that keeps as many pairs: the best that a single number can do.
    one = next(with_window(w) for w in range(windows[0], 0, -8) if density(with_window(w)) <= density(each))
    found = {}
    for name, pattern in (("by head", each), ("one window", one)):
        recall = recall_by_head(pattern, capture, layer)
        found |= {f"{name} recall": sum(recall) / len(recall), f"{name} density": density(pattern)}
        print(
            f"{name:10} keeps {found[f'{name} recall']:.3f} of the mass with {density(pattern):.3f} of the causal "
            f"pairs, its worst head {min(recall):.2f}"
        )
        found |= {f"{name} worst": min(recall)}
    print(f"\nThe pattern:\n{each}")
    return found


if __name__ == "__main__":
    main()
