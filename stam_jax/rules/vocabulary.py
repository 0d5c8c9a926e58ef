"""What the rules know by name: drugs, problems, measures, monitoring, procedures, allergens. Data only.

A line is `concept = other names`, names separated by `|`; a line indented further goes on with the one before. A name
of at most four letters with a capital (`PE`, `Hgb`) is an abbreviation and counts only as it is written; every other
name is found in any case, with or without a plural s.
"""
from __future__ import annotations

import dataclasses


def _lines(block: str) -> list[str]:
    """The lines of a block; one that is indented further goes on with the one before."""
    out: list[str] = []
    for line in block.strip("\n").splitlines():
        if line.startswith("        "):
            out[-1] += " " + line.strip()
        elif line.strip():
            out.append(line.strip())
    return out


def _names(block: str) -> dict[str, tuple[str, ...]]:
    """`concept = name | name` lines -> concept: all its names, itself first."""
    out = {}
    for line in _lines(block):
        concept, _, others = (part.strip() for part in line.partition("="))
        out[concept] = (concept, *(name.strip() for name in others.split("|") if name.strip()))
    return out


@dataclasses.dataclass(frozen=True)
class DrugFacts:
    """names: generic first. family: its class. treats: problems it is given for. watched: plans that it calls for."""

    names: tuple[str, ...]
    family: str
    treats: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()


def _drugs(block: str) -> dict[str, DrugFacts]:
    """`generic = brands ; class ; indications ; monitoring` lines."""
    out = {}
    for line in _lines(block):
        head, _, rest = (part.strip() for part in line.partition("="))
        parts = [[p.strip() for p in part.split("|") if p.strip()] for part in rest.split(";")]
        names, family, treats, watched = parts + [[]] * (4 - len(parts))
        out[head] = DrugFacts((head, *names), family[0], tuple(treats), tuple(watched))
    return out


