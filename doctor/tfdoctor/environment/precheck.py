"""Whether requirements can be had together on a Python that is not here: asked of uv or pip before an image is built.

Nothing is installed and nothing is built from source: of each package the index is asked for its metadata. What
cannot be asked so (no network, no program, a package without wheels) is said, and is no conflict.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from tfdoctor import versions
from tfdoctor.environment.installers import (
    InstallFailedError,
    child_environment,
    find_uv,
    run_installer,
    runs,
    uv_options,
)
from tfdoctor.environment.resolution import LIMITS, WANTED, Question, command, reason_of, write_lines
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Foreseen", "find_unmet_pin", "foresee"]

_HASHES = re.compile(r"\s--hash=\S{1,300}")
_NO_WHEELS = re.compile(r"no (?:usable |compatible )?wheels?\b|from source is disabled|only-binary|no-build")
_NO_NETWORK = re.compile(
    r"(?i)failed to fetch|error sending request|network|NewConnectionError|ConnectionError|ProxyError|timed? ?out|"
    r"name resolution|SSLError|certificate|offline|dns error|Connection (?:refused|broken|aborted)"
)
PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 17, 12, 5))
"""pip takes wheels of what it is told, and of nothing older."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What was answered; nothing in either: they can be had together."""

    conflict: str = ""
    """Why they cannot, in the program's own words."""
    unknown: str = ""
    """Why that could not be asked."""


def find_unmet_pin(wanted: Sequence[str], pins: Sequence[str], python: str) -> str:
    """Return the first requirement that a pinned version does not meet, as a clause; empty if each does.

    Asks nobody.

    wanted: requirement lines; pins: `"numpy==1.26.4"`; python: "3.11", on Linux.
    """
    pinned = {}
    for line in pins:
        one = versions.parse_requirement_or_none(line)
        exact = [part.version for part in one.specifier if part.operator == "=="] if one is not None else []
        if one is not None and exact and versions.is_version(exact[0]):
            pinned[canonicalize_name(one.name)] = exact[0]
    marks = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "extra": "",
    }
    for line in wanted:
        one = versions.parse_requirement_or_none(_HASHES.sub("", line).strip())
        version = pinned.get(canonicalize_name(one.name)) if one is not None else None
        if one is None or version is None or (one.marker is not None and not one.marker.evaluate(marks)):
            continue
        if not one.specifier.contains(version, prereleases=True):
            return f"{one.name}{one.specifier} is asked for, and {one.name}=={version} is what goes with it"
    return ""


def foresee(
    wanted: Sequence[str],
    limits: Sequence[str],
    python: str,
    *,
    env: Mapping[str, str],
    index: str | None = None,
    ca_file: str | None = None,
    proxy: str | None = None,
) -> Foreseen:
    """Ask. `wanted`: requirement lines; `limits`: constraint lines; `python`: "3.11", on Linux with glibc."""
    known = find_unmet_pin(wanted, limits, python)
    if known:
        return Foreseen(conflict=known)
    uv = find_uv(env)
    child = child_environment(env)
    if ca_file is not None:
        child |= {"SSL_CERT_FILE": ca_file, "PIP_CERT": ca_file}
    if proxy is not None:
        child |= {"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "https_proxy": proxy, "http_proxy": proxy}
    wheels = ("--only-binary", ":all:")
    where = ("--index-url", index) if index is not None else ()
    if uv is not None:
        program: tuple[str, ...] = (uv, "pip")
        told: tuple[str, ...] = ("--python-version", python, "--python-platform", "linux", *wheels)
        where = (*where, *uv_options(env))
    elif runs((sys.executable, "-m", "pip", "--version"), env):
        program, told = (sys.executable, "-m", "pip"), ()
        where = (*where, "--python-version", python, *_platforms(), *wheels)
    else:
        return Foreseen(unknown="there is neither uv nor pip here that could be asked")
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        folder = Path(name)
        # Another platform's packages pip takes for a folder alone, into which a dry run writes nothing.
        apart = () if uv is not None else ("--target", str(folder / "apart"))
        question = Question("", (), (), (), tuple(wanted), tuple(limits), program, told, (*where, *apart))
        write_lines(folder / WANTED, wanted)
        write_lines(folder / LIMITS, limits)
        try:
            run_installer(command(question, folder), env=child, on_line=None)
        except InstallFailedError as error:
            return _parse_failure(error, uv=uv is not None)
        except OSError as error:
            return Foreseen(unknown=clean_line(str(error), limit=200))
    return Foreseen()


def _platforms() -> tuple[str, ...]:
    return tuple(word for name in (*PLATFORMS, "manylinux2014_x86_64") for word in ("--platform", name))


def _parse_failure(error: InstallFailedError, *, uv: bool) -> Foreseen:
    said = "\n".join(error.output)
    if _NO_NETWORK.search(said):
        return Foreseen(unknown="the package index was not reached")
    reason = reason_of(error.output) or error.message
    # pip words what has no wheel as what is not there at all.
    silent = not uv and "conflict" not in said.lower()
    if not error.unsolved or silent or _NO_WHEELS.search(said):
        return Foreseen(unknown=clean_line(reason, limit=300))
    return Foreseen(conflict=reason)
