"""The strict reader of every table in `compat/`: a dataclass is the schema of its rows.

    table = read(CudaTable, folder / "cuda.toml")

Its module does without `from __future__ import annotations`: they are read here, and must not be texts.
The fields say what a row must have and of which kind; a field with a default may be left out, one that can be
None may be left out or null. Whatever else is there, is missing, or is of another kind is refused with its
place and the likely meaning: "compat/cuda.toml: release 12.9: unknown key `cudann`, did you mean `cudnn`?"

A field tells the reader more in its metadata: `key`, its name in the file (None: it is not in the file), and
`noun`, what messages call a row of it. `Made(kind, by)` in an annotation reads another kind and makes the value
from it. A row's class names the keys that tell it from the others (`NAMED`); what only several fields together
can violate is checked in its `__post_init__`. A ValueError of either is told with the row's place.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from tfdoctor.parse import toml
from tfdoctor.versions import parse_capability, satisfies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = [
    "Capability",
    "Converted",
    "DataError",
    "Evidence",
    "ReleaseSet",
    "Sources",
    "as_texts",
    "decode",
    "did_you_mean",
    "read",
    "read_raw",
]

T = TypeVar("T")
Reader = Any
"""`(value, key, where) → the value decoded`; raises DataError. `where` begins every message."""


class DataError(ValueError):
    """A table in compat/ is not as it must be; the message says where and what was expected."""


class Converted(NamedTuple):
    """In an annotation: what the file has is of kind `kind`, and `by` makes the value of it (or raises ValueError)."""

    kind: Any
    by: Callable[[Any], Any]


def _capability(text: str) -> str:
    parse_capability(text)
    return text


def _release_set(text: str) -> str:
    satisfies("1.0", text)
    return text


def _sources(texts: tuple[str, ...]) -> tuple[str, ...]:
    if not texts:
        msg = "is empty: every row says where it is from"
        raise ValueError(msg)
    return texts


Capability = Annotated[str, Converted(str, _capability)]
"""A compute capability: `"8.6"`."""
ReleaseSet = Annotated[str, Converted(str, _release_set)]
"""A PEP 440 set: `">=2.10,<2.13"`."""
Evidence = Literal["measured", "documented", "inferred"]
"""Read from the artefact or run; written by its maker; taken over from a neighbouring row."""
Sources = Annotated[tuple[str, ...], Converted(tuple[str, ...], _sources)]
"""Where a row is from; never empty."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `", did you mean `cudnn`?"`, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean `{close[0]}`?" if close else ""


def read(
    kind: type[T],
    path: Path,
    prepare: Callable[[dict[str, Any], str], None] | None = None,
    *,
    within: str = "",
) -> T:
    """Return a file's table as a `kind`.

    `prepare` may rewrite what was read before it is checked (raising DataError); `within`: the file's folder below
    compat/, `"locks/"`.

    Raises DataError, also if the file is not TOML or JSON, or of another `schema_version` than 1.
    """
    where = f"compat/{within}{path.name}"
    raw = read_raw(path, where)
    version = _whole(raw.pop("schema_version", None), "schema_version", where)
    if version != 1:
        msg = f"{where}: schema_version is {version}; this tfdoctor reads 1"
        raise DataError(msg)
    if prepare is not None:
        prepare(raw, where)
    return decode(kind, raw, where)


