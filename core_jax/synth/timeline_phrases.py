"""What timelines talk about, and the `train` wording. Data only; the author of a rules writer may read all of it.

A `Phrases` set names a vocabulary (drugs, problems, tests, ...), the ways to name each concept, and templates by act
and voice. Voices: `note` (a clinician's sentence), `speech` (a turn; `P: ` patient, `D: ` doctor) and `row` (one line
of a medication list). The evidence of an act is its sentence without the full stop.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Drug:
    """`amounts` ascend in `unit`; `monitor` is (plan, interval); `adverse` is a symptom that it may cause."""

    name: str
    unit: str
    amounts: tuple[str, ...]
    frequency: str
    treats: str
    adverse: str | None = None
    monitor: tuple[str, str] | None = None
    frequency2: str | None = None  # a frequency to which it may be changed at the same amount


@dataclasses.dataclass(frozen=True)
class Course:
    """An acute problem with the short treatment that has a planned end."""

    problem: str
    drug: str
    amount: str
    unit: str
    frequency: str
    days: int


@dataclasses.dataclass(frozen=True)
class Measure:
    """A measured quantity: values are low + k * step, k = 0..steps, with `digits` decimals; `keeps` = a baseline that
    stays worth knowing (endurance uncertain) rather than a passing reading (safe to forget)."""

    name: str
    unit: str
    low: float
    step: float
    steps: int
    digits: int
    keeps: bool = False


@dataclasses.dataclass(frozen=True)
class Phrases:
    """One wording. `say[act, voice]` are templates; `names[concept]` its surface forms, the concept itself if absent.

    `frequencies` and `intervals` map a canonical code to surface forms. `dates`, `months` and `years` are formats over
    year, yy, month, Month, Mon, day; `relative` maps days ago to phrases. `tight` glues amount and unit; `speakers` are
    patient and doctor; `wrap` breaks the lines of clinic and discharge notes. {he}, {his}, {relative} stand as words.
    """

    name: str
    drugs: tuple[Drug, ...]
    courses: tuple[Course, ...]
    interactions: tuple[tuple[Drug, Drug], ...]
    symptoms: tuple[str, ...]
    suspicions: tuple[str, ...]
    inherited: tuple[str, ...]
    labs: tuple[Measure, ...]
    vitals: tuple[Measure, ...]
    allergies: tuple[tuple[str, tuple[str, ...]], ...]
    preferences: Mapping[str, tuple[str, ...]]
    surgeries: tuple[str, ...]
    appointments: tuple[str, ...]
    say: Mapping[tuple[str, str], tuple[str, ...]]
    names: Mapping[str, tuple[str, ...]]
    frequencies: Mapping[str, tuple[str, ...]]
    intervals: Mapping[str, tuple[str, ...]]
    dates: tuple[str, ...]
    months: tuple[str, ...]
    years: tuple[str, ...]
    relative: Mapping[int, tuple[str, ...]]
    complications: tuple[tuple[str, str], ...]
    speakers: tuple[str, str]
    relatives: tuple[str, ...]
    layouts: Mapping[str, tuple[str, ...]]
    filler: Mapping[str, tuple[str, ...]]
    bullets: tuple[str, ...]
    separators: tuple[str, ...]
    tight: bool
    wrap: int | None


def templates(block: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """`act voice` on a line without indentation, then its templates, indented, one a line."""
    out: dict[tuple[str, str], list[str]] = {}
    for line in block.strip("\n").splitlines():
        if not line.strip():
            continue
        if line[0] != " ":
            act, voice = line.split()
            out[act, voice] = into = []
        else:
            into.append(line.strip())
    return {key: tuple(lines) for key, lines in out.items()}


def names(block: str) -> dict[str, tuple[str, ...]]:
    """`key = form | form` lines -> key: forms."""
    out = {}
    for line in block.strip().splitlines():
        key, _, forms = line.partition("=")
        out[key.strip()] = tuple(form.strip() for form in forms.split("|"))
    return out


# ---- vocabulary of both sets ------------------------------------------------------------------------------------

METFORMIN = Drug("metformin", "mg", ("500", "850", "1000"), "daily", "type 2 diabetes", "diarrhea", None, "bid")
LISINOPRIL = Drug("lisinopril", "mg", ("5", "10", "20", "40"), "daily", "hypertension", "dry cough")
AMLODIPINE = Drug("amlodipine", "mg", ("2.5", "5", "10"), "daily", "hypertension", "ankle swelling")
ATORVASTATIN = Drug("atorvastatin", "mg", ("10", "20", "40", "80"), "nightly", "hyperlipidemia", "muscle pain")
LEVOTHYROXINE = Drug("levothyroxine", "mcg", ("25", "50", "75", "88", "100"), "daily", "hypothyroidism", "palpitations",
                     ("tsh monitoring", "every 6 weeks"))
WARFARIN = Drug("warfarin", "mg", ("2", "2.5", "4", "5", "7.5"), "nightly", "atrial fibrillation", "nosebleeds",
                ("inr monitoring", "every 2 weeks"))
FUROSEMIDE = Drug("furosemide", "mg", ("20", "40", "80"), "daily", "heart failure", "leg cramps", None, "bid")
SERTRALINE = Drug("sertraline", "mg", ("25", "50", "100", "150"), "daily", "depression", "insomnia")
SPIRONOLACTONE = Drug("spironolactone", "mg", ("12.5", "25", "50"), "daily", "heart failure", "breast tenderness",
                      ("potassium monitoring", "every month"))

SHARED_DRUGS = (METFORMIN, LISINOPRIL, AMLODIPINE, ATORVASTATIN, LEVOTHYROXINE, WARFARIN, FUROSEMIDE, SERTRALINE)
SHARED_COURSES = (
    Course("pneumonia", "amoxicillin", "500", "mg", "tid", 7),
    Course("urinary tract infection", "nitrofurantoin", "100", "mg", "bid", 5),
    Course("cellulitis", "cephalexin", "500", "mg", "qid", 10),
)
SHARED_LABS = (
    Measure("hba1c", "%", 5.8, 0.3, 14, 1, keeps=True),
    Measure("creatinine", "mg/dL", 0.7, 0.1, 16, 1, keeps=True),
    Measure("potassium", "mmol/L", 3.2, 0.2, 11, 1),
    Measure("hemoglobin", "g/dL", 8.4, 0.4, 16, 1),
)
SHARED_VITALS = (
    Measure("weight", "kg", 58, 1.5, 30, 1),
    Measure("heart rate", "bpm", 52, 3, 20, 0),
    Measure("blood pressure", "mmHg", 108, 4, 18, 0),
)

# ---- the train wording -----------------------------------------------------------------------------------------------

_METHOTREXATE = Drug("methotrexate", "mg", ("7.5", "10", "15", "20"), "weekly", "rheumatoid arthritis", "mouth sores",
                     ("liver enzyme monitoring", "every month"))
_METOPROLOL = Drug("metoprolol", "mg", ("12.5", "25", "50", "100"), "bid", "atrial fibrillation", "fatigue")
_GABAPENTIN = Drug("gabapentin", "mg", ("100", "300", "600"), "bid", "peripheral neuropathy", "dizziness", None, "tid")
_OMEPRAZOLE = Drug("omeprazole", "mg", ("20", "40"), "daily", "gastroesophageal reflux disease", "bloating", None,
                   "bid")
_ALLOPURINOL = Drug("allopurinol", "mg", ("100", "200", "300"), "daily", "gout", "skin rash")
_LITHIUM = Drug("lithium", "mg", ("300", "450", "600", "900"), "nightly", "bipolar disorder", "hand tremor",
                ("lithium level monitoring", "every 3 months"))
_GLARGINE = Drug("insulin glargine", "units", ("8", "12", "16", "20", "24"), "nightly", "type 2 diabetes",
                 "hypoglycemia")
_TRAMADOL = Drug("tramadol", "mg", ("50", "100"), "bid", "chronic back pain", "drowsiness")
_AMIODARONE = Drug("amiodarone", "mg", ("100", "200", "400"), "daily", "ventricular tachycardia", "blurred vision")

TRAIN = Phrases(
    name="train",
    drugs=(*SHARED_DRUGS, _METHOTREXATE, _METOPROLOL, _GABAPENTIN, _OMEPRAZOLE, _ALLOPURINOL, _LITHIUM, _GLARGINE),
    courses=(*SHARED_COURSES, Course("sinusitis", "doxycycline", "100", "mg", "bid", 7),
             Course("acute bronchitis", "prednisone", "40", "mg", "daily", 5)),
    interactions=((WARFARIN, _AMIODARONE), (LISINOPRIL, SPIRONOLACTONE), (SERTRALINE, _TRAMADOL)),
    symptoms=("chest pain", "shortness of breath", "headache", "constipation", "night sweats", "leg swelling"),
    suspicions=("pulmonary embolism", "sleep apnea", "celiac disease", "deep vein thrombosis"),
    inherited=("breast cancer", "coronary artery disease", "stroke", "colon cancer", "dementia"),
    labs=(*SHARED_LABS, Measure("ldl cholesterol", "mg/dL", 58, 7, 18, 0)),
    vitals=(*SHARED_VITALS, Measure("oxygen saturation", "%", 88, 1, 11, 0)),
    allergies=(("penicillin", ("rash", "hives", "anaphylaxis")), ("sulfa drugs", ("rash", "swelling of the lips")),
               ("shellfish", ("hives", "throat tightness")), ("latex", ("contact dermatitis", "itching"))),
    preferences={
        "contact method": ("phone call", "text message", "letter"),
        "code status": ("full code", "do not resuscitate", "do not intubate"),
        "living situation": ("alone", "with a daughter", "in assisted living"),
        "diet": ("vegetarian", "low sodium", "gluten free"),
    },
    surgeries=("appendectomy", "cholecystectomy", "right hip replacement", "pacemaker placement"),
    appointments=("colonoscopy", "echocardiogram", "eye examination", "physical therapy"),
    say=templates("""
drug.start note
    Start {drug} {dose} {freq}.
    Started {drug} {dose} {freq} for {problem}.
    {drug} {dose} {freq} was started for {problem}.
    Begin {drug} at {dose} {freq} to treat {problem}.
    New medication: {drug} {dose} {freq} for {problem}.
    {drug} {dose} {freq} was started {when} for {problem}.
    Initiated {drug} {dose} {freq} {when}.
drug.start speech
    D: I would like you to start {drug}, {dose} {freq}, for your {problem}.
    D: We will begin {drug} {dose} {freq}.
    P: I started taking {drug} {dose} {freq} {when}.
    P: The other doctor put me on {drug} {dose} {freq} for my {problem}.
drug.up note
    Increase {drug} to {dose} {freq}.
    {drug} was increased from {old} to {dose} {freq}.
    Dose of {drug} raised to {dose} {freq} for better control.
    Will increase the {drug} from {old} {freq} to {dose} {freq}.
    {drug} increased to {dose} {freq} {when}.
    Response to {drug} is not sufficient, so the dose goes up to {dose} {freq}.
drug.up speech
    D: Let us increase the {drug} to {dose} {freq}.
    P: They increased my {drug} from {old} to {dose} {freq}.
    P: My {drug} was raised to {dose} {freq} {when}.
