"""What every HTTP server here does alike: its key, its socket, who may ask, and how it runs. Only `run` needs uvicorn.

Without a key only this machine can connect, and a web page open on it must not: the Host header has to be a local name
(against DNS rebinding), and bodies have to be JSON by their type (which a page cannot send unasked).
"""
from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import signal
import socket
import string
from collections.abc import Callable, Collection
from typing import Any

KEY_LENGTH = 16
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_PORT = re.compile(r"(:[0-9]*)?")
_KEY_CHARACTERS = set(string.ascii_letters + string.digits + string.punctuation)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_key(key: str | None, host: str, where: str = "key") -> None:
    """Raises: ValueError: others can reach the address and there is no key, or the key (found at `where`) is short."""
    if key is None and not is_loopback(host):
        raise ValueError(f"host {host}: others can reach it, so a key is needed")
    if key is not None and (len(key) < KEY_LENGTH or not set(key) <= _KEY_CHARACTERS):
        raise ValueError(f"{where}: expected a key of at least {KEY_LENGTH} printable ASCII characters without blanks")


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, not listening yet, so that a taken port is known before models are loaded; 0 takes a free one.

    Raises: OSError.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as e:
        listener.close()
        raise OSError(f"host {host}, port {port}: {e.strerror}") from None
    return listener


class Door:
    """Who may ask, by the head of a request. open: paths that need no key."""

    def __init__(self, key: str | None, open: Collection[str], body_bytes: int):
        self.digest = None if key is None else hashlib.sha256(key.encode()).digest()
        self.open, self.body_bytes = open, body_bytes

    def refusal(self, scope: Any) -> tuple[int, str] | None:
        """(HTTP status, message) for an ASGI scope that is not let in."""
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        if self.digest is None:
            host = headers.get("host", "localhost")
            name, _, rest = host[1:].partition("]") if host.startswith("[") else host.partition(":")
            port = rest if host.startswith("[") else host[len(name):]
            if name.lower() not in LOCAL_NAMES or not _PORT.fullmatch(port):
                return 403, f"Host: got {host[:100]!r}, expected one of {LOCAL_NAMES}"
        elif scope["path"] not in self.open:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            digest = hashlib.sha256(given.strip().encode()).digest()
            if not hmac.compare_digest(digest, self.digest) or scheme.lower() != "bearer":
                return 401, "Authorization: expected 'Bearer' and this server's key"
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return 415, f"Content-Type: got {kind[:100]!r}, expected 'application/json'"
            length = headers.get("content-length", "0")
            if length.isdigit() and int(length[:20]) > self.body_bytes:
                return 413, too_large(self.body_bytes)
        return None


def sendable(text: str) -> str:
    """The text with lone surrogates escaped: a refusal may name what a body holds, and has to be UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def too_large(most: int) -> str:
    return f"body: longer than {most} bytes"


def run(application: Any, listener: socket.socket, *, protocol: type, drain_seconds: float, lifespan: str,
        say: Callable[[str], str]) -> None:
    """Answers on `listener` until SIGTERM or SIGINT. say: the line to print, from the host and port that it has."""
    import uvicorn

    config = uvicorn.Config(
        application, http=protocol, ws="none", lifespan=lifespan, log_level="warning", access_log=False,
        server_header=False, proxy_headers=False, backlog=1024, timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(drain_seconds)))
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises the signal again once it has shut down
        signal.signal(number, lambda *_: None)
    listener.listen(config.backlog)  # who reads the line below may connect at once, and waits for the rest
    host, port = listener.getsockname()[:2]
    print(say(f"[{host}]:{port}" if ":" in host else f"{host}:{port}"), flush=True)
    uvicorn.Server(config).run(sockets=[listener])
