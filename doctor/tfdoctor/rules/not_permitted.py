"""A needed file exists, but this user or the file system prevents its use.

What it means
-------------
The loader and Python skip a file that this user may not read, as if it did not exist: "No such file or
directory", "No module named". `sudo pip install` with a strict umask (077) creates such files, and so does
a copy made by root. On a file system that is mounted noexec no library can be loaded: "failed to map
segment from shared object".

How it is seen
--------------
tfdoctor opens each file that the loader or Python would open for reading, as this user. It distinguishes
"Permission denied" from "No such file or directory", and finds the folder that denies access, with its
owner and mode. The system reports the mount options of the folders with libraries.

What to do
----------
Let this user read the files: their owner or root can give the permission. Or use your own environment, on
a file system that is not mounted noexec.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.facts.python import DeniedPath, UnusablePython
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.text import join_first
from tfdoctor.prediction.build import find_unreadable_package
from tfdoctor.prediction.libraries import list_forbidden_files
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding

MAX_CHMOD_PATHS = 3
"""The maximum number of paths below one site-packages that a command names. Above it, all of site-packages is named."""


def check(context: RuleContext) -> Result:
    fact = context.facts.python
    if isinstance(fact, UnusablePython) and fact.trouble is not None and fact.trouble.kind == "denied":
        return [_build_python_finding(fact.trouble.path)]
    if context.python is None:
        return NotApplicable("no Python answered")
    package = find_unreadable_package(context.facts)
    libraries = _list_denied_libraries(context)
    other_denials = [denial for denial in context.python.closed if denial is not package]
    if package is not None:
        return [_build_package_finding(context, package, [package, *other_denials])]
    if libraries:
        return [_build_blocked_finding(context, libraries)]
    if other_denials:
        return [_build_other_packages_finding(context, other_denials)]
    return ()


def _list_denied_libraries(context: RuleContext) -> list[DeniedPath]:
    """Return the libraries that TensorFlow needs and that this user has no permission to use."""
    loader = context.loader
    if loader is None:
        return []
    attempts = [
        attempt
        for failed_lookup in loader.import_needs
        for attempt in list_forbidden_files(failed_lookup, is_elsewhere=True)
    ]
    for missing_library in context.select_missing_libraries(Cause.NOT_PERMITTED):
        found_elsewhere = bool(missing_library.usable_files or missing_library.other_versions)
        attempts += list_forbidden_files(missing_library.resolution, is_elsewhere=found_elsewhere)
    for soname in ("libcuda.so.1", "libnvidia-ml.so.1"):
        resolution = loader.find_resolution(soname)
        if resolution is not None and not resolution.ok:
            attempts += list_forbidden_files(resolution, is_elsewhere=True)
    denied_by_path = {denied.path: denied for denied in loader.denied}
    paths = dict.fromkeys(posixpath.normpath(attempt.path) for attempt in attempts)
    return [denied_by_path.get(path) or DeniedPath(path, path) for path in paths]


def _build_blocked_finding(context: RuleContext, denials: list[DeniedPath]) -> Finding:
    """Return the finding about required libraries that are unreadable or on a noexec mount."""
    names = list(dict.fromkeys(posixpath.basename(denial.path) for denial in denials))
    names_text = join_first(names, 3)
    noexec_files = [denial for denial in denials if denial.why == "noexec"]
    effect = (
        "import tensorflow fails" if context.prediction.import_ok is False else "TensorFlow registers no GPU"
    )
    if noexec_files:
        mount = _find_mount(context, noexec_files[0].path)
        return _build_error_finding(
            f"{mount} is mounted noexec: no library in it can be loaded",
            f"The loader finds {names_text} but is not allowed to load them, because the file system {mount} is mounted "
            f'noexec: "failed to map segment from shared object". So {effect}.',
            [Evidence(denial.path, f"is on {mount}, which is mounted noexec") for denial in noexec_files[:5]],
            _make_noexec_remedies(context, mount),
        )
    pronoun = "it" if len(names) == 1 else "them"
    folders = sorted({denial.closed for denial in denials if denial.closed != denial.path})
    if len(folders) == 1 and all(denial.closed != denial.path for denial in denials):
        title = f"{folders[0]} is closed to this user, and {names_text} would be in it"
    else:
        title = (
            f"{names_text} {'is' if pronoun == 'it' else 'are'} there, and this user may not read {pronoun}"
        )
    return _build_error_finding(
        title,
        f"The loader skips files that it may not read, so it does not find {names_text}: {effect}. "
        f"{_describe_owners(denials)}",
        [Evidence(denial.path, _explain_denial(denial)) for denial in denials[:8]],
        _list_chmod_remedies(context, denials),
    )


def _build_package_finding(context: RuleContext, package: DeniedPath, denials: list[DeniedPath]) -> Finding:
    """Return the finding that this user may not read TensorFlow's own package."""
    return _build_error_finding(
        f"{package.closed} may not be read by this user: import tensorflow fails",
        f"This user may not read {package.path}, and Python treats what it cannot read as missing. "
        f"{_describe_owners(denials)}",
        [Evidence(denial.path, _explain_denial(denial)) for denial in denials[:8]],
        _list_chmod_remedies(context, denials),
    )


