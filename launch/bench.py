#!/usr/bin/env python3
"""Side-by-side benchmarks: ours against the peer a user would run instead, interleaved, each in a process of its own.

    python launch/bench.py --suite=train,ig,quotes,embed,lora,generate,ingest,nearest,commit,serving,writer --rounds=7 --out=bench.jsonl
    python launch/bench.py --suite=ig --dry_run            # prints the exact worker commands

Protocol: every contender is a worker process that builds its inputs once (same seed, same arrays), runs twice to warm up
(once where a case says so), and then runs once each time it is told to; rounds go A B A B. A row holds the median and the spread (IQR) of wall and of
process-CPU milliseconds, the ratio against the peer from the same run, peak memory, the largest difference between the
two results, versions, commit and load average. A row is marked noisy where the load before it is above 1.5 or the spread above 25 %;
`--strict` then exits 3. Rows carry the machine's own ceilings, measured in the same run (float32 product, reading memory). A
peer that is not installed is named and left out. On a CPU only ratios mean anything.
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
    """launch/peers/<name>.py: CASES {case: settings}, CONTENDERS {label: build(settings) -> run() -> array}, and where it
    has one `summary(rows) -> lines` of what follows from several rows together. What a run leaves in `run.figures` (a dict)
    stands in the row, round by round.

    Settings that bench.py reads: contenders (labels, all if not given), warmup, rounds, per_round (words).
    """
    spec = importlib.util.spec_from_file_location(f"peers_{name}", HERE / "peers" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def work(suite: str, case: str, label: str) -> None:
    """Worker: one JSON line on the real stdout for each line on stdin; the contender's own prints go to stderr."""
    import numpy as np

    out, sys.stdout = sys.stdout, sys.stderr
    module = suite_module(suite)
    try:
        run = module.CONTENDERS[label](module.CASES[case])
    except ModuleNotFoundError as e:
        print(json.dumps({"missing": e.name}), file=out, flush=True)
        return
    for _ in range(module.CASES[case].get("warmup", 2)):
        run()
    print(json.dumps({"ready": True}), file=out, flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        result = run()
        row = {"wall_ms": 1e3 * (time.perf_counter() - wall), "cpu_ms": 1e3 * (time.process_time() - cpu),
               "peak_mib": peak_mib(), "figures": getattr(run, "figures", None)}
        np.save(os.environ["BENCH_RESULT"], np.asarray(result, np.float64))
        print(json.dumps(row), file=out, flush=True)


def peak_mib() -> float:
    """Largest resident memory of this process; ru_maxrss would include what its parent had before the exec."""
    try:
        status = pathlib.Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Worker:
    def __init__(self, suite: str, case: str, label: str, folder: pathlib.Path):
        self.label, self.result = label, folder / f"{suite}-{case}-{label}.npy"
        self.rows: list[dict] = []
        self.process = subprocess.Popen(command(suite, case, label), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | THREADS | {"BENCH_RESULT": str(self.result)})
        self.missing: str | None = self.answer().get("missing")

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
    for name in ("jax", "numpy", "torch", "captum", "sentence-transformers", "rapidfuzz", "transformers", "peft", "llama-cpp-python"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


def machine() -> dict:
    """The machine's ceilings, best of five: GFLOP/s of a float32 product of 2,048 x 2,048, GB/s of reading 1 GiB."""
    from concurrent.futures import ThreadPoolExecutor

    import jax
    import jax.numpy as jnp
    import numpy as np

    def best(run) -> float:
        times = []
        for _ in range(6):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return min(times[1:])

    x = jnp.ones((2048, 2048), jnp.float32)
    product = jax.jit(lambda a, b: jax.lax.dot(a, b, precision=jax.lax.Precision.HIGHEST))
    gflops = 2 * 2048**3 / best(lambda: product(x, x).block_until_ready()) / 1e9
    parts = np.array_split(np.ones(2**28, np.float32), os.cpu_count() or 1)
    with ThreadPoolExecutor(len(parts)) as pool:
        read = 2**30 / best(lambda: list(pool.map(np.max, parts))) / 1e9
    return {"matmul_gflops": gflops, "read_gb_s": read}


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True)
    return done.stdout.strip() or "no commit"


def compare(suite: str, case: str, module, rounds: int, folder: pathlib.Path, ceilings: dict) -> list[dict]:
    """One row a contender; a ratio is its time over the first contender's (ours), so above 1 means that ours is faster."""
    import numpy as np

    workers, load = [], os.getloadavg()[0]  # before our own processes raise it
    rounds = module.CASES[case].get("rounds", rounds)
    try:
        for label in module.CASES[case].get("contenders", list(module.CONTENDERS)):
            worker = Worker(suite, case, label, folder)
            if worker.missing:
                print(f"{suite:8} {case:22} {label:26} left out: {worker.missing} is not installed", flush=True)
                worker.close()
            else:
                workers.append(worker)
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
            "peak_mib": max(r["peak_mib"] for r in w.rows), "figures": [r["figures"] for r in w.rows if r["figures"]],
            "max_difference": float(np.max(np.abs(a - b))) if a.shape == b.shape and a.size else None,
            "per_round": module.CASES[case].get("per_round"), "load": load,
            "noisy": load > 1.5 or wall["iqr"] > 0.25 * wall["median"], "commit": commit(), "versions": versions(),
            "machine": ceilings,
        })
    return rows


