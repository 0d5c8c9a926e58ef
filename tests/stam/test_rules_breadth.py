"""Breadth of the rules: the same few kinds of statement in the words of many clinicians, nurses and patients."""
from __future__ import annotations

import pytest

from stam_jax.graph.clinical_time import resolve
from stam_jax.graph.memory import Entry, Memory, Provenance
from stam_jax.rules import RulesWriter
from stam_jax.write.writer import Affected, LinkTask, UpdateTask

WRITER = RulesWriter()
A, N, U, C = "AFFIRMED", "NEGATED", "UNCERTAIN", "CONDITIONAL"
P, F = "PATIENT", "FAMILY"


def allergy(concept, reaction, polarity=A, who=P):
    return concept, "allergy", reaction, polarity, who


def problem(concept, polarity=A, who=P):
    return concept, "status", None, polarity, who


def wish(concept, value):
    return concept, "preference", value, A, P


def dose(concept, value, polarity=A):
    return concept, "dose", value, polarity, P


def plan(concept, value=None, polarity=A):
    return concept, "plan", value, polarity, P


def surgery(concept, polarity=A):
    return concept, "procedure", None, polarity, P


DRAFTS = [
    # allergies and their reactions
    ("Penicillin gave her a widespread rash years back.", [allergy("penicillin", "rash")]),
    ("Known intolerance: codeine (vomiting).", [allergy("codeine", "vomiting")]),
    ("Patient: Last time they gave me sulfa my lips swelled up.", [allergy("sulfa drugs", "swelling of the lips")]),
    ("Developed anaphylaxis to peanuts as a toddler.", [allergy("peanuts", "anaphylaxis")]),
    ("Latex: documented itching on exposure.", [allergy("latex", "itching")]),
    ("Hives after shellfish.", [allergy("shellfish", "hives")]),
    ("Avoid cephalosporins, previous anaphylaxis.", [allergy("cephalosporins", "anaphylaxis")]),
    ("Patient: I can't have shrimp, my throat closes up.", [allergy("shellfish", "throat closing")]),
    ("Reaction on record for iodinated contrast is hives.", [allergy("iodinated contrast", "hives")]),
    ("Adverse reaction to aspirin noted: wheezing.", [allergy("aspirin", "wheezing")]),
    ("ALLERGY ALERT - penicillin - anaphylaxis", [allergy("penicillin", "anaphylaxis")]),
    ("Breaks out in hives with latex gloves.", [allergy("latex", "hives")]),
    ("Her reaction to sulfa consisted of blisters.", [allergy("sulfa drugs", "blisters")]),
    ("Exposure to bee stings causes swelling of the face.", [allergy("bee stings", "swelling of the face")]),
    ("Patient: Eggs make me wheeze, I'm allergic.", [allergy("eggs", "wheezing")]),
    ("Amoxicillin allergy documented, manifesting as urticaria.", [allergy("amoxicillin", "urticaria")]),
    ("Penicillin allergy has been delabelled after a negative challenge.", [allergy("penicillin", None, N)]),
    ("She now tolerates amoxicillin without any problem; remove the allergy.", [allergy("amoxicillin", None, N)]),
    ("Latex allergy removed from the list.", [allergy("latex", None, N)]),
    ("Oral challenge passed, peanut allergy no longer present.", [allergy("peanuts", None, N)]),
    ("Reaction to penicillin updated from rash to anaphylaxis.", [allergy("penicillin", "anaphylaxis")]),
    ("Sulfa reaction is hives and not a rash as charted.", [allergy("sulfa drugs", "hives")]),
    ("Patient: With codeine I get terribly itchy, so I'm told I'm allergic.", [allergy("codeine", "itching")]),
    ("Mother is allergic to penicillin (hives).", [allergy("penicillin", "hives", A, F)]),
    ("Contraindicated: penicillin, owing to angioedema in 2010.", [allergy("penicillin", "angioedema")]),
    # preferences and directives
    ("Patient wishes to remain a full code.", [wish("code status", "full code")]),
    ("In the event of cardiac arrest she does not want CPR.", [wish("code status", "do not resuscitate")]),
    ("A DNAR order is in place.", [wish("code status", "do not resuscitate")]),
    ("Patient: I don't ever want to be put on a breathing machine.", [wish("code status", "do not intubate")]),
    ("He wants every effort made to save his life should his heart stop.", [wish("code status", "full code")]),
    ("Resuscitation status: for full resuscitation.", [wish("code status", "full code")]),
    ("DNI only, confirmed with family.", [wish("code status", "do not intubate")]),
    ("Best reached by text.", [wish("contact method", "text message")]),
    ("Please send all communication by post.", [wish("contact method", "letter")]),
    ("Asks that we ring her rather than write.", [wish("contact method", "phone call")]),
    ("Wants letters instead of phone calls.", [wish("contact method", "letter")]),
    ("Patient: Shoot me an email, I never pick up the phone.", [wish("contact method", "email")]),
    ("Communication preference - portal message", [wish("contact method", "patient portal")]),
    ("Resides by herself in an apartment.", [wish("living situation", "alone")]),
    ("Has moved into an assisted living facility.", [wish("living situation", "in assisted living facility")]),
    ("Shares a home with her daughter.", [wish("living situation", "with a daughter")]),
    ("Patient: My son has moved out, so I'm on my own now.", [wish("living situation", "alone")]),
    ("Sticks to a gluten-free diet.", [wish("diet", "gluten free")]),
    ("Patient: I've cut out meat completely, I'm a vegetarian now.", [wish("diet", "vegetarian")]),
    ("On sodium restriction, low-salt meals.", [wish("diet", "low sodium")]),
    ("Dietary preference is vegan.", [wish("diet", "vegan")]),
    ("No longer vegetarian; now keeps kosher.", [wish("diet", "kosher")]),
    ("Spanish-speaking, interpreter needed.", [wish("preferred language", "spanish")]),
    ("Language: Vietnamese", [wish("preferred language", "vietnamese")]),
    ("Patient: I'd feel better talking in Polish.", [wish("preferred language", "polish")]),
    ("Pharmacy of choice: Hill Street Pharmacy", [wish("pharmacy", "hill street pharmacy")]),
    ("Uses condoms for contraception.", [wish("contraception", "condoms")]),
    ("Contraception: copper IUD", [wish("contraception", "copper iud")]),
    ("Declines blood transfusion on religious grounds.", [wish("blood products", "declines blood products")]),
    ("Patient refuses all blood products.", [wish("blood products", "declines blood products")]),
    ("Health care proxy is her sister.", [wish("health care proxy", "sister")]),
    # corrections, the draft that they leave
    ("Metformin 850 mg bid was misread; it should have read 500 mg bid.", [dose("metformin", "500 mg bid")]),
    ("Addendum: sertraline is 50 mg daily, disregard the earlier 100 mg.", [dose("sertraline", "50 mg daily")]),
    ("Transcription error in last note: lisinopril 20 mg daily, not 40 mg.", [dose("lisinopril", "20 mg daily")]),
    ("Warfarin had erroneously been documented as 7.5 mg; the dose is 5 mg nightly.",
     [dose("warfarin", "5 mg nightly")]),
    ("Potassium of 6.1 was hemolyzed; repeat is 4.4 mmol/L.", [("potassium", "value", "4.4", A, P)]),
    ("Amended report: hemoglobin 10.4 g/dL (previously released as 14.0).", [("hemoglobin", "value", "10.4", A, P)]),
    ("Please disregard the entry of gout, wrong chart.", [problem("gout", N)]),
    ("Epilepsy was carried over from another patient's record and does not apply.", [problem("epilepsy", N)]),
    ("Patient: I never had asthma, that was a mix-up.", [problem("asthma", N)]),
    ("COPD on the problem list is a coding mistake.", [problem("chronic obstructive pulmonary disease", N)]),
    # uncertain problems
    ("Query gout.", [problem("gout", U)]),
    ("Suspicious for lupus.", [problem("lupus", U)]),
    ("Working diagnosis: celiac disease.", [problem("celiac disease", U)]),
    ("Sleep apnea is high on the differential.", [problem("sleep apnea", U)]),
    ("Pulmonary embolism not yet excluded.", [problem("pulmonary embolism", U)]),
    ("Picture would fit with lupus.", [problem("lupus", U)]),
    ("Patient: The nurse wondered whether it's shingles.", [problem("shingles", U)]),
    ("Need to rule out deep vein thrombosis.", [problem("deep vein thrombosis", U)]),
    ("Being investigated for multiple sclerosis.", [problem("multiple sclerosis", U)]),
    ("Impression: ? pneumonia.", [problem("pneumonia", U)]),
    ("There is a question of sarcoidosis.", [problem("sarcoidosis", U)]),
    ("Symptoms raise suspicion of sleep apnea.", [problem("sleep apnea", U)]),
    ("Doctor: It might turn out to be rheumatoid arthritis.", [problem("rheumatoid arthritis", U)]),
    ("Celiac disease cannot be ruled out at present.", [problem("celiac disease", U)]),
    ("Low index of suspicion for pulmonary embolism but D-dimer sent.", [problem("pulmonary embolism", U)]),
    ("Differential includes pericarditis.", [problem("pericarditis", U)]),
    ("Clinical picture compatible with polymyalgia rheumatica.", [problem("polymyalgia rheumatica", U)]),
    ("Awaiting scan to exclude appendicitis.", [problem("appendicitis", U)]),
    ("Provisional diagnosis of gout pending joint aspirate.", [problem("gout", U)]),
    ("Patient: They are testing me for lupus.", [problem("lupus", U)]),
    ("Deep vein thrombosis is on our list of possibilities.", [problem("deep vein thrombosis", U)]),
    # negated and resolved problems
    ("Headaches have settled.", [problem("headache", N)]),
    ("Free of chest pain.", [problem("chest pain", N)]),
    ("Night sweats: none.", [problem("night sweats", N)]),
    ("Workup for sleep apnea came back negative.", [problem("sleep apnea", N)]),
    ("Patient: The constipation has sorted itself out.", [problem("constipation", N)]),
    ("Patient: Haven't had a headache in weeks.", [problem("headache", N)]),
    ("No leg swelling to report.", [problem("leg swelling", N)]),
    ("The cellulitis is a thing of the past.", [problem("cellulitis", N)]),
    ("Pulmonary embolism has been taken off the table.", [problem("pulmonary embolism", N)]),
    ("Scan did not show any deep vein thrombosis.", [problem("deep vein thrombosis", N)]),
    ("She is no longer troubled by palpitations.", [problem("palpitations", N)]),
    ("Pneumonia has cleared radiologically.", [problem("pneumonia", N)]),
    ("Nausea subsided within a day.", [problem("nausea", N)]),
    ("Full recovery from pneumonia.", [problem("pneumonia", N)]),
    ("Patient: My back pain? Gone.", [problem("back pain", N)]),
    ("Celiac disease serology came back normal, so that diagnosis is off.", [problem("celiac disease", N)]),
    ("Not complaining of dizziness.", [problem("dizziness", N)]),
    ("Patient: I wouldn't say I have any shortness of breath.", [problem("shortness of breath", N)]),
    ("Tests argue against lupus.", [problem("lupus", N)]),
    ("Nil chest pain.", [problem("chest pain", N)]),
    ("UTI successfully treated.", [problem("urinary tract infection", N)]),
    ("Cough has dried up.", [problem("cough", N)]),
    ("Chest pain hasn't come back.", [problem("chest pain", N)]),
    ("The rash has not resolved.", [problem("rash")]),
    ("No improvement in headache.", [problem("headache")]),
    # family history
    ("Maternal grandmother died of breast cancer at 60.", [problem("breast cancer", A, F)]),
    ("Colon cancer runs on the father's side.", [problem("colon cancer", A, F)]),
    ("Strong family history of stroke.", [problem("stroke", A, F)]),
    ("Patient: Dementia is something my mum had.", [problem("dementia", A, F)]),
    ("Dad has coronary artery disease.", [problem("coronary artery disease", A, F)]),
    ("FH: breast ca in mother, stroke in father.", [problem("breast cancer", A, F), problem("stroke", A, F)]),
    ("Dementia affected her paternal aunt.", [problem("dementia", A, F)]),
    ("Sister being treated for breast cancer.", [problem("breast cancer", A, F)]),
    ("Patient: We lost my brother to colon cancer.", [problem("colon cancer", A, F)]),
    ("Relevant family history: stroke (father).", [problem("stroke", A, F)]),
    ("Positive FHx for dementia.", [problem("dementia", A, F)]),
    ("Mother suffers from gout, patient herself denies joint pain.",
     [problem("gout", A, F), problem("joint pain", N)]),
    ("Patient: Gout is in the family, both of my uncles had it.", [problem("gout", A, F)]),
    ("A first-degree relative has had colon cancer.", [problem("colon cancer", A, F)]),
    ("Mother noticed that the patient has a rash.", [problem("rash")]),
    # plans, appointments, procedures
    ("INR needs to be looked at every fortnight with the warfarin.", [plan("inr monitoring", "every 2 weeks")]),
    ("Bloods for potassium at monthly intervals on spironolactone.", [plan("potassium monitoring", "every month")]),
    ("Lithium requires a level each quarter.", [plan("lithium level monitoring", "every 3 months")]),
    ("TFTs six-weekly for levothyroxine.", [plan("tsh monitoring", "every 6 weeks")]),
    ("Liver enzymes will be monitored on a monthly basis due to methotrexate.",
     [plan("liver enzyme monitoring", "every month")]),
    ("Colonoscopy is pencilled in for April 12, 2021.", [plan("colonoscopy")]),
    ("She is down for an echocardiogram on 2021-04-12.", [plan("echocardiogram")]),
    ("Eye examination due 2021-05-02.", [plan("eye examination")]),
    ("Patient: I'm seeing physical therapy on March 30, 2021.", [plan("physical therapy")]),
    ("Colonoscopy appointment made: 2021-06-01.", [plan("colonoscopy")]),
    ("Her gallbladder was taken out in 2005.", [surgery("cholecystectomy")]),
    ("Appendix out as a child.", [surgery("appendectomy")]),
    ("Pacemaker in situ since 2018.", [surgery("pacemaker placement")]),
    ("PSH right hip replacement 2012.", [surgery("right hip replacement")]),
    ("Patient: They put in a pacemaker in 2016.", [surgery("pacemaker placement")]),
    ("Hx of appendicectomy.", [surgery("appendectomy")]),
    # stops
    ("Amlodipine withdrawn.", [dose("amlodipine", None, N)]),
    ("Patient: I gave up on the gabapentin.", [dose("gabapentin", None, N)]),
    ("Omeprazole not to be continued.", [dose("omeprazole", None, N)]),
    ("Discontinuation of metoprolol today.", [dose("metoprolol", None, N)]),
    ("Have her come off sertraline.", [dose("sertraline", None, N)]),
    ("Allopurinol was cut from the regimen.", [dose("allopurinol", None, N)]),
    ("Patient: I haven't touched my lithium since Sunday.", [dose("lithium", None, N)]),
    ("Furosemide - ceased.", [dose("furosemide", None, N)]),
    ("Please omit methotrexate from now on.", [dose("methotrexate", None, N)]),
    ("Tramadol course ended.", [dose("tramadol", None, N)]),
    ("Metformin should not be stopped.", []),
]

