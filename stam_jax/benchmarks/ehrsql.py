"""EHRSQL 2024 on the MIMIC-IV demo: questions with SQL and published answers, answered from a memory of the tables.

The answer comes out of the store: of the rows that its memories cite, ACTIVE and HISTORY (`table_memory.rows`). No
table and no SQL is read. A question is understood by the wording of EHRSQL's template families; names of drugs, routes
and specimens are looked up in what the store holds, over all its patients. Where a wording leaves open what is meant,
the benchmark's reading is taken: rows of hospital stays only; the first or last microbiology test with an organism. The
wordings were read off these same questions, so the rate says what the store can answer, not how well unseen wordings
are understood.

The published answer is the gold. Every miss has a class (`MISSES`).
"""
from __future__ import annotations

import ast
import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stam_jax.benchmarks.table_memory import Row, stays
from stam_jax.readers.json_document import Document

MISSES = {
    "table not ingested": "the question is about a table that the memory was not told (outputs of the ICU)",
    "not understood": "the wording belongs to no family that is known here",
    "not in memory": "no memory cites a row that answers it",
    "age at the anchor": "the published answer is the patient's anchor age, whatever the year of the stay",
    "other answer": "the memory answers something else",
}
_OUTPUTS = re.compile(r"\boutputs?\b|\bfoley\b|\bor (?:ebl|urine)\b|\btf residual\b", re.IGNORECASE)
_PATIENT = re.compile(r"\b(\d{8})\b")
_SCOPE = re.compile(r"(?:\b(?:on|in|during|of)\s+)?(?:\b(?:the|their|patient \d+'s)\s+)?"
                    r"\b(first|last) (?:hospital|icu) (?:visit|encounter|stay|admission)\b")
_ICU = re.compile(r"Intensive Care|Coronary Care|\b[A-Z]*ICU\b|\bCCU\b")


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """gold: rows of the published answer, each a tuple of words. family: what it asks for; kind: what answering
    takes."""

    question_id: str
    text: str
    sql: str
    gold: tuple[tuple[str, ...], ...]
    family: str
    kind: str


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """answer: None where there is none. miss: None where it is right, else a class of MISSES. rows: what it rests
    on."""

    question: Question
    answer: tuple[str, ...] | None
    miss: str | None
    rows: tuple[str, ...] = ()


def load(path: str | os.PathLike) -> list[Question]:
    """Questions of a JSON file: id, question, sql and answer (a list of rows, as a string).

    Raises: RecordError with file and field: a missing or mistyped field, an answer that is no list of lists.
    """
    document = Document(path)
    out = []
    for i, raw in enumerate(document.check(document.root, list, "the document")):
        where = f"[{i}]"
        name, text, sql, answer = (document.get(raw, n, str, where) for n in ("id", "question", "sql", "answer"))
        try:
            rows = ast.literal_eval(answer)
            gold = tuple(tuple(str(cell) for cell in row) for row in rows)
        except (ValueError, SyntaxError, TypeError, RecursionError):
            document.fail(f"got {answer!r:.60}, expected a list of rows", f"{where}.answer")
        family = family_of(text)
        out.append(Question(name, text, sql, gold, family, _KINDS[family]))
    return out


# ---- what is asked ------------------------------------------------------------------------------------------------

