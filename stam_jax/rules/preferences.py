"""What a patient wants and how they live: code status, contact, diet, home, language, pharmacy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stam_jax.rules import cues
from stam_jax.rules.scene import Scene
from stam_jax.writer import Draft

_METHODS = (
    ("phone call", r"(?:tele)?phone(?: calls?)?|by call(?:ing)?|calls?\b|mobile|cell ?phone|landline" r"|ring(?:ing)?"),
    ("text message", r"text(?:s|ing|ed)?(?: messages?| messaging)?|sms"),
    ("email", r"e-?mails?"),
    ("patient portal", r"(?:patient |online |the )?portal(?: messages?| messaging)?" r"|mychart(?: messages?)?"),
    ("letter", r"letters?|mail(?:ed letters?)?|post\b|postal mail|regular mail"),
    ("video call", r"video (?:calls?|visits?)|videoconference|zoom"),
    ("voicemail", r"voice ?mails?"),
    ("fax", r"fax"),
)
_METHOD = re.compile("|".join(f"(?P<m{i}>(?<![a-z]){p}(?![a-z]))" for i, (_, p) in enumerate(_METHODS)))
_CONTACT = re.compile(
    r"\b(?:contact(?:ed|ing)?|reach(?:ed|ing)?|get (?:in touch|hold of)|communicat\w+|notif(?:y|ied"
    r"|ications?)|reminders?|messages? (?:me|him|her)|correspond\w+|(?:prefer\w*|rather|wants?"
    r"|wish\w*|please|best way|use|switch\w*|send|like[sd]?|ask\w*)[^.;]{0,60}?(?:call|phone|text"
    r"|e-?mail|portal|letter|sms|mail)\w*)\b"
)
_CODES = (
    (
        "do not resuscitate, do not intubate",
        r"dnr ?(?:/|and|&|,) ?dni|dni ?/ ?dnr|(?:do not"
        r"|don't) resuscitate(?:,| and| or|/| nor)? ?(?:or )?(?:(?:do not"
        r"|don't) )?intubate",
    ),
    (
        "do not resuscitate",
        r"dnr|dnar|(?:do not|do-not|don't|not (?:to )?(?:be|want to be)"
        r"|no) (?:attempt )?resuscitat(?:e|ion|ed)|no cpr|no code\b|allow natural death",
    ),
    (
        "do not intubate",
        r"dni|(?:do not|don't|not (?:to )?be|no) intubat(?:e|ion|ed)|no (?:breathing tube" r"|ventilator)",
    ),
    ("comfort measures only", r"comfort (?:measures|care)(?: only)?|cmo\b|hospice care only"),
    (
        "full code",
        r"full[ -](?:code|resuscitation|treatment)|wants everything done|all (?:resuscitative"
        r"|life-?saving) measures",
    ),
    ("limited resuscitation", r"limited code|partial code|limited resuscitation"),
)
_CODE = re.compile("|".join(f"(?P<c{i}>(?<![a-z]){p}(?![a-z]))" for i, (_, p) in enumerate(_CODES)))
_CODE_CUE = re.compile(
    r"\bcode[ -]status|\bresuscitat\w+|\bdnr\b|\bdni\b|\bdnar\b|\bfull code|\bintubat\w+"
    r"|\bcomfort (?:measures|care)|\bcpr\b|\badvance directive|\bgoals of care|\bno code\b"
    r"|\blimited code"
)
_LIVES = re.compile(
    r"\b(?:lives?|living|resid(?:es|ing)|reside|dwell(?:s|ing)|stay(?:s|ing)"
    r"|moved(?: (?:back )?in(?:to)?)?|moving|relocated|home is|is now|currently|now|based|transferred"
    r"|shares? (?:a |an )?(?:home|house|apartment|flat))\b"
    r"(?: (?:is|now|currently|and (?:is )?(?:now )?(?:lives?|living)|at home|still|in|into|to|out"
    r"|back|at|on (?:his|her|my|their) own|by (?:himself|herself|myself)))*?[ ]*"
    r"(?P<how>alone|independently|on (?:his|her|my|their|your) own|by (?:himself|herself|myself"
    r"|themselves|yourself)|with [a-z' -]{3,40}|(?:in|into|to|at) (?:an? |the |his |her "
    r"|my )?[a-z' -]{3,45}|homeless|in [a-z' -]{3,40})(?=$|[,.;:()]| and (?:has|is|does|will|he|she)"
    r"| since| as of| now| after| for the| following| due| because| rather| instead| not| again"
    r"| these days| at this)"
)
_LIVING_CUE = re.compile(
    r"\blives?\b|\bliving (?:situation|arrangement|alone|with|in|at|independent)|\bliving\b"
    r"|\breside|\bresiding|\bmoved\b|\bmoving\b|\bhousing\b|\bnursing home|\bassisted living"
    r"|\bhome situation|\bstays? (?:with|at|alone)|\bstaying (?:with|alone|in|at)|\brelocated"
    r"|\bdwelling"
)
_PLACE = re.compile(
    r"\b(?:home|house|apartment|flat|facility|living|shelter|alone|with|community|residence|condo"
    r"|trailer|complex|center|centre|hospice|dorm|village|ranch|farm|housing|own|himself|herself"
    r"|myself|independently|homeless|street|care|city|town|suite|basement)\b"
)
_LIVING_LABEL = re.compile(
    r"\b(?:living situation|living arrangements?|home situation|housing|social history"
    r"|lives)\b[ ]*(?:is|has changed to|changed to|:|-|=|now)*[ ]*(?P<how>[a-z][a-z' -]{3,45})"
)
_DIETS = (
    r"vegetarian|vegan|pescatarian|low[ -]sodium|low[ -]salt|gluten[ -]free|low[ -]carb(?:ohydrate)?|ketogenic"
    r"|keto|mediterranean|diabetic|dash|kosher|halal|low[ -]fat|low[ -]fodmap|renal|dairy[ -]free"
    r"|lactose[ -]free|paleo|plant[ -]based|heart[ -]healthy|cardiac|high[ -]protein|high[ -]fiber"
    r"|high[ -]fibre|"
    r"soft|pureed|liquid|clear liquid|full liquid|carb(?:ohydrate)?[ -](?:controlled|consistent|counting)"
    r"|low[ -]potassium|low[ -]sugar|no[ -]added[ -]salt|omnivor\w+|fluid[ -]restricted|low[ -]purine"
    r"|low[ -]cholesterol|calorie[ -]restricted|intermittent fasting|sodium[ -]restricted|salt[ -]restricted"
    r"|low[ -]residue|whole[ -]food|nut[ -]free|sugar[ -]free|raw food|low[ -]protein|reduced[ -]sodium"
    r"|low[ -]glycemic"
)
_DIET = re.compile(rf"(?<![a-z])(?P<d>{_DIETS})(?![a-z])")
_DIET_CUE = re.compile(
    r"\bdiet\w*|\beat(?:s|ing|en)?\b|\bfood\b|\bmeals?\b|\b(?:became|become|becoming|gone|went"
    r"|going|is|now|am|been|turned|i'm|he's|she's|identifies as)\b(?= (?:a |an |fully |strictly "
    r"|now |recently |going )?(?:vegetarian|vegan|pescatarian|gluten|keto|kosher|dairy|plant|halal"
    r"|paleo))|\bfollow\w*|\bnutrition\b|\bswitched to\b|\bvegetarian\b|\bvegan\b|\bavoids?\b"
)
_LABELLED = re.compile(
    r"\bpreferred (?P<what>language|name|pronouns?|pharmacy|hospital|provider|gender"
    r"|appointment time|lab(?:oratory)?|clinic|method of payment|learning style|time of day|arm"
    r"|formulation)[ ]*(?:is|:|=|-|changed to|has changed to|now"
    r"|remains)+[ ]*(?:now )?(?P<v>[a-z0-9][a-z0-9' /&-]{1,40})"
)
_LANGUAGE = re.compile(
    r"\b(?:speaks? (?:only |mainly |primarily )?|primary language(?: is|:)? ?|interpreter (?:for"
    r"|needed for) |needs an? |requires an? |requests an? |prefers (?:to speak "
    r"|to communicate in )?)(?P<v>spanish|english|mandarin|cantonese|french|arabic|russian"
    r"|vietnamese|korean|portuguese|polish|german|hindi|urdu|tagalog|farsi|somali|italian|japanese"
    r"|bengali|punjabi|creole|american sign language|asl|ukrainian|turkish|greek)\b"
)
_PHARMACY = re.compile(
    r"\b(?:uses?|fills (?:prescriptions|meds|medications) at|prescriptions (?:sent )?to"
    r"|sends? (?:prescriptions|scripts) to|switched to|prefers?"
    r"|go(?:es)? to) (?:the )?(?P<v>[a-z][a-z' &.-]{2,30}? pharmacy(?: on [a-z ]{3,20})?)\b"
)
_TAIL = re.compile(
    r"(?: (?:last (?:week|month|year|spring|summer|fall|winter)|this (?:week|month|year)|recently|yesterday"
    r"|now|currently|at this time|today|these days|at present|for now|as discussed.*|per .*"
    r"|after .*|from now on|going forward|instead|and .*|since .*|because .*|rather than .*|not .*"
    r"|as of .*|again|for .*|going|by choice|diet))+$"
)
_SMALL = re.compile(r"\b(?:his|her|my|their|your)\b")


def preferences(scene: Scene) -> list[Draft]:
    text = scene.text
    if scene.sentence.question:
        return []
    out, seen = [], set()
    bound = (
        cues.conditional(text, 0, len(text))
        and re.search(r"\bif\b|\bconsider|\bthinking about|\bmight\b|\bmay\b" r"|\bcould\b|\bdepending\b", text)
        is not None
    )
    for concept, value, at in _found(scene):
        if concept in seen or not value:
            continue
        if concept != "living situation" and scene.experiencer(at, at + 1) != "PATIENT":
            continue
        seen.add(concept)
        out.append(
            scene.draft(
                0,
                len(text),
                kind="PREFERENCE",
                concept=concept,
                attribute="preference",
                value=value,
                polarity="CONDITIONAL" if bound and concept != "code status" else "AFFIRMED",
                time=scene.time(0, len(text), "past"),
            )
        )
    return out


def _found(scene: Scene) -> Iterator[tuple[str, str, int]]:
    text = scene.text
    if _CODE_CUE.search(text):
        if m := _held(text, _CODE):
            yield "code status", _CODES[int(m.lastgroup[1:])][0], m.start()
    if (
        _CONTACT.search(text)
        and re.search(
            r"\b(?:prefer\w*|rather|wants?|wish\w*|please|best|contact|reach|like[sd]?"
            r"|instead|from now on|use|ask\w*|request\w*|switch\w*|method"
            r"|communicat\w+|reminders?|notif\w+|send|would)\b",
            text,
        )
        and not re.search(
            r"\b(?:with any|if|advised|concerns|questions|worsen\w*|instructed|called|emergency|911"
            r"|clinic|call (?:bell|light|button)|returned|left)\b",
            text,
        )
    ):
        if m := _held(text, _METHOD):
            yield "contact method", _METHODS[int(m.lastgroup[1:])][0], m.start()
    if _LIVING_CUE.search(text):
        yield from _living(text)
    if (
        _DIET_CUE.search(text)
        and (m := _held(text, _DIET))
        and (
            re.search(r"\bdiet|\beat|\bfood|\bmeal", text)
            or m["d"].startswith(
                ("veg", "pesc", "glut", "keto", "kosh", "dair", "plant", "halal", "paleo", "low", "medit")
            )
        )
    ):
        value = re.sub(r"-", " ", m["d"])
        yield "diet", {"low salt": "low sodium", "keto": "ketogenic", "low carbohydrate": "low carb"}.get(
            value, value
        ), m.start()
    if m := _LABELLED.search(text):
        yield {"language": "preferred language", "pharmacy": "pharmacy"}.get(
            m["what"], f"preferred {m['what']}"
        ), _TAIL.sub("", m["v"]).strip(), m.start()
    elif m := _LANGUAGE.search(text):
        yield "preferred language", m["v"], m.start()
    if m := _PHARMACY.search(text):
        yield "pharmacy", m["v"], m.start()


def _held(text: str, pattern: re.Pattern) -> re.Match | None:
    """The choice that holds among those named: not the one "instead of", "from" or "not"."""
    found = list(pattern.finditer(text))
    holding = []
    for i, m in enumerate(found):
        left = text[max(found[i - 1].end() if i else 0, m.start() - 45):m.start()]
        if re.search(
            r"\b(?:instead of|rather than|don't|do not|stop using|not|no longer|from|over|than|previously"
            r"|was|formerly|used to be|and not|no more|never|away from|in place of|replac\w+|stop|hates?"
            r"|dislikes?|doesn't (?:want|like)|without)[ ]+(?:(?:by|a|an|the|to|being|via|through|be|wants?"
            r"|contacted|reached|on|eating|my|calling|phone|any|regular|use|following|status|more|with"
            r"|calls?)[ ]+)*$",
            left,
        ):
            continue
        if i + 1 < len(found) and re.fullmatch(
            r"[ ,]*(?:status )?(?:diet )?(?:->|→|to|changed to|is now" r"|now)[ ]*(?:a |an )?(?:be )?",
            text[m.end():found[i + 1].start()],
        ):
            continue
        holding.append(m)
    return (
        holding[-1]
        if holding and re.search(r"\b(?:changed|now|to|instead)\b", text) and len(found) > 1
        else holding[0] if holding else None
    )


def _living(text: str) -> Iterator[tuple[str, str, int]]:
    best = None
    for m in _LIVES.finditer(text):
        how = m["how"].strip()
        if not _PLACE.search(how) or re.search(
            r"\b(?:past|old|previous|before|used to|no longer|not)\b[^;,.]*$", text[max(0, m.start() - 20):m.start()]
        ):
            continue
        best = m
    if best is None and (label := _LIVING_LABEL.search(text)) and _PLACE.search(label["how"]):
        best = label
    if best is None:
        return
    how = _TAIL.sub("", best["how"].strip())
    how = re.sub(r"^(?:now|currently|is|lives|living) ", "", how)
    how = re.sub(
        r"^(?:on|by) (?:his|her|my|their|your)? ?(?:own|self)$|^by (?:himself|herself|myself|themselves"
        r"|yourself)$|^independently$",
        "alone",
        how,
    )
    how = re.sub(r"^(?:in)?to ", "in ", how)
    yield "living situation", " ".join(_SMALL.sub("a", how).split()), best.start()