drug.down note
    Decrease {drug} to {dose} {freq}.
    {drug} was reduced from {old} to {dose} {freq}.
    Dose of {drug} lowered to {dose} {freq}.
    Will reduce {drug} from {old} {freq} to {dose} {freq}.
    {drug} decreased to {dose} {freq} {when}.
drug.down speech
    D: I am lowering your {drug} to {dose} {freq}.
    P: They cut my {drug} down from {old} to {dose} {freq}.
    P: Since {day} I take only {dose} of {drug} {freq}.
drug.frequency note
    Change {drug} {dose} from {oldfreq} to {freq}.
    {drug} {dose} is now to be taken {freq} instead of {oldfreq}.
    Will give {drug} {dose} {freq}, previously {oldfreq}.
drug.frequency speech
    D: Please take the {drug} {dose} {freq} from now on, not {oldfreq}.
    P: I take the {drug} {dose} {freq} now instead of {oldfreq}.
drug.stop note
    Stop {drug}.
    {drug} was discontinued.
    Discontinue {drug}, no longer needed.
    {drug} stopped {when}.
    The {drug} has been stopped.
drug.stop speech
    D: You can stop the {drug}.
    P: I am no longer taking {drug}.
    P: I stopped the {drug} {when}.
drug.stop_adverse note
    Stop {drug} because of {because}.
    {drug} was discontinued due to {because}.
    {drug} stopped {when} because of {because}.
    Discontinued {drug} after the patient developed {because}.
drug.stop_adverse speech
    D: We should stop the {drug} because of the {because}.
    P: I quit taking {drug} because of the {because}.
drug.restart note
    Restart {drug} {dose} {freq}.
    {drug} was resumed at {dose} {freq}.
    Resume {drug} {dose} {freq} as tolerated.
    {drug} {dose} {freq} restarted {when}.
drug.restart speech
    D: Let us restart the {drug}, {dose} {freq}.
    P: I am back on {drug} {dose} {freq}.
drug.restate note
    Continue {drug} {dose} {freq}.
    Remains on {drug} {dose} {freq}.
    {drug} {dose} {freq}, tolerating well, no change.
    Current regimen includes {drug} {dose} {freq}.
