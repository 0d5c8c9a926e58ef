"""Text and codes that carry no weight: topics, routine notes, profile background, note parts. Data only.

Topics are drawn, phrased and coded as the factors are. Routine notes are whole boilerplate notes that recur word for
word, as they do in real charts. Background notes and codes show a patient's profile and say nothing of any factor.
"""
from __future__ import annotations

import dataclasses

from core_jax.synth.factors import lines


@dataclasses.dataclass(frozen=True)
class Topic:
    """A subject without weight; `rate` = P(present)."""

    name: str
    rate: float
    codes: tuple[tuple[str, str], ...]
    phrases: tuple[str, ...]


def _codes(block: str) -> tuple[tuple[str, str], ...]:
    return tuple((c, t) for c, _, t in (line.partition(" ") for line in lines(block)))


def _topic(name, codes, phrases, rate=0.22) -> Topic:
    return Topic(name, rate, _codes(codes), lines(phrases))


TOPICS: tuple[Topic, ...] = (
    _topic("hay_fever", "J30.2 Other seasonal allergic rhinitis\nJ30.9 Allergic rhinitis, unspecified", """
        Sneezing and itchy eyes every time the grass is cut.
        Seasonal allergies have started again.
        Uses a steroid nose spray during ragweed season.
        Watery nasal discharge for which loratadine helps.
        Pollen count is blamed for the stuffy nose.
        Allergic rhinitis, prefers the generic antihistamine.
        Wakes with puffy eyelids in the spring.
        Cat dander sets off sneezing fits.
    """),
    _topic("cataract", "H25.13 Age-related nuclear cataract, bilateral\nZ96.1 Presence of intraocular lens", """
        Lens opacity in the right eye, surgery booked.
        Glare from headlights at dusk, eye clinic follows.
        New glasses prescribed after the cataract operation.
        Cloudy vision on the left, has been referred to ophthalmology.
        Eye drops to continue for two weeks after lens replacement.
        Reads large print until the second eye is done.
        Retinal photographs taken with dilated pupils.
        Optometrist measured the pressure in both eyes.
    """),
    _topic("hearing", "H90.3 Sensorineural hearing loss, bilateral\nH61.23 Impacted cerumen, bilateral", """
        Hearing aid battery replaced at the desk.
        Ear wax removed by irrigation.
        Turns the television up very loud.
        Audiogram shows high-frequency loss in both ears.
        Asks to repeat questions on the left side.
        Cerumen softener recommended nightly for a week.
        Fitting for new hearing devices is next Tuesday.
        Ringing in the ears, unchanged since military service.
    """),
    _topic("knee_arthritis", "M17.0 Bilateral primary osteoarthritis of knee\nM17.11 Unilateral primary osteoarthritis, right knee", """
        Stiff knees in the morning that loosen up by noon.
        Crepitus over the right kneecap with bending.
        Knee injection with cortisone gave relief.
        Joint space narrowing on the knee film.
        Wears an elastic sleeve on the left knee.
        Topical diclofenac gel rubbed on the knees.
        Orthopedics mentioned replacing the joint someday.
        Clicking knee when the weather turns cold.
    """),
    _topic("reflux", "K21.9 Gastro-esophageal reflux disease without esophagitis\nK30 Functional dyspepsia", """
        Heartburn after coffee and tomato sauce.
        Omeprazole keeps the reflux quiet.
        Sour taste at night, raised the head of the bed.
        Burping and bloating after onions.
        Antacid tablets in the coat pocket.
        Acid indigestion twice a month.
        Endoscopy long ago showed mild esophagitis.
        Advised to eat the last meal earlier in the evening.
    """),
    _topic("thyroid", "E03.9 Hypothyroidism, unspecified\nE04.1 Nontoxic single thyroid nodule", """
        Levothyroxine taken before breakfast.
        TSH is due in six weeks.
        Thyroid nodule followed by ultrasound, same size.
        Underactive thyroid since middle age.
        Dose of thyroid hormone rounded to the nearest tablet.
        Neck exam with a smooth gland.
        Thyroid panel drawn together with the other labs.
        Endocrine recommends yearly thyroid testing.
    """),
    _topic("skin", "L82.1 Other seborrheic keratosis\nL30.9 Dermatitis, unspecified", """
        Stuck-on brown spot on the back, benign.
        Dry itchy patches behind the elbows.
        Dermatology froze two sun spots on the scalp.
        Hydrocortisone cream for a rash on the forearm.
        Skin tags along the collar line.
        Mole check without suspicious features.
        Poison ivy on both ankles after gardening for a neighbor.
        Athlete's foot, powder recommended.
    """),
    _topic("migraine", "G43.909 Migraine, unspecified, not intractable, without status migrainosus\nG44.209 Tension-type headache, unspecified, not intractable", """
        Headache with zigzag lights about once a quarter.
        Migraine diary handed in.
        Sumatriptan works if taken early.
        Tension across the forehead at the end of the day.
        Bright light brings on a throbbing temple.
        Caffeine withdrawal headaches on Sundays.
        Neck massage eases the headache.
        Old migraines have become rare.
    """),
    _topic("insomnia", "G47.00 Insomnia, unspecified\nF51.01 Primary insomnia", """
        Lies awake until two in the morning.
        Melatonin tried without much effect.
        Naps in the afternoon and then cannot fall asleep.
        Sleep hygiene reviewed, screens off by nine.
        Early waking since the clock change.
        Restless sleeper who prefers to read in the night.
        Asks for something mild to help with sleep.
        Snoring bothers the person in the next room.
    """),
    _topic("back_strain", "M54.50 Low back pain, unspecified\nS39.012A Strain of muscle, fascia and tendon of lower back, initial encounter", """
        Pulled a muscle in the lower back moving a sofa.
        Lumbar stretch sheet provided.
        Heating pad for a sore back after a long drive.
        Stiff lumbar spine, straight leg raise negative.
        Back twinge when tying shoes.
        Chiropractor visit for the lumbar region.
        Muscle spasm beside the spine settled in a week.
        Firm cushion suggested for the office chair.
    """),
    _topic("dental", "K02.9 Dental caries, unspecified\nZ97.2 Presence of dental prosthetic device (complete) (partial)", """
        Tooth extraction planned by the dentist.
        Upper denture rubs and will be relined.
        Cavity filled last Thursday.
        Gums bleed a little with flossing.
        Dental cleaning completed, antibiotics not needed.
        Chipped a molar on a nut.
        Crown came loose and was cemented.
        Asks for a list of dentists who take the insurance.
    """),
    _topic("vaccination", "Z23 Encounter for immunization", """
        Flu shot given in the left deltoid.
        Second shingles vaccine due next month.
        Tetanus booster after a rusty nail scratch.
        Arm was sore for a day following the vaccine.
        Pneumococcal vaccine record requested from the old practice.
        COVID booster offered at the pharmacy.
        Immunization card updated.
        Vaccine information sheet reviewed.
    """),
    _topic("cold", "J06.9 Acute upper respiratory infection, unspecified\nJ02.9 Acute pharyngitis, unspecified", """
        Runny nose and scratchy throat for three days.
        Common cold caught from a schoolchild.
        Rapid strep test negative.
        Honey and lozenges for a tickly cough.
        Sinus pressure over the cheeks, rinse advised.
        Hoarse voice after singing with a cold.
        Head cold is nearly over.
        Viral upper respiratory symptoms, no antibiotics.
    """),
    _topic("hemorrhoids", "K64.9 Unspecified hemorrhoids\nK59.00 Constipation, unspecified", """
        Hemorrhoid cream renewed.
        Strains at stool, fiber suggested.
        Bright red drop on the tissue, known piles.
        Prune juice keeps things moving.
        Constipated while travelling.
        Stool softener at bedtime.
        Sitz baths relieve the itching.
        Banding of hemorrhoids went smoothly.
    """),
    _topic("vitamin", "E55.9 Vitamin D deficiency, unspecified\nE53.8 Deficiency of other specified B group vitamins", """
        Vitamin D is a little under the range, capsule started.
        B12 injection given by the nurse.
        Takes a multivitamin with minerals.
        Calcium and vitamin D for bone health.
        Asks whether fish oil is worthwhile.
        Turmeric and zinc from the health shop.
        Folate level requested.
        Supplement list reconciled with the pharmacist.
    """),
    _topic("osteoporosis", "M81.0 Age-related osteoporosis without current pathological fracture\nM85.80 Other specified disorders of bone density and structure, unspecified site", """
        Bone density scan scheduled.
        Alendronate taken on Saturday mornings.
        T-score in the osteopenic range.
        Denosumab injection every six months.
        DEXA compared with five years ago.
        Height measured, half an inch less than in youth.
        Asks if jaw problems come from bone tablets.
        Thin bones run in the family.
    """),
    _topic("prostate_or_bladder", "R35.1 Nocturia\nN30.00 Acute cystitis without hematuria", """
        Gets up twice at night to pass water.
        Burning on urination, culture sent.
        Bladder infection treated with nitrofurantoin.
        Slow stream, watches fluid after supper.
        Urine dipstick shows a few white cells.
        Cranberry juice instead of soda.
        Cystitis symptoms cleared by day three.
        Urology visit is yearly.
    """),
    _topic("anxiety", "F41.1 Generalized anxiety disorder\nF41.9 Anxiety disorder, unspecified", """
        Worries about the grandchildren's exams.
        Butterflies before flying, breathing exercises taught.
        Counselor sessions every second week.
        Nervous about the parking fees.
        Feels on edge since the burglary next door.
        Sertraline continued for anxious mood.
        Screening questionnaire for anxiety scored mild.
        Fear of needles, prefers to look away.
    """),
    _topic("administrative", "Z02.89 Encounter for other administrative examinations\nZ76.0 Encounter for issue of repeat prescription", """
        Jury duty excuse letter requested.
        Form for the parking placard signed.
        Insurance changed, new card scanned.
        Wants copies of the chart for a move.
        Pharmacy switched to the one near the station.
        Repeat prescription printed and handed over.
        Mailing address corrected.
        Travel letter for medicines in hand luggage.
    """),
    _topic("gout", "M10.9 Gout, unspecified\nE79.0 Hyperuricemia without signs of inflammatory arthritis and tophaceous disease", """
        Big toe red and hot after shellfish.
        Allopurinol continued.
        Colchicine kept in the drawer for attacks.
        Uric acid a bit above range.
        Gout attack resolved with ice and rest.
        Avoids beer since the last toe flare.
        Ankle was warm, crystals seen under the microscope.
        Cherry extract is said to help the toe.
    """),
)

