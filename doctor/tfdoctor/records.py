"""Frozen dataclasses that cost little until they are used.

The standard library's `@dataclass` compiles six methods for each class, half a millisecond together, and `check` loads
a hundred and fifty classes to make objects of some dozens. Here nothing is compiled: the methods are shared, and what
`__init__` has to know is put together when the first object is made. Everybody else finds a dataclass: `fields`,
`replace`, patterns, type checkers. Of `field` they take default, default_factory and repr.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass

__all__ = ["dataclass"]

_FIELDS = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)
_NAMED_FIELDS = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)


if not TYPE_CHECKING:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Create a dataclass decorator like the standard library's, with these two options.

        Raises TypeError if one of them is not true. `kw_only` lets fields with and without a default
        stand in any order; type checkers then accept only keyword arguments.
        """
        if not (frozen and slots):
            raise TypeError("only what is frozen and has slots is made here")
        return partial(_record, kw_only=kw_only)


def _record(cls: type, *, kw_only: bool) -> type:
    """Create the dataclass of a class with annotations."""
    for method in (_init, _repr, _eq, _hash, _setattr, _delattr, _getstate, _setstate):
        name = f"__{method.__name__[1:]}__"
        if name not in cls.__dict__:
            setattr(cls, name, method)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else a signature is worked out for it
    return (_NAMED_FIELDS if kw_only else _FIELDS)(cls)


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    """Set up `__init__` at the first call, when the fields are known, and replace this function by it."""
    owner: Any = next(cls for cls in type(self).__mro__ if "__dataclass_fields__" in cls.__dict__)
    owner.__init__ = initialise = _initialiser(owner)
    initialise(self, *args, **kwargs)


def _initialiser(cls: Any) -> Callable[..., None]:
    """Return the function that gives each field of an object of `cls` its value."""
    fields = dataclasses.fields(cls)
    names = tuple(field.name for field in fields)
    put = tuple(getattr(cls, name).__set__ for name in names)  # the slots
    defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    made = {
        field.name: field.default_factory
        for field in fields
        if field.default_factory is not dataclasses.MISSING
    }
    every = len(names)
    after = getattr(cls, "__post_init__", None)

    def complete(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        given = dict(zip(names, args, strict=False))
        wrong = [name for name in kwargs if name not in names or name in given]
        given.update(kwargs)
        lacking = [name for name in names if not (name in given or name in defaults or name in made)]
        if len(args) > every or wrong or lacking:
            msg = f"{cls.__qualname__} has the fields {', '.join(names)}; {len(args)} and {sorted(kwargs)} were given"
            raise TypeError(msg)
        return [
            given[name] if name in given else defaults[name] if name in defaults else made[name]()
            for name in names
        ]

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        values = args if len(args) == every and not kwargs else complete(args, kwargs)
        for setter, value in zip(put, values, strict=True):
            setter(self, value)
        if after is not None:
            after(self)

    return initialise


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__dataclass_fields__])


def _repr(self: Any) -> str:
    shown = ", ".join(
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _setattr(_self: Any, name: str, _value: object) -> None:
    msg = f"cannot assign to field {name!r}"
    raise dataclasses.FrozenInstanceError(msg)


def _delattr(_self: Any, name: str) -> None:
    msg = f"cannot delete field {name!r}"
    raise dataclasses.FrozenInstanceError(msg)


def _getstate(self: Any) -> tuple[Any, ...]:
    return _values(self)


def _setstate(self: Any, state: tuple[Any, ...]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)
