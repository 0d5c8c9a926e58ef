"""Suite `quotes`: quote checks, against the paper's rapidfuzz loop (launch/peers/rapidfuzz_quotes.py).

A run is 300 checks: 60 notes of 96,000 characters (about 14,000 tokens), five quotes each (three verbatim, one edited, one
absent), preparation of the notes included. `verdict only` is ours without the search for the nearest passage of a
rejected quote. The result is each contender's accept or reject in the paper's terms (rapidfuzz score of 90).
"""
from __future__ import annotations

import sys

import numpy as np

CASES = {"five_quotes_a_note": {"patients": 60, "size": 96_000, "per_round": "300 checks"}}

sys.path.insert(0, __file__.rsplit("/", 1)[0])


def work(case: dict) -> list[tuple[str, list[str]]]:
    from rapidfuzz_quotes import notes, quotes

    texts = notes(case["size"], case["patients"] + 1)
    return [(texts[i], [q for kind, n in (("verbatim", 3), ("edited", 1), ("absent", 1))
                        for q in quotes(texts[i], texts[i + 1], kind, 120, n, seed=i)]) for i in range(case["patients"])]


def ours(case: dict, nearest: bool):
    from evigen_jax.quotes import prepare, verify_quote

    items = work(case)

    def run():
        out = []
        for text, quotes in items:
            note = prepare(text)
            out += [verify_quote(q, note, nearest=nearest)["score_rapidfuzz"] >= 90 for q in quotes]
        return np.array(out, float)

    return run


def paper(case: dict):
    from rapidfuzz_quotes import normalise, score

    items = work(case)

    def run():
        out = []
        for text, quotes in items:
            note = normalise(text)
            out += [score(q, note) >= 90 for q in quotes]
        return np.array(out, float)

    return run


CONTENDERS = {"evigen": lambda c: ours(c, True), "evigen, verdict only": lambda c: ours(c, False), "rapidfuzz loop": paper}
