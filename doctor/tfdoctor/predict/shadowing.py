"""What comes before the examined Python's own packages: another TensorFlow, and whether the one behind it is the
better one; a package of a folder that PYTHONPATH, or Python's own start, puts first."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdoctor.facts import MODULE_PATH, Absent, Known, value_of
from tfdoctor.predict.build import build_of
from tfdoctor.text import entries_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.compat import Compat
    from tfdoctor.facts import Distribution, Facts
    from tfdoctor.findings import Prediction


def drop_first(facts: Facts) -> Facts | None:
    """Return the same machine, were the folder gone in which Python finds its TensorFlow.

    None if no other one is there.
    """
    tensorflow, python = value_of(facts.tensorflow), value_of(facts.python)
    if tensorflow is None or tensorflow.behind is None or python is None:
        return None
    folder = folder_of(tensorflow.package_dir)
    other = tensorflow.behind
    kept = replace(
        python,
        sys_path=tuple(path for path in python.sys_path if path.rstrip("/") != folder),
        distributions=tuple(d for d in python.distributions if d.location.rstrip("/") != folder),
    )
    return replace(
        facts,
        python=Known(kept, getattr(facts.python, "source", "")),
        tensorflow=Known(replace(other, behind=None), other.package_dir),
        loader=facts.loader_behind,
        loader_behind=Absent("the loader", "there is no other TensorFlow behind this one"),
        # What was tried is what the first one imports, on a path that its folder leads; versions are still compared.
        rehearsal=Absent("the packages that TensorFlow imports", "they were tried for the first one"),
    )


def folder_of(taken: str) -> str:
    """Return the folder on Python's path that has this package (its folder or its __init__.py) or module."""
    return taken.removesuffix("/__init__.py").rstrip("/").rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Led:
    """What puts a folder before the packages of the examined Python."""

    by: str
    """"PYTHONPATH", or `MODULE_PATH`: Python's own start, by a .pth file or a sitecustomize.py."""
    entry: str
    """The folder, as it is written there."""


def package_led_away(facts: Facts, package: str) -> Distribution | None:
    """Return a package as Python takes it from a folder that is put first, whatever is installed.

    None if it is found elsewhere, or where TensorFlow lies in that folder, too: then that is the environment.
    """
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    taken = python.distribution(package) if python is not None else None
    if taken is None or tensorflow is None:
        return None
    folder = posixpath.normpath(taken.location)
    if folder == posixpath.normpath(folder_of(tensorflow.package_dir)):
        return None
    return taken if find_leader(facts, folder) is not None else None


def find_leader(facts: Facts, folder: str) -> Led | None:
    """Return what puts this folder first.

    None if it lies there by itself: the working folder, what is installed.
    """
    same = posixpath.normpath(folder)
    entries = entries_of("PYTHONPATH", facts.environment.variables.get("PYTHONPATH", ""))
    entry = next((entry for entry in entries if posixpath.normpath(entry) == same), None)
    if entry is not None:
        return Led("PYTHONPATH", entry)
    python = value_of(facts.python)
    if python is None or facts.environment.origin(MODULE_PATH, folder) is None:
        return None
    path = [posixpath.normpath(one) for one in python.sys_path]
    own = [path.index(one) for one in map(posixpath.normpath, python.site_packages) if one in path]
    if same not in path or (own and path.index(same) > max(own)):
        return None
    return Led(MODULE_PATH, folder)


def better_behind(
    facts: Facts, compat: Compat, own: Prediction, judge: Callable[[Facts, Compat], Prediction]
) -> Prediction | None:
    """Return what the TensorFlow behind would do, where that is more than what the first one does (`own`)."""
    other = drop_first(facts)
    first, second = value_of(facts.tensorflow), value_of(other.tensorflow) if other is not None else None
    if other is None or own.gpu_registered is not False or first is None or second is None:
        return None
    then = judge(other, compat)
    if build_of(second, compat).gpu is False or then.import_ok is False:
        return None
    if build_of(first, compat).gpu is False or own.import_ok is False:
        return then
    return then if then.gpu_registered else None
