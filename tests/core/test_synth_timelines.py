"""Planted timelines keep their promises: frozen, gold consistent with itself and with the text, wordings apart."""
from __future__ import annotations

import copy
import datetime as dt
import hashlib
import json
import pathlib
import re
import subprocess
import sys

import pytest

from core_jax.records import RecordError
from core_jax.synth import timeline_heldout, timelines
from core_jax.synth.timeline_gold import ENDURANCE, QUESTION_TYPES, REASONS, RELATION_TYPES
from core_jax.synth.timeline_questions import PER_TYPE
from core_jax.synth.timelines import (
    PHRASES,
    TimelineConfig,
    fingerprint,
    generate,
    read_timelines,
    timeline_from_dict,
    timeline_to_dict,
    write_timelines,
)

# timeline/1, frozen before any rules were measured on it. A difference means a new version, never a new hash here.
FROZEN_FIRST_20 = {
    "train": "272c317accadd5f5949caab7353be6be471c5113486e9b43ced06a1d33d978c3",
    "heldout": "3479a59e6f8b9dbadb0163384731c141dd12aa01011900f2f4f6a1373963e3e1",
}
FROZEN_HELDOUT_FILE = "aad244c91aa9581f3486098bd1cf60f08a8dac42488ab92d405069529ec278e5"
N = 150


@pytest.fixture(scope="module")
def said():
    """(wording, act, voice) of every sentence that the fixture below had written."""
    return set()


@pytest.fixture(scope="module", params=["train", "heldout"])
def cohort(request, said):
    written = timelines._Writer.say

    def say(self, act, voice, *rest):
        said.add((self.phrases.name, act.say, voice))
        return written(self, act, voice, *rest)

    timelines._Writer.say = say
    try:
        yield list(generate(TimelineConfig(n=N, phrases=request.param)))
    finally:
        timelines._Writer.say = written


def _by_id(timeline):
    return {f.fact_id: f for f in timeline.facts}


def _order(timeline):
    return {e.session: i for i, e in enumerate(timeline.entries)}


@pytest.mark.parametrize("phrases", ["train", "heldout"])
def test_frozen(phrases):
    assert fingerprint(TimelineConfig(n=20, phrases=phrases)) == FROZEN_FIRST_20[phrases]


def test_heldout_file_is_frozen():
    data = pathlib.Path(timeline_heldout.__file__).read_bytes()
    assert hashlib.sha256(data).hexdigest() == FROZEN_HELDOUT_FILE


def test_timeline_depends_on_seed_index_and_wording_not_on_n(cohort):
    name = cohort[0].phrases
    assert list(generate(TimelineConfig(n=2, phrases=name))) == cohort[:2]
    assert next(generate(TimelineConfig(n=1, seed=1, phrases=name))).entries != cohort[0].entries
    assert len({t.patient_id for t in cohort}) == N


@pytest.mark.parametrize("config", [TimelineConfig(n=0), TimelineConfig(seed=-1), TimelineConfig(entries=(3, 9)),
                                    TimelineConfig(entries=(9, 5)), TimelineConfig(phrases="test")])
def test_bad_config(config):
    with pytest.raises(ValueError, match="expected"):
        next(generate(config))


def test_length_of_the_record_follows_the_config():
    for t in generate(TimelineConfig(n=20, entries=(4, 6))):
        assert 4 <= len(t.entries) - sum(e.kind == "scanned" for e in t.entries) <= 6


def test_entries_come_in_order_of_date(cohort):
    for t in cohort:
        dates = [e.date for e in t.entries if e.date]
        assert dates == sorted(set(dates)) and all((e.date is None) == (e.kind == "scanned") for e in t.entries)
    kinds = {e.kind for t in cohort for e in t.entries}
    assert kinds == {"clinic", "discharge", "phone", "dialogue", "medication list", "scanned"}


def test_evidence_is_in_the_text(cohort):
    """The span names the concept in one of its words and states the value as written."""
    phrases = PHRASES[cohort[0].phrases]
    for t in cohort:
        for f in t.facts:
            words = re.sub(r"\s+", " ", t.evidence(f)).lower()
            forms = [n.lower() for n in phrases.names.get(f.concept, (f.concept,))]
            if f.attribute != "preference":
                assert any(n in words for n in forms), (t.patient_id, f, words)
            if f.attribute in ("dose", "value", "allergy", "preference") and f.value:
                stated = f.value.split()[0] if f.attribute == "dose" else f.value
                assert any(n.lower() in words for n in phrases.names.get(stated, (stated,))), (t.patient_id, f, words)
            assert not words.endswith(".") and words == words.strip()


