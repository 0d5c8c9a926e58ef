"""MEDS data sets: codes, births, notes, static rows, labels; faults with shard, row and column."""
import datetime as dt
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core_jax.icd import Titles
from core_jax.readers import meds
from core_jax.records import Label, RecordError, visible

T = dt.datetime
SCHEMA = pa.schema([("subject_id", pa.int64()), ("time", pa.timestamp("us")), ("code", pa.string()),
                    ("numeric_value", pa.float32()), ("text_value", pa.large_string())])
ROWS = [
    (7, None, "GENDER//F", None, None),
    (7, T(1950, 2, 1), "MEDS_BIRTH", None, None),
    (7, T(2011, 1, 5, 10), "DIAGNOSIS//ICD//10//I109", None, None),
    (7, T(2011, 1, 5, 10), "DIAGNOSIS//ICD//9//0010", None, None),
    (7, T(2011, 1, 5, 10, 0, 0, 900_000), "NOTE//DISCHARGE", None, "seen\nin clinic"),
    (7, T(2011, 1, 5, 10), "NOTE//DISCHARGE", None, "  "),
    (7, T(2011, 1, 6), "LAB//HB//g_dl", 7.5, None),
    (7, T(2011, 1, 6), "LAB//HB//g_dl", float("nan"), "low"),
    (7, T(2012, 1, 9, 3), "MEDS_DEATH", None, None),
    (8, None, "ICD10CM//E11.9", None, None),
    (8, T(2011, 1, 6), "VISIT//well child", None, None),
]


def table(rows, schema=SCHEMA):
    return pa.table([pa.array([r[i] for r in rows], f.type) for i, f in enumerate(schema)], schema=schema)


def folder(path, *shards, codes=None, **kw):
    (path / "data" / "train").mkdir(parents=True)
    for i, rows in enumerate(shards or (ROWS,)):
        rows = rows if isinstance(rows, pa.Table) else table(rows)
        pq.write_table(rows, path / "data" / "train" / f"{i}.parquet", **kw)
    if codes is not None:
        (path / "metadata").mkdir()
        pq.write_table(codes, path / "metadata" / "codes.parquet")
    return path


def test_records(tmp_path):
    counts, titles = Counter(), Titles()
    first, second = meds.read(folder(tmp_path), counts=counts, titles=titles, encounter_codes=("VISIT//",))
    assert (first.patient_id, first.sex) == ("7", "F")
    assert (first.birth_date, first.death_date) == ("1950-02-01", "2012-01-09T03:00:00")
    assert [(c.obs_id, c.time, c.title) for c in first.codes] == [
        ("0010-9", "2011-01-05T10:00:00", "Cholera due to vibrio cholerae"),
        ("I109-10", "2011-01-05T10:00:00", "ICD-10 I109 (no description)")]
    assert [(n.text, n.time, n.type) for n in first.notes] == [
        ("seen\nin clinic", "2011-01-05T10:00:00", "NOTE//DISCHARGE")]
    assert first.notes[0].note_id.startswith("7-NOTE_DISCHARGE-20110105T100000-")
    assert [(e.kind, e.fields) for e in first.events] == [
        ("GENDER", {"code": "GENDER//F"}), ("LAB", {"code": "LAB//HB//g_dl", "numeric_value": "7.5"}),
        ("LAB", {"code": "LAB//HB//g_dl", "text_value": "low"})], "births and deaths are no events"
    assert len({e.event_id for e in first.events}) == 3
    assert second.codes[0].code == "E119" and second.codes[0].time is None
    assert visible(second, "2020-01-01").codes == (), "a null time is static"
    assert [e.type for e in second.encounters] == ["VISIT//well child"]
    assert counts == {"blank_note": 1} and titles.unknown == {"I109-10": 1}


def test_an_event_at_the_prediction_time_is_visible(tmp_path):
    first, _ = meds.read(folder(tmp_path))
    assert len(visible(first, "2011-01-05T10:00:00").codes) == 2
    assert visible(first, "2011-01-05T09:59:59").codes == ()


def test_descriptions_of_the_data_set_come_first(tmp_path):
    codes = pa.table({"code": ["DIAGNOSIS//ICD//10//I109", "LAB//HB//g_dl"],
                      "description": ["Own title", "Haemoglobin"],
                      "parent_codes": pa.array([None, None], pa.list_(pa.string()))})
    first, _ = meds.read(folder(tmp_path, codes=codes))
    assert [c.title for c in first.codes] == ["Cholera due to vibrio cholerae", "Own title"]


def test_batches_shards_and_encodings_do_not_matter(tmp_path, monkeypatch):
    whole = list(meds.read(folder(tmp_path / "a")))
    monkeypatch.setattr(meds, "ROWS", 2)
    assert list(meds.read(tmp_path / "a")) == whole
    assert list(meds.read(folder(tmp_path / "b", ROWS[:9], ROWS[9:]))) == whole
    coded = table(ROWS).set_column(2, "code", table(ROWS)["code"].dictionary_encode())
    assert list(meds.read(folder(tmp_path / "c", coded, row_group_size=3))) == whole
    assert list(meds.read(tmp_path / "b", subjects={"8"})) == whole[1:]
    assert list(meds.read(tmp_path / "b", events=False))[0].events == ()


