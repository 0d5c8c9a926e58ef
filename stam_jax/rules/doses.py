"""Drugs: what is taken and how much, changed, stopped, switched, thought of, or corrected."""

from __future__ import annotations

import re

from stam_jax.graph.clinical_time import bounds, resolve
from stam_jax.rules import cues, vocabulary
from stam_jax.rules.classes import CLASS
from stam_jax.rules.intent import SWITCH, begins, day_ahead, paused
from stam_jax.rules.lexicon import NOT_A_DRUG, Mention
from stam_jax.rules.quantities import COUNTED, Amount, Word, amounts, frequencies, plain
from stam_jax.rules.scene import Scene
from stam_jax.write.writer import Draft

_TO = re.compile(r"\b(?:to|onto|over to|with|by|for|into)\b[^,;]{0,25}$")
_SWITCHED_IT = re.compile(  # "ramipril gave me a cough, so they swapped it for losartan"
    rf"{SWITCH.pattern} (?:(?:it|this|that|them|him|her|me|you|over|out|up) ){{1,3}}(?:to|onto|with|by|for|into)"
    r" (?:(?:the|an?|some|oral|iv|generic|new|his|her|my|low[- ]dose) ){0,2}$"
)
_ARROW = re.compile(r"(?:-{1,2}>|→|=>) ?(?:(?:iv|po|oral|to|on|start|started|switched|changed|now|then) ){0,3}$")
_PASSIVE = re.compile(
    r"\b(?:replaced (?:by|with)|switched (?:over )?to|changed (?:over )?to|swapped (?:for|with|to)"
    r"|exchanged for|gave way to|converted to|transitioned to|substituted (?:by|with)"
    r"|succeeded by)\b"
)
_INSTEAD = re.compile(
    r"\b(?:instead of|in place of|in lieu of|replac(?:es|ing|ed)|to replace|rather than"
    r"|substitut\w+ for|takes the place of)\b(?! by| with)"
)
_JOINT = re.compile(
    r"[,;|]|(?<!\b[dwsrc])/|\band\b|\bthen\b|\bplus\b|\bbut\b|\bwhile\b|&|\+|\bwith(?= (?:the )?(?:addition|start))"
    r"|\balong with\b|\bas well as\b|\bfollowed by\b|\bin addition\b|\balso\b| - "
)
_BARE = re.compile(
    r"(?P<n>[0-9]{1,4}(?:\.[0-9]{1,3})?)(?![0-9./:%-]|\.\d|,\d| ?(?:days?|weeks?|wks?|months?|years?"
    r"|hours?|hrs?|h\b|min|times|x\b|am\b|pm\b|st\b|nd\b|rd\b|th\b|percent|lbs?|kg|%|/|refills?|pills?"
    r"|tabs?|tablets?|capsules?|doses?|mmhg|bpm|more|of\b|pounds|minutes))"
)
_PAST_USE = re.compile(
    r"\b(?:used to (?:take|be on|use)|previously (?:on|took|taking|tried)|formerly (?:on|took"
    r"|taking)|had (?:been )?(?:tried|taken)|was (?:previously|formerly|once) on|in the past"
    r"|years ago|tried (?:and failed )?|failed|prior trial|history of)\b"
)
_SMALL_WORDS = re.compile(r"\b(?:and|the|his|her|your|my|also|both|then|as|well|with)\b")
_UNKNOWN = re.compile(  # a name directly before an amount that no list has: "XYZ ", "Trelegy "
    r"(?:^|[,;:(+/&] ?|\b(?:and|plus) )(?:(?!(?:MR|XR|XL|SR|ER|IR|LA|EC|CR|DR|PO|IV|IM|SC|SL|INH|NEB|PR|TOP|OD|BD|TDS"
    r"|QDS|QD|BID|TID|QID|HS|AM|PM|PRN|RX|MAX|LOW|NOW)\b)[A-Z][A-Z0-9]{1,3}|(?P<name>[A-Z][a-z]{3,})) $"
)
_REASON = re.compile(
    r"\b(?:given|because of|(?:while|whilst|when|since|as)(?: (?:also|still|already|now|she|he|they|pt|patient|is"
    r"|are))* (?:on|taking|takes)|in view of|in light of|in the context of|due to|owing to|on account of"
    r"|(?<!along )(?<!together )with|interact\w*(?: with)?)(?! the addition)(?: [a-z-]+){0,2} $"
    r"|[,(;–-] ?(?:(?:and|but|still|also|already|is|currently|now|she|he|pt|patient) )*(?:on|takes|taking) $"
)
_SUBJECT = re.compile(
    r"(?<![a-z0-9])(?!(?:it|this|that|has|have|had|was|were|been|be|she|he|we|they|i|not|also|now|just|med\w*|drugs?"
    r"|treatment)\b)"
    r"[a-z0-9-]{2,} (?:was |were |has been |have been )?$"
)
_TO_STOP = re.compile(
    r"\b(?:stop|discontinue|cease|withdraw|stopping|discontinuing|to be (?:stopped|discontinued|ceased|withdrawn)"
    r"|(?:hold|omit|finish|come off)(?= ))(?![\w/])|\bplan\w*[^.;]{0,40}\bstop\b"
)
_LATER = re.compile(
    r"\b(?:in|after) (?:(?:a|an|another|the|about|approximately) )?(?:[0-9]{1,3}|one|two|three|four|six|eight"
    r"|ten|twelve|few|couple of)?[ -]?(?:days?|weeks?|wks?|months?|mths?|years?|yrs?)\b(?! (?:of|from|without|on))"
    r"|\b(?:in|after) [0-9]{1,2}/(?:7|52|12)\b|\b(?:at|after|until) (?:the |her |his )?next (?:visit|review|clinic"
    r"|appointment)|\b[a-z0-9]+ (?:days?|weeks?) (?:before|prior to|pre-?op)"
    r"|\b(?:day|morning|night) (?:of|before) (?:the |his |her )?(?:surgery|procedure|operation|colonoscopy)|\bthen"
    r" (?:to )?(?:stop|discontinue)\b"
)
_INTENDED = re.compile(
    r"\b(?:i|we|he|she|they|pt|patient) (?:is |are |am )?(?:plans?|planning|wants?|hop(?:es?|ing)|intend(?:s|ing)?"
    r"|wish(?:es|ing)?|keen) to (?:stop|discontinue|come off|cease|withdraw)$"
)
_APART = re.compile(
    r"[,;(]|\b(?!(?:from|around|about|early|late|until|taking|dose|tablets?|treatment|after|week|month|completely)\b)"
    r"[a-z]{4,}"
)
_DAY_OF_PLAN = re.compile(r"[12][0-9]{3}$|^[12][0-9]{3}-|/[0-9]{2,4}$")
_TAKEN = re.compile(  # the list of what someone says to take
    r"(?:[a-z]{2,12}: )?(?:my (?:meds|medications|medicines|pills|tablets|drugs) (?:are|include)\b"
    r"|(?:(?:right now|currently|at the moment|well|yes|so|ok|okay|hi|hello),? )?(?:i|he|she|we|patient|pt)(?:'m| am"
    r"| is|'s)?(?: (?:currently|still|just|only|also|now))? (?:takes?|taking|on|uses?)\b)"
)
_AT_NEXT = re.compile(
    r"\b(?:at|on|from) (?:the |her |his |our |your )?next (?:visit|review|appointment|refill|clinic)\b"
)
_OWN_CLAUSE = re.compile(
    r"\b(?:and|but) (?:i|he|she|they|we|pt|patient)(?:'m|'s| now| still| only| also| am| is)* [a-z]+\b"
)
_SHARED = re.compile(r"[ ,]*(?:and|&|\+|,|/)[ ]*(?:(?:the|his|her|my|your|also|both) )*")
_LABEL = re.compile(r" ?[:(–-] ?")
_BEFORE_AMOUNT = re.compile(r"(?<![\w'])([a-z][a-z-]{2,}) (?:(?:iv|im|sc|po|inh|neb) )?$")
_CLAUSE = re.compile(
    r"(?:[,;(] ?| -+ ?|\b(?:and|then|with) )(?:(?:and|then|to|we|will|plan|planned|planning|aim|aiming|can|may|please"
    r"|a|gradually"
    r"|slowly) )*"
)
_AS_NEEDED = r"(?:prn|as needed|as required|p\.r\.n\.?|when needed|as necessary)"
_PRN = re.compile(rf"\b{_AS_NEEDED}\b")
_TAKEN_PRN = re.compile(  # without how much: "salbutamol prn", "salbutamol inhaler as needed"
    r"(?: (?:inhalers?|mdi|nebs?|nebuli[sz]ers?|nebules?|spray|cream|ointment|gel|tablets?|tabs?|syrup|drops|lozenges?"
    rf"|iv|po|sl|sc|pr))*,? \(?{_AS_NEEDED}(?!\w)"
)
_NOT_TAKEN = re.compile(r"\b(?:avoid\w*|without|declin\w*|refus\w*)\b")


