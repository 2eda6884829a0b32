"""One seed from end to end: real TensorFlow, `check`, what to blame, the printed commands, `fix`, and back."""

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

from lab.broken_env import inherited, make_base
from lab.compare import disagreement
from lab.restoring import SHORT, Entry, Snapshot, list_tree
from lab.strangers.ground import STARTS, Ground, Index, Undrawn, survey
from lab.strangers.kinds import make, meaning
from lab.strangers.person import Person
from lab.truth import Truth, observe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lab.strangers.grammar import Change, Meaning, Story

TRUTH = 240
"""Seconds that an import of TensorFlow may take: the machine may be busy."""
CHECK, FIX, COMMANDS = 120, 900, 900
"""Seconds for each; half of the first is what `check` may take for looking."""
_MOST_TEXT = 3000


@dataclass(slots=True)
class Stock:
    """The bases in their folder, each with its snapshot."""

    folder: Path
    tool: Path
    made: dict[str, Snapshot] = field(default_factory=dict)
    grounds: dict[str, Ground] = field(default_factory=dict)
    index: Index | None = None
    lock: int = -1

    def __post_init__(self) -> None:
        """Wait until nobody else breaks what is in the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder = self.folder.resolve()
        self.cache.mkdir(exist_ok=True)
        self.lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        for path in self.cache.rglob("ld.so.cache"):
            path.unlink()  # it names the folder as it was when it was made

    @property
    def cache(self) -> Path:
        """Compiled stand-ins."""
        return self.folder / "standins"

    def ground(self, name: str) -> Ground:
        """What there is to break; the base is made where it is not there. Raises Unavailable."""
        if name not in self.grounds:
            root, store = self.folder / f"env-{name}", self.folder / f"kept-{name}"
            if self._busy(root).exists():  # a run was cut off while it was broken
                self._recover(root, store)
            if store.exists():
                shutil.rmtree(store)
            if not (root / "pyvenv.cfg").exists():
                make_base(STARTS[name], root)
            _make_own(root)
            self._compile(root)
            self.index = self.index or Index(self.folder / "index.json")
            self.grounds[name] = survey(name, root, self.index)
        return self.grounds[name]

    @staticmethod
    def _compile(root: Path) -> None:
        """Have it as it is after its first use: what TensorFlow's import and pip load is compiled."""
        done = root / "lib" / "__pycache__" / "compiled"  # where a snapshot does not look
        if done.exists():
            return
        done.parent.mkdir(exist_ok=True)
        python = str(root / "bin" / "python")
        pip = str(next(root.glob("lib/python*/site-packages/pip"), root / "pip"))
        for words in (("-c", "import tensorflow.keras, site"), ("-m", "compileall", "-q", pip)):
            subprocess.run([python, *words], env=inherited(), capture_output=True, timeout=TRUTH, check=False)
        done.touch()

    def get(self, name: str) -> Snapshot:
        """A base as it should be. Raises Unavailable."""
        if name not in self.made:
            self.ground(name)
            store = self.folder / f"kept-{name}"
            snapshot = Snapshot(self.folder / f"env-{name}", store)
            entries = {path: asdict(entry) for path, entry in snapshot.entries.items()}
            self._entries(store).write_text(json.dumps(entries), encoding="utf-8")
            self.made[name] = snapshot
        return self.made[name]

    def _busy(self, root: Path) -> Path:
        return self.folder / f"busy-{root.name}"

    @staticmethod
    def _entries(store: Path) -> Path:
        return store.with_name(f"{store.name}.json")

    def _recover(self, root: Path, store: Path) -> None:
        """Put a base back as another run found it."""
        for work in self.folder.glob("work-*"):
            moved = [one.parent for one in work.glob("places/**/pyvenv.cfg") if not one.parent.is_symlink()]
            if moved and not root.exists():
                moved[0].rename(root)
        snapshot = Snapshot.__new__(Snapshot)
        snapshot.root, snapshot.store = root, store
        said = json.loads(self._entries(store).read_text(encoding="utf-8"))
        snapshot.entries = {path: Entry(**entry) for path, entry in said.items()}
        snapshot.restore()
        self._busy(root).unlink()
        for work in self.folder.glob("work-*"):
            shutil.rmtree(work)

    @contextmanager
    def broken(self, story: Story, changes: Sequence[Change]) -> Iterator[Person]:
        """Somebody's environment with these changes; put back afterwards. Raises Undrawn."""
        person = self._person(story.with_changes(changes))
        try:
            _break(person)
            yield person
        finally:
            person.come_back()
            self.get(story.base).restore()
            for aside in self.folder.glob(f"{person.root.name}.*"):  # where a command put it
                shutil.rmtree(aside)
            shutil.rmtree(person.work)
            self._busy(person.root).unlink()

    def keep(self, story: Story) -> Person:
        """Somebody's environment, left as it is broken; the next run puts it back. Raises Undrawn."""
        person = self._person(story)
        _break(person)
        self.made.clear()  # what is kept of it stays, too
        return person

    def _person(self, story: Story) -> Person:
        root = self.get(story.base).root
        self._busy(root).touch()
        work = self.folder / f"work-{story.seed}"  # the same for each try: printed commands name it
        work.mkdir(mode=0o755)
        base = STARTS[story.base]
        return Person(base, root, work, self.cache, story=story, bases=self.folder, tool=self.tool)

    def leave(self) -> None:
        """Forget the snapshots: the bases are as they were."""
        for snapshot in self.made.values():
            snapshot.drop()
            self._entries(snapshot.store).unlink()
        self.made.clear()


