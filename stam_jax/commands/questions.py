"""Commands that ask a patient's memory something."""
from __future__ import annotations

import argparse
from typing import Any

from core_jax.embed import load_encoder
from stam_jax.commands.openers import known, opened, reader_of, say
from stam_jax.config import Config
from stam_jax.history.gate import Gate
from stam_jax.history.gate import serve as gated
from stam_jax.read import listing
from stam_jax.read import search as read


def _found(args: argparse.Namespace, config: Config, words: str, gate: Gate | None = None) -> read.Found:
    if not words.strip():
        raise ValueError("got no words to search for")
    encoder = load_encoder(config.encoder)
    if gate is not None:
        gate.for_searches_of(encoder.id)
    with opened(args, encoder) as store:
        known(store, args.patient)
        state, vectors = read.snapshot(store, args.patient)
    vector = read.encode_query(encoder, [words], config.read.instruction)[0]
    return read.search(state, vectors, vector, config.read, as_of_seq=args.as_of_seq, as_of_date=args.as_of_date)


def search(args: argparse.Namespace, config: Config) -> None:
    if args.most < 1:
        raise ValueError(f"--most {args.most}: expected at least 1")
    found = _found(args, config, args.query)
    say(f"{item.cosine:.3f}  {'holds' if item.place == 'ACTIVE' else 'past '}  {listing.summary(item.memory)}"
        for item in found.ranked()[:args.most])


def answer(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    if (args.arm == "gate") != (args.gate is not None):
        raise ValueError("--gate: needed for --arm gate, and for no other arm")
    gate = Gate.load(args.gate) if args.gate else None
    found, reader = _found(args, config, args.question, gate), reader_of(args.reader)
    if gate is not None:
        packet, p = gated(found, gate, config.read, args.question, reader.count)
    else:
        packet, p = read.packet(found, args.arm.upper(), config.read, reader.count), None
    said = reader.answer([args.question], [packet])[0]
    if said.error is not None:
        raise ValueError(f"--reader {args.reader}: {said.error}")
    return {"answer": said.text, "grounds": [listing.summary(found.state.memories[mid]) for mid in said.grounds],
            "arm": said.arm, "hold": found.stored[0], "hold_served": sum(i.place == "ACTIVE" for i in packet.items),
            "history_needed": p, "reader": said.reader, "tokens": said.tokens, "packet_sha256": said.packet_sha256,
            "packet": packet.text.splitlines()}
