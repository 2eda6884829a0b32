"""tfdoctor's own commands as the reader's shell finds them: `./scripts/tfdoctor fix` from a checkout.

Only what people read on a terminal is written so. JSON, Markdown and files name the command `tfdoctor`: other people
and other programs read those.
"""

from __future__ import annotations

import functools
import os
import re
import sys

__all__ = ["as_called", "name"]

VARIABLE = "TFDOCTOR_CALLED"
"""Where a script that starts tfdoctor says how it was called itself."""
COMMANDS = (
    "build",
    "capture",
    "check",
    "completion",
    "diagnose",
    "explain",
    "fix",
    "help",
    "install",
    "matrix",
    "parse",
    "recommend",
    "report",
    "run",
    "verify",
)
NAME = "tfdoctor"
MAX_NAME_CHARS = 120
"""Characters of a name; a longer one would fill the screen."""
_OURS = re.compile(rf"(?<![\w./'-])(?<!-m ){NAME}(?= (?:{'|'.join(COMMANDS)})\b)")


@functools.cache
def name() -> str:
    """Return the words that call tfdoctor, quoted for a shell.

    The variable that says so is taken out of the environment.
    """
    said = os.environ.pop(VARIABLE, "")
    words = [said] if said else _get_python_command()
    from shlex import quote

    found = " ".join(quote(word) for word in words)
    return found if found.isprintable() and len(found) <= MAX_NAME_CHARS else NAME


def _get_python_command() -> list[str]:
    """Return how Python was told to run this; where it was not this that it runs, the plain name."""
    program = sys.argv[0] if sys.argv else ""
    folder, _, last = program.replace("\\", "/").rpartition("/")
    if last == "__main__.py" and folder.endswith(f"/{NAME}"):
        return [sys.orig_argv[0], "-m", NAME]
    if last not in (NAME, f"{NAME}.exe") or not folder:
        return [NAME]
    if "UV" in os.environ and (by_uv := _get_uv_command(folder)):  # it has put its own folder on PATH
        return by_uv
    for place in os.environ.get("PATH", "").split(
        os.pathsep
    ):  # shutil, which could be asked, takes long to load
        found = f"{place}/{last}"
        if place and os.access(found, os.X_OK):
            if os.path.realpath(found) == os.path.realpath(program):
                return [NAME]
            break
    return [program]


def _get_uv_command(folder: str) -> list[str]:
    """Return `uvx tfdoctor`, where uv made the environment for this call alone.

    `uv run tfdoctor` in a project's.
    """
    if "UV_RUN_RECURSION_DEPTH" in os.environ:
        return ["uv", "run", NAME]
    if "/archive-v" not in folder:
        return []
    source = _source()
    return ["uvx", "--from", source, NAME] if source else ["uvx", NAME]


def _source() -> str:
    """Return the folder or address that it was installed from; "" if that is a package index."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        url = json.loads(distribution(NAME).read_text("direct_url.json") or "{}").get("url", "")
    except (PackageNotFoundError, ValueError, OSError):
        return ""
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path) if url.startswith("file:") else str(url)


def as_called(text: str) -> str:
    """Return the text with tfdoctor's commands as they are typed here; one that is so already stays."""
    if name() == NAME or NAME not in text:
        return text
    return name().join(_OURS.sub(lambda _: name(), part) for part in text.split(name()))
