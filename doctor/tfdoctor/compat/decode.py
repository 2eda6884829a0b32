"""Read the tables in `compat/` strictly. Dataclasses are the schemas of a table and of its rows.

    table = read(CudaTable, folder / "cuda.toml")

Modules that define schemas must not use `from __future__ import annotations`, because the annotations are read here
and must not be strings.

The fields define the keys of a row and their types. A field with a default may be omitted. A field that can be None may
be null. An unknown or missing key or a value of another type is an error with its location and, if possible, a
suggestion: "compat/cuda.toml: release 12.9: unknown key `cudann`, did you mean `cudnn`?"

The metadata of a field may contain `key`, its name in the file (None: it is not in the file), and `noun`, the word for
its rows in messages. An annotation with `Converted` reads a value of one type, and converts it with a function. `NAMED`
lists the keys that identify a row of a class. `__post_init__` of a class checks combinations of fields. If a converting
function or `__post_init__` raises a ValueError, it becomes a DataError with the location of the row.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from tfdoctor.core import toml
from tfdoctor.core.versions import parse_capability, satisfies

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
    "format_suggestion",
    "read_raw",
    "read_table",
]

T = TypeVar("T")
Reader = Any
"""A function `(value, key, location)` that returns the decoded value or raises DataError.

Error messages begin with `location`, such as `"compat/cuda.toml: release 12.9"`.
"""
_STR_ONLY = {str}
"""The set of types in a list or table that contains only texts."""


class DataError(ValueError):
    """An invalid table in compat/. The message gives the location and what was expected there."""


class Converted(NamedTuple):
    """Annotation for a value of type `kind` that `convert` converts, or rejects with a ValueError."""

    kind: Any
    convert: Callable[[Any], Any]


def _validate_capability(text: str) -> str:
    parse_capability(text)
    return text


def _validate_release_set(text: str) -> str:
    satisfies("1.0", text)
    return text


def _validate_sources(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sources of a row. Raise ValueError if there are none."""
    if not texts:
        msg = "is empty: every row says where it is from"
        raise ValueError(msg)
    return texts


Capability = Annotated[str, Converted(str, _validate_capability)]
"""Compute capability, such as `"8.6"`."""
ReleaseSet = Annotated[str, Converted(str, _validate_release_set)]
"""PEP 440 specifier set, such as `">=2.10,<2.13"`."""
Evidence = Literal["measured", "documented", "inferred"]
"""measured: read from files or from a run; documented: stated by the maker; inferred: taken from a similar row."""
Sources = Annotated[tuple[str, ...], Converted(tuple[str, ...], _validate_sources)]
"""Sources of a row; never empty."""


