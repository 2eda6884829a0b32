"""Dataclasses for the facts about the packages that TensorFlow imports."""

from __future__ import annotations

from tfdoctor.core.records import dataclass


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A module file that differs from its distribution's RECORD."""

    path: str
    """The path relative to the distribution's location."""
    what: str
    """The difference: "missing", "empty", "cut" (shorter), "changed" (other content that may work), "altered" (other
    content of the same size; of TensorFlow only objects that are none of this machine), "syntax" (not valid Python),
    "unreadable", "numpy-1" (as installed, but compiled for NumPy 1, and NumPy 2 is installed) or "other-python" (as
    installed, but compiled for another Python, and nothing of the distribution for this one)."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """A module that exists in two folders of sys.path."""

    name: str
    """Its top-level name, such as "numpy" or "random"."""
    taken: str
    """The file or folder that Python imports."""
    hidden: str
    """The other folder that contains the module."""


@dataclass(frozen=True, slots=True)
class RehearsalReason:
    """A reason to rehearse the import of TensorFlow."""

    module: str
    """The distribution or module that differs from what is known to work."""
    why: str
    """The difference, as text for the user."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of importing a module."""

    name: str
    error: str = ""
    """The text of the error; empty if the module and all its attributes could be imported."""
    error_type: str = ""
    """The type of the error, such as "ImportError"; "crash" if the process ended; empty if there was no error."""
    import_error: bool = False
    """Whether the error is an ImportError or a ModuleNotFoundError."""
    attribute_error: bool = False
    """Whether the error is an AttributeError."""
    not_found: str = ""
    """The module that a ModuleNotFoundError names; empty for other errors."""
    file: str = ""
    """The file of the module that was imported under this name."""
    top: str = ""
    """The file of the module that was imported under the first part of this name."""
    frames: tuple[str, ...] = ()
    """The files in the traceback; the last one raised the error."""
    root: str = ""
    """The text of the original error, if another one was raised in its place; else empty."""

    @property
    def ok(self) -> bool:
        """Whether the import succeeded."""
        return not self.error_type


@dataclass(frozen=True, slots=True)
class RehearsalFacts:
    """The results of importing TensorFlow's requirements in a child process (payload/rehearse.py)."""

    oddities: tuple[RehearsalReason, ...]
    """The reasons for the rehearsal."""
    modules: tuple[ImportResult, ...]
    """The results for the modules that TensorFlow imports."""
    source: ImportResult | None = None
    """The first failure, or else the last result, of executing the generated protobuf sources of TensorFlow and Keras."""
    keras: tuple[ImportResult, ...] = ()
    """The results for modules of Keras, which are imported with a replacement for TensorFlow."""
    complete: bool = True
    """Whether the child process reached the last import; False if it ended or was stopped before that."""
