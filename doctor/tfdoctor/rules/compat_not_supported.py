"""A forward-compatibility driver is loaded, but this card or driver does not support it.

What it means
-------------
Packages such as cuda-compat-12-5 contain a newer libcuda for an older kernel module. That is supported on
data-centre GPUs only. On a GeForce, cuInit returns CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804), "forward
compatibility was attempted on non supported HW"; on other combinations that are not supported, it returns 803.

How it is seen
--------------
cuInit's error, and the path of the libcuda that was really loaded: .../cuda-12.5/compat/libcuda.so.1.

What to do
----------
Remove the compat folder from LD_LIBRARY_PATH or remove the package, so that the driver's own libcuda is used. If
its CUDA is then too old, update the driver.
"""

from __future__ import annotations

import re

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.driver import is_cuda_compat, list_driver_files
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.remedies.search_path import format_export, make_matching_removal_remedy
from tfdoctor.remedies.system import APT, DNF, ZYPPER, get_package_manager
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, path_shadowing, prerequisites

COMPAT_FOLDER_PATTERN = re.compile(r"/cuda-(\d{1,3})[.-](\d{1,2})/compat/")
"""The folder of a cuda-compat package, with its CUDA version."""


def check(context: RuleContext) -> Result:
    state = drivers.determine_driver_state(context)
    driver_result = state.driver_result
    if driver_result is None or not driver_result.loaded:
        return NotApplicable("there is no driver to ask")
    if state.cause is not Cause.COMPAT_NOT_SUPPORTED:
        return ()
    source = getattr(context.facts.driver.cuda, "source", "libcuda.so.1")
    evidence = [Evidence(source, f"cuInit: {driver_result.init_name} ({driver_result.init})")]
    if driver_result.path:
        evidence.append(Evidence(driver_result.path, "is the libcuda that was loaded"))
    if state.resolution is not None and state.resolution.via:
        evidence.append(Evidence("the loader", f"{state.resolution.path}: through {state.resolution.via}"))
    shadowing = path_shadowing.find_driver_shadowing(context, driver_result.path or "")
    if shadowing is not None:
        evidence += path_shadowing.list_hidden_file_evidence(context, shadowing)
    evidence += [*drivers.list_module_evidence(context), *drivers.list_pci_evidence(context)]
    is_compat_package = is_cuda_compat(context.facts, driver_result)
    description = (
        f"{driver_result.path} is from a cuda-compat package: a newer driver library on an older kernel module."
        if is_compat_package
        else "The driver library is newer than the kernel module."
    )
    return [
        RULE.make_finding(
            Cause.COMPAT_NOT_SUPPORTED,
            Severity.ERROR,
            f"{description} NVIDIA supports this on data-centre cards only; this card refuses it.",
            title="cuda-compat is loaded, and this card does not support it"
            if is_compat_package
            else "The driver library does not fit the kernel module, and this card refuses the combination",
            evidence=evidence,
            remedies=_build_remedies(context, driver_result.path or "", is_compat_package=is_compat_package),
        )
    ]


def _build_remedies(context: RuleContext, path: str, *, is_compat_package: bool) -> list[Remedy]:
    """Return the remedies for the libcuda at `path`; `is_compat_package` says whether a cuda-compat package owns it."""
    sudo = get_sudo_prefix(context.target)
    if not is_compat_package:
        return [
            drivers.make_reboot_remedy(
                context,
                "If the driver was updated since the last start, restart: that loads its new kernel module.",
            ),
            *_build_driver_update_remedies(context),
        ]
    remedies = []
    text = "Remove the compat folder from LD_LIBRARY_PATH; the driver's own libcuda is found without it."
    removal = make_matching_removal_remedy(context.target, "/compat/", text)
    shadowing = path_shadowing.find_driver_shadowing(context, path)
    if shadowing is not None:
        removal = path_shadowing.make_entry_removal_remedy(context, shadowing)
    if removal is not None:
        remedies.append(removal)
    folder_match = COMPAT_FOLDER_PATTERN.search(path)
    if folder_match is not None and not context.facts.machine.container:
        package = f"cuda-compat-{folder_match[1]}-{folder_match[2]}"
        uninstall_command = {
            APT: f"{sudo}apt-get remove {package}",
            DNF: f"{sudo}dnf remove {package}",
            ZYPPER: f"{sudo}zypper remove {package}",
        }.get(get_package_manager(context.target) or "")
        if uninstall_command is not None:
            remedies.append(
                Remedy("Remove the package.", (uninstall_command, f"{sudo}ldconfig"), changes_system=True)
            )
    driver_files = list_driver_files(context.facts)
    if removal is None and driver_files:
        remedies.append(
            Remedy(
                "Put the driver's own folder first, for this shell.",
                (
                    format_export([driver_files[0].rpartition("/")[0]]),
                    format_check_command(context.target),
                ),
            )
        )
    return [*remedies, *_build_driver_update_remedies(context)]


def _build_driver_update_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedy to update the driver, with the minimum for this build's CUDA if that is known."""
    build = context.build
    min_driver = None
    if build is not None and build.cuda is not None:
        min_driver = context.compat.find_driver_minimum(build.cuda).toolkit_driver
    minimum_text = f" to {min_driver} or newer" if min_driver else ""
    location = " on the host" if context.facts.machine.container else ""
    return [
        Remedy(
            f"Update the driver{location}{minimum_text}: then the compatibility package is not needed.",
            changes_system=True,
        )
    ]


RULE = Rule(
    "TFD106",
    "compat-not-supported",
    "A forward-compatibility driver is loaded where it cannot work",
    (Cause.COMPAT_NOT_SUPPORTED,),
    check,
    short_title="forward compatibility cannot work here",
    needs=(prerequisites.require_driver_result,),
    fix_order=31,
)
