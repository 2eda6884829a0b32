# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "packaging>=22",
#   "pyelftools>=0.30",
#   "pypi-simple>=1.5",
#   "requests>=2.28",
#   "tomli>=2; python_version < '3.11'",
# ]
# ///
"""Write compat/locks: the versions and hashes that pip installs for every TensorFlow and Python.

    uv run scripts/update_locks.py                       # locks that are missing
    uv run scripts/update_locks.py '>=2.10,<2.12'        # these releases anew (also: 2.10, 2.10.1, tools, cuda)
    uv run scripts/update_locks.py --all                 # all anew
    python scripts/update_locks.py --check               # offline: all there, none stale, none broken
    uv run scripts/update_locks.py --try 2.10 --python 3.9   # install it, import it, compute; takes minutes

Three kinds of file, each for `pip install --no-deps --require-hashes -r FILE`:

    tools-cp39.txt              pip, setuptools and wheel for this Python: installed first, because a
                                system's old pip does not know the tags of newer wheels
    tensorflow-2.10.1-cp39.txt  TensorFlow and everything it requires, without NVIDIA's packages; the few
                                that exist as source alone are marked, and are built with the tools above
                                (`--no-build-isolation`)
    cuda/cu11-….txt             NVIDIA's wheels of one set in compat/cuda_wheels.toml, any Python

The date rule: dependencies are the newest versions `DAYS` days after the release of the wheel, because users had
those. Exceptions are made only if that version cannot be installed or imported (`VERSION_LIMITS` below, and
compat/imports.toml). Wheels are preferred to newer source archives.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from checkout import ROOT
from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.locks import Lock, format_tools_lock_name, read_lock
from tfdoctor.compat.wheels import CudaSet, read_sets
from tfdoctor.core import versions
from update_support.files import report_errors, write_file
from update_support.targets import DAYS, Target, list_targets, make_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from update_support.index import Index
    from update_support.resolve import Pin

FOLDER = ROOT / "compat" / "locks"
TOOLS_UNTIL = "2025-07-31"
TOOLS = ("pip", "setuptools<81", "wheel")
"""Requirements of the build tools.

