"""Small records written by hand: one change each, the same kinds of change over all slots, and what must come of it.

Every record comes after a crowd of other statements, worded like its own: what a change concerns is not simply all that
there is, and what is most alike is not what it concerns. Standard library only.
"""
from __future__ import annotations

import dataclasses

from stam_jax.graph.memory import Entry


@dataclasses.dataclass(frozen=True)
class Expect:
    """What must be so at the end: a memory of this slot (and value, where given) stands in `place`.

    place: ACTIVE, HISTORY, or NOT ACTIVE (in HISTORY or nowhere). reasons: any of these, where given.
    """

    place: str
    concept: str
    attribute: str
    value: str | None = None
    polarity: str = "AFFIRMED"
    experiencer: str = "PATIENT"
    reasons: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Scenario:
    """said: (date, text) of each entry, in the order of arrival. surfaces: (concept, attribute) that the last entry
    must bring up. related: (concept, concept, type) that must be linked."""

    name: str
    aspect: str
    said: tuple[tuple[str, str], ...]
    expects: tuple[Expect, ...] = ()
    surfaces: tuple[str, str] | None = None
    related: tuple[str, str, str] | None = None

    def entries(self) -> list[Entry]:
        """The crowd first."""
        before = crowd(" ".join(text for _, text in self.said))
        return [Entry.of(self.name, f"s{i:03d}", "clinic", text, date=date)
                for i, (date, text) in enumerate((*before, *self.said))]


# other names under which a writer may file a concept
ALIASES = {"sulfa": ("sulfa drugs", "sulfonamides"), "liver function monitoring": ("liver enzyme monitoring",),
           "thyroid function monitoring": ("tsh monitoring",),
           "white cell count monitoring": ("wbc monitoring", "cbc monitoring")}

_TAKEN = ("naproxen 250 mg daily", "omeprazole 20 mg daily", "citalopram 20 mg daily", "sertraline 50 mg daily",
          "famotidine 20 mg nightly", "cetirizine 10 mg daily", "loratadine 10 mg daily", "montelukast 10 mg nightly",
          "finasteride 5 mg daily", "gabapentin 300 mg nightly", "pregabalin 75 mg daily", "duloxetine 30 mg daily",
          "venlafaxine 75 mg daily", "mirtazapine 15 mg nightly", "trazodone 50 mg nightly", "zolpidem 5 mg nightly",
          "pantoprazole 40 mg daily", "cyclobenzaprine 10 mg nightly", "tramadol 50 mg daily", "meloxicam 15 mg daily",
          "celecoxib 200 mg daily", "topiramate 25 mg nightly", "oxybutynin 5 mg daily", "hydroxyzine 25 mg nightly",
          "bupropion 150 mg daily", "escitalopram 10 mg daily", "fluoxetine 20 mg daily", "melatonin 3 mg nightly",
          "baclofen 10 mg nightly", "tizanidine 4 mg nightly", "buspirone 10 mg daily", "fexofenadine 180 mg daily",
          "mirabegron 25 mg daily", "solifenacin 5 mg daily", "esomeprazole 20 mg daily", "lansoprazole 30 mg daily")
_WHY = ("since it did not help", "at the patient's wish", "since it cost too much", "since it was no longer needed")


def crowd(text: str) -> list[tuple[str, str]]:
    """(date, text) of earlier entries in which drugs were begun and stopped, four at a time: what a long record holds
    beside the change, worded like it. Drugs that `text` names are left out."""
    taken = [line for line in _TAKEN if line.split()[0] not in text.lower()]
    out = []
    for i in range(0, len(taken), 4):
        own = taken[i:i + 4]
        out.append((f"{2000 + i // 8}-{1 + i // 4 % 2 * 6:02d}-10", " ".join(f"Started {line}." for line in own)))
        out.append((f"{2000 + i // 8}-{1 + i // 4 % 2 * 6:02d}-24", " ".join(
            f"{line.split()[0].capitalize()} was stopped {why}." for line, why in zip(own, _WHY))))
    return out


def _dose(amount: str) -> str:
    return f"{amount} mg daily"


def _change(concept: str, attribute: str, first: str, second: str, old: str, new: str) -> Scenario:
    return Scenario(f"change-{attribute}-{concept}", "change", (("2024-01-10", first), ("2024-02-21", second)),
                    (Expect("HISTORY", concept, attribute, old, reasons=("SUPERSEDED",)),
                     Expect("ACTIVE", concept, attribute, new)))


def _again(concept: str, attribute: str, first: str, second: str, value: str | None) -> Scenario:
    return Scenario(f"again-{attribute}-{concept}", "restatement", (("2024-01-10", first), ("2024-02-21", second)),
                    (Expect("ACTIVE", concept, attribute, value),))


def _corrected(concept: str, attribute: str, first: str, second: str, old: str, new: str) -> Scenario:
    return Scenario(f"correction-{attribute}-{concept}", "correction", (("2024-01-10", first), ("2024-02-21", second)),
                    (Expect("HISTORY", concept, attribute, old, reasons=("CORRECTED", "SUPERSEDED")),
                     Expect("ACTIVE", concept, attribute, new)))


