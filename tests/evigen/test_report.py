"""The report's HTML and JSON, read with the standard library's parser: contents, safety, links."""

import copy
import html.parser
import json
import math
import re

import pytest
import report_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.records import Note, Patient
from evigen_jax.quotes import verify_quote
from evigen_jax.rationale import rationale_sha256
from evigen_jax.report import cohort, highlights, markup, write_report
from evigen_jax.report.patient import Case
from evigen_jax.report.waterfall import strip
from evigen_jax.report.wording import quote_badge

VOID = {"meta", "link", "input", "br", "img"}
BLOCKS = {"td", "th", "dt", "dd", "p", "li", "h1", "h2", "h3", "figcaption", "blockquote", "summary"}


class Document(html.parser.HTMLParser):
    """Checks nesting while it reads; keeps elements as (tag, attributes), texts with the open tags around them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.texts, self.faults = [], [], [], []
        self.feed(text)
        self.close()
        if self.open:
            self.faults.append(f"left open: {self.open}")

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")
        if tag in BLOCKS:
            self.texts.append((tuple(self.open), " "))

    def handle_data(self, data):
        self.texts.append((tuple(self.open), data))

    def all(self, tag, **wanted):
        return [
            a
            for t, a in self.elements
            if t == tag and all(v in (a.get(k.rstrip("_")) or "").split() for k, v in wanted.items())
        ]

    def text(self, *within):
        return " ".join(
            "".join(
                d for path, d in self.texts if set(within) <= set(path) and not {"script", "style"} & set(path)
            ).split()
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "pages"
    assert write_report(**cases.inputs(), out_dir=out) == out / "index.html"
    return out


def pages(folder):
    return sorted(folder.glob("*.html"))


def source_of(folder, case):
    """(html, document, json) of a case's page."""
    record = next(
        json.loads(f.read_text())
        for f in folder.glob("*.json")
        if json.loads(f.read_text()).get("patient", {}).get("patient_id") == case[0].patient_id
    )
    text = (folder / record["html"]).read_text(encoding="utf-8")
    return text, Document(text), record


# ---- every page ----------------------------------------------------------------------------------------------


def test_files_are_named_safely_and_nothing_else_is_written(folder):
    names = sorted(f.name for f in folder.iterdir())
    assert len(names) == 2 * (len(cases.all_cases()) + 1)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+\.(html|json)", n) for n in names), names
    assert {"index.html", "index.json", "patient-10000032.html", "patient-case_12.json"} <= set(names)
    assert sorted(f.name for f in folder.parent.iterdir()) == ["pages"]


def test_pages_are_whole_and_self_contained(folder):
    for file in pages(folder):
        raw = file.read_bytes()
        assert raw[:200].lower().find(b'<meta charset="utf-8">') > 0
        text = raw.decode("utf-8")
        doc = Document(text)
        assert not doc.faults, (file.name, doc.faults[:3])
        ids = [a["id"] for _, a in doc.elements if "id" in a]
        assert len(ids) == len(set(ids)), file.name
        for _, a in doc.elements:
            for name in ("href", "src", "action", "xlink:href", "srcset"):
                link = a.get(name)
                if link is None or link == "data:,":
                    continue
                assert not re.match(r"[a-z]+:|//|/|\.\.", link, re.I), (file.name, link)
                target, _, anchor = link.partition("#")
                if target:
                    assert (folder / target).is_file(), (file.name, link)
                if anchor:
                    there = Document((folder / target).read_text()) if target else doc
                    assert anchor in [b.get("id") for _, b in there.elements], (file.name, link)
            assert not any(k.startswith("on") or k == "style" for k in a), (file.name, a)
        assert "@import" not in text and "url(" not in text


def test_policy_allows_our_style_and_script_by_hash_and_nothing_else(folder):
    for file in pages(folder):
        text = file.read_text(encoding="utf-8")
        policy = Document(text).all("meta", http_equiv="Content-Security-Policy") or [
            a for t, a in Document(text).elements if a.get("http-equiv")
        ]
        directives = dict(d.strip().split(" ", 1) for d in policy[0]["content"].split(";"))
        assert directives["default-src"] == "'none'" and "unsafe" not in policy[0]["content"]
        style = re.search(r"<style>(.*?)</style>", text, re.S)[1]
        script = re.search(r"<script>(.*?)</script>", text, re.S)[1]
        assert directives["style-src"] == markup.csp_hash(style) and directives["script-src"] == markup.csp_hash(
            script
        )
        assert len(Document(text).all("script")) == (1 if file.name == "index.html" else 2)