drug.restate speech
    P: I still take {drug} {dose} {freq}.
    D: Keep taking the {drug} {dose} {freq}.
drug.restate row
    {drug} {dose}, {freq}
    {drug} | {dose} | {freq}
    - {drug} {dose} by mouth {freq}
drug.correct note
    Correction to the previous note: {drug} dose is {dose} {freq}, not {wrong}.
    The last note listed {drug} {wrong} in error; the correct dose is {dose} {freq}.
    Medication reconciliation: {drug} was entered as {wrong} by mistake and is actually {dose} {freq}.
drug.correct speech
    P: I told you {wrong} of {drug} last time, but the bottle says {dose} {freq}.
    D: I wrote {wrong} for the {drug} by mistake; it is {dose} {freq}.
drug.late note
    Outside records received: {drug} dose was {dose} {freq} {when}.
    Per the old pharmacy printout, the patient was taking {drug} {dose} {freq} {when}.
    Earlier history obtained today: {when} {he} was on {drug} {dose} {freq}.
drug.late speech
    P: I found my old list: {when} I was on {drug} {dose} {freq}.
    P: Back {when} my {drug} was {dose} {freq}.
drug.conditional note
    If {problem} is not controlled at the next visit, increase {drug} to {dose} {freq}.
    Consider raising {drug} to {dose} {freq} should {problem} worsen.
    May go up to {drug} {dose} {freq} if needed.
drug.conditional speech
    D: If things do not improve, we could increase the {drug} to {dose} {freq}.
    D: Should it get worse, the next step would be {drug} {dose} {freq}.
drug.family note
    {His} {relative} takes {drug} {dose} {freq}.
    The patient's {relative} is on {drug} {dose} {freq}.
    {relative} was recently started on {drug} {dose} {freq}.
drug.family speech
    P: My {relative} takes {drug} {dose} {freq}.
    P: They gave my {relative} {drug} {dose} {freq}.
drug.course note
    Start {drug} {dose} {freq} for {days} days for {problem}.
    {drug} {dose} {freq} for {problem}, last dose on {end}.
    Prescribed {drug} {dose} {freq} through {end} for {problem}.
    Treat {problem} with {drug} {dose} {freq} until {end}.
drug.course speech
    D: Take {drug} {dose} {freq} for {days} days for the {problem}.
    P: They gave me {drug} {dose} {freq} until {end} for the {problem}.
plan.monitor note
    {plan} {every} while on {drug}.
    Plan: {plan} {every} for {drug} therapy.
    Will need {plan} {every} because of {drug}.
    {drug} requires {plan} {every}.
plan.monitor speech
    D: With the {drug} you need {plan} {every}.
    P: I come in for {plan} {every} because of the {drug}.
plan.appointment note
    {plan} scheduled for {end}.
    Referred for {plan}, appointment on {end}.
    Plan: {plan} on {end}.
plan.appointment speech
    P: My {plan} is booked for {end}.
    D: Your {plan} is scheduled for {end}.
problem.onset note
    Diagnosed with {problem}.
    New diagnosis of {problem}.
    {problem} was diagnosed {when}.
    Assessment: {problem}.
    Patient has {problem}.
    {problem} since {day}.
problem.onset speech
    P: I was told that I have {problem}.
    D: You have {problem}.
    P: I was diagnosed with {problem} {when}.
problem.symptom note
    Reports {problem}.
    Complains of {problem}.
    {problem} started {when}.
    Presents with {problem}.
problem.symptom speech
    P: I have been having {problem}.
    P: The {problem} started {when}.
problem.adverse note
    Developed {problem} after starting {drug}.
    {problem} due to {drug}.
    {problem}, likely caused by {drug}.
    Reports {problem} since {drug} was started.
problem.adverse speech
    P: Since I started the {drug} I have {problem}.
    D: The {problem} is a side effect of the {drug}.
problem.complication note
    {problem} due to {cause}.
    {problem} caused by {cause}.
    {problem} secondary to {cause}.
problem.complication speech
    D: The {problem} is caused by your {cause}.
problem.associated note
    {problem} associated with {cause}.
    {problem} in a patient with {cause}.
problem.associated speech
    D: You also have {problem}, which is associated with your {cause}.
problem.resolve note
    {problem} has resolved.
    {problem} resolved {when}.
    {problem}: resolved.
    No further {problem}, resolved with treatment.
    Recovered completely from {problem}.
