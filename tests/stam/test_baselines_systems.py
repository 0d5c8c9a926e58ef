"""Other memory systems in their own interpreter: what each adapter asks of its package, that patients stay apart, that
nothing is lost unnoticed, and what is said of a bad installation."""
import json
import re
import sys
import textwrap
from collections import Counter

import numpy as np
import pytest
from memory_cases import entry
from system_cases import install

from core_jax.embed import HashEncoder
from stam_jax.baselines import endpoint, external, installed
from stam_jax.cli import main
from stam_jax.write.writer import Draft, Extraction

ENTRIES = [entry("Lisinopril 10 mg daily. Potassium 4.1.", date="2024-01-01"),
           entry("Lisinopril 20 mg daily.", date="2024-02"),
           entry("FAIL on this one.", date="2024-03-01"),
           entry("Metformin 500 mg.", patient="p10"),
           entry('Odd: {"made": 9}\n\u2028 "quoted" \N{SNOWMAN} back\\slash.', patient="p3")]


def opened(name, folder, python=sys.executable):
    site = installed.Site("http://127.0.0.1:1/v1", "m", "e", 8, str(folder))
    return external.Installed(name, python, site, Counter())


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to run in, with a folder for a system's files beside it."""
    (tmp_path / "files").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("OPENROUTER_API_KEY", "k")
    return tmp_path


@pytest.mark.parametrize("name, title, made", [("mem0", "mem0 2.2.1", 5), ("amem", "a-mem 0.2.6", 4),
                                               ("memos", "memos 2.0.33", 5)])
def test_adapter(place, name, title, made):
    install(place / "here")
    system = opened(name, place / "files")
    assert system.name == title
    filled = external.fill(system, ENTRIES)
    assert filled == {"entries": 5, "memories": made, "empty": 1} and system.lost == {"add: KeyError": 1}
    best = system.search("p1", "potassium 4.1", 1)
    assert len(best) == 1 and "Potassium 4.1" in best[0].text
    assert (best[0].date, best[0].entry_key) == ("2024-01-01", ENTRIES[0].entry_key)
    assert {line.entry_key for line in system.search("p1", "potassium", 99)} == {e.entry_key for e in ENTRIES[:2]}
    assert [line.entry_key for line in system.search("p10", "potassium", 9)] == [ENTRIES[3].entry_key]
    assert [(line.text, line.date) for line in system.search("p10", "x", 9)] == [(
        "Metformin 500 mg." if name == "amem" else "Metformin 500 mg", ENTRIES[3].date)]
    odd = system.search("p3", "odd", 9)
    assert [line.text.rstrip(".") for line in odd] == [ENTRIES[4].text.rstrip(".")]
    assert system.search("p2", "potassium", 9) == [] and system.lost == {"add: KeyError": 1}
    system.close()
    system.close()


def test_a_search_that_fails_is_counted(place):
    install(place / "here")
    system = opened("amem", place / "files")
    assert external.fill(system, ENTRIES[2:3])["empty"] == 1  # the note was lost, the patient's memory is there
    assert system.search("p1", "potassium", 3) == []
    assert system.lost == {"add: KeyError": 1, "search: LookupError": 1}
    system.close()


_, begins, rest = installed.__doc__.partition("    class Notes:\n")
ADAPTER = textwrap.dedent(begins + rest.partition("\nWhatever")[0]) + '''

def ends(site):
    import os
    import sys
    notes = Notes(site)
    notes.search = lambda *a: (print("out of room", file=sys.stderr, flush=True), os._exit(3))
    return notes


def breaks(site):
    raise OSError(28, "no space")


def wrong(site):
    return site.nothing


def nameless(site):
    notes = Notes(site)
    notes.name = 3
    return notes


def odd(site):
    notes = Notes(site)
    made, found = iter([None, "3", -1, True, [], float("nan"), 2]), iter([
        None, "text", [None, 3, {}, {"text": None}, {"text": " "}, {"text": "\\ud800"}, {"text": "a", "date": 3},
                       {"text": "b", "entry_key": []}, {"text": "c"}]])
    notes.add, notes.search = lambda entry: next(made), lambda *a: next(found)
    return notes


def leaks(site):
    notes = Notes(site)
    notes.search = lambda who, question, most: [e for own in notes.kept.values() for e in own]
    return notes
'''


