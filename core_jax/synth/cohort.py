"""Seeded longitudinal patients whose one-year mortality is driven by planted evidence, with gold for every patient.

bayes_logit = INTERCEPT + the weights of the patient's acting factors; label ~ Bernoulli(sigmoid(bayes_logit)). The
number of notes, the planned number of codes, age, sex and profile are drawn before the factors and apart from them.
A planted sentence takes the place of a routine one. Each split has its own wording of factors, topics and decoys;
routine notes, profile notes, note parts and code titles are common to all splits.

Weights and intercept were tuned on the analytic probabilities alone (`expected_auc`), and frozen as `VERSION`.
A patient depends on (seed, index) only, never on n; the split is a function of the index (7:1:2 in each ten).
"""
from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import math
import os
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from core_jax.records import (
    Code,
    Encounter,
    Label,
    Note,
    Patient,
    age_years,
    atomic_write,
    patient_to_dict,
    write_jsonl,
)
from core_jax.synth import distractors as plain
from core_jax.synth.factors import FACTORS, PROFILES, VERSION, split_phrases
from core_jax.synth.stream import Stream

INTERCEPT = -2.5
NOTES_MIN, NOTES_MAX = 20, 370  # codes and the chunks of a long summary keep the total under 400
CODES_MIN, CODES_MAX = 12, 16
SPLITS = ("train",) * 7 + ("val",) + ("test",) * 2
EXCLUDES = {"bedbound": ("daily_exercise", "independent"), "cachexia": ("good_appetite",)}  # plain contradictions
DECOY_RATE = 0.6  # of the rate of the factor that the decoy resembles
SUMMARY_RATE = 0.25
SEX_OF_CODE = {"C61": "M", "C50.912": "F", "Z12.31": "F"}
TASK = {"name": "mortality_1y", "sentence": "death within one year after the prediction time"}

_FACTOR_WORDS = {f.name: split_phrases(f.phrases) for f in FACTORS}
_DECOY_WORDS = {f.name: split_phrases(f.decoys) for f in FACTORS}
_TOPIC_WORDS = {t.name: split_phrases(t.phrases) for t in plain.TOPICS}


@dataclasses.dataclass(frozen=True)
class PlantedConfig:
    """n patients, indices 0..n-1, of the population named by `seed`."""

    n: int = 3000
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class PlantedPatient:
    """gold: {"patient_id", "split", "profile", "bayes_prob", "bayes_logit", "factors", "neutral", "distractors"}.

    factors (acting, weight != 0) and neutral (present, but of another profile) are lists of
    {"factor", "weight", "spans": [{"note_id", "start", "end"}], "codes": [obs_id]}; distractors have "name" and "kind"
    ("topic" or "decoy") in place of factor and weight. Offsets are characters of note.text.
    """

    patient: Patient
    label: Label
    gold: dict


@dataclasses.dataclass
class _Slot:
    """One note to be: its moment, its encounter, and the planted (item, sentence) pairs that it will hold."""

    day: int
    minute: int
    encounter: int
    kind: str
    planted: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class _Item:
    """A factor, topic or decoy of this patient, with its mentions."""

    row: dict
    sentences: list[str]
    codes: list[tuple[str, str]]
    before: _Item | None = None  # a decoy stands before the first mention of the factor that it resembles
    first: int = 0  # place of the first mention, an index into the open slots, in the end into all slots


def generate(config: PlantedConfig) -> Iterator[PlantedPatient]:
    """Yields config.n patients in index order. Raises: ValueError if n < 1 or seed < 0."""
    if config.n < 1 or config.seed < 0:
        raise ValueError(f"planted cohort: got n={config.n}, seed={config.seed}, expected n >= 1 and seed >= 0")
    for index in range(config.n):
        yield _patient(config.seed, index)


def _mentions(rng: Stream, words: Sequence[str], codes: Sequence[tuple[str, str]]) -> tuple[list, list]:
    """One to three sentences and, for half of what can be coded, one or two codes; now and then the codes alone."""
    way = rng.weighted((0.50, 0.35, 0.15)) if codes else 0
    sentences = [] if way == 2 else rng.sample(words, 1 + rng.weighted((0.45, 0.35, 0.20)))
    return sentences, [] if way == 0 else rng.sample(codes, min(len(codes), 1 + rng.weighted((0.7, 0.3))))