DRUGS = _drugs("""
    metformin = Glucophage | Fortamet | Glumetza | metformin XR | metformin ER | metformin hydrochloride; biguanide;
        type 2 diabetes
    glipizide = Glucotrol; sulfonylurea; type 2 diabetes
    glimepiride = Amaryl; sulfonylurea; type 2 diabetes
    glyburide = Diabeta | Micronase | glibenclamide; sulfonylurea; type 2 diabetes
    gliclazide = Diamicron; sulfonylurea; type 2 diabetes
    sitagliptin = Januvia; gliptin; type 2 diabetes
    linagliptin = Tradjenta; gliptin; type 2 diabetes
    saxagliptin = Onglyza; gliptin; type 2 diabetes
    empagliflozin = Jardiance; gliflozin; type 2 diabetes | heart failure
    dapagliflozin = Farxiga | Forxiga; gliflozin; type 2 diabetes | heart failure
    canagliflozin = Invokana; gliflozin; type 2 diabetes
    pioglitazone = Actos; glitazone; type 2 diabetes
    semaglutide = Ozempic | Rybelsus | Wegovy; incretin; type 2 diabetes | obesity
    liraglutide = Victoza | Saxenda; incretin; type 2 diabetes | obesity
    dulaglutide = Trulicity; incretin; type 2 diabetes
    exenatide = Byetta | Bydureon; incretin; type 2 diabetes
    tirzepatide = Mounjaro | Zepbound; incretin; type 2 diabetes | obesity
    insulin glargine = Lantus | Basaglar | Toujeo | glargine | glargine insulin; insulin; type 2 diabetes |
        type 1 diabetes
    insulin detemir = Levemir | detemir; insulin; type 2 diabetes | type 1 diabetes
    insulin degludec = Tresiba | degludec; insulin; type 2 diabetes | type 1 diabetes
    insulin lispro = Humalog | lispro; insulin; type 2 diabetes | type 1 diabetes
    insulin aspart = Novolog | Novorapid | aspart; insulin; type 2 diabetes | type 1 diabetes
    insulin nph = NPH | NPH insulin | Humulin N | Novolin N; insulin; type 2 diabetes | type 1 diabetes
    insulin =; insulin; type 2 diabetes | type 1 diabetes
    lisinopril = Zestril | Prinivil; ace inhibitor; hypertension | heart failure
    enalapril = Vasotec; ace inhibitor; hypertension | heart failure
    ramipril = Altace; ace inhibitor; hypertension | heart failure
    benazepril = Lotensin; ace inhibitor; hypertension
    captopril = Capoten; ace inhibitor; hypertension | heart failure
    quinapril = Accupril; ace inhibitor; hypertension
    perindopril = Coversyl | Aceon; ace inhibitor; hypertension
    losartan = Cozaar; sartan; hypertension
    valsartan = Diovan; sartan; hypertension | heart failure
    candesartan = Atacand; sartan; hypertension | heart failure
    irbesartan = Avapro; sartan; hypertension
    olmesartan = Benicar; sartan; hypertension
    telmisartan = Micardis; sartan; hypertension
    sacubitril-valsartan = Entresto | sacubitril/valsartan; sartan; heart failure
    amlodipine = Norvasc | amlodipine besylate; calcium channel blocker; hypertension | angina
    nifedipine = Procardia | Adalat; calcium channel blocker; hypertension | angina
    felodipine = Plendil; calcium channel blocker; hypertension
    diltiazem = Cardizem | Tiazac | dilt; rate limiting calcium channel blocker; atrial fibrillation | hypertension |
        angina
    verapamil = Calan | Isoptin; rate limiting calcium channel blocker; atrial fibrillation | hypertension
    metoprolol = Lopressor | Toprol | Toprol XL | metoprolol tartrate | metoprolol succinate | metop | metop XL |
        metop succ | metop tart | metoprolol succ | metoprolol tart; beta blocker;
        atrial fibrillation | hypertension | heart failure | angina
    atenolol = Tenormin; beta blocker; hypertension | angina
    carvedilol = Coreg; beta blocker; heart failure | hypertension
    bisoprolol = Zebeta | Concor; beta blocker; heart failure | hypertension | atrial fibrillation
    propranolol = Inderal; beta blocker; migraine | essential tremor | hypertension | anxiety
    nebivolol = Bystolic; beta blocker; hypertension
    labetalol = Trandate; beta blocker; hypertension
    sotalol = Betapace; antiarrhythmic; atrial fibrillation | ventricular tachycardia
    hydrochlorothiazide = HCTZ | Microzide | hydrochlorothiazid; thiazide; hypertension
    chlorthalidone = Thalitone | Hygroton; thiazide; hypertension
    indapamide = Lozol; thiazide; hypertension
    metolazone = Zaroxolyn; thiazide; heart failure
    furosemide = Lasix | frusemide; loop diuretic; heart failure | edema
    torsemide = Demadex; loop diuretic; heart failure | edema
    bumetanide = Bumex; loop diuretic; heart failure | edema
    spironolactone = Aldactone; potassium sparing diuretic; heart failure | hypertension | cirrhosis;
        potassium monitoring
    eplerenone = Inspra; potassium sparing diuretic; heart failure; potassium monitoring
    triamterene = Dyrenium; potassium sparing diuretic; hypertension
    amiloride = Midamor; potassium sparing diuretic; hypertension
    clonidine = Catapres; central antihypertensive; hypertension
    hydralazine = Apresoline; vasodilator; hypertension | heart failure
    doxazosin = Cardura; alpha blocker; hypertension | benign prostatic hyperplasia
    prazosin = Minipress; alpha blocker; hypertension | post-traumatic stress disorder
    isosorbide mononitrate = Imdur | ISMN; nitrate; angina
    nitroglycerin = Nitrostat | GTN | NTG | glyceryl trinitrate; nitrate; angina
    ranolazine = Ranexa; antianginal; angina
    ivabradine = Corlanor; antianginal; heart failure
    digoxin = Lanoxin; digoxin; atrial fibrillation | heart failure; digoxin level monitoring
    amiodarone = Cordarone | Pacerone | amio; amiodarone; ventricular tachycardia | atrial fibrillation;
        tsh monitoring | liver enzyme monitoring
    dronedarone = Multaq; antiarrhythmic; atrial fibrillation
    flecainide = Tambocor; antiarrhythmic; atrial fibrillation | supraventricular tachycardia
    propafenone = Rythmol; antiarrhythmic; atrial fibrillation
    warfarin = Coumadin | Jantoven; warfarin; atrial fibrillation | deep vein thrombosis | pulmonary embolism;
        inr monitoring
    apixaban = Eliquis; anticoagulant; atrial fibrillation | deep vein thrombosis | pulmonary embolism
    rivaroxaban = Xarelto; anticoagulant; atrial fibrillation | deep vein thrombosis | pulmonary embolism
    dabigatran = Pradaxa; anticoagulant; atrial fibrillation | deep vein thrombosis | pulmonary embolism
    edoxaban = Savaysa | Lixiana; anticoagulant; atrial fibrillation | deep vein thrombosis
    enoxaparin = Lovenox | Clexane | enox; anticoagulant; deep vein thrombosis | pulmonary embolism
    heparin =; anticoagulant; deep vein thrombosis | pulmonary embolism
    clopidogrel = Plavix; antiplatelet; coronary artery disease | stroke | peripheral artery disease
    ticagrelor = Brilinta; antiplatelet; coronary artery disease | myocardial infarction
    prasugrel = Effient; antiplatelet; coronary artery disease | myocardial infarction
    aspirin = ASA | acetylsalicylic acid | Ecotrin | baby aspirin | low-dose aspirin | low dose aspirin; nsaid;
        coronary artery disease | stroke
    atorvastatin = Lipitor | atorva; statin; hyperlipidemia | coronary artery disease
    simvastatin = Zocor | simva; cyp3a4 statin; hyperlipidemia | coronary artery disease
    lovastatin = Mevacor; cyp3a4 statin; hyperlipidemia
    rosuvastatin = Crestor | rosuva; statin; hyperlipidemia | coronary artery disease
    pravastatin = Pravachol; statin; hyperlipidemia
    ezetimibe = Zetia; cholesterol absorption inhibitor; hyperlipidemia
    fenofibrate = Tricor; fibrate; hypertriglyceridemia | hyperlipidemia
    gemfibrozil = Lopid; gemfibrozil; hypertriglyceridemia | hyperlipidemia
    niacin = Niaspan; vitamin; hyperlipidemia
    evolocumab = Repatha; pcsk9 inhibitor; hyperlipidemia
    alirocumab = Praluent; pcsk9 inhibitor; hyperlipidemia
    levothyroxine = Synthroid | Levoxyl | Euthyrox | Unithroid | L-thyroxine | thyroxine; thyroid hormone;
        hypothyroidism; tsh monitoring
    liothyronine = Cytomel; thyroid hormone; hypothyroidism; tsh monitoring
    methimazole = Tapazole | carbimazole; antithyroid; hyperthyroidism; tsh monitoring | blood count monitoring
    propylthiouracil = PTU; antithyroid; hyperthyroidism; liver enzyme monitoring
    sertraline = Zoloft; ssri; depression | anxiety | post-traumatic stress disorder | panic disorder
    fluoxetine = Prozac; ssri; depression | anxiety | obsessive-compulsive disorder
    citalopram = Celexa; ssri; depression | anxiety
    escitalopram = Lexapro | Cipralex; ssri; depression | anxiety | generalized anxiety disorder
    paroxetine = Paxil | Seroxat; ssri; depression | anxiety | panic disorder
    fluvoxamine = Luvox; ssri; obsessive-compulsive disorder
    venlafaxine = Effexor | Effexor XR; snri; depression | anxiety
    desvenlafaxine = Pristiq; snri; depression
    duloxetine = Cymbalta; snri; depression | peripheral neuropathy | fibromyalgia | anxiety
    bupropion = Wellbutrin | Zyban; antidepressant; depression | tobacco use
    mirtazapine = Remeron; antidepressant; depression | insomnia
    trazodone = Desyrel; antidepressant; insomnia | depression
    amitriptyline = Elavil; tricyclic; depression | migraine | peripheral neuropathy
    nortriptyline = Pamelor; tricyclic; depression | peripheral neuropathy
    phenelzine = Nardil; mao inhibitor; depression
    selegiline = Eldepryl; mao inhibitor; parkinson disease
    lithium = Lithobid | Eskalith | lithium carbonate; lithium; bipolar disorder; lithium level monitoring |
        renal function monitoring | tsh monitoring
    quetiapine = Seroquel; antipsychotic; bipolar disorder | schizophrenia
    olanzapine = Zyprexa; antipsychotic; bipolar disorder | schizophrenia
    risperidone = Risperdal; antipsychotic; schizophrenia | bipolar disorder
    aripiprazole = Abilify; antipsychotic; schizophrenia | bipolar disorder | depression
    haloperidol = Haldol; antipsychotic; schizophrenia | delirium
    ziprasidone = Geodon; antipsychotic; schizophrenia | bipolar disorder
    lurasidone = Latuda; antipsychotic; bipolar disorder | schizophrenia
    clozapine = Clozaril; clozapine; schizophrenia; blood count monitoring | absolute neutrophil count monitoring
    buspirone = Buspar; anxiolytic; anxiety | generalized anxiety disorder
    lorazepam = Ativan; benzodiazepine; anxiety
    alprazolam = Xanax; benzodiazepine; anxiety | panic disorder
    clonazepam = Klonopin; benzodiazepine; anxiety | epilepsy | panic disorder
    diazepam = Valium; benzodiazepine; anxiety
    temazepam = Restoril; benzodiazepine; insomnia
    zolpidem = Ambien; hypnotic; insomnia
    eszopiclone = Lunesta; hypnotic; insomnia
    melatonin =; hypnotic; insomnia
    hydroxyzine = Atarax | Vistaril; antihistamine; anxiety | itching
    methylphenidate = Ritalin | Concerta; stimulant; attention deficit hyperactivity disorder
    amphetamine = Adderall | dextroamphetamine | mixed amphetamine salts; stimulant;
        attention deficit hyperactivity disorder
    lisdexamfetamine = Vyvanse; stimulant; attention deficit hyperactivity disorder
    atomoxetine = Strattera; stimulant; attention deficit hyperactivity disorder
    donepezil = Aricept; cholinesterase inhibitor; dementia | alzheimer disease
    rivastigmine = Exelon; cholinesterase inhibitor; dementia | parkinson disease
    memantine = Namenda; nmda antagonist; dementia | alzheimer disease
    carbidopa-levodopa = Sinemet | levodopa | carbidopa/levodopa | levodopa-carbidopa | co-careldopa; dopaminergic;
        parkinson disease
    pramipexole = Mirapex; dopaminergic; parkinson disease | restless legs syndrome
    ropinirole = Requip; dopaminergic; parkinson disease | restless legs syndrome
    gabapentin = Neurontin | Gralise | gaba; gabapentinoid; peripheral neuropathy | epilepsy | postherpetic neuralgia
    pregabalin = Lyrica; gabapentinoid; peripheral neuropathy | fibromyalgia
    carbamazepine = Tegretol; carbamazepine; epilepsy | trigeminal neuralgia | bipolar disorder;
        carbamazepine level monitoring | sodium monitoring | blood count monitoring
    oxcarbazepine = Trileptal; anticonvulsant; epilepsy; sodium monitoring
    phenytoin = Dilantin; phenytoin; epilepsy | seizures; phenytoin level monitoring
    valproate = Depakote | Depakene | valproic acid | divalproex | sodium valproate | divalproex sodium; valproate;
        epilepsy | bipolar disorder | migraine; valproate level monitoring | liver enzyme monitoring
    lamotrigine = Lamictal; lamotrigine; epilepsy | bipolar disorder
    levetiracetam = Keppra; anticonvulsant; epilepsy | seizures
    topiramate = Topamax; anticonvulsant; migraine | epilepsy
    phenobarbital =; anticonvulsant; epilepsy; phenobarbital level monitoring
    lacosamide = Vimpat; anticonvulsant; epilepsy
    sumatriptan = Imitrex; triptan; migraine
    rizatriptan = Maxalt; triptan; migraine
    omeprazole = Prilosec | Losec; proton pump inhibitor; gastroesophageal reflux disease | peptic ulcer disease
    esomeprazole = Nexium; proton pump inhibitor; gastroesophageal reflux disease | peptic ulcer disease
    pantoprazole = Protonix; proton pump inhibitor; gastroesophageal reflux disease | peptic ulcer disease
    lansoprazole = Prevacid; proton pump inhibitor; gastroesophageal reflux disease
    rabeprazole = Aciphex; proton pump inhibitor; gastroesophageal reflux disease
    famotidine = Pepcid; h2 blocker; gastroesophageal reflux disease
    ranitidine = Zantac; h2 blocker; gastroesophageal reflux disease
    sucralfate = Carafate; mucosal protectant; peptic ulcer disease
    ondansetron = Zofran; antiemetic; nausea | vomiting
    cyclizine = Valoid; antihistamine antiemetic; nausea | vomiting
    metoclopramide = Reglan; antiemetic; nausea | gastroparesis
    promethazine = Phenergan; antiemetic; nausea
    loperamide = Imodium; antidiarrheal; diarrhea
    docusate = Colace; laxative; constipation
    senna = Senokot | sennosides; laxative; constipation
    polyethylene glycol = Miralax | macrogol; laxative; constipation
    lactulose = Enulose; laxative; constipation | hepatic encephalopathy
    bisacodyl = Dulcolax; laxative; constipation
    linaclotide = Linzess; laxative; constipation | irritable bowel syndrome
    mesalamine = Asacol | Pentasa | Lialda | mesalazine; aminosalicylate; ulcerative colitis
    sulfasalazine = Azulfidine; aminosalicylate; ulcerative colitis | rheumatoid arthritis; blood count monitoring |
        liver enzyme monitoring
    azathioprine = Imuran; azathioprine; crohn disease | ulcerative colitis | lupus | rheumatoid arthritis;
        blood count monitoring | liver enzyme monitoring
    mercaptopurine = Purinethol | 6-MP; azathioprine; crohn disease | ulcerative colitis; blood count monitoring
    mycophenolate = Cellcept | Myfortic | MMF; immunosuppressant; lupus | kidney transplant; blood count monitoring
    tacrolimus = Prograf; calcineurin inhibitor; kidney transplant; tacrolimus level monitoring |
        renal function monitoring
    cyclosporine = Neoral | Sandimmune | ciclosporin; calcineurin inhibitor; kidney transplant | psoriasis;
        cyclosporine level monitoring | renal function monitoring
    cyclophosphamide = Cytoxan; immunosuppressant; lupus; blood count monitoring
    methotrexate = Trexall | Rheumatrex | MTX; methotrexate; rheumatoid arthritis | psoriasis | psoriatic arthritis;
        liver enzyme monitoring | blood count monitoring
    leflunomide = Arava; leflunomide; rheumatoid arthritis; liver enzyme monitoring | blood count monitoring
    hydroxychloroquine = Plaquenil | HCQ; antimalarial; lupus | rheumatoid arthritis; retinal monitoring
    adalimumab = Humira; biologic; rheumatoid arthritis | crohn disease | psoriasis | ulcerative colitis
    etanercept = Enbrel; biologic; rheumatoid arthritis | psoriasis
    infliximab = Remicade; biologic; crohn disease | ulcerative colitis | rheumatoid arthritis
    rituximab = Rituxan; biologic; rheumatoid arthritis | lymphoma
    ustekinumab = Stelara; biologic; psoriasis | crohn disease
    secukinumab = Cosentyx; biologic; psoriasis | psoriatic arthritis
    prednisone = Deltasone | Rayos; steroid; asthma | rheumatoid arthritis | chronic obstructive pulmonary disease |
        polymyalgia rheumatica | gout | acute bronchitis | copd exacerbation | asthma exacerbation
    prednisolone = Orapred | pred; steroid; asthma | polymyalgia rheumatica
    methylprednisolone = Medrol | Solu-Medrol; steroid; asthma
    dexamethasone = Decadron; steroid; croup
    hydrocortisone = Cortef; steroid; adrenal insufficiency | eczema
    fludrocortisone = Florinef; mineralocorticoid; orthostatic hypotension | adrenal insufficiency
    allopurinol = Zyloprim; xanthine oxidase inhibitor; gout; uric acid monitoring
    febuxostat = Uloric; xanthine oxidase inhibitor; gout
    colchicine = Colcrys; colchicine; gout | pericarditis
    probenecid =; uricosuric; gout
    ibuprofen = Advil | Motrin; nsaid; osteoarthritis | back pain | pain
    naproxen = Aleve | Naprosyn; nsaid; osteoarthritis | back pain | pain
    diclofenac = Voltaren; nsaid; osteoarthritis
    meloxicam = Mobic; nsaid; osteoarthritis
    celecoxib = Celebrex; nsaid; osteoarthritis
    indomethacin = Indocin; nsaid; gout
    ketorolac = Toradol; nsaid; pain
    acetaminophen = Tylenol | paracetamol | APAP | Panadol; analgesic; pain | fever | osteoarthritis
    tramadol = Ultram; serotonergic opioid; chronic back pain | pain | osteoarthritis
    oxycodone = Oxycontin | Roxicodone | Percocet; opioid; pain | chronic pain | chronic back pain
    hydrocodone = Norco | Vicodin | hydrocodone-acetaminophen; opioid; pain | chronic pain
    morphine = MS Contin; opioid; pain | chronic pain
    hydromorphone = Dilaudid; opioid; pain
    fentanyl = Duragesic; opioid; pain | chronic pain
    codeine =; opioid; pain | cough
    methadone = Dolophine; methadone; opioid use disorder | chronic pain; ecg monitoring
    buprenorphine = Suboxone | Subutex | buprenorphine-naloxone; opioid; opioid use disorder
    naltrexone = Vivitrol | Revia; opioid antagonist; alcohol use disorder | opioid use disorder;
        liver enzyme monitoring
    naloxone = Narcan; opioid antagonist; opioid overdose
    cyclobenzaprine = Flexeril; muscle relaxant; muscle spasm | back pain
    baclofen = Lioresal; muscle relaxant; spasticity
    tizanidine = Zanaflex; muscle relaxant; spasticity
    methocarbamol = Robaxin; muscle relaxant; muscle spasm
    alendronate = Fosamax; bisphosphonate; osteoporosis
    risedronate = Actonel; bisphosphonate; osteoporosis
    zoledronic acid = Reclast | Zometa | zoledronate; bisphosphonate; osteoporosis
    denosumab = Prolia; biologic; osteoporosis; calcium monitoring
    raloxifene = Evista; serm; osteoporosis
    tamoxifen = Nolvadex; serm; breast cancer
    anastrozole = Arimidex; aromatase inhibitor; breast cancer
    letrozole = Femara; aromatase inhibitor; breast cancer
    albuterol = Ventolin | ProAir | Proventil | salbutamol; bronchodilator; asthma |
        chronic obstructive pulmonary disease
    tiotropium = Spiriva; bronchodilator; chronic obstructive pulmonary disease
    ipratropium = Atrovent; bronchodilator; chronic obstructive pulmonary disease
    salmeterol = Serevent; bronchodilator; asthma
    fluticasone = Flovent | Flonase; inhaled steroid; asthma | allergic rhinitis
    fluticasone-salmeterol = Advair | fluticasone/salmeterol; inhaled steroid; asthma |
        chronic obstructive pulmonary disease
    budesonide = Pulmicort; inhaled steroid; asthma
    budesonide-formoterol = Symbicort | budesonide/formoterol; inhaled steroid; asthma |
        chronic obstructive pulmonary disease
    montelukast = Singulair; leukotriene antagonist; asthma | allergic rhinitis
    theophylline = Theo-Dur; theophylline; asthma | chronic obstructive pulmonary disease;
        theophylline level monitoring
    cetirizine = Zyrtec; antihistamine; allergic rhinitis | urticaria
    loratadine = Claritin; antihistamine; allergic rhinitis
    fexofenadine = Allegra; antihistamine; allergic rhinitis
    diphenhydramine = Benadryl; antihistamine; allergic rhinitis
    guaifenesin = Mucinex; expectorant; cough
    benzonatate = Tessalon; antitussive; cough
    amoxicillin = Amoxil; penicillin antibiotic; pneumonia | sinusitis | otitis media | strep throat
    amoxicillin-clavulanate = Augmentin | amoxicillin/clavulanate | co-amoxiclav | co-amox; penicillin antibiotic;
        sinusitis | pneumonia
    ampicillin =; penicillin antibiotic; endocarditis
    penicillin v = penicillin VK; penicillin antibiotic; strep throat
    piperacillin-tazobactam = Zosyn; penicillin antibiotic; sepsis
    dicloxacillin =; penicillin antibiotic; cellulitis
    cephalexin = Keflex; cephalosporin; cellulitis | urinary tract infection
    cefuroxime = Ceftin; cephalosporin; sinusitis | pneumonia
    cefdinir = Omnicef; cephalosporin; otitis media | sinusitis
    ceftriaxone = Rocephin; cephalosporin; pneumonia | gonorrhea
    cefazolin = Ancef; cephalosporin; cellulitis
    cefepime = Maxipime; cephalosporin; sepsis
    azithromycin = Zithromax | Z-pack | Z-pak; macrolide; pneumonia | acute bronchitis | chlamydia
    clarithromycin = Biaxin | clari; cyp3a4 macrolide; pneumonia | helicobacter pylori infection
    erythromycin =; cyp3a4 macrolide; pneumonia
    doxycycline = Vibramycin; tetracycline; sinusitis | lyme disease | acne | pneumonia | cellulitis
    minocycline = Minocin; tetracycline; acne
    tetracycline =; tetracycline; acne
    ciprofloxacin = Cipro; fluoroquinolone; urinary tract infection | pyelonephritis | diverticulitis | prostatitis
    levofloxacin = Levaquin; fluoroquinolone; pneumonia | urinary tract infection
    moxifloxacin = Avelox; fluoroquinolone; pneumonia
    nitrofurantoin = Macrobid | Macrodantin; urinary antibiotic; urinary tract infection
    fosfomycin = Monurol; urinary antibiotic; urinary tract infection
    trimethoprim = Primsol; trimethoprim; urinary tract infection
    trimethoprim-sulfamethoxazole = Bactrim | Septra | TMP-SMX | co-trimoxazole | sulfamethoxazole-trimethoprim |
        trimethoprim/sulfamethoxazole; trimethoprim; urinary tract infection | cellulitis
    metronidazole = Flagyl; metronidazole; diverticulitis | bacterial vaginosis | clostridioides difficile infection
    clindamycin = Cleocin; lincosamide; cellulitis | dental abscess
    vancomycin = Vancocin | vanc; glycopeptide; clostridioides difficile infection | sepsis | endocarditis;
        vancomycin level monitoring
    linezolid = Zyvox; linezolid; pneumonia
    gentamicin =; aminoglycoside; sepsis; gentamicin level monitoring | renal function monitoring
    rifampin = Rifadin | rifampicin; rifamycin; tuberculosis; liver enzyme monitoring
    isoniazid = INH; isoniazid; tuberculosis; liver enzyme monitoring
    fluconazole = Diflucan; azole; candidiasis
    itraconazole = Sporanox; azole; onychomycosis
    ketoconazole = Nizoral; azole; tinea
    terbinafine = Lamisil; antifungal; onychomycosis; liver enzyme monitoring
    nystatin =; antifungal; candidiasis
    acyclovir = Zovirax | aciclovir; antiviral; shingles | herpes simplex
    valacyclovir = Valtrex | valaciclovir; antiviral; shingles | herpes simplex
    oseltamivir = Tamiflu; antiviral; influenza
    nirmatrelvir-ritonavir = Paxlovid; protease inhibitor; covid-19
    tamsulosin = Flomax; alpha blocker; benign prostatic hyperplasia
    finasteride = Proscar | Propecia; 5-alpha reductase inhibitor; benign prostatic hyperplasia
    dutasteride = Avodart; 5-alpha reductase inhibitor; benign prostatic hyperplasia
    sildenafil = Viagra | Revatio; pde5 inhibitor; erectile dysfunction | pulmonary hypertension
    tadalafil = Cialis; pde5 inhibitor; erectile dysfunction | benign prostatic hyperplasia
    oxybutynin = Ditropan; anticholinergic; overactive bladder
    tolterodine = Detrol; anticholinergic; overactive bladder
    solifenacin = Vesicare; anticholinergic; overactive bladder
    mirabegron = Myrbetriq; beta3 agonist; overactive bladder
    estradiol = Estrace; hormone; menopausal symptoms
    progesterone = Prometrium; hormone; menopausal symptoms
    medroxyprogesterone = Depo-Provera | Provera; hormone
    norethindrone =; hormone
    testosterone = Androgel; hormone; hypogonadism
    timolol = Timoptic; eye drop; glaucoma
    latanoprost = Xalatan; eye drop; glaucoma
    potassium chloride = K-Dur | Klor-Con | KCl; potassium supplement; hypokalemia; potassium monitoring
    ferrous sulfate = iron sulfate | ferrous sulphate | FeSO4; iron; iron deficiency anemia
    folic acid = folate supplement; vitamin; folate deficiency
    vitamin d = cholecalciferol | vitamin D3 | vit D | vit D3 | ergocalciferol; vitamin; vitamin d deficiency |
        osteoporosis
    vitamin b12 = cyanocobalamin | vit B12; vitamin; vitamin b12 deficiency
    calcium carbonate = Tums | Caltrate; mineral; osteoporosis
    magnesium oxide =; mineral; hypomagnesemia
    sevelamer = Renvela; phosphate binder; hyperphosphatemia
    epoetin alfa = Epogen | Procrit | erythropoietin; erythropoietin; anemia; hemoglobin monitoring
    varenicline = Chantix; smoking cessation; tobacco use
    nicotine = nicotine patch | Nicoderm; smoking cessation; tobacco use
    disulfiram = Antabuse; disulfiram; alcohol use disorder
    acamprosate = Campral; acamprosate; alcohol use disorder
    desmopressin = DDAVP; desmopressin; diabetes insipidus; sodium monitoring
    tolvaptan = Samsca; vaptan; hyponatremia; sodium monitoring
    imatinib = Gleevec; kinase inhibitor; leukemia
    hydroxyurea = Hydrea; hydroxyurea; sickle cell disease | polycythemia vera; blood count monitoring
    isotretinoin = Accutane; retinoid; acne; liver enzyme monitoring | lipid monitoring
    tofacitinib = Xeljanz; jak inhibitor; rheumatoid arthritis; blood count monitoring
    bosentan = Tracleer; endothelin antagonist; pulmonary hypertension; liver enzyme monitoring
    pyridostigmine = Mestinon; cholinesterase inhibitor; myasthenia gravis
    riluzole = Rilutek; riluzole; amyotrophic lateral sclerosis; liver enzyme monitoring
    ursodiol = Actigall | ursodeoxycholic acid; bile acid; primary biliary cholangitis
""")

