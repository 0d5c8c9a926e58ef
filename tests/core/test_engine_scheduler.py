"""The scheduler by itself, without a device: every token computed once and in order, sizes kept, nobody starved."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.engine.pages import PagePool
from core_jax.engine.scheduler import Row, Scheduler


def scheduler(pages=40, size=4, rows=3, buckets=(1, 8, 16), outputs=3):
    return Scheduler(PagePool(pages, size), rows=rows, buckets=buckets, outputs=outputs)


def row(number, length, answer, *, head=(), host=False):
    tokens = [*head, *(1000 * number + i for i in range(length - len(head)))]
    return Row(number, 0, tokens, length + answer, length - 1, host=host)


def run(s, rows, horizon=3):
    """Runs all rows to their limits; returns the plans. A token that follows is 7 + its place."""
    plans, written = [], {}
    for r in rows:
        s.add(r)
    left = set(rows)
    while left:
        before = {r: (r.computed, tuple(r.tokens)) for r in left}
        plan = s.plan(horizon)
        assert plan is not None, "somebody waits and nobody runs"
        plans.append(plan)
        for source, target in plan.copies:
            written[target] = dict(written.get(source, {}))
        assert len({c.row for c in plan.chunks}) == len(plan.chunks) == len(s.running) or not plan.steps
        count = sum(c.count for c in plan.chunks)
        assert plan.steps or (count <= plan.bucket and plan.bucket in s.buckets)
        assert sum(c.outputs for c in plan.chunks) <= s.outputs
        writers = {}
        for c in plan.chunks:
            stop = c.start + (plan.steps or c.count)
            for i in range(c.start, min(stop, c.row.limit)):
                page = c.row.pages[i // s.pool.size]
                known = i < len(c.row.tokens)
                here = written.setdefault(page, {})
                assert writers.setdefault(page, c.row) is c.row, "two rows write one page"
                here[i % s.pool.size] = c.row.tokens[i] if known else 7 + i
            for i in range(min(c.start, len(c.row.tokens))):
                assert written[c.row.pages[i // s.pool.size]][i % s.pool.size] == c.row.tokens[i], "another's contents"
            assert c.start == before[c.row][0] or before[c.row][0] == 0
        s.pool.settle()
        for c in plan.chunks:
            r = c.row
            for _ in range(plan.steps or (1 if c.stop == len(r.tokens) else 0)):
                if plan.steps:
                    r.computed += 1
                r.tokens.append(7 + len(r.tokens))
                r.want = len(r.tokens) - 1
                if len(r.tokens) == r.limit:
                    s.remove(r)
                    left.remove(r)
                    break
    assert s.pool.leased == 0 and not s.running and not s.waiting
    return plans


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_row_gets_through(data):
    size = data.draw(st.sampled_from([1, 2, 5]))
    lengths = data.draw(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9), st.booleans()), min_size=1, max_size=7))
    needed = max(-(-(n + a) // size) for n, a, _ in lengths)
    s = scheduler(pages=needed + data.draw(st.integers(0, 12)), size=size)
    head = [5] * data.draw(st.integers(0, 12))
    run(s, [row(i, n, a, head=head[:n], host=h) for i, (n, a, h) in enumerate(
        (min(n, needed * size - a), a, h) for n, a, h in lengths)], horizon=data.draw(st.integers(1, 4)))


def test_a_row_decodes_while_another_is_prefilled_and_then_both_on_the_device():
    s = scheduler()
    plans = run(s, [row(0, 4, 8), row(1, 20, 5)])
    mixed = [p for p in plans if not p.steps and len(p.chunks) == 2]
    assert any(sorted(c.count for c in p.chunks)[0] == 1 and p.bucket == 16 for p in mixed)
    assert plans[-1].steps == 3


def test_a_row_that_needs_the_host_keeps_the_others_to_single_steps():
    assert all(p.steps == 0 for p in run(scheduler(), [row(0, 3, 5), row(1, 3, 5, host=True)]))


def test_the_youngest_gives_way_and_the_oldest_never():
    s = scheduler(pages=10, size=2, rows=3)
    rows = [row(i, 4, 12) for i in range(3)]
    run(s, rows)
    assert s.preemptions > 0 and rows[0].preempted == 0 and rows[2].preempted >= rows[1].preempted


def test_every_wanted_output_comes_once_and_the_cache_never_swallows_one():
    s = scheduler(size=2, outputs=3)
    for number in range(2):
        scored = Row(number, 0, list(range(12)), 12, 4, host=True)
        s.add(scored)
        places = []
        while scored.pending:
            plan = s.plan(4)
            assert plan.steps == 0 and sum(c.outputs for c in plan.chunks) <= 3
            places += [i for c in plan.chunks for i in range(max(c.start, c.output), c.stop)]
            s.pool.settle()
        s.remove(scored)
        assert places == list(range(4, 12))
    assert scored.cached == 4


def test_what_follows_a_row_that_ended_finds_all_of_it():
    s = scheduler(size=8)
    first = row(0, 11, 5)
    run(s, [first])
    s.add(Row(1, 0, [*first.tokens[:15], 3, 4], 20, 16))
    s.plan(1)
    assert s.running[0].cached == 15


def test_a_waiting_row_leaves_the_others_a_page_each():
    s = scheduler(pages=10, size=2, rows=3)
    run(s, [row(i, 5, 4) for i in range(3)])
    assert s.preemptions == 0


@pytest.mark.parametrize("tokens, sizes", [
    (1, [1]), (7, [8]), (16, [16]), (40, [16, 16, 8]), (17, [16, 0]), (60, [64]), (100, [128]), (300, [256, 64])])
def test_buckets_are_filled(tokens, sizes):
    s = scheduler(pages=400, rows=1, buckets=(1, 8, 16) if tokens <= 40 else (1, 8, 16, 32, 64, 128, 256), outputs=1)
    plans = run(s, [row(0, tokens, 1)])
    assert [p.bucket for p in plans] == sizes


@pytest.mark.parametrize("buckets, outputs", [((8, 1), 3), ((1, 3), 3), ((1, 8), 2), ((0, 8), 3)])
def test_sizes_are_checked(buckets, outputs):
    with pytest.raises(ValueError, match="buckets|outputs"):
        scheduler(buckets=buckets, outputs=outputs)
