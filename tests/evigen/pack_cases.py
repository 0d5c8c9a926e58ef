"""Small records and packs for the tests of evidence, rationale and generator."""
from core_jax.records import patient_from_dict
from evigen_jax.evidence import Attributed, Prediction, build_pack, sigmoid

TASK = {"name": "mortality_1y", "sentence": "death within one year after the prediction time"}
NOTE_A = (
    "HISTORY OF PRESENT ILLNESS:\nMr. ___ is a 74 year old man with CHF (EF 25%) and no history\r\nof cancer.  "
    "Cr 1.2 on admission;  he denies chest\u00a0pain. He was seen today.\n\nDISCHARGE CONDITION:\nFair."
)
NOTE_B = "Seen for follow-up. He was seen today. Lost 9 kg over four months without trying. Decreased appetite.\n- walks with a stick"


def record():
    return patient_from_dict({
        "patient_id": "p#1", "birth_date": "1940-05-01",
        "notes": [{"note_id": "n#a", "text": NOTE_A, "time": "2014-06-01"}, {"note_id": "nb", "text": NOTE_B, "time": "2014-01-02T08:00:00"}],
        "codes": [
            {"code": "I50.9", "version": "10", "title": "Heart failure, unspecified", "time": "2013-03-01"},
            {"code": "I50.9", "version": "10", "title": "Heart failure, unspecified", "time": "2012-03-01"},
            {"code": "0010", "version": "9", "title": "Cholera due to vibrio cholerae", "time": "2012-03-01"},
        ],
    })


def attributed():
    end = NOTE_A.index("DISCHARGE")
    return [
        Attributed(f"n#a#0-{end}", "note", 0.81, 0.5, (0, 1)), Attributed(f"n#a#{end}-{len(NOTE_A)}", "note", -0.02, 0.3, (1,)),
        Attributed(f"nb#0-{len(NOTE_B)}", "note", -0.4, 0.45, (0,)), Attributed("I50.9-10", "code", 0.2, 0.6, (4,)),
        Attributed("0010-9", "code", 0.02, 0.1, (4, 5)),
    ]


def prediction(logit=0.12, **changes):
    fields = {
        "prob": sigmoid(logit), "logit": logit, "base_logit": -0.5, "target": "logit", "quadrature": "graded", "n_nodes": 32,
        "completeness_gap": 1e-6, "converged": True, "active_queries": (0, 1, 4, 5),
    }
    return Prediction(**fields | changes)


def pack(logit=0.12, of=None, fields=None, **options):
    settings = {"task": TASK, "run_id": "run1", "encoder_id": "minilm", "label": 1} | options
    return build_pack(
        record(), "2014-07-01T00:00:00", prediction(logit, **(fields or {})), attributed() if of is None else of, **settings,
    )
