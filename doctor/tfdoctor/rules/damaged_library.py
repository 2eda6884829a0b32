"""The loader stops at a damaged library.

What it means
-------------
A file of the right name is in a folder where the loader looks, but is not a library: it is empty, truncated (a full
disk, an interrupted copy), or a text file. The loader does not continue to the next folder: it never reaches a good
library there. A truncated file can even kill Python with a bus error.

How it is seen
--------------
Each file that the loader would open is read as the loader reads it: its header, its segments, its size.

What to do
----------
Remove the damaged file, or reinstall the package that it belongs to.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.causes.steps import Install, Remove
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import is_in_wheels, list_unusable_files
from tfdoctor.rules.base import LOADER, Result, Rule, RuleContext
from tfdoctor.rules.shared import path_shadowing, prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts import Tried
    from tfdoctor.predict import MissingLibrary


def check(context: RuleContext) -> Result:
    lost = [m for m in context.select_missing(Cause.LIBS_NOT_INSTALLED, Cause.DAMAGED_FILE) if m.damaged]
    if not lost:
        return ()
    bad = [_first_rejected_file(missing) for missing in lost]
    names = ", ".join(missing.soname for missing in lost)
    evidence = []
    for missing, tried in zip(lost, bad, strict=True):
        evidence.append(Evidence(tried.path, f"{tried.problem} (reached through {tried.via})"))
        evidence.append(Evidence("the loader", missing.resolution.error))
        evidence += [Evidence(good.path, "is there, and never reached") for good in missing.elsewhere]
    crash = any(missing.resolution.crash for missing in lost)
    files = dict.fromkeys(tried.path.rpartition("/")[2] for tried in bad)
    explanation = (
        f"The loader stops at {', '.join(files)} when TensorFlow asks for {names}: it takes no other file."
    )
    if crash:
        explanation += " The file is truncated in a way that kills Python with a bus error (SIGBUS)."
    title = f"{bad[0].path} {_kind(bad[0].problem)}: {bad[0].problem}"
    finding = RULE.finding(
        lost[0].cause,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=evidence,
        remedies=_remedies(context, lost, bad),
    )
    return [
        path_shadowing.with_shadowing(context, finding, [missing.soname for missing in lost], title=title)
    ]


def _kind(problem: str) -> str:
    return "is no library" if problem.startswith(("is a ", "a named pipe")) else "is damaged"


def _first_rejected_file(missing: MissingLibrary) -> Tried:
    return list_unusable_files(missing.resolution)[0]


def _remedies(context: RuleContext, lost: list[MissingLibrary], bad: list[Tried]) -> list[Remedy]:
    paths = [tried.path for tried in bad]
    measured = (
        context.loader is not None and context.loader.without
    )  # and without it nothing is found: see `hiders`
    behind = [good for missing in lost for good in missing.elsewhere[:1]] if measured else []
    through = advice.drop_folders(context.target, bad, behind)
    if through is not None and all(missing.elsewhere for missing in lost):
        return [through]
    wheels = [path for path in paths if _is_wheel_file(context, path)]
    names = [
        tried.path.rpartition("/")[2] if missing.resolution.path else missing.soname
        for missing, tried in zip(lost, bad, strict=True)
    ]
    requirements = advice.cuda_requirements(context.target, names)
    if len(wheels) == len(paths) and requirements:
        wanted = tuple(advice.find_registered_wheel(context.target, one) or one for one in requirements)
        command = advice.pip_install(context.target, wanted, options="--force-reinstall --no-deps")
        return [
            Remedy(
                "Reinstall the wheel that it belongs to.",
                (command, advice.check_again(context.target)),
                steps=(Install(wanted, again=True, dependencies=False),),
            )
        ]
    aside = tuple(
        f"{_root(context, path)}mv {advice.quote(path)} {advice.quote(path)}.damaged" for path in paths
    )
    remedies = [
        Remedy(
            "Rename the damaged file.",
            (*aside, advice.check_again(context.target)),
            changes_system=any(path.startswith(("/usr/", "/lib", "/opt/")) for path in paths),
            steps=tuple(Remove(path) for path in paths) if _are_in_environment(context, paths) else (),
        )
    ]
    without_good = [name for name, missing in zip(names, lost, strict=True) if not missing.elsewhere]
    if without_good:
        remedies += advice.bring_libraries(context.target, without_good)
    return remedies


def _is_wheel_file(context: RuleContext, path: str) -> bool:
    """Return whether the file is from one of NVIDIA's wheels, or may be a link to such a file.

    In the second case the wheel's own file is damaged, too.
    """
    if context.python is None:
        return False
    name = posixpath.basename(path)
    damaged = (file.path for one in context.python.distributions for file in one.changed)
    return is_in_wheels(context.python, path) or any(posixpath.basename(file) == name for file in damaged)


def _are_in_environment(context: RuleContext, paths: list[str]) -> bool:
    """Return whether all paths belong to this environment."""
    prefix = context.python.prefix if context.python is not None else ""
    return bool(prefix) and all(path.startswith(f"{prefix}/") for path in paths)


def _root(context: RuleContext, path: str) -> str:
    return advice.sudo(context.target) if path.startswith(("/usr/", "/lib", "/opt/")) else ""


RULE = Rule(
    "TFD209",
    "damaged-library",
    "The loader stops at a damaged library",
    (Cause.DAMAGED_FILE, Cause.LIBS_NOT_INSTALLED),
    check,
    row="a damaged library",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_late_opening),
    area=LOADER,
    first=40,
)
