"""Model glibc's dynamic loader: predict the file that `dlopen` finds, or its error message.

The rules are those of glibc's elf/dl-load.c and elf/dl-open.c. Tests in tests/lab compare them with the real loader.

* A library that is already in the process, under that soname or from the same file, is reused.
* Otherwise the loader searches, in this order:

  1. the RPATH of the caller and of the objects that loaded it, up to the main program, if the caller has no RUNPATH;
  2. LD_LIBRARY_PATH as it was when the process started;
  3. the RUNPATH of the caller alone;
  4. /etc/ld.so.cache;
  5. the default folders.

* A file for another ELF class or machine is skipped. An empty file, or one that is not an ELF object, ends the search.
* Each library that the object needs is then searched in the same way, with the RPATH or RUNPATH of the object. The
  symbol versions that the object requires are compared with those that its libraries define.
* `$ORIGIN` is the folder of the path at which an object was found; symbolic links are not resolved.

Nothing is loaded: files are only read, through a `System`.
"""

from __future__ import annotations

import errno
import posixpath
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

from tfdoctor.core.facts import FOLDER_DENIED, NOEXEC_ERROR, PERMISSION_DENIED, LoadAttempt, Resolution
from tfdoctor.probes.ldcache import parse_ldcache
from tfdoctor.system.elf import SKIPPED_PROBLEMS, ElfError, ElfFile, ElfProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfdoctor.system import System

NOT_FOUND = "cannot open shared object file: No such file or directory"
SKIPPED_ERRNOS = frozenset({errno.ENOENT, errno.EACCES, errno.ENOTDIR})
"""The errors after which the loader tries the next folder. Any other error ends the current list of folders."""
MAX_OBJECTS = 4096
"""The maximum number of objects in a process. A real process with TensorFlow has a few hundred."""
MAX_BOUND_OBJECTS = 512
"""The maximum number of objects in a process whose symbols are compared, because that is slow."""
HWCAP_LEVELS = {
    "x86-64-v4": frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
    "x86-64-v3": frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    "x86-64-v2": frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"]),
}
"""The names of glibc-hwcaps folders, the highest level first, with the /proc/cpuinfo flags that each level adds."""
HASWELL_FLAGS = frozenset(["avx2", "bmi1", "bmi2", "abm", "movbe", "popcnt", "fma"])
AVX512_1_FLAGS = frozenset(["avx512cd", "avx512f", "avx512bw", "avx512dq", "avx512vl"])
"""The flags that an Intel processor needs for the legacy subfolder "haswell" or "avx512_1" of glibc before 2.37.

See glibc's sysdeps/x86/cpu-features.c.
"""


@dataclass(slots=True, eq=False)
class LinkMap:
    """An object in the modelled process."""

    path: str
    elf: ElfFile
    origin: str
    """The value of `$ORIGIN`."""
    requester: LinkMap | None
    """The object that caused it to be loaded, or None for the main program."""
    names: set[str] = field(default_factory=set)
    """The names under which it was requested."""
    via: str = ""
    """The source of the path, such as "LD_LIBRARY_PATH" or "RUNPATH of …", or "" for the main program."""


@dataclass(slots=True)
class FileCache:
    """A cache of file contents, shared by the modelled processes of one machine."""

    elf_by_path: dict[str, ElfFile | ElfError | OSError] = field(default_factory=dict)
    """The parsed files by path, or the errors from reading them."""
    is_folder_by_path: dict[str, bool] = field(default_factory=dict)
    """Whether a path is a folder, by path."""
    paths_by_soname: dict[str, tuple[str, ...]] | None = None
    """The paths in /etc/ld.so.cache by soname, or None until the file is read."""


class _LoadError(Exception):
    """An object could not be loaded. `name` and `error` make up the message of dlerror.

    `crash` says whether a signal would end the loader. `needed_by` is the object whose dependency is missing.
    """

    def __init__(self, name: str, error: str, *, crash: bool = False, needed_by: str | None = None) -> None:
        super().__init__(error)
        self.name = name
        self.error = error
        self.crash = crash
        self.needed_by = needed_by


def split_library_path(value: str | None) -> tuple[str, ...]:
    """Split LD_LIBRARY_PATH at ":" and ";" into folders, as glibc does. An empty entry becomes "./"."""
    if not value:
        return ()
    return tuple(part or "./" for part in value.replace(";", ":").split(":"))


