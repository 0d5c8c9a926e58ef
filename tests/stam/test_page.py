"""Timeline pages: what they hold, and in headless Chromium what they show from each point of view, and that nothing runs."""
import datetime as dt
import json
import re
import time

import headless
import page_cases as cases
import pytest

from stam_jax.graph import undo
from stam_jax.graph.memory import Memory
from stam_jax.graph.state import State
from stam_jax.graph.transitions import archive
from stam_jax.graph.update import Update
from stam_jax.page import write_index, write_page
from stam_jax.page.content import content
from stam_jax.page.page import page_stem
from stam_jax.storage.store import Store

BINARY = headless.find_chromium()
chromium = pytest.mark.skipif(BINARY is None, reason="no chromium on PATH (set CHROMIUM to its path)")
headless.SIZES.setdefault("narrow", (360, 740, True))
PLANTED = cases.state_of(cases.planted()[1])
HOSTILE = cases.state_of(cases.hostile())


def piece(entry: dict, start: int, end: int) -> str:
    """Words between two UTF-16 offsets, as a browser cuts them."""
    for at, text in entry["pieces"]:
        raw = text.encode("utf-16-le")
        if at <= start and end <= at + len(raw) // 2:
            return raw[2 * (start - at):2 * (end - at)].decode("utf-16-le")
    raise AssertionError("the page does not hold the place")


# ---- without a browser ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("state", [PLANTED, HOSTILE], ids=["planted", "hostile"])
def test_every_memory_stands_in_a_lane_with_its_proof(state):
    shown = content(state)
    assert [m["id"] for m in shown["memories"]] == list(state.memories)
    for row, m in zip(shown["memories"], state.memories.values(), strict=True):
        assert row["text"] == m.text and (shown["lanes"][row["lane"]]["concept"] or None) == m.concept
        for (entry, start, end, _), p in zip(row["sources"], m.provenance, strict=True):
            assert piece(shown["entries"][entry], start, end) == state.entries[p.entry_key].text[p.start:p.end]


def test_a_long_entry_is_cut_around_its_quotes():
    text = "🙂" * 3000 + "\n" + "filler words. " * 6000 + "metformin 850 mg bid" + " and more." * 6000
    e = cases.entry(text)
    state = cases.state_of([cases.commit(0, [e], [cases.memory(e, "metformin 850 mg bid", concept="metformin", attribute="dose")])])
    shown = content(state)
    entry, (_, start, end, _) = shown["entries"][0], shown["memories"][0]["sources"][0]
    assert piece(entry, start, end) == "metformin 850 mg bid" and len(entry["pieces"]) == 2
    assert sum(len(t) for _, t in entry["pieces"]) < 6000 and entry["length"] == len(text) + 3000


def test_an_undone_update_and_an_empty_patient(tmp_path):
    with Store.open(tmp_path / "store", encoder=cases.HEADER) as store:
        cases.fill(store, cases.hostile("p1"))
        store.revert("p1", 2)
        updates = content(store.state("p1"))["updates"]
    assert [u["undone"] for u in updates] == [False, True, False] and updates[2]["words"] == "update 2 is taken back"
    html = write_page(State("nobody"), tmp_path / "x.html", title="A <b> title").read_text()
    assert "Nothing is remembered" in html and "A &lt;b&gt; title" in html
    e = cases.entry("Nothing to note.")
    html = write_page(cases.state_of([cases.commit(0, [e])]), tmp_path / "y.html").read_text()
    assert "what was read (1) held no statement" in html


def test_records_cannot_write_html():
    from stam_jax.page.page import page

    html = page(HOSTILE)
    assert html.count("<script") == 2 and html.count("</script") == 2 and "<img" not in html
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1]
    assert not set("<>&\u2028\u2029") & set(data)
    assert json.loads(data)["memories"][0]["text"] == next(iter(HOSTILE.memories.values())).text
    assert "\u202e" not in html.replace(data, "") and "\u27e6U+202E\u27e7" in html
    assert not re.search(r"""(src|href|action)=["'](?!#|data:,)""", html) and "connect-src" not in html
    assert "default-src &#39;none&#39;" in html and "unsafe" not in html


def test_file_names_of_pages():
    ids = ["P1", "p1", "../p1", "a/b", "a-b", "", "é" * 200, "p1 ", "con"]
    names = [page_stem(i) for i in ids]
    assert len({n.casefold() for n in names}) == len(ids)
    assert all(re.fullmatch(r"patient-[A-Za-z0-9_-]{1,80}", n) for n in names)