# Words for a whole class in a sentence: "the statin is giving me muscle pain". They name no drug by themselves.
CLASS_WORDS = {
    "statin": ("statin", "cyp3a4 statin"), "blood thinner": ("warfarin", "anticoagulant", "antiplatelet"),
    "anticoagulant": ("warfarin", "anticoagulant"), "water pill": ("loop diuretic", "thiazide"),
    "diuretic": ("loop diuretic", "thiazide", "potassium sparing diuretic"), "steroid": ("steroid",),
    "beta blocker": ("beta blocker",), "ace inhibitor": ("ace inhibitor",), "antidepressant": ("ssri", "snri"),
    "insulin": ("insulin",), "nsaid": ("nsaid",), "opioid": ("opioid", "serotonergic opioid"),
    "thyroid pill": ("thyroid hormone",), "ppi": ("proton pump inhibitor",),
}

# Pairs of drugs or classes that call for caution when given together.
INTERACTIONS = frozenset(frozenset(line.split(" + ")) for line in _lines("""
    warfarin + amiodarone
    warfarin + nsaid
    warfarin + antiplatelet
    warfarin + azole
    warfarin + metronidazole
    warfarin + trimethoprim
    warfarin + fluoroquinolone
    warfarin + cyp3a4 macrolide
    warfarin + rifamycin
    warfarin + carbamazepine
    warfarin + phenytoin
    warfarin + gemfibrozil
    anticoagulant + nsaid
    anticoagulant + antiplatelet
    anticoagulant + warfarin
    anticoagulant + rifamycin
    ace inhibitor + potassium sparing diuretic
    ace inhibitor + potassium supplement
    ace inhibitor + sartan
    sartan + potassium sparing diuretic
    sartan + potassium supplement
    potassium sparing diuretic + potassium supplement
    potassium sparing diuretic + trimethoprim
    ace inhibitor + trimethoprim
    sartan + trimethoprim
    lithium + nsaid
    lithium + ace inhibitor
    lithium + sartan
    lithium + thiazide
    digoxin + amiodarone
    digoxin + rate limiting calcium channel blocker
    digoxin + cyp3a4 macrolide
    beta blocker + rate limiting calcium channel blocker
    ssri + serotonergic opioid
    snri + serotonergic opioid
    tricyclic + serotonergic opioid
    ssri + mao inhibitor
    snri + mao inhibitor
    ssri + linezolid
    snri + linezolid
    ssri + tricyclic
    ssri + triptan
    snri + triptan
    mao inhibitor + serotonergic opioid
    cyp3a4 statin + cyp3a4 macrolide
    statin + cyp3a4 macrolide
    cyp3a4 statin + azole
    cyp3a4 statin + amiodarone
    cyp3a4 statin + rate limiting calcium channel blocker
    statin + gemfibrozil
    cyp3a4 statin + gemfibrozil
    simvastatin + amlodipine
    methotrexate + trimethoprim
    methotrexate + nsaid
    azathioprine + xanthine oxidase inhibitor
    clopidogrel + omeprazole
    clopidogrel + esomeprazole
    theophylline + fluoroquinolone
    theophylline + cyp3a4 macrolide
    tizanidine + fluoroquinolone
    benzodiazepine + opioid
    benzodiazepine + serotonergic opioid
    nitrate + pde5 inhibitor
    valproate + lamotrigine
    phenytoin + azole
    calcineurin inhibitor + cyp3a4 macrolide
    calcineurin inhibitor + azole
    colchicine + cyp3a4 macrolide
    carbamazepine + cyp3a4 macrolide
    sulfonylurea + azole
    insulin + sulfonylurea
    amiodarone + fluoroquinolone
    amiodarone + macrolide
    amiodarone + antipsychotic
    levothyroxine + calcium carbonate
    levothyroxine + ferrous sulfate
    amiodarone + rate limiting calcium channel blocker
    loop diuretic + aminoglycoside
"""))

