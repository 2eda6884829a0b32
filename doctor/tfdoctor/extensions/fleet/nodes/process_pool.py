"""Run local programs such as ssh and srun in parallel, one for each node. None outlives tfdoctor."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import threading
import time
from collections import deque
from typing import IO, TYPE_CHECKING

from tfdoctor.core.text import clean_line
from tfdoctor.extensions.fleet.nodes.models import NodeAnswer, NodeJob
from tfdoctor.system.children import Children

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from tfdoctor.system.children import ChildResult

__all__ = ["make_node_script", "run_on_hosts"]

GRACE_S = 15.0
"""Seconds beyond the deadline that connecting to a node and disconnecting may take."""
NO_SPACE_STATUS = 125
"""The exit status of the script if the node could not store tfdoctor's zipapp."""
ENGINE_LINE_PREFIXES = ("srun: ", "slurmstepd")
"""The prefixes of lines that only report the end of the task, after the task's own messages."""
NOT_FOUND_STATUS, TIMEOUT_STATUSES = 127, (124, 137)
"""The exit statuses for a command that was not found, and for one that `timeout` or SIGKILL ended."""


class _FloodError(Exception):
    """The program wrote more output than is accepted."""


def make_node_script(job: NodeJob) -> str:
    """Return the script for a node's `sh` that reads a zipapp from standard input, runs it, cleans up.

    Standard input stays open while tfdoctor runs. If it ends early, tfdoctor no longer exists, and the script ends the
    command. If the node has `timeout`, that program ends the command with its children at the deadline.

    The variables of the script are `d` (the folder), `p` (the command's process), `w` (the watcher's process), `t` (the
    `timeout` command or nothing) and `s` (`setsid` or nothing).
    """
    size = job.zipapp_path.stat().st_size
    run = f'{shlex.quote(job.python)} "$d/tfdoctor.pyz" {shlex.join(job.arguments)}'
    timeout_command = "timeout -k 5"
    watcher_script = 'read -r x <&3; kill "$1"; for x in 1 2 3 4 5; do kill -0 "$1" && sleep 1; done; '
    watcher_script += 'kill -9 "$1" "-$1"; rm -rf "$2"'
    return "; ".join(
        (
            'd=$(mktemp -d "${TMPDIR:-/tmp}/tfdoctor-XXXXXXXX") || exit 125; p= w=',
            # The process group of `timeout` contains everything that it started. Without `timeout` there is no such
            # group.
            """trap 'kill $w 2>/dev/null; [ -z "$p" ] || kill -9 "-$p" 2>/dev/null; rm -rf "$d"' EXIT""",
            """trap '[ -z "$p" ] || { kill "$p" 2>/dev/null && wait "$p"; }; exit 129' HUP INT TERM""",
            f'head -c {size} >"$d/tfdoctor.pyz" && [ "$(wc -c <"$d/tfdoctor.pyz")" -eq {size} ] || exit 125',
            f't=; if {timeout_command} 1 true 2>/dev/null; then t="{timeout_command} {job.time_limit_s:.0f}"; fi',
            "exec 3<&0",
            f'TMPDIR="$d" $t {run} </dev/null 3<&- & p=$!',
            # The watcher gets its own session if possible, so that it survives a signal to our process group.
            "s=; if command -v setsid >/dev/null 2>&1; then s=setsid; fi",
            f"""$s sh -c '{watcher_script}' sh "$p" "$d" >/dev/null 2>&1 & w=$!""",
            # The shell reports how the command ended, even if nobody reads that any more.
            """exec 3<&-; trap '' PIPE; wait "$p"; exit $?""",
        )
    )


