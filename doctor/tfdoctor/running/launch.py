"""Environment variables and standard streams for the program that `tfdoctor run` starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SHOW_LOADER", "make_loader_environment", "make_placement_environment", "open_standard_streams"]

SHOW_LOADER = "dso_loader=3"
"""Entry of TF_CPP_VMODULE without which TensorFlow 2.12 and newer do not log the libraries that they cannot load."""


def make_loader_environment(env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return an environment in which TensorFlow logs the libraries it cannot load, and notes about the changes.

    The names are logged at level INFO, which TF_CPP_MIN_LOG_LEVEL hides if it is 1 or more; it is then set to 0.
    """
    changed, notes = dict(env), []
    modules = [module for module in env.get("TF_CPP_VMODULE", "").split(",") if module.strip()]
    if not any(module.split("=")[0].strip() == "dso_loader" for module in modules):
        changed["TF_CPP_VMODULE"] = ",".join([*modules, SHOW_LOADER])
        notes.append(
            f"The dso_loader lines in the output come from `tfdoctor run` "
            f"(TF_CPP_VMODULE={SHOW_LOADER}): they name libraries and are "
            "harmless."
        )
    notes += _show_all_levels(changed)
    if notes:
        notes.append("--no-verbose-loader leaves the environment alone.")
    return changed, notes


def make_placement_environment(env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return an environment in which TensorFlow logs the device of each operation, and notes about the changes.

    It applies to every Python that the program starts. The program itself is unchanged: Python imports
    payload/placing/sitecustomize.py at startup.
    """
    changed = dict(env)
    before = env.get("PYTHONPATH")
    changed["PYTHONPATH"] = os.pathsep.join([str(PLACING), *([before] if before else [])])
    notes = ["Where operations go is logged because of --placement, which makes a program slower."]
    return changed, [*notes, *_show_all_levels(changed)]


PLACING = Path(__file__).resolve().parents[1] / "payload" / "placing"


def _show_all_levels(environment: dict[str, str]) -> list[str]:
    """Set TF_CPP_MIN_LOG_LEVEL to 0, which hides no level, and return a note if that changed it."""
    level = environment.get("TF_CPP_MIN_LOG_LEVEL", "").strip()
    if not level.isdecimal() or not level.strip("0"):
        return []
    environment["TF_CPP_MIN_LOG_LEVEL"] = "0"
    return [f"TF_CPP_MIN_LOG_LEVEL was 0 instead of {clean(level, limit=8)} for this run."]


def open_standard_streams() -> None:
    """Replace the standard streams that are closed by usable ones (see `ending.standard_streams`)."""
    import fcntl

    for number, unusable in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == unusable:
            null_device = os.open(os.devnull, os.O_RDWR)
            os.dup2(null_device, number, inheritable=True)
            os.close(null_device)
