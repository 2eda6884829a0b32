"""Which TensorFlow on which Python: what `tfdoctor install` was asked for, the machine's Pythons, and the planner."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor import versions
from tfdoctor.environment.install import Making, NoLockError, locks_of
from tfdoctor.environment.installers import InstallFailedError
from tfdoctor.environment.interpreters import ask, find_interpreters
from tfdoctor.environment.requirements import drop_cuda_lines
from tfdoctor.errors import Error, UsageError
from tfdoctor.plan import Method, Request
from tfdoctor.plan.arguments import check_python, make_plan
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.environment.interpreters import Interpreter
    from tfdoctor.environment.requirements import Condition, RequirementSet
    from tfdoctor.facts import MachineFacts
    from tfdoctor.fit import Host
    from tfdoctor.plan import Option, Recommendation
    from tfdoctor.system import System

__all__ = ["PlanChoice", "Wishes", "choose", "choose_making"]

_VERSION = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}(?:\.[0-9]{1,3})?")


@dataclasses.dataclass(frozen=True, slots=True)
class PlanChoice:
    """A plan, and the Python that carries it out."""

    option: Option
    base: str
    """A path, or a version that uv fetches."""
    version: str
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked for: `--tf`, `--package`, and the files of `-r`."""

    compat: Compat
    tf: str | None
    packages: tuple[str, ...]
    """Checked lines."""
    wish: RequirementSet

    @property
    def depends(self) -> bool:
        """Whether the files have a say in the Python, or mean another TensorFlow on another one."""
        return bool(self.wish.pythons) or self.wish.varies

    def request(self, python: str | None) -> Request:
        """Return what the planner is asked. python: `"3.11"`; None: any. Raises UsageError."""
        wanted = self.wish.on(python or self.pythons[0])
        if python is not None and self.tf is None and not wanted.tensorflow and self.wish.names_tensorflow:
            msg = f"-r: on Python {python} these files want no TensorFlow: their lines are for other Pythons."
            raise UsageError(msg, hint="Name another Python with --python, or the TensorFlow with --tf.")
        return Request(
            tensorflow=self._tensorflow(wanted.tensorflow),
            python=python,
            method=Method.PIP,
            requirements=(*wanted.lines, *self.packages),
        )

    @property
    def pythons(self) -> tuple[str, ...]:
        """The minors of Python that some TensorFlow has a wheel for, newest first."""
        found = {python for release in self.compat.releases for python in release.linux_pythons}
        return tuple(sorted(found, key=versions.sort_key, reverse=True))

    def _tensorflow(self, asked: Sequence[Condition]) -> str | None:
        """Return `--tf` and what the files say, in one. Raises UsageError if they do not go together."""
        named = [one for one in asked if str(one.specifier)]
        if not named:
            return self.tf
        known = [release.version for release in self.compat.releases]
        said = ",".join(dict.fromkeys(str(one.specifier) for one in named))
        where = " and ".join(dict.fromkeys(f"{one.where} (tensorflow{one.specifier})" for one in named))
        if not versions.Spec(said).select(known):
            msg = f"{where}: no known TensorFlow meets this requirement."
            raise UsageError(msg, hint="`tfdoctor matrix` lists every release.")
        if self.tf is None:
            return said
        try:
            own = _conditions(self.tf, self.compat)
            both = versions.Spec(f"{own},{said}").select(known)
        except versions.VersionSyntaxError:
            return self.tf  # the planner says what is wrong with it
        if not both and versions.Spec(own).select(known):
            msg = f"--tf {clean_line(self.tf)} and {where} contradict each other."
            raise UsageError(msg, hint="Leave --tf out, or change the file.")
        return f"{own},{said}" if both else self.tf


def _conditions(text: str, compat: Compat) -> str:
    """Return what `--tf` takes, as conditions: `2.15` → `==2.15.*`."""
    text = text.strip()
    if text.lower() == "latest":
        return f"=={compat.newest.version}"
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
        return f"=={text}.*"
    return text if re.match(r"[<>=!~]", text) else f"=={text}"