PROBLEMS = _names("""
    type 2 diabetes = type 2 diabetes mellitus | T2DM | DM2 | diabetes mellitus type 2 | type II diabetes |
        type II diabetes mellitus | non-insulin dependent diabetes | NIDDM | type two diabetes |
        adult onset diabetes | DM type 2 | DM type II | DMII | DM II | T2D
    type 1 diabetes = type 1 diabetes mellitus | T1DM | IDDM | type I diabetes | juvenile diabetes
    diabetes = diabetes mellitus | DM
    gestational diabetes = GDM
    prediabetes = pre-diabetes | impaired fasting glucose | impaired glucose tolerance
    hypertension = high blood pressure | HTN | essential hypertension | elevated blood pressure |
        arterial hypertension
    pulmonary hypertension = PAH | pulmonary arterial hypertension
    hyperlipidemia = high cholesterol | HLD | dyslipidemia | hypercholesterolemia | hyperlipidaemia |
        elevated cholesterol | mixed hyperlipidemia
    hypertriglyceridemia = high triglycerides
    hypothyroidism = underactive thyroid | low thyroid
    hyperthyroidism = overactive thyroid | thyrotoxicosis
    graves disease = graves' disease
    hashimoto thyroiditis = hashimoto's thyroiditis | hashimoto's
    thyroid nodule =
    atrial fibrillation = atrial fib | AF | AFIB | a fib | a-fib | afib | paroxysmal atrial fibrillation
    atrial flutter = aflutter
    supraventricular tachycardia = SVT
    ventricular tachycardia = VT | v-tach | vtach | v tach
    heart failure = congestive heart failure | CHF | HFrEF | HFpEF | HFmrEF | cardiac failure |
        congestive cardiac failure | weak heart
    coronary artery disease = CAD | coronary heart disease | ischemic heart disease | CHD | coronary disease
    myocardial infarction = heart attack | MI | STEMI | NSTEMI | acute myocardial infarction
    angina = angina pectoris | stable angina
    peripheral artery disease = PAD | peripheral arterial disease | PVD | peripheral vascular disease
    aortic stenosis =
    mitral regurgitation =
    aortic aneurysm = AAA | abdominal aortic aneurysm
    cardiomyopathy =
    pericarditis =
    endocarditis = infective endocarditis
    stroke = CVA | cerebrovascular accident | ischemic stroke
    transient ischemic attack = TIA | mini-stroke
    deep vein thrombosis = DVT | dvt | deep venous thrombosis | blood clot in the leg
    pulmonary embolism = PE | pulmonary embolus | blood clot in the lung | lung clot | pulmonary emboli
    chronic kidney disease = CKD | CKD1 | CKD2 | CKD3 | CKD3a | CKD3b | CKD4 | CKD5 | chronic renal disease |
        chronic renal insufficiency | chronic renal failure |
        diabetic nephropathy
    acute kidney injury = AKI | acute renal failure
    end-stage renal disease = ESRD | end stage renal disease
    nephrotic syndrome =
    kidney stones = kidney stone | nephrolithiasis | renal calculi | renal stones | urolithiasis
    urinary tract infection = UTI | uti | bladder infection | urine infection | cystitis
    pyelonephritis = kidney infection
    urinary retention =
    urinary incontinence = incontinence
    overactive bladder = OAB
    benign prostatic hyperplasia = BPH | enlarged prostate | prostate enlargement | benign prostatic hypertrophy
    prostatitis =
    erectile dysfunction = impotence
    asthma = bronchial asthma
    asthma exacerbation = asthma attack
    chronic obstructive pulmonary disease = COPD | copd | emphysema | chronic bronchitis
    copd exacerbation = COPD flare | acute exacerbation of COPD | AECOPD
    pneumonia = community-acquired pneumonia | CAP | lung infection | bacterial pneumonia
    acute bronchitis = bronchitis | chest cold
    bronchiectasis =
    pulmonary fibrosis = interstitial lung disease | ILD
    pleural effusion =
    pneumothorax = collapsed lung
    respiratory failure =
    sleep apnea = obstructive sleep apnea | OSA | sleep apnoea
    tuberculosis = TB
    sarcoidosis =
    upper respiratory infection = URI | upper respiratory tract infection | common cold
    influenza = flu
    covid-19 = covid | COVID19 | SARS-CoV-2 infection | coronavirus infection
    sinusitis = acute sinusitis | sinus infection
    strep throat = streptococcal pharyngitis | strep pharyngitis
    pharyngitis =
    tonsillitis =
    otitis media = acute otitis media | ear infection | middle ear infection
    allergic rhinitis = hay fever | seasonal allergies
    depression = major depression | major depressive disorder | MDD | clinical depression | depressive disorder
    anxiety = anxiousness
    generalized anxiety disorder = GAD | generalised anxiety disorder | anxiety disorder
    panic disorder = panic attacks
    bipolar disorder = bipolar affective disorder | manic depression | bipolar
    schizophrenia =
    post-traumatic stress disorder = PTSD
    obsessive-compulsive disorder = OCD
    attention deficit hyperactivity disorder = ADHD | attention deficit disorder
    suicidal ideation = suicidal thoughts | suicidality | SI
    alcohol use disorder = alcoholism | alcohol abuse | alcohol dependence | EtOH abuse | EtOH use disorder
    opioid use disorder = OUD | opioid dependence
    tobacco use = smoking | tobacco dependence | nicotine dependence | tobacco use disorder
    dementia = vascular dementia
    alzheimer disease = alzheimer's disease | alzheimer's | alzheimers
    mild cognitive impairment = MCI
    parkinson disease = parkinson's disease | parkinson's | parkinsonism
    multiple sclerosis =
    epilepsy = seizure disorder
    seizures = seizure | convulsions
    migraine = migraine headaches | migraines
    essential tremor =
    restless legs syndrome = RLS | restless leg syndrome
    peripheral neuropathy = neuropathy | diabetic neuropathy | polyneuropathy | diabetic peripheral neuropathy
    trigeminal neuralgia =
    postherpetic neuralgia =
    carpal tunnel syndrome = carpal tunnel
    sciatica =
    spinal stenosis =
    amyotrophic lateral sclerosis = ALS
    myasthenia gravis =
    guillain-barre syndrome = GBS
    concussion =
    subdural hematoma =
    meningitis =
    encephalopathy =
    hepatic encephalopathy =
    delirium =
    gastroesophageal reflux disease = GERD | gerd | GORD | acid reflux | reflux | gastroesophageal reflux |
        heartburn disease | reflux disease
    peptic ulcer disease = PUD | peptic ulcer | stomach ulcer | gastric ulcer | duodenal ulcer
    gastritis =
    gastroenteritis = stomach flu
    gastroparesis =
    gastrointestinal bleeding = GI bleed | GI bleeding | gastrointestinal bleed | gastrointestinal hemorrhage
    helicobacter pylori infection = H pylori | H. pylori | helicobacter pylori | H pylori infection
    celiac disease = coeliac disease | celiac
    crohn disease = crohn's disease | crohn's | crohns disease
    ulcerative colitis = UC
    irritable bowel syndrome = IBS
    inflammatory bowel disease = IBD
    diverticulitis =
    diverticulosis =
    appendicitis =
    pancreatitis = acute pancreatitis
    gallstones = cholelithiasis
    cholecystitis =
    fatty liver disease = NAFLD | fatty liver | hepatic steatosis | NASH
    cirrhosis = liver cirrhosis
    hepatitis b = HBV
    hepatitis c = HCV
    hepatitis =
    hemorrhoids = haemorrhoids | piles
    colon polyps = colonic polyps
    hernia = inguinal hernia
    hiatal hernia =
    bowel obstruction = small bowel obstruction | SBO
    clostridioides difficile infection = C diff | C. diff | C difficile | C. difficile | clostridium difficile
    rheumatoid arthritis = RA
    osteoarthritis = OA | degenerative joint disease | DJD | degenerative arthritis
    psoriatic arthritis =
    ankylosing spondylitis =
    gout = gouty arthritis
    pseudogout =
    lupus = SLE | systemic lupus erythematosus
    fibromyalgia =
    polymyalgia rheumatica = PMR
    giant cell arteritis = GCA | temporal arteritis
    osteoporosis =
    osteopenia =
    vertebral fracture = compression fracture
    hip fracture =
    osteomyelitis =
    septic arthritis =
    rotator cuff tear =
    plantar fasciitis =
    tendinitis = tendonitis
    bursitis =
    chronic back pain = chronic low back pain | chronic lower back pain | CLBP
    chronic pain =
    anemia = anaemia
    iron deficiency anemia = iron-deficiency anemia | IDA | iron deficiency anaemia
    iron deficiency =
    vitamin d deficiency = low vitamin D
    vitamin b12 deficiency = B12 deficiency
    folate deficiency =
    thrombocytopenia = low platelets
    neutropenia = low neutrophils
    leukopenia =
    polycythemia vera =
    hemophilia =
    sickle cell disease = sickle cell anemia
    leukemia = leukaemia
    lymphoma = Hodgkin lymphoma | non-Hodgkin lymphoma
    multiple myeloma = myeloma
    breast cancer = breast ca | cancer of the breast | breast carcinoma
    colon cancer = colon ca | colorectal cancer | bowel cancer | cancer of the colon
    prostate cancer = prostate ca | cancer of the prostate
    lung cancer = lung ca | cancer of the lung
    ovarian cancer = ovarian ca | cancer of the ovary
    pancreatic cancer =
    bladder cancer =
    cervical cancer =
    thyroid cancer =
    kidney cancer = renal cell carcinoma
    stomach cancer = gastric cancer
    liver cancer = hepatocellular carcinoma | HCC
    endometrial cancer = uterine cancer
    skin cancer =
    melanoma =
    basal cell carcinoma = BCC
    brain tumor = brain tumour
    huntington disease = huntington's disease
    polycystic kidney disease = PKD
    polycystic ovary syndrome = PCOS | polycystic ovarian syndrome
    endometriosis =
    menopausal symptoms =
    uterine fibroids = fibroids
    bacterial vaginosis = BV
    hypogonadism =
    obesity = morbid obesity | obese
    metabolic syndrome =
    adrenal insufficiency = addison disease | addison's disease
    cushing syndrome = cushing's syndrome
    pheochromocytoma =
    diabetes insipidus =
    diabetic ketoacidosis = DKA
    hyperkalemia = high potassium | hyperkalaemia
    hypokalemia = low potassium | hypokalaemia
    hyponatremia = low sodium level | hyponatraemia
    hypernatremia =
    hypercalcemia = high calcium
    hypocalcemia = low calcium
    hypomagnesemia = low magnesium
    hyperphosphatemia =
    hyperuricemia =
    hyperparathyroidism =
    hypoglycemia = low blood sugar | low blood sugars | hypoglycaemia | hypos | low sugars
    hyperglycemia = high blood sugar | hyperglycaemia
    lactic acidosis =
    rhabdomyolysis =
    serotonin syndrome =
    cellulitis = skin infection
    abscess =
    dental abscess = tooth abscess
    shingles = herpes zoster | zoster
    herpes simplex = cold sores
    oral thrush = thrush | oral candidiasis
    yeast infection = vaginal candidiasis | vaginal yeast infection | candidal vaginitis
    candidiasis =
    gout flare = gout attack | acute gout | flare of gout | gouty flare
    drooling = sialorrhea | excess saliva | excessive salivation
    restlessness = akathisia
    cold hands = cold extremities
    dry eyes =
    swollen gums =
    taste changes = altered taste | taste disturbance | dysgeusia | loss of taste
    loss of smell = anosmia
    nightmares =
    stomach upset = upset stomach | gi upset | stomach cramps | abdominal cramps | abdominal cramping
    flushing =
    menstrual irregularity = irregular periods
    chest congestion =
    ear pain = earache
    eye pain =
    toothache = tooth pain
    rib pain =
    wrist pain =
    jaw pain =
    heel pain =
    snoring =
    belching =
    flatulence =
    hiccups =
    dark urine =
    swollen feet = foot swelling
    hand swelling = swollen hands
    unsteadiness = unsteady gait | imbalance | poor balance | gait instability
    brain fog = mental fog | trouble concentrating | difficulty concentrating | poor concentration
    apathy =
    emotional lability =
    sun rash =
    increased thirst = polydipsia | excessive thirst
    injection site reaction = injection site reactions
    onychomycosis = nail fungus
    tinea = ringworm
    impetigo =
    scabies =
    eczema = atopic dermatitis
    psoriasis =
    acne = acne vulgaris
    rosacea =
    urticaria =
    contact dermatitis =
    dermatitis =
    pressure ulcer = bedsore | pressure sore | decubitus ulcer
    foot ulcer = diabetic foot ulcer
    lyme disease =
    hiv = HIV infection | human immunodeficiency virus
    syphilis =
    gonorrhea =
    chlamydia =
    malaria =
    mononucleosis = mono
    sepsis = septicemia
    bacteremia =
    glaucoma =
    cataract = cataracts
    macular degeneration = AMD
    diabetic retinopathy = retinopathy
    conjunctivitis = pink eye
    dry eye =
    hearing loss =
    tinnitus = ringing in the ears
    vertigo = BPPV
    croup =
    opioid overdose = overdose
    chest pain = CP | chest discomfort | chest tightness | chest pressure | pain in the chest | pain in my chest
    shortness of breath = SOB | dyspnea | dyspnoea | breathlessness | breathless | short of breath |
        difficulty breathing | trouble breathing | shortness breath
    dyspnea on exertion = DOE | exertional dyspnea
    orthopnea =
    wheezing = wheeze | wheezes
    cough = coughing
    dry cough = nonproductive cough | non-productive cough
    productive cough =
    hemoptysis = coughing up blood
    sore throat = throat pain
    runny nose = rhinorrhea
    nasal congestion = stuffy nose | congestion
    nosebleeds = nosebleed | nose bleed | nose bleeds | epistaxis
    hoarseness =
    fever = fevers | febrile | pyrexia
    chills = rigors
    night sweats =
    sweating = diaphoresis | sweats
    hot flashes = hot flushes
    fatigue = tiredness | tired all the time | exhaustion | lethargy
    malaise =
    weakness = generalized weakness
    weight loss = losing weight
    weight gain = gaining weight
    loss of appetite = poor appetite | anorexia | decreased appetite
    headache = headaches | HA
    dizziness = dizzy | dizzy spells | dizzy episodes
    lightheadedness = light-headedness | lightheaded | light-headed
    syncope = fainting | passed out | blackouts | passing out | fainted
    falls =
    confusion =
    memory loss = memory problems | forgetfulness
    insomnia = trouble sleeping | difficulty sleeping | sleeplessness | poor sleep
    drowsiness = sleepiness | somnolence | sedation
    hand tremor = tremor of the hands | shaky hands
    tremor = tremors | shakiness
    numbness =
    tingling = paresthesia | paresthesias | pins and needles
    blurred vision = blurry vision
    double vision = diplopia
    vision loss = loss of vision
    photophobia =
    palpitations = heart racing | racing heart
    leg swelling = lower extremity edema | leg edema | swelling of the legs | swollen legs |
        lower extremity swelling | pedal edema | peripheral edema | LE edema
    ankle swelling = ankle edema | swollen ankles | swelling of the ankles | ankles swelling
    edema = oedema
    angioedema = swelling of the face | facial swelling | lip swelling | tongue swelling
    nausea = queasiness | nauseous
    vomiting = emesis | throwing up
    nausea and vomiting = N/V
    abdominal pain = belly pain | stomach pain | stomach ache | tummy pain | abd pain | stomachache | epigastric pain
    bloating = abdominal bloating
    heartburn = indigestion | dyspepsia
    diarrhea = diarrhoea | loose stools | loose stool | watery stools
    constipation = constipated
    black stools = melena | tarry stools
    rectal bleeding = blood in the stool | hematochezia | bloody stools | blood in stool
    dysphagia = difficulty swallowing | trouble swallowing
    jaundice =
    dry mouth = xerostomia
    mouth sores = mouth ulcers | oral ulcers | stomatitis | sores in the mouth
    bleeding gums = gum bleeding
    gum swelling = gum overgrowth | gingival hyperplasia | gum enlargement
    metallic taste =
    dysuria = burning with urination | painful urination | burning on urination
    hematuria = blood in the urine | blood in urine
    polyuria = frequent urination | urinary frequency
    nocturia =
    flank pain =
    pelvic pain =
    vaginal bleeding =
    back pain = backache | low back pain | lower back pain | LBP
    neck pain = stiff neck
    joint pain = arthralgia | arthralgias | joint aches | achy joints
    joint swelling =
    knee pain =
    hip pain =
    shoulder pain =
    foot pain =
    muscle pain = myalgia | myalgias | muscle aches | muscle ache | achy muscles | sore muscles
    muscle cramps = cramps | muscle cramp
    leg cramps = cramps in the legs | leg cramp | calf cramps
    muscle spasm = muscle spasms | back spasms
    muscle weakness =
    spasticity =
    calf pain =
    claudication =
    rash = rashes
    skin rash = rash on the skin
    hives =
    itching = pruritus | itchiness | itch
    easy bruising = bruising | bruises
    bleeding =
    hair loss = alopecia
    breast tenderness = tender breasts | breast soreness
    gynecomastia = breast enlargement
    decreased libido = low libido | loss of libido | sexual dysfunction
    orthostatic hypotension = postural hypotension
    hypotension = low blood pressure
    bradycardia = slow heart rate
    tachycardia = fast heart rate
    pain =
    anaphylaxis = anaphylactic shock | anaphylactic reaction
    vivid dreams =
    agitation =
    irritability =
    mood swings =
    photosensitivity = sun sensitivity
    vision changes = visual changes | visual disturbance
    hallucinations = hallucination
    lymphadenopathy = swollen glands | swollen lymph nodes
    lung nodule = pulmonary nodule
    liver injury = hepatotoxicity | liver toxicity
    thyroid toxicity =
    prolonged qt = QT prolongation | long QT | prolonged QT interval
""")


