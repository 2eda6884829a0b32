"""Connecting to other machines, as TensorFlow's gRPC does, and saying no more than HTTP/2 says before anything else.

A TCP connection is opened, HTTP/2's preface with an empty SETTINGS frame is sent (RFC 9113, 3.4), and the first frame
of the answer is looked at: a gRPC server's is SETTINGS. Then it is closed. Any other server of plain HTTP/2 looks the
same. The grpcio package would see what this sees, and is a heavy dependency.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from typing import TYPE_CHECKING

from tfdoctor.facts.network import Reached

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["reach", "reach_all"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of HTTP/2 says first, and a SETTINGS frame of length 0."""
HEAD = 9
"""Bytes before a frame's content: three of its length, its type, its flags, four of its stream."""
SETTINGS = 4
AT_ONCE = 64
MAX_ADDRESSES = 8
"""Addresses of one name that are tried."""


def reach(host: str, port: int, seconds: float) -> Reached:
    """Return whether a gRPC server answers there, within `seconds` after its name is resolved.

    Never raises OSError.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        busy = error.errno == socket.EAI_AGAIN
        return Reached(False, "no-such-name", "the name server does not answer" if busy else "")
    except (UnicodeError, OSError, ValueError):
        return Reached(False, "no-such-name")
    until = time.monotonic() + seconds
    answers = []
    places = list(dict.fromkeys((family, place) for family, _, _, _, place in found))[:MAX_ADDRESSES]
    for family, place in places:
        left = until - time.monotonic()
        if left <= 0:
            break
        answers.append(_connect(family, place, left))
        if answers[-1].ok:
            return answers[-1]
    for why in ("not-tensorflow", "refused", "timeout"):
        for answer in answers:
            if answer.why == why:
                return answer
    return answers[0] if answers else Reached(None, detail="its name has no address")


def _connect(family: int, place: object, seconds: float) -> Reached:
    until = time.monotonic() + seconds
    try:
        with socket.socket(family, socket.SOCK_STREAM) as line:
            line.settimeout(seconds)
            try:
                line.connect(place)  # type: ignore[arg-type] # getaddrinfo's own
            except OSError as error:
                return _make_failure(error)
            return _ask(line, until)
    except OSError as error:
        return Reached(None, detail=error.strerror or "no connection could be made from here")


def _make_failure(error: OSError) -> Reached:
    if isinstance(error, TimeoutError):
        return Reached(False, "timeout")
    if error.errno == errno.ECONNREFUSED:
        return Reached(False, "refused")
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT):
        return Reached(False, "timeout", (error.strerror or "").lower())
    if error.errno == errno.ECONNRESET:
        return Reached(False, "refused", "the connection is reset")
    return Reached(None, detail=error.strerror or "no connection could be made from here")


def _ask(line: socket.socket, until: float) -> Reached:
    """Return the answer to HTTP/2's preface."""
    heard = b""
    try:
        line.sendall(PREFACE)
        while len(heard) < HEAD:
            line.settimeout(max(0.01, until - time.monotonic()))
            more = line.recv(HEAD - len(heard))
            if not more:
                break
            heard += more
    except TimeoutError:
        if not heard:
            return Reached(False, "timeout", "it takes the connection and says nothing")
    except OSError:
        if not heard:
            return Reached(False, "not-tensorflow", "it resets the connection")
    if len(heard) == HEAD and heard[3] == SETTINGS and heard[5:] == bytes(4):
        return Reached(True)
    if not heard:
        return Reached(False, "not-tensorflow", "it closes the connection")
    known = "it answers as an HTTP/1 server" if heard.startswith(b"HTTP/") else ""
    known = "it answers as an SSH server" if heard.startswith(b"SSH-") else known
    return Reached(False, "not-tensorflow", known)


def reach_all(places: Sequence[tuple[str, int]], *, seconds: float, total: float) -> list[Reached]:
    """Return `reach` of all of them side by side; what has not ended after `total` seconds is not known."""
    done: list[Reached | None] = [None] * len(places)
    left = iter(range(len(places)))
    lock = threading.Lock()
    over = threading.Event()
    until = time.monotonic() + total

    def work() -> None:
        while not over.is_set():
            with lock:
                number = next(left, None)
            if number is None:
                return
            host, port = places[number]
            given = min(seconds, until - time.monotonic())
            if given <= 0:
                return
            answer = reach(host, port, given)
            if answer.why != "timeout" or given >= seconds * 0.9:  # else nothing is known of it
                done[number] = answer

    threads = [
        threading.Thread(target=work, name="reaching", daemon=True) for _ in range(min(AT_ONCE, len(places)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until + 0.2 - time.monotonic()))
    over.set()
    return [one if one is not None else Reached(None, detail="there was no time to ask") for one in done]
