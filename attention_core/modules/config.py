"""SparsePatternConfig: which pattern a module takes at each length, from a budget or from lengths of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, replace

import pattern_studio as ps
from pattern_studio.errors import StudioError
from pattern_studio.problem import Problem, block_shape, whole

BUDGETED = ("local_window", "dilated_sparse", "global_local", "hierarchical")
PATTERN_TYPES = (*BUDGETED, "longnet")


@dataclass(frozen=True)
class SparsePatternConfig:
    """A family of patterns and how much of it to keep; the pattern itself is chosen for each problem.

    `pattern_type` is a family of pattern_studio.generators, or "longnet". `density` is the block
    density to keep, above 0 and up to 1: of all tiles, or of the causal triangle's in a causal call.
    `sparsity_ratio` is accepted as another name for it: in the guide that this class comes from, that
    name means the fraction *kept*, and so it does here. `block_size` is the largest block, one number
    or (block_q, block_k) in tokens: where a budget does not pay for its tiles, as with short inputs,
    the largest halving of it that does is taken, and where none does the error says so;
    `dense_up_to=n` attends densely where q_len and kv_len are at most n.

    `global_tokens` belongs to global_local. `local_window_size`, in tokens with the query itself,
    replaces `density` in local_window and global_local: backwards only in causal calls, half to each
    side otherwise. `dilation_rates` are dilated_sparse's distances; together with `segment_lengths`
    the pattern is LongNet's, head h with offset h, whose density is whatever its lengths make it.
    Options that the chosen family does not have are refused.

    >>> config = SparsePatternConfig("local_window", density=0.25)
    >>> pattern, block = config.choose(ps.Problem(4096), causal=True)
    >>> str(pattern), block
    ('causal & window(384, 0)', (128, 128))
    >>> config.sparsity_ratio == config.density
    True
    """

    pattern_type: str = "dilated_sparse"
    density: float | None = None
    block_size: int | tuple[int, int] = 128
    global_tokens: int | None = None
    local_window_size: int | None = None
    dilation_rates: tuple[int, ...] | None = None
    segment_lengths: tuple[int, ...] | None = None
    dense_up_to: int = 0
    sparsity_ratio: InitVar[float | None] = None

    def __post_init__(self, sparsity_ratio: float | None) -> None:
        if sparsity_ratio is not None:
            if self.density is not None and self.density != sparsity_ratio:
                raise StudioError(
                    f"density {self.density} and sparsity_ratio {sparsity_ratio} are two names for the fraction kept; "
                    "give one"
                )
            object.__setattr__(self, "density", sparsity_ratio)
        for name in ("dilation_rates", "segment_lengths"):
            given = getattr(self, name)
            if given is not None:
                if isinstance(given, str) or not isinstance(given, Sequence) or not given:
                    raise StudioError(f"{name} takes whole numbers, such as (1, 2, 4), got {given!r}")
                object.__setattr__(self, name, tuple(whole(f"one of {name}", n, 1) for n in given))
        object.__setattr__(self, "block_size", block_shape(self.block_size))
        whole("dense_up_to", self.dense_up_to, 0)
        for name in ("global_tokens", "local_window_size"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        if self.segment_lengths is not None and self.pattern_type == "dilated_sparse":
            object.__setattr__(self, "pattern_type", "longnet")
        self._check_family()

    def _check_family(self) -> None:
        family = self.pattern_type
        if family == "adaptive":
            raise StudioError("pattern_type 'adaptive' reads content: use create_adaptive_sparse_multihead_attention")
        if family not in PATTERN_TYPES:
            raise StudioError(f"pattern_type must be one of {', '.join(PATTERN_TYPES)}, got {family!r}")
        has = {
            "global_tokens": family == "global_local",
            "local_window_size": family in ("local_window", "global_local"),
            "dilation_rates": family in ("dilated_sparse", "longnet"),
            "segment_lengths": family == "longnet",
        }
        for name, fits in has.items():
            if getattr(self, name) is not None and not fits:
                raise StudioError(f"{family} has no {name}; leave it out or choose another pattern_type")
        sized = self.local_window_size is not None or self.segment_lengths is not None
        if family == "longnet":
            if self.segment_lengths is None or self.dilation_rates is None:
                raise StudioError("longnet takes segment_lengths and dilation_rates, one rate for each segment length")
            ps.longnet(self.segment_lengths, self.dilation_rates)  # its own errors, now rather than at a call
        if sized and self.density is not None:
            raise StudioError(
                f"{family} is given both a density and lengths that fix it; leave out density (sparsity_ratio), or "
                f"{'segment_lengths' if family == 'longnet' else 'local_window_size'}"
            )
        if not sized and (
            isinstance(self.density, bool) or not isinstance(self.density, (int, float)) or not 0 < self.density <= 1
        ):
            raise StudioError(
                f"density is the share of tiles that is kept, above 0 and up to 1, got {self.density!r}; "
                "such as density=0.25"
            )

    @property
    def hash(self) -> str:
        """Content hash of the fields."""
        return "config-" + hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def with_density(self, density: float) -> SparsePatternConfig:
        """The same family with another budget."""
        return replace(self, density=density, sparsity_ratio=None)

    def choose(self, problem: Problem, causal: bool) -> tuple[ps.Pattern, tuple[int, int]]:
        """The pattern for a problem, and the block whose tiles the budget pays for.

        A function of the problem alone, so what one length gets never depends on what came before.
        Raises StudioError where no block pays for the density.
        """
        block = block_shape(self.block_size)
        frame = ps.causal if causal else ps.dense
        if not problem.q_len or not problem.kv_len or max(problem.q_len, problem.kv_len) <= self.dense_up_to:
            return frame, block
        if self.pattern_type == "longnet":
            return self._longnet(problem.heads), block
        if self.local_window_size is not None:
            return self._windowed(self.local_window_size, causal), block
        return self._by_budget(problem, causal, block)

    def _longnet(self, heads: int) -> ps.Pattern:
        segments, rates = self.segment_lengths or (), self.dilation_rates or ()  # given: checked when made
        return ps.heads({h: ps.longnet(segments, rates, offset=h) for h in range(heads)})

    def _windowed(self, size: int, causal: bool) -> ps.Pattern:
        near: ps.Pattern = ps.window(size - 1, 0) if causal else ps.window(size // 2, (size - 1) // 2)
        if self.pattern_type == "global_local":
            first = (range(self.global_tokens or 64),)
            near = near | ps.globals(rows=first, cols=first)
        return ps.causal & near if causal else near

    def _by_budget(self, problem: Problem, causal: bool, block: tuple[int, int]) -> tuple[ps.Pattern, tuple[int, int]]:
        options = {"global_tokens": self.global_tokens, "rates": self.dilation_rates}
        chosen = {name: value for name, value in options.items() if value is not None}
        generate = ps.generators.GENERATORS[self.pattern_type]
        assert self.density is not None  # it or lengths are given: checked when made
        tried = block
        while True:
            try:
                return generate(self.density, problem, tried, causal=causal, **chosen).pattern, tried
            except StudioError as error:
                if tried == (1, 1):
                    raise StudioError(
                        f"{error}; for inputs this short set dense_up_to={max(problem.q_len, problem.kv_len)}"
                    ) from None
                tried = max(tried[0] // 2, 1), max(tried[1] // 2, 1)


# An InitVar's default would be read where a config is asked for the guide's name.
SparsePatternConfig.sparsity_ratio = property(  # type: ignore[assignment,misc]
    lambda self: self.density, doc="The fraction kept: the guide's name for `density`."
)