def test_a_long_note_of_the_heldout_wording_is_wrapped_and_spans_survive():
    t = next(t for t in generate(TimelineConfig(n=30, phrases="heldout"))
             if any("\n" in t.evidence(f) for f in t.facts))
    for e in t.entries:
        if e.kind in ("clinic", "discharge"):
            assert max(map(len, e.text.splitlines())) <= 68


def test_facts_of_a_slot_come_in_order_of_time(cohort):
    """So that a fact which arrives later is never the earlier one, unless it is marked late."""
    for t in cohort:
        last = {}
        for f in t.facts:
            if f.polarity == "CONDITIONAL" or f.when.start is None:
                continue
            if f.late:
                assert f.when.start < last[f.key]
                if f.when.precision == "month":  # the whole month lies before
                    assert f.when.start[:7] < last[f.key][:7]
            else:
                assert f.key not in last or f.when.start > last[f.key]
                last[f.key] = f.when.start
            entry = next(e for e in t.entries if e.session == f.session)
            assert f.when.start <= entry.date
            assert f.when.source != "entry_default" or f.when.start == entry.date


def test_planned_ends_are_what_the_text_says(cohort):
    seen = set()
    for t in cohort:
        for f in t.facts:
            if not f.when.end_planned or f.restates:
                continue
            start, end = dt.date.fromisoformat(f.when.start), dt.date.fromisoformat(f.when.end)
            text = re.sub(r"\s+", " ", t.evidence(f))
            if days := re.search(r"(\d+)(?: |-)?d(?:ays?)?\b", text) if f.attribute == "dose" else None:
                seen.add("days")
                assert (end - start).days == int(days.group(1)), text
            elif day := re.search(r"\d{4}-\d\d-\d\d|\d\d/\d\d/\d{4}", text):
                seen.add(f.attribute)
                last = end - dt.timedelta(1)
                assert day.group() in (last.isoformat(), f"{last:%m/%d/%Y}"), text
    assert seen == {"days", "dose", "plan"}


def test_undated_entries_give_unknown_times(cohort):
    found = [(f, e) for t in cohort for f in t.facts for e in t.entries if e.session == f.session and e.date is None]
    assert found and all(f.when == timelines.When(None, None, "unknown", "unknown") for f, _ in found)


def test_transitions(cohort):
    """Each fact leaves at most once, not before it came, to a successor of the patient's own slot (or by cascade)."""
    seen = set()
    for t in cohort:
        facts, order = _by_id(t), _order(t)
        assert len({x.fact for x in t.transitions}) == len(t.transitions)
        for x in t.transitions:
            fact, after = facts[x.fact], facts.get(x.successor)
            seen |= {(x.reason, x.cascade)}
            assert fact.restates is None and set(x.accept) <= set(REASONS)
            assert order[x.session] > order[fact.session] or x.reason == "PRIOR_STATE"
            if x.reason == "EXPIRED":
                entry = t.entries[order[x.session]]
                before = [e.date for e in t.entries[order[fact.session]:order[x.session]] if e.date]
                assert after is None and fact.when.end_planned and fact.when.end <= entry.date
                assert all(d < fact.when.end for d in before)
                continue
            assert after.experiencer == fact.experiencer == "PATIENT"
            assert after.restates is None and (order[after.session] == order[x.session] or fact.late)
            if x.cascade:
                assert (fact.attribute, after.attribute, after.polarity) == ("plan", "dose", "NEGATED")
                names = {fact.concept, *t.aliases.get(fact.concept, ())}
                assert not any(n in t.evidence(after).lower() for n in names)
                drug = next(facts[r.dst] for r in t.relations if r.type == "monitoring_for" and r.src == x.fact)
                assert drug.concept == after.concept
            else:
                assert after.key == fact.key
            assert fact.late == (x.reason == "PRIOR_STATE")
    assert seen == {("SUPERSEDED", False), ("RESOLVED", False), ("RESOLVED", True), ("CORRECTED", False),
                    ("EXPIRED", False), ("PRIOR_STATE", False)}


