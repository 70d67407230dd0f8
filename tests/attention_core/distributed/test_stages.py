"""Stages against the token mask: what every rank runs is its part of the pattern, whatever the sharding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from attention_core.distributed import needs
from attention_core.distributed.partition import WAYS, partition
from attention_core.distributed.plan import distributed_plan
from attention_core.distributed.stages import stage
from tests import strategies

ways = st.sampled_from([*WAYS, "auto"])


@st.composite
def dealt(draw):
    """A layout, its token mask and its needs."""
    problem = draw(strategies.problems())
    pattern, block = draw(strategies.patterns(problem.heads)), draw(strategies.blocks)
    layout = ps.lower(pattern, problem, block=block)
    kv_heads = draw(st.sampled_from([n for n in (1, 2, 3) if problem.heads % n == 0 or problem.heads == 1]))
    found = needs(layout, draw(st.integers(1, 5)), kv_heads, draw(ways))
    return layout, ps.dense_mask(pattern, problem, block=block), found


def kind_of_head(found, head: int) -> int:
    heads = found.layout.problem.heads
    return found.kind_of[head // (heads // len(found.kind_of)) if heads > 1 else 0]


def assert_is_part(found, rank: int, held: np.ndarray, mask: np.ndarray) -> None:
    """The stage shows the held keys of the rank's rows, in the buffer's order, and allows nothing else."""
    made = stage(found, rank, held)
    made.layout.validate()
    rows, block_k = found.queries.positions(rank), found.layout.block[1]
    for head in range(found.layout.problem.heads):
        kind = kind_of_head(found, head)
        tiles, places = made.places(kind)
        buffer = np.zeros((len(rows), made.layout.problem.kv_len), bool)
        for tile, place in zip(tiles, places, strict=True):
            keys = mask[head][rows, tile * block_k : (tile + 1) * block_k]
            buffer[:, place * block_k : place * block_k + keys.shape[1]] = keys
        np.testing.assert_array_equal(made.layout.expand(head), buffer)


@settings(max_examples=120, deadline=None)
@given(dealt())
def test_own_and_fetched_keys_are_the_pattern(case):
    layout, mask, found = case
    for rank in range(found.ranks):
        own = np.tile(found.key_owner == rank, (len(found.kinds), 1))
        read = np.stack([found.read(rank, kind) for kind in range(len(found.kinds))])
        assert_is_part(found, rank, own, mask)
        assert_is_part(found, rank, read & ~own, mask)
        block_k, rows = layout.block[1], found.queries.positions(rank)
        for head in range(layout.problem.heads):
            seen = mask[head][rows].any(0)
            tiles = [seen[first : first + block_k].any() for first in range(0, len(seen), block_k)]
            assert not (np.array(tiles, bool) & ~read[kind_of_head(found, head)]).any()


@settings(max_examples=60, deadline=None)
@given(dealt(), st.randoms(use_true_random=False))
def test_any_keys_held(case, random):
    _, mask, found = case
    tiles = found.layout.kv_blocks
    held = np.array([[random.random() < 0.5 for _ in range(tiles)] for _ in found.kinds], bool).reshape(
        len(found.kinds), tiles
    )
    for rank in range(found.ranks):
        assert_is_part(found, rank, held, mask)


@settings(max_examples=60, deadline=None)
@given(dealt())
def test_counts(case):
    layout, _, found = case
    assert found.pairs.sum() == layout.tile_pairs
    for part, length in ((found.queries, layout.problem.q_len), (found.keys, layout.problem.kv_len)):
        everything = np.concatenate([part.positions(rank) for rank in range(found.ranks)])
        np.testing.assert_array_equal(np.sort(everything), np.arange(length))
        assert part.lengths.tolist() == [len(part.positions(rank)) for rank in range(found.ranks)]
    # Keys sent, counted one by one: a key tile that a row of the rank reads, for each KV head, from its owner.
    kv_heads, heads = len(found.kind_of), layout.problem.heads
    sent = np.zeros((found.ranks, found.ranks), int)
    block_k = layout.block[1]
    for rank in range(found.ranks):
        rows = found.queries.positions(rank)
        for kv_head in range(kv_heads):
            share = slice(None) if heads == 1 else slice(kv_head * heads // kv_heads, (kv_head + 1) * heads // kv_heads)
            for tile in range(layout.kv_blocks):
                active = layout_tiles(layout)[share][:, rows // layout.block[0], tile].any()
                owner = found.key_owner[tile]
                if active and owner != rank:
                    sent[owner, rank] += min(block_k, layout.problem.kv_len - tile * block_k)
    np.testing.assert_array_equal(found.keys_between, sent)


def layout_tiles(layout: ps.BlockLayout) -> np.ndarray:
    return np.stack([layout.tile_kinds(head) > 0 for head in range(layout.problem.heads)])


class TestWays:
    def test_by_hand(self):
        cost = np.array([1, 2, 3, 4, 5, 6])
        assert WAYS["contiguous"](cost, 3).tolist() == [0, 0, 1, 1, 2, 2]
        assert WAYS["zigzag"](cost, 3).tolist() == [0, 1, 2, 2, 1, 0]
        assert WAYS["balanced"](cost, 3).tolist() == [0, 1, 2, 2, 1, 0]
        assert WAYS["balanced"](np.array([9, 1, 1, 5]), 2).tolist() == [0, 1, 0, 1]

    def test_the_choice_follows_the_pattern(self):
        def way(text: str) -> str:
            return needs(ps.lower(ps.parse(text), q_len=8192, block=64), ranks=4, kv_heads=1).way

        assert way("causal & window(255, 0)") == "contiguous"
        assert way("causal") == "zigzag"
        assert way("rect(range(0, 2048), range(0, 8192)) | window(0, 0)") != "contiguous"

    def test_unknown(self):
        with pytest.raises(ps.StudioError, match="contiguous, zigzag, balanced, got 'even'"):
            partition(8, 2, np.ones(4), 2, "even")


class TestPlan:
    def test_window_and_sinks_send_under_a_twentieth_of_a_ring(self):
        layout = ps.lower(ps.parse("causal & (window(4095, 0) | sink(64))"), q_len=131072, block=128)
        found = needs(layout, ranks=4, kv_heads=1)
        assert found.keys_between.sum() < 0.05 * found.ring_keys
        # By hand: ranks 1 to 3 need the 4095 keys before their first one (32 blocks of 128) and the block of the sinks.
        assert found.keys_between.tolist() == [[0, 4224, 128, 128], [0, 0, 4096, 0], [0, 0, 0, 4096], [0, 0, 0, 0]]
        assert found.imbalance < 1.02

    def test_choices_follow_the_counted_bytes(self):
        layout = ps.lower(ps.parse("causal & (window(4095, 0) | sink(64))"), q_len=2**17, block=128)
        few, many = (distributed_plan(layout, ranks, 1, kv_heads=16) for ranks in (4, 64))
        # 4 ranks fetch 4224 keys for 32,768 rows, so waiting beats merging; the rank with the sinks sends them thrice.
        assert (len(few.steps), few.traffic.common_keys) == (1, 0)
        assert "fetch in one pass: keys sent" in str(few)
        # 64 ranks fetch as many for 2048 rows, and the sinks' rank would send 128 keys to each of 61 others.
        assert (len(many.steps), many.traffic.common_keys) == (2, 16 * 128)
        one_by_one = distributed_plan(layout, 64, 1, kv_heads=16, common=False)
        assert one_by_one.traffic.busiest == 16 * (2 * 2048 + 61 * 128)
        assert many.traffic.busiest == 16 * (4096 + 2 * 128 * 63 // 64)
        assert "2,048 common ones by all-reduce, so that the busiest rank moves 69,568 and not 190,464" in str(many)

    def test_links_are_listed(self):
        layout = ps.lower(ps.parse("causal & window(127, 0)"), q_len=128 * 20, block=128)
        told = distributed_plan(layout, 20, 0).links(64, 64, 2).splitlines()
        assert told[1] == "rank 0 to 1: 32,768 bytes"
        assert told[-1] == "and 3 links of less"

    def test_bytes(self):
        layout = ps.lower(ps.parse("causal & window(127, 0)"), q_len=1024, block=128, heads=4)
        made = distributed_plan(layout, 4, 1, kv_heads=2)
        assert made.bytes_between(64, 32, 2, batch=3).sum() == 3 * 128 * 2 * (64 + 32) * 2 * 3
        ring = distributed_plan(layout, 4, 1, kv_heads=2, mode="ring")
        assert ring.bytes_between(64, 32, 2).sum() == 3 * 1024 * 2 * (64 + 32) * 2
        assert (ring.bytes_between(1, 1, 1) > 0).sum() == 4

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"ranks": 2, "rank": 2}, "rank must lie between 0 and 1, got 2"),
            ({"ranks": 2, "rank": 0, "kv_heads": 3}, "4 heads must be a whole multiple of kv_heads, got 3"),
            ({"ranks": 2, "rank": 0, "mode": "tree"}, "mode must be one of auto, fetch, ring, got 'tree'"),
            ({"ranks": 2, "rank": 0, "mode": "ring", "overlap": False}, "a ring overlaps and has no common keys, got"),
            ({"ranks": 2, "rank": 0, "way": "even"}, "a partition is one of"),
        ],
    )
    def test_errors(self, arguments, message):
        layout = ps.lower(ps.causal, q_len=64, block=16, heads=4)
        with pytest.raises(ps.StudioError, match=message):
            distributed_plan(layout, **arguments)
        with pytest.raises(ps.StudioError, match="takes a BlockLayout, got str"):
            distributed_plan("causal", 2, 0)  # type: ignore[arg-type]
