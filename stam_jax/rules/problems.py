"""Problems and symptoms: there, denied, gone, suspected, of a relative, or recorded by mistake."""

from __future__ import annotations

import dataclasses
import re

from stam_jax.rules import cues, vocabulary
from stam_jax.rules.lexicon import Mention
from stam_jax.rules.scene import Scene
from stam_jax.write.writer import Draft

_INDICATION = re.compile(
    r"\b(?:for|to treat|to control|to manage|treat(?:ing|ment of)?|against|management of"
    r"|control of|to help(?: with)?|prn|as needed(?: for)?|address|cover|covering"
    r"|helps?(?: with)?|suppress|targeting|to ease|relieve)"
    r"[ ]+(?:(?:his|her|your|my|the|their|a|an|this|better|ongoing|control|of|known|new|newly"
    r"|diagnosed|recent|improved|suspected|presumed|acute|chronic|persistent|moderate|severe"
    r"|mild|possible|underlying|uncontrolled|worsening|treatment|management)[ ]+)*$"
)
_CAUSE = re.compile(
    r"\b(?:due to|because of|caused by|secondary to|2/2|owing to|on account of|associated with"
    r"|related to|given|from|in (?:a|the) (?:patient|setting|context) (?:with|of)|as a result of"
    r"|attribut\w+ to|complication of|complicating|resulting from|"
    r"in view of|in light of|thanks to|over|for|about|by|following|after|on the background of"
    r"|in association with|consequence of|linked to|stemming from|reflecting|explained by|tied to"
    r"|connected (?:with|to)|accompanying|alongside|goes with|in conjunction with|hand in hand with|in tandem with"
    r"|against (?:a|the) background of|on (?:a|the) background of|in connection with|together with|provoked by"
    r"|precipitated by|brought on by|set off by|triggered by|blamed on|down to|traced (?:back )?to|ascribed to"
    r"|arising from|sequela of|driven by|on the basis of|concomitant with|coexisting with|on top of|in the"
    r" (?:setting|context) of)"
    r"[ ]+(?:(?:the|his|her|your|my|their|a|an|new|onset|severe|persistent|recurrent|long-?standing"
    r"|underlying|known|worsening|poorly|controlled|uncontrolled|intolerable|troublesome|bothersome"
    r"|significant|development|of|ongoing|chronic|patient|developing|some|side|effect|effects|concern"
    r"|for|concerns|about|mild|existing|advanced|longstanding|pre-existing)[ ]+)*$"
)
_ONSET = re.compile(
    r"\b(?:developed|develops|experienced|experiencing|had|has|reported|reports|complained of|got"
    r"|began having|started having|noticed|suffered|onset of|after developing|develop"
    r"|having)[ ]+(?:(?:a|an|the|some|severe|new|his|her|troublesome|persistent|significant|worsening"
    r"|mild)[ ]+)*$"
)
_TREATED_AFTER = re.compile(r"^[ ]*(?:with|using)\b")
_PREVENTED = re.compile(
    r"[ -]?(?:vaccine|cessation|precautions?|relief|counsel\w*|history: never|vaccination|clinic"
    r"|specialist|medications?|meds?|drugs?|pills?|tablets?|guidelines?|screening|screen"
    r"|prevention|prophylaxis|risk|education|diet|diary|log|action plan|monitoring|monitor"
    r"|control|regimen|cuff|questionnaire|scale|score|panel|unit|service|center|support group"
    r"|walk|awareness|test(?:ing)? (?:ordered|scheduled|pending|kit))\b"
)
_SYMPTOMS = frozenset({  # for which a drug may be given without there being a disease
    "pain", "back pain", "nausea", "vomiting", "fever", "itching", "cough", "constipation", "diarrhea", "edema",
    "insomnia", "anxiety", "muscle spasm", "seizures", "depression",
})
_NAMED = (
    (
        r"\b(?:newly |recently |just |first |been |was |previously )?diagnos(?:ed|is) (?:with|of"
        r"|as)(?: having)? (?P<np>{np})",
        None,
    ),
    (
        r"\b(?:told|informed)(?: (?:me|him|her|us))? (?:that )?(?:i|he|she|i've|they)(?: have| has| had|'ve got"
        r"| got) (?P<np>{np})",
        None,
    ),
    (r"\b(?:denies|denied|negative for|no evidence of|no signs? of|no symptoms of) (?:any )?(?P<np>{np})", "NEGATED"),
    (
        r"^(?P<np>{np}) (?:has |have |is |was |had )?(?:now |been |completely |fully )?(?:resolved|ruled out|excluded"
        r"|cleared up|healed|gone)\b",
        "NEGATED",
    ),
    (r"\b(?:ruled out|excluded|resolution of|recovered (?:\w+ )?from) (?P<np>{np})", "NEGATED"),
    (
        r"\b(?:suspected|possible|probable|suspicious for|concern for|cannot exclude|rule out|r/o) (?P<np>{np})",
        "UNCERTAIN",
    ),
    (
        r"\b(?:complains of|c/o|presents with|presented with|presenting with|suffers from|suffering from|history of|h/o"
        r"|recurrence of|known) (?P<np>{np})",
        None,
    ),
    (r"^(?P<np>{np}) (?:was |has been |is )?(?:diagnosed|confirmed|has recurred|recurred)\b", None),
    (r"\bfamily (?:history|hx)(?: is)?(?: positive| significant| notable)?(?: for| of|:) (?P<np>{np})", None),
)
_NP = (
    r"(?:[a-z][a-z'-]{2,24})(?: (?!was|were|is|has|have|had|and|or|but|in|on|by|for|with|due|after|since|from|at"
    r"|to|not|because|when|while|last|this|today|yesterday|during|through|until|as|who|which|that|now|again|of the"
    r"|he|she|they|it|remains)[a-z][a-z'-]{1,24}){0,3}"
)
_NAMED_PATTERNS = tuple((re.compile(p.format(np=_NP)), polarity) for p, polarity in _NAMED)
_NO_PROBLEM = re.compile(
    r"\b(?:i'?ve|i'?m|he'?s|she'?s|it'?s|that'?s|they'?ve|we|they|i|he|she|complaints?|concerns?|symptoms?"
    r"|problems?|issues?|questions?|changes?|allerg\w+"
    r"|medications?|meds|drugs?|results?|follow|visit|care|surgery|tobacco|alcohol|drug use|use"
    r"|any|other|new|recent|acute distress|"
    r"distress|difficulty|side|effects?|adverse|events?|trauma|injury|travel|contacts?|exposure"
    r"|history|treatment|therapy|compliance|adherence|time|plan|thing|everything|nothing"
    r"|something|what|good|well|improvement|doctor|recurrence|abnormalit\w+|findings?|evidence"
    r"|control|details?|smoking|prescription|taking|infection|disease|illness|condition|breath"
    r"|weight|appetite|sleep)\b"
)
# abbreviations that mean something else beside these words
_OTHER_BEFORE = {concept: re.compile(pattern) for concept, pattern in {
    "rheumatoid arthritis": r"(?:\bon|%) ?$",  # room air
    "ulcerative colitis": r"\b(?:at|to|in|from|via|the|local) $",  # urgent care
    "pneumonia": r"(?:[0-9] ?(?:mg|mcg|g|units?)?|\boral|\bpo) ?$",  # capsule
    "diabetes": r"\b(?:mucinex|robitussin|guaifenesin) $",
}.items()}
_OTHER_AFTER = {concept: re.compile(pattern) for concept, pattern in {
    "pulmonary embolism":  # physical examination
        r" ?:(?! ?(?:[12][0-9]{3}|prov|unprov|on |dx|s/p|bilat|acute|seg|sub))|,? (?:wnl|unremarkable|unchanged)\b",
    "stroke": r" (?:tenderness|tender|angle|ttp|percussion)\b",
    "atrial fibrillation": r"[ ,/;]{1,2}(?:vss|vital)",  # afebrile
    "chest pain": r" angle",
    "pneumonia": r" (?:po|by mouth|orally|daily|bid|tid|qid|qhs|once|twice|[0-9])",
}.items()}
_THEN = (
    r"(?:(?:at|during|on|with|when|while|after|in|upon) (?:the )?(?:rest|night|exertion|exercise|activity|walking"
    r"|stairs"
    r"|climbing stairs|movement|motion|swallowing|urination|eating|meals|coughing|bending|standing|lying (?:down|flat)"
    r"|weight[- ]bearing|deep breath(?:s|ing)?|inspiration|palpation|running|lifting|sex|intercourse)"
    r"|when (?:i|he|she|they|pt|patient) (?:walks?|runs?|climbs?|exercises?|coughs?|swallows?|lies|stands?|bends?"
    r"|lifts?"
    r"|breathes?|moves?)|exertionally)"
)
_SAVE = re.compile(
    rf",? (?:except|apart from|other than|unless|save|but (?:only|does|has it|some))(?: for| only)? {_THEN}\b"
)
_KIND = re.compile(r"\b(?P<kind>exertional|nocturnal|pleuritic|resting|rest|positional|postprandial|nighttime) $")
_AWAITED = re.compile(r"\b(?:until|till|once|when|as soon as) (?:(?:the|his|her|your|my|this|acute) )*$")
_COMES = re.compile(  # "until AKI resolves"
    r" (?:resolves?|improves?|clears?|settles?|subsides?|heals?|abates?|goes away|is (?:better|controlled|gone|resolved"
    r"|treated)|has (?:resolved|improved|cleared|settled)|controlled|resolved|resolution)\b"
)
_STILL = re.compile(rf"[^.;]{{0,30}}\b(?:only|still|persists|remains) {_THEN}\b")
_ONLY_THEN = re.compile(rf" (?P<when>{_THEN})\b(?! (?:or|and) (?:on|with|at) (?:exertion|rest|exercise))")
_SETTLED = re.compile(
    r"[,;–-] ?(?:(?:now|since|all|fully|completely|then|has|have|quickly|soon) )*(?:settled|resolved|cleared|subsided"
    r"|recovered)"
    r"(?: (?:since|now|fully|completely|quickly|overnight))?$"
)
_ACUTE_GONE = re.compile(  # "AKI on CKD 3a, resolved": the acute one
    r" on (?:ckd|chronic [a-z]+(?: [a-z]+)?)[^,;.]{0,12}[,;–-] ?(?:(?:now|since|has|fully|completely) )*(?:resolved"
    r"|recovered)\b"
)
_SEQUENCE = re.compile(r"[ ,/&]*(?:and|or|nor|and/or)?[ ,]*(?:any |no |other |new |the |of |significant |recent )*")