def test_ids_carry_the_report_hash(folder):
    prefixes = set()
    for file in pages(folder):
        if file.name == "index.html":
            continue
        record = json.loads(file.with_suffix(".json").read_text())
        prefix = f"e{record['report_hash'][:8]}-"
        ids = [a["id"] for _, a in Document(file.read_text()).elements if "id" in a]
        assert ids and all(i.startswith(prefix) for i in ids)
        prefixes.add(prefix)
    assert len(prefixes) == len(cases.all_cases())


def test_every_page_says_what_it_is(folder):
    for file in pages(folder):
        assert "Decision support, not a diagnosis" in Document(file.read_text()).text()
    case = cases.ordinary()
    assert "No language model wrote this." in source_of(folder, case)[1].text()
    llm = source_of(folder, cases.failing())[1].text()
    assert (
        "A language model wrote the sentences on this page" in llm
        and "qwen3-8b" in llm
        and "No language model" not in llm
    )
    assert "Rendered notes." in llm and "Rendered notes." not in source_of(folder, case)[1].text()
    assert "No rationale was written" in source_of(folder, cases.nothing_retrieved())[1].text()
    index = Document((folder / "index.html").read_text()).text()
    assert (
        "No language model wrote these rationales." in index
        and "A language model wrote the rationales" in index
        and "Rendered notes." in index
    )


# ---- the seven parts ------------------------------------------------------------------------------------------


def test_seven_parts_in_order(folder):
    for case in cases.all_cases():
        _, doc, _ = source_of(folder, case)
        assert [a["data-part"] for _, a in doc.elements if "data-part" in a] == list("1234567")


def test_header(folder):
    text = source_of(folder, cases.ordinary())[1].text()
    for piece in (
        "Death from any cause within one year",
        "Patient 10000032",
        "74 years",
        "2151-03-09",
        "67.0 %",
        "probability 0.6699",
        "Outcome rate, training patients 34.8 %",
        "50.0 %: this prediction is at or above it",
        "of 100 among 40 patients (test split)",
        "ECE 0.031 in 15 bins",
        "run-7f3a",
        "minilm-l6-v2/mean",
    ):
        assert piece in text, piece


def test_strip_adds_up_and_has_signs_arrows_and_words(folder):
    text, doc, record = source_of(folder, cases.ordinary())
    part = text[text.index('data-part="2"') : text.index('data-part="3"')]
    values = [
        float(v.replace("\u2212", "-"))
        for v in re.findall(r'<b aria-hidden="true">.</b> <span class="num">([+\u2212][\d.]+)</span>', part)
    ]
    pack = record["pack"]
    assert values == [round(i["attribution"], 4) for i in pack["items"]] + [0.1172, -0.0561]
    assert abs(pack["base_logit"] + sum(values) - pack["logit"]) < 1e-3
    assert (
        part.count("▲</b> <span") == 5
        and part.count("▼</b> <span") == 2
        and part.count("raises the predicted risk") == 5
    )
    assert "not a probability change" in doc.text() and "do not add up" not in doc.text()
    bars = re.findall(r'<rect class="(\w+)" x="([\d.]+)%" y="3" width="([\d.]+)%"', part)
    assert all(0 <= float(x) and float(x) + float(w) <= 100.001 for _, x, w in bars) and len(bars) == 7


def test_strip_flags_rows_that_do_not_add_up():
    patient, pack, *_ = cases.ordinary()
    pack["logit"] += 0.01
    assert strip(pack, dict.fromkeys(range(1, 6), "x"), "e-")["gap"] == "+0.0100"
    pack |= {"logit": pack["logit"] - 0.01 + 0.0007, "residual": 0.0007}
    out = strip(pack, dict.fromkeys(range(1, 6), "x"), "e-")
    assert out["gap"] is None and out["rows"][-1]["label"].startswith("Not attributed")


def test_cards_follow_the_pack_and_take_its_attribution(tmp_path):
    case = cases.ordinary()
    case[2]["factors"].reverse()
    for f in case[2]["factors"]:
        f["attribution"] = 9.9
    write_report(**cases.inputs([case]), out_dir=tmp_path / "r")
    text, doc, _ = source_of(tmp_path / "r", case)
    part = text[text.index('data-part="3"') : text.index('data-part="4"')]
    assert re.findall(r'<article class="card (\w+)"', part) == ["up", "up", "down", "up", "up"]
    titles = re.findall(r"Factor \d: </span>([^<]+)</h3>", part)
    assert titles == [f["summary"] for f in sorted(case[2]["factors"], key=lambda f: f["rank"])]
    assert "9.9" not in text.split('<script type="application/json"')[0]


