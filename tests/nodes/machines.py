"""Programs that stand in for ssh and srun: each "node" is a recorded machine, or one that behaves badly."""

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
"""What the node's Python does instead of running the file."""


def node(folder: Path, name: str, kind: str) -> Path:
    """A folder for PATH in which `python3` runs the file that came, on the recorded machine `kind`."""
    place = folder / "nodes" / name
    place.mkdir(parents=True)
    run = BAD.get(kind)
    mark = f"export TFDOCTOR_TEST={shlex.quote(str(folder))}; "
    if run is None:
        facts = shlex.quote(str(HOSTS / kind))
        run = f'file=$1; shift; if [ "$1" = check ]; then set -- "$@" --facts {facts}; fi; '
        run += f'exec {shlex.quote(sys.executable)} "$file" "$@"'
    program(place / "python3", mark + run)
    return place


def program(path: Path, text: str) -> None:
    """A shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def make_reaching(folder: Path, nodes: Mapping[str, str]) -> Path:
    """A folder for PATH with `ssh`, `srun`, `sinfo` and `scontrol`; nodes: name → kind. "gone" is not reached."""
    for name, kind in nodes.items():
        if kind != "gone":
            node(folder, name, kind)
    programs = folder / "bin"
    programs.mkdir()
    inside = f'PATH="{folder}/nodes/$host:$PATH" TMPDIR="{folder}/tmp/$host"; export PATH TMPDIR'
    for name in nodes:
        (folder / "tmp" / name).mkdir(parents=True)
    program(
        programs / "ssh",
        'while [ "$1" != -- ]; do shift; done; host=$2\n'
        f'if [ ! -d "{folder}/nodes/$host" ]; then\n'
        '  echo "ssh: connect to host $host port 22: refused" >&2; exit 255\nfi\n'
        f'{inside}\nexec sh -c "$3"',
    )
    program(
        programs / "srun",
        "while :; do case $1 in --nodelist=*) host=${1#*=};; */sh) break;; esac; shift; done\n"
        f'if [ ! -d "{folder}/nodes/$host" ]; then\n'
        '  echo "srun: error: Node failure on $host" >&2; exit 0\nfi\n'
        f'{inside}\nexec "$@"',
    )
    names = "\n".join(nodes)
    program(programs / "sinfo", f"cat <<'E'\n{names}\n{names}\nE")
    program(programs / "scontrol", f"cat <<'E'\n{names}\nE")
    return programs


def start_process(env: Mapping[str, str], folder: Path, runner: Path, *words: str) -> subprocess.Popen[str]:
    """`fleet run` on real engines; `runner` stands in for the nodes' Python; `folder` marks what it starts."""
    command = ["fleet", "run", str(folder / "out"), "--runner", str(runner), "--json", *words]
    return subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *command],
        env={**env, "TFDOCTOR_TEST": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