def list_hwcap_folders(cpu_flags: Iterable[str], glibc: str | None) -> tuple[str, ...]:
    """Return the subfolders that the loader searches before a folder itself, in search order.

    glibc 2.33 and newer has glibc-hwcaps folders. glibc up to 2.36 tries all combinations of the legacy names "tls",
    "haswell", "avx512_1" and "x86_64". Return nothing if the version is not known.
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
        if "GenuineIntel" in flags and flags >= HASWELL_FLAGS:
            names.append("haswell")
        if "GenuineIntel" in flags and flags >= AVX512_1_FLAGS:
            names.append("avx512_1")
        names.append("x86_64")
        # Each bit of the mask stands for a name. The loader tries the combinations in this order.
        for mask in range((1 << len(names)) - 1, 0, -1):
            selected_names = (name for bit, name in enumerate(reversed(names)) if mask >> bit & 1)
            folders.append("/".join(reversed(list(selected_names))))
    return tuple(folders)


class LoaderProcess:
    """A model of a process, from the start of its main program."""

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
        """Model the start of the main program with the libraries that it needs.

        `executable` is the path of the main program with links resolved. `files` is a cache that other processes share.
        `noexec` are folders on file systems from which nothing may be executed.
        """
        self._system = system
        self._noexec_prefixes = tuple(f"{folder.rstrip('/')}/" for folder in noexec)
        self._is_denied_by_folder: dict[str, bool] = {}
        self._hwcap_folders = list_hwcap_folders(cpu_flags, glibc)
        self.file_cache = files = files or FileCache()
        self._elf_by_path, self._is_folder_by_path = files.elf_by_path, files.is_folder_by_path
        self._hwcap_subfolders: dict[str, tuple[str, ...]] = {}
        self._folders_by_run_path: dict[tuple[str, str], tuple[str, ...]] = {}
        self.loaded_objects: list[LinkMap] = []
        self._local_ids: set[int] = set()
        """The `id`s of objects loaded with RTLD_LOCAL, whose symbols only the objects that need them see."""
        self.notes: list[str] = []
        """Sentences about problems that do not stop the process."""
        self._main = self._load_main_program(executable)
        self.library_entries = tuple(
            (entry, folder)
            for entry in split_library_path(env.get("LD_LIBRARY_PATH"))
            if (folder := self._expand_tokens(entry, self._main))
        )
        self.library_folders = tuple(folder for _, folder in self.library_entries)
        self.preloaded_names: tuple[str, ...] = ()
        self._load_preloaded(env.get("LD_PRELOAD", ""))
        if self._main is not None:
            self._load_main_dependencies(self._main)

    # ------------------------------------------------------------ the process as it starts

    def _load_main_program(self, executable: str) -> LinkMap | None:
        """Load the main program. If it cannot be read as an ELF object, add a note and return None."""
        try:
            elf = self._load_object(executable)
        except (ElfError, OSError) as error:
            self.notes.append(
                f"{executable}: not readable as an ELF object ({error}); its RPATH is not known"
            )
            return None
        main = LinkMap(executable, elf, _get_folder(executable), None)
        self.loaded_objects.append(main)
        return main

    def _load_preloaded(self, value: str) -> None:
        """Load the objects in LD_PRELOAD. Add a note for each that the loader ignores."""
        for name in value.replace(":", " ").split():
            try:
                library = self._open(name, self._main)
            except _LoadError as error:
                self.notes.append(f"LD_PRELOAD: {error.name}: {error.error}; the loader ignores it")
            else:
                library.via = "LD_PRELOAD"
                self.preloaded_names += (name,)

    def _load_main_dependencies(self, main_program: LinkMap) -> None:
        """Load the libraries that the main program needs. Add a note if one is missing."""
        try:
            self._map_dependencies(main_program, [])
        except _LoadError as error:
            self.notes.append(f"{main_program.path}: {error.name}: {error.error}")

    # ------------------------------------------------------------ dlopen

    def dlopen(
        self, name: str, caller: LinkMap | None, *, bind_now: bool = True, is_global: bool = False
    ) -> Resolution:
        """Return the result of `dlopen(name)` in `caller`.

        Loaded objects stay loaded, as in a real process. If `bind_now` is true, symbols are compared as with RTLD_NOW.
        Otherwise only files and symbol versions are. `is_global` means RTLD_GLOBAL: later objects see the symbols.
        """
        tried: list[LoadAttempt] = []
        loaded_before = list(self.loaded_objects)
        try:
            library = self._open(name, caller, tried, bind_now=bind_now)
        except _LoadError as error:
            opened = next((link for link in self.loaded_objects if link not in loaded_before), None)
            missing = self._list_all_missing(opened) if opened else ()
            self.loaded_objects = loaded_before
            return Resolution(
                soname=name,
                path=opened.path if opened else None,
                via=_find_source(tried),
                error=f"{error.name}: {error.error}",
                # If no file is missing, the message begins with the object that caused the error.
                really_missing=missing or (_find_failed_name(error, opened) or name,),
                needed_by=error.needed_by,
                tried=tuple(tried),
                crash=error.crash,
            )
        if not is_global:
            self._local_ids |= {id(link) for link in self.loaded_objects} - {
                id(link) for link in loaded_before
            }
        via = _find_source(tried) or (
            "LD_PRELOAD" if library.via == "LD_PRELOAD" else "already in the process"
        )
        return Resolution(name, library.path, via, "", tried=tuple(tried))

    def load_extension(self, path: str, *, bind_now: bool, is_global: bool = False) -> Resolution:
        """Load an object by its path, as Python loads an extension module.

        Python uses RTLD_NOW. Set `bind_now` only if TensorFlow is linked to CUDA. Otherwise TensorFlow itself defines
        nearly all of the tens of thousands of symbols in its objects.
        """
        return self.dlopen(path, self.python_library, bind_now=bind_now, is_global=is_global)

    def add_object(self, path: str, loader: LinkMap | None = None) -> LinkMap | None:
        """Add an object without the libraries that it needs, so that its searches can be modelled.

        This works even if its import failed. Return None if the object cannot be read.
        """
        try:
            elf = self._load_object(path)
        except (ElfError, OSError):
            return None
        link = LinkMap(path, elf, _get_folder(path), loader or self.python_library)
        self.loaded_objects.append(link)
        return link

    def find_loaded_object(self, path: str) -> LinkMap | None:
        """Return the loaded object of a file, or None if there is none."""
        real_path = self._system.realpath(path)
        return next(
            (link for link in self.loaded_objects if self._system.realpath(link.path) == real_path), None
        )

    def list_run_path_folders(self, link: LinkMap) -> tuple[str, ...]:
        """Return the existing folders of an object's RUNPATH, or else of its RPATH, normalized for display."""
        folders = (
            posixpath.normpath(folder)
            for folder in self._split_run_path(link.elf.runpath or link.elf.rpath or "", link)
        )
        return tuple(dict.fromkeys(folder for folder in folders if self._is_folder(folder)))

    @property
    def python_library(self) -> LinkMap | None:
        """The object from which Python calls dlopen: libpython if it is loaded, else the main program."""
        for candidate in self.loaded_objects:
            if candidate.path.rsplit("/", 1)[-1].startswith("libpython"):
                return candidate
        return self._main

    def _open(
        self,
        name: str,
        caller: LinkMap | None,
        tried: list[LoadAttempt] | None = None,
        *,
        bind_now: bool = False,
    ) -> LinkMap:
        """Map an object and, if it was not loaded yet, the libraries that it needs."""
        tried = [] if tried is None else tried
        count_before = len(self.loaded_objects)
        link = self._map(name, caller, tried)
        if len(self.loaded_objects) > count_before:
            self._map_dependencies(link, tried, bind_now=bind_now)
        return link

    def _map_dependencies(self, start: LinkMap, tried: list[LoadAttempt], *, bind_now: bool = False) -> None:
        """Map the libraries that an object needs and check their symbols, in the order of the real loader.

        1. Objects are mapped breadth first, as in _dl_map_object_deps.
        2. Symbol versions are compared, as in _dl_check_map_versions.
        3. If `bind_now`, symbols are compared, as in dl_open_worker.

        Raise _LoadError if a library is missing or a check fails.
        """
        queue = [start]
        for current in queue:
            for needed in current.elf.needed:
                if len(self.loaded_objects) > MAX_OBJECTS:
                    self.notes.append(
                        f"{start.path} needs more than {MAX_OBJECTS} objects; not all were followed"
                    )
                    return
                count_before = len(self.loaded_objects)
                try:
                    dependency = self._map(self._expand_needed(needed, current), current, tried)
                except _LoadError as error:
                    error.needed_by = current.path
                    raise
                if len(self.loaded_objects) > count_before:
                    queue.append(dependency)
        scope = cache(lambda: self._list_scope(start))  # computed only if symbols are compared
        ids_to_bind = {id(current) for current in queue if self._check_versions(current)}
        if bind_now and len(self.loaded_objects) <= MAX_BOUND_OBJECTS:
            ids_to_bind.update(map(id, queue))
        for current in reversed(queue):  # the loader relocates dependencies first
            if id(current) in ids_to_bind:
                self._check_symbols(current, scope)

    def _list_scope(self, start: LinkMap) -> list[LinkMap]:
        """Return the objects that may define the symbols of `start`: global objects, and all that it needs."""
        needed_ids, queue = {id(start)}, [start]
        for current in queue:
            for name in current.elf.needed:
                dependency = self._find_loaded(self._expand_needed(name, current))
                if dependency is not None and id(dependency) not in needed_ids:
                    needed_ids.add(id(dependency))
                    queue.append(dependency)
        return [
            link for link in self.loaded_objects if id(link) not in self._local_ids or id(link) in needed_ids
        ]

    def _list_all_missing(self, opened: LinkMap) -> tuple[str, ...]:
        """Return all missing libraries that `opened` needs, also indirectly: dlerror names only the first."""
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
        """Check that the objects in a scope define the symbols of an object, as RTLD_NOW does.

        Raise _LoadError if a symbol is undefined.
        """
        if _get_folder(current.path) in self.default_folders:
            return  # the system's own libraries match each other
        providers = [current.path, *(link.path for link in scope() if link is not current)]
        unresolved = self._system.find_unresolved_symbols(current.path, providers)
        if unresolved:
            raise _LoadError(current.path, f"undefined symbol: {unresolved[0]}", needed_by=current.path)

    def _check_versions(self, current: LinkMap) -> bool:
        """Check the symbol versions that an object requires. Raise _LoadError if a version is not defined.

        Return whether one of its libraries defines no versions at all, so that the symbols must be compared instead.
        """
        is_unversioned = False
        for library, versions in current.elf.verneed:
            provider = self._find_loaded(library)
            if provider is None:
                continue
            # The loader only warns about a library without versions: "no version information available". A missing
            # symbol is noticed when it is bound.
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

    def _map(self, name: str, loader: LinkMap | None, tried: list[LoadAttempt]) -> LinkMap:
        """Return the object for a name, and map it if it is not loaded yet, like _dl_map_object.

        Raise _LoadError if there is none.
        """
        loaded_object = self._find_loaded(name)
        if loaded_object is not None:
            return loaded_object
        if "/" in name:
            path = self._expand_tokens(name, loader) or name
            return self._map_file(name, self._make_absolute(path), loader, tried, "its path")
        skipped: list[ElfError] = []
        for via, paths in self._iter_candidates(name, loader):
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
        """Return the loaded object with this name, path or soname, or None if there is none."""
        for link in self.loaded_objects:
            if name in link.names or name in (link.path, link.elf.soname):
                return link
        return None

    def _map_file(
        self, name: str, path: str, loader: LinkMap | None, tried: list[LoadAttempt], via: str
    ) -> LinkMap:
        """Map a file, like open_verify and _dl_map_object_from_fd.

        Raise ElfError if the search continues because the class or machine is wrong, OSError if the file cannot be
        opened, and _LoadError if the search ends.
        """
        try:
            elf = self._load_object(path)
        except ElfError as error:
            tried.append(LoadAttempt(path, str(error), via))
            if error.problem in SKIPPED_PROBLEMS and "/" not in name:
                raise
            if error.problem is ElfProblem.WRONG_CLASS:
                raise _LoadError(path, f"wrong ELF class: {error.detail}") from error
            # The loader notices this only after mapping the file; then dlerror reports the requested name.
            is_mapped_first = error.problem is ElfProblem.NO_DYNAMIC_SECTION
            raise _LoadError(
                name if is_mapped_first else path,
                error.problem.value,
                crash=error.problem is ElfProblem.TRUNCATED,
            ) from error
        except IsADirectoryError as error:
            tried.append(LoadAttempt(path, "is a directory", via))
            raise _LoadError(path, "cannot read file data: Is a directory") from error
        except OSError as error:
            if error.errno == errno.EACCES:
                is_folder_denied = self._is_listing_denied(_get_folder(path))
                tried.append(LoadAttempt(path, FOLDER_DENIED if is_folder_denied else PERMISSION_DENIED, via))
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
                tried.append(LoadAttempt(path, error.strerror or str(error), via))
            if "/" in name:
                raise _LoadError(path, f"cannot open shared object file: {error.strerror}") from error
            raise
        if elf.program:
            tried.append(LoadAttempt(path, f"is a program, no library ({elf.program})", via))
            raise _LoadError(name, f"cannot dynamically load {elf.program}")
        if self._noexec_prefixes and self._system.realpath(path).startswith(self._noexec_prefixes):
            tried.append(LoadAttempt(path, NOEXEC_ERROR, via))
            raise _LoadError(path, NOEXEC_ERROR)
        tried.append(LoadAttempt(path, "", via))
        for loaded_object in self.loaded_objects:
            if loaded_object.path == path or (
                any(elf.device_inode) and loaded_object.elf.device_inode == elf.device_inode
            ):
                loaded_object.names.add(name)
                return loaded_object
        link = LinkMap(path, elf, _get_folder(path), loader, {name}, via)
        self.loaded_objects.append(link)
        return link

    def _iter_candidates(self, name: str, loader: LinkMap | None) -> Iterable[tuple[str, Iterable[str]]]:
        """Yield (source, paths to try) for a soname, in the order that the module's docstring describes."""
        if loader is None or loader.elf.runpath is None:
            requesters: list[LinkMap] = []
            requester = loader
            while requester is not None:
                requesters.append(requester)
                requester = requester.requester
            if self._main is not None and self._main not in requesters:
                requesters.append(self._main)
            for link in requesters:
                if link.elf.rpath is not None and link.elf.runpath is None:
                    folders = self._split_run_path(link.elf.rpath, link)
                    yield f"RPATH of {link.path}", self._iter_folder_paths(folders, name)
        yield "LD_LIBRARY_PATH", self._iter_folder_paths(self.library_folders, name)
        if loader is not None and loader.elf.runpath is not None:
            folders = self._split_run_path(loader.elf.runpath, loader)
            yield f"RUNPATH of {loader.path}", self._iter_folder_paths(folders, name)
        cached_paths = self._list_cached(name)
        skips_defaults = loader is not None and loader.elf.nodeflib
        default_folders = self.default_folders
        if skips_defaults:
            cached_paths = tuple(path for path in cached_paths if _get_folder(path) not in default_folders)
        yield "/etc/ld.so.cache", cached_paths[:1]
        if not skips_defaults:
            yield "the default folders", self._iter_folder_paths(default_folders, name)

    def _iter_folder_paths(self, folders: Iterable[str], name: str) -> Iterable[str]:
        """Yield the path of a library in each folder and its hardware subfolders."""
        for folder in folders:
            if not self._is_folder(folder):
                if self._is_listing_denied(folder):
                    yield f"{folder}/{name}"  # opening it fails, as for the loader
                continue
            for subfolder in self._list_hardware_subfolders(folder):
                yield f"{subfolder}/{name}"
            yield f"{folder}/{name}"

    def _list_hardware_subfolders(self, folder: str) -> tuple[str, ...]:
        """Return the existing hardware subfolders of a folder. Usually there are none."""
        if folder not in self._hwcap_subfolders:
            existing_roots = {
                subfolder
                for subfolder in {subfolder.split("/")[0] for subfolder in self._hwcap_folders}
                if self._is_folder(f"{folder}/{subfolder}")
            }
            self._hwcap_subfolders[folder] = tuple(
                f"{folder}/{subfolder}"
                for subfolder in self._hwcap_folders
                if subfolder.split("/")[0] in existing_roots and self._is_folder(f"{folder}/{subfolder}")
            )
        return self._hwcap_subfolders[folder]

    def _split_run_path(self, value: str, owner: LinkMap) -> tuple[str, ...]:
        """Return the folders of an RPATH or RUNPATH, split at ":". An empty entry is the working directory.

        glibc ignores a path that is empty as a whole (decompose_rpath).
        """
        key = (value, owner.origin)
        if key not in self._folders_by_run_path:
            parts = value.split(":") if value else []
            self._folders_by_run_path[key] = tuple(
                folder for part in parts if (folder := self._expand_tokens(part or "./", owner))
            )
        return self._folders_by_run_path[key]

    def _expand_tokens(self, path: str, owner: LinkMap | None) -> str | None:
        """Expand `$ORIGIN`, `$LIB` and `$PLATFORM` in a path. Return None if `$ORIGIN` is not known.

        The result is absolute and has no trailing slashes.
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
        return (self._expand_tokens(name, owner) or name) if "$" in name else name

    def _make_absolute(self, path: str) -> str:
        if path.startswith("/"):
            return path
        while path.startswith("./"):
            path = path[2:].lstrip("/")
        return f"{self._system.cwd.rstrip('/')}/{path}" if path not in ("", ".") else self._system.cwd

    # ------------------------------------------------------------ cached file access

    def _load_object(self, path: str) -> ElfFile:
        """Return the ELF object of a file. Raise the cached error if it could not be read."""
        cached = self._elf_by_path.get(path)
        if cached is None:
            try:
                cached = self._system.read_elf(path)
            except (ElfError, OSError) as error:
                cached = error
            self._elf_by_path[path] = cached
        if isinstance(cached, (ElfError, OSError)):
            raise cached
        return cached

    def _is_folder(self, path: str) -> bool:
        if path not in self._is_folder_by_path:
            self._is_folder_by_path[path] = self._system.is_dir(path)
        return self._is_folder_by_path[path]

    def _is_listing_denied(self, path: str) -> bool:
        """Return whether this user has no permission to list a folder."""
        if path not in self._is_denied_by_folder:
            try:
                self._system.listdir(path)
            except OSError as error:
                self._is_denied_by_folder[path] = error.errno == errno.EACCES
            else:
                self._is_denied_by_folder[path] = False
        return self._is_denied_by_folder[path]

    def _list_cached(self, name: str) -> tuple[str, ...]:
        """Return the paths of a soname in /etc/ld.so.cache. The first call reads the file."""
        paths_by_soname = self.file_cache.paths_by_soname
        if paths_by_soname is None:
            paths_by_soname = self.file_cache.paths_by_soname = {}
            try:
                content = self._system.read_bytes("/etc/ld.so.cache")
            except OSError as error:
                self.notes.append(f"/etc/ld.so.cache: {error.strerror or error}")
                content = b""
            machine = self._main.elf.machine if self._main is not None else 62  # x86-64
            for entry in parse_ldcache(content, machine):
                if entry.hwcap is None or f"glibc-hwcaps/{entry.hwcap}" in self._hwcap_folders:
                    paths_by_soname[entry.soname] = (*paths_by_soname.get(entry.soname, ()), entry.path)
        return paths_by_soname.get(name, ())

    @property
    def cached_paths_by_soname(self) -> Mapping[str, tuple[str, ...]]:
        """The paths in /etc/ld.so.cache by soname."""
        self._list_cached("")  # reads the file
        return self.file_cache.paths_by_soname or {}

    @cached_property
    def default_folders(self) -> tuple[str, ...]:
        """The folders that are compiled into the loader: Debian's multiarch folders, or lib64."""
        machine = self._system.platform.get("machine", "x86_64")
        multiarch = f"/usr/lib/{machine}-linux-gnu"
        if self._is_folder(multiarch):
            return (multiarch.removeprefix("/usr"), multiarch, "/lib", "/usr/lib")
        return ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


def _get_folder(path: str) -> str:
    """Return the folder of an absolute path. Links are not resolved."""
    return path.rpartition("/")[0] or "/"


def _find_failed_name(error: _LoadError, opened: LinkMap | None) -> str:
    """Return the file name of the object that caused an error, or "" if it is the opened object itself."""
    return "" if opened is None or error.name == opened.path else error.name.rpartition("/")[2]


def _find_source(tried: Sequence[LoadAttempt]) -> str:
    """Return the source of the path that was opened, or an empty string if no path was."""
    return next((attempt.via for attempt in tried if not attempt.problem), "")