def _break(person: Person) -> None:
    person.prepare()
    for change in person.story.changes:
        make(person, change)
    person.folder("answers").chmod(0o777)
    person.hand_over()


def _make_own(root: Path) -> None:
    """What a base shares with the environment that it was copied from, is made its own.

    That is the small files that programs may write into in place, and the folder that its programs name.
    """
    activate = root / "bin" / "activate"
    named = re.search(
        r"""^VIRTUAL_ENV=["']?(/[^"'\n]+)""", activate.read_text(encoding="utf-8"), re.MULTILINE
    )
    before = named[1] if named else str(root)
    for path in (root / "pyvenv.cfg", *sorted((root / "bin").iterdir())):
        if not path.is_file() or path.is_symlink() or path.stat().st_size >= SHORT:
            continue
        content = path.read_bytes()
        right = content.replace(os.fsencode(before), os.fsencode(root))
        if right != content or path.stat().st_nlink > 1:
            spare = path.with_name(path.name + ".own")
            shutil.copy2(path, spare)
            spare.write_bytes(right)
            spare.replace(path)


# -- Running -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ended; status None: it was killed for its time."""

    status: int | None
    output: str
    error: str

    def json(self) -> dict[str, Any]:
        """Its output as JSON; with "error" where it is none."""
        try:
            said = json.loads(self.output)
        except ValueError:
            said = None
        if isinstance(said, dict):
            return said
        return {"error": f"status {self.status}: {self.error[-600:] or self.output[-600:]}"}


