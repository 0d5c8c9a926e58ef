"""The `stam` command: a clinical memory that knows what still holds. Results on stdout, logs and progress on stderr.

Exit codes: 0 done; 1 `verify` found violations; 2 bad input (one line on stderr says which file, line and field);
130 interrupted. This module imports no jax, so that `--help` is quick; the steps are in `stam_jax.commands`.
"""
from __future__ import annotations

import argparse

from core_jax import command

FORMATS = ("text", "chat", "patients", "mimic_iv", "memory_bench", "locomo", "planted")
EXAMPLES = {
    "demo": """examples:
  stam demo --out runs/demo/memory                             # planted patients, their pages, questions answered
  stam demo --out runs/demo/memory --input patients.jsonl      # and the first dozen of your own""",
    "ingest": """examples:
  stam ingest --store memory/ --format text --input records/                # records/<patient>/<date>_<kind>.txt
  stam ingest --store memory/ --format patients --input patients.jsonl      # the records that `evigen cohort jsonl` reads
  stam ingest --store memory/ --format mimic_iv --input mimic-iv-3.1/       # tables, rendered; no extraction needed
  stam ingest --store memory/ --format chat --input chat.json --writer smollm2
  stam ingest --store memory/ --format text --input records/ --writer http://127.0.0.1:8000/v1#name
Killed? Run it again: entries that were committed are left as they are.""",
    "show": """examples:
  stam show --store memory/ --patient P1                       # what holds, and what held
  stam show --store memory/ --patient P1 --as-of-seq 4         # what was known after update 4
  stam show --store memory/ --patient P1 --as-of-date 2020-03  # what was true then
  stam show --store memory/                                    # the patients of a store""",
    "timeline": """examples:
  stam timeline --store memory/ --patient P1 --out P1.html
  stam timeline --store memory/ --out pages/                   # a page for every patient, and an index""",
    "diff": """example:
  stam diff --store memory/ --patient P1 --from 3 --to 7       # what updates 4 to 7 changed""",
    "search": """example:
  stam search --store memory/ --patient P1 --query "blood thinner" --most 5""",
    "answer": """examples:
  stam answer --store memory/ --patient P1 --question "What is the current dose of metformin?"
  stam answer --store memory/ --patient P1 --question "..." --arm active --reader smollm2""",
    "why": """example:
  stam why --store memory/ --patient P1 --memory mABCDEFGHIJKLMNOP""",
    "verify": """example:
  stam verify --store memory/                                  # every invariant, from the rows on disk""",
    "reprocess": """example:
  stam reprocess --store memory/ --patient P1 --entry eABCDEFGHIJKLMNOP       # an entry on which a writer failed""",
    "revert": """examples:
  stam revert --store memory/ --patient P1 --seq 7             # takes back update 7, keeps both in the journal
  stam revert --store memory/ --patient P1 --seq 7 --cascade   # and what was built on it""",
    "reinstate": """example:
  stam reinstate --store memory/ --patient P1 --memory mABCDEFGHIJKLMNOP --why 'another drug was stopped'""",
    "metrics": """examples:
  stam metrics --store memory/                                 # counts by place, reason and type, ages, sizes
  stam metrics --store memory/ --patient P1""",
    "erase": """examples:
  stam erase --store memory/ --patient P1 --memory mABCDEFGHIJKLMNOP --yes
  stam erase --store memory/ --patient P1 --yes                # the whole patient; no text of it stays on disk""",
    "export": """examples:
  stam export --store memory/ --patient P1 --as jsonl --out P1.jsonl
  stam export --store memory/ --patient P1 --as graphml --out P1.graphml      # or dot""",
    "gate": """examples:
  stam gate replay --store memory/ --questions questions.jsonl --out replay.jsonl
  stam gate report --replay replay.jsonl --cues --model qwen3-4b     # cross-fitted over patients, by price of a prompt
  stam gate fit --replay replay.jsonl --out gate.json --lambda 0.05
  stam gate report --replay others.jsonl --gate gate.json            # as it stands, on patients it has not seen""",
    "delete": """examples:
  stam delete calibrate --store memory/ --labels labels.csv --alpha 0.01 --out calibration.json
  stam delete calibrate --store memory/ --labels labels.csv --unit patient --out calibration.json  # many patients
  stam delete plan --store memory/ --calibration calibration.json             # what would go; changes nothing
  stam delete apply --store memory/ --calibration calibration.json --id <id that calibrate printed>
  stam delete label --store memory/ --timelines planted/timelines.jsonl --out labels.csv           # planted patients""",
    "planted": """example:
  stam planted --out planted/ --patients 20                    # timelines.jsonl with gold, and questions.jsonl
  stam ingest --store memory/ --format planted --input planted/timelines.jsonl""",
    "lessons": """examples:
  stam lessons write --out lessons/                            # extract.jsonl, link.jsonl, update.jsonl; _val and _test beside them
  python launch/run.py --config=configs/stam_writer.py --set=data.train=lessons/link.jsonl --set=data.val=lessons/link_val.jsonl --out=runs/link
  stam lessons score --writer rules --most 200                 # on the test part
  stam lessons score --writer smollm2 --adapters adapters/ --stage link --most 50""",
    "bench": """examples:
  stam bench --out bench/                                      # every suite that finds its data, with the rules writer
  stam bench --suite planted,cascade --patients 50 --out bench/
  stam bench --suite memory_bench --input MedMemoryBench/ --noise --reader smollm2 --judge openai:name --out bench/
  stam bench --suite locomo --input locomo10.json --out bench/
  stam bench --suite clinical_bench --input clinicalbench/ --judge openai:name --out bench/""",
    "serve": """examples:
  stam serve --store memory/                                   # http://127.0.0.1:8010/docs
  stam serve --store memory/ --host 0.0.0.0 --key-env STAM_KEY
  stam serve --store memory/ --gate gate.json                  # serves past memories where the gate expects that they matter""",
    "mcp": """example:
  stam mcp --store memory/ --patient P1                        # over stdio, for an agent that looks after P1""",
}
RESUMED = ("demo", "ingest", "bench")


