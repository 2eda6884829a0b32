"""Run the check on hosts with the system's ssh and the user's keys, but never with a password."""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.fleet.nodes.process_pool import make_node_script, run_on_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.extensions.fleet.nodes.models import NodeAnswer, NodeJob
    from tfdoctor.system.children import ChildResult

__all__ = ["SshEngine", "make_command", "parse_host_names"]

DEFAULT_PARALLEL = 32
"""The default number of hosts that are reached at the same time."""
NAME_PATTERN = re.compile(r"(?:ssh://)?(?:[A-Za-z0-9_][\w.+-]{0,63}@)?[A-Za-z0-9_\[][\w.:\[\]%-]{0,252}")
"""host, user@host, or ssh://user@host:port. It must not look like an option of ssh."""
NOT_REACHED_STATUS = 255
"""The exit status of ssh if the host was not reached."""


def parse_host_names(text: str) -> tuple[str, ...]:
    """Return the host names in a text, sorted and unique. Raise UsageError if a name is invalid.

    They are separated by commas, spaces or line ends. `#` begins a comment.
    """
    names: list[str] = []
    for line in text.splitlines():
        names += line.partition("#")[0].replace(",", " ").split()
    for name in names:
        if NAME_PATTERN.fullmatch(name) is None:
            msg = f"{clean_line(name, limit=80)!r} is no name of a host."
            raise UsageError(msg, hint="host, user@host or ssh://user@host:port")
    return tuple(sorted(set(names)))


class SshEngine:
    """An engine for ssh. `options` are additional options of ssh, such as -p2222."""

    name = "ssh"

    def __init__(
        self, hosts: Sequence[str], *, options: Sequence[str] = (), parallel: int = DEFAULT_PARALLEL
    ) -> None:
        """Store the hosts and options. Raise Error if ssh is not found."""
        if shutil.which("ssh") is None:
            raise Error("there is no ssh on PATH.", hint="Install it: apt install openssh-client")
        self._hosts, self._options, self._parallel = tuple(hosts), tuple(options), parallel

    def hosts(self) -> Sequence[str]:
        return self._hosts

    def run(self, hosts: Sequence[str], job: NodeJob) -> Iterator[NodeAnswer]:
        arguments = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", *self._options, "--"]
        command = make_command(job)
        return run_on_hosts(
            hosts, job, lambda host: [*arguments, host, command], _is_lost, max_parallel=self._parallel
        )


def make_command(job: NodeJob) -> str:
    """Return the command for the user's login shell on the node.

    That shell may not be a POSIX shell (csh, fish), so the script is one quoted argument of `sh -c`.
    """
    return f"exec sh -c {shlex.quote(make_node_script(job))}"


def _is_lost(result: ChildResult) -> bool:
    return result.returncode == NOT_REACHED_STATUS