_IN_GRAMS = frozenset({"penicillin antibiotic", "cephalosporin", "glycopeptide", "aminoglycoside"})
# families whose doses are not in mg; None where a bare number may be in one unit or another
_UNIT_OF_FAMILY = {
    "insulin": "units",
    "thyroid hormone": "mcg",
    "potassium supplement": "meq",
    **dict.fromkeys((
        "digoxin", "bronchodilator", "inhaled steroid", "vitamin", "eye drop", "erythropoietin", "heparin", "biologic",
        "incretin", "laxative", "desmopressin",
    )),
}


def unit_of(concept: str) -> str | None:
    """The unit in which a drug's bare number is meant; None where words must say it."""
    return _UNIT_OF_FAMILY.get(_family(concept), "mg")


def _family(concept: str) -> str | None:
    facts = vocabulary.DRUGS.get(concept)
    return facts.family if facts else None


def doses(scene: Scene, before: Mention | None, allergens: frozenset[int]) -> list[Draft]:
    """Drafts of the sentence's drugs. before: the drug that the sentences before spoke of, for a sentence that names
    none. allergens: starts of names that stand for an allergy."""
    drugs = _distinct(scene.text, [m for m in scene.of_kind("drug") if m.start not in allergens])
    if not drugs:
        return _carried(scene, before) if before is not None else []
    found: list[Draft] = []
    parts = _parts(scene, drugs)
    action = None
    for start, end, drug, role in parts:
        cut = _later_clause(scene, start, end, drug) if role is None else None
        alone = len(parts) == 1 and cut is None
        draft, action = _one(scene, start, cut or end, drug, role, action, alone, cut is not None)
        found += [] if draft is None else [draft]
        planned = None if cut is None else _planned(scene, cut, end, drug)
        found += [] if planned is None else [planned]
    return found


