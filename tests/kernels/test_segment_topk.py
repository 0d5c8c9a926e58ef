"""segment_topk against float64 NumPy: ties, shrink, empty and giant segments, poisoned padding, bf16, lowering."""
import re
from functools import partial

import jax
import jax.numpy as jnp
import lowering
import ml_dtypes
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax_kernels.segment_topk import segment_topk
from jax_kernels.segment_topk.cases import CASES, by_name

S, P, N, K, D = 40, 5, 3, 4, 6
FORMS = {"padded": {"implementation": "xla", "max_segment": 32}, "passes": {"implementation": "xla", "max_segment": 40},
         "reference": {"implementation": "reference", "max_segment": 40}}
RUN = {name: jax.jit(partial(segment_topk, k=K, **options)) for name, options in FORMS.items()}


def same(got, want, *, atol=1e-6):
    scores, rows, valid = (np.asarray(a) for a in got)
    assert scores.dtype == np.float32 and rows.dtype == np.int32 and valid.dtype == bool
    np.testing.assert_array_equal(valid, want[2])
    np.testing.assert_array_equal(rows, want[1])
    np.testing.assert_array_equal(np.isneginf(scores), ~want[2])
    np.testing.assert_allclose(scores[valid], want[0][valid], atol=atol, rtol=1e-6)