problem.resolve speech
    P: The {problem} is gone.
    P: The {problem} cleared up {when}.
    D: Your {problem} has resolved.
problem.recur note
    {problem} has recurred.
    Recurrence of {problem}.
    {problem} is back, returned {when}.
    Again has {problem}, second episode.
problem.recur speech
    P: The {problem} came back.
    P: I have {problem} again, it returned {when}.
problem.restate note
    {problem}, stable.
    Known {problem}, unchanged.
    Continues to have {problem}.
problem.restate speech
    P: I still have {problem}.
    D: Your {problem} is stable.
problem.negate note
    Denies {problem}.
    No {problem}.
    Negative for {problem}.
    There is no evidence of {problem}.
problem.negate speech
    P: I do not have any {problem}.
    P: No, no {problem}.
problem.uncertain note
    Possible {problem}, workup ordered.
    Cannot exclude {problem}.
    Suspected {problem}, await results.
    Findings may represent {problem}.
problem.uncertain speech
    D: This could be {problem}; we will test for it.
    P: They think I might have {problem}.
problem.confirm note
    {problem} was confirmed on testing.
    Workup confirms {problem}.
    Results are positive for {problem}.
problem.confirm speech
    D: The tests confirm {problem}.
    P: The test showed that I do have {problem}.
problem.rule_out note
    {problem} was ruled out.
    Workup negative, no {problem}.
    Testing excluded {problem}.
problem.rule_out speech
    D: The tests ruled out {problem}.
    P: They told me that it is not {problem}.
problem.retract note
    The diagnosis of {problem} was entered in error.
    {problem} was listed by mistake, the patient does not have it.
problem.retract speech
    D: The earlier diagnosis of {problem} was a mistake.
problem.family note
    Family history: {relative} with {problem}.
    {relative} had {problem}.
    Family history is positive for {problem} in the {relative}.
    {His} {relative} was diagnosed with {problem}.
problem.family speech
    P: My {relative} has {problem}.
    P: My {relative} was told that {problem} runs in the family.
lab.value note
    {test} {value} {unit}.
    {test} today is {value} {unit}.
    Labs: {test} {value} {unit}.
    {test} came back at {value} {unit}.
    Most recent {test}: {value} {unit}.
lab.value speech
    D: Your {test} is {value} {unit}.
    P: They told me my {test} was {value} {unit}.
lab.late note
    Outside laboratory report: {test} was {value} {unit} {when}.
    Old result received: {test} {value} {unit} {when}.
lab.late speech
    P: I found an old result, {test} {value} {unit} {when}.
lab.correct note
    Correction: {test} is {value} {unit}, the earlier value of {wrong} was a reporting error.
    Laboratory amended the {test} from {wrong} to {value} {unit}.
lab.correct speech
    D: The laboratory corrected your {test}: it is {value} {unit}, not {wrong}.
vital.value note
    {test} {value} {unit}.
    Vital signs: {test} {value} {unit}.
    {test} measured at {value} {unit}.
    On examination {test} is {value} {unit}.
vital.value speech
    P: At home my {test} was {value} {unit}.
    D: Your {test} is {value} {unit} today.
allergy.state note
    Allergies: {allergen} ({reaction}).
    Allergic to {allergen}, reaction: {reaction}.
    {allergen} allergy with {reaction}.
allergy.state speech
    P: I am allergic to {allergen}, it gives me {reaction}.
    P: {allergen} causes {reaction} in me.
allergy.correct note
    Allergy list corrected: the reaction to {allergen} was {reaction}, not {wrong}.
    Clarified that {allergen} caused {reaction} rather than {wrong}.
allergy.correct speech
    P: It was {reaction} that I got from {allergen}, not {wrong}.
surgery.state note
    Past surgical history: {surgery} {when}.
    Status post {surgery} {when}.
    Underwent {surgery} {when}.
surgery.state speech
    P: I had {surgery} {when}.
surgery.undated note
    Past surgical history: {surgery}.
    Status post {surgery}.
pref.contact_method note
    Prefers to be contacted by {choice}.
    Preferred contact method: {choice}.
pref.contact_method speech
    P: Please reach me by {choice}.
pref.code_status note
    Code status: {choice}.
    Code status is {choice} as discussed with the patient.
pref.code_status speech
    P: I want my code status to be {choice}.
pref.living_situation note
    Lives {choice}.
    Currently living {choice}.
pref.living_situation speech
    P: I live {choice}.
pref.diet note
    Follows a {choice} diet.
    Diet: {choice}.
