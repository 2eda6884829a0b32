"""glibc's dynamic loader, as a model: what `dlopen` will find, and what it will say where it finds nothing.

The rules are those of glibc's elf/dl-load.c and dl-open.c, checked against the real loader in tests/lab:

* a library that is already in the process under that soname (or that file) is used again;
* else RPATH of the caller and of those that loaded it up to the main program (only where the caller has no
  RUNPATH), LD_LIBRARY_PATH as it was when the process started, RUNPATH of the caller alone, /etc/ld.so.cache,
  the default folders;
* a file of another class or machine is passed over; one that is empty or no ELF object ends the search;
* then everything that the library needs is looked for in the same way with *its* RPATH or RUNPATH, and the
  symbol versions it asks of them are compared with those they define;
* `$ORIGIN` is the folder of the path through which an object was found: symbolic links are not resolved.

Nothing is loaded; files are only read, through a `System`.
"""

from __future__ import annotations

import errno
import posixpath
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

from tfdoctor.facts import CLOSED, DENIED, NOEXEC, Resolution, Tried
from tfdoctor.probes.ldcache import parse_ldcache
from tfdoctor.system.elf import SKIPPED, ElfError, ElfFile, ElfProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfdoctor.system import System

NOT_FOUND = "cannot open shared object file: No such file or directory"
CONTINUE = frozenset({errno.ENOENT, errno.EACCES, errno.ENOTDIR})
"""Errors after which open_path tries the next folder; any other ends that list of folders."""
MAX_OBJECTS = 4096
"""Followed in one process: a real one with TensorFlow has some hundreds."""
MAX_BOUND = 512
"""Objects up to which symbols are compared: each may be asked of all others."""
HWCAP_LEVELS = {
    "x86-64-v4": frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
    "x86-64-v3": frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    "x86-64-v2": frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"]),
}
"""glibc-hwcaps folders, best first, with the /proc/cpuinfo flags that each level adds."""
HASWELL = frozenset(["avx2", "bmi1", "bmi2", "abm", "movbe", "popcnt", "fma"])
AVX512_1 = frozenset(["avx512cd", "avx512f", "avx512bw", "avx512dq", "avx512vl"])
"""The flags that glibc before 2.37 wanted, on Intel's processors, for its legacy subfolders
(sysdeps/x86/cpu-features.c)."""


@dataclass(slots=True, eq=False)
class LinkMap:
    """An object in the modelled process."""

    path: str
    elf: ElfFile
    origin: str
    loader: LinkMap | None
    names: set[str] = field(default_factory=set)
    via: str = ""
    """Where the search found it: "LD_LIBRARY_PATH", "RUNPATH of …"; empty for the main program."""


@dataclass(slots=True)
class Files:
    """What was looked at once, whichever process asks."""

    elf: dict[str, ElfFile | ElfError | OSError] = field(default_factory=dict)
    folders: dict[str, bool] = field(default_factory=dict)
    cache: dict[str, tuple[str, ...]] | None = None
    """/etc/ld.so.cache: soname → paths."""


class _LoadError(Exception):
    """`_map` found no object; the message is dlerror's without its prefix."""

    def __init__(self, name: str, error: str, *, crash: bool = False, needed_by: str | None = None) -> None:
        super().__init__(error)
        self.name = name
        self.error = error
        self.crash = crash
        self.needed_by = needed_by


def split_library_path(value: str | None) -> tuple[str, ...]:
    """LD_LIBRARY_PATH's folders as glibc takes them apart: ':' and ';' separate, an empty one is "./"."""
    if not value:
        return ()
    return tuple(part or "./" for part in value.replace(";", ":").split(":"))


