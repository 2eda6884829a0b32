"""Helpers for modules that Python finds before the intended one: why it finds them and how to prevent it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.findings import Evidence, Remedy
from tfdoctor.predict import find_leader, get_path_folder
from tfdoctor.rules.shared import variable_origins

if TYPE_CHECKING:
    from tfdoctor.rules.base import RuleContext

WORKING_DIRECTORY_LABEL = "the working directory"


def kind_of(path: str) -> str:
    """Return "file" or "folder" for a module's path, in which a package has no __init__.py."""
    return "file" if path.endswith(".py") or ".so" in path.rpartition("/")[2] else "folder"


def describe_path_source(context: RuleContext, path: str) -> str:
    """Return why Python searches the folder of `path` before that of the installed packages."""
    folder = get_path_folder(path)
    leader = find_leader(context.facts, folder)
    if leader is not None:
        return leader.by
    if context.python is not None and folder in context.python.sys_path:
        return "a folder of the examined Python's own path"
    return WORKING_DIRECTORY_LABEL


def evidence_of_shadowing(context: RuleContext, path: str) -> list[Evidence]:
    """Return evidence that the path is found first, and the line that adds its folder, if known."""
    leader = find_leader(context.facts, get_path_folder(path))
    origin = variable_origins.origin_evidence(context, leader.by, leader.entry) if leader is not None else []
    return [Evidence(path, f"is found first, through {describe_path_source(context, path)}"), *origin]


def remedies_for_shadowing(context: RuleContext, path: str) -> list[Remedy]:
    """Return the remedies that remove the path or avoid it."""
    leader = find_leader(context.facts, get_path_folder(path))
    if leader is not None:
        return [variable_origins.remove_from_python_path(context, leader)]
    folder, _, name = path.rpartition("/")
    check_command = advice.check_again(context.target)
    new_path = advice.quote(f"{folder}/my_{name}")
    return [
        Remedy(
            f"Give the {kind_of(path)} another name.", (f"mv {advice.quote(path)} {new_path}", check_command)
        ),
        Remedy("Or start Python from another folder.", ("cd ~", check_command)),
    ]
