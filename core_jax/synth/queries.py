"""Fixed queries for the arms that do not learn: similarity (the paper's RAG arm) and oracle.

The similarity queries follow the form of the paper's Table 7: several factors joined in one line, written from general
knowledge of one-year mortality and not from the phrasings. The oracle queries are the factors' own definitions.
Both were fixed together with the generator, before any model was trained on it.
"""
from __future__ import annotations

from core_jax.synth.factors import FACTORS

RAG_QUERIES_NOTE: list[str] = [
    "End-of-life planning / hospice or palliative referral / DNR or DNI order / goals-of-care conversation",
    "Organ failure / ICU stay / mechanical ventilation / dialysis / cardiogenic shock / respiratory failure",
    "Cancer progression / metastases / chemotherapy intolerance / poor performance status",
    "Functional decline / frailty / dependence in ADLs / immobility / falls / nursing home placement",
    "Malnutrition / weight loss / poor oral intake / failure to thrive / low albumin",
    "Cognitive impairment / dementia / delirium / altered mental status",
    "Infection / sepsis / pneumonia / wounds or pressure injuries / abnormal vital signs or laboratory values",
    "Frequent hospitalization / emergency visits / polypharmacy / poor adherence / lack of social support",
]
RAG_QUERIES_CODE: list[str] = [
    "Malignant neoplasm, secondary malignancy, metastatic disease, chemotherapy encounter",
    "Heart failure, cardiomyopathy, myocardial infarction, cardiac arrest, arrhythmia",
    "End stage renal disease, chronic kidney disease, dialysis status, acute kidney failure",
    "Respiratory failure, COPD, oxygen dependence, pneumonia",
    "Sepsis, septic shock, pressure ulcer, severe infection",
    "Palliative care encounter, do not resuscitate status, dependence on care, frailty",
    "Malnutrition, cachexia, anemia, electrolyte disorder",
    "Dementia, delirium, stroke, Parkinson disease, repeated falls",
]
ORACLE_QUERIES: dict[str, str] = {f.name: f.definition for f in FACTORS}