# Codes of history, family and screening: close to the factors in wording, without weight.
DECOY_CODES = _codes("""
    Z80.0 Family history of malignant neoplasm of digestive organs
    Z80.3 Family history of malignant neoplasm of breast
    Z82.49 Family history of ischemic heart disease and other diseases of the circulatory system
    Z84.1 Family history of disorders of kidney and ureter
    Z83.3 Family history of diabetes mellitus
    Z82.0 Family history of epilepsy and other diseases of the nervous system
    Z83.6 Family history of other diseases of the respiratory system
    Z12.11 Encounter for screening for malignant neoplasm of colon
    Z12.31 Encounter for screening mammogram for malignant neoplasm of breast
    Z13.6 Encounter for screening for cardiovascular disorders
    Z13.0 Encounter for screening for diseases of the blood and blood-forming organs and certain disorders involving the immune mechanism
    Z71.3 Dietary counseling and surveillance
    Z71.89 Other specified counseling
    Z72.3 Lack of physical exercise
    Z87.01 Personal history of pneumonia (recurrent)
    Z87.440 Personal history of urinary (tract) infections
    Z63.4 Disappearance and death of family member
    Z63.6 Dependent relative needing care at home
    Z86.2 Personal history of diseases of the blood and blood-forming organs and certain disorders involving the immune mechanism
    Z86.010 Personal history of colon polyps
    D17.1 Benign lipomatous neoplasm of skin and subcutaneous tissue of trunk
    D18.03 Hemangioma of intra-abdominal structures
    R03.0 Elevated blood-pressure reading, without diagnosis of hypertension
    S80.811A Abrasion, right lower leg, initial encounter
""")