def choose(
    wishes: Wishes,
    python: str | None,
    host: Host,
    folder: Path,
    *,
    uv: str | None,
    system: System,
    machine: MachineFacts,
) -> PlanChoice | Recommendation:
    """Return the best plan that a Python at hand (or one that uv can fetch) can carry out, or the planner's conflict.

    python: what `--python` was given; system: where the Pythons are looked for; machine: what a survey says of it.
    Raises Error if a plan is there and no Python for it.
    """
    version, named = _python(python, system)
    minor = named.minor if named is not None else check_python(version)
    if minor is not None:
        _check_python(wishes.wish, named.version if named is not None else str(version))
    whole = _whole(wishes, minor, host)
    if not whole.options:
        return whole
    have = (
        [named]
        if named is not None
        else [one for one in find_interpreters(system) if not _is_in(one.path, folder)]
    )
    have = [one for one in have if wishes.wish.allows(one.version)]
    if version is not None:
        have = [one for one in have if _is_version(one.version, version)]
    able = [one for one in have if one.venv or uv is not None]
    best = _best(wishes, host, able)
    if best is not None:
        option, interpreter = best
        return PlanChoice(option, interpreter.path, interpreter.version, _newer(whole, option))
    option = whole.options[0]
    locks_of(option)  # raises where nobody pinned it: no other Python would help
    unable = _best(wishes, host, have)
    if unable is not None:
        raise _make_venv_error(unable[1], machine)
    if uv is not None and named is None:
        wanted = version or option.python
        note = f"No Python {wanted} is here: uv fetches one."
        return PlanChoice(option, wanted, wanted, (note,))
    raise _make_python_error(option, version, machine)


def choose_making(
    choice: PlanChoice,
    wishes: Wishes,
    folder: Path,
    *,
    uv: str | None,
    index: str | None,
    env: dict[str, str],
) -> tuple[Making, tuple[str, ...]]:
    """Return (what is to be made, what is to be said of it)."""
    wanted = wishes.wish.on(choice.version)
    wheels = {wheel.name: wheel.version for wheel in choice.option.wheels}
    lines, left = drop_cuda_lines(wanted.lines, wheels)
    limits, _ = drop_cuda_lines(wanted.constraints, wheels)
    making = Making(
        option=choice.option,
        folder=folder,
        base=choice.base,
        version=choice.version,
        uv=uv,
        locks=locks_of(choice.option),
        requirements=(*lines, *wishes.packages),
        constraints=limits,
        index=index,
        env=env,
    )
    return making, (*choice.notes, *wanted.notes, *left)


def _check_python(wish: RequirementSet, version: str) -> None:
    """Raises UsageError where `--python` is not what the files allow."""
    if not wish.allows(version):
        where = " and ".join(f"{one.where} (python{one.specifier})" for one in wish.pythons)
        msg = f"--python {version} and {where} contradict each other."
        raise UsageError(msg, hint="Leave --python out, or change the file.")


def _whole(wishes: Wishes, minor: str | None, host: Host) -> Recommendation:
    """Return what the planner says, whichever Pythons are here."""
    if minor is not None or not wishes.depends:
        return make_plan(wishes.compat, wishes.request(minor), host)
    allowed = [python for python in wishes.pythons if wishes.wish.allows(python)]
    if not allowed:
        where = " and ".join(f"{one.where} (python{one.specifier})" for one in wishes.wish.pythons)
        msg = f"{where}: TensorFlow has no wheels for this Python."
        raise UsageError(msg, hint=f"It has for {', '.join(reversed(wishes.pythons))}.")
    answers, errors = [], []
    for python in allowed:
        try:
            answers.append(make_plan(wishes.compat, wishes.request(python), host))
        except UsageError as error:  # of what the files say for this one Python
            errors.append(error)
    if not answers:
        raise errors[0]
    able = [answer for answer in answers if answer.options]
    return max(able, key=lambda answer: _rank(answer.options[0])) if able else answers[0]


def _rank(option: Option) -> tuple[int, Any]:
    return -option.serious, versions.sort_key(option.tensorflow)


