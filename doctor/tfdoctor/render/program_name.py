"""tfdoctor's own commands as the user's shell finds them, such as `./scripts/tfdoctor fix` in a checkout.

Only terminal output is adapted. JSON, Markdown and files name the command `tfdoctor`, because others read
them.
"""

from __future__ import annotations

import functools
import os
import re
import sys

__all__ = ["adapt_commands", "name"]

VARIABLE = "TFDOCTOR_CALLED"
"""The environment variable in which a script that starts tfdoctor passes its own name."""
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
"""The largest length of a name, in characters; a longer one would fill the screen."""
_COMMAND = re.compile(rf"(?<![\w./'-])(?<!-m ){NAME}(?= (?:{'|'.join(COMMANDS)})\b)")


@functools.cache
def name() -> str:
    """Return the command that runs tfdoctor, quoted for a shell.

    The variable that names it is removed from the environment.
    """
    script_name = os.environ.pop(VARIABLE, "")
    arguments = [script_name] if script_name else _get_python_command()
    from shlex import quote

    quoted = " ".join(quote(word) for word in arguments)
    return quoted if quoted.isprintable() and len(quoted) <= MAX_NAME_CHARS else NAME


def _get_python_command() -> list[str]:
    """Return the arguments that started Python with tfdoctor; the plain name if Python runs something else."""
    program = sys.argv[0] if sys.argv else ""
    folder, _, basename = program.replace("\\", "/").rpartition("/")
    if basename == "__main__.py" and folder.endswith(f"/{NAME}"):
        return [sys.orig_argv[0], "-m", NAME]
    if basename not in (NAME, f"{NAME}.exe") or not folder:
        return [NAME]
    if "UV" in os.environ and (uv_command := _get_uv_command(folder)):  # uv puts its own folder on PATH
        return uv_command
    for path_folder in os.environ.get("PATH", "").split(os.pathsep):  # not shutil.which: it is slow to import
        candidate = f"{path_folder}/{basename}"
        if path_folder and os.access(candidate, os.X_OK):
            if os.path.realpath(candidate) == os.path.realpath(program):
                return [NAME]
            break
    return [program]


def _get_uv_command(folder: str) -> list[str]:
    """Return `uvx tfdoctor` if uv made the environment for this call, or `uv run tfdoctor` in a project."""
    if "UV_RUN_RECURSION_DEPTH" in os.environ:
        return ["uv", "run", NAME]
    if "/archive-v" not in folder:
        return []
    source = _find_install_source()
    return ["uvx", "--from", source, NAME] if source else ["uvx", NAME]


def _find_install_source() -> str:
    """Return the folder or URL that tfdoctor was installed from; "" if it was a package index."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        url = json.loads(distribution(NAME).read_text("direct_url.json") or "{}").get("url", "")
    except (PackageNotFoundError, ValueError, OSError):
        return ""
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path) if url.startswith("file:") else str(url)


def adapt_commands(text: str) -> str:
    """Return the text with tfdoctor's commands as the user calls them; commands that are so already stay."""
    if name() == NAME or NAME not in text:
        return text
    return name().join(_COMMAND.sub(lambda _: name(), part) for part in text.split(name()))
