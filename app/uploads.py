"""What visitors upload, read as hostile: captures, and patterns or masks. All stays in memory.

Each function gives its result or raises a StudioError of one sentence that calls the file by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from pattern_studio import Pattern, Problem, StudioError

from .captures import Source, source_of
from .reading import MAX_TEXT
from .theme import MAX_UPLOAD
from .work import MAX_BLOCK, MAX_HEADS, MAX_LENGTH, Work

if TYPE_CHECKING:
    from pattern_studio.capture import Capture

MAX_BYTES = MAX_UPLOAD << 20
MAX_DESIGN = 2 << 20  # bytes of a .json pattern: as JSON can take thirty times its size in memory
MAX_CELLS = 1 << 22  # of a mask: 2,048 x 2,048 tokens, or as many tiles
LARGEST = 1e37  # of scores and sums of values, which are computed in float32; it ends at 3.4e38
CORNER = 256  # tokens of a mask that are read first

_PICKLES = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))


def read_capture(name: str, data: bytes) -> Source:
    """The capture in a file's bytes, safetensors or .npz.

    >>> from pattern_studio.capture import bundled_path
    >>> read_capture("mine.safetensors", bundled_path().read_bytes()).title
    'SmolLM2-135M-Instruct, Q4_1 weights of …, 1,024 tokens, layers 7 and 20'
    """
    with _named(name):
        _sane(data, MAX_BYTES, "captures")
        from pattern_studio.capture import Capture

        try:
            capture = Capture.load(data)
        except StudioError as error:
            raise StudioError(str(error).removeprefix("capture: ")) from None
        for number, layer in capture.layers.items():
            scores = capture.scale * layer.head_dim * float(layer.q.abs().max()) * float(layer.k.abs().max())
            if not max(scores, float(layer.v.abs().max()) * layer.tokens) < LARGEST:
                raise StudioError(
                    f"expected scores and values that float32 can hold, got some that can reach {scores:.2g} in layer "
                    f"{number} with scale {capture.scale:.3g}; record it again"
                )
            _check_gradients(capture, number)
            _check_minds(capture, number)
        return source_of(capture, data)


def _check_gradients(capture: Capture, number: int) -> None:
    """Refuse gradients of a layer whose importance, products of four of them, float32 can't hold."""
    if capture.gradients is None:
        return
    layer, found = capture.layers[number], capture.gradients.layers[number]
    # The most that one row's loss can change by: no output lies further off than values do from one another.
    change = 2 * float(layer.v.abs().max()) * float(found.abs().max()) * layer.head_dim
    if not layer.tokens * change**2 < LARGEST**0.5:
        raise StudioError(
            f"expected gradients whose fourth powers float32 can hold, got some in layer {number} with which a token's "
            f"loss can change by {change:.2g}; measure them again"
        )


def _check_minds(capture: Capture, number: int) -> None:
    """Refuse what the model minds of a layer where float32 can't hold the share of the stream that a change is."""
    if capture.minds is None:
        return
    layer, minds = capture.layers[number], capture.minds.layers[number]
    width, channels = minds.projection.shape
    # No output lies further off than values do from one another.
    moved = 2 * float(layer.v.abs().max()) * float(minds.projection.abs().max()) * channels
    share = moved * (width * layer.tokens / float(minds.stream.min())) ** 0.5
    if not share < LARGEST**0.5:
        raise StudioError(
            f"expected projections and streams whose shares float32 can hold, got some in layer {number} with which a "
            f"change can be {share:.2g} times the stream; measure them again"
        )


def read_pattern(name: str, data: bytes, work: Work, tiles: bool = False) -> Work:
    """The work in a file's bytes: a pattern that Pattern Studio exported (.json, .npz, .safetensors), or a mask.

    A mask (.npy, or .npz with one array) has a cell for each token pair, or with `tiles` for each tile of the work's
    block, for the work's lengths. What is compared with stays.
    """
    with _named(name):
        _sane(data, MAX_BYTES, "patterns")
        from pattern_studio.archive import members_of

        mask = data.startswith(b"\x93NUMPY")
        if data.startswith(b"PK"):
            mask = "header" not in members_of(data, MAX_BYTES)
        elif not mask and data[:1] not in b"{[" and data[8:9] != b"{":
            raise StudioError(
                "expected a pattern exported as .json, .npz or .safetensors, or a mask as .npy or .npz, got a file "
                f"that begins with {data[:8]!r}; export or save it again"
            )
        found = _masked(data, work, tiles) if mask else _exported(data)
        if len(found.text) > MAX_TEXT:
            raise StudioError(
                f"expected a pattern of at most {MAX_TEXT:,} characters, got {len(found.text):,}; read it in Python, "
                "or take larger tiles"
            )
        if found.reading.pattern is None:
            raise StudioError(f"the pattern in it can't be shown: {found.reading.problem}; use the Python API")
        return replace(found, beside=work.beside)


