#!/usr/bin/env python3
"""Side-by-side benchmarks: ours against the peer a user would run instead, interleaved, each in a process of its own.

    python launch/bench.py --suite=train,ig,quotes,embed --rounds=7 --out=bench.jsonl
    python launch/bench.py --suite=ig --dry_run            # prints the exact worker commands

Protocol: every contender is a worker process that builds its inputs once (same seed, same arrays), runs twice to warm up,
and then runs once each time it is told to; rounds go A B A B. A row holds the median and the spread (IQR) of wall and of
process-CPU milliseconds, the ratio against the peer from the same run, peak memory, the largest difference between the
two results, versions, commit and load average. A row is marked noisy where the load before it is above 1.5 or the spread above 25 %;
`--strict` then exits 3. On a CPU only ratios mean anything.
"""
from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
THREADS = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def suite_module(name: str):
    """launch/peers/<name>.py: CASES {case: settings}, CONTENDERS {label: build(settings) -> run() -> array}."""
    spec = importlib.util.spec_from_file_location(f"peers_{name}", HERE / "peers" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def work(suite: str, case: str, label: str) -> None:
    """Worker: one JSON line on the real stdout for each line on stdin; the contender's own prints go to stderr."""
    import numpy as np

    out, sys.stdout = sys.stdout, sys.stderr
    module = suite_module(suite)
    run = module.CONTENDERS[label](module.CASES[case])
    result = run(), run()
    np.save(os.environ["BENCH_RESULT"], np.asarray(result[-1], np.float64))
    print(json.dumps({"ready": True}), file=out, flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        row = {"wall_ms": 1e3 * (time.perf_counter() - wall), "cpu_ms": 1e3 * (time.process_time() - cpu),
               "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
        print(json.dumps(row), file=out, flush=True)


class Worker:
    def __init__(self, suite: str, case: str, label: str, folder: pathlib.Path):
        self.label, self.result = label, folder / f"{suite}-{case}-{label}.npy"
        self.rows: list[dict] = []
        self.process = subprocess.Popen(command(suite, case, label), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | THREADS | {"BENCH_RESULT": str(self.result)})
        self.answer()

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.label} ended with exit code {self.process.wait()}; its message stands above")
        return json.loads(line)

    def round(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.rows.append(self.answer())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def command(suite: str, case: str, label: str) -> list[str]:
    return [sys.executable, str(HERE / "bench.py"), f"--suite={suite}", f"--case={case}", f"--worker={label}"]


def spread(values: list[float]) -> dict:
    q = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": q[1], "iqr": q[2] - q[0], "min": min(values), "max": max(values)}


def versions() -> dict:
    from importlib.metadata import PackageNotFoundError, version

    out = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    for name in ("jax", "numpy", "torch", "captum", "sentence-transformers", "rapidfuzz"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True)
    return done.stdout.strip() or "no commit"


def compare(suite: str, case: str, module, rounds: int, folder: pathlib.Path) -> list[dict]:
    """One row a contender; a ratio is its time over the first contender's (ours), so above 1 means that ours is faster."""
    import numpy as np

    workers, load = [], os.getloadavg()[0]  # before our own processes raise it
    try:
        for label in module.CASES[case].get("contenders", list(module.CONTENDERS)):
            workers.append(Worker(suite, case, label, folder))
        for _ in range(rounds):
            for w in workers:
                w.round()
    finally:
        for w in workers:
            w.close()
    ours = workers[0]
    rows = []
    for w in workers:
        wall, cpu = spread([r["wall_ms"] for r in w.rows]), spread([r["cpu_ms"] for r in w.rows])
        a, b = np.load(ours.result), np.load(w.result)
        rows.append({
            "op": suite, "case": case, "contender": w.label, "device": "cpu", "rounds": rounds, "wall_ms": wall, "cpu_ms": cpu,
            "ratio_wall": wall["median"] / spread([r["wall_ms"] for r in ours.rows])["median"],
            "ratio_cpu": cpu["median"] / spread([r["cpu_ms"] for r in ours.rows])["median"],
            "peak_mib": max(r["peak_mib"] for r in w.rows),
            "max_difference": float(np.max(np.abs(a - b))) if a.shape == b.shape and a.size else None,
            "per_round": module.CASES[case].get("per_round"), "load": load,
            "noisy": load > 1.5 or wall["iqr"] > 0.25 * wall["median"], "commit": commit(), "versions": versions(),
        })
    return rows


def main(argv) -> int:
    del argv
    if FLAGS.worker:
        work(FLAGS.suite[0], FLAGS.case, FLAGS.worker)
        return 0
    import tempfile

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for suite in FLAGS.suite:
            module = suite_module(suite)
            for case in module.CASES:
                if FLAGS.case and case != FLAGS.case:
                    continue
                if FLAGS.dry_run:
                    for label in module.CASES[case].get("contenders", list(module.CONTENDERS)):
                        print(" ".join(command(suite, case, label)))
                    continue
                new = compare(suite, case, module, FLAGS.rounds, pathlib.Path(folder))
                rows += new
                for r in new:
                    print(f"{suite:8} {case:22} {r['contender']:26} wall {r['wall_ms']['median']:10.1f} ms (iqr {r['wall_ms']['iqr']:.1f})  "
                          f"cpu {r['cpu_ms']['median']:10.1f} ms  x{r['ratio_wall']:.2f} wall x{r['ratio_cpu']:.2f} cpu  "
                          f"peak {r['peak_mib']:.0f} MiB  diff {r['max_difference']}{'  NOISY' if r['noisy'] else ''}", flush=True)
    if FLAGS.out and rows:
        with open(FLAGS.out, "a", encoding="utf-8") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
    return 3 if FLAGS.strict and any(r["noisy"] for r in rows) else 0


if __name__ == "__main__":
    from absl import app, flags

    FLAGS = flags.FLAGS
    flags.DEFINE_list("suite", ["train", "ig", "quotes", "embed"], "suites to run: names of files in launch/peers")
    flags.DEFINE_string("case", "", "only this case of the suite")
    flags.DEFINE_integer("rounds", 7, "interleaved rounds")
    flags.DEFINE_string("out", "", "append JSON Lines rows to this file")
    flags.DEFINE_bool("dry_run", False, "print the worker commands, run nothing")
    flags.DEFINE_bool("strict", False, "exit 3 where a row is noisy")
    flags.DEFINE_string("worker", "", "internal: be the worker of this contender")
    app.run(main)