def test_badges_and_citations(folder):
    text, doc, _ = source_of(folder, cases.ordinary())
    said = doc.text()
    for piece in (
        "citation ok",
        "quote normalised",
        "quote exact",
        "quote fuzzy 93.4",
        "quote fuzzy 98.2",
        "quote NOT FOUND, nearest 71.2 of 100",
        "a number differs from the source",
        "attribution differs from the text, which says +0.9000",
        "short quote",
        "process verifier not run",
        "(note_id: 10000032-DS-21)",
        "(ICD code: I50.22-10)",
        "2150-11-20, 73 years",
        "first recorded 2149-06-01, 72 years",
        "3 flags to look at",
    ):
        assert piece in said, piece
    assert [int(a["data-flag"]) for _, a in doc.elements if "data-flag" in a] == [1, 2, 3]
    failed = text[text.index("evidence failed") :]
    assert "<del>He stopped smoking two years ago and walks five miles a day</del>" in failed[:400]
    diff = failed[failed.index('class="diff-words"') : failed.index('class="small diff-key"')]
    assert re.findall(r"<(del|ins)><span class=\"sr\">[^<]+</span>([^<]+)<", diff) == [
        ("del", "two"),
        ("ins", "twelve"),
        ("del", "five miles"),
        ("ins", "with"),
        ("del", "day"),
        ("ins", "stick"),
    ]


def test_badge_words_for_real_verdicts():
    source = "Mr. ___ is a 65 year old man with CHF (EF 25%) and no history\r\nof cancer.  Cr 1.2 on admission;  he denies chest\u00a0pain."
    words = {
        q: quote_badge(verify_quote(q, source))
        for q in (
            "CHF (EF 25%) and no history\r\nof cancer",
            "CHF (EF 25%) and no history of cancer",
            "Cr 7.2 on admission; he denies chest pain",
            "he swims every morning at dawn",
            "",
            "x" * 2500,
        )
    }
    assert list(words.values())[:3] == [
        ("quote exact", "ok"),
        ("quote normalised", "ok"),
        ("quote fuzzy 97.6", "warn"),
    ]
    assert all(w.startswith("quote NOT FOUND") and tone == "bad" for w, tone in list(words.values())[3:])
    assert quote_badge(None) == ("quote not checked", "off")


def test_nothing_is_invisible(folder):
    """An item without a factor, a factor outside the pack, a citation outside the record: each has a card and a flag."""
    _, doc, record = source_of(folder, cases.failing())
    said = doc.text()
    for piece in (
        "No factor was written about this piece of evidence.",
        "R-9#0-40, which is not in the evidence pack",
        "citation NOT in this record",
        "direction: the attribution lowers the risk, the reasoning says otherwise",
        "no: read the attributions as approximate",
        "The rationale fails as a whole: 2 factors, expected 5",
        "not five factors",
    ):
        assert piece in said, piece
    flags = [a["data-flag"] for _, a in doc.elements if "data-flag" in a]
    assert sorted(map(int, flags)) == list(range(1, len(record["flags"]) + 1))


def test_a_rationale_that_could_not_be_parsed_is_one_flag(tmp_path):
    patient, pack, rationale, _ = cases.failing()
    rationale |= {
        "factors": [],
        "failed_reason": "no section was found",
        "parse_notes": ["cut off after 4,096 tokens"],
        "reasoning_lens": "",
        "recommendations": [],
    }
    pack |= {"converged": True, "note": "2 of the 5 items asked for"}
    write_report(**cases.inputs([(patient, pack, rationale, None)]), out_dir=tmp_path / "r")
    _, doc, record = source_of(tmp_path / "r", (patient,))
    assert [f["text"] for f in record["flags"]] == ["The rationale as a whole fails its checks"]
    for piece in (
        "no section was found",
        "cut off after 4,096 tokens",
        "2 of the 5 items asked for",
        "no factor written",
    ):
        assert piece in doc.text(), piece


def test_audit_has_22_checks(folder):
    for case, passed, failed in (
        (cases.ordinary(), 9, 1),
        (cases.failing(), 2, 8),
        (cases.nothing_retrieved(), 0, 0),
    ):
        text, doc, _ = source_of(folder, case)
        part = text[text.index('data-part="6"') : text.index('data-part="7"')]
        cells = re.findall(r'<td class="(ok|bad|off)">([^<]+)</td>', part)
        assert len(cells) == 22
        assert (
            sum(c == "pass" for _, c in cells) == passed and sum(c.startswith("FAIL") for _, c in cells) == failed
        )
    said = source_of(folder, cases.ordinary())[1].text()
    assert (
        "9 of 10 pass" in said
        and "S2, by a judge: 12 not run" in said
        and "2.40e\u221206" in said
        and "0 (Note), 1 (Note), 2 (Note), 3 (Code)" in said
    )
    assert "I50.22-10 Chronic systolic (congestive) heart failure +0.1904" in said


