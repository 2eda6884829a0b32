"""Nodes that the system's ssh reaches. It reads its own configuration and keys; it is never let ask for a password."""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING

from tfdoctor.errors import Error, UsageError
from tfdoctor.fleet.nodes.process_pool import ask_each, script
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.fleet.nodes.models import Job, NodeAnswer
    from tfdoctor.system.children import Ran

__all__ = ["SshEngine", "command_of", "host_names"]

PARALLEL = 32
NAME = re.compile(r"(?:ssh://)?(?:[A-Za-z0-9_][\w.+-]{0,63}@)?[A-Za-z0-9_\[][\w.:\[\]%-]{0,252}")
"""A host, user@host, or ssh://user@host:port: nothing that ssh could take for an option."""
NOT_REACHED = 255


def host_names(text: str) -> tuple[str, ...]:
    """Return names with commas, spaces or line ends between; `#` begins a comment. Sorted, each once.

    Raises UsageError.
    """
    words: list[str] = []
    for line in text.splitlines():
        words += line.partition("#")[0].replace(",", " ").split()
    for word in words:
        if NAME.fullmatch(word) is None:
            msg = f"{clean_line(word, limit=80)!r} is no name of a host."
            raise UsageError(msg, hint="host, user@host or ssh://user@host:port")
    return tuple(sorted(set(words)))


class SshEngine:
    """`options`: what ssh is given besides, such as -p2222."""

    name = "ssh"

    def __init__(
        self, hosts: Sequence[str], *, options: Sequence[str] = (), parallel: int = PARALLEL
    ) -> None:
        """Raises Error where there is no ssh."""
        if shutil.which("ssh") is None:
            raise Error("there is no ssh on PATH.", hint="Install it: apt install openssh-client")
        self._hosts, self._options, self._parallel = tuple(hosts), tuple(options), parallel

    def hosts(self) -> Sequence[str]:
        return self._hosts

    def run(self, hosts: Sequence[str], job: Job) -> Iterator[NodeAnswer]:
        words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", *self._options, "--"]
        inside = command_of(job)
        return ask_each(hosts, job, lambda host: [*words, host, inside], _is_lost, parallel=self._parallel)


def command_of(job: Job) -> str:
    """Return what the user's own shell there gets, which may be no POSIX one (csh, fish): one word in quotes, to pass
    on.
    """
    return f"exec sh -c {shlex.quote(script(job))}"


def _is_lost(ran: Ran) -> bool:
    return ran.returncode == NOT_REACHED
