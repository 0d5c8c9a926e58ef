"""Quote checks as the paper describes them (appendix G.1), and the cases that time `evigen_jax.quotes` against them.

The peer normalises every note once and every quote when it is checked, splits quotes at ellipses and takes the least
`rapidfuzz.fuzz.partial_ratio` of the pieces. It gives a score, no offsets, no flags, no bound on its time.

    python launch/peers/rapidfuzz_quotes.py              # one JSON row a case: both times, their ratio, the verdicts
    python launch/peers/rapidfuzz_quotes.py --hostile    # slowest checks known, CPU milliseconds

Notes come from the clinosim file under EHR_DATA_DIR (default ../shared/data), joined to the lengths of discharge notes.
"""
from __future__ import annotations

import argparse
import gzip
import json
import os
import pathlib
import random
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator

from rapidfuzz import fuzz

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ("verbatim", "reflowed", "edited", "foreign", "absent")


def normalise(text: str) -> str:
    """The four steps of G.1: NFKC, no-break spaces, white space, trim and lower case."""
    text = unicodedata.normalize("NFKC", text).replace("\u00a0", " ")
    return re.sub(r"\s+", " ", text).strip().lower()


def score(quote: str, note: str) -> float:
    """Least `partial_ratio` (0 to 100) of the quote's pieces in a normalised note."""
    pieces = [p.strip() for p in re.split(r"\.\.\.", normalise(quote)) if p.strip()]
    return min((fuzz.partial_ratio(p, note, processor=None) for p in pieces), default=0.0)


