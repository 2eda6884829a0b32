"""One seed from start to end: real TensorFlow, `check`, the guilty change, printed commands, `fix`, restoring."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lab.broken_env import inherit_variables, make_base
from lab.compare import describe_disagreement
from lab.restoring import MAX_COPIED_BYTES, Entry, Snapshot, list_tree
from lab.strangers.ground import BASES_BY_RELEASE, BaseContents, GroundIndex, Undrawn, inspect_base
from lab.strangers.kinds import apply_change, find_meaning
from lab.strangers.person import User
from lab.truth import Truth, observe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lab.strangers.grammar import Change, Meaning, Story

TRUTH = 240
"""Seconds that an import of TensorFlow may take on a busy machine."""
CHECK, FIX, COMMANDS = 120, 900, 900
"""Seconds for each; half of CHECK is the timeout of the probes of `check`."""
_MAX_TEXT_CHARS = 3000


@dataclass(slots=True)
class Stock:
    """The bases in their folder, each with its snapshot."""

    folder: Path
    tool: Path
    made: dict[str, Snapshot] = field(default_factory=dict)
    grounds: dict[str, BaseContents] = field(default_factory=dict)
    index: GroundIndex | None = None
    lock: int = -1

    def __post_init__(self) -> None:
        """Wait until no other process uses the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder = self.folder.resolve()
        self.cache.mkdir(exist_ok=True)
        self.lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        for path in self.cache.rglob("ld.so.cache"):
            path.unlink()  # it contains the folder's path at its creation

    @property
    def cache(self) -> Path:
        """The folder for compiled stand-ins."""
        return self.folder / "standins"

    def ground(self, name: str) -> BaseContents:
        """Return the contents of a base; create the base if it does not exist. Raise Unavailable."""
        if name not in self.grounds:
            root, store = self.folder / f"env-{name}", self.folder / f"kept-{name}"
            if self._busy_path(root).exists():  # a run was interrupted while it was broken
                self._recover(root, store)
            if store.exists():
                shutil.rmtree(store)
            if not (root / "pyvenv.cfg").exists():
                make_base(BASES_BY_RELEASE[name], root)
            _unshare_files(root)
            self._compile_bytecode(root)
            self.index = self.index or GroundIndex(self.folder / "index.json")
            self.grounds[name] = inspect_base(name, root, self.index)
        return self.grounds[name]

    @staticmethod
    def _compile_bytecode(root: Path) -> None:
        """Compile the bytecode that TensorFlow's import and pip load, as after the first use."""
        done = root / "lib" / "__pycache__" / "compiled"  # in a folder that snapshots ignore
        if done.exists():
            return
        done.parent.mkdir(exist_ok=True)
        python = str(root / "bin" / "python")
        pip = str(next(root.glob("lib/python*/site-packages/pip"), root / "pip"))
        for arguments in (("-c", "import tensorflow.keras, site"), ("-m", "compileall", "-q", pip)):
            subprocess.run(
                [python, *arguments], env=inherit_variables(), capture_output=True, timeout=TRUTH, check=False
            )
        done.touch()

    def get(self, name: str) -> Snapshot:
        """Return the snapshot of an intact base. Raise Unavailable."""
        if name not in self.made:
            self.ground(name)
            store = self.folder / f"kept-{name}"
            snapshot = Snapshot(self.folder / f"env-{name}", store)
            entries = {path: asdict(entry) for path, entry in snapshot.entries.items()}
            self._entries_path(store).write_text(json.dumps(entries), encoding="utf-8")
            self.made[name] = snapshot
        return self.made[name]

    def _busy_path(self, root: Path) -> Path:
        return self.folder / f"busy-{root.name}"

    @staticmethod
    def _entries_path(store: Path) -> Path:
        return store.with_name(f"{store.name}.json")

    def _recover(self, root: Path, store: Path) -> None:
        """Restore a base that an interrupted run left broken."""
        for work in self.folder.glob("work-*"):
            moved = [
                config.parent
                for config in work.glob("places/**/pyvenv.cfg")
                if not config.parent.is_symlink()
            ]
            if moved and not root.exists():
                moved[0].rename(root)
        snapshot = Snapshot.__new__(Snapshot)
        snapshot.root, snapshot.store = root, store
        saved = json.loads(self._entries_path(store).read_text(encoding="utf-8"))
        snapshot.entries = {path: Entry(**entry) for path, entry in saved.items()}
        snapshot.restore()
        self._busy_path(root).unlink()
        for work in self.folder.glob("work-*"):
            shutil.rmtree(work)

    @contextmanager
    def break_environment(self, story: Story, changes: Sequence[Change]) -> Iterator[User]:
        """Break an environment with these changes while the block runs, then restore it. Raise Undrawn."""
        person = self._make_person(story.with_changes(changes))
        try:
            _break_environment(person)
            yield person
        finally:
            signal.pthread_sigmask(
                signal.SIG_BLOCK, {signal.SIGTERM}
            )  # an end in between would leave it broken
            try:
                person.revert_moves()
                self.get(story.base).restore()
                for aside in self.folder.glob(f"{person.root.name}.*"):  # a command may have moved it there
                    shutil.rmtree(aside)
                shutil.rmtree(person.work)
                self._busy_path(person.root).unlink()
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def keep(self, story: Story) -> User:
        """Leave an environment broken for inspection; the next run restores it. Raise Undrawn."""
        person = self._make_person(story)
        _break_environment(person)
        self.made.clear()  # keep the snapshot, too
        return person

    def _make_person(self, story: Story) -> User:
        root = self.get(story.base).root
        self._busy_path(root).touch()
        work = self.folder / f"work-{story.seed}"  # the same in each try, because printed commands contain it
        work.mkdir(mode=0o755)
        base = BASES_BY_RELEASE[story.base]
        return User(base, root, work, self.cache, story=story, bases=self.folder, tool=self.tool)

    def drop_snapshots(self) -> None:
        """Delete the snapshots, when the bases are intact."""
        for snapshot in self.made.values():
            snapshot.drop()
            self._entries_path(snapshot.store).unlink()
        self.made.clear()


