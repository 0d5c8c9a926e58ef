"""Factor cards: what was written about each piece of evidence, and what the checks say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evigen_jax.quotes import REASONS, UNTRUSTED
from evigen_jax.report import highlights
from evigen_jax.report.panel import Sources
from evigen_jax.report.wording import FLAGS, clip, direction, plain, pretty, quote_badge, signed


class Flags:
    """Numbered stops for the reader's n and p keys, in page order."""

    def __init__(self, p: str):
        self.p, self.stops = p, []

    def add(self, text: str, source: str = "") -> int:
        self.stops.append(
            {
                "number": len(self.stops) + 1,
                "text": text,
                "anchor": f"{self.p}flag-{len(self.stops) + 1}",
                "source": source,
            }
        )
        return len(self.stops)


def _badge(text: str, tone: str, flag: int = 0, source: str = "") -> dict[str, Any]:
    return {"text": text, "tone": tone, "flag": flag, "source": source}


def _evidence(
    sources: Sources,
    flags: Flags,
    card: int,
    number: int,
    evidence: Mapping[str, Any],
    check: Mapping[str, Any] | None,
    fallback: str,
    home: tuple[str, str] | None,
    known: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """One quote of a card: its verdict, where its citation leads, and the word diff where it is not exact.

    `home` is the source of the card's own item, `fallback` that item's anchor; `known` the factor's verification.
    """
    p, kind, id, quote = sources.p, evidence["citation"]["kind"], evidence["citation"]["id"], evidence["quote"]
    key = sources.resolve(kind, id)
    anchor, back = f"{p}quote-{card}-{number}", f"#{p}factor-{card}"
    place = f"Factor {card}"
    failed = check is not None and not check["ok"]
    badges, diff, target = [], [], fallback

    if key is None:
        badges.append(
            _badge(
                "citation NOT in this record",
                "bad",
                flags.add(f"{place}: citation not in this record", fallback),
                fallback,
            )
        )
    elif known is not None and not known["citation_known_record"]:
        badges.append(
            _badge("citation NOT known", "bad", flags.add(f"{place}: citation not known", fallback), fallback)
        )
    elif known is not None and not known["citation_known_pack"]:
        badges.append(
            _badge(
                "citation in the record, not in the evidence pack",
                "warn",
                flags.add(f"{place}: citation outside the evidence pack", fallback),
                fallback,
            )
        )
    else:
        badges.append(_badge("citation ok", "ok") if known is not None else _badge("citation not checked", "off"))

    if key is not None:
        text = sources.text(key)
        spans = [(int(s), int(e)) for s, e in (check or {}).get("spans") or [] if 0 <= s < e <= len(text)]
        if spans:
            target = anchor
            hint = f"closest text to the failed quote of factor {card}" if failed else f"quoted by factor {card}"
            label = f"\u2260{card}" if failed else f"\u21a9{card}"
            sources.add(
                key, spans, "closest" if failed else "quote", anchor, back, label, f"{hint}; back to the factor"
            )
            source = " \u2026 ".join(text[s:e] for s, e in spans)
            if failed or check is not None and (source.split() != quote.split()):
                diff = highlights.word_diff(quote, source)
        elif key != home:
            sources.shown.setdefault(key, [])
            target = sources.anchor(key)

    words, tone = quote_badge(check)
    badges.append(_badge(words, tone, flags.add(f"{place}: quote not found", target) if failed else 0, target))
    for flag in (check or {}).get("flags") or []:
        text = FLAGS.get(flag) or REASONS.get(flag) or pretty(flag)
        if flag in UNTRUSTED:
            badges.append(_badge(text, "bad", flags.add(f"{place}: {text}", target), target))
        elif flag != (check or {}).get("reason"):
            badges.append(_badge(text, "note"))
    if (check or {}).get("found_in"):
        badges.append(_badge(f"these words stand in {check['found_in']}", "note"))

    when = "not in this record"
    if key is not None:
        when, record = sources.when(key), sources.record(key)
        stated = evidence.get("date")
        if stated and record.time and kind == "note" and stated[:10] != record.time[:10]:
            badges.append(
                _badge(
                    f"date differs: the text says {stated[:10]}",
                    "bad",
                    flags.add(f"{place}: date differs from the record", target),
                    target,
                )
            )
    return {
        "quote": quote,
        "verified": check is not None and check["ok"],
        "failed": failed,
        "badges": badges,
        "diff": diff,
        "href": f"#{target}" if key is not None and target else "",
        "when": when,
        "citation": f"(note_id: {id})" if kind == "note" else f"(ICD code: {id})",
        "what": "note" if kind == "note" else "code title",
    }


def build(
    pack: Mapping[str, Any],
    rationale: Mapping[str, Any] | None,
    verification: Mapping[str, Any] | None,
    sources: Sources,
    flags: Flags,
) -> list[dict[str, Any]]:
    """Cards in pack order; an item that nothing was written about says so, and factors outside the pack come last."""
    p, items = sources.p, {i["obs_id"]: i for i in pack["items"]}
    factors = list((rationale or {}).get("factors") or [])
    checked = {f["rank"]: f for f in (verification or {}).get("factors") or []}
    pairs: list[tuple[Any, Any]] = []
    for item in pack["items"]:
        mine = [f for f in factors if f["obs_id"] == item["obs_id"]]
        pairs += [(item, f) for f in mine[:1]] or [(item, None)]
    used = {id(f) for _, f in pairs}
    pairs += [(items.get(f["obs_id"]), f) for f in factors if id(f) not in used]

    cards = []
    for number, (item, factor) in enumerate(pairs, 1):
        repeated = item is not None and number > len(pack["items"])
        fallback = "" if item is None else f"{p}obs-{item['rank']}"
        card: dict[str, Any] = {
            "number": number,
            "anchor": f"{p}factor-{number}",
            "item": item,
            "fallback": fallback,
            "summary": factor["summary"] if factor else "",
            "reasoning": factor["reasoning"] if factor else "",
            "badges": [],
            "evidence": [],
            "value": "",
            "direction": "none",
            "note": "",
        }
        if item is not None:
            card |= {
                "value": signed(item["attribution"]),
                "direction": direction(item["attribution"]),
                "similarity": plain(item["similarity"]),
                "queries": ", ".join(map(str, item["queries"])),
                "obs_id": item["obs_id"],
                "chunk": clip(item["text"], 220),
                "kind": item["kind"],
                "when": sources.when((item["kind"], item["source_id"])),
            }
        if factor is None:
            card["note"] = "No factor was written about this piece of evidence."
            flag = (
                flags.add(f"Item {number}: no factor written", fallback) if factors else 0
            )  # else one flag stands for all
            card["badges"].append(_badge("no factor written", "bad" if flag else "off", flag, fallback))
        elif item is None:
            card["note"] = (
                f"This factor names {factor['obs_id']}, which is not in the evidence pack; it has no attribution."
            )
            card["badges"].append(
                _badge("not in the evidence pack", "bad", flags.add(f"Factor {number}: not in the evidence pack"))
            )
        elif repeated:
            card["note"] = f"A further factor about item {item['rank']}."
        check = checked.get(factor["rank"]) if factor else None
        quotes = list((check or {}).get("quotes") or [])
        for j, evidence in enumerate((factor or {}).get("evidence") or []):
            card["evidence"].append(
                _evidence(
                    sources,
                    flags,
                    number,
                    j + 1,
                    evidence,
                    quotes[j] if j < len(quotes) else None,
                    fallback,
                    None if item is None else sources.resolve(item["kind"], item["source_id"]),
                    check,
                )
            )
        if factor and not card["evidence"]:
            card["badges"].append(
                _badge("no quote given", "bad", flags.add(f"Factor {number}: no quote given", fallback), fallback)
            )
        if check is not None and check.get("direction_ok") is False:
            way = {"up": "raises", "down": "lowers", "none": "does not change"}[card["direction"]]
            card["badges"].append(
                _badge(
                    f"direction: the attribution {way} the risk, the reasoning says otherwise",
                    "bad",
                    flags.add(f"Factor {number}: direction contradicts the attribution", fallback),
                    fallback,
                )
            )
        if check is not None and check.get("attribution_matches") is False:
            stated = factor.get("stated_attribution")
            text = "attribution differs from the text" + (
                "" if stated is None else f", which says {signed(stated)}"
            )
            card["badges"].append(
                _badge(text, "bad", flags.add(f"Factor {number}: stated attribution differs", fallback), fallback)
            )
        if factor:
            card["badges"].append(_badge("process verifier not run", "off"))
        cards.append(card)
    return cards