def problems(scene: Scene, taken: list[tuple[int, int]]) -> list[Draft]:
    """taken: places whose names stand for something else (a reaction, a test)."""
    text = scene.text
    named = [m for m in scene.of_kind("problem") if not any(a <= m.start < b for a, b in taken)]
    named = [
        m
        for m in named
        if not any(
            o is not m and o.start <= m.start and m.end <= o.end and (o.start, o.end) != (m.start, m.end)
            for o in scene.mentions
        )
    ]
    if not named:
        return _unnamed(scene, taken)
    out, seen = [], set()
    busy = bool(scene.of_kind("drug"))
    spots = [(m.start, m.end) for m in named]
    retracted = cues.RETRACTED.search(text) is not None
    for i, m in enumerate(named):
        if m.concept in seen or _other_thing(text, m):
            continue
        role, polarity = _role(scene, named, i, busy), _polarity(text, named, i, spots)
        treated = role == "indication" and polarity == "AFFIRMED" and _treated(scene, m)
        role = None if treated else role
        if role == "skip" or role is not None and polarity == "AFFIRMED":
            continue
        if role is not None and polarity == "UNCERTAIN":
            continue
        if role is not None and polarity == "NEGATED" and not _gone_itself(text, m):
            continue
        if retracted and polarity != "UNCERTAIN":
            polarity = "NEGATED"
        concept, polarity = _qualified(text, m, polarity)
        draft = _draft(scene, concept, m.start, m.end, polarity, named, i)
        out.append(dataclasses.replace(draft, time=None) if treated else draft)  # the time is the drug's
        seen.add(m.concept)
    return out