def test_supersession_pairs_are_the_changes_of_value(cohort):
    """Recomputed from the facts alone: what was known of a slot, and each affirmed value that differs from it."""
    for t in cohort:
        gone, known, expected = {x.fact: x for x in t.transitions}, {}, []
        for f in t.facts:
            if f.polarity == "CONDITIONAL" or f.restates:
                continue
            before = known.get(f.key)
            expired = before and gone.get(before.fact_id) and gone[before.fact_id].reason == "EXPIRED"
            if f.late:
                expected.append((f.fact_id, before.fact_id, f.session, True))
                continue
            if before and not expired and before.polarity == f.polarity == "AFFIRMED" and before.value != f.value:
                expected.append((before.fact_id, f.fact_id, f.session, False))
            known[f.key] = f
        assert [(p.old, p.new, p.session, p.late) for p in t.pairs] == expected


def test_current_state_holds_one_fact_a_slot_and_grows_out_of_the_transitions(cohort):
    for t in cohort:
        facts = _by_id(t)
        for i, e in enumerate(t.entries):
            now = t.current(e.session)
            single = [f.key for f in now if f.restates is None and f.polarity != "CONDITIONAL"]
            assert len(single) == len(set(single))
            if i:
                before = {f.fact_id for f in t.current(t.entries[i - 1].session)}
                left = before - {f.fact_id for f in now}
                ended = {x.fact for x in t.transitions if x.session == e.session}
                assert {facts[x].restates or x for x in left} <= ended
        assert {f.fact_id for f in t.current()} == {f.fact_id for f in t.facts if f.status != "past"}
        for f in t.facts:
            if f.restates:
                same = facts[f.restates]
                assert (same.key, same.value, same.restates) == (f.key, f.value, None) and same.status == f.status
    with pytest.raises(KeyError):
        cohort[0].current("s999")


def test_relatives_never_touch_the_patient(cohort):
    trap = 0
    for t in cohort:
        facts = _by_id(t)
        family = {f.fact_id for f in t.facts if f.experiencer == "FAMILY"}
        assert family and not any({r.src, r.dst} & family for r in t.relations)
        assert not any({x.fact, x.successor} & family for x in t.transitions)
        assert all(facts[i].status == "current" for i in family)
        trap += any(f.experiencer == "PATIENT" and (f.concept, f.attribute) == (facts[i].concept, facts[i].attribute)
                    for i in family for f in t.facts)
    assert trap >= N // 4  # the same concept of the patient's own


def test_conditions_change_nothing(cohort):
    seen = 0
    for t in cohort:
        for f in t.facts:
            if f.polarity == "CONDITIONAL":
                seen += 1
                assert f.status in ("current", "open") and f.fact_id not in {x.fact for x in t.transitions}
                assert f.fact_id not in {i for p in t.pairs for i in (p.old, p.new)}
    assert seen >= N // 10


def test_relations(cohort):
    ends = {"treatment_for": ("dose", "status"), "monitoring_for": ("plan", "dose"),
            "drug_interaction": ("dose", "dose"), "systemic_link": ("status", "status")}
    phrases, seen = PHRASES[cohort[0].phrases], set()
    drugs = {*phrases.drugs, *(d for pair in phrases.interactions for d in pair)}
    treats = {(d.name, d.treats) for d in drugs} | {(c.drug, c.problem) for c in phrases.courses}
    harms = {(d.name, d.adverse) for d in drugs} | set(phrases.complications)
    monitors = {(d.monitor[0], d.name) for d in drugs if d.monitor}
    pairs = {(b.name, a.name) for a, b in phrases.interactions} | {(a.name, b.name) for a, b in phrases.interactions}
    allowed = {"treatment_for": treats, "causal": harms, "monitoring_for": monitors, "drug_interaction": pairs,
               "systemic_link": {(b, a) for a, b in phrases.complications} | set(phrases.complications)}
    for t in cohort:
        facts = _by_id(t)
        assert len({(r.src, r.dst, r.type) for r in t.relations}) == len(t.relations)
        for r in t.relations:
            a, b = facts[r.src], facts[r.dst]
            seen.add((r.type, a.attribute) if r.type == "causal" else r.type)
            assert r.type not in allowed or (a.concept, b.concept) in allowed[r.type]
            if r.type in ends:
                assert (a.attribute, b.attribute) == ends[r.type]
            elif r.type == "causal":
                assert a.attribute in ("dose", "status") and b.attribute == "status" and a.concept != b.concept
            elif r.type == "restatement":
                assert b.restates == a.fact_id
            else:
                assert a.key == b.key
            if r.type not in timelines.DIRECTED:
                assert a.fact_id < b.fact_id
    assert seen == set(RELATION_TYPES) - {"causal"} | {("causal", "dose"), ("causal", "status")}


