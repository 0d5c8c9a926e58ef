"""The pages in headless Chromium: a clicked citation leads to its highlighted span; nothing runs, leaks or breaks."""

import json

import headless
import pytest
import report_cases as cases

from evigen_jax.report import write_report

BINARY = headless.find_chromium()
pytestmark = pytest.mark.skipif(BINARY is None, reason="no chromium on PATH (set CHROMIUM to its path)")


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("websocket", reason="websocket-client is not installed (extra `dev`)")
    b = headless.Browser(BINARY)
    yield b
    b.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_report(**cases.inputs(), out_dir=tmp_path_factory.mktemp("report") / "pages").parent


def record_of(folder, case):
    return next(
        r
        for r in map(lambda f: json.loads(f.read_text()), folder.glob("*.json"))
        if r.get("patient", {}).get("patient_id") == case[0].patient_id
    )


@pytest.fixture
def show(browser, folder):
    """show(case, size, script=True) -> an open page; at the end it has requested only itself and logged nothing."""
    opened = []

    def show(case, size="desktop", script=True):
        record = record_of(folder, case)
        url = (folder / record["html"]).as_uri()
        page = browser.open(url, size, script)
        page.prefix = f"e{record['report_hash'][:8]}-"
        opened.append((page, url))
        return page

    yield show
    for page, url in opened:
        assert page.errors == []
        assert {r.split("#")[0] for r in page.requests} == {url}
        page.close()


def clipped(page, selector):
    """The element lies outside the frame of the source panel, which scrolls by itself on a wide screen."""
    return page.js(f"""(() => {{
          const p = document.querySelector('.source').getBoundingClientRect();
          const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
          return r.top < p.top || r.bottom > p.bottom;
        }})()""")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no_script"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_clicking_a_citation_brings_its_span_into_view(show, size, script):
    page = show(cases.ordinary(), size, script)
    wanted = {
        "quote-1-1": "CHF (EF 25%) and no history\nof cancer",
        "quote-2-1": "Creatinine rose from 1.2 on admission to 2.9 on day three",
        "quote-3-1": "He stopped smoking twelve years ago and walks with a stick",
        "quote-3-2": "see again in six weeks",
        "quote-4-1": "Chronic systolic (congestive) heart failure",
        "quote-5-1": "He is oxygen dependent, at 3 liters by nasal cannula, and needs help with all transfers",
    }
    for name, text in wanted.items():
        mark = f'mark[data-keys~="{page.prefix}{name}"]'
        page.js("scrollTo(0, 0)")
        assert size == "desktop" or not page.in_view(mark)
        page.click(f'a.cite[href="#{page.prefix}{name}"]')
        page.wait(lambda mark=mark: page.in_view(mark), 5)
        assert not clipped(page, mark)
        assert page.js(f"[...document.querySelectorAll('{mark}')].map(e => e.textContent).join('')") == text
        assert page.js("location.hash") == f"#{page.prefix}{name}"


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_the_span_is_marked_and_leads_back_to_its_factor(show, size):
    page = show(cases.ordinary(), size)
    page.click(f'a.cite[href="#{page.prefix}quote-5-1"]')
    mark = f'mark[data-keys~="{page.prefix}quote-5-1"]'
    assert page.js(f"document.querySelector('{mark}').classList.contains('is-current')")
    assert page.js(f"getComputedStyle(document.querySelector('{mark}')).outlineStyle") == "solid"
    page.click(f'.tag.quote[href="#{page.prefix}factor-5"]')
    assert page.js(
        f"(() => {{ const r = document.getElementById('{page.prefix}factor-5').getBoundingClientRect(); return r.top >= 0 && r.top < innerHeight }})()"
    )
    page.js("history.back()")
    page.wait(lambda: page.in_view(mark), 5)


