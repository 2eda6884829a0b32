"""One self-contained page: its template, its style and its script, which alone may run (a policy in the page names
their hashes), and data as JSON."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2 import Environment

    from tfdoctor.privacy.redactor import Redactor

__all__ = ["ASSETS", "document", "embed_json", "redact_values"]

ASSETS = Path(__file__).resolve().parent / "assets"
"""Templates, styles and scripts: package data beside this module."""
_MAX_TEXT_CHARS = 100_000
"""Characters of one text."""


def document(name: str, *, data: object = None, pictures: bool = False, **values: object) -> bytes:
    """Return the page of the template `name` (`"check"`), in UTF-8. data: what its script reads.

    Values: the template's; pictures: whether it holds some, as data: addresses.

    Every value is escaped by the template, and control characters in it are replaced.
    """
    style, script = _asset("page.css"), _asset("page.js")
    own = ASSETS / f"{name}.js"
    scripts = [script, _asset(own.name)] if own.is_file() else [script]
    text = (
        _environment()
        .get_template(f"{name}.html.j2")
        .render(
            **values,
            version=__version__,
            style=_mark_safe(style),
            scripts=[_mark_safe(one) for one in scripts],
            data=None if data is None else _mark_safe(embed_json(data)),
            policy=_policy(style, scripts) + ("; img-src data:" if pictures else ""),
        )
    )
    return text.encode("utf-8")


def embed_json(data: object) -> str:
    """JSON that cannot end the element it stands in, whatever its texts are."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def redact_values(values: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Return the values with each text as it may be published; their names are the template's, and stay."""
    changed: dict[str, Any] = _change_texts(values, redactor.texts(_texts(values)))
    return changed


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _change_texts(value: Any, made: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _change_texts(inner, made) for name, inner in value.items()}
    if isinstance(value, list):
        return [_change_texts(inner, made) for inner in value]
    return made[value] if isinstance(value, str) else value


def _policy(style: str, scripts: list[str]) -> str:
    run = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {run}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@lru_cache(maxsize=16)
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _mark_safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - our own files, and JSON that `embedded` made safe


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(ASSETS),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_clean_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _clean_value(value: Any) -> Any:
    """Return what a template prints: a text from outside without control characters."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return clean(value, limit=_MAX_TEXT_CHARS)
    return value
