"""Chat templates and thinking: messages -> prompt text or tokens, model answers -> thinking and answer.

Templates are Jinja programs that come with a model, rendered as transformers renders them (sandboxed; trim_blocks,
lstrip_blocks, loop controls, `generation` blocks, tojson, raise_exception, strftime_now). Imports without JAX.

Message text is data. `encode_chat` gives the ids of the rendered text, but a control token that stands in a message's
text (a note with `<|im_end|>` in it) becomes plain characters: only the template ends a turn.
"""
from __future__ import annotations

import datetime
import functools
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from core_jax.text import Tokenizer

Message = Mapping[str, str]  # {"role": ..., "content": ...}
PRIVATE_USE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
_BLOCK = re.compile(r"\A\s*<think>(?P<own>.*?)</think>|\A(?P<prompted>.*?)^[^\S\n]*</think>", re.DOTALL | re.MULTILINE)


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks what the model wrote (for loss masks); it renders as its body."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _fail(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(x: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@functools.lru_cache(maxsize=32)
def _compiled(template: str) -> jinja2.Template:
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    env.filters["tojson"] = _to_json  # Jinja's own escapes HTML
    env.globals["raise_exception"] = _fail
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return env.from_string(template)


def checked(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Plain copies. Raises: ValueError naming the message and field: another key, a role that is no word, content that
    is no text or holds half a surrogate pair."""
    out = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            got = sorted(map(str, message)) if isinstance(message, Mapping) else type(message).__name__
            raise ValueError(f"messages[{i}]: got {got}, expected an object with role and content")
        role, content = message["role"], message["content"]
        if not isinstance(role, str) or not re.fullmatch(r"[A-Za-z_]+", role):
            raise ValueError(f"messages[{i}].role: got {role!r}, expected a word such as system, user or assistant")
        if not isinstance(content, str):
            raise ValueError(f"messages[{i}].content: got {type(content).__name__}, expected text")
        try:
            content.encode("utf-8")
        except UnicodeEncodeError as e:
            raise ValueError(f"messages[{i}].content: character {e.start} is half a surrogate pair") from None
        out.append({"role": str(role), "content": str(content)})
    if not out:
        raise ValueError("messages: got none, expected at least one")
    return out


def render_chat(
    messages: Iterable[Message], template: str, *, add_generation_prompt: bool = True,
    enable_thinking: bool | None = None, special_tokens: Mapping[str, str] | None = None,
) -> str:
    """The prompt text of a conversation.

    Args:
        add_generation_prompt: end with the head of the assistant's turn.
        enable_thinking: the switch of hybrid models (Qwen3: False writes an empty think block); None leaves it to
            the template.
        special_tokens: what templates call `bos_token`, `eos_token`, ... (`Tokenizer.special_names`).

    Raises:
        ValueError: messages as `checked`; a template that does not compile, or refuses the conversation.
    """
    switch = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    try:
        return _compiled(template).render(
            messages=checked(messages), tools=None, documents=None, add_generation_prompt=add_generation_prompt,
            **{**(special_tokens or {}), **switch})
    except (jinja2.TemplateError, TypeError, LookupError, AttributeError, ArithmeticError) as e:
        raise ValueError(f"chat template: {type(e).__name__}: {e}") from None


def encode_chat(
    messages: Iterable[Message], tokenizer: Tokenizer, *, template: str | None = None,
    add_generation_prompt: bool = True, enable_thinking: bool | None = None,
) -> list[int]:
    """Token ids of a conversation, control tokens from the template alone.

    Where no message holds a control token's text, these are the ids of the rendered text, to the token. Where one
    does, that text is encoded by itself as plain characters, and so is what stands before and after it. In the
    assistant's own turns only special tokens are defused: what a model wrote as `<think>` stays its token.

    Raises:
        ValueError: as `render_chat`; a tokenizer without a template; a template that builds control tokens out of
            message text all the same (the special tokens are then not those of the same conversation about nothing).
    """
    template = tokenizer.chat_template if template is None else template
    if template is None:
        raise ValueError(f"{tokenizer.where}: has no chat template; expected one, or a prompt as text")
    plain = checked(messages)
    opening, closing = _unused(2, [template, *(m["content"] for m in plain)])
    special = {text: i for text, (i, is_special) in tokenizer.added_tokens.items() if is_special}
    every, hard = _any_of(tokenizer.added_tokens), _any_of(special)

    def defused(m: dict[str, str]) -> dict[str, str]:
        tokens = hard if m["role"] == "assistant" else every
        return m | {"content": tokens.sub(lambda found: f"{opening}{found[0]}{closing}", m["content"])}

    def render(these: Sequence[Message]) -> str:
        return render_chat(these, template, add_generation_prompt=add_generation_prompt,
                           enable_thinking=enable_thinking, special_tokens=tokenizer.special_names)

    # text, token from a message, text, ...; a marker alone (the template cut between two) parts texts as well
    pieces = re.split(f"{opening}({every.pattern}){closing}|[{opening}{closing}]", render([defused(m) for m in plain]))
    ids: list[int] = []
    for i, piece in enumerate(pieces):
        if piece:
            ids += tokenizer.tokenize(piece, control=i % 2 == 0)
    blank = render([m | {"content": re.sub(r"\S+", "x", m["content"])} for m in plain])
    expected, known = [special[t] for t in hard.findall(blank)], set(special.values())
    if (got := [i for i in ids if i in known]) != expected:
        raise ValueError(f"{tokenizer.where}: chat template: message text changes the control tokens: got {len(got)}, "
                         f"expected {len(expected)} of the template's own")
    return ids


def _any_of(tokens: Iterable[str]) -> re.Pattern:
    """Any of the tokens, a longer one before one that it begins with; blank ones (a newline as a token) are text."""
    longest_first = sorted((t for t in tokens if t.strip()), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _unused(count: int, texts: Sequence[str]) -> list[str]:
    """Private-use characters that stand in none of the texts."""
    taken = set().union(*texts)
    return list(itertools.islice(
        (c for c in map(chr, itertools.chain.from_iterable(PRIVATE_USE)) if c not in taken), count))


def strip_thinking(text: str) -> tuple[str, str]:
    """(thinking, answer) of a model's text: only a block at its start is thinking.

    An unclosed `<think>` there takes the whole text. Without one, the first `</think>` that begins a line closes a
    block that the prompt opened. Tags elsewhere (an answer that quotes them) are text. Text without a block is the
    answer, untouched.
    """
    if found := _BLOCK.match(text):
        return (found["own"] or found["prompted"] or "").strip(), text[found.end():].strip()
    return (text.lstrip()[len("<think>"):].strip(), "") if text.lstrip().startswith("<think>") else ("", text)
