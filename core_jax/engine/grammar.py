"""Grammar-constrained decoding through llguidance: which tokens may come next, and which must.

llguidance (MIT; a wheel of 3 MB without dependencies) reads the tokenizer's own JSON, holds for any vocabulary and
bounds its work per step. Imports without JAX; llguidance itself is imported on first use.

For who writes a lark grammar or a regex:
- A terminal takes what it can and never gives back: what follows it has to begin with a character that cannot continue
  it. `WORDS: /[a-z ]+/` then " | " never matches, because the blank is a word's; then "|" does.
- `[^|]+` is followed in 10 to 30 us a token, `[^|]{1,80}` in 0.3 to 2 ms: leave the length to max_tokens.
- Regexes are Rust's: `\\d` is any digit of Unicode, `[0-9]` the ten.
"""
from __future__ import annotations

import collections
import itertools
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from core_jax.engine.request import Grammar
from core_jax.text import Tokenizer

MAX_TEXT = 500_000  # characters of a grammar: an enumeration of about 80,000 codes, which compiles in 0.6 s
MAX_PARTS = 2_000  # keys of a schema, colons of a lark grammar (each rule and each key of an inner schema has one):
# optional keys compile in quadratic time, 0.6 s for these
MAX_STATES = 50_000  # of the lexer, about 2 kB each
STACK = 256 << 20  # bytes: llguidance recurses along references; a long chain of them overflows the usual 8 MiB
# JSON as json.dumps writes it, keys in the order of `properties`: models have seen that form most, and all of it but
# the values is forced. Free white space would let a weak model write blanks for ever.
JSON_FORM = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False, "lenient": False}

# Classes of text whose tokens are found once and then taken whole, beside the library's own for JSON strings: a field
# of a line grammar, words. They change the speed only.
SLICES = [r'[^"\\\x00-\x1F\x7F|]{1,10}', r"[a-zA-Z0-9 ]{1,10}", r"[a-zA-Z0-9 ]+"]

_stack_lock = threading.Lock()


class Matcher:
    """Where one completion stands in its grammar."""

    def __init__(self, state: Any, vocabulary: _Vocabulary, where: str):
        self._state, self._vocabulary, self._where = state, vocabulary, where
        self._mask: np.ndarray | None = None  # of this place, where it is known
        self._due = 0  # forced tokens that were not taken yet

    def mask(self) -> np.ndarray:
        """uint32 [ceil(vocab_size / 32)]: bit `v % 32` of word `v // 32` is set where token v may come next.

        The stop tokens are set where the text may end here. Where the text is complete (`done`), they alone are. Other
        control tokens never are, even where the grammar spells one out.
        Raises: ValueError as `forced`, for who does not call that after each token of its own.
        """
        if self._mask is None:
            given = np.frombuffer(self._state.compute_bitmask(), np.uint32)[: len(self._vocabulary.plain)]
            self._check()
            words = given & self._vocabulary.plain
            if self._state.is_accepting():
                words |= given & self._vocabulary.stops
            if not words.any():
                raise ValueError(f"{self._where}: goes on with a control token, which is no text")
            self._mask = words
        return self._mask

    def advance(self, token: int) -> None:
        """Takes the token that was chosen. Raises: ValueError: the grammar does not allow it; as `forced`."""
        self._mask = None
        if not self._state.consume_token(int(token)):
            why = _first_line(self._state.get_error())
            raise ValueError(f"{self._where}: token {token} is not allowed here: {why}")
        if self._due:
            self._due -= 1
            if not self._due and not self.done:
                self.mask()

    def forced(self) -> tuple[int, ...]:
        """Tokens that must follow, in the tokenizer's own spelling; may be none. They are taken with `advance`.

        Raises: ValueError: the text cannot go on from here: the grammar is too ambiguous to be followed within
            llguidance's limits, or asks for a control token.
        """
        if self._state.is_stopped():
            return ()
        tokens = tuple(self._state.compute_ff_tokens())
        self._check()
        if self._vocabulary.control.intersection(tokens):
            tokens = tuple(itertools.takewhile(lambda t: t not in self._vocabulary.control, tokens))
        self._due = len(tokens)
        if not tokens:
            self.mask()
        return tokens

    @property
    def accepting(self) -> bool:
        """The text so far is in the language: it may end here."""
        return self._state.is_accepting()

    @property
    def done(self) -> bool:
        """The text is complete and nothing can follow."""
        return self._state.is_stopped() and not self._state.is_error()

    def _check(self) -> None:
        if self._state.is_error():
            raise ValueError(f"{self._where}: {_first_line(self._state.get_error())}")