_FAMILIES: tuple[tuple[str, str], ...] = (
    ("output", _OUTPUTS.pattern),
    ("sex", r"\b(?:sex|gender|male or female)\b"),
    ("age", r"\b(?:age|how old)\b"),
    ("insurance", r"\binsurance\b"),
    ("admission type", r"\badmission type\b|\badmitted\b.*\btype\b"),
    ("icu count", r"\b(?:icu visits|go to the icu|number of icu)\b"),
    ("stay count", r"\b(?:count|number of times|number of hospital|total number)\b.*\bhospital\b"),
    ("emergency", r"\bemergency room\b|\be\.?r\.?(?=\W|$)"),
    ("entered", r"\bentered the hospital\b|\bbeen admitted to the hospital\b"),
    ("any organism", r"\bany organism\b"),
    ("organism", r"\borganism\b"),
    ("specimen", r"\bspecimen\b|\bculture was\b|\btested (?:culture|specimen)\b|\btested culture\b"),
    ("any diagnosis", r"^(?!(?:what|tell|which)\b).*\bdiagnos"),
    ("diagnosis", r"\bdiagnos"),
    ("any drug", r"^(?!(?:what|tell|which|how)\b)(?=.*\b(?:medications?|prescriptions?)\b)"
                 r"(?!.*,.*\bor\b)(?!.*(?:show|tell) me).*"),
    ("one of drugs", r",.*,? or "),
    ("total dose", r"\btotal\b|\bhow many doses\b|\bamount of\b(?!.*\b(?:first|last) time\b)(?!.*\blast\b.*\btime\b)"
                   r"|^how much (?!.*\b(?:first|last)\b(?: time)?(?! (?:hospital|icu))).*"),
    ("dose", r"\bdose\b|\bhow much\b|\bamount\b"),
    ("drug", r"\b(?:drug|medication|medicine)\b"),
)
_KINDS = {
    "output": "other table", "sex": "lookup", "age": "date arithmetic", "insurance": "lookup",
    "admission type": "lookup", "icu count": "count", "stay count": "count", "emergency": "yes or no",
    "entered": "yes or no",
    "any organism": "yes or no", "organism": "first or last", "specimen": "first or last", "any diagnosis": "yes or no",
    "diagnosis": "first or last", "any drug": "yes or no", "one of drugs": "yes or no", "total dose": "sum",
    "dose": "first or last", "drug": "first or last", "unknown": "unknown",
}


def family_of(text: str) -> str:
    """What a question asks for: the first family whose wording it has, "unknown" where none does."""
    plain = " ".join(text.lower().split())
    free = _SCOPE.sub(" ", plain)
    found = (name for name, pattern in _FAMILIES if re.search(pattern, free if name == "total dose" else plain))
    return next(found, "unknown")


class Store:
    """What a memory holds of the tables, by patient. rows: of all patients (`table_memory.rows`)."""

    def __init__(self, rows: Mapping[str, Sequence[Row]]):
        self.rows = rows
        self.names = {field: sorted({_plain(r.fields[field]) for of in rows.values() for r in of if r.kind == kind},
                                    key=lambda n: (-len(n), n))
                      for kind, field in (("order", "drug"), ("culture", "spec_type_desc"))}

    def named(self, field: str, text: str) -> str | None:
        """The longest name that the store knows and the text holds as whole words."""
        return next((n for n in self.names[field] if n and re.search(rf"(?<!\w){re.escape(n)}(?!\w)", text)), None)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """A question taken apart. stay: first, last or None = all. end: first or last, of what is asked. text: what is
    left."""

    rows: tuple[Row, ...]
    stay: str | None
    end: str | None
    text: str
    whole: str

    def of(self, kind: str) -> list[Row]:
        """Rows of a kind that belong to the stays asked about."""
        stay_of = _stays(self.rows)
        ids = {s.hadm_id for s in stay_of}
        if self.stay is not None:
            ended = [s for s in stay_of if s.end]
            ids = {(ended[-1] if self.stay == "last" else ended[0]).hadm_id} if ended else set()
        return [r for r in self.rows if r.kind == kind and r.fields.get("hadm_id", "") in ids]

    def at_end(self, rows: list[Row], field: str) -> list[Row]:
        """The rows of the first or the last moment."""
        moments = [r.fields[field] for r in rows if r.fields[field]]
        edge = (max if self.end == "last" else min)(moments) if moments else None
        return [r for r in rows if r.fields[field] == edge] if moments else []


_Answer = tuple[tuple[str, ...], list[Row]]


def _stays(rows: Iterable[Row]):
    return stays([r for r in rows if r.kind in ("admission", "discharge")])