# (text, end of the clinical time), written on Thursday 4 March 2021
ENDS = [
    ("Amoxicillin 500 mg tid for a further week.", "2021-03-11"),
    ("Cephalexin 500 mg qid x 7/7.", "2021-03-11"),
    ("Nitrofurantoin 100 mg bid, 10-day course.", "2021-03-14"),
    ("Doxycycline 100 mg bid until Friday.", "2021-03-06"),
    ("Prednisone 40 mg daily, 5/7.", "2021-03-09"),
    ("Doxycycline 100 mg bid for another 3 days.", "2021-03-07"),
    ("Amoxicillin 500 mg tid, to complete seven days.", "2021-03-11"),
    ("Prednisone 40 mg daily x5d.", "2021-03-09"),
    ("Doxycycline 100 mg bid up to and including 2021-03-12.", "2021-03-13"),
    ("Cephalexin 500 mg qid with final tablet on 2021-03-10.", "2021-03-11"),
]

# (an earlier entry, a later one, what becomes of the earlier one's only memory)
VERDICTS = [
    ("Metformin 850 mg bid.", "Metformin 850 mg bid was misread; it should have read 500 mg bid.", "CORRECTED"),
    ("Sertraline 100 mg daily.", "Addendum: sertraline is 50 mg daily, disregard the earlier 100 mg.", "CORRECTED"),
    ("Lisinopril 40 mg daily.", "Transcription error in last note: lisinopril 20 mg daily, not 40 mg.", "CORRECTED"),
    ("Warfarin 7.5 mg nightly.", "Warfarin had erroneously been documented as 7.5 mg; the dose is 5 mg nightly.",
     "CORRECTED"),
    ("Furosemide 80 mg daily.", "Furosemide 40 mg daily - previous entry of 80 mg invalid.", "CORRECTED"),
    ("Gabapentin 600 mg bid.", "Patient: You wrote down 600 mg of gabapentin, but it has always been 300 mg bid.",
     "CORRECTED"),
    ("Atorvastatin 80 mg nightly.", "Scribe misheard the atorvastatin dose as 80 mg; patient takes 40 mg nightly.",
     "CORRECTED"),
    ("Potassium 6.1 mmol/L.", "Lab error: potassium is 4.1 mmol/L.", "CORRECTED"),
    ("Creatinine 2.1 mg/dL.", "Creatinine was mistyped and reads 1.2 mg/dL.", "CORRECTED"),
    ("Hemoglobin 14.0 g/dL.", "Revised result: hemoglobin 10.4 g/dL replaces the value issued earlier.", "CORRECTED"),
    ("Has gout.", "Please disregard the entry of gout, wrong chart.", "CORRECTED"),
    ("Has epilepsy.", "Epilepsy was carried over from another patient's record and does not apply.", "CORRECTED"),
    ("Has asthma.", "Patient: I never had asthma, that was a mix-up.", "CORRECTED"),
    ("Has COPD.", "COPD on the problem list is a coding mistake.", "CORRECTED"),
    ("Has diabetes.", "Diagnosis of diabetes has been retracted.", "CORRECTED"),
    ("Has heart failure.", "Heart failure should never have been on the problem list.", "CORRECTED"),
    ("Allergic to penicillin (rash).", "Correction, penicillin caused anaphylaxis and not a rash.", "CORRECTED"),
    ("Allergic to latex (hives).", "Latex reaction misrecorded as hives; it was itching.", "CORRECTED"),
    ("Allergic to penicillin (rash).", "Penicillin allergy was charted in error.", "CORRECTED"),
    ("Lisinopril 10 mg daily.", "Lisinopril is now 20 mg daily, not 10 mg.", "SUPERSEDED"),
    ("Has pneumonia.", "Pneumonia has cleared radiologically.", "RESOLVED"),
    ("Allergic to penicillin (rash).", "Penicillin allergy removed after a negative challenge.", "RESOLVED"),
]