def _polarity(text: str, named: list[Mention], i: int, spots: list[tuple[int, int]]) -> str:
    """By the words around the name, and by what the sentence says of it at its end: "?gout - no, not gout"."""
    m = named[i]
    polarity = cues.polarity(text, m.start, m.end, spots)
    if polarity == "AFFIRMED" and (len(named) == 1 and _SETTLED.search(text, m.end) or _ACUTE_GONE.match(text, m.end)):
        return "NEGATED"
    again = [o for o in named[i + 1:] if o.concept == m.concept]
    if polarity == "UNCERTAIN" and any(cues.polarity(text, o.start, o.end, spots) == "NEGATED" for o in again):
        return "NEGATED"
    return polarity


def _qualified(text: str, m: Mention, polarity: str) -> tuple[str, str]:
    """(concept, polarity): who denies a symptom at rest may have it on exertion, who denies it save then has it."""
    if polarity != "NEGATED":
        return m.concept, polarity
    if _SAVE.match(text, m.end) or _STILL.match(text, m.end):
        return m.concept, "AFFIRMED"
    if kind := _KIND.search(text, max(0, m.start - 20), m.start):
        return f"{kind['kind']} {m.concept}", polarity
    only = _ONLY_THEN.match(text, m.end)
    return (f"{m.concept} {only['when']}", polarity) if only else (m.concept, polarity)