ROUTINE_CODES = _codes("""
    I10 Essential (primary) hypertension
    E78.5 Hyperlipidemia, unspecified
    Z00.00 Encounter for general adult medical examination without abnormal findings
    Z79.899 Other long term (current) drug therapy
    Z09 Encounter for follow-up examination after completed treatment for conditions other than malignant neoplasm
    H52.4 Presbyopia
    B35.1 Tinea unguium
    L85.3 Xerosis cutis
    M79.671 Pain in right foot
    R05.9 Cough, unspecified
    R53.83 Other fatigue
    E66.9 Obesity, unspecified
    M25.511 Pain in right shoulder
    Z88.0 Allergy status to penicillin
    Z90.49 Acquired absence of other specified parts of digestive tract
    I83.90 Asymptomatic varicose veins of unspecified lower extremity
    K57.30 Diverticulosis of large intestine without perforation or abscess without bleeding
    N28.1 Cyst of kidney, acquired
    R73.03 Prediabetes
    Z79.82 Long term (current) use of aspirin
""")

BACKGROUND_CODES: dict[str, tuple[tuple[str, str], ...]] = {
    "cardiac": _codes("""
        I25.10 Atherosclerotic heart disease of native coronary artery without angina pectoris
        I48.91 Unspecified atrial fibrillation
        Z95.5 Presence of coronary angioplasty implant and graft
        I35.0 Nonrheumatic aortic (valve) stenosis
        Z95.0 Presence of cardiac pacemaker
        I25.2 Old myocardial infarction
    """),
    "oncology": _codes("""
        C50.912 Malignant neoplasm of unspecified site of left female breast
        C18.9 Malignant neoplasm of colon, unspecified
        C34.90 Malignant neoplasm of unspecified part of unspecified bronchus or lung
        Z51.11 Encounter for antineoplastic chemotherapy
        C61 Malignant neoplasm of prostate
        Z45.2 Encounter for adjustment and management of vascular access device
    """),
    "frail": _codes("""
        R54 Age-related physical debility
        R41.3 Other amnesia
        M62.81 Muscle weakness (generalized)
        R26.89 Other abnormalities of gait and mobility
        G31.84 Mild cognitive impairment of uncertain or unknown etiology
        Z74.8 Other problems related to care provider dependency
    """),
    "renal": _codes("""
        N18.4 Chronic kidney disease, stage 4 (severe)
        I12.9 Hypertensive chronic kidney disease with stage 1 through stage 4 chronic kidney disease, or unspecified chronic kidney disease
        E11.22 Type 2 diabetes mellitus with diabetic chronic kidney disease
        N25.81 Secondary hyperparathyroidism of renal origin
        N04.9 Nephrotic syndrome with unspecified morphologic changes
        Q61.2 Polycystic kidney, adult type
    """),
}