def answer(question: str, store: Store) -> tuple[tuple[str, ...] | None, tuple[str, ...], str | None]:
    """(answer, names of the rows it rests on, why there is none). One question over the whole store."""
    plain = " ".join(question.lower().split())
    family = family_of(question)
    if family == "output":
        return None, (), "table not ingested"
    patient = _PATIENT.search(plain)
    if family == "unknown" or patient is None:
        return None, (), "not understood"
    scope = _SCOPE.search(plain)
    text = _SCOPE.sub(" ", plain) if scope else plain
    end = re.search(r"\b(first|last)\b", text)
    stay = scope[1] if scope else None
    if family in ("insurance", "age", "admission type") and stay is None:
        stay = end[1] if end else None
    asked = _Asked(tuple(store.rows.get(patient[1], ())), stay, end[1] if end else None, text, plain)
    found = _SOLVERS[family](asked, store)
    if found is None:
        return None, (), "not understood"
    said, rows = found
    return (said, tuple(sorted({r.row for r in rows})), None) if said else (None, (), "not in memory")


def _field(rows: list[Row], field: str) -> _Answer:
    return tuple(sorted({_plain(r.fields[field]) for r in rows if r.fields[field]})), rows


def _exists(rows: list[Row]) -> _Answer:
    return ("1" if rows else "0",), rows


def _sex(asked: _Asked, store: Store) -> _Answer | None:
    return _field([r for r in asked.rows if r.kind == "sex"], "gender")


def _age(asked: _Asked, store: Store) -> _Answer | None:
    begun, known = asked.of("admission"), [r for r in asked.rows if r.kind == "age"]
    if not begun or not known:
        return (), []
    year, age = (int(known[0].fields[f]) for f in ("anchor_year", "anchor_age"))
    return (str(age + int(begun[0].fields["admittime"][:4]) - year),), [*begun, *known]


def _insurance(asked: _Asked, store: Store) -> _Answer | None:
    return _field(asked.of("insurance"), "insurance")


def _admission_type(asked: _Asked, store: Store) -> _Answer | None:
    return _field(asked.of("admission"), "admission_type")


def _stay_count(asked: _Asked, store: Store) -> _Answer | None:
    rows = asked.of("admission")
    return (str(len(rows)),), rows


def _icu_count(asked: _Asked, store: Store) -> _Answer | None:
    """A visit is a run of ICU units of one stay, each begun as the one before ended."""
    visits, rows, last = 0, [], ("", "")
    for r in sorted(asked.of("unit"), key=lambda r: (r.fields["hadm_id"], r.fields["intime"])):
        if _ICU.search(r.fields["careunit"]):
            visits += (r.fields["hadm_id"], r.fields["intime"]) != last
            last = r.fields["hadm_id"], r.fields["outtime"]
            rows.append(r)
    return (str(visits),), rows


def _emergency(asked: _Asked, store: Store) -> _Answer | None:
    return _exists([r for r in asked.of("admission") if _plain(r.fields["admission_location"]) == "emergency room"])


def _entered(asked: _Asked, store: Store) -> _Answer | None:
    return _exists(asked.of("admission"))


def _cultures(asked: _Asked, store: Store) -> list[Row] | None:
    text = re.sub(r"patient \d+'s", " ", asked.text)
    specimen = store.named("spec_type_desc", text)
    if specimen is None:
        return None
    rows = [r for r in asked.of("culture") if _plain(r.fields["spec_type_desc"]) == specimen and r.fields["org_name"]]
    return asked.at_end(rows, "taken")


def _organism(asked: _Asked, store: Store) -> _Answer | None:
    rows = _cultures(asked, store)
    return None if rows is None else _field(rows, "org_name")


def _any_organism(asked: _Asked, store: Store) -> _Answer | None:
    rows = _cultures(asked, store)
    return None if rows is None else _exists(rows)


def _specimen(asked: _Asked, store: Store) -> _Answer | None:
    return _field(asked.at_end(asked.of("culture"), "taken"), "spec_type_desc")


def _any_diagnosis(asked: _Asked, store: Store) -> _Answer | None:
    return _exists(asked.of("diagnosis"))


def _diagnosis(asked: _Asked, store: Store) -> _Answer | None:
    return _field(asked.at_end(asked.of("diagnosis"), "known"), "title")


def _any_drug(asked: _Asked, store: Store) -> _Answer | None:
    return _exists(asked.of("order"))


