"""What a program is started with: streams that it can use, and variables with which TensorFlow says more in its log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SHOW_LOADER", "make_loader_environment", "make_placement_environment", "open_standard_streams"]

SHOW_LOADER = "dso_loader=3"
"""From 2.12 on TensorFlow names the libraries it could not open only with this in TF_CPP_VMODULE."""


def make_loader_environment(env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables with which TensorFlow names the libraries it cannot open, and notes on them.

    The names are logged at the level INFO, which TF_CPP_MIN_LOG_LEVEL hides from 1 on: it is put down to 0.
    """
    changed, notes = dict(env), []
    modules = [word for word in env.get("TF_CPP_VMODULE", "").split(",") if word.strip()]
    if not any(word.split("=")[0].strip() == "dso_loader" for word in modules):
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
    """Return the variables with which TensorFlow logs where operations go, and notes on them.

    They hold in every Python that the program starts. The program itself is not touched: Python imports
    payload/placing/sitecustomize.py at its start.
    """
    changed = dict(env)
    before = env.get("PYTHONPATH")
    changed["PYTHONPATH"] = os.pathsep.join([str(PLACING), *([before] if before else [])])
    notes = ["Where operations go is logged because of --placement, which makes a program slower."]
    return changed, [*notes, *_show_all_levels(changed)]


PLACING = Path(__file__).resolve().parents[1] / "payload" / "placing"


def _show_all_levels(changed: dict[str, str]) -> list[str]:
    """Put TF_CPP_MIN_LOG_LEVEL down to 0, which hides no level; what to tell of it."""
    level = changed.get("TF_CPP_MIN_LOG_LEVEL", "").strip()
    if not level.isdecimal() or not level.strip("0"):
        return []
    changed["TF_CPP_MIN_LOG_LEVEL"] = "0"
    return [f"TF_CPP_MIN_LOG_LEVEL was 0 instead of {clean(level, limit=8)} for this run."]


def open_standard_streams() -> None:
    """Open streams that the program can use instead of those that are closed (`ending.standard_streams`)."""
    import fcntl

    for number, unusable in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == unusable:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number, inheritable=True)
            os.close(nothing)