def _draft(scene: Scene, concept: str, start: int, end: int, polarity: str, named: list, i: int) -> Draft:
    text = scene.text
    experiencer = scene.experiencer(start, end)
    of = start if len(scene.of_kind("problem", "procedure", "drug")) > 1 else None
    time = scene.time(0, len(text), "past", "lasting", of=of)
    if time is not None and polarity == "AFFIRMED" and time.startswith("for the past"):
        time = None if scene.time(0, len(text), "past", of=of) is None else time
    kind = (
        "BACKGROUND"
        if experiencer != "PATIENT"
        else (
            "EVENT"
            if polarity == "NEGATED"
            and re.search(r"resol|gone|clear|ruled|exclud|error|mistake|recover|heal|went away", text)
            else "STATE"
        )
    )
    return scene.draft(
        0,
        len(text),
        kind=kind,
        concept=concept,
        attribute="status",
        polarity=polarity,
        experiencer=experiencer,
        time=time,
    )


def _treated(scene: Scene, m: Mention) -> bool:
    """Whether a drug that is known to treat a disease is said to be taken for it: "metformin for type 2 diabetes"."""
    text = scene.text
    drugs = [d for d in scene.of_kind("drug") if d.end <= m.start]
    if not drugs or m.concept in _SYMPTOMS:
        return False
    facts = vocabulary.DRUGS.get(drugs[-1].concept)
    between = text[drugs[-1].end:m.start]
    return (
        facts is not None
        and re.search(r"\b(?:for|to treat|to control|to manage) (?:his |her |my |the )?$", between) is not None
        and m.concept in facts.treats
        and not re.search(r"[;?]|\bprn\b|\bas needed\b|\bprophyla\w*|\bprevent\w*|\bnot\b", between)
        and not cues.conditional(text, drugs[-1].start, m.end)
        and not cues.STOP.search(text)
        and not any(t.way in ("length", "until") for t in scene.times)  # a course for what will pass
    )


def _gone_itself(text: str, m: Mention) -> bool:
    """A reason that has ended: "after the dizzy spells settled"."""
    return (
        cues._NEGATED_AFTER.match(text[m.end:m.end + 120]) is not None
        and cues._NOT_GONE_AFTER.match(text[m.end:m.end + 120]) is None
    )


def _other_thing(text: str, m: Mention) -> bool:
    """The name is part of another: "asthma clinic", "flu vaccine", "stroke risk", "blood pressure medication"."""
    before, after = _OTHER_BEFORE.get(m.concept), _OTHER_AFTER.get(m.concept)
    if m.end - m.start <= 4 and (before and before.search(text, max(0, m.start - 30), m.start)
                                 or after and after.match(text, m.end)):
        return True
    return _PREVENTED.match(text[m.end:m.end + 30]) is not None and not re.match(
        r"[ ]*(?:control\w* with)", text[m.end:m.end + 14]
    )