def quotes(note: str, other: str, kind: str, length: int, count: int, seed: int = 0) -> list[str]:
    """`count` quotes of about `length` characters.

    verbatim: cut from `note` at word boundaries; reflowed: the same with line breaks and capitals changed; edited: with
    one letter in thirty replaced; foreign: cut from `other` and not in `note` (templated notes hold near copies of it);
    absent: words of `other` in random order.
    """
    rng = random.Random(f"{kind}/{length}/{seed}")
    text, out = (other if kind in ("foreign", "absent") else note), []
    words = text.split() if kind == "absent" else []
    while len(out) < count:
        if words:
            out.append(" ".join(rng.choices(words, k=length))[:length].strip())
            continue
        at = text.find(" ", rng.randrange(len(text) - 2 * length)) + 1
        quote = text[at:text.rfind(" ", at, at + length)]
        if len(quote) < length // 2 or (kind == "foreign" and quote in note):
            continue
        if kind == "reflowed":
            quote = quote.replace(" ", "\n", 1 + length // 80).capitalize()
        if kind == "edited":
            letters = list(quote)
            for i in range(rng.randrange(15), len(letters), 30):
                letters[i] = "x" if letters[i] != "x" else "y"
            quote = "".join(letters)
        out.append(quote)
    return out


def notes(size: int, count: int) -> list[str]:
    """`count` different texts of `size` characters: clinosim notes end to end.

    Raises: FileNotFoundError without the clinosim file.
    """
    folder = pathlib.Path(os.environ.get("EHR_DATA_DIR", ROOT.parent / "shared" / "data"))
    out, parts, length = [], [], 0
    file = next(iter(sorted(folder.glob("clinosim/*.jsonl.gz"))), folder / "clinosim")
    with gzip.open(file, "rt", encoding="utf-8") as f:
        for line in f:
            for note in json.loads(line)["notes"]:
                parts.append(note["text"])
                length += len(parts[-1]) + 2
                if length >= size:
                    out.append("\n\n".join(parts)[:size])
                    parts, length = [], 0
                if len(out) == count:
                    return out
    raise ValueError(f"got {len(out)} texts of {size} characters, expected {count}: the file holds no more")


def best_us(f: Callable[[str], object], items: list[str], rounds: int) -> float:
    """Best mean CPU microseconds a call over `rounds` passes."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for item in items:
            f(item)
        best = min(best, time.process_time() - start)
    return 1e6 * best / len(items)


def rows(
    size: int = 516_000, lengths: tuple[int, ...] = (60, 150, 400), count: int = 20, rounds: int = 3,
) -> Iterator[dict]:
    """One row a kind and length: CPU microseconds a check for both, and how often the verdicts agree.

    `ours` includes flags and offsets, with the note prepared; `verdict_only` is the same with nearest=False; `in_chunk`
    knows the chunk that a verbatim quote comes from, as `verify_rationale` does. `agree_rapidfuzz` compares
    mode="rapidfuzz" with the peer's score >= 90.
    """
    from evigen_jax.quotes import prepare, verify_quote

    note, other = notes(size, 2)
    indexed, prepared = normalise(note), prepare(note)
    _ = prepared.text, prepared.raw_span(0, 1), prepared.trigrams
    for kind in KINDS:
        for length in lengths:
            items = quotes(note, other, kind, length, count)
            peer = best_us(lambda q: score(q, indexed), items, rounds)
            ours = best_us(lambda q: verify_quote(q, prepared), items, rounds)
            quick = best_us(lambda q: verify_quote(q, prepared, nearest=False), items, rounds)
            known = {}
            if kind == "verbatim":
                chunk = {q: (max(0, note.find(q) - 400), note.find(q) + 800) for q in items}
                inside = best_us(lambda q: verify_quote(q, prepared, near=chunk[q]), items, rounds)
                known = {"in_chunk_us": round(inside, 1)}
            agree = sum(verify_quote(q, prepared, mode="rapidfuzz")["ok"] == (score(q, indexed) >= 90) for q in items)
            yield {
                "op": "verify_quote", "case": f"{kind}-{length}", "note_chars": size, "ours_us": round(ours, 1),
                "verdict_only_us": round(quick, 1), "peer_us": round(peer, 1), "ratio": round(peer / ours, 2),
                "ratio_verdict_only": round(peer / quick, 2), **known, "agree_rapidfuzz": agree, "n": count,
                "accepted": sum(verify_quote(q, prepared)["ok"] for q in items)}


def throughput(patients: int = 60, size: int = 96_000) -> dict:
    """Checks a second in one process, preparation included.

    Five quotes (three verbatim, one edited, one absent) a note; 96,000 characters are about 14,000 tokens.
    """
    from evigen_jax.quotes import prepare, verify_quote

    texts = notes(size, patients + 1)
    work = [(texts[i], [q for kind, n in (("verbatim", 3), ("edited", 1), ("absent", 1))
                        for q in quotes(texts[i], texts[i + 1], kind, 120, n, seed=i)]) for i in range(patients)]

    def ours(nearest: bool) -> None:
        for text, items in work:
            note = prepare(text)
            for q in items:
                verify_quote(q, note, nearest=nearest)

    def peer() -> None:
        for text, items in work:
            note = normalise(text)
            for q in items:
                score(q, note)

    checks = sum(len(items) for _, items in work)
    seconds = {}
    for name, f in (("ours", lambda: ours(True)), ("verdict_only", lambda: ours(False)), ("peer", peer)):
        start = time.process_time()
        f()
        seconds[name] = time.process_time() - start
    return {"op": "verify_quote", "case": "throughput-5-quotes", "note_chars": size, "checks": checks,
            **{f"{k}_per_s": round(checks / v) for k, v in seconds.items()},
            **{f"{k}_us": round(1e6 * v / checks, 1) for k, v in seconds.items()}}


def hostile() -> Iterator[dict]:
    """CPU milliseconds of single checks made to be slow, note preparation apart."""
    from evigen_jax.quotes import prepare, verify_quote

    sentence = "patient denies chest pain and shortness of breath on exertion today. "
    repetitive = (sentence * 16_000)[:1_000_000]
    texts = {
        "repetitive": repetitive, "one letter": "a" * 1_000_000, "two letters": "ab" * 500_000,
        "marks": ("e" + "\u0315\u0300" * 50_000) * 10, "U+FDFA": "\ufdfa" * 100_000,
        "blanks": "no" + " " * 1_000_000 + "pain",
        "underscores": "_" * 1_000_000, "digits": "1.2," * 250_000, "thai": "\u0e01\u0e33\u0e49" * 333_000,
        "surrogates": "\ud800a" * 500_000, "nul": "\x00a " * 333_000,
        "rtl": "\u0645\u0631\u064a\u0636 \u202e\u0623\u0644\u0645 " * 100_000,
    }
    for name, text in texts.items():
        start = time.process_time()
        note = prepare(text)
        _ = note.text, note.raw_span(0, 1), note.folded
        row = {"op": "verify_quote", "case": f"hostile-{name}", "note_chars": len(text),
               "prepare_cpu_ms": round(1e3 * (time.process_time() - start), 1)}
        for length in (34, 200, 500, 2000):
            base = text[len(text) // 3:][:length]
            near = "".join("#" if i % 12 == 0 else c for i, c in enumerate(base))
            far = "".join("#" if i % 9 == 0 else c for i, c in enumerate(base))
            halves = near[:length // 2] + " ... " + far[length // 2:]
            many = " ... ".join(near[i:i + 13] for i in range(0, len(near), 13))
            worst = 0.0
            for quote in (base, near, far, halves, many, base[::-1]):
                start = time.process_time()
                verify_quote(quote, note)
                worst = max(worst, time.process_time() - start)
            row[f"worst_cpu_ms_{length}"] = round(1e3 * worst, 1)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hostile", action="store_true", help="time the inputs made to be slow instead")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    for row in hostile() if args.hostile else rows():
        print(json.dumps(row), flush=True)
    if not args.hostile:
        print(json.dumps(throughput()))


if __name__ == "__main__":
    main()
