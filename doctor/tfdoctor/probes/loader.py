"""A model of glibc's dynamic loader: what `dlopen` finds, and its error message if it finds nothing.

The rules are those of glibc's elf/dl-load.c and dl-open.c, checked against the real loader in tests/lab:

* a library that is already in the process under that soname (or the same file) is reused;
* otherwise the search path is: RPATH of the caller and of the objects that loaded it, up to the main program (only if
  the caller has no RUNPATH), LD_LIBRARY_PATH as it was when the process started, RUNPATH of the caller alone,
  /etc/ld.so.cache, the default folders;
* a file of another class or machine is skipped; an empty file or one that is not an ELF object ends the search;
* then every library that the object needs is searched in the same way with *its* RPATH or RUNPATH, and the symbol
  versions that it requires are compared with those they define;
* `$ORIGIN` is the folder of the path through which an object was found: symbolic links are not resolved.

Nothing is loaded; files are only read, through a `System`.
"""

from __future__ import annotations

import errno
import posixpath
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

from tfdoctor.facts import DENIED, FOLDER_CLOSED, NOEXEC_ERROR, Resolution, Tried
from tfdoctor.probes.ldcache import parse_ldcache
from tfdoctor.system.elf import SKIPPED_PROBLEMS, ElfError, ElfFile, ElfProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfdoctor.system import System

NOT_FOUND = "cannot open shared object file: No such file or directory"
SKIPPED_ERRNOS = frozenset({errno.ENOENT, errno.EACCES, errno.ENOTDIR})
"""Errors after which open_path tries the next folder; any other error ends that list of folders."""
MAX_OBJECTS = 4096
"""The largest number of objects followed in one process; a real one with TensorFlow has some hundreds."""
MAX_BOUND_OBJECTS = 512
"""The largest number of objects for which symbols are compared: each may be looked up in all others."""
HWCAP_LEVELS = {
    "x86-64-v4": frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
    "x86-64-v3": frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    "x86-64-v2": frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"]),
}
"""glibc-hwcaps folders, the highest level first, with the /proc/cpuinfo flags that each level adds."""
HASWELL = frozenset(["avx2", "bmi1", "bmi2", "abm", "movbe", "popcnt", "fma"])
AVX512_1 = frozenset(["avx512cd", "avx512f", "avx512bw", "avx512dq", "avx512vl"])
"""The flags that glibc before 2.37 required on Intel's processors for its legacy subfolders.

See sysdeps/x86/cpu-features.c.
"""


@dataclass(slots=True, eq=False)
class LinkMap:
    """An object in the modelled process."""

    path: str
    elf: ElfFile
    origin: str
    loader: LinkMap | None
    names: set[str] = field(default_factory=set)
    via: str = ""
    """The source of the path: "LD_LIBRARY_PATH", "RUNPATH of …"; empty for the main program."""


@dataclass(slots=True)
class FileCache:
    """A cache of files that were read, shared by the processes of a machine."""

    elf: dict[str, ElfFile | ElfError | OSError] = field(default_factory=dict)
    folders: dict[str, bool] = field(default_factory=dict)
    cache: dict[str, tuple[str, ...]] | None = None
    """The paths of each soname in /etc/ld.so.cache; None until it is read."""


class _LoadError(Exception):
    """`_map` found no object; the message is that of dlerror without its prefix."""

    def __init__(self, name: str, error: str, *, crash: bool = False, needed_by: str | None = None) -> None:
        super().__init__(error)
        self.name = name
        self.error = error
        self.crash = crash
        self.needed_by = needed_by


def split_library_path(value: str | None) -> tuple[str, ...]:
    """Return the folders of LD_LIBRARY_PATH as glibc splits it: at ':' and ';'; an empty entry is "./"."""
    if not value:
        return ()
    return tuple(part or "./" for part in value.replace(";", ":").split(":"))