def _python(text: str | None, system: System) -> tuple[str | None, Interpreter | None]:
    """Return `--python`: a version, or the Python at a path."""
    if text is None or _VERSION.fullmatch(text):
        return text, None
    path = Path(text).expanduser()
    if "/" not in text and not path.exists():
        msg = f"--python: `{clean_line(text)}` is neither a version nor a path."
        raise UsageError(msg, hint="--python 3.11, --python 3.11.7, or --python /usr/bin/python3.11.")
    if path.is_dir():
        path = path / "bin" / "python"
    found = ask(str(path.absolute()), system)
    if found is None:
        msg = f"--python: {clean_line(str(path))} is no Python 3 (CPython, 64 bits) that runs."
        raise UsageError(msg, hint="Name another one, or leave --python out.")
    return None, found


def _is_in(path: str, folder: Path) -> bool:
    return Path(path).is_relative_to(folder)


def _is_version(have: str, wanted: str) -> bool:
    return have == wanted or have.startswith(f"{wanted}.")


def _best(wishes: Wishes, host: Host, have: Sequence[Interpreter]) -> tuple[Option, Interpreter] | None:
    """Return the newest release that one of these Pythons can have.

    Of the Pythons that can, the first, else the newest.
    """
    first = have[0].minor if have else ""
    found: list[tuple[tuple[Any, ...], Option, Interpreter]] = []
    for minor in dict.fromkeys(one.minor for one in have):
        try:
            answer = make_plan(wishes.compat, wishes.request(minor), host)
        except UsageError:
            if wishes.depends:  # what the files say for this one Python
                continue
            raise
        if not answer.options:
            continue
        option = answer.options[0]
        try:
            locks_of(option)
        except NoLockError:
            continue
        rank = (
            *_rank(option),
            minor == first,
            versions.sort_key(minor),
        )
        found.append((rank, option, next(one for one in have if one.minor == minor)))
    if not found:
        return None
    _, option, interpreter = max(found, key=lambda row: row[0])
    return option, interpreter


def _newer(whole: Recommendation, option: Option) -> tuple[str, ...]:
    """That another Python would bring a newer TensorFlow."""
    best = whole.options[0]
    if versions.sort_key(best.tensorflow) <= versions.sort_key(option.tensorflow):
        return ()
    have = ", ".join(best.release.linux_pythons)
    return (f"TensorFlow {best.tensorflow} is newer; it needs another Python ({have}) than those here.",)


def _make_venv_error(interpreter: Interpreter, machine: MachineFacts) -> Error:
    minor = interpreter.minor
    msg = f"{clean_line(interpreter.path)} (Python {interpreter.version}) cannot make environments: it lacks ensurepip."
    if _manager(machine) == "apt":
        return InstallFailedError(
            msg, hint=f"{_sudo(machine)}apt-get install python{minor}-venv, or get uv (pipx install uv)."
        )
    return InstallFailedError(msg, hint="Install its venv package, or get uv (pipx install uv).")


def _make_python_error(option: Option, version: str | None, machine: MachineFacts) -> Error:
    fits = [version] if version is not None else list(reversed(option.release.linux_pythons))
    msg = (
        f"TensorFlow {option.tensorflow} needs Python {' or '.join(fits[:4])}, and none is here."
        if version is None
        else f"No Python {version} is here."
    )
    hints = []
    own = next((one for one in fits if _system_python(machine) == versions.major_minor(one)), None)
    if own is not None and _manager(machine) == "apt":
        minor = versions.major_minor(own)
        hints.append(f"{_sudo(machine)}apt-get install python{minor} python{minor}-venv")
    elif _manager(machine) == "dnf":
        hints.append(f"{_sudo(machine)}dnf install python{versions.major_minor(fits[0])}")
    hints.append("get uv (pipx install uv): the same command then fetches one")
    return InstallFailedError(msg, hint=f"{', or '.join(hints)}.")


def _system_python(machine: MachineFacts) -> str | None:
    """Return the Python of a Debian or Ubuntu, which is all that its own packages have."""
    from tfdoctor.compat import Compat

    return Compat.load().pythons.default_of(machine.distribution_id or "", machine.distribution_version or "")


def _manager(machine: MachineFacts) -> str | None:
    from tfdoctor.advice import manager_of

    return manager_of(machine.distribution_id, *machine.distribution_like)


def _sudo(machine: MachineFacts) -> str:
    return "" if machine.root else "sudo "
