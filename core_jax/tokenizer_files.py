"""Where tokenizers come from: tokenizer.json, tiktoken ranks, or the metadata of a GGUF file -> one serialized form.

The form is that of tokenizer.json, which the `tokenizers` library reads. Plain Python; imports without JAX.
"""
from __future__ import annotations

import base64
import glob
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core_jax.byte_alphabet import spell

NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5  # tokenizer.ggml.token_type

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_SPLIT, QWEN_SPLIT = _WORDS % r"\p{N}{1,3}", _WORDS % r"\p{N}"
LLAMA3_NAMED = {
    0: "begin_of_text", 1: "end_of_text", 4: "finetune_right_pad_id", 6: "start_header_id", 7: "end_header_id",
    8: "eom_id", 9: "eot_id", 10: "python_tag"}
QWEN3_NAMED = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>")
QWEN3_PLAIN = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>")


def _split(pattern: str) -> list[dict]:
    return [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, _bytes(False)]


def _bytes(use_regex: bool, prefix_space: bool = False) -> dict:
    return {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": False, "use_regex": use_regex}


# tokenizer.ggml.pre -> (pre-tokenizers, NFC first, whole words before merges)
_PRE = {
    "gpt-2": ([_bytes(True)], False, False),
    "smollm": ([{"type": "Digits", "individual_digits": True}, _bytes(True)], False, False),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), (_split(LLAMA3_SPLIT), False, True)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), (_split(QWEN_SPLIT), True, False)),
}


def from_folder(folder: str) -> dict[str, Any] | None:
    """Arguments of `text.Tokenizer`, or None where the folder has neither tokenizer.json nor tiktoken ranks.

    Raises: ValueError naming the file and field.
    """
    side = side_files(folder)
    path = os.path.join(folder, "tokenizer.json")
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as f:
            return {"serialized": f.read(), **side}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.tiktoken"))) + [
            os.path.join(folder, "tokenizer.model")]:
        if os.path.isfile(path) and (ranks := _ranks(path)) is not None:
            return from_ranks(path, ranks, side, _json(os.path.join(folder, "tokenizer_config.json")))
    return None


def side_files(folder: str) -> dict[str, Any]:
    """Special tokens, ends of answers and chat template, from the JSON files beside a tokenizer."""
    config = _json(os.path.join(folder, "tokenizer_config.json"))
    names = {}
    for source in (_json(os.path.join(folder, "special_tokens_map.json")), config):
        for name in NAMES:
            value = source.get(name)
            value = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(value, str):
                names[name] = value
    eos: tuple[int, ...] = ()
    for file in ("config.json", "generation_config.json"):
        value = _json(path := os.path.join(folder, file)).get("eos_token_id")
        if value is not None:
            eos = tuple(value) if isinstance(value, list) else (value,)
            if not all(isinstance(i, int) and not isinstance(i, bool) for i in eos):
                raise ValueError(f"{path}: eos_token_id: got {value!r}, expected whole numbers")
    template = config.get("chat_template")
    if isinstance(template, list):  # named ones
        template = {t.get("name"): t.get("template") for t in template if isinstance(t, Mapping)}.get("default")
    if os.path.isfile(path := os.path.join(folder, "chat_template.jinja")):
        with open(path, encoding="utf-8") as f:
            template = f.read()
    if template is not None and not isinstance(template, str):
        kind = type(template).__name__
        raise ValueError(f"{folder}: tokenizer_config.json: chat_template: got {kind}, expected text")
    return {"where": folder, "special_names": names, "eos_ids": eos, "chat_template": template}


def _json(path: str) -> dict[str, Any]:
    """{} where there is no such file. Raises: ValueError naming the file."""
    if not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as f:
        try:
            raw = json.load(f)
        except ValueError as e:
            raise ValueError(f"{path}: not JSON ({e})") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: got {type(raw).__name__}, expected an object")
    return raw


def _ranks(path: str) -> dict[bytes, int] | None:
    """Token bytes -> id of a tiktoken file (a line each: base64, blank, rank); None for another kind of file."""
    with open(path, "rb") as f:
        if not re.fullmatch(rb"[A-Za-z0-9+/]+=* \d+\s*", f.readline(4096)):
            return None
        f.seek(0)
        ranks = {}
        for number, line in enumerate(f, 1):
            try:
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
            except ValueError as e:
                raise ValueError(f"{path}:{number}: expected base64 and a rank ({e})") from None
    return ranks


def from_ranks(path: str, ranks: Mapping[bytes, int], side: Mapping[str, Any], config: Mapping[str, Any]) -> dict:
    """Llama 3's and Qwen's files, told apart by their number of ranks; they list no special tokens, so these are
    tokenizer_config.json's, or else the published ones."""
    count, names = len(ranks), dict(side["special_names"])
    if set(ranks.values()) != set(range(count)):
        raise ValueError(f"{path}: {count} ranks are not the numbers from 0 to {count - 1}")
    if count == 128_000:
        others = iter(range(256))
        special = [f"<|{LLAMA3_NAMED[i]}|>" if i in LLAMA3_NAMED else f"<|reserved_special_token_{next(others)}|>"
                   for i in range(256)]
        added = [(count + i, t, True) for i, t in enumerate(special)]
        pre, nfc, whole = _PRE["llama-bpe"]
        names, ends = {"bos_token": special[0], "eos_token": special[9]} | names, (1, 8, 9)
    elif count == 151_643:
        added = [(count + i, t, i < len(QWEN3_NAMED)) for i, t in enumerate(QWEN3_NAMED + QWEN3_PLAIN)]
        pre, nfc, whole = _PRE["qwen2"]
        names, ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"} | names, (2, 0)
    else:
        raise ValueError(f"{path}: got {count} ranks, expected 128000 (Llama 3) or 151643 (Qwen)")
    if listed := config.get("added_tokens_decoder"):
        added = [(int(i), t["content"], bool(t.get("special"))) for i, t in listed.items()]
    pairs = sorted(
        (rank, ranks[a], ranks[b], a, b) for token, rank in ranks.items() for cut in range(1, len(token))
        if (a := token[:cut]) in ranks and (b := token[cut:]) in ranks)
    bos = names.get("bos_token") if count == 128_000 else None
    eos = side["eos_ids"] or tuple(count + i for i in ends)
    return {**side, "special_names": names, "eos_ids": eos, "serialized": _serialized(
        {spell(t): i for t, i in ranks.items()}, [(spell(a), spell(b)) for *_, a, b in pairs], added, pre, nfc=nfc,
        whole_words=whole, first=next((i for i, t, _ in added if t == bos), None))}


