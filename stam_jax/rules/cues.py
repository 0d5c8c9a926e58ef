"""Words that say who, whether and under which condition, over one sentence in lower case with single line breaks as
blanks. Every pattern is bounded, so that time stays linear in the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

_RELATIVE = (
    r"(?:(?:step|half|grand|great|foster|maternal|paternal|older|younger|elder|eldest|youngest|late|twin"
    r"|identical|first|"
    r"biological|birth|only|big|little|baby|other|deceased)[ -]?){0,3}"
    r"(?:mother|father|mom|mum|mommy|dad|daddy|parents?|sisters?|brothers?|siblings?|sons?|daughters?"
    r"|child(?:ren)?|aunts?"
    r"|uncles?|cousins?|grandmothers?|grandfathers?|grandparents?|grandma|grandpa|granny|nana|niece|nephew"
    r"|wife|husband|spouse"
    r"|partner|mother-in-law|father-in-law|twin|relatives?|family members?|grandson|granddaughter|stepmother"
    r"|stepfather|"
    r"kids?|sib|mgm|mgf|pgm|pgf)"
)
RELATIVE = re.compile(rf"(?<!well[- ])\b{_RELATIVE}\b(?:'s)?")
_STRANGER = re.compile(
    r"\b(?:neighbou?rs?|friends?|roommates?|co-?workers?|colleagues?|boss|girlfriend|boyfriend"
    r"|another patient|"
    r"other patients|classmates?|housemates?|fianc[eé]e?|landlord)\b"
)
_FAMILY_HISTORY = re.compile(
    r"\b(?:family (?:medical )?(?:history|hx)|fhx?|fam hx|family h/o|runs in (?:the|his|her"
    r"|my|your|our|their)"
    r" family|in (?:the|his|her|my|your) family|(?:on )?the family side|side of the family"
    r"|(?:maternal|paternal) (?:side|family|line|history)|on (?:his|her|my|the) (?:mother|father|mom|dad|mum)'?s"
    r" side|familial history"
    r"|first[- ]degree relative|hereditary history)\b"
)
_INFORMANT_BEFORE = re.compile(
    r"(?:\b(?:liv(?:es|ing|e|ed) (?:at home )?with|resid\w+ with|staying with|stays with"
    r"|moved in with|accompanied by|"
    r"according to|per|called|call|spoke (?:to|with)|discussed (?:it |this )?with"
    r"|brought (?:in |here )?by|cared for by|told|contact|"
    r"notify|via|through|with|w/|visit(?:ed|s|ing)?|from|by|help of|assist(?:ed|ance) (?:by"
    r"|of)|supervised by|to|care of|cares? for|caring for|ask)"
    r"(?: (?:a|an|the|his|her|my|your|their|elderly|one|both|two|three|adult|and|pt'?s|patient'?s))*[ ]*)$"
)
_INFORMANT_AFTER = re.compile(
    r"[ ,]*(?:\([a-z ]{1,20}\) )?(?:(?:who|also|has|have|had|is|was|and|today"
    r"|again)[ ]){0,2}(?:reports?|reported|reporting|states?|stated|says?|said|noticed?|"
    r"notices|notes?|noted|called|calls|calling|phoned|thinks?|thought|concerned|worries"
    r"|worried|brought|brings|present|"
    r"at (?:the )?bedside|helps?|helping|manages?|administers?|gives (?:him|her|me)"
    r"|gave (?:him|her|me)|asks?|asked|confirms?|confirmed|wants|"
    r"believes?|describes?|described|reminds?|tells|told|mentioned|mentions|found(?! (?:to"
    r"|with)\b)|kept|shows?|showed|emailed|faxed|sent|read|looked|witnessed|drove|provides"
    r"|provided|fills|"
    r"keeps|sets up|assists|interprets|translat\w+|observed|relays|relayed|adds|insists"
    r"|joined|attends|attended|accompan\w+)\b"
)
_HEARD_OF = re.compile(r"[ ,]*(?:(?:is|was|are|were)[ ])?(?:reported|said|noted|described)[ ](?:to (?:have|be)|as"
    r" having)\b")
_PATIENT_AGAIN = re.compile(
    r"\b(?:patient|pt|i(?=['’ ])|i'm|i've|you|your|(?:but|whereas|while|though|however) (?:he"
    r"|she|her|his|the patient)|himself|herself|myself|"
    r"(?:the )?patient'?s? own)\b(?!'s (?:" + _RELATIVE + r"))"
)
_AFTERWARDS = re.compile(
    rf"^[ ,:(\-–—]{{0,4}}(?:(?:is|are|was)[ ](?:what|the (?:one|dose)|one)[ ](?:that[ ])?(?:my"
    rf"|his|her|the|our|your)[ ])?(?:(?:\w+[ ]){{0,4}}?(?:in|by|of|on|on the part of|affects?"
    rf"|affected|affecting|among)[ ](?:(?:the|his|her|my|your|a|an|their|both|one|two|multiple"
    rf"|patient's|pt's)[ ]){{0,2}}|(?:(?:is|was|(?:is |was )?(?:something|an illness|a condition|what)(?: that| which)?"
    rf"|which|that|took|killed|claimed|struck)[ ]){{1,2}}(?:both[ ]of[ ])?(?:my|his|her|the|our)[ ])?"
    rf"{_RELATIVE}\b"
)
_WHAT_THEY_TAKE = re.compile(
    rf"\b(?:is|was|are) (?:what|the one|the dose)(?: that)? (?:my|his|her|the|our|their" rf"|your) {_RELATIVE}\b"
)


def experiencer(text: str, start: int, end: int, section: str | None) -> str:
    """Whose [start, end) of the sentence is: PATIENT, FAMILY or OTHER."""
    before = text[max(0, start - 300):start]
    state, at = ("FAMILY", -1) if section == "family" else ("PATIENT", -1)
    for pattern, name in ((_FAMILY_HISTORY, "FAMILY"), (RELATIVE, "FAMILY"), (_STRANGER, "OTHER")):
        for m in pattern.finditer(before):
            if pattern is not _FAMILY_HISTORY and (
                _INFORMANT_BEFORE.search(before, max(0, m.start() - 60), m.start())
                or _INFORMANT_AFTER.match(text, start - len(before) + m.end())
                and not _HEARD_OF.match(text, start - len(before) + m.end())
            ):
                continue
            if m.start() > at:
                state, at = name, m.start()
    for m in _PATIENT_AGAIN.finditer(before, max(at, 0)):
        if (
            m.start() > at >= 0
            and not RELATIVE.match(before, m.end() + 1)
            and m.group() not in ("patient", "your", "you")
        ):
            state, at = "PATIENT", m.start()
        elif m.start() > at >= 0 and m.group() == "patient" and not re.match(r"'s", before[m.end():]):
            state, at = "PATIENT", m.start()
    if state == "PATIENT":
        after = text[end:end + 90]
        cut = re.search(r"[.;]|\bbut\b", after)
        after = after[:cut.start()] if cut else after
        if _AFTERWARDS.match(after) or _FAMILY_HISTORY.search(after) or _WHAT_THEY_TAKE.search(after):
            return "FAMILY"
    return state


# ---- condition -------------------------------------------------------------------------------------------------

_WORSE = (
    r"(?:worsen|persist|recur|return|rise|rises|fall|fail|fails|get worse|gets worse|go up|not improve|continue"
    r"|become|develop|need|deteriorate|"
    r"remain|stay|come back|drop|flare|increase|exceed|be above|be over|not be|not respond|not settle|prove"
    r"|occur|climb|creep|work|help|suffice|settle|tolerate|decline|progress)"
)
IF = re.compile(
    r"(?<!\bas )(?<!\bask )(?<!\basked )(?<!\basking )(?<!\bwonders )(?<!\bsee )(?<!\bknow )\b(?:if"
    r"|unless|provided (?:that )?|"
    r"assuming|in case|in the event|depending (?:up)?on|contingent (?:up)?on|pending|as long as"
    r"|whenever)\b"
)
SHOULD = re.compile(
    rf"^should (?!be |take |read )[^?,]{{3,60}}, |(?:^|[,;(] ?)should (?!be |take |read "
    rf"|continue (?:the|his|her|with|on)|stop|start)(?:\w+[ ']){{1,6}}?{_WORSE}"
    rf"|\bshould (?:\w+[ ']){{1,5}}?{_WORSE}"
)
_MAYBE = re.compile(
    r"\b(?:consider(?:ing|ed|ation)?|could|might|would (?!like you to|like to (?:start|begin|stop"
    r"|increase|raise|lower)|like him|like her)|may(?: (?:need|have"
    r"|want))? (?:to )?(?:also )?(?:increase|raise|go up|titrate|be (?:increased|raised|"
    r"titrated|needed|able|reduced|lowered|added|started|necessary)|add|start|escalate|require|reduce"
    r"|lower|decrease|switch|try|uptitrate|bump|cut|drop|move)|"
    r"may go|next step|option|optional|fallback|backup plan|plan b|thinking (?:about|of)|think about"
    r"|threshold (?:to|for)|talked about possibly|possibly (?:increas|start|rais|add|go|stop|reduc"
    r"|switch)\w*|"
    r"potential(?:ly)?|can (?:always )?(?:go up|increase|be (?:increased|raised|titrated|uptitrated)"
    r"|raise|titrate|bump|uptitrate|escalate|move up)|room to|held in reserve|reserve\b|"
    r"hypothetical\w*|tentative\w*|contemplat\w+|debating|weighing|would be to"
    r"|discuss(?:ed)? (?:possibly |potentially |the option of )?(?:starting|increasing|adding|raising"
    r"|stopping|switching|reducing)|"
    r"open to (?:starting|trying|adding|increasing)|recommend(?:ed)? but declined|declined|refus(?:ed"
    r"|es)|decided against|decided not to (?:start|take|begin)|not (?:yet )?(?:been )?(?:to )?start(?:ed)?\b|prior"
    r" auth(?:ori[sz]ation)?\b"
    r"|never started|did not start|hold off on (?:starting|increasing)|"
    r"defer(?:red)? (?:starting|increasing)?)\b"
)
_RETURN = re.compile(
    r"\b(?:call|return|contact|seek|notify|let (?:us|me) know|go to|come (?:in|back)|report|phone"
    r"|hold|stop|present|alert|message|ring|skip)\b[^,;]{0,30}$"
)


def conditional(text: str, start: int, end: int, anchor: int | None = None) -> bool:
    """Whether [start, end) of the sentence is bound to a condition or only thought of. anchor: where the statement
    itself ends: advice that follows it ("..., call if it hurts") binds nothing."""
    anchor = end if anchor is None else anchor
    if _MAYBE.search(text, max(0, start - 160), end) or SHOULD.search(text, 0, min(len(text), end + 120)):
        return True
    for m in IF.finditer(text):
        if m.start() >= anchor and (_instruction(text, anchor, m.start()) or _own_clause(text, anchor, m.start())):
            continue
        return True
    return False


def _instruction(text: str, end: int, at: int) -> bool:
    """Whether the `if` at `at` belongs to advice that follows the words before `end` ("..., call if it hurts")."""
    between = text[end:at]
    cut = max(between.rfind(","), between.rfind(" and "), between.rfind(";"), between.rfind("-"), between.rfind("("))
    return cut >= 0 and _RETURN.search(between[cut:]) is not None


def _own_clause(text: str, end: int, at: int) -> bool:
    """Whether the `if` at `at` opens a clause with a consequence of its own: "..., if above 5, start insulin"."""
    opened = re.search(r"[,;(–—-] ?(?:and |but )?$", text[end:at])
    return opened is not None and _CONSEQUENCE.match(text, at) is not None


_CONSEQUENCE = re.compile(
    r"\w+ (?!(?:(?:well|is|he|she|it|they|the|patient|pt|you) )*(?:tolerat|agree|need|possib|requir|ok|able|willing"
    r"|happy|consent|want|prefer))[^,;]{3,80}, ?"
    r"(?:(?:then|to|please|we|i|she|he|will|would|should|can|could|consider) )*"
    r"(?:start|add|commence|begin|increase|switch|change|refer|stop|reduce|call|give|take|initiate)\w*"
)


HYPOTHETICAL = re.compile(
    r"\bif\b|\bshould (?:you|he|she|they|any|there|it|symptoms)\b|\bin case\b|\b(?:return|call|come back|go|contact"
    r"|notify|seek|let us know|advised|instructed|report)\b[^.;]{0,60}?\b(?:if|for|with|should|any)\b|"
    r"\bwatch(?:ing)? (?:out )?(?:for|closely)|\bmonitor(?:ing|ed)? for\b|\blook(?:ing)? out for\b|\bprecautions?\b"
    r"|\brisks?(?: factors?)? (?:of|for)\b|\bprevent\w*|\bprophylaxis\b|"
    r"\bto avoid\b|\bscreen(?:ed|ing)? for\b|\bcounsel\w*|\beducat\w+|\bwarn\w*|\bwarning (?:signs|symptoms)"
    r"|\bside effects? (?:such|like|include|including|may|can|of\b)|\bmay cause\b|\bcan cause\b|\bcould cause\b"
    r"|\bmight cause\b|"
    r"\blearn about\b|\bhandout\b|\bresearch\b|\bvaccin\w+|\bunless\b|\bto reduce the (?:risk|chance)\b"
)

WARNED = (  # directly before what must not be given
    r"\b(?:avoid(?:s|ing)?|(?:do not|don't|never|must not|mustn't|should not|shouldn't|not to) (?:be )?"
    r"(?:give|given|prescribe|prescribed|receive|administer|administered|have)) (?:(?:the|any|all|oral|iv|further|more"
    r"|other|giving|prescribing|using|taking|use of) )*"
)

# ---- polarity of problems ----------------------------------------------------------------------------------------

_TERMINATOR = re.compile(
    r"\b(?:but|however|although|though|yet|except(?: for)?|nevertheless|aside from|apart from|other than|only|whereas"
    r"|while|because|which|so that|then|and now|started|with)\b(?! exertion)"
    r"|[;]|, (?:and )?(?:he|she|they|the patient|patient|pt|i|we|it|has|had|have|is|was|now|does|reports?|endorses?"
    r"|complains?|developed|presents?|continues?|still|positive|notes?|admits?|then|so|likely|possible|probable"
    r"|suspected|known|c/o|pos)\b"
    r"|\. |\band (?:he|she|i|has|had|have|is|was|reports?|endorses?|complains?|developed|still|positive for|now)\b"
)
_PSEUDO = re.compile(
    r"\b(?:not only|no (?:significant |real |major )?(?:change|improvement|worsening|increase|better|doubt|question"
    r"|longer (?:controlled|well))|not (?:well |yet |fully |adequately |been |optimally |completely "
    r"|entirely )?(?:controlled|improv\w+|better|resolved?|"
    r"resolving|gone|settled|cleared|responding|at goal|sufficient|enough|excluded?|ruled out|better)"
    r"|without (?:significant )?(?:improvement|change|worsening|relief)|cannot (?:be )?(?:exclude|excluded|rule"
    r"|ruled)|can ?not (?:be )?(?:exclude|excluded|rule|ruled)|"
    r"can'?t (?:be )?(?:exclude|excluded|rule|ruled)|not (?:certain|sure|clear) (?:if|whether|that)"
    r"|unable to (?:exclude|rule)|not (?:necessarily|just|merely)|does ?n[o']t (?:exclude|rule)"
    r"|(?<!able )to (?:help )?(?:exclude|rule out)|(?:must|should|need to|let's|let us) (?:exclude|rule out)"
    r"|not (?:yet )?(?:been )?(?:formally |fully |definitively )?(?:excluded|ruled out)"
    r"|did ?n[o']t (?:improve|resolve|help)|no (?:known )?(?:drug )?allerg\w+|"
    r"no relief|no (?:medications?|treatment|therapy|meds) (?:for)|not (?:taking|on|using)|without (?:taking"
    r"|medication)|not tolerat\w+|no response|never (?:went away|resolved|cleared|improved)|no (?:good"
    r"|adequate) control)\b"
)
_NEGATED_BEFORE = re.compile(
    r"\b(?:no|not|denie[sd]|denying|deny|without|w/o|negative (?:for|of)?|neg (?:for)?|never|free (?:of|from)"
    r"|absence of|absent|lacks?|lacking|none of|nor|neither|rule[sd] out|excluded?|excludes|excluding|"
    r"(?:do|does|did|is|are|was|has|have|had|could|ca)n['’]?t|disproved?|against|can (?:now |safely |confidently "
    r"|probably )?(?:rule out|exclude)|able to (?:rule out|exclude)|resol(?:ved|ution of|ved from)|recover(?:ed"
    r"|y)(?: \w+){0,2} from|over (?:the|his|her|my)|got over|cleared of|cured of|"
    r"unremarkable for|doubt|unlikely(?: to (?:be|have|represent))?|declines any|stopped having|no longer (?:has|have"
    r"|having|gets?|getting|reports?|suffers?|complains?|experienc\w+|bothered)|rid of|relieved of|"
    r"refutes?|cessation of|disappearance of|(?:would|would have|wo|should)n['’]?t (?:say|have)|not (?:been"
    r" )?(?:bothered|troubled"
    r"|complaining|suffering)|lost (?:all|the) (?:symptoms|signs) of|clear of|done with|put paid to|exonerat\w+"
    r"|no trace of|no sign of|nothing to (?:suggest|indicate|support)|no suggestion of|no suspicion of|zero|nil"
    r"|never (?:a )?(?=smok)|no more|asymptomatic from|negated"
    r"|inconsistent with|argues? against|not (?:suggestive|consistent|indicative)|-ve)\b|\(-\)"
)
_NEGATED_AFTER = re.compile(
    r"^[\s,:()\-–—=]{0,4}(?:(?:symptoms?|diagnosis|episodes?|problems?|issues?|now|today|since|then|all|also"
    r"|completely|fully|entirely|totally|finally|essentially|largely|has|have|had|is|are|was|were|been|be|being|to"
    r"|that|which|she had|he had|i had|and|by|"
    r"appears?|seems?|remains?|stays?|just|already|subsequently|spontaneously|quickly|on its own|on their own"
    r"|definitively|effectively|safely|clinically|thankfully|really|pretty|much|quite|it|they|"
    r"got|gotten|went|reported|as|of|history|work-?up|test(?:ing|s)?|screen(?:ing)?|scan|imaging|in|on|the|treatment"
    r"|antibiotics|course|after|with|finishing|infection|pain|swelling|a|week|month|over|past|last|few|days|weeks|at"
    r"|this|time|point|cleared up and|is now|both|legs|came|come|back|turned|out|returned|serology|antibod(?:y|ies)"
    r"|markers?|biops(?:y|ies)|cultures?|swabs?|doppler|ultrasound|ct|mri|x-?ray|angiogram|panel|investigations?|blood"
    r"|bloods|tests|picture|possibility|successfully|formally|officially|since)[\s,]+){0,7}?"
    r"(?:rule[dr] out|r/o'?e?d|excluded|resolved|resolve[sd]?|resolution|negative|neg\b|absent|denied|unlikely|gone"
    r"|cleared(?: up)?|clear(?: now)?$|went away|gone away|go(?:es)? away|disappeared|vanished|subsided|healed"
    r"|settled(?: down)?|in (?:full |complete )?remission|remitted|"
    r"passed(?! (?:out|a))|abated|sorted(?: (?:itself|themselves))? out|dried up|(?:taken )?off the (?:table|list)"
    r"|treated successfully|successfully treated|wor[ne]n? off|died down|died away|r[ua]n (?:its|their) course"
    r"|burn(?:ed|t) (?:itself )?out|eliminated|discounted|dismissed|not the (?:case|cause|answer|problem|diagnosis)"
    r"|no longer a feature"
    r"|(?:has|have) left (?:me|him|her)|melted away|cleared (?:completely|entirely|fully)|stopped(?! (?:the|his|her"
    r"|my|taking|using|it|responding|working))|ceased|no longer (?:present"
    r"|an issue|a problem|an active|active|bother\w*|a concern|there|occurring|happening|seen|evident|troubl\w+)"
    r"|not (?:found|seen|present|detected|identified|demonstrated|confirmed|supported|recurred|come back|returned"
    r"|visuali[sz]ed|evident|noted|reported|there|felt to be|what|it)|"
    r"hasn't (?:come back|recurred|returned)|has not (?:recurred|come back|returned)|cured|over(?: now| with)?(?=$"
    r"|[\s,.;])(?! (?:\d|again|the|a\b|an\b|one|two|three|four|five|six|seven|eight|nine|ten|several|some|many|past"
    r"|last|few"
    r"|recent|time|about|around|approx\w*|days|weeks|months|years|his|her|my|night))|none"
    r"|never(?: smoke[rd]?)?\b(?! resolv| went| clear)|non-?smoker|former smoker"
    r"|a thing of the past|behind (?:him|her|me|us)|no more|no$|no longer$|not anymore|any ?more|disproven|disproved"
    r"|refuted|history: none|did not (?:recur|return)|better and gone|dissipated|lifted|"
    r"faded(?: away)?|eradicated|quiet now|all gone|finished|completely better|fully better|100% better"
    r"|back to normal|normali[sz]ed|recovered)(?![\w])"
)
_CLEAR_AFTER = re.compile(
    r"^[ ](?:(?:work-?up|tests?|testing|serology|screen(?:ing)?|scan|imaging|panel|biopsy|cultures?|swabs?"
    r"|antibod(?:y|ies)"
    r"|markers?|doppler|investigations?|bloods?|results?|studies|study|evaluation)[ ]){1,3}"
    r"(?:(?:was|were|is|are|has|have|been|come|came|back|returned|all|entirely|completely|turned|out|proved|now)["
    r" ]){0,4}"
    r"(?:normal|clear|reassuring|unremarkable|negative|unrevealing|benign)\b"
)
_NOT_GONE_AFTER = re.compile(
    r"^[\s,:]{0,3}(?:\w+[ ]){0,3}?(?:not|never|n't|hasn't|haven't|isn't"
    r"|yet to)[ ](?:\w+[ ]){0,2}?(?:resolv\w+|clear\w*|gone|go away|improv\w+|subsid\w+"
    r"|healed?|settled?|ruled out|excluded|abated?|stopped|controlled|better)\b"
)
_LESS = re.compile(
    r"^[\s,:]{0,3}(?:\w+[ ]){0,3}?(?:partially|partly|almost|nearly|mostly|somewhat|incompletely" r"|slowly)[ ]"
)
_UNCERTAIN_BEFORE = re.compile(
    r"\b(?:possible|possibly|probable|probably|suspect(?:ed|s|ing)?|suspicion (?:of|for|is)|suspicious (?:of|for)"
    r"|suggests?|suggestive of|suggesting|suggested|concern(?:s|ed|ing)? (?:for|about|of|that|is)|worr(?:y|ied|isome"
    r"|ies) (?:for|about|that|of|he|she|you|it|i)|can(?:not|'t| not) (?:be )?(?:exclude|rule[d]? out)"
    r"|unable to (?:exclude|rule out)|"
    r"question(?:able)?(?: of)?|query|r/o|rule out|ruling out|to exclude|exclude(?=$| )|evaluat(?:e|ed|ion|ing) for"
    r"|work(?:ing)?[- ]?(?:ed )?up for|work-?up for|differential(?: diagnosis)?(?: \w+)?|ddx|versus|vs\.?|may|might"
    r"|could|perhaps|maybe|presumed|presumptive|equivocal for|"
    r"test(?:ed|ing)? for|check(?:ed|ing)? for|look(?:s|ed|ing)? (?:like|for)|(?:appears?|seems?) (?:to be|like)(?!"
    r" (?:behind|due|caus\w+|responsible|the (?:cause|culprit)|from|related"
    r"|to blame|secondary|linked|resolv\w+|gone|improv\w+))"
    r"|think(?:s|ing)? (?:it|that|this|i|he|she|you|they|about)|thought to (?:be|have|represent)|likely(?! (?:due"
    r"|caused|from|secondary|related|because|a side|an? effect|triggered|attribut\w+|a reaction|precipitated|induced"
    r"|the result|as a result))|"
    r"consideration of|wonder(?:s|ed|ing)? (?:about|if|whether)|considering|consider"
    r"|unclear (?:if|whether)|(?:make|be) sure (?:it'?s?|this|that|he|she"
    r"|you) (?:is|isn't|does|doesn't|do|don't|not|are)|not sure (?:if|whether)|not certain (?:if|whether)|whether"
    r"|raises? the (?:possibility|question|concern|suspicion)|possibility of|working diagnosis(?: of| is)?"
    r"|compatible with|consistent with|in keeping with|(?:would|could|might|may) (?:well )?(?:be|fit|represent|reflect"
    r"|indicate)|fits? (?:best )?with|points? (?:to|towards?)|pointing (?:to|towards?)|favou?r(?:s|ed|ing)?"
    r"|lean(?:s|ing)? towards?|hints? (?:at|of)|hinting at|dealing with|chance (?:of|that)|(?:being )?(?:tested"
    r"|screened"
    r"|scanned|assessed|evaluated|worked up|looked at|seen|referred) for (?:possible|suspected)|testing (?:me|him"
    r"|her|you"
    r"|the patient) for|checking (?:me|him|her|you) for|(?:in|a|some|under) question of|entertain(?:ed|ing)?|could"
    r" it be"
    r"|what (?:looks|seems) like|ruling out|believed to (?:be|have)|speculat\w+|impression of (?:possible|probable)"
    r"|provisional|tentative|investigat(?:e|ed|ing|ion) for|assess(?:ed|ing|ment)? for|does ?n[o']t (?:exclude"
    r"|rule out))\b|\?(?=\s?\w)"
)
_UNCERTAIN_AFTER = re.compile(
    r"^[\s,:()\-–—]{0,4}(?:(?:is|are|remains?|was|still|also|being|has|have|been|a|an|as|the|very|strongly|highly|at"
    r"|least|now|felt|thought|to|be|not|yet|considered|seems?|appears?|only|just|high|low|on|in|our|top"
    r"|of|our|my|very much|list|currently)[\s]+){0,5}?"
    r"(?:possible|possibly|suspected|suspicion|probable|(?:less|not|low) (?:likely|likelihood|probability)"
    r"|likely(?! (?:due|caused|from|secondary|related|because|a side"
    r"|triggered|attribut\w+|a reaction|precipitated|induced|the result|as a result))|questionable|can(?:not| ?not"
    r"|'t) be (?:excluded|ruled out)|(?:ruled out|excluded) yet|worked up|differential|under (?:consideration"
    r"|investigation|evaluation)|"
    r"(?:possibilit(?:y|ies)|concern|consideration|question|presumed|list of (?:possibilities|differentials)|the"
    r" cards|radar"
    r"|being (?:considered|entertained|investigated|explored|queried|looked (?:into|for)|worked up|tested for"
    r"|evaluated)"
    r"|in the frame|not certain|uncertain|unproven|not (?:yet )?(?:been )?(?:proven|established|confirmed yet)"
    r"|yet to be (?:confirmed|proven|excluded|ruled out)|awaiting (?:confirmation|test|results?|scan))\b|queried"
    r"|unconfirmed|\?(?!\w)|work-?up (?:pending|ordered"
    r"|underway|in progress|planned|sent)|to be (?:ruled out|excluded|confirmed)|needs to be (?:ruled out|excluded"
    r"|confirmed)|(?:must|has to|should) be (?:ruled out|excluded)|not (?:yet )?(?:been )?(?:formally |fully "
    r"|definitively )?(?:ruled out|excluded))"
)
_SIGN = re.compile(r"(?:^|(?<=[ ,;:/(]))(?P<sign>[+-])$")  # "+cough, -fever"
_PROVISIONAL = re.compile(
    r"\b(?:provisional|working|tentative|presumptive|presumed|possible|suspected|differential|likely|probable|query"
    r"|leading|initial|preliminary) diagnos\w+[^,;]{0,20}$"
)
_POSITIVE_BEFORE = re.compile(
    r"\b(?:confirm(?:s|ed|ing|ation of)?|positive for|diagnos(?:ed|is|es) (?:with|of|as|is)"
    r"|proven|definite|established|known|test(?:s|ed)? positive|do (?:indeed )?have"
    r"|does (?:indeed )?have|indeed|definitely)\b[^,;]{0,40}$"
)
_POSITIVE_AFTER = re.compile(
    r"^[\s,:]{0,3}(?:(?:was|is|has|been|now|were|have|subsequently|definitively|later"
    r"|diagnosis)[ ]){0,4}(?:confirmed|verified|proven|established|documented on)\b"
)


def polarity(text: str, start: int, end: int, named: Sequence[tuple[int, int]] = ()) -> str:
    """Of the problem named at [start, end): AFFIRMED, NEGATED or UNCERTAIN, by the words around it in the sentence.

    named: where the sentence names problems; "without complications, X" denies nothing but the complications.
    """
    sign = _SIGN.search(text, max(0, start - 2), start)
    if sign is not None:
        return "AFFIRMED" if sign["sign"] == "+" else "NEGATED"
    low = max(0, start - 160)
    for m in _TERMINATOR.finditer(text, low, start):
        if text[m.end():start].strip(" ,") or m.group().startswith((";", ".", ",")):
            low = m.end()
    before = text[low:start]
    after = text[end:end + 160]
    cut = re.search(r"[;.](?=\s|$)|\b(?:but|however|although|though|except|aside from)\b", after)
    after = after[:cut.start()] if cut else after
    pseudo = [(low + m.start(), low + m.end()) for m in _PSEUDO.finditer(before)]
    unsure = _UNCERTAIN_BEFORE.search(before) or (before.rstrip().endswith("?") or None)
    confirmed = _POSITIVE_BEFORE.search(before) or _POSITIVE_AFTER.match(after)
    if confirmed and _PROVISIONAL.search(before):
        return "UNCERTAIN"
    if _CLEAR_AFTER.match(after):
        return "NEGATED"
    if _UNCERTAIN_AFTER.match(after) and not confirmed:
        return "UNCERTAIN"
    gone = _NEGATED_AFTER.match(after)
    if gone and (
        _negated_gone(after, gone)
        or re.search(r", (?:so )?(?:it was |was )?(?:stopped|ceased|finished)$", gone.group())
    ):
        gone = None
    if gone and not _LESS.match(after):
        return "NEGATED"
    for m in _NEGATED_BEFORE.finditer(before):
        inside = any(a <= low + m.start() < b for a, b in pseudo)
        inside = inside or m.group() in ("without", "w/o", "no") and _list_is_over(text, low + m.end(), start, named)
        if not inside and not (m.group() in ("not", "never") and _POSITIVE_AFTER.match(after)):
            last = m
            if unsure is not None and not isinstance(unsure, bool) and unsure.start() > last.end():
                continue
            return "NEGATED"
    if unsure and not confirmed:
        return "UNCERTAIN"
    return "AFFIRMED"


def _list_is_over(text: str, at: int, start: int, named: Sequence[tuple[int, int]]) -> bool:
    """Whether a comma parts a denial from a problem, and what was denied before it is none."""
    comma = text.find(",", at, start)
    return comma >= 0 and bool(named) and not any(at <= a < comma for a, _ in named)


def _negated_gone(after: str, gone: re.Match) -> bool:
    """Whether the word of ending is itself denied: "has not resolved"."""
    return (
        _NOT_GONE_AFTER.match(after) is not None
        and "recur" not in gone.group()
        and "come back" not in gone.group()
        and "return" not in gone.group()
    )


# ---- what is wrong ---------------------------------------------------------------------------------------------

_WRONG = (
    r"mis(?:took|understood|copied|dictated|keyed|filed|quoted|spoke|transcribed|reported|stated|entered|recorded|typed"
    r"|read|heard|labell?ed|coded|charted|documented|written|attributed|print|represented|interpreted|remembered|noted)"
    r"|disregard(?:ed)?|(?:please|kindly) (?:ignore|strike|delete|discard)|(?:earlier|previous|prior|above|last|that"
    r"|this)"
    r"(?: \w+){0,7} (?:invalid(?:ated)?|void)|(?:invalidated|voided)|untrue|inexact|a slip|an oversight"
    r"|only ever|but (?:actually|really|in reality)|(?:is|was|were|are) ?(?:not|n't) (?:right|correct|accurate|true"
    r"|what (?:he|she|i|they|the patient))"
    r"|slip of the pen|clerical|mis-?click\w*|copy-?(?:paste|forward)\w*|copied forward|carried (?:over|forward)"
    r"|pulled (?:over|forward|in)|autopopulated|auto-populated|set(?:s|ting)? the record straight|contrary to"
    r"|ha(?:e)?moly[sz]ed|contaminated|re-?issued|(?:has|had) (?:always|never) been|always was|all along|should never"
    r"|supersedes? the (?:earlier|previous|prior|last)|replaces? the (?:value|result|figure|report|earlier|previous"
    r"|prior)|charting|overrides?|to be corrected|ought to (?:be|read|say|have)|meant to (?:say|write|type|read)"
    r"|was meant to|rather than the"
)
ERROR = re.compile(
    r"\b(?:" + _WRONG + r"|in error|by mistake|by error|by accident|mistaken(?:ly)?|mistake|erroneous(?:ly)?"
    r"|errone\w+|error|erratum"
    r"|incorrect(?:ly)?|wrong(?:ly)?|inaccurate(?:ly)?|misdiagnos\w+|miscod\w+|mislabel\w+|mistyped|misread|misheard"
    r"|mis-?recorded|mis-?entered|mis-?stated|typo(?:graphical)?|"
    r"amend(?:ed|ment|s)?|correct(?:ed|ion|s)\b|correction|corrigendum|revis(?:ed|ion)|should (?:have been|read|be"
    r"|say|have read|have said)|actually|in fact|clarif(?:ied|ication|ies|y)|retract(?:ed|ion)?|addendum"
    r"|never (?:actually )?(?:had|was)|not, as|transcription|data entry|"
    r"instead of what|misunderst\w+|mixed up|mix-?up|mis-?transcribed|the bottle says|bottle (?:says|reads)"
    r"|label (?:says|reads)|discrepan\w+|rectif\w+|not what|rather than|re-?read)\b"
)
RETRACTED = re.compile(
    r"\b(?:entered|listed|recorded|made|documented|charted|added|labell?ed|put|coded|given|noted|carried|placed"
    r"|appear(?:s|ed)|included|attributed|assigned|diagnosed|copied|imported|transcribed"
    r"|written)\b[^;.]{0,45}?\b(?:in error|by mistake|by error|by accident|mistakenly|erroneously|incorrectly|wrongly"
    r"|inadvertently)\b|"
    r"\b(?:coding|charting|clerical|transcription|documentation|data[- ]entry|dictation|filing|billing|template"
    r"|recording"
    r"|typing|scribal|copy-?paste|copy-?forward|registration|labell?ing) (?:mistake|error|slip|artifact|mishap)"
    r"|\bmix-?up"
    r"|\bmixed up\b|\bdo(?:es)? not apply|\bdoesn't apply|\b(?:should|ought) (?:not|never)(?: to)? (?:have been|be)\b"
    r"|\b(?:carried|copied|pulled|brought) (?:over|forward|across)\b[^;.]{0,40}\b(?:another|other|wrong|someone)"
    r"|\b(?:another|other|different) patient's\b|\bsomeone else's\b|\b(?:please|kindly|to) (?:disregard|ignore|strike"
    r"|delete)\b|^(?:disregard|ignore|strike|delete)\b|\bdiagnos\w+[^;.]{0,40}\b(?:retract\w+|rescinded|withdrawn"
    r"|revoked"
    r"|removed|deleted|struck|invalid|void)\b|\b(?:retract\w*|rescind\w*|withdraw|revok\w+) (?:the )?(?:\w+"
    r" ){0,2}diagnos"
    r"|\b(?:is|was)n't (?:mine|his|hers|the patient's|theirs)\b|\b(?:is|was|are) not (?:actually |really )?(?:mine|hers"
    r"|his|the patient's)\b|\bdo(?:es)?(?: not|n't) belong\b|\bunfounded\b|\bnever (?:true|applied|applicable|existed"
    r"|diagnosed|carried)\b|\bmislabel\w*|\bmiscoded\b|\bmis-?(?:filed|entered|recorded|charted|attributed"
    r"|documented)\b|"
    r"\b(?:erroneous|mistaken|incorrect|wrong|inadvertent)(?:ly)? (?:entry|diagnos\w+|label\w*|list\w*|enter\w*"
    r"|record\w*|add\w*|cod\w*|chart\w*|document\w*|attribut\w*|note\w*)|"
    r"\b(?:was|is|were|as) (?:an? )?(?:mistake|error|wrong|incorrect|misdiagnosis|charting error|data entry error"
    r"|typo|clerical error|documentation error)\b|misdiagnos\w+|"
    r"\b(?:does not|doesn't|do not|don't|did not|didn't|never) (?:actually |really |in fact |ever )?(?:have"
    r"|had)\b(?![^.;]{0,40}\b(?:any ?more|any longer|now|today|currently|at this time|at the moment)\b)"
    r"|\bremoved? from (?:the |his |her |your )?(?:problem list|chart|record)|\bbelongs? to another (?:patient|chart)"
    r"|\bintended for another|\b(?:struck|strike|delete[sd]?) (?:from|it)|\bwrong (?:chart|patient)|"
    r"\b(?:error|mistake) in (?:the |my |our |your )?(?:chart|record|note|diagnos)"
)

# ---- drugs ------------------------------------------------------------------------------------------------------

STOP = re.compile(
    r"\b(?:stop(?:ped|ping|s)?|discontinu\w+|d/?c'?(?:e?d)?(?![a-z/])|dc'?ed|cease[ds]?|ceasing|quit(?:ting)?"
    r"|halt(?:ed|ing)?|withdr[ae]wn?|withdrew|withdrawing|withheld|withhold|held|hold(?:ing)?|on hold|"
    r"(?:come|came|coming|comes|taken|took|take|go|went|going|gone|get|got|getting|pulled|weaned|wean(?:ing)?"
    r"|taper(?:ed|ing)?|been|is|are|am|be|i'm|he's|she's|now|stay(?:ing)?|stayed|successfully|completely|totally"
    r"|currently) (?:(?:him|her|me|you|them|completely|slowly|successfully|now|the patient|right|fully"
    r"|totally) ){0,2}off(?! (?:to|from|and on|work))|"
    r"no longer|finished|completed|complet(?:es|ion of)|dropped(?! (?:the )?(?:dose|to|from|down|it to))|removed"
    r"|eliminated|suspend(?:ed|ing)?|abandon(?:ed)?|gave up|given up|giving up|"
    r"not (?:been )?(?:currently |actually |presently )?(?:taking|on|using|take|use|needing|need(?:ed)?|continued?)"
    r"|(?:do|does|did|is|are|was|has|have|had|wo|should)n[’']?t (?:been )?(?:currently |actually |even "
    r"|really )?(?:taking|take|taken|on|using|use|need|continue)|"
    r"(?:do|does|did|is|has|have|had) not (?:been )?(?:currently |actually )?(?:taking|take|taken|on|using|use|need"
    r"|continue)|deprescrib\w+|self-?discontinued|cut out|ditched|came to an end|has ended|ended|terminat\w+"
    r"|any ?more|any longer|never (?:taken|took|takes|been on|used)|cancel(?:l?ed)?|"
    r"ran its course|last dose (?:was )?(?:taken|given)|rescind\w*|cessation of|stoppage"
    r"|no (?:further )?need (?:to (?:continue|take)|for)|nixed|pulled the plug on|taken away|without the"
    r"|discharged off|off of|phase[sd]? out|is out\b|through with|done with|put (?:a stop|an end) to|can go without"
    r"|say goodbye|said goodbye|not to be (?:continued|taken|given|restarted|resumed|renewed)|not to (?:continue|take"
    r"|restart|resume)|cut (?:from|out of)|omit(?:ted|ting)?|(?:has|have|had)(?: not|n't) (?:touched|had any|been"
    r" given)"
    r"|(?:threw|thrown|tossed|chucked|binned|poured) (?:out|away|it|the|my|his|her)|dispensed with|(?:struck"
    r"|crossed|taken|came"
    r"|removed) off|lapsed|left off|leave off|(?:leave|left) out(?! of)|scrapped|axed|shelved|retired|wound down"
    r"|brought to an end|called time on|not (?:being )?(?:renewed|refilled)|gave up on|done taking|cleared off|erased"
    r"|deleted|ceasing|wean from|(?:decided|decision|plan\w*|agreed|going|opted)"
    r" (?:made )?to end|cessation|bring to an end"
    r"|(?:let|have) (?:him|her|the patient|you) (?:come )?off|made to stop|told to stop|discharged without)(?!\w)"
)
OFF = re.compile(
    r"(?:(?:^|[,;:.(] ?|\bpt |\bpatient |\bnow |\bis |\bi'm )off(?: of)?|\bno more)"
    r"(?: (?:of|her|his|my|your|the|any))*[ ]$"
)
NOT_STOP = re.compile(
    r"\b(?:do not|don't|never|should not|shouldn't|without|not to|did not|didn't|has not|hasn't|have not|haven't"
    r"|avoid|rather than|no plans? to|no need to|not|can't|cannot|not been|won't|will not|must not|refuses to"
    r"|afraid to|nor|reluctant to|not going to|was not|wasn't|were not|no intention of|against|no interruption)"
    r" (?:(?:yet|ever|suddenly|abruptly|actually|been|be|even|to|just|having) ){0,2}(?:stop|discontinu|hold|held|quit"
    r"|quitting|come off|came off|d/c|cease|halt|miss|withdraw|drop|be off|go off|going off|finished|completed)\w*"
)
START = re.compile(
    r"\b(?:start(?:ed|ing|s)?|begin(?:ning)?|began|begun|initiat\w+|commenc\w+|add(?:ed|ing)?|prescrib\w+|put (?:him"
    r"|her|me|you|on|the patient|patient)|introduc\w+|trial of|new (?:medication|med|prescription|drug|script|rx)"
    r"|gave (?:me|him|her)|given|launch\w*|placed on|rx|restart\w*|re-?start\w*|resum\w+|reinstat\w+|re-?initiat\w+"
    r"|re-?introduc\w+|"
    r"back on|went on|go on|goes on|got on|kick off|institut\w+|order(?:ed)?|re-?commenc\w+|re-?challeng\w+"
    r"|got prescribed|switch(?:ed)? (?:him|her|me|you)? ?to|changed to)\b"
)
TAKES = re.compile(
    r"\b(?:continu\w+|remains? on|still (?:on|takes?|taking)|takes?|taking|is on|are on|am on|i'm on"
    r"|keep (?:taking|on)|stay(?:s|ing)? on|maintain\w*|on|uses?|using|current(?:ly)?)\b"
)
CHANGE = re.compile(
    r"[↑↓]|\b(?:incr|decr|increas\w+|rais(?:e[ds]?|ing)|up-?titrat\w+|titrat\w+|bump\w*|doubl\w+|halv\w+|halve"
    r"|tripl\w+|decreas\w+"
    r"|reduc\w+|lower\w*|cut(?:ting)?|taper\w*|wean\w*|drop(?:ped|ping)?|down-?titrat\w+|chang\w+|adjust\w*"
    r"|escalat\w+|step(?:ped|ping)? (?:up|down)|go(?:es|ing|ne)? (?:up|down|back)|went (?:up|down|back)|"
    r"go|move[ds]?|mov(?:e|ing) (?:up|down)|dial(?:l?ed)? (?:up|down|back)|switch\w*|modif\w+|now|new dose|dose (?:is"
    r"|was|will)|optimi[sz]\w+|advanc\w+|back(?:ed|ing)? (?:down|off)|augment\w*|set (?:to|at)|shift\w*|rather than"
    r"|instead)\b"
)
CONTEXT_BEFORE = re.compile(
    r"\b(?:due to|because of|caused by|secondary to|owing to|interact\w*(?: \w+)? (?:with|between|of)|while (?:(?:he"
    r"|she|i|you|they|patient|pt|on|is|taking|are|still|am|using|receiving|being|treated|with|the)[ ]){0,4}"
    r"|since (?:(?:starting|he|she|i|beginning|the|my|his|her|being|you|we|they|started|on|put|taking)[ ]?){0,4}|"
    r"(?:after|when|following|once|as soon as) (?:(?:starting|he|she|i|beginning|the|my|his|her|being|you|we|taking"
    r"|started|initiation|of|use|began|takes?|increasing|a|dose)[ ]?){0,4}|side effects? (?:of|from|to)"
    r"|adverse (?:effect|reaction|event)s? (?:of|from|to)|allergic to|reaction to|intoleran\w+ (?:of|to)|response to|"
    r"blam\w+|attribut\w+ to|related to|induced by|effect of|toxicity (?:of|from)|needed for|required (?:for|by)|for"
    r"|as long as (?:\w+ ){0,3}|given (?:the|his|her|your|my)|with|on account of|in (?:a )?patients? (?:on|taking)"
    r"|safety of|monitoring (?:of|for)|levels? of|secondary to|thanks to|avoid(?:ing)?|contraindicat\w+ with"
    r"|brought on by|result of|triggered by|provoked by)"
    r"[ ]*(?:the |her |his |my |your |a |taking |long-term |chronic |ongoing |starting )*$"
)
OLD_BEFORE = re.compile(
    r"(?:\b(?:from|instead of|rather than|not|no longer|and not|previously|formerly|prior(?: dose)?(?: of)?"
    r"|old dose(?: of)?|in place of|in lieu of|replac\w+|versus|vs\.?|than|used to (?:be|take)|had been(?: on| taking"
    r"| listed as)?|wrongly|told you|down from|up from|earlier|originally|initial(?:ly)?(?: reported as| reported)?|"
    r"\bnever|(?:previous|prior|earlier|old|former|last|initial|original) (?:dose|value|result|reading|report|entry"
    r"|figure|level|listing)?(?: of| was| is| at)?|before|was previously|as opposed to|away from)|(?<!\w)(?:ex-"
    r"|\bno ))"
    r"[ ]*(?:(?:at|the|of|on|a|an|dose|taking|as|value|was|is|about|just|only|reported|recorded|listed|being|total"
    r"|mistaken|erroneous|incorrect|wrong|result|reading|released|issued|given|documented|charted|entered|noted|stated"
    r"|published|quoted|called|resulted|read|shown|logged|written|as|figure|entry|once|her|his|prior|previous"
    r"|reported as|stated|it)[ ])*$"
)
NEW_BEFORE = re.compile(
    r"(?:\b(?:to|now|actually|is|should (?:read|be|say|have been|have read)|(?:new|right|true|actual|corrected"
    r"|correct|real|proper|current|revised|amended) (?:dose|value|result|one|number|figure|dosage|amount|reading"
    r"|level|strength)?|says|reads|ought to (?:be|read|say)|(?:has|had) always been|always been|always was|meant to"
    r" be|really|equals|in fact(?: takes| taking)?|will be|be|takes|taking|today|at)|->|→|=>"
    r"|—>|-->)"
    r"[ ]*(?:(?:is|was|be|to|at|of|a|an|the|only|just|dose|takes|taking|on|now|about|currently|actually|in|fact|being"
    r"|up|down|she|he|i|total)[ ])*$"
)
RECORDED = re.compile(
    r"\b(?:listed|entered|recorded|documented|charted|noted|wrote|written|said|told|transcribed|typed|copied"
    r"|put(?: down| in)?|shown|showed|stated|misread|misheard|reported|logged|showing|quoted|gave|called it"
    r"|had (?:it )?(?:down )?as|put|lists|carried|states|stating|indicated|printed|reflects?|shows|reads"
    r"|read)\b[^;]{0,40}$"
)
WRONG_AFTER = re.compile(
    r"^[^;]{0,30}?\b(?:in error|by mistake|by error|mistaken\w*|erroneous\w*|incorrect\w*"
    r"|wrong\w*|is not right|was not right|an error|a mistake|a typo|inaccurate\w*"
    r"|reporting error|was (?:a |an )?(?:\w+ )?error|mis(?:read|print|heard|typed|keyed|quoted|copied)"
    r"|ha(?:e)?moly[sz]ed"
    r"|invalid|void|spurious|contaminated|not (?:true|accurate|right|correct)|does not apply)\b"
)
ARROW_AFTER = re.compile(r"^[ ]*(?:->|→|=>|-->|—>|>|to\b|up to\b|down to\b)")
GOAL = re.compile(
    r"\b(?:goals?|targets?|targeting|aim(?:ing)?(?: for)?|threshold|keep (?:it|the|his|her|your|bp|k"
    r"|inr)?|should be (?:below|under|above|over|less|between)|cut-?off|reference (?:range|interval)"
    r"|normal (?:range|is)|parameters|therapeutic range|range of|ideally|hold (?:for|if)|call (?:for"
    r"|if)|notify)\b"
)

# ---- what the last word on a slot is: a correction, or a change -----------------------------------------------------

_CORRECTS = re.compile(
    r"\b(?:" + _WRONG + r"|in error|by mistake|by error|by accident|mistaken(?:ly)?|mistake|erroneous(?:ly)?"
    r"|errone\w+|error|erratum"
    r"|incorrect(?:ly)?|wrong(?:ly)?|inaccurate(?:ly)?|mis(?:recorded|entered|stated|reported|typed|read|heard"
    r"|labell?ed|coded|transcribed|diagnosed|charted|documented|written)|mis-\w+ed|"
    r"typo(?:graphical)?|amend(?:ed|ment|s)?|correct(?:ed|ion|s)\b|corrigendum|should (?:have been|read|say|have read"
    r"|have said)|(?:true|correct|actual|right|real) (?:dose|value|result|reaction|number|figure|reading|dosage"
    r"|amount|level|one)|in fact|clarif(?:ied|ication|ies|y)|disregard|should be (?=[0-9])|verified (?:with|from"
    r"|against|by)|retract(?:ed|ion)?|"
    r"addendum|mixed up|mix-?up|misunderst\w+|(?:bottle|label) (?:says|reads|shows)|discrepan\w+|rectif\w+"
    r"|is (?:also )?actually|actually (?:takes|taking|is|was|got|had|on)|as (?:previously |originally "
    r"|initially )?(?:reported|documented|recorded|listed|charted|entered)|initially reported|previously reported"
    r"|not [0-9.]+ as)\b"
)
_REVISED = re.compile(r"\brevis(?:ed|ion)|\bupdated\b|\brather than\b|\bnot\b|\bnever\b")
_MOVES = re.compile(
    r"\b(?:now|from now on|instead|chang\w+|switch\w*|increas\w+|reduc\w+|lower\w*|going forward"
    r"|starting|start|anymore|these days|no longer|please|split|take)\b"
)


def corrects(text: str, attribute: str | None) -> bool:
    """Whether a sentence says that what stood before was wrong, rather than that it changed."""
    text = " ".join(text.lower().split())
    if attribute == "preference":
        return (
            re.search(
                r"\b(?:in error|by mistake|mistaken(?:ly)?|erroneous(?:ly)?|incorrect(?:ly)?|wrong(?:ly)?" r"|error)\b",
                text,
            )
            is not None
        )
    if _CORRECTS.search(text):
        return True
    if attribute == "allergy":
        return _REVISED.search(text) is not None
    if attribute == "value":
        return (
            re.search(r"\brevis(?:ed|ion)\b|[0-9][^;]{0,25}?\b(?:and )?not [0-9]|\bnot [0-9][^;]{0,20}? but\b", text)
            is not None
        )
    return re.search(
        r"\b(?:is|takes|was)\b[^;]{0,30}?\b(?:and )?not [0-9]|\bnot [0-9][^;]{0,25}? but [0-9]", text
    ) is not None and not _MOVES.search(text)
