"""What decides which files are loaded: environment variables, who set them, and the loader's answers. Part of facts.py,
the one door to all facts."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.facts.python import Denied

PATHS = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"})
"""Variables that are lists: who put an entry there is asked for each."""


MODULE_PATH = "sys.path"
"""Where Python looks for modules, beside the names of variables that are lists."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who set an environment variable, or put an entry on a list."""

    name: str
    """The variable; `MODULE_PATH` for a folder that Python's own start puts on its path."""
    by: str
    """"start": what Python itself runs when it starts (sitecustomize, a .pth file); "wrapper": the interpreter is a
    script that sets it; "activation": a script that activating the environment runs; "kernel": the kernel.json that
    was asked for; "machine": /etc/environment; "shell": what tfdoctor was started from, of which no file is known."""
    entry: str | None = None
    """The entry of a list; None: the whole variable."""
    path: str = ""
    """The file, where it was found; for people."""
    line: int | None = None
    text: str = ""
    """The line as it stands there."""


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """Environment variables that matter to TensorFlow on a GPU, and their misspellings."""

    variables: dict[str, str]
    """As the target Python has them when its own start is over; those that only the loader and Python's start read
    (LD_…, PYTHON…) as it was started with them."""
    misspelt: tuple[tuple[str, str], ...]
    """(as set, as meant)."""
    scheduler: str | None
    """"slurm", "lsf", "pbs", "kubernetes", "ray" where one of them runs this process."""
    origins: tuple[Origin, ...] = ()
    """Who set each of `variables`, where the target Python answered, and who put folders on its `MODULE_PATH`."""
    changed: dict[str, str | None] = field(default_factory=dict)
    """What Python's start makes of the variables that tfdoctor itself was started with; None: taken away."""
    late: tuple[Origin, ...] = ()
    """Variables that the loader or Python read at the start of a process, and that Python's start sets: in vain."""
    programs: frozenset[str] | None = None
    """What of probes/environment.py's PROGRAMS is on this person's PATH; None where nobody looked."""

    def origin(self, name: str, entry: str | None = None) -> Origin | None:
        """Return who set the variable, or put the entry (a path, with or without a final slash) on that list."""
        wanted = entry.rstrip("/") if entry is not None else None
        return next(
            (
                o
                for o in self.origins
                if o.name == name
                and (wanted is None or (o.entry is not None and o.entry.rstrip("/") == wanted))
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class Tried:
    """One file that the loader would open on its way."""

    path: str
    problem: str
    """Empty for the one that it takes."""
    via: str
    """"RPATH of …", "LD_LIBRARY_PATH", "RUNPATH of …", "ld.so.cache", "default folder", "LD_PRELOAD"."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What becomes of one `dlopen` (or DT_NEEDED) of a soname."""

    soname: str
    path: str | None
    """The file that is mapped; None where none is."""
    via: str
    error: str
    """What dlerror() would say; empty where the library is loaded."""
    really_missing: tuple[str, ...] = ()
    """Sonames that could not be found or taken: this one, or those that it needs."""
    needed_by: str | None = None
    """The object whose need failed, where it is not the one opened."""
    tried: tuple[Tried, ...] = ()
    crash: bool = False
    """The loader would be killed by a signal."""
    real: str = ""
    """`path` with links resolved; empty where they lead to the same path, but for ".."."""
    version: str | None = None
    """What the file itself tells of its version: its real name (libcudnn.so.9.1.0), the header beside it."""

    @property
    def ok(self) -> bool:
        return not self.error


@dataclass(frozen=True, slots=True)
class FoundElsewhere:
    """A library of the same family that is on this machine, found without the loader's rules."""

    stem: str
    """"libcusolver"."""
    name: str
    """The file's name, version and all: "libcusolver.so.11", "libcusolver.so.11.7.1.2"."""
    path: str
    package: str | None = None
    """The wheel or conda package that it belongs to, where that is plain."""


@dataclass(frozen=True, slots=True)
class Instead:
    """A library that an entry of LD_LIBRARY_PATH or LD_PRELOAD puts before another one."""

    soname: str
    path: str
    other: str | None
    """What the loader would take without that entry; None: nothing."""


@dataclass(frozen=True, slots=True)
class Without:
    """What the loader would give without some entries of LD_LIBRARY_PATH or LD_PRELOAD."""

    variable: str
    entries: tuple[str, ...]
    """As they stand in the variable."""
    resolutions: tuple[Resolution, ...]
    """As in LoaderFacts, all of them."""
    import_needs: tuple[Resolution, ...]
    instead: tuple[Instead, ...]
    """What comes through these entries."""

    def resolution(self, soname: str) -> Resolution | None:
        return next((r for r in self.resolutions if r.soname == soname), None)


@dataclass(frozen=True, slots=True)
class LoaderFacts:
    """The loader's answers for everything that this TensorFlow opens, in its order."""

    caller: str | None
    """The object that calls dlopen."""
    runpath_folders: tuple[str, ...]
    """The folders of that object's RUNPATH (or RPATH) that exist, as paths without ".."."""
    library_path: tuple[str, ...]
    """LD_LIBRARY_PATH, taken apart as glibc does."""
    resolutions: tuple[Resolution, ...]
    import_needs: tuple[Resolution, ...]
    """DT_NEEDED of TensorFlow's own objects that could not be satisfied."""
    found: tuple[FoundElsewhere, ...]
    preload: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    plugins: tuple[Resolution, ...] = ()
    """What becomes of TensorFlow's plugins."""
    denied: tuple[Denied, ...] = ()
    """What the loader meets and may not use."""
    without: tuple[Without, ...] = ()
    """Asked where something fails, or the driver's libraries come through these variables: each entry alone, then
    all that bring anything."""

    def resolution(self, soname: str) -> Resolution | None:
        return next((r for r in self.resolutions if r.soname == soname), None)
