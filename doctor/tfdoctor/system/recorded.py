"""A machine as a folder, and the recorder that writes such folders.

    host.json     {"schema_version": 1, "platform": {...}, "cwd": "/", "env": {...},
                   "commands": {"nvidia-smi -q -x": {"returncode": 0, "stdout": "...", "stderr": ""}},
                   "elf": {"/usr/lib/libcuda.so.1": {...} | {"problem": "file too short"}},
                   "links": {"/usr/bin/python3": "/usr/bin/python3.11"}, "directories": {"/dev": ["nvidia0"]},
                   "unresolved": {"/usr/lib/libcudnn.so.9": ["symbol"]},
                   "which": {"nvidia-smi": "/usr/bin/nvidia-smi"}, "files": {"/etc/hostname": "h\n"}}
    root/…        the files that were read, at their paths; short texts may stand in "files" instead

Everything is optional: what is not there was looked for and not found. By hand, a file under root/ or one
entry of host.json is enough to make a machine for a test.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tfdoctor.errors import UsageError
from tfdoctor.system.elf import ElfError, ElfFile, ElfProblem
from tfdoctor.system.result import CommandResult, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tfdoctor.system import System

SCHEMA_VERSION = 1
T = TypeVar("T")


def _elf_to_json(elf: ElfFile) -> dict[str, Any]:
    return dataclasses.asdict(elf)


def _elf_from_json(value: Mapping[str, Any]) -> ElfFile:
    return ElfFile(
        machine=value.get("machine", 62),
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
    )


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", path)


class RecordedSystem:
    """A machine that is somewhere else, or that never was."""

    def __init__(self, folder: Path) -> None:
        manifest = folder / "host.json"
        try:
            raw = json.loads(manifest.read_text(encoding="utf-8"))
        except OSError as error:
            message = f"{folder}: not a recorded machine: {error.strerror or error}"
            raise UsageError(message, hint="A recording is a folder with a host.json in it.") from error
        except ValueError as error:
            message = f"{manifest}: not JSON: {error}"
            raise UsageError(message) from error
        if not isinstance(raw, dict) or raw.get("schema_version") != SCHEMA_VERSION:
            message = f"{manifest}: not a recording that this version reads (schema_version {SCHEMA_VERSION})"
            raise UsageError(message)
        self._folder = folder
        self._host: dict[str, Any] = raw

    @property
    def env(self) -> Mapping[str, str]:
        return self._table("env")

    @property
    def cwd(self) -> str:
        return str(self._host.get("cwd", "/"))

    @property
    def platform(self) -> Mapping[str, str]:
        return {"system": "Linux", "machine": "x86_64", "release": "", **self._table("platform")}

    def _table(self, name: str) -> dict[str, Any]:
        value = self._host.get(name, {})
        return value if isinstance(value, dict) else {}

    def _file(self, path: str) -> Path:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:  # a recording must not reach outside its folder
            raise _missing(path)
        return self._folder.joinpath("root", *parts)

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        path = self.realpath(path)
        text = self._table("files").get(path)
        if isinstance(text, str):
            return text.encode("utf-8")[:limit]
        with self._file(path).open("rb") as stream:
            return stream.read(limit)

    def read_elf(self, path: str) -> ElfFile:
        entry = self._table("elf").get(_normal(path))
        if entry is None:
            entry = self._table("elf").get(self.realpath(path))
        if entry is None:
            raise _missing(path)
        if "problem" in entry:
            raise ElfError(ElfProblem(entry["problem"]), str(entry.get("detail", "")))
        if "errno" in entry:
            raise OSError(entry["errno"], "recorded error", path)
        return _elf_from_json(entry)

    def unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        del providers
        return tuple(self._table("unresolved").get(_normal(path), ()))

    def exists(self, path: str) -> bool:
        path = self.realpath(path)
        try:
            if self._file(path).exists():
                return True
        except OSError:
            return False
        known = path in self._table("elf") or path in self._table("files")
        return known or self._is_listed(path) or self.is_dir(path)

    def _is_listed(self, path: str) -> bool:
        parent, _, name = path.rpartition("/")
        return name in self._table("directories").get(parent or "/", ())

    def is_dir(self, path: str) -> bool:
        path = self.realpath(path)
        try:
            if self._file(path).is_dir():
                return True
        except OSError:
            return False
        prefix = path.rstrip("/") + "/"
        tables = (self._table("directories"), self._table("elf"), self._table("files"))
        return path in tables[0] or any(known.startswith(prefix) for table in tables for known in table)

    def listdir(self, path: str) -> list[str]:
        path = self.realpath(path)
        if not self.is_dir(path):
            raise _missing(path)
        names = set(self._table("directories").get(path, ()))
        folder = self._file(path)
        if folder.is_dir():
            names.update(entry.name for entry in folder.iterdir())
        prefix = path.rstrip("/") + "/"
        for table in (self._table("elf"), self._table("files"), self._table("links")):
            names.update(known[len(prefix) :].split("/")[0] for known in table if known.startswith(prefix))
        return sorted(names)

    def realpath(self, path: str) -> str:
        links = self._table("links")
        path = _normal(path)
        for _ in range(40):
            for link in sorted(links, key=len, reverse=True):
                if path == link or path.startswith(link + "/"):
                    path = _normal(links[link] + path[len(link) :])
                    break
            else:
                return path
        return path

    def which(self, name: str) -> str | None:
        found = self._table("which").get(name)
        return str(found) if found else None

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
        entry = self._table("commands").get(key or " ".join(argv))
        if entry is None:
            return CommandResult(
                tuple(argv), None, failure=Failure.NOT_FOUND, detail="No such file or directory"
            )
        failure = Failure(entry["failure"]) if entry.get("failure") else None
        return CommandResult(
            tuple(argv),
            None if failure else entry.get("returncode", 0),
            stdout=self._output(entry, "stdout"),
            stderr=self._output(entry, "stderr"),
            failure=failure,
            detail=str(entry.get("detail", "")),
            seconds=timeout if failure is Failure.TIMEOUT else 0.0,
        )

    def stop(self) -> None:
        """Nothing runs."""

    def _output(self, entry: Mapping[str, Any], stream: str) -> str:
        """The text itself, JSON to be printed, or the name of a file beside host.json ("stdout_file")."""
        if f"{stream}_file" in entry:
            name = str(entry[f"{stream}_file"])
            if "/" in name or name.startswith("."):
                raise _missing(name)
            return (self._folder / name).read_text(encoding="utf-8", errors="replace")
        value = entry.get(stream, "")
        return value if isinstance(value, str) else json.dumps(value)


def _normal(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


class RecordingSystem:
    """A system that remembers everything it was asked and can write it as a recording."""

    def __init__(self, inner: System, scrub: Callable[[str], str] = lambda text: text) -> None:
        self._inner = inner
        self._scrub = scrub
        self._lock = threading.Lock()
        self._files: dict[str, bytes] = {}
        self._tables: dict[str, dict[str, Any]] = {
            name: {} for name in ("commands", "elf", "links", "directories", "which", "env", "unresolved")
        }

    @property
    def env(self) -> Mapping[str, str]:
        return self._inner.env

    @property
    def cwd(self) -> str:
        return self._inner.cwd

    @property
    def platform(self) -> Mapping[str, str]:
        return self._inner.platform

    def _note(self, table: str, name: str, value: Any) -> None:
        with self._lock:
            self._tables[table][name] = value

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        content = self._inner.read_bytes(path, limit=limit)
        with self._lock:
            self._files[_normal(path)] = content
        return content

    def read_elf(self, path: str) -> ElfFile:
        try:
            elf = self._inner.read_elf(path)
        except ElfError as error:
            self._note("elf", _normal(path), {"problem": error.problem.value, "detail": error.detail})
            raise
        except FileNotFoundError:
            raise
        except OSError as error:
            self._note("elf", _normal(path), {"errno": error.errno})
            raise
        self._note("elf", _normal(path), _elf_to_json(elf))
        return elf

    def unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        found = self._inner.unresolved_symbols(path, providers)
        if found:
            self._note("unresolved", _normal(path), list(found))
        return found

    def exists(self, path: str) -> bool:
        found = self._inner.exists(path)
        if found:
            parent, _, name = _normal(path).rpartition("/")
            with self._lock:
                names = self._tables["directories"].setdefault(parent or "/", [])
                if name not in names:
                    names.append(name)
        return found

    def is_dir(self, path: str) -> bool:
        found = self._inner.is_dir(path)
        if found:
            with self._lock:
                self._tables["directories"].setdefault(_normal(path), [])
        return found

    def listdir(self, path: str) -> list[str]:
        names = self._inner.listdir(path)
        self._note("directories", _normal(path), names)
        return names

    def realpath(self, path: str) -> str:
        resolved = self._inner.realpath(path)
        if resolved != _normal(path):
            self._note("links", _normal(path), resolved)
        return resolved

    def which(self, name: str) -> str | None:
        found = self._inner.which(name)
        if found:
            self._note("which", name, found)
        return found

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",
    ) -> CommandResult:
        result = self._inner.run(argv, timeout=timeout, env=env, unset=unset, key=key)
        entry = {
            "returncode": result.returncode,
            "stdout": self._scrub(result.stdout),
            "stderr": self._scrub(result.stderr),
            "failure": result.failure.value if result.failure else None,
            "detail": result.detail,
        }
        self._note("commands", key or " ".join(argv), {name: value for name, value in entry.items() if value})
        return result

    def stop(self) -> None:
        self._inner.stop()

    def write(self, folder: Path, env_names: Callable[[str], bool]) -> None:
        """Write the recording. Only variables that `env_names` accepts are kept. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in sorted(self._files.items()):
            target = folder.joinpath("root", *path.strip("/").split("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        kept = {name: self._scrub(value) for name, value in sorted(self.env.items()) if env_names(name)}
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "platform": dict(self.platform),
            "cwd": self.cwd,
            **{name: dict(sorted(table.items())) for name, table in self._tables.items()},
            "env": kept,
        }
        (folder / "host.json").write_text(
            json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )
