"""What the files of `-r` ask for, on one Python: requirements, limits, a TensorFlow, a Python.

A requirements file with what it includes, pyproject.toml, a conda environment, or the lock of poetry or uv.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from tfdoctor import versions
from tfdoctor.environment.requirements.lines import Item, is_tensorflow
from tfdoctor.environment.requirements.models import Condition, RequirementFile, holds
from tfdoctor.errors import UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


__all__ = ["RequirementSet", "WantedForPython", "drop_cuda_lines", "environment", "read_wish"]

_SAME = {
    "tensorflow-gpu": "tensorflow-gpu is taken as tensorflow, which has had the same code since 2.1.",
    "tensorflow-cpu": "tensorflow-cpu is taken as tensorflow: it would not see a GPU.",
}
_CUDA = re.compile(r"(nvidia(?:-[a-z0-9]+)+?)(?:-cu[0-9]{2})?")


@dataclass(frozen=True, slots=True)
class WantedForPython:
    """What is asked for on one Python."""

    lines: tuple[str, ...] = ()
    """Requirements besides TensorFlow."""
    constraints: tuple[str, ...] = ()
    tensorflow: tuple[Condition, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """What all files ask for."""

    parts: tuple[RequirementFile, ...] = ()

    @property
    def pythons(self) -> tuple[Condition, ...]:
        """Conditions on the Python."""
        return tuple(one for part in self.parts for one in part.pythons)

    @property
    def names_tensorflow(self) -> bool:
        """Whether TensorFlow stands in a file, be it for some Pythons alone."""
        items = [item for part in self.parts for item in part.items]
        pinned = [node.name for part in self.parts for graph in part.graphs for node in graph.nodes]
        return any(is_tensorflow(name) for name in [*(item.name for item in items), *pinned])

    @property
    def varies(self) -> bool:
        """Whether another Python may mean another TensorFlow."""
        lines = [item for part in self.parts for item in (*part.items, *part.limits)]
        marked = any(item.requirement.marker is not None and is_tensorflow(item.name) for item in lines)
        return marked or any(part.graphs for part in self.parts)

    def allows(self, python: str) -> bool:
        """Return whether a Python, `"3.11"` or `"3.11.7"`, fulfils the conditions.

        A minor does where one of it may.
        """
        full = python.count(".") > 1
        patches = [python] if full else [f"{python}.{patch}" for patch in range(50)]
        return not self.pythons or any(
            all(one.specifier.contains(text, prereleases=True) for one in self.pythons) for text in patches
        )

    def on(self, python: str) -> WantedForPython:
        """Return what is asked for on a Python, `"3.11"`. Raises UsageError."""
        lines: list[str] = []
        limits: list[str] = []
        tensorflow: list[Condition] = []
        notes: list[str] = []
        where = environment(python)
        for part in self.parts:
            found = [*part.items, *(item for graph in part.graphs for item in graph.items(where))]
            for item, is_limit in (*((one, False) for one in found), *((one, True) for one in part.limits)):
                if is_tensorflow(item.name):
                    asked = _tensorflow(item, where, notes)
                    tensorflow += [asked] if asked is not None else []
                elif is_limit:
                    limits.append(str(item.requirement))
                else:
                    lines.append(item.line)
            notes += part.notes
        return WantedForPython(
            tuple(dict.fromkeys(lines)),
            tuple(dict.fromkeys(limits)),
            tuple(tensorflow),
            tuple(dict.fromkeys(notes)),
        )


def _tensorflow(item: Item, where: Mapping[str, str], notes: list[str]) -> Condition | None:
    """Return the condition on TensorFlow's version; None if the line is for another system.

    Raises UsageError.
    """
    if not holds(item.requirement.marker, where):
        return None
    if item.requirement.url is not None:
        msg = f"{item.where}: a TensorFlow from its own address is not locked."
        raise UsageError(msg, hint="Name its version: tensorflow==2.15.*")
    if item.name != "tensorflow" and item.name not in _SAME:
        msg = f"{item.where}: {item.name} is not one of the TensorFlow packages that are locked for Linux."
        raise UsageError(msg, hint="Remove the line, and choose TensorFlow itself with --tf.")
    if item.name in _SAME:
        notes.append(f"{item.where}: {_SAME[item.name]}")
    return Condition(item.requirement.specifier, item.where)


def environment(python: str) -> dict[str, str]:
    """Return what markers are asked about: CPython on Linux, x86-64. python: `"3.11"` or `"3.11.7"`."""
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": python if python.count(".") > 1 else f"{python}.99",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": python if python.count(".") > 1 else f"{python}.99",
        "python_version": versions.major_minor(python),
        "sys_platform": "linux",
    }


def drop_cuda_lines(
    lines: Iterable[str], wheels: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (lines without those that name NVIDIA's wheels which the plan brings, a sentence where it was another
    one).

    wheels: name → version, of the plan.
    """
    stems = {_stem(name): name for name in wheels}
    kept, others = [], []
    for line in lines:
        match = re.match(r"[A-Za-z0-9._-]+", line)
        name = canonicalize_name(match[0]) if match else ""
        planned = stems.get(_stem(name)) if name.startswith("nvidia-") else None
        if planned is None or (name != planned and not re.search(r"-cu[0-9]{2}$", name)):
            kept.append(line)
        elif line.partition(" ")[0] not in (name, f"{name}=={wheels[planned]}"):
            others.append(clean_line(line.partition(" --hash=")[0]))
    if not others:
        return tuple(kept), ()
    return tuple(kept), (
        f"Left out, because the plan includes the CUDA that this TensorFlow was built for: {', '.join(others)}.",
    )


def _stem(name: str) -> str:
    """Return `nvidia-cudnn-cu12` → `nvidia-cudnn`."""
    match = _CUDA.fullmatch(name)
    return match[1] if match is not None else name


# ---------------------------------------------------------------- files


def read_wish(files: Sequence[Path], text_of: Callable[[Path], str]) -> RequirementSet:
    """Return what files ask for. `text_of` gives the text of one, or raises UsageError, as this does."""
    return RequirementSet(tuple(_read_part(path, text_of) for path in files))


_UNREAD = {
    "pipfile": "Export its packages to a requirements file: pipenv requirements > requirements.txt",
    "pipfile.lock": "Export its packages to a requirements file: pipenv requirements > requirements.txt",
    "setup.py": "Name the packages of install_requires in a requirements file.",
    "setup.cfg": "Name the packages of install_requires in a requirements file.",
    "conda-lock.yml": "Name the environment.yml that it was made from.",
    "pdm.lock": "pdm export -o requirements.txt",
}


def _read_part(path: Path, text_of: Callable[[Path], str]) -> RequirementFile:
    from tfdoctor.environment.requirements import conda, files, locked, project

    shown, name = clean_line(str(path)), path.name.lower()
    if name in _UNREAD or (name.startswith("pylock.") and name.endswith(".toml")):
        msg = f"-r: {shown} is in a format that cannot be read here."
        raise UsageError(msg, hint=_UNREAD.get(name, "Write it as a requirements file."))
    if name == "poetry.lock":
        return locked.read_poetry(text_of(path), shown)
    if name == "uv.lock":
        return locked.read_uv(text_of(path), shown)
    if name.endswith(".toml"):
        return project.read_project(text_of(path), shown)
    if name.endswith((".yml", ".yaml")):
        return conda.read_environment(text_of(path), path, text_of)
    return files.read_requirements(path, text_of)