def parser() -> argparse.ArgumentParser:
    """The whole command line. docs tests walk it."""
    top = argparse.ArgumentParser(prog="stam", description="A clinical memory that keeps what holds apart from what held.",
                                  formatter_class=argparse.RawDescriptionHelpFormatter,
                                  epilog="Begin with: stam demo; then stam ingest, stam show, stam timeline, stam answer.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, help: str, *, store: bool = True, patient: bool | None = True) -> argparse.ArgumentParser:
        """patient: True = required, False = may be left out, None = no such flag."""
        p = commands.add_parser(name, help=help, description=help, epilog=EXAMPLES[name],
                                formatter_class=argparse.RawDescriptionHelpFormatter)
        if store:
            p.add_argument("--store", required=True, metavar="STORE", help="folder of the memory")
        if patient is not None:
            p.add_argument("--patient", required=patient, metavar="ID", help="the patient's id, exactly as it was ingested")
        settings(p)
        return p

    def settings(p: argparse.ArgumentParser) -> None:
        p.add_argument("--config", metavar="FILE.py", help="settings file with get_config() -> stam_jax.config.Config")
        p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one setting, e.g. write.budget=24")
        p.add_argument("--quiet", action="store_true", help="no progress bars, warnings only")

    def out(p: argparse.ArgumentParser, help: str, required: bool = True) -> None:
        p.add_argument("--out", required=required, metavar="PATH", help=help)

    def writer(p: argparse.ArgumentParser) -> None:
        p.add_argument("--writer", default="rules", metavar="WRITER", help="what extracts, links and updates: rules (no model), a Hugging Face "
                       "folder, a .gguf file, smollm2, URL#name or openai:name (default rules)")
        p.add_argument("--adapters", metavar="DIR", help="folder with the LoRA adapters extract/, link/, update/ of a local writer")

    def reader(p: argparse.ArgumentParser) -> None:
        p.add_argument("--reader", default="extractive", metavar="READER", help="what answers: extractive (no model), or a model as for --writer "
                       "(default extractive)")

    def by_gate(p: argparse.ArgumentParser) -> None:
        p.add_argument("--gate", metavar="FILE",
                       help="gate written by `stam gate fit`: answers that name no arm are served by it")

    def as_of(p: argparse.ArgumentParser) -> None:
        group = p.add_mutually_exclusive_group()
        group.add_argument("--as-of-seq", type=int, metavar="N", help="what the memory knew after update N")
        group.add_argument("--as-of-date", metavar="DATE", help="what was true on a date, by all that is known now")

    p = add("demo", "a memory of sample patients, their pages, and questions answered from it", store=False, patient=None)
    p.add_argument("--input", metavar="FILE", help="patient records (as --format patients) to remember beside the planted ones")
    p.add_argument("--most", type=int, default=12, help="patients read from --input (default 12)")
    out(p, "folder")

    p = add("ingest", "read dated entries into the memory", patient=False)
    p.add_argument("--input", required=True, metavar="PATH", help="file or folder to read")
    p.add_argument("--format", required=True, choices=FORMATS, help="what --input holds")
    writer(p)
    p.add_argument("--wave", type=int, default=64, help="patients that are worked on side by side (default 64); results do not depend on it")
    p.add_argument("--shards", type=int, help="files of a new store (default 1)")

    p = add("show", "what holds and what held, of one patient; without --patient, the patients", patient=False)
    as_of(p)
    p.add_argument("--json", action="store_true", help="as JSON instead of lines to read")

    p = add("timeline", "offline pages: one a patient, and an index", patient=False)
    out(p, "the page's file (with --patient), or a folder")

    p = add("diff", "what changed between two updates")
    p.add_argument("--from", dest="from_", type=int, required=True, metavar="N", help="the older update, 0 = before the first")
    p.add_argument("--to", type=int, required=True, metavar="N", help="the newer update")

    p = add("search", "the memories nearest to a question, in both stores")
    p.add_argument("--query", required=True, metavar="TEXT")
    p.add_argument("--most", type=int, default=10, help="memories shown (default 10)")
    as_of(p)

    p = add("answer", "answer a question over the memory")
    p.add_argument("--question", required=True, metavar="TEXT")
    p.add_argument("--arm", default="both", choices=["both", "active", "gate"], help="serve past memories too, only what holds, or let the gate "
                   "decide (default both)")
    p.add_argument("--gate", metavar="FILE", help="gate written by `stam gate fit` (for --arm gate)")
    reader(p)
    as_of(p)

    p = add("why", "where a memory came from, and each move with its reason")
    p.add_argument("--memory", required=True, metavar="MID")

    add("verify", "check every invariant from the rows on disk", patient=False)

    p = add("reprocess", "try an entry again on which a writer failed")
    p.add_argument("--entry", required=True, metavar="KEY", help="the entry's key, as `stam show` prints it")
    writer(p)

    p = add("revert", "take back an update by a compensating one")
    p.add_argument("--seq", type=int, required=True, metavar="N", help="the update")
    p.add_argument("--cascade", action="store_true", help="take back later updates that build on it too")

    p = add("reinstate", "say that a memory in history, archived wrongly, holds after all")
    p.add_argument("--memory", required=True, metavar="MID")
    p.add_argument("--why", required=True, metavar="TEXT", help="the reason; it stays with the memory, and is erased with it")

    add("metrics", "what a memory consists of: counts by place, reason and type, ages, sizes", patient=False)

    p = add("erase", "delete at a user's request, and leave no text of it on disk")
    p.add_argument("--memory", action="append", metavar="MID", help="this memory (may be repeated); without it the whole patient")
    p.add_argument("--yes", action="store_true", help="do it; without this flag it only says what would go")

    p = add("export", "one patient's memory in another form")
    p.add_argument("--as", dest="form", required=True, choices=["jsonl", "graphml", "dot"])
    out(p, "file")

    p = add("gate", "when is history served? fit and report the gate", store=False, patient=None)
    p.add_argument("action", choices=["replay", "fit", "report"])
    p.add_argument("--store", metavar="STORE", help="replay: folder of the memory")
    p.add_argument("--questions", metavar="FILE", help="replay: JSON Lines of patient_id, question, answers, type")
    p.add_argument("--reader", default="extractive", metavar="READER", help="replay: extractive, or a model (default extractive)")
    p.add_argument("--judged", action="store_true", help="replay: score answers right or wrong instead of by token F1")
    p.add_argument("--replay", metavar="FILE", help="fit, report: what `stam gate replay` wrote")
    p.add_argument("--gate", metavar="FILE", help="report: score this gate, of `stam gate fit`, as it stands")
    p.add_argument("--lambda", dest="lambda_", type=float, default=0.05, metavar="X",
                   help="fit: what a prompt costs, in shares of the full one (default 0.05)")
    p.add_argument("--cues", action="store_true",
                   help="fit: also look at words of the question; report: show that gate too")
    p.add_argument("--macro", action="store_true", help="fit, report: score = mean over types of question")
    p.add_argument("--model", metavar="NAME", help="fit, report: count a prompt's cost in prefill operations of this "
                   "model, such as qwen3-4b (default: in tokens)")
    out(p, "replay, fit: the file written", required=False)

    p = add("delete", "delete what is safe to forget, under a calibrated bound", patient=None)
    p.add_argument("action", choices=["calibrate", "plan", "apply", "label"])
    p.add_argument("--labels", metavar="FILE.csv", help="calibrate: patient_id,mid,label (safe-to-forget, never-forget, uncertain)")
    p.add_argument("--alpha", type=float, default=0.01, help="calibrate: bound on the mean loss over concept types (default 0.01)")
    p.add_argument("--loss", default="strict", choices=["strict", "any", "weighted"], help="calibrate: loss of a concept type (default strict)")
    p.add_argument("--uncertain", type=float, default=0.5, metavar="W",
                   help="calibrate: what an uncertain memory weighs in --loss weighted (default 0.5)")
    p.add_argument("--unit", default="type", choices=["type", "patient"], help="calibrate: the bound's unit: a concept "
                   "type over all patients, or a concept type of one patient, where whole patients calibrate (default type)")
    p.add_argument("--nonempty", action="store_true", help="calibrate: only units that hold something protected, so "
                   "that the others do not dilute the mean")
    p.add_argument("--groups", action="store_true",
                   help="calibrate: a threshold for each kind of slot, from its own units")
    p.add_argument("--age", type=int, default=1, metavar="N",
                   help="calibrate: updates since a memory was archived before it may go (default 1)")
    p.add_argument("--patient", action="append", metavar="ID", help="plan, apply: only this patient (may be repeated; default all)")
    p.add_argument("--timelines", metavar="FILE",
                   help="label: timelines.jsonl of `stam planted`, from which the store was made")
    p.add_argument("--calibration", metavar="FILE", help="plan, apply: what calibrate wrote")
    p.add_argument("--id", metavar="ID", help="apply: the calibration's id")
    out(p, "calibrate, label: the file written", required=False)

    p = add("planted", "synthetic patients as dated entries, with gold and questions", store=False, patient=None)
    p.add_argument("--patients", type=int, default=20, help="patients (default 20)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--wording", default="train", choices=["train", "heldout"], help="which words (default train)")
    out(p, "folder")

    p = add("lessons", "training rows of the write modules from planted timelines, and how a writer does on them", store=False, patient=None)
    p.add_argument("action", choices=["write", "score"])
    p.add_argument("--patients", type=int, default=200, help="planted patients (default 200)")
    p.add_argument("--seed", type=int, default=0, help="of the patients (default 0)")
    p.add_argument("--fold", type=int, metavar="N", help="0 to 4: this patient-disjoint fold is the test part (default: the timelines' own split)")
    p.add_argument("--most", type=int, metavar="N", help="write: rows of a file; score: cases of a stage (default: all)")
    p.add_argument("--words", type=int, default=120, metavar="N", help="words of a chunk, about (default 120); few make short rows, for small models")
    p.add_argument("--candidates", type=int, default=6, metavar="N", help="memories that a new one is compared with (default 6)")
    p.add_argument("--stage", default="all", choices=["all", "extract", "link", "update"], help="score: this stage alone (default all)")
    writer(p)
    out(p, "write: folder of the JSON Lines files that launch/run.py reads", required=False)

    p = add("bench", "suites with tables: planted timelines, cascades, the gate, deletion, clinosim, MIMIC-QA, EHRSQL, "
            "your copy of a benchmark", store=False, patient=None)
    p.add_argument("--suite", default="all", metavar="NAMES", help="all, or names with commas: planted, cascade, gate, "
                   "deletion, clinosim, mimic_qa, ehrsql; and on --input: memory_bench, locomo, clinical_bench (default all)")
    p.add_argument("--input", action="append", metavar="PATH", help="your copy of a benchmark (may be repeated): "
                   "memory_bench: folder of persona_<n>/eval/; locomo: .json file of samples; clinical_bench: folder with "
                   "questions.jsonl and patients.jsonl or records/")
    p.add_argument("--judge", metavar="JUDGE", help="suites on --input: the model that judges answers, named as for "
                   "--writer (default none: only what needs no judge is scored, and by rules where they can)")
    p.add_argument("--noise", action="store_true", help="memory_bench: tell the distractor sessions too")
    p.add_argument("--language", choices=["en", "zh"], help="memory_bench: of the sessions (default en)")
    p.add_argument("--patients", type=int, default=60, help="planted patients (default 60)")
    p.add_argument("--seed", type=int, default=0, help="of the patients and of resampling (default 0)")
    p.add_argument("--wording", default="heldout", choices=["train", "heldout"], help="words of the planted timelines (default heldout)")
    p.add_argument("--system", metavar="NAME", help="planted: also ask this memory system, on a dozen patients: mem0, amem, memos, or "
                   "MODULE:FACTORY of an adapter; the writer and the encoder stand in for its models (extra serve)")
    p.add_argument("--system-python", metavar="PYTHON", help="the interpreter in which it is installed (default: this one)")
    p.add_argument("--data", metavar="DIR", help="folder with mimic_iv_demo/, ehrsql2024/, clinosim/ (default: $EHR_DATA_DIR)")
    p.add_argument("--all-questions", action="store_true", help="mimic_qa, ehrsql: tell every write path all patients and ask it all 2,000 questions, "
                   "not the 400 of the test patients alone (STAM is always asked all)")
    p.add_argument("--window", type=int, default=32768, metavar="N", help="mimic_qa, suites on --input: most tokens of a whole record before a model "
                   "(default 32768); older ones are cut off, and such questions are counted")
    p.add_argument("--table-encoder", default="hash:256", metavar="NAME", help="encoder of the suites on tables (default hash:256, which hashes "
                   "words; MiniLM is slow on their 31,000 statements)")
    writer(p)
    reader(p)
    out(p, "folder of the tables")

    p = add("serve", "HTTP: ingest, show, timeline, search, answer, why, page, verify, revert, erase", patient=None)
    p.add_argument("--host", default="127.0.0.1", help="address (default 127.0.0.1; another one needs a key)")
    p.add_argument("--port", type=int, default=8010)
    p.add_argument("--key-env", metavar="NAME", help="environment variable with the key that callers must send")
    p.add_argument("--patient-list", action="store_true", help="let callers ask for the ids of all patients")
    p.add_argument("--agents", action="store_true", help="serve the MCP tools at /mcp too (extra mcp)")
    by_gate(p)
    reader(p)
    writer(p)

    p = add("mcp", "the memory as tools of an agent, over stdio; with --patient the agent reaches this patient only", patient=False)
    by_gate(p)
    reader(p)
    writer(p)
    return top


def main(argv: list[str] | None = None) -> int:
    def step(args):
        from stam_jax import commands

        return commands.run(args)

    return command.execute("stam", parser().parse_args(argv), step, RESUMED)


def script() -> None:
    """`main` as a process."""
    command.leave(main())


if __name__ == "__main__":
    script()