def hwcap_folders(cpu_flags: Iterable[str], glibc: str | None) -> tuple[str, ...]:
    """Return the subfolders that the loader tries before a folder itself, in its order.

    glibc-hwcaps since 2.33; "tls", "haswell", "avx512_1" and "x86_64" in all combinations up to 2.36.
    """
    parts = (glibc or "").split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        return ()
    version = (int(parts[0]), int(parts[1]))
    flags = frozenset(cpu_flags)
    folders: list[str] = []
    if version >= (2, 33):
        for level in reversed(HWCAP_LEVELS):
            if not HWCAP_LEVELS[level] <= flags:
                break
            folders.insert(0, f"glibc-hwcaps/{level}")
    if version < (2, 37) and "lm" in flags:
        names = ["tls"]
        if "GenuineIntel" in flags and flags >= HASWELL:
            names.append("haswell")
        if "GenuineIntel" in flags and flags >= AVX512_1:
            names.append("avx512_1")
        names.append("x86_64")
        for chosen in range((1 << len(names)) - 1, 0, -1):
            bits = (name for bit, name in enumerate(reversed(names)) if chosen >> bit & 1)
            folders.append("/".join(reversed(list(bits))))
    return tuple(folders)


class Process:
    """A process whose main program is `executable`, up to the point where Python runs.

    `executable` is the main program's path with links resolved (its `$ORIGIN` is /proc/self/exe's folder).
    """

    def __init__(
        self,
        system: System,
        executable: str,
        env: Mapping[str, str],
        *,
        cpu_flags: Iterable[str] = (),
        glibc: str | None = None,
        files: Files | None = None,
        noexec: Sequence[str] = (),
    ) -> None:
        """`files`: what another process on this machine has looked at already."""
        self._system = system
        self._noexec = tuple(f"{folder.rstrip('/')}/" for folder in noexec)
        self._denied: dict[str, bool] = {}
        self._hwcaps = hwcap_folders(cpu_flags, glibc)
        self.files = files = files or Files()
        self._elf, self._folders = files.elf, files.folders
        self._hardware: dict[str, tuple[str, ...]] = {}
        self._run_paths: dict[tuple[str, str], tuple[str, ...]] = {}
        self.loaded: list[LinkMap] = []
        self._local: set[int] = set()
        """`id`s of objects whose symbols only those see that need them: loaded with RTLD_LOCAL."""
        self.notes: list[str] = []
        self._main = self._main_program(executable)
        self.library_entries = tuple(
            (entry, folder)
            for entry in split_library_path(env.get("LD_LIBRARY_PATH"))
            if (folder := self._expand(entry, self._main))
        )
        self.library_path = tuple(folder for _, folder in self.library_entries)
        self.preload: tuple[str, ...] = ()
        self._preload(env.get("LD_PRELOAD", ""))
        if self._main is not None:
            self._load_needs(self._main)

    # ------------------------------------------------------------ the process as it starts

    def _main_program(self, executable: str) -> LinkMap | None:
        try:
            elf = self._read_object(executable)
        except (ElfError, OSError) as error:
            self.notes.append(
                f"{executable}: not readable as an ELF object ({error}); its RPATH is not known"
            )
            return None
        main = LinkMap(executable, elf, _folder(executable), None)
        self.loaded.append(main)
        return main

    def _preload(self, value: str) -> None:
        for name in value.replace(":", " ").split():
            try:
                found = self._open(name, self._main)
            except _LoadError as failed:
                self.notes.append(f"LD_PRELOAD: {failed.name}: {failed.error}; the loader ignores it")
            else:
                found.via = "LD_PRELOAD"
                self.preload += (name,)

    def _load_needs(self, start: LinkMap) -> None:
        try:
            self._map_needs(start, [])
        except _LoadError as failed:
            self.notes.append(f"{start.path}: {failed.name}: {failed.error}")

    # ------------------------------------------------------------ dlopen

    def dlopen(
        self, name: str, caller: LinkMap | None, *, bind_now: bool = True, visible: bool = False
    ) -> Resolution:
        """Return what `dlopen(name, RTLD_NOW)` in `caller` gives.

        What it loads stays loaded, as in the real process.

        `bind_now` compares symbols, too; without it only files and their versions. `visible` is RTLD_GLOBAL: what is
        loaded later finds symbols in it.
        """
        tried: list[Tried] = []
        before = list(self.loaded)
        try:
            found = self._open(name, caller, tried, bind_now=bind_now)
        except _LoadError as failed:
            opened = next((m for m in self.loaded if m not in before), None)
            missing = self._list_all_missing(opened) if opened else ()
            self.loaded = before
            return Resolution(
                soname=name,
                path=opened.path if opened else None,
                via=_find_via(tried),
                error=f"{failed.name}: {failed.error}",
                # All files are there: then it is the one that the loader's message begins with.
                really_missing=missing or (_find_culprit(failed, opened) or name,),
                needed_by=failed.needed_by,
                tried=tuple(tried),
                crash=failed.crash,
            )
        if not visible:
            self._local |= {id(link) for link in self.loaded} - {id(link) for link in before}
        via = _find_via(tried) or ("LD_PRELOAD" if found.via == "LD_PRELOAD" else "already in the process")
        return Resolution(name, found.path, via, "", tried=tuple(tried))

    def load(self, path: str, *, bind_now: bool, visible: bool = False) -> Resolution:
        """Load an object by its path, as Python does with an extension module.

        Python binds at once, too; `bind_now` false leaves that out, because TensorFlow's own objects have tens of
        thousands of symbols, which are all each other's unless CUDA is linked in.
        """
        return self.dlopen(path, self.python_library, bind_now=bind_now, visible=visible)

    def assume(self, path: str, loader: LinkMap | None = None) -> LinkMap | None:
        """Take an object as loaded without what it needs: to ask what it *would* find, had its import not failed."""
        try:
            elf = self._read_object(path)
        except (ElfError, OSError):
            return None
        found = LinkMap(path, elf, _folder(path), loader or self.python_library)
        self.loaded.append(found)
        return found

    def find(self, path: str) -> LinkMap | None:
        """Return the object in the process that was mapped from this file, through whatever path."""
        wanted = self._system.realpath(path)
        return next((m for m in self.loaded if self._system.realpath(m.path) == wanted), None)

    def list_own_folders(self, link: LinkMap) -> tuple[str, ...]:
        """Return the folders on an object's RUNPATH (else RPATH) that exist, each once, without "..": for people."""
        folders = (
            posixpath.normpath(f) for f in self._run_folders(link.elf.runpath or link.elf.rpath or "", link)
        )
        return tuple(dict.fromkeys(folder for folder in folders if self._is_folder(folder)))

    @property
    def python_library(self) -> LinkMap | None:
        """Whence Python calls dlopen: libpython where there is one, else the main program."""
        for candidate in self.loaded:
            if candidate.path.rsplit("/", 1)[-1].startswith("libpython"):
                return candidate
        return self._main

    def _open(
        self, name: str, caller: LinkMap | None, tried: list[Tried] | None = None, *, bind_now: bool = False
    ) -> LinkMap:
        tried = [] if tried is None else tried
        before = len(self.loaded)
        found = self._map(name, caller, tried)
        if len(self.loaded) > before:
            self._map_needs(found, tried, bind_now=bind_now)
        return found

    def _map_needs(self, start: LinkMap, tried: list[Tried], *, bind_now: bool = False) -> None:
        """Breadth first, as _dl_map_object_deps; then the symbol versions, as _dl_check_map_versions; then,
        where everything is bound at once (RTLD_NOW), the symbols, as dl_open_worker relocates."""
        queue = [start]
        for current in queue:
            for needed in current.elf.needed:
                if len(self.loaded) > MAX_OBJECTS:
                    self.notes.append(
                        f"{start.path} needs more than {MAX_OBJECTS} objects; not all were followed"
                    )
                    return
                before = len(self.loaded)
                try:
                    found = self._map(self._expand_needed(needed, current), current, tried)
                except _LoadError as failed:
                    failed.needed_by = current.path
                    raise
                if len(self.loaded) > before:
                    queue.append(found)
        scope = cache(lambda: self._scope(start))  # seldom asked for: most are not bound at once
        bound = {id(current) for current in queue if self._check_versions(current)}
        if bind_now and len(self.loaded) <= MAX_BOUND:
            bound.update(map(id, queue))
        for current in reversed(queue):  # what is needed is relocated before what needs it
            if id(current) in bound:
                self._check_symbols(current, scope)

    def _scope(self, start: LinkMap) -> list[LinkMap]:
        """Return where symbols of what is loaded with `start` are looked up: what all see, and all it needs."""
        needed, queue = {id(start)}, [start]
        for current in queue:
            for name in current.elf.needed:
                found = self._find_loaded(self._expand_needed(name, current))
                if found is not None and id(found) not in needed:
                    needed.add(id(found))
                    queue.append(found)
        return [link for link in self.loaded if id(link) not in self._local or id(link) in needed]

    def _list_all_missing(self, opened: LinkMap) -> tuple[str, ...]:
        """Return every soname in the closure of `opened` that cannot be had, not only the first that dlerror names."""
        missing: list[str] = []
        queue, seen = [opened], {id(opened)}
        for current in queue:
            for needed in current.elf.needed:
                try:
                    found = self._map(self._expand_needed(needed, current), current, [])
                except _LoadError:
                    if needed not in missing:
                        missing.append(needed)
                    continue
                if id(found) not in seen and len(seen) < MAX_OBJECTS:
                    seen.add(id(found))
                    queue.append(found)
        return tuple(missing)

    def _check_symbols(self, current: LinkMap, scope: Callable[[], Sequence[LinkMap]]) -> None:
        """RTLD_NOW's relocation: each object of the scope counts as a provider."""
        if _folder(current.path) in self.default_folders:
            return  # the system's own libraries fit each other
        providers = [current.path, *(m.path for m in scope() if m is not current)]
        lost = self._system.unresolved_symbols(current.path, providers)
        if lost:
            raise _LoadError(current.path, f"undefined symbol: {lost[0]}", needed_by=current.path)

    def _check_versions(self, current: LinkMap) -> bool:
        """Return whether only the binding of its symbols tells if it has what it needs."""
        unknown = False
        for library, versions in current.elf.verneed:
            provider = self._find_loaded(library)
            if provider is None:
                continue
            # An object without any version definitions only gets a warning: "no version information available".
            # What is not in it at all is missed when the symbols are bound.
            if not provider.elf.verdef:
                unknown = unknown or bool(versions)
                continue
            for version in versions:
                if version not in provider.elf.verdef:
                    raise _LoadError(
                        provider.path,
                        f"version `{version}' not found (required by {current.path})",
                        needed_by=current.path,
                    )
        return unknown

    # ------------------------------------------------------------ the search

    def _map(self, name: str, loader: LinkMap | None, tried: list[Tried]) -> LinkMap:
        """_dl_map_object."""
        known = self._find_loaded(name)
        if known is not None:
            return known
        if "/" in name:
            path = self._expand(name, loader) or name
            return self._take(name, self._absolute(path), loader, tried, "its path")
        skipped: list[ElfError] = []
        for via, paths in self._candidates(name, loader):
            for path in paths:
                try:
                    return self._take(name, path, loader, tried, via)
                except ElfError as error:  # another class or machine
                    skipped.append(error)
                except OSError as error:
                    if error.errno in CONTINUE:
                        continue
                    break
        if any(error.problem is ElfProblem.WRONG_CLASS for error in skipped):
            raise _LoadError(name, "wrong ELF class: ELFCLASS32")
        raise _LoadError(name, NOT_FOUND)

    def _find_loaded(self, name: str) -> LinkMap | None:
        for known in self.loaded:
            if name in known.names or name in (known.path, known.elf.soname):
                return known
        return None

    def _take(self, name: str, path: str, loader: LinkMap | None, tried: list[Tried], via: str) -> LinkMap:
        """open_verify and _dl_map_object_from_fd for one file.

        Raises ElfError where the search goes on for its class or machine, OSError where the file cannot be
        opened, _LoadError where the loader gives up.
        """
        try:
            elf = self._read_object(path)
        except ElfError as error:
            tried.append(Tried(path, str(error), via))
            if error.problem in SKIPPED and "/" not in name:
                raise
            if error.problem is ElfProblem.WRONG_CLASS:
                raise _LoadError(path, f"wrong ELF class: {error.detail}") from error
            late = (
                error.problem is ElfProblem.NO_DYNAMIC
            )  # found when it is mapped: dlerror has the name then
            raise _LoadError(
                name if late else path, error.problem.value, crash=error.problem is ElfProblem.TRUNCATED
            ) from error
        except IsADirectoryError as error:
            tried.append(Tried(path, "is a directory", via))
            raise _LoadError(path, "cannot read file data: Is a directory") from error
        except OSError as error:
            if error.errno == errno.EACCES:
                closed = self._is_closed(_folder(path))
                tried.append(Tried(path, CLOSED if closed else DENIED, via))
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
                tried.append(Tried(path, error.strerror or str(error), via))
            if "/" in name:
                raise _LoadError(path, f"cannot open shared object file: {error.strerror}") from error
            raise
        if elf.program:
            tried.append(Tried(path, f"is a program, no library ({elf.program})", via))
            raise _LoadError(name, f"cannot dynamically load {elf.program}")
        if self._noexec and self._system.realpath(path).startswith(self._noexec):
            tried.append(Tried(path, NOEXEC, via))
            raise _LoadError(path, NOEXEC)
        tried.append(Tried(path, "", via))
        for known in self.loaded:
            if known.path == path or (any(elf.device_inode) and known.elf.device_inode == elf.device_inode):
                known.names.add(name)
                return known
        found = LinkMap(path, elf, _folder(path), loader, {name}, via)
        self.loaded.append(found)
        return found

    def _candidates(self, name: str, loader: LinkMap | None) -> Iterable[tuple[str, Iterable[str]]]:
        """Yield the lists of files to try for a soname, in the loader's order, each with where it comes from."""
        if loader is None or loader.elf.runpath is None:
            chain: list[LinkMap] = []
            at = loader
            while at is not None:
                chain.append(at)
                at = at.loader
            if self._main is not None and self._main not in chain:
                chain.append(self._main)
            for link in chain:
                if link.elf.rpath is not None and link.elf.runpath is None:
                    folders = self._run_folders(link.elf.rpath, link)
                    yield f"RPATH of {link.path}", self._search_folders(folders, name)
        yield "LD_LIBRARY_PATH", self._search_folders(self.library_path, name)
        if loader is not None and loader.elf.runpath is not None:
            folders = self._run_folders(loader.elf.runpath, loader)
            yield f"RUNPATH of {loader.path}", self._search_folders(folders, name)
        cached = self._list_cached(name)
        nodeflib = loader is not None and loader.elf.nodeflib
        defaults = self.default_folders
        if nodeflib:
            cached = tuple(path for path in cached if _folder(path) not in defaults)
        yield "/etc/ld.so.cache", cached[:1]
        if not nodeflib:
            yield "the default folders", self._search_folders(defaults, name)

    def _search_folders(self, folders: Iterable[str], name: str) -> Iterable[str]:
        for folder in folders:
            if not self._is_folder(folder):
                if self._is_closed(folder):
                    yield f"{folder}/{name}"  # opening it fails as it does for the loader
                continue
            for sub in self._subfolders(folder):
                yield f"{sub}/{name}"
            yield f"{folder}/{name}"

    def _subfolders(self, folder: str) -> tuple[str, ...]:
        """Return the hardware subfolders of a folder that exist; nearly always none."""
        if folder not in self._hardware:
            tops = {
                sub
                for sub in {sub.split("/")[0] for sub in self._hwcaps}
                if self._is_folder(f"{folder}/{sub}")
            }
            self._hardware[folder] = tuple(
                f"{folder}/{sub}"
                for sub in self._hwcaps
                if sub.split("/")[0] in tops and self._is_folder(f"{folder}/{sub}")
            )
        return self._hardware[folder]

    def _run_folders(self, value: str, owner: LinkMap) -> tuple[str, ...]:
        """RPATH or RUNPATH: ':' separates, an empty entry is the working directory."""
        key = (value, owner.origin)
        if key not in self._run_paths:
            self._run_paths[key] = tuple(
                folder for part in value.split(":") if (folder := self._expand(part or "./", owner))
            )
        return self._run_paths[key]

    def _expand(self, path: str, owner: LinkMap | None) -> str | None:
        """Return dynamic string tokens; None if `$ORIGIN` has no meaning. Trailing slashes are dropped."""
        origin = owner.origin if owner is not None else None
        for token, value in (
            ("ORIGIN", origin),
            ("LIB", "lib/x86_64-linux-gnu" if "x86_64-linux-gnu" in self.default_folders[0] else "lib64"),
            ("PLATFORM", self._system.platform.get("machine", "x86_64")),
        ):
            for spelling in (f"${{{token}}}", f"${token}"):
                if spelling in path:
                    if value is None:
                        return None
                    path = path.replace(spelling, value)
        absolute = self._absolute(path)
        return absolute.rstrip("/") or "/"

    def _expand_needed(self, name: str, owner: LinkMap) -> str:
        return (self._expand(name, owner) or name) if "$" in name else name

    def _absolute(self, path: str) -> str:
        if path.startswith("/"):
            return path
        while path.startswith("./"):
            path = path[2:].lstrip("/")
        return f"{self._system.cwd.rstrip('/')}/{path}" if path not in ("", ".") else self._system.cwd

    # ------------------------------------------------------------ files, each looked at once

    def _read_object(self, path: str) -> ElfFile:
        known = self._elf.get(path)
        if known is None:
            try:
                known = self._system.read_elf(path)
            except (ElfError, OSError) as error:
                known = error
            self._elf[path] = known
        if isinstance(known, (ElfError, OSError)):
            raise known
        return known

    def _is_folder(self, path: str) -> bool:
        if path not in self._folders:
            self._folders[path] = self._system.is_dir(path)
        return self._folders[path]

    def _is_closed(self, path: str) -> bool:
        """Return whether what is in a folder cannot be known: this user may not list it, or reach it."""
        if path not in self._denied:
            try:
                self._system.listdir(path)
            except OSError as error:
                self._denied[path] = error.errno == errno.EACCES
            else:
                self._denied[path] = False
        return self._denied[path]

    def _list_cached(self, name: str) -> tuple[str, ...]:
        known = self.files.cache
        if known is None:
            known = self.files.cache = {}
            try:
                content = self._system.read_bytes("/etc/ld.so.cache")
            except OSError as error:
                self.notes.append(f"/etc/ld.so.cache: {error.strerror or error}")
                content = b""
            machine = self._main.elf.machine if self._main is not None else 62
            for entry in parse_ldcache(content, machine):
                if entry.hwcap is None or f"glibc-hwcaps/{entry.hwcap}" in self._hwcaps:
                    known[entry.soname] = (*known.get(entry.soname, ()), entry.path)
        return known.get(name, ())

    @property
    def cache_sonames(self) -> Mapping[str, tuple[str, ...]]:
        """Soname → paths of /etc/ld.so.cache."""
        self._list_cached("")
        return self.files.cache or {}

    @cached_property
    def default_folders(self) -> tuple[str, ...]:
        """The folders compiled into the loader: Debian's multiarch ones, or lib64."""
        machine = self._system.platform.get("machine", "x86_64")
        multiarch = f"/usr/lib/{machine}-linux-gnu"
        if self._is_folder(multiarch):
            return (multiarch.removeprefix("/usr"), multiarch, "/lib", "/usr/lib")
        return ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _find_culprit(failed: _LoadError, opened: LinkMap | None) -> str:
    """Return the soname of the other object that an error is about; else empty."""
    return "" if opened is None or failed.name == opened.path else failed.name.rpartition("/")[2]


def _find_via(tried: Sequence[Tried]) -> str:
    return next((attempt.via for attempt in tried if not attempt.problem), "")