def test_index_of_a_store(tmp_path):
    with Store.open(tmp_path / "store", encoder=cases.HEADER) as store:
        cases.fill(store, cases.hostile())
        cases.fill(store, cases.planted()[1])
        path = write_index(store, tmp_path / "pages")
        html = path.read_text()
        for patient in store.patients():
            assert (tmp_path / "pages" / f"{page_stem(patient)}.html").exists() and f'href="{page_stem(patient)}.html"' in html
        with pytest.raises(LookupError, match="does not know it"):
            write_index(store, tmp_path / "pages", patients=["nobody"])
    assert html.count("<tr data-id=") == 2 and "p&lt;b&gt;1" in html and "<b>1" not in html


def reinstated() -> State:
    """PLANTED with one memory that a user brought back, and that then went along two relations."""
    mid = next(m.mid for m in PLANTED.history() if PLANTED.standing(m.mid).reason != "EXPIRED")
    state = PLANTED.apply(Update.of(undo.reinstatement(PLANTED, mid, "<b>meant</b> for another drug")))
    first, last = list(state.relations.values())[:2]
    return state.apply(Update.of(cases.commit(state.version, patient=state.patient_id, transitions=[
        archive(mid, "RESOLVED", evidence_rid=last.rid, via=(first.rid,))])))


def test_a_reinstatement_and_the_whole_way_are_shown():
    state = reinstated()
    back, gone = next(m["moves"] for m in content(state)["memories"] if any(t["given"] for t in m["moves"]))[-2:]
    assert (back["words"], back["given"], back["to"]) == ("holds again", "<b>meant</b> for another drug", "ACTIVE")
    mids = list(state.memories)
    assert [[mids[a], mids[b]] for a, b, _ in gone["along"]] == [[r.src, r.dst] for r in list(state.relations.values())[:2]]


# ---- in Chromium ---------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("websocket", reason="websocket-client is not installed (extra `dev`)")
    b = headless.Browser(BINARY)
    yield b
    b.close()


@pytest.fixture
def show(browser, tmp_path):
    """show(state, size) -> an open page; at the end it has asked for nothing but itself and logged nothing."""
    opened = []

    def show(state, size="desktop", **how):
        path = state if not isinstance(state, State) else write_page(state, tmp_path / f"{len(opened)}.html")
        page = browser.open(path.as_uri(), size, **how)
        opened.append((page, path.as_uri()))
        return page

    yield show
    for page, url in opened:
        assert page.errors == [] and {r.split("#")[0] for r in page.requests} == {url}
        page.close()


LOOKS = """(() => Object.fromEntries([...document.querySelectorAll('.item[data-memory]')].map((e) => {
  const shape = e.querySelector('.bar, .tomb');
  return [e.dataset.memory, shape.classList[0] === 'tomb' ? 'deleted' : shape.classList[1]];
})))()"""


def look(page, mode, value):
    """Place -> look of every memory that is drawn, after the slider was moved in a mode."""
    page.js(f"document.querySelector('[name=mode][value={mode}]').click()")
    page.js(f"(() => {{ const s = document.getElementById('slider'); s.value = {value}; s.dispatchEvent(new Event('input')) }})()")
    page.send("Runtime.evaluate", expression="new Promise((d) => requestAnimationFrame(() => requestAnimationFrame(d)))",
              awaitPromise=True)
    return page.js(LOOKS)


def whole(page):
    """The whole time, so that every memory is drawn."""
    page.js("document.getElementById('whole').click()")


@chromium
def test_the_slider_shows_what_was_known(show):
    page = show(PLANTED)
    whole(page)
    mids = list(PLANTED.memories)
    for seq in range(PLANTED.version + 1):
        past = PLANTED.as_of_seq(seq)
        wanted = {}
        for mid, place in past.places.items():
            corrected = place == "HISTORY" and past.standing(mid).reason == "CORRECTED"
            wanted[str(mids.index(mid))] = "never" if corrected else place.lower()
        assert look(page, "seq", seq) == wanted, seq
    said = page.js("document.getElementById('moment').textContent")
    assert f"update {PLANTED.version} of {PLANTED.version}" in said and f"{len(PLANTED.active())} held" in said
    assert len(look(page, "now", 0)) == len(mids)