def _items(rng: Stream, profile: str, split: str) -> tuple[list[_Item], float]:
    """The patient's factors, topics and decoys, and the Bayes logit."""
    present = {f.name: rng.chance(f.rate) for f in FACTORS}
    for name, others in EXCLUDES.items():
        if present[name]:
            present.update(dict.fromkeys(others, False))
    logit, items, of_factor = INTERCEPT, [], {}
    for f in FACTORS:
        if not present[f.name]:
            continue
        weight = f.weight if f.profile in (None, profile) else 0.0
        logit += weight
        sentences, codes = _mentions(rng, _FACTOR_WORDS[f.name][split], f.codes)
        of_factor[f.name] = _Item({"factor": f.name, "weight": weight, "spans": [], "codes": []}, sentences, codes)
    items += of_factor.values()
    for t in plain.TOPICS:
        if rng.chance(t.rate):
            sentences, codes = _mentions(rng, _TOPIC_WORDS[t.name][split], t.codes)
            items.append(_Item({"name": t.name, "kind": "topic", "spans": [], "codes": []}, sentences, codes))
    for f in FACTORS:
        if rng.chance(DECOY_RATE * f.rate):
            sentences = rng.sample(_DECOY_WORDS[f.name][split], 1 + rng.weighted((0.7, 0.3)))
            row = {"name": f.name, "kind": "decoy", "spans": [], "codes": []}
            items.append(_Item(row, sentences, [], before=of_factor.get(f.name)))
    return items, logit


