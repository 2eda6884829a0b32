"""Helpers for the rules about modules that Python finds before the intended ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Evidence, Remedy
from tfdoctor.prediction.shadowing import find_leading_folder, get_sys_path_folder
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.rules.shared import variable_origins

if TYPE_CHECKING:
    from tfdoctor.rules.base import RuleContext

WORKING_DIRECTORY_LABEL = "the working directory"
"""The label of a folder that neither a variable nor Python's own search path contains."""


def get_module_kind(path: str) -> str:
    """Return "file" or "folder" for the path of a module.

    The path of a package is its folder, without __init__.py.
    """
    return "file" if path.endswith(".py") or ".so" in path.rpartition("/")[2] else "folder"


def describe_path_source(context: RuleContext, path: str) -> str:
    """Return why Python searches the folder of `path` before that of the installed packages."""
    folder = get_sys_path_folder(path)
    leader = find_leading_folder(context.facts, folder)
    if leader is not None:
        return leader.origin
    if context.python is not None and folder in context.python.sys_path:
        return "a folder of the examined Python's own path"
    return WORKING_DIRECTORY_LABEL


def list_shadowing_evidence(context: RuleContext, path: str) -> list[Evidence]:
    """Return evidence that Python finds `path` first, with the line that adds its folder if that is known."""
    leader = find_leading_folder(context.facts, get_sys_path_folder(path))
    origin = (
        variable_origins.list_origin_evidence(context, leader.origin, leader.spelling)
        if leader is not None
        else []
    )
    return [Evidence(path, f"is found first, through {describe_path_source(context, path)}"), *origin]


def make_shadowing_remedies(context: RuleContext, path: str) -> list[Remedy]:
    """Return the remedies for a module that hides another: rename it or keep its folder off the path."""
    leader = find_leading_folder(context.facts, get_sys_path_folder(path))
    if leader is not None:
        return [variable_origins.make_python_path_removal_remedy(context, leader)]
    folder, _, name = path.rpartition("/")
    check_command = format_check_command(context.target)
    new_path = quote(f"{folder}/my_{name}")
    return [
        Remedy(
            f"Give the {get_module_kind(path)} another name.",
            (f"mv {quote(path)} {new_path}", check_command),
        ),
        Remedy("Or start Python from another folder.", ("cd ~", check_command)),
    ]
