"""The suites `writer`, `serving` and `commit` of launch/bench.py, small: contenders agree, summaries say what is."""

import importlib.util
import pathlib
import types

import pytest

from core_jax.engine.scripted import Scripted
from core_jax.models.cost import prefill_flops
from core_jax.models.presets import SMOLLM2_135M

PEERS = pathlib.Path(__file__).resolve().parents[2] / "launch" / "peers"


def suite(name):
    spec = importlib.util.spec_from_file_location(f"peers_{name}", PEERS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(case, contender, ms, *figures):
    return {"case": case, "contender": contender, "wall_ms": {"median": ms}, "cpu_ms": {"median": ms * ms},
            "figures": list(figures)}


# ---- commit ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("wave", [1, 4])
def test_commit_contenders_write_the_same_memories(wave):
    module = suite("commit")
    case = {"memories": 3, "patients": 4, "commits": 8, "wave": wave}
    results = {label: build(case)() for label, build in module.CONTENDERS.items()}
    assert {label: r.tolist() for label, r in results.items()} == dict.fromkeys(module.CONTENDERS, [6] * 4)


def test_commit_waves_hold_a_patient_once():
    module = suite("commit")
    for case in module.CASES.values():
        assert case["wave"] <= case["patients"] and case["commits"] % case["wave"] == 0


def test_commit_summary():
    module = suite("commit")
    lines = module.summary([row("batch_8", "ours", 512.0), row("batch_8", "journal", 128.0)])
    assert "250 commits/s" in lines[0] and " 500 us a memory" in lines[0] and "of ours" not in lines[0]
    assert "25% of ours (6% of its cpu)" in lines[1]


# ---- serving -----------------------------------------------------------------------------------------------------

def length(messages):
    return sum(len(m["content"].split()) for m in messages)


def test_serving_prompts_fill_their_length(monkeypatch):
    module = suite("serving")
    monkeypatch.setattr(module, "ENTRIES", 60)
    case = {"active": 280, "both": 420, "spans": False, "questions": 3}
    asked = module.packets(case, length)
    assert len(asked) == 3
    for prompts in asked:
        notes = {arm: prompts[arm][1]["content"].split("\n")[1:-4] for arm in prompts}
        for arm, most in (("ACTIVE", case["active"]), ("BOTH", case["both"])):
            assert most - 40 < length(prompts[arm]) <= most
        assert not any("(past: " in line for line in notes["ACTIVE"])
        assert set(notes["ACTIVE"]) == {line for line in notes["BOTH"] if "(past: " not in line}


def test_serving_summary():
    module = suite("serving")
    rows = [row("quarter", "active", 0.0, {"prompt_tokens": 400, "first_token_ms": 1000.0, "decode_tokens_s": 20.0}),
            row("quarter", "both", 0.0, *({"prompt_tokens": 1000, "first_token_ms": ms, "decode_tokens_s": 19.0}
                                          for ms in (2900.0, 3000.0, 9000.0)))]
    lines = module.summary(rows)
    flops = prefill_flops(SMOLLM2_135M, 1000) / prefill_flops(SMOLLM2_135M, 400)
    assert "1000 tokens, first token after    3000 ms, decode  19.0 tokens/s" in lines[1]
    assert f"tokens x2.50, first token x3.00, prefill FLOP x{flops:.2f}, decode rate x0.95" in lines[2]
    assert module.summary([row("quarter", "active", 0.0)]) == []


# ---- writer ------------------------------------------------------------------------------------------------------

class Backend(Scripted):
    """Extracts nothing, relates all, and says of every new memory that it holds."""

    def __init__(self):
        super().__init__(self.said, scores=lambda request, labels: [float(x == "C") * 9 for x in labels])
        self.config, self.forgotten = SMOLLM2_135M, 0
        self.pool = types.SimpleNamespace(forget=self.forget)

    def forget(self):
        self.forgotten += 1

    def said(self, request):
        return "N1 CURRENT" if "what becomes of earlier ones" in request.prompt[0]["content"] else "NONE"


@pytest.fixture
def written(monkeypatch):
    module, backends = suite("writer"), []
    monkeypatch.setattr(module, "backend", lambda case: backends.append(Backend()) or backends[-1])
    case = {"patients": 3, "max_tokens": 8}
    runs = {label: build(case) for label, build in module.CONTENDERS.items()}
    return module, runs, {label: run() for label, run in runs.items()}, backends


def test_writer_contenders_write_the_same_memories(written):
    module, runs, results, backends = written
    assert len(results["wave_64"]) == 3 and len({tuple(r) for r in results.values()}) == 1
    assert [b.forgotten for b in backends] == [1] * 4
    again = runs["wave_64"]()
    assert (again == results["wave_64"]).all()
    calls = {label: {r["stage"]: r["calls"] for r in run.figures["stages"]} for label, run in runs.items()}
    assert calls["wave_64"] == calls["one_by_one"] and calls["wave_64"]["extract"] == 3
    assert all(calls["wave_64"].values())
    for backend in backends:
        extracted = [r for r in backend.requests if "one piece" in r.prompt[0]["content"]]
        assert extracted and all(r.sampling.max_tokens == 8 and r.sampling.temperature == 0 for r in extracted)


def test_writer_summary(written):
    module, runs, _, _ = written
    figures = runs["wave_8"].figures
    total = figures["stages"][-1]
    lines = module.summary([row("smollm2", "wave_8", 2000.0, {}, figures), row("smollm2", "wave_1", 4000.0)])
    entries = module.CASES["smollm2"]["patients"]
    assert f"{entries / 2:5.2f} entries/s" in lines[0] and f"{figures['source_tokens']:,} source tokens" in lines[0]
    assert [line.split()[0] for line in lines[1:5]] == ["extract", "link", "update", "total"]
    assert f"{total['flops'] / 1e12 / figures['source_tokens']:.5f} PFLOP per 1,000" in lines[4]
    assert len(lines) == 6 and f"{entries / 4:5.2f} entries/s" in lines[5]
