"""Combine the requirements of several files, and select those for one Python version.

Supported are requirements files, pyproject.toml, conda's environment.yml, poetry.lock and uv.lock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from tfdoctor.core import versions
from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.environments.requirements.lines import RequirementItem, is_tensorflow
from tfdoctor.environments.requirements.models import RequirementFile, VersionCondition, is_marker_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


__all__ = [
    "PythonRequirements",
    "RequirementSet",
    "drop_cuda_lines",
    "read_requirement_files",
]

# Other distributions of TensorFlow that are accepted, each with the note for the user.
_TENSORFLOW_ALIASES = {
    "tensorflow-gpu": "tensorflow-gpu is taken as tensorflow, which has had the same code since 2.1.",
    "tensorflow-cpu": "tensorflow-cpu is taken as tensorflow: it would not see a GPU.",
}
# The name of an NVIDIA wheel with an optional CUDA version: `nvidia-cudnn-cu12`.
_NVIDIA_NAME = re.compile(r"(nvidia(?:-[a-z0-9]+)+?)(?:-cu[0-9]{2})?")
# The advice for files in formats that are not supported, by the file name in lower case.
_ADVICE_BY_UNSUPPORTED_NAME = {
    "pipfile": "Export its packages to a requirements file: pipenv requirements > requirements.txt",
    "pipfile.lock": "Export its packages to a requirements file: pipenv requirements > requirements.txt",
    "setup.py": "Name the packages of install_requires in a requirements file.",
    "setup.cfg": "Name the packages of install_requires in a requirements file.",
    "conda-lock.yml": "Name the environment.yml that it was made from.",
    "pdm.lock": "pdm export -o requirements.txt",
}


@dataclass(frozen=True, slots=True)
class PythonRequirements:
    """The requirements that apply to one Python version."""

    lines: tuple[str, ...] = ()
    """Requirement lines for packages other than TensorFlow."""
    constraints: tuple[str, ...] = ()
    """Lines that restrict the versions of packages, as in pip's constraints files."""
    tensorflow_conditions: tuple[VersionCondition, ...] = ()
    """Conditions on the version of TensorFlow; empty if the files do not require it."""
    notes: tuple[str, ...] = ()
    """Sentences for the user about lines that were left out or replaced."""


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """The requirements of all files that the user names."""

    files: tuple[RequirementFile, ...] = ()

    @property
    def python_conditions(self) -> tuple[VersionCondition, ...]:
        """The conditions on the Python version."""
        return tuple(condition for file in self.files for condition in file.python_conditions)

    @property
    def has_tensorflow(self) -> bool:
        """Whether a file requires TensorFlow, even if only for some Python versions."""
        items = [item for file in self.files for item in file.requirements]
        locked_names = [
            node.name for file in self.files for graph in file.lock_graphs for node in graph.packages
        ]
        return any(is_tensorflow(name) for name in [*(item.name for item in items), *locked_names])

    @property
    def depends_on_python(self) -> bool:
        """Whether the required version of TensorFlow may depend on the Python version."""
        items = [item for file in self.files for item in (*file.requirements, *file.constraints)]
        has_marker = any(item.requirement.marker is not None and is_tensorflow(item.name) for item in items)
        return has_marker or any(file.lock_graphs for file in self.files)

    def allows_python(self, python: str) -> bool:
        """Return whether a Python version such as `"3.11"` or `"3.11.7"` meets the conditions.

        A minor version meets them if one of its patch releases does.
        """
        has_patch = python.count(".") > 1
        # No minor version of Python has had 50 patch releases.
        candidates = [python] if has_patch else [f"{python}.{patch}" for patch in range(50)]
        return not self.python_conditions or any(
            all(
                condition.specifier.contains(version, prereleases=True)
                for condition in self.python_conditions
            )
            for version in candidates
        )

    def select_for_python(self, python: str) -> PythonRequirements:
        """Return the requirements for a Python version such as `"3.11"`.

        Raise UsageError if a line requires a TensorFlow that is not supported.
        """
        lines: list[str] = []
        constraints: list[str] = []
        tensorflow_conditions: list[VersionCondition] = []
        notes: list[str] = []
        marker_environment = versions.make_marker_environment(python)
        for file in self.files:
            items = [
                *file.requirements,
                *(item for graph in file.lock_graphs for item in graph.iter_items(marker_environment)),
            ]
            for item, is_constraint in (
                *((requirement_item, False) for requirement_item in items),
                *((constraint_item, True) for constraint_item in file.constraints),
            ):
                if is_tensorflow(item.name):
                    condition = _get_tensorflow_condition(item, marker_environment, notes)
                    tensorflow_conditions += [condition] if condition is not None else []
                elif is_constraint:
                    constraints.append(str(item.requirement))
                else:
                    lines.append(item.line)
            notes += file.notes
        return PythonRequirements(
            lines=tuple(dict.fromkeys(lines)),
            constraints=tuple(dict.fromkeys(constraints)),
            tensorflow_conditions=tuple(tensorflow_conditions),
            notes=tuple(dict.fromkeys(notes)),
        )