def _role(scene: Scene, named: list[Mention], i: int, busy: bool) -> str | None:
    """None where the problem is what the sentence states; else what it is there for."""
    text, m = scene.text, named[i]
    before = text[max(0, m.start - 90):m.start]
    if scene.sentence.question:
        return "skip"
    if _listed_before(text, named, i):
        before = text[max(0, named[i - 1].start - 90):named[i - 1].start]
        j = i - 1
        while j > 0 and _listed_before(text, named, j):
            j -= 1
            before = text[max(0, named[j].start - 90):named[j].start]
    low = max(0, m.start - 120)
    if cues.HYPOTHETICAL.search(text, low, m.start) or cues.SHOULD.search(text):
        return "skip"
    if _AWAITED.search(before) and _COMES.match(text, m.end):
        return "skip"
    if (
        re.match(r" (?:worsens|recurs|persists|returns|is not controlled)\b", text[m.end:m.end + 30])
        and "should" in before
    ):
        return "skip"
    if busy and _INDICATION.search(before):
        return "indication"
    if (
        busy
        and _TREATED_AFTER.match(text[m.end:m.end + 8])
        and re.search(r"\b(?:treat|manage|control)\w* (?:\w+ ){0,3}$", before)
    ):
        return "indication"
    if (
        _CAUSE.search(before)
        and not re.search(
            r"\b(?:complicated|accompanied|followed) by |\b(?:neg(?:ative)?|pos(?:itive)?|notable|remarkable"
            r"|significant) for ",
            before)
        and (i > 0 or busy)
        and not _ONSET.search(before)
    ):
        subject = scene.of_kind("drug", "problem", "measure")
        if any(x.start < m.start for x in subject):
            return "cause"
    stops = cues.STOP.search(text, 0, m.start) is not None or scene.sentence.section == "stopped"
    if busy and stops and re.search(r"\([^()]{0,40}$", before):
        return "cause"  # "stop amlodipine (ankle oedema)"
    if (
        busy
        and not _ONSET.search(before)
        and cues.STOP.search(text, 0, m.start)
        and re.search(r"\b(?:because|since|as|when|after|once)\b", text[:m.start])
        and not _gone_itself(text, m)
    ):
        return "cause"
    if (
        busy
        and re.search(r"\b(?:because|since|as|response|until) ", before)
        and re.search(r"\b(?:increas|rais|reduc|lower|decreas|bump|cut)\w*", text[:m.start])
    ):
        return "cause"
    return None


def _listed_before(text: str, named: list[Mention], i: int) -> bool:
    """Whether a problem goes on in a list: "cough, fever or chills"."""
    return i > 0 and _SEQUENCE.fullmatch(text[named[i - 1].end:named[i].start]) is not None


def _unnamed(scene: Scene, taken: list[tuple[int, int]]) -> list[Draft]:
    """A problem that no list has, told by the words around it: "diagnosed with Felty triad"."""
    text = scene.text
    if (
        scene.sentence.question
        or len(text) > 400
        or scene.of_kind("drug", "measure", "procedure", "appointment", "allergen")
    ):
        return []
    if cues.HYPOTHETICAL.search(text):
        return []
    for pattern, polarity in _NAMED_PATTERNS:
        m = pattern.search(text)
        if m is None or any(a <= m.start("np") < b for a, b in taken):
            continue
        concept = re.sub(r"^(?:any|a|an|the|his|her|my|your|new|recent|severe|acute(?= )|known) ", "", m["np"]).strip()
        if _NO_PROBLEM.search(concept) or len(concept) < 4:
            continue
        told = polarity or cues.polarity(text, m.start("np"), m.end("np"))
        if cues.RETRACTED.search(text):
            told = "NEGATED"
        return [_draft(scene, concept, m.start("np"), m.end("np"), told, [], 0)]
    if re.search(r"\bafebrile\b", text):
        return [_draft(scene, "fever", 0, len(text), "NEGATED", [], 0)]
    return []
