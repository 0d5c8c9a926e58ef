"""The planted factors: name, log-odds weight, rate, profile, ICD-10-CM codes, phrasings and decoys. Data only.

A factor with a profile acts for patients of that profile and is neutral for all others, where it is as frequent.
A decoy shares the factor's topic and style but states its absence, a plan, the past or another person: weight zero.
The lists are frozen under `VERSION`: a changed sentence, weight or code is a new version (tests hold the hash).
"""
from __future__ import annotations

import dataclasses
import hashlib

VERSION = "planted/1"
PROFILES = ("cardiac", "oncology", "frail", "renal")


@dataclasses.dataclass(frozen=True)
class Factor:
    """`weight` in log-odds, `rate` = P(present), `profile` None = acts for everybody; `codes` are (code, title)."""

    name: str
    weight: float
    rate: float
    profile: str | None
    definition: str
    codes: tuple[tuple[str, str], ...]
    phrases: tuple[str, ...]
    decoys: tuple[str, ...]


def lines(block: str) -> tuple[str, ...]:
    return tuple(s.strip() for s in block.strip().splitlines() if s.strip())


def split_phrases(sentences: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Disjoint sentences for each split, in an order set by the hash of the text and not by the writer.

    Of 17 phrasings 10 go to train, 2 to validation, 5 to test; of 7 decoys 4, 1 and 2; of 8 topic sentences 5, 1 and 2.
    Validation has sentences of its own, so that early stopping sees unseen wording without touching the test wording.
    """
    ranked = sorted(sentences, key=lambda s: hashlib.sha256(f"{VERSION}:{s}".encode()).hexdigest())
    n = len(ranked)
    n_test, n_val = max(2, round(0.29 * n)), max(1, n // 8)
    test, val, train = ranked[:n_test], ranked[n_test:n_test + n_val], ranked[n_test + n_val:]
    return {"train": tuple(train), "val": tuple(val), "test": tuple(test)}


def _factor(name, weight, rate, profile, definition, codes, phrases, decoys) -> Factor:
    pairs = tuple((c, t) for c, _, t in (line.partition(" ") for line in lines(codes)))
    return Factor(name, weight, rate, profile, definition, pairs, lines(phrases), lines(decoys))


FACTORS: tuple[Factor, ...] = (
    _factor("cachexia", 1.45, 0.15, None, "Severe unintentional loss of body mass with muscle wasting.", """
        R64 Cachexia
        R63.4 Abnormal weight loss
        E43 Unspecified severe protein-calorie malnutrition
        E41 Nutritional marasmus
    """, """
        Has dropped nearly thirty pounds since spring without trying.
        Temporal wasting is obvious and the clavicles are prominent.
        Clothes hang off the frame; belt taken in four holes.
        Appears emaciated with loss of subcutaneous fat over the ribs.
        Weight continues to fall at every visit despite supplements.
        Marked sarcopenia of thighs and upper arms on exam.
        BMI is now under seventeen.
        Dietitian documents severe malnutrition with muscle depletion.
        Skin and bones compared with last year, per the home aide.
        Unexplained weight loss exceeding ten percent of body mass in six months.
        Cachectic appearing, hollow cheeks and sunken orbits.
        Target weight had to be lowered again because of lean tissue loss.
        Sister says the patient is wasting away in front of her.
        Scale shows another steep decline from the previous month.
        Profoundly thin, with visible bony landmarks throughout.
        Losing weight rapidly even with calorie shakes three times a day.
        Interosseous muscles of the hands are shrunken.
    """, """
        Weight is unchanged from the last several visits.
        Lost twelve pounds on purpose with a commercial diet plan.
        Father was emaciated before he passed from stomach cancer.
        No temporal wasting or loss of muscle bulk on exam.
        Regained all the weight lost after the flu several years ago.
        Denies unintentional weight loss.
        Handout given on how to prevent malnutrition in older adults.
    """),
    _factor("home_oxygen", 1.25, 0.15, None, "Long-term dependence on supplementary oxygen at home.", """
        Z99.81 Dependence on supplemental oxygen
        J96.11 Chronic respiratory failure with hypoxia
        J96.10 Chronic respiratory failure, unspecified whether with hypoxia or hypercapnia
    """, """
        Uses two liters by nasal cannula around the clock at home.
        The concentrator runs day and night in the bedroom.
        Portable tank was brought to the appointment.
        Saturations fall to the low eighties as soon as the cannula comes off.
        Home oxygen flow was turned up again by the agency.
        Cannot leave the house without a cylinder in tow.
        Durable medical equipment company delivered a new concentrator and tubing.
        Remains oxygen dependent since the autumn.
        Wears continuous O2, four liters with exertion.
        Qualified for long-term supplemental oxygen after a walk test.
        Resting hypoxemia requires cannula use for most hours of the day.
        Trails fifty feet of oxygen tubing around the apartment.
        Desaturates on room air within minutes and needs constant flow.
        Refill of liquid oxygen reservoir arranged for next week.
        Chronic hypoxic respiratory failure on baseline three liters.
        Nasal sores from the prongs that must be worn all the time.
        Electric company told of life-sustaining oxygen equipment in the home.
    """, """
        Saturating well on room air, no home oxygen requirement.
        Husband is the one who uses an oxygen concentrator at home.
        Oxygen was stopped years ago after recovery from pneumonia and never needed since.
        Walk test completed without any desaturation, no supplemental O2 indicated.
        Neighbor's oxygen tank caused a small fire in the building.
        Denies ever using a nasal cannula at home.
        Asked what the criteria for home oxygen are; does not meet them.
    """),
    _factor("hospice_talk", 1.9, 0.13, None, "Discussion of end-of-life care or a comfort-focused plan.", """
        Z51.5 Encounter for palliative care
        Z66 Do not resuscitate
    """, """
        Family meeting held about shifting to comfort-focused care.
        Hospice liaison met with the patient this afternoon.
        Does not want to go back to the hospital under any circumstances, only comfort.
        Palliative team consulted for goals of care.
        Code status changed to do not resuscitate after a long conversation.
        Would not be surprised if this were the last year, and said so to the daughter.
        Prefers to spend remaining time at home with symptom relief.
        Enrollment visit for hospice scheduled.
        POLST form completed declining intubation and CPR.
        We talked openly about dying and what matters most now.
        Agrees that no further disease-directed treatment makes sense.
        Chaplain visited to discuss final wishes.
        Prognosis of months was shared with patient and spouse.
        Comfort kit ordered for the house in case of distress.
        Medical team recommends stopping life-prolonging measures.
        Son asked how to arrange an end-of-life nurse.
        Meeting focused on quality rather than length of life.
    """, """
        Full code, wishes all available treatment.
        Mother died peacefully in hospice some years ago.
        Routine advance directive brochure offered to all patients at check-in.
        Volunteers at the local hospice thrift shop on Tuesdays.
        No palliative needs identified at this time.
        Palliative consult that had been placed in error was cancelled.
        Grieving the loss of a brother who received comfort care last winter.
    """),
    _factor("dialysis", 1.25, 0.14, None, "Renal replacement therapy for kidney failure.", """
        Z99.2 Dependence on renal dialysis
        N18.6 End stage renal disease
        Z49.31 Encounter for adequacy testing for hemodialysis
    """, """
        Attends hemodialysis on Monday, Wednesday and Friday.
        Left arm fistula has a good thrill and is being cannulated.
        Completed the full four hours on the machine yesterday.
        Peritoneal exchanges are performed every night with the cycler.
        Tunneled catheter in the right chest used for treatments.
        Anuric and dependent on thrice-weekly runs.
        Post-dialysis fatigue lasts until the next morning.
        ESRD, transportation to the unit arranged through the county.
        Kidneys have failed completely and renal replacement was begun.
        The unit reports cramping during ultrafiltration.
        Graft in the forearm was declotted so that treatment could go on.
        Dialysis nurse called about interdialytic weight gain.
        Chair time moved to the early shift at the center.
        Exit site of the peritoneal catheter looks clean.
        Receives epoetin with each session at the kidney center.
        Needed an extra session for fluid removal this week.
        Started on maintenance HD this season.
    """, """
        Kidney function does not require dialysis.
        Drives a cousin to the dialysis center twice a week.
        No fistula or catheter present.
        Attended a class about kidney disease for interested relatives.
        Temporary dialysis after surgery a decade ago, with full recovery of the kidneys.
        Worked as a technician in a hemodialysis unit before retiring.
        Renal replacement therapy not indicated, per nephrology.
    """),
    _factor("advanced_heart_failure", 1.35, 0.15, None, "Severe pump failure of the heart with symptoms at rest.", """
        I50.22 Chronic systolic (congestive) heart failure
        I50.23 Acute on chronic systolic (congestive) heart failure
        I50.84 End stage heart failure
        I50.42 Chronic combined systolic (congestive) and diastolic (congestive) heart failure
    """, """
        Ejection fraction has fallen to fifteen percent.
        Sleeps upright in a recliner because of orthopnea.
        Breathless at rest, NYHA class four.
        Legs weeping fluid up to the thighs despite high-dose torsemide.
        Decompensated congestive failure diuresed with a drip.
        Milrinone infusion continues through the PICC line.
        Evaluated for an assist device and turned down.
        Neck veins distended to the jaw with a loud S3.
        Severely dilated left ventricle with global hypokinesis.
        Wakes gasping for air most nights.
        Stage D cardiomyopathy, not a transplant candidate.
        Gained nine pounds of fluid and could not lie flat.
        Echo shows severe biventricular dysfunction.
        Refractory volume overload in spite of escalating diuretics.
        Cardiac output is poor with cool extremities.
        Crackles to the mid lungs and massive edema, pump failing.
        BNP in the thousands again with pulmonary congestion.
    """, """
        Echo with normal ejection fraction and no wall motion abnormality.
        No orthopnea, no leg swelling, lungs clear.
        Brother awaits a heart transplant for cardiomyopathy.
        BNP was checked and came back normal.
        Denies waking up short of breath at night.
        Mother had congestive heart failure in her eighties.
        Ankle swelling was from amlodipine and went away when it was stopped.
    """),
    _factor("metastatic_cancer", 1.8, 0.13, None, "A malignant tumour that has spread to distant organs.", """
        C79.51 Secondary malignant neoplasm of bone
        C78.7 Secondary malignant neoplasm of liver and intrahepatic bile duct
        C79.31 Secondary malignant neoplasm of brain
        C78.00 Secondary malignant neoplasm of unspecified lung
    """, """
        CT shows new liver lesions consistent with spread.
        Bone scan lights up in the spine and pelvis.
        Stage four disease with progression on imaging.
        Multiple brain metastases treated with whole-brain radiation.
        Peritoneal carcinomatosis found at laparoscopy.
        The tumor has seeded both lungs.
        Biopsy of the supraclavicular node confirms distant disease.
        Widely disseminated malignancy per oncology.
        PET with numerous avid foci outside the primary site.
        Pathologic fracture of the femur through a lytic deposit.
        Cancer came back in the vertebrae.
        Malignant pleural effusion drained, cytology positive.
        Innumerable pulmonary nodules, larger than before, from the known primary.
        Second-line chemotherapy failed and the metastases grew.
        Adrenal and hepatic deposits have doubled in size.
        Radiation to the hip for a painful secondary.
        Tumor markers climbing with metastatic burden.
    """, """
        Surveillance imaging without evidence of distant spread.
        Aunt has metastatic breast cancer and is in treatment.
        Liver lesion is a benign hemangioma, no follow-up needed.
        Small lung nodule unchanged for years, considered scar.
        Bone scan negative.
        Screening colonoscopy removed one small benign polyp.
        Worried about cancer spreading after reading online; reassured.
    """),
    _factor("low_albumin", 1.1, 0.16, None, "Markedly reduced serum protein concentration.", """
        E88.09 Other disorders of plasma-protein metabolism, not elsewhere classified
        R77.0 Abnormality of albumin
    """, """
        Serum albumin came back at two point one.
        Hypoalbuminemia persists on repeat chemistry.
        Albumin below the reporting range of normal for three draws in a row.
        Prealbumin is critically low.
        Total protein and albumin both severely depressed.
        Lab flagged albumin as very low.
        Anasarca attributed to low oncotic pressure.
        Protein stores are exhausted according to the nutrition panel.
        Infused twenty-five percent albumin for a level under two.
        Plasma protein deficit noted by the dietitian.
        Chemistry panel notable for an albumin in the ones.
        Albumin has trended down over the year to less than half of normal.
        Swelling explained by poor serum protein.
        Hepatic synthetic function and albumin are poor.
        Alb 2.0, repeated and confirmed.
        Visceral protein markers markedly diminished.
        Calcium had to be corrected for the very low albumin.
    """, """
        Albumin within the normal range.
        Urine albumin screen negative.
        Takes a protein powder bought at the gym.
        Albumin was low during a remote illness and normalised since.
        Comprehensive panel unremarkable including proteins.
        Nephew was found to have low albumin from nephrotic syndrome.
        Wonders whether egg white lowers albumin; explained that it does not.
    """),
    _factor("pressure_ulcer", 1.25, 0.14, None, "Deep tissue breakdown over a bony prominence from immobility.", """
        L89.153 Pressure ulcer of sacral region, stage 3
        L89.154 Pressure ulcer of sacral region, stage 4
        L89.623 Pressure ulcer of left heel, stage 3
        L89.150 Pressure ulcer of sacral region, unstageable
    """, """
        Sacral wound is down to the fascia with undermining.
        Stage three decubitus over the coccyx, foul drainage.
        Heel has a large black eschar from lying in bed.
        Wound nurse packs the tailbone cavity twice a day.
        Unstageable ulcer on the left buttock with slough.
        Bed sore has grown to the size of a palm.
        Negative pressure dressing applied to the ischial wound.
        Skin breakdown over both hips despite an air mattress.
        Bone palpable at the base of the sacral defect.
        Debridement of the decubitus performed at bedside.
        Turning every two hours, yet the pressure wound deepens.
        Deep tissue injury on the heels has opened.
        Osteomyelitis beneath the decubitus is suspected.
        Trochanteric sore tunnels four centimeters.
        Home health changes the dressing on the coccyx ulcer daily.
        Necrotic tissue at the sacrum with purulence.
        Pressure injury noted on admission, stage four.
    """, """
        Skin intact over sacrum and heels.
        No pressure injury on full skin check.
        Small cut on the shin healing well with a bandage.
        Caregiver class covered how bed sores are prevented.
        Uncle in a nursing facility is being treated for a bed sore.
        Blister from new shoes has healed.
        Old surgical scar over the tailbone, well healed since youth.
    """),
    _factor("delirium", 1.15, 0.15, None, "Acute fluctuating confusion and inattention.", """
        F05 Delirium due to known physiological condition
        R41.0 Disorientation, unspecified
    """, """
        Pulling at lines overnight and did not recognize the room.
        Acutely confused, could not recite the months backward.
        CAM positive on three consecutive shifts.
        Seeing insects on the ceiling and talking to absent relatives.
        Waxing and waning alertness throughout the day.
        Sundowning with agitation that needed a sitter.
        Not oriented to place or year this morning, was clear last week.
        Encephalopathy of sudden onset during the stay.
        Haloperidol given for combative behavior at night.
        Stares blankly and cannot follow two-step commands since Sunday.
        Mental status fluctuates hour by hour.
        Hallucinating and picking at the bedclothes.
        Family says the patient suddenly is not making sense.
        Hypoactive and hard to rouse, inattentive when spoken to.
        Thought the nurse was a long dead parent.
        Day and night are reversed and speech is rambling.
        Geriatric psychiatry called for an acute confusional state.
    """, """
        Alert and oriented to person, place and time.
        CAM negative on every shift.
        Father became confused after his hip surgery.
        Pamphlet on preventing confusion in hospital provided.
        Sleeps poorly but thinking is clear.
        No hallucinations or agitation reported.
        One episode of confusion with fever in childhood.
    """),
    _factor("bedbound", 1.45, 0.14, None, "Loss of the ability to get out of bed or care for oneself.", """
        Z74.01 Bed confinement status
        Z99.3 Dependence on wheelchair
        R53.2 Functional quadriplegia
    """, """
        Has not been out of bed in weeks.
        Needs two people and a lift to transfer.
        Fully dependent for washing, dressing and toileting.
        Spends all day in bed or chair, can no longer stand.
        Needs to be fed by an aide at every meal.
        Karnofsky score is thirty.
        Mechanical hoist installed since legs no longer bear weight.
        Total care at the nursing facility.
        Lost the ability to walk to the bathroom this season.
        Could sit at the edge of the mattress for only one minute with therapy.
        ECOG performance status four.
        Bedridden, caregiver turns and cleans the patient.
        Steep drop in function, every basic activity now needs help.
        Hospital bed placed in the living room because stairs are impossible.
        Physical therapy signed off since there was no rehabilitation potential.
        Requires maximal assistance for all mobility.
        Unable to roll over without help.
    """, """
        Out of bed to chair right after the minor procedure and home the same day.
        Mattress at home is too soft and gives a stiff back.
        Wife has been bedridden with multiple sclerosis for years.
        No lift or transfer equipment needed.
        Stayed in bed two days with a cold last winter.
        Denies trouble getting out of bed.
        Bought an adjustable bed frame on sale.
    """),
    _factor("aspiration", 1.15, 0.14, None, "Unsafe swallowing with food or fluid entering the lungs.", """
        J69.0 Pneumonitis due to inhalation of food and vomit
        R13.12 Dysphagia, oropharyngeal phase
        R13.13 Dysphagia, pharyngeal phase
    """, """
        Coughs and chokes on thin liquids at each meal.
        Barium study showed silent penetration below the cords.
        Treated again for pneumonia from inhaled food.
        Speech therapist advises nectar-thick fluids only.
        Right lower lobe infiltrate after a choking event.
        Pocketing food in the cheeks, wet voice afterwards.
        Feeding tube proposed because swallowing is unsafe.
        NPO after failing the bedside swallow.
        Gurgling after sips, suction kept near the bed.
        Aspirated overnight and spiked a fever.
        Pureed diet with chin tuck because of oropharyngeal dysphagia.
        Recurrent inhalation pneumonitis this year.
        Cannot handle own secretions.
        Delayed swallow trigger with residue in the valleculae.
        Gastrostomy placed because material keeps going down the wrong way.
        Strangles on pills, so they are crushed in pudding.
        Modified barium swallow: gross aspiration of all consistencies.
    """, """
        Swallows pills and liquids without difficulty.
        Passed the bedside swallow screen, regular diet.
        Grandchild choked on a grape but is fine.
        Heartburn after spicy food only.
        Denies coughing with meals.
        Took a course in the Heimlich maneuver at church.
        Sore throat made swallowing unpleasant for two days last year.
    """),
    _factor("readmissions", 1.0, 0.17, None, "Repeated unplanned hospital stays in a short time.", "", """
        Back in the hospital for the fourth time since January.
        Discharged last week and already returned through the emergency department.
        Bounced back within ten days of going home.
        Has been in and out of the ward all summer.
        Fifth unplanned admission this year.
        Home only three nights before the ambulance was called again.
        Care manager flags the patient as a frequent inpatient.
        Another emergency stay so soon after the previous one.
        More weeks spent on the ward than at home lately.
        Readmitted within the month again.
        Case reviewed at the high-utilizer conference because of serial hospitalizations.
        The longest interval between inpatient stays has been two weeks.
        Repeat hospitalization, the team knows the patient well by now.
        Intensive care twice in one quarter.
        Ambulance has come to the house six times since the holidays.
        Revolving door of admissions according to the primary doctor.
        Yet another urgent transfer from rehab to acute care.
    """, """
        No hospital stays in the last several years.
        Visits a friend who keeps being readmitted.
        Only hospitalization was for an appendix decades ago.
        Came to the emergency department by mistake instead of the clinic.
        Elective day surgery without overnight stay.
        Hospital volunteer who comes in four times a week to run the gift shop.
        Asked about coverage in case of a future hospitalization.
    """),
    _factor("daily_exercise", -1.15, 0.28, None, "Regular vigorous physical activity.", "", """
        Walks three miles every morning before breakfast.
        Swims laps at the community pool four times weekly.
        Plays doubles tennis twice a week.
        Bikes to the market and back each day.
        Goes to the gym with a trainer.
        Climbs four flights without stopping.
        Takes the dog on long hikes most days.
        Mows own lawn and digs the vegetable beds all season.
        Just finished a charity five kilometer run.
        Attends a dance class every evening.
        Step counter averages eleven thousand.
        Rows on the machine in the basement for half an hour a day.
        Splits firewood and shovels snow with no symptoms.
        Keeps up a strict fitness routine.
        Excellent exercise tolerance, jogs with the grandchildren.
        Does tai chi in the park daily and feels strong.
        Golfs eighteen holes carrying the bag.
    """, """
        Advised to start walking, has not done so.
        Spouse runs marathons.
        Used to play football in college.
        Gym membership lapsed years ago.
        Watches a lot of sports on television.
        Discussed the benefits of exercise in general terms.
        Bought a stationary bicycle that is used as a coat rack.
    """),
    _factor("independent", -1.15, 0.28, None, "Full self-sufficiency in everyday life.", "", """
        Independent in all activities of daily living.
        Drives, shops and cooks without help.
        Manages own finances and medications flawlessly.
        Lives alone and looks after a large house.
        Still works part time at the hardware store.
        Travels by plane alone to see relatives.
        Requires no assistance with bathing or dressing.
        Came by bus unaccompanied and filled in the forms alone.
        Does the taxes for half the street.
        Self-sufficient at home, no services needed.
        Full score on the Katz index.
        Babysits the grandchildren every weekday.
        Runs the household single-handed.
        Prepares all meals and does the laundry unaided.
        Katz six of six and Lawton eight of eight.
        Serves as treasurer of the club and organises its trips.
        Handles stairs, errands and housework on own.
    """, """
        Asks about independent living communities for an older sister.
        Form about activities of daily living left blank today.
        Used to drive a delivery truck for a living.
        Occupational therapy referral mentioned but not placed.
        Household helper comes for the landlord downstairs.
        Daughter has recently become financially independent.
        Transportation voucher information given to everybody in the waiting room.
    """),
    _factor("good_appetite", -0.9, 0.28, None, "Eating well with sound nutrition.", "", """
        Eats three full meals and asks for seconds.
        Appetite is excellent.
        Finishes everything on the tray.
        Enjoys home cooking and has kept a healthy weight.
        Cleans the plate at every sitting.
        Eating heartily, no supplements needed.
        Well nourished with a varied diet.
        Hungry at mealtimes and looks forward to dinner.
        Intake recorded as one hundred percent of meals.
        Good oral intake of protein, fruit and vegetables.
        Has a big breakfast daily and snacks in between.
        Nutritional status is sound.
        Ate a large lunch with relish during the visit.
        Food tastes great lately.
        Robust appetite, loves the cafeteria food.
        Consumes balanced meals without prompting.
        Caloric intake meets all needs by mouth.
    """, """
        Was told to bring a food diary next time.
        Dog has a huge appetite.
        Cooks dinner for the church group on Fridays.
        Asked for a recipe with less salt.
        Fasting for the blood draw this morning.
        Appetite question skipped on the intake sheet.
        Ate a large meal at a wedding once and had indigestion.
    """),
    _factor("engaged_family", -0.9, 0.28, None, "Strong day-to-day support from relatives.", "", """
        Daughter visits every day and helps with whatever is needed.
        Large supportive family fills the waiting room.
        Spouse fills the pill box and comes to all appointments.
        Lives with children who take turns cooking.
        Son phones morning and evening and is closely involved.
        Surrounded by caring relatives at home.
        Grandchildren drop in after school to keep company.
        Strong social support, never alone for long.
        Niece moved in to lend a hand.
        Relatives keep a shared calendar so that someone is always there.
        Attentive relatives ask good questions and write everything down.
        Close-knit household with three generations.
        Siblings drive in each weekend to assist.
        Family is very engaged in the care plan.
        Has a devoted partner who handles the logistics.
        Kin nearby check in several times a day.
        Well supported by loved ones who know the treatment by heart.
    """, """
        Next of kin information updated in the chart.
        Family history reviewed, nothing new.
        Daughter's wedding took place out of state.
        Lists a cousin overseas as emergency contact, rarely in touch.
        Recalls growing up in a big family.
        Social worker left a flyer about family support groups.
        Coworker's family made a complaint about parking.
    """),
    _factor("well_controlled", -1.0, 0.28, None, "Chronic conditions stable and at treatment goal.", "", """
        Blood pressure and sugars have been at goal all year.
        Chronic conditions are stable on the present regimen.
        All targets met, no change in therapy needed.
        Hemoglobin A1c is excellent at six point two.
        Lipids, pressure and glucose right where we want them.
        Disease quiescent for a long time.
        Doing remarkably well, seen only twice a year.
        Home readings are consistently in range.
        Everything under good control with a single daily tablet.
        No flare in years.
        Longstanding problems remain well managed.
        Specialist discharged the patient from follow-up as control is ideal.
        Medication list was shortened because values are so good.
        Symptoms fully controlled, feels as well as ever.
        Conditions optimized, annual check only.
        Numbers are the best they have been in ten years.
        Steady state, laboratory results have not moved off target.
    """, """
        Blood pressure cuff at home needs new batteries.
        Goals for the coming year will be set at the next visit.
        Husband's diabetes is at target.
        Target values were explained with a wall chart.
        Lost the logbook of home readings.
        Control solution for the glucose meter has expired.
        Asks whether the new guideline changes any targets.
    """),
    _factor("recurrent_falls", 1.7, 0.34, "frail", "Repeatedly losing balance and landing on the ground.", """
        R29.6 Repeated falls
        Z91.81 History of falling
        W18.30XA Fall on same level, unspecified, initial encounter
    """, """
        Fell again in the kitchen, third time this month.
        Found on the bathroom floor by a neighbor.
        Slipped getting up at night and bruised the hip.
        Keeps toppling backward when rising from a chair.
        Two more tumbles since the last visit.
        Lay on the carpet for hours before help came.
        Struck the head on the nightstand after losing balance.
        Frequent falls, uses the alarm pendant weekly.
        Tripped over the rug and fractured the wrist.
        Went down on the front steps twice.
        Unsteady, has hit the ground repeatedly.
        Facial ecchymosis from another fall out of bed.
        Legs gave way in the hallway once more.
        Incident report filed for being discovered on the ground.
        Collapses without warning while turning around.
        Scraped knees and elbows from repeated spills.
        Fire brigade lifted the patient off the floor again.
    """, """
        No falls in the past year.
        Gait steady, balance test normal.
        Sister fell and broke an ankle while skiing.
        Fall prevention leaflet mailed to all members.
        Leaves fall into the gutter, cleaning them on Saturday.
        Denies dizziness or loss of balance.
        Fell off a horse as a teenager.
    """),
    _factor("incontinence", 1.5, 0.34, "frail", "Inability to hold urine or stool.", """
        R32 Unspecified urinary incontinence
        N39.46 Mixed incontinence
        R15.9 Full incontinence of feces
    """, """
        Wets the bed nearly every night.
        Wears adult briefs day and night.
        Cannot reach the toilet in time.
        Leaks urine constantly, skin is raw.
        Bowel accidents several times a week.
        Incontinent of both bladder and stool.
        Daughter changes soaked pads every few hours.
        Has lost control of the bladder.
        External catheter used for continual dribbling.
        Soils clothing without noticing.
        Timed voiding has not stopped the accidents.
        Mattress protectors and pull-ups were ordered.
        Odor of urine on clothing, unaware of leakage.
        Urge comes too suddenly and the floor gets wet.
        Unable to hold water or stool any longer.
        Overflow leakage with wet garments at each check.
        Needs cleaning after involuntary stools.
    """, """
        Continent of bladder and bowel.
        Denies urinary leakage.
        Grandson has outgrown bed wetting.
        Bathroom faucet leaks and the plumber has been called.
        Completed pelvic floor exercises long ago as prevention.
        Urine sample collected without problem.
        Buys pads for the puppy.
    """),
    _factor("hyponatremia", 1.7, 0.34, "cardiac", "Abnormally low blood sodium.", """
        E87.1 Hypo-osmolality and hyponatremia
        E22.2 Syndrome of inappropriate secretion of antidiuretic hormone
    """, """
        Sodium is down to one hundred twenty-four.
        Hyponatremia on the morning chemistry.
        Fluid restricted because serum Na keeps dropping.
        Na 126, repeated and confirmed.
        Low sodium noted again by the lab.
        Salt tablets begun for a falling sodium.
        Serum osmolality is low with dilute blood.
        Persistently hyponatremic in spite of limiting water.
        Electrolytes show a sodium in the one twenties.
        Tolvaptan considered for the sodium level.
        Critical call from the laboratory about sodium.
        Sodium failed to correct over the week.
        Dilutional drop in serum sodium.
        Thiazide held since the Na was far below normal.
        Chemistry notable for marked hypo-osmolality.
        Natremia under one twenty-eight on three occasions.
        Was given hypertonic saline for the electrolyte disturbance.
    """, """
        Sodium normal.
        Prefers low sodium soup.
        Electrolytes all within reference limits.
        Asked how much salt is in canned food.
        Wife was in hospital with low sodium last year.
        Uses sodium bicarbonate for cleaning.
        Remote low sodium after a marathon, never since.
    """),
    _factor("hypotension", 1.6, 0.34, "cardiac", "Blood pressure too low to tolerate.", """
        I95.9 Hypotension, unspecified
        I95.89 Other hypotension
        I95.1 Orthostatic hypotension
    """, """
        Systolic pressure in the low eighties on both arms.
        Lightheaded with readings of eighty over fifty.
        Lisinopril stopped because pressure is too low.
        Midodrine added to hold up the blood pressure.
        BP 78/46, rechecked manually.
        Hypotensive again at the infusion visit.
        Blood pressure bottomed out on standing.
        Beta blocker could not be continued owing to low pressures.
        Near syncope with a cuff pressure below ninety.
        Perfusion pressure marginal, extremities pale.
        Cuff barely registers, systolic seventy-nine.
        Pressures run soft and limit every drug.
        Given a saline bolus for low pressure.
        Orthostatic drop of forty points with symptoms.
        Persistent hypotension without fever.
        Nurse alerted the doctor to a pressure of eighty-two systolic.
        Blackout on rising, mean arterial pressure fifty-five.
    """, """
        Blood pressure one twenty-two over seventy-six.
        No orthostatic change in pressure.
        Sister runs a low blood pressure and drinks salty broth.
        Denies lightheadedness on standing.
        Tire pressure light came on while driving here.
        Fainted once at the sight of blood as a student.
        Pressure cuff size noted for next time.
    """),
    _factor("opioid_pain", 1.6, 0.34, "oncology", "Severe pain needing rising doses of strong analgesics.", """
        G89.4 Chronic pain syndrome
        Z79.891 Long term (current) use of opiate analgesic
        R52 Pain, unspecified
    """, """
        Pain rated nine of ten despite long-acting morphine.
        Fentanyl patch increased to one hundred micrograms.
        Breakthrough oxycodone is taken every three hours.
        Cries out when repositioned because of agony.
        Methadone started as other drugs no longer hold the pain.
        Needs a hydromorphone pump for relief.
        Pain crisis brought the patient in last night.
        Escalating narcotic requirement noted by the pharmacist.
        Ketamine infusion tried for intractable pain.
        Sleep impossible owing to unrelenting ache in the back.
        Rescue doses have doubled this week.
        Pain service consulted for a nerve block.
        Uncontrolled suffering with grimacing at rest.
        Morphine equivalents now exceed three hundred a day.
        Nothing touches the pain anymore.
        Extra opioid script issued ahead of schedule for severe pain.
        Intrathecal analgesia is being considered.
    """, """
        Denies pain today.
        Takes acetaminophen once in a while for a stiff neck.
        Never uses narcotics.
        Mother was on morphine before she died.
        Finished two days of codeine after a tooth extraction long ago.
        Pain scale zero.
        Signed the standard clinic policy about controlled drugs.
    """),
    _factor("transfusions", 1.7, 0.34, "oncology", "Anaemia requiring repeated donor blood.", """
        D64.9 Anemia, unspecified
        D64.89 Other specified anemias
        D61.818 Other pancytopenia
    """, """
        Received two units of packed red cells again.
        Hemoglobin dropped to six point four.
        Transfused every other week at the day unit.
        Pale and dizzy, crossmatch sent.
        Needs blood to keep the count above seven.
        Transfusion dependent anemia.
        Hematocrit of nineteen on arrival.
        Platelets and red cells hung overnight.
        Counts fail to recover between infusions of blood.
        Bank blood ordered for the third time this month.
        Severe anemia with breathlessness on talking.
        Iron overload is developing from so many units.
        Conjunctivae white, Hb under seven.
        Pancytopenia requires regular product support.
        Red cell support given without reaction.
        Hgb 6.8 so another unit was infused.
        Donor blood required once more for a falling count.
    """, """
        Hemoglobin normal.
        Donates blood at the Red Cross twice a year.
        No history of transfusion.
        Blood count unremarkable.
        Friend needed several units after a car crash.
        Took iron tablets in adolescence for mild anemia.
        Blood type recorded in the chart.
    """),
    _factor("hyperkalemia", 1.7, 0.34, "renal", "Dangerously high blood potassium.", """
        E87.5 Hyperkalemia
        E87.20 Acidosis, unspecified
    """, """
        Potassium is six point three, no hemolysis.
        Peaked T waves on the tracing from high potassium.
        Given insulin and dextrose for K of 6.5.
        Patiromer started because potassium will not come down.
        Hyperkalemia for the third month running.
        Lab phoned with a critical potassium.
        Kayexalate dose repeated at home.
        Serum K again far above the upper limit.
        Calcium gluconate pushed for cardiac protection.
        Spironolactone stopped since K climbed over six.
        Potassium high despite a strict low-potassium diet.
        Elevated potassium with a widened QRS.
        Emergency treatment for a rising K overnight.
        Binder sachets taken daily to draw out potassium.
        Repeat chemistry confirms K 6.1.
        Persistent potassium excess noted.
        Albuterol nebulized to shift potassium into cells.
    """, """
        Potassium normal at four point one.
        Eats a banana daily for potassium.
        Sample hemolyzed, redraw was normal.
        Husband takes potassium tablets.
        Electrocardiogram normal, no T wave change.
        Asked which fruits are rich in potassium.
        Potassium was never a problem.
    """),
    _factor("missed_care", 1.5, 0.34, "renal", "Failure to attend treatment or take prescribed medicines.", """
        Z91.148 Patient's other noncompliance with medication regimen for other reason
        Z91.199 Patient's noncompliance with other medical treatment and regimen due to unspecified reason
        Z53.21 Procedure and treatment not carried out due to patient leaving prior to being seen by health care provider
    """, """
        Did not show for the last three appointments.
        Stopped all tablets weeks ago without telling anyone.
        Left against medical advice.
        Skips treatment whenever transportation is a bother.
        Refuses blood draws and hangs up on the nurse.
        Prescriptions have not been filled since winter.
        Non-adherent with medications, bottles are full.
        Walked out before being seen.
        Lost to follow-up for half a year.
        Cut the session short again and went home.
        Declines to take the prescribed regimen.
        No response to outreach letters or calls.
        Missed therapy twice this week.
        Repeatedly cancels on the morning of the visit.
        Takes pills only when feeling ill.
        Pharmacy shows no pickup for any drug.
        Ignores the treatment plan and declines monitoring.
    """, """
        Keeps every appointment.
        Refilled all prescriptions on time.
        Visit moved by the clinic because the doctor was away.
        Son forgets his asthma inhaler at school.
        Reminder text messages are now switched on for all patients.
        Pill organizer discussed, not needed.
        Missed the bus but arrived in time.
    """),
)
