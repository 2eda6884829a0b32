"""Break an environment, have `check` name it and `fix` mend it, ask real TensorFlow, undo, and put it back.

PYTHONPATH=tests python -m lab.mending --bases FOLDER [--only NAME]… [--check]    # keeps the bases in FOLDER
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.broken import BROKEN, Broken
from lab.broken_env import BASES, GPUS, Env, Unavailable, make_base
from lab.restoring import Entry, Snapshot, list_tree
from lab.truth import Truth, observe

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_SHOWN = 12


@dataclass(slots=True)
class Bases:
    """The bases that were made so far, each with its snapshot; and a folder for all."""

    folder: Path
    cache: Path
    made: dict[str, Snapshot] = field(default_factory=dict)
    lock: int = -1

    def __post_init__(self) -> None:
        """Wait until nobody else breaks what is in the folder."""
        self.lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def get(self, name: str) -> Snapshot:
        """A base as it should be. Raises Unavailable."""
        if name not in self.made:
            root = self.folder / f"env-{name}"
            store = self.folder / f"kept-{name}"
            if store.exists():  # from a run before
                shutil.rmtree(store)
            if not (root / "pyvenv.cfg").exists():
                make_base(BASES[name], root)
            self.made[name] = Snapshot(root, store)
        return self.made[name]

    def drop(self, name: str) -> None:
        """Delete one."""
        base = self.made.pop(name, None)
        if base is not None:
            base.drop()
            shutil.rmtree(base.root)

    @contextmanager
    def make_broken_image(self, one: Broken) -> Iterator[Env]:
        """An environment broken in this way; put back afterwards."""
        base = self.get(one.base)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=self.folder)).resolve()
        env = Env(BASES[one.base], base.root, work, self.cache)
        env.variables["STANDIN_CC"] = one.capability.replace(".", "")
        try:
            one.break_it(env)
            yield env
        finally:
            base.restore()
            shutil.rmtree(work)


@dataclass(slots=True)
class Run:
    """What tfdoctor printed."""

    status: int
    output: str
    error: str
    seconds: float

    def json(self) -> dict[str, Any]:
        """Its output as JSON; empty where it is none."""
        return dict(json.loads(self.output)) if self.output.startswith("{") else {}

    def __str__(self) -> str:
        """Everything, for a report."""
        return f"status {self.status}\n{self.output}\n{self.error}"


def command_line(env: Env, command: str, *words: str) -> list[str]:
    """tfdoctor on this environment, in the shell of its owner; every program before it is replaced by the next."""
    return [*env.prefix(), sys.executable, "-m", "tfdoctor", command, *words, "--python", env.named]


def tfdoctor(env: Env, command: str, *words: str) -> Run:
    """Run tfdoctor on this environment, in the shell of its owner."""
    started = time.monotonic()
    done = subprocess.run(
        command_line(env, command, *words),
        env={**env.environment(), "COLUMNS": "120"},
        cwd=env.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr, round(time.monotonic() - started, 1))


def truth(env: Env, *, quick: bool) -> Truth:
    """What its TensorFlow does in a new shell of its owner."""
    return observe(env.python, env.environment(), cwd=env.work, prefix=env.prefix(), quick=quick)


@dataclass(slots=True)
class Trial:
    """What came of one way to break an environment."""

    broken: Broken
    problems: list[str] = field(default_factory=list)
    """What was not as it must be; empty: all is well."""
    notes: list[str] = field(default_factory=list)
    """Outputs, for a report."""
    commands: list[str] = field(default_factory=list)
    """What `check` tells a person to type against what was broken."""

    def expect(self, right: object, problem: str) -> bool:
        """Note a problem where something is not right."""
        if not right:
            self.problems.append(problem)
        return bool(right)


def check_names_it(trial: Trial, env: Env, *, quick: bool) -> None:
    """`check` predicts what TensorFlow does, and says what is broken."""
    one, run = trial.broken, tfdoctor(env, "check", "--json")
    answer = run.json()
    if not trial.expect("verdict" in answer, f"check: {run}"):
        return
    codes = [finding["code"] for finding in answer["findings"]]
    verdict, prediction = answer["verdict"], answer["prediction"]
    for finding in answer["findings"]:
        trial.notes.append(f"{finding['code']} {finding['severity']} {finding['title']}")
        for remedy in finding["remedies"]:
            trial.notes.append(f"    {remedy['text']}")
            trial.commands += remedy["commands"] if finding["code"] in one.codes else []
            trial.notes += [f"      $ {command}" for command in remedy["commands"]]
    trial.notes.append(f"verdict: {verdict}")
    trial.notes.append(f"prediction: {prediction}")
    trial.expect(set(one.codes) <= set(codes), f"check says {codes}, not {list(one.codes)}")
    if one.cause is not None:
        trial.expect(verdict["cause"] == one.cause, f"check: cause {verdict['cause']}, not {one.cause}")
    seen = truth(env, quick=quick)
    trial.notes.append(f"TensorFlow: {show_answer(seen)}")
    trial.expect(
        bool(seen.gpu_registered) is one.works_before,
        f"the breakage itself is wrong: TensorFlow registers {seen.gpu_count}",
    )
    for key in ("gpu_registered", "gpu_count"):
        said, was = prediction[key], getattr(seen, key)
        trial.expect(said == was or was is None, f"check predicts {key} {said}, TensorFlow: {was}")
    if one.works_before and not seen.import_ok:
        trial.problems.append("the breakage itself is wrong: the import fails")


def show_answer(seen: Truth) -> str:
    """The essence of what TensorFlow did."""
    error = (seen.error or "").strip().splitlines()
    last = error[-1] if error else ""
    return (
        f"import {seen.import_ok}, {seen.gpu_count} GPUs, missing {seen.missing_libraries} "
        f"(really {seen.really_missing}), crashed {seen.crashed}, {last}"
    )


def fix_mends_it(trial: Trial, env: Env, store: Path, *, quick: bool) -> None:
    """`fix` mends what can be mended, once; `--undo` gives the broken environment back."""
    one, before = trial.broken, Snapshot(env.root, store)
    shown_only = tfdoctor(env, "fix", "--dry-run")
    trial.expect(not before.differences(), f"--dry-run changes {before.differences()[:MOST_SHOWN]}")
    trial.expect("Traceback" not in shown_only.error, f"--dry-run: {shown_only}")
    run = tfdoctor(env, "fix", "--yes", "--no-deep")
    trial.notes.append(f"fix ({run.seconds} s): {run}")
    if one.mendable:
        _is_mended(trial, env, before, run, quick=quick)
    else:
        trial.expect(run.status == 1, f"fix: status {run.status} where nothing can be mended")
        trial.expect(not before.differences(), f"changed: {before.differences()[:MOST_SHOWN]}")
        printed = any(command in run.output for command in trial.commands)
        trial.expect(printed or not trial.commands, "no command is printed")
    mended = _plain(env)
    second = tfdoctor(env, "fix", "--yes", "--no-deep")
    trial.notes.append(f"second fix ({second.seconds} s): {second}")
    now = _plain(env)
    changed = sorted(path for path in mended.keys() | now.keys() if mended.get(path) != now.get(path))
    trial.expect(not changed, f"the second fix changes {changed[:MOST_SHOWN]}")
    trial.expect(second.status == run.status, f"second fix: status {second.status}")
    undone = tfdoctor(env, "fix", "--undo", "--yes")
    trial.notes.append(f"undo ({undone.seconds} s): {undone}")
    trial.expect(undone.status == 0, f"undo: status {undone.status}")
    left_over = before.differences()
    trial.expect(not left_over, f"after undo: {len(left_over)} differences: {left_over[:MOST_SHOWN]}")
    before.drop()


def _is_mended(trial: Trial, env: Env, before: Snapshot, run: Run, *, quick: bool) -> None:
    """TensorFlow registers the GPUs in a new shell, and `check` has nothing to say any more but of a driver."""
    one, driver = trial.broken, env.driver
    trial.expect(run.status == (0 if driver else 1), f"fix: status {run.status}")
    if env.shell == "plain" and any("bin/activate" in line for line in before.differences()):
        env.shell = "activated"
    after = tfdoctor(env, "check", "--json").json()
    codes = {finding["code"]: finding["severity"] for finding in after.get("findings", ())}
    trial.notes.append(f"check then: {after.get('verdict')} {codes}")
    stay = {*one.informs, *(() if driver else ("TFD101",))}
    left = [code for code, severity in codes.items() if severity == "error" or code in one.codes]
    trial.expect(set(left) <= stay, f"check still says {left}")
    env.driver = True
    seen = truth(env, quick=quick)
    env.driver = driver
    trial.notes.append(f"TensorFlow then: {show_answer(seen)}")
    trial.expect(seen.import_ok, "mended, and the import fails")
    trial.expect(seen.gpu_count == GPUS, f"mended, and TensorFlow registers {seen.gpu_count}")


def _plain(env: Env) -> dict[str, Entry]:
    """The listing without inodes: what is rolled back may be another file with the same content and times."""
    found = list_tree(env.root)
    found.pop(".tfdoctor/lock", None)
    return {path: replace(entry, inode=0) for path, entry in found.items()}


def attempt(one: Broken, bases: Bases, *, quick: bool, only_check: bool = False) -> Trial:
    """Everything on one way. Raises Unavailable where its base cannot be had."""
    trial = Trial(one)
    quick = quick and not one.whole
    with bases.make_broken_image(one) as env:
        check_names_it(trial, env, quick=quick)
        if not only_check:
            fix_mends_it(trial, env, env.work / "kept", quick=quick)
    return trial


def stop_in_the_middle(one: Broken, bases: Bases, number: int) -> Trial:
    """Send `fix` a signal while its installer writes; then everything must be, or come to be, as it was.

    Ctrl-C takes it back at once; after SIGKILL the next run does, which first waits for the orphaned installer.
    """
    trial = Trial(one)
    with bases.make_broken_image(one) as env:
        before = Snapshot(env.root, env.work / "kept")
        there = len(list(env.site.glob("nvidia_*")))
        child = subprocess.Popen(
            command_line(env, "fix", "--yes", "--no-deep"),
            env=env.environment(),
            cwd=env.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        deadline = time.monotonic() + 300
        while child.poll() is None and len(list(env.site.glob("nvidia_*"))) == there:
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        if trial.expect(child.poll() is None, "fix ended before it was stopped"):
            child.send_signal(number)
        try:
            output, _ = child.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
            trial.problems.append(f"it does not end after signal {number}")
        trial.notes.append(f"fix: status {child.returncode}\n{output}")
        if number == signal.SIGKILL:
            trial.expect(child.returncode == -signal.SIGKILL, f"killed: status {child.returncode}")
            run = tfdoctor(env, "fix", "--undo")
            trial.notes.append(f"undo: {run}")
            trial.expect(run.status == 0, f"undo: status {run.status}")
        else:
            trial.expect(child.returncode == 130, f"interrupted: status {child.returncode}")
        left = before.differences()
        trial.expect(not left, f"{len(left)} differences: {left[:MOST_SHOWN]}")
        before.drop()
    return trial


def without_network(one: Broken, bases: Bases) -> Trial:
    """`fix` where the package index cannot be reached: it says so, and nothing is changed."""
    trial = Trial(one)
    with bases.make_broken_image(one) as env:
        nowhere = "http://127.0.0.1:9/simple"
        env.variables |= {"UV_INDEX_URL": nowhere, "UV_DEFAULT_INDEX": nowhere, "PIP_INDEX_URL": nowhere}
        env.variables |= {"UV_HTTP_RETRIES": "0", "PIP_RETRIES": "0", "UV_CACHE_DIR": str(env.work / "cache")}
        before = Snapshot(env.root, env.work / "kept")
        run = tfdoctor(env, "fix", "--yes", "--no-deep")
        trial.notes.append(f"fix: {run}")
        trial.expect(run.status == 1, f"fix: status {run.status}")
        trial.expect("Traceback" not in run.error, "a traceback")
        left = before.differences()
        trial.expect(not left, f"{len(left)} differences: {left[:MOST_SHOWN]}")
        before.drop()
    return trial


def main() -> int:
    """Try them from a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bases", type=Path, required=True, help="where the bases are, and stay")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="of a breakage or a base")
    parser.add_argument("--check", action="store_true", help="no fix")
    parser.add_argument(
        "--quick", action="store_true", help="ask TensorFlow's native code where that will do"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="the outputs, too")
    options = parser.parse_args()
    folder = options.bases.resolve()
    bases = Bases(folder, folder / "standins")
    bases.cache.mkdir(parents=True, exist_ok=True)
    wrong = 0
    chosen = [one for one in BROKEN if not options.only or {one.name, one.base} & set(options.only)]
    for one in chosen:
        started = time.monotonic()
        try:
            trial = attempt(one, bases, quick=options.quick, only_check=options.check)
        except Unavailable as why:
            print(f"SKIPPED {one.name}: {why}")
            continue
        wrong += bool(trial.problems)
        word = "WRONG" if trial.problems else "right"
        lines = [f"{word:7} {one.name:26} {time.monotonic() - started:6.1f} s"]
        lines += [f"        - {problem}" for problem in trial.problems]
        if options.verbose or trial.problems:
            lines += [f"        | {line}" for note in trial.notes for line in note.splitlines()]
        print("\n".join(lines), flush=True)
    print(f"{len(chosen)} tried, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
