"""Ctrl-C that is not lost: an interrupt that Python swallows is raised again, and a second one ends the process at once.

Python raises KeyboardInterrupt wherever the main thread happens to be. Exceptions in some places are printed and
forgotten ("Exception ignored in ..."): destructors, and the callback with which jax follows each garbage collection,
which is where a training process spends much of its time.
"""
from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

_AGAIN = 0.02  # seconds from the place that swallowed it to the next try


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """KeyboardInterrupt on SIGINT, whatever code it meets; a second SIGINT has the default effect.

    Outside the main thread, and where SIGINT is ignored (a background job of a script), nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
        yield
        return
    asked = []

    def interrupt(number, frame):
        if asked:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        asked.append(number)
        raise KeyboardInterrupt

    def again(number, frame):
        raise KeyboardInterrupt

    def swallowed(found):
        if issubclass(found.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            unraisable(found)

    unraisable, sys.unraisablehook = sys.unraisablehook, swallowed
    before = {number: signal.signal(number, handler) for number, handler in ((signal.SIGALRM, again), (signal.SIGINT, interrupt))}
    try:
        yield
    except Exception as e:  # code that meets an interrupt may raise something of its own
        if asked:
            raise KeyboardInterrupt from e
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = unraisable
