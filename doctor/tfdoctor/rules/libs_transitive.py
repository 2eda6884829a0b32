"""A CUDA library is found, but something that it needs itself is not.

What it means
-------------
CUDA libraries need each other: cuSPARSE and cuSOLVER of CUDA 12 need nvJitLink, cuBLAS needs cuBLASLt. The
loader gives a library to TensorFlow only with everything that it needs. TensorFlow then names the library
that it wanted, not the one that is missing.

How it is seen
--------------
What each library needs is read from the file and looked for with that library's own RUNPATH, as the loader
does; the symbol versions that it asks for are compared with those that the found files have.

What to do
----------
Install the package that brings the missing one, or let the loader look where it is.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.advice import link_commands, link_to
from tfdoctor.causes.steps import Install
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import LOADER, Result, Rule, RuleContext
from tfdoctor.rules.shared import path_shadowing, prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts import FoundElsewhere
    from tfdoctor.predict import MissingLibrary


def check(context: RuleContext) -> Result:
    lost = context.select_missing(Cause.LIBS_TRANSITIVE)
    if not lost:
        return ()
    stale = _list_stale_libraries(lost)
    absent: tuple[str, ...] = ()
    if not stale:
        absent = tuple(dict.fromkeys(n for m in lost for n in m.resolution.really_missing if n != m.soname))
    title, explanation = _describe_missing(lost, absent, stale)
    finding = RULE.finding(
        Cause.LIBS_TRANSITIVE,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=[line for missing in lost for line in _chain(missing)],
        remedies=_remedies(context, absent, lost, stale),
    )
    return [path_shadowing.with_shadowing(context, finding, [missing.soname for missing in lost])]


def _describe_missing(
    lost: tuple[MissingLibrary, ...], absent: tuple[str, ...], stale: tuple[str, ...]
) -> tuple[str, str]:
    """Return (title, explanation)."""
    opened = ", ".join(missing.soname for missing in lost)
    need, find = ("needs", "it is") if len(lost) == 1 else ("need", "they are")
    symbol = next((found for missing in lost if (found := _parse_undefined_symbol(missing))), "")
    if stale:
        names = ", ".join(path.rpartition("/")[2] for path in stale)
        return (
            f"{opened} {need} a different {names} than the installed one",
            f"The function {symbol} is not in {', '.join(stale)}: its version does not match its users.",
        )
    only = f"{opened} {find} found. TensorFlow's log only names the library that it opened."
    if any("version `" in missing.resolution.error for missing in lost):
        return f"{opened} {need} a newer version of something than the installed one", only
    if absent:
        what = ", ".join(absent)
        title = f"{opened} {need} {what}, which the loader cannot give {'it' if len(lost) == 1 else 'them'}"
        return (
            title,
            f"{opened} {find} found, and not {what}. TensorFlow's log only names the library that it opened.",
        )
    if symbol:
        told = (
            f"The function {symbol} is in none of the libraries that the loader gives. One of them does "
            f"not match the libraries that use "
            "it. TensorFlow's log only names the library that it opened."
        )
        return f"{opened} {need} a function that no library here has", told
    return f"{opened} cannot be used: {lost[0].resolution.error or 'the loader refuses it'}", only


def _parse_undefined_symbol(missing: MissingLibrary) -> str:
    """Return the function that nothing defines; empty if the error is about something else."""
    return missing.resolution.error.partition(UNDEFINED)[2]


def _chain(missing: MissingLibrary) -> list[Evidence]:
    resolution = missing.resolution
    lines = [Evidence(resolution.path or missing.soname, f"is found as {missing.soname}")]
    needing = (resolution.needed_by or "").rpartition("/")[2]
    lines.append(Evidence("the loader", f"{resolution.error}{f' (needed by {needing})' if needing else ''}"))
    lines += [Evidence(t.path, t.problem) for t in resolution.tried if t.problem]
    return lines


def _list_stale_libraries(lost: tuple[MissingLibrary, ...]) -> tuple[str, ...]:
    """List the libraries that lack a function which others expect in them, by the function's name."""
    found: dict[str, None] = {}
    for missing in lost:
        symbol = _parse_undefined_symbol(missing).lstrip("_").lower()
        for tried in missing.resolution.tried:
            name = tried.path.rpartition("/")[2]
            stem = name.split(".so")[0].removeprefix("lib").lower()
            if symbol and not tried.problem and stem and symbol.startswith(stem) and name != missing.soname:
                found.setdefault(posixpath.normpath(tried.path))
    return tuple(found)


