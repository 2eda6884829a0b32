"""Programs of this machine that reach one node each, such as ssh and srun: many at once, none of which outlives us."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import threading
import time
from collections import deque
from typing import IO, TYPE_CHECKING

from tfdoctor.fleet.nodes.models import Job, NodeAnswer
from tfdoctor.system.children import Children
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from tfdoctor.system.children import Ran

__all__ = ["ask_each", "script"]

GRACE_S = 15.0
"""Seconds that reaching a node and leaving it may take beside what runs there."""
LEFT_BEHIND = 125
"""The status where the node could not take the file."""
OF_ENGINE = ("srun: ", "slurmstepd")
"""Lines that say only that the task ended, after what it said itself."""
NOT_FOUND, TIMED_OUT = 127, (124, 137)


class _FloodError(Exception):
    """More came than is taken."""


def script(job: Job) -> str:
    """Return what a node's `sh` runs: it takes the file from standard input, runs it, and leaves nothing behind.

    Standard input stays open as long as we are there. Where it ends before the node has answered we are gone, and so
    is what runs there; `timeout`, where the node has it, ends it at its deadline besides, with all that it started.
    """
    size = job.zipapp.stat().st_size
    run = f'{shlex.quote(job.python)} "$d/tfdoctor.pyz" {shlex.join(job.arguments)}'
    limit = "timeout -k 5"
    watching = 'read -r x <&3; kill "$1"; for x in 1 2 3 4 5; do kill -0 "$1" && sleep 1; done; '
    watching += 'kill -9 "$1" "-$1"; rm -rf "$2"'
    return "; ".join(
        (
            'd=$(mktemp -d "${TMPDIR:-/tmp}/tfdoctor-XXXXXXXX") || exit 125; p= w=',
            # The group of `timeout` is all that it started. Where there is no `timeout`, there is no such group.
            """trap 'kill $w 2>/dev/null; [ -z "$p" ] || kill -9 "-$p" 2>/dev/null; rm -rf "$d"' EXIT""",
            """trap '[ -z "$p" ] || { kill "$p" 2>/dev/null && wait "$p"; }; exit 129' HUP INT TERM""",
            f'head -c {size} >"$d/tfdoctor.pyz" && [ "$(wc -c <"$d/tfdoctor.pyz")" -eq {size} ] || exit 125',
            f't=; if {limit} 1 true 2>/dev/null; then t="{limit} {job.deadline:.0f}"; fi',
            "exec 3<&0",
            f'TMPDIR="$d" $t {run} </dev/null 3<&- & p=$!',
            # A session of its own, where it can: whoever kills all of ours at once leaves it, and it ends the rest.
            "s=; if command -v setsid >/dev/null 2>&1; then s=setsid; fi",
            f"""$s sh -c '{watching}' sh "$p" "$d" >/dev/null 2>&1 & w=$!""",
            # The shell says that it was ended, where nobody may hear it any more.
            """exec 3<&-; trap '' PIPE; wait "$p"; exit $?""",
        )
    )


def ask_each(
    hosts: Sequence[str],
    job: Job,
    command: Callable[[str], Sequence[str]],
    lost: Callable[[Ran], bool],
    *,
    parallel: int,
    after: Callable[[], None] = lambda: None,
) -> Generator[NodeAnswer, None, None]:
    """Yield one answer a host. command: what reaches it, which is given the file as its standard input.

    Lost: whether it ended because the node was not reached; after: what takes away what our programs may have left,
    at the end.
    """
    children, answers, waiting = Children(), queue.SimpleQueue[NodeAnswer](), deque(hosts)
    ending = threading.Event()

    def work() -> None:
        while not ending.is_set():
            try:
                host = waiting.popleft()
            except IndexError:
                return
            answers.put(_ask_host(children, host, job, command(host), lost))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(parallel, len(hosts)))]
    try:
        for one in threads:
            one.start()
        for _ in hosts:
            yield answers.get()
    finally:
        ending.set()
        children.stop()
        for one in threads:
            if one.is_alive():
                one.join(2)
        after()


def _ask_host(
    children: Children, host: str, job: Job, argv: Sequence[str], lost: Callable[[Ran], bool]
) -> NodeAnswer:
    began, taken = time.monotonic(), 0

    def heard(piece: bytes) -> None:
        nonlocal taken
        taken += len(piece)
        if taken > job.largest:
            raise _FloodError

    try:
        with _open_pipe(job.zipapp) as given:
            ran = children.run(
                argv, timeout=job.deadline + GRACE_S, env=dict(os.environ), heard=heard, given=given
            )
    except _FloodError:
        why = f"it wrote more than {job.largest >> 20} MiB"
        return NodeAnswer(host, "flooded", why=why, seconds=time.monotonic() - began)
    except (OSError, ValueError) as error:
        return NodeAnswer(
            host, "failed", why=clean_line(f"{argv[0]}: {getattr(error, 'strerror', '') or error}")
        )
    return _answer(host, job, ran, lost=lost(ran), seconds=round(time.monotonic() - began, 3))


@contextlib.contextmanager
def _open_pipe(file: Path) -> Iterator[IO[bytes]]:
    """A pipe that has the file, and does not end before the block does."""
    content = file.read_bytes()
    ends = os.pipe()
    read, write = os.fdopen(ends[0], "rb", 0), os.fdopen(ends[1], "wb", 0)

    def feed() -> None:
        left = memoryview(content)
        with contextlib.suppress(OSError):  # nobody reads any more
            while left:
                left = left[write.write(left) :]

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    try:
        yield read
    finally:
        read.close()  # so that nothing waits for a reader
        feeding.join()
        write.close()


def _answer(host: str, job: Job, ran: Ran, *, lost: bool, seconds: float) -> NodeAnswer:
    if ran.returncode is None or (ran.returncode in TIMED_OUT and seconds >= job.deadline):
        return NodeAnswer(host, "timeout", why=f"no answer within {job.deadline:g} s", seconds=seconds)
    said = [clean_line(line, limit=200) for line in ran.stderr.decode("utf-8", "replace").splitlines()[-200:]]
    whose = [line for line in said if line and (lost or not line.startswith(OF_ENGINE))]
    last = next(reversed(whose or [line for line in said if line]), "")
    if lost:
        return NodeAnswer(host, "lost", why=last or "it was not reached", seconds=seconds)
    if ran.stdout.strip():
        return NodeAnswer(host, "answered", ran.stdout, seconds=seconds)
    why = f"exit status {ran.returncode}"
    if ran.returncode == NOT_FOUND:
        why = f"there is no {job.python}"
    elif ran.returncode == LEFT_BEHIND:
        why = "the node has no room for the file"
    return NodeAnswer(
        host, "failed", why=clean_line(f"{why}: {last}" if last else why, limit=300), seconds=seconds
    )
