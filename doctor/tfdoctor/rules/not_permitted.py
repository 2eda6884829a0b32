"""A needed file exists, but this user or the file system prevents its use.

What it means
-------------
The loader and Python skip a file that this user may not read, as if it did not exist: "No such file or directory",
"No module named". `sudo pip install` with a strict umask (077) leaves such files, and so does a copy made by root.
On a file system that is mounted noexec no library can be loaded: "failed to map segment from shared object".

How it is seen
--------------
Each file that the loader or Python would open is opened for reading, as this user. "Permission denied" is told from
"No such file or directory", and the folder above that forbids it is looked for, with its owner and mode. The mount
options of the folders that libraries are in are asked of the system.

What to do
----------
Let this user read them: their owner, or root, can give the permission. Or use your own environment, on a file
system that is not mounted noexec.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.facts.python import Denied, Unusable
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import find_closed_package, list_forbidden_files
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext

if TYPE_CHECKING:
    from tfdoctor.findings import Finding

MAX_CHMOD_PATHS = 3
"""Folders that are named one by one in a command."""


def check(context: RuleContext) -> Result:
    fact = context.facts.python
    if isinstance(fact, Unusable) and fact.trouble is not None and fact.trouble.kind == "denied":
        return [_python(fact.trouble.path)]
    if context.python is None:
        return NotApplicable("no Python answered")
    package = find_closed_package(context.facts)
    lost = _list_denied_libraries(context)
    beside = [one for one in context.python.closed if one is not package]
    if package is not None:
        return [_package(context, package, [package, *beside])]
    if lost:
        return [_build_blocked_finding(context, lost)]
    if beside:
        return [_build_partial_finding(context, beside)]
    return ()


def _list_denied_libraries(context: RuleContext) -> list[Denied]:
    """List what TensorFlow opens, or needs for its import, and cannot have for this reason."""
    loader = context.loader
    if loader is None:
        return []
    met = [tried for failed in loader.import_needs for tried in list_forbidden_files(failed, elsewhere=True)]
    for missing in context.select_missing(Cause.NOT_PERMITTED):
        seen = bool(missing.elsewhere or missing.other_versions)
        met += list_forbidden_files(missing.resolution, elsewhere=seen)
    for soname in ("libcuda.so.1", "libnvidia-ml.so.1"):
        resolution = loader.resolution(soname)
        if resolution is not None and not resolution.ok:
            met += list_forbidden_files(resolution, elsewhere=True)
    known = {denied.path: denied for denied in loader.denied}
    paths = dict.fromkeys(posixpath.normpath(tried.path) for tried in met)
    return [known.get(path) or Denied(path, path) for path in paths]


def _build_blocked_finding(context: RuleContext, denied: list[Denied]) -> Finding:
    names = list(dict.fromkeys(posixpath.basename(one.path) for one in denied))
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    noexec = [one for one in denied if one.why == "noexec"]
    end = (
        "import tensorflow fails" if context.prediction.import_ok is False else "TensorFlow registers no GPU"
    )
    if noexec:
        mount = _mount(context, noexec[0].path)
        return _finding(
            f"{mount} is mounted noexec: no library in it can be loaded",
            f"The loader finds {shown} and may not map it for execution, because the file system {mount} is mounted "
            f'noexec: "failed to map segment from shared object". So {end}.',
            [Evidence(one.path, f"is on {mount}, which is mounted noexec") for one in noexec[:5]],
            _noexec_remedies(context, mount),
        )
    them = "it" if len(names) == 1 else "them"
    folders = sorted({one.closed for one in denied if one.closed != one.path})
    if len(folders) == 1 and all(one.closed != one.path for one in denied):
        title = f"{folders[0]} is closed to this user, and {shown} would be in it"
    else:
        title = f"{shown} {'is' if them == 'it' else 'are'} there, and this user may not read {them}"
    return _finding(
        title,
        f"The loader passes over what it may not read as if it were nowhere, and so has no {shown}: {end}. "
        f"{_owners(denied)}",
        [Evidence(one.path, _explain_denial(one)) for one in denied[:8]],
        _open_up(context, denied),
    )


def _package(context: RuleContext, package: Denied, denied: list[Denied]) -> Finding:
    return _finding(
        f"{package.closed} may not be read by this user: import tensorflow fails",
        f"{package.path} cannot be looked into, and Python takes what it may not look into for something that is not "
        f"there. {_owners(denied)}",
        [Evidence(one.path, _explain_denial(one)) for one in denied[:8]],
        _open_up(context, denied),
    )


def _build_partial_finding(context: RuleContext, denied: list[Denied]) -> Finding:
    parts = [one for one in denied if ".so" in posixpath.basename(one.path)]
    return RULE.finding(
        Cause.NOT_PERMITTED,
        Severity.WARNING if parts else Severity.INFO,
        (
            "cuDNN opens these parts when it is first used: the GPU is registered, and a convolution may fail. "
            if parts
            else "What is said of these packages here is from their folders' names, and programs that ask for their "
            "metadata (pip, importlib.metadata) fail. "
        )
        + _owners(denied),
        title="Some of what belongs to this Python's packages may not be read by this user",
        evidence=[Evidence(one.path, _explain_denial(one)) for one in denied[:8]],
        remedies=_open_up(context, denied),
    )


def _python(path: str) -> Finding:
    return _finding(
        f"This user may not run {path}",
        f"{path} is there, and the system refuses to start it: it has no execute permission for this user, a folder "
        "above it is closed to this user, or its file system is mounted noexec.",
        [Evidence(path, "Permission denied")],
        [
            Remedy(
                "See what forbids it.", (f"namei -l {advice.quote(path)}", f"findmnt -T {advice.quote(path)}")
            ),
            Remedy("If it is yours and only lacks the permission:", (f"chmod a+rx {advice.quote(path)}",)),
            Remedy("Or use your own environment.", ("tfdoctor install",)),
        ],
    )


def _finding(title: str, explanation: str, evidence: list[Evidence], remedies: list[Remedy]) -> Finding:
    return RULE.finding(
        Cause.NOT_PERMITTED, Severity.ERROR, explanation, title=title, evidence=evidence, remedies=remedies
    )


def _explain_denial(denied: Denied) -> str:
    mode = f", mode {denied.mode}" if denied.mode else ""
    owner = f" (owner {denied.owner}{mode})" if denied.owner is not None else ""
    if denied.closed != denied.path:
        return f"cannot be reached: {denied.closed}{owner} is closed to this user"
    return f"may not be read{owner}"


def _owners(denied: list[Denied]) -> str:
    owners = sorted({one.owner for one in denied if one.owner is not None})
    if not owners:
        return ""
    if all(one.own for one in denied):
        return "This user owns that, and has not the permission to read it."
    text = f"It belongs to {' and '.join(owners)}."
    if "root" in owners:
        text += " `sudo pip install` with a strict umask leaves files so."
    return text


def _open_up(context: RuleContext, denied: list[Denied]) -> list[Remedy]:
    roots = _chmod_paths(context, denied)
    paths = " ".join(advice.quote(root) for root in roots)
    again = advice.check_again(context.target)
    own = Remedy("Or make your own environment.", ("tfdoctor install",))
    owners = sorted({one.owner for one in denied if one.owner is not None and not one.own})
    if not owners:
        return [Remedy("Give yourself the permission.", (f"chmod -R u+rX {paths}", again))]
    if owners == ["root"]:
        text = "As root, let every user read them."
    else:
        text = f"Let every user read them: {' and '.join(owners)}, whose they are, may do it, and root."
    return [
        Remedy(text, (f"{advice.sudo(context.target)}chmod -R a+rX {paths}", again), changes_system=True),
        own,
    ]


def _chmod_paths(context: RuleContext, denied: list[Denied]) -> list[str]:
    """List the paths for chmod: few folders rather than many files, and nothing outside of them."""
    python = context.python
    sites = python.site_packages if python is not None else ()
    roots: list[str] = []
    for one in denied:
        inside = next((site for site in sites if one.closed.startswith(f"{site}/")), None)
        root = one.closed
        if inside is not None and one.closed == one.path:
            root = posixpath.dirname(one.closed) if posixpath.dirname(one.closed) != inside else one.closed
        if root not in roots:
            roots.append(root)
    roots = [
        root for root in roots if not any(root.startswith(f"{other}/") for other in roots if other != root)
    ]
    for site in sites:
        below = [root for root in roots if root.startswith(f"{site}/")]
        if len(below) > MAX_CHMOD_PATHS:
            roots = [site, *(root for root in roots if root not in below)]
    return roots


def _mount(context: RuleContext, path: str) -> str:
    pairs = context.python.noexec if context.python is not None else ()
    fitting = [mount for folder, mount in pairs if path.startswith((f"{folder}/", f"{mount.rstrip('/')}/"))]
    return fitting[0] if fitting else posixpath.dirname(path)


def _noexec_remedies(context: RuleContext, mount: str) -> list[Remedy]:
    return [
        Remedy(
            "Make the environment on another file system, one without noexec.",
            ('tfdoctor install --into "$HOME/tensorflow-env"', 'findmnt -T "$HOME"'),
        ),
        Remedy(
            "Or let programs run from this one, where whoever set it up agrees (a line in /etc/fstab keeps it).",
            (
                f"{advice.sudo(context.target)}mount -o remount,exec {advice.quote(mount)}",
                advice.check_again(context.target),
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
    row="no permission for a file",
    no_python=True,
)