@chromium
def test_the_slider_shows_what_was_true_on_a_date(show):
    page = show(PLANTED)
    whole(page)
    mids = list(PLANTED.memories)
    first, last = content(PLANTED)["days"]
    names = {"held": "active", "ended": "history", "ahead": "ahead", "uncertain": "perhaps"}
    for day in range(last - 600, last + 5, 55):
        view = PLANTED.as_of_date(dt.date.fromordinal(day).isoformat())
        wanted = {str(mids.index(m.mid)): shown for name, shown in names.items() for m in getattr(view, name)}
        found = look(page, "date", day)
        assert {i: found[i] for i in wanted} == wanted, day
        assert {found[i] for i in found.keys() - wanted.keys()} <= {"never"}
        assert f"{dt.date.fromordinal(day).year}" in page.js("document.getElementById('moment').textContent")
    assert page.js("document.querySelectorAll('#grid .now-line').length") == 1


@chromium
@pytest.mark.parametrize("size", ["desktop", "narrow"])
def test_a_click_shows_what_it_says_why_and_the_quote(show, size):
    page = show(PLANTED, size)
    past = next(m for m in PLANTED.history() if PLANTED.standing(m.mid).evidence_rid)
    i = list(PLANTED.memories).index(past.mid)
    page.click(f'.item[data-memory="{i}"] .bar')
    text = page.js("document.getElementById('panel-body').innerText")
    standing = PLANTED.standing(past.mid)
    successor = PLANTED.memory(standing.successor)
    assert past.text in text and successor.text in text and standing.decided_by in text and "held before" in text
    assert "along the relation" in text
    p = past.provenance[0]
    assert page.js("document.querySelector('#panel-body mark').textContent") == PLANTED.entries[p.entry_key].text[p.start:p.end]
    page.js("document.querySelector('#panel-body mark').scrollIntoView({block: 'center'})")
    assert page.in_view("#panel-body mark")
    page.click(f'#panel-body .moves [data-jump="{list(PLANTED.memories).index(successor.mid)}"]')
    assert page.js("document.querySelector('.statement').textContent") == successor.text
    assert page.js("document.querySelector('.item.chosen').dataset.memory") == str(list(PLANTED.memories).index(successor.mid))
    page.click("#close")
    assert page.js("document.querySelectorAll('.item.chosen').length") == 0


