"""A system that remembers every answer it gave: the first half of `tfdoctor capture`.

What is kept is exactly what was asked, answer by answer, so that the same questions get the same answers from the
recording, "not there" and "may not be read" among them. A variable is kept only where its value was asked for.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfdoctor.system import archive
from tfdoctor.system.bundle import Recording, members
from tfdoctor.system.elf import ElfError, ElfFile
from tfdoctor.system.recorded import normal

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterator, Sequence, ValuesView
    from pathlib import Path

    from tfdoctor.system import CommandResult, System

PRESENT = "set"
"""Stands for the value of a variable that was only asked for its presence."""


class _Watched(Mapping[str, str]):
    """An environment that notes which variables were asked for by name. Going through all of them notes none."""

    def __init__(self, inner: Mapping[str, str]) -> None:
        self._inner = inner
        self.read: set[str] = set()
        self.tested: set[str] = set()

    def __getitem__(self, name: str) -> str:
        value = self._inner[name]
        self.read.add(name)
        return value

    def __contains__(self, name: object) -> bool:
        found = name in self._inner
        if found:
            self.tested.add(str(name))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def items(self) -> ItemsView[str, str]:
        return self._inner.items()

    def values(self) -> ValuesView[str]:
        return self._inner.values()


class RecordingSystem:
    """A system that remembers everything it was asked and can write it as a recording."""

    def __init__(self, inner: System) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._env = _Watched(inner.env)
        self._files: dict[str, bytes] = {}
        self._unresolved: dict[str, dict[int, list[str]]] = {}
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

    def _note(self, table: str, path: str, value: Any) -> None:
        """Keep an answer under the path without "..", or as it was asked where that has another answer."""
        with self._lock:
            entries, name = self._tables[table], normal(path)
            if entries.setdefault(name, value) != value:
                entries[path] = value

    def _error(self, kind: str, path: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self._note("errors", path, [kind, error.errno or 0, error.strerror or ""])

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        try:
            content = self._inner.read_bytes(path, limit=limit)
        except OSError as error:
            self._error("read", path, error)
            raise
        with self._lock:
            name = normal(path)
            if len(content) >= len(self._files.get(name, b"")):
                self._files[name] = content
        return content

    def read_elf(self, path: str) -> ElfFile:
        try:
            elf = self._inner.read_elf(path)
        except ElfError as error:
            self._note("elf", path, {"problem": error.problem.value, "detail": error.detail})
            raise
        except FileNotFoundError:
            raise
        except OSError as error:
            self._note("elf", path, {"errno": error.errno or 0, "strerror": error.strerror or ""})
            raise
        self._note("elf", path, _compact(elf))
        return elf

    def unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        found = self._inner.unresolved_symbols(path, providers)
        with self._lock:
            self._unresolved.setdefault(normal(path), {})[len(providers)] = list(found)
        return found

    def exists(self, path: str) -> bool:
        found = self._inner.exists(path)
        self._note("exists", path, found)
        return found

    def is_dir(self, path: str) -> bool:
        found = self._inner.is_dir(path)
        self._note("folders", path, found)
        return found

    def listdir(self, path: str) -> list[str]:
        try:
            names = self._inner.listdir(path)
        except OSError as error:
            self._error("list", path, error)
            raise
        self._note("listings", path, names)
        return names

    def realpath(self, path: str) -> str:
        resolved = self._inner.realpath(path)
        self._note("links", path, resolved)
        return resolved

    def which(self, name: str) -> str | None:
        found = self._inner.which(name)
        if found:
            with self._lock:
                self._tables["which"][name] = found
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

    def get_recording(self, env_names: Callable[[str], bool] = lambda _: False) -> Recording:
        """Return everything up to now.

        Variables: those that were asked for by name, and those that `env_names` accepts.
        """
        with self._lock:
            tables = {name: dict(table) for name, table in self._tables.items()}
            files = dict(self._files)
            unresolved = {path: dict(answers) for path, answers in self._unresolved.items()}
        tables["links"] = {path: target for path, target in tables["links"].items() if path != target}
        tables["unresolved"] = {}
        for path, answers in unresolved.items():
            several = len(set(map(tuple, answers.values()))) > 1
            for providers, found in answers.items():
                if several:
                    tables["unresolved"][f"{path}#{providers}"] = found
                elif found:
                    tables["unresolved"][path] = found
        inner = dict(self._env.items())
        asked = {name for name in inner if name in self._env.read or env_names(name)}
        env = {name: inner[name] if name in asked else PRESENT for name in sorted(asked | self._env.tested)}
        return Recording(tables, files, env, self.cwd, dict(self.platform))

    def write(self, folder: Path, env_names: Callable[[str], bool]) -> None:
        """Write the recording as it is, nothing redacted. Only variables that `env_names` accepts are kept."""
        whole = self.get_recording(env_names)
        kept = {name: value for name, value in whole.env.items() if env_names(name)}
        archive.write(folder, members(dataclasses.replace(whole, env=kept)), force=False)


def _compact(elf: ElfFile) -> dict[str, Any]:
    """Return what of an object differs from one of which nothing is known."""
    plain = ElfFile(62)
    return {
        field.name: getattr(elf, field.name)
        for field in dataclasses.fields(elf)
        if getattr(elf, field.name) != getattr(plain, field.name)
    }