# (an earlier entry, a later one, the only relation between them)
RELATIONS = [
    ("Lisinopril 10 mg daily.", "Dry cough brought on by lisinopril.", ("lisinopril", "causal", "dry cough")),
    ("Amlodipine 5 mg daily.", "Ankle swelling blamed on amlodipine.", ("amlodipine", "causal", "ankle swelling")),
    ("Metformin 500 mg bid.", "Patient: The metformin gives me diarrhea.", ("metformin", "causal", "diarrhea")),
    ("Atorvastatin 40 mg nightly.", "Muscle pain, atorvastatin is the likely culprit.",
     ("atorvastatin", "causal", "muscle pain")),
    ("Gabapentin 300 mg bid.", "Dizziness provoked by gabapentin.", ("gabapentin", "causal", "dizziness")),
    ("Sertraline 50 mg daily.", "Insomnia as a result of sertraline.", ("sertraline", "causal", "insomnia")),
    ("Lithium 300 mg nightly.", "Hand tremor, which we put down to lithium.", ("lithium", "causal", "hand tremor")),
    ("Warfarin 5 mg nightly.", "Has had nosebleeds ever since going on warfarin.",
     ("warfarin", "causal", "nosebleeds")),
    ("Has hypertension.", "Chronic kidney disease resulting from hypertension.",
     ("hypertension", "causal", "chronic kidney disease")),
    ("Has type 2 diabetes.", "Diabetic retinopathy as a complication of type 2 diabetes.",
     ("type 2 diabetes", "causal", "diabetic retinopathy")),
    ("Has heart failure.", "Heart failure has led to a pleural effusion.",
     ("heart failure", "causal", "pleural effusion")),
    ("Has gout.", "Kidney stones occurring on a background of gout.", ("kidney stones", "systemic_link", "gout")),
    ("Has gout.", "Kidney stones seen in conjunction with gout.", ("kidney stones", "systemic_link", "gout")),
    ("Has obesity.", "Sleep apnea, commonly seen together with obesity.", ("sleep apnea", "systemic_link", "obesity")),
    ("Has heart failure.", "Pleural effusion, a consequence of heart failure.",
     ("heart failure", "causal", "pleural effusion")),
    ("Warfarin 5 mg nightly.", "INR every fortnight for as long as warfarin continues.",
     ("inr monitoring", "monitoring_for", "warfarin")),
]