def from_gguf(path: str) -> dict[str, Any]:
    """Arguments of `text.Tokenizer` from a GGUF file's `tokenizer.*` metadata.

    Byte-level vocabularies (`gpt2`), split as the model that `tokenizer.ggml.pre` names splits text. Tokens of type
    control become special, user-defined ones are matched whole but are text; unused ones are left out.

    Raises: ValueError naming the file and key.
    """
    from core_jax.ckpt.gguf_file import GGUFFile

    file = GGUFFile(path)
    kind, pre_name = file.field("tokenizer.ggml.model", str), file.field("tokenizer.ggml.pre", str, "gpt-2")
    if kind != "gpt2":
        raise ValueError(f"{path}: tokenizer.ggml.model: got {kind!r}, expected 'gpt2' (a byte-level vocabulary)")
    if pre_name not in _PRE:
        raise ValueError(f"{path}: tokenizer.ggml.pre: got {pre_name!r}, expected one of {', '.join(_PRE)}")
    tokens, merges = file.field("tokenizer.ggml.tokens", list), file.field("tokenizer.ggml.merges", list)
    types = file.metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if len(types) != len(tokens):
        raise ValueError(f"{path}: tokenizer.ggml.token_type: got {len(types)}, expected one for each of {len(tokens)}")
    types = [int(t) for t in types]
    added = [(i, t, types[i] == _CONTROL) for i, t in enumerate(tokens) if types[i] in (_CONTROL, _USER_DEFINED)]
    vocabulary = {t: i for i, t in enumerate(tokens) if types[i] != _UNUSED}
    pairs = []
    for n, merge in enumerate(merges):
        a, blank, b = merge.partition(" ")
        if not blank or a not in vocabulary or b not in vocabulary or a + b not in vocabulary:
            raise ValueError(f"{path}: tokenizer.ggml.merges: number {n} ({merge!r}) joins tokens that are not there")
        pairs.append((a, b))

    def token(key: str) -> int | None:
        i = file.field(f"tokenizer.ggml.{key}", int, None)
        if i is not None and not 0 <= i < len(tokens):
            raise ValueError(f"{path}: tokenizer.ggml.{key}: got {i}, expected one of {len(tokens)} ids")
        return i

    keys = dict(zip(NAMES, ("bos_token_id", "eos_token_id", "padding_token_id", "unknown_token_id")))
    names = {name: tokens[i] for name, key in keys.items() if (i := token(key)) is not None}
    ends = dict.fromkeys(i for key in ("eos_token_id", "eot_token_id", "eom_token_id") if (i := token(key)) is not None)
    pre, nfc, whole = _PRE[pre_name]
    if file.field("tokenizer.ggml.add_space_prefix", bool, False):
        pre = [{**step, "add_prefix_space": True} if step["type"] == "ByteLevel" else step for step in pre]
    first = token("bos_token_id") if file.field("tokenizer.ggml.add_bos_token", bool, False) else None
    last = token("eos_token_id") if file.field("tokenizer.ggml.add_eos_token", bool, False) else None
    return {
        "serialized": _serialized(vocabulary, pairs, added, pre, nfc=nfc, whole_words=whole, first=first, last=last),
        "where": path, "special_names": names, "eos_ids": tuple(ends),
        "chat_template": file.field("tokenizer.chat_template", str, None)}


def _serialized(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], added: Iterable[tuple[int, str, bool]],
    pre: Sequence[dict], *, nfc: bool, whole_words: bool, first: int | None = None, last: int | None = None,
) -> str:
    """A byte-level BPE as tokenizer.json has it. first, last: ids put around a text."""
    added = sorted(added)
    text = dict((i, t) for i, t, _ in added) | {i: t for t, i in vocabulary.items() if i in (first, last)}
    around = [{"SpecialToken": {"id": text[i], "type_id": 0}} if i != "A" else {"Sequence": {"id": "A", "type_id": 0}}
              for i in (first, "A", last) if i is not None]
    steps = [_bytes(False)]
    if len(around) > 1:
        steps.append({"type": "TemplateProcessing", "single": around, "pair": around + [
            {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {
                text[i]: {"id": text[i], "ids": [i], "tokens": [text[i]]} for i in (first, last) if i is not None}})
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": special} for i, t, special in added],
        "normalizer": {"type": "NFC"} if nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(pre)},
        "post_processor": {"type": "Sequence", "processors": steps},
        "decoder": _bytes(False),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": whole_words,
                  "vocab": dict(vocabulary), "merges": [list(m) for m in merges]},
    }, ensure_ascii=False)