def list_hwcap_folders(cpu_flags: Iterable[str], glibc: str | None) -> tuple[str, ...]:
    """Return the subfolders that the loader tries before a folder itself, in its order.

    These are glibc-hwcaps since 2.33, and all combinations of "tls", "haswell", "avx512_1" and "x86_64" up to 2.36.
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
    """A process whose main program is `executable`, up to the point at which Python runs.

    `executable` is the path of the main program with links resolved (its `$ORIGIN` is the folder of /proc/self/exe).
    """

    def __init__(
        self,
        system: System,
        executable: str,
        env: Mapping[str, str],
        *,
        cpu_flags: Iterable[str] = (),
        glibc: str | None = None,
        files: FileCache | None = None,
        noexec: Sequence[str] = (),
    ) -> None:
        """Load the main program and what it needs; `files` is a cache shared with other processes."""
        self._system = system
        self._noexec = tuple(f"{folder.rstrip('/')}/" for folder in noexec)
        self._denied: dict[str, bool] = {}
        self._hwcaps = list_hwcap_folders(cpu_flags, glibc)
        self.files = files = files or FileCache()
        self._elf, self._folders = files.elf, files.folders
        self._hardware: dict[str, tuple[str, ...]] = {}
        self._run_paths: dict[tuple[str, str], tuple[str, ...]] = {}
        self.loaded: list[LinkMap] = []
        self._local: set[int] = set()
        """`id`s of objects loaded with RTLD_LOCAL: only the objects that need them see their symbols."""
        self.notes: list[str] = []
        self._main = self._load_main_program(executable)
        self.library_entries = tuple(
            (entry, folder)
            for entry in split_library_path(env.get("LD_LIBRARY_PATH"))
            if (folder := self._expand(entry, self._main))
        )
        self.library_path = tuple(folder for _, folder in self.library_entries)
        self.preload: tuple[str, ...] = ()
        self._load_preloaded(env.get("LD_PRELOAD", ""))
        if self._main is not None:
            self._load_needs(self._main)

    # ------------------------------------------------------------ the process as it starts

    def _load_main_program(self, executable: str) -> LinkMap | None:
        """Load the main program; return None if it cannot be read as an ELF object."""
        try:
            elf = self._load_object(executable)
        except (ElfError, OSError) as error:
            self.notes.append(
                f"{executable}: not readable as an ELF object ({error}); its RPATH is not known"
            )
            return None
        main = LinkMap(executable, elf, _get_folder(executable), None)
        self.loaded.append(main)
        return main

    def _load_preloaded(self, value: str) -> None:
        """Load the objects of LD_PRELOAD; add a note for each that the loader ignores."""
        for name in value.replace(":", " ").split():
            try:
                library = self._open(name, self._main)
            except _LoadError as error:
                self.notes.append(f"LD_PRELOAD: {error.name}: {error.error}; the loader ignores it")
            else:
                library.via = "LD_PRELOAD"
                self.preload += (name,)

    def _load_needs(self, start: LinkMap) -> None:
        """Load what the main program needs; add a note if something is missing."""
        try:
            self._map_needs(start, [])
        except _LoadError as error:
            self.notes.append(f"{start.path}: {error.name}: {error.error}")

    # ------------------------------------------------------------ dlopen

    def dlopen(
        self, name: str, caller: LinkMap | None, *, bind_now: bool = True, visible: bool = False
    ) -> Resolution:
        """Return the result of `dlopen(name, RTLD_NOW)` in `caller`.

        What it loads stays loaded, as in the real process. With `bind_now` symbols are compared as well, without it
        only files and symbol versions. `visible` means RTLD_GLOBAL: objects loaded later find symbols in it.
        """
        tried: list[Tried] = []
        before = list(self.loaded)
        try:
            library = self._open(name, caller, tried, bind_now=bind_now)
        except _LoadError as error:
            top = next((m for m in self.loaded if m not in before), None)
            missing = self._list_all_missing(top) if top else ()
            self.loaded = before
            return Resolution(
                soname=name,
                path=top.path if top else None,
                via=_find_via(tried),
                error=f"{error.name}: {error.error}",
                # If all files exist, the loader's message begins with the one to blame.
                really_missing=missing or (_find_culprit(error, top) or name,),
                needed_by=error.needed_by,
                tried=tuple(tried),
                crash=error.crash,
            )
        if not visible:
            self._local |= {id(link) for link in self.loaded} - {id(link) for link in before}
        via = _find_via(tried) or ("LD_PRELOAD" if library.via == "LD_PRELOAD" else "already in the process")
        return Resolution(name, library.path, via, "", tried=tuple(tried))

    def load(self, path: str, *, bind_now: bool, visible: bool = False) -> Resolution:
        """Load an object by its path, as Python loads an extension module.

        Python also binds at once. Without `bind_now` that is omitted, because TensorFlow's own objects have tens of
        thousands of symbols, nearly all defined by each other unless CUDA is linked in.
        """
        return self.dlopen(path, self.python_library, bind_now=bind_now, visible=visible)

    def add_object(self, path: str, loader: LinkMap | None = None) -> LinkMap | None:
        """Add an object without what it needs, and return it; None if it cannot be read.

        It shows what the object would find if its import had not failed.
        """
        try:
            elf = self._load_object(path)
        except (ElfError, OSError):
            return None
        link = LinkMap(path, elf, _get_folder(path), loader or self.python_library)
        self.loaded.append(link)
        return link

    def find(self, path: str) -> LinkMap | None:
        """Return the object in the process that was mapped from this file; None if there is none."""
        real_path = self._system.realpath(path)
        return next((m for m in self.loaded if self._system.realpath(m.path) == real_path), None)

    def list_own_folders(self, link: LinkMap) -> tuple[str, ...]:
        """Return the existing folders of an object's RUNPATH (else RPATH), normalized, each once, for display."""
        folders = (
            posixpath.normpath(f)
            for f in self._split_run_path(link.elf.runpath or link.elf.rpath or "", link)
        )
        return tuple(dict.fromkeys(folder for folder in folders if self._is_folder(folder)))

    @property
    def python_library(self) -> LinkMap | None:
        """The object from which Python calls dlopen: libpython if it is loaded, else the main program."""
        for candidate in self.loaded:
            if candidate.path.rsplit("/", 1)[-1].startswith("libpython"):
                return candidate
        return self._main

    def _open(
        self, name: str, caller: LinkMap | None, tried: list[Tried] | None = None, *, bind_now: bool = False
    ) -> LinkMap:
        """Map an object and, if it is new, what it needs."""
        tried = [] if tried is None else tried
        before = len(self.loaded)
        link = self._map(name, caller, tried)
        if len(self.loaded) > before:
            self._map_needs(link, tried, bind_now=bind_now)
        return link

    def _map_needs(self, start: LinkMap, tried: list[Tried], *, bind_now: bool = False) -> None:
        """Map what an object needs and check it, in the order of the real loader.

        Objects are mapped breadth first, as in _dl_map_object_deps. Then the symbol versions are compared, as in
        _dl_check_map_versions; then, with RTLD_NOW, the symbols, as in dl_open_worker.
        """
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
                    dependency = self._map(self._expand_needed(needed, current), current, tried)
                except _LoadError as failed:
                    failed.needed_by = current.path
                    raise
                if len(self.loaded) > before:
                    queue.append(dependency)
        scope = cache(lambda: self._list_scope(start))  # rarely needed: most objects are not bound at once
        bound = {id(current) for current in queue if self._check_versions(current)}
        if bind_now and len(self.loaded) <= MAX_BOUND_OBJECTS:
            bound.update(map(id, queue))
        for current in reversed(queue):  # dependencies are relocated first
            if id(current) in bound:
                self._check_symbols(current, scope)

    def _list_scope(self, start: LinkMap) -> list[LinkMap]:
        """Return the objects in which symbols are searched for `start`: global ones, and all it needs."""
        needed, queue = {id(start)}, [start]
        for current in queue:
            for name in current.elf.needed:
                dependency = self._find_loaded(self._expand_needed(name, current))
                if dependency is not None and id(dependency) not in needed:
                    needed.add(id(dependency))
                    queue.append(dependency)
        return [link for link in self.loaded if id(link) not in self._local or id(link) in needed]

    def _list_all_missing(self, opened: LinkMap) -> tuple[str, ...]:
        """Return every missing soname in the closure of `opened`; dlerror names only the first."""
        missing: list[str] = []
        queue, visited = [opened], {id(opened)}
        for current in queue:
            for needed in current.elf.needed:
                try:
                    dependency = self._map(self._expand_needed(needed, current), current, [])
                except _LoadError:
                    if needed not in missing:
                        missing.append(needed)
                    continue
                if id(dependency) not in visited and len(visited) < MAX_OBJECTS:
                    visited.add(id(dependency))
                    queue.append(dependency)
        return tuple(missing)

    def _check_symbols(self, current: LinkMap, scope: Callable[[], Sequence[LinkMap]]) -> None:
        """Check that the scope defines the symbols of an object, as relocation with RTLD_NOW does."""
        if _get_folder(current.path) in self.default_folders:
            return  # the system's own libraries match each other
        providers = [current.path, *(m.path for m in scope() if m is not current)]
        unresolved = self._system.find_unresolved_symbols(current.path, providers)
        if unresolved:
            raise _LoadError(current.path, f"undefined symbol: {unresolved[0]}", needed_by=current.path)

    def _check_versions(self, current: LinkMap) -> bool:
        """Check the symbol versions.

        Return whether a library without versions has to be checked by its symbols.
        """
        is_unversioned = False
        for library, versions in current.elf.verneed:
            provider = self._find_loaded(library)
            if provider is None:
                continue
            # The loader only warns about an object without version definitions: "no version information available".
            # Symbols that it lacks are noticed when they are bound.
            if not provider.elf.verdef:
                is_unversioned = is_unversioned or bool(versions)
                continue
            for version in versions:
                if version not in provider.elf.verdef:
                    raise _LoadError(
                        provider.path,
                        f"version `{version}' not found (required by {current.path})",
                        needed_by=current.path,
                    )
        return is_unversioned

    # ------------------------------------------------------------ the search

    def _map(self, name: str, loader: LinkMap | None, tried: list[Tried]) -> LinkMap:
        """Return the object for a name, mapped if it is not loaded yet: the model of _dl_map_object."""
        loaded = self._find_loaded(name)
        if loaded is not None:
            return loaded
        if "/" in name:
            path = self._expand(name, loader) or name
            return self._map_file(name, self._make_absolute(path), loader, tried, "its path")
        skipped: list[ElfError] = []
        for via, paths in self._list_candidates(name, loader):
            for path in paths:
                try:
                    return self._map_file(name, path, loader, tried, via)
                except ElfError as error:  # another class or machine
                    skipped.append(error)
                except OSError as error:
                    if error.errno in SKIPPED_ERRNOS:
                        continue
                    break
        if any(error.problem is ElfProblem.WRONG_CLASS for error in skipped):
            raise _LoadError(name, "wrong ELF class: ELFCLASS32")
        raise _LoadError(name, NOT_FOUND)

    def _find_loaded(self, name: str) -> LinkMap | None:
        """Return the loaded object with this name, path or soname; None if there is none."""
        for link in self.loaded:
            if name in link.names or name in (link.path, link.elf.soname):
                return link
        return None

    def _map_file(
        self, name: str, path: str, loader: LinkMap | None, tried: list[Tried], via: str
    ) -> LinkMap:
        """Map one file: the model of open_verify and _dl_map_object_from_fd.

        Raise ElfError if the search continues because of the class or machine, OSError if the file cannot be opened,
        and _LoadError if the loader gives up.
        """
        try:
            elf = self._load_object(path)
        except ElfError as error:
            tried.append(Tried(path, str(error), via))
            if error.problem in SKIPPED_PROBLEMS and "/" not in name:
                raise
            if error.problem is ElfProblem.WRONG_CLASS:
                raise _LoadError(path, f"wrong ELF class: {error.detail}") from error
            # Noticed only when it is mapped, so dlerror has the name.
            is_mapped_first = error.problem is ElfProblem.NO_DYNAMIC
            raise _LoadError(
                name if is_mapped_first else path,
                error.problem.value,
                crash=error.problem is ElfProblem.TRUNCATED,
            ) from error
        except IsADirectoryError as error:
            tried.append(Tried(path, "is a directory", via))
            raise _LoadError(path, "cannot read file data: Is a directory") from error
        except OSError as error:
            if error.errno == errno.EACCES:
                is_closed = self._is_closed(_get_folder(path))
                tried.append(Tried(path, FOLDER_CLOSED if is_closed else DENIED, via))
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
                tried.append(Tried(path, error.strerror or str(error), via))
            if "/" in name:
                raise _LoadError(path, f"cannot open shared object file: {error.strerror}") from error
            raise
        if elf.program:
            tried.append(Tried(path, f"is a program, no library ({elf.program})", via))
            raise _LoadError(name, f"cannot dynamically load {elf.program}")
        if self._noexec and self._system.realpath(path).startswith(self._noexec):
            tried.append(Tried(path, NOEXEC_ERROR, via))
            raise _LoadError(path, NOEXEC_ERROR)
        tried.append(Tried(path, "", via))
        for loaded in self.loaded:
            if loaded.path == path or (any(elf.device_inode) and loaded.elf.device_inode == elf.device_inode):
                loaded.names.add(name)
                return loaded
        link = LinkMap(path, elf, _get_folder(path), loader, {name}, via)
        self.loaded.append(link)
        return link

    def _list_candidates(self, name: str, loader: LinkMap | None) -> Iterable[tuple[str, Iterable[str]]]:
        """Yield (source, paths to try) for a soname, in the loader's order."""
        if loader is None or loader.elf.runpath is None:
            chain: list[LinkMap] = []
            ancestor = loader
            while ancestor is not None:
                chain.append(ancestor)
                ancestor = ancestor.loader
            if self._main is not None and self._main not in chain:
                chain.append(self._main)
            for link in chain:
                if link.elf.rpath is not None and link.elf.runpath is None:
                    folders = self._split_run_path(link.elf.rpath, link)
                    yield f"RPATH of {link.path}", self._search_folders(folders, name)
        yield "LD_LIBRARY_PATH", self._search_folders(self.library_path, name)
        if loader is not None and loader.elf.runpath is not None:
            folders = self._split_run_path(loader.elf.runpath, loader)
            yield f"RUNPATH of {loader.path}", self._search_folders(folders, name)
        cached = self._list_cached(name)
        nodeflib = loader is not None and loader.elf.nodeflib
        defaults = self.default_folders
        if nodeflib:
            cached = tuple(path for path in cached if _get_folder(path) not in defaults)
        yield "/etc/ld.so.cache", cached[:1]
        if not nodeflib:
            yield "the default folders", self._search_folders(defaults, name)

    def _search_folders(self, folders: Iterable[str], name: str) -> Iterable[str]:
        """Yield the path of a library in each folder and its hardware subfolders."""
        for folder in folders:
            if not self._is_folder(folder):
                if self._is_closed(folder):
                    yield f"{folder}/{name}"  # opening it fails as it does for the loader
                continue
            for sub in self._list_hardware_subfolders(folder):
                yield f"{sub}/{name}"
            yield f"{folder}/{name}"

    def _list_hardware_subfolders(self, folder: str) -> tuple[str, ...]:
        """Return the hardware subfolders of a folder that exist; nearly always none."""
        if folder not in self._hardware:
            existing = {
                sub
                for sub in {sub.split("/")[0] for sub in self._hwcaps}
                if self._is_folder(f"{folder}/{sub}")
            }
            self._hardware[folder] = tuple(
                f"{folder}/{sub}"
                for sub in self._hwcaps
                if sub.split("/")[0] in existing and self._is_folder(f"{folder}/{sub}")
            )
        return self._hardware[folder]

    def _split_run_path(self, value: str, owner: LinkMap) -> tuple[str, ...]:
        """Return the folders of an RPATH or RUNPATH: ':' separates, an empty entry is the working directory."""
        key = (value, owner.origin)
        if key not in self._run_paths:
            self._run_paths[key] = tuple(
                folder for part in value.split(":") if (folder := self._expand(part or "./", owner))
            )
        return self._run_paths[key]

    def _expand(self, path: str, owner: LinkMap | None) -> str | None:
        """Expand the dynamic string tokens of a path; return None if `$ORIGIN` is not known.

        The path becomes absolute, and trailing slashes are removed.
        """
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
        absolute = self._make_absolute(path)
        return absolute.rstrip("/") or "/"

    def _expand_needed(self, name: str, owner: LinkMap) -> str:
        return (self._expand(name, owner) or name) if "$" in name else name

    def _make_absolute(self, path: str) -> str:
        if path.startswith("/"):
            return path
        while path.startswith("./"):
            path = path[2:].lstrip("/")
        return f"{self._system.cwd.rstrip('/')}/{path}" if path not in ("", ".") else self._system.cwd

    # ------------------------------------------------------------ cached file access

    def _load_object(self, path: str) -> ElfFile:
        """Return the ELF object of a file; raise the cached error if it could not be read."""
        cached = self._elf.get(path)
        if cached is None:
            try:
                cached = self._system.read_elf(path)
            except (ElfError, OSError) as error:
                cached = error
            self._elf[path] = cached
        if isinstance(cached, (ElfError, OSError)):
            raise cached
        return cached

    def _is_folder(self, path: str) -> bool:
        if path not in self._folders:
            self._folders[path] = self._system.is_dir(path)
        return self._folders[path]

    def _is_closed(self, path: str) -> bool:
        """Return whether this user may not list or reach a folder, so that its content is not known."""
        if path not in self._denied:
            try:
                self._system.listdir(path)
            except OSError as error:
                self._denied[path] = error.errno == errno.EACCES
            else:
                self._denied[path] = False
        return self._denied[path]

    def _list_cached(self, name: str) -> tuple[str, ...]:
        """Return the paths that /etc/ld.so.cache has for a soname."""
        paths_by_soname = self.files.cache
        if paths_by_soname is None:
            paths_by_soname = self.files.cache = {}
            try:
                content = self._system.read_bytes("/etc/ld.so.cache")
            except OSError as error:
                self.notes.append(f"/etc/ld.so.cache: {error.strerror or error}")
                content = b""
            machine = self._main.elf.machine if self._main is not None else 62
            for entry in parse_ldcache(content, machine):
                if entry.hwcap is None or f"glibc-hwcaps/{entry.hwcap}" in self._hwcaps:
                    paths_by_soname[entry.soname] = (*paths_by_soname.get(entry.soname, ()), entry.path)
        return paths_by_soname.get(name, ())

    @property
    def cache_sonames(self) -> Mapping[str, tuple[str, ...]]:
        """The paths of each soname in /etc/ld.so.cache."""
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


def _get_folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _find_culprit(error: _LoadError, opened: LinkMap | None) -> str:
    """Return the soname of the other object that an error is about; empty if there is none."""
    return "" if opened is None or error.name == opened.path else error.name.rpartition("/")[2]


def _find_via(tried: Sequence[Tried]) -> str:
    """Return the source of the path that was opened; empty if none was."""
    return next((attempt.via for attempt in tried if not attempt.problem), "")
