"""Commands that keep running: the HTTP service and the MCP face."""
from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from core_jax.embed import load_encoder
from core_jax.engine.server import is_loopback
from stam_jax.commands.openers import opened, reader_of, writer_of
from stam_jax.config import Config
from stam_jax.history.gate import Gate
from stam_jax.serve.service import Service


@contextmanager
def _service(args: argparse.Namespace, config: Config, **access) -> Iterator[Service]:
    gate = None if args.gate is None else Gate.load(args.gate)
    encoder = load_encoder(config.encoder)
    writer, reader = writer_of(args, config), reader_of(args.reader)
    with opened(args, encoder) as store:
        yield Service(store, encoder, writer=writer, reader=reader, config=config, gate=gate, **access)


def serve(args: argparse.Namespace, config: Config) -> None:
    try:
        from stam_jax.serve.http import bind
        from stam_jax.serve.http import serve as answering
    except ModuleNotFoundError as e:
        raise ValueError(f"{e.name} is not installed: pip install 'evigen-stam-jax[serve]'") from None
    key = None
    if args.key_env is not None and not (key := os.environ.get(args.key_env)):
        raise ValueError(f"--key-env {args.key_env}: this environment variable is not set")
    if key is None and not is_loopback(args.host):
        raise ValueError(f"--host {args.host}: others can reach it, so a key is needed; put one into a variable and name it by --key-env")
    try:
        listener = bind(args.host, args.port, key)
    except OSError as e:
        raise OSError(f"{e}; name another one by --port, 0 takes a free one") from None
    with _service(args, config, listing=args.patient_list) as service:
        answering(service, listener, key=key, agents=args.agents)


def mcp(args: argparse.Namespace, config: Config) -> None:
    """stdout belongs to the protocol."""
    try:
        from stam_jax.serve.mcp import face
    except ModuleNotFoundError as e:
        raise ValueError(f"{e.name} is not installed: pip install 'evigen-stam-jax[mcp]'") from None
    with _service(args, config, patient_id=args.patient) as service:
        face(service).run("stdio")
