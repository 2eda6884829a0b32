"""The facts about library loading: environment variables, their origins, and the loader's answers.

Import these classes from `tfdoctor.facts`.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.facts.python import Denied

LIST_VARIABLES = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"})
"""Variables that hold lists; each entry of them has its own origin."""


MODULE_PATH = "sys.path"
"""The `Origin.name` of an entry of sys.path, which is no environment variable."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The file or program that set an environment variable or added an entry to a list."""

    name: str
    """The variable, or `MODULE_PATH` for a folder that Python's startup adds to sys.path."""
    by: str
    """"start": Python's own startup (sitecustomize, a .pth file); "wrapper": the interpreter is a script that
    sets it; "activation": a script that activating the environment runs; "kernel": the requested
    kernel.json; "machine": /etc/environment; "shell": the process that started tfdoctor, with no known
    file."""
    entry: str | None = None
    """The entry of a list; None for the whole variable."""
    path: str = ""
    """The file that sets it, for display; empty if it is not known."""
    line: int | None = None
    text: str = ""
    """The line of the file."""


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """The environment variables that matter to TensorFlow on a GPU, and their misspellings."""

    variables: dict[str, str]
    """The values after the startup of the examined Python; variables that only the loader and Python's
    startup read (LD_…, PYTHON…) have the values with which it was started."""
    misspelt: tuple[tuple[str, str], ...]
    """(name that is set, name that was meant)."""
    scheduler: str | None
    """"slurm", "lsf", "pbs", "kubernetes" or "ray" if one of them runs this process, else None."""
    origins: tuple[Origin, ...] = ()
    """The origins of `variables`, if the examined Python answered, and of entries of `MODULE_PATH`."""
    changed: dict[str, str | None] = field(default_factory=dict)
    """Variables that Python's startup changes, with their new values; None if it removes the variable."""
    late: tuple[Origin, ...] = ()
    """Variables that Python's startup sets too late: the loader or Python has read them before."""
    programs: frozenset[str] | None = None
    """The programs of PROGRAMS in probes/environment.py that are on this user's PATH; None if they were not
    looked for."""

    def origin(self, name: str, entry: str | None = None) -> Origin | None:
        """Return the origin of a variable, or of one entry of a list; None if it is not known.

        `entry`: a path, with or without a final slash.
        """
        stripped = entry.rstrip("/") if entry is not None else None
        return next(
            (
                o
                for o in self.origins
                if o.name == name
                and (stripped is None or (o.entry is not None and o.entry.rstrip("/") == stripped))
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class Tried:
    """A file that the loader would try to open for a library."""

    path: str
    problem: str
    """Why the loader does not use the file; empty for the one that it uses."""
    via: str
    """"RPATH of …", "LD_LIBRARY_PATH", "RUNPATH of …", "ld.so.cache", "default folder", "LD_PRELOAD"."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The result of one `dlopen` (or DT_NEEDED) of a soname."""

    soname: str
    path: str | None
    """The file that is mapped; None if there is none."""
    via: str
    error: str
    """The message of dlerror(); empty if the library is loaded."""
    really_missing: tuple[str, ...] = ()
    """Sonames that could not be resolved: this one, or libraries that it needs."""
    needed_by: str | None = None
    """The object whose dependency is missing; None if it is the opened one."""
    tried: tuple[Tried, ...] = ()
    crash: bool = False
    """Whether a signal would end the loader."""
    real: str = ""
    """`path` with symbolic links resolved; empty if that gives the same path, apart from ".."."""
    version: str | None = None
    """The version according to the file: its real name (libcudnn.so.9.1.0) or the header beside it."""

    @property
    def ok(self) -> bool:
        return not self.error


@dataclass(frozen=True, slots=True)
class FoundElsewhere:
    """A library of the same family that was found outside the loader's search path."""

    stem: str
    """"libcusolver"."""
    name: str
    """The file's name with its version: "libcusolver.so.11", "libcusolver.so.11.7.1.2"."""
    path: str
    package: str | None = None
    """The wheel or conda package that contains it; None if that is not clear."""


@dataclass(frozen=True, slots=True)
class Instead:
    """A library that an entry of LD_LIBRARY_PATH or LD_PRELOAD replaces with another file."""

    soname: str
    path: str
    other: str | None
    """The file that the loader would use without that entry; None if there is none."""


@dataclass(frozen=True, slots=True)
class Without:
    """The loader's answers without some entries of LD_LIBRARY_PATH or LD_PRELOAD."""

    variable: str
    entries: tuple[str, ...]
    """The removed entries, as written in the variable."""
    resolutions: tuple[Resolution, ...]
    """The resolutions of all libraries, as in `LoaderFacts`."""
    import_needs: tuple[Resolution, ...]
    instead: tuple[Instead, ...]
    """The libraries that these entries provide."""

    def resolution(self, soname: str) -> Resolution | None:
        return next((r for r in self.resolutions if r.soname == soname), None)


@dataclass(frozen=True, slots=True)
class LoaderFacts:
    """The loader's answers for all libraries that this TensorFlow opens, in the order in which it opens them."""

    caller: str | None
    """The object that calls dlopen."""
    runpath_folders: tuple[str, ...]
    """The folders of that object's RUNPATH (or RPATH) that exist, as paths without ".."."""
    library_path: tuple[str, ...]
    """The entries of LD_LIBRARY_PATH, split as glibc does it."""
    resolutions: tuple[Resolution, ...]
    import_needs: tuple[Resolution, ...]
    """DT_NEEDED entries of TensorFlow's own objects that could not be resolved."""
    found: tuple[FoundElsewhere, ...]
    preload: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    plugins: tuple[Resolution, ...] = ()
    """The results of loading TensorFlow's plugins."""
    denied: tuple[Denied, ...] = ()
    """Files that the loader finds and may not use."""
    without: tuple[Without, ...] = ()
    """The answers without entries: each entry alone, then all that provide a library. Empty unless a library
    is missing or the driver's libraries come from these variables."""

    def resolution(self, soname: str) -> Resolution | None:
        return next((r for r in self.resolutions if r.soname == soname), None)