def test_endurance_labels(cohort):
    of = {}
    for t in cohort:
        for f in t.facts:
            of.setdefault(f.endurance, set()).add(f.attribute)
            if f.attribute in ("allergy", "procedure") or f.experiencer == "FAMILY" and f.attribute == "status":
                assert f.endurance == "never-forget"
    assert set(of) == set(ENDURANCE) and "value" in of["safe-to-forget"] and "dose" in of["uncertain"]


def test_questions(cohort):
    counts, needed = dict.fromkeys(QUESTION_TYPES, 0), dict.fromkeys(QUESTION_TYPES, 0)
    for t in cohort:
        facts = _by_id(t)
        assert len({q.question_id for q in t.questions}) == len(t.questions)
        assert len({q.text for q in t.questions}) == len(t.questions)
        for q in t.questions:
            counts[q.type] += 1
            needed[q.type] += q.history_needed
            assert list(q.sessions) == list(dict.fromkeys(facts[i].session for i in q.facts))
            assert q.history_needed == any(facts[i].status == "past" for i in q.facts)
            assert q.facts or q.type == "absence"
    assert all(N <= c <= N * PER_TYPE for c in counts.values()), counts
    assert needed["current_state"] == needed["absence"] == 0 and needed["past_state"] == counts["past_state"]
    assert 0 < needed["multi_hop"] < counts["multi_hop"] and 0 < needed["temporal_order"] < counts["temporal_order"]


def test_answers_follow_from_the_facts(cohort):
    """Recomputed apart from the question writer: the value that holds, the one before it, what came first."""
    for t in cohort:
        facts = _by_id(t)
        for q in t.questions:
            evidence = [facts[i] for i in q.facts]
            if q.type == "current_state":
                (f,) = evidence
                rivals = [g for g in t.facts if g.key == f.key and g.status == "current" and g.restates is None
                          and g.polarity == "AFFIRMED"]
                assert rivals == [f] and f.value.split()[0] in q.answers[0]
            elif q.type == "past_state" and len(evidence) == 2 and evidence[0].key == evidence[1].key:
                old, new = evidence
                assert (old.fact_id, new.fact_id) in {(p.old, p.new) for p in t.pairs}
                assert old.value.split()[0] in q.answers[0] and old.status == "past"
            elif q.type == "temporal_order":
                first, second = sorted(evidence, key=lambda f: dt.date.fromisoformat(f.when.start))
                assert q.answers == (first.concept,) and first.when.start != second.when.start
            elif q.type == "absence" and not evidence:
                concept = q.text.removeprefix("Does the record mention ").removesuffix(" of the patient?")
                assert not any(concept in e.text.lower() for e in t.entries)
            elif q.type == "change" and q.text.startswith("Why was"):
                stop, effect = evidence
                assert stop.polarity == "NEGATED" and q.answers == (effect.concept,)
                assert f"Why was {stop.concept} stopped?" == q.text


def test_every_act_is_written_in_every_voice(cohort, said):
    name = cohort[0].phrases
    rare = {(a, v) for a, v in PHRASES[name].say if a.startswith("pref.") or a.endswith(".correct")}  # two in a hundred
    unsaid = PHRASES[name].say.keys() - rare - {(a, v) for n, a, v in said if n == name}
    assert not unsaid


def test_wordings_are_apart():
    """No template in common; those of one act share few words; heldout has as many of each and concepts of its own."""
    train, heldout = PHRASES["train"], PHRASES["heldout"]
    assert not {x for v in train.say.values() for x in v} & {x for v in heldout.say.values() for x in v}
    small = {"a", "d", "i", "is", "my", "of", "p", "the", "to"}

    def words(template):
        return set(re.findall("[a-z]+", re.sub(r"\{[^}]*\}", " ", template.lower()))) - small

    for key in train.say.keys() & heldout.say.keys():
        assert len(heldout.say[key]) >= len(train.say[key])
        for a in map(words, train.say[key]):
            for b in map(words, heldout.say[key]):
                assert not a | b or len(a & b) / len(a | b) < 0.4, (key, a, b)
    apart = {a for a, _ in train.say.keys() ^ heldout.say.keys()}
    assert all(a.startswith(("pref.diet", "pref.mobility_aid")) for a in apart)
    for field in ("frequencies", "intervals"):
        a, b = getattr(train, field), getattr(heldout, field)
        assert a.keys() == b.keys() and not any(set(a[k]) & set(b[k]) for k in a)
    assert len({d.name for d in heldout.drugs} - {d.name for d in train.drugs}) >= 8


