"""A module that is found before the one that is meant: how Python comes to it, and how that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.findings import Evidence, Remedy
from tfdoctor.predict import find_leader, folder_of
from tfdoctor.rules.shared import variable_origins

if TYPE_CHECKING:
    from tfdoctor.rules.base import RuleContext

WORKING_DIRECTORY_LABEL = "the working directory"


def kind_of(path: str) -> str:
    """Return "file" or "folder"; `path` is without a package's __init__.py."""
    return "file" if path.endswith(".py") or ".so" in path.rpartition("/")[2] else "folder"


def describe_path_source(context: RuleContext, path: str) -> str:
    """Return why Python searches there before the folder of installed packages."""
    folder = folder_of(path)
    led = find_leader(context.facts, folder)
    if led is not None:
        return led.by
    if context.python is not None and folder in context.python.sys_path:
        return "a folder of the examined Python's own path"
    return WORKING_DIRECTORY_LABEL


def evidence_of_shadowing(context: RuleContext, path: str) -> list[Evidence]:
    """Return evidence that the path is found first, and the line that adds it if one is known."""
    led = find_leader(context.facts, folder_of(path))
    line = variable_origins.origin_evidence(context, led.by, led.entry) if led is not None else []
    return [Evidence(path, f"is found first, through {describe_path_source(context, path)}"), *line]


def remedies_for_shadowing(context: RuleContext, path: str) -> list[Remedy]:
    """List the remedies that remove the path or avoid it."""
    led = find_leader(context.facts, folder_of(path))
    if led is not None:
        return [variable_origins.remove_from_python_path(context, led)]
    folder, _, name = path.rpartition("/")
    again = advice.check_again(context.target)
    new = advice.quote(f"{folder}/my_{name}")
    return [
        Remedy(f"Give the {kind_of(path)} another name.", (f"mv {advice.quote(path)} {new}", again)),
        Remedy("Or start Python from another folder.", ("cd ~", again)),
    ]
