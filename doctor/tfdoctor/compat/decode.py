"""Strict reader of all tables in `compat/`. A dataclass is the schema of a table's rows.

    table = read(CudaTable, folder / "cuda.toml")

Modules that define schemas must not use `from __future__ import annotations`, because the annotations are read here
and must not be strings.

The fields define the keys of a row and their types. A field with a default may be left out; one that can be None may
be left out or null. Anything unexpected, missing or of another type is refused with its location and, if possible, a suggestion:
"compat/cuda.toml: release 12.9: unknown key `cudann`, did you mean `cudnn`?"

The metadata of a field may have `key`, its name in the file (None: it is not in the file), and `noun`, the word for
its rows in messages. `Converted(kind, by)` in an annotation reads the type `kind` and converts the value with `by`.
The class of a row names the keys that identify it (`NAMED`) and checks combinations of fields in its `__post_init__`.
A ValueError from either is reported with the location of the row.
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
"""Function `(value, key, where)` that returns the decoded value or raises DataError.

`where` is the location of the value, with which every message begins.
"""


class DataError(ValueError):
    """Error for an invalid table in compat/. The message gives the location and what was expected there."""


class Converted(NamedTuple):
    """Annotation for a value that is a `kind` in the file.

    `by` converts it, and raises ValueError if it is invalid.
    """

    kind: Any
    by: Callable[[Any], Any]


def _check_capability(text: str) -> str:
    parse_capability(text)
    return text


def _check_release_set(text: str) -> str:
    satisfies("1.0", text)
    return text


def _check_sources(texts: tuple[str, ...]) -> tuple[str, ...]:
    if not texts:
        msg = "is empty: every row says where it is from"
        raise ValueError(msg)
    return texts


Capability = Annotated[str, Converted(str, _check_capability)]
"""Compute capability, such as `"8.6"`."""
ReleaseSet = Annotated[str, Converted(str, _check_release_set)]
"""PEP 440 specifier set, such as `">=2.10,<2.13"`."""
Evidence = Literal["measured", "documented", "inferred"]
"""measured: read from the file or run; documented: stated by its maker; inferred: taken from a similar row."""
Sources = Annotated[tuple[str, ...], Converted(tuple[str, ...], _check_sources)]
"""Sources of a row; never empty."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a suggestion such as `", did you mean `cudnn`?"`, or "" if no known word is similar."""
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
    """Return the table in a file as a `kind`.

    `prepare` may change the raw data before they are checked, and may raise DataError. `within` is the file's folder
    below compat/, such as `"locks/"`.

    Raise DataError if the data are invalid, the file is not TOML or JSON, or its `schema_version` is not 1.
    """
    where = f"compat/{within}{path.name}"
    raw = read_raw(path, where)
    version = _decode_integer(raw.pop("schema_version", None), "schema_version", where)
    if version != 1:
        msg = f"{where}: schema_version is {version}; this tfdoctor reads 1"
        raise DataError(msg)
    if prepare is not None:
        prepare(raw, where)
    return decode(kind, raw, where)


def read_raw(path: Path, where: str) -> dict[str, Any]:
    """Return the unchecked top table of a TOML or JSON file, according to its suffix.

    Raise DataError if the file is invalid or its content is not a table.
    """
    try:
        text = path.read_text(encoding="utf-8")
        raw: Any = json.loads(text) if path.suffix == ".json" else toml.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{where}: not {path.suffix[1:].upper()}: {error}"
        raise DataError(msg) from error
    if type(raw) is not dict:
        msg = f"{where}: a table was expected, not {_name_type(raw)}"
        raise DataError(msg)
    return raw


def decode(kind: type[T], raw: object, where: str) -> T:
    """Return a table as a `kind`, checked strictly. `where` begins every message. Raise DataError if it is invalid."""
    if type(raw) is not dict:
        msg = f"{where}: a table was expected, not {_name_type(raw)}"
        raise DataError(msg)
    constructor: Any = kind
    values = []
    used_keys = 0
    for key, reader, default in _plan_fields(constructor):
        if key in raw:
            values.append(reader(raw[key], key, where))
            used_keys += 1
        elif default is None:
            raise _make_key_error(kind, raw, where)
        else:
            values.append(default())
    if used_keys != len(raw):
        raise _make_key_error(kind, raw, where)
    try:
        decoded: T = constructor(*values)
    except ValueError as error:
        msg = f"{where}: {error}"
        raise DataError(msg) from error
    return decoded


@cache
def _plan_fields(kind: Any) -> tuple[tuple[str | None, Reader, Callable[[], Any] | None], ...]:
    """Return for each field its key in the file (None: not in the file), its reader, and a factory of its default.

    The factory is None for required fields.
    """
    plan: list[tuple[str | None, Reader, Callable[[], Any] | None]] = []
    for field in fields(kind):
        key = field.metadata.get("key", field.name)
        default: Callable[[], Any] | None = None
        if field.default_factory is not MISSING:
            default = field.default_factory
        elif field.default is not MISSING:
            default = partial(_keep_value, field.default)
        required = default is None
        reader = (
            _get_reader(field.type, field.metadata.get("noun", key), required=required)
            if key is not None
            else None
        )
        plan.append((key, reader, default))
    return tuple(plan)


def _keep_value(value: Any) -> Any:
    return value