pref.diet speech
    P: I eat a {choice} diet.
pref.contact_method.change note
    Now prefers to be contacted by {choice} instead of {old}.
    Preferred contact method changed to {choice}.
pref.contact_method.change speech
    P: From now on use {choice}, not {old}.
pref.code_status.change note
    Code status changed from {old} to {choice}.
    Code status is now {choice}.
pref.code_status.change speech
    P: I have changed my mind about code status: {choice}.
pref.living_situation.change note
    Now lives {choice}.
    Moved and is now living {choice}.
pref.living_situation.change speech
    P: I moved and now live {choice}.
pref.diet.change note
    Changed to a {choice} diet.
    Diet changed from {old} to {choice}.
pref.diet.change speech
    P: I switched to a {choice} diet.
"""),
    names=names("""
        type 2 diabetes = type 2 diabetes | type 2 diabetes mellitus
        hypertension = hypertension | high blood pressure
        hyperlipidemia = hyperlipidemia | high cholesterol
        hypothyroidism = hypothyroidism
        atrial fibrillation = atrial fibrillation
        heart failure = heart failure | congestive heart failure
        depression = depression | major depression
        gastroesophageal reflux disease = gastroesophageal reflux disease | GERD
        peripheral neuropathy = peripheral neuropathy | neuropathy
        omeprazole = omeprazole | Prilosec
        gabapentin = gabapentin | Neurontin
        metoprolol = metoprolol | Lopressor
        urinary tract infection = urinary tract infection | UTI
        hba1c = HbA1c | hemoglobin A1c
        ldl cholesterol = LDL cholesterol | LDL
        hemoglobin = hemoglobin
        blood pressure = blood pressure | BP
        heart rate = heart rate | pulse
        oxygen saturation = oxygen saturation
        tsh monitoring = TSH check | thyroid function tests
        inr monitoring = INR check | INR monitoring
        liver enzyme monitoring = liver enzyme monitoring | liver function tests
        lithium level monitoring = lithium level
        potassium monitoring = potassium check
        echocardiogram = echocardiogram
        deep vein thrombosis = deep vein thrombosis | DVT
    """),
    frequencies=names("""
        daily = once daily | daily
        bid = twice daily | twice a day
        tid = three times daily | three times a day
        qid = four times daily
        nightly = at bedtime | nightly
        weekly = once weekly | weekly
    """),
    intervals=names("""
        every 2 weeks = every 2 weeks | every two weeks
        every 6 weeks = every 6 weeks | every six weeks
        every month = every month | monthly
        every 3 months = every 3 months | every three months
    """),
    dates=("{year}-{month:02}-{day:02}", "{Month} {day}, {year}"),
    months=("{Month} {year}",),
    years=("{year}",),
    relative={1: ("yesterday",), 2: ("two days ago", "2 days ago"), 3: ("three days ago",), 7: ("a week ago",),
              14: ("two weeks ago",)},
    complications=(("type 2 diabetes", "diabetic retinopathy"), ("hypertension", "chronic kidney disease"),
                   ("heart failure", "pleural effusion"), ("gout", "kidney stones")),
    speakers=("Patient", "Doctor"),
    relatives=("mother", "father", "sister", "brother"),
    layouts={
        "clinic": ("CLINIC NOTE\nDate: {date}\n\n{body}\n",
                   "Progress note, {date}\n\n{body}\n\nSigned electronically.\n"),
        "discharge": ("DISCHARGE SUMMARY\nDischarge date: {date}\n\nHospital course:\n{body}\n",),
        "phone": ("Telephone encounter {date}\n{body}\n", "Phone message: {body}\n"),
        "dialogue": ("[{date}]\n{body}\n",),
        "medication list": ("Medication list as of {date}\n{body}\n", "ACTIVE MEDICATIONS ({date})\n{body}\n"),
        "scanned": ("SCANNED OUTSIDE RECORD (no date)\n{body}\n",),
    },
    filler={
        "note": ("Discussed the plan with the patient, who agrees.", "Return to clinic in three months.",
                 "Questions were answered.", "Heart regular, lungs clear.", "Reviewed records before the visit.",
                 "Sleeping and eating well.", "Advised to call with any concerns."),
        "speech": ("D: How have you been since we last spoke?", "P: Thank you, doctor.", "D: Anything else today?",
                   "P: I will see you next time.", "P: The parking here is terrible."),
    },
    bullets=("", "- "),
    separators=(" ", "\n"),
    tight=False,
    wrap=None,
)