def test_a_desktop_click_does_not_move_the_card_away(show):
    page = show(cases.ordinary())
    cite = f'a.cite[href="#{page.prefix}quote-5-1"]'
    page.js(f"document.querySelector('{cite}').scrollIntoView({{block: 'center'}})")
    before = page.js("scrollY")
    page.click(cite)
    assert (
        page.js("scrollY") == before
        and page.in_view(cite)
        and page.in_view(f'mark[data-keys~="{page.prefix}quote-5-1"]')
    )


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_n_and_p_step_through_the_flags(show, size):
    page = show(cases.ordinary(), size)
    seen = []
    for key in "nnnnppp":
        page.press(key)
        seen.append(page.js("document.activeElement.dataset.flag"))
        assert page.in_view(".is-stop")
    assert seen == ["1", "2", "3", "1", "3", "2", "1"]
    assert page.js("document.querySelector('.stepper-words').textContent") == "flag 1 of 3"
    if size == "desktop":
        assert page.in_view(f'mark[data-keys~="{page.prefix}quote-2-1"]')
    page.click('button[data-step="1"]')
    assert (
        page.js("document.activeElement.dataset.flag") in ("2", None)
        and page.js("document.querySelector('.is-stop').dataset.flag") == "2"
    )


def test_flag_links_work_without_script(show):
    page = show(cases.ordinary(), "phone", script=False)
    for n in (1, 2, 3):
        page.click(f'.flags a[href="#{page.prefix}flag-{n}"]')
        assert page.in_view(f"#{page.prefix}flag-{n}")
    assert page.js("getComputedStyle(document.querySelector('.stepper')).display") == "none"


@pytest.mark.parametrize("script", [True, False], ids=["script", "no_script"])
def test_the_whole_note_unfolds(show, script):
    page = show(cases.ordinary(), "phone", script)
    shown = "(() => { const e = [...document.querySelectorAll('.gap')]; return e.filter(x => x.getClientRects().length).length })()"
    assert page.js(shown) == 0 and page.js("document.querySelectorAll('.gap').length") >= 2
    page.click(".whole-label")
    assert page.js(shown) >= 2
    note = page.js(
        "[...document.querySelectorAll('.record')].find(r => r.querySelector('.whole')).querySelector('.record-text').innerText"
    )
    assert "HISTORY OF PRESENT ILLNESS" in note and "characters …" not in note


def test_hostile_text_does_not_run(show):
    for script in (True, False):
        page = show(cases.hostile(), script=script)
        assert page.js("typeof window.__pwned") == "undefined"
        assert (
            page.js("document.images.length") == 0
            and page.js("document.scripts.length") == 2
            and page.js("document.styleSheets.length") == 1
        )
        assert page.js("getComputedStyle(document.querySelector('main')).display") == "block"
        assert page.js("JSON.parse(document.querySelector('.report-data').textContent).schema") == "report/1"
    assert page.js("document.title").startswith("../../x")


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_nothing_overflows_sideways(show, size):
    for case in cases.all_cases():
        page = show(case, size)
        assert page.js("document.documentElement.scrollWidth") <= page.width


def test_paper_shows_what_the_screen_scrolls(show):
    page = show(cases.ordinary())
    page.send("Emulation.setEmulatedMedia", media="print")
    assert page.js("getComputedStyle(document.querySelector('.bar')).display") == "none"
    assert (
        page.js("(() => { const s = document.querySelector('.source'); return s.scrollHeight - s.clientHeight })()")
        <= 2
    )


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_index_sorts_searches_and_links(browser, folder, size):
    page = browser.open((folder / "index.html").as_uri(), size)
    rows = "[...document.querySelectorAll('.patients tbody tr')].filter(r => !r.hidden).map(r => r.querySelector('a').getAttribute('href'))"
    by_risk = page.js(rows)
    listed = json.loads((folder / "index.json").read_text())["patients"]
    assert by_risk == [r["html"] for r in listed]
    if size == "desktop":  # on a phone the head is for screen readers only
        page.click("th:nth-child(4) button")
        assert page.js(rows) == [r["html"] for r in sorted(listed, key=lambda r: -r["flags"])]
        page.click("th:nth-child(4) button")
        assert (
            page.js(rows)[0] == "patient-P0003.html"
            and page.js("document.querySelector('th:nth-child(4)').ariaSort") == "ascending"
        )
    page.click(".search input")
    page.send("Input.insertText", text="diabetes")
    assert (
        page.js(rows) == ["patient-case_12.html"]
        and page.js("document.querySelector('.matches').textContent") == "1 of 4 patients"
    )
    assert (
        page.js("typeof window.__pwned") == "undefined"
        and page.js("document.documentElement.scrollWidth") <= page.width
    )
    page.click(".patients tr:not([hidden]) a")
    page.wait(lambda: page.js("location.pathname").endswith("patient-case_12.html"), 10)
    assert page.errors == [] and all(r.startswith("file:") for r in page.requests)
    page.close()
