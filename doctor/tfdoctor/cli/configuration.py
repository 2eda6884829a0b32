"""Read the settings of a project: `tfdoctor.toml`, or the table [tool.tfdoctor] of pyproject.toml.

The file is data. Its only setting that could choose what is executed, `python`, is followed if it is the bare name of a
Python, which is searched on PATH like `python3`. A path is shown to the user and not followed.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.cli.options import MAX_SETTINGS_FOLDERS, SETTINGS_FILES, FailOn
from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.system import System

__all__ = [
    "Configuration",
    "SettingsTable",
    "find_settings_table",
    "load_configuration",
    "load_settings",
    "resolve_ignored_codes",
]

KEYS = ("python", "ignore", "fail-on", "tf", "gpu-count", "select", "exclude", "per-file-ignores")
"""The keys of the table. `check` reads the first three, `lint` reads `ignore` and those that follow."""
MAX_FILE_BYTES = 1_000_000
_BARE_NAME = re.compile(r"python(?:[23](?:\.\d{1,2})?t?)?")
_LINT_CODE = re.compile(r"TFD[57]\d\d|[a-z]+(?:-[a-z0-9]+)*", re.IGNORECASE)
"""Matches the codes and names of the findings of `lint`."""
_TABLE = re.compile(r"tool[\"']?\s*\.\s*[\"']?tfdoctor|\[tool\]")
"""Matches the text of a pyproject.toml that may have the table. Other files are not parsed."""


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """The table of settings in a file."""

    path: Path
    values: dict[str, Any]
    text: str

    def make_error(self, key: str, reason: str) -> UsageError:
        """Return the error about a key, with the file and the line."""
        match = re.search(rf"^[ \t]*(?:\[.{{0,60}})?[\"']?{re.escape(key)}\b", self.text, re.MULTILINE)
        line = f", line {self.text.count(chr(10), 0, match.start()) + 1}" if match else ""
        return UsageError(
            clean_line(f"{self.path}{line}: {reason}{'' if reason.endswith('?') else '.'}", limit=1000)
        )


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings for `check` and `fix`."""

    path: Path
    python: str | None = None
    """The Python to examine, as the file names it."""
    ignored_codes: tuple[str, ...] = ()
    fail_on: FailOn | None = None

    @property
    def is_python_followed(self) -> bool:
        """Whether the file names a Python by its bare name."""
        return self.python is not None and _BARE_NAME.fullmatch(self.python) is not None

    def find_python(self, system: System) -> str | None:
        """Return the path of the Python on PATH whose bare name is in the file; None if there is no such name.

        A file of that name in the working folder is not meant. Raise UsageError if there is none on PATH.
        """
        if not self.is_python_followed:
            return None
        path = system.which(str(self.python))
        if path is None:
            msg = f"{self.path}: `python`: there is no `{self.python}` on PATH."
            raise UsageError(clean_line(msg, limit=1000))
        return path

    @property
    def python_path(self) -> str:
        """The path of the Python; relative to the folder of the file, if the file has no full path."""
        name = os.path.expanduser(self.python or "")  # noqa: PTH111 - the path may not exist
        return os.path.normpath(self.path.parent / name)


def find_settings_table(folder: Path) -> SettingsTable | None:
    """Return the table of the nearest file in `folder` or above it, up to the first pyproject.toml.

    Raise UsageError if the file cannot be parsed or has an unknown key.
    """
    for candidate in (folder, *folder.parents[:MAX_SETTINGS_FOLDERS]):
        for name in SETTINGS_FILES:
            path = candidate / name
            text = _read_text(path, folder)
            if text is None:
                continue
            table = _parse_table(path, text) if name == "tfdoctor.toml" or _TABLE.search(text) else None
            if table is not None:
                _check_keys(table)
            if table is not None or name == "pyproject.toml":
                return table
    return None


