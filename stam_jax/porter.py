"""Porter's suffix stripper with the departures of NLTK's default mode, which LoCoMo's scorer uses. Standard library.

M. F. Porter, "An algorithm for suffix stripping", Program 14 (3), 1980. `stem` lower-cases its word.
"""
from __future__ import annotations

_FIXED = {form: stem for stem, forms in {
    "sky": "sky skies", "die": "dying", "lie": "lying", "tie": "tying", "news": "news", "inning": "innings inning",
    "outing": "outings outing", "canning": "cannings canning", "howe": "howe", "proceed": "proceed",
    "exceed": "exceed", "succeed": "succeed"}.items() for form in forms.split()}
_STEP2 = (("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
          ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
          ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"),
          ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"))
_STEP3 = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
_STEP4 = ("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate",
          "iti", "ous", "ive", "ize")


def _consonant(word: str, i: int) -> bool:
    if word[i] == "y":
        return i == 0 or not _consonant(word, i - 1)
    return word[i] not in "aeiou"


def _measure(stem: str) -> int:
    """How often a consonant follows a vowel: m of [C](VC)^m[V]."""
    kinds = [_consonant(stem, i) for i in range(len(stem))]
    return sum(now and not before for before, now in zip(kinds, kinds[1:]))


def _vowel(stem: str) -> bool:
    return any(not _consonant(stem, i) for i in range(len(stem)))


def _double(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _consonant(word, len(word) - 1)


def _short(word: str) -> bool:
    """Ends consonant, vowel, consonant other than w, x, y; or is vowel, consonant (NLTK)."""
    n = len(word)
    if n == 2:
        return not _consonant(word, 0) and _consonant(word, 1)
    return (n >= 3 and _consonant(word, n - 3) and not _consonant(word, n - 2) and _consonant(word, n - 1)
            and word[-1] not in "wxy")


def _replace(word: str, rules, least: int = 1) -> str:
    """The first rule whose suffix fits decides, whether or not its stem is long enough."""
    for suffix, new in rules:
        if word.endswith(suffix):
            stem = word[:len(word) - len(suffix)]
            return stem + new if _measure(stem) >= least else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    for suffix, new in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(suffix):
            return word[:len(word) - len(suffix)] + new
    return word


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        stem = word[:len(word) - len(suffix)]
        if word.endswith(suffix) and _vowel(stem):
            if stem.endswith(("at", "bl", "iz")):
                return stem + "e"
            if _double(stem):
                return stem if stem[-1] in "lsz" else stem[:-1]
            return stem + "e" if _measure(stem) == 1 and _short(stem) else stem
    return word


def _derived(word: str) -> str:
    """Step 2; "alli" is tried again on its result, and "logi" counts its own l in the stem (NLTK)."""
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _derived(word[:-4] + "al")
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    return _replace(word, _STEP2)


def _suffixes(word: str) -> str:
    """Step 4: the suffix goes where the stem has measure 2; "ion" only after s or t."""
    for suffix in _STEP4:
        if word.endswith(suffix):
            stem = word[:len(word) - len(suffix)]
            return stem if _measure(stem) > 1 and (suffix != "ion" or stem[-1:] in ("s", "t")) else word
    return word


def stem(word: str) -> str:
    word = word.lower()
    if word in _FIXED:
        return _FIXED[word]
    if len(word) <= 2:
        return word
    word = _past(_plural(word))
    if word.endswith("y") and len(word) > 2 and _consonant(word, len(word) - 2):
        word = word[:-1] + "i"
    word = _suffixes(_replace(_derived(word), _STEP3))
    if word.endswith("e"):
        base = word[:-1]
        if _measure(base) > 1 or (_measure(base) == 1 and not _short(base)):
            word = base
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
