"""Results that appear whole: made beside their place under a hidden name, renamed into it, cleared away after a kill.

Who makes a result holds a lock (flock) on the unfinished one. The kernel lets go of it however the process ends, so an
unfinished neighbour that nobody holds was left by a process that was killed, and the next one to make the same result
removes it. Where the file system has no locks nothing is removed. Standard library only.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from typing import BinaryIO

_PART, _WAS = "part", "was"  # unfinished; an earlier result that steps aside while the new one takes its place


@contextlib.contextmanager
def file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A file to write bytes to, that is `path` once the block ends; on an exception all is as it was before."""
    path = os.fspath(path)
    clear(path)
    part, held = _claim(path, _PART, _new_file)
    try:
        with open(held, "wb") as raw:  # closes `held`, after the rename
            yield raw
            raw.flush()
            os.fsync(raw.fileno())
            os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise


@contextlib.contextmanager
def folder(path: str | os.PathLike) -> Iterator[str]:
    """An empty folder beside `path` that takes its place once the block ends; on an exception all is as it was before.

    A folder at `path` is replaced: who calls has made sure that it may be. Call `clear(path)` before looking there.
    """
    path = os.path.abspath(os.fspath(path))
    part, held = _claim(path, _PART, _new_folder)
    try:
        yield part
        _swap(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        os.close(held)


def clear(path: str | os.PathLike) -> None:
    """Remove what killed processes left beside `path`; an earlier result that one of them had moved aside comes back."""
    path = os.path.abspath(os.fspath(path))
    parent, base = os.path.split(path)
    ours = re.compile(rf"\.{re.escape(base)}\.[0-9a-f]{{8}}\.({_PART}|{_WAS})")
    try:
        found = [(name, kind[1]) for name in os.listdir(parent) if (kind := ours.fullmatch(name))]
    except OSError:
        return  # whoever writes there says what is wrong
    for name, kind in found:
        left = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # gone meanwhile, or not ours to remove
            held = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if _lock(held):
                    if kind == _WAS and not os.path.lexists(path):
                        os.rename(os.path.join(left, base), path)
                    shutil.rmtree(left) if os.path.isdir(left) else os.unlink(left)
            finally:
                os.close(held)


def _new_file(name: str) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)


def _new_folder(name: str) -> int | None:
    os.mkdir(name)
    try:
        return os.open(name, os.O_RDONLY)
    except FileNotFoundError:  # `clear` of another process took it before it was opened
        return None


def _claim(path: str, kind: str, make: Callable[[str], int | None]) -> tuple[str, int]:
    """(a fresh hidden neighbour of `path`, its locked descriptor)."""
    parent, base = os.path.split(path)
    try:
        os.makedirs(parent or ".", exist_ok=True)
        while True:
            name = os.path.join(parent, f".{base}.{secrets.token_hex(4)}.{kind}")
            if (held := make(name)) is None:
                continue
            if _lock(held) is not False and os.path.lexists(name):
                return name, held
            os.close(held)
    except OSError as e:
        raise OSError(e.errno, e.strerror, path) from e  # nobody asked for the hidden name


def _lock(held: int) -> bool | None:
    """Whether the lock is ours now; None where there are no locks."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None


def _swap(part: str, path: str) -> None:
    """Rename `part` to `path`; a folder there steps aside first, and comes back where the rename fails."""
    if not os.path.lexists(path):
        os.rename(part, path)
        return
    aside, held = _claim(path, _WAS, _new_folder)
    was = os.path.join(aside, os.path.basename(path))
    try:
        os.rename(path, was)
        os.rename(part, path)
    except BaseException:
        if not os.path.lexists(path):
            os.rename(was, path)
        raise
    finally:
        if os.path.lexists(part):  # it failed: nothing is left aside, or what `clear` shall look at
            with contextlib.suppress(OSError):
                os.rmdir(aside)
        else:
            shutil.rmtree(aside, ignore_errors=True)
        os.close(held)
