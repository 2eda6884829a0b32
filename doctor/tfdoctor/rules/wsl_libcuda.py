"""Under WSL, the loader finds a libcuda that is not WSL's own, or none.

What it means
-------------
Under WSL 2 the driver is the Windows driver. WSL puts its Linux part into /usr/lib/wsl/lib and tells the
loader about it; only that libcuda.so.1 reaches the GPU. If the loader does not search that folder, or
finds a Linux driver that was installed inside WSL first, TensorFlow registers no GPU.

How it is seen
--------------
/dev/dxg exists, so WSL shows the GPU. tfdoctor follows the loader's search for libcuda.so.1 and compares
the result with the file that is really loaded.

What to do
----------
Tell the loader about /usr/lib/wsl/lib; remove Linux driver packages from WSL.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.remedies.search_path import format_export
from tfdoctor.remedies.system import APT, get_package_manager
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites

WSL_FOLDER = "/usr/lib/wsl/lib"


def _require_wsl(context: RuleContext) -> NotApplicable | None:
    return None if context.facts.machine.wsl else NotApplicable("this is not WSL")


def check(context: RuleContext) -> Result:
    state = drivers.determine_driver_state(context)
    if state.cause is not Cause.WSL_LIBCUDA:
        return ()
    wsl_files = [path for path in context.facts.driver.driver_files if path.startswith(f"{WSL_FOLDER}/")]
    evidence = [Evidence("the loader", state.reason)]
    evidence += [Evidence(path, "is WSL's own") for path in wsl_files[:2]]
    if state.driver_result is not None and state.driver_result.loaded:
        return [_build_linux_driver_finding(context, state.driver_result.path or "libcuda.so.1", evidence)]
    return [_build_search_finding(context, evidence) if wsl_files else _build_absent_finding(evidence)]


def _build_finding(title: str, explanation: str, evidence: list[Evidence], remedies: list[Remedy]) -> Finding:
    return RULE.make_finding(
        Cause.WSL_LIBCUDA, Severity.ERROR, explanation, title=title, evidence=evidence, remedies=remedies
    )


def _make_export_remedy(context: RuleContext) -> Remedy:
    return Remedy(
        "For this shell only:",
        (format_export([WSL_FOLDER]), format_check_command(context.target)),
    )


def _build_search_finding(context: RuleContext, evidence: list[Evidence]) -> Finding:
    sudo = get_sudo_prefix(context.target)
    return _build_finding(
        "WSL's libcuda is installed, but the loader does not look there",
        f"WSL's driver library is in {WSL_FOLDER}, and the loader does not know this folder: the file "
        "/etc/ld.so.conf.d/ld.wsl.conf, which WSL writes, is missing, or its cache was not rebuilt.",
        evidence,
        [
            Remedy(
                "Tell the loader about it.",
                (
                    f"echo {WSL_FOLDER} | {sudo}tee /etc/ld.so.conf.d/ld.wsl.conf",
                    f"{sudo}ldconfig",
                    format_check_command(context.target),
                ),
                changes_system=True,
            ),
            _make_export_remedy(context),
        ],
    )


def _build_absent_finding(evidence: list[Evidence]) -> Finding:
    return _build_finding(
        "WSL shows the card and has no driver library",
        f"/dev/dxg is there, and {WSL_FOLDER} has no libcuda.so.1: Windows has no NVIDIA driver with WSL "
        "support, or WSL has not taken over the one that was installed while it ran.",
        evidence,
        [
            Remedy(
                "Install or update NVIDIA's driver in Windows (no Linux driver inside WSL), then in "
                "PowerShell:",
                ("wsl --update", "wsl --shutdown"),
                changes_system=True,
            )
        ],
    )


def _build_linux_driver_finding(context: RuleContext, path: str, evidence: list[Evidence]) -> Finding:
    sudo = get_sudo_prefix(context.target)
    removal_commands: tuple[str, ...] = ()
    if get_package_manager(context.target) == APT:
        removal_commands = (
            f"dpkg -S {quote(path)}",
            f"{sudo}apt-get purge 'libnvidia-compute-*' 'nvidia-driver-*' 'libcuda1'",
            f"{sudo}ldconfig",
        )
    return _build_finding(
        "A Linux driver inside WSL comes before WSL's own",
        f"The loader takes {path}, which belongs to a Linux driver; WSL has no kernel module for it. Only "
        f"{WSL_FOLDER}/libcuda.so.1 reaches the card.",
        evidence,
        [
            Remedy("Remove the Linux driver from WSL; the first command shows its package.", removal_commands,
                   changes_system=True),
            _make_export_remedy(context),
        ],
    )  # fmt: skip


RULE = Rule(
    "TFD108",
    "wsl-libcuda",
    "Under WSL, the loader finds a libcuda that is not WSL's",
    (Cause.WSL_LIBCUDA,),
    check,
    short_title="not WSL's libcuda",
    needs=(
        _require_wsl,
        prerequisites.require_driver_result,
    ),
)
