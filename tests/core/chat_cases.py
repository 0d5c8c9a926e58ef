"""A small byte-level tokenizer and chat templates of the shapes that real ones have, for tests without downloads."""
from __future__ import annotations

import json

CHATML = (
    "{%- for message in messages %}\n"
    "    {%- if message.role == 'assistant' %}\n"
    "        {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}\n"
    "        {{- '<|im_start|>assistant\\n' + content }}\n"
    "    {%- else %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content }}\n"
    "    {%- endif %}\n"
    "    {{- '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "    {%- if enable_thinking is defined and enable_thinking is false %}\n"
    "        {{- '<think>\\n\\n</think>\\n\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endif %}\n")
HEADERS = (
    "{% for message in messages %}"
    "{% set content = '<|im_start|>' + message['role'] + '\n\n'+ message['content'] | trim + '<|im_end|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}")
DEFAULTED = (  # as Qwen2.5's: a system turn of the template's own where the talk begins without one
    "{%- if messages[0]['role'] == 'system' %}\n"
    "    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}\n"
    "{%- else %}\n"
    "    {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    "    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) or (message.role == 'assistant'"
    " and not message.tool_calls) %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n")
EVERYTHING = (
    "{% if messages[0]['role'] == 'critic' %}{{ raise_exception('no critics here') }}{% endif %}\n"
    "{% set ns = namespace(seen=0) %}\n"
    "  {% for message in messages %}\n"
    "  {% if message.role == 'tool' %}{% continue %}{% endif %}\n"
    "  {% if ns.seen > 3 %}{% break %}{% endif %}\n"
    "  {% set ns.seen = ns.seen + 1 %}\n"
    "<{{ message.role }}>{% generation %}{% set inner = message.content %}{{ inner | tojson }}{% endgeneration %}"
    "{{ inner is defined }}\n"
    "  {% endfor %}\n"
    "{{ {'b': '<é>', 'a': [1, none]} | tojson(indent=2) }}{{ eos_token }}{{ strftime_now('%Y')|length }}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<think>", "</think>", "<tool_call>"]


def write_tokenizer(folder, template: str = CHATML) -> None:
    """A folder with tokenizer.json (byte-level BPE of some hundred tokens) and the JSON files beside it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    text = ["the patient has chest pain and was given 20 mg of furosemide", "user assistant system im start end"] * 9
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens([AddedToken(s, normalized=False) for s in SPECIAL])
    t.add_tokens([AddedToken(s, normalized=False, special=False) for s in PLAIN])
    t.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": SPECIAL[0], "eos_token": {"__type": "AddedToken", "content": SPECIAL[2]}, "pad_token": SPECIAL[0],
        "chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}))