BACKGROUND_NOTES: dict[str, tuple[str, ...]] = {
    "cardiac": lines("""
        Cardiology clinic. Coronary disease with a prior stent to the left anterior descending artery. Aspirin and statin continued.
        Anticoagulation clinic. Atrial fibrillation on warfarin, INR checked by fingerstick, same weekly dose.
        Cardiology nurse call. Reviewed the purpose of each heart medicine and when to take nitroglycerin.
        Device clinic. Pacemaker interrogated, leads and battery function as expected.
        Echocardiography laboratory. Transthoracic study performed for aortic stenosis follow-up, report to follow.
        Electrocardiogram in the cardiac clinic: atrial fibrillation, controlled ventricular rate, old inferior infarct.
        Cardiac catheterization history reviewed: two-vessel coronary artery disease treated years ago with bypass grafting.
        Cardiology follow-up. Valve murmur unchanged. Return to the heart clinic in three months.
        Holter monitor applied in cardiology. Patient shown how to mark palpitations in the diary.
        Refill for metoprolol and atorvastatin authorized by the cardiologist.
    """),
    "oncology": lines("""
        Oncology clinic. Seen before the scheduled chemotherapy cycle, port accessed without difficulty.
        Infusion center. Antineoplastic regimen administered per protocol, port flushed and de-accessed.
        Tumor board summary. Primary malignancy discussed, systemic therapy to go on as planned.
        Oncology nurse call. Reviewed whom to phone in case of fever after chemotherapy.
        Radiation oncology. Simulation completed with skin marks placed for the primary tumor bed.
        Oncology follow-up. Cancer history and previous cycles reviewed, next infusion in three weeks.
        Pharmacy note. Antiemetics dispensed with the chemotherapy teaching sheet.
        Genetic counseling for the cancer diagnosis, sample sent to the laboratory.
        Port-a-cath check in the cancer center: good blood return.
        Survivorship navigator introduced the services of the cancer center.
    """),
    "frail": lines("""
        Geriatric clinic. Frailty assessment carried out, clinical frailty scale recorded in the chart.
        Memory clinic. Mild forgetfulness over several years, cognitive screening repeated.
        Geriatric nurse visit. Medication list reviewed with the Beers criteria.
        Senior day center. Took part in the morning program for frail elders.
        Physical therapy for older adults. Generalized weakness, chair exercises with bands.
        Geriatrics follow-up. Slow gait speed and weak grip, as before. Return in three months.
        Comprehensive geriatric assessment completed by the interdisciplinary team.
        Occupational therapist for the elderly suggested grab rails and better lighting.
        Meals program for seniors renewed. Geriatric social worker informed.
        Elder care telephone call. Forgetful about dates, calendar with large print was mailed.
    """),
    "renal": lines("""
        Nephrology clinic. Chronic kidney disease stage four, creatinine and urine protein ordered.
        Renal dietitian. Explained phosphorus on food labels, handout for kidney disease provided.
        Kidney clinic nurse call. Reminded to avoid ibuprofen and contrast dye.
        Nephrology follow-up. Diabetic nephropathy, kidney function to be rechecked. Return in three months.
        Renal ultrasound performed for chronic kidney disease, kidneys small and echogenic.
        Phosphate binder refill authorized by the nephrologist.
        Chronic kidney disease education class attended, stages of kidney function explained.
        Parathyroid hormone drawn for the kidney clinic, vitamin D analog continued.
        Nephrology consultation. Proteinuria with long-standing diabetes and hypertensive kidney disease.
        Twenty-four hour urine collection jug handed out by the kidney clinic.
    """),
}

