"""The planted cohort keeps its promises: frozen, balanced, gold exact, evidence and distractors as described."""
from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from core_jax.records import patient_from_dict, patient_to_dict, read_jsonl, read_labels, read_patients, visible
from core_jax.synth import (
    FACTORS,
    ORACLE_QUERIES,
    PROFILES,
    RAG_QUERIES_CODE,
    RAG_QUERIES_NOTE,
    PlantedConfig,
    expected_auc,
    generate,
    write,
)
from core_jax.synth import cohort as cohort_module
from core_jax.synth import distractors as plain
from core_jax.synth.factors import split_phrases

# planted/1, frozen before any model was trained on it. A difference means a new version, never a new hash here.
FROZEN_FIRST_20 = "1cbe494cdde849aa7912db47af1d865456905fc3a1ad536cd7b1c357cb8ecad8"
FROZEN_VOCABULARY = "5f68e68d0678a3e9d606084ea9bc6b86f0cfdf84c531cc24ed311e130893344d"


@pytest.fixture(scope="module")
def cohort():
    return list(generate(PlantedConfig()))


def _smd(x: np.ndarray, y: np.ndarray) -> float:
    a, b = x[y == 1], x[y == 0]
    return float(abs(a.mean() - b.mean()) / np.sqrt((a.var() + b.var()) / 2))


def _rows(gold: dict):
    return gold["factors"] + gold["neutral"]


def test_frozen():
    assert cohort_module.fingerprint(PlantedConfig(n=20)) == FROZEN_FIRST_20
    assert cohort_module.vocabulary_sha256() == FROZEN_VOCABULARY


def test_patient_depends_on_seed_and_index_not_on_n():
    few, more = list(generate(PlantedConfig(n=3, seed=5))), list(generate(PlantedConfig(n=7, seed=5)))
    assert few == more[:3]
    other = next(iter(generate(PlantedConfig(n=1, seed=6))))
    assert other.patient.notes != few[0].patient.notes


@pytest.mark.parametrize("config", [PlantedConfig(n=0), PlantedConfig(seed=-1)])
def test_bad_config(config):
    with pytest.raises(ValueError, match="expected n >= 1"):
        next(generate(config))


def test_vocabulary_size_and_weights():
    assert len(FACTORS) >= 20 and len({f.name for f in FACTORS}) == len(FACTORS)
    assert all(len(f.phrases) >= 15 for f in FACTORS)
    assert sum(f.profile is not None for f in FACTORS) >= 6 and {f.profile for f in FACTORS} == {None, *PROFILES}
    assert sum(f.weight > 0 for f in FACTORS) >= 15 and sum(f.weight < 0 for f in FACTORS) >= 4
    assert sum(len(f.codes) >= 2 for f in FACTORS) >= 15


def test_no_sentence_or_code_serves_two_purposes():
    sentences = [s for f in FACTORS for s in (*f.phrases, *f.decoys, f.definition)]
    sentences += [s for t in plain.TOPICS for s in t.phrases] + list(plain.ROUTINE_NOTES)
    sentences += [s for v in plain.BACKGROUND_NOTES.values() for s in v]
    assert len({s.lower() for s in sentences}) == len(sentences)
    codes = [c for f in FACTORS for c, _ in f.codes] + [c for t in plain.TOPICS for c, _ in t.codes]
    codes += [c for c, _ in plain.DECOY_CODES + plain.ROUTINE_CODES]
    codes += [c for v in plain.BACKGROUND_CODES.values() for c, _ in v]
    assert len(set(codes)) == len(codes)


def test_codes_are_real():
    icd = pytest.importorskip("simple_icd_10_cm")
    pairs = [p for group in (*FACTORS, *plain.TOPICS) for p in group.codes] + list(plain.DECOY_CODES)
    pairs += [*plain.ROUTINE_CODES, *(p for v in plain.BACKGROUND_CODES.values() for p in v)]
    assert {c: icd.get_description(c) for c, _ in pairs} == dict(pairs)


def test_phrase_splits_are_disjoint_and_complete():
    for words in [f.phrases for f in FACTORS] + [f.decoys for f in FACTORS] + [t.phrases for t in plain.TOPICS]:
        parts = split_phrases(words)
        assert sorted(s for p in parts.values() for s in p) == sorted(words)
        assert all(len(p) >= 1 for p in parts.values()) and len(parts["test"]) >= 2
        assert parts == split_phrases(tuple(reversed(words)))
    assert {k: len(v) for k, v in split_phrases(FACTORS[0].phrases).items()} == {"train": 10, "val": 2, "test": 5}


