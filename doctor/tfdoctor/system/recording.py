"""Record every request to a system and its response, for `tfdoctor capture`.

Errors such as "does not exist" and "permission denied" are recorded, too, so that the recording responds in the
same way. The value of an environment variable is recorded only if it was requested.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfdoctor.system import archive
from tfdoctor.system.bundle import Recording, build_recording_files
from tfdoctor.system.elf import ElfError, ElfFile
from tfdoctor.system.recorded import normalize_path

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterator, Sequence, ValuesView
    from pathlib import Path

    from tfdoctor.system import CommandResult, System

PRESENT_PLACEHOLDER = "set"
"""Placeholder for the value of a variable whose presence was tested, but whose value was not read."""


class _RecordingEnvironment(Mapping[str, str]):
    """An environment that records which variables are read or tested by name. Iteration does not count."""

    def __init__(self, inner: Mapping[str, str]) -> None:
        self._inner = inner
        self.read_names: set[str] = set()
        self.tested_names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        value = self._inner[name]
        self.read_names.add(name)
        return value

    def __contains__(self, name: object) -> bool:
        is_set = name in self._inner
        if is_set:
            self.tested_names.add(str(name))
        return is_set

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def items(self) -> ItemsView[str, str]:
        return self._inner.items()

    def values(self) -> ValuesView[str]:
        return self._inner.values()


class RecordingSystem:
    """A system that records every response of another system."""

    def __init__(self, inner: System) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._env = _RecordingEnvironment(inner.env)
        self._files: dict[str, bytes] = {}
        self._unresolved: dict[str, dict[int, list[str]]] = {}
        """The unresolved symbols by path and by number of providers."""
        self._tables: dict[str, dict[str, Any]] = {
            name: {}
            for name in ("commands", "elf", "links", "listings", "which", "exists", "folders", "errors")
        }

    @property
    def env(self) -> Mapping[str, str]:
        return self._env

    @property
    def cwd(self) -> str:
        return self._inner.cwd

    @property
    def platform(self) -> Mapping[str, str]:
        return self._inner.platform

    @property
    def own_python(self) -> str | None:
        return self._inner.own_python

    def _record_response(self, table: str, path: str, value: Any) -> None:
        """Record a response under the normalized path.

        If that path has a different response already, record it under the path as requested.
        """
        with self._lock:
            entries, name = self._tables[table], normalize_path(path)
            if entries.setdefault(name, value) != value:
                entries[path] = value

    def _record_error(self, kind: str, path: str, error: OSError) -> None:
        """Record an error of this kind ("read" or "list"), unless the file was not found."""
        if not isinstance(error, FileNotFoundError):
            self._record_response("errors", path, [kind, error.errno or 0, error.strerror or ""])

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        try:
            content = self._inner.read_bytes(path, limit=limit)
        except OSError as error:
            self._record_error("read", path, error)
            raise
        with self._lock:
            name = normalize_path(path)
            if len(content) >= len(self._files.get(name, b"")):
                self._files[name] = content
        return content

    def read_elf(self, path: str) -> ElfFile:
        try:
            elf = self._inner.read_elf(path)
        except ElfError as error:
            self._record_response("elf", path, {"problem": error.problem.value, "detail": error.detail})
            raise
        except FileNotFoundError:
            raise
        except OSError as error:
            self._record_response("elf", path, {"errno": error.errno or 0, "strerror": error.strerror or ""})
            raise
        self._record_response("elf", path, _get_changed_fields(elf))
        return elf

    def find_unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        symbols = self._inner.find_unresolved_symbols(path, providers)
        with self._lock:
            self._unresolved.setdefault(normalize_path(path), {})[len(providers)] = list(symbols)
        return symbols

    def exists(self, path: str) -> bool:
        exists = self._inner.exists(path)
        self._record_response("exists", path, exists)
        return exists

    def is_dir(self, path: str) -> bool:
        is_folder = self._inner.is_dir(path)
        self._record_response("folders", path, is_folder)
        return is_folder

    def listdir(self, path: str) -> list[str]:
        try:
            names = self._inner.listdir(path)
        except OSError as error:
            self._record_error("list", path, error)
            raise
        self._record_response("listings", path, names)
        return names

    def realpath(self, path: str) -> str:
        resolved = self._inner.realpath(path)
        self._record_response("links", path, resolved)
        return resolved

    def which(self, name: str) -> str | None:
        path = self._inner.which(name)
        if path:
            with self._lock:
                self._tables["which"][name] = path
        return path

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
            "stdout": result.stdout,
            "stderr": result.stderr,
            "failure": result.failure.value if result.failure else None,
            "detail": result.detail,
            "seconds": round(result.seconds, 1) if result.failure else None,
        }
        with self._lock:
            self._tables["commands"][key or " ".join(argv)] = {
                name: value for name, value in entry.items() if value
            }
        return result

    def stop(self) -> None:
        self._inner.stop()

    def get_recording(self, is_included: Callable[[str], bool] = lambda _: False) -> Recording:
        """Return everything that was recorded so far.

        The recording contains the variables that were read by name and those that `is_included` accepts. If a variable
        was only tested, its value is `PRESENT_PLACEHOLDER`.
        """
        with self._lock:
            tables = {name: dict(table) for name, table in self._tables.items()}
            files = dict(self._files)
            unresolved = {path: dict(symbols_by_count) for path, symbols_by_count in self._unresolved.items()}
        tables["links"] = {path: target for path, target in tables["links"].items() if path != target}
        tables["unresolved"] = {}
        for path, symbols_by_count in unresolved.items():
            has_differences = len(set(map(tuple, symbols_by_count.values()))) > 1
            for provider_count, symbols in symbols_by_count.items():
                if has_differences:
                    tables["unresolved"][f"{path}#{provider_count}"] = symbols
                elif symbols:
                    tables["unresolved"][path] = symbols
        variables = dict(self._env.items())
        included_names = {name for name in variables if name in self._env.read_names or is_included(name)}
        env = {
            name: variables[name] if name in included_names else PRESENT_PLACEHOLDER
            for name in sorted(included_names | self._env.tested_names)
        }
        return Recording(tables, files, env, self.cwd, dict(self.platform))

    def write(self, folder: Path, is_included: Callable[[str], bool]) -> None:
        """Write the recording without redaction, with only the variables that `is_included` accepts.

        Raise UsageError if the folder is not a valid target, or Error if it cannot be written.
        """
        recording = self.get_recording(is_included)
        env = {name: value for name, value in recording.env.items() if is_included(name)}
        archive.write_recording(
            folder, build_recording_files(dataclasses.replace(recording, env=env)), force=False
        )


def _get_changed_fields(elf: ElfFile) -> dict[str, Any]:
    """Return the fields whose values differ from the defaults: values by field name."""
    default = ElfFile(62)  # RecordedSystem assumes x86-64
    return {
        field.name: getattr(elf, field.name)
        for field in dataclasses.fields(elf)
        if getattr(elf, field.name) != getattr(default, field.name)
    }
