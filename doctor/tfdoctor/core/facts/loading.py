"""Dataclasses for library loading: environment variables, their origins, and the loader's results.

Other modules import these classes from `tfdoctor.core.facts`.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.core.facts.python import DeniedPath

LIST_VARIABLES = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"})
"""Variables that contain lists. Each entry has its own origin."""
MODULE_PATH = "sys.path"
"""The `Origin.name` of an entry of sys.path, which is not an environment variable."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The file or program that set an environment variable, or that added an entry to a list."""

    name: str
    """The variable, or `MODULE_PATH` for a folder that Python's startup adds to sys.path."""
    by: str
    """The kind of origin:

    * "start": Python's startup (sitecustomize, a .pth file)
    * "wrapper": the interpreter, which is a script that sets the variable
    * "activation": a script that runs when the environment is activated
    * "kernel": the requested kernel.json
    * "uv": a file that UV_ENV_FILE names
    * "profile": a file that shells read when they start, such as ~/.bashrc
    * "machine": /etc/environment
    * "shell": the process that started tfdoctor; the file is not known
    """
    entry: str | None = None
    """The entry of a list; None if the file sets the whole variable."""
    path: str = ""
    """The path of the file, for display; empty if it is not known."""
    line: int | None = None
    text: str = ""
    """The line of the file."""


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """The environment variables that affect TensorFlow on a GPU, and misspelt ones."""

    variables: dict[str, str]
    """The values of the variables after the startup of the examined Python.

    Variables that only the loader and Python's startup read (LD_…, PYTHON…) have the values with which it was started.
    """
    misspelt: tuple[tuple[str, str], ...]
    """The misspelt variables, as (name that is set, correct name)."""
    scheduler: str | None
    """"slurm", "lsf", "pbs", "kubernetes" or "ray" if one of them runs this process, else None."""
    origins: tuple[Origin, ...] = ()
    """The origins of `variables` and of sys.path entries; empty if the examined Python did not start."""
    changed: dict[str, str | None] = field(default_factory=dict)
    """Variables that Python's startup changes, with their new values; None if it removes the variable."""
    late: tuple[Origin, ...] = ()
    """Variables that Python's startup sets too late, because the loader or Python has already read them."""
    keras_file: str = ""
    """The path of the keras.json that Keras reads; empty if there is none."""
    keras_backend: str = ""
    """The backend in that file."""
    programs: frozenset[str] | None = None
    """The programs of PROGRAMS (probes/environment.py) that are on this user's PATH; None if they were not searched."""

    def find_origin(self, name: str, entry: str | None = None) -> Origin | None:
        """Return the origin of a variable, or of an entry of a list; None if it is not known.

        `entry` is a path, with or without a final slash. If it is None, the first origin of the variable is returned.
        """
        stripped_entry = entry.rstrip("/") if entry is not None else None
        return next(
            (
                origin
                for origin in self.origins
                if origin.name == name
                and (
                    stripped_entry is None
                    or (origin.entry is not None and origin.entry.rstrip("/") == stripped_entry)
                )
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class LoadAttempt:
    """A file that the loader would try to open as a library."""

    path: str
    problem: str
    """The reason why the loader does not use the file; empty if it uses the file."""
    via: str
    """The part of the search path that led to the file.

    "RPATH of …", "LD_LIBRARY_PATH", "RUNPATH of …", "ld.so.cache", "default folder" or "LD_PRELOAD".
    """


@dataclass(frozen=True, slots=True)
class Resolution:
    """The result of loading a soname, with `dlopen` or because of a DT_NEEDED entry."""

    soname: str
    path: str | None
    """The file that is mapped; None if there is none."""
    via: str
    """The part of the search path that led to the file, as in `LoadAttempt`."""
    error: str
    """The message of dlerror(); empty if the library is loaded."""
    really_missing: tuple[str, ...] = ()
    """The sonames that could not be resolved: this one, or those of the libraries that it needs."""
    needed_by: str | None = None
    """The object whose dependency is missing; None if the opened library itself is missing."""
    tried: tuple[LoadAttempt, ...] = ()
    """The files that the loader would try, in order."""
    crash: bool = False
    """Whether a signal would end the loader."""
    real: str = ""
    """`path` with symbolic links resolved; empty if that differs from `path` in ".." components only."""
    version: str | None = None
    """The library version, from the real file name (libcudnn.so.9.1.0) or from the header next to it; None if not known."""

    @property
    def ok(self) -> bool:
        """Whether the library is loaded."""
        return not self.error


@dataclass(frozen=True, slots=True)
class FoundElsewhere:
    """A file of a missing library, in any version, that was found outside the loader's search path."""

    stem: str
    """The name without a version, such as "libcusolver"."""
    name: str
    """The file's name with its version: "libcusolver.so.11", "libcusolver.so.11.7.1.2"."""
    path: str
    package: str | None = None
    """The wheel or conda package that contains it; None if that is not clear."""


@dataclass(frozen=True, slots=True)
class ReplacedLibrary:
    """A library that the loader takes from an entry of LD_LIBRARY_PATH or LD_PRELOAD."""

    soname: str
    path: str
    """The file that the entry provides."""
    other: str | None
    """The file that the loader would use without that entry; None if there is none."""


@dataclass(frozen=True, slots=True)
class RemovedEntriesResult:
    """The loader's results if some entries of LD_LIBRARY_PATH or LD_PRELOAD were removed."""

    variable: str
    entries: tuple[str, ...]
    """The removed entries, as they appear in the variable."""
    resolutions: tuple[Resolution, ...]
    """The resolutions of all libraries, as in `LoaderFacts`."""
    import_needs: tuple[Resolution, ...]
    """The unresolved DT_NEEDED entries, as in `LoaderFacts`."""
    instead: tuple[ReplacedLibrary, ...]
    """The libraries that these entries provide."""

    def find_resolution(self, soname: str) -> Resolution | None:
        """Return the resolution of a soname; None if TensorFlow does not open it."""
        return next((resolution for resolution in self.resolutions if resolution.soname == soname), None)


@dataclass(frozen=True, slots=True)
class LoaderFacts:
    """The loader's results for all libraries that this TensorFlow opens, in the order of opening."""

    caller: str | None
    """The object that calls dlopen; None if it is not known."""
    runpath_folders: tuple[str, ...]
    """The folders of that object's RUNPATH (or RPATH) that exist, as paths without ".."."""
    library_path: tuple[str, ...]
    """The entries of LD_LIBRARY_PATH, split as glibc splits them."""
    resolutions: tuple[Resolution, ...]
    import_needs: tuple[Resolution, ...]
    """The DT_NEEDED entries of TensorFlow's objects that could not be resolved."""
    found: tuple[FoundElsewhere, ...]
    """Files of missing libraries that were found outside the search path."""
    found_needs: tuple[str, ...] = ()
    """Sonames that these files need and the loader cannot resolve for them."""
    import_bytes: int = 0
    """The sizes of all objects that are mapped after the import of TensorFlow, added up."""
    mapped_bytes: int = 0
    """The same after TensorFlow has opened its libraries."""
    preload: tuple[str, ...] = ()
    """The entries of LD_PRELOAD that the loader loads."""
    notes: tuple[str, ...] = ()
    """Sentences about problems that do not stop the process."""
    plugins: tuple[Resolution, ...] = ()
    """The results of loading TensorFlow's plugins."""
    denied: tuple[DeniedPath, ...] = ()
    """Files that the loader finds but has no permission to use."""
    without: tuple[RemovedEntriesResult, ...] = ()
    """The results without each single entry that provides a library, and then without all such entries.

    Empty unless a library is missing or the driver's libraries come from these variables.
    """

    def find_resolution(self, soname: str) -> Resolution | None:
        """Return the resolution of a soname; None if TensorFlow does not open it."""
        return next((resolution for resolution in self.resolutions if resolution.soname == soname), None)