def _build_other_packages_finding(context: RuleContext, denials: list[DeniedPath]) -> Finding:
    """Return the finding about unreadable files of this Python's other packages.

    It is a warning if they include libraries.
    """
    libraries = [denial for denial in denials if ".so" in posixpath.basename(denial.path)]
    return RULE.make_finding(
        Cause.NOT_PERMITTED,
        Severity.WARNING if libraries else Severity.INFO,
        (
            "cuDNN opens these parts when it is first used: the GPU is registered, and a convolution may fail. "
            if libraries
            else "What is said of these packages here is from their folders' names, and programs that ask for their "
            "metadata (pip, importlib.metadata) fail. "
        )
        + _describe_owners(denials),
        title="Some of what belongs to this Python's packages may not be read by this user",
        evidence=[Evidence(denial.path, _explain_denial(denial)) for denial in denials[:8]],
        remedies=_list_chmod_remedies(context, denials),
    )


def _build_python_finding(path: str) -> Finding:
    """Return the finding that this user may not run the examined Python."""
    return _build_error_finding(
        f"This user may not run {path}",
        f"{path} is there, and the system refuses to start it: it has no execute permission for this user, a folder "
        "above it is closed to this user, or its file system is mounted noexec.",
        [Evidence(path, "Permission denied")],
        [
            Remedy("See what forbids it.", (f"namei -l {quote(path)}", f"findmnt -T {quote(path)}")),
            Remedy("If it is yours and only lacks the permission:", (f"chmod a+rx {quote(path)}",)),
            Remedy("Or use your own environment.", ("tfdoctor install",)),
        ],
    )


def _build_error_finding(
    title: str, explanation: str, evidence: list[Evidence], remedies: list[Remedy]
) -> Finding:
    return RULE.make_finding(
        Cause.NOT_PERMITTED, Severity.ERROR, explanation, title=title, evidence=evidence, remedies=remedies
    )


def _explain_denial(denial: DeniedPath) -> str:
    """Return a clause that says whether the path itself or a folder above it denies access."""
    mode = f", mode {denial.mode}" if denial.mode else ""
    owner = f" (owner {denial.owner}{mode})" if denial.owner is not None else ""
    if denial.closed != denial.path:
        return f"cannot be reached: {denial.closed}{owner} is closed to this user"
    return f"may not be read{owner}"


