"""Type what `check` prints: the commands of the root finding's first remedy, as that user, in that shell; then ask
real TensorFlow there.

PYTHONPATH=tests python -m lab.typed --bases FOLDER [--only NAME]…    # keeps the bases in FOLDER
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lab.broken import BROKEN, Broken
from lab.broken_env import GPUS, Env, Unavailable
from lab.broken_people import PEOPLE
from lab.mending import Bases, Trial, show_answer, tfdoctor
from lab.truth import observe

if TYPE_CHECKING:
    from collections.abc import Sequence

FOR_ROOT = re.compile(
    r"(?:^|[;&|] *)(?:sudo |apt-get |dnf |zypper |pacman |modprobe |reboot|systemctl |ldconfig|conda |srun |nvidia-smi)"
)
"""What changes the machine that the lab runs on, or wants what it has not: such a remedy is not typed."""
SHELL = r"""
cd "$1" || exit 97
. "$2" >"$3" 2>&1
shift 3
exec "$@"
"""
"""`.`: what a command exports, what follows has; a command that fails stops nothing, as in a terminal."""


def first_remedy(answer: dict[str, object]) -> Sequence[str]:
    """The commands of the first remedy of the finding that leads; empty where it prints none."""
    findings = answer.get("findings") or ()
    for finding in findings if isinstance(findings, list) else ():
        for remedy in finding["remedies"]:
            return list(remedy["commands"])
        return []
    return []


def type_it(trial: Trial, env: Env, *, quick: bool) -> bool | None:
    """Whether TensorFlow registers the GPUs after the first remedy was typed; None where it was not typed."""
    run = tfdoctor(env, "check", "--json")
    answer = run.json()
    if not trial.expect("verdict" in answer, f"check: {run}"):
        return False
    for finding in answer.get("findings", ()):
        trial.notes.append(f"{finding['code']} {finding['severity']} {finding['title']}")
    commands = first_remedy(answer)
    trial.notes += [f"    $ {command}" for command in commands]
    if any(FOR_ROOT.search(command) for command in commands) and not env.administrator:
        trial.notes.append("not typed: it is for the machine's administrator")
        return None
    if answer.get("prediction", {}).get("gpu_registered") and not commands:
        return None
    if not trial.expect(commands, "the first remedy has no commands"):
        return False
    programs = env.work / "programs"
    programs.mkdir(exist_ok=True)
    tool = programs / "tfdoctor"
    # Another user may have no way to this very Python; what `check` then says is not what is looked at.
    works = f'exec {sys.executable} -m tfdoctor "$@"' if env.user is None else "exit 0"
    tool.write_text(f"#!/bin/sh\n{works}\n", encoding="utf-8")
    tool.chmod(0o755)
    script, log = env.work / "typed.sh", env.work / "typed.log"
    lines = [f'{command} || echo "status $? of: {number}"' for number, command in enumerate(commands)]
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    log.touch()
    variables = env.environment()
    if env.user is None:
        caches = Path.home() / ".cache"
        variables |= {"UV_CACHE_DIR": str(caches / "uv"), "PIP_CACHE_DIR": str(caches / "pip")}
    home = env.work / "home"
    home.mkdir()
    variables["HOME"] = str(home)  # nothing is ever typed into the real one
    for path in (env.work, log, home):
        path.chmod(0o777)
    variables["PATH"] = f"{programs}{os.pathsep}{variables['PATH']}"
    folder = env.work / "folder of the user"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    words = [*env.prefix(), "bash", "-c", SHELL, "bash", str(folder), str(script), str(log)]
    seen = observe(env.python, variables, cwd=env.work, prefix=words, quick=quick, timeout=900)
    trial.notes += [
        f"    > {line}" for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
    ]
    trial.notes.append(f"TensorFlow then: {show_answer(seen)}")
    trial.expect(seen.import_ok, "typed, and the import fails")
    trial.expect(seen.gpu_count == GPUS, f"typed, and TensorFlow registers {seen.gpu_count}")
    return not trial.problems


def attempt(one: Broken, bases: Bases, *, quick: bool) -> tuple[Trial, bool | None]:
    """Break it, type what is printed, ask TensorFlow. Raises Unavailable where its base cannot be had."""
    trial = Trial(one)
    with bases.make_broken_image(one) as env:
        return trial, type_it(trial, env, quick=quick and not one.whole)


def main() -> int:
    """Try them from a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bases", type=Path, required=True, help="where the bases are, and stay")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="of a breakage or a base")
    parser.add_argument(
        "--quick", action="store_true", help="ask TensorFlow's native code where that will do"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="the outputs, too")
    options = parser.parse_args()
    folder = options.bases.resolve()
    bases = Bases(folder, folder / "standins")
    bases.cache.mkdir(parents=True, exist_ok=True)
    right = tried = 0
    for one in (
        one for one in (*BROKEN, *PEOPLE) if not options.only or {one.name, one.base} & set(options.only)
    ):
        started = time.monotonic()
        try:
            trial, mended = attempt(one, bases, quick=options.quick)
        except Unavailable as why:
            print(f"SKIPPED {one.name}: {why}")
            continue
        right, tried = right + bool(mended), tried + (mended is not None)
        word = {None: "left", True: "right", False: "WRONG"}[mended]
        lines = [f"{word:7} {one.name:26} {time.monotonic() - started:6.1f} s"]
        lines += [f"        - {problem}" for problem in trial.problems]
        if options.verbose or not mended:
            lines += [f"        | {line}" for note in trial.notes for line in note.splitlines()]
        print("\n".join(lines), flush=True)
    print(f"{right} of {tried} remedies that were typed made TensorFlow register the GPUs")
    return 0 if right == tried else 1


if __name__ == "__main__":
    raise SystemExit(main())