def test_an_adapter_of_ones_own(place):
    (place / "here" / "notes.py").write_text(ADAPTER)
    system = opened("notes:Notes", place / "files")
    assert system.name == "notes 1.0" and external.fill(system, ENTRIES)["memories"] == 5 and not system.lost
    assert system.search("p1", "potassium", 1) == [external.Line(ENTRIES[0].text, "2024-01-01", ENTRIES[0].entry_key)]
    assert [line.entry_key for line in system.search("p10", "potassium", 9)] == [ENTRIES[3].entry_key]
    system.close()


def test_nonsense_of_an_adapter_is_counted(place):
    (place / "here" / "notes.py").write_text(ADAPTER)
    system = opened("notes:odd", place / "files")
    assert [system.add(ENTRIES[0]) for _ in range(7)] == [0] * 6 + [2]
    assert [system.search("p1", "x", 9) for _ in range(3)] == [[], [], [external.Line("c")]]
    assert system.lost == {"add: gave no count": 6, "search: gave no line": 10}
    system.close()


def test_lines_of_another_patient_are_left_out_and_counted(place):
    (place / "here" / "notes.py").write_text(ADAPTER)
    system = opened("notes:leaks", place / "files")
    external.fill(system, ENTRIES)
    assert [line.entry_key for line in system.search("p10", "x", 9)] == [ENTRIES[3].entry_key]
    assert system.lost == {"search: gave another patient's line": 4}
    system.close()


def test_a_process_that_ends_is_told(place):
    (place / "here" / "notes.py").write_text(ADAPTER)
    system = opened("notes:ends", place / "files")
    system.add(ENTRIES[0])
    with pytest.raises(ValueError, match=r"notes:ends: its process ended \(3\): out of room"):
        system.search("p1", "potassium", 1)
    with pytest.raises(ValueError, match="its process ended"):
        system.add(ENTRIES[1])
    system.close()


@pytest.mark.parametrize("name, said", [
    ("mem1", "--system mem1: expected mem0, amem, memos or MODULE:FACTORY"),
    ("notes:", "expected mem0, amem, memos or MODULE:FACTORY"),
    ("nowhere:factory", "nowhere cannot be imported by"),
    ("notes:absent", "notes has no absent"),
    ("notes:breaks", "OSError: [Errno 28] no space"),
    ("notes:wrong", "AttributeError: 'Site' object has no attribute 'nothing'"),
    ("notes:nameless", "--system notes:nameless: name: got int 3, expected a string"),
])
def test_what_cannot_be_opened_is_told(place, name, said):
    (place / "here" / "notes.py").write_text(ADAPTER)
    with pytest.raises(ValueError, match=re.escape(said)):
        opened(name, place / "files")


def test_an_interpreter_that_is_none_is_told(place):
    with pytest.raises(ValueError, match="--system-python /nowhere/python: No such file"):
        opened("mem0", place / "files", "/nowhere/python")
    with pytest.raises(ValueError, match=r"its process ended \(0\): it said nothing"):
        opened("mem0", place / "files", "/bin/true")
    with pytest.raises(ValueError, match="--system mem0: /bin/echo said .*expected an answer"):
        opened("mem0", place / "files", "/bin/echo")


@pytest.mark.parametrize("name, module, packages", [
    ("mem0", "mem0", "'mem0ai>=2.2,<3' there (extra mem0)"), ("amem", "agentic_memory", "'a-mem>=0.2.6' there"),
    ("memos", "memos", "'MemoryOS' 'qdrant-client' there")])
def test_a_missing_package_is_named(place, name, module, packages):
    (place / "here" / f"{module}.py").write_text(f"raise ModuleNotFoundError('absent', name='{module}')")
    with pytest.raises(ValueError, match=f"--system {name}: {module} is not installed for ") as e:
        opened(name, place / "files")
    assert f"pip install {packages}, or name another interpreter with --system-python" in str(e.value)


def test_another_project_of_the_same_name_is_not_taken_for_it(place):
    install(place / "here")
    system = place / "here" / "agentic_memory" / "memory_system.py"
    system.write_text(system.read_text().replace('storage_path: str = "./chroma_db",', ""))
    with pytest.raises(ValueError, match="cannot be kept apart; a-mem >= 0.2.6 can"):
        opened("amem", place / "files")
    system.unlink()
    with pytest.raises(ValueError, match="agentic_memory.memory_system is not installed for .*'a-mem>=0.2.6'"):
        opened("amem", place / "files")