setuptools 81 and newer warn about, and later remove, pkg_resources, which TensorBoard imports.
"""
MINIMUM = 320
"""Minimum number of locks of TensorFlow, as made in November 2026; fewer mean that something was not read."""


@dataclass(frozen=True)
class Move:
    """A version limit that no metadata states."""

    tensorflow: str
    requirement: str
    reason: str
    pythons: tuple[str, ...] = ()
    """The Python versions to which it applies; empty for all."""


VERSION_LIMITS = (Move("<2.4", "h5py<3", "Keras of that time reads what h5py 2 returns: text, not bytes"),)


# --- targets and limits -----------------------------------------------------------------------------------------


def list_pythons() -> list[str]:
    """Return the Python versions of all targets, oldest first."""
    return sorted({target.python for target in list_targets()}, key=versions.parse_numbers)


def find_moves(target: Target) -> list[Move]:
    return [
        move
        for move in VERSION_LIMITS
        if versions.satisfies(target.release.version, move.tensorflow)
        and (not move.pythons or target.python in move.pythons)
    ]


def find_forbidden(target: Target) -> dict[str, list[SpecifierSet]]:
    """Return the versions by package that do not work with this release, as compat/imports.toml says."""
    forbidden: dict[str, list[SpecifierSet]] = {}
    for companion in Compat.load().companions:
        if companion.broken_versions and versions.satisfies(target.release.version, companion.tensorflow):
            forbidden.setdefault(companion.package, []).append(SpecifierSet(companion.broken_versions))
    return forbidden


# --- rendering ----------------------------------------------------------------------------------------------


def format_pin(pin: Pin) -> str:
    """Return one requirement with the hashes of its files."""
    hashes = "".join(f" --hash=sha256:{digest}" for digest in sorted({file.sha256 for file in pin.files}))
    return f"{pin.name}=={pin.version}{hashes}{'  # sdist' if pin.built else ''}"


def format_lock(title: str, notes: Sequence[str], pins: Iterable[Pin]) -> str:
    """Return the text of a lock."""
    return "\n".join([f"# {title}", *(f"# {note}" for note in notes), *map(format_pin, pins), ""])


# --- resolving --------------------------------------------------------------------------------------------


class LockMaker:
    """Makes locks from the data of the index."""

    def __init__(self, index: Index) -> None:
        from update_support.resolve import Resolver

        self.index = index
        self.resolver = partial(Resolver, source=index, shared={})
        self._tools: dict[str, list[Pin]] = {}

    def tools(self, python: str) -> list[Pin]:
        """Return the pins of pip, setuptools and wheel for a Python version."""
        if python not in self._tools:
            self._tools[python] = self.resolver(python=python, until=f"{TOOLS_UNTIL}T23:59:59Z").resolve(
                TOOLS
            )
        return self._tools[python]

    def tools_text(self, python: str) -> str:
        return format_lock(
            f"pip, setuptools and wheel for CPython {python}, as of {TOOLS_UNTIL}; made by scripts/update_locks.py",
            [f"python -m pip install --no-deps --require-hashes -r {format_tools_lock_name(python)}"],
            self.tools(python),
        )

    def lock_text(self, target: Target) -> str:
        """Return a lock of TensorFlow. Raise UnsolvableError if there is no solution."""
        release, python = target.release, target.python
        day = dt.date.fromisoformat(release.release_date) + dt.timedelta(days=DAYS)
        tools = {pin.name: pin for pin in self.tools(python)}
        make_resolver = partial(self.resolver, python=python, until=f"{day}T23:59:59Z", preferred=tools)
        roots = [f"{release.package}=={release.version}"]
        limits = [Requirement(move.requirement) for move in find_moves(target)]
        resolver = make_resolver(forbidden=find_forbidden(target), constraints=limits)
        pins = resolver.resolve(roots)
        if any(pin.built for pin in pins):
            pins = resolver.resolve([*roots, "setuptools", "wheel"])
        unlimited = {pin.name: pin for pin in make_resolver().resolve(roots)}
        notes = [
            f"made by scripts/update_locks.py: everything else as it was on {day}, {DAYS} days after the release",
            *find_moved(target, [pin for pin in pins if pin.name not in tools], unlimited.values()),
            (
                f"after {format_tools_lock_name(python)}: "
                f"pip install --no-deps --require-hashes --no-build-isolation -r {target.name}"
            ),
        ]
        glibc = max(pin.glibc for pin in pins)
        title = f"{release.package} {release.version} for CPython {python}, Linux x86-64, glibc 2.{glibc}"
        return format_lock(title, notes, pins)


def find_moved(target: Target, pins: Iterable[Pin], plain: Iterable[Pin]) -> list[str]:
    """Return a note for each pin that differs from the date rule alone (`plain`), with the reason."""
    by_date = {pin.name: pin.version for pin in plain}
    reasons = {
        canonicalize_name(Requirement(move.requirement).name): move.reason for move in find_moves(target)
    }
    for companion in Compat.load().companions:
        if companion.broken_versions and versions.satisfies(target.release.version, companion.tensorflow):
            reasons.setdefault(companion.package, f"{companion.id} in compat/imports.toml")
    return [
        f"moved: {pin.name} {pin.version} rather than {by_date.get(pin.name)}: {reasons.get(pin.name, 'goes with it')}"
        for pin in pins
        if by_date.get(pin.name) != pin.version
    ]


def write(path: Path, text: str) -> bool:
    """Write the file if its text differs; return whether it did."""
    if path.is_file() and path.read_text(encoding="ascii") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text)
    return True


def make(options: argparse.Namespace, specs: Sequence[str]) -> int:
    """Write the requested locks and return the exit status."""
    filters = [make_filter(spec) for spec in specs if spec not in ("tools", "cuda")]

    def is_due(name: str, path: Path) -> bool:
        return options.all or name in specs or (not specs and not path.is_file())

    tools = [python for python in list_pythons() if is_due("tools", FOLDER / format_tools_lock_name(python))]
    cuda = any(
        is_due("cuda", FOLDER / "cuda" / f"{cuda_set.id}.txt") for cuda_set in read_sets(ROOT / "compat").sets
    )
    due = [
        target
        for target in list_targets()
        if options.python in (None, target.python)
        and (is_due("", FOLDER / target.name) or any(matches(target.release.version) for matches in filters))
    ]
    if not (tools or cuda or due):
        print("nothing is missing", file=sys.stderr)
        return 0
    from update_support.index import Index
    from update_support.resolve import UnsolvableError

    maker = LockMaker(Index(options.cache))
    for python in tools:
        write(FOLDER / format_tools_lock_name(python), maker.tools_text(python))
    if cuda:
        from update_support.nvidia import write_cuda_locks

        write_cuda_locks(maker.index, ROOT / "compat", FOLDER / "cuda", options.as_of)
    failed = 0
    for target in due:
        started = time.monotonic()
        try:
            changed = write(FOLDER / target.name, maker.lock_text(target))
        except UnsolvableError as error:
            print(f"{target.name}: {error}", file=sys.stderr, flush=True)
            failed += 1
            continue
        outcome = "written" if changed else "as it was"
        print(f"{target.name}: {outcome}, {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
    return 1 if failed else 0


# --- checking -----------------------------------------------------------------------------------------------


def find_problems(folder: Path = FOLDER) -> list[str]:
    """Return the problems of the existing locks; empty if there are none."""
    targets_by_name = {target.name: target for target in list_targets()}
    tools = {format_tools_lock_name(python): python for python in list_pythons()}
    cuda = {f"{cuda_set.id}.txt": cuda_set for cuda_set in Compat(folder.parent).cuda_sets.sets}
    problems_found = []
    if len(targets_by_name) < MINIMUM:
        problems_found.append(f"only {len(targets_by_name)} locks are wanted; there were {MINIMUM}")
    for lock_folder, names in ((folder, {*targets_by_name, *tools}), (folder / "cuda", {*cuda})):
        present = {path.name for path in lock_folder.glob("*.txt")}
        problems_found += [f"{name}: missing" for name in sorted(names - present)]
        problems_found += [f"{name}: stale, nothing wants it" for name in sorted(present - names)]
    for name, target in targets_by_name.items():
        problems_found += _check_file(folder / name, partial(_check_lock, target))
    for name in tools:
        problems_found += _check_file(folder / name, _check_tools)
    for name, cuda_set in cuda.items():
        problems_found += _check_file(folder / "cuda" / name, partial(_check_cuda, cuda_set))
    return problems_found


def _check_file(path: Path, test: Callable[[Lock], str]) -> list[str]:
    if not path.is_file():
        return []
    try:
        problem = test(read_lock(path))
    except DataError as error:
        problem = str(error)
    return [f"{path.name}: {problem}"] if problem else []


def _check_lock(target: Target, lock: Lock) -> str:
    release = target.release
    if lock.versions.get(release.package) != release.version:
        return f"does not pin {release.package} {release.version}"
    if len(lock.packages) < 8:
        return f"only {len(lock.packages)} packages"
    if any(name.startswith("nvidia-") for name in lock.versions):
        return "has packages of NVIDIA's"
    for text in release.requirements:
        requirement = Requirement(text)
        locked = lock.versions.get(canonicalize_name(requirement.name))
        if requirement.marker is None and (
            locked is None or not requirement.specifier.contains(locked, prereleases=True)
        ):
            return f"{release.package} requires {text}, locked is {locked}"
    return ""


def _check_tools(lock: Lock) -> str:
    return "" if set(lock.versions) == {"pip", "setuptools", "wheel"} else "must have pip, setuptools, wheel"


def _check_cuda(cuda_set: CudaSet, lock: Lock) -> str:
    hashes = {f"{package.name}=={package.version}": package.hashes for package in lock.packages}
    return (
        ""
        if hashes == {wheel.pin: (wheel.sha256,) for wheel in cuda_set.wheels}
        else "is not what the set says"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "specs", nargs="*", metavar="SPEC", help="releases, `tools`, `cuda`; none: what is missing"
    )
    parser.add_argument("--all", action="store_true", help="make every lock anew")
    parser.add_argument("--python", metavar="V", help="only locks for this Python")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 where something is wrong"
    )
    parser.add_argument(
        "--try",
        dest="trying",
        action="store_true",
        help="install locks, import TensorFlow, compute; write tried.json",
    )
    parser.add_argument(
        "--missing", action="store_true", help="with --try: only those not tried as they are now"
    )
    parser.add_argument("--last", action="store_true", help="with --try: only the last patch of each minor")
    parser.add_argument("--pip", action="store_true", help="with --try: pip alone, no uv")
    parser.add_argument("--jobs", type=int, default=1, help="with --try: so many at a time")
    parser.add_argument(
        "--as-of", default=time.strftime("%Y-%m-%d", time.gmtime()), help="date of the tables"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tfdoctor" / "locks",
    )
    options = parser.parse_args(arguments)
    if options.check:
        errors = find_problems()
        print(
            "\n".join(errors) or f"{len(list_targets())} locks are in order",
            file=sys.stderr if errors else sys.stdout,
        )
        return 1 if errors else 0
    if options.trying:
        from update_support.trials import run_trials

        return run_trials(options, options.specs)
    return make(options, options.specs)


if __name__ == "__main__":
    sys.exit(report_errors(main))