def test_json_beside_the_page_holds_everything_and_links_back(folder):
    for case in cases.all_cases():
        text, doc, record = source_of(folder, case)
        assert record["pack"] == case[1] and record["rationale"] == case[2] and record["verification"] == case[3]
        ids = {a.get("id") for _, a in doc.elements}
        assert set(record["anchors"]) == {i["obs_id"] for i in case[1]["items"]}
        for link in [*record["anchors"].values(), *(f"{record['html']}#{f['anchor']}" for f in record["flags"])]:
            name, _, anchor = link.partition("#")
            assert name == record["html"] and anchor in ids
        inside = json.loads(
            re.search(r'<script type="application/json" class="report-data">(.*?)</script>', text, re.S)[1]
        )
        assert inside == record | {
            "sources": [{k: v for k, v in s.items() if k != "text"} for s in record["sources"]]
        }
    index = json.loads((folder / "index.json").read_text())
    assert [r["prob"] for r in index["patients"]] == sorted((r["prob"] for r in index["patients"]), reverse=True)
    assert (
        all((folder / r["html"]).is_file() and (folder / r["json"]).is_file() for r in index["patients"])
        and len(index["predicted_without_page"]) == 36
    )


# ---- hostile text ---------------------------------------------------------------------------------------------


def test_hostile_text_stays_text(folder):
    text, doc, _ = source_of(folder, cases.hostile())
    assert (
        not doc.all("img")
        and not doc.all("b", onerror="")
        and "<script>window" not in text
        and "<b>bold" not in text
    )
    assert {t for t, _ in doc.elements} <= {
        "html",
        "head",
        "meta",
        "link",
        "title",
        "style",
        "body",
        "a",
        "nav",
        "span",
        "strong",
        "button",
        "main",
        "header",
        "p",
        "h1",
        "h2",
        "h3",
        "div",
        "svg",
        "rect",
        "line",
        "text",
        "dl",
        "dt",
        "dd",
        "bdi",
        "ol",
        "ul",
        "li",
        "kbd",
        "section",
        "b",
        "circle",
        "article",
        "figure",
        "blockquote",
        "figcaption",
        "del",
        "ins",
        "mark",
        "input",
        "label",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "footer",
        "script",
    }
    shown = text.split('<script type="application/json"')[0]
    assert not markup.HIDDEN.search(shown)
    for mark in ("U+202E", "U+0000", "U+001B", "U+200B", "U+2028", "U+D800"):
        assert mark in shown, mark
    index = (folder / "index.html").read_text()
    assert "<script>window" not in index and "<img" not in index and not Document(index).faults


@pytest.mark.parametrize(
    "value", ["</script><script>alert(1)</script>", "<!--", "]]>", "&lt;", "\u2028\u2029", "\ud800", "\x00"]
)
def test_json_in_a_script_cannot_end_it(value):
    text = markup.json_for_script({"x": value})
    assert not set("<>&\u2028\u2029") & set(text)
    text.encode("utf-8")
    assert json.loads(text) == {"x": value}


def test_no_expression_prints_none():
    with pytest.raises(TypeError, match="None"):
        markup.finalize(None)


def test_page_stems_are_safe_and_distinct():
    taken = set()
    ids = [
        "a",
        "A",
        "../../x",
        "..",
        "",
        " ",
        "con",
        "a/b",
        "a\\b",
        "a%2Fb",
        "<script>",
        "\u202e",
        "é",
        "x" * 300,
        "a.b",
        "a\x00b",
        "patient",
    ]
    stems = [markup.page_stem(i, taken) for i in ids]
    assert all(re.fullmatch(r"patient-[A-Za-z0-9_-]{1,80}", s) for s in stems), stems
    assert len({s.casefold() for s in stems}) == len(ids)
    assert stems[0] == "patient-a" and stems[0] != stems[1]


# ---- highlights -----------------------------------------------------------------------------------------------


def visible_text(fragment, *, whole=True):
    """Text of a rendered note: with what is folded away (without what stands for it), or as it is folded."""
    skip = "cut" if whole else "gap"
    fragment = (
        re.sub(rf'<span class="{skip}">.*?</span>(?=<|$|[^<])', "", fragment, flags=re.S)
        if skip == "cut"
        else re.sub(r'<span class="gap">.*?</span>', "", fragment, flags=re.S)
    )
    fragment = re.sub(r'<a class="tag[^>]*>.*?</a>', "", fragment, flags=re.S)
    return "".join(d for _, d in Document(fragment).texts)


