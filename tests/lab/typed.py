"""Run the commands that `check` prints as the user would type them, and check real TensorFlow afterwards.

PYTHONPATH=tests python -m lab.typed --bases FOLDER [--only NAME]…    # keeps the bases in FOLDER

The commands are those of the root finding's first remedy, run as that user in that shell.
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
from lab.mending import Bases, Trial, format_truth, tfdoctor
from lab.truth import observe

if TYPE_CHECKING:
    from collections.abc import Sequence

FOR_ROOT = re.compile(
    r"(?:^|[;&|] *)(?:sudo |apt-get |dnf |zypper |pacman |modprobe |reboot|systemctl |ldconfig|conda |srun |nvidia-smi)"
)
"""Commands that change the machine of the lab or need something it lacks.

A remedy with such a command is not run.
"""
SHELL = r"""
cd "$1" || exit 97
. "$2" >"$3" 2>&1
shift 3
exec "$@"
"""
"""The script is sourced, so that exported variables persist.

A failed command does not stop the script, as in a terminal.
"""


def list_first_commands(answer: dict[str, object]) -> Sequence[str]:
    """Return the commands of the first remedy of the first finding; empty if it has none."""
    findings = answer.get("findings") or ()
    for finding in findings if isinstance(findings, list) else ():
        for remedy in finding["remedies"]:
            return list(remedy["commands"])
        return []
    return []


def run_first_remedy(trial: Trial, env: Env, *, quick: bool) -> bool | None:
    """Run the commands of the first remedy and return whether TensorFlow then registers the GPUs.

    None if they were not run.
    """
    run = tfdoctor(env, "check", "--json")
    answer = run.json()
    if not trial.expect("verdict" in answer, f"check: {run}"):
        return False
    for finding in answer.get("findings", ()):
        trial.notes.append(f"{finding['code']} {finding['severity']} {finding['title']}")
    commands = list_first_commands(answer)
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
    # Another user may not be allowed to run this Python; the output of `check` does not matter then.
    shell_command = f'exec {sys.executable} -m tfdoctor "$@"' if env.user is None else "exit 0"
    tool.write_text(f"#!/bin/sh\n{shell_command}\n", encoding="utf-8")
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
    variables["HOME"] = str(home)  # the real home folder is never used
    for path in (env.work, log, home):
        path.chmod(0o777)
    variables["PATH"] = f"{programs}{os.pathsep}{variables['PATH']}"
    folder = env.work / "folder of the user"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    prefix = [*env.prefix(), "bash", "-c", SHELL, "bash", str(folder), str(script), str(log)]
    truth = observe(env.python, variables, cwd=env.work, prefix=prefix, quick=quick, timeout=900)
    trial.notes += [
        f"    > {line}" for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
    ]
    trial.notes.append(f"TensorFlow then: {format_truth(truth)}")
    trial.expect(truth.import_ok, "typed, and the import fails")
    trial.expect(truth.gpu_count == GPUS, f"typed, and TensorFlow registers {truth.gpu_count}")
    return not trial.problems


def attempt(broken: Broken, bases: Bases, *, quick: bool) -> tuple[Trial, bool | None]:
    """Break an environment, run the printed commands and check TensorFlow. Raise Unavailable."""
    trial = Trial(broken)
    with bases.break_environment(broken) as env:
        return trial, run_first_remedy(trial, env, quick=quick and not broken.whole)


def main() -> int:
    """Run the trials; return 1 if one failed."""
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
    succeeded = tried = 0
    for broken in (
        broken
        for broken in (*BROKEN, *PEOPLE)
        if not options.only or {broken.name, broken.base} & set(options.only)
    ):
        started = time.monotonic()
        try:
            trial, is_repaired = attempt(broken, bases, quick=options.quick)
        except Unavailable as reason:
            print(f"SKIPPED {broken.name}: {reason}")
            continue
        succeeded, tried = succeeded + bool(is_repaired), tried + (is_repaired is not None)
        outcome = {None: "left", True: "right", False: "WRONG"}[is_repaired]
        lines = [f"{outcome:7} {broken.name:26} {time.monotonic() - started:6.1f} s"]
        lines += [f"        - {problem}" for problem in trial.problems]
        if options.verbose or not is_repaired:
            lines += [f"        | {line}" for note in trial.notes for line in note.splitlines()]
        print("\n".join(lines), flush=True)
    print(f"{succeeded} of {tried} remedies that were typed made TensorFlow register the GPUs")
    return 0 if succeeded == tried else 1


if __name__ == "__main__":
    raise SystemExit(main())