def read_raw(path: Path, where: str) -> dict[str, Any]:
    """Return the top table of a TOML or JSON file, by its name, unchecked. Raises DataError if it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        raw: Any = json.loads(text) if path.suffix == ".json" else toml.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{where}: not {path.suffix[1:].upper()}: {error}"
        raise DataError(msg) from error
    if type(raw) is not dict:
        msg = f"{where}: a table was expected, not {_kind(raw)}"
        raise DataError(msg)
    return raw


def decode(kind: type[T], raw: object, where: str) -> T:
    """Return a table as a `kind`, strictly. `where` begins every message. Raises DataError."""
    if type(raw) is not dict:
        msg = f"{where}: a table was expected, not {_kind(raw)}"
        raise DataError(msg)
    make: Any = kind
    values = []
    found = 0
    for key, reader, default in _plan(make):
        if key in raw:
            values.append(reader(raw[key], key, where))
            found += 1
        elif default is None:
            raise _unfit(kind, raw, where)
        else:
            values.append(default())
    if found != len(raw):
        raise _unfit(kind, raw, where)
    try:
        made: T = make(*values)
    except ValueError as error:
        msg = f"{where}: {error}"
        raise DataError(msg) from error
    return made


@cache
def _plan(kind: Any) -> tuple[tuple[str | None, Reader, Callable[[], Any] | None], ...]:
    """Of each field, in order: its key in the file (None: it is not there), its reader, and what makes its default."""
    plan: list[tuple[str | None, Reader, Callable[[], Any] | None]] = []
    for field in fields(kind):
        key = field.metadata.get("key", field.name)
        default: Callable[[], Any] | None = None
        if field.default_factory is not MISSING:
            default = field.default_factory
        elif field.default is not MISSING:
            default = partial(_keep_value, field.default)
        needed = default is None
        reader = (
            _reader(field.type, field.metadata.get("noun", key), needed=needed) if key is not None else None
        )
        plan.append((key, reader, default))
    return tuple(plan)


def _keep_value(value: Any) -> Any:
    return value


def _unfit(kind: type, raw: dict[str, Any], where: str) -> DataError:
    """Return what is wrong with the keys of a table: one too many, or one too few."""
    plan = _plan(kind)
    keys = [key for key, _, _ in plan if key is not None]
    missing = [key for key, _, default in plan if key is not None and default is None and key not in raw]
    for key in raw:
        if key not in keys:
            meant = did_you_mean(key, missing) or did_you_mean(key, [k for k in keys if k not in raw])
            if meant or not missing:
                return DataError(f"{where}: unknown key `{key}`{meant or did_you_mean(key, keys)}")
    return DataError(f"{where}: `{missing[0]}` is missing")


# ---------------------------------------------------------------- one reader a kind


def _wrong(value: object, expected: str, key: str, where: str) -> DataError:
    return DataError(f"{where}: `{key}` must be {expected}, not {_kind(value)}")


def _kind(value: object) -> str:
    names = {dict: "a table", list: "a list", str: "text", bool: "true or false", int: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


_STR = {str}


def _text(value: Any, key: str, where: str) -> str:
    if type(value) is not str:
        raise _wrong(value, "text", key, where)
    if not value:
        msg = f"{where}: `{key}` is empty"
        raise DataError(msg)
    return value


def _flag(value: Any, key: str, where: str) -> bool:
    if type(value) is not bool:
        raise _wrong(value, "true or false", key, where)
    return value


def _whole(value: Any, key: str, where: str) -> int:
    if type(value) is not int or value < 0:
        raise _wrong(value, "a whole number", key, where)
    return value


def _texts(value: Any, key: str, where: str) -> tuple[str, ...]:
    if type(value) is tuple:  # no file has one: `as_texts` made it for many rows
        return value
    if type(value) is not list:
        raise _wrong(value, "a list of texts", key, where)
    if not {*map(type, value)} <= _STR:
        odd = next(item for item in value if type(item) is not str)
        msg = f"{where}: `{key}` must be a list of texts, and has {_kind(odd)}"
        raise DataError(msg)
    return tuple(value)


def as_texts(value: Any) -> Any:
    """For a `prepare` that puts one value into many rows: a list of texts as it will be decoded, else the value."""
    return tuple(value) if type(value) is list and {*map(type, value)} <= _STR else value


def _pairs(value: Any, key: str, where: str) -> dict[str, str]:
    if type(value) is not dict:
        raise _wrong(value, "a table of texts", key, where)
    if not {*map(type, value.values())} <= _STR:
        name, odd = next((name, item) for name, item in value.items() if type(item) is not str)
        msg = f"{where}: `{key}` must be a table of texts, and `{name}` is {_kind(odd)}"
        raise DataError(msg)
    return value


_SIMPLE: dict[Any, Reader] = {
    str: _text,
    bool: _flag,
    int: _whole,
    tuple[str, ...]: _texts,
    Mapping[str, str]: _pairs,
}


def _reader(kind: Any, noun: str = "", *, needed: bool = False) -> Reader:
    """Return the reader of an annotation. Raises TypeError for a kind that no table has had yet."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if is_dataclass(kind):
        return partial(_decode_table, kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        made = next(extra for extra in inner[1:] if isinstance(extra, Converted))
        return partial(_convert_value, _reader(made.kind), made.by)
    if origin is Literal:
        return partial(_choice, inner)
    if origin in (Union, types.UnionType) and len(inner) == 2 and inner[1] is type(None):
        return partial(_optional, _reader(inner[0]))
    if origin is tuple and is_dataclass(inner[0]):
        return partial(_rows, inner[0], noun, needed=needed)
    if origin in (tuple, frozenset):
        return partial(_list, origin, _reader(inner[0]))
    if origin is Mapping and inner[0] is str:
        return partial(_table, _reader(inner[1]), nested=is_dataclass(inner[1]))
    msg = f"no reader for {kind!r}" + (
        ": without `from __future__ import annotations`" if type(kind) is str else ""
    )
    raise TypeError(msg)


def _decode_table(kind: Any, value: Any, key: str, where: str) -> Any:
    return decode(kind, value, f"{where}: {key}")


def _convert_value(reader: Reader, by: Callable[[Any], Any], value: Any, key: str, where: str) -> Any:
    found = reader(value, key, where)
    try:
        return by(found)
    except ValueError as error:
        told = str(error)
        msg = f"{where}: `{key}` {told}" if told.startswith(("is ", "must ")) else f"{where}: `{key}`: {told}"
        raise DataError(msg) from error


def _choice(allowed: tuple[str, ...], value: Any, key: str, where: str) -> str:
    text = _text(value, key, where)
    if text not in allowed:
        msg = f"{where}: `{key}` is `{text}`; it can be {', '.join(allowed)}{did_you_mean(text, allowed)}"
        raise DataError(msg)
    return text


def _optional(reader: Reader, value: Any, key: str, where: str) -> Any:
    return None if value is None else reader(value, key, where)


def _list(origin: Any, reader: Reader, value: Any, key: str, where: str) -> Any:
    if type(value) is not list:
        raise _wrong(value, "a list", key, where)
    return origin(reader(item, key, where) for item in value)


def _table(reader: Reader, value: Any, key: str, where: str, *, nested: bool) -> dict[str, Any]:
    if type(value) is not dict:
        raise _wrong(value, "a table", key, where)
    inside = where if nested else f"{where}: {key}"
    return {name: reader(item, name, inside) for name, item in value.items()}


def _rows(kind: Any, noun: str, value: Any, key: str, where: str, *, needed: bool) -> tuple[Any, ...]:
    """Return a list of tables; `noun` and the row's own names tell in messages which one is meant.

    None is there twice.
    """
    if type(value) is not list:
        raise _wrong(value, "a list of tables", key, where)
    if needed and not value:
        msg = f"{where}: `{key}` has no rows"
        raise DataError(msg)
    named: tuple[str, ...] = kind.NAMED
    rows: dict[str, Any] = {}
    for number, raw in enumerate(value, 1):
        label = " ".join(str(raw[name]) for name in named if name in raw) if type(raw) is dict else ""
        place = f"{where}: {noun} {label or number}"
        row = decode(kind, raw, place)
        if place in rows:
            msg = f"{place}: it is there twice"
            raise DataError(msg)
        rows[place] = row
    return tuple(rows.values())
