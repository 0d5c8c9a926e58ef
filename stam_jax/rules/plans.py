"""Monitoring plans, appointments and procedures."""

from __future__ import annotations

import re

from stam_jax.graph.clinical_time import bounds, resolve
from stam_jax.rules import cues, vocabulary
from stam_jax.rules.lexicon import Mention
from stam_jax.rules.quantities import intervals
from stam_jax.rules.scene import Scene
from stam_jax.rules.times import TimeWords
from stam_jax.write.writer import Draft

_WATCH = re.compile(
    r"\b(?:check\w*|monitor\w*|draw\w*|drawn|test\w*|measur\w*|level\w*|labs?|blood ?work|blood|panel"
    r"|surveillance|follow\w*|repeat\w*|recheck\w*|plan|need\w*|requir\w*|schedul\w*|order\w*"
    r"|obtain\w*|get\w*|exam\w*|screen\w*|come in|comes in|coming in|due|track\w*|watch\w*|done|while"
    r"|look\w*|assess\w*|evaluat\w*|review\w*|keep an eye|eye on|bloods?|sample\w*|taken|trend\w*|read|timed"
    r"|on|because|since|with|for|during|as long as|to be|will|should|must|has to|have to|having"
    r"|have)\b"
)
_ENDED = re.compile(
    r"\b(?:no longer (?:needs?|requires?|necessary|needed|required)|stop(?:ped)?|discontinu\w+"
    r"|cancel\w*|end(?:ed)?|does not need|don't need|no need for|not needed|cease[ds]?|can stop"
    r"|called off)\b"
)
_BOOKED = re.compile(
    r"\b(?:schedul\w+|book\w+|appointments?|appt\.?|set (?:up )?for|set up|arrang\w+|referr\w+"
    r"|refer(?: to| for)?|due|planned|plan(?:s)?|upcoming|will (?:have|undergo|get|be (?:done"
    r"|performed|seen)|see|go)|going (?:in )?for|slated|pencil\w+ in|reserved|slot|to be (?:done"
    r"|performed|seen)|is on|will take place|happening|coming up|have (?:my|his|her|a|an|your)"
    r"|see you|awaiting|waiting for|ordered|next|looking at)\b"
)
_SURE = re.compile(r"\b(?:scheduled|booked|appointment|appt|is set|set for|arranged|slated|upcoming)\b")
_PAST = re.compile(
    r"\b(?:show(?:ed|s|n)|reveal\w+|found|demonstrated|was (?:normal|negative|positive|done|performed"
    r"|completed|unremarkable|stable|abnormal)|results?|report\w*|completed|performed|underwent"
    r"|had (?:a|an|his|her|my|the)|came back|normal|unremarkable|last|findings|negative for|done (?:on"
    r"|in)|s/p|status post|received|read as|confirmed)\b"
)
_CANCELLED = re.compile(
    r"\b(?:cancel\w*|called off|no longer (?:needs?|scheduled|needed|going)|not going ahead" r"|does not need)\b"
)
_SURGERY_CUE = re.compile(
    r"\b(?:status[ -]post|s/p|underwent|undergone|had|has had|surgical history|psh|history of"
    r"|h/o|previous|prior|past|post-?op\w*|following|removed|done|performed|received|got|after"
    r"|in (?:19|20)[0-9]{2}|since|surgery|operation|operated|placed|implanted|remote|years ago"
    r"|repaired)\b"
)
_SURGERY = re.compile(
    r"\b(?P<np>(?:(?:right|left|bilateral|total|partial|lumbar|cervical|inguinal|umbilical|hiatal"
    r"|aortic|mitral|open|laparoscopic|knee|hip|shoulder|valve|cataract|thyroid|breast|bowel|sinus"
    r"|heart|ankle|wrist|elbow|hernia|rotator cuff|meniscus|acl|bladder|prostate|corneal"
    r"|bone marrow|heart valve|carotid|spinal|kidney|liver|lung|toe|foot|hand) ){0,4}"
    r"(?:[a-z]{3,}(?:ectomy|otomy|ostomy|plasty|rrhaphy|desis|pexy)|(?:(?<= )(?:replacement|repair"
    r"|transplant(?:ation)?|fusion|bypass|graft|resection|reconstruction|surgery|stenting|implant"
    r"|release))))\b"
)
_GENERIC = re.compile(
    r"(?:^|[:.] ?|\byour |\bmy |\bhis |\bher |\bthe |\ban? "
    r"|\bplan: )(?P<np>[a-z][a-z-]{2,20}(?: (?!is|has|was|will|on|for|been"
    r"|with)[a-z][a-z-]{1,20}){0,3}) (?:is |has been |was |are |will be )?(?:now "
    r"|already )?(?:scheduled|booked|arranged|set(?: up)?|planned|slated) (?:for|on)\b"
)
_BOOKED_FOR = re.compile(
    r"\b(?:(?:booked|scheduled|down|lined up|set up|arranged|slated|due|listed|pencill?ed)(?: in)? for"
    r"|appointment (?:for|with)|(?:going|goes|coming|attending|attends|to attend|will attend|to have|seeing|sees"
    r"|will see)"
    r"(?: in)?(?: for| to)?) (?:an? |the |her |his |my |your )?(?P<np>[a-z][a-z-]{2,20}(?: (?!on|for|with|in|at"
    r"|appointment|and|is|was)[a-z][a-z-]{1,20}){0,2}) (?:on|for|at|in) "
)
_REFERRED = re.compile(
    r"\breferr(?:ed|al) (?:to|for) (?:an? |the )?(?P<np>[a-z][a-z-]{2,20}(?: (?!on|for|with"
    r"|appointment|and)[a-z][a-z-]{1,20}){0,2})(?=$|[,;:.(]| on| for| with| and| appointment)"
)
_NOT_NP = re.compile(
    r"\b(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|today|tomorrow|follow|visit|return|next|it|this"
    r"|that|which|appointment|he|she|patient|call|everything"
    r"|session|meeting|discharge|questions?|results?|labs?|plan)\b"
)


