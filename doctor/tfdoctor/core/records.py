"""Frozen dataclasses that take little time to define.

The standard library's `@dataclass` compiles six methods for each class, which takes half a millisecond. `check` defines
150 classes, but creates objects of only a few dozen. Here nothing is compiled: all classes share the methods, and
`__init__` is built when the first object is created. Apart from this, the classes are ordinary dataclasses: `fields`,
`replace`, pattern matching and type checkers work. `field` supports only default, default_factory, repr and metadata.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass

__all__ = ["dataclass"]

_define_fields = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)
"""The decorator that defines only the fields and slots of a dataclass."""
_define_keyword_fields = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)
"""The decorator that does the same for keyword-only fields."""


if not TYPE_CHECKING:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Return a decorator like the standard library's `dataclass`, for frozen classes with slots only.

        With `kw_only`, fields with and without a default may be in any order, and type checkers accept only keyword
        arguments. Raise TypeError if `frozen` or `slots` is false.
        """
        if not (frozen and slots):
            raise TypeError("only what is frozen and has slots is made here")
        return partial(_make_record_class, kw_only=kw_only)


def _make_record_class(cls: type, *, kw_only: bool) -> type:
    """Convert a class with annotations to a dataclass."""
    # `_init` becomes `__init__`, and so on.
    for method in (_init, _repr, _eq, _hash, _setattr, _delattr, _getstate, _setstate):
        name = f"__{method.__name__[1:]}__"
        if name not in cls.__dict__:
            setattr(cls, name, method)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # otherwise `dataclasses` would compute the signature as docstring
    return (_define_keyword_fields if kw_only else _define_fields)(cls)


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    """Build the real `__init__` of the class at the first call, and replace this function with it."""
    cls_with_fields: Any = next(cls for cls in type(self).__mro__ if "__dataclass_fields__" in cls.__dict__)
    cls_with_fields.__init__ = initialize = _build_initializer(cls_with_fields)
    initialize(self, *args, **kwargs)


def _build_initializer(cls: Any) -> Callable[..., None]:
    """Return the function that sets the fields of a new object of `cls`."""
    fields = dataclasses.fields(cls)
    names = tuple(field.name for field in fields)
    # The descriptor of a slot bypasses `__setattr__`, which raises an error.
    setters = tuple(getattr(cls, name).__set__ for name in names)
    defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    factories = {
        field.name: field.default_factory
        for field in fields
        if field.default_factory is not dataclasses.MISSING
    }
    field_count = len(names)
    post_init = getattr(cls, "__post_init__", None)

    def list_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the values of all fields in order. Raise TypeError if the arguments do not match the fields."""
        values_by_name = dict(zip(names, args, strict=False))
        unexpected = [name for name in kwargs if name not in names or name in values_by_name]
        values_by_name.update(kwargs)
        missing = [
            name for name in names if not (name in values_by_name or name in defaults or name in factories)
        ]
        if len(args) > field_count or unexpected or missing:
            msg = f"{cls.__qualname__} has the fields {', '.join(names)}; {len(args)} and {sorted(kwargs)} were given"
            raise TypeError(msg)
        return [
            values_by_name[name]
            if name in values_by_name
            else defaults[name]
            if name in defaults
            else factories[name]()
            for name in names
        ]

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        values = args if len(args) == field_count and not kwargs else list_values(args, kwargs)
        for setter, value in zip(setters, values, strict=True):
            setter(self, value)
        if post_init is not None:
            post_init(self)

    return initialize


def _list_field_values(self: Any) -> tuple[Any, ...]:
    """Return the values of all fields in order."""
    return tuple([getattr(self, name) for name in self.__dataclass_fields__])


def _repr(self: Any) -> str:
    field_texts = ", ".join(
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{type(self).__qualname__}({field_texts})"


def _eq(self: Any, other: object) -> bool:
    return (
        _list_field_values(self) == _list_field_values(other)
        if other.__class__ is self.__class__
        else NotImplemented
    )


def _hash(self: Any) -> int:
    return hash(_list_field_values(self))


def _setattr(_self: Any, name: str, _value: object) -> None:
    msg = f"cannot assign to field {name!r}"
    raise dataclasses.FrozenInstanceError(msg)


def _delattr(_self: Any, name: str) -> None:
    msg = f"cannot delete field {name!r}"
    raise dataclasses.FrozenInstanceError(msg)


def _getstate(self: Any) -> tuple[Any, ...]:
    return _list_field_values(self)


def _setstate(self: Any, state: tuple[Any, ...]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)