def _later_clause(scene: Scene, start: int, end: int, drug: Mention) -> int | None:
    """Where a clause begins that changes the dose before it later or under a condition: "2.5 mg daily, increase to 5 mg
    in 2 weeks if tolerated"."""
    text = scene.text
    for m in _CLAUSE.finditer(text, drug.end, end):
        change = cues.CHANGE.match(text, m.end())
        if change is None or _value(scene, start, m.start(), drug, None)[1] is None:
            continue
        last = next((text.find(c, change.end(), end) for c in ",;" if c in text[change.end():end]), end)
        far = any(day_ahead(scene, t) is not None for t in scene.times if change.end() <= t.start < last)
        if far or any(p.search(text, change.end(), last) for p in (_AT_NEXT, _LATER, cues.IF)):
            return m.start()
    return None


def _planned(scene: Scene, start: int, end: int, drug: Mention) -> Draft | None:
    """What a clause plans for a drug that was named before it."""
    amount, value = _value(scene, start, end, Mention("drug", drug.concept, start, start, drug.known), None)
    return None if value is None else scene.draft(
        start, end, about=drug.concept, kind="PLAN", concept=drug.concept, attribute="dose", value=value,
        unit=amount.unit if amount else None, polarity="CONDITIONAL",
        experiencer=scene.experiencer(drug.start, drug.end))


def _distinct(text: str, drugs: list[Mention]) -> list[Mention]:
    """One mention of each drug: "Lipitor (atorvastatin) 40 mg"; none of a heading: "insulin: lantus 20"."""
    out: list[Mention] = []
    for m in drugs:
        if all(m.concept != d.concept for d in out):
            out.append(m)
    headings = {a for a, b in zip(out, out[1:]) if a.concept == "insulin" and _LABEL.fullmatch(text, a.end, b.start)}
    return [m for m in out if m not in headings]


def _parts(scene: Scene, drugs: list[Mention]) -> list[tuple[int, int, Mention, str | None]]:
    """(start, end, drug, role) of what is said of each drug; role: old or new of a switch, context, None."""
    text = scene.text
    roles: list[str | None] = [None] * len(drugs)
    for i, (a, b) in enumerate(zip(drugs, drugs[1:])):
        old = _switched(text, a, b)
        if old is not None:
            roles[i], roles[i + 1] = ("old", "new") if old is a else ("new", "old")
    cuts = [0]
    for i, (a, b) in enumerate(zip(drugs, drugs[1:])):
        between = text[a.end:b.start]
        if roles[i] is not None and roles[i + 1] is not None:
            cuts.append(
                b.start if roles[i] == "old" else (m := _INSTEAD.search(between)) and a.end + m.start() or b.start
            )
            continue
        joints = [m for m in _JOINT.finditer(between)]
        if not joints:
            cuts.append(-1)  # no cut: the second is context of the first
            continue
        cuts.append(a.end + _joint(between, joints).start())
    cuts.append(len(text))
    out: list[tuple[int, int, Mention, str | None]] = []
    for i, drug in enumerate(drugs):
        if cuts[i] == -1:
            own = amounts(text[drug.start:_next(cuts, i)])
            if own and not cues.CONTEXT_BEFORE.search(text, max(0, drug.start - 60), drug.start):
                out.append((drug.start, _next(cuts, i), drug, roles[i]))
                if len(out) > 1:
                    a, _, d, r = out[-2]
                    out[-2] = (a, drug.start, d, r)
            elif out:
                a, _, d, r = out[-1]
                out[-1] = (a, _next(cuts, i), d, r)
            continue
        out.append((cuts[i], _next(cuts, i), drug, roles[i]))
    return out


def _joint(between: str, joints: list[re.Match]) -> re.Match:
    """The last joint, or the comma directly before it (", and")."""
    last = joints[-1]
    if len(joints) > 1 and not between[joints[-2].end():last.start()].strip():
        return joints[-2]
    return last


def _next(cuts: list[int], i: int) -> int:
    return next(c for c in cuts[i + 1:] if c != -1)


def _switched(text: str, a: Mention, b: Mention) -> Mention | None:
    """Which of two neighbours the other one replaces, if any."""
    before, between = text[max(0, a.start - 60):a.start], text[a.end:b.start]
    if len(between) > 120:
        return None
    if _SWITCHED_IT.search(between) or _ARROW.search(between):
        return a
    if len(between) > 90:
        return None
    if re.search(r"\bfrom\b[^,;]{0,25}$", before) and _TO.search(between):
        return a
    verb = next(reversed(list(SWITCH.finditer(before))), None)
    if (
        verb is not None
        and len(before) - verb.end() < 25
        and _TO.search(between)
        and not re.search(r"[,;]\s*(?:and|then)?\s*\w+ed\b", between)
    ):
        return b if verb.group().startswith("substitut") and re.search(r"\bfor\b[^,;]{0,25}$", between) else a
    if _PASSIVE.search(between):
        return a
    if _INSTEAD.search(between):
        return b
    return None


