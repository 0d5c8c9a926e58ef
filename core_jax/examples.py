"""Training files -> examples: JSON Lines whose rows are texts with what counts in them.

A row has one of three forms:

    {"prompt": "...", "completion": "..."}       the completion counts, and the end token after it
    {"messages": [{"role", "content"}, ...]}     through the chat template; the last message counts
    {"pieces": [{"text": "..."} | {"token": "<|name|>"}, ...]}   with "loss": true where a piece counts, and "target":
                                                 "<|name|>" for what is to be predicted in place of a token that is read

Texts are encoded as plain characters: one that spells a control token is not one. Pieces are encoded apart and laid
end to end after the tokenizer's first token. Imports without jax.
"""
from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping
from typing import Any, Literal

from core_jax.chat import encode_chat
from core_jax.packing import Example
from core_jax.records import read_jsonl
from core_jax.text import Tokenizer

TooLong = Literal["error", "skip", "cut"]


@dataclasses.dataclass(frozen=True)
class Read:
    """examples, and what became of the rows: read, skipped (too long), cut (the front of the prompt is gone)."""

    examples: list[Example]
    read: int
    skipped: int
    cut: int

    @property
    def tokens(self) -> int:
        return sum(map(len, self.examples))


def read(path: str | os.PathLike, tokenizer: Tokenizer, length: int, *, too_long: TooLong = "error") -> Read:
    """Examples of at most `length` tokens.

    Args:
        too_long: what to do with a longer row: stop; leave it out; cut it at the front, so that the most recent part
            stays, and what counts whole.

    Raises:
        ValueError: naming file and line: another form, an unknown token, nothing that counts, a row too long (or, when
            cut, one whose counting part alone is).
    """
    path = os.fspath(path)
    examples, counts = [], dict.fromkeys(("read", "skipped", "cut"), 0)
    for line, row in read_jsonl(path):
        counts["read"] += 1
        try:
            tokens = _tokens(row, tokenizer)
            if not any(weight for _, _, weight in tokens[1:]):
                raise ValueError("nothing in it counts for the loss")
            if len(tokens) - 1 > length:
                if too_long == "error":
                    raise ValueError(f"got {len(tokens) - 1} tokens, expected at most {length}")
                if too_long == "skip":
                    counts["skipped"] += 1
                    continue
                tokens = _cut(tokens, length + 1)
                counts["cut"] += 1
        except ValueError as e:
            raise ValueError(f"{path}, line {line}: {e}") from None
        ids, targets, weights = zip(*tokens)
        examples.append(Example(ids[:-1], targets[1:], weights[1:]))
    if not examples:
        raise ValueError(f"{path}: got {counts['read']} rows, {counts['skipped']} of them too long, expected examples")
    return Read(examples, **counts)


Token = tuple[int, int, float]  # read, to be predicted here by the one before, weight of that


def _cut(tokens: list[Token], count: int) -> list[Token]:
    first = next(i for i, (_, _, weight) in enumerate(tokens) if weight)
    gone = len(tokens) - count  # the first token stays: a sequence begins as all others do
    if 1 + gone >= first:
        raise ValueError(f"got {len(tokens) - first} tokens that count, and {count - 1} allowed; nothing left to cut")
    return tokens[:1] + tokens[1 + gone:]


def _tokens(row: Any, tokenizer: Tokenizer) -> list[Token]:
    if isinstance(row, Mapping):
        if set(row) == {"prompt", "completion"}:
            _texts(row, "prompt", "completion")
            end = tokenizer.eos_ids[:1]
            return [*_start(tokenizer), *((i, i, 0.0) for i in tokenizer.tokenize(row["prompt"], control=False)),
                    *((i, i, 1.0) for i in (*tokenizer.tokenize(row["completion"], control=False), *end))]
        if set(row) == {"messages"}:
            return _chat(row["messages"], tokenizer)
        if set(row) == {"pieces"} and isinstance(row["pieces"], list):
            pieces = [_piece(p, f"pieces[{i}]", tokenizer) for i, p in enumerate(row["pieces"])]
            return [*_start(tokenizer), *itertools.chain(*pieces)]
    fields = sorted(row) if isinstance(row, Mapping) else type(row).__name__
    raise ValueError(f"got {fields}, expected prompt and completion, or messages, or pieces")


def _texts(row: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(row[name], str):
            raise ValueError(f"{name}: got {type(row[name]).__name__}, expected text")


def _start(tokenizer: Tokenizer) -> list[Token]:
    """What the tokenizer puts before a text."""
    ids = tokenizer.tokenize("", add_special=True)
    return [(i, i, 0.0) for i in ids if i not in tokenizer.eos_ids]


def _chat(messages: Any, tokenizer: Tokenizer) -> list[Token]:
    if not isinstance(messages, list) or len(messages) < 2:
        raise ValueError("messages: expected a list of at least two")
    whole = encode_chat(messages, tokenizer, add_generation_prompt=False)
    prompt = encode_chat(messages[:-1], tokenizer)
    if whole[:len(prompt)] != prompt:
        raise ValueError("messages: with its answer the conversation begins otherwise than the prompt; this template "
                         "cannot be trained on")
    return [(t, t, float(i >= len(prompt))) for i, t in enumerate(whole)]


def token_id(name: Any, tokenizer: Tokenizer, where: str) -> int:
    """The id of an added token. Raises: ValueError: there is none of this name."""
    if not isinstance(name, str) or name not in tokenizer.added_tokens:
        raise ValueError(f"{where}: got {name!r}, expected an added token of {tokenizer.where}")
    return tokenizer.added_tokens[name][0]


def _piece(piece: Any, where: str, tokenizer: Tokenizer) -> list[Token]:
    if not isinstance(piece, Mapping) or len(piece.keys() & {"text", "token"}) != 1 \
            or piece.keys() - {"text", "token", "loss", "target"} or ("target" in piece and "token" not in piece):
        raise ValueError(f"{where}: expected an object with text, or token and perhaps target; and perhaps loss")
    if not isinstance(piece.get("loss", False), bool):
        raise ValueError(f"{where}.loss: got {piece['loss']!r}, expected true or false")
    weight = float(piece.get("loss", False))
    if "text" in piece:
        _texts(piece, "text")
        return [(i, i, weight) for i in tokenizer.tokenize(piece["text"], control=False)]
    read = token_id(piece["token"], tokenizer, f"{where}.token")
    return [(read, token_id(piece["target"], tokenizer, f"{where}.target") if "target" in piece else read, weight)]
