"""What machines say, and what the memory served, becomes no memory again; what people say beside it does."""
import json
import time
from collections import Counter

import pytest

from core_jax.embed import HashEncoder
from core_jax.engine.scripted import Scripted
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.graph.memory import Entry
from stam_jax.language.writer import LanguageWriter
from stam_jax.read import search as read
from stam_jax.readers import chat
from stam_jax.rules import RulesWriter
from stam_jax.storage.store import Store
from stam_jax.write.ingest import header_of, ingest
from stam_jax.write.normalise import normalise
from stam_jax.write.turns import Heard, machine, recited, served, turns
from stam_jax.write.writer import Draft, Extraction

ENCODER = HashEncoder(48)
RECORD = [("2024-01-10", "Started lisinopril 5 mg daily.\nAllergic to penicillin (hives).\n"),
          ("2024-03-02", "Lisinopril increased to 10 mg daily.\nSoft diet preferred.\n")]
INVENTED = "metformin 850 mg twice daily"


def parrot(request):
    """A model that makes a memory of each line it is shown, and of what it was told elsewhere."""
    system, user = (m["content"] for m in request.prompt)
    if not system.startswith("You turn"):
        return "\n".join(f"N{i} CURRENT" for i in range(1, 30)) if system.startswith("You decide") else ""
    lines = [line.strip() for line in user.split("\n")[3:-1]] + [f"Takes {INVENTED}.", "Started lisinopril 5 mg daily."]
    return "\n".join(f'- STATE | thing {i} | status | - | AFFIRMED | PATIENT | - | "{line}" | {line}'
                     for i, line in enumerate(lines) if line)


def shown(writer):
    return "\n".join(m["content"] for r in writer._backend.requests for m in r.prompt[1:]
                     if r.prompt[0]["content"].startswith("You turn"))


WRITERS = {"rules": RulesWriter, "local": lambda: LanguageWriter(Scripted(parrot)),
           "api": lambda: LanguageWriter(Scripted(parrot), scored=False, constrained=False)}


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store", encoder=header_of(ENCODER), check=True) as s:
        ingest(s, [Entry.of("P1", f"n{i}", "note", text, date=date) for i, (date, text) in enumerate(RECORD)],
               RulesWriter(), ENCODER)
        assert len(s.state("P1").history()) == 1
        yield s


@pytest.fixture
def packet(store):
    found = read.search(*read.snapshot(store, "P1"), ENCODER.encode(["lisinopril"])[0], ReadConfig(spans=True))
    text = read.packet(found, "BOTH", ReadConfig(spans=True)).text
    assert "(past: superseded by" in text and "penicillin" in text and "source:" in text
    return text


def known(state):
    return {m.mid: (m.store, m.provenance, m.flags) for m in state.memories.values()}


@pytest.mark.parametrize("name", WRITERS)
def test_served_memories_in_an_assistants_turn_do_not_come_back(store, packet, name, tmp_path):
    before, writer = known(store.state("P1")), WRITERS[name]()
    (tmp_path / "P1.json").write_text(json.dumps({"date": "2024-04-01", "messages": [
        {"role": "system", "content": f"You are a clinic's helper. The patient takes {INVENTED}."},
        {"role": "user", "content": "What do I take?"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "recall"}}]},
        {"role": "tool", "content": packet},
        {"role": "assistant", "content": f"{packet} You take {INVENTED}. Do you have a cough?"},
        {"role": "user", "content": "Yes, I do."}]}), encoding="utf-8")
    left_out = Counter()
    entries = list(chat.read(tmp_path / "P1.json", left_out))
    assert left_out == {"system_turn": 1, "tool_turn": 2} and INVENTED in entries[0].text
    report = ingest(store, entries, writer, ENCODER)
    after = known(store.state("P1"))
    assert report.problems["assistant_turn"] == 1 and {mid: after[mid] for mid in before} == before
    assert not report.transitions and not report.memories["confirmed"] and not store.verify()
    news = [store.state("P1").memories[mid] for mid in after.keys() - before.keys()]
    said = [m.text for m in news]
    if name == "rules":
        assert [(m.concept, m.polarity) for m in news] == [("cough", "AFFIRMED")]
    else:
        assert sorted(said) == ["Patient: What do I take?", "Patient: Yes, I do."]
        assert INVENTED not in shown(writer) and "isinopril" not in shown(writer)
        assert "Do you have a cough?" in shown(writer) and report.problems["machine_draft"] >= 2


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("date", [None, "2024-04-01"])
def test_a_packet_that_is_remembered_adds_nothing(store, packet, name, date):
    before = known(store.state("P1"))
    for i, text in enumerate((packet, "From memory:\n- " + packet.replace("\n", "\n- ") + "end",
                              json.dumps([{"memory_id": m.mid, "text": m.text}
                                          for m in store.state("P1").memories.values()], indent=1))):
        report = ingest(store, [Entry.of("P1", f"r{i}", "note", text, date=date)], WRITERS[name](), ENCODER)
        fresh = [m.text for m in store.state("P1").memories.values() if m.mid not in before]
        assert not any("lisinopril" in t.lower() or "penicillin" in t.lower() for t in fresh), fresh
        assert not report.transitions and not report.memories["confirmed"] and report.problems["served_draft"]
    after = known(store.state("P1"))
    assert {mid: after[mid] for mid in before} == before and not store.verify()


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("role", ["assistant", "AI", "system", "tool"])
def test_an_entry_by_a_machine_is_kept_and_read_by_no_writer(store, name, role):
    before, writer = known(store.state("P1")), WRITERS[name]()
    said = Entry.of("P1", "r", "dialogue", f"You take {INVENTED}.\nAny pain?", date="2024-04-01", author_role=role)
    report = ingest(store, [said], writer, ENCODER)
    assert report.entries["admitted"] == 1 and known(store.state("P1")) == before
    assert name == "rules" or not writer._backend.requests