spans_of = st.lists(
    st.tuples(st.integers(0, 900), st.integers(1, 300), st.sampled_from(["item", "quote", "closest"])),
    min_size=0,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(alphabet="abc <&>\"'\n\r\t\u202eé\u05e9", min_size=1, max_size=1200),
    spans=spans_of,
    pad=st.sampled_from([300]),
)
def test_crossing_spans_nest_and_no_character_is_lost(text, spans, pad):
    marks = []
    for n, (start, length, kind) in enumerate(spans):
        start %= len(text)
        marks.append(
            highlights.Highlight(
                start, min(len(text), start + length), kind, f"k{n}", f"k{n}", f"#f{n}", str(n), "hint"
            )
        )
    out, hidden = highlights.render(text, marks)
    doc = Document(str(out))
    assert not doc.faults
    assert visible_text(str(out)) == markup.HIDDEN.sub(
        markup.code_point, text.replace("\r\n", "\n").replace("\r", "\n")
    )
    ids = [a["id"] for _, a in doc.elements if "id" in a]
    assert sorted(ids) == sorted(m.anchor for m in marks)
    for m in marks:
        covered = (
            "".join(re.findall(rf'data-keys="(?:[^"]* )?{m.key}(?: [^"]*)?">(.*?)</(?:mark|span)>', str(out), re.S))
            if "\u202e" not in text
            else None
        )
        wanted = text[m.start : m.end]
        if covered is not None and "\r" not in text:
            assert html.unescape(covered) == wanted
    shown = highlights.windows(text, [(m.start, m.end) for m in marks], pad)
    assert hidden == len(text) - sum(b - a for a, b in shown or [(0, min(len(text), 600))])


def test_300_characters_around_a_span_are_visible_and_the_rest_is_folded():
    text = "".join(f"word{i:05d} " for i in range(3000))
    start = text.index("word01500")
    out, hidden = highlights.render(
        text, [highlights.Highlight(start, start + 40, "quote", "a", "a", "#f", "1", "hint")]
    )
    folded = visible_text(str(out), whole=False)
    assert text[start - 300 : start + 340] in folded
    assert 640 <= len(text) - hidden <= 640 + 2 * 40 and str(out).count('class="gap"') == 2
    assert re.findall(r'<mark class="found" data-keys="a">([^<]*)</mark>', str(out)) == [text[start : start + 40]]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from("a b c dd e.".split()), max_size=30),
    st.lists(st.sampled_from("a b c dd e.".split()), max_size=30),
)
def test_word_diff_keeps_every_word(a, b):
    ops = highlights.word_diff(" ".join(a), " ".join(b))
    assert " ".join(w for op, w in ops if op != "source").split() == a
    assert " ".join(w for op, w in ops if op != "quote").split() == b


def test_large_note(tmp_path):
    text = "".join(f"Line {i}: the patient was stable & eating <well>.\n" for i in range(22_000))
    assert len(text) > 1_000_000
    note = Note("big", text, "2150-01-01T00:00:00", 50.0)
    patient = Patient("P1", notes=(note,))
    at = text.index("Line 11000")
    pack = cases.pack(patient, [cases.item(1, note, at, at + 400, 0.5)])
    quote = text[at : at + 40]
    case = (
        patient,
        pack,
        cases.rationale(
            patient, pack, [cases.factor(1, pack["items"][0], "x", [(quote, "note", "big", None)], "y")]
        ),
        cases.verification(patient, [cases.result(1, [cases.checked(True, "exact", 100.0, [(at, at + 40)])])]),
    )
    write_report(**cases.inputs([case]), out_dir=tmp_path / "r")
    html_text, doc, _ = source_of(tmp_path / "r", case)
    assert not doc.faults and len(html_text) < 1.3 * len(text) + 100_000
    assert (
        len(
            visible_text(
                html_text[html_text.index('<div class="record-text"') : html_text.index('data-part="5"')].rsplit(
                    "</article>", 1
                )[0],
                whole=False,
            )
        )
        < 3000
    )


# ---- de-identified --------------------------------------------------------------------------------------------


