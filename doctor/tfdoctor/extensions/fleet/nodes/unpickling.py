"""Unpickle without running code, because data from the nodes of Dask and Ray are untrusted.

Both libraries send pickles, and their own restrictions have gaps: Dask unpickles exceptions, array types and plug-ins
no matter which `deserializers` it has.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any, BinaryIO

__all__ = ["restrict_unpickling"]

_UNPICKLER_NAMES = ("load", "loads", "Unpickler", "_load", "_loads", "_Unpickler")
"""The names of the unpicklers in `pickle` and `_pickle`, which are replaced in all modules."""


def restrict_unpickling() -> None:
    """Make every unpickler of this process return placeholders instead of classes and functions.

    Call it after the libraries are imported, because it replaces the functions in all loaded modules.
    """
    import _pickle

    unpicklers: list[type] = [pickle.Unpickler, pickle._Unpickler]  # noqa: SLF001
    for unpickler in unpicklers:  # the list grows until it contains all subclasses
        unpicklers += unpickler.__subclasses__()
        if unpickler not in (pickle.Unpickler, _RestrictedUnpickler):
            unpickler.find_class = _find_class  # type: ignore[attr-defined]
    replacement_names = {
        id(getattr(module, name)): name.strip("_")
        for module in (pickle, _pickle)
        for name in _UNPICKLER_NAMES
        if hasattr(module, name)
    }
    replacements = {"load": _load, "loads": _loads, "Unpickler": _RestrictedUnpickler}
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in replacement_names and module.__name__ != __name__:
                setattr(module, name, replacements[replacement_names[id(value)]])


class _Placeholder(Exception):  # noqa: N818 - Dask requires an exception in some places
    """A placeholder for an object from a node. Its message is the first string in the object's arguments."""

    def __init__(self, *arguments: Any, **_options: Any) -> None:
        parts = [
            part
            for argument in arguments
            for part in (argument if isinstance(argument, tuple) else (argument,))
        ]
        super().__init__(next((part for part in parts if isinstance(part, str)), "an error of Python"))

    def __call__(self, *_arguments: Any, **_options: Any) -> _Placeholder:
        return self

    def __setstate__(self, _state: Any) -> None:
        pass


def _drop_traceback(*_arguments: Any) -> None:
    """Replace a pickled traceback with None."""


def _make_exception(cls: Any, arguments: Any, *_others: Any) -> _Placeholder:
    """Replace a pickled exception with a placeholder that has its message."""
    return _Placeholder.__call__(cls(*arguments)) if isinstance(cls, type) else _Placeholder()


class _RefusedBytes(bytes):
    """A replacement for the type `bytes`, which Dask uses to select a reader.

    Creating an instance raises UnpicklingError, because a pickle could request any size.
    """

    def __new__(cls, *_arguments: Any) -> _RefusedBytes:  # noqa: PYI034
        raise pickle.UnpicklingError("a node sent no plain bytes")


def _find_class(_unpickler: Any, module: str, name: str) -> Any:
    """Return a harmless replacement for the class or function that a pickle names."""
    if name == "unpickle_traceback":
        return _drop_traceback
    if name.startswith("unpickle_exception"):
        return _make_exception
    if (module, name) == ("builtins", "bytes"):
        return _RefusedBytes
    return type("".join(filter(str.isalnum, name))[:60], (_Placeholder,), {})


class _RestrictedUnpickler(pickle.Unpickler):
    find_class = _find_class


def _load(file: BinaryIO, **options: Any) -> Any:
    return _RestrictedUnpickler(file, **options).load()


def _loads(data: bytes, /, **options: Any) -> Any:
    return _RestrictedUnpickler(io.BytesIO(data), **options).load()
