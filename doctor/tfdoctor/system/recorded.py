"""Read a recorded machine from a folder or .tar.gz, which `tfdoctor capture` or a test's author wrote.

    host.json     {"schema_version": 1, "platform": {...}, "cwd": "/", "env": {...},
                   "commands": {"nvidia-smi -q -x": {"returncode": 0, "stdout": "...", "stderr": ""}},
                   "elf": {"/usr/lib/libcuda.so.1": {...} | {"problem": "file too short"}},
                   "links": {"/usr/bin/python3": "/usr/bin/python3.11"}, "directories": {"/dev": ["nvidia0"]},
                   "unresolved": {"/usr/lib/libcudnn.so.9": ["symbol"]},
                   "which": {"nvidia-smi": "/usr/bin/nvidia-smi"}, "files": {"/etc/hostname": "h\n"}}
    root/…        the files that were read, at their paths; short texts may be in "files" instead
    output/…      the output of commands, if an entry names it in "stdout_file"

Everything except "schema_version" is optional, and whatever is absent counts as not found, so a recording for a
test can be very small. A capture also contains exact responses, which take precedence:

    exists, folders   path: true or false
    listings          path: the names in the folder
    errors            path: ["read" or "list", errno, text]
    stored            path: the name below root/, if the path cannot be a file name
    python            the interpreter that the user named with `--python`
"""

from __future__ import annotations

import errno
import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.core.errors import UsageError
from tfdoctor.system import archive
from tfdoctor.system.elf import ElfError, ElfFile, ElfProblem
from tfdoctor.system.result import CommandResult, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SCHEMA_VERSION = 1


def _elf_from_json(value: Mapping[str, Any]) -> ElfFile:
    return ElfFile(
        machine=value.get("machine", 62),  # x86-64
        soname=value.get("soname"),
        needed=tuple(value.get("needed", ())),
        rpath=value.get("rpath"),
        runpath=value.get("runpath"),
        nodeflib=value.get("nodeflib", False),
        verneed=tuple((name, tuple(versions)) for name, versions in value.get("verneed", ())),
        verdef=tuple(value.get("verdef", ())),
        size=value.get("size", 0),
        device_inode=tuple(value.get("device_inode", (0, 0))),
        truncated=value.get("truncated", False),
        program=value.get("program", ""),
    )


def _make_missing_error(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", path)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _is_elf(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if "problem" in value:
        return value["problem"] in {problem.value for problem in ElfProblem}
    if "errno" in value:
        return type(value["errno"]) is int  # not isinstance: a bool is an int, too
    verneed = value.get("verneed", [])
    inode = value.get("device_inode", [0, 0])
    return (
        all(_is_text_list(value.get(name, [])) for name in ("needed", "verdef"))
        and all(isinstance(value.get(name) or "", str) for name in ("soname", "rpath", "runpath"))
        and all(type(value.get(name, 0)) is int for name in ("machine", "size"))
        and isinstance(verneed, list)
        and all(
            isinstance(entry, list)
            and len(entry) == 2
            and isinstance(entry[0], str)
            and _is_text_list(entry[1])
            for entry in verneed
        )
        and isinstance(inode, list)
        and len(inode) == 2
        and all(type(number) is int for number in inode)
    )


def _is_command(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and (not value.get("failure") or value["failure"] in {failure.value for failure in Failure})
        and (value.get("returncode") is None or type(value["returncode"]) is int)
        and isinstance(value.get("seconds", 0), (int, float))
        and all(isinstance(value.get(f"{stream}_file", ""), str) for stream in ("stdout", "stderr"))
    )


_OTHER_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def _is_error(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and value[0] in ("read", "list")
        and type(value[1]) is int
        and isinstance(value[2], str)
    )


TABLE_VALIDATORS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("env", "links", "platform", "stored"), lambda value: isinstance(value, str)),
    # Bytes that are not UTF-8 are lone surrogates from U+DC80 to U+DCFF. Others are no bytes of a file.
    "files": lambda value: isinstance(value, str) and _OTHER_SURROGATE.search(value) is None,
    **dict.fromkeys(("exists", "folders"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("directories", "listings", "unresolved"), _is_text_list),
    "which": lambda value: value is None or isinstance(value, str),
    "elf": _is_elf,
    "commands": _is_command,
    "errors": _is_error,
}
"""The tables of host.json, each with the function that tests whether one of its values is valid."""