def test_deidentify_drops_ids_and_dates_and_says_so(tmp_path):
    patient, pack, rationale, verification = cases.ordinary()
    rationale["prediction_explanation"] += " See note 10000032-DS-21 of 2151-03-09 (patient 10000032)."
    rationale["raw"] = "10000032 2151-03-09"
    case = (patient, pack, rationale, verification)
    inputs = cases.inputs([case])
    inputs["run_info"]["cohort"]["prediction_time"] = "2151-03-09"
    write_report(**inputs, out_dir=tmp_path / "r", deidentify=True)
    files = list((tmp_path / "r").iterdir())
    assert sorted(f.name for f in files) == ["index.html", "index.json", "patient-001.html", "patient-001.json"]
    for file in files:
        text = file.read_text(encoding="utf-8")
        for gone in ("10000032", "2151-03-09", "2150-11-20", "2149-06-01", "P9000", "2076"):
            assert gone not in text, (file.name, gone)
    _, doc, record = source_of(tmp_path / "r", (Patient("patient-001"),))
    said = doc.text()
    assert (
        "Identifiers and dates were removed" in said
        and "was not touched" not in said
        and "were not touched" in said
    )
    assert (
        "(note_id: note-2)" in said
        and "date removed, 74 years" in said
        and "See note note-2 of [date] (patient patient-001)." in said
    )
    assert record["pack"]["prediction_time"] is None and record["rationale"]["raw"] is None
    assert record["verification"]["rationale_sha256"] == rationale_sha256(record["rationale"]) != verification["rationale_sha256"]
    assert record["pack"]["items"][0]["text"] == pack["items"][0]["text"] and record["pack"]["items"][0][
        "obs_id"
    ].startswith("note-2#")
    assert "Identifiers and dates were removed" in Document((tmp_path / "r/index.html").read_text()).text()


def test_deidentify_caps_ages_keeps_codes_and_leaves_recorded_text(tmp_path):
    text = "Seen on 2150-01-05 for 1 problem. MRN 77."
    note = Note("77", text, "2150-01-05T00:00:00", 93.4567)
    patient = Patient("1", birth_date="2056-01-01", notes=(note,))
    pack = cases.pack(patient, [cases.item(1, note, 0, len(text), 0.2)], time="2150-01-06T00:00:00")
    rationale = cases.rationale(
        patient,
        pack,
        [
            cases.factor(
                1,
                pack["items"][0],
                "1 problem in note 77",
                [(text, "note", "77", "2150-01-05")],
                "1 of 77 reasons.",
            )
        ],
    )
    write_report(**cases.inputs([(patient, pack, rationale, None)]), out_dir=tmp_path / "r", deidentify=True)
    _, doc, record = source_of(tmp_path / "r", (Patient("patient-001"),))
    assert (
        record["pack"]["items"][0]["age_years"] == 90.0
        and record["patient"]["age_years"] == 90.0
        and "90 years or older" in doc.text()
    )
    assert (
        record["sources"][0]["text"] == text and record["rationale"]["factors"][0]["evidence"][0]["quote"] == text
    )
    assert (
        record["rationale"]["factors"][0]["summary"] == "1 problem in note note-1"
        and record["rationale"]["factors"][0]["reasoning"] == "1 of 77 reasons."
    )


# ---- the cohort index -----------------------------------------------------------------------------------------


def test_index(folder):
    text = (folder / "index.html").read_text()
    doc = Document(text)
    said = doc.text()
    order = re.findall(r'<th scope="row" data-value="[^"]*"><a href="([^"]+)"', text)
    assert order == [r["html"] for r in json.loads((folder / "index.json").read_text())["patients"]]
    for piece in (
        "AUC 0.842",
        "0.811 to 0.871",
        "ECE 0.031",
        "15 equal-width bins",
        "2 Note Dynamic 23.9",
        "0 Note Shared, always on 100.0",
        "2.54 of 5",
        "This query is never active.",
        "sex F 110 36 0.851 0.800 to 0.900 0.041",
        "under 40 7 0 fewer than 20 patients",
        "split test positive 84",
        "all subjects 4,210 \u2013",
        "three notes or more (not applied) 2,134 743",
        "36 more patients were predicted and have no page",
        "Quotes found in the cited source",
    ):
        assert piece in said, piece
    assert len(doc.all("circle", class_="dot")) == 14 and "polyline" in {t for t, _ in doc.elements}
    assert (
        f'href="{json.loads((folder / "patient-10000032.json").read_text())["anchors"]["10000032-DS-21#2528-2817"]}"'
        in text
    )


def test_index_without_figures_says_so(tmp_path):
    inputs = cases.inputs([cases.nothing_retrieved()])
    inputs["run_info"] = {k: inputs["run_info"][k] for k in ("task", "run_id", "encoder_id")} | {"metrics": {}}
    write_report(**inputs, out_dir=tmp_path / "r")
    said = Document((tmp_path / "r/index.html").read_text()).text()
    for piece in (
        "AUC not computed",
        "No ROC points",
        "No reliability bins",
        "No subgroup figures",
        "No activation rates",
        "No rationale was written",
    ):
        assert piece in said, piece
    assert "not given" in Document((tmp_path / "r/patient-P0003.html").read_text()).text()


