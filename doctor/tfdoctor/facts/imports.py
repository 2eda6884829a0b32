"""What was seen of the packages that TensorFlow imports: part of `facts`, in a module of its own."""

from __future__ import annotations

from tfdoctor.records import dataclass


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A module's file that is not as its distribution's RECORD says."""

    path: str
    """Below the distribution's location."""
    what: str
    """"missing", "empty", "cut" (shorter), "changed" (longer, or other text), "altered" (as long, other content),
    "syntax" (no Python), "unreadable"."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """A module that is found in two places."""

    name: str
    """Its top-level name: "numpy", "random"."""
    taken: str
    """The file or folder that Python takes: the first on its path, the working folder before all."""
    hidden: str
    """The folder that has it, too."""


@dataclass(frozen=True, slots=True)
class Oddity:
    """Why the import of something is rehearsed."""

    module: str
    """The distribution, or the module, that is not as it is known to work."""
    why: str


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What came of importing one module."""

    name: str
    error: str = ""
    """The error's text; empty where it was imported, and every attribute taken."""
    error_type: str = ""
    """"ImportError", "ValueError"…; "crash" where the process ended."""
    import_error: bool = False
    """Whether it is an ImportError (ModuleNotFoundError, too)."""
    attribute_error: bool = False
    not_found: str = ""
    """The module that a ModuleNotFoundError names."""
    file: str = ""
    """What was imported under this name."""
    top: str = ""
    """What was imported under the first part of this name."""
    frames: tuple[str, ...] = ()
    """The files that the error came through; the last one raised it."""
    root: str = ""
    """The text of the first error, where this one was raised in its place."""

    @property
    def ok(self) -> bool:
        return not self.error_type


@dataclass(frozen=True, slots=True)
class RehearsalFacts:
    """A child's import of what TensorFlow imports of others (payload/rehearse.py)."""

    oddities: tuple[Oddity, ...]
    modules: tuple[Rehearsed, ...]
    source: Rehearsed | None = None
    """A generated protobuf source of TensorFlow's or Keras's, executed by itself: the first that fails, or the last."""
    keras: tuple[Rehearsed, ...] = ()
    """Modules of Keras, imported with something in the place of TensorFlow."""
    complete: bool = True
    """False: the child ended, or was ended, before it came to the last one."""