def _late(concept: str, attribute: str, first: str, second: str, old: str, new: str) -> Scenario:
    return Scenario(f"late-{attribute}-{concept}", "late report", (("2024-01-10", first), ("2024-02-21", second)),
                    (Expect("ACTIVE", concept, attribute, new), Expect("NOT ACTIVE", concept, attribute, old)))


def _ended(concept: str, attribute: str, first: str, second: str, value: str | None) -> Scenario:
    return Scenario(f"end-{attribute}-{concept}", "end", (("2024-01-10", first), ("2024-02-21", second)),
                    (Expect("NOT ACTIVE", concept, attribute, value),))


def _apart(name: str, attribute: str, first: str, second: str, kept: Expect, *others: Expect) -> Scenario:
    return Scenario(f"apart-{attribute}-{name}", "untouched", (("2024-01-10", first), ("2024-02-21", second)),
                    (kept, *others))


def _cascade(drug: str, start: str, plan: str, monitor: str, stop: str) -> Scenario:
    return Scenario(f"cascade-{drug}", "cascade",
                    (("2024-01-10", f"{start} {monitor}"), ("2024-02-21", "Feels well. Blood pressure 128/76 mmHg."),
                     ("2024-04-03", stop)),
                    (Expect("HISTORY", plan, "plan", reasons=("RESOLVED",)), Expect("NOT ACTIVE", drug, "dose")),
                    surfaces=(plan, "plan"))


def _kept(drug: str, start: str, plan: str, monitor: str, second: str) -> Scenario:
    return Scenario(f"plan-kept-{drug}", "plan kept", (("2024-01-10", f"{start} {monitor}"), ("2024-02-21", second)),
                    (Expect("ACTIVE", plan, "plan"),))


def _interaction(first: str, second: str, start_first: str, start_second: str) -> Scenario:
    return Scenario(f"interaction-{first}-{second}", "interaction",
                    (("2024-01-10", start_first), ("2024-02-21", "Slept well. Pain 2 out of 10."),
                     ("2024-04-03", start_second)),
                    (Expect("ACTIVE", first, "dose"), Expect("ACTIVE", second, "dose")),
                    surfaces=(first, "dose"), related=(first, second, "drug_interaction"))