# ---- a second list, written when the rules had learnt the first ----------------------------------------------------

MORE_DRAFTS = [
    ("Patient: Penicillin nearly killed me, I went into anaphylactic shock.",
     [allergy("penicillin", "anaphylactic shock")]),
    ("Hx of hives w/ sulfa.", [allergy("sulfa drugs", "hives")]),
    ("Nuts - throat swelling; tape - blistering",
     [allergy("tree nuts", "throat swelling"), allergy("adhesive tape", "blistering")]),
    ("When exposed to latex she gets contact dermatitis.", [allergy("latex", "contact dermatitis")]),
    ("Severe reaction to iodinated contrast in the past (bronchospasm).",
     [allergy("iodinated contrast", "bronchospasm")]),
    ("Patient: The doctor took penicillin off my allergy list after the skin test.", [allergy("penicillin", None, N)]),
    ("Shellfish allergy has been ruled out by allergist.", [allergy("shellfish", None, N)]),
    ("Erythromycin caused GI upset; intolerance, not true allergy.", [allergy("erythromycin", "gi upset")]),
    ("Reaction type for penicillin amended to angioedema.", [allergy("penicillin", "angioedema")]),
    ("Patient: It was my throat that swelled up with shrimp, it wasn't hives.",
     [allergy("shellfish", "swelling of the throat")]),
    ("He does not wish to be intubated.", [wish("code status", "do not intubate")]),
    ("Code: DNR.", [wish("code status", "do not resuscitate")]),
    ("Patient: If my heart stops, let me go.", [wish("code status", "do not resuscitate")]),
    ("Goals of care discussed, remains full code.", [wish("code status", "full code")]),
    ("Text is the best way to get hold of her.", [wish("contact method", "text message")]),
    ("Patient: Could you write me a letter rather than phone?", []),
    ("Phone call preferred for results.", [wish("contact method", "phone call")]),
    ("Home: lives w/ daughter.", [wish("living situation", "with daughter")]),
    ("She has given up her apartment and lives in assisted living.", [wish("living situation", "in assisted living")]),
    ("Patient: There's nobody at home but me, I live by myself.", [wish("living situation", "alone")]),
    ("Eating strictly vegetarian.", [wish("diet", "vegetarian")]),
    ("Low sodium diet ordered.", [wish("diet", "low sodium")]),
    ("Patient: I avoid gluten, I'm on the gluten free diet.", [wish("diet", "gluten free")]),
    ("Prefers Arabic; interpreter booked.", [wish("preferred language", "arabic")]),
    ("The gabapentin dose in my last note is not correct: she takes 300 mg tid.", [dose("gabapentin", "300 mg tid")]),
    ("Lab called to say that the potassium of 5.9 belonged to another sample; true value 4.2 mmol/L.",
     [("potassium", "value", "4.2", A, P)]),
    ("Rheumatoid arthritis was documented erroneously.", [problem("rheumatoid arthritis", N)]),
    ("The chart says asthma; she has never had it.", [problem("asthma", N)]),
    ("Suspect polymyalgia rheumatica.", [problem("polymyalgia rheumatica", U)]),
    ("Could represent early pneumonia.", [problem("pneumonia", U)]),
    ("Pulmonary embolism is a consideration.", [problem("pulmonary embolism", U)]),
    ("Patient: She said it might be gout but wasn't certain.", [problem("gout", U)]),
    ("?? deep vein thrombosis left leg", [problem("deep vein thrombosis", U)]),
    ("Sleep apnea remains in the differential.", [problem("sleep apnea", U)]),
    ("Her chest pain has completely gone.", [problem("chest pain", N)]),
    ("Patient: I'm over the pneumonia.", [problem("pneumonia", N)]),
    ("Constipation: resolved with senna.", [problem("constipation", N)]),
    ("Leg swelling is no more.", [problem("leg swelling", N)]),
    ("No headaches reported since the last visit.", [problem("headache", N)]),
    ("Investigations have excluded celiac disease.", [problem("celiac disease", N)]),
    ("Sleep study did not confirm sleep apnea.", [problem("sleep apnea", N)]),
    ("Patient: My breathing is fine, not short of breath.", [problem("shortness of breath", N)]),
    ("Patient: My mum's side all had strokes.", [problem("stroke", A, F)]),
    ("Brother passed away from colon cancer.", [problem("colon cancer", A, F)]),
    ("Notable for breast cancer in her sister.", [problem("breast cancer", A, F)]),
    ("Potassium to be rechecked monthly on account of spironolactone.", [plan("potassium monitoring", "every month")]),
    ("TSH every 6 wks while levothyroxine is continued.", [plan("tsh monitoring", "every 6 weeks")]),
    ("Has an eye examination coming up on 2021-05-02.", [plan("eye examination")]),
    ("Colonoscopy set for 12 April 2021.", [plan("colonoscopy")]),
    ("Had her appendix taken out in 1999.", [surgery("appendectomy")]),
    ("Right hip was replaced in 2014.", [surgery("right hip replacement")]),
    ("Sertraline is to be discontinued.", [dose("sertraline", None, N)]),
    ("Patient: I've been off the lithium for a month.", [dose("lithium", None, N)]),
    ("Decision made to end amlodipine.", [dose("amlodipine", None, N)]),
    ("Patient: I decided to leave the omeprazole alone, I don't take it.", [dose("omeprazole", None, N)]),
]
MORE_ENDS = [
    ("Amoxicillin 500 mg tid, one week in total.", "2021-03-11"),
    ("Cephalexin 500 mg qid, stop on 2021-03-14.", "2021-03-15"),
    ("Doxycycline 100 mg bid for 1 wk only.", "2021-03-11"),
    ("Prednisone 40 mg daily, finishing on March 9, 2021.", "2021-03-10"),
]
MORE_VERDICTS = [
    ("Gabapentin 100 mg tid.", "The gabapentin dose in my last note is not correct: she takes 300 mg tid.",
     "CORRECTED"),
    ("Has rheumatoid arthritis.", "Rheumatoid arthritis was documented erroneously.", "CORRECTED"),
    ("Has asthma.", "The chart says asthma; she has never had it.", "CORRECTED"),
    ("Allergic to penicillin (rash).", "Reaction type for penicillin amended to angioedema.", "CORRECTED"),
    ("Omeprazole 40 mg daily.", "Please amend: omeprazole strength is 20 mg daily and was never 40 mg.", "CORRECTED"),
    ("Lisinopril 40 mg daily.", "Patient: They put 40 mg of lisinopril in my chart but I only ever took 20 mg daily.",
     "CORRECTED"),
]
MORE_RELATIONS = [
    ("Amlodipine 5 mg daily.", "Amlodipine seems to be behind the ankle swelling.",
     ("amlodipine", "causal", "ankle swelling")),
    ("Lisinopril 10 mg daily.", "Dry cough, presumably from lisinopril.", ("lisinopril", "causal", "dry cough")),
    ("Has hypertension.",
     "Long-standing hypertension has damaged the kidneys, leaving her with chronic kidney disease.",
     ("hypertension", "causal", "chronic kidney disease")),
    ("Has gout.", "Known for kidney stones in the setting of gout.", ("kidney stones", "systemic_link", "gout")),
    ("Has type 2 diabetes.", "Diabetic retinopathy stemming from type 2 diabetes.",
     ("type 2 diabetes", "causal", "diabetic retinopathy")),
]

