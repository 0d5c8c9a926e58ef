"""CSV blocks and the spill file underneath the MIMIC-IV reader."""
import gzip
import random

import pytest

from core_jax.readers.spill import Spill, grouped
from core_jax.readers.table import blocks, find
from core_jax.records import RecordError

ROWS = [(f"{i:05d}", f"line {i}\n\"quoted\", and more") for i in range(300)]
TEXT = "id,text,rest\n" + "".join('{},"{}",NA\n'.format(i, t.replace('"', '""')) for i, t in ROWS)


@pytest.mark.parametrize("size", [100, 1000, 1 << 20])
@pytest.mark.parametrize("compress", [False, True])
def test_blocks(tmp_path, size, compress):
    path = tmp_path / ("t.csv.gz" if compress else "t.csv")
    path.write_bytes(gzip.compress(TEXT.encode()) if compress else TEXT.encode())
    rows, expected = [], 2
    for first, cells in blocks(str(path), ("text", "id", "rest"), block_bytes=size):
        assert first == expected
        rows += zip(*cells, strict=True)
        expected += len(cells[0])
    assert rows == [(t, i, "NA") for i, t in ROWS]


@pytest.mark.parametrize("row, cells, said", [
    (250, '00250,"a\x00b",NA', "NUL"), (250, "00250,short", "Expected 3 columns, got 2"),
    (299, '00299,x,"NA', "inside a quoted"),
])
def test_a_fault_in_a_later_block_has_its_row(tmp_path, row, cells, said):
    lines = [f"{i:05d},text,NA" for i in range(300)]
    lines[row] = cells
    path = tmp_path / "t.csv"
    path.write_text("id,text,rest\n" + "\n".join(lines) + "\n")
    with pytest.raises(RecordError, match=said) as e:
        list(blocks(str(path), ("id", "text"), block_bytes=500))
    assert e.value.line == row + 2


def test_a_byte_order_mark_and_foreign_line_ends(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"id",text\r\n1,"a\r\nb"\r\n\r\n2,c')
    assert list(blocks(str(path), ("id", "text"))) == [(2, [["1", "2"], ["a\r\nb", "c"]])]


def test_find(tmp_path):
    (tmp_path / "hosp").mkdir()
    (tmp_path / "hosp" / "a.csv").write_text("x")
    assert find(tmp_path, "hosp", "a") == str(tmp_path / "hosp" / "a.csv")
    assert find(tmp_path, "hosp", "b", required=False) is None
    with pytest.raises(RecordError, match="no such table"):
        find(tmp_path, "hosp", "b")


def test_spill_gives_back_every_row_in_order(tmp_path):
    rng = random.Random(0)
    spill, expected = Spill(5, str(tmp_path)), {k: [] for k in range(5)}
    for _ in range(40):
        rows = [(rng.random(), "text" * rng.randint(0, 50)) for _ in range(rng.randint(1, 4))]
        keys = [rng.choice([0, 1, 2, 3, None]) for _ in rows]
        for k, some in grouped(keys, rows).items():
            spill.add(k, some)
            expected[k] += some
    assert {k: spill.rows(k) for k in range(5)} == expected and expected[4] == []
    spill.close()
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