@dataclasses.dataclass(frozen=True)
class MeasureFacts:
    """names: concept first. low, high: values beyond are taken for something else. unit: where words leave it out."""

    names: tuple[str, ...]
    low: float
    high: float


def _measures(block: str) -> dict[str, MeasureFacts]:
    out = {}
    for line in _lines(block):
        head, low, high, names = (part.strip() for part in line.split(";"))
        out[head] = MeasureFacts((head, *(n.strip() for n in names.split("|") if n.strip())), float(low), float(high))
    return out


MEASURES = _measures("""
    hba1c; 3; 200; a1c | hemoglobin a1c | hgba1c | hgb a1c | glycated hemoglobin | glycosylated hemoglobin |
        glycohemoglobin | hb a1c | haemoglobin a1c | glycated haemoglobin
    creatinine; 0.1; 1500; serum creatinine | Cr | creat | SCr
    egfr; 1; 200; GFR | estimated gfr | glomerular filtration rate
    urea nitrogen; 1; 300; BUN | blood urea nitrogen | urea
    potassium; 1; 10; K | K+ | serum potassium
    sodium; 90; 190; Na | Na+ | serum sodium
    chloride; 60; 150; Cl | serum chloride
    bicarbonate; 3; 60; HCO3 | CO2 | bicarb
    magnesium; 0.3; 8; Mg | Mg++ | serum magnesium
    calcium; 1; 20; Ca | serum calcium | corrected calcium
    phosphate; 0.2; 15; phosphorus | phos
    hemoglobin; 2; 250; Hgb | Hb | haemoglobin
    hematocrit; 5; 75; Hct | haematocrit
    white blood cell count; 0.1; 500000; WBC | white count | white cell count | leukocytes | leukocyte count |
        white blood cells
    neutrophil count; 0; 100000; absolute neutrophil count | ANC | neutrophils
    platelet count; 1; 2000000; platelets | plt | PLT
    ferritin; 1; 50000; serum ferritin
    mcv; 40; 150; mean corpuscular volume
    tsh; 0; 300; thyroid stimulating hormone | thyrotropin
    free t4; 0; 100; FT4 | free thyroxine
    glucose; 10; 1500; blood sugar | blood glucose | fasting glucose | fasting blood sugar | sugar | sugars | FBS |
        fasting sugar | finger stick | fingerstick
    ldl cholesterol; 5; 600; LDL | LDL-C | low density lipoprotein | bad cholesterol
    hdl cholesterol; 2; 200; HDL | HDL-C | good cholesterol
    total cholesterol; 40; 800; cholesterol
    triglycerides; 10; 10000; TG | trigs | triglyceride
    alt; 1; 20000; alanine aminotransferase | SGPT | alanine transaminase
    ast; 1; 20000; aspartate aminotransferase | SGOT | aspartate transaminase
    alkaline phosphatase; 5; 5000; ALP | alk phos
    bilirubin; 0; 60; total bilirubin | bili
    albumin; 0.5; 60; serum albumin
    inr; 0.5; 20; international normalized ratio
    crp; 0; 800; c-reactive protein | c reactive protein
    esr; 0; 200; erythrocyte sedimentation rate | sed rate | sedimentation rate
    uric acid; 0.5; 1500; urate | serum uric acid | serum urate
    troponin; 0; 100000; troponin i | troponin t
    bnp; 0; 100000; NT-proBNP | brain natriuretic peptide | proBNP | b-type natriuretic peptide
    psa; 0; 10000; prostate specific antigen | prostate-specific antigen
    vitamin d level; 1; 300; 25-hydroxy vitamin d | 25-OH vitamin d | 25 hydroxyvitamin d
    vitamin b12 level; 10; 5000; b12 level | b12 | serum b12
    folate; 0; 200; serum folate
    lipase; 1; 20000; serum lipase
    lactate; 0; 40; lactic acid
    d-dimer; 0; 100000; d dimer
    creatine kinase; 5; 500000; CK | CPK
    lithium level; 0; 6; serum lithium | lithium concentration
    digoxin level; 0; 20; serum digoxin
    phenytoin level; 0; 100; dilantin level | serum phenytoin
    valproate level; 0; 400; valproic acid level | depakote level
    urine albumin-creatinine ratio; 0; 20000; UACR | ACR | albumin creatinine ratio | albumin-to-creatinine ratio |
        microalbumin | urine microalbumin
    ejection fraction; 5; 90; EF | LVEF | left ventricular ejection fraction
    blood pressure; 30; 300; BP | bp | pressure | blood pressure reading | office bp
    heart rate; 20; 300; HR | hr | pulse | pulse rate | ventricular rate
    respiratory rate; 4; 80; RR | respirations | resp rate | breathing rate | resp
    temperature; 30; 110; temp | T | Tmax | body temperature
    oxygen saturation; 40; 100; SpO2 | O2 sat | O2 saturation | sat | sats | SaO2 | oxygen level | pulse ox |
        pulse oximetry | O2 sats | spo2
    weight; 1; 700; wt | body weight | weighs | weighed | weighing
    height; 20; 250; ht
    body mass index; 8; 90; BMI
    pain score; 0; 10; pain level | pain scale
    waist circumference; 30; 250; waist | waist measurement
    peak flow; 30; 900; PEF | peak expiratory flow | peak flow rate
    fev1; 0.2; 150; forced expiratory volume
    phq-9 score; 0; 27; PHQ-9 | PHQ9 | phq 9
    gad-7 score; 0; 21; GAD-7 | GAD7 | gad 7
    mmse score; 0; 30; MMSE | mini-mental state examination | mini mental state
    moca score; 0; 30; MoCA
    intraocular pressure; 2; 80; IOP
    bone density; -6; 6; t-score | t score
""")

