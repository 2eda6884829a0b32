"""A library differs from what its wheel installed.

What it means
-------------
A wheel lists the files that it contains, with their sizes. If one is missing, truncated (a full disk, an
interrupted copy) or has a different size (it was overwritten, stripped or patched), the folder
does not match what pip reports as installed. A truncated library can sometimes be opened, and kills Python with a bus
error when its missing part is used.

How it is seen
--------------
The shared objects of TensorFlow's and NVIDIA's wheels are compared with the list (RECORD): each must exist and have
the recorded size. If the size differs, the file's own headers say how long it should be. Files that tfdoctor itself
leaves out of images do not count.

What to do
----------
Install the wheel again.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import TENSORFLOW_DISTRIBUTIONS
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import join_first
from tfdoctor.prediction.failures import list_damaged_tensorflow_files
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.rules.base import LOADER, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.facts import Distribution
    from tfdoctor.core.facts.files import ChangedFile

MAX_NAMED_FILES = 4
"""The maximum number of files that a text names."""


def check(context: RuleContext) -> Result:
    wheels = (
        [
            distribution
            for distribution in context.python.distributions
            if distribution.lost or distribution.changed or _list_edited_libraries(distribution)
        ]
        if context.python
        else []
    )
    reported_paths, shared_paths = _list_files_of_other_checks(context), _list_shared_files(context)
    findings: list[Finding] = []
    is_reported_elsewhere = False
    for wheel in wheels:
        missing_paths = [path for path in wheel.lost if not _is_omitted_from_images(context, path)]
        truncated_files = [file for file in wheel.changed if file.cut or file.size < 0]
        non_library_files = [file for file in wheel.changed if file.foreign and file not in truncated_files]
        resized_files = [
            file
            for file in wheel.changed
            if file not in truncated_files and file not in non_library_files and wheel.installer != "conda"
        ]
        for files, build_finding in (
            (truncated_files, _build_truncated_finding),
            (non_library_files, _build_file_type_finding),
            (resized_files, _build_size_finding),
        ):
            unreported_files = [
                file for file in files if f"{wheel.location}/{file.path}" not in reported_paths | shared_paths
            ]
            is_reported_elsewhere |= len(unreported_files) < len(files)
            if unreported_files:
                findings.append(build_finding(context, wheel, unreported_files))
        unreported_paths = [
            path for path in missing_paths if f"{wheel.location}/{path}" not in reported_paths
        ]
        is_reported_elsewhere |= len(unreported_paths) < len(missing_paths)
        if unreported_paths:
            findings.append(_build_missing_finding(context, wheel, unreported_paths))
        edited_files = _list_edited_libraries(wheel)
        if edited_files:
            findings.append(_build_edited_finding(context, wheel, edited_files))
    if not findings and is_reported_elsewhere:
        return NotApplicable("another finding reports the files that differ from their wheel")
    return findings


def _list_files_of_other_checks(context: RuleContext) -> set[str]:
    """Return the paths of the files that other checks report.

    These are the files that the loader rejects, the libraries that it cannot resolve, cuDNN's parts, and
    TensorFlow's own damaged files.
    """
    python, loader = context.python, context.loader
    reported_paths: set[str] = set()
    for resolution in (*loader.resolutions, *loader.import_needs) if loader is not None else ():
        reported_paths.update(
            posixpath.normpath(attempt.path) for attempt in resolution.tried if attempt.problem
        )
    missing_names = {
        name
        for library in context.missing_libraries
        for name in (library.soname, *library.resolution.really_missing)
    }
    for distribution in python.distributions if python is not None else ():
        names = [path for path in distribution.lost if posixpath.basename(path) in missing_names]
        parts = distribution.lost if distribution.name.startswith("nvidia-cudnn-") else ()
        reported_paths.update(f"{distribution.location}/{path}" for path in (*names, *parts))
    if python is not None and context.tensorflow is not None:
        location = posixpath.dirname(context.tensorflow.package_dir)
        reported_paths.update(
            f"{location}/{difference.path}"
            for difference in list_damaged_tensorflow_files(python, context.tensorflow, context.compat)
        )
    return reported_paths


def _list_shared_files(context: RuleContext) -> set[str]:
    """Return the paths of the files that several wheels own (TFD211).

    The size of a shared file can match the record of only one wheel.
    """
    return {f"{file.location}/{file.path}" for file in (context.python.shared if context.python else ())}


def _is_omitted_from_images(context: RuleContext, path: str) -> bool:
    """Return whether tfdoctor omits this file from the images that it builds."""
    version = context.build.version if context.build is not None else None
    return any(leftover.covers(path, version) for leftover in context.compat.leftovers)


def _join_names(paths: list[str]) -> str:
    """Return the names of the first files, and the number of the others."""
    return join_first([posixpath.basename(path) for path in paths], MAX_NAMED_FILES)


def _list_size_evidence(wheel: Distribution, files: list[ChangedFile]) -> list[Evidence]:
    """Return the current size of each file (negative if it is missing) and the size that its wheel recorded."""
    return [
        Evidence(
            f"{wheel.location}/{file.path}",
            f"{'no file' if file.size < 0 else f'{file.size} bytes'}; the wheel brought {file.recorded}",
        )
        for file in files
    ]


def _build_truncated_finding(context: RuleContext, wheel: Distribution, files: list[ChangedFile]) -> Finding:
    """Return the finding about files that are shorter than their own headers say."""
    consequence = (
        " and ends before its own headers say. What is not there kills Python with a bus error (SIGBUS), or is refused "
        "by the loader, when it is used."
    )
    return _build_unusable_finding(context, wheel, files, "is truncated", consequence)


def _build_file_type_finding(context: RuleContext, wheel: Distribution, files: list[ChangedFile]) -> Finding:
    """Return the finding about files that are not shared objects for this kind of machine."""
    consequence = ", and what is there is no shared object of this kind of machine: the loader refuses it."
    return _build_unusable_finding(context, wheel, files, "is damaged", consequence)


def _build_unusable_finding(
    context: RuleContext, wheel: Distribution, files: list[ChangedFile], condition: str, consequence: str
) -> Finding:
    """Return the finding about files that the loader cannot use.

    `condition` ends the title, and `consequence` ends the explanation.
    """
    names = _join_names([file.path for file in files])
    return RULE.make_finding(
        Cause.DAMAGED_FILE,
        Severity.ERROR,
        f"{names} came with {wheel.name} {wheel.version}{consequence}",
        title=f"{names} {condition}",
        evidence=_list_size_evidence(wheel, files),
        remedies=[_build_reinstall_remedy(context, wheel)],
    )


def _build_size_finding(context: RuleContext, wheel: Distribution, files: list[ChangedFile]) -> Finding:
    """Return the finding about complete files whose size differs from the recorded one."""
    names = _join_names([file.path for file in files])
    is_smaller = all(file.size < file.recorded for file in files)
    reason = (
        "It is smaller but complete: it was stripped, or it is from another version."
        if is_smaller
        else "Another file was copied over it, or it was patched: its version is not that of the package."
    )
    return RULE.make_finding(
        Cause.DAMAGED_FILE,
        Severity.INFO if is_smaller else Severity.WARNING,
        f"{names} is not the file that {wheel.name} {wheel.version} brought: its size differs. {reason}",
        title=f"{names} is not as {wheel.name} {wheel.version} brought it",
        evidence=_list_size_evidence(wheel, files),
        remedies=[_build_reinstall_remedy(context, wheel)],
    )


def _list_edited_libraries(wheel: Distribution) -> list[str]:
    """Return the shared objects of TensorFlow that are complete but have other content than recorded, at the same size."""
    resized_paths = {file.path for file in wheel.changed}
    return [
        difference.path
        for difference in wheel.differs
        if difference.what == "changed"
        and difference.path not in resized_paths
        and ".so" in posixpath.basename(difference.path)
        and wheel.name in TENSORFLOW_DISTRIBUTIONS
    ]


def _build_edited_finding(context: RuleContext, wheel: Distribution, paths: list[str]) -> Finding:
    """Return the finding about complete shared objects whose content differs from the record."""
    names = _join_names(paths)
    return RULE.make_finding(
        Cause.DAMAGED_FILE,
        Severity.WARNING,
        f"{names} was changed after {wheel.name} {wheel.version} was installed, at the same size: patchelf, strip, conda-pack "
        "or Nix do that, and a faulty disk, too. The loader accepts it. If TensorFlow crashes, install it again.",
        title=f"{names} is not as {wheel.name} {wheel.version} brought it",
        evidence=[
            Evidence(f"{wheel.location}/{path}", "its hash is not the recorded one") for path in paths[:10]
        ],
        remedies=[_build_reinstall_remedy(context, wheel)],
    )


def _build_missing_finding(context: RuleContext, wheel: Distribution, paths: list[str]) -> Finding:
    """Return the finding about files that the wheel installed and that no longer exist."""
    return RULE.make_finding(
        Cause.DAMAGED_FILE,
        Severity.WARNING,
        f"{wheel.name} {wheel.version} brought {_join_names(paths)}, and it is gone: removed by hand, or with another "
        "package that owned it, too. Programs that need it fail when they first use it.",
        title=f"Files of {wheel.name} {wheel.version} are gone: {_join_names(paths)}",
        evidence=[Evidence(f"{wheel.location}/{path}", "is not there") for path in paths[:10]],
        remedies=[_build_reinstall_remedy(context, wheel)],
    )


def _build_reinstall_remedy(context: RuleContext, wheel: Distribution) -> Remedy:
    """Return the remedy to reinstall the wheel."""
    pin = f"{wheel.name}=={wheel.version}"
    return Remedy(
        f"Install {wheel.name} again.",
        (
            format_pip_install(context.target, (pin,), options="--force-reinstall --no-deps"),
            format_check_command(context.target),
        ),
        steps=(Install((pin,), force_reinstall=True, install_dependencies=False),),
    )


RULE = Rule(
    "TFD212",
    "changed-files",
    "A library differs from what its wheel installed",
    (Cause.DAMAGED_FILE,),
    check,
    short_title="a library was changed",
    needs=(prerequisites.require_tensorflow, prerequisites.require_python),
    area=LOADER,
    fix_order=42,
)
