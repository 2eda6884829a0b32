"""A library differs from what its wheel installed.

What it means
-------------
A wheel lists the files that it contains, with their sizes. Where one is gone, truncated (a full disk, an
interrupted copy) or of another size (another file was copied over it, or it was stripped or patched), what is in
the folder is not what pip says is installed. A library that was truncated opens at times and kills Python with a
bus error when the part that is not there is touched.

How it is seen
--------------
The shared objects of TensorFlow's and NVIDIA's wheels are compared with the list (RECORD): whether they are there,
and of the same size; one of another size is asked by its own headers how long it ought to be. What tfdoctor itself
leaves out of images is not counted.

What to do
----------
Install the wheel again.
"""

from __future__ import annotations

import fnmatch
import posixpath
from typing import TYPE_CHECKING

from tfdoctor import advice, versions
from tfdoctor.causes.steps import Install
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.predict.failures import find_own_damage
from tfdoctor.rules.base import LOADER, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts import Distribution
    from tfdoctor.facts.files import ChangedFile

MAX_NAMED_FILES = 4


def check(context: RuleContext) -> Result:
    wheels = [d for d in context.python.distributions if d.lost or d.changed] if context.python else []
    told, claimed = _files_of_other_checks(context), _files_of_several_wheels(context)
    findings: list[Finding] = []
    silent = False
    for one in wheels:
        lost = [path for path in one.lost if not _is_omitted_from_images(context, path)]
        cut = [c for c in one.changed if c.cut or c.size < 0]
        foreign = [c for c in one.changed if c.foreign and c not in cut]
        rest = [c for c in one.changed if c not in cut and c not in foreign and one.installer != "conda"]
        for files, make in ((cut, _cut), (foreign, _foreign), (rest, _build_size_finding)):
            fresh = [c for c in files if f"{one.location}/{c.path}" not in told | claimed]
            silent |= len(fresh) < len(files)
            if fresh:
                findings.append(make(context, one, fresh))
        fresh_lost = [path for path in lost if f"{one.location}/{path}" not in told]
        silent |= len(fresh_lost) < len(lost)
        if fresh_lost:
            findings.append(_build_lost_finding(context, one, fresh_lost))
    if not findings and silent:
        return NotApplicable("another finding reports the files that differ from their wheel")
    return findings


def _files_of_other_checks(context: RuleContext) -> set[str]:
    """List the files that other checks report.

    These are the files that the loader rejects, those that it misses, and cuDNN's parts.
    """
    python, loader = context.python, context.loader
    told: set[str] = set()
    for one in (*loader.resolutions, *loader.import_needs) if loader is not None else ():
        told.update(posixpath.normpath(tried.path) for tried in one.tried if tried.problem)
    missing = {name for m in context.missing for name in (m.soname, *m.resolution.really_missing)}
    for d in python.distributions if python is not None else ():
        names = [path for path in d.lost if posixpath.basename(path) in missing]
        parts = d.lost if d.name.startswith("nvidia-cudnn-") else ()
        told.update(f"{d.location}/{path}" for path in (*names, *parts))
    if python is not None and context.tensorflow is not None:
        location = posixpath.dirname(context.tensorflow.package_dir)
        told.update(
            f"{location}/{one.path}" for one in find_own_damage(python, context.tensorflow, context.compat)
        )
    return told


def _files_of_several_wheels(context: RuleContext) -> set[str]:
    """List the files that another wheel owns, too (TFD211).

    Only one wheel can have the right size of such a file.
    """
    return {f"{one.location}/{one.path}" for one in (context.python.shared if context.python else ())}


def _is_omitted_from_images(context: RuleContext, path: str) -> bool:
    """Return whether tfdoctor's own images omit this file."""
    version = context.build.version if context.build is not None else None
    if version is None:
        return False
    return any(
        (fnmatch.fnmatchcase(path, row.pattern) or fnmatch.fnmatchcase(path, f"{row.pattern}/*"))
        and versions.satisfies(version, row.tensorflow)
        for row in context.compat.leftovers
    )


def _names(paths: list[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED_FILES} more" if len(paths) > MAX_NAMED_FILES else ""
    return ", ".join(posixpath.basename(path) for path in paths[:MAX_NAMED_FILES]) + more


def _sizes(owner: Distribution, files: list[ChangedFile]) -> list[Evidence]:
    return [
        Evidence(
            f"{owner.location}/{c.path}",
            f"{'no file' if c.size < 0 else f'{c.size} bytes'}; the wheel brought {c.recorded}",
        )
        for c in files
    ]


def _cut(context: RuleContext, owner: Distribution, files: list[ChangedFile]) -> Finding:
    why = (
        " and ends before its own headers say. What is not there kills Python with a bus error (SIGBUS), or is refused "
        "by the loader, when it is used."
    )
    return _build_broken_finding(context, owner, files, "is truncated", why)


def _foreign(context: RuleContext, owner: Distribution, files: list[ChangedFile]) -> Finding:
    why = ", and what is there is no shared object of this kind of machine: the loader refuses it."
    return _build_broken_finding(context, owner, files, "is damaged", why)


def _build_broken_finding(
    context: RuleContext, owner: Distribution, files: list[ChangedFile], how: str, why: str
) -> Finding:
    names = _names([c.path for c in files])
    return RULE.finding(
        Cause.DAMAGED_FILE,
        Severity.ERROR,
        f"{names} came with {owner.name} {owner.version}{why}",
        title=f"{names} {how}",
        evidence=_sizes(owner, files),
        remedies=[_reinstall_remedy(context, owner)],
    )


def _build_size_finding(context: RuleContext, owner: Distribution, files: list[ChangedFile]) -> Finding:
    names = _names([c.path for c in files])
    smaller = all(c.size < c.recorded for c in files)
    why = (
        "It is smaller but complete: it was stripped, or it is from another version."
        if smaller
        else "Another file was copied over it, or it was patched: its version is not that of the package."
    )
    return RULE.finding(
        Cause.DAMAGED_FILE,
        Severity.INFO if smaller else Severity.WARNING,
        f"{names} is not the file that {owner.name} {owner.version} brought: its size differs. {why}",
        title=f"{names} is not as {owner.name} {owner.version} brought it",
        evidence=_sizes(owner, files),
        remedies=[_reinstall_remedy(context, owner)],
    )


def _build_lost_finding(context: RuleContext, owner: Distribution, paths: list[str]) -> Finding:
    return RULE.finding(
        Cause.DAMAGED_FILE,
        Severity.WARNING,
        f"{owner.name} {owner.version} brought {_names(paths)}, and it is gone: removed by hand, or with another "
        "package that owned it, too. Programs that need it fail when they first use it.",
        title=f"Files of {owner.name} {owner.version} are gone: {_names(paths)}",
        evidence=[Evidence(f"{owner.location}/{path}", "is not there") for path in paths[:10]],
        remedies=[_reinstall_remedy(context, owner)],
    )


def _reinstall_remedy(context: RuleContext, owner: Distribution) -> Remedy:
    pin = f"{owner.name}=={owner.version}"
    return Remedy(
        f"Install {owner.name} again.",
        (
            advice.pip_install(context.target, (pin,), options="--force-reinstall --no-deps"),
            advice.check_again(context.target),
        ),
        steps=(Install((pin,), again=True, dependencies=False),),
    )


RULE = Rule(
    "TFD212",
    "changed-files",
    "A library differs from what its wheel installed",
    (Cause.DAMAGED_FILE,),
    check,
    row="a library was changed",
    needs=(prerequisites.require_tensorflow, prerequisites.require_python),
    area=LOADER,
    first=42,
)