def _one(
    scene: Scene, start: int, end: int, drug: Mention, role: str | None, inherited: str | None, alone: bool, cut: bool
) -> tuple[Draft | None, str | None]:
    """The draft of one drug from [start, end) of the sentence, and what was done to it. cut: a later clause follows,
    whose conditions are its own."""
    text, concept = scene.text, drug.concept
    part = text[start:end]
    experiencer = scene.experiencer(drug.start, drug.end)
    fields = {"concept": concept, "attribute": "dose", "experiencer": experiencer}
    context = cues.CONTEXT_BEFORE.search(text, max(0, drug.start - 70), drug.start) is not None
    another = _stop_of_another(text, start, end, drug)
    context = context or another
    if _ASKED.search(text, max(0, drug.start - 60), drug.start) or text[drug.start - 1:drug.start] == "?":
        return None, None
    amount, value = _value(scene, start, end, drug, role)
    if amount is not None and _of_either(scene, drug, amount):
        amount = value = None
    stopped = not another and _stopped(scene, start, end, drug, context)
    bound = cues.conditional(text[:end] if cut else text, start, end, max(drug.end, amount.end if amount else 0))
    if _change_ahead(scene, start, amount):
        change = cues.CHANGE.search(text, start, amount.start)
        now, held = _value(scene, start, change.start(), drug, role) if drug.end <= change.start() else (None, None)
        bound = bound or held is None
        amount, value = (amount, value) if held is None else (now, held)
    ahead = begins(scene, start, end) if role is None else begins(scene, 0, len(text))
    if ahead is not None and (role is not None or not stopped):
        bound = True
    if role == "old":
        stopped = True
    elif role == "new":
        stopped = False
    verb = cues.START.search(part) or cues.CHANGE.search(part)
    if stopped and value is not None and role != "old":
        began = max((m.start() for m in cues.START.finditer(part)), default=-1)
        ended = max((m.start() for m in cues.STOP.finditer(part)), default=-1)
        if began > ended >= 0 and ahead is None or "instead" in part and began >= 0:
            stopped = False
    bare = (
        role is None
        and value is None
        and not verb
        and not context
        and not re.search(r"[a-z]{4,}", _SMALL_WORDS.sub("", text[start:drug.start] + text[drug.end:end]))
    )
    if bare and not stopped and inherited == "stop":
        stopped = True
    if not stopped and _WARNED.search(text, 0, drug.start):
        return None, None
    ends = _end_ahead(scene, start, end, drug) if stopped and role is None else None
    stopped = stopped and (ends is None or value is None)
    if stopped:
        if bound or ends is not None:
            when = ahead or ends or None
            return scene.draft(start, end, kind="PLAN", polarity="CONDITIONAL", time=when, **fields), "stop"
        pause = paused(scene, start, end)
        time = pause or scene.time(start, end, "past") or scene.time(0, len(text), "past")
        kind = "EVENT" if pause is None else "STATE"
        return (
            scene.draft(*_span(scene, start, end, alone), kind=kind, polarity="NEGATED", time=time, **fields),
            "stop",
        )
    if value is not None:
        if bound:
            return (
                scene.draft(
                    *_span(scene, start, end, alone),
                    kind="PLAN",
                    value=value,
                    unit=amount.unit if amount else None,
                    polarity="CONDITIONAL",
                    time=ahead,
                    **fields,
                ),
                "start",
            )
        past = _PAST_USE.search(text, max(0, start), drug.end + 60) or (
            _ONE_GIVEN.search(part) and not re.search("[a-z]", value.removeprefix(str(amount)) if amount else value))
        time = _dose_time(scene, start, end, alone, drug) if ends is None else f"until {ends}" if ends else None
        if (
            past
            and time is None
            and experiencer == "PATIENT"
            and not cues.NEW_BEFORE.search(text[:amount.start] if amount else "")
        ):
            background = {**fields, "attribute": "background"}
            return scene.draft(*_span(scene, start, end, alone), kind="BACKGROUND", **background), None
        return (
            scene.draft(
                *_span(scene, start, end, alone), value=value, unit=amount.unit if amount else None, time=time, **fields
            ),
            "start",
        )
    if _RESUMED.search(part) and cues.STOP.search(part) and not bound and not context and role is None:
        return scene.draft(*_span(scene, start, end, alone), **fields), "start"
    begun = cues.START.search(part)
    takes = cues.TAKES.search(part)
    if (
        (begun or takes)
        and not context
        and not scene.of_kind("monitor")
        and not bound
        and role != "old"
        and not _since(text, start, drug)
        and not cues.NOT_STOP.search(part)
        and not _FREE_OF_DOSE.search(part)
        and _near(part, drug.start - start, drug.end - start, begun or takes)
    ):
        return (
            scene.draft(*_span(scene, start, end, alone), time=_dose_time(scene, start, end, alone, drug), **fields),
            "listed",
        )
    prn = (
        _TAKEN_PRN.match(text, drug.end, end)
        and role is None
        and not (bound or context or drug.end == drug.start)
        and not _FREE_OF_DOSE.search(_PRN.sub("", part))
        and not _NOT_TAKEN.search(part)
        and not _PAST_USE.search(text, start, end)
    )
    if prn:
        return scene.draft(start, end, **fields), "listed"
    if bare and not bound and (inherited == "listed" or inherited == "start" and _TAKEN.match(text, 0, drug.start)):
        return scene.draft(start, end, **fields), "listed"
    if role == "new" and not bound:
        return scene.draft(0, len(text), time=scene.time(0, len(text), "past"), **fields), "start"
    return None, None