_ORGANS = {
    "gallbladder": "cholecystectomy",
    "gall bladder": "cholecystectomy",
    "appendix": "appendectomy",
    "womb": "hysterectomy",
    "uterus": "hysterectomy",
    "tonsils": "tonsillectomy",
    "thyroid": "thyroidectomy",
    "spleen": "splenectomy",
    "prostate": "prostatectomy",
    "kidney": "nephrectomy",
}
_REMOVED = re.compile(
    rf"\b(?P<organ>{'|'.join(_ORGANS)})\b(?: (?:was|were|has|have|had|been|is|got|being|surgically|laparoscopically"
    r"|all)){0,4} (?:removed|taken out|out|excised|came out|whipped out|resected)\b"
)
_REPLACED = re.compile(
    r"\b(?P<part>(?:(?:right|left) )?(?:hip|knee|shoulder)|(?:aortic|mitral) valve)(?: joint)?"
    r"(?: (?:was|were|has|have|had|been|got|surgically)){0,4} replaced\b"
)

_DOSE_OF = r"(?:(?:his|her|my|the|an?|annual|yearly|seasonal|first|second|third|him|me|this year's) )*"
_HAD = re.compile(
    r"(?<!never )(?<!not )(?<!n't )(?<!yet )(?<!to be )\b(?:had|received|receives|got|given|gave|administered)"
    rf" {_DOSE_OF}$"
)
_WAS_GIVEN = re.compile(
    r"(?: (?:was|were|has|have|had|been|already|also|booster|dose))* (?:given|administered|received|done)\b"
    r"(?! (?:if|when|once|next|after|unless)\b)"
)