def _one_of_drugs(asked: _Asked, store: Store) -> _Answer | None:
    parts = re.match(r"(.*?), (.*?),? or (.*)", asked.text)
    if parts is None:
        return None
    before, middle, after = (p.strip() for p in parts.groups())
    known = store.names["drug"]
    first = next((n for n in known if re.search(rf"(?:^|\s){re.escape(n)}$", before)), None)
    third = next((n for n in known if re.match(rf"{re.escape(n)}(?:[\s.?]|$)", after)), None)
    return _exists([r for r in asked.of("order") if _plain(r.fields["drug"]) in {first, middle, third}])


def _ordered(asked: _Asked, store: Store) -> list[Row] | None:
    drug = store.named("drug", asked.text)
    return None if drug is None else [r for r in asked.of("order") if _plain(r.fields["drug"]) == drug]


def _amount(row: Row) -> float | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)", row.fields["dose"].split(" ")[0])
    return float(found[1]) if found else None


def _dose(asked: _Asked, store: Store) -> _Answer | None:
    rows = _ordered(asked, store)
    if rows is None or asked.end is None:
        return None
    rows = asked.at_end(rows, "starttime")
    return tuple(sorted(str(a) for r in rows if (a := _amount(r)) is not None)), rows


def _total_dose(asked: _Asked, store: Store) -> _Answer | None:
    rows = _ordered(asked, store)
    if rows is None:
        return None
    amounts = [a for r in rows if (a := _amount(r)) is not None]
    return (str(sum(amounts)),) if amounts else (), rows


def _drug(asked: _Asked, store: Store) -> _Answer | None:
    if asked.end is None:
        return None
    rows = asked.of("order")
    if route := re.search(r"\b(?:using|via|through) (?:an? |the )?(.+?) (?:route|means|method)\b", asked.text):
        rows = [r for r in rows if _plain(r.fields["route"]) == route[1]]
    return _field(asked.at_end(rows, "starttime"), "drug")


_SOLVERS: dict[str, Callable[[_Asked, Store], _Answer | None]] = {
    "sex": _sex, "age": _age, "insurance": _insurance, "admission type": _admission_type, "icu count": _icu_count,
    "stay count": _stay_count, "emergency": _emergency, "entered": _entered, "any organism": _any_organism,
    "organism": _organism, "specimen": _specimen, "any diagnosis": _any_diagnosis, "diagnosis": _diagnosis,
    "any drug": _any_drug, "one of drugs": _one_of_drugs, "total dose": _total_dose, "dose": _dose, "drug": _drug,
}


# ---- scores -------------------------------------------------------------------------------------------------------

def _cells(gold: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted(_plain(cell) for row in gold for cell in row))


def run(questions: Sequence[Question], store: Store) -> list[Result]:
    """Every question, answered and compared with the published answer: the same cells, as numbers where they are."""
    out = []
    for q in questions:
        said, rows, why = answer(q.text, store)
        gold = _cells(q.gold)
        if said is not None and tuple(map(_value, sorted(said))) == tuple(map(_value, gold)):
            out.append(Result(q, said, None, rows))
            continue
        if said is not None:
            why = "other answer"
            anchor = {r.fields["anchor_age"] for of in [store.rows.get(_PATIENT.search(q.text)[1], ())] for r in of
                      if r.kind == "age"}
            if q.family == "age" and gold and gold[0] in anchor:
                why = "age at the anchor"
        out.append(Result(q, said, why, rows))
    return out


def _value(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


@dataclasses.dataclass(frozen=True)
class Summary:
    """right of n. kinds: kind -> (right, n). misses: class -> questions. sound: right of those whose published answer
    is not the anchor age and whose table was told."""

    right: int
    n: int
    kinds: Mapping[str, tuple[int, int]]
    misses: Mapping[str, int]
    sound: tuple[int, int]


def summarise(results: Sequence[Result]) -> Summary:
    asked, good = (Counter(r.question.kind for r in results if r.miss is None or every) for every in (True, False))
    outside = sum(r.miss in ("age at the anchor", "table not ingested") for r in results)
    right = good.total()
    misses = Counter(r.miss for r in results if r.miss is not None)
    return Summary(right, len(results), {k: (good[k], n) for k, n in sorted(asked.items())},
                   dict(sorted(misses.items())), (right, len(results) - outside))