_ASKED = re.compile(
    r"\b(?:ask(?:s|ed|ing)?|enquir\w+|inquir\w+|question\w*|quer(?:y|ies|ied)|wonder\w*|read|heard|worr(?:y|ied|ies)"
    r"|talk\w*|curious)(?: (?:me|him|her|you|them|us|the (?:doctor|gp|nurse|pharmacist)))? (?:more )?about"
    r"(?: (?:the|his|her|my|your|having|taking|trying|going on|starting|getting|being put on))* $"
)
_WARNED = re.compile(rf"{cues.WARNED}$")
_ONE_GIVEN = re.compile(  # "given 5 mg once", "300 mg stat"
    r"\b(?:given|received|administered|gave (?:him|her|me|the patient))\b[^;.]{0,60}?"
    r"(?:\bonce\b(?! (?:a|per|every|each|daily|weekly|nightly|monthly|in the))|\b(?:a |one )?single dose|\bone dose\b"
    r"|(?<!\w)[x×] ?1(?![0-9/.])|\bon admission|\bin (?:the )?(?:ed|er|a&e|ambulance|emergency department|theatre"
    r"|recovery)\b)|\b(?:stat|once only|one[- ]off)\b"
)
_FREE_OF_DOSE = re.compile(
    r"\b(?:discuss\w*|question\w*|side effects?|refill\w*|ask\w*|benefits?|risks?|adheren\w+"
    r"|complian\w+|dose|education|increase|decrease|"
    r"monitor\w*|check\w*|level|labs?|requires?|needs?|not|never|no\b|n't|developed|because"
    r"|causes?|allerg\w+|reaction|rash|hives|"
    r"intoleran\w*|trial|failed|stop\w*|hold|held|missed|forget\w*|forgot)"
)


def _near(part: str, start: int, end: int, verb: re.Match) -> bool:
    """Whether a verb stands with its drug: "start the metformin", "metformin was started"."""
    gap = part[verb.end():start] if verb.end() <= start else part[end:verb.start()]
    return len(gap) <= 30 and not re.search(r"[,;.]", gap)


def _since(text: str, start: int, drug: Mention) -> bool:
    return (
        re.search(
            r"\b(?:since|after|when|ever since|following|before|until|upon|while)\b[^,;]{0,40}$",
            text[max(start, drug.start - 60):drug.start],
        )
        is not None
    )


def _span(scene: Scene, start: int, end: int, alone: bool) -> tuple[int, int]:
    return (0, len(scene.text)) if alone else (start, end)


def _dose_time(scene: Scene, start: int, end: int, alone: bool, drug: Mention | None = None) -> str | None:
    a, b = (0, len(scene.text)) if alone else (start, end)
    of = drug.start if drug is not None and drug.end else None  # a drug that the sentence names
    since = scene.time(a, b, "past", of=of) or scene.dated(0, len(scene.text))
    until = scene.time(a, b, "until")
    if since and until and until.startswith("until ") and re.match(r"[0-9A-Za-z]", since):
        return f"from {re.sub('^(?:since|from) ', '', since)} to {until[6:]}"
    return since or until or scene.time(a, b, "length", "lasting")


def _stopped(scene: Scene, start: int, end: int, drug: Mention, context: bool) -> bool:
    text = scene.text
    part = text[start:end]
    if re.search(r"\bthe (?:former|first one|first of)\b", part):
        return False  # of another drug
    if cues.OFF.search(text[:drug.start]) and not context:
        return True
    if scene.sentence.section == "stopped":
        return not context
    denied = [(m.start(), m.end()) for m in cues.NOT_STOP.finditer(part)]
    for m in cues.STOP.finditer(part):
        if start + m.end() <= drug.start:
            of_class = CLASS.match(text, start + m.end(), drug.start)
            if of_class and not _SHARED.fullmatch(text, of_class.end(), drug.start):
                continue
            if _OWN_CLAUSE.search(text, start + m.end(), drug.start):
                continue
        if any(a <= m.start() < b for a, b in denied):
            continue
        if start + m.end() <= drug.start and _ARROW.search(text[start + m.end():drug.start]):
            continue  # what stands before an arrow was stopped
        if _RESUMED.search(part, m.end()):
            continue
        if any(t.way == "until" and t.start <= start + m.start() < t.end for t in scene.times):
            continue
        if context and start + m.end() <= drug.start:
            continue
        if m.group() in (
            "stopped",
            "stops",
            "ended",
            "held",
            "finished",
            "completed",
            "dropped",
            "removed",
        ) and re.match(
            r" (?:smoking|drinking|working|exercis|eating|the (?:bleeding|pain)|vomiting|coughing)", part[m.end():]
        ):
            continue
        if m.group().startswith(("hold", "held")) and re.match(
            r" (?:off|at|steady|for|the dose|responsible|accountable|to blame)", part[m.end():]
        ):
            continue
        if m.group() in ("any more", "anymore", "any longer") and not re.search(
            r"\b(?:not|no|n't|don't|doesn't|never|nor)\b|n't\b", part[:m.start()]
        ):
            continue
        if m.group() == "no longer" and frequencies(part[m.end():m.end() + 20]) and _figure_follows(part[m.end():]):
            continue
        if m.group() in ("no longer",) and re.match(
            r" (?:has|have|having|gets?|needs? (?:to|more)|feels?|causing"
            r"|causes|enough|controls?|sufficient|effective|works?)",
            part[m.end():],
        ):
            continue
        if m.group().startswith("taper") and re.search(r"\btaper\w* (?:\w+ ){0,3}(?:down )?(?:to|from)\b", part):
            continue
        return True
    return False



_RESUMED = re.compile(  # "stopped it for a week but am back on it now"
    r"\b(?:(?:am|is|are|'m|'s|now|went|gone|got) back (?:on|to taking)"
    r"|(?<!not )(?<!never )(?<!n't )(?<!be )(?<!not been )(?:restarted|resumed)(?! (?:in|at|on|if|when|after|by|once))"
    r"|started (?:it |them |taking it )?again|(?:am|is|are|'m|now) taking (?:it|them) again)\b"
)