def _break_environment(person: User) -> None:
    person.prepare()
    for change in person.story.changes:
        apply_change(person, change)
    person.folder("answers").chmod(0o777)
    person.change_owner()


def _unshare_files(root: Path) -> None:
    """Copy the files that a base shares with the environment that it was copied from.

    These are the small files that programs may write into in place. Also correct the folder in its scripts.
    """
    activate = root / "bin" / "activate"
    match = re.search(
        r"""^VIRTUAL_ENV=["']?(/[^"'\n]+)""", activate.read_text(encoding="utf-8"), re.MULTILINE
    )
    old_root = match[1] if match else str(root)
    for path in (root / "pyvenv.cfg", *sorted((root / "bin").iterdir())):
        if not path.is_file() or path.is_symlink() or path.stat().st_size >= MAX_COPIED_BYTES:
            continue
        content = path.read_bytes()
        corrected = content.replace(os.fsencode(old_root), os.fsencode(root))
        if corrected != content or path.stat().st_nlink > 1:
            copy = path.with_name(path.name + ".own")
            shutil.copy2(path, copy)
            copy.write_bytes(corrected)
            copy.replace(path)


# -- Running -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that ended; status None if it was killed at the timeout."""

    status: int | None
    output: str
    error: str

    def json(self) -> dict[str, Any]:
        """Return its output as JSON; a dict with "error" if it is not JSON."""
        try:
            data = json.loads(self.output)
        except ValueError:
            data = None
        if isinstance(data, dict):
            return data
        return {"error": f"status {self.status}: {self.error[-600:] or self.output[-600:]}"}


