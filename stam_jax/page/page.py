"""States -> HTML files: one page a patient, and an index of a store. Everything inline, nothing fetched (jinja2)."""
from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any

import jinja2
from markupsafe import Markup

from core_jax.records import atomic_write
from stam_jax.graph.state import State
from stam_jax.page import graph, wording
from stam_jax.page.content import content

HERE = pathlib.Path(__file__).parent
# What a reader cannot see, or what reorders what he sees: control, direction, zero-width, tag and private separators.
HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
                    "\ufff9-\ufffb\U000e0000-\U000e007f]")


def write_page(state: State, out_path: str | os.PathLike, *, title: str | None = None) -> pathlib.Path:
    """One patient's timeline as one offline HTML file, written whole or not at all. Returns its path.

    title: heading of the page; "Patient <id>" unless given.
    """
    return _write(out_path, page(state, title=title))


def page(state: State, *, title: str | None = None, index: str | None = None) -> str:
    """The HTML of `write_page`. index: address of the index page, where there is one."""
    shown = content(state)
    drawing = graph.layout(shown)
    data = shown | {"edges": [[e["type"], e["src"], e["dst"], e["relations"]] for e in drawing["edges"]],
                    "nodes": [n["lanes"] for n in drawing["nodes"]]}
    places = list(state.places.values())
    counts = {name: places.count(name) for name in ("ACTIVE", "HISTORY", "DELETED")}
    used = [t | {"place": i} for i, t in enumerate(shown["types"]) if any(e["type"] == i for e in drawing["edges"])]
    return render("patient.html.j2", "patient.js", title=title or f"Patient {state.patient_id}", p=shown, used=used,
                   graph=drawing, heads=graph.HEADS, column=graph.COLUMN, width=graph.WIDTH, box=graph.BOX,
                   high=graph.ROW - graph.GAP, data=_script(data), counts=counts, lanes=_rows(shown), index=index or "")


def write_index(store: Any, out_dir: str | os.PathLike, *, title: str | None = None,
                patients: Iterable[str] | None = None) -> pathlib.Path:
    """A page for each patient of a store (or for those given), and `index.html`, whose path it returns.

    Raises: LookupError: a patient that the store does not know; ValueError: two ids whose pages would share a name.
    """
    out_dir = pathlib.Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    rows, taken = [], {}
    for patient_id in store.patients() if patients is None else patients:
        state = store.state(patient_id)
        if not state.version:
            raise LookupError(f"patient {patient_id!r}: the store does not know it")
        name = f"{page_stem(patient_id)}.html"
        if (other := taken.setdefault(name.casefold(), patient_id)) != patient_id:
            raise ValueError(f"patients {other!r} and {patient_id!r} would share the page {name}")
        _write(out_dir / name, page(state, index="index.html"))
        dates = sorted(e.date for e in state.entries.values() if e.date)
        rows.append({
            "id": patient_id, "href": name, "holds": len(state.active()), "past": len(state.history()),
            "deleted": len(state.tombstones), "entries": len(state.entries), "updates": state.version,
            "first": wording.date(dates[0]) if dates else "", "last": wording.date(dates[-1]) if dates else "",
            "sort": dates[-1][:10] if dates else "",
            "review": sum(1 for m in state.memories.values() if "needs_review" in m.flags),
            "partial": sum(1 for e in state.entries.values() if e.status == "partial"),
        })
    html = render("index.html.j2", "index.js", title=title or "Patients of this memory", rows=rows)
    return _write(out_dir / "index.html", html)


def page_stem(patient_id: str) -> str:
    """A plain file name for any id: `patient-<id>`, or what is plain of it and a digest."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", patient_id):
        return f"patient-{patient_id}"
    plain = re.sub(r"[^A-Za-z0-9]+", "-", patient_id)[:32].strip("-")
    digest = hashlib.sha256(patient_id.encode()).hexdigest()[:12]
    return "-".join(filter(None, ("patient", plain, digest)))


def _rows(shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Lanes with their statements, the newest first: what is read without a script and in print."""
    lanes = [lane | {"memories": []} for lane in shown["lanes"]]
    for i, m in enumerate(shown["memories"]):
        if m["lane"] >= 0:
            quotes = []
            for entry, start, end, found in m["sources"][:1]:
                e = shown["entries"][entry]
                quotes.append({"words": _piece(e["pieces"], start, end), "found": found,
                               "from": f"{e['kind']}, {e['date']}"})
            last = m["moves"][-1] if m["moves"] else None
            past = last if last is not None and last["to"] == "HISTORY" else None
            after = past and past["successor"] is not None and shown["memories"][past["successor"]]
            lanes[m["lane"]]["memories"].append(m | {
                "place": i, "quotes": quotes, "past": past,
                "after": (after["label"] if after["lane"] == m["lane"] else after["text"]) if after else ""})
    for lane in lanes:
        lane["memories"].sort(key=lambda m: (m["past"] is not None, -(m["begun"] or [0])[0], -m["seq"]))
    return lanes


def _piece(pieces: list, start: int, end: int) -> str:
    """Words between two UTF-16 offsets that one piece holds."""
    for at, text in pieces:
        raw = text.encode("utf-16-le")
        if at <= start and end <= at + len(raw) // 2:
            return " ".join(raw[2 * (start - at):2 * (end - at)].decode("utf-16-le").split())
    return ""


# ---- HTML -------------------------------------------------------------------------------------------------------

def _visible(value: Any) -> Any:
    """Hidden characters of a string as their code point. Raises: TypeError: None; a page says what is missing."""
    if value is None:
        raise TypeError("a template expression is None")
    if isinstance(value, str) and not isinstance(value, Markup):
        return HIDDEN.sub(lambda m: f"\u27e6U+{ord(m[0]):04X}\u27e7", value)
    return value


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined,
                              finalize=_visible, trim_blocks=True, lstrip_blocks=True)


@functools.cache
def _asset(name: str) -> Markup:
    return Markup((HERE / name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def render(template: str, script: str, **context: Any) -> str:
    """A whole page of a template beside this file.

    Style and script stand inline, allowed by their hashes; nothing else runs, and nothing is fetched.
    """
    css, js = _asset("page.css"), _asset(script)
    policy = (f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(js)}; img-src data:; base-uri 'none'; "
              "form-action 'none'")
    return _environment().get_template(template).render(css=css, js=js, policy=policy, **context)


def _script(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def _write(path: str | os.PathLike, html: str) -> pathlib.Path:
    with atomic_write(path) as f:
        f.write(html)
    return pathlib.Path(path)
