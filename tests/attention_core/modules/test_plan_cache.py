"""The plan cache: bounded, counted, safe for threads, copies and processes; no length has a say in another's plan."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import pytest
import torch

import pattern_studio as ps
from attention_core import Plan, plan
from attention_core.modules.attention import BlockSparseAttention
from attention_core.modules.conditions import Item
from attention_core.modules.plan_cache import PlanCache, PlanKey
from attention_core.modules.source import PatternSource
from pattern_studio.errors import StudioError

from . import oracle


def key(q_len: int) -> PlanKey:
    return PlanKey("hash", None, ps.Problem(q_len), False, 0, (16, 16), (), "cpu")


def made(q_len: int) -> Plan:
    return plan(ps.lower(ps.causal, q_len=q_len, block=16))


def test_least_recently_used_leaves_first():
    cache = PlanCache(size=2)
    for length in (10, 20, 10, 30):  # 20 is the one that was not asked for again
        cache.plan(key(length), lambda n=length: made(n))
    assert [p.problem.q_len for p in cache.plans()] == [10, 30]
    cache.plan(key(20), lambda: made(20))
    info = cache.info()
    assert (info.hits, info.misses, info.kept, info.size) == (1, 4, 2, 2)
    cache.clear()
    assert cache.info().kept == 0


def test_eight_threads_on_a_cold_cache_make_one_plan():
    cache, barrier, count = PlanCache(), threading.Barrier(8), []

    def ask(_: int):
        barrier.wait(timeout=60)
        return cache.plan(key(64), lambda: count.append(1) or made(64))

    with ThreadPoolExecutor(8) as pool:
        plans = list(pool.map(ask, range(8)))
    assert len(count) == 1
    assert len({id(p) for p in plans}) == 1
    assert (cache.info().hits, cache.info().misses) == (7, 1)


def test_a_plan_that_fails_is_tried_again():
    cache = PlanCache()

    def fail():
        raise StudioError("no")

    with pytest.raises(StudioError, match="no"):
        cache.plan(key(8), fail)
    assert cache.plan(key(8), lambda: made(8)).problem.q_len == 8


def test_bound_is_checked():
    with pytest.raises(StudioError, match=r"a plan cache's size must lie between 1 and \d+, got 0"):
        PlanCache(size=0)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_have_a_cache_of_their_own(clone):
    attention = BlockSparseAttention("causal & window(3, 0)", block=8, plan_cache=PlanCache(3))
    q = torch.randn(3, 1, 2, 20, 8)
    wanted = attention(*q)
    other = clone(attention)
    assert other.plan_cache is not attention.plan_cache
    assert other.plan_cache.info().size == 3
    assert other.plan_cache.info().misses == 0
    assert other.source.number != attention.source.number
    assert torch.equal(other(*q), wanted)
    assert other.plan_cache.info().misses == 1


def test_modules_share_plans_unless_they_have_a_cache():
    cache = PlanCache()
    one, two = (
        BlockSparseAttention(text, block=8, plan_cache=cache) for text in ("causal&sink(2)", "causal & sink(2)")
    )
    q = torch.randn(3, 1, 1, 9, 4)
    one(*q), two(*q)
    assert (cache.info().hits, cache.info().misses) == (1, 1)


def _in_process(attention: BlockSparseAttention, q, results) -> None:
    torch.set_num_threads(1)
    results.put((attention(*q).tolist(), attention.plan_cache.info().misses))


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:This process")  # Python's advice on forking beside threads
def test_other_processes(method):
    attention = BlockSparseAttention("causal & window(3, 0)", block=8, plan_cache=PlanCache())
    q = torch.arange(3 * 5 * 2.0).reshape(3, 1, 1, 5, 2) / 30
    wanted = attention(*q)
    context = get_context(method)
    results = context.SimpleQueue()
    process = context.Process(target=_in_process, args=(attention, q, results))
    process.start()
    got, misses = results.get()
    process.join(60)
    assert misses == 1
    oracle.close(torch.tensor(got), wanted)


def test_a_short_batch_changes_nothing_for_a_long_one():
    def run(lengths: list[int]) -> list[torch.Tensor]:
        attention = BlockSparseAttention("random(5, seed=3) | window(2, 2)", block=16, plan_cache=PlanCache())
        inputs = {n: torch.randn(3, 1, 2, n, 8, generator=torch.Generator().manual_seed(n)) for n in lengths}
        return [attention(*inputs[n]) for n in lengths]

    alone = run([100])[0]
    short, after = run([7, 100])
    assert torch.equal(alone, after)
    assert torch.equal(run([100, 7])[1], short)


def test_hash_of_the_text_not_of_the_object():
    cache = PlanCache()
    problem = ps.Problem(40, heads=2)
    sources = [PatternSource(ps.parse("causal & window(4, 0)"), block=8, cache=cache) for _ in range(2)]
    plans = [s.plan(problem, (Item(),), causal=False, extra=0, device=torch.device("cpu")) for s in sources]
    assert plans[0] is plans[1]