def test_equal_notes_get_distinct_ids(tmp_path):
    row = (7, T(2011, 1, 5), "NOTE//A", None, "same")
    (p,) = meds.read(folder(tmp_path, [row, row]))
    ids = [n.note_id for n in p.notes]
    assert ids[1] == ids[0] + "-2"


@pytest.mark.parametrize("rows, line, field, said", [
    ([*ROWS, (7, T(2013, 1, 1), "X", None, None)], 12, "subject_id", "stand together"),
    ([(None, None, "X", None, None)], 1, "subject_id", "null"),
    ([(7, None, None, None, None)], 1, "code", "null"),
    ([(7, None, "MEDS_BIRTH", None, None)], 1, "time", "without a time"),
    ([ROWS[1], (7, T(1951, 1, 1), "MEDS_BIRTH", None, None)], 2, "time", "but also at"),
    ([ROWS[1], (7, T(1940, 1, 1), "ICD10CM//I10", None, None)], 2, "time", "before birth"),
    ([ROWS[1], (7, T(1940, 1, 1), "MEDS_DEATH", None, None)], 1, "time", "before birth"),
    ([(7, T(2011, 1, 1), "NOTE//A", None, "x\x00")], 1, "text_value", "NUL"),
])
def test_a_bad_row_is_named(tmp_path, rows, line, field, said):
    with pytest.raises(RecordError, match=said) as e:
        list(meds.read(folder(tmp_path, rows)))
    assert (e.value.line, e.value.field) == (line, field)
    assert e.value.file.endswith("0.parquet")


def test_a_patient_in_two_shards(tmp_path):
    with pytest.raises(RecordError, match="stand together"):
        list(meds.read(folder(tmp_path, ROWS, [(7, None, "X", None, None)])))


@pytest.mark.parametrize("column, values, said", [
    ("subject_id", pa.array(["7"]), "expected integer"), ("time", pa.array(["2011-01-01"]), "expected timestamp"),
    ("code", pa.array([1]), "expected text"), ("numeric_value", pa.array(["7"]), "expected floating"),
])
def test_a_mistyped_column_is_named(tmp_path, column, values, said):
    t = table(ROWS[:1])
    with pytest.raises(RecordError, match=said) as e:
        list(meds.read(folder(tmp_path, t.set_column(t.schema.get_field_index(column), column, values))))
    assert e.value.field == column


def test_bad_files(tmp_path):
    with pytest.raises(RecordError, match="no parquet files"):
        list(meds.read(tmp_path))
    folder(tmp_path, table(ROWS).drop_columns(["code"]))
    with pytest.raises(RecordError, match="missing column") as e:
        list(meds.read(tmp_path))
    assert e.value.field == "code"
    shard = tmp_path / "data" / "train" / "0.parquet"
    for raw in (b"", b"PAR1 not really PAR1", shard.read_bytes()[:-30]):
        shard.write_bytes(raw)
        with pytest.raises(RecordError, match="not a readable parquet file") as e:
            list(meds.read(tmp_path))
        assert e.value.file == str(shard)


def test_not_utf8(tmp_path):
    bad = pa.array([b"fine", b"\xff"], pa.binary()).view(pa.string())
    t = pa.table({"subject_id": pa.array([7, 7]), "time": pa.array([None, None], pa.timestamp("us")), "code": bad})
    with pytest.raises(RecordError, match="not valid UTF-8") as e:
        list(meds.read(folder(tmp_path, t)))
    assert (e.value.line, e.value.field) == (2, "code")


# ---- labels ---------------------------------------------------------------------------------------------------

def labels(path, rows):
    t = pa.table({"subject_id": pa.array([r[0] for r in rows], pa.int64()),
                  "prediction_time": pa.array([r[1] for r in rows], pa.timestamp("us")),
                  "boolean_value": pa.array([r[2] for r in rows], pa.bool_()),
                  "integer_value": pa.array([None] * len(rows), pa.int64())})
    pq.write_table(t, path)
    return path


def test_labels(tmp_path):
    rows = [(8, T(2012, 1, 1), True), (7, T(2011, 1, 1), False), (7, T(2011, 6, 1), True)]
    path = labels(tmp_path / "a.parquet", rows)
    assert meds.read_labels(path) == meds.read_labels(tmp_path) == [
        Label("8", "2012-01-01T00:00:00", 1), Label("7", "2011-01-01T00:00:00", 0),
        Label("7", "2011-06-01T00:00:00", 1)]
    assert [x.label for x in meds.read_labels(path, keep="first")] == [0, 1]
    assert [x.label for x in meds.read_labels(path, keep="last")] == [1, 1]
    with pytest.raises(ValueError, match="keep"):
        meds.read_labels(path, keep="some")


@pytest.mark.parametrize("rows, field", [
    ([(7, T(2011, 1, 1), None)], "boolean_value"), ([(7, None, True)], "prediction_time"),
    ([(None, T(2011, 1, 1), True)], "subject_id"),
])
def test_bad_labels(tmp_path, rows, field):
    with pytest.raises(RecordError, match="null") as e:
        meds.read_labels(labels(tmp_path / "a.parquet", rows))
    assert (e.value.line, e.value.field) == (1, field)


def test_contradictory_labels(tmp_path):
    path = labels(tmp_path / "a.parquet", [(7, T(2011, 1, 1), False), (7, T(2011, 1, 1), True)])
    with pytest.raises(RecordError, match="both 0 and 1"):
        meds.read_labels(path, keep="first")
