"""Tokenizer adapter, and chunks that keep raw character offsets.

Imports without JAX; `tokenizers` (and `transformers`, for folders that have no tokenizer.json) are imported on use.
Offsets are Python string indices into the untouched text, half open, so that `text[start:end]` is what a model saw.
Where a tokenizer comes from (tokenizer.json, tiktoken, sentencepiece, GGUF) is core_jax/tokenizer_files.py's.
"""
from __future__ import annotations

import codecs
import functools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from core_jax import tokenizer_files
from core_jax.byte_alphabet import unspell
from core_jax.records import atomic_write

Span = tuple[int, int]


def word_spans(text: str) -> list[Span]:
    """Spans of the runs of non-blank characters of `text`, in order: the chunking unit `words`."""
    return [m.span() for m in re.finditer(r"\S+", text)]


def chunk(text: str, spans: Sequence[Span], size: int = 200, overlap: int = 40) -> list[Span]:
    """Windows of `size` consecutive units (tokens or words), `overlap` shared with the next (EviGen A.1.1).

    The windows cover the whole text: the first begins at 0, the last ends at len(text), and no character between two
    units is lost. A rest of at most `overlap` new units joins the window before it, so a window has at most
    `size + overlap` units. A text that is blank or has no unit has no window.

    Args:
        spans: the units' (start, end), in text order.

    Raises:
        ValueError: size < 1, or overlap outside [0, size).
    """
    if size < 1 or not 0 <= overlap < size:
        raise ValueError(f"got size {size}, overlap {overlap}; expected size >= 1 and 0 <= overlap < size")
    if not spans or not text.strip():
        return []
    count, windows, first = len(spans), [], 0
    while True:
        start = spans[first][0] if first else 0
        if count - (first + size) <= overlap:
            windows.append((start, len(text)))
            return windows
        following = first + size - overlap
        windows.append((start, max(spans[first + size - 1][1], spans[following][0])))
        first = following