class _Vocabulary:
    """plain, stops: uint32 [ceil(vocab_size / 32)], the bits of all tokens that are text, and of the stop tokens.
    control: ids that are neither text nor unused."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, stop_tokens: Sequence[int]):
        self.control = frozenset(i for i, special in tokenizer.added_tokens.values() if special) | set(stop_tokens)
        self.stops = _words(stop_tokens, vocab_size)
        self.plain = ~_words([i for i in self.control if i < vocab_size], vocab_size)


def _words(tokens: Sequence[int], vocab_size: int) -> np.ndarray:
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[list(tokens)] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


class Grammars:
    """Compiles grammars for one vocabulary; keeps the last `keep` of them. May be used from several threads."""

    def __init__(self, tokenizer: Tokenizer, *, vocab_size: int, stop_tokens: Sequence[int], keep: int = 64):
        """
        Args:
            vocab_size: rows of the model's logits, which may be more than the tokenizer has tokens.
            stop_tokens: ids that end a completion.

        Raises:
            ValueError: llguidance is not installed or cannot read this tokenizer; no stop token, or one outside the
                vocabulary.
        """
        try:
            import llguidance
        except ImportError:
            raise ValueError("constrained decoding needs llguidance; run: pip install 'llguidance>=1.9,<2'") from None
        if not stop_tokens or not all(0 <= t < vocab_size for t in stop_tokens):
            raise ValueError(f"stop_tokens: got {list(stop_tokens)}, expected at least one id in [0, {vocab_size})")
        self._library, self._keep, self._vocabulary = llguidance, keep, _Vocabulary(tokenizer, vocab_size, stop_tokens)
        try:
            self._reader = llguidance.LLTokenizer(
                tokenizer.serialized, n_vocab=vocab_size, eos_token=list(stop_tokens),
                slices=llguidance.LLTokenizer.general_slices() + SLICES)
        except ValueError as e:
            why = _first_line(str(e))
            raise ValueError(f"{tokenizer.where}: llguidance cannot read this tokenizer: {why}") from None
        self._limits = llguidance.LLParserLimits(max_lexer_states=MAX_STATES, verbose_errors=False)
        self._compiled: collections.OrderedDict[Grammar, Any] = collections.OrderedDict()
        self._lock = threading.Lock()

    def matcher(self, grammar: Grammar) -> Matcher:
        """A matcher at the beginning of a text. Raises: ValueError saying what is wrong with the grammar."""
        with self._lock:
            state = self._compiled.get(grammar)
            if state is not None:
                self._compiled.move_to_end(grammar)
        if state is None:
            state = _deep(lambda: self._build(grammar))
            with self._lock:
                self._compiled[grammar] = state
                while len(self._compiled) > self._keep:
                    self._compiled.popitem(last=False)
        return Matcher(state.deep_copy(), self._vocabulary, _where(grammar))

    def _build(self, grammar: Grammar) -> Any:
        source = _source(grammar, self._library.LLMatcher)
        state = self._library.LLMatcher(self._reader, source, log_level=0, limits=self._limits)
        try:
            Matcher(state, self._vocabulary, _where(grammar)).mask()
        except ValueError:
            if "NoExtensionBias" not in state.get_error():  # what llguidance says where no token can follow
                raise
        if state.is_stopped():
            raise ValueError(f"{_where(grammar)}: allows no text at all")
        return state


def check(grammar: Grammar) -> None:
    """What can be said of a grammar without a tokenizer. Raises: ValueError."""
    if len(grammar.text) > MAX_TEXT:
        raise ValueError(f"{_where(grammar)}: got {len(grammar.text)} characters, expected at most {MAX_TEXT}")
    parts = grammar.text.count(":") if grammar.kind == "lark" else 0
    if grammar.kind in ("json_schema", "choice"):
        value = _json(grammar)
        if grammar.kind == "choice" and not (
                isinstance(value, list) and value and all(isinstance(s, str) and s for s in value)):
            raise ValueError(f"{_where(grammar)}: expected a JSON list of non-empty strings")
        if grammar.kind == "json_schema":
            if not isinstance(value, dict):
                raise ValueError(f"{_where(grammar)}: got a {type(value).__name__}, expected an object")
            parts = _keys(value)
    if parts > MAX_PARTS:
        what = "rules" if grammar.kind == "lark" else "keys"
        raise ValueError(f"{_where(grammar)}: got {parts} {what}, expected at most {MAX_PARTS}")


def _source(grammar: Grammar, library: Any) -> str:
    """The grammar as llguidance takes it."""
    check(grammar)
    if grammar.kind == "json_schema":
        return library.grammar_from_json_schema(grammar.text, overrides=JSON_FORM)
    if grammar.kind == "regex":
        return library.grammar_from_regex(grammar.text)
    if grammar.kind == "choice":
        return library.grammar_from_lark("start: " + " | ".join(json.dumps(s) for s in json.loads(grammar.text)))
    return library.grammar_from_lark(grammar.text)


def _json(grammar: Grammar) -> Any:
    try:
        return json.loads(grammar.text)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{_where(grammar)}: not JSON: {_first_line(str(e))}") from None


def _keys(value: Any) -> int:
    """Keys of all objects in a JSON value, and members of its lists that are objects or lists."""
    count, rest = 0, [value]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            count += len(value)
            rest += value.values()
        elif isinstance(value, list):
            inner = [v for v in value if isinstance(v, (dict, list))]
            count += len(inner)
            rest += inner
    return count


def _deep(work: Callable[[], Any]) -> Any:
    """Runs `work` on a thread with a stack of STACK bytes (of which only what is touched takes memory)."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.extend((work(), None))
        except Exception as e:
            outcome.extend((None, e))

    with _stack_lock:
        before = threading.stack_size(STACK)
        try:
            thread = threading.Thread(target=run, name="grammar")
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def _where(grammar: Grammar) -> str:
    return f"grammar ({grammar.kind})"


def _first_line(message: str) -> str:
    """Of a message, and what it says further down of the cause (Rust's regexes do)."""
    first, *rest = message.strip().split("\n")
    return " ".join([first, *(line.strip() for line in rest if line.strip().startswith("error:"))])[:300]
