"""What a patient wants and how they live: code status, contact, diet, home, language, pharmacy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stam_jax.rules import cues
from stam_jax.rules.scene import Scene
from stam_jax.write.writer import Draft

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
    r"|ications?)|hear from|touch base|drop (?:me|him|her)|shoot (?:me|him|her)|give (?:me|him|her) an?"
    r"|correspondence|(?:sent|send|updates?|results?|information|messages?|letters?|appointments?) (?:\w+"
    r" ){0,4}?(?:by|via"
    r"|through|over|to)|(?:way|method|mode|means|channel) (?:to|of|for)|reminders?|messages? (?:me|him|her)"
    r"|correspond\w+|(?:prefer\w*|rather|wants?"
    r"|wish\w*|please|best way|use|switch\w*|send|like[sd]?|ask\w*|opt\w*|choos\w*|chose|request\w*|favou?rs?"
    r"|keep\w*|go(?:es)? with|rely|relies|responds?"
    r"|answers?|picks? up)[^.;]{0,60}?(?:call|phone|text"
    r"|e-?mail|portal|letter|sms|mail|ring|post|fax|video)\w*"
    r"|(?:calls?|texts?|text messages?|e-?mails?|letters?|portal(?: messages?)?)[^.;]{0,20}\b(?:prefer\w*|(?:is|are"
    r"|works?)"
    r" (?:best|preferred|the best)))\b"
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
        r"dnr|dnar|dnacpr|(?:(?:does|do|would|did|should|will) not|(?:does|do|would|did|should|wo)n't|not|never|no"
        r" longer)"
        r" (?:(?:ever|want|wants|wish|wishes|like|to|be|have|receive|accept|for|any|undergo|desire|desires|consent"
        r"|agree"
        r"|given|attempted|a candidate|under any circumstances)[ ]){0,5}(?:cpr|resuscitat\w+|chest compressions"
        r"|brought back|revived|shocked|heroic measures|heroics)|(?:declin|refus|reject|forgo|forego|against|opts?"
        r" out of"
        r"|opted out of|withhold|no)\w* (?:any |all )?(?:cpr|resuscitation|chest compressions|heroic measures|heroics)"
        r"|(?:just )?let (?:me|him|her|nature) (?:go|take)|die naturally|natural death|(?:do not|do-not|don't|not"
        r" (?:to )?(?:be|want to be)"
        r"|no) (?:attempt )?resuscitat(?:e|ion|ed)|no cpr|no code\b|allow natural death",
    ),
    (
        "do not intubate",
        r"dni|(?:(?:does|do|would|did|should|will) not|(?:does|do|would|did|should|wo)n't|not|never|no longer|no"
        r"|declin\w+"
        r"|refus\w+|against) (?:(?:ever|want|wants|wish|wishes|like|to|be|have|receive|accept|for|any|a|put|placed"
        r"|on|go"
        r"|hooked|up|kept|alive|by|the|undergo|desire|mechanical|invasive)[ ]){0,7}(?:intubat\w+|ventilat\w+"
        r"|breathing (?:machine|tube)|life support|respirator)|(?:do not|don't|not (?:to )?be|no) intubat(?:e|ion"
        r"|ed)|no (?:breathing tube" r"|ventilator)",
    ),
    ("comfort measures only", r"comfort (?:measures|care)(?: only)?|cmo\b|hospice care only"),
    (
        "full code",
        r"full[ -](?:code|resuscitation|resus|treatment|escalation)|(?:wants?|wish\w*|do|have) everything"
        r"(?: possible)?(?: (?:to be )?(?:done|tried))?|every(?: possible)? (?:effort|measure)|all (?:possible"
        r" )?(?:resuscitative"
        r"|life-?saving|resuscitation) (?:measures|efforts)|for (?:attempted )?(?:resuscitation|cpr)|(?:wants?"
        r"|would want"
        r"|wish\w*|agrees?) (?:to (?:be|have|receive) )?(?:cpr|resuscitat\w+)|attempt (?:cpr|resuscitation)|no"
        r" limits? on"
        r" (?:care|treatment)",
    ),
    ("limited resuscitation", r"limited code|partial code|limited resuscitation"),
)
_CODE = re.compile("|".join(f"(?P<c{i}>(?<![a-z]){p}(?![a-z]))" for i, (_, p) in enumerate(_CODES)))
_CODE_CUE = re.compile(
    r"\bcode[ -]status|\bresuscitat\w+|\bdnr\b|\bdni\b|\bdnar\b|\bfull code|\bintubat\w+"
    r"|\bcomfort (?:measures|care)|\bcpr\b|\badvance directive|\bgoals of care|\bno code\b"
    r"|\blimited code|\bdnacpr\b|\bcardiac arrest|\bheart (?:should )?stop|\bbreathing (?:tube|machine)|\bventilat\w+"
    r"|\blife support|\beverything\b|\bresus\b|\bheroic|\bchest compressions|\bnatural(?:ly)?\b|\brevived|\bbrought"
    r" back"
    r"|\blimits? on|\bescalation|\bpass(?:es)? away|\barrest|\brespirator|\blet (?:me|him|her) go\b|\blast wishes"
    r"|\bend of life|\bmolst\b|\bpolst\b|\blife-?saving|\bpartial code"
)
_CARE = re.compile(  # what was done or not, rather than what is wanted
    r"[ ](?:was |were |is |been |being )?(?:needed|required|necessary|training|class\w*|courses?|used|given|performed"
    r"|indicated|certif\w+|started|attempted)\b"
)
_LIVES = re.compile(
    r"\b(?:lives?|living|resid(?:es|ing)|reside|dwell(?:s|ing)|stay(?:s|ing)"
    r"|moved(?: (?:back )?in(?:to)?)?|moving|relocated|transitioned|settled|entered|placed|admitted|housed"
    r"|gone to live|went to live|home with"
    r"|shar(?:es|ing) (?:a |an |the |his |her |my )?(?:home|house|apartment|flat|place|household)|home is|is now"
    r"|currently|now|based|transferred"
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
    r"|\bdwelling|\bshar(?:es|ing) (?:a|an|the|his|her|my)?[ ]?(?:home|house|apartment|flat|place|household)"
    r"|\bhousehold\b|\bhoused\b|\bgroup home|\bresidential (?:care|home)|\b(?:entered|settled in|placed in|admitted to)"
    r" (?:an? |the )?(?:\w+ )?(?:nursing|assisted|care|memory|residential|group)|\bsenior (?:living|housing)|\bcare"
    r" home"
    r"|\bat home with|\blong-?term care|\bhomeless|\bon (?:my|his|her) own\b|\bresidence\b|\broof\b"
)
_ALONE = re.compile(
    r"\b(?:liv\w+|resid\w+|stay\w*|dwell\w*|home|house|apartment|flat|household)\b[^;,.]{0,25}?\b(?P<how>alone|on"
    r" (?:his"
    r"|her|my|their) own|by (?:himself|herself|myself)|independently)\b|\b(?:i'm|i am|he is|she is|now) (?:now |all )?"
    r"(?P<how2>on my own|on (?:his|her) own|all alone|alone)(?= (?:now|since|in the|at home)\b|$|[,.;])"
)
_WITH = re.compile(
    r"\b(?P<who>son|daughter|sister|brother|mother|father|wife|husband|partner|parents|niece|nephew|roommate)s?"
    r" (?:has |have |is |are )?(?:now )?(?:moved in|liv(?:es?|ing)|stay(?:s|ing)?) with (?:him|her|me|the patient"
    r"|patient)\b"
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
    r"\bdiet\w*|\brestrict\w*|\bintake\b|\bkeeps?\b|\bsticks?\b|\bsticking\b|\badher\w+|\bobserv\w+|\bmeat\b|\bcook\w*"
    r"|\bmenu\b|\btray\b|\blifestyle\b|\bpractic\w+|\bprefer\w*|\bstrict\w*|\bwants?\b|\bchoos\w+|\bchose\b"
    r"|\bopt\w*|\beat(?:s|ing|en)?\b|\bfood\b|\bmeals?\b|\b(?:became|become|becoming|gone|went"
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
_TONGUES = (
    r"spanish|english|mandarin|cantonese|french|arabic|russian|vietnamese|korean|portuguese|polish|german|hindi|urdu"
    r"|tagalog|farsi|somali|italian|japanese|bengali|punjabi|haitian creole|creole|american sign language|asl|ukrainian"
    r"|turkish|greek|swahili|amharic|nepali|thai|khmer|hmong|armenian|hebrew|romanian|dutch|swedish|tamil|gujarati"
)
_TONGUE = re.compile(
    rf"\b(?:(?:language|tongue)(?: of choice| preference| spoken)?(?: is|:| -|,)? ?(?P<a>{_TONGUES})|(?P<b>{_TONGUES})"
    rf"(?:[- ]speaking|[- ]speaker| interpreter| translator|[- ]only)|(?:interpreter|translator)["
    rf" (:,-]{{1,3}}(?P<c>{_TONGUES})"
    rf"|(?:speak|talk|communicat|convers|consult|discuss|written|materials?|visits?|appointments?)\w*"
    rf"(?: (?:to|with|best|better|only|mainly|mostly|her|him|me|and|read|things|conducted|held|be)){{0,3}} (?:in )?"
    rf"(?P<d>{_TONGUES})|(?:comfortable|at ease|fluent|better|best)(?: \w+){{0,2}} (?:in|with) (?P<e>{_TONGUES}))\b"
)
_CONTRACEPTION = re.compile(
    r"\b(?P<v>condoms?|copper (?:iud|coil)|hormonal iud|levonorgestrel iud|mirena|iud|combined (?:oral"
    r" contraceptive )?pill"
    r"|oral contraceptives?(?: pills?)?|progestin-only pill|progestogen-only pill|mini-?pill|the pill|depo(?:-|"
    r" )provera"
    r"|contraceptive implant|nexplanon|implant|tubal ligation|vasectomy|withdrawal|natural family planning"
    r"|contraceptive patch|vaginal ring|nuvaring|diaphragm|abstinence)\b"
)
_BLOOD = re.compile(
    r"\b(?:declin\w+|refus\w+|(?:does|do|will|would) not (?:want|accept|consent to|agree to)|(?:does|do|wo|would)n't"
    r" (?:want|accept|consent to)|(?<![a-z] )no(?= blood products?$| transfusions?$)|objects? to|against|rejects?)"
    r" (?:(?:any|all|receiving|a|an) ){0,2}"
    r"(?:blood(?: products?| transfusions?)?|transfusions?)(?= |$|[,.;])(?! (?:in|per|on) (?:the |his |her"
    r" )?(?:urine|stool"
    r"|rectum|sputum)| (?:pressure|work|draw|test|thinner|clot|sugar|thinning|loss|noted|seen))"
)
_PROXY = re.compile(
    r"\b(?:health ?care (?:proxy|agent|power of attorney)|medical power of attorney|durable power of attorney"
    r"|surrogate decision[- ]maker)\b[^.;]{0,30}?\b(?P<v>son|daughter|sister|brother|mother|father|wife|husband|partner"
    r"|niece|nephew|friend)\b"
)
_DIRECTIVE = re.compile(
    r"\b(?:advance directive|living will|molst|polst)\b[^.;]{0,20}?\b(?P<v>on file|in place|completed|signed|in the"
    r" chart)\b"
)
_LANGUAGE = re.compile(
    r"\b(?:speaks? (?:only |mainly |primarily )?|primary language(?: is|:)? ?|interpreter (?:for"
    r"|needed for) |needs an? |requires an? |requests an? |prefers (?:to speak "
    r"|to communicate in )?)(?P<v>spanish|english|mandarin|cantonese|french|arabic|russian"
    r"|vietnamese|korean|portuguese|polish|german|hindi|urdu|tagalog|farsi|somali|italian|japanese"
    r"|bengali|punjabi|creole|american sign language|asl|ukrainian|turkish|greek)\b"
)
_PHARMACY = re.compile(
    r"\b(?:pharmacy(?: of choice| preference)?(?: is now| is|:| -| changed to) ?|(?:prescriptions?|scripts?|meds"
    r"|medications)"
    r" (?:should |to |can |must |please )*(?:go|be sent|be filled|sent|filled|routed)(?: to| at)? |uses?|fills"
    r" (?:prescriptions|meds|medications) at|prescriptions (?:sent )?to"
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
        if (m := _held(text, _CODE)) and not _CARE.match(text, m.end()):
            yield "code status", _CODES[int(m.lastgroup[1:])][0], m.start()
    if (
        _CONTACT.search(text)
        and re.search(
            r"\b(?:prefer\w*|rather|wants?|wish\w*|please|best|contact|reach|like[sd]?"
            r"|instead|from now on|use|ask\w*|request\w*|switch\w*|method"
            r"|communicat\w+|reminders?|notif\w+|send|would|opt\w*|choos\w*|chose|favou?rs?|shoot|drop|give me|hear"
            r"|correspond\w*|updates?|only|always|never|rely|relies|responds?|answers?|way|mode|channel|means)\b",
            text,
        )
        and not re.search(
            r"\b(?:with any|if|advised|concerns|questions|worsen\w*|instructed|called|emergency|911"
            r"|(?:told|reminded|encouraged|needs?) to (?:phone|ring|call|text|e-?mail|contact)"
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
            re.search(r"\bdiet|\beat|\bfood|\bmeal|\brestrict|\bintake|\bmenu|\btray", text)
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
    elif m := _TONGUE.search(text):
        yield "preferred language", next(v for v in m.groups() if v), m.start()
    if re.search(r"\bcontracepti|\bbirth control|\bfamily planning", text) and (m := _held(text, _CONTRACEPTION)):
        yield "contraception", m["v"].removeprefix("the "), m.start()
    if m := _BLOOD.search(text):
        yield "blood products", "declines blood products", m.start()
    for pattern, concept in ((_PROXY, "health care proxy"), (_DIRECTIVE, "advance directive")):
        if m := pattern.search(text):
            yield concept, m["v"], m.start()
    if m := _PHARMACY.search(text):
        yield "pharmacy", m["v"], m.start()


def _held(text: str, pattern: re.Pattern) -> re.Match | None:
    """The choice that holds among those named: not the one "instead of", "from" or "not"."""
    found = list(pattern.finditer(text))
    holding = []
    for i, m in enumerate(found):
        left = text[max(found[i - 1].end() if i else 0, m.start() - 45):m.start()]
        if re.search(
            r"\b(?:instead of|rather than|don't|do not|stop using|not|no longer|from|over(?! to)|than|dropped"
            r"|dropping|gave up|given up|giving up|abandon\w*|quit|previously|never"
            r" (?:pick|answer|check|read|use|look)\w*(?: up| at)?|rarely \w+|avoid\w*|ignores?"
            r"|no good|does not (?:use|have|read|check)|doesn't (?:use|have|read|check)|(?:had|has) been|earlier|old"
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
    if (m := _ALONE.search(text)) and not re.search(
        r"\b(?:no longer|not|n't|cannot|can't|unable|afraid|used to|previously|unsafe|safe|wants? to|able)\b",
        text[max(0, m.start() - 25):m.end()],
    ):
        yield "living situation", "alone", m.start()
        return
    if m := _WITH.search(text):
        yield "living situation", f"with a {m['who']}", m.start()
        return
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
