"""Show tfdoctor's commands as the user's shell finds them, such as `./scripts/tfdoctor fix`.

Only terminal output is adapted. JSON, Markdown and files contain the plain name `tfdoctor`, because they may be
read on other machines.
"""

from __future__ import annotations

import functools
import os
import re
import sys

__all__ = ["adapt_commands", "get_program_name"]

PROGRAM_NAME_VARIABLE = "TFDOCTOR_CALLED"
"""The environment variable in which a script that starts tfdoctor passes its name."""
COMMAND_NAMES = (
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
"""The commands that are adapted in texts."""
PLAIN_NAME = "tfdoctor"
MAX_NAME_CHARS = 120
"""The largest length of a name in characters. A longer one is not used, because it would fill the screen."""
_COMMAND = re.compile(rf"(?<![\w./'-])(?<!-m ){PLAIN_NAME}(?= (?:{'|'.join(COMMAND_NAMES)})\b)")
"""Matches the plain name before a command, unless it is part of a path or follows `-m`."""


@functools.cache
def get_program_name() -> str:
    """Return the command that runs tfdoctor, quoted for a shell.

    If a script passed its name, the result is that name, and the variable is removed from the environment.
    """
    script_name = os.environ.pop(PROGRAM_NAME_VARIABLE, "")
    arguments = [script_name] if script_name else _get_start_command()
    from shlex import quote

    quoted = " ".join(quote(word) for word in arguments)
    return quoted if quoted.isprintable() and len(quoted) <= MAX_NAME_CHARS else PLAIN_NAME


def _get_start_command() -> list[str]:
    """Return the words of the command that started tfdoctor.

    This is the plain name if the shell finds the running program by that name, or if Python runs another program.
    """
    program = sys.argv[0] if sys.argv else ""
    folder, _, basename = program.replace("\\", "/").rpartition("/")
    if basename == "__main__.py" and folder.endswith(f"/{PLAIN_NAME}"):
        return [sys.orig_argv[0], "-m", PLAIN_NAME]
    if basename not in (PLAIN_NAME, f"{PLAIN_NAME}.exe") or not folder:
        return [PLAIN_NAME]
    if "UV" in os.environ and (uv_command := _get_uv_command(folder)):  # uv puts its own folder on PATH
        return uv_command
    for folder_on_path in os.environ.get("PATH", "").split(
        os.pathsep
    ):  # not shutil.which: it is slow to import
        candidate = f"{folder_on_path}/{basename}"
        if folder_on_path and os.access(candidate, os.X_OK):
            if os.path.realpath(candidate) == os.path.realpath(program):
                return [PLAIN_NAME]
            break
    return [program]


def _get_uv_command(folder: str) -> list[str]:
    """Return the words of the `uvx` or `uv run` command that started tfdoctor, or [] if uv did not.

    `folder` is the folder of the running program.
    """
    if "UV_RUN_RECURSION_DEPTH" in os.environ:
        return ["uv", "run", PLAIN_NAME]
    if "/archive-v" not in folder:  # uvx runs programs from a folder of uv's cache
        return []
    source = _find_install_source()
    return ["uvx", "--from", source, PLAIN_NAME] if source else ["uvx", PLAIN_NAME]


def _find_install_source() -> str:
    """Return the folder or URL that tfdoctor was installed from, or "" if that was a package index."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        url = json.loads(distribution(PLAIN_NAME).read_text("direct_url.json") or "{}").get("url", "")
    except (PackageNotFoundError, ValueError, OSError):
        return ""
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path) if url.startswith("file:") else str(url)


def adapt_commands(text: str) -> str:
    """Return the text with tfdoctor's commands as the user types them.

    Commands that are already adapted are not changed.
    """
    if get_program_name() == PLAIN_NAME or PLAIN_NAME not in text:
        return text
    return get_program_name().join(
        _COMMAND.sub(lambda _: get_program_name(), part) for part in text.split(get_program_name())
    )