def format_suggestion(word: str, known: Iterable[str]) -> str:
    """Return a suggestion such as `", did you mean `cudnn`?"`; empty if no known word is similar."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean `{close[0]}`?" if close else ""


def read_table(
    kind: type[T],
    path: Path,
    prepare: Callable[[dict[str, Any], str], None] | None = None,
    *,
    within: str = "",
) -> T:
    """Read a file as a table of the dataclass `kind`.

    `prepare` may change the raw data before they are checked, and may raise DataError. `within` is the file's folder
    below compat/, such as `"locks/"`, for messages. Raise DataError if the data are invalid, the file is not TOML or
    JSON, or its `schema_version` is not 1.
    """
    location = f"compat/{within}{path.name}"
    raw = read_raw(path, location)
    version = _decode_integer(raw.pop("schema_version", None), "schema_version", location)
    if version != 1:
        msg = f"{location}: schema_version is {version}; this tfdoctor reads 1"
        raise DataError(msg)
    if prepare is not None:
        prepare(raw, location)
    return decode(kind, raw, location)


def read_raw(path: Path, location: str) -> dict[str, Any]:
    """Return the unchecked top-level table of a TOML or JSON file.

    Raise DataError if the file is invalid or does not contain a table.
    """
    try:
        text = path.read_text(encoding="utf-8")
        raw: Any = json.loads(text) if path.suffix == ".json" else toml.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{location}: not {path.suffix[1:].upper()}: {error}"
        raise DataError(msg) from error
    if type(raw) is not dict:
        msg = f"{location}: a table was expected, not {_name_type(raw)}"
        raise DataError(msg)
    return raw


def decode(kind: type[T], raw: object, location: str) -> T:
    """Convert a raw table to the dataclass `kind`. Raise DataError with `location` if it is invalid."""
    if type(raw) is not dict:
        msg = f"{location}: a table was expected, not {_name_type(raw)}"
        raise DataError(msg)
    constructor: Any = kind
    values = []
    used_keys = 0
    for key, reader, default in _plan_fields(constructor):
        if key in raw:
            values.append(reader(raw[key], key, location))
            used_keys += 1
        elif default is None:
            raise _make_key_error(kind, raw, location)
        else:
            values.append(default())
    if used_keys != len(raw):
        raise _make_key_error(kind, raw, location)
    try:
        decoded: T = constructor(*values)
    except ValueError as error:
        msg = f"{location}: {error}"
        raise DataError(msg) from error
    return decoded


@cache
def _plan_fields(kind: Any) -> tuple[tuple[str | None, Reader, Callable[[], Any] | None], ...]:
    """Return (key, reader, default factory) of each field.

    The key is None if the field is not in the file, and the default factory is None if the field is required.
    """
    plan: list[tuple[str | None, Reader, Callable[[], Any] | None]] = []
    for field in fields(kind):
        key = field.metadata.get("key", field.name)
        default: Callable[[], Any] | None = None
        if field.default_factory is not MISSING:
            default = field.default_factory
        elif field.default is not MISSING:
            default = partial(_return_value, field.default)
        required = default is None
        reader = (
            _get_reader(field.type, field.metadata.get("noun", key), required=required)
            if key is not None
            else None
        )
        plan.append((key, reader, default))
    return tuple(plan)


def _return_value(value: Any) -> Any:
    return value


def _make_key_error(kind: type, raw: dict[str, Any], location: str) -> DataError:
    """Return the error for a table with an unknown or missing key."""
    plan = _plan_fields(kind)
    keys = [key for key, _, _ in plan if key is not None]
    missing = [key for key, _, default in plan if key is not None and default is None and key not in raw]
    for key in raw:
        if key not in keys:
            suggestion = format_suggestion(key, missing) or format_suggestion(
                key, [known_key for known_key in keys if known_key not in raw]
            )
            if suggestion or not missing:
                return DataError(
                    f"{location}: unknown key `{key}`{suggestion or format_suggestion(key, keys)}"
                )
    return DataError(f"{location}: `{missing[0]}` is missing")


# ---------------------------------------------------------------- readers of each type


def _make_type_error(value: object, expected: str, key: str, location: str) -> DataError:
    return DataError(f"{location}: `{key}` must be {expected}, not {_name_type(value)}")


def _name_type(value: object) -> str:
    names = {dict: "a table", list: "a list", str: "text", bool: "true or false", int: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _decode_text(value: Any, key: str, location: str) -> str:
    if type(value) is not str:
        raise _make_type_error(value, "text", key, location)
    if not value:
        msg = f"{location}: `{key}` is empty"
        raise DataError(msg)
    return value


def _decode_flag(value: Any, key: str, location: str) -> bool:
    if type(value) is not bool:
        raise _make_type_error(value, "true or false", key, location)
    return value


def _decode_integer(value: Any, key: str, location: str) -> int:
    # `isinstance` would accept true and false.
    if type(value) is not int or value < 0:
        raise _make_type_error(value, "a whole number", key, location)
    return value


def _decode_texts(value: Any, key: str, location: str) -> tuple[str, ...]:
    if type(value) is tuple:  # `as_texts` has converted it already
        return value
    if type(value) is not list:
        raise _make_type_error(value, "a list of texts", key, location)
    if not {*map(type, value)} <= _STR_ONLY:
        invalid = next(item for item in value if type(item) is not str)
        msg = f"{location}: `{key}` must be a list of texts, and has {_name_type(invalid)}"
        raise DataError(msg)
    return tuple(value)


def as_texts(value: Any) -> Any:
    """Return a list of texts as a tuple, and any other value unchanged.

    A `prepare` function that copies a list into many rows calls this, so that it is converted only once.
    """
    return tuple(value) if type(value) is list and {*map(type, value)} <= _STR_ONLY else value


def _decode_text_table(value: Any, key: str, location: str) -> dict[str, str]:
    if type(value) is not dict:
        raise _make_type_error(value, "a table of texts", key, location)
    if not {*map(type, value.values())} <= _STR_ONLY:
        name, invalid = next((name, item) for name, item in value.items() if type(item) is not str)
        msg = f"{location}: `{key}` must be a table of texts, and `{name}` is {_name_type(invalid)}"
        raise DataError(msg)
    return value


_SIMPLE_READERS: dict[Any, Reader] = {
    str: _decode_text,
    bool: _decode_flag,
    int: _decode_integer,
    tuple[str, ...]: _decode_texts,
    Mapping[str, str]: _decode_text_table,
}


def _get_reader(kind: Any, noun: str = "", *, required: bool = False) -> Reader:
    """Return the reader for an annotation. Raise TypeError if the type is not supported."""
    if kind in _SIMPLE_READERS:
        return _SIMPLE_READERS[kind]
    if is_dataclass(kind):
        return partial(_decode_table, kind)
    origin, type_arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        converted = next(extra for extra in type_arguments[1:] if isinstance(extra, Converted))
        return partial(_convert_value, _get_reader(converted.kind), converted.convert)
    if origin is Literal:
        return partial(_decode_choice, type_arguments)
    if origin in (Union, types.UnionType) and len(type_arguments) == 2 and type_arguments[1] is type(None):
        return partial(_decode_optional, _get_reader(type_arguments[0]))
    if origin is tuple and is_dataclass(type_arguments[0]):
        return partial(_decode_rows, type_arguments[0], noun, is_required=required)
    if origin in (tuple, frozenset):
        return partial(_decode_list, origin, _get_reader(type_arguments[0]))
    if origin is Mapping and type_arguments[0] is str:
        return partial(
            _decode_mapping, _get_reader(type_arguments[1]), nested=is_dataclass(type_arguments[1])
        )
    msg = f"no reader for {kind!r}" + (
        ": without `from __future__ import annotations`" if type(kind) is str else ""
    )
    raise TypeError(msg)


def _decode_table(kind: Any, value: Any, key: str, location: str) -> Any:
    return decode(kind, value, f"{location}: {key}")


def _convert_value(reader: Reader, convert: Callable[[Any], Any], value: Any, key: str, location: str) -> Any:
    """Read a value and convert it. A ValueError of `convert` becomes a DataError."""
    decoded = reader(value, key, location)
    try:
        return convert(decoded)
    except ValueError as error:
        reason = str(error)
        msg = (
            f"{location}: `{key}` {reason}"
            if reason.startswith(("is ", "must "))
            else f"{location}: `{key}`: {reason}"
        )
        raise DataError(msg) from error


def _decode_choice(allowed: tuple[str, ...], value: Any, key: str, location: str) -> str:
    text = _decode_text(value, key, location)
    if text not in allowed:
        msg = f"{location}: `{key}` is `{text}`; it can be {', '.join(allowed)}{format_suggestion(text, allowed)}"
        raise DataError(msg)
    return text


def _decode_optional(reader: Reader, value: Any, key: str, location: str) -> Any:
    return None if value is None else reader(value, key, location)


def _decode_list(origin: Any, reader: Reader, value: Any, key: str, location: str) -> Any:
    if type(value) is not list:
        raise _make_type_error(value, "a list", key, location)
    return origin(reader(item, key, location) for item in value)


def _decode_mapping(reader: Reader, value: Any, key: str, location: str, *, nested: bool) -> dict[str, Any]:
    if type(value) is not dict:
        raise _make_type_error(value, "a table", key, location)
    item_location = location if nested else f"{location}: {key}"
    return {name: reader(item, name, item_location) for name, item in value.items()}


def _decode_rows(
    kind: Any, noun: str, value: Any, key: str, location: str, *, is_required: bool
) -> tuple[Any, ...]:
    """Decode a list of tables. Messages identify a row by `noun` and the values of its `NAMED` keys.

    Raise DataError if two rows have the same values of these keys.
    """
    if type(value) is not list:
        raise _make_type_error(value, "a list of tables", key, location)
    if is_required and not value:
        msg = f"{location}: `{key}` has no rows"
        raise DataError(msg)
    key_names: tuple[str, ...] = kind.NAMED
    rows: dict[str, Any] = {}
    for number, raw in enumerate(value, 1):
        label = " ".join(str(raw[name]) for name in key_names if name in raw) if type(raw) is dict else ""
        row_location = f"{location}: {noun} {label or number}"
        row = decode(kind, raw, row_location)
        if row_location in rows:
            msg = f"{row_location}: it is there twice"
            raise DataError(msg)
        rows[row_location] = row
    return tuple(rows.values())