def _describe_owners(denials: list[DeniedPath]) -> str:
    """Return a sentence about the owners; "" if they are not known."""
    owners = sorted({denial.owner for denial in denials if denial.owner is not None})
    if not owners:
        return ""
    if all(denial.own for denial in denials):
        return "This user owns that, and has not the permission to read it."
    text = f"It belongs to {' and '.join(owners)}."
    if "root" in owners:
        text += " `sudo pip install` with a strict umask leaves files so."
    return text


def _list_chmod_remedies(context: RuleContext, denials: list[DeniedPath]) -> list[Remedy]:
    """Return the remedies that let this user read the paths."""
    chmod_paths = _list_chmod_paths(context, denials)
    paths = " ".join(quote(chmod_path) for chmod_path in chmod_paths)
    check_command = format_check_command(context.target)
    environment_remedy = Remedy("Or make your own environment.", ("tfdoctor install",))
    owners = sorted({denial.owner for denial in denials if denial.owner is not None and not denial.own})
    if not owners:
        return [Remedy("Give yourself the permission.", (f"chmod -R u+rX {paths}", check_command))]
    if owners == ["root"]:
        text = "As root, let every user read them."
    else:
        text = f"Let every user read them: {' and '.join(owners)}, whose they are, may do it, and root."
    return [
        Remedy(
            text,
            (f"{get_sudo_prefix(context.target)}chmod -R a+rX {paths}", check_command),
            changes_system=True,
        ),
        environment_remedy,
    ]


def _list_chmod_paths(context: RuleContext, denials: list[DeniedPath]) -> list[str]:
    """Return the paths that chmod must change.

    A file of an installed package is replaced by its folder, unless that is site-packages itself. More than
    MAX_CHMOD_PATHS paths in one site-packages are replaced by site-packages.
    """
    python = context.python
    sites = python.site_packages if python is not None else ()
    chmod_paths: list[str] = []
    for denial in denials:
        site_folder = next((site for site in sites if denial.closed.startswith(f"{site}/")), None)
        chmod_path = denial.closed
        if site_folder is not None and denial.closed == denial.path:
            chmod_path = (
                posixpath.dirname(denial.closed)
                if posixpath.dirname(denial.closed) != site_folder
                else denial.closed
            )
        if chmod_path not in chmod_paths:
            chmod_paths.append(chmod_path)
    chmod_paths = [
        chmod_path
        for chmod_path in chmod_paths
        if not any(chmod_path.startswith(f"{other}/") for other in chmod_paths if other != chmod_path)
    ]
    for site in sites:
        site_paths = [chmod_path for chmod_path in chmod_paths if chmod_path.startswith(f"{site}/")]
        if len(site_paths) > MAX_CHMOD_PATHS:
            chmod_paths = [site, *(chmod_path for chmod_path in chmod_paths if chmod_path not in site_paths)]
    return chmod_paths


def _find_mount(context: RuleContext, path: str) -> str:
    """Return the noexec mount point of a path, or the path's folder if it is not known."""
    noexec_folders = context.python.noexec if context.python is not None else ()
    mounts = [
        mount for folder, mount in noexec_folders if path.startswith((f"{folder}/", f"{mount.rstrip('/')}/"))
    ]
    return mounts[0] if mounts else posixpath.dirname(path)


def _make_noexec_remedies(context: RuleContext, mount: str) -> list[Remedy]:
    return [
        Remedy(
            "Make the environment on another file system, one without noexec.",
            ('tfdoctor install --into "$HOME/tensorflow-env"', 'findmnt -T "$HOME"'),
        ),
        Remedy(
            "Or let programs run from this one, where whoever set it up agrees (a line in /etc/fstab keeps it).",
            (
                f"{get_sudo_prefix(context.target)}mount -o remount,exec {quote(mount)}",
                format_check_command(context.target),
            ),
            changes_system=True,
        ),
    ]


RULE = Rule(
    "TFD319",
    "not-permitted",
    "A needed file exists, but may not be used",
    (Cause.NOT_PERMITTED,),
    check,
    short_title="no permission for a file",
    explains_broken_python=True,
)