def _end_ahead(scene: Scene, start: int, end: int, drug: Mention) -> str | None:
    """Of a stop that is only planned its date, or "" where it has none; None where it is of now or of the past."""
    text = scene.text
    verb = _TO_STOP.search(text, start, end)
    if verb is None:
        return None

    def gap(at: int) -> str:
        return text[verb.end():at] if at < drug.end else text[verb.end():max(verb.end(), drug.start)] + text[
            max(verb.end(), drug.end):at]

    for t in scene.times:
        if not verb.end() <= t.start < end or t.way not in ("past", "future"):
            continue
        if re.match("since|from|starting|beginning", text[t.start:t.end]) or _APART.search(gap(t.start)):
            continue
        if (words := day_ahead(scene, t)) is not None:
            return words
        words = re.sub("^in ", "", t.words)
        when = resolve(f"until {words}", scene.date).end if t.way == "future" else resolve(words, scene.date).start
        if when is None:
            return ""
        first, last = bounds(when)
        if scene.date is None or not first <= bounds(scene.date[:10])[0] <= last:
            ahead = scene.date is not None and first > bounds(scene.date[:10])[1]
            return words if ahead else "" if _DAY_OF_PLAN.search(words) else None
    if _INTENDED.search(text[:verb.end()]):
        return ""
    later = _LATER.search(text, start, end)
    return "" if later and (later.start() < verb.end() or not _APART.search(gap(later.start()))) else None


def _stop_of_another(text: str, start: int, end: int, drug: Mention) -> bool:
    """Whether the part stops something else, for which the drug is the reason: "stop NSAIDs given apixaban"."""
    reason = _REASON.search(text, max(0, start - 20), drug.start)
    for m in cues.STOP.finditer(text, start, end):
        if m.end() <= drug.start and (
            reason is not None and reason.start() >= m.end()
            or re.match(r"(?: \([^)]*\))?,", text[m.end():drug.start])
            and _SUBJECT.search(text[start:m.start()])
            and amounts(text[drug.end:end])
        ):
            return True
        if m.start() >= drug.end and reason is not None and re.search(r"[,;]", text[drug.end:m.start()]):
            return True
    return False


def _of_either(scene: Scene, drug: Mention, amount: Amount) -> bool:
    """Whether an amount after a verb may be of the drug before just as well: "on A and B, increase to 40"."""
    text = scene.text
    before = [m for m in scene.of_kind("drug") if m.end <= drug.start]
    return (
        bool(before)
        and amount.start >= drug.end
        and _SHARED.fullmatch(text, before[-1].end, drug.start) is not None
        and re.search(r"[,;:(–—-] ?|\b(?:so|then|will|we|please)\b", text[drug.end:amount.start]) is not None
        and cues.CHANGE.search(text, drug.end, amount.start) is not None
    )


def _change_ahead(scene: Scene, start: int, amount: Amount | None) -> bool:
    """Whether a change of dose is planned for a later day: "increase to 40 mg daily in 2 weeks"."""
    text = scene.text
    if amount is None:
        return False
    if not cues.CHANGE.search(text, start, amount.start):
        return False
    later = [m.start() for m in _AT_NEXT.finditer(text, amount.end)]
    for at in later + [t.start for t in scene.times if t.way == "future"]:
        if at >= amount.end:
            between = text[amount.end:at]
            for w in reversed(frequencies(between)):
                between = between[:w.start] + between[w.end:]
            if not between.strip(" ,"):
                return True
    return False


def _figure_follows(text: str) -> bool:
    """Whether a frequency or an amount stands directly there: "no longer once a day"."""
    words = frequencies(text[:30]) + amounts(text[:30])
    return any(w.start <= 2 for w in words)


def _value(scene: Scene, start: int, end: int, drug: Mention, role: str | None) -> tuple[Amount | None, str | None]:
    """The dose that holds according to [start, end): its amount and the canonical value."""
    text = scene.text
    low, high = start, end
    if role == "new" and drug.start > start:
        low = drug.start
    if role == "old":
        return None, None
    low, high = _own(scene, low, high, drug)
    found = [a for a in amounts(text[low:high])]
    found = [
        Amount(a.number, a.unit, a.start + low, a.end + low)
        for a in found
        if not _strange(text, low + a.start, low + a.end)
    ]
    if any(a.unit not in COUNTED for a in found):
        found = [a for a in found if a.unit not in COUNTED]
    found = sorted(found + _bare(scene, low, high, drug, found), key=lambda a: a.start)
    words = [Word(w.code, w.start + low, w.end + low) for w in frequencies(text[low:high])]
    words = [w for w in words if not _of_plan(scene, w)]
    if not found:
        chosen = _frequency(text, words, None, high)
        if (
            chosen
            and (
                cues.CHANGE.search(text[low:high])
                or cues.NEW_BEFORE.search(text[max(0, chosen.start - 40):chosen.start])
                or cues.TAKES.search(text[low:high])
                or cues.START.search(text[low:high])
            )
            and not cues.STOP.search(text[low:high])
            and not cues.CONTEXT_BEFORE.search(text, max(0, drug.start - 70), drug.start)
        ):
            return None, chosen.code
        return None, None
    amount = chosen_amount(text, low, high, found)
    if (
        amount is None
        and len(found) == 1
        and scene.time(0, len(text), "past", "document")
        and not re.search(
            r"\b(?:from|not|instead of|rather than|no longer|than|to replace|replacing)[^,;]{0,15}$",
            text[max(low, found[0].start - 40):found[0].start],
        )
    ):
        amount = found[0]
    if amount is None:
        return None, None
    following = [a.start for a in found if a.start > amount.end]
    many = _together(text, amount, found, words)
    if many:
        return amount, many
    chosen = _frequency(text, words, amount, following[0] if following else high)
    value = f"{amount} {chosen.code}" if chosen else str(amount)
    if _PRN.search(text, amount.end, min(high, amount.end + 60)):
        value += " prn"
    return amount, value