# What a monitoring plan watches -> the names of its tests. A plan is named after the first.
MONITORING = _names("""
    tsh monitoring = tsh | thyroid function tests | thyroid function test | thyroid function | TFTs | TFT |
        thyroid labs | thyroid tests | thyroid panel | thyroid levels | thyroid blood test | thyroid blood tests |
        thyroid level
    inr monitoring = inr | protime | prothrombin time | pt/inr | PT INR | coagulation | clotting test |
        clotting tests | clotting | blood thinner level | coagulation test
    liver enzyme monitoring = liver enzymes | liver enzyme | liver function tests | liver function test |
        liver function | LFTs | LFT | liver panel | liver tests | liver test | hepatic panel |
        hepatic function panel | hepatic function | transaminases | liver labs | liver blood tests |
        liver blood test | alt | ast
    lithium level monitoring = lithium level | lithium levels | serum lithium | lithium concentration
    digoxin level monitoring = digoxin level | digoxin levels | serum digoxin | digoxin concentration
    phenytoin level monitoring = phenytoin level | phenytoin levels | serum phenytoin | dilantin level |
        phenytoin concentration
    valproate level monitoring = valproate level | valproate levels | valproic acid level | depakote level
    carbamazepine level monitoring = carbamazepine level | carbamazepine levels | tegretol level
    phenobarbital level monitoring = phenobarbital level
    tacrolimus level monitoring = tacrolimus level | tacrolimus levels | tacrolimus trough | prograf level
    cyclosporine level monitoring = cyclosporine level | cyclosporine levels
    theophylline level monitoring = theophylline level | theophylline levels
    vancomycin level monitoring = vancomycin level | vancomycin trough | vancomycin levels
    gentamicin level monitoring = gentamicin level | gentamicin levels
    drug level monitoring = drug level | drug levels | trough level | serum drug level
    potassium monitoring = potassium | serum potassium | potassium level | potassium levels | K | electrolytes |
        electrolyte | electrolyte panel
    sodium monitoring = sodium | serum sodium | sodium level
    calcium monitoring = calcium | serum calcium | calcium level
    magnesium monitoring = magnesium | magnesium level
    renal function monitoring = renal function | kidney function | creatinine | renal function tests |
        kidney function tests | renal panel | kidney labs | kidney tests | BMP | basic metabolic panel | egfr |
        metabolic panel | kidney test | kidney blood test | urea and electrolytes | U&Es
    blood count monitoring = CBC | complete blood count | blood count | blood counts | full blood count | FBC |
        cell counts | cell count
    absolute neutrophil count monitoring = absolute neutrophil count | ANC | neutrophil count | neutrophils |
        white blood cell count | white count | WBC
    platelet monitoring = platelets | platelet count
    hemoglobin monitoring = hemoglobin | hgb
    hba1c monitoring = hba1c | a1c | hemoglobin a1c
    glucose monitoring = glucose | blood sugar | blood sugars | blood glucose | fingersticks | finger sticks |
        fingerstick | sugar
    lipid monitoring = lipids | lipid panel | lipid profile | cholesterol panel | lipid
    uric acid monitoring = uric acid | urate | serum urate
    retinal monitoring = retinal exam | retinal examination | retinal screening | retinal exams | eye exam |
        eye exams | eye examination | eye screening | retina check | ophthalmology exam | retinal
    ecg monitoring = ecg | ekg | electrocardiogram | QTc | QT interval
    blood pressure monitoring = blood pressure | bp
    weight monitoring = weight | weights
    bone density monitoring = bone density | DEXA | bone density scan | dexa scan
    drug screening = urine drug screen | urine drug screens | UDS
""")