# what of these is still missed
KNOWN_MISSES = [c for c in (*DRAFTS, *MORE_DRAFTS) if c[0] in (
    "Has moved into an assisted living facility.",
    "Nuts - throat swelling; tape - blistering",
    "Patient: It was my throat that swelled up with shrimp, it wasn't hives.",
    "Home: lives w/ daughter.",
)]


def told(text: str, date: str = "2021-03-04") -> tuple[Entry, list[Memory]]:
    entry = Entry.of("p", date, "note", text, date=date)
    drafts = WRITER.extract([entry])[0].drafts
    return entry, [Memory.of("p", d.statement, [Provenance.of(entry, *d.span)], ordinal=i, kind=d.kind,
                             concept=d.concept, attribute=d.attribute, value=d.value, unit=d.unit, polarity=d.polarity,
                             experiencer=d.experiencer, clinical_time=resolve(d.time, entry.date))
                   for i, d in enumerate(drafts)]


def drafts(text: str) -> list[tuple]:
    return [(m.concept, m.attribute, m.value, m.polarity, m.experiencer) for m in told(text)[1]]


def end(text: str) -> str | None:
    return told(text)[1][0].clinical_time.end


def verdict(first: str, second: str) -> str | None:
    (old,), (entry, new) = told(first, "2021-01-02")[1], told(second)
    found = WRITER.update([UpdateTask(entry, tuple(new), (Affected(old),))])[0].verdicts
    return found[0].kind if found else None