def test_pass_rates_keep_failures_in_the_denominator():
    written = [c for c in cases.all_cases() if c[2]]
    rows = cohort.pass_rates(
        [Case(*c, None, None, None, 0, None) for c in [*written, (*written[0][:3], None)]]
    )
    by_name = {r["name"]: (r["k"], r["n"]) for r in rows}
    assert by_name["Rationales, all mechanical checks"] == ("0", "4")
    assert by_name["Quotes found in the cited source"] == ("8", "18") and by_name[
        "Quotes found, without a critical flag"
    ] == ("7", "18")
    assert cohort.pass_rates([]) == []


def test_pictures():
    roc = cohort.roc_picture([(i / 5000, (i / 5000) ** 0.5) for i in range(5001)])["line"].split()
    assert len(roc) == 400 and roc[0] == "0.00,100.00" and roc[-1] == "100.00,0.00"
    assert cohort.roc_picture({"fpr": [0, 1], "tpr": [0, 1]})["line"] == "0.00,100.00 100.00,0.00"
    assert (
        cohort.roc_picture(None) is None
        and cohort.reliability_picture([{"lo": 0.0, "hi": 1.0, "n": 0, "mean_p": None, "mean_y": None}]) is None
    )
    bins = cohort.reliability_picture(
        [
            {"lo": 0.0, "hi": 0.5, "n": 4, "mean_p": 0.25, "mean_y": 0.5},
            {"lo": 0.5, "hi": 1.0, "n": 0, "mean_p": None, "mean_y": None},
        ]
    )
    assert (
        bins["points"][0]["x"] == 25
        and bins["points"][0]["y"] == 50
        and [r["n"] for r in bins["rows"]] == ["4", "0"]
        and bins["empty"] == 1
    )


def test_few_patients_are_named(tmp_path):
    def bins(n, rate):
        return [{"lo": 0.0, "hi": 1.0, "n": n, "mean_p": 0.5, "mean_y": rate, "low": None, "high": None}]

    assert cohort.few(bins(200, 0.5)) is None and cohort.few(None) is None
    assert cohort.few(bins(200, 0.05)) == {"patients": "200", "positive": "10"}
    assert cohort.few(bins(200, 0.95)) == {"patients": "200", "positive": "190"}
    inputs = cases.inputs([cases.nothing_retrieved()])
    for n, shown in ((200, False), (20, True)):
        inputs["run_info"]["metrics"] = {"reliability": bins(n, 0.5)}
        write_report(**inputs, out_dir=tmp_path / str(n))
        said = Document((tmp_path / str(n) / "index.html").read_text()).text()
        assert ("rest on 20 patients, 10 with the outcome" in said) == ("Few patients." in said) == shown


def test_activation_is_a_share():
    with pytest.raises(ValueError, match="query 2.*expected a share"):
        cohort.activation([{"query": 2, "modality": "Note", "gate_type": "Dynamic", "activation": 23.9}])


# ---- bad input, and files -------------------------------------------------------------------------------------


def _change(path, value):
    def change(inputs):
        at = inputs
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change, message",
    [
        (_change(["packs", 0, "items", 0, "text"], "another text"), "10000032.*got text 'another text'"),
        (_change(["packs", 0, "items", 0, "source_id"], "n-7"), "note 'n-7' is not in the visible record"),
        (_change(["packs", 0, "items", 1, "rank"], 5), "got rank 5 at place 2"),
        (_change(["packs", 0, "schema"], "evidence_pack/9"), "evidence_pack/9"),
        (lambda i: i["packs"].append(i["packs"][0]), "packs: patient '10000032' stands twice"),
        (
            lambda i: i["rationales"].append(i["rationales"][0] | {"patient_id": "Q"}),
            "rationales: patient 'Q' has no evidence pack",
        ),
        (lambda i: i["patients"].clear(), "is not among the records"),
    ],
    ids=["text", "note", "rank", "schema", "twice", "stray", "record"],
)
def test_inputs_that_do_not_fit_are_errors_and_leave_nothing(tmp_path, change, message):
    inputs = copy.deepcopy(cases.inputs([cases.ordinary()]))
    change(inputs)
    with pytest.raises(ValueError, match=message):
        write_report(**inputs, out_dir=tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_report_is_replaced_whole_and_survives_a_failure(tmp_path):
    out = tmp_path / "r"
    write_report(**cases.inputs([cases.ordinary()]), out_dir=out)
    before = {f.name: f.read_bytes() for f in out.iterdir()}
    broken = cases.inputs([cases.failing()])
    broken["run_info"]["config"] = {"x": float("nan")}
    with pytest.raises(ValueError):
        write_report(**broken, out_dir=out)
    assert {f.name: f.read_bytes() for f in out.iterdir()} == before and [f.name for f in tmp_path.iterdir()] == [
        "r"
    ]
    write_report(**cases.inputs([cases.failing()]), out_dir=out)
    assert sorted(f.name for f in out.iterdir()) == [
        "index.html",
        "index.json",
        "patient-case_12.html",
        "patient-case_12.json",
    ]
    assert [f.name for f in tmp_path.iterdir()] == ["r"]


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r/thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="not a report"):
        write_report(**cases.inputs([cases.ordinary()]), out_dir=tmp_path / "r")
    assert (tmp_path / "r/thesis.tex").read_text() == "years of work"