@chromium
def test_the_panel_shows_why_a_memory_was_brought_back_and_each_step_of_the_way(show):
    state = reinstated()
    page = show(state)
    whole(page)
    i = next(i for i, mid in enumerate(state.memories) if any(t.reason == "REINSTATED" for t in state.transitions.get(mid, ())))
    page.js(f"document.querySelector('.item[data-memory=\"{i}\"]').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    text = page.js("document.getElementById('panel-body').innerText")
    assert "holds again" in text and "because: <b>meant</b> for another drug" in text
    assert "along the relation: " in text and "and then: " in text


@chromium
def test_an_entry_shows_all_that_was_remembered_from_it(show):
    page = show(PLANTED)
    page.click('.item[data-entry="0"] .note-dot')
    first = next(iter(PLANTED.entries))
    said = [m.text for m in PLANTED.memories.values() if any(p.entry_key == first for p in m.provenance)]
    found = page.js("[...document.querySelectorAll('#panel-body [data-jump]')].map((e) => e.textContent)")
    assert sorted(found) == sorted(said)
    assert page.js("document.querySelectorAll('#panel-body mark').length") >= len({m for m in said})


@chromium
def test_hostile_text_is_inert_and_quoted_right(show):
    page = show(HOSTILE)
    for i, m in enumerate(HOSTILE.memories.values()):
        page.js(f"document.querySelector('.item[data-memory=\"{i}\"]').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        p = m.provenance[0]
        assert page.js("document.querySelector('#panel-body mark').textContent") == HOSTILE.entries[p.entry_key].text[p.start:p.end]
        shown = page.js("document.querySelector('.statement').textContent")
        assert shown == m.text.replace("\u2028", "\u27e6U+2028\u27e7").replace("\u202e", "\u27e6U+202E\u27e7")
    assert page.js("document.title") == "Patient p<b>1"
    assert page.js("document.querySelectorAll('script').length") == 2 and page.js("document.querySelectorAll('img').length") == 0
    assert "\u202e" not in page.js("document.body.innerText")


@chromium
def test_filters_and_keys(show):
    page = show(PLANTED)
    page.press("/")
    assert page.js("document.activeElement.id") == "find"
    concept = PLANTED.active()[0].concept
    page.js(f"(() => {{ const f = document.getElementById('find'); f.value = {concept!r}; f.dispatchEvent(new Event('input')) }})()")
    page.wait(lambda: page.js("document.querySelectorAll('.lane:not([hidden]) h3 bdi').length") < 5)
    assert all(concept in t.lower() for t in page.js("[...document.querySelectorAll('.lane:not([hidden]) h3 bdi')].map((e) => e.textContent)"))
    page.js("(() => { const f = document.getElementById('find'); f.value = 'nothing of it'; f.dispatchEvent(new Event('input')) })()")
    page.wait(lambda: page.js("!document.getElementById('nothing').hidden"))
    page.js("(() => { const f = document.getElementById('find'); f.value = ''; f.dispatchEvent(new Event('input')) })()")
    page.js("(() => { const k = document.getElementById('kind'); k.value = 'EVENT'; k.dispatchEvent(new Event('change')) })()")
    kinds = [m.kind for m in PLANTED.memories.values()]
    page.wait(lambda: 0 < len(page.js(LOOKS)) <= kinds.count("EVENT"))
    assert all(kinds[int(i)] == "EVENT" for i in page.js(LOOKS))
    page.js("(() => { const k = document.getElementById('kind'); k.value = ''; k.dispatchEvent(new Event('change')); document.getElementById('holds').click() })()")
    page.wait(lambda: set(page.js(LOOKS).values()) == {"active"})
    page.js("document.getElementById('timeline').focus()")
    seen = []
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft"):
        page.press(key)
        seen.append(page.js("document.activeElement.dataset.memory"))
        assert page.js("document.querySelector('.statement').textContent") == list(PLANTED.memories.values())[int(seen[-1])].text
    assert seen[1] == seen[3] and len(set(seen)) >= 3
    page.press("Escape")
    assert page.js("document.querySelectorAll('.statement').length") == 0


@chromium
@pytest.mark.parametrize("state", [PLANTED, HOSTILE], ids=["planted", "hostile"])
def test_nothing_sticks_out_at_360_pixels(show, state):
    page = show(state, "narrow")
    assert page.js("document.documentElement.scrollWidth") <= 360
    page.js("document.querySelector('.item[data-memory=\"0\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert page.js("document.documentElement.scrollWidth") <= 360 and page.in_view("#close")


@chromium
def test_the_graph_is_typed_and_leads_to_lanes(show):
    page = show(PLANTED)
    shown = content(PLANTED)
    lane = [m["lane"] for m in shown["memories"]]
    concepts = {frozenset((shown["lanes"][lane[a]]["concept"], shown["lanes"][lane[b]]["concept"])) for a, b, *_ in shown["relations"]}
    assert page.js("document.querySelectorAll('.node').length") == len({c for pair in concepts if len(pair) > 1 for c in pair})
    joined = {(*sorted((shown["lanes"][lane[a]]["concept"], shown["lanes"][lane[b]]["concept"])), t) for a, b, t, *_ in shown["relations"]
              if shown["lanes"][lane[a]]["concept"] != shown["lanes"][lane[b]]["concept"]}
    assert page.js("document.querySelectorAll('.edge[data-edge]').length") == len(joined)
    types = page.js("[...document.querySelectorAll('.graph .legend [data-type]')].map((e) => Number(e.dataset.type))")
    assert set(types) == set(page.js("[...document.querySelectorAll('.edge[data-edge]')].map((e) => Number(e.classList[1].slice(1)))"))
    page.click(f'[data-type="{types[0]}"]')
    assert page.js(f"[...document.querySelectorAll('.edge.t{types[0]}[data-edge]')].every((e) => getComputedStyle(e).display === 'none')")
    assert page.js("document.querySelectorAll('.edge[data-edge]:not(.off)').length") > 0
    page.click(".node rect")
    name = page.js("document.querySelector('.node').getAttribute('aria-label')")
    assert page.js("document.getElementById('panel-kind').textContent").lower().startswith(name)
    look(page, "seq", 0)
    assert page.js("document.querySelectorAll('.node.absent').length") == page.js("document.querySelectorAll('.node').length")


@chromium
def test_without_a_script_everything_is_listed(show):
    page = show(PLANTED, script=False)
    path = page.js("location.href")
    assert path.endswith(".html") and not page.js("!!document.querySelector('.controls')?.checkVisibility()")
    text = page.js("document.body.innerText")
    for m in PLANTED.memories.values():
        assert m.text in text
    assert "still holds" in text and "held before" in text and "replaced by" in text


@chromium
def test_print_opens_the_list_and_fits_the_paper(show):
    page = show(PLANTED)
    page.js("document.querySelector('#all details').open = false")
    before = page.js("document.querySelectorAll('#all details[open]').length")
    pdf = page.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.7, printBackground=True)
    assert before == 0 and len(pdf["data"]) > 50_000
    page.js("dispatchEvent(new Event('beforeprint'))")
    assert page.js("document.querySelectorAll('#all details[open]').length") == 1
    assert page.js("Math.max(...[...document.querySelectorAll('.lane .bar')].map((e) => e.getBBox().x))") <= 500
    page.js("dispatchEvent(new Event('afterprint'))")
    assert page.js("document.querySelectorAll('#all details[open]').length") == 0


@chromium
def test_what_was_deleted_is_a_mark_without_words(show, tmp_path):
    with Store.open(tmp_path / "store", encoder=cases.HEADER) as store:
        cases.fill(store, cases.planted()[1])
        patient = store.patients()[0]
        gone = store.state(patient).history()[0]
        state = cases.with_tombstone(store, patient)
    assert isinstance(gone, Memory) and gone.text not in json.dumps(content(state), ensure_ascii=False)
    page = show(state)
    whole(page)
    page.wait(lambda: page.js("document.querySelectorAll('.item .tomb').length") == 1)
    page.click(".item .tomb")
    said = page.js("document.getElementById('panel-body').innerText")
    assert "Nothing is left" in said and "erased on request" in said and gone.mid in said


@chromium
def test_the_index_finds_a_patient(show, tmp_path):
    with Store.open(tmp_path / "store", encoder=cases.HEADER) as store:
        cases.fill(store, cases.hostile())
        cases.fill(store, cases.planted()[1])
        page = show(write_index(store, tmp_path / "pages"), "narrow")
    assert page.js("document.documentElement.scrollWidth") <= 360
    page.js("(() => { const f = document.getElementById('find'); f.value = '<B>'; f.dispatchEvent(new Event('input')) })()")
    assert page.js("[...document.querySelectorAll('tbody tr:not([hidden]) a')].map((e) => e.textContent)") == ["p<b>1"]


@chromium
@pytest.mark.parametrize("dark", [False, True])
def test_words_are_readable_in_both_themes(show, dark):
    """Contrast of at least 4.5 between text and what lies under it (WCAG AA)."""
    page = show(PLANTED, dark=dark)
    ratio = page.js("""(() => {
      const probe = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
      const rgb = (c) => { probe.fillStyle = c; probe.fillRect(0, 0, 1, 1); return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3); };
      const light = (c) => { const [r, g, b] = rgb(c).map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
      const style = getComputedStyle(document.documentElement), v = (n) => style.getPropertyValue(n).trim();
      const pairs = [['--ink', '--paper'], ['--muted', '--paper'], ['--muted', '--page'], ['--muted', '--wash'], ['--link', '--paper'],
        ['--holds-ink', '--holds'], ['--past-ink', '--past'], ['--holds', '--paper'], ['--mark-ink', '--mark'], ['--deleted', '--paper']];
      return Object.fromEntries(pairs.map(([a, b]) => { const [x, y] = [light(v(a)), light(v(b))].sort((p, q) => q - p); return [a + b, (x + .05) / (y + .05)]; }));
    })()""")
    assert min(ratio.values()) >= 4.5, ratio


@chromium
@pytest.mark.slow
def test_two_thousand_memories_stay_usable(show, tmp_path):
    path = write_page(cases.state_of(cases.many(2000)), tmp_path / "large.html")
    assert path.stat().st_size < 3_000_000
    begin = time.perf_counter()
    page = show(path)
    assert time.perf_counter() - begin < 30  # seconds, on a machine that does other things too
    page.js("document.querySelector('[value=seq]').click()")
    spent = page.send("Runtime.evaluate", awaitPromise=True, returnByValue=True, expression="""new Promise((done) => {
      const s = document.getElementById('slider'), begin = performance.now();
      s.value = 100; s.dispatchEvent(new Event('input'));
      requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)));
    })""")["result"]["value"]
    assert spent < 5000 and len(page.js(LOOKS)) == 1000