ROUTINE_NOTES = lines("""
    Telephone note. Caller asked about clinic opening hours around the holiday. Information given. Encounter closed, nothing else for this office.
    Telephone note. Reminder call for tomorrow's appointment, message left on voicemail. Entry made by the front desk staff.
    Telephone note. Request for lab results. Told that they will be posted in the portal after review. Documented for the office log.
    Telephone note. Asked which entrance to use during construction. Directions given. Encounter closed, nothing else for this office.
    Telephone note. Refill request forwarded to the covering provider. Entry made by the front desk staff.
    Telephone note. Pharmacy asked to clarify the quantity on a prescription. Clarified. Documented for the office log.
    Telephone note. Called to reschedule because of a conflicting errand. New slot booked. Encounter closed, nothing else for this office.
    Telephone note. Question about whether tablets may be taken with grapefruit. Answered by the pharmacist. Entry made by the front desk staff.
    Telephone note. Insurance representative asked for the date of the last visit. Release on file. Documented for the office log.
    Telephone note. Call returned, nobody answered, will try again. Encounter closed, nothing else for this office.
    Nursing note. Vital signs taken and charted. Call bell within reach. Entry made at the time of service.
    Nursing note. Medications given as ordered. Identification band checked. Documented in the unit flowsheet as usual.
    Nursing note. Peripheral line flushed, site clean and dry. Entry checked by the charge nurse.
    Nursing note. Blood drawn from the left arm on first attempt, sent to the laboratory. Entry made at the time of service.
    Nursing note. Hand-off given to the evening shift at bedside. Documented in the unit flowsheet as usual.
    Nursing note. Allergies and contact details verified. Entry checked by the charge nurse.
    Nursing note. Waiting time apologised for, water offered. Entry made at the time of service.
    Nursing note. Room cleaned and linen changed. Documented in the unit flowsheet as usual.
    Nursing note. Consent form witnessed and placed in the chart. Entry checked by the charge nurse.
    Nursing note. Education on hand hygiene provided to everybody in the room. Entry made at the time of service.
    Clinic note. Here for a scheduled visit. Medication list reviewed and reconciled. Follow-up as planned. Documentation completed at the end of the session.
    Clinic note. Results of routine blood work discussed. Copies given. Encounter form signed by the attending.
    Clinic note. Preventive care items reviewed with the checklist. Next visit in the usual interval. Dictated and proofread on the same day.
    Clinic note. Lungs clear, heart regular, abdomen soft. Plan unchanged. Documentation completed at the end of the session.
    Clinic note. Referral letter dictated. Time spent includes review of outside records. Encounter form signed by the attending.
    Clinic note. Seen together with the medical student, who presented the case. Dictated and proofread on the same day.
    Clinic note. Interpreter used by video throughout the encounter. Documentation completed at the end of the session.
    Clinic note. New patient portal account activated at checkout. Encounter form signed by the attending.
    Clinic note. Questions answered. Summary printed for the patient. Dictated and proofread on the same day.
    Clinic note. Brief check of a healing scratch, no action required. Documentation completed at the end of the session.
    Social work note. Introduced the role of the department and left a card. No open tasks for the department.
    Social work note. Transportation schedule of the county reviewed. Entry made for the department log.
    Social work note. Mailing list for the community newsletter updated. No open tasks for the department.
    Home visit note. Smoke detector batteries checked. Path to the door is clear. Mileage and time entered for the agency.
    Home visit note. Supplies counted and reordered. Entry sent to the agency office.
    Home visit note. Visit completed on schedule, signature obtained. Mileage and time entered for the agency.
    Pharmacy note. Interaction check run on the current list without alerts. Verified by the second pharmacist on duty.
    Pharmacy note. Ninety-day supply mailed. Entry made in the dispensing log.
    Pharmacy note. Brand name exchanged for the generic, same strength. Verified by the second pharmacist on duty.
    Radiology note. Chest film compared with the previous one, no acute process. Report signed electronically by the radiologist.
    Radiology note. Ultrasound of the gallbladder performed, technically adequate. Study archived under the accession number.
    Radiology note. Images transferred from the outside facility for comparison. Report signed electronically by the radiologist.
    Laboratory note. Specimen received in good condition. Released by the technologist on duty.
    Laboratory note. Routine panel processed, reference ranges attached. Entry made in the specimen log.
    Therapy note. Home program sheet handed out, next session next week. Session length entered for billing.
    Administrative note. Records received from the previous practice and scanned. Entry made by the office clerk.
    Administrative note. Privacy notice acknowledged. Task completed and removed from the work list.
    Administrative note. Copay collected at the front desk. Entry made by the office clerk.
    Administrative note. Survey about the waiting area mailed. Task completed and removed from the work list.
    Administrative note. Chart audit completed for the quarter. Entry made by the office clerk.
""")