def _own(scene: Scene, low: int, high: int, drug: Mention) -> tuple[int, int]:
    """[low, high) without the comma parts whose amount is of a drug that no list has: "XYZ 200 mg BD, ramipril"."""
    if drug.end == drug.start:
        return low, high
    text = scene.text
    for a in amounts(text[low:high]):
        if low + a.end <= drug.start and (comma := max(text.rfind(c, low + a.end, drug.start) for c in ",;")) >= 0:
            low = comma + 1
            return _own(scene, low, high, drug)
        if low + a.start >= drug.end and not scene.plain.isupper() and (
            other := _UNKNOWN.search(scene.plain, drug.end, low + a.start)
        ) and not _common(other["name"]):
            return low, other.start()
    return low, high


def _common(word: str | None) -> bool:
    """Whether a word is none that could be a drug's name."""
    if word is None:
        return False
    verbs = (cues.CHANGE, cues.START, cues.STOP, cues.TAKES)
    low = word.lower()
    return low in NOT_A_DRUG or low.endswith(("ly", "ing")) or any(v.fullmatch(low) for v in verbs)


def _strange(text: str, start: int, end: int) -> bool:
    """Amounts that are no dose: of a laboratory value, or so much a kilogram."""
    return re.match(r"\s*/\s*(?:d?l|kg|ml|min|hr?\b|24)", text[end:]) is not None


def _of_plan(scene: Scene, word: Word) -> bool:
    """A frequency that belongs to a test: "INR check weekly"."""
    for m in scene.of_kind("monitor"):
        if (
            m.end <= word.start
            and word.start - m.end < 30
            and not re.search(r"[,;]|\bmg\b|\bmcg\b|\bon\b|\bwith\b|\bfor\b", scene.text[m.end:word.start])
        ):
            return True
    return False


def _bare(scene: Scene, low: int, high: int, drug: Mention, known: list[Amount]) -> list[Amount]:
    """Numbers whose unit goes without saying: "lisinopril 20 daily", "from 10 to 20 mg"."""
    text, out = scene.text, []
    unit = known[0].unit if known else unit_of(drug.concept)
    if unit is None:
        return []
    for m in _BARE.finditer(text, low, high):
        if any(a.start <= m.start() < a.end for a in known) or any(t.start <= m.start() < t.end for t in scene.times):
            continue
        if any(x.start <= m.start() < x.end for x in scene.mentions):
            continue
        if m.start() and re.match(r"[\w./-]", text[m.start() - 1]):
            continue
        near = [
            x
            for x in scene.of_kind("measure", "problem", "appointment")
            if x.end <= m.start() and x.start > drug.start or drug.start > x.end > m.start() - 25 and x.end <= m.start()
        ]
        if near and not 0 <= m.start() - drug.end <= 1:
            continue
        before = text[max(low, m.start() - 14):m.start()]
        direct = 0 <= m.start() - drug.end <= 3 or re.search(
            r"(?:\bto|\bfrom|\bat|→|->|\bnot|\bthan|\bof|\bnow|\bis|\bwas|\bdose) $|(?:→|->|=>)$", before
        )
        if not direct or drug.end > m.start() and not known and not re.search(r"\b(?:to|from|take|takes) $", before):
            continue
        if float(m["n"]) < 20 and not known and _family(drug.concept) in _IN_GRAMS:
            continue
        if float(m["n"]) == 0 or (not known and drug.concept not in vocabulary.DRUGS):
            continue
        out.append(Amount(plain(m["n"]), unit, m.start(), m.end()))
    return out


def chosen_amount(text: str, low: int, high: int, found: list) -> object | None:
    """Which of several amounts holds; None where all are said to be of the past or wrong. For anything with a start and
    an end: doses, values of a test."""
    wrong = cues.ERROR.search(text, max(0, low - 200), min(len(text), high + 200)) is not None
    fresh, plain_ones, weak = [], [], []
    for i, a in enumerate(found):
        left = text[max(low, found[i - 1].end if i else low, a.start - 60):a.start]
        right = text[a.end:min(high, found[i + 1].start if i + 1 < len(found) else high, a.end + 60)]
        more = len(found) > 1
        if cues.OLD_BEFORE.search(left) and not re.search(r"\bnot (?:only|yet)\b[^,;]*$", left):
            continue
        if more and i + 1 < len(found) and _arrow(right):
            continue
        if (
            wrong
            and more
            and (cues.WRONG_AFTER.match(right) or cues.RECORDED.search(left) and not cues.NEW_BEFORE.search(left))
        ):
            continue
        if (
            more
            and re.search(
                r"\b(?:was|were|been on|had been|been taking|was on|was taking)[ ](?:(?:at|on|the|a"
                r"|taking|just|only) )*$",
                left,
            )
            and i + 1 < len(found)
        ):
            weak.append(a)
            continue
        (fresh if cues.NEW_BEFORE.search(left) else plain_ones).append(a)
    if fresh:
        return fresh[-1]
    if plain_ones:
        return plain_ones[-1] if wrong and len(plain_ones) > 1 else plain_ones[0]
    return weak[0] if weak else None