def monitoring(scene: Scene) -> tuple[list[Draft], list[tuple[int, int]]]:
    """Plans of repeated tests, and the places of the tests."""
    text = scene.text
    watched = _once(scene.of_kind("monitor")) or _levels(scene)
    if not watched or scene.sentence.question:
        return [], []
    every = [w for w in intervals(text)]
    out, places = [], []
    used: set[int] = set()
    for m in watched:
        ended = _ENDED.search(text)
        if (
            ended
            and not re.search(r"[0-9]", text[m.end:m.end + 8])
            and re.search(r"\bmonitor\w*|\bchecks?\b|\btests?\b|\bdraws?\b", text)
            and abs(ended.start() - m.start) < 60
            and not scene.of_kind("drug")
        ):
            out.append(
                scene.draft(
                    0,
                    len(text),
                    kind="PLAN",
                    concept=m.concept,
                    attribute="plan",
                    polarity="NEGATED",
                    experiencer=scene.experiencer(m.start, m.end),
                )
            )
            places.append((m.start, m.end))
            continue
        near = [w for w in every if w.start not in used and not _dosing(scene, w, m)]
        after = [
            w
            for w in near
            if w.start >= m.end and w.start - m.end < 60 and not re.search(r"[;]", text[m.end:w.start])
        ]
        before = [w for w in near if w.end <= m.start and m.start - w.end < 40]
        chosen = after[0] if after else before[-1] if before else None
        if chosen is None or not _WATCH.search(text) or _reading(text, m, chosen):
            continue
        bound = cues.conditional(text.replace("as long as", "while     "), m.start, m.end)
        out.append(
            scene.draft(
                0,
                len(text),
                kind="PLAN",
                concept=m.concept,
                attribute="plan",
                value=chosen.code,
                polarity="CONDITIONAL" if bound else "AFFIRMED",
                experiencer=scene.experiencer(m.start, m.end),
            )
        )
        places.append((m.start, m.end))
        shared = [x for x in watched if x.start > m.start and x.start < chosen.start]
        if not shared:
            used.add(chosen.start)
    return out, places


_LEVEL = re.compile(r"\b(?:levels?|troughs?|concentrations?)\b")


def _levels(scene: Scene) -> list[Mention]:
    """The level of a drug that stands apart from its name: "lithium requires a level each quarter"."""
    level = _LEVEL.search(scene.text)
    named = [f"{m.concept} level monitoring" for m in scene.of_kind("drug")] if level else []
    return [Mention("monitor", c, level.start(), level.end()) for c in named if c in vocabulary.MONITORING][:1]


def _once(found: list[Mention]) -> list[Mention]:
    out: list[Mention] = []
    for m in found:
        if all(m.concept != o.concept for o in out):
            out.append(m)
    return out


def _reading(text: str, m: Mention, chosen) -> bool:
    """A value stands between the test and the interval: "potassium 4.1, metoprolol daily"."""
    if chosen.start < m.start:
        return False
    return (
        re.search(r"(?<![a-z0-9])[0-9]+(?:\.[0-9]+)?(?! ?(?:weeks?|months?|days?))", text[m.end:chosen.start])
        is not None
    )


def _dosing(scene: Scene, w, m: Mention) -> bool:
    """An interval that is how often a dose is taken."""
    text = scene.text
    dose = re.search(
        r"[0-9] ?(?:mg|mcg|units?|g|ml|tablets?|puffs?)\b[^,;]{0,15}$", text[max(0, w.start - 40):w.start]
    )
    return dose is not None and not (m.end <= w.start and m.end > w.start - 40 + dose.start())


def appointments(scene: Scene, taken: list[tuple[int, int]]) -> tuple[list[Draft], list[tuple[int, int]]]:
    text = scene.text
    if scene.sentence.question:
        return [], []
    named = _once([m for m in scene.of_kind("appointment", "procedure") if not any(a <= m.start < b for a, b in taken)])
    booked = _BOOKED.search(text)
    ahead = _ahead(scene)
    out, places = [], []
    if cues.conditional(text, 0, len(text)) or cues.HYPOTHETICAL.search(text):
        return [], []
    for m in named:
        cancelled = _CANCELLED.search(text) is not None
        if cancelled and scene.experiencer(m.start, m.end) == "PATIENT":
            out.append(scene.draft(0, len(text), kind="PLAN", concept=m.concept, attribute="plan", polarity="NEGATED"))
            places.append((m.start, m.end))
            continue
        if ahead is None and (
            booked is None
            or _PAST.search(text)
            or m.kind == "procedure"
            and not re.search(r"schedul|book|plan|will|upcoming|referr", text)
        ):
            continue
        if ahead is None and scene.time(0, len(text), "past") is not None and not _SURE.search(text):
            continue
        if (
            m.concept.endswith("consultation")
            and "consult" not in text
            and not re.search(r"\brefer|\bappointment|\bvisit|\bsees?\b|\bseeing\b|\bscheduled|\bbooked", text)
        ):
            continue
        time = ahead
        out.append(
            scene.draft(
                0,
                len(text),
                kind="PLAN",
                concept=m.concept,
                attribute="plan",
                experiencer=scene.experiencer(m.start, m.end),
                time=time,
            )
        )
        places.append((m.start, m.end))
    if not named and not scene.of_kind("drug", "measure", "monitor") and ahead is not None:
        m = _GENERIC.search(text) or _REFERRED.search(text) or _BOOKED_FOR.search(text)
        if m and not _NOT_NP.search(m["np"]):
            out.append(
                scene.draft(
                    0, len(text), kind="PLAN", concept=m["np"], attribute="plan", experiencer="PATIENT", time=ahead
                )
            )
            places.append((m.start("np"), m.end("np")))
    return out, places