def main(argv) -> int:
    del argv
    if FLAGS.worker:
        work(FLAGS.suite[0], FLAGS.case, FLAGS.worker)
        return 0
    import tempfile

    rows: list[dict] = []
    ceilings = {} if FLAGS.dry_run else machine()
    if ceilings:
        print(f"machine: {ceilings['matmul_gflops']:.0f} GFLOP/s in a float32 product, {ceilings['read_gb_s']:.1f} GB/s read", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for suite in FLAGS.suite:
            module, of_suite = suite_module(suite), []
            for case in module.CASES:
                if FLAGS.case and case != FLAGS.case:
                    continue
                if FLAGS.dry_run:
                    for label in module.CASES[case].get("contenders", list(module.CONTENDERS)):
                        print(" ".join(command(suite, case, label)))
                    continue
                new = compare(suite, case, module, FLAGS.rounds, pathlib.Path(folder), ceilings)
                rows += new
                of_suite += new
                for r in new:
                    print(f"{suite:8} {case:22} {r['contender']:26} wall {r['wall_ms']['median']:10.1f} ms (iqr {r['wall_ms']['iqr']:.1f})  "
                          f"cpu {r['cpu_ms']['median']:10.1f} ms  x{r['ratio_wall']:.2f} wall x{r['ratio_cpu']:.2f} cpu  "
                          f"peak {r['peak_mib']:.0f} MiB  diff {r['max_difference']}{'  NOISY' if r['noisy'] else ''}", flush=True)
            if of_suite and hasattr(module, "summary"):
                print("\n".join(module.summary(of_suite)), flush=True)
    if FLAGS.out and rows:
        with open(FLAGS.out, "a", encoding="utf-8") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
    return 3 if FLAGS.strict and any(r["noisy"] for r in rows) else 0


if __name__ == "__main__":
    from absl import app, flags

    FLAGS = flags.FLAGS
    flags.DEFINE_list("suite", ["train", "ig", "quotes", "embed", "lora", "generate"], "suites to run: names of files in launch/peers")
    flags.DEFINE_string("case", "", "only this case of the suite")
    flags.DEFINE_integer("rounds", 7, "interleaved rounds")
    flags.DEFINE_string("out", "", "append JSON Lines rows to this file")
    flags.DEFINE_bool("dry_run", False, "print the worker commands, run nothing")
    flags.DEFINE_bool("strict", False, "exit 3 where a row is noisy")
    flags.DEFINE_string("worker", "", "internal: be the worker of this contender")
    app.run(main)