def _slots(rng: Stream, n_notes: int, span_days: int, summary: bool) -> tuple[list[_Slot], list[tuple[str, int, int]]]:
    """Note slots in time order and encounters (type, first day, last day); day 0 begins the history."""
    n_visits = max(4, n_notes // 4)
    days = sorted([0, span_days] + [rng.integer(1, span_days - 1) for _ in range(n_visits - 2)])
    kinds = [("outpatient", "telephone", "home", "inpatient")[rng.weighted((0.5, 0.25, 0.15, 0.1))] for _ in days]
    at = sorted([*range(n_visits)] + [rng.integer(0, n_visits - 1) for _ in range(n_notes - n_visits)])
    chosen = rng.integer(0, n_notes - 1) if summary else None
    if chosen is not None:
        kinds[at[chosen]] = "inpatient"
    last = [d if k != "inpatient" or i == n_visits - 1 else min(span_days, d + rng.integer(2, 9))
            for i, (d, k) in enumerate(zip(days, kinds))]
    slots = []
    for i, v in enumerate(at):
        kind = {"telephone": "telephone", "home": "home", "inpatient": "nursing"}.get(kinds[v])
        kind = kind or ("clinic" if rng.chance(0.8) else "nursing")
        day = rng.integer(days[v], last[v]) if kinds[v] == "inpatient" else days[v]
        slots.append(_Slot(day, rng.integer(8 * 60, 17 * 60), v, kind))
        if i == chosen:
            slots[-1].kind, slots[-1].day, slots[-1].minute = "summary", last[v], 17 * 60 + 30
    order = sorted(range(n_notes), key=lambda i: (slots[i].day, slots[i].minute, i))
    return [slots[i] for i in order], list(zip(kinds, days, last))


def _place(rng: Stream, items: list[_Item], slots: list[_Slot]) -> list[_Slot]:
    """Puts each sentence into an open slot (three a note, six a summary) and keeps some slots for the background.

    Returns the slots that are free of planted text, the ones kept for the background first.
    """
    keep = max(4, round(0.15 * len(slots)))
    short = [s for s in slots if s.kind != "summary"]
    background = {id(s) for s in rng.sample(short, keep)}
    free = [s for s in slots if id(s) not in background]

    def room(s: _Slot) -> bool:
        return len(s.planted) < (6 if s.kind == "summary" else 3)

    def put(item: _Item, sentence: str, low: int, high: int) -> int | None:
        places = [i for i in range(low, high) if room(free[i])]
        places += [i for i in places if free[i].kind == "summary"] * 3
        if not places:
            return None
        i = rng.pick(places)
        free[i].planted.append((item, sentence))
        return i

    for item in items:
        if item.before is not None:
            continue
        at = [i for s in item.sentences if (i := put(item, s, 1, len(free))) is not None]
        item.first = min(at, default=len(free) // 2)
    for item in items:
        if item.before is not None:
            for s in item.sentences:
                put(item, s, 0, item.before.first)
    place = {id(s): i for i, s in enumerate(slots)}
    for item in items:
        item.first = place[id(free[item.first])]
    taken = [s for s in slots if id(s) in background]
    return taken + [s for s in free if not s.planted and s.kind != "summary"]


def _write_short(rng: Stream, slot: _Slot) -> list[tuple[str, _Item | None]]:
    label, openers, closers = plain.NOTE_PARTS[slot.kind]
    body = [(sentence, item) for item, sentence in slot.planted]
    shape = rng.weighted((0.35, 0.30, 0.20, 0.15))
    opener, closer = rng.pick(openers), rng.pick(closers)
    if len(body) == 1 and shape in (1, 3):
        body.insert(0, (opener, None))
    if len(body) < 3 and shape in (2, 3):
        body.append((closer, None))
    return [(label, None), *body]


def _write_summary(rng: Stream, slot: _Slot) -> list[tuple[str, _Item | None]]:
    """Sections of boilerplate; the planted sentences end the history (the first ones) and the hospital course."""
    planted = [(sentence, item) for item, sentence in slot.planted]
    cut = len(planted) // 3
    out: list[tuple[str, _Item | None]] = [("Discharge summary.", None)]
    for title, texts in plain.SUMMARY_SECTIONS:
        chosen = rng.sample(texts, 2) if title == "Hospital course" else [rng.pick(texts)]
        out += [(f"\n\n{title}: {chosen[0]}", None), *((t, None) for t in chosen[1:])]
        out += planted[:cut] if title == "History" else planted[cut:] if title == "Hospital course" else []
    return out


def _join(parts: list[tuple[str, _Item | None]], note_id: str) -> str:
    """The note's text; the span of each planted part is added to its item's row."""
    text = ""
    for part, item in parts:
        if text and not part.startswith("\n"):
            text += " "
        if item is not None:
            item.row["spans"].append({"note_id": note_id, "start": len(text), "end": len(text) + len(part)})
        text += part
    return text


def _patient(seed: int, index: int) -> PlantedPatient:
    rng = Stream(f"{VERSION}:{seed}:{index}")
    split = SPLITS[index % len(SPLITS)]
    patient_id = f"planted-{seed}-{index:05d}"
    profile = rng.pick(PROFILES)
    sex = "F" if rng.chance(0.5) else "M"
    span_days = rng.integer(730, 1460)
    end = dt.date(2016, 1, 1) + dt.timedelta(days=rng.integer(0, 5 * 365))
    birth = end - dt.timedelta(days=int(365.25 * (48 + 40 * rng.uniform())))
    normal = statistics.NormalDist().inv_cdf(min(max(rng.uniform(), 1e-9), 1 - 1e-9))
    n_notes = min(NOTES_MAX, NOTES_MIN + int(5.5 * math.exp(1.1 * normal)))
    n_codes = rng.integer(CODES_MIN, CODES_MAX)
    summary = rng.chance(SUMMARY_RATE)

    items, logit = _items(rng, profile, split)
    slots, visits = _slots(rng, n_notes, span_days, summary)
    free = _place(rng, items, slots)
    begin = end - dt.timedelta(days=span_days)

    def moment(day: int, minute: int) -> str:
        return (dt.datetime.combine(begin, dt.time()) + dt.timedelta(days=day, minutes=minute)).isoformat()

    def age(time: str) -> float:
        return round(age_years(birth.isoformat(), None, time), 4)

    keep = max(4, round(0.15 * n_notes))
    background = plain.BACKGROUND_NOTES[profile]
    plain_text = {id(s): rng.pick(background) for s in free[:keep]}
    plain_text |= {id(s): rng.pick(background if rng.chance(0.1) else plain.ROUTINE_NOTES) for s in free[keep:]}
    notes = []
    for i, slot in enumerate(slots):
        note_id = f"n{i:04d}"
        if slot.kind == "summary":
            text = _join(_write_summary(rng, slot), note_id)
        else:
            text = plain_text.get(id(slot)) or _join(_write_short(rng, slot), note_id)
        time = moment(slot.day, slot.minute)
        kind = "discharge summary" if slot.kind == "summary" else f"{slot.kind} note"
        notes.append(Note(note_id, text, time, age(time), kind, f"e{slot.encounter:04d}"))

    codes = _codes(rng, items, profile, sex, n_codes, slots, visits, moment, age)
    for item in items:
        item.row["spans"].sort(key=lambda s: (s["note_id"], s["start"]))
    prob = 1 / (1 + math.exp(-logit))
    label = int(rng.uniform() < prob)
    prediction_time = moment(span_days, 24 * 60 - 1)
    death = (end + dt.timedelta(days=rng.integer(1, 365))).isoformat()
    encounters = tuple(Encounter(f"e{i:04d}", kind, moment(first, 7 * 60), moment(last, 18 * 60))
                       for i, (kind, first, last) in enumerate(visits))
    patient = Patient(patient_id, sex, birth.isoformat(), None, death if label else None, encounters,
                      tuple(notes), codes)
    gold = {
        "patient_id": patient_id, "split": split, "profile": profile,
        "bayes_prob": round(prob, 9), "bayes_logit": round(logit, 9),
        "factors": [i.row for i in items if i.row.get("weight")],
        "neutral": [i.row for i in items if i.row.get("weight") == 0.0],
        "distractors": [i.row for i in items if "kind" in i.row],
    }
    return PlantedPatient(patient, Label(patient_id, prediction_time, label, split), gold)


def _codes(rng, items, profile, sex, n_codes, slots, visits, moment, age) -> tuple[Code, ...]:
    """Background, factor and topic codes, filled up to n_codes with routine and look-alike ones; some recur later."""
    rows: list[tuple[str, str, int]] = []

    def allowed(pairs):
        return [p for p in pairs if SEX_OF_CODE.get(p[0], sex) == sex]

    for code, title in rng.sample(allowed(plain.BACKGROUND_CODES[profile]), 3):
        rows.append((code, title, rng.integer(0, len(visits) - 1)))
    for item in items:
        for code, title in item.codes:
            rows.append((code, title, slots[rng.integer(item.first, len(slots) - 1)].encounter))
            item.row["codes"].append(f"{code}-10")
    fill = allowed(plain.DECOY_CODES + plain.ROUTINE_CODES)
    for code, title in rng.sample(fill, max(0, n_codes - len(rows))):
        rows.append((code, title, rng.integer(0, len(visits) - 1)))
    rows += [(code, title, rng.integer(v, len(visits) - 1)) for code, title, v in rows if rng.chance(0.3)]
    out = {}
    for code, title, v in rows:
        time = moment(visits[v][2], 18 * 60)
        out[code, v] = Code(code, "10", title, time, age(time), f"e{v:04d}")
    return tuple(sorted(out.values(), key=lambda c: (c.time, c.obs_id)))


# ---- what the generator promises ------------------------------------------------------------------------------

def expected_auc(prob: np.ndarray, positive: np.ndarray | None = None) -> float:
    """AUC of the score `prob` [P] where `positive` [P] is P(label = 1).

    By default that is prob itself: the Bayes AUC in expectation. With 0/1 labels as
    `positive` it is the ordinary AUC, ties counted half.
    """
    prob = np.asarray(prob, np.float64)
    weight = prob if positive is None else np.asarray(positive, np.float64)
    order = np.argsort(prob, kind="stable")
    value, start = np.unique(prob[order], return_index=True)
    pos, neg = np.add.reduceat(weight[order], start), np.add.reduceat(1 - weight[order], start)
    return float(np.sum(pos * (np.cumsum(neg) - neg / 2)) / (pos.sum() * neg.sum()))


def vocabulary_sha256() -> str:
    """Hash of every sentence, weight, rate and code of the package."""
    data = [VERSION, INTERCEPT, [dataclasses.asdict(f) for f in FACTORS],
            [dataclasses.asdict(t) for t in plain.TOPICS], plain.DECOY_CODES, plain.ROUTINE_CODES,
            plain.BACKGROUND_CODES, plain.BACKGROUND_NOTES, plain.ROUTINE_NOTES, plain.NOTE_PARTS, plain.SUMMARY_SECTIONS]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def fingerprint(config: PlantedConfig) -> str:
    """Hash of config.n generated patients: records, labels and gold."""
    sha = hashlib.sha256()
    for p in generate(config):
        row = [patient_to_dict(p.patient), dataclasses.asdict(p.label), p.gold]
        sha.update(json.dumps(row, sort_keys=True, allow_nan=False).encode() + b"\n")
    return sha.hexdigest()


def write(config: PlantedConfig, out_dir: str | os.PathLike) -> dict:
    """Writes patients.jsonl.gz, labels.jsonl, gold.jsonl.gz and planted.json to out_dir; returns planted.json's object.

    A code counts once a patient; `distinct_embedded_*` count pairs of whole age and text. The sha256 are of the files.
    """
    out_dir = os.fspath(out_dir)
    labels: list[Label] = []
    gold: list[dict] = []
    counts = dict.fromkeys(("patients", "encounters", "notes", "codes"), 0)
    distinct_notes: set[tuple] = set()
    distinct_codes: set[tuple] = set()

    def patients() -> Iterator[Patient]:
        for p in generate(config):
            labels.append(p.label)
            gold.append(p.gold)
            first = {}
            for c in p.patient.codes:
                first.setdefault(c.obs_id, (int(c.age_years), c.title))
            counts["patients"] += 1
            counts["encounters"] += len(p.patient.encounters)
            counts["notes"] += len(p.patient.notes)
            counts["codes"] += len(first)
            distinct_notes.update((int(n.age_years), n.text) for n in p.patient.notes)
            distinct_codes.update(first.values())
            yield p.patient

    paths = {name: os.path.join(out_dir, name) for name in ("patients.jsonl.gz", "labels.jsonl", "gold.jsonl.gz")}
    write_jsonl(paths["patients.jsonl.gz"], patients())
    write_jsonl(paths["labels.jsonl"], labels)
    write_jsonl(paths["gold.jsonl.gz"], gold)
    counts |= {"distinct_embedded_notes": len(distinct_notes), "distinct_embedded_codes": len(distinct_codes)}
    y = np.array([label.label for label in labels])
    prob = np.array([g["bayes_prob"] for g in gold])
    split = np.array([label.split for label in labels])

    def figures(at: np.ndarray) -> dict:
        both = 0 < y[at].sum() < at.sum()
        return {"patients": int(at.sum()), "positive": int(y[at].sum()),
                "bayes_auc": expected_auc(prob[at], y[at]) if both else None,
                "bayes_auc_expected": expected_auc(prob[at]) if at.any() else None}

    summary = {
        "schema": VERSION, "config": dataclasses.asdict(config), "task": TASK,
        "vocabulary_sha256": vocabulary_sha256(), "counts": counts,
        "all": figures(np.ones(len(y), bool)), "splits": {s: figures(split == s) for s in ("train", "val", "test")},
        "mean_acting_factors": float(np.mean([len(g["factors"]) for g in gold])),
        "mean_gold_spans": float(np.mean([sum(len(f["spans"]) for f in g["factors"]) for g in gold])),
        "mean_gold_codes": float(np.mean([sum(len(f["codes"]) for f in g["factors"]) for g in gold])),
        "sha256": {name: _sha256(path) for name, path in paths.items()},
    }
    with atomic_write(os.path.join(out_dir, "planted.json")) as f:
        json.dump(summary, f, ensure_ascii=False, allow_nan=False, indent=1)
        f.write("\n")
    return summary


def _sha256(path: str) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
