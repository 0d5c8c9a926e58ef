"""Peak memory of the MIMIC-IV reader on a note file of full size, written here and removed again.

    python tests/core/full_size_notes.py [gigabytes of uncompressed notes, default 3.2]

Writes patients, admissions, diagnoses and note/discharge.csv.gz into a temporary folder (TMPDIR; about two thirds of
that size), notes in random order of patients, with line breaks, quotes and commas inside. Reads everything in a fresh
process and prints one JSON line: sizes, seconds, peak resident memory of that process in bytes.
"""
from __future__ import annotations

import csv
import gzip
import io
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTES_PER_PATIENT = 5
NOTE_BYTES = 10_000
CODES = ("I10", "E785", "N179", "I5023", "J449", "Z7901", "F329", "K219", "D649", "I2510")


def sentences(rng: random.Random, count: int) -> list[str]:
    words = ["".join(rng.choices("etaoinshrdlucmfwypvbgkq", k=rng.randint(2, 11))) for _ in range(8000)]
    ends = [". ", ".\n", ", \"as told\", ", ":\r\n", " ___ ", "; "]
    return [" ".join(rng.choices(words, k=rng.randint(5, 20))) + rng.choice(ends) for _ in range(count)]


def write(folder: pathlib.Path, target_bytes: int) -> dict[str, int]:
    """Fill a MIMIC-IV folder; returns the counts."""
    rng = random.Random(0)
    pool = sentences(rng, 20_000)
    patients = max(10, target_bytes // (NOTE_BYTES * NOTES_PER_PATIENT))
    for name in ("hosp", "note"):
        (folder / name).mkdir()

    def table(name: str):
        return gzip.open(folder / f"{name}.csv.gz", "wt", compresslevel=1, encoding="utf-8", newline="")

    with table("hosp/patients") as p, table("hosp/admissions") as a, table("hosp/diagnoses_icd") as d:
        p.write("subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod\n")
        a.write("subject_id,hadm_id,admittime,dischtime,deathtime,admission_type,hospital_expire_flag\n")
        d.write("subject_id,hadm_id,seq_num,icd_code,icd_version\n")
        for i in range(patients):
            p.write(f"{10_000_000 + i},F,60,2150,2011 - 2013,\n")
            for j in range(NOTES_PER_PATIENT):
                stay = f"{10_000_000 + i},{20_000_000 + i * 10 + j}"
                a.write(f"{stay},215{j}-03-01 10:00:00,215{j}-03-05 12:00:00,,URGENT,0\n")
                d.writelines(f"{stay},{k},{code},10\n" for k, code in enumerate(CODES, 1))
    order = [(i, j) for i in range(patients) for j in range(NOTES_PER_PATIENT)]
    rng.shuffle(order)
    total = 0
    with gzip.open(folder / "note" / "discharge.csv.gz", "wb", compresslevel=1) as raw:
        with io.TextIOWrapper(io.BufferedWriter(raw, 1 << 20), encoding="utf-8", newline="") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow("note_id subject_id hadm_id note_type note_seq charttime storetime text".split())
            for i, j in order:
                subject = 10_000_000 + i
                text = "".join(rng.choices(pool, k=NOTE_BYTES // 80))
                total += len(text)
                day = f"215{j}-03-05 00:00:00"
                out.writerow([f"{subject}-DS-{j}", subject, 20_000_000 + i * 10 + j, "DS", j, day, day, text])
    return {"patients": patients, "notes": len(order), "note_bytes": total,
            "gzip_bytes": (folder / "note" / "discharge.csv.gz").stat().st_size}


def read(folder: pathlib.Path) -> dict[str, float]:
    """Read the folder in this process; peak resident memory is the kernel's figure for the whole process."""
    sys.path.insert(0, str(ROOT))
    from core_jax.readers import mimic_iv

    start = time.perf_counter()
    seen = notes = characters = codes = 0
    for patient in mimic_iv.read(folder):
        seen += 1
        notes += len(patient.notes)
        codes += len(patient.codes)
        characters += sum(len(n.text) for n in patient.notes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"patients_read": seen, "notes_read": notes, "codes_read": codes, "characters_read": characters,
            "seconds": round(time.perf_counter() - start, 1), "cpu_seconds": round(time.process_time(), 1),
            "peak_rss_bytes": peak}


def measure(gigabytes: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="full_size_notes_") as name:
        folder = pathlib.Path(name)
        start = time.perf_counter()
        made = write(folder, int(gigabytes * 1e9)) | {"write_seconds": round(time.perf_counter() - start, 1)}
        out = subprocess.run([sys.executable, __file__, "--read", name], check=True, capture_output=True, text=True)
        return made | json.loads(out.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        print(json.dumps(read(pathlib.Path(sys.argv[2]))))
    else:
        print(json.dumps(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 3.2)))
