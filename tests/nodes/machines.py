"""Programs that stand in for ssh and srun; each node is a recorded machine or one that misbehaves."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from recorded import HOSTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BAD = {
    "hanging": "sleep 600",
    "lying": "echo hello",
    "flooding": "exec yes 0123456789012345678901234567890123456789",
    "dying": 'kill -9 "$PPID"; sleep 1',
    "failing": "echo it is broken >&2; exit 9",
}
"""Kind of a bad node -> the shell command that its Python runs instead of the file."""


def node(folder: Path, name: str, kind: str) -> Path:
    """Return a folder for PATH whose `python3` runs the given file on the recorded machine `kind`."""
    node_folder = folder / "nodes" / name
    node_folder.mkdir(parents=True)
    command = BAD.get(kind)
    export_mark = f"export TFDOCTOR_TEST={shlex.quote(str(folder))}; "
    if command is None:
        facts = shlex.quote(str(HOSTS / kind))
        command = f'file=$1; shift; if [ "$1" = check ]; then set -- "$@" --from {facts}; fi; '
        command += f'exec {shlex.quote(sys.executable)} "$file" "$@"'
    write_script(node_folder / "python3", export_mark + command)
    return node_folder


def write_script(path: Path, text: str) -> None:
    """Write an executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def make_fake_launchers(folder: Path, nodes: Mapping[str, str]) -> Path:
    """Return a folder for PATH with `ssh`, `srun`, `sinfo` and `scontrol`.

    `nodes` maps a node's name to its kind; a node of the kind "gone" cannot be reached.
    """
    for name, kind in nodes.items():
        if kind != "gone":
            node(folder, name, kind)
    programs = folder / "bin"
    programs.mkdir()
    inside = f'PATH="{folder}/nodes/$host:$PATH" TMPDIR="{folder}/tmp/$host"; export PATH TMPDIR'
    for name in nodes:
        (folder / "tmp" / name).mkdir(parents=True)
    write_script(
        programs / "ssh",
        'while [ "$1" != -- ]; do shift; done; host=$2\n'
        f'if [ ! -d "{folder}/nodes/$host" ]; then\n'
        '  echo "ssh: connect to host $host port 22: refused" >&2; exit 255\nfi\n'
        f'{inside}\nexec sh -c "$3"',
    )
    write_script(
        programs / "srun",
        "while :; do case $1 in --nodelist=*) host=${1#*=};; */sh) break;; esac; shift; done\n"
        f'if [ ! -d "{folder}/nodes/$host" ]; then\n'
        '  echo "srun: error: Node failure on $host" >&2; exit 0\nfi\n'
        f'{inside}\nexec "$@"',
    )
    names = "\n".join(nodes)
    write_script(programs / "sinfo", f"cat <<'E'\n{names}\n{names}\nE")
    write_script(programs / "scontrol", f"cat <<'E'\n{names}\nE")
    return programs


def start_process(
    env: Mapping[str, str], folder: Path, runner: Path, *arguments: str
) -> subprocess.Popen[str]:
    """Start `fleet run` on a real engine.

    `runner` stands in for the Python of the nodes; the environment variable with `folder` marks all processes.
    """
    command = ["fleet", "run", str(folder / "out"), "--runner", str(runner), "--json", *arguments]
    return subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *command],
        env={**env, "TFDOCTOR_TEST": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