# ---- the endpoint that stands in for their models ------------------------------------------------------------------

class Reads:
    """A writer whose drafts are the sentences of an entry."""

    def extract(self, entries):
        return [Extraction(tuple(Draft(s + ".", s + ".", concept=s.split()[-1], attribute="status")
                                 for s in e.text.rstrip(".").split(". ") if s)) for e in entries]


SAID = "Takes aspirin. Has asthma."
MEM0_ASKS = ("## Summary\n\n\n## Existing Memories\n[]\n\n## New Messages\nuser: " + SAID + "\n\n\n"
             "## Observation Date\n2024-01-01\n\n# Output:")
MEMOS_ASKS = ("Example:\nConversation:\nuser: Hi!\n\nOutput:\n{}\n\nAlways respond in the same language as the "
              "conversation.\n\nConversation:\nuser:" + SAID + "\n\nYour Output:")
AMEM_ASKS = ("Generate a structured analysis of the following content by:\n            1. Keywords\n\n"
             "            Content for analysis:\n            " + SAID)


def test_endpoint_reads_the_new_text_only():
    def said(prompt):
        return json.loads(endpoint.answer(Reads(), prompt))

    assert [m["text"] for m in said(MEM0_ASKS)["memory"]] == ["Takes aspirin.", "Has asthma."]
    got = said(MEMOS_ASKS)["memory list"]
    assert [m["value"] for m in got] == ["Takes aspirin.", "Has asthma."]
    assert set(got[0]) == {"key", "memory_type", "value", "tags"}
    assert said(AMEM_ASKS) == {"keywords": ["aspirin", "asthma"], "tags": ["status"], "context": SAID}
    assert said(AMEM_ASKS.replace(SAID, "")) == {"keywords": [], "tags": [], "context": "General"}
    evolves = said("\n        You are an AI memory evolution agent responsible for notes.\n        content: " + SAID)
    assert evolves["should_evolve"] is False and len(evolves) == 6
    for text in ("hello", SAID, "Conversation:\nuser:" + SAID):
        with pytest.raises(ValueError, match="no memory system"):
            endpoint.answer(Reads(), text)


def test_endpoint_serves_a_model_and_an_encoder():
    openai = pytest.importorskip("openai")
    pytest.importorskip("uvicorn")
    encoder = HashEncoder(64)
    with endpoint.serving(Reads(), encoder) as served:
        client = openai.OpenAI(base_url=served.url, api_key="none", max_retries=0)
        said = client.chat.completions.create(model=endpoint.NAME, messages=[{"role": "user", "content": MEM0_ASKS}])
        assert json.loads(said.choices[0].message.content)["memory"][0]["text"] == "Takes aspirin."
        assert served.asked == {"calls": 1, "words read": len(MEM0_ASKS.split()),
                                "words said": len(said.choices[0].message.content.split())}
        with pytest.raises(openai.APIStatusError, match="no memory system"):
            client.chat.completions.create(model=endpoint.NAME, messages=[{"role": "user", "content": "hello"}])
        row = client.embeddings.create(model="encoder", input=["aspirin"], encoding_format="float").data[0].embedding
        assert np.allclose(row, encoder.encode(["aspirin"])[0], atol=1e-6)


# ---- stam bench --system -------------------------------------------------------------------------------------------

def test_bench_refuses_what_it_cannot_open(place, capsys):
    pytest.importorskip("uvicorn")
    (place / "here" / "mem0.py").write_text("raise ModuleNotFoundError('absent', name='mem0')")
    run = ["bench", "--out", str(place / "tables"), "--set", "encoder=hash:16", "--patients", "1", "--suite"]
    for more, said in ((["planted", "--system", "mem0"], "pip install 'mem0ai>=2.2,<3'"),
                       (["planted", "--system", "mem1"], "--system mem1: expected mem0"),
                       (["planted", "--system", "mem0", "--system-python", "/nowhere"], "--system-python /nowhere"),
                       (["cascade", "--system", "mem0"], "only the suite planted")):
        assert main(run + more) == 2
        assert said in capsys.readouterr().err
    assert not (place / "tables").exists()