def _arrow(right: str) -> bool:
    """Between two amounts: "10 mg daily -> 20 mg"."""
    bare = right
    for w in reversed(frequencies(right)):
        bare = bare[:w.start] + bare[w.end:]
    bare = bare.strip(" ,")
    return (
        re.fullmatch(
            r"(?:up |down |increased |changed |now )?(?:to|->|→|=>|-->|—>|>|up to|down to)(?: (?:a|the" r"|now))?", bare
        )
        is not None
    )


def _together(text: str, amount: Amount, found: list[Amount], words: list[Word]) -> str | None:
    """One dose of two parts: "10 mg in the morning and 5 mg at night"."""
    i = found.index(amount)
    if i + 1 >= len(found) or len(words) < 2:
        return None
    nxt = found[i + 1]
    first = [w for w in words if amount.end <= w.start < nxt.start]
    second = [w for w in words if w.start >= nxt.end]
    if (
        first
        and second
        and re.fullmatch(r"[ ,]*(?:and|&|plus|then|,)[ ]*(?:another )?", text[first[0].end:nxt.start])
    ):
        return f"{amount} {first[0].code}, {nxt} {second[0].code}"
    return None


def _frequency(text: str, words: list[Word], amount: Amount | None, high: int) -> Word | None:
    """The frequency that belongs to an amount: the first that holds after it, else the last before it."""
    holding = []
    for i, w in enumerate(words):
        left = text[max(words[i - 1].end if i else 0, w.start - 40):w.start]
        right = text[w.end:w.end + 20]
        if cues.OLD_BEFORE.search(left) or len(words) > 1 and left.endswith(" was "):
            continue
        if i + 1 < len(words) and cues.ARROW_AFTER.match(right) and words[i + 1].start - w.end < 20:
            continue
        holding.append(w)
    if amount is None:
        return holding[-1] if holding else None
    after = [w for w in holding if w.start >= amount.end - 1 and w.start < high]
    if after:
        return after[0]
    before = [w for w in holding if w.end <= amount.start]
    if before:
        return before[-1]
    rest = [w for w in holding if w.start >= high]
    return rest[0] if rest and not before else None


def _carried(scene: Scene, drug: Mention) -> list[Draft]:
    """A sentence without a drug that goes on about the one before: "Increase to 40 mg.", "It was stopped."."""
    text = scene.text
    if len(text) > 160 or scene.of_kind("measure", "monitor", "procedure", "appointment"):
        return []
    found = amounts(text)
    if any(a.unit not in COUNTED for a in found):
        found = [a for a in found if a.unit not in COUNTED]
    speaks = re.match(
        r"(?:no,? |yes,? |yeah,? |well,? |ok,? |okay,? |i'm |i've |i don't |i do not |not |and |so "
        r"|then |now |down |up |back |sig:? |we'll |we will |will |let's |let us |i |they |please |he |she |patient "
        r"|pt |the "
        r"|new |current |please )*(?:it|this|that|dose|dosage|medication|drug|pill|increas|decreas"
        r"|reduc|rais|lower|cut|halv|doubl|to (?=[0-9])|"
        r"titrat|uptitrat|stop|discontinu|d/c|hold|held|chang|take|taking|taken|restart|resum|one|now"
        r"|new dose|correct|should|actually|bump|taper|wean|still on|quit)\w*",
        text,
    )
    if not speaks and not (
        scene.mentions == () and any(a.unit not in COUNTED for a in found) and frequencies(text) and len(text) < 80
    ):
        return []
    if found and (m := _BEFORE_AMOUNT.search(text, 0, found[0].start)) and not _common(m[1]) and not frequencies(m[1]):
        return []  # of a drug that no list has
    ghost = Mention("drug", drug.concept, 0, 0, drug.known)
    fields = {
        "concept": drug.concept,
        "attribute": "dose",
        "experiencer": scene.experiencer(0, len(text)),
        "about": drug.concept,
    }
    bound = cues.conditional(text, 0, len(text))
    if found or cues.CHANGE.search(text) or re.match("(?:down|up|back) to [0-9]", text):
        amount, value = _value(scene, 0, len(text), ghost, None)
        goes_on = found or not cues.STOP.search(text) or _end_ahead(scene, 0, len(text), ghost) is not None
        if value is not None and goes_on:
            ahead = begins(scene, 0, len(text))
            if bound or ahead is not None or _change_ahead(scene, 0, amount):
                return [
                    scene.draft(
                        0,
                        len(text),
                        kind="PLAN",
                        value=value,
                        unit=amount.unit if amount else None,
                        polarity="CONDITIONAL",
                        time=ahead,
                        **fields,
                    )
                ]
            return [
                scene.draft(
                    0,
                    len(text),
                    value=value,
                    unit=amount.unit if amount else None,
                    time=_dose_time(scene, 0, len(text), True),
                    **fields,
                )
            ]
    if (
        _stopped(scene, 0, len(text), ghost, False)
        and re.search(
            r"\b(?:it|this|that|medication|drug|taking|pill)\b" r"|^(?:stop|discontinu|d/c|hold|held)\w*$", text
        )
        and not scene.of_kind("problem", "allergen")
    ):
        polarity = "CONDITIONAL" if bound else "NEGATED"
        return [
            scene.draft(0, len(text), kind="EVENT", polarity=polarity, time=scene.time(0, len(text), "past"), **fields)
        ]
    return []