PROCEDURES = _names("""
    appendectomy = appendicectomy | appy | lap appy | appendix removed | appendix out | appendix taken out |
        removal of the appendix
    cholecystectomy = gallbladder removed | gallbladder out | gall bladder removed | gallbladder surgery |
        gallbladder taken out | laparoscopic cholecystectomy | lap chole | removal of the gallbladder
    hysterectomy = total hysterectomy | total abdominal hysterectomy | TAH | uterus removed
    tonsillectomy = tonsils removed | tonsils out | tonsils taken out
    thyroidectomy = total thyroidectomy | thyroid removed
    mastectomy =
    lumpectomy =
    prostatectomy = prostate removed
    nephrectomy = kidney removed
    splenectomy = spleen removed
    colectomy = hemicolectomy | bowel resection | colon resection
    gastrectomy =
    thymectomy =
    laminectomy = back surgery
    discectomy =
    spinal fusion = lumbar fusion | cervical fusion
    vasectomy =
    tubal ligation = tubes tied
    cesarean section = c-section | c section | caesarean section | cesarean delivery | cesarean | caesarean
    hernia repair = inguinal hernia repair | hernia surgery | herniorrhaphy | umbilical hernia repair
    coronary artery bypass = CABG | coronary artery bypass surgery | coronary artery bypass graft |
        coronary artery bypass grafting | bypass surgery | coronary bypass | heart bypass |
        coronary bypass surgery | triple bypass
    coronary stent placement = coronary stent | PCI | percutaneous coronary intervention | coronary stenting |
        heart stent | stent placement | coronary angioplasty | angioplasty
    pacemaker placement = pacemaker | pacemaker implantation | pacemaker insertion | PPM | pacemaker implant
    defibrillator placement = AICD | defibrillator | ICD placement | ICD implantation | defibrillator implantation
    aortic valve replacement = AVR | TAVR
    mitral valve repair =
    mitral valve replacement = MVR
    carotid endarterectomy = CEA
    catheter ablation = cardiac ablation | ablation
    cardiac catheterization = heart catheterization | coronary angiogram
    right hip replacement = right total hip arthroplasty | right THA | right total hip replacement |
        right hip arthroplasty
    left hip replacement = left total hip arthroplasty | left THA | left total hip replacement | left hip arthroplasty
    hip replacement = THA | total hip replacement | total hip arthroplasty
    right knee replacement = right total knee arthroplasty | right TKA | right TKR | right total knee replacement |
        right knee arthroplasty
    left knee replacement = left total knee arthroplasty | left TKA | left TKR | left total knee replacement |
        left knee arthroplasty
    knee replacement = TKA | TKR | total knee replacement | total knee arthroplasty
    knee arthroscopy = arthroscopy
    rotator cuff repair = shoulder surgery
    carpal tunnel release = carpal tunnel surgery
    cataract surgery = cataract extraction | cataract removal | cataracts removed
    kidney transplant = renal transplant | kidney transplantation
    liver transplant = liver transplantation
    gastric bypass = gastric bypass surgery | bariatric surgery | sleeve gastrectomy | roux-en-y gastric bypass
    hemorrhoidectomy =
    craniotomy =
    tracheostomy =
    colostomy =
    skin graft =
    amputation = below knee amputation | BKA
    open reduction and internal fixation = ORIF
    dialysis fistula placement = AV fistula
    port placement = mediport
    bunionectomy = bunion surgery
    septoplasty =
    dilation and curettage =
    laparotomy = exploratory laparotomy
    breast biopsy =
    vertebroplasty = kyphoplasty
""")