def test_the_two_forms_are_both_exercised():
    def primitives(form):
        jaxpr = jax.make_jaxpr(RUN[form])(jnp.zeros((N, D)), jnp.zeros((S, D)), jnp.zeros(P + 1, jnp.int32))
        return str(jaxpr)
    assert "top_k" in primitives("padded") and "segment_max" not in primitives("padded")
    assert "top_k" not in primitives("passes") and "scatter-max" in primitives("passes")


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_exact_on_any_ragged_split_with_ties(form, data):
    """Small integers: products are exact and ties are common, so rows must agree to the last one."""
    lengths = data.draw(st.lists(st.integers(0, 12), min_size=P, max_size=P).filter(lambda v: sum(v) <= S))
    first = data.draw(st.integers(0, S - sum(lengths)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    offsets = (first + np.concatenate([[0], np.cumsum(lengths)])).astype(np.int32)
    x = rng.integers(-1, 2, (S, D)).astype(np.float32)
    q = rng.integers(-1, 2, (N, D)).astype(np.float32)
    want = oracle.segment_topk(q, x, offsets, K)
    x[: offsets[0]] = np.nan
    x[offsets[-1]:] = np.nan
    same(RUN[form](q, x, offsets), want, atol=0)


@pytest.mark.parametrize("case", [c.name for c in CASES if c.small])
@pytest.mark.parametrize("implementation", ["xla", "reference"])
def test_named_cases(case, implementation):
    case = by_name(case)
    a = case.make(seed=3)
    longest = int(np.diff(a["offsets"]).max())
    run = jax.jit(partial(segment_topk, k=case.k, max_segment=longest, implementation=implementation))
    same(run(a["q"], a["x"], a["offsets"]), oracle.segment_topk(a["q"], a["x"], a["offsets"], case.k))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["bench_cpu", "one_giant", "minilm_demo"])
def test_real_cases(case):
    case = by_name(case)
    a = case.make(seed=1)
    got = segment_topk(a["q"], a["x"], a["offsets"], k=case.k, max_segment=int(np.diff(a["offsets"]).max()))
    want = oracle.segment_topk(a["q"], a["x"], a["offsets"], case.k)
    np.testing.assert_allclose(np.asarray(got[0]), want[0], atol=1e-5)
    assert (np.asarray(got[1]) == want[1]).mean() > 0.999  # near-ties may swap within float32


def test_nothing_there():
    """No rows at all, and k above the number of rows (lax.top_k alone raises there)."""
    for rows, offsets in ((0, [0, 0, 0]), (2, [0, 2, 2])):
        x = np.full((rows, D), np.nan, np.float32)
        x[: offsets[-1]] = 1.0
        for form in ({"max_segment": 1 if rows == 0 else 2}, {"max_segment": 9},
                     {"max_segment": 9, "implementation": "reference"}):
            run = jax.jit(partial(segment_topk, k=7, **form))
            same(run(np.ones((N, D), np.float32), x, np.array(offsets, np.int32)),
                 oracle.segment_topk(np.ones((N, D)), x, offsets, 7))


def test_ragged_batch_allocates_no_padded_scores():
    """One patient of 60,000 rows among 15 of 100: nothing larger than the packed scores' own order is made."""
    p, rows = 16, 61_500
    jaxpr = jax.make_jaxpr(partial(segment_topk, k=4, max_segment=60_000, implementation="xla"))(
        jax.ShapeDtypeStruct((8, 4), jnp.float32), jax.ShapeDtypeStruct((rows, 4), jnp.float32),
        jax.ShapeDtypeStruct((p + 1,), jnp.int32))
    shapes = re.findall(r"\w\[([\d,]*)\]", str(jaxpr))
    sizes = [int(np.prod([int(n) for n in shape.split(",") if n])) for shape in shapes]
    assert max(sizes) <= 16 * rows, max(sizes)  # 8 queries, and searchsorted's P + 1 comparisons a row
    assert max(sizes) >= 8 * rows


def test_bfloat16_rows_are_scored_in_float32():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((S, 64)).astype(ml_dtypes.bfloat16)
    q = rng.standard_normal((N, 64)).astype(np.float32)
    offsets = np.array([0, 3, 3, 20, 21, 38], np.int32)
    want = oracle.segment_topk(q, x.astype(np.float32), offsets, K)
    for form in FORMS.values():
        same(jax.jit(partial(segment_topk, k=K, **form))(q, x, offsets), want, atol=2e-6 * 8)


def test_batch_mates_and_buckets_do_not_matter():
    a = by_name("small_odd").make(seed=5)
    q, x, off = a["q"], a["x"], a["offsets"]
    run = jax.jit(partial(segment_topk, k=K, max_segment=64))
    whole = [np.asarray(v) for v in run(q, x, off)]
    for p in range(P):
        alone_x = np.full((S + 24, x.shape[1]), np.nan, np.float32)
        alone_x[: off[p + 1] - off[p]] = x[off[p]: off[p + 1]]
        scores, rows, valid = run(q, alone_x, np.array([0, off[p + 1] - off[p]], np.int32))
        np.testing.assert_allclose(np.asarray(scores)[0], whole[0][p], atol=1e-6)
        np.testing.assert_array_equal(np.where(np.asarray(valid)[0], np.asarray(rows)[0] + off[p], -1), whole[1][p])


def test_gradient_of_scores_goes_to_q_alone():
    a = by_name("small_odd").make(seed=2)
    q, offsets = a["q"], a["offsets"]
    x = np.nan_to_num(a["x"])

    def loss(q, x, **options):
        scores, _, valid = segment_topk(q, x, offsets, k=K, max_segment=40, **options)
        return jnp.where(valid, jnp.sin(scores), 0.0).sum()

    def plain(q):
        from jax_kernels.segment_topk import reference
        scores, _, valid = reference.segment_topk(q, x, jnp.asarray(offsets), k=K, max_segment=40)
        return jnp.where(valid, jnp.sin(jnp.where(valid, scores, 0.0)), 0.0).sum()

    dq, dx = jax.jit(jax.grad(loss, argnums=(0, 1)))(q, x)
    np.testing.assert_allclose(dq, jax.jit(jax.grad(plain))(q), atol=1e-6)
    assert not np.asarray(dx).any()
    assert np.abs(dq).max() > 0.1


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("form", ["padded", "passes"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_lowers_for_absent_devices(platform, form, dtype):
    text = lowering.lower(partial(segment_topk, k=K, **FORMS[form]), jax.ShapeDtypeStruct((N, D), jnp.float32),
                          jax.ShapeDtypeStruct((S, D), dtype), jax.ShapeDtypeStruct((P + 1,), jnp.int32),
                          platform=platform)
    assert "dot_general" in text


@pytest.mark.parametrize("change, message", [
    ({"q": np.zeros((N, D + 1), np.float32)}, r"\[N, d\]"),
    ({"offsets": np.zeros(P + 1, np.int64)}, "int32"),
    ({"offsets": np.zeros(1, np.int32)}, "P >= 1"),
    ({"offsets": np.array([0, 3, 2, 3, 4, 5], np.int32)}, "must not decrease"),
    ({"offsets": np.array([0, 3, 4, 5, 6, S + 1], np.int32)}, "must not decrease"),
    ({"offsets": np.array([0, 30, 30, 30, 30, 33], np.int32)}, "segment 0 has 30 rows, max_segment is 8"),
    ({"x": np.zeros((S, D), np.int32)}, "floating"),
    ({"k": 0}, "at least 1"), ({"max_segment": 0}, "at least 1"),
    ({"implementation": "cuda"}, "expected None or one of"),
])
def test_bad_arguments(change, message):
    good = {"q": np.zeros((N, D), np.float32), "x": np.zeros((S, D), np.float32),
            "offsets": np.arange(P + 1, dtype=np.int32), "k": K, "max_segment": 8}
    segment_topk(**good)
    with pytest.raises(ValueError, match=message):
        segment_topk(**good | change)