class Tokenizer:
    """A fast Hugging Face tokenizer read from a local folder or GGUF file; nothing is ever fetched.

    Truncation and padding that the folder's tokenizer.json may carry are switched off.

    Attributes:
        where: the folder or file, for messages.
        special_tokens: how many tokens `encode` adds to a text.
        special_names: what chat templates call `bos_token`, `eos_token`, `pad_token`, `unk_token`, where it has one.
        added_tokens: text -> (id, is special) of the tokens that are matched whole, before the vocabulary is.
        bos_id, pad_id: token ids or None; eos_ids: every token that ends an answer.
        chat_template: Jinja text or None.
    """

    def __init__(
        self, serialized: str, *, where: str = "tokenizer", special_names: Mapping[str, str] | None = None,
        eos_ids: Sequence[int] = (), chat_template: str | None = None,
    ):
        from tokenizers import Tokenizer as Fast

        self.where = where
        try:
            self._whole = Fast.from_str(serialized)
        except Exception as e:  # the library raises bare Exception
            raise ValueError(f"{where}: not a tokenizer ({e})") from None
        self._whole.no_truncation()
        self._whole.no_padding()
        self._cut: Fast | None = None
        self._max_length: int | None = None
        self.serialized = self._whole.to_str()
        self.special_tokens = self._whole.num_special_tokens_to_add(False)
        self.added_tokens = {
            t.content: (i, t.special) for i, t in sorted(self._whole.get_added_tokens_decoder().items())}
        self.special_names = dict(special_names or {})
        self.chat_template = chat_template
        self.bos_id, self.pad_id = self._id_of("bos_token"), self._id_of("pad_token")
        eos = self._id_of("eos_token")
        self.eos_ids = tuple(eos_ids) or (() if eos is None else (eos,))
        if bad := [i for i in self.eos_ids if not 0 <= i < self.vocab_size]:
            raise ValueError(f"{where}: eos_token_id: got {bad[0]}, expected one of {self.vocab_size} ids")
        self._special = frozenset(i for i, special in self.added_tokens.values() if special)
        self._bytes: dict[int, bytes] = {}
        decoder = self._whole.decoder
        self._decoder = None if decoder is None else _Decoder.of(json.loads(decoder.__getstate__()))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Tokenizer:
        """From a model folder or a GGUF file.

        Raises: ValueError naming the file and field: no tokenizer files, only those of a tokenizer without offsets, a
        kind that is not read, a special token that the vocabulary lacks.
        """
        path = os.fspath(path)
        if os.path.isfile(path):
            return cls(**tokenizer_files.from_gguf(path))
        if not os.path.isdir(path):
            raise ValueError(f"{path}: no such folder; expected one with a tokenizer.json, or a GGUF file")
        if (found := tokenizer_files.from_folder(path)) is not None:
            return cls(**found)
        from transformers import AutoTokenizer

        try:
            slow_or_fast = AutoTokenizer.from_pretrained(path, local_files_only=True)
        except (OSError, ValueError, TypeError) as e:
            raise ValueError(f"{path}: no usable tokenizer (expected tokenizer.json): {e}") from None
        backend = getattr(slow_or_fast, "backend_tokenizer", None)
        if backend is None:
            raise ValueError(f"{path}: {type(slow_or_fast).__name__} gives no character offsets; expected a fast one")
        side = tokenizer_files.side_files(path)
        side["special_names"] = {
            k: v for k, v in slow_or_fast.special_tokens_map.items()
            if k in tokenizer_files.NAMES and isinstance(v, str)
        } | side["special_names"]
        return cls(serialized=backend.to_str(), **side)

    def _id_of(self, name: str) -> int | None:
        if name not in self.special_names:
            return None
        if (i := self._whole.token_to_id(self.special_names[name])) is None:
            raise ValueError(f"{self.where}: {name}: {self.special_names[name]!r} is not in the vocabulary")
        return i

    @functools.cached_property
    def vocab_size(self) -> int:
        """The highest token id and one. A model's embedding table may have more rows (Qwen3: 151,936 for 151,669)."""
        return max(self._whole.get_vocab(with_added_tokens=True).values()) + 1

    def write(self, folder: str | os.PathLike) -> None:
        """tokenizer.json and the JSON files beside it, for `load` and for transformers."""
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **self.special_names}
        config |= {} if self.chat_template is None else {"chat_template": self.chat_template}
        files = {"tokenizer.json": self.serialized, "tokenizer_config.json": json.dumps(config, indent=2)}
        if self.eos_ids:
            files["generation_config.json"] = json.dumps({"eos_token_id": list(self.eos_ids)})
        for name, text in files.items():
            with atomic_write(os.path.join(folder, name)) as f:
                f.write(text)

    def encode_offsets(self, text: str) -> list[Span]:
        """Character span of each token of `text`, special tokens left out."""
        return [span for span in self._whole.encode(text, add_special_tokens=False).offsets if span[1] > span[0]]

    def encode(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Token ids of each text with special tokens, cut to `max_length` tokens in all (special ones are kept)."""
        return self.encode_counted(texts, max_length)[0]

    def encode_counted(self, texts: Sequence[str], max_length: int) -> tuple[list[list[int]], int]:
        """As `encode`, and the number of texts that were cut.

        Raises: ValueError when max_length leaves no room beside the special tokens.
        """
        if max_length <= self.special_tokens:
            raise ValueError(f"got max_length {max_length}, expected more than {self.special_tokens} special tokens")
        if self._cut is None:
            from tokenizers import Tokenizer as Fast

            self._cut = Fast.from_str(self.serialized)
        if self._max_length != max_length:
            self._cut.enable_truncation(max_length)
            self._max_length = max_length
        rows = self._cut.encode_batch_fast(list(texts))
        return [r.ids for r in rows], sum(bool(r.overflowing) for r in rows)

    def tokenize(self, text: str, *, add_special: bool = False, control: bool = True) -> list[int]:
        """Token ids of one whole text.

        Args:
            add_special: with what the tokenizer puts around a text (Llama: its first token).
            control: read the text of an added token (`<|im_end|>`) as that token; False: as plain characters.
        """
        if control:
            return self._whole.encode(text, add_special_tokens=add_special).ids
        if self._whole.normalizer is not None:
            text = self._whole.normalizer.normalize_str(text)
        splits = self._whole.pre_tokenizer
        pieces = [text] if splits is None else [piece for piece, _ in splits.pre_tokenize_str(text)]
        return [token.id for piece in pieces for token in self._whole.model.tokenize(piece)]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of token ids; bytes that are no UTF-8 become U+FFFD, ids outside the vocabulary nothing."""
        if self._decoder is None:
            return self._whole.decode(list(ids), skip_special_tokens=skip_special)
        stream = self.stream(skip_special)
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self, skip_special: bool = True) -> Detokenizer:
        """A detokenizer of one answer. Raises: ValueError for tokenizers whose tokens are not byte strings."""
        if self._decoder is None:
            raise ValueError(f"{self.where}: tokens of this kind of tokenizer cannot be decoded one by one")
        return Detokenizer(self, skip_special)

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for, before UTF-8 is decoded; b"" for ids outside the vocabulary.

        Raises: ValueError as `stream`.
        """
        if token not in self._bytes:
            text = self._whole.id_to_token(token)
            if text is None:
                self._bytes[token] = b""
            elif text in self.added_tokens:
                self._bytes[token] = text.encode("utf-8")
            elif self._decoder is None:
                raise ValueError(f"{self.where}: tokens of this kind of tokenizer are not byte strings")
            else:
                self._bytes[token] = self._decoder.to_bytes(text)
        return self._bytes[token]

    def is_special(self, token: int) -> bool:
        """True for control tokens, which `decode` leaves out."""
        return token in self._special


class Detokenizer:
    """Token ids one by one -> text that is never cut within a character; all pieces joined are `Tokenizer.decode`."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True):
        self._tokenizer, self._skip = tokenizer, skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._blank = tokenizer._decoder.leading_blank

    def push(self, token: int) -> str:
        """Text that is certain once `token` has come; "" while a character is incomplete."""
        if self._skip and self._tokenizer.is_special(token):
            return ""
        return self._trimmed(self._utf8.decode(self._tokenizer.token_bytes(token)))

    def flush(self) -> str:
        """The rest, U+FFFD for a character that never became whole."""
        return self._trimmed(self._utf8.decode(b"", final=True))

    def _trimmed(self, text: str) -> str:
        if self._blank and text:
            self._blank = False
            return text.removeprefix(" ")
        return text


class _Decoder:
    """How a vocabulary spells bytes: in the byte alphabet (GPT-2), or as text with `<0xNN>` for rare bytes."""

    def __init__(self, alphabet: bool, leading_blank: bool):
        self._alphabet, self.leading_blank = alphabet, leading_blank

    @classmethod
    def of(cls, decoder: Mapping) -> _Decoder | None:
        """From the `decoder` of a tokenizer.json; None for one whose tokens are not byte strings (WordPiece)."""
        steps = decoder.get("decoders", [decoder])
        kinds = {step["type"] for step in steps}
        if "ByteLevel" in kinds:
            return cls(True, False)
        if kinds & {"ByteFallback", "Metaspace"}:
            blank = any(s["type"] == "Strip" and s["start"] for s in steps) or any(
                s["type"] == "Metaspace" and s.get("prepend_scheme", "always") != "never" for s in steps)
            return cls(False, blank)
        return None

    def to_bytes(self, token: str) -> bytes:
        if self._alphabet:
            return unspell(token)
        if found := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token):
            return bytes.fromhex(found[1])
        return token.replace("\u2581", " ").encode("utf-8")
