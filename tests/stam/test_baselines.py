"""The controls: what each decides, what each serves."""
import dataclasses
from collections import Counter

import numpy as np
from memory_cases import entry, memory

from core_jax.embed import HashEncoder
from stam_jax.baselines import external, serving, slots
from stam_jax.baselines.writers import MEASURED, AppendOnly, SameSlot
from stam_jax.config import ReadConfig
from stam_jax.graph.state import State
from stam_jax.graph.update import Commit, Update
from stam_jax.write.writer import Affected, Draft, Extraction, LinkTask, UpdateTask


class Reads:
    """A writer whose drafts are the sentences of an entry."""

    decider, hashes = "rule", {"writer": "sentences"}

    def extract(self, entries):
        return [Extraction(tuple(Draft(s + ".", s + ".") for s in e.text.rstrip(".").split(". ") if s))
                for e in entries]

    def link(self, tasks):
        raise AssertionError("a control asked the writer that it wraps to link")

    update = link


ENTRIES = [entry("Lisinopril 10 mg daily. Potassium 4.1.", date="2024-01-01"),
           entry("Lisinopril 20 mg daily.", date="2024-02-01"),
           entry("Her mother takes lisinopril 5 mg daily.", date="2024-03-01"),
           entry("Lisinopril 20 mg daily, as before.", date="2024-04-01"),
           entry("Potassium 4.4. Allergic to latex.", date="2024-05-01")]
DOSE = dict(concept="lisinopril", attribute="dose", unit="mg")
MEMORIES = [
    [memory(ENTRIES[0], "Lisinopril 10 mg daily", value="10 mg daily", **DOSE),
     memory(ENTRIES[0], "Potassium 4.1", concept="potassium", attribute="value", value="4.1", ordinal=1)],
    [memory(ENTRIES[1], "Lisinopril 20 mg daily", value="20 mg daily", **DOSE)],
    [memory(ENTRIES[2], "lisinopril 5 mg daily", value="5 mg daily", experiencer="FAMILY", **DOSE)],
    [memory(ENTRIES[3], "Lisinopril 20 mg daily, as before", value="20 mg daily", **DOSE)],
    [memory(ENTRIES[4], "Potassium 4.4", concept="potassium", attribute="value", value="4.4"),
     memory(ENTRIES[4], "Allergic to latex", concept="latex", attribute="allergy", ordinal=1)],
]


def state() -> State:
    out = State("p1")
    for e, own in zip(ENTRIES, MEMORIES):
        out = out.apply(Update.of(Commit("p1", out.version, (e,), tuple(own))))
    return out


def moves(s: State) -> Counter:
    return Counter((m.text, t.reason, s.memories[t.successor].text) for m in s.history() for t in [s.standing(m.mid)])


def test_bare_slot_rule_follows_arrival():
    got = slots.same_slot(state())
    assert moves(got) == {
        ("Patient: Lisinopril 10 mg daily", "SUPERSEDED", "Patient: Lisinopril 20 mg daily"): 1,
        ("Patient: Lisinopril 20 mg daily", "RESTATED", "Patient: Lisinopril 20 mg daily, as before"): 1,
        ("Patient: Potassium 4.1", "SUPERSEDED", "Patient: Potassium 4.4"): 1}
    assert not got.check()


def test_slot_rule_of_some_attributes():
    assert set(m.attribute for m in slots.same_slot(state(), ("value",)).history()) == {"value"}
    assert slots.same_slot(state(), MEASURED).canonical() == slots.same_slot(state()).canonical()


def test_append_only_keeps_everything():
    moved = slots.same_slot(state())
    kept = slots.append_only(moved)
    assert not kept.history() and kept.memories.keys() == moved.memories.keys() and not kept.relations
    assert not kept.check()


def test_append_only_writer_asks_nothing():
    writer = AppendOnly(Reads())
    task = LinkTask(ENTRIES[1], MEMORIES[1][0], (MEMORIES[0][0],))
    assert writer.link([task])[0].links == () and writer.extract(ENTRIES[:1])[0].drafts
    update = UpdateTask(ENTRIES[1], (MEMORIES[1][0],), (Affected(MEMORIES[0][0]),))
    assert writer.update([update])[0].verdicts == () and writer.hashes["control"] == "AppendOnly"


def test_same_slot_writer_follows_its_slot_only():
    writer = SameSlot(Reads())
    others = (MEMORIES[0][0], MEMORIES[0][1], MEMORIES[2][0])
    new = MEMORIES[1][0]
    links = writer.link([LinkTask(ENTRIES[1], new, others)])[0].links
    assert [(x.candidate, x.type) for x in links] == [(0, "same_condition_thread")]
    got = writer.update([UpdateTask(ENTRIES[1], (new,), tuple(map(Affected, others)))])[0]
    assert [(v.candidate, v.kind, v.new) for v in got.verdicts] == [(0, "SUPERSEDED", 0)]
    again = writer.update([UpdateTask(ENTRIES[3], (MEMORIES[3][0],), (Affected(new),))])[0]
    assert [(p.new, p.kind, p.candidate) for p in again.placements] == [(0, "SAME", 0)] and not again.verdicts
    stop = memory(ENTRIES[3], polarity="NEGATED", **DOSE)
    stopped = writer.update([UpdateTask(ENTRIES[3], (stop,), (Affected(new),))])[0]
    assert [v.kind for v in stopped.verdicts] == ["RESOLVED"]
    assert SameSlot(Reads(), ("value",)).link([LinkTask(ENTRIES[1], new, others)])[0].links == ()


# ---- serving -----------------------------------------------------------------------------------------------------

ENCODER = HashEncoder(64)