def run(argv: Sequence[str], env: dict[str, str], timeout: float) -> Ran:
    """Run a program and whatever it starts, and end all of it where it takes too long."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            status: int | None = child.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if child.returncode is None:  # too slow, or we are told to end
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read(64 << 20).decode("utf-8", "replace"))
    return Ran(status, *texts)


def truth(person: Person, first: str = "") -> Truth:
    """What TensorFlow does for this person, in a new shell; `first`: after these commands in it."""
    prefix = person.prefix()
    if first:
        prefix = [*prefix, "bash", "-c", f'{first}\nexec "$@"', "bash"]
    answers = person.folder("answers")
    env = person.environment()
    timeout = TRUTH + (COMMANDS if first else 0)
    seen = observe(person.asked, env, prefix=prefix, answers=answers, timeout=timeout)
    if seen.crashed == "timeout":
        message = "TensorFlow did not answer in time"
        raise Undrawn(message)
    return seen


def tfdoctor(person: Person, command: str, *words: str, timeout: float) -> Ran:
    """What tfdoctor says to this person: of the active environment, or of the one that they name."""
    named = ("--python", person.asked) if person.shell == "plain" else ()
    tool = [str(person.tool), "-I", "-m", "tfdoctor", command, *words, *named]
    return run([*person.prefix(), *tool], person.environment(), timeout)


def state(seen: Truth, person: Person) -> str:
    """In a word: "import" fails, "none" of the GPUs is registered, "fewer" than there are, or "whole"."""
    if not seen.import_ok:
        return "import"
    count = seen.gpu_count or 0
    if count == 0:
        return "none"
    return "fewer" if count < person.gpus else "whole"


def shown(seen: Truth) -> dict[str, Any]:
    """The essence of what TensorFlow did."""
    error = (seen.error or "").strip().splitlines()
    return {
        "import_ok": seen.import_ok,
        "gpu_registered": seen.gpu_registered,
        "gpu_count": seen.gpu_count,
        "missing_libraries": seen.missing_libraries,
        "really_missing": seen.really_missing,
        "crashed": seen.crashed,
        "error": (error[-1] if error else "")[:300],
        "log": "" if seen.import_ok or seen.error else seen.log[-400:],
    }


# -- Judging -----------------------------------------------------------------------------------------


def differences(seen: Truth, answer: dict[str, Any]) -> list[str]:
    """Where the prediction is not what TensorFlow did."""
    wrong = []
    if "prediction" in answer:
        said = answer["prediction"]["import_ok"]
        if said != seen.import_ok:
            wrong.append(f"import_ok: said {said}, was {seen.import_ok}")
    was = shown(seen) | {"error": seen.error, "asked": seen.asked}
    was["failures"] = [{"error": failure.error} for failure in seen.failures]
    last = (seen.error or "").strip().rpartition("\n")[2]
    if not seen.import_ok and not re.search(r"\blib[^\s/]*\.so[^\s/]*: cannot open shared object file", last):
        was["crashed"] = "not for a missing library"  # what it could not open before, it can do without
    for key in ("missing_libraries", "really_missing"):  # TensorRT, which it can do without
        was[key] = [name for name in was.get(key) or () if not name.startswith("libnvinfer")]
    rest = disagreement(was, answer)
    return wrong + ([rest] if rest else [])


def acceptable(kept: str, blamed: Sequence[Meaning], others: Sequence[Meaning]) -> list[str]:
    """The causes that are right for a state: those of what is to blame; healthy where nothing is."""
    found = set()
    if kept in ("whole", "fewer"):
        found |= {"healthy"}
        for one in (*blamed, *others):
            found |= {cause.value for cause in one.later}
    if kept != "whole":
        for one in blamed:
            found |= {cause.value for cause in one.causes}
    return sorted(found)


def possible(answers: Sequence[bool | None]) -> bool | None:
    """Whether all of them can be mended; False where one cannot, None where it is open for one."""
    if False in answers:
        return False
    return None if None in answers else True


@dataclass(slots=True)
class Try:
    """One seed."""

    story: Story
    stock: Stock
    only_check: bool = False
    line: dict[str, Any] = field(default_factory=dict)
    whole: Truth | None = None

    def go(self) -> dict[str, Any]:
        """Everything; a line for the results. Raises Undrawn."""
        started = time.monotonic()
        story = self.story
        self.line = {
            "seed": story.seed,
            "story": story.as_dict(),
            "changes": [str(change) for change in story.changes],
        }
        with self.stock.broken(story, story.changes) as person:
            seen, answer = self._look(person)
            self.line |= {"said": _essence(answer), "exit": answer["exit"], "truth": shown(seen)}
            kept = state(seen, person)
            refused = isinstance(answer.get("error"), dict)
            wrong = [] if refused and not seen.import_ok else differences(seen, answer)
            bound = person.user != 0 or person.noexec
        self.line |= {"state": kept, "differences": wrong, "predicted": not wrong}
        self.line["green_lie"] = answer["exit"] == 0 and not seen.import_ok
        blamed, alone = self._blame(kept, bool(wrong))
        others = [one for one in story.changes if one not in blamed]
        right = acceptable(kept, [meaning(one) for one in blamed], [meaning(one) for one in others])
        cause = answer.get("verdict", {}).get("cause")
        if refused and not seen.import_ok:  # it says in a sentence that this Python cannot be asked
            cause = "python-unusable"
        self.line |= {
            "blamed": [str(one) for one in blamed],
            "acceptable": right,
            "cause": cause,
            "cause_right": cause in right,
        }
        if not self.only_check:
            hurt = [one for one in story.changes if one in blamed or alone.get(one, "whole") != "whole"]
            meant = [meaning(one) for one in hurt]
            by_hand = False if bound else possible([one.by_hand for one in meant])
            by_fix = False if bound else possible([one.fix for one in meant])
            self.line |= {"by_hand_possible": by_hand, "fix_possible": by_fix}
            if kept != "whole":
                self._by_hand(answer)
            self._fix(kept)
        self.line["seconds"] = round(time.monotonic() - started, 1)
        return self.line

    def _look(self, person: Person) -> tuple[Truth, dict[str, Any]]:
        said = tfdoctor(person, "check", "--json", "--timeout", str(CHECK // 2), timeout=CHECK)
        answer = said.json() | {"exit": said.status}
        return truth(person), answer

    def _blame(self, kept: str, wrong: bool) -> tuple[list[Change], dict[Change, str]]:
        """The changes that do it, found by real TensorFlow; and what each does alone, where that was asked."""
        changes = list(self.story.changes)
        if kept == "whole" and not wrong:
            return [], {}
        if len(changes) == 1:
            self.line["smallest"] = [str(changes[0])]
            return ([] if kept == "whole" else changes), {}
        alone: dict[Change, str] = {}
        for change in changes:
            try:
                with self.stock.broken(self.story, [change]) as person:
                    seen, answer = self._look(person)
                    alone[change] = state(seen, person)
                    if wrong and ("verdict" in answer or seen.import_ok) and differences(seen, answer):
                        self.line.setdefault("smallest", [str(change)])
            except Undrawn:  # it needs one of the others
                continue
        if kept == "whole":
            return [], alone
        same = [change for change, one in alone.items() if one == kept]
        return (same or self._minimal(changes, kept)), alone

    def _minimal(self, changes: list[Change], kept: str) -> list[Change]:
        left = list(changes)
        for change in changes:
            fewer = [one for one in left if one != change]
            try:
                with self.stock.broken(self.story, fewer) as person:
                    if state(truth(person), person) == kept:
                        left = fewer
            except Undrawn:
                continue
        return left

    def _by_hand(self, answer: dict[str, Any]) -> None:
        commands = printed(answer)
        self.line["commands"] = commands
        if not commands:
            self.line["by_hand"] = False
            return
        with self.stock.broken(self.story, self.story.changes) as person:
            after = truth(person, "\n".join(commands))
            self.line["by_hand"] = state(after, person) == "whole"
            self.line["by_hand_then"] = shown(after)
            if not self.line["by_hand"]:
                self.line["by_hand_log"] = after.log[:_MOST_TEXT]

    def _fix(self, kept: str) -> None:
        with self.stock.broken(self.story, self.story.changes) as person:
            before = Snapshot(person.root, person.work / "kept")
            done = tfdoctor(person, "fix", "--yes", "--no-deep", timeout=FIX)
            changed = before.differences()
            self.line["fix_exit"], self.line["fix_changes"] = done.status, len(changed)
            self.line["fix_said"] = (done.output + done.error)[-_MOST_TEXT:]
            if not changed:
                self.line["fixed"] = kept == "whole"
                return
            was = person.shell
            if was == "plain" and any("bin/activate" in one for one in changed):
                person.shell = "activated"  # as it tells to do
            after = truth(person)
            person.shell = was
            self.line["fixed"] = state(after, person) == "whole"
            self.line["fixed_then"] = shown(after)
            mended = _plain(person.root)
            second = tfdoctor(person, "fix", "--yes", "--no-deep", timeout=FIX)
            self.line["second_same"] = _plain(person.root) == mended and second.status == done.status
            undone = tfdoctor(person, "fix", "--undo", "--yes", timeout=FIX)
            left = before.differences()
            self.line["undo_exact"] = not left and undone.status == 0
            if left or undone.status:
                self.line["undo_left"] = [f"status {undone.status}", *left[:8]]


def _essence(answer: dict[str, Any]) -> dict[str, Any]:
    """What is kept of what `check` said."""
    if "verdict" not in answer:
        return {"error": str(answer.get("error"))[:_MOST_TEXT]}
    findings = [
        f"{one['code']} {one['severity']} {one['cause']}: {one['title']}" for one in answer["findings"]
    ]
    prediction = {key: answer["prediction"][key] for key in ("import_ok", "gpu_count", "missing_libraries")}
    return {"verdict": answer["verdict"], "prediction": prediction, "findings": findings}


def printed(answer: dict[str, Any]) -> list[str]:
    """The commands of the first remedy of the root finding that changes no system."""
    findings = [one for one in answer.get("findings", ()) if one["severity"] != "info"]
    cause = answer.get("verdict", {}).get("cause")
    root = [one for one in findings if one["cause"] == cause] or findings
    for finding in root[:1]:
        for remedy in finding["remedies"]:
            if remedy["commands"] and not remedy["changes_system"]:
                return list(remedy["commands"])
    return []


def _plain(root: Path) -> dict[str, Entry]:
    """The listing without inodes: what is rolled back may be another file with the same content and times."""
    found = list_tree(root)
    found.pop(".tfdoctor/lock", None)
    return {path: replace(entry, inode=0) for path, entry in found.items()}
