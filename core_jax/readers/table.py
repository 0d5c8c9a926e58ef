"""CSV tables as blocks of text columns, streamed with pyarrow: gzip, quoted values over many lines, row numbers."""
from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.csv as csv

from core_jax.records import RecordError

BLOCK = 16 << 20  # bytes; one row has to fit


def find(folder: str | os.PathLike, *names: str, required: bool = True) -> str | None:
    """The path of table `names` (e.g. "hosp", "patients") under folder, as .csv.gz or .csv.

    Raises: RecordError where neither exists and the table is required.
    """
    stem = os.path.join(os.fspath(folder), *names)
    for suffix in (".csv.gz", ".csv"):
        if os.path.isfile(stem + suffix):
            return stem + suffix
    if required:
        raise RecordError("no such table (looked for .csv.gz and .csv)", file=stem)
    return None


def blocks(path: str, columns: Sequence[str], *, block_bytes: int = BLOCK) -> Iterator[tuple[int, list[list[str]]]]:
    """(row number of the first row, one list of strings per column) for each block of a CSV file; "" where empty.

    The header is row 1; a quoted value over several lines is one row; blank lines are not counted. One block is in
    memory at a time. Values are as written, "NA" and leading zeros included.

    Raises: RecordError with file, row and column: an empty or headless file, a missing or doubled column, a row with
        too few or too many values, truncated or corrupt gzip, bytes that are not UTF-8, NUL bytes, a row longer than
        `block_bytes`.
    """
    first = 2
    try:
        with pa.input_stream(path, compression="detect") as stream:
            reader = csv.open_csv(
                stream,
                read_options=csv.ReadOptions(use_threads=False, block_size=block_bytes),
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=csv.ConvertOptions(column_types={name: pa.binary() for name in columns}),
            )
            header = reader.schema.names
            for name in columns:
                if header.count(name) != 1:
                    what = "missing column" if name not in header else "column stands twice"
                    raise RecordError(f"{what}; the header is {', '.join(header)}", file=path, line=1, field=name)
            for batch in reader:
                if batch.num_rows:
                    yield first, [texts(batch.column(header.index(n)), path, first, n) for n in columns]
                    first += batch.num_rows
    except pa.ArrowInvalid as e:
        message, row = _reason(str(e), first, block_bytes)
        raise RecordError(message, file=path, line=row) from None
    except UnicodeDecodeError:
        raise RecordError("not valid UTF-8", file=path, line=1) from None
    except OSError as e:
        if e.errno is None:
            raise RecordError(f"truncated or corrupt gzip ({e})", file=path, line=first) from None
        raise RecordError(e.strerror or str(e), file=path) from None


def _reason(message: str, first: int, block_bytes: int) -> tuple[str, int | None]:
    if "Empty CSV" in message:
        return "empty file", None
    if "straddling" in message:
        return f"a row longer than {block_bytes} bytes, at or after this one: is a quote opened and not closed?", first
    message = message.splitlines()[0].removeprefix("CSV parse error: ")
    m = re.match(r"Row #(\d+): ", message)
    return (message[m.end():], int(m[1])) if m else (message, first)


def texts(column: pa.Array, path: str, first: int, name: str) -> list[str]:
    """Strings of a binary column, "" for null. Raises: RecordError with the row: not UTF-8, or a NUL byte."""
    values = [v or b"" for v in column.to_pylist()]
    try:
        out = [v.decode("utf-8") for v in values]
    except UnicodeDecodeError:
        for i, v in enumerate(values):
            try:
                v.decode("utf-8")
            except UnicodeDecodeError as e:
                raise RecordError(f"not valid UTF-8 at byte {e.start}", file=path, line=first + i, field=name) from None
        raise
    for i, t in enumerate(out):
        if "\x00" in t:
            raise RecordError("contains a NUL byte", file=path, line=first + i, field=name)
    return out