def test_json_round_trip(cohort, tmp_path):
    path = tmp_path / "timelines.jsonl.gz"
    assert write_timelines(path, cohort[:10]) == 10
    assert list(read_timelines(path)) == cohort[:10]


def _set(raw, path, value):
    *way, last = path
    for step in way:
        raw = raw[step]
    if value is _set:
        del raw[last]
    else:
        raw[last] = value


@pytest.mark.parametrize("path, value, field", [
    (("schema",), "timeline/2", "schema"), (("extra",), 1, "extra"), (("facts",), _set, "facts"),
    (("entries", 0, "date"), "2020-2-3", "entries[0].date"), (("entries", 0, "kind"), "letter", "entries[0].kind"),
    (("entries", 1, "session"), "s000", "entries[1].session"), (("entries", 0, "text"), 5, "entries[0].text"),
    (("facts", 1, "end"), 10**6, "facts[1].end"), (("facts", 1, "start"), True, "facts[1].start"),
    (("facts", 0, "session"), "s999", "facts[0].session"), (("facts", 1, "fact_id"), "f000", "facts[1].fact_id"),
    (("facts", 0, "restates"), "f001", "facts[0].restates"), (("facts", 0, "polarity"), "MAYBE", "facts[0].polarity"),
    (("facts", 0, "when", "precision"), "week", "facts[0].when.precision"), (("facts", 0, "unit"), "", "facts[0].unit"),
    (("pairs", 0, "old"), "f999", "pairs[0].old"), (("transitions", 0, "accept"), [], "transitions[0].accept"),
    (("transitions", 0, "accept"), ["GONE"], "transitions[0].accept"),
    (("relations", 0, "type"), "friend", "relations[0].type"), (("relations", 0, "dst"), None, "relations[0].dst"),
    (("questions", 0, "answers"), "20 mg", "questions[0].answers"),
    (("questions", 0, "sessions"), ["s999"], "questions[0].sessions"), (("aliases",), [], "aliases"),
    (("entries",), {}, "entries"), (("facts", 0), [], "facts[0]"), (("split",), "dev", "split"),
])
def test_bad_json_names_file_line_and_field(tmp_path, path, value, field):
    good = timeline_to_dict(next(generate(TimelineConfig(n=1))))
    bad = copy.deepcopy(json.loads(json.dumps(good)))
    bad["patient_id"] = "other"
    _set(bad, path, value)
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
    with pytest.raises(RecordError) as e:
        list(read_timelines(file))
    assert (e.value.line, e.value.field) == (2, field) and str(e.value).startswith(f"{file}:2: {field}: ")


def test_a_patient_twice_and_no_object(tmp_path):
    line = json.dumps(timeline_to_dict(next(generate(TimelineConfig(n=1)))))
    file = tmp_path / "t.jsonl"
    file.write_text(line + "\n" + line + "\n")
    with pytest.raises(RecordError, match=r":2: patient_id: .*line 1 already"):
        list(read_timelines(file))
    with pytest.raises(RecordError, match="got list"):
        timeline_from_dict([])


def test_imports_without_jax():
    script = ("import sys\n"
              "class Block:\n"
              "    def find_spec(self, name, path=None, target=None):\n"
              "        if name.split('.')[0] in ('jax', 'jaxlib', 'flax'):\n"
              "            raise ImportError('blocked: ' + name)\n"
              "sys.meta_path.insert(0, Block())\n"
              f"sys.path[:0] = [{str(pathlib.Path(timelines.__file__).parents[2])!r}]\n"
              "from core_jax.synth.timelines import generate, TimelineConfig\n"
              "import stam_jax.metrics, core_jax.stats\n"
              "print(len(next(generate(TimelineConfig(n=1))).entries) > 0)\n")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr
