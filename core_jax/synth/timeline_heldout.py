"""The `heldout` wording of timelines. Data only.

Written and frozen apart from every rules writer, and never to be read while one is written: it measures how rules do
on wording that their author has not seen. A test holds the hash of this file; a changed line is a new set, not an edit.
"""
from __future__ import annotations

from core_jax.synth.timeline_phrases import (
    LISINOPRIL,
    SHARED_COURSES,
    SHARED_DRUGS,
    SHARED_LABS,
    SHARED_VITALS,
    SPIRONOLACTONE,
    WARFARIN,
    Course,
    Drug,
    Measure,
    Phrases,
    names,
    templates,
)

_LOSARTAN = Drug("losartan", "mg", ("25", "50", "100"), "daily", "hypertension", "lightheadedness")
_ROSUVASTATIN = Drug("rosuvastatin", "mg", ("5", "10", "20"), "nightly", "hyperlipidemia", "myalgia")
_EMPAGLIFLOZIN = Drug("empagliflozin", "mg", ("10", "25"), "daily", "type 2 diabetes", "genital itching")
_DIGOXIN = Drug("digoxin", "mg", ("0.0625", "0.125", "0.25"), "daily", "atrial fibrillation", "anorexia",
                ("digoxin level monitoring", "every 3 months"))
_AZATHIOPRINE = Drug("azathioprine", "mg", ("50", "75", "100", "150"), "daily", "crohn's disease", "vomiting",
                     ("blood count monitoring", "every month"))
_CARBAMAZEPINE = Drug("carbamazepine", "mg", ("100", "200", "400"), "bid", "epilepsy", "double vision",
                      ("sodium monitoring", "every 6 weeks"))
_ESCITALOPRAM = Drug("escitalopram", "mg", ("5", "10", "20"), "daily", "generalized anxiety disorder", "sweating")
_PREGABALIN = Drug("pregabalin", "mg", ("50", "75", "150"), "bid", "fibromyalgia", "weight gain", None, "tid")
_MONTELUKAST = Drug("montelukast", "mg", ("5", "10"), "nightly", "asthma", "vivid dreams")
_VERAPAMIL = Drug("verapamil", "mg", ("40", "80", "120"), "tid", "migraine", "constipation")
_FLUCONAZOLE = Drug("fluconazole", "mg", ("100", "200"), "daily", "onychomycosis", "nausea")

HELDOUT = Phrases(
    name="heldout",
    drugs=(*SHARED_DRUGS, _LOSARTAN, _ROSUVASTATIN, _EMPAGLIFLOZIN, _DIGOXIN, _AZATHIOPRINE, _CARBAMAZEPINE,
           _ESCITALOPRAM, _PREGABALIN, _MONTELUKAST),
    courses=(*SHARED_COURSES, Course("strep throat", "penicillin v", "500", "mg", "bid", 10),
             Course("shingles", "valacyclovir", "1000", "mg", "tid", 7),
             Course("diverticulitis", "metronidazole", "500", "mg", "tid", 7)),
    interactions=((WARFARIN, _FLUCONAZOLE), (_DIGOXIN, _VERAPAMIL), (_LOSARTAN, SPIRONOLACTONE),
                  (LISINOPRIL, SPIRONOLACTONE)),
    symptoms=("chest pain", "shortness of breath", "palpitations", "dysuria", "hematuria", "blurry vision", "fever"),
    suspicions=("pulmonary embolism", "lupus", "myasthenia gravis", "temporal arteritis", "adrenal insufficiency"),
    inherited=("breast cancer", "stroke", "prostate cancer", "parkinson's disease", "aortic aneurysm"),
    labs=(*SHARED_LABS, Measure("ferritin", "ng/mL", 8, 9, 24, 0, keeps=True), Measure("alt", "U/L", 14, 6, 20, 0)),
    vitals=(*SHARED_VITALS, Measure("respiratory rate", "breaths/min", 11, 1, 14, 0)),
    allergies=(("penicillin", ("hives", "wheezing")), ("codeine", ("itching", "vomiting")),
               ("iodinated contrast", ("flushing", "bronchospasm")), ("peanuts", ("angioedema", "hives"))),
    preferences={
        "contact method": ("phone call", "portal message", "letter"),
        "code status": ("full code", "do not resuscitate", "comfort measures only"),
        "living situation": ("alone", "with a roommate", "in a nursing home"),
        "mobility aid": ("cane", "walker", "wheelchair"),
    },
    surgeries=("cholecystectomy", "left knee replacement", "hysterectomy", "defibrillator implantation"),
    appointments=("mammogram", "sleep study", "bone density scan", "dermatology visit"),
    say=templates("""
drug.start note
    Rx sent: {drug} {dose} {freq}, indication {problem}.
    {problem} - adding {drug} {dose} {freq}, pt counselled.
    We opted to initiate therapy with {drug} ({dose} {freq}) given {problem}.
    Commenced on {drug} {dose} {freq} {when} in view of {problem}.
    Trial of {drug} {dose} PO {freq}.
    Given new {drug} script, {dose} to be taken {freq}.
    For {problem} pt placed on {drug} {dose} {freq}.
drug.start speech
    D: I'm going to write you for {drug}, {dose}, {freq}, that should help the {problem}.
    D: So the plan for your {problem} is {drug}, and we'd begin with {dose} {freq}.
    P: Picked up the new one from the drugstore {when}, it's {drug} {dose}, I do it {freq}.
    P: Cardiology added {drug} {dose} {freq} to what I have.
drug.up note
    {drug} uptitrated, now {dose} {freq}.
    ↑ {drug} {old} -> {dose} {freq}.
    Suboptimal on {old} of {drug}; advance to {dose} {freq}.
    Titrate {drug} upward to {dose} {freq} as of {day}.
    Bumped {drug} from {old} up to {dose} {freq}.
    Pt to take {dose} of {drug} {freq} going forward (was {old}).
drug.up speech
    D: I'd like to go up on the {drug}. Make it {dose} {freq}.
    P: The nurse had me bump the {drug} up, so it's {dose} {freq} now.
    P: We went from {old} to {dose} on the {drug} {when}, still {freq}.
drug.down note
    {drug} tapered to {dose} {freq}.
    ↓ {drug} to {dose} {freq} (from {old}).
    Backed off on {drug}: {dose} {freq}.
    {drug} dose halved or so, {old} -> {dose} {freq}.
    Titrated {drug} down {when}, presently {dose} {freq}.
drug.down speech
    D: Let's back off the {drug} a bit, {dose} {freq} will do.
    P: He had me drop the {drug} to {dose} {freq}.
    P: I was getting too much {drug} at {old}, it's just {dose} {freq} these days.
drug.frequency note
    {drug} {dose}: switch {oldfreq} dosing to {freq}.
    Dosing interval of {drug} {dose} adjusted, {oldfreq} -> {freq}.
    Split {drug} differently: {dose} {freq} rather than {oldfreq}.
drug.frequency speech
    D: Same {dose} pill of {drug}, but {freq} rather than {oldfreq}, okay?
    P: It used to be {oldfreq} with the {drug}, now it's {dose} {freq}.
drug.stop note
    {drug} d/c'd.
    D/C {drug}.
    Came off {drug} {when}, doing fine without it.
    {drug} taken off the regimen.
    Pt self-discontinued {drug}.
    We have agreed to cease {drug}.
drug.stop speech
    D: I think you've outgrown the {drug}, so we'll take that one away.
    P: I quit my {drug} {when}.
    P: They took me off the {drug}.
drug.stop_adverse note
    {because} on {drug} - d/c.
    Intolerant of {drug} ({because}), therefore withdrawn.
    {drug} held indefinitely {when} in light of {because}.
    Owing to {because}, {drug} has been taken off.
drug.stop_adverse speech
    D: That {because} is likely from the {drug}, so no more of it please.
    P: With all that {because} I threw the {drug} out.
drug.restart note
    Back on {drug} as of {day}, {dose} {freq}.
    Re-challenged with {drug} {dose} {freq}.
    {drug} reintroduced, {dose} {freq}.
    Reinstituted {drug} at {dose} {freq}.
drug.restart speech
    D: We can try the {drug} once more, {dose} {freq}.
    P: I went back to the {drug}, {dose} {freq}.
drug.restate note
    C/w {drug} {dose} {freq}.
    Home meds incl. {drug} {dose} {freq}.
    No changes to {drug} ({dose} {freq}).
    {drug}: ongoing at {dose} {freq}, refills given.
drug.restate speech
    P: The {drug} is the same as ever, {dose} {freq}.
    D: And you'll stay with {drug} {dose} {freq}.
drug.restate row
    {dose} {drug} {freq} #90 refills 3
    {drug}; {dose}; PO; {freq}
    * {drug} {dose} tab - take 1 {freq}
drug.correct note
    Addendum: disregard {wrong} for {drug}, pt in fact takes {dose} {freq}.
    ERRATUM - {drug} should read {dose} {freq} (prior entry {wrong}).
    Bottle reviewed: {drug} strength is {dose} {freq}; {wrong} charted previously was wrong.
drug.correct speech
    P: Sorry, I mixed it up, the {drug} isn't {wrong}, it's {dose} {freq}.
    D: My earlier entry of {wrong} for {drug} was a typo, I have fixed it to {dose} {freq}.
drug.late note
    Faxed chart from prior PCP arrived: {drug} listed at {dose} {freq} {when}.
    Hx clarified by son: {when} the regimen had been {drug} {dose} {freq}.
    Previously ({when}) took {drug} {dose} {freq} per archived MAR.
drug.late speech
    P: My wife reminded me, {when} they had me at {dose} {freq} of the {drug}.
    P: Looking at an empty bottle here, {drug} {dose} {freq}, filled {when}.
drug.conditional note
    Low threshold to push {drug} to {dose} {freq} pending f/u of {problem}.
    Would escalate to {drug} {dose} {freq} in the event {problem} remains uncontrolled.
    Contingency: {drug} {dose} {freq} unless {problem} settles.
drug.conditional speech
    D: Suppose it hasn't settled by then, I might take the {drug} to {dose} {freq}.
    D: Unless your numbers come round, {drug} {dose} {freq} would be my next move.
drug.family note
    Of note {relative} uses {drug} {dose} {freq}.
    Shares a pillbox with {his} {relative}, whose {drug} is {dose} {freq}.
    {relative}'s meds: {drug} {dose} {freq}.
drug.family speech
    P: It's my {relative} who has the {drug}, {dose} {freq}, not me.
    P: The doctor has my {relative} using {drug} {dose} {freq}.
drug.course note
    {problem}: {days}-day course of {drug} {dose} {freq}.
    {drug} {dose} {freq} x {days}d ({problem}).
    To complete {drug} {dose} {freq} on {end} ({problem}).
    Abx for {problem} = {drug} {dose} {freq}, stop date {end}.
drug.course speech
    D: For the {problem}, {drug} {dose} {freq}, and you finish up {end}.
    P: I've got {drug} {dose} {freq} for this {problem}, {days} days' worth.
plan.monitor note
    {every} {plan} given {drug}.
    F/u: {plan} to be drawn {every} as pt is on {drug}.
    {drug} safety labs - {plan} {every}.
    Set up standing order, {plan} {every}, re {drug}.
plan.monitor speech
    D: Because it's {drug} we have to get a {plan} {every}.
    P: I'm at the lab {every} for the {plan}, on account of the {drug}.
plan.appointment note
    {plan} booked, {end}.
    To have {plan} done {end}.
    Has an upcoming {plan} ({end}).
plan.appointment speech
    P: They've got me down for a {plan} on {end}.
    D: I see you're due for the {plan} on {end}.
problem.onset note
    Dx: {problem}.
    PMH now notable for {problem}.
    Newly found to have {problem} {when}.
    Imp: {problem}.
    Meets criteria for {problem}.
    Carries a diagnosis of {problem} (est. {day}).
problem.onset speech
    P: Turns out it's {problem}, that's what they told me {when}.
    D: What this adds up to is {problem}.
    P: The specialist says it's {problem}.
problem.symptom note
    C/o {problem}.
    HPI: bothered by {problem}.
    Endorses {problem}, first noticed {when}.
    + {problem}.
problem.symptom speech
    P: I keep getting this {problem}.
    P: It's the {problem}, ever since {day}.
problem.adverse note
    {problem} that tracks with {drug} use.
    Since {drug} was added pt has had {problem}.
    ADR: {problem} ({drug}).
    {problem}, presumed {drug}-induced.
problem.adverse speech
    P: That {drug} is giving me {problem}.
    D: I blame the {drug} for your {problem}.
problem.complication note
    {cause} c/b {problem}.
    {problem} 2/2 {cause}.
    {cause} has led to {problem}.
problem.complication speech
    D: Your {cause} brought this {problem} on.
problem.associated note
    {problem}, which goes hand in hand with {cause}.
    Also w/ {problem} i/s/o {cause}.
problem.associated speech
    D: People with {cause} often get {problem} as well, and so have you.
problem.resolve note
    {problem}: s/p treatment, no longer active.
    Pt is over the {problem}.
    {problem} cleared as of {day}.
    Symptoms of {problem} have abated entirely.
    {problem} - now quiescent, taken off problem list.
problem.resolve speech
    P: I got over the {problem}.
    P: That {problem} went away {when}.
    D: Good news, no sign of the {problem} anymore.
problem.recur note
    {problem} - another bout {when}.
    Relapse of {problem}.
    {problem} flared up anew.
    Recrudescent {problem}.
problem.recur speech
    P: Wouldn't you know it, another round of {problem}.
    P: The {problem} has started up again {when}.
problem.restate note
    {problem} at baseline.
    Chronic {problem}, no interval change.
    Longstanding {problem} noted.
problem.restate speech
    P: The {problem} is about the same.
    D: Nothing new with the {problem}, then.
problem.negate note
    ROS neg for {problem}.
    Pt w/o {problem}.
    (-) {problem}.
    Specifically asked about {problem}: none.
problem.negate speech
    P: Haven't had {problem} at all.
    P: {problem}? Not me.
problem.uncertain note
    ? {problem} - send labs.
    DDx includes {problem}.
    Picture concerning for {problem}, studies pending.
    r/o {problem}.
problem.uncertain speech
    D: I can't tell yet whether this is {problem}.
    P: They're wondering about {problem}.
problem.confirm note
    Studies c/w {problem}; dx established.
    {problem} proven by imaging.
    Definitive dx: {problem}.
problem.confirm speech
    D: So it is {problem} after all.
    P: They were right, it's {problem}, the scan showed it.
problem.rule_out note
    {problem} has been excluded.
    Studies unremarkable, not {problem}.
    Further eval argues against {problem}; removed from ddx.
problem.rule_out speech
    D: You can relax, it isn't {problem}.
    P: Turned out not to be {problem}.
problem.retract note
    {problem} struck from problem list (wrong-chart entry).
    Misdx: never had {problem}.
problem.retract speech
    P: They told me that {problem} label was somebody else's, it got mixed up.
problem.family note
    FHx: {problem} ({relative}).
    FH sig for {problem} - {relative}.
    Strong history of {problem} on {relative}'s side.
    {relative} deceased, {problem}.
problem.family speech
    P: {problem} took my {relative}.
    P: There's {problem} on my {relative}'s side.
lab.value note
    {test} {value}.
    {test}={value} {unit}.
    {value} {unit} for {test} on this draw.
    {test} resulted: {value} {unit}.
    Repeat {test} of {value} {unit}.
lab.value speech
    D: The {test} we drew is {value}.
    P: On the portal it says {test} {value} {unit}.
lab.late note
    From records obtained today: {test} of {value} {unit} {when}.
    OSH data {when}: {test} {value} {unit}.
lab.late speech
    P: There's this older slip, {test} {value} {unit}, dated {day}.
lab.correct note
    Lab called: {test} reported as {wrong} should be {value} {unit}.
    Specimen mix-up, true {test} {value} {unit} (disregard {wrong}).
lab.correct speech
    D: That {wrong} for your {test} belonged to someone else, yours is {value} {unit}.
vital.value note
    VS: {test} {value}.
    {test} {value} {unit} on arrival.
    O/E {test}: {value}.
    {test} today {value} {unit}.
vital.value speech
    P: My {test} has been reading {value}, more or less.
    D: We got {value} {unit} for your {test}.
allergy.state note
    NKDA except {allergen} ({reaction}).
    ALL: {allergen} -> {reaction}.
    Adverse reaction to {allergen} in the past, namely {reaction}.
allergy.state speech
    P: I can't have {allergen}, I end up with {reaction}.
    P: Last time I had {allergen} I got {reaction}.
allergy.correct note
    {allergen} reaction re-reviewed with pt: {reaction}; {wrong} never occurred.
    Update ALL: {allergen} -> {reaction} (had been entered as {wrong}).
allergy.correct speech
    P: No, with {allergen} I get {reaction}, I never had {wrong}.
surgery.state note
    PSH: {surgery} {when}.
    s/p {surgery} {when}.
    Had {surgery} {when}, uncomplicated.
surgery.state speech
    P: They did my {surgery} {when}.
surgery.undated note
    PSH: {surgery}.
    s/p {surgery}.
pref.contact_method note
    Best reached via {choice}.
    Pt asks that results be given by {choice}.
pref.contact_method speech
    P: A {choice} works best for me.
pref.code_status note
    GOC: {choice}.
    Wishes to be {choice}.
pref.code_status speech
    P: If it comes to that, {choice}, that's my decision.
pref.living_situation note
    Household (SHx): {choice}.
    Resides {choice}.
pref.living_situation speech
    P: I'm {choice} at home, that's how I live.
pref.mobility_aid note
    Ambulates with a {choice}.
    DME: {choice}.
pref.mobility_aid speech
    P: I get around with my {choice}.
pref.contact_method.change note
    {old} no longer wanted, use {choice}.
    Pt would rather have a {choice} from here on.
pref.contact_method.change speech
    P: Could you make it a {choice} next time? The {old} never gets to me.
pref.code_status.change note
    GOC readdressed, pt elects {choice} (was {old}).
    Transitioned to {choice} after family meeting.
pref.code_status.change speech
    P: I've thought it over, I'd rather be {choice}.
pref.living_situation.change note
    No longer living {old}; resides {choice}.
    SHx update: {choice}.
pref.living_situation.change speech
    P: I'm not {old} anymore, I live {choice}.
pref.mobility_aid.change note
    Graduated from {old} to {choice}.
    {choice} has replaced the {old}.
pref.mobility_aid.change speech
    P: I've traded the {old} for a {choice}.
"""),
    names=names("""
        metformin = metformin | Glucophage
        lisinopril = lisinopril | Zestril
        amlodipine = amlodipine | Norvasc
        atorvastatin = atorvastatin | Lipitor
        levothyroxine = levothyroxine | Synthroid
        warfarin = warfarin | Coumadin
        furosemide = furosemide | Lasix
        sertraline = sertraline | Zoloft
        spironolactone = spironolactone | Aldactone
        losartan = losartan | Cozaar
        rosuvastatin = rosuvastatin | Crestor
        empagliflozin = empagliflozin | Jardiance
        escitalopram = escitalopram | Lexapro
        type 2 diabetes = T2DM | DM2 | type II diabetes
        hypertension = HTN | hypertension
        hyperlipidemia = HLD | dyslipidemia
        hypothyroidism = hypothyroidism | underactive thyroid
        atrial fibrillation = afib | AF
        heart failure = CHF | HFrEF
        depression = MDD | depression
        urinary tract infection = UTI | bladder infection
        shortness of breath = SOB | dyspnea
        chest pain = CP | chest pain
        pulmonary embolism = PE | pulmonary embolism
        generalized anxiety disorder = GAD | generalized anxiety
        crohn's disease = Crohn's disease | Crohn's
        parkinson's disease = Parkinson's disease | Parkinson's
        lupus = lupus | SLE
        hba1c = A1c | HgbA1c
        creatinine = Cr | creatinine
        potassium = K | potassium
        hemoglobin = Hgb | hemoglobin
        alt = ALT
        weight = wt | weight
        heart rate = HR | heart rate
        blood pressure = BP | blood pressure
        respiratory rate = RR | respiratory rate
        tsh monitoring = TSH
        inr monitoring = INR | PT/INR
        potassium monitoring = BMP | K level
        digoxin level monitoring = dig level | digoxin level
        blood count monitoring = CBC
        sodium monitoring = sodium level | Na
        bone density scan = bone density scan | DEXA
        do not resuscitate = DNR | do not resuscitate
        comfort measures only = CMO | comfort measures only
    """),
    frequencies=names("""
        daily = qd | every day | each morning | q24h
        bid = BID | b.i.d. | q12h | 2x/day
        tid = TID | q8h | three times per day
        qid = QID | q6h
        nightly = qHS | each evening | every night
        weekly = qwk | every week
    """),
    intervals=names("""
        every 2 weeks = q2wk | every other week | biweekly
        every 6 weeks = q6wk | 6-weekly
        every month = qmonth | once a month
        every 3 months = q3mo | quarterly
    """),
    dates=("{month}/{day}/{yy:02}", "{day} {Mon} {year}", "{month:02}/{day:02}/{year}"),
    months=("{Mon} {year}", "{month}/{year}"),
    years=("{year}",),
    relative={1: ("last night",), 3: ("3d ago", "some three days back"), 5: ("five days ago",),
              7: ("1 wk ago", "a wk back"), 21: ("3 wks ago", "three weeks back")},
    complications=(("type 2 diabetes", "gastroparesis"), ("hypertension", "left ventricular hypertrophy"),
                   ("atrial fibrillation", "cardiomyopathy"), ("crohn's disease", "iron deficiency")),
    speakers=("PT", "DR"),
    relatives=("mom", "dad", "aunt", "husband's father", "grandmother"),
    layouts={
        "clinic": ("Visit {date}\nS/O/A/P\n{body}\n-- end of note --\n",
                   "{date} OFFICE VISIT\n\nHPI / Assessment / Plan\n{body}\n"),
        "discharge": ("D/C SUMM    {date}\nBRIEF HOSPITAL COURSE\n{body}\n\nCONDITION: stable\n",),
        "phone": ("Tel. call {date} (RN triage)\n> {body}\n", "TC: {body}\n"),
        "dialogue": ("{body}\n(transcribed {date})\n", "Session of {date}\n\n{body}\n"),
        "medication list": ("Outpt meds {date}:\n{body}\n", "MED REC {date}\n{body}\nReviewed with pt.\n"),
        "scanned": ("[scan, undated]\n{body}\n",),
    },
    filler={
        "note": ("RTC prn.", "NAD, A&Ox3.", "Pt verbalizes understanding.", "Seen w/ interpreter by phone.",
                 "Labs reviewed, o/w unremarkable.", "Lungs CTAB, RRR.", "Will see back next quarter."),
        "speech": ("D: So, what's new?", "P: Not a whole lot, otherwise.", "D: Good, good.",
                   "P: The bus was late again, sorry.", "D: We'll talk before the holidays."),
    },
    bullets=("", "# ", "• "),
    separators=("\n", " ", "; "),
    tight=True,
    wrap=68,
)
