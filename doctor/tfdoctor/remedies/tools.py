"""Show the commands of remedies for the tool that manages the user's packages."""

from __future__ import annotations

import enum
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from tfdoctor.core.causes.steps import Remedy
    from tfdoctor.core.findings import Finding

__all__ = ["CONDA_TOOLS", "Tool", "convert_findings", "convert_remedy"]


class Tool(str, enum.Enum):
    """A way of installing packages."""

    pip = "pip"
    uv = "uv"
    poetry = "poetry"
    pixi = "pixi"
    conda = "conda"
    mamba = "mamba"
    colab = "colab"
    r = "r"
    dockerfile = "dockerfile"


CONDA_TOOLS = frozenset({Tool.conda, Tool.mamba, Tool.pixi})
"""Tools that install packages of conda's channels."""
_PIP_COMMAND = re.compile(
    r"(?P<python>\S*python[\d.]*|py(?: -\d\.\d{1,2})?|'[^']{1,300}python[\d.]*') -m pip "
    r"(?P<action>install|uninstall) (?P<arguments>.+)"
)
"""A pip command of a remedy."""
_PROJECT_NAME = re.compile(r"[\w.-]*")
_REQUIREMENT_FILES = ("-r", "--requirement", "-c", "--constraint")


def convert_findings(
    findings: tuple[Finding, ...], root: Finding | None, tool: Tool, conda_packages: Container[str]
) -> tuple[tuple[Finding, ...], Finding | None]:
    """Return the findings and the root finding with commands for a tool (see `convert_remedy`)."""
    converted = {
        id(finding): replace(
            finding,
            remedies=tuple(convert_remedy(remedy, tool, conda_packages) for remedy in finding.remedies),
        )
        for finding in (*findings, *((root,) if root is not None else ()))
    }
    return tuple(converted[id(finding)] for finding in findings), (
        converted[id(root)] if root is not None else None
    )


def convert_remedy(remedy: Remedy, tool: Tool, conda_packages: Container[str] = ()) -> Remedy:
    """Return the remedy with commands for a tool. Commands that do not call pip stay as they are.

    conda, mamba and pixi install `conda_packages` themselves, and pip does the rest: TensorFlow, for which conda-forge does
    not have every release, and NVIDIA's wheels, without which a TensorFlow from pip does not find CUDA.
    """
    return replace(
        remedy, commands=tuple(_convert_command(command, tool, conda_packages) for command in remedy.commands)
    )


def _convert_command(command: str, tool: Tool, conda_packages: Container[str]) -> str:
    """Return a command for a tool, or the command itself if it does not call pip or the tool cannot do it."""
    match = _PIP_COMMAND.fullmatch(command)
    if match is None:
        return command
    try:
        arguments = shlex.split(match["arguments"])
    except ValueError:
        return command
    if any(argument in _REQUIREMENT_FILES or "://" in argument for argument in arguments):
        return command
    is_install = match["action"] == "install"
    names = [argument for argument in arguments if not argument.startswith("-")]
    quoted = shlex.join(names)
    if tool is Tool.uv:
        options = [argument for argument in arguments if argument.startswith("--")]
        return f"uv pip {match['action']} --python {match['python']} {shlex.join([*options, *names])}"
    if tool is Tool.poetry:
        return f"poetry {'add' if is_install else 'remove'} {quoted}"
    is_in_conda = is_install and all(_PROJECT_NAME.match(name)[0].lower() in conda_packages for name in names)  # type: ignore[index]
    if tool is Tool.pixi:
        return f"pixi {'add' if is_install else 'remove'}{'' if is_in_conda else ' --pypi'} {quoted}"
    if tool in (Tool.conda, Tool.mamba) and is_in_conda:
        return f"{tool.value} install -c conda-forge {quoted}"
    if tool in (Tool.conda, Tool.mamba):  # the pip of the active environment
        return f"python -m pip {match['action']} {match['arguments']}"
    if tool is Tool.colab:
        return f"%pip {match['action']} {match['arguments']}"
    if tool is Tool.r and is_install:
        packages = ", ".join(f'"{name}"' for name in names)
        return f"reticulate::py_install(c({packages}), pip = TRUE)"
    if tool is Tool.dockerfile:
        cache_option = "--no-cache-dir " if is_install else ""
        return f"RUN python3 -m pip {match['action']} {cache_option}{match['arguments']}"
    return command