def test_spans_are_exact_and_of_the_split(cohort):
    words = {f.name: split_phrases(f.phrases) for f in FACTORS}
    other = {(t.name, "topic"): split_phrases(t.phrases) for t in plain.TOPICS}
    other |= {(f.name, "decoy"): split_phrases(f.decoys) for f in FACTORS}
    for p in cohort:
        text = {n.note_id: n.text for n in p.patient.notes}
        codes = {c.obs_id for c in p.patient.codes}
        for row in _rows(p.gold):
            quotes = [text[s["note_id"]][s["start"]:s["end"]] for s in row["spans"]]
            assert set(quotes) <= set(words[row["factor"]][p.label.split])
            assert quotes or row["codes"], "a factor that acts is never unmentioned"
            assert set(row["codes"]) <= codes
        for row in p.gold["distractors"]:
            quotes = [text[s["note_id"]][s["start"]:s["end"]] for s in row["spans"]]
            assert set(quotes) <= set(other[row["name"], row["kind"]][p.label.split])


def test_gold_is_complete(cohort):
    """No factor sentence and no factor code stands in a record without its gold row."""
    of_code = {f"{c}-10": f.name for f in FACTORS for c, _ in f.codes}
    for p in cohort[::10]:
        gold = {(row["factor"], s["note_id"], s["start"]) for row in _rows(p.gold) for s in row["spans"]}
        phrases = [(f.name, s) for f in FACTORS for s in split_phrases(f.phrases)[p.label.split]]
        found = {(name, n.note_id, n.text.index(s)) for n in p.patient.notes if len(n.text) < 2000
                 for name, s in phrases if s in n.text}
        assert {(a, b) for a, b, _ in found} == {(a, b) for a, b, _ in gold} and found <= gold
        assert {(of_code[c.obs_id], c.obs_id) for c in p.patient.codes if c.obs_id in of_code} == {
            (row["factor"], c) for row in _rows(p.gold) for c in row["codes"]}


def test_weights_act_only_under_their_profile(cohort):
    by_name = {f.name: f for f in FACTORS}
    neutral = set()
    for p in cohort:
        logit = cohort_module.INTERCEPT
        for row in _rows(p.gold):
            f = by_name[row["factor"]]
            acts = f.profile in (None, p.gold["profile"])
            assert row["weight"] == (f.weight if acts else 0.0)
            logit += row["weight"]
            if not acts:
                neutral.add(f.name)
        assert logit == pytest.approx(p.gold["bayes_logit"], abs=1e-6)
        assert p.gold["bayes_prob"] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)
        assert all(row["weight"] != 0 for row in p.gold["factors"])
    assert neutral == {f.name for f in FACTORS if f.profile}


def test_bayes_auc_and_calibration(cohort):
    y = np.array([p.label.label for p in cohort])
    prob = np.array([p.gold["bayes_prob"] for p in cohort])
    test = np.array([p.label.split == "test" for p in cohort])
    assert 0.80 <= expected_auc(prob) <= 0.90
    assert 0.80 <= expected_auc(prob, y) <= 0.90
    assert 0.80 <= expected_auc(prob[test], y[test]) <= 0.90
    assert abs(y.mean() - prob.mean()) < 4 * np.sqrt(np.mean(prob * (1 - prob)) / len(y))


def test_expected_auc_counts_ties_half():
    y = np.array([0, 1, 1, 0, 1])
    p = np.array([0.2, 0.2, 0.9, 0.4, 0.4])
    wins = [(a > b) + 0.5 * (a == b) for a in p[y == 1] for b in p[y == 0]]
    assert expected_auc(p, y) == pytest.approx(np.mean(wins))


def test_classes_are_matched(cohort):
    y = np.array([p.label.label for p in cohort])
    notes = np.array([len(p.patient.notes) for p in cohort])
    of = {
        "age": np.array([p.patient.notes[-1].age_years for p in cohort]),
        "notes": notes, "log notes": np.log(notes),
        "words": np.log([sum(len(n.text.split()) for n in p.patient.notes) for p in cohort]),
        "codes": np.array([len({c.obs_id for c in p.patient.codes}) for p in cohort]),
        "female": np.array([p.patient.sex == "F" for p in cohort]).astype(float),
        "days": np.array([float(p.patient.notes[-1].age_years - p.patient.notes[0].age_years) for p in cohort]),
    } | {name: np.array([p.gold["profile"] == name for p in cohort]).astype(float) for name in PROFILES}
    assert {k: round(_smd(x, y), 3) for k, x in of.items() if _smd(x, y) >= 0.1} == {}


def test_distractors_are_as_frequent_and_carry_nothing(cohort):
    y = np.array([p.label.label for p in cohort])
    evidence = sum(len(row["spans"]) for p in cohort for row in _rows(p.gold))
    distraction = sum(len(row["spans"]) for p in cohort for row in p.gold["distractors"])
    assert 1.0 <= distraction / evidence <= 1.5
    names = [(t.name, "topic") for t in plain.TOPICS] + [(f.name, "decoy") for f in FACTORS]
    present = np.array([[any((r["name"], r["kind"]) == n for r in p.gold["distractors"]) for n in names]
                        for p in cohort]).astype(float)
    z = (present[y == 1].mean(0) - present[y == 0].mean(0)) / (
        present.std(0) * np.sqrt(1 / y.sum() + 1 / (1 - y).sum()))
    assert np.abs(z).max() < 4 and np.mean(z**2) < 2  # 45 looks at chance
    assert all("weight" not in r for p in cohort for r in p.gold["distractors"])