# note type -> (label that opens the note, sentences before, sentences after the planted one)
NOTE_PARTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "telephone": ("Telephone note.", lines("""
        Spoke with the patient.
        Incoming call.
        Nurse line message.
    """), lines("""
        Message sent to the provider.
        Will call back with any change.
        Advice given per protocol.
    """)),
    "nursing": ("Nursing note.", lines("""
        Rounded at the start of the shift.
        Vital signs charted.
        Seen with the care assistant.
    """), lines("""
        Provider notified.
        Continue to monitor.
        Report given to the next shift.
    """)),
    "clinic": ("Clinic note.", lines("""
        Here for follow-up.
        Interval history reviewed.
        Scheduled visit.
    """), lines("""
        Remainder of the exam unchanged.
        Plan discussed and questions answered.
        Return visit arranged.
    """)),
    "home": ("Home visit note.", lines("""
        Seen at home.
        Visit began on time.
        Agency visit per calendar.
    """), lines("""
        Agency informed.
        Next visit as scheduled.
        Care plan reviewed.
    """)),
}

SUMMARY_SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Reason for stay", lines("""
        Admitted from the emergency department for observation after an overnight evaluation by the medical team.
        Brought in for elective evaluation and direct observation under the hospital medicine service.
        Transferred from an outside facility so that the evaluation could be completed here.
    """)),
    ("History", lines("""
        The history was obtained from the patient, the accompanying person and the outside records, which were scanned into the chart. Earlier visits were reviewed and the problem list was brought up to date by the admitting resident.
        The available records were reviewed in detail. Medication history was taken by the pharmacist, who compared the list with the dispensing record. Surgical and social history were confirmed as already charted.
    """)),
    ("Examination", lines("""
        On arrival the patient was seen by the admitting physician. Pupils were equal, mucous membranes moist, the abdomen was soft and no new rash was seen. The remainder of the examination is recorded in the admission note.
        General examination was carried out on the ward by the day team. Heart sounds were regular, breath sounds were heard on both sides and the abdomen was not tender. Pulses were present in both feet.
    """)),
    ("Hospital course", lines("""
        The patient was placed on the medical ward and followed by the team on daily rounds. Laboratory tests were drawn each morning and reviewed. Consultants left their recommendations in the chart and these were followed. The plan of the day was explained on rounds and questions were answered.
        The stay followed the expected course. Orders were reviewed daily, lines were removed when no longer needed and the unit pharmacist checked the medication list. The case manager met with the patient to review the options after leaving the ward.
        Monitoring was carried out according to the protocol of the unit. Imaging and blood tests were repeated where the team considered it useful, and the outcome was communicated to the referring practice by letter and by telephone.
    """)),
    ("Medications", lines("""
        The list at discharge was reconciled against the list at admission. Changes were marked, printed and handed over, and a copy was sent to the pharmacy of choice.
        Home medications were resumed apart from those listed in the attached table. The pharmacist went through the table with the patient before departure.
    """)),
    ("Instructions", lines("""
        Return to the emergency department for new or worrying symptoms. Call the ward with any question in the first two days. The follow-up appointment has been booked and the letter will be sent to the primary practice.
        Keep the appointments on the attached sheet. Bring all medicines to the next visit. The telephone number of the ward is printed at the top of this page for any question.
    """)),
)