def test_full_context_drops_the_oldest_words():
    s = state()
    whole = serving.FullContext({"p1": ENTRIES}, {"p1": s}).serve("p1", "", np.zeros(1))
    assert [line[:12] for line in whole.text.splitlines()] == [f"[2024-0{i}-01]" for i in range(1, 6)]
    assert set(whole.mids) == set(s.memories) and all(i.place == "ACTIVE" for i in whole.items)
    for words in range(0, whole.words + 2):
        cut = serving.FullContext({"p1": ENTRIES}, {"p1": s}, words).serve("p1", "", np.zeros(1))
        assert cut.words == min(words, whole.words) and whole.text.endswith(cut.text)
        for i in cut.items:  # what is read off stands in the words that were served
            assert s.entries[i.memory.provenance[0].entry_key].text[i.memory.provenance[0].start:
                                                                  i.memory.provenance[0].end] in cut.text
        assert cut.cut is (words < whole.words)
        for key, spans in serving.places(cut).items():
            for a, b in spans:
                assert s.entries[key].text[a:b] in cut.text
    few = serving.FullContext({"p1": ENTRIES}, {"p1": s}, 5).serve("p1", "", np.zeros(1))
    assert {i.memory.concept for i in few.items} == {"potassium", "latex"}


def test_full_context_is_cut_in_the_readers_unit():
    s = state()
    whole = serving.FullContext({"p1": ENTRIES}, {"p1": s}).serve("p1", "", np.zeros(1))
    for most in range(0, len(whole.text) + 9, 7):
        arm = serving.FullContext({"p1": ENTRIES}, {"p1": s}, most, len)
        cut = arm.serve("p1", "", np.zeros(1))
        assert len(cut.text) <= most and whole.text.endswith(cut.text) and cut is arm.serve("p1", "x", np.ones(1))
        assert cut.cut is (len(whole.text) > most) and cut.cut is (cut.text != whole.text)
        if cut.cut:  # one word more is too long
            longer = whole.text.split()[-cut.words - 1]
            assert len(cut.text) + len(longer) + 1 > most


def test_places_are_of_the_words_or_of_what_memories_cite():
    e = ENTRIES[0]
    cited = MEMORIES[0][0]
    item = serving.Item(cited, "ACTIVE", 0.0)
    p = cited.provenance[0]
    assert serving.places(serving.Packet("BOTH", (item,), "")) == {e.entry_key: [(p.start, p.end)]}
    unsure = dataclasses.replace(item, memory=dataclasses.replace(cited, provenance=(
        dataclasses.replace(p, verified=False, start=0, end=len(e.text)),)))
    assert serving.places(serving.Packet("BOTH", (unsure,), "")) == {}
    spans = ((e.entry_key, 5, 9), ("other", 1, 2), (e.entry_key, 0, 5), (e.entry_key, 11, 12))
    raw = serving.Raw("raw", (item,), "", spans=spans)
    assert serving.places(raw) == {e.entry_key: [(0, 9), (11, 12)], "other": [(1, 2)]}


def test_flat_rag_serves_the_nearest_chunks_in_the_order_of_the_record():
    s, own = state(), serving.pieces(ENTRIES, 4)
    assert max(len(p.entry.text[p.start:p.end].split()) for p in own) <= 4
    vectors = ENCODER.encode([p.text for p in own])
    arm = serving.FlatRag({"p1": own}, {"p1": vectors}, {"p1": s}, 2)
    got = arm.serve("p1", "Potassium", ENCODER.encode(["Potassium"])[0])
    assert len(got.text.splitlines()) == 2 and got.text.splitlines() == sorted(got.text.splitlines())
    assert "Potassium" in got.text and {i.memory.concept for i in got.items} >= {"potassium"}
    assert arm.serve("p1", "Potassium", ENCODER.encode(["Potassium"])[0]) == got
    none = serving.FlatRag({"p1": []}, {"p1": np.empty((0, 64))}, {"p1": s}, 2)
    assert none.serve("p1", "x", np.zeros(64)).text == ""


def test_from_memory_can_hide_where_a_memory_stands():
    s = slots.same_slot(state())
    mids = list(s.memories)
    vectors = {"p1": (mids, ENCODER.encode([s.memories[m].text for m in mids]))}
    query = ENCODER.encode(["lisinopril"])[0]
    read = ReadConfig()
    told = serving.FromMemory({"p1": s}, vectors, read).serve("p1", "", query)
    hidden = serving.FromMemory({"p1": s}, vectors, read, told=False).serve("p1", "", query)
    assert "(past:" in told.text and "(past:" not in hidden.text and told.mids == hidden.mids
    assert {i.place for i in told.items} == {"ACTIVE", "HISTORY"} and {i.place for i in hidden.items} == {"ACTIVE"}
    assert all(i.past is None for i in hidden.items)
    active = serving.FromMemory({"p1": s}, vectors, read, "ACTIVE").serve("p1", "", query)
    assert set(active.mids) == {m.mid for m in s.active()}


class Keeps:
    """A memory system that serves whole entries, those with the most words of the question first."""

    def search(self, patient_id, question, most):
        words = set(question.lower().split())
        own = [external.Line(e.text, e.date, e.entry_key) for e in ENTRIES]
        return sorted(own, key=lambda line: -len(words & set(line.text.lower().split())))[:most]


def test_from_system_serves_lines_and_reads_each():
    read = {e.text: own for e, own in zip(ENTRIES, MEMORIES)}
    arm = serving.FromSystem(Keeps(), 1, lambda patient, line: read[line.text])
    got = arm.serve("p1", "Allergic to latex", np.zeros(1))
    assert got.text == "[2024-05-01] Potassium 4.4. Allergic to latex.\n"
    assert got.mids == tuple(m.mid for m in MEMORIES[4])