@pytest.mark.parametrize("name", WRITERS)
def test_a_clinician_beside_an_assistant_is_heard(store, name):
    text = "Doctor: Stop lisinopril today.\nAssistant: Noted, lisinopril is stopped. Penicillin allergy is resolved.\n"
    report = ingest(store, [Entry.of("P1", "d", "dialogue", text, date="2024-04-01")], WRITERS[name](), ENCODER)
    state = store.state("P1")
    news = [m for m in state.memories.values() if state.entries[m.provenance[0].entry_key].source_id == "d"]
    assert len(news) == 1 and "Stop lisinopril" in news[0].text
    assert ("RESOLVED" in report.transitions) == (name == "rules")


def test_the_same_words_of_a_person_are_no_repetition(store):
    """A dated note that says again what a memory says confirms it; a line with a date of its own is not a packet's."""
    report = ingest(store, [Entry.of("P1", "n", "note", "Lisinopril increased to 10 mg daily.", date="2024-05-01"),
                            Entry.of("P1", "m", "note", "[2024-05-02] Potassium 4.1 mmol/L.", date="2024-05-02")],
                    RulesWriter(), ENCODER)
    assert report.memories == {"inserted": 1, "confirmed": 1, "prior": 0} and "served_draft" not in report.problems


# ---- whose words ------------------------------------------------------------------------------------------------

def of(text, *, kind="dialogue", author="unknown"):
    return Entry.of("p", "s", kind, text, author_role=author)


@pytest.mark.parametrize("text, kind, author, found", [
    ("Patient: a\nAssistant: b\nPatient: c", "dialogue", "unknown", [("assistant", "Assistant: b")]),
    ("**Assistant:** b\n- Metformin: 850 mg\n\nAllergies: none\nDr. Lee Ann: d", "note", "unknown",
     [("assistant", "**Assistant:** b\n- Metformin: 850 mg\n\nAllergies: none")]),
    ("Assistant: b\nAlice: c", "dialogue", "dialogue", [("assistant", "Assistant: b")]),
    ("System: x\nTool: y\nUser: z", "dialogue", "unknown", [("system", "System: x"), ("tool", "Tool: y")]),
    ("System: cardiovascular\nMurmur.", "note", "unknown", []),
    ("an assistant: helped\nPatient: ok", "dialogue", "unknown", []),
    ("a\nPatient: b\nc", "note", "ai_assistant", [("assistant", "a")]),
])
def test_whose_turn_it_is(text, kind, author, found):
    e = of(text, kind=kind, author=author)
    assert [(who, e.text[a:b]) for who, a, b in turns(e)] == found


@pytest.mark.parametrize("helper", [
    "ASSISTANT: B. Jones, PA", "Assistant: None.", "ASSISTANT:\n___, M.D.", "ASSISTANT: Smith",
    "ASSISTANT:  [**First Name8 (NamePattern2) **] [**Last Name**], M.D.", "Assistant: john smith, pa-c",
    "Assistant:", "- Assistant: You take metformin."])
def test_who_helped_in_an_operation_says_nothing(helper):
    e = of(f"SURGEON: Dr. A. Smith\nPATIENT: John Doe\n{helper}\nALLERGIES: Penicillin (hives).\n", kind="note")
    assert turns(e) == [] and "Penicillin" in Heard.of(e).record


@pytest.mark.parametrize("said", ["You take metformin.", "Noted.", "\nYou take metformin.", "Is it so?", "&",
                                  "start with 5 mg"])
