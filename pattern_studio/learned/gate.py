"""gate: a small module that predicts each tile's attention mass from pooled q and k, trained by distillation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..errors import StudioError
from ..problem import block_shape, whole
from . import programs
from .narrowed import Narrowed
from .pooled import block_sums, no_autocast
from .select import top_k, top_p
from .tiling import Tiling, check_lengths

# Tokens of the pools, at most: a mean over 64 queries loses little, a mean over a few keys loses the sharp columns.
POOL = (64, 1)
REACHES = (16.0, 128.0)  # tokens over which the two near-diagonal features fall by 1/e
FAINT = 1e-30  # probability below which a visible tile counts as having this much
OUT = -1e9  # stands for -inf where a gradient has to stay finite


class BlockGate(nn.Module):
    """Predicted attention mass of each tile, for one layer.

    Queries and keys are averaged over `pool` tokens (a divisor of the block; by default up to 64 queries
    and single keys, 1/64 of a dense q k product). Per query head, a pair of
    pools scores `scale * (q + Q q) . (k + K k) + ln sum exp(u . key) + w . near(i - j)`, the sum over the
    key pool's single keys, so that one sharp column is seen; a softmax over key
    pools, summed over the tile's pools and averaged over its rows, is the tile's predicted mass. All
    parameters start at 0, where the gate is the untrained pooled score; weight decay pulls back to it.

    Parameters: query, key [heads, head_dim, head_dim]; column [heads, head_dim]; distance [heads, 4].

    Raises StudioError for sizes that do not fit each other.

    Source: SeerAttention (Gao et al., arXiv:2410.13276), whose gate this follows in its distillation; the
    terms for columns and distances are ours.

    >>> gate = BlockGate(heads=2, kv_heads=1, head_dim=4, block=16)
    >>> q, k = torch.zeros(1, 2, 40, 4), torch.zeros(1, 1, 40, 4)
    >>> gate(q, k).exp()[0, 0].detach().round(decimals=2).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.4000000059604645, 0.4000000059604645, 0.20000000298023224]]
    """

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        block: int | tuple[int, int],
        *,
        pool: tuple[int, int] | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads = whole("heads", heads, 1, 65536), whole("kv_heads", kv_heads, 1, 65536)
        if self.heads % self.kv_heads:
            raise StudioError(f"expected the KV heads to divide the query heads, got {kv_heads} KV heads for {heads}")
        self.head_dim, self.block = whole("head_dim", head_dim, 1), block_shape(block)
        fitting = tuple(largest_divisor(size, most) for size, most in zip(self.block, POOL, strict=True))
        self.pool = block_shape(fitting if pool is None else pool)
        if self.block[0] % self.pool[0] or self.block[1] % self.pool[1]:
            raise StudioError(
                f"a pool must divide the block, got pools of {self.pool} tokens for blocks of {self.block}"
            )
        self.scale = head_dim**-0.5 if scale is None else float(scale)
        self.query = nn.Parameter(torch.zeros(heads, head_dim, head_dim))
        self.key = nn.Parameter(torch.zeros(heads, head_dim, head_dim))
        self.column = nn.Parameter(torch.zeros(heads, head_dim))
        self.distance = nn.Parameter(torch.zeros(heads, 2 + len(REACHES)))

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        *,
        causal: bool = True,
        q_offset: int | None = None,
        lengths: Tensor | None = None,
        narrowed: Narrowed | None = None,
    ) -> Tensor:
        """Log of each tile's predicted share of its row's mass; a row adds up to 1.

        Args:
            q: [batch, heads, q_len, head_dim], any floating dtype; k: [batch, kv_heads, kv_len, head_dim].
            causal, q_offset: as in `Tiling`.
            lengths: int64 [batch], where items are padded on the right; padding is not read.
            narrowed: masks of any kind, in place of `lengths`.

        Returns:
            float32 [batch, heads, q_blocks, kv_blocks], -inf on tiles that are not visible; with gradients
            to the parameters, and to q and k.
        """
        tiling = self.tiling(q, k, causal, q_offset)
        check_lengths(lengths, q)
        real = Narrowed.of_lengths(lengths, tiling) if narrowed is None else narrowed
        rows, queries = block_sums(q, self.pool[0], real.rows)
        if self._has_programs(q, k, real):
            return self._by_programs(queries / rows[..., None], k, tiling, real)
        cols, keys = block_sums(k, self.pool[1], real.keys)
        fine = Tiling(tiling.q_len, tiling.kv_len, self.pool, q_offset, causal)
        with no_autocast(q.device):
            queries = queries / rows[..., None]
            keys = (keys / cols[..., None]).repeat_interleave(self.heads // self.kv_heads, 1)
            asked = queries + queries @ self.query.float()  # computed in float32, whatever dtype a model was cast to
            told = keys + keys @ self.key.float()
            scores = asked @ told.mT * self.scale + self._columns(k, real.keys)[..., None, :]
            near = self._near(fine, q.device, real)
            scores = scores + (near @ self.distance.float().mT).movedim(-1, 1)  # [1 or batch, heads, rows, cols]
        seen = real.visible(fine, q.device)
        mass = torch.softmax(scores.masked_fill(~seen, OUT), -1) * seen
        height = real.height(fine, q.device)[:, None, :, None].to(mass.dtype)
        tall, wide = (size // part for size, part in zip(self.block, self.pool, strict=True))
        mass = pad(
            mass * height, (0, tiling.kv_blocks * wide - mass.shape[-1], 0, tiling.q_blocks * tall - mass.shape[-2])
        )
        height = pad(height, (0, 0, 0, tiling.q_blocks * tall - height.shape[-2]))
        total = mass.unflatten(-1, (tiling.kv_blocks, wide)).sum(-1).unflatten(-2, (tiling.q_blocks, tall)).sum(-2)
        total = total / height.unflatten(-2, (tiling.q_blocks, tall)).sum(-2).clamp(min=1)
        return total.clamp(min=FAINT).log().masked_fill(~real.visible(tiling, q.device), -torch.inf)

    def _has_programs(self, q: Tensor, k: Tensor, real: Narrowed) -> bool:
        """Whether `_by_programs` serves: on CUDA without gradients, pools of single keys, no masks of pairs."""
        plain = real.pairs is None and real.docs is None and self.pool[1] == 1
        if not plain or not programs.multiplied(q, k) or (torch.is_grad_enabled() and self.query.requires_grad):
            return False
        from .programs.tile_mass import fits

        return fits(self.block[1]) and k.shape[2] <= programs.LONGEST_ROW * self.block[1]

    def _by_programs(self, queries: Tensor, k: Tensor, tiling: Tiling, real: Narrowed) -> Tensor:
        """The same result. The keys' side is moved to the few queries, so k is read as it is, in its own dtype."""
        from .programs.shares import shares_of_rows
        from .programs.tile_mass import mass_of_tiles

        fine = Tiling(tiling.q_len, tiling.kv_len, self.pool, tiling.offset, tiling.causal)
        with no_autocast(queries.device):
            asked = queries + queries @ self.query.float()
            asked = (asked + asked @ self.key.float().mT) * self.scale + self.column.float()[:, None]
        last, near = real.last_rows(fine, queries.device), self.distance.float().contiguous()
        mass = mass_of_tiles(asked, k, last, self.block[1], causal=tiling.causal, real=real.keys, near=near)
        return shares_of_rows(mass, real.height(fine, queries.device), self.block[0] // self.pool[0], FAINT)

    @torch.no_grad()
    def choose(
        self,
        q: Tensor,
        k: Tensor,
        *,
        density: float | None = None,
        quality_threshold: float | None = None,
        temperature: float = 1.0,
        sinks: int = 1,
        diagonal: bool = True,
        causal: bool = True,
        q_offset: int | None = None,
        lengths: Tensor | None = None,
        narrowed: Narrowed | None = None,
    ) -> Tensor:
        """A hard choice, bool [batch, heads, q_blocks, kv_blocks]: by budget, or by predicted mass.

        `density` keeps exactly that share of the visible tiles (`top_k`); `quality_threshold` keeps, in
        each row, the fewest tiles whose predicted mass reaches it (`top_p`). A `temperature` above 1
        flattens what is predicted, so that more tiles are kept (see `calibrate`). Others as in `top_k`.

        Raises StudioError unless exactly one of the two is given.
        """
        if (density is None) == (quality_threshold is None):
            raise StudioError(
                f"give either density or quality_threshold, got {density!r} and {quality_threshold!r}: a budget or a "
                "predicted mass decides how much is kept"
            )
        check_temperature(temperature)
        scores = self(q, k, causal=causal, q_offset=q_offset, lengths=lengths, narrowed=narrowed) / temperature
        tiling = self.tiling(q, k, causal, q_offset)
        kept = {"sinks": sinks, "diagonal": diagonal, "lengths": lengths, "narrowed": narrowed}
        if density is not None:
            return top_k(scores, tiling, density, **kept)
        assert quality_threshold is not None  # one of the two is given
        return top_p(scores, tiling, quality_threshold, **kept)

    def tiling(self, q: Tensor, k: Tensor, causal: bool = True, q_offset: int | None = None) -> Tiling:
        """The tiling of q and k at the gate's block; StudioError where they are not of its heads and head_dim."""
        tiling = Tiling.of(q, k, self.block, q_offset, causal)
        mine, theirs = (self.heads, self.kv_heads, self.head_dim), (q.shape[1], k.shape[1], q.shape[3])
        if mine != theirs:
            raise StudioError(
                f"expected q and k of the gate's heads, KV heads and head_dim {mine}, got {theirs}; make one for them"
            )
        return tiling

    def _columns(self, k: Tensor, real: Tensor | None) -> Tensor:
        """ln of the sum of exp(u . k) over each pool's keys, [batch, heads, cols]: one sharp key in it is enough."""
        tokens, size, share = k.shape[2], self.pool[1], self.heads // self.kv_heads
        if real is not None:
            k = torch.where(real[:, None, :, None], k, 0)
        told = (
            k.float() @ self.column.float().unflatten(0, (self.kv_heads, share)).mT
        )  # [batch, kv_heads, tokens, share]
        told = told.mT.flatten(1, 2)
        if real is not None:
            told = torch.where(real[:, None], told, OUT)
        told = pad(told, (0, -tokens % size), value=OUT)
        return told.unflatten(-1, (told.shape[-1] // size, size)).logsumexp(-1)

    def _near(self, fine: Tiling, device: torch.device, real: Narrowed) -> Tensor:
        """Distance features of pools [1 or batch, rows, cols, 4]: its logarithm, two reaches, the first key."""
        row = real.last_rows(fine, device).clamp(min=0)[..., None]
        key = torch.arange(fine.kv_blocks, device=device) * fine.block[1]
        apart = (row - key).abs().float()
        begins = (key == 0)[None] if real.docs is None else _pooled_any(real.starts(), fine)
        first = begins[:, None].float().expand(max(len(begins), len(apart)), *apart.shape[1:])
        apart = apart.expand_as(first)
        return torch.stack([apart.add(1).log2() / 8, *(torch.exp(-apart / reach) for reach in REACHES), first], -1)


def check_temperature(temperature: float) -> None:
    """StudioError unless it is a number above 0."""
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not 0 < temperature < 1e6:
        raise StudioError(f"a temperature is a number above 0, got {temperature!r}; 1 is as trained")


def _pooled_any(positions: Tensor, fine: Tiling) -> Tensor:
    """Whether a pool of keys holds a True, bool [items, cols]."""
    size = fine.block[1]
    return pad(positions, (0, -positions.shape[1] % size)).unflatten(1, (-1, size)).any(-1)


def largest_divisor(size: int, most: int) -> int:
    """The largest divisor of `size` that is at most `most`.

    >>> largest_divisor(64, 16), largest_divisor(12, 8), largest_divisor(1, 8)
    (16, 6, 1)
    """
    return next(part for part in range(min(size, most), 0, -1) if size % part == 0)
