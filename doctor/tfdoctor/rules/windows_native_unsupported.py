"""TensorFlow 2.11 and newer have no GPU code on native Windows.

What it means
-------------
2.10.1 is the last release whose Windows wheel has GPU code. Newer Windows wheels are for the CPU only, and
TensorFlow's log does not mention it.

How it is seen
--------------
tfdoctor checks the operating system and the installed version.

What to do
----------
Run TensorFlow in WSL 2, where the Linux wheels work with the Windows driver, or use 2.10.1 with CUDA 11.2
and cuDNN 8.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import format_pip_install
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.compat import Compat, Release


def _require_windows(context: RuleContext) -> NotApplicable | None:
    return None if context.facts.machine.system == "Windows" else NotApplicable("this is not Windows")


def _find_last_gpu_release(compat: Compat) -> Release | None:
    """Return the newest final release whose Windows wheels have GPU code; None if there is none."""
    releases = (
        release
        for release in reversed(compat.releases)
        if release.windows_pythons and release.has_gpu("windows")
    )
    return next((release for release in releases if not release.is_prerelease and not release.yanked), None)


def check(context: RuleContext) -> Result:
    build, python = context.build, context.python
    if build is None or build.has_gpu_code or not build.has_trait("windows-without-gpu"):
        return ()
    remedies = [
        Remedy(
            "Use WSL 2 and install TensorFlow in its Linux. NVIDIA's driver is the Windows one: none is "
            "installed inside.",
            ("wsl --install",),
            changes_system=True,
        )
    ]
    last_gpu_release = _find_last_gpu_release(context.compat)
    note = (
        f"; {last_gpu_release.version} is the last with GPU code there"
        if last_gpu_release is not None
        else ""
    )
    release = (
        context.compat.find_release(last_gpu_release.version, "tensorflow")
        if last_gpu_release is not None
        else None
    )
    if release is not None and python is not None:
        pythons = release.windows_pythons
        if versions.major_minor(python.version) in pythons:
            commands: tuple[str, ...] = (
                format_pip_install(
                    context.target, [f"tensorflow=={release.version}", "numpy<2", "protobuf<3.20"]
                ),
            )
        else:
            commands = (
                f"py -{pythons[-1]} -m venv tf-env",
                f'tf-env\\Scripts\\python -m pip install "tensorflow=={release.version}" "numpy<2" "protobuf<3.20"',
            )
        remedies.append(
            Remedy(
                f"Use {release.version}, the last with GPU code on Windows, with CUDA 11.2 and cuDNN 8.1 from NVIDIA's "
                "archive.",
                commands,
            )
        )
    return [
        RULE.make_finding(
            Cause.WINDOWS_NATIVE_UNSUPPORTED,
            Severity.ERROR,
            f"TensorFlow {build.version} for Windows is built for the CPU{note}.",
            evidence=[
                Evidence("the operating system", "Windows"),
                Evidence("TensorFlow", build.version or ""),
            ],
            remedies=remedies,
        )
    ]


RULE = Rule(
    "TFD305",
    "windows-native-unsupported",
    "TensorFlow 2.11 and newer have no GPU code on native Windows",
    (Cause.WINDOWS_NATIVE_UNSUPPORTED,),
    check,
    short_title="no GPU code on Windows",
    needs=(
        _require_windows,
        prerequisites.require_tensorflow,
    ),
)
