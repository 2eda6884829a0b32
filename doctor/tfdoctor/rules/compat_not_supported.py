"""A forward-compatibility driver is loaded, but this card or driver does not support it.

What it means
-------------
The packages cuda-compat-12-5 and their like bring a newer libcuda for an older kernel module. That is
supported on data-centre cards only. On a GeForce cuInit answers CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
(804), "forward compatibility was attempted on non supported HW"; on other combinations that do not fit,
803.

How it is seen
--------------
cuInit's answer, and the path of the libcuda that was really loaded: .../cuda-12.5/compat/libcuda.so.1.

What to do
----------
Remove the compat folder from LD_LIBRARY_PATH or remove the package, so that the driver's own libcuda is used; where
its CUDA is then too old, update the driver.
"""

from __future__ import annotations

import re

from tfdoctor import advice
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import is_compat, list_driver_files
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, path_shadowing, prerequisites

FOLDER = re.compile(r"/cuda-(\d{1,3})[.-](\d{1,2})/compat/")


def check(context: RuleContext) -> Result:
    state = drivers.driver_state(context)
    answer = state.answer
    if answer is None or not answer.loaded:
        return NotApplicable("there is no driver to ask")
    if state.cause is not Cause.COMPAT_NOT_SUPPORTED:
        return ()
    source = getattr(context.facts.driver.cuda, "source", "libcuda.so.1")
    evidence = [Evidence(source, f"cuInit: {answer.init_name} ({answer.init})")]
    if answer.path:
        evidence.append(Evidence(answer.path, "is the libcuda that was loaded"))
    if state.resolution is not None and state.resolution.via:
        evidence.append(Evidence("the loader", f"{state.resolution.path}: through {state.resolution.via}"))
    hiding = path_shadowing.find_driver_shadowing(context, answer.path or "")
    if hiding is not None:
        evidence += path_shadowing.evidence_of_hidden_files(context, hiding)
    evidence += [*drivers.module_evidence(context), *drivers.pci_evidence(context)]
    found = is_compat(context.facts, answer)
    what = (
        f"{answer.path} is from a cuda-compat package: a newer driver library on an older kernel module."
        if found
        else "The driver library is newer than the kernel module."
    )
    return [
        RULE.finding(
            Cause.COMPAT_NOT_SUPPORTED,
            Severity.ERROR,
            f"{what} NVIDIA supports this on data-centre cards only; this card refuses it.",
            title="cuda-compat is loaded, and this card does not support it"
            if found
            else "The driver library does not fit the kernel module, and this card refuses the combination",
            evidence=evidence,
            remedies=_remedies(context, answer.path or "", found=found),
        )
    ]


def _remedies(context: RuleContext, path: str, *, found: bool) -> list[Remedy]:
    root = advice.sudo(context.target)
    if not found:
        return [
            drivers.reboot_remedy(
                context,
                "If the driver was updated since the last start, restart: that loads its new kernel module.",
            ),
            *_update(context),
        ]
    remedies = []
    text = "Remove the compat folder from LD_LIBRARY_PATH; the driver's own libcuda is found without it."
    off = advice.drop_folders_named(context.target, "/compat/", text)
    hiding = path_shadowing.find_driver_shadowing(context, path)
    if hiding is not None:
        off = path_shadowing.removal_remedy(context, hiding)
    if off is not None:
        remedies.append(off)
    match = FOLDER.search(path)
    if match is not None and not context.facts.machine.container:
        package = f"cuda-compat-{match[1]}-{match[2]}"
        remove = {
            advice.APT: f"{root}apt-get remove {package}",
            advice.DNF: f"{root}dnf remove {package}",
            advice.ZYPPER: f"{root}zypper remove {package}",
        }.get(advice.package_manager(context.target) or "")
        if remove is not None:
            remedies.append(Remedy("Remove the package.", (remove, f"{root}ldconfig"), changes_system=True))
    own = list_driver_files(context.facts)
    if off is None and own:
        remedies.append(
            Remedy(
                "Put the driver's own folder first, for this shell.",
                (advice.export_path([own[0].rpartition("/")[0]]), advice.check_again(context.target)),
            )
        )
    return [*remedies, *_update(context)]


def _update(context: RuleContext) -> list[Remedy]:
    build = context.build
    own = None
    if build is not None and build.cuda is not None:
        own = context.compat.driver_minimum(build.cuda).own
    least = f" to {own} or newer" if own else ""
    where = " on the host" if context.facts.machine.container else ""
    return [
        Remedy(
            f"Update the driver{where}{least}: then the compatibility package is not needed.",
            changes_system=True,
        )
    ]


RULE = Rule(
    "TFD106",
    "compat-not-supported",
    "A forward-compatibility driver is loaded where it cannot work",
    (Cause.COMPAT_NOT_SUPPORTED,),
    check,
    row="forward compatibility cannot work here",
    needs=(prerequisites.require_driver,),
    first=31,
)