def _exported(data: bytes) -> Work:
    from pattern_studio import exporters

    if data[:1] == b"{" and len(data) > MAX_DESIGN:
        raise StudioError(
            f"expected a .json pattern of at most {MAX_DESIGN:,} bytes, got {len(data):,}; export as .npz"
        )
    made = exporters.read_design(data)
    exporters.read(data)  # all of it must be sound, not only the header
    return _work(made.pattern, made.problem, made.block, made.layer or 0)


def _masked(data: bytes, work: Work, tiles: bool) -> Work:
    from pattern_studio.reading import mask_in, read_block_mask, read_mask

    mask = mask_in(data)
    if mask.size > MAX_CELLS or mask.ndim > 4:
        raise StudioError(
            f"expected a mask of at most {MAX_CELLS:,} cells, got {' x '.join(map(str, mask.shape[:5]))}; save fewer "
            "rows, or a cell for each tile"
        )
    if not tiles:
        _listable(mask)
        found = read_mask(mask)
        return _work(found.pattern, found.problem, work.block, 0)
    problem, (block_q, block_k) = work.problem(), work.block
    expected = -(-problem.q_len // block_q), -(-problem.kv_len // block_k)
    if mask.ndim >= 2 and mask.shape[-2:] != expected:
        raise StudioError(
            f"expected {expected[0]} x {expected[1]} tiles of {block_q} x {block_k} for {problem.q_len:,} x "
            f"{problem.kv_len:,} tokens, got {mask.shape[-2]} x {mask.shape[-1]}; set the lengths and the block first"
        )
    found = read_block_mask(mask, work.block, q_len=problem.q_len, kv_len=problem.kv_len)
    return _work(found.pattern, found.problem, work.block, 0)


def _listable(mask: NDArray) -> None:
    """Refuse a mask that would have to be listed in more characters than a text may have, before that takes seconds."""
    from pattern_studio.reading import read_mask

    if mask.ndim < 2 or mask.dtype.kind not in "biu":
        return  # read_mask says what is wrong
    stretches = int((mask[..., 1:] != mask[..., :-1]).sum()) // 2
    corner = mask[..., :CORNER, :CORNER]
    if stretches > MAX_TEXT // 2 and not read_mask(corner, max(0, mask.shape[-1] - mask.shape[-2])).named:
        raise StudioError(
            f"expected a mask with a name in the language, or at most {MAX_TEXT // 2:,} stretches of keys to list, got "
            f"{stretches:,}; save a cell for each tile"
        )


def _work(pattern: Pattern, problem: Problem, block: tuple[int, int], layer: int) -> Work:
    """The work, or a StudioError where the Design page can't show it as it is meant."""
    sizes = (("query rows", problem.q_len, MAX_LENGTH), ("keys", problem.kv_len, MAX_LENGTH))
    sizes += (("heads", problem.heads, MAX_HEADS), ("rows of a block", block[0], MAX_BLOCK))
    for what, size, most in (*sizes, ("keys of a block", block[1], MAX_BLOCK)):
        if not 1 <= size <= most:
            raise StudioError(f"expected 1 to {most:,} {what}, got {size:,}; export it for another problem")
    if problem.offset != problem.kv_len - problem.q_len:
        raise StudioError(
            f"expected queries that stand at the end of the keys, q_offset {problem.kv_len - problem.q_len}, got "
            f"{problem.offset}; export it for such a problem"
        )
    return Work(
        text=str(pattern),
        q_len=problem.q_len,
        kv_len=None if problem.kv_len == problem.q_len else problem.kv_len,
        heads=problem.heads,
        block_q=block[0],
        block_k=block[1],
        docs=", ".join(map(str, problem.docs or ())),
        layer=layer,
    )


def _sane(data: bytes, most: int, what: str) -> None:
    """What holds for every file: its size, and that it is no pickle."""
    if not data:
        raise StudioError("expected a file with something in it, got an empty one; save it again")
    if len(data) > most:
        raise StudioError(f"expected at most {most:,} bytes, got {len(data):,}; use the command line for larger {what}")
    if data.startswith(_PICKLES):
        raise StudioError(
            "expected no pickle, as pickle.dump or an old torch.save writes it, since it can run code when it is read; "
            "it is not opened: save with safetensors or numpy"
        )


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors call the file by its name, without folders, and are one line; nothing but a StudioError comes out."""
    short = PurePosixPath(PureWindowsPath(name).name).name[:60] or "the file"
    short = "".join(letter if letter.isprintable() else "?" for letter in short)
    try:
        yield
    except StudioError as error:
        raise StudioError(f"{short}: {' '.join(str(error).split())[:500]}") from None
    except (RecursionError, MemoryError):
        raise StudioError(f"{short}: it is nested too deeply or too large to be read; save a smaller part") from None