def _parse_host_json(raw: bytes, name: str) -> dict[str, Any]:
    """Parse and validate host.json, so that later reads raise no unexpected exceptions.

    `name` is the file's name for error messages. Raise UsageError if the file is invalid.
    """
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        message = f"{name}: not JSON: {error}"
        raise UsageError(message) from error
    if not isinstance(value, dict) or value.get("schema_version") != SCHEMA_VERSION:
        message = f"{name}: not a recording that this version reads (schema_version {SCHEMA_VERSION})"
        raise UsageError(message)
    for table, is_valid in TABLE_VALIDATORS.items():
        entries = value.get(table, {})
        invalid_keys = (
            [key for key, entry in entries.items() if not is_valid(entry)]
            if isinstance(entries, dict)
            else [""]
        )
        if invalid_keys:
            message = f"{name}: {table}: what stands under {invalid_keys[0][:80]!r} is not of its kind"
            raise UsageError(message)
    for key in ("cwd", "python"):
        if not isinstance(value.get(key) or "", str):
            message = f"{name}: {key}: not a text"
            raise UsageError(message)
    return value


class RecordedSystem:
    """A machine that is read from a recording."""

    def __init__(self, source: Path | Mapping[str, bytes]) -> None:
        """Read a recording from a folder, a .tar.gz or a mapping of file names to contents.

        Raise UsageError if it is not a recording.
        """
        files = archive.read_recording(source) if isinstance(source, Path) else source
        name = str(source / archive.HOST_FILE) if isinstance(source, Path) else archive.HOST_FILE
        self._host = _parse_host_json(files[archive.HOST_FILE], name)
        self._files = files
        self._file_by_path = {
            f"/{name.removeprefix('root/')}": name for name in files if name.startswith("root/")
        }
        self._file_by_path.update(
            {
                path: f"root/{name}"
                for path, name in self._get_table("stored").items()
                if f"root/{name}" in files
            }
        )
        self._folders = {
            folder
            for table in (
                self._get_table("directories"),
                self._get_table("elf"),
                self._get_table("files"),
                self._file_by_path,
            )
            for path in table
            for folder in _list_parents(path)
        } | set(self._get_table("directories"))
        # The link with the longest path is followed first.
        self._links_longest_first = sorted(self._get_table("links").items(), key=lambda item: -len(item[0]))
        self._resolved: dict[str, str] = {}

    @property
    def env(self) -> Mapping[str, str]:
        return self._get_table("env")

    @property
    def cwd(self) -> str:
        return str(self._host.get("cwd", "/"))

    @property
    def platform(self) -> Mapping[str, str]:
        return {"system": "Linux", "machine": "x86_64", "release": "", **self._get_table("platform")}

    @property
    def own_python(self) -> str | None:
        return "python3"  # stands for the interpreter of the tfdoctor that made the recording

    def _get_table(self, name: str) -> dict[str, Any]:
        value = self._host.get(name, {})
        return value if isinstance(value, dict) else {}

    @property
    def python(self) -> str | None:
        """The interpreter that the user named with `--python` for the capture; None if there was none."""
        return self._host.get("python") or None

    def _get_recorded(self, table: str, path: str) -> Any:
        """Return the entry for a path, or else for its normalized form; None if there is no entry."""
        entries = self._get_table(table)
        return entries.get(path, entries.get(normalize_path(path)))

    def _raise_recorded_error(self, kind: str, path: str) -> None:
        """Raise the recorded error of this kind ("read" or "list"), if there is one."""
        error = self._get_recorded("errors", path)
        if error is None:
            return
        recorded_kind, number, message = error
        if recorded_kind == kind:
            raise OSError(number, message, path)

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        self._raise_recorded_error("read", path)
        for name in (normalize_path(path), self.realpath(path)):
            text = self._get_table("files").get(name)
            if isinstance(text, str):
                return text.encode("utf-8", "surrogateescape")[:limit]
            if name in self._file_by_path:
                return self._files[self._file_by_path[name]][:limit]
        raise _make_missing_error(path)

    def read_elf(self, path: str) -> ElfFile:
        entry = self._get_recorded("elf", path)
        if entry is None:
            entry = self._get_table("elf").get(self.realpath(path))
        if entry is None:
            raise _make_missing_error(path)
        if "problem" in entry:
            raise ElfError(ElfProblem(entry["problem"]), str(entry.get("detail", "")))
        if "errno" in entry:
            raise OSError(entry["errno"], str(entry.get("strerror") or "recorded error"), path)
        return _elf_from_json(entry)

    def find_unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        # The key contains the number of providers only if the result depends on it.
        table, name = self._get_table("unresolved"), normalize_path(path)
        return tuple(table.get(f"{name}#{len(providers)}", table.get(name, ())))

    def exists(self, path: str) -> bool:
        recorded = self._get_recorded("exists", path)
        if recorded is not None:
            return bool(recorded)
        path = self.realpath(path)
        is_file = (
            path in self._get_table("elf") or path in self._get_table("files") or path in self._file_by_path
        )
        return is_file or self._is_listed(path) or self.is_dir(path)

    def _is_listed(self, path: str) -> bool:
        parent, _, name = path.rpartition("/")
        return name in self._get_table("directories").get(parent or "/", ())

    def is_dir(self, path: str) -> bool:
        recorded = self._get_recorded("folders", path)
        return bool(recorded) if recorded is not None else self.realpath(path) in self._folders

    def listdir(self, path: str) -> list[str]:
        self._raise_recorded_error("list", path)
        entry = self._get_recorded("listings", path)
        if entry is not None:
            return list(entry)
        real_path = self.realpath(path)
        if real_path not in self._folders:
            raise _make_missing_error(path)
        names = set(self._get_table("directories").get(real_path, ()))
        prefix = real_path.rstrip("/") + "/"
        for table in (
            self._get_table("elf"),
            self._get_table("files"),
            self._get_table("links"),
            self._file_by_path,
        ):
            names.update(entry[len(prefix) :].split("/")[0] for entry in table if entry.startswith(prefix))
        return sorted(names)

    def realpath(self, path: str) -> str:
        path = normalize_path(path)
        if path not in self._resolved:
            self._resolved[path] = self._follow_links(path)
        return self._resolved[path]

    def _follow_links(self, path: str) -> str:
        for _ in range(40):  # Linux follows at most 40 links, too
            for link, target in self._links_longest_first:
                if path == link or path.startswith(link + "/"):
                    path = normalize_path(target + path[len(link) :])[:4096]
                    break
            else:
                return path
        return path

    def which(self, name: str) -> str | None:
        path = self._get_table("which").get(name)
        return str(path) if path else None

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",
    ) -> CommandResult:
        del env, unset
        entry = self._get_table("commands").get(key or " ".join(argv))
        if entry is None:
            return CommandResult(
                tuple(argv), None, failure=Failure.NOT_FOUND, detail="No such file or directory"
            )
        failure = Failure(entry["failure"]) if entry.get("failure") else None
        return CommandResult(
            tuple(argv),
            None if failure else entry.get("returncode", 0),
            stdout=self._get_output(entry, "stdout"),
            stderr=self._get_output(entry, "stderr"),
            failure=failure,
            detail=str(entry.get("detail", "")),
            seconds=float(entry.get("seconds") or timeout) if failure is Failure.TIMEOUT else 0.0,
        )

    def stop(self) -> None:
        """Do nothing: a recording runs no programs."""

    def _get_output(self, entry: Mapping[str, Any], stream: str) -> str:
        """Return a recorded output stream, from its file or else from the entry itself, as text or JSON.

        Raise FileNotFoundError if the file is missing.
        """
        if f"{stream}_file" in entry:
            name = str(entry[f"{stream}_file"])
            if name not in self._files:
                raise _make_missing_error(name)
            return self._files[name].decode("utf-8", "replace")
        value = entry.get(stream, "")
        return value if isinstance(value, str) else json.dumps(value)


def normalize_path(path: str) -> str:
    """Return an absolute path without "." and ".." parts. Symbolic links are not followed."""
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _list_parents(path: str) -> list[str]:
    """Return all parent folders of a path, the nearest first."""
    parents = []
    while path not in ("/", ""):
        path = posixpath.dirname(path)
        parents.append(path)
    return parents
