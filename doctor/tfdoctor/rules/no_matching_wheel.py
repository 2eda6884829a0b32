"""There is no TensorFlow wheel for this Python or this platform.

What it means
-------------
TensorFlow is published as wheels for certain Pythons: each release for a few versions of CPython, 64 bit,
with glibc. If none fits, pip says "No matching distribution found for tensorflow", or installs a very old
release without a warning. Wheels with GPU code exist for Linux on x86-64, and up to 2.10 for native Windows.

How it is seen
--------------
The version, implementation, word size and C library of the examined Python are compared with the wheels on
the package index.

What to do
----------
Create an environment with a Python that has wheels; the finding names one.
"""

from __future__ import annotations

from tfdoctor.core import versions
from tfdoctor.core.facts import Known
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.fit.compatibility import find_best_fit
from tfdoctor.remedies.pip import format_pip_install, quote
from tfdoctor.remedies.releases import list_gpu_requirements, make_link_commands
from tfdoctor.remedies.user_permissions import choose_uv_command
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext

X86_64_MACHINES = ("x86_64", "amd64")


def check(context: RuleContext) -> Result:
    if isinstance(context.facts.tensorflow, Known):
        return NotApplicable("a TensorFlow is installed in this Python")
    if context.python is None:
        return CouldNotCheck("this Python did not answer")
    reason = explain_missing_wheel(context)
    if not reason:
        return ()
    python = context.python
    return [
        RULE.make_finding(
            Cause.NO_MATCHING_WHEEL,
            Severity.ERROR,
            reason,
            title=f"TensorFlow has no wheel with GPU code for this {python.implementation} {python.version}",
            evidence=[
                Evidence(
                    python.executable,
                    f"{python.implementation} {python.version}, {python.bits} bit, {python.platform}, "
                    f"{f'glibc {python.glibc}' if python.glibc else 'no glibc'}",
                )
            ],
            remedies=_list_remedies(context),
        )
    ]


def explain_missing_wheel(context: RuleContext) -> str:
    """Return why no GPU wheel fits this Python; "" if one fits, or if the Python is not known."""
    python = context.python
    if python is None:
        return ""
    if python.implementation != "CPython":
        return f"TensorFlow's wheels are for CPython; this is {python.implementation}."
    if python.bits != 64:
        return f"TensorFlow's wheels are for 64-bit Pythons; this one has {python.bits} bits."
    platform = python.platform.lower()
    if "macos" in platform or context.facts.machine.system == "Darwin":
        return "On macOS TensorFlow has no CUDA: the wheels there are for the CPU (Apple's GPU is Metal's)."
    if platform.startswith("win"):
        if not context.compat.list_releases_for_python(python.version, "windows", gpu=True):
            return (
                "On native Windows TensorFlow 2.10.1 is the last with GPU code, and it has no wheel for "
                "Python "
                f"{versions.major_minor(python.version)}."
            )
        return ""
    if python.machine.lower() not in X86_64_MACHINES:
        return (
            f"GPU wheels are for x86-64 only; this Python is for {python.machine}, whose wheels use the CPU."
        )
    if python.glibc is None:
        return "TensorFlow's wheels need glibc; this system has another C library (musl, as on Alpine)."
    return _explain_version_gap(context, python.version, python.glibc)


def _explain_version_gap(context: RuleContext, python_version: str, glibc_version: str) -> str:
    """Return why no GPU wheel fits this version of Python and of glibc; "" if one fits."""
    minor = versions.major_minor(python_version)
    matching_releases = context.compat.list_releases_for_python(python_version, "linux", gpu=True)
    if not matching_releases:
        final_releases = [release for release in context.compat.releases if not release.is_prerelease]
        pythons = sorted(
            {python_minor for release in final_releases for python_minor in release.linux_pythons},
            key=versions.parse_numbers,
        )
        if pythons and versions.compare(minor, pythons[-1]) > 0:
            newest = context.compat.newest
            return (
                f"Python {minor} is newer than TensorFlow's wheels: those of {newest.version} (the newest "
                "known, "
                f"{newest.release_date}) are for Python {', '.join(newest.linux_pythons)}."
            )
        return f"No TensorFlow release with GPU code has a wheel for Python {minor}."
    if all(
        release.glibc is not None and not versions.is_at_least(glibc_version, release.glibc)
        for release in matching_releases
    ):
        minimum = min(
            (release.glibc for release in matching_releases if release.glibc), key=versions.parse_numbers
        )
        return (
            f"The wheels for Python {minor} need glibc {minimum} or newer; this system has {glibc_version}."
        )
    return ""


def _list_remedies(context: RuleContext) -> list[Remedy]:
    machine, python = context.facts.machine, context.python
    if python is None:
        return []
    if machine.system == "Windows":
        return [
            Remedy("Use WSL 2, whose Linux takes the Linux wheels.", ("wsl --install",), changes_system=True)
        ]
    if machine.system == "Darwin" or python.machine.lower() not in X86_64_MACHINES:
        return [
            Remedy(
                "On this machine TensorFlow uses the CPU.",
                (format_pip_install(context.target, ["tensorflow"]),),
            )
        ]
    if python.glibc is None:
        return [Remedy("Use a container or a system with glibc (Debian, Ubuntu, Fedora).")]
    best = find_best_fit(context.compat, context.target.host)
    if best is None or best.python is None:
        return []
    python_version, release = best.python, best.release
    requirements = " ".join(
        quote(requirement) for requirement in list_gpu_requirements(context.target, release, python_version)
    )
    setup_commands, uv = choose_uv_command(context.target)
    return [
        Remedy(
            f"Make an environment with Python {python_version} (uv fetches it where it is not there) and TensorFlow "
            f"{release.version}.",
            (
                *setup_commands,
                f"{uv} venv --python {python_version} tf-env",
                f"{uv} pip install --python tf-env/bin/python {requirements}",
                *make_link_commands(
                    context.target, release, f"$PWD/tf-env/lib/python{python_version}/site-packages"
                ),
                "tfdoctor check --python tf-env",
            ),
        )
    ]


RULE = Rule(
    "TFD302",
    "no-matching-wheel",
    "There is no TensorFlow wheel for this Python",
    (Cause.NO_MATCHING_WHEEL,),
    check,
    short_title="no wheel for this Python",
)
