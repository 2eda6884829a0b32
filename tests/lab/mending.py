"""Break an environment, run `check` and `fix`, ask real TensorFlow, undo, and restore the environment.

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

MAX_SHOWN = 12


@dataclass(slots=True)
class Bases:
    """The bases created so far, each with its snapshot, and the folder for all."""

    folder: Path
    cache: Path
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    lock: int = -1

    def __post_init__(self) -> None:
        """Wait until no other process uses the folder."""
        self.lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def get(self, name: str) -> Snapshot:
        """Return the snapshot of an intact base. Raise Unavailable."""
        if name not in self.snapshots:
            root = self.folder / f"env-{name}"
            store = self.folder / f"kept-{name}"
            if store.exists():  # left by an earlier run
                shutil.rmtree(store)
            if not (root / "pyvenv.cfg").exists():
                make_base(BASES[name], root)
            self.snapshots[name] = Snapshot(root, store)
        return self.snapshots[name]

    def drop(self, name: str) -> None:
        """Delete a base."""
        base = self.snapshots.pop(name, None)
        if base is not None:
            base.drop()
            shutil.rmtree(base.root)

    @contextmanager
    def break_environment(self, broken: Broken) -> Iterator[Env]:
        """Break a base while the block runs, and restore it afterwards."""
        base = self.get(broken.base)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=self.folder)).resolve()
        env = Env(BASES[broken.base], base.root, work, self.cache)
        env.variables["STANDIN_CC"] = broken.capability.replace(".", "")
        try:
            broken.break_it(env)
            yield env
        finally:
            base.restore()
            shutil.rmtree(work)


@dataclass(slots=True)
class MendingRun:
    """One run of tfdoctor."""

    status: int
    output: str
    error: str
    seconds: float

    def json(self) -> dict[str, Any]:
        """Return its output as JSON; empty if it is not JSON."""
        return dict(json.loads(self.output)) if self.output.startswith("{") else {}

    def __str__(self) -> str:
        """Return everything, for a report."""
        return f"status {self.status}\n{self.output}\n{self.error}"


def command_line(env: Env, command: str, *arguments: str) -> list[str]:
    """Return the command that runs tfdoctor on this environment in its user's shell.

    Each program of the prefix replaces itself by the next, so that a signal reaches tfdoctor.
    """
    return [*env.prefix(), sys.executable, "-m", "tfdoctor", command, *arguments, "--python", env.named]


def tfdoctor(env: Env, command: str, *arguments: str) -> MendingRun:
    """Run tfdoctor on this environment in its user's shell."""
    started = time.monotonic()
    done = subprocess.run(
        command_line(env, command, *arguments),
        env={**env.environment(), "COLUMNS": "120"},
        cwd=env.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return MendingRun(done.returncode, done.stdout, done.stderr, round(time.monotonic() - started, 1))


def observe_truth(env: Env, *, quick: bool) -> Truth:
    """Return what TensorFlow does in a new shell of the user."""
    return observe(env.python, env.environment(), cwd=env.work, prefix=env.prefix(), quick=quick)


@dataclass(slots=True)
class Trial:
    """The result of one way to break an environment."""

    broken: Broken
    problems: list[str] = field(default_factory=list)
    """Deviations from what is expected; empty if there are none."""
    notes: list[str] = field(default_factory=list)
    """Outputs, for a report."""
    commands: list[str] = field(default_factory=list)
    """Commands that `check` recommends for the breakage."""

    def expect(self, right: object, problem: str) -> bool:
        """Add a problem unless `right` is true; return whether it is."""
        if not right:
            self.problems.append(problem)
        return bool(right)


def check_diagnosis(trial: Trial, env: Env, *, quick: bool) -> None:
    """Check that `check` predicts what TensorFlow does and reports what is broken."""
    broken, run = trial.broken, tfdoctor(env, "check", "--json")
    answer = run.json()
    if not trial.expect("verdict" in answer, f"check: {run}"):
        return
    codes = [finding["code"] for finding in answer["findings"]]
    verdict, prediction = answer["verdict"], answer["prediction"]
    for finding in answer["findings"]:
        trial.notes.append(f"{finding['code']} {finding['severity']} {finding['title']}")
        for remedy in finding["remedies"]:
            trial.notes.append(f"    {remedy['text']}")
            trial.commands += remedy["commands"] if finding["code"] in broken.codes else []
            trial.notes += [f"      $ {command}" for command in remedy["commands"]]
    trial.notes.append(f"verdict: {verdict}")
    trial.notes.append(f"prediction: {prediction}")
    trial.expect(set(broken.codes) <= set(codes), f"check says {codes}, not {list(broken.codes)}")
    if broken.cause is not None:
        trial.expect(verdict["cause"] == broken.cause, f"check: cause {verdict['cause']}, not {broken.cause}")
    truth_seen = observe_truth(env, quick=quick)
    trial.notes.append(f"TensorFlow: {format_truth(truth_seen)}")
    trial.expect(
        bool(truth_seen.gpu_registered) is broken.works_before,
        f"the breakage itself is wrong: TensorFlow registers {truth_seen.gpu_count}",
    )
    for key in ("gpu_registered", "gpu_count"):
        predicted, actual = prediction[key], getattr(truth_seen, key)
        trial.expect(
            predicted == actual or actual is None, f"check predicts {key} {predicted}, TensorFlow: {actual}"
        )
    if broken.works_before and not truth_seen.import_ok:
        trial.problems.append("the breakage itself is wrong: the import fails")


def format_truth(truth_seen: Truth) -> str:
    """Return a one-line summary of what TensorFlow did."""
    error = (truth_seen.error or "").strip().splitlines()
    last = error[-1] if error else ""
    return (
        f"import {truth_seen.import_ok}, {truth_seen.gpu_count} GPUs, missing {truth_seen.missing_libraries} "
        f"(really {truth_seen.really_missing}), crashed {truth_seen.crashed}, {last}"
    )


def check_fix(trial: Trial, env: Env, store: Path, *, quick: bool) -> None:
    """Check that `fix` repairs what it can, once, and that `--undo` restores the broken environment."""
    broken, before = trial.broken, Snapshot(env.root, store)
    dry_run = tfdoctor(env, "fix", "--dry-run")
    trial.expect(not before.differences(), f"--dry-run changes {before.differences()[:MAX_SHOWN]}")
    trial.expect("Traceback" not in dry_run.error, f"--dry-run: {dry_run}")
    run = tfdoctor(env, "fix", "--yes", "--no-deep")
    trial.notes.append(f"fix ({run.seconds} s): {run}")
    if broken.mendable:
        _check_repair(trial, env, before, run, quick=quick)
    else:
        trial.expect(run.status == 1, f"fix: status {run.status} where nothing can be mended")
        trial.expect(not before.differences(), f"changed: {before.differences()[:MAX_SHOWN]}")
        printed = any(command in run.output for command in trial.commands)
        trial.expect(printed or not trial.commands, "no command is printed")
    tree_after_fix = _list_without_inodes(env)
    second = tfdoctor(env, "fix", "--yes", "--no-deep")
    trial.notes.append(f"second fix ({second.seconds} s): {second}")
    tree_after_second = _list_without_inodes(env)
    changed = sorted(
        path
        for path in tree_after_fix.keys() | tree_after_second.keys()
        if tree_after_fix.get(path) != tree_after_second.get(path)
    )
    trial.expect(not changed, f"the second fix changes {changed[:MAX_SHOWN]}")
    trial.expect(second.status == run.status, f"second fix: status {second.status}")
    undone = tfdoctor(env, "fix", "--undo", "--yes")
    trial.notes.append(f"undo ({undone.seconds} s): {undone}")
    trial.expect(undone.status == 0, f"undo: status {undone.status}")
    remaining = before.differences()
    trial.expect(not remaining, f"after undo: {len(remaining)} differences: {remaining[:MAX_SHOWN]}")
    before.drop()


def _check_repair(trial: Trial, env: Env, before: Snapshot, run: MendingRun, *, quick: bool) -> None:
    """Check that TensorFlow registers the GPUs in a new shell and that `check` has no problem left.

    Only a missing driver may still be reported.
    """
    broken, driver = trial.broken, env.driver
    trial.expect(run.status == (0 if driver else 1), f"fix: status {run.status}")
    if env.shell == "plain" and any("bin/activate" in line for line in before.differences()):
        env.shell = "activated"
    after = tfdoctor(env, "check", "--json").json()
    codes = {finding["code"]: finding["severity"] for finding in after.get("findings", ())}
    trial.notes.append(f"check then: {after.get('verdict')} {codes}")
    may_remain = {*broken.informs, *(() if driver else ("TFD101",))}
    remaining = [code for code, severity in codes.items() if severity == "error" or code in broken.codes]
    trial.expect(set(remaining) <= may_remain, f"check still says {remaining}")
    env.driver = True
    truth_seen = observe_truth(env, quick=quick)
    env.driver = driver
    trial.notes.append(f"TensorFlow then: {format_truth(truth_seen)}")
    trial.expect(truth_seen.import_ok, "mended, and the import fails")
    trial.expect(truth_seen.gpu_count == GPUS, f"mended, and TensorFlow registers {truth_seen.gpu_count}")


def _list_without_inodes(env: Env) -> dict[str, Entry]:
    """Return the tree without inodes.

    A rolled back file may be another one with the same content and times.
    """
    tree = list_tree(env.root)
    tree.pop(".tfdoctor/lock", None)
    return {path: replace(entry, inode=0) for path, entry in tree.items()}


def attempt(broken: Broken, bases: Bases, *, quick: bool, only_check: bool = False) -> Trial:
    """Run all checks on one breakage. Raise Unavailable if its base is not available."""
    trial = Trial(broken)
    quick = quick and not broken.whole
    with bases.break_environment(broken) as env:
        check_diagnosis(trial, env, quick=quick)
        if not only_check:
            check_fix(trial, env, env.work / "kept", quick=quick)
    return trial


def interrupt_fix(broken: Broken, bases: Bases, number: int) -> Trial:
    """Send `fix` a signal while its installer writes, and check that everything is restored.

    After Ctrl-C, `fix` itself reverts the changes. After SIGKILL the next run does so, once the orphaned installer
    has ended.
    """
    trial = Trial(broken)
    with bases.break_environment(broken) as env:
        before = Snapshot(env.root, env.work / "kept")
        count_before = len(list(env.site.glob("nvidia_*")))
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
        while child.poll() is None and len(list(env.site.glob("nvidia_*"))) == count_before:
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
        remaining = before.differences()
        trial.expect(not remaining, f"{len(remaining)} differences: {remaining[:MAX_SHOWN]}")
        before.drop()
    return trial


def fix_without_network(broken: Broken, bases: Bases) -> Trial:
    """Check that `fix` reports an unreachable package index and changes nothing."""
    trial = Trial(broken)
    with bases.break_environment(broken) as env:
        nowhere = "http://127.0.0.1:9/simple"
        env.variables |= {"UV_INDEX_URL": nowhere, "UV_DEFAULT_INDEX": nowhere, "PIP_INDEX_URL": nowhere}
        env.variables |= {"UV_HTTP_RETRIES": "0", "PIP_RETRIES": "0", "UV_CACHE_DIR": str(env.work / "cache")}
        before = Snapshot(env.root, env.work / "kept")
        run = tfdoctor(env, "fix", "--yes", "--no-deep")
        trial.notes.append(f"fix: {run}")
        trial.expect(run.status == 1, f"fix: status {run.status}")
        trial.expect("Traceback" not in run.error, "a traceback")
        remaining = before.differences()
        trial.expect(not remaining, f"{len(remaining)} differences: {remaining[:MAX_SHOWN]}")
        before.drop()
    return trial


def main() -> int:
    """Run the trials; return 1 if one has a problem."""
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
    failed = 0
    chosen = [
        broken for broken in BROKEN if not options.only or {broken.name, broken.base} & set(options.only)
    ]
    for broken in chosen:
        started = time.monotonic()
        try:
            trial = attempt(broken, bases, quick=options.quick, only_check=options.check)
        except Unavailable as reason:
            print(f"SKIPPED {broken.name}: {reason}")
            continue
        failed += bool(trial.problems)
        result = "WRONG" if trial.problems else "right"
        lines = [f"{result:7} {broken.name:26} {time.monotonic() - started:6.1f} s"]
        lines += [f"        - {problem}" for problem in trial.problems]
        if options.verbose or trial.problems:
            lines += [f"        | {line}" for note in trial.notes for line in note.splitlines()]
        print("\n".join(lines), flush=True)
    print(f"{len(chosen)} tried, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