def test_factors_are_independent_but_for_contradictions(cohort):
    at = {f.name: i for i, f in enumerate(FACTORS)}
    x = np.zeros((len(cohort), len(FACTORS)))
    for i, p in enumerate(cohort):
        x[i, [at[row["factor"]] for row in _rows(p.gold)]] = 1
    r = np.corrcoef(x, rowvar=False) - np.eye(len(FACTORS))
    for name, others in cohort_module.EXCLUDES.items():
        for other in others:
            assert not np.any(x[:, at[name]] * x[:, at[other]])
            r[at[name], at[other]] = r[at[other], at[name]] = 0
    assert np.abs(r).max() < 4.2 / np.sqrt(len(cohort)) + 0.05
    acting = np.array([len(p.gold["factors"]) for p in cohort])
    assert 3 <= acting.mean() <= 5


def test_sizes(cohort):
    """20 to 400 observations a patient; a chunk is about 150 words (200 tokens)."""
    total, notes = [], 0
    for p in cohort:
        chunks = sum(max(1, -(-len(n.text.split()) // 150)) for n in p.patient.notes)
        notes += chunks
        total.append(chunks + len({c.obs_id for c in p.patient.codes}))
    assert 20 <= min(total) and max(total) <= 400 and 35 <= np.mean(total) <= 50
    assert max(total) > 4 * np.mean(total), "a long tail"
    assert notes <= 130_000
    distinct = {(int(n.age_years), n.text) for p in cohort for n in p.patient.notes}
    assert len(distinct) <= 90_000
    summaries = np.mean([any(n.type == "discharge summary" for n in p.patient.notes) for p in cohort])
    assert 0.2 < summaries < 0.3


def test_records_are_valid_and_end_at_the_prediction_time(cohort):
    for p in cohort[::15]:
        assert patient_from_dict(json.loads(json.dumps(patient_to_dict(p.patient)))) == p.patient
        seen = visible(p.patient, p.label.prediction_time)
        assert seen == dataclasses.replace(p.patient, death_date=None)
        assert (p.patient.death_date is not None) == (p.label.label == 1)
        if p.patient.death_date:
            assert p.patient.death_date > p.label.prediction_time[:10]
        times = {e.encounter_id: (e.start, e.end) for e in p.patient.encounters}
        assert all(times[n.encounter_id][0] <= n.time <= times[n.encounter_id][1] for n in p.patient.notes)


def test_decoys_stand_before_their_factor(cohort):
    """A chart says "no home oxygen" before the oxygen, not after it; so both may be present without contradiction."""
    pairs = 0
    for p in cohort:
        first = {r["factor"]: min((s["note_id"] for s in r["spans"]), default="") for r in _rows(p.gold)}
        for row in p.gold["distractors"]:
            if row["kind"] == "decoy" and first.get(row["name"]):
                pairs += 1
                assert all(s["note_id"] <= first[row["name"]] for s in row["spans"])
    assert pairs > 100


def test_queries_are_fixed_and_not_copied():
    assert len(RAG_QUERIES_NOTE) == 8 and len(RAG_QUERIES_CODE) == 8
    assert set(ORACLE_QUERIES) == {f.name for f in FACTORS}
    phrases = {s.lower().rstrip(".") for f in FACTORS for s in f.phrases}
    for query in [*RAG_QUERIES_NOTE, *RAG_QUERIES_CODE, *ORACLE_QUERIES.values()]:
        parts = {part.strip().lower().rstrip(".") for part in query.split("/")}
        assert not parts & phrases


def test_write(tmp_path):
    summary = write(PlantedConfig(n=30, seed=2), tmp_path)
    assert json.loads((tmp_path / "planted.json").read_text()) == summary
    patients = list(read_patients(tmp_path / "patients.jsonl.gz"))
    labels = read_labels(tmp_path / "labels.jsonl")
    gold = [row for _, row in read_jsonl(tmp_path / "gold.jsonl.gz")]
    made = list(generate(PlantedConfig(n=30, seed=2)))
    assert patients == [p.patient for p in made]
    assert labels == [p.label for p in made] and gold == [p.gold for p in made]
    assert summary["counts"]["patients"] == 30
    assert {s: v["patients"] for s, v in summary["splits"].items()} == {"train": 21, "val": 3, "test": 6}
    assert write(PlantedConfig(n=30, seed=2), tmp_path / "again")["sha256"] == summary["sha256"]


def test_imports_without_jax(repository):
    code = "import sys; sys.modules['jax'] = None; import core_jax.synth"
    assert subprocess.run([sys.executable, "-c", code], cwd=repository).returncode == 0