def run_on_hosts(
    hosts: Sequence[str],
    job: NodeJob,
    make_command: Callable[[str], Sequence[str]],
    is_lost: Callable[[ChildResult], bool],
    *,
    max_parallel: int,
    clean_up: Callable[[], None] = lambda: None,
) -> Generator[NodeAnswer, None, None]:
    """Run the job on each host, `max_parallel` at a time, and yield one result for each.

    `command` returns the arguments of the local program that reaches a host. The program gets the zipapp on standard
    input. `is_lost` returns whether a program ended because the host was not reached. `clean_up` cleans up at the end.
    """
    children, answers, waiting_hosts = Children(), queue.SimpleQueue[NodeAnswer](), deque(hosts)
    is_ending = threading.Event()

    def run_waiting() -> None:
        while not is_ending.is_set():
            try:
                host = waiting_hosts.popleft()
            except IndexError:
                return
            answers.put(_run_on_host(children, host, job, make_command(host), is_lost))

    threads = [
        threading.Thread(target=run_waiting, daemon=True) for _ in range(min(max_parallel, len(hosts)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in hosts:
            yield answers.get()
    finally:
        is_ending.set()
        children.stop()
        for thread in threads:
            if thread.is_alive():
                thread.join(2)
        clean_up()


def _run_on_host(
    children: Children, host: str, job: NodeJob, argv: Sequence[str], is_lost: Callable[[ChildResult], bool]
) -> NodeAnswer:
    """Run the program for one host and return the host's result."""
    started, output_size = time.monotonic(), 0

    def count_output(chunk: bytes) -> None:
        nonlocal output_size
        output_size += len(chunk)
        if output_size > job.max_output_bytes:
            raise _FloodError

    try:
        with _open_pipe(job.zipapp_path) as stdin:
            result = children.run(
                argv,
                timeout=job.time_limit_s + GRACE_S,
                env=dict(os.environ),
                on_output=count_output,
                stdin=stdin,
            )
    except _FloodError:
        reason = f"it wrote more than {job.max_output_bytes >> 20} MiB"
        return NodeAnswer(host, "flooded", reason=reason, duration_s=time.monotonic() - started)
    except (OSError, ValueError) as error:
        return NodeAnswer(
            host, "failed", reason=clean_line(f"{argv[0]}: {getattr(error, 'strerror', '') or error}")
        )
    return _make_answer(
        host, job, result, is_lost=is_lost(result), seconds=round(time.monotonic() - started, 3)
    )


@contextlib.contextmanager
def _open_pipe(file: Path) -> Iterator[IO[bytes]]:
    """Yield the read end of a pipe with the file's content. The write end stays open until the block ends."""
    content = file.read_bytes()
    read_end, write_end = os.pipe()
    reader, writer = os.fdopen(read_end, "rb", 0), os.fdopen(write_end, "wb", 0)

    def feed() -> None:
        remaining = memoryview(content)
        with contextlib.suppress(OSError):  # the reader is gone
            while remaining:
                remaining = remaining[writer.write(remaining) :]

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    try:
        yield reader
    finally:
        reader.close()  # without a reader, a waiting writer fails and ends
        feeder.join()
        writer.close()


def _make_answer(
    host: str, job: NodeJob, result: ChildResult, *, is_lost: bool, seconds: float
) -> NodeAnswer:
    """Return a host's result from the program's exit status and output."""
    if result.returncode is None or (result.returncode in TIMEOUT_STATUSES and seconds >= job.time_limit_s):
        return NodeAnswer(
            host, "timeout", reason=f"no answer within {job.time_limit_s:g} s", duration_s=seconds
        )
    lines = [
        clean_line(line, limit=200) for line in result.stderr.decode("utf-8", "replace").splitlines()[-200:]
    ]
    task_lines = [line for line in lines if line and (is_lost or not line.startswith(ENGINE_LINE_PREFIXES))]
    # If only the engine printed something, its last line is the best reason.
    last_line = next(reversed(task_lines or [line for line in lines if line]), "")
    if is_lost:
        return NodeAnswer(host, "lost", reason=last_line or "it was not reached", duration_s=seconds)
    if result.stdout.strip():
        return NodeAnswer(host, "answered", result.stdout, duration_s=seconds)
    reason = f"exit status {result.returncode}"
    if result.returncode == NOT_FOUND_STATUS:
        reason = f"there is no {job.python}"
    elif result.returncode == NO_SPACE_STATUS:
        reason = "the node has no room for the file"
    return NodeAnswer(
        host,
        "failed",
        reason=clean_line(f"{reason}: {last_line}" if last_line else reason, limit=300),
        duration_s=seconds,
    )