APPOINTMENTS = _names("""
    colonoscopy =
    echocardiogram = echo | echocardiography | TTE | heart ultrasound | ultrasound of the heart |
        cardiac ultrasound | transthoracic echocardiogram
    eye examination = eye exam | eye appointment | dilated eye exam | ophthalmology visit | eye check
    physical therapy = PT | physiotherapy | physical therapy evaluation
    occupational therapy =
    mammogram = mammography | screening mammogram
    bone density scan = dexa scan | DEXA | DXA scan | DXA | bone densitometry | bone scan | bone density test | dexa
    sleep study = polysomnography | polysomnogram
    stress test = exercise stress test | treadmill test | nuclear stress test | cardiac stress test
    upper endoscopy = EGD | endoscopy | gastroscopy
    mri = MRI scan | magnetic resonance imaging | MRI of the brain | brain MRI | MRI brain | MRI of the knee |
        MRI of the lumbar spine
    ct scan = CT | CAT scan | computed tomography
    chest x-ray = CXR | chest xray | chest radiograph
    x-ray = xray
    ultrasound = abdominal ultrasound | renal ultrasound | thyroid ultrasound
    pulmonary function tests = pulmonary function test | PFTs | PFT | spirometry | breathing test |
        lung function test | lung function tests | pulmonary function testing
    holter monitor = Holter | event monitor | Holter monitoring
    nerve conduction study = EMG | nerve conduction studies
    eeg = EEG | electroencephalogram
    pap smear = pap test | cervical smear
    hearing test = audiogram | audiology evaluation | audiology appointment | hearing evaluation
    skin biopsy =
    biopsy =
    dental cleaning = dental appointment | dental visit | dentist appointment | dental check
    cardiology consultation = cardiology consult | cardiology referral | cardiology
    cardiology appointment = cardiology appt
    cardiology visit =
    dermatology consultation = dermatology consult | dermatology referral | dermatology
    dermatology appointment = dermatology appt
    dermatology visit =
    neurology consultation = neurology consult | neurology referral | neurology
    neurology appointment = neurology appt
    neurology visit =
    endocrinology consultation = endocrinology consult | endocrinology referral | endocrinology
    endocrinology appointment = endocrinology appt
    endocrinology visit =
    nephrology consultation = nephrology consult | nephrology referral | nephrology
    nephrology appointment = nephrology appt
    nephrology visit =
    rheumatology consultation = rheumatology consult | rheumatology referral | rheumatology
    rheumatology appointment = rheumatology appt
    rheumatology visit =
    urology consultation = urology consult | urology referral | urology
    urology appointment = urology appt
    urology visit =
    gastroenterology consultation = gastroenterology consult | gastroenterology referral | gastroenterology
    gastroenterology appointment = gastroenterology appt | GI appointment
    gastroenterology visit =
    pulmonology consultation = pulmonology consult | pulmonology referral | pulmonology
    pulmonology appointment = pulmonology appt
    pulmonology visit =
    orthopedic consultation = orthopedic consult | orthopedic referral | orthopedic | orthopedics | orthopaedics
    orthopedic appointment = orthopedic appt
    orthopedic visit =
    ophthalmology consultation = ophthalmology consult | ophthalmology referral | ophthalmology
    ophthalmology appointment = ophthalmology appt
    ophthalmology visit =
    psychiatry consultation = psychiatry consult | psychiatry referral | psychiatry
    psychiatry appointment = psychiatry appt
    psychiatry visit =
    nutrition counseling = dietitian visit | nutritionist visit | dietitian appointment | nutrition visit |
        dietician appointment | nutrition consult | dietitian consultation
    diabetes education = diabetes education class
    cardiac rehabilitation = cardiac rehab
    pulmonary rehabilitation = pulmonary rehab
    foot examination = podiatry appointment | podiatry visit | foot exam | podiatry
    wound check = wound care visit
    influenza vaccine = flu shot | flu vaccine | influenza vaccination | flu jab | flu vaccination | influenza jab |
        flu booster | flu injection
    pneumococcal vaccine = pneumonia vaccine | pneumonia shot | pneumococcal vaccination | pneumonia jab |
        pneumonia vaccination | pneumococcal jab
    covid-19 vaccine = covid vaccine | covid booster | covid jab | covid vaccination | covid-19 booster |
        covid-19 jab | covid-19 vaccination | covid shot
    shingles vaccine = shingrix | zoster vaccine | shingles shot | shingles jab | shingles vaccination
    annual physical = physical exam | annual wellness visit | annual exam | wellness visit | yearly physical
    cystoscopy =
    lumbar puncture = spinal tap
    allergy testing = allergy test
    genetic counseling =
""")

ALLERGENS = _names("""
    penicillin = penicillins | PCN | pen
    sulfa drugs = sulfa | sulfonamides | sulfonamide | sulfa antibiotics | sulpha | sulfonamide antibiotics |
        sulfa drug | sulphonamides | sulfa medications
    cephalosporins = cephalosporin
    shellfish = shrimp | crab | lobster
    latex = natural rubber latex | rubber latex | latex gloves
    peanuts = peanut
    tree nuts = tree nut | nuts
    eggs = egg
    milk = cow's milk | dairy
    soy =
    wheat =
    fish =
    strawberries = strawberry
    iodinated contrast = contrast | contrast dye | iv contrast | contrast media | iodine contrast | iodine |
        radiocontrast | radiographic contrast | x-ray dye | iodinated contrast media
    nsaids = nsaid | anti-inflammatories | non-steroidals
    bee stings = bee sting | bee venom | bees | wasp stings
    adhesive tape = adhesive | surgical tape | tape | band-aid adhesive
    nickel =
    pollen = ragweed | grass pollen
    cat dander = cats | cat hair | animal dander | cat
    dog dander = dogs
    dust mites = dust | house dust
    mold =
    lidocaine = novocaine | local anesthetic
    statins =
    ace inhibitors = ace inhibitor
    macrolides =
    fluoroquinolones = quinolones
    tetracyclines =
    opioids = opiates | opioid
    vaccines =
    gelatin =
    chlorhexidine =
    bananas =
    avocado =
    kiwi =
    sesame =
""")

REACTIONS = (
    "anaphylaxis", "anaphylactic shock", "anaphylactic reaction", "hives", "rash", "skin rash", "urticaria", "itching",
    "pruritus", "angioedema", "swelling of the lips", "swelling of the face", "swelling of the tongue", "lip swelling",
    "facial swelling", "tongue swelling", "throat swelling", "throat tightness", "throat closing", "swollen lips",
    "swelling", "wheezing", "bronchospasm", "shortness of breath", "difficulty breathing", "trouble breathing",
    "contact dermatitis", "dermatitis", "nausea", "vomiting", "nausea and vomiting", "diarrhea", "upset stomach",
    "stomach upset", "blisters", "blistering", "stevens-johnson syndrome", "flushing", "hypotension", "dizziness",
    "headache", "cough", "sneezing", "runny nose", "watery eyes", "itchy eyes", "eczema", "asthma attack", "fever",
    "welts", "redness", "skin peeling", "abdominal pain", "stomach cramps", "abdominal cramps", "confusion",
    "facial flushing", "red man syndrome", "low blood pressure", "mouth itching", "itchy mouth",
    "tingling of the mouth",
    "burning", "skin irritation", "skin blistering", "chest tightness", "lightheadedness", "fainting", "syncope",
    "breathing problems", "hallucinations", "palpitations", "muscle pain", "myopathy", "kidney failure",
    "acute kidney injury", "gi upset", "itchy throat", "swollen tongue", "swollen face", "local swelling",
    "large local reaction",
)
ALLERGIC_REACTIONS = frozenset({
    "anaphylaxis", "anaphylactic shock", "anaphylactic reaction", "hives", "rash", "skin rash", "urticaria", "itching",
    "angioedema", "swelling of the lips", "swelling of the face", "swelling of the tongue", "lip swelling",
    "facial swelling", "tongue swelling", "throat swelling", "throat tightness", "throat closing", "swollen lips",
    "bronchospasm", "contact dermatitis", "blisters", "stevens-johnson syndrome", "welts", "swollen tongue",
    "swollen face", "itchy throat", "mouth itching"})

# Words that stand before a disease and belong to its name when the whole is not in the list above.
MODIFIERS = frozenset("""
    acute chronic recurrent severe mild moderate left right bilateral upper lower viral bacterial fungal allergic
    diabetic gouty chest abdominal pelvic facial cervical lumbar thoracic spinal knee hip shoulder elbow wrist hand
    foot ankle leg arm neck back head eye ear nose throat jaw tooth dental oral gastric intestinal bowel colon rectal
    liver hepatic renal kidney bladder urinary prostate ovarian uterine breast lung pulmonary cardiac heart valvular
    vascular venous arterial cerebral brain nerve muscle muscular joint bone skin thyroid adrenal pituitary pancreatic
    autoimmune inflammatory infectious metabolic congenital hereditary iron vitamin folate sleep mood eating personality
    panic social stress nerve distal proximal rib femur tibia radius toe finger heel calf groin flank scrotal testicular
    vaginal menstrual sinus nasal lymph immune connective tissue peripheral central motor sensory cluster tension
    b12 postpartum seasonal obstructive restrictive interstitial ischemic hemorrhagic traumatic stress atrial
    ventricular aortic mitral
""".split())
DISEASE_HEADS = frozenset("""
    disease disorder syndrome cancer carcinoma tumor tumour infection fracture failure deficiency pain ulcer stones
    anemia neuropathy injury insufficiency stenosis regurgitation aneurysm thrombosis embolism swelling cramps cramp
    weakness numbness bleeding hemorrhage discharge spasm spasms ache aches stiffness tenderness soreness sprain strain
    tear cyst nodule polyp polyps abscess rash sores palsy attack attacks flare edema burn bite
""".split())
DISEASE_ENDINGS = ("itis", "osis", "aemia", "emia", "opathy", "algia", "oma", "uria", "pnea", "plegia", "paresis",
                   "rrhea", "rrhoea", "penia", "megaly", "rrhage", "ectasis", "dynia", "phagia", "kinesia", "aphasia",
                   "plakia", "cele", "lithiasis")
NOT_DISEASES = frozenset("""
    diagnosis prognosis hemoptosis coma diploma aroma sternotomy osmosis hypnosis metamorphosis symbiosis dosis academia
    macadamia bohemia hypothesis nausea anosis genoma
""".split()) - {"coma", "nausea"}
DRUG_ENDINGS = ("pril", "sartan", "olol", "statin", "gliptin", "gliflozin", "tidine", "prazole", "mycin", "cillin",
                "floxacin", "conazole", "mab", "tinib", "ciclib", "vir", "zepam", "zolam", "triptan", "setron",
                "dipine",
                "thiazide", "semide", "parin", "xaban", "grel", "grelor", "glutide", "tropium", "terol", "solone",
                "dronate", "cycline", "barbital", "oxetine", "ipramine", "triptyline", "peridol", "piprazole",
                "gabalin", "zosin", "fibrate", "asone", "onide", "lukast", "afil", "glinide", "glitazone", "racetam",
                "curium", "caine", "codone", "orphan", "tadine", "profen", "oxicam", "coxib", "lidone", "idone")
