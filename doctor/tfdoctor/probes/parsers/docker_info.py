"""Parse ``docker info`` as plain text or as JSON."""

from __future__ import annotations

import re

from tfdoctor.core.engine_output import parse_info
from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean_lines, value_or_none

_LINE_PATTERN = r"(?m)^[^\w\n]{0,40}%s:[ \t]*(\S[^\n]*)"
_RUNTIMES = re.compile(_LINE_PATTERN % "Runtimes")
_DEFAULT_RUNTIME = re.compile(_LINE_PATTERN % "Default Runtime")
_SERVER_VERSION = re.compile(_LINE_PATTERN % "Server Version")
# docker info -f '{{.Runtimes}}' prints a Go map: map[name:{…} name:{…}].
_GO_RUNTIME = re.compile(r"\b([a-z][A-Za-z0-9_.-]{0,80}):\{")


@dataclass(frozen=True, slots=True)
class DockerInfo(Parsed):
    """The parsed output. ``nvidia_runtime`` is true if ``runtimes`` contains an NVIDIA runtime."""

    runtimes: tuple[str, ...]
    nvidia_runtime: bool
    default_runtime: str | None
    server_version: str | None
    notes: tuple[str, ...] = ()


def parse_docker_info(text: str) -> DockerInfo:
    """Parse ``docker info``, even if it was filtered by grep. A missing value is None or an empty tuple."""
    text = "\n".join(clean_lines(text))
    return _parse_json(text) or _parse_text(text)


def _parse_text(text: str) -> DockerInfo:
    runtimes_match = _RUNTIMES.search(text)
    names = (
        tuple(runtimes_match[1].replace(",", " ").replace("`", " ").split())
        if runtimes_match
        else _parse_go_map(text)
    )
    return _make_info(
        names,
        default_runtime=_find_value(_DEFAULT_RUNTIME, text),
        server_version=_find_value(_SERVER_VERSION, text),
    )


def _make_info(
    runtimes: tuple[str, ...], default_runtime: str | None, server_version: str | None
) -> DockerInfo:
    return DockerInfo(
        runtimes=runtimes,
        nvidia_runtime=any(name == "nvidia" or name.startswith("nvidia-") for name in runtimes),
        default_runtime=default_runtime,
        server_version=server_version,
        notes=() if runtimes else ("no line 'Runtimes'",),
    )


def _find_value(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return value_or_none(match[1].strip(" \t`")) if match else None


def _parse_go_map(text: str) -> tuple[str, ...]:
    start = text.find("map[")
    return tuple(_GO_RUNTIME.findall(text, start)) if start >= 0 else ()


def _parse_json(text: str) -> DockerInfo | None:
    """Parse the output of ``docker info --format '{{json .}}'``. Return None if the text is not that."""
    document = parse_info(text)
    if document is None or not isinstance(document.get("Runtimes"), dict):
        return None

    def get_string(key: str) -> str | None:
        value = document.get(key)
        return value_or_none(value) if isinstance(value, str) else None

    return _make_info(
        tuple(map(str, document["Runtimes"])),
        default_runtime=get_string("DefaultRuntime"),
        server_version=get_string("ServerVersion"),
    )
