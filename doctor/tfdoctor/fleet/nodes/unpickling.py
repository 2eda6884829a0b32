"""A process that unpickles without running code: what a node sends through Dask or Ray is data.

Both libraries pickle what they send, and their own lists of serializers leave gaps: Dask unpickles exceptions, types of
arrays and plug-ins whatever its `deserializers` say.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any, BinaryIO

__all__ = ["restrict_unpickling"]

_NAMES = ("load", "loads", "Unpickler", "_load", "_loads", "_Unpickler")


def restrict_unpickling() -> None:
    """For the rest of this process, make every unpickler return placeholders for classes and functions.

    Call it after the libraries are imported: it replaces the functions in all loaded modules.
    """
    import _pickle

    kinds: list[type] = [pickle.Unpickler, pickle._Unpickler]  # noqa: SLF001
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind not in (pickle.Unpickler, _RestrictedUnpickler):
            kind.find_class = _find_class  # type: ignore[attr-defined]
    replaced = {
        id(getattr(module, name)): name.strip("_")
        for module in (pickle, _pickle)
        for name in _NAMES
        if hasattr(module, name)
    }
    by_name = {"load": _load, "loads": _loads, "Unpickler": _RestrictedUnpickler}
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in replaced and module.__name__ != __name__:
                setattr(module, name, by_name[replaced[id(value)]])


class _Placeholder(Exception):  # noqa: N818 - Dask wants an exception where it expects one
    """What an object of a node becomes; its text is the first that the object was made with."""

    def __init__(self, *arguments: Any, **_options: Any) -> None:
        flat = [part for one in arguments for part in (one if isinstance(one, tuple) else (one,))]
        super().__init__(next((part for part in flat if isinstance(part, str)), "an error of Python"))

    def __call__(self, *_arguments: Any, **_options: Any) -> _Placeholder:
        return self

    def __setstate__(self, _state: Any) -> None:
        pass


def _make_no_traceback(*_arguments: Any) -> None:
    pass


def _make_exception(kind: Any, arguments: Any, *_others: Any) -> _Placeholder:
    return _Placeholder.__call__(kind(*arguments)) if isinstance(kind, type) else _Placeholder()


class _Bytes(bytes):
    """The type of bytes, by which Dask chooses a reader; a pickle cannot make one of any size."""

    def __new__(cls, *_arguments: Any) -> _Bytes:  # noqa: PYI034
        raise pickle.UnpicklingError("a node sent no plain bytes")


def _find_class(_unpickler: Any, module: str, name: str) -> Any:
    if name == "unpickle_traceback":
        return _make_no_traceback
    if name.startswith("unpickle_exception"):
        return _make_exception
    if (module, name) == ("builtins", "bytes"):
        return _Bytes
    return type("".join(filter(str.isalnum, name))[:60], (_Placeholder,), {})


class _RestrictedUnpickler(pickle.Unpickler):
    find_class = _find_class


def _load(file: BinaryIO, **options: Any) -> Any:
    return _RestrictedUnpickler(file, **options).load()


def _loads(data: bytes, /, **options: Any) -> Any:
    return _RestrictedUnpickler(io.BytesIO(data), **options).load()