def test_an_assistant_in_a_note_is_a_machine(said):
    e = of(f"Assistant: {said}\nMetformin 5 mg.", kind="note")
    assert [who for who, *_ in turns(e)] == ["assistant"] and "Metformin" not in Heard.of(e).record


@pytest.mark.parametrize("before", ["", "\ufeff", "\u200b", "\xa0", "> ", "- ", "1. ", "### ", "[10:32] ", "10:32 AM ",
                                    "2024-01-01T10:32:00Z ", "(00:01:23) "])
@pytest.mark.parametrize("name", ["Assistant:", "assistant :", "**Assistant:**", "[Assistant]:", "Assistant\uff1a",
                                  "Assistant\u200b:", "Assistant (AI):", "Assistant [10:32]:", "ChatGPT:"])
def test_labels_of_transcripts(before, name):
    e = of(f"Patient: Hello.\n{before}{name} You take warfarin.\nmore\n[10:33] Patient: I take aspirin.\n")
    ((who, start, end),) = turns(e)
    assert who == "assistant" and e.text[start:end] == f"{before}{name} You take warfarin.\nmore"


@pytest.mark.parametrize("end", "\n \r \v \f \x1c \x1e \x85 \u2028 \u2029".split(" "))
def test_a_label_begins_whatever_ends_a_line(end):
    e = of(f"Patient: Hello.{end}Assistant: You take warfarin.{end}Patient: No.")
    assert [e.text[a:b] for _, a, b in turns(e)] == ["Assistant: You take warfarin."]


@pytest.mark.parametrize("role, who", [
    ("Assistant", "assistant"), ("\uff21ssistant", "assistant"), ("assist\u200bant", "assistant"), ("System", "system"),
    ("AI-assistant", "assistant"), ("TOOL_RESULT", "tool"), ("function-call", "tool"), ("assistant surgeon", None),
    ("", None)])
def test_roles(role, who):
    assert machine(role) == who


@pytest.mark.parametrize("text", [" " * 50000, "*" * 50000, "1" * 50000, "assistant " * 5000, "Dr" + " A" * 25000])
def test_long_lines_are_read_at_once(text):
    began = time.process_time()
    turns(of(f"tool\n{text}"))
    assert time.process_time() - began < 2


def test_what_is_shown_has_the_same_places_and_only_questions():
    e = of("Patient: hi\nAssistant: It is 5.5 mg. Is it 5.5 mg now? Good.\nSystem: why?\nPatient: yes\n")
    h = Heard.of(e)
    assert h.entry.text == ("Patient: hi\n" + " " * 25 + "Is it 5.5 mg now?" + " " * 6 + "\n" + " " * 12
                            + "\nPatient: yes\n")
    assert h.record.split() == ["Patient:", "hi", "Patient:", "yes"] and len(h.record) == len(e.text)
    assert h.counters == {"assistant_turn": 1, "system_turn": 1}
    plain = of("Patient: hi")
    assert Heard.of(plain) == Heard(plain)


@pytest.mark.parametrize("quote, kept", [
    ("850 mg", True), ("you take 850 mg?", False), ("take 850 mg?\nPatient: Yes", True), ("take 850 mg?\nPatient", False),
    ("metformin is good", False), ("not there at all", False), ("850 mg.\nAssistant: metformin", False)])
def test_a_quote_is_a_persons_or_reaches_into_an_answer(quote, kept):
    e = of("Assistant: Do you take 850 mg?\nPatient: Yes, 850 mg.\nAssistant: metformin is good.")
    news, counters = normalise(e, Extraction((Draft("s", quote),)), WriteConfig(), Heard.of(e))
    if not kept:
        assert not news and counters == {"machine_draft": 1}
        return
    (p,), = (m.provenance for m in news)
    assert p.verified and p.holds(e) and (p.start, p.end) == (e.text.rindex(quote), e.text.rindex(quote) + len(quote))


def test_what_a_person_says_first_elsewhere_is_found_there():
    e = of("Assistant: 850 mg.\nPatient: I take 850 mg.")
    news, _ = normalise(e, Extraction((Draft("s", "850 mg"),)), WriteConfig(), Heard.of(e))
    assert news[0].provenance[0].start == e.text.rindex("850 mg")


def test_recited_needs_every_line(store, packet):
    state = store.state("P1")
    texts = [m.text for m in state.memories.values()]
    assert recited("\n- ".join(["", *texts]), state) and recited(packet, state) and recited(texts[0].upper(), state)
    assert not recited(f"{texts[0]}\nNew words.", state) and not recited(" \n", state)
    assert served(of("x"), [], state) == set()