def run(argv: Sequence[str], env: dict[str, str], timeout: float) -> Completed:
    """Run a program, and kill it and its children at the timeout."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            status: int | None = child.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if child.returncode is None:  # timeout, or this process is interrupted
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read(64 << 20).decode("utf-8", "replace"))
    return Completed(status, *texts)


def observe_truth(person: User, first: str = "") -> Truth:
    """Return what TensorFlow does in a new shell of the user, after the commands in `first`."""
    prefix = person.prefix()
    if first:
        prefix = [*prefix, "bash", "-c", f'{first}\nexec "$@"', "bash"]
    answers = person.folder("answers")
    env = person.environment()
    timeout = TRUTH + (COMMANDS if first else 0)
    observed = observe(person.python_command, env, prefix=prefix, answers=answers, timeout=timeout)
    if observed.crashed == "timeout":
        message = "TensorFlow did not answer in time"
        raise Undrawn(message)
    return observed


def tfdoctor(person: User, command: str, *arguments: str, timeout: float) -> Completed:
    """Run tfdoctor as the user.

    It checks the active environment, or the one that --python names.
    """
    python_option = ("--python", person.python_command) if person.shell == "plain" else ()
    tool = [str(person.tool), "-I", "-m", "tfdoctor", command, *arguments, *python_option]
    return run([*person.prefix(), *tool], person.environment(), timeout)


def classify_state(observed: Truth, person: User) -> str:
    """Return the state of TensorFlow.

    "import" if the import fails, "none" if no GPU is registered, "fewer" if some are missing, else "whole".
    """
    if not observed.import_ok:
        return "import"
    count = observed.gpu_count or 0
    if count == 0:
        return "none"
    return "fewer" if count < person.gpus else "whole"


def summarise_truth(observed: Truth) -> dict[str, Any]:
    """Return a summary of what TensorFlow did."""
    error = (observed.error or "").strip().splitlines()
    return {
        "import_ok": observed.import_ok,
        "gpu_registered": observed.gpu_registered,
        "gpu_count": observed.gpu_count,
        "missing_libraries": observed.missing_libraries,
        "really_missing": observed.really_missing,
        "crashed": observed.crashed,
        "error": (error[-1] if error else "")[:300],
        "log": "" if observed.import_ok or observed.error else observed.log[-400:],
    }


# -- Comparing ---------------------------------------------------------------------------------------


def differences(observed: Truth, answer: dict[str, Any]) -> list[str]:
    """Return how the prediction differs from what TensorFlow did."""
    problems = []
    if "prediction" in answer:
        predicted = answer["prediction"]["import_ok"]
        if predicted != observed.import_ok:
            problems.append(f"import_ok: said {predicted}, was {observed.import_ok}")
    actual = summarise_truth(observed) | {"error": observed.error, "asked": observed.asked}
    actual["failures"] = [{"error": failure.error} for failure in observed.failures]
    last = (observed.error or "").strip().rpartition("\n")[2]
    if not observed.import_ok and not re.search(
        r"\blib[^\s/]*\.so[^\s/]*: cannot open shared object file", last
    ):
        actual["crashed"] = "not for a missing library"  # it does not need what it could not open before
    for key in ("missing_libraries", "really_missing"):  # TensorRT, which is optional
        actual[key] = [name for name in actual.get(key) or () if not name.startswith("libnvinfer")]
    other_problem = describe_disagreement(actual, answer)
    return problems + ([other_problem] if other_problem else [])


def list_acceptable_causes(
    final_state: str, blamed: Sequence[Meaning], others: Sequence[Meaning]
) -> list[str]:
    """Return the right causes for a state: those of the guilty changes, and "healthy" if GPUs are registered."""
    names = set()
    if final_state in ("whole", "fewer"):
        names |= {"healthy"}
        for change_meaning in (*blamed, *others):
            names |= {cause.value for cause in change_meaning.later}
    if final_state != "whole":
        for change_meaning in blamed:
            names |= {cause.value for cause in change_meaning.causes}
    return sorted(names)


def are_all_possible(answers: Sequence[bool | None]) -> bool | None:
    """Return whether all can be repaired; False if one cannot, None if it is open for one."""
    if False in answers:
        return False
    return None if None in answers else True


@dataclass(slots=True)
class SeedTrial:
    """The trial of one seed."""

    story: Story
    stock: Stock
    only_check: bool = False
    line: dict[str, Any] = field(default_factory=dict)
    whole: Truth | None = None

    def run_trial(self) -> dict[str, Any]:
        """Run the whole trial and return a line for the results. Raise Undrawn."""
        started = time.monotonic()
        story = self.story
        self.line = {
            "seed": story.seed,
            "story": story.as_dict(),
            "changes": [str(change) for change in story.changes],
        }
        with self.stock.break_environment(story, story.changes) as person:
            observed, answer = self._check_and_observe(person)
            self.line |= {
                "said": _summarise(answer),
                "exit": answer["exit"],
                "truth": summarise_truth(observed),
            }
            final_state = classify_state(observed, person)
            was_refused = isinstance(answer.get("error"), dict)
            problems = [] if was_refused and not observed.import_ok else differences(observed, answer)
            is_restricted = person.user != 0 or person.noexec
        self.line |= {"state": final_state, "differences": problems, "predicted": not problems}
        self.line["green_lie"] = answer["exit"] == 0 and not observed.import_ok
        guilty, state_alone = self._find_guilty(final_state, bool(problems))
        others = [item for item in story.changes if item not in guilty]
        acceptable_causes = list_acceptable_causes(
            final_state, [find_meaning(item) for item in guilty], [find_meaning(item) for item in others]
        )
        cause = answer.get("verdict", {}).get("cause")
        if was_refused and not observed.import_ok:  # its message says that this Python cannot be run
            cause = "python-unusable"
        self.line |= {
            "blamed": [str(item) for item in guilty],
            "acceptable": acceptable_causes,
            "cause": cause,
            "cause_right": cause in acceptable_causes,
        }
        if not self.only_check:
            harmful = [
                item for item in story.changes if item in guilty or state_alone.get(item, "whole") != "whole"
            ]
            meanings = [find_meaning(item) for item in harmful]
            by_hand = False if is_restricted else are_all_possible([item.by_hand for item in meanings])
            by_fix = False if is_restricted else are_all_possible([item.fix for item in meanings])
            self.line |= {"by_hand_possible": by_hand, "fix_possible": by_fix}
            if final_state != "whole":
                self._try_commands(answer)
            self._try_fix(final_state)
        self.line["seconds"] = round(time.monotonic() - started, 1)
        return self.line

    def _check_and_observe(self, person: User) -> tuple[Truth, dict[str, Any]]:
        completed = tfdoctor(person, "check", "--json", "--timeout", str(CHECK // 2), timeout=CHECK)
        answer = completed.json() | {"exit": completed.status}
        return observe_truth(person), answer

    def _find_guilty(self, target_state: str, is_wrong: bool) -> tuple[list[Change], dict[Change, str]]:
        """Find the guilty changes with real TensorFlow.

        Return them, and the state that each change causes alone if it was tried.
        """
        changes = list(self.story.changes)
        if target_state == "whole" and not is_wrong:
            return [], {}
        if len(changes) == 1:
            self.line["smallest"] = [str(changes[0])]
            return ([] if target_state == "whole" else changes), {}
        alone: dict[Change, str] = {}
        for change in changes:
            try:
                with self.stock.break_environment(self.story, [change]) as person:
                    observed, answer = self._check_and_observe(person)
                    alone[change] = classify_state(observed, person)
                    if (
                        is_wrong
                        and ("verdict" in answer or observed.import_ok)
                        and differences(observed, answer)
                    ):
                        self.line.setdefault("smallest", [str(change)])
            except Undrawn:  # it depends on another change
                continue
        if target_state == "whole":
            return [], alone
        guilty = [change for change, change_state in alone.items() if change_state == target_state]
        return (guilty or self._minimise_changes(changes, target_state)), alone

    def _minimise_changes(self, changes: list[Change], target_state: str) -> list[Change]:
        remaining = list(changes)
        for change in changes:
            fewer = [other for other in remaining if other != change]
            try:
                with self.stock.break_environment(self.story, fewer) as person:
                    if classify_state(observe_truth(person), person) == target_state:
                        remaining = fewer
            except Undrawn:
                continue
        return remaining

    def _try_commands(self, answer: dict[str, Any]) -> None:
        commands = list_root_commands(answer)
        self.line["commands"] = commands
        if not commands:
            self.line["by_hand"] = False
            return
        with self.stock.break_environment(self.story, self.story.changes) as person:
            after = observe_truth(person, "\n".join(commands))
            self.line["by_hand"] = classify_state(after, person) == "whole"
            self.line["by_hand_then"] = summarise_truth(after)
            if not self.line["by_hand"]:
                self.line["by_hand_log"] = after.log[:_MAX_TEXT_CHARS]

    def _try_fix(self, initial_state: str) -> None:
        with self.stock.break_environment(self.story, self.story.changes) as person:
            before = Snapshot(person.root, person.work / "kept")
            done = tfdoctor(person, "fix", "--yes", "--no-deep", timeout=FIX)
            changed = before.differences()
            self.line["fix_exit"], self.line["fix_changes"] = done.status, len(changed)
            self.line["fix_said"] = (done.output + done.error)[-_MAX_TEXT_CHARS:]
            if not changed:
                self.line["fixed"] = initial_state == "whole"
                return
            shell = person.shell
            if shell == "plain" and any("bin/activate" in difference for difference in changed):
                person.shell = "activated"  # as `fix` tells the user to do
            after = observe_truth(person)
            person.shell = shell
            self.line["fixed"] = classify_state(after, person) == "whole"
            self.line["fixed_then"] = summarise_truth(after)
            fixed_tree = _list_without_inodes(person.root)
            second = tfdoctor(person, "fix", "--yes", "--no-deep", timeout=FIX)
            self.line["second_same"] = (
                _list_without_inodes(person.root) == fixed_tree and second.status == done.status
            )
            undone = tfdoctor(person, "fix", "--undo", "--yes", timeout=FIX)
            remaining = before.differences()
            self.line["undo_exact"] = not remaining and undone.status == 0
            if remaining or undone.status:
                self.line["undo_left"] = [f"status {undone.status}", *remaining[:8]]


def _summarise(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of the answer of `check` that are kept."""
    if "verdict" not in answer:
        return {"error": str(answer.get("error"))[:_MAX_TEXT_CHARS]}
    findings = [
        f"{finding['code']} {finding['severity']} {finding['cause']}: {finding['title']}"
        for finding in answer["findings"]
    ]
    prediction = {key: answer["prediction"][key] for key in ("import_ok", "gpu_count", "missing_libraries")}
    return {"verdict": answer["verdict"], "prediction": prediction, "findings": findings}


def list_root_commands(answer: dict[str, Any]) -> list[str]:
    """Return the commands of the first remedy of the root finding that does not change the system."""
    findings = [entry for entry in answer.get("findings", ()) if entry["severity"] != "info"]
    cause = answer.get("verdict", {}).get("cause")
    root = [entry for entry in findings if entry["cause"] == cause] or findings
    for finding in root[:1]:
        for remedy in finding["remedies"]:
            if remedy["commands"] and not remedy["changes_system"]:
                return list(remedy["commands"])
    return []


def _list_without_inodes(root: Path) -> dict[str, Entry]:
    """Return the tree without inodes.

    A rolled back file may be another one with the same content and times.
    """
    tree = list_tree(root)
    tree.pop(".tfdoctor/lock", None)
    return {path: replace(entry, inode=0) for path, entry in tree.items()}