def relations(first: str, second: str) -> set[tuple[str, str, str]]:
    (old,), (entry, new) = told(first, "2021-01-02")[1], told(second)
    out = set()
    for memory in new:
        for found in WRITER.link([LinkTask(entry, memory, (old,))])[0].links:
            a, b = (memory, old) if found.forward else (old, memory)
            out.add((a.concept, found.type, b.concept))
    return {r for r in out if r[0] != r[2]}


def holds(case) -> bool:
    if isinstance(case[1], list):
        return drafts(case[0]) == case[1]
    if len(case) == 2:
        return end(case[0]) == case[1]
    if isinstance(case[2], tuple):
        found = relations(*case[:2])
        return found == {case[2]} or case[2][1] == "systemic_link" and found == {case[2][::-1]}
    return verdict(*case[:2]) == case[2]


CASES = [*DRAFTS, *ENDS, *VERDICTS, *RELATIONS, *MORE_DRAFTS, *MORE_ENDS, *MORE_VERDICTS, *MORE_RELATIONS]


def name(case) -> str:
    return (case[0] if len(case) == 2 else case[1])[:50]


@pytest.mark.parametrize("case", [c for c in CASES if c not in KNOWN_MISSES], ids=name)
def test_said_in_other_words(case):
    assert holds(case)


@pytest.mark.parametrize("case", KNOWN_MISSES, ids=name)
def test_known_miss(case):
    assert case in CASES and not holds(case)