SCENARIOS: tuple[Scenario, ...] = (
    # a newer value follows the older one
    _change("lisinopril", "dose", "Started lisinopril 10 mg daily for hypertension.",
            "Lisinopril increased to 20 mg daily.", _dose("10"), _dose("20")),
    _change("metformin", "dose", "Started metformin 500 mg twice daily for type 2 diabetes.",
            "Metformin was reduced from 500 mg twice daily to 500 mg daily.", "500 mg bid", "500 mg daily"),
    _change("potassium", "value", "Potassium 3.4 mmol/L.", "Potassium 4.1 mmol/L.", "3.4", "4.1"),
    _change("blood pressure", "value", "Blood pressure 152/94 mmHg.", "Blood pressure 134/82 mmHg.", "152/94",
            "134/82"),
    _change("code status", "preference", "Code status: full code.", "Code status is now do not resuscitate.",
            "full code", "do not resuscitate"),
    _change("inr monitoring", "plan", "Takes warfarin 5 mg daily. INR monitoring every 2 weeks.",
            "INR monitoring every 4 weeks from now on.", "every 2 weeks", "every 4 weeks"),
    # the same again archives nothing
    _again("atorvastatin", "dose", "Started atorvastatin 40 mg daily.", "Continues atorvastatin 40 mg daily.",
           "40 mg daily"),
    _again("asthma", "status", "Diagnosed with asthma.", "Known asthma.", None),
    _again("penicillin", "allergy", "Allergic to penicillin (hives).", "Allergy to penicillin: hives.", "hives"),
    _again("code status", "preference", "Code status: full code.", "Code status: full code.", "full code"),
    _again("appendectomy", "procedure", "Appendectomy in 2009.", "Appendectomy in 2009.", None),
    # what was wrong is corrected
    _corrected("levothyroxine", "dose", "Takes levothyroxine 100 mcg daily.",
               "Correction: levothyroxine is 75 mcg daily, not 100 mcg daily.", "100 mcg daily", "75 mcg daily"),
    _corrected("creatinine", "value", "Creatinine 1.9 mg/dL.",
               "Correction: the creatinine was recorded in error as 1.9 mg/dL; it is 0.9 mg/dL.", "1.9", "0.9"),
    _corrected("sulfa", "allergy", "Allergic to sulfa (anaphylaxis).",
               "Correction: the reaction to sulfa was rash, not anaphylaxis.", "anaphylaxis", "rash"),
    # what is reported late precedes what holds
    _late("amlodipine", "dose", "Takes amlodipine 10 mg daily.", "In March 2021 took amlodipine 5 mg daily.",
          "5 mg daily", "10 mg daily"),
    _late("hba1c", "value", "HbA1c 7.1 %.", "An outside HbA1c on 2021-06-03 was 9.2 %.", "9.2", "7.1"),
    # what ends
    _ended("gabapentin", "dose", "Started gabapentin 300 mg three times daily.", "Gabapentin was stopped.", None),
    _ended("pneumonia", "status", "Diagnosed with pneumonia.", "Pneumonia has resolved.", None),
    _ended("amoxicillin", "dose", "Started amoxicillin 500 mg three times daily for 7 days.", "Feels better.", None),
    _ended("sepsis", "status", "Suspected sepsis.", "Sepsis was ruled out.", None),
    # what must stay as it is
    _apart("relative", "dose", "Takes metformin 850 mg twice daily.", "Her mother takes metformin 500 mg daily.",
           Expect("ACTIVE", "metformin", "dose", "850 mg bid")),
    _apart("relative", "status", "Diagnosed with colon cancer.", "No family history of colon cancer.",
           Expect("ACTIVE", "colon cancer", "status")),
    _apart("condition", "dose", "Takes lisinopril 10 mg daily.",
           "If blood pressure stays high, increase lisinopril to 20 mg daily.",
           Expect("ACTIVE", "lisinopril", "dose", _dose("10"))),
    _apart("another", "dose", "Takes furosemide 40 mg daily.", "Started spironolactone 25 mg daily.",
           Expect("ACTIVE", "furosemide", "dose", "40 mg daily"),
           Expect("ACTIVE", "spironolactone", "dose", "25 mg daily")),
    _apart("another", "allergy", "Allergic to penicillin (hives).", "Allergic to latex (rash).",
           Expect("ACTIVE", "penicillin", "allergy", "hives"), Expect("ACTIVE", "latex", "allergy", "rash")),
    _apart("another", "value", "Sodium 136 mmol/L. Potassium 4.0 mmol/L.", "Potassium 4.6 mmol/L.",
           Expect("ACTIVE", "sodium", "value", "136"), Expect("ACTIVE", "potassium", "value", "4.6")),
    _apart("another", "status", "Diagnosed with gout.", "Diagnosed with anemia.",
           Expect("ACTIVE", "gout", "status"), Expect("ACTIVE", "anemia", "status")),
    _apart("another", "procedure", "Appendectomy in 2009.", "Cholecystectomy in 2015.",
           Expect("ACTIVE", "appendectomy", "procedure"), Expect("ACTIVE", "cholecystectomy", "procedure")),
    # a monitoring plan falls with its drug, although the words differ
    _cascade("warfarin", "Started warfarin 5 mg daily for atrial fibrillation.", "inr monitoring",
             "INR monitoring every 2 weeks.", "Warfarin was stopped because of a nosebleed."),
    _cascade("lithium", "Started lithium 300 mg twice daily for bipolar disorder.", "lithium level monitoring",
             "Lithium level monitoring every 3 months for lithium.", "Lithium was stopped because of tremor."),
    _cascade("methotrexate", "Started methotrexate 15 mg weekly for rheumatoid arthritis.", "liver function monitoring",
             "Liver function monitoring every 4 weeks.",
             "Methotrexate was discontinued because of fatigue."),
    _cascade("amiodarone", "Started amiodarone 200 mg daily for atrial fibrillation.", "thyroid function monitoring",
             "Thyroid function monitoring every 6 months.", "Amiodarone was stopped because of cough."),
    _cascade("digoxin", "Started digoxin 125 mcg daily for heart failure.", "digoxin level monitoring",
             "Digoxin level monitoring every 3 months for digoxin.", "Digoxin was stopped because of nausea."),
    _cascade("levothyroxine", "Started levothyroxine 50 mcg daily for hypothyroidism.", "tsh monitoring",
             "TSH monitoring every 6 weeks.", "Levothyroxine was stopped because of palpitations."),
    _cascade("clozapine", "Started clozapine 100 mg nightly for schizophrenia.", "white cell count monitoring",
             "White cell count monitoring every week while on clozapine.",
             "Clozapine was stopped because of drowsiness."),
    _cascade("spironolactone", "Started spironolactone 25 mg daily for heart failure.", "potassium monitoring",
             "Potassium monitoring every 4 weeks.",
             "Spironolactone was stopped because of dizziness."),
    # a plan stays where its drug does, or where another drug goes
    _kept("warfarin", "Started warfarin 5 mg daily for atrial fibrillation.", "inr monitoring",
          "INR monitoring every 2 weeks.", "Warfarin was increased to 7.5 mg daily."),
    _kept("lithium", "Started lithium 300 mg twice daily for bipolar disorder.", "lithium level monitoring",
          "Lithium level monitoring every 3 months.", "Metformin was stopped."),
    # a new drug brings up the one that it interacts with
    _interaction("warfarin", "amiodarone", "Started warfarin 5 mg daily.", "Started amiodarone 200 mg daily."),
    _interaction("simvastatin", "clarithromycin", "Takes simvastatin 40 mg nightly.",
                 "Started clarithromycin 500 mg twice daily."),
    _interaction("lithium", "ibuprofen", "Takes lithium 300 mg twice daily.",
                 "Started ibuprofen 400 mg three times daily."),
    _interaction("lisinopril", "spironolactone", "Takes lisinopril 20 mg daily.",
                 "Started spironolactone 25 mg daily."),
)