def _get_tensorflow_condition(
    item: RequirementItem, marker_environment: Mapping[str, str], notes: list[str]
) -> VersionCondition | None:
    """Return the condition on TensorFlow's version; None if the line's marker is false.

    A note is added to `notes` if the line names another distribution, such as `tensorflow-gpu`. Raise UsageError if the
    line names a URL or an unsupported distribution.
    """
    if not is_marker_true(item.requirement.marker, marker_environment):
        return None
    if item.requirement.url is not None:
        msg = f"{item.location}: a TensorFlow from its own address is not locked."
        raise UsageError(msg, hint="Name its version: tensorflow==2.15.*")
    if item.name != "tensorflow" and item.name not in _TENSORFLOW_ALIASES:
        msg = f"{item.location}: {item.name} is not one of the TensorFlow packages that are locked for Linux."
        raise UsageError(msg, hint="Remove the line, and choose TensorFlow itself with --tf.")
    if item.name in _TENSORFLOW_ALIASES:
        notes.append(f"{item.location}: {_TENSORFLOW_ALIASES[item.name]}")
    return VersionCondition(item.requirement.specifier, item.location)


def drop_cuda_lines(
    lines: Iterable[str], wheels: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (the lines that are not for the plan's NVIDIA wheels, notes about the dropped lines).

    `wheels` maps the names of the planned wheels to their versions. A note mentions the dropped lines that require
    another version, or another CUDA, than the plan.
    """
    names_by_stem = {_strip_cuda_suffix(name): name for name in wheels}
    remaining, conflicting = [], []
    for line in lines:
        match = re.match(r"[A-Za-z0-9._-]+", line)
        name = canonicalize_name(match[0]) if match else ""
        # The stems connect a line for one CUDA version to the planned wheel for another.
        planned_name = names_by_stem.get(_strip_cuda_suffix(name)) if name.startswith("nvidia-") else None
        if planned_name is None or (name != planned_name and not re.search(r"-cu[0-9]{2}$", name)):
            remaining.append(line)
        elif line.partition(" ")[0] not in (name, f"{name}=={wheels[planned_name]}"):
            conflicting.append(clean_line(line.partition(" --hash=")[0]))
    if not conflicting:
        return tuple(remaining), ()
    return tuple(remaining), (
        f"Left out, because the plan includes the CUDA that this TensorFlow was built for: {', '.join(conflicting)}.",
    )


def _strip_cuda_suffix(name: str) -> str:
    """Return the name of an NVIDIA wheel without its CUDA version: `nvidia-cudnn` for `nvidia-cudnn-cu12`."""
    match = _NVIDIA_NAME.fullmatch(name)
    return match[1] if match is not None else name


# ---------------------------------------------------------------- files


def read_requirement_files(files: Sequence[Path], read_text: Callable[[Path], str]) -> RequirementSet:
    """Return the requirements in several files.

    `read_text` returns the text of a file. Raise UsageError if a file cannot be read or used.
    """
    return RequirementSet(tuple(_load_file(path, read_text) for path in files))


def _load_file(path: Path, read_text: Callable[[Path], str]) -> RequirementFile:
    """Read one file of any supported format. Raise UsageError if it cannot be used."""
    from tfdoctor.environments.requirements import conda, files, locked, project

    display_name, name = clean_line(str(path)), path.name.lower()
    if name in _ADVICE_BY_UNSUPPORTED_NAME or (name.startswith("pylock.") and name.endswith(".toml")):
        msg = f"-r: {display_name} is in a format that cannot be read here."
        raise UsageError(msg, hint=_ADVICE_BY_UNSUPPORTED_NAME.get(name, "Write it as a requirements file."))
    if name == "poetry.lock":
        return locked.parse_poetry(read_text(path), display_name)
    if name == "uv.lock":
        return locked.parse_uv(read_text(path), display_name)
    if name.endswith(".toml"):
        return project.read_project(read_text(path), display_name)
    if name.endswith((".yml", ".yaml")):
        return conda.read_environment(read_text(path), path, read_text)
    return files.read_requirements(path, read_text)