def _make_key_error(kind: type, raw: dict[str, Any], where: str) -> DataError:
    """Return the error for a table with an unknown or missing key."""
    plan = _plan_fields(kind)
    keys = [key for key, _, _ in plan if key is not None]
    missing = [key for key, _, default in plan if key is not None and default is None and key not in raw]
    for key in raw:
        if key not in keys:
            suggestion = did_you_mean(key, missing) or did_you_mean(
                key, [other for other in keys if other not in raw]
            )
            if suggestion or not missing:
                return DataError(f"{where}: unknown key `{key}`{suggestion or did_you_mean(key, keys)}")
    return DataError(f"{where}: `{missing[0]}` is missing")


# ---------------------------------------------------------------- readers of each type


def _make_type_error(value: object, expected: str, key: str, where: str) -> DataError:
    return DataError(f"{where}: `{key}` must be {expected}, not {_name_type(value)}")


def _name_type(value: object) -> str:
    names = {dict: "a table", list: "a list", str: "text", bool: "true or false", int: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


_STR_ONLY = {str}


def _decode_text(value: Any, key: str, where: str) -> str:
    if type(value) is not str:
        raise _make_type_error(value, "text", key, where)
    if not value:
        msg = f"{where}: `{key}` is empty"
        raise DataError(msg)
    return value


def _decode_flag(value: Any, key: str, where: str) -> bool:
    if type(value) is not bool:
        raise _make_type_error(value, "true or false", key, where)
    return value


def _decode_integer(value: Any, key: str, where: str) -> int:
    if type(value) is not int or value < 0:
        raise _make_type_error(value, "a whole number", key, where)
    return value


def _decode_texts(value: Any, key: str, where: str) -> tuple[str, ...]:
    if type(value) is tuple:  # no file has tuples: `as_texts` converted it once for many rows
        return value
    if type(value) is not list:
        raise _make_type_error(value, "a list of texts", key, where)
    if not {*map(type, value)} <= _STR_ONLY:
        invalid = next(item for item in value if type(item) is not str)
        msg = f"{where}: `{key}` must be a list of texts, and has {_name_type(invalid)}"
        raise DataError(msg)
    return tuple(value)


def as_texts(value: Any) -> Any:
    """Return a list of texts as a tuple, and any other value unchanged.

    This is for a `prepare` that copies one value into many rows.
    """
    return tuple(value) if type(value) is list and {*map(type, value)} <= _STR_ONLY else value


def _decode_text_table(value: Any, key: str, where: str) -> dict[str, str]:
    if type(value) is not dict:
        raise _make_type_error(value, "a table of texts", key, where)
    if not {*map(type, value.values())} <= _STR_ONLY:
        name, invalid = next((name, item) for name, item in value.items() if type(item) is not str)
        msg = f"{where}: `{key}` must be a table of texts, and `{name}` is {_name_type(invalid)}"
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
    """Return the reader of an annotation. Raise TypeError for an unsupported type."""
    if kind in _SIMPLE_READERS:
        return _SIMPLE_READERS[kind]
    if is_dataclass(kind):
        return partial(_decode_table, kind)
    origin, type_arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        converted = next(extra for extra in type_arguments[1:] if isinstance(extra, Converted))
        return partial(_convert_value, _get_reader(converted.kind), converted.by)
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


def _decode_table(kind: Any, value: Any, key: str, where: str) -> Any:
    return decode(kind, value, f"{where}: {key}")


def _convert_value(reader: Reader, convert: Callable[[Any], Any], value: Any, key: str, where: str) -> Any:
    decoded = reader(value, key, where)
    try:
        return convert(decoded)
    except ValueError as error:
        reason = str(error)
        msg = (
            f"{where}: `{key}` {reason}"
            if reason.startswith(("is ", "must "))
            else f"{where}: `{key}`: {reason}"
        )
        raise DataError(msg) from error


def _decode_choice(allowed: tuple[str, ...], value: Any, key: str, where: str) -> str:
    text = _decode_text(value, key, where)
    if text not in allowed:
        msg = f"{where}: `{key}` is `{text}`; it can be {', '.join(allowed)}{did_you_mean(text, allowed)}"
        raise DataError(msg)
    return text


def _decode_optional(reader: Reader, value: Any, key: str, where: str) -> Any:
    return None if value is None else reader(value, key, where)


def _decode_list(origin: Any, reader: Reader, value: Any, key: str, where: str) -> Any:
    if type(value) is not list:
        raise _make_type_error(value, "a list", key, where)
    return origin(reader(item, key, where) for item in value)


def _decode_mapping(reader: Reader, value: Any, key: str, where: str, *, nested: bool) -> dict[str, Any]:
    if type(value) is not dict:
        raise _make_type_error(value, "a table", key, where)
    location = where if nested else f"{where}: {key}"
    return {name: reader(item, name, location) for name, item in value.items()}


def _decode_rows(
    kind: Any, noun: str, value: Any, key: str, where: str, *, is_required: bool
) -> tuple[Any, ...]:
    """Return a list of tables as rows. In messages a row is identified by `noun` and the values of its `NAMED` keys.

    Raise DataError if two rows have the same names.
    """
    if type(value) is not list:
        raise _make_type_error(value, "a list of tables", key, where)
    if is_required and not value:
        msg = f"{where}: `{key}` has no rows"
        raise DataError(msg)
    key_names: tuple[str, ...] = kind.NAMED
    rows: dict[str, Any] = {}
    for number, raw in enumerate(value, 1):
        label = " ".join(str(raw[name]) for name in key_names if name in raw) if type(raw) is dict else ""
        location = f"{where}: {noun} {label or number}"
        row = decode(kind, raw, location)
        if location in rows:
            msg = f"{location}: it is there twice"
            raise DataError(msg)
        rows[location] = row
    return tuple(rows.values())
