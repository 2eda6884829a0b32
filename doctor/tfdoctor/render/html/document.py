"""Render a template as a self-contained page, which includes its style, its scripts and its data.

The content security policy of the page allows only this style and these scripts, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.core.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2 import Environment

    from tfdoctor.core.privacy.redactor import Redactor

__all__ = ["ASSETS_FOLDER", "embed_json", "redact_values", "render_page"]

ASSETS_FOLDER = Path(__file__).resolve().parent / "assets"
"""The folder with the templates, styles and scripts."""
_MAX_TEXT_CHARS = 100_000
"""The largest length of a text, in characters."""


def render_page(name: str, *, data: object = None, has_images: bool = False, **values: object) -> bytes:
    """Render the template `name`, such as "check", and return the page in UTF-8.

    `data` is the data for the page's script. `has_images` says whether the page contains images as data: URLs. The
    other arguments are variables of the template, which escapes them and replaces control characters.
    """
    style, common_script = _load_asset("page.css"), _load_asset("page.js")
    page_script = ASSETS_FOLDER / f"{name}.js"
    scripts = [common_script, _load_asset(page_script.name)] if page_script.is_file() else [common_script]
    text = (
        _make_template_environment()
        .get_template(f"{name}.html.j2")
        .render(
            **values,
            version=__version__,
            style=_mark_safe(style),
            scripts=[_mark_safe(code) for code in scripts],
            data=None if data is None else _mark_safe(embed_json(data)),
            policy=_make_policy(style, scripts) + ("; img-src data:" if has_images else ""),
        )
    )
    return text.encode("utf-8")


def embed_json(data: object) -> str:
    """Return `data` as JSON, escaped so that it cannot end the HTML element that contains it."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def redact_values(values: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Return the values with every text redacted. The keys, which the templates use, stay the same."""
    redacted_values: dict[str, Any] = _change_texts(values, redactor.redact_texts(_iter_texts(values)))
    return redacted_values


def _iter_texts(value: Any) -> Iterator[str]:
    """Yield every text in nested dictionaries and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _iter_texts(child)


def _change_texts(value: Any, redacted_by_text: dict[str, str]) -> Any:
    """Return nested dictionaries and lists with every text replaced by its redacted form."""
    if isinstance(value, dict):
        return {name: _change_texts(child, redacted_by_text) for name, child in value.items()}
    if isinstance(value, list):
        return [_change_texts(child, redacted_by_text) for child in value]
    return redacted_by_text[value] if isinstance(value, str) else value


def _make_policy(style: str, scripts: list[str]) -> str:
    """Return the content security policy that allows this style and these scripts."""
    allowed = " ".join(map(_hash, scripts))
    return f"default-src 'none'; style-src {_hash(style)}; script-src {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@lru_cache(maxsize=16)
def _load_asset(name: str) -> str:
    return (ASSETS_FOLDER / name).read_text(encoding="utf-8")


def _mark_safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - our own files, and JSON that `embed_json` made safe


@lru_cache(maxsize=1)
def _make_template_environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(ASSETS_FOLDER),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_clean_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _clean_value(value: Any) -> Any:
    """Replace the control characters in a value for a template, unless the value is marked as safe."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return clean(value, limit=_MAX_TEXT_CHARS)
    return value