def _ahead(scene: Scene) -> str | None:
    """Time words for the end of what lies ahead of the entry."""
    for t in scene.times:
        if t.way == "future":
            return ahead_of(t, scene.date)
        if (words := ahead_of(t, scene.date)) is not None:
            return words
    return None


def ahead_of(t: TimeWords, date: str | None) -> str | None:
    """Time words for the end of what is planned for then; None where that is not after the entry's date."""
    if t.way == "future":
        words = re.sub(r"^(?:in) ", "", t.words)
        return f"until {words}" if resolve(f"until {words}", date).end else None
    if t.way in ("past", "elsewhere", "document", "until"):
        words = re.sub(r"^(?:until|on|since|from) ", "", t.words)
        when = resolve(words, date)
        if when.start and date and bounds(when.start)[1] > bounds(date[:10])[1]:
            return f"until {words}"
    return None


def vaccinations(scene: Scene, taken: list[tuple[int, int]]) -> list[Draft]:
    """Vaccines that were given: "flu jab given". One that is due, declined or only spoken of is none."""
    text = scene.text
    if scene.sentence.question or cues.conditional(text, 0, len(text)):
        return []
    return [
        scene.draft(
            0,
            len(text),
            kind="EVENT",
            concept=m.concept,
            attribute="procedure",
            experiencer=scene.experiencer(m.start, m.end),
            time=scene.time(0, len(text), "past", of=m.start),
        )
        for m in _once(scene.of_kind("appointment"))
        if m.concept.endswith(" vaccine")
        and not any(a <= m.start < b for a, b in taken)
        and not re.match(r" (?:reaction|allerg|leaflet|consent|information|side)", text[m.end:])
        and (_HAD.search(text[:m.start]) or _WAS_GIVEN.match(text, m.end))
    ]


def procedures(scene: Scene, taken: list[tuple[int, int]]) -> list[Draft]:
    text = scene.text
    if scene.sentence.question or cues.conditional(text, 0, len(text)) or cues.HYPOTHETICAL.search(text):
        return []
    out = []
    found = [(m.concept, m.start, m.end) for m in _once(scene.of_kind("procedure"))]
    found = found or [(_ORGANS[m["organ"]], m.start("organ"), m.end()) for m in _REMOVED.finditer(text)]
    found = found or [
        (m["part"] + " replacement", m.start("part"), m.end())
        for m in _REPLACED.finditer(text)
    ]
    if not found and _SURGERY_CUE.search(text) and not scene.of_kind("drug"):
        found = [
            (" ".join(m["np"].split()), m.start("np"), m.end("np"))
            for m in _SURGERY.finditer(text)
            if " " in m["np"] or re.search(r"(?:ectomy|otomy|ostomy|plasty|rrhaphy|desis|pexy)$", m["np"])
        ]
    for concept, start, end in found:
        if any(a <= start < b for a, b in taken) or not (_SURGERY_CUE.search(text) or len(text) < 60):
            continue
        low = text[max(0, start - 40):start]
        negated = (
            re.search(
                r"\b(?:no|denies|never had|without|not had|no history of|no prior|declin\w+|refus\w+"
                r"|against)\b[^,;]*$",
                low,
            )
            is not None
        )
        if negated and re.search(r"declin|refus|against", low):
            continue
        out.append(
            scene.draft(
                0,
                len(text),
                kind="EVENT",
                concept=concept,
                attribute="procedure",
                polarity="NEGATED" if negated else "AFFIRMED",
                experiencer=scene.experiencer(start, end),
                time=scene.time(0, len(text), "past", of=start),
            )
        )
    return out
