"""LD_LIBRARY_PATH gives TensorFlow older CUDA libraries than its own wheels.

What it means
-------------
The loader searches LD_LIBRARY_PATH before the folders that TensorFlow itself names. If it contains a CUDA
with the same major version that is older than the wheels pinned by this TensorFlow, the older files are
used. Usually this works, but sometimes a function is missing or a mixture of both versions fails
("undefined symbol", "version mismatch").

How it is seen
--------------
For each library with an installed wheel, tfdoctor compares the wheel's version with the version in the full
name of the file that the loader uses.

What to do
----------
Remove the folder from LD_LIBRARY_PATH for TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Evidence, Severity
from tfdoctor.core.text import split_path_list
from tfdoctor.prediction.library_versions import find_library_version, is_in_nvidia_wheel
from tfdoctor.remedies.search_path import make_folder_removal_remedy
from tfdoctor.remedies.wheels import find_wheel
from tfdoctor.rules.base import LOADER, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites, variable_origins

if TYPE_CHECKING:
    from tfdoctor.core.facts import Resolution


def check(context: RuleContext) -> Result:
    loader, build, python = context.loader, context.build, context.python
    if loader is None or build is None or build.cuda is None or python is None:
        return NotApplicable("there is nothing to compare")
    if not loader.library_path:
        return NotApplicable("LD_LIBRARY_PATH is not set")
    older_files = []
    for resolution in loader.resolutions:
        version_pair = _find_older_version(context, resolution)
        if version_pair is not None:
            older_files.append((resolution, *version_pair))
    if not older_files:
        return ()
    folders = tuple(
        dict.fromkeys((resolution.path or "").rpartition("/")[0] for resolution, _, _ in older_files)
    )
    libraries = ", ".join(
        f"{resolution.soname} {file_version} instead of {wheel_version}"
        for resolution, file_version, wheel_version in older_files
    )
    value = context.facts.environment.variables.get("LD_LIBRARY_PATH", "")
    entries = split_path_list("LD_LIBRARY_PATH", value)
    entries_to_remove = [entry for entry in entries if (entry.rstrip("/") or "/") in folders]
    remedy = make_folder_removal_remedy(context.target, folders)
    if entries_to_remove:
        remaining = [entry for entry in entries if entry not in entries_to_remove]
        text = f"Remove {', '.join(entries_to_remove)} from LD_LIBRARY_PATH where TensorFlow runs."
        remedy = variable_origins.make_entries_removal_remedy(
            context, "LD_LIBRARY_PATH", entries_to_remove, remaining, text
        )
    return [
        RULE.make_finding(
            Cause.LIBS_WRONG_VERSION,
            Severity.WARNING,
            f"LD_LIBRARY_PATH comes before the wheels that this TensorFlow pins, and gives it {libraries}.",
            title="LD_LIBRARY_PATH puts older CUDA libraries before TensorFlow's own wheels",
            evidence=[
                Evidence("LD_LIBRARY_PATH", ":".join(loader.library_path)),
                *(
                    evidence
                    for entry in entries_to_remove
                    for evidence in variable_origins.list_origin_evidence(context, "LD_LIBRARY_PATH", entry)
                ),
                *(
                    Evidence(resolution.path or "", f"{file_version}; the wheel has {wheel_version}")
                    for resolution, file_version, wheel_version in older_files
                ),
            ],
            remedies=[remedy] if remedy is not None else [],
        )
    ]


def _find_older_version(context: RuleContext, resolution: Resolution) -> tuple[str, str] | None:
    """Return the versions of the used file and of the wheel if LD_LIBRARY_PATH puts an older file first.

    Return None if it does not, or if one of the versions is not known.
    """
    build, python = context.build, context.python
    if build is None or build.cuda is None or python is None or not resolution.ok or resolution.path is None:
        return None
    if not resolution.via.startswith("LD_LIBRARY_PATH") or is_in_nvidia_wheel(
        python, resolution.path, resolution.real
    ):
        return None
    project, _ = find_wheel(context.target, resolution.soname, build.cuda) or ("", "")
    distribution = python.find_distribution(project) if project else None
    library_version = find_library_version(context.facts, resolution)
    if distribution is None or library_version is None or not distribution.version[:1].isdigit():
        return None
    file_version, wheel_version = library_version.version, distribution.version
    is_older = versions.parse_numbers(file_version)[:3] < versions.parse_numbers(wheel_version)[:3]
    return (file_version, wheel_version) if is_older else None


RULE = Rule(
    "TFD210",
    "shadowing-path",
    "LD_LIBRARY_PATH puts older CUDA libraries before TensorFlow's own",
    (Cause.LIBS_WRONG_VERSION,),
    check,
    short_title="older libraries come first",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_lazy_loading),
    area=LOADER,
    fix_order=41,
)
