"""Prepare the environment variables and standard streams of the program that `tfdoctor run` starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "LOADER_LOG_MODULE",
    "make_loader_environment",
    "make_placement_environment",
    "replace_unusable_streams",
]

LOADER_LOG_MODULE = "dso_loader=3"
"""An entry of TF_CPP_VMODULE. With it, TensorFlow 2.12 and newer log the libraries that they cannot load."""
SITECUSTOMIZE_FOLDER = Path(__file__).resolve().parents[2] / "payload" / "placing"
"""The folder on PYTHONPATH whose sitecustomize.py logs the devices of operations."""


def make_loader_environment(env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return variables with which TensorFlow logs libraries that it cannot load, and notes about them.

    The libraries are logged at level INFO. TF_CPP_MIN_LOG_LEVEL hides that level if it is 1 or more, and is then set
    to 0.
    """
    new_environment, notes = dict(env), []
    modules = [module for module in env.get("TF_CPP_VMODULE", "").split(",") if module.strip()]
    if not any(module.split("=")[0].strip() == "dso_loader" for module in modules):
        new_environment["TF_CPP_VMODULE"] = ",".join([*modules, LOADER_LOG_MODULE])
        notes.append(
            f"The dso_loader lines in the output come from `tfdoctor run` "
            f"(TF_CPP_VMODULE={LOADER_LOG_MODULE}): they name libraries and are "
            "harmless."
        )
    notes += _unhide_levels(new_environment)
    if notes:
        notes.append("--no-verbose-loader leaves the environment alone.")
    return new_environment, notes


def make_placement_environment(env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return variables with which TensorFlow logs the device of each operation, and notes about them.

    The program is not changed: every Python process in the environment imports payload/placing/sitecustomize.py at
    startup.
    """
    new_environment = dict(env)
    python_path = env.get("PYTHONPATH")
    new_environment["PYTHONPATH"] = os.pathsep.join(
        [str(SITECUSTOMIZE_FOLDER), *([python_path] if python_path else [])]
    )
    notes = ["Where operations go is logged because of --placement, which makes a program slower."]
    return new_environment, [*notes, *_unhide_levels(new_environment)]


def _unhide_levels(environment: dict[str, str]) -> list[str]:
    """Set TF_CPP_MIN_LOG_LEVEL to 0 if it hides a level, and return a list with a note if it did."""
    level = environment.get("TF_CPP_MIN_LOG_LEVEL", "").strip()
    if not level.isdecimal() or not level.strip("0"):
        return []
    environment["TF_CPP_MIN_LOG_LEVEL"] = "0"
    return [f"TF_CPP_MIN_LOG_LEVEL was 0 instead of {clean(level, limit=8)} for this run."]


def replace_unusable_streams() -> None:
    """Replace standard streams that are open for the wrong direction with the null device.

    Such a stream was closed when tfdoctor started, and `cli.stdio.ensure_standard_streams` opened it.
    """
    import fcntl

    for number, unusable_mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == unusable_mode:
            null_device = os.open(os.devnull, os.O_RDWR)
            os.dup2(null_device, number, inheritable=True)
            os.close(null_device)