def test_same_inputs_same_bytes(tmp_path):
    for name in "ab":
        write_report(**cases.inputs(), out_dir=tmp_path / name)
    a, b = ({f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in "ab")
    assert a == b


def test_probability_target_is_worded_as_such(tmp_path):
    case = cases.nothing_retrieved()
    case[1].update({"target": "prob", "base_logit": -1.3862944, "prob": 0.25, "other_note_attribution": 0.05})
    write_report(**cases.inputs([case]), out_dir=tmp_path / "r")
    said = Document((tmp_path / "r/patient-P0003.html").read_text()).text()
    assert (
        "not a probability change" not in said
        and "Predicted probability 0.2500" in said
        and "Base: no evidence 0.2000" in said
        and "do not add up" not in said
    )


# ---- with the pipeline's own modules --------------------------------------------------------------------------


def test_template_rationale_of_a_built_pack(tmp_path):
    """build_pack -> TemplateGenerator -> verify_rationale -> page: every citation leads to a verified span of its note."""
    from evigen_jax.evidence import Attributed, Prediction, build_pack
    from evigen_jax.generate import TemplateGenerator
    from evigen_jax.verify import verify_rationale

    patient = cases.ordinary()[0]
    c, d = patient.notes
    attributed = [
        Attributed(f"{d.note_id}#2528-3200", "note", 0.5, 0.4, (0,)),
        Attributed(f"{c.note_id}#0-200", "note", -0.25, 0.3, (0, 1)),
        Attributed(patient.codes[0].obs_id, "code", 0.125, 0.2, (2,)),
        Attributed(f"{d.note_id}#5800-6400", "note", 0.0625, 0.2, (1,)),
    ]
    prediction = Prediction(1 / (1 + math.exp(-0.4375)), 0.4375, 0.0, "logit", "graded", 32, 1e-6, True, (0, 1, 2))
    ids = {"task": cases.TASK, "run_id": "r", "encoder_id": "e"}
    pack = build_pack(patient, "2151-03-09T00:00:00", prediction, attributed, k=5, **ids)
    (rationale,) = TemplateGenerator().generate([pack])
    case = (patient, pack, rationale, verify_rationale(rationale, patient, pack))
    assert case[3]["s1_pass"]
    write_report(**cases.inputs([case]), out_dir=tmp_path / "r")
    text, doc, record = source_of(tmp_path / "r", case)
    said = doc.text()
    assert not doc.faults and record["flags"] == []
    for piece in ("No check raised a flag.", "No language model wrote this.", "4 of the 5 items asked for", "8 of 8 pass"):
        assert piece in said, piece
    cited = [a["href"][1:] for a in doc.all("a", class_="cite")]
    assert len(cited) == 4 and all("-quote-" in c for c in cited)
    for anchor, factor in zip(cited, rationale["factors"]):
        words = "".join(re.findall(rf'<mark class="found" data-keys="[^"]*{anchor}[^"]*">([^<]*)</mark>', text))
        assert html.unescape(words).split() == factor["evidence"][0]["quote"].split()


def test_a_quote_of_another_note_says_where_its_words_stand(tmp_path):
    from evigen_jax.verify import verify_rationale

    patient, pack, rationale, _ = cases.ordinary()
    elsewhere = "He is oxygen dependent, at 3 liters by nasal cannula"
    rationale["factors"][2]["evidence"][0]["quote"] = elsewhere
    case = (patient, pack, rationale, verify_rationale(rationale, patient, pack))
    write_report(**cases.inputs([case]), out_dir=tmp_path / "r")
    said = source_of(tmp_path / "r", case)[1].text()
    assert "quote NOT FOUND" in said and "these words stand in 10000032-DS-21" in said
