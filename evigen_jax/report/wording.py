"""How numbers, dates, ages, flags and verdicts read on a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evigen_jax.quotes import REASONS

FLAGS = {
    "number_mismatch": "a number differs from the source",
    "negation_changed": "a negation was added or lost",
    "negation_outside": "the source negates this just outside the quote",
    "filled_blank": "a blank of the source was filled in",
    "edge_overhang": "text hangs over the edge of the note",
    "short": "short quote",
    "punctuation_only": "only punctuation differs",
}
ZERO = 0.00005  # below this a value reads 0.0000


def signed(value: float) -> str:
    """Four decimals with a sign in front: +0.4312, \u22120.0786, 0.0000."""
    if abs(value) < ZERO:
        return "0.0000"
    return ("+" if value > 0 else "\u2212") + f"{abs(value):.4f}"


def plain(value: float, decimals: int = 4) -> str:
    return f"{value:.{decimals}f}".replace("-", "\u2212")


def percent(value: float, decimals: int = 1) -> str:
    return f"{100 * value:.{decimals}f}\u00a0%"


def direction(value: float) -> str:
    return "none" if abs(value) < ZERO else "up" if value > 0 else "down"


def date(time: str | None, deidentified: bool) -> str:
    return "date removed" if deidentified else time[:10] if time else "no date"


def age(years: float | None, deidentified: bool = False) -> str:
    if years is None:
        return "age unknown"
    if deidentified and years >= 90:
        return "90 years or older"
    if years < 2:
        return f"{int(years * 12)} months"
    return f"{years:.1f} years" if years < 18 else f"{int(years)} years"


def clip(text: str, length: int = 160) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[:length].rsplit(" ", 1)[0] + "\u2026"


def pretty(name: str) -> str:
    return name.replace("_", " ")


def quote_badge(check: Mapping[str, Any] | None) -> tuple[str, str]:
    """(words, tone) of a quote's verdict as `verify_quote` gave it; None: it was not checked."""
    if check is None:
        return "quote not checked", "off"
    if not check["ok"]:
        reason = str(check.get("reason"))
        if reason == "below_threshold":
            return "quote NOT FOUND" + (f", nearest {check['score']:.1f} of 100" if check["score"] else ""), "bad"
        return f"quote NOT FOUND: {REASONS.get(reason, pretty(reason))}", "bad"
    if check["method"] in ("exact", "normalised"):
        return f"quote {check['method']}", "ok"
    return f"quote fuzzy {check['score']:.1f}", "warn"