def load_configuration(folder: Path | None = None) -> Configuration | None:
    """Return the settings that apply in a folder, by default the working folder, or None if no file has any.

    Raise UsageError if they are invalid.
    """
    try:
        table = find_settings_table(folder or Path.cwd())
    except FileNotFoundError:  # the working folder was deleted
        return None
    if table is None:
        return None
    python, ignored, fail_on = (table.values.get(key) for key in ("python", "ignore", "fail-on"))
    if python is not None and not (isinstance(python, str) and python and python.isprintable()):
        raise table.make_error("python", '`python` takes a name or a path in quotes, such as "python3.11"')
    if fail_on is not None and fail_on not in [choice.value for choice in FailOn]:
        raise table.make_error("fail-on", '`fail-on` takes "error", "warning" or "never"')
    if ignored is not None and not (
        isinstance(ignored, list) and all(isinstance(code, str) and code for code in ignored)
    ):
        raise table.make_error("ignore", '`ignore` takes a list of codes, such as ["TFD112"]')
    try:
        codes = resolve_ignored_codes(ignored or (), allows_lint=True)
    except UsageError as error:
        raise table.make_error("ignore", f"`ignore`: {error.message.rstrip('.')}") from error
    return Configuration(table.path, python, codes, None if fail_on is None else FailOn(fail_on))


def load_settings(ignore: Sequence[str]) -> tuple[Configuration | None, tuple[str, ...]]:
    """Return the settings that apply in the working folder, and the codes that they and `--ignore` ignore."""
    settings = load_configuration()
    ignored_codes = settings.ignored_codes if settings is not None else ()
    return settings, (*resolve_ignored_codes(ignore), *ignored_codes)


def resolve_ignored_codes(codes: Sequence[str], *, allows_lint: bool = False) -> tuple[str, ...]:
    """Return the codes of checks, each retired code replaced by its successors. Raise UsageError if one is unknown.

    With `allows_lint`, the names and codes that only `lint` knows, and checks itself, are left out.
    """
    if not codes:
        return ()
    from tfdoctor.rules import RULES_BY_CODE
    from tfdoctor.rules.retired import find_current_codes

    resolved: dict[str, None] = {}
    for code in (part.strip() for text in codes for part in text.split(",")):
        current_codes = [item for item in find_current_codes(code.upper()) if item in RULES_BY_CODE]
        if not current_codes and not (allows_lint and _LINT_CODE.fullmatch(code)):
            msg = f"there is no finding {clean_line(code, limit=40)}."
            raise UsageError(msg, hint="`tfdoctor explain` lists all of them.")
        resolved |= dict.fromkeys(current_codes)
    return tuple(resolved)


def _read_text(path: Path, folder: Path) -> str | None:
    """Return the text of a file, or None if there is none.

    A file of another user is not read, unless root or the owner of the working folder wrote it: everybody can write to
    a folder such as /tmp, which may be above the working folder.
    """
    try:
        status = path.stat()
        owners = {0, folder.stat().st_uid, *([os.geteuid()] if hasattr(os, "geteuid") else [])}
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in owners:
            return None
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def _parse_table(path: Path, text: str) -> SettingsTable | None:
    """Return the table in the text of a file, or None if it has none. Raise UsageError if it is not valid TOML."""
    from tfdoctor.core.toml import TomlError, loads

    try:
        values: Any = loads(text)
    except TomlError as error:
        msg = f"{path}: not valid TOML: {error}."
        raise UsageError(clean_line(msg, limit=1000)) from error
    if path.name == "pyproject.toml":
        tool = values.get("tool")
        values = tool.get("tfdoctor") if isinstance(tool, dict) else None
    return SettingsTable(path, values, text) if isinstance(values, dict) else None


def _check_keys(table: SettingsTable) -> None:
    """Raise UsageError if a key is unknown."""
    import difflib

    for key in table.values:
        if key not in KEYS:
            similar = difflib.get_close_matches(key, KEYS, n=1)
            advice = f"did you mean `{similar[0]}`?" if similar else f"there are {', '.join(KEYS)}"
            raise table.make_error(key, f"unknown key `{key}`; {advice}")
