"""Detect packages that shadow those of the examined Python.

There are two cases. Either there are two TensorFlows on the path, or PYTHONPATH or Python's startup puts a folder
first.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdoctor.core.facts import MODULE_PATH, Absent, Known, value_of
from tfdoctor.core.text import split_path_list
from tfdoctor.prediction.build import describe_build

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import Distribution, Facts
    from tfdoctor.core.findings import Prediction


def drop_first_tensorflow(facts: Facts) -> Facts | None:
    """Return the facts without the folder of the first TensorFlow; None if there is no second one."""
    tensorflow, python = value_of(facts.tensorflow), value_of(facts.python)
    if tensorflow is None or tensorflow.behind is None or python is None:
        return None
    folder = get_sys_path_folder(tensorflow.package_dir)
    second = tensorflow.behind
    remaining_python = replace(
        python,
        sys_path=tuple(path for path in python.sys_path if path.rstrip("/") != folder),
        distributions=tuple(
            distribution
            for distribution in python.distributions
            if distribution.location.rstrip("/") != folder
        ),
    )
    return replace(
        facts,
        python=Known(remaining_python, getattr(facts.python, "source", "")),
        tensorflow=Known(replace(second, behind=None), second.package_dir),
        loader=facts.loader_behind,
        loader_behind=Absent("the loader", "there is no other TensorFlow behind this one"),
        # The rehearsal was for the first TensorFlow. The prediction for the second one only compares versions.
        rehearsal=Absent("the packages that TensorFlow imports", "they were tried for the first one"),
    )


def get_sys_path_folder(taken: str) -> str:
    """Return the folder on Python's path that contains a module or package.

    `taken` is the file of the module, or the folder or the __init__.py of the package.
    """
    return taken.removesuffix("/__init__.py").rstrip("/").rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class LeadingFolder:
    """A folder that comes before the packages of the examined Python, and the reason."""

    origin: str
    """"PYTHONPATH", or `MODULE_PATH` for Python's startup (a .pth file or sitecustomize.py)."""
    spelling: str
    """The folder as PYTHONPATH or the startup spells it."""


def find_leading_package(facts: Facts, package: str) -> Distribution | None:
    """Return the package if Python imports it from a folder that is put first on the path; otherwise None.

    Also return None if TensorFlow is in the same folder, because that folder is the environment itself.
    """
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    distribution = python.find_distribution(package) if python is not None else None
    if distribution is None or tensorflow is None:
        return None
    folder = posixpath.normpath(distribution.location)
    if folder == posixpath.normpath(get_sys_path_folder(tensorflow.package_dir)):
        return None
    return distribution if find_leading_folder(facts, folder) is not None else None


def find_leading_folder(facts: Facts, folder: str) -> LeadingFolder | None:
    """Return the folder with what puts it first on the path; None if nothing does.

    The working folder and normal package folders do not count as put first.
    """
    normalized = posixpath.normpath(folder)
    entries = split_path_list("PYTHONPATH", facts.environment.variables.get("PYTHONPATH", ""))
    matching_entry = next((entry for entry in entries if posixpath.normpath(entry) == normalized), None)
    if matching_entry is not None:
        return LeadingFolder("PYTHONPATH", matching_entry)
    python = value_of(facts.python)
    if python is None or facts.environment.find_origin(MODULE_PATH, folder) is None:
        return None
    path = [posixpath.normpath(path_entry) for path_entry in python.sys_path]
    site_positions = [
        path.index(site_folder)
        for site_folder in map(posixpath.normpath, python.site_packages)
        if site_folder in path
    ]
    if normalized not in path or (site_positions and path.index(normalized) > max(site_positions)):
        return None
    return LeadingFolder(MODULE_PATH, folder)


def predict_hidden_tensorflow(
    facts: Facts, compat: Compat, first_prediction: Prediction, predict: Callable[[Facts, Compat], Prediction]
) -> Prediction | None:
    """Return the prediction for the second TensorFlow on the path if it would work better; otherwise None.

    `first_prediction` is the prediction for the first TensorFlow.
    """
    facts_without_first = drop_first_tensorflow(facts)
    first = value_of(facts.tensorflow)
    second = value_of(facts_without_first.tensorflow) if facts_without_first is not None else None
    if (
        facts_without_first is None
        or first_prediction.gpu_registered is not False
        or first is None
        or second is None
    ):
        return None
    second_prediction = predict(facts_without_first, compat)
    if describe_build(second, compat).has_gpu_code is False or second_prediction.import_ok is False:
        return None
    if describe_build(first, compat).has_gpu_code is False or first_prediction.import_ok is False:
        return second_prediction
    return second_prediction if second_prediction.gpu_registered else None
