"""[tool.tfdoctor] of a pyproject.toml, and releases as they are typed."""

from __future__ import annotations

import difflib
import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdoctor.causes.codes import LINT
from tfdoctor.lint.codes import kind_called

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SKIPPED", "Settings", "SettingsError", "release_of", "settings_of"]

SKIPPED = (
    ".git",
    ".hg",
    ".svn",
    ".venv*",
    ".tox",
    ".nox",
    ".eggs",
    ".*cache",
    ".ipynb_checkpoints",
    "__pycache__",
    "node_modules",
    "site-packages",
    "dist-packages",
    "venv",
    "build",
    "dist",
    "*.egg-info",
)
"""Folders that are left out below a folder that was named."""
_KEYS = ("tf", "gpus", "ignore", "select", "exclude", "per-file-ignores")


class SettingsError(ValueError):
    """Something in [tool.tfdoctor] cannot be used; a sentence."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a project wants of `lint`."""

    tf: tuple[int, int] | None = None
    gpus: int | None = None
    ignore: frozenset[str] = frozenset()
    """Names of kinds."""
    select: frozenset[str] = frozenset(LINT)
    exclude: tuple[str, ...] = ()
    """Patterns of paths below the pyproject.toml, or of a file's or folder's own name."""
    per_file: tuple[tuple[str, frozenset[str]], ...] = ()

    def is_excluded(self, path: str) -> bool:
        """Return whether a path (with /, from the pyproject.toml on) is excluded."""
        return any(_fits(path, pattern) for pattern in self.exclude)

    def wants(self, path: str, name: str) -> bool:
        """Return whether a finding of this name is told of this path."""
        if name in self.ignore or name not in self.select:
            return False
        return not any(name in names and _fits(path, pattern) for pattern, names in self.per_file)


def _fits(path: str, pattern: str) -> bool:
    plain = pattern.strip("/")
    parts = path.split("/")
    if any(fnmatch.fnmatchcase(part, plain) for part in parts):
        return True
    return any(fnmatch.fnmatchcase("/".join(parts[: end + 1]), plain) for end in range(len(parts)))


def release_of(text: str) -> tuple[int, int] | None:
    """Return the first two numbers of a release: "1.15", "2.16.1", "2" (2.0); None if it is none."""
    match = re.fullmatch(
        r"([12])(?:\.(\d{1,2}))?(?:\.[\dx*]{1,3})?(?:(?:rc|a|b|\.dev)\d{1,8})?", text.strip()
    )
    return (int(match[1]), int(match[2] or 0)) if match is not None else None


def settings_of(table: Mapping[str, Any]) -> Settings:
    """[tool.tfdoctor], as TOML gives it. Raises SettingsError."""
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            msg = f"unknown key `{key}`{f', did you mean `{near[0]}`?' if near else ''}"
            raise SettingsError(msg)
    tf = table.get("tf")
    if tf is not None and (not isinstance(tf, str) or release_of(tf) is None):
        raise SettingsError('`tf` takes a release in quotes, such as "2.16"')
    gpus = table.get("gpus")
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 <= gpus <= 1024):
        raise SettingsError("`gpus` takes a number from 0 to 1024")
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise SettingsError("`per-file-ignores` takes a table: pattern = [codes]")
    return Settings(
        tf=release_of(tf) if tf is not None else None,
        gpus=gpus,
        ignore=_names(table.get("ignore", []), "ignore"),
        select=_names(table["select"], "select") if "select" in table else frozenset(LINT),
        exclude=tuple(_texts(table.get("exclude", []), "exclude")),
        per_file=tuple((pattern, _names(words, "per-file-ignores")) for pattern, words in per_file.items()),
    )


def _texts(value: Any, key: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        msg = f"`{key}` takes a list of texts"
        raise SettingsError(msg)
    return value


def _names(value: Any, key: str) -> frozenset[str]:
    names = set()
    for word in _texts(value, key):
        name = kind_called(word)
        if name is None:
            near = difflib.get_close_matches(word, [*LINT, *LINT.values()], n=1)
            msg = (
                f"`{key}`: {word!r} is not a finding of lint{f', did you mean `{near[0]}`?' if near else ''}"
            )
            raise SettingsError(msg)
        names.add(name)
    return frozenset(names)
