"""Parse the [tool.tfdoctor] table of a pyproject.toml, and release numbers."""

from __future__ import annotations

import difflib
import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdoctor.core.causes.codes import LINT_CODES
from tfdoctor.extensions.lint.codes import find_kind_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SKIPPED_FOLDER_PATTERNS", "Settings", "SettingsError", "parse_release", "parse_settings"]

SKIPPED_FOLDER_PATTERNS = (
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
"""Patterns for the names of folders that are skipped when a folder is searched."""


class SettingsError(ValueError):
    """An invalid value in [tool.tfdoctor]. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A project's settings for `lint`."""

    tf_version: tuple[int, int] | None = None
    """The major and minor version of TensorFlow. None if it is not set."""
    gpu_count: int | None = None
    """The number of GPUs of the target machine. None if it is not set."""
    ignored_kinds: frozenset[str] = frozenset()
    """The names of the kinds of findings that are not reported."""
    selected_kinds: frozenset[str] | None = None
    """The names of the kinds of findings that are reported. None means all."""
    excluded_patterns: tuple[str, ...] = ()
    """Patterns for excluded paths relative to the pyproject.toml, or for the name of a file or folder."""
    per_file_ignores: tuple[tuple[str, frozenset[str]], ...] = ()
    """(path pattern, names of the kinds that are not reported for matching paths) for each pattern."""

    def is_excluded(self, path: str) -> bool:
        """Return whether a path is excluded. It is relative to the pyproject.toml and separated by "/"."""
        return any(_matches_pattern(path, pattern) for pattern in self.excluded_patterns)

    def is_reported(self, path: str, name: str) -> bool:
        """Return whether findings of the kind with this name are reported for this path."""
        is_selected = self.selected_kinds is None or name in self.selected_kinds
        if name in self.ignored_kinds or not is_selected:
            return False
        return not any(
            name in names and _matches_pattern(path, pattern) for pattern, names in self.per_file_ignores
        )


def _matches_pattern(path: str, pattern: str) -> bool:
    """Return whether a pattern matches a path, one of its parent folders, or the name of any of these."""
    relative_pattern = pattern.strip("/")
    names = path.split("/")
    if any(fnmatch.fnmatchcase(part, relative_pattern) for part in names):
        return True
    return any(
        fnmatch.fnmatchcase("/".join(names[: last_index + 1]), relative_pattern)
        for last_index in range(len(names))
    )


def parse_release(text: str) -> tuple[int, int] | None:
    """Return the major and minor version of a release such as "1.15", "2.16.1" or "2" (2.0).

    Return None if the text is not a TensorFlow release.
    """
    match = re.fullmatch(
        r"([12])(?:\.(\d{1,2}))?(?:\.[\dx*]{1,3})?(?:(?:rc|a|b|\.dev)\d{1,8})?", text.strip()
    )
    return (int(match[1]), int(match[2] or 0)) if match is not None else None


def parse_settings(table: Mapping[str, Any]) -> Settings:
    """Return the settings in a [tool.tfdoctor] table. Raise SettingsError if a value is invalid."""
    tf = table.get("tf")
    if tf is not None and (not isinstance(tf, str) or parse_release(tf) is None):
        raise SettingsError('`tf` takes a release in quotes, such as "2.16"')
    gpus = table.get("gpu-count")
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 <= gpus <= 1024):
        raise SettingsError("`gpu-count` takes a number from 0 to 1024")
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise SettingsError("`per-file-ignores` takes a table: pattern = [codes]")
    return Settings(
        tf_version=parse_release(tf) if tf is not None else None,
        gpu_count=gpus,
        ignored_kinds=_parse_kinds(table.get("ignore", []), "ignore"),
        selected_kinds=_parse_kinds(table["select"], "select") if "select" in table else None,
        excluded_patterns=tuple(_validate_texts(table.get("exclude", []), "exclude")),
        per_file_ignores=tuple(
            (pattern, _parse_kinds(codes, "per-file-ignores")) for pattern, codes in per_file.items()
        ),
    )


def _validate_texts(value: Any, key: str) -> list[str]:
    """Return the value unchanged. Raise SettingsError if it is not a list of non-empty texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        msg = f"`{key}` takes a list of texts"
        raise SettingsError(msg)
    return value


def _parse_kinds(value: Any, key: str) -> frozenset[str]:
    """Return the names of the kinds with these codes or names. Raise SettingsError if one is unknown."""
    kinds = set()
    for code in _validate_texts(value, key):
        name = find_kind_name(code)
        if name is None and key == "ignore" and _is_check_code(code):
            continue
        if name is None:
            similar_names = difflib.get_close_matches(code, [*LINT_CODES, *LINT_CODES.values()], n=1)
            msg = f"`{key}`: {code!r} is not a finding of lint{f', did you mean `{similar_names[0]}`?' if similar_names else ''}"
            raise SettingsError(msg)
        kinds.add(name)
    return frozenset(kinds)


def _is_check_code(code: str) -> bool:
    """Return whether this is the code of a check of a machine, which `check` ignores and lint never reports."""
    from tfdoctor.rules import RULES_BY_CODE

    return code.upper() in RULES_BY_CODE
