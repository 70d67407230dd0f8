"""Named patterns of the literature, at a size that shows their shape."""

from __future__ import annotations

from dataclasses import dataclass

from .work import Work


@dataclass(frozen=True)
class Preset:
    """A pattern with its title, its source and what it is good for."""

    title: str
    source: str
    about: str
    work: Work


def _work(text: str, **more) -> Work:
    return Work(text=text, heads=1, **more)


PRESETS = (
    Preset(
        "Sliding window",
        "Mistral 7B, Jiang et al. 2023",
        "The last 256 keys. Reach grows by a window a layer.",
        _work("causal & window(255, 0)"),
    ),
    Preset(
        "StreamingLLM",
        "Xiao et al. 2023",
        "A window, and the first keys where models park attention.",
        _work("causal & (window(251, 0) | sink(4))"),
    ),
    Preset(
        "Longformer",
        "Beltagy et al. 2020",
        "A window both ways, and global tokens. For encoders.",
        _work("window(64, 64) | globals(rows=(range(0, 16),), cols=(range(0, 16),))"),
    ),
    Preset(
        "BigBird",
        "Zaheer et al. 2020",
        "Window, global tokens and random blocks. For encoders.",
        _work("window(64, 64) | globals(rows=(range(0, 64),), cols=(range(0, 64),)) | random(2, unit=64)"),
    ),
    Preset(
        "Sparse Transformer, strided",
        "Child et al. 2019",
        "Near keys, and every 64th. Two layers reach everything.",
        _work("causal & (window(63, 0) | strided(64))"),
    ),
    Preset(
        "Sparse Transformer, fixed",
        "Child et al. 2019",
        "Own chunk, and the last keys of every chunk as summaries.",
        _work(
            "causal & (chunk(128) | globals(cols=("
            + ", ".join(f"range({end - 16}, {end})" for end in range(128, 1025, 128))
            + ")))"
        ),
    ),
    Preset(
        "Dilated window",
        "Longformer's dilated heads, 2020",
        "Every 8th key far back, all keys nearby.",
        _work("causal & (dilated(63, 0, rate=8) | window(63, 0))"),
    ),
    Preset(
        "Chunked attention",
        "Llama 4, 2025",
        "Positions of a chunk see each other, no other.",
        _work("causal & chunk(256)"),
    ),
    Preset(
        "Vertical and slash",
        "MInference, Jiang et al. 2024",
        "Columns that all rows read, and distances that repeat.",
        _work("causal & (window(63, 0) | globals(cols=(range(0, 8), range(200, 208), 515)) | window(15, 0) >> -384)"),
    ),
    Preset(
        "Block-sparse BigBird, causal",
        "after Zaheer et al. 2020",
        "Random blocks among the past, drawn the same everywhere.",
        _work("causal & (window(127, 0) | sink(16) | random(2, unit=64, past=True))"),
    ),
    Preset(
        "Packed documents",
        "FlashAttention's varlen, Dao 2023",
        "Several texts in one sequence that do not see each other.",
        _work("causal & docs", docs="384, 192, 448"),
    ),
    Preset(
        "A pattern for each head",
        "MoA, Fu et al. 2024",
        "Near, dilated and dense heads in one layer.",
        Work(
            text="causal & heads({range(0, 4): window(127, 0), range(4, 7): dilated(63, 0, rate=8) | window(31, 0), "
            "range(7, 9): dense})"
        ),
    ),
)
