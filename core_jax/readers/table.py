"""CSV tables as blocks of text columns, streamed with pyarrow: gzip, quoted values over many lines, row numbers."""
from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

from core_jax.records import RecordError

BLOCK = 4 << 20  # bytes; one row has to fit


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

    The header is row 1; a quoted value over several lines is one row; blank lines are not counted. Values are as
    written, "NA" and leading zeros included. In memory are one block as strings and what pyarrow reads ahead, up to 32
    blocks of bytes.

    Raises: RecordError with file, row and column: an empty or headless file, a missing or doubled column, a row with
        too few or too many values, a quote that is not closed, truncated or corrupt gzip, bytes that are not UTF-8, NUL
        bytes, a row longer than `block_bytes`.
    """
    first = 2
    try:
        header = _header(path)
        for name in columns:
            if header.count(name) != 1:
                what = "missing column" if name not in header else "column stands twice"
                raise RecordError(f"{what}; the header is {', '.join(header)}", file=path, line=1, field=name)
        wanted = list(dict.fromkeys([*columns, *([header[-1]] if header.count(header[-1]) == 1 else [])]))
        last = None
        with pa.input_stream(path, compression="detect") as stream:
            source = _Counted(stream)
            reader = open_csv(
                source,
                read_options=ReadOptions(use_threads=False, block_size=block_bytes),
                parse_options=ParseOptions(newlines_in_values=True),
                convert_options=ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(wanted, pa.binary())),
            )
            for batch in reader:
                if batch.num_rows:
                    yield first, [texts(batch.column(i), path, first, name) for i, name in enumerate(columns)]
                    first += batch.num_rows
                    last = batch.column(wanted.index(header[-1]))[-1].as_py() if header[-1] in wanted else None
        # pyarrow ends a value at the end of the file whether or not its quote was closed
        if source.quotes % 2 and last is not None and (source.tail != b"\n" or last.endswith(b"\n")):
            raise RecordError("the file ends inside a quoted value", file=path, line=first - 1, field=header[-1])
    except pa.ArrowInvalid as e:
        message, row = _reason(str(e), first, block_bytes)
        raise RecordError(message, file=path, line=row) from None
    except OSError as e:
        if e.errno is None:
            raise RecordError(f"truncated or corrupt gzip ({e})", file=path, line=first) from None
        raise RecordError(e.strerror or str(e), file=path) from None


class _Counted:
    """A readable that counts quote characters on the way and remembers the last byte."""

    closed = False

    def __init__(self, stream: pa.NativeFile):
        self._stream, self.quotes, self.tail = stream, 0, b""

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.quotes += data.count(b'"')
        self.tail = data[-1:] or self.tail
        return data

    def close(self) -> None:
        self.closed = True


def _header(path: str) -> list[str]:
    with pa.input_stream(path, compression="detect") as stream:
        start = stream.read(1 << 16)
    if not start:
        raise RecordError("empty file", file=path)
    try:
        line = re.split(b"[\r\n]", start, maxsplit=1)[0].decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise RecordError(f"not valid UTF-8 at byte {e.start}", file=path, line=1) from None
    return next(csv.reader([line]), [""]) or [""]


def _reason(message: str, first: int, block_bytes: int) -> tuple[str, int | None]:
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