def _remedies(
    context: RuleContext, absent: tuple[str, ...], lost: tuple[MissingLibrary, ...], stale: tuple[str, ...]
) -> list[Remedy]:
    through = _skip_folders_remedy(context, lost)
    if through is not None:
        return [through]
    wheels = advice.cuda_requirements(context.target, [path.rpartition("/")[2] for path in stale])
    if wheels and all("/nvidia/" in path for path in stale):
        wheels = advice.strip_versions(context.target, wheels)
        command = advice.pip_install(context.target, wheels)
        again = advice.check_again(context.target)
        text = "Install it in the version that goes with the other libraries."
        return [Remedy(text, (command, again), steps=(Install(wheels),))]
    loader = context.loader
    if loader is not None and loader.library_path and all(_parse_undefined_symbol(m) for m in lost):
        return [
            Remedy(
                "A library in a folder on LD_LIBRARY_PATH may be found before the right one. Check "
                "without that variable before you reinstall anything; if that helps, remove the folder from "
                "it.",
                (f"env -u LD_LIBRARY_PATH {advice.check_again(context.target)}",),
            )
        ]
    there = _elsewhere(context, absent)
    if absent and len(there) == len(absent):
        folders = tuple(dict.fromkeys(found.path.rpartition("/")[0] for found in there))
        text = f"It is in {', '.join(folders)}: add the folder to the search path before Python starts."
        return [*_link_remedies(context, there, lost), advice.name_folders(context.target, folders, text)]
    if any("version `GLIBC_" in missing.resolution.error for missing in lost):
        return [
            _reinstall(
                context,
                lost,
                "The library is made for a newer system than this one. Install an older one: NVIDIA's wheels in the "
                "versions that this TensorFlow pins.",
            )
        ]
    build = context.build
    projects = (
        [advice.wheel_project(context.target, n, build.cuda) for n in absent] if build and build.cuda else []
    )
    wheels = advice.cuda_requirements(context.target, absent)
    if wheels and projects:
        steps, commands = advice.bring_wheels(context.target, wheels)
        text = f"Install the package that provides {', '.join(absent)}."
        return [Remedy(text, (*commands, advice.check_again(context.target)), steps=steps)]
    system = {name: SYSTEM.get(name) for name in absent}
    if absent and all(system.values()) and advice.package_manager(context.target) == advice.APT:
        packages = " ".join(dict.fromkeys(str(package) for package in system.values()))
        return [
            Remedy(
                f"Install the package that provides {', '.join(absent)}.",
                (
                    f"{advice.sudo(context.target)}apt-get install {packages}",
                    advice.check_again(context.target),
                ),
                changes_system=True,
            )
        ]
    return [_reinstall(context, lost, "Reinstall the library with everything that it needs.")]


UNDEFINED = "undefined symbol: "
SYSTEM = {"libz.so.1": "zlib1g", "libgomp.so.1": "libgomp1", "libstdc++.so.6": "libstdc++6"}
"""What cuDNN and CUDA need of the system itself → its package on Debian and Ubuntu."""


def _skip_folders_remedy(context: RuleContext, lost: tuple[MissingLibrary, ...]) -> Remedy | None:
    """Remove from LD_LIBRARY_PATH the folders that put an unusable file first if another one follows.

    If the loader would find the other file by itself, `hiders` has measured it, and its remedy
    replaces this one.
    """
    loader = context.loader
    if loader is None or not loader.library_path:
        return None
    folders, behind = [], []
    for missing in lost:
        resolution = missing.resolution
        lacking = resolution.error.partition(": version `")
        path = lacking[0] if lacking[1] and lacking[0].startswith("/") else ""
        path = path or resolution.needed_by or resolution.path or ""
        folder, _, name = path.rpartition("/")
        # The system's own libraries are behind every folder; of CUDA's it must be known.
        others = [f for f in loader.found if f.name == name and f.path != path]
        if folder not in loader.library_path or not (name in SYSTEM or others):
            return None
        folders.append(folder)
        behind += others[:1]
    now = {r.soname for r in loader.resolutions if r.ok}
    if any(now - {r.soname for r in one.resolutions if r.ok} for one in loader.without):
        return None  # what works would not
    return advice.drop_from_path(
        context.target, tuple(dict.fromkeys(folders)), behind if loader.without else ()
    )


def _elsewhere(context: RuleContext, absent: tuple[str, ...]) -> list[FoundElsewhere]:
    found = context.loader.found if context.loader is not None else ()
    places = (next((f for f in found if f.name == name), None) for name in absent)
    return [place for place in places if place is not None]


def _link_remedies(
    context: RuleContext, there: list[FoundElsewhere], lost: tuple[MissingLibrary, ...]
) -> list[Remedy]:
    """Link the library next to the one that needs it, if both are in the environment's own wheels."""
    site = advice.site_packages(context.target)
    needing = lost[0].resolution.needed_by or lost[0].resolution.path or ""
    folder = posixpath.dirname(needing)
    if (
        not site
        or len(lost) > 1
        or not all(p.startswith(f"{site}/") for p in (folder, *(f.path for f in there)))
    ):
        return []
    steps = [link_to(found.path, folder) for found in there]
    return [
        Remedy(
            f"Link it next to {posixpath.basename(needing)}, which needs it.",
            (*link_commands(steps), advice.check_again(context.target)),
            steps=tuple(steps),
        )
    ]


def _reinstall(context: RuleContext, lost: tuple[MissingLibrary, ...], text: str) -> Remedy:
    """Return the remedy that reinstalls these libraries' wheels; only its text if they are in none."""
    wheels = advice.cuda_requirements(context.target, [missing.soname for missing in lost])
    if not wheels:
        return Remedy(text)
    command = advice.pip_install(context.target, wheels, options="--force-reinstall")
    return Remedy(text, (command, advice.check_again(context.target)), steps=(Install(wheels, again=True),))


RULE = Rule(
    "TFD204",
    "libs-transitive",
    "A CUDA library lacks something that it needs",
    (Cause.LIBS_TRANSITIVE,),
    check,
    row="a library lacks what it needs",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_late_opening),
    area=LOADER,
    first=54,
)
