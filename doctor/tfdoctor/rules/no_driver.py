"""The loader cannot open the driver's library, libcuda.so.1.

What it means
-------------
TensorFlow uses the GPU through libcuda.so.1, which is part of NVIDIA's driver and of nothing else: neither
CUDA nor a wheel contains it. Without it TensorFlow registers no GPU, whatever else is installed.
TensorFlow 1.13 and older cannot even be imported.

How it is seen
--------------
tfdoctor follows the loader's rules for `libcuda.so.1` as TensorFlow opens it, and a child process opens it
for real. Other facts show the reason: no GPU on the PCI bus, a GPU that nouveau drives, a driver library
in a folder that the loader does not search, a damaged one, or one for another architecture. A container
that was given no GPU is TFD401, and WSL's own library is TFD108.

What to do
----------
Install the driver for this distribution. If the file is there, let the loader find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, Known, value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.prediction.driver import list_driver_files
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.remedies.releases import find_best_release, make_cpu_remedy
from tfdoctor.remedies.search_path import format_export
from tfdoctor.remedies.system import make_driver_remedy
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext, make_fact_evidence
from tfdoctor.rules.shared import drivers, kernels, path_shadowing
from tfdoctor.rules.shared.pythons import make_other_python_remedies

if TYPE_CHECKING:
    from tfdoctor.core.facts import Resolution

DEFAULT_LOADER_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
"""Folders that the loader searches by default; Debian also has multiarch folders below them."""


def check(context: RuleContext) -> Result:
    facts = context.facts
    if facts.machine.system == "Darwin":
        return NotApplicable("there is no CUDA on macOS")
    state = drivers.determine_driver_state(context)
    if state.cause is None and state.resolution is None and state.driver_result is None:
        return CouldNotCheck(getattr(facts.driver.cuda, "why", "") or "the driver did not answer")
    if state.cause is not Cause.NO_DRIVER:
        return ()
    other_rule_code = kernels.find_missing_module_rule(context)
    if other_rule_code:
        return NotApplicable(
            f"NVIDIA's kernel module does not run, for a reason that {other_rule_code} explains"
        )
    evidence = [Evidence("the loader", state.reason), *_list_system_evidence(context)]
    failed_lookup = state.resolution if state.resolution is not None and not state.resolution.ok else None
    if failed_lookup is None:
        return [_build_load_finding(context, state.reason, evidence)]
    if failed_lookup.path or any(attempt.problem for attempt in failed_lookup.tried):
        return [
            path_shadowing.add_shadowing_explanation(
                context, _build_damaged_finding(context, failed_lookup, evidence), ["libcuda.so.1"]
            )
        ]
    files = list_driver_files(facts)
    if files:
        return [_build_search_finding(context, files, evidence)]
    return [_build_absent_finding(context, evidence)]


def _build_finding(
    title: str, explanation: str, evidence: list[Evidence], remedies: list[Remedy] | None = None
) -> Finding:
    return RULE.make_finding(
        Cause.NO_DRIVER,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=evidence,
        remedies=remedies or (),
    )


def _build_load_finding(context: RuleContext, reason: str, evidence: list[Evidence]) -> Finding:
    """Return the finding that libcuda is found but does not load, or that cuInit returns 303.

    303 is CUDA_ERROR_SHARED_OBJECT_INIT_FAILED.
    """
    return _build_finding(
        "The driver's library libcuda.so.1 exists but does not load",
        f"{reason} The file is there; a part of the driver that it needs is damaged or missing.",
        evidence,
        [_make_reinstall_remedy(context)],
    )


def _build_damaged_finding(
    context: RuleContext, failed_lookup: Resolution, evidence: list[Evidence]
) -> Finding:
    """Return the finding that libcuda.so.1, or a library that it needs, cannot be loaded."""
    failure = next((attempt for attempt in failed_lookup.tried if attempt.problem), None)
    if failure is None:
        missing = ", ".join(name for name in failed_lookup.really_missing if name != "libcuda.so.1")
        return _build_finding(
            "The driver's library libcuda.so.1 lacks something that it needs",
            f"{failed_lookup.path} exists, but the loader cannot find {missing or 'a library that it needs'}. The "
            "driver is installed in part.",
            evidence,
            [_make_reinstall_remedy(context)],
        )
    evidence = [*evidence, Evidence(failure.path, failure.problem)]
    # the loader's probe names the ELF header's field that does not fit: the class (32 or 64 bit) or the machine
    if "class" in failure.problem or "machine" in failure.problem:
        return _build_finding(
            "The driver's library is for another architecture",
            f"{failure.path} is not for this Python ({failure.problem}): the 64-bit part of the driver for "
            f"{context.facts.machine.machine or 'this machine'} is missing, or a 32-bit or foreign one was "
            "installed alone.",
            evidence,
            [_make_reinstall_remedy(context)],
        )
    is_empty_in_container = "too short" in failure.problem and bool(context.facts.machine.container)
    note = (
        " An empty file is what an image keeps that was made from a running GPU container."
        if is_empty_in_container
        else ""
    )
    remedies = [_make_reinstall_remedy(context)]
    if context.facts.machine.container:
        remedies = [
            Remedy(
                "Remove the file from the image, and start the container with GPUs: the driver's libraries "
                "come from the host.",
                (f"rm {quote(failure.path)}",),
            )
        ]
    return _build_finding(
        "The driver's library libcuda.so.1 is damaged",
        f"The loader stops at {failure.path}: {failure.problem}.{note}",
        evidence,
        remedies,
    )


def _build_search_finding(context: RuleContext, files: tuple[str, ...], evidence: list[Evidence]) -> Finding:
    """Return the finding that the loader does not search the folder of the driver's library."""
    folder = files[0].rpartition("/")[0]
    sudo = get_sudo_prefix(context.target)
    is_default = folder in DEFAULT_LOADER_FOLDERS or folder.endswith("-linux-gnu")
    commands: tuple[str, ...] = (f"{sudo}ldconfig", format_check_command(context.target))
    if not is_default:
        line = f"echo {quote(folder)} | {sudo}tee /etc/ld.so.conf.d/nvidia-driver.conf"
        commands = (line, *commands)
    return _build_finding(
        "The driver's library exists, but the loader does not find it",
        f"A driver's library is on this machine ({files[0]}), and the loader does not look "
        f"there{' for it under the name libcuda.so.1' if is_default else ''}.",
        [*evidence, Evidence(folder, ", ".join(path.rpartition("/")[2] for path in files))],
        [
            Remedy("Tell the loader about it.", commands, changes_system=True),
            Remedy("Name its folder, for this shell only.", (format_export([folder]),)),
        ],
    )


def _build_absent_finding(context: RuleContext, evidence: list[Evidence]) -> Finding:
    """Return the finding that there is no driver library, with the reason that other facts show."""
    facts, driver = context.facts, context.facts.driver
    pci_gpus = value_of(driver.pci) or ()
    modules = value_of(driver.modules) or ()
    cpu_remedies = _make_cpu_remedies(context)
    if facts.machine.wsl:
        return _build_wsl_finding(context, evidence)
    if facts.machine.container:
        gpu_remedies = [
            Remedy("On the host, check whether its driver works.", ("nvidia-smi",)),
            Remedy("Where it does, start the container with GPUs (Docker: `--gpus all`)."),
        ]
        return _build_finding(
            "This container has no NVIDIA driver, and no card of its host is visible",
            "A container has no driver: it gets the host's when it is started with GPUs. "
            "Here neither a card nor NVIDIA's kernel module is visible.",
            evidence,
            [*cpu_remedies, *gpu_remedies]
            if isinstance(facts.tensorflow, Absent)
            else [*gpu_remedies, *cpu_remedies],
        )
    if isinstance(driver.pci, Absent):
        return _build_finding(
            "No NVIDIA driver, and no NVIDIA card on the PCI bus",
            "No NVIDIA driver is installed, and no NVIDIA card is on this machine's PCI bus: a driver would "
            "find nothing to drive. If there should be a card, it is not attached (a virtual machine or an "
            "instance type without a GPU), switched off in the firmware, or not seated.",
            evidence,
            [*cpu_remedies, Remedy("If there should be a card: attach it or switch it on, then look again.")],
        )
    if "nouveau" in modules or any(pci_gpu.driver == "nouveau" for pci_gpu in pci_gpus):
        return _build_finding(
            "The card runs on nouveau; NVIDIA's driver is not installed",
            "The card is driven by nouveau, the kernel's open-source driver, which does not support "
            "CUDA. NVIDIA's driver "
            "replaces it.",
            evidence,
            [*_make_legacy_driver_remedies(context), make_driver_remedy(context.target)],
        )
    if driver.driver_files:
        return _build_finding(
            "NVIDIA's driver is not installed; the installed libcuda belongs to the CUDA toolkit",
            f"{driver.driver_files[0]} is not a driver: the toolkit's stub is for linking, and cuda-compat "
            "works only on top of a driver.",
            [*evidence, *(Evidence(path, "is there") for path in driver.driver_files[:4])],
            [*_make_legacy_driver_remedies(context), make_driver_remedy(context.target)],
        )
    return _build_finding(
        "NVIDIA's driver is not installed",
        "libcuda.so.1 comes with NVIDIA's driver and with nothing else; it is nowhere on this machine.",
        evidence,
        [*_make_legacy_driver_remedies(context), make_driver_remedy(context.target)],
    )


def _make_cpu_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedies for a user whom the CPU suffices; an empty list if there are none."""
    facts, choice = context.facts, context.facts.choice
    if isinstance(facts.tensorflow, Known):
        if not drivers.can_use_cpu(context):
            return []
        return [Remedy("TensorFlow works here on the CPU; nothing needs to be installed for that.")]
    if choice is not None and choice.others:
        return make_other_python_remedies(context)
    release = find_best_release(context.target)
    has_lost_environment = choice is not None and choice.lost
    if has_lost_environment or release is None or context.prediction.cause is not Cause.TENSORFLOW_MISSING:
        return []
    return [make_cpu_remedy(context.target, release, "If the CPU is enough, install TensorFlow.")]


def _build_wsl_finding(context: RuleContext, evidence: list[Evidence]) -> Finding:
    """Return the finding that WSL shows no GPU. WSL 1 never does, and WSL 2 needs a driver in Windows."""
    if context.facts.machine.wsl == 1:
        return _build_finding(
            "WSL 1 gives Linux programs no GPU",
            "Only WSL 2 gives Linux access to Windows' graphics card. This distribution runs under WSL 1.",
            evidence,
            [
                Remedy(
                    "In Windows' PowerShell: list the distributions, then convert this one by its name.",
                    ("wsl --list --verbose", "wsl --set-version Ubuntu 2"),
                    changes_system=True,
                )
            ],
        )
    return _build_finding(
        "WSL shows this Linux no graphics card",
        "Under WSL 2 the card comes from Windows, as /dev/dxg, and it is not there: Windows has no NVIDIA "
        "driver with WSL support, or WSL itself is too old. No Linux driver belongs in WSL.",
        evidence,
        [
            Remedy(
                "Install or update NVIDIA's driver in Windows, then in PowerShell:",
                ("wsl --update", "wsl --shutdown"),
                changes_system=True,
            )
        ],
    )


def _make_legacy_driver_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedies to install an older driver for GPUs that new drivers no longer support."""
    remedies = []
    is_ubuntu, sudo = context.target.distribution == "ubuntu", get_sudo_prefix(context.target)
    for device in drivers.list_known_devices(context):
        # an unknown GPU counts as so new ("99") that no driver has dropped it
        branch = context.compat.cards.find_unsupported(device.compute_capability or "99")
        if branch is not None:
            remedies.append(
                Remedy(
                    f"Install a driver of branch {branch.last_branch}, the last one for {device.name}, then "
                    f"restart; newer branches do not support this "
                    "card.",
                    (f"{sudo}ubuntu-drivers install nvidia:{branch.last_branch}", f"{sudo}reboot")
                    if is_ubuntu
                    else (),
                    changes_system=True,
                )
            )
    return list(dict.fromkeys(remedies))


def _list_system_evidence(context: RuleContext) -> list[Evidence]:
    """Return the evidence from the PCI bus, the kernel modules and nvidia-smi."""
    driver = context.facts.driver
    evidence = [*drivers.list_pci_evidence(context), *drivers.list_module_evidence(context)]
    if isinstance(driver.smi, Absent):
        evidence.append(make_fact_evidence(driver.smi, driver.smi.why))
    return [*evidence, *drivers.list_smi_evidence(context)]


def _make_reinstall_remedy(context: RuleContext) -> Remedy:
    if context.facts.machine.container:
        return Remedy("Start the container again; the driver's libraries come from the host.")
    install_remedy = make_driver_remedy(context.target)
    return Remedy(
        f"Reinstall the driver. {install_remedy.text}", install_remedy.commands, changes_system=True
    )


RULE = Rule(
    "TFD101",
    "no-driver",
    "NVIDIA's driver library cannot be opened",
    (Cause.NO_DRIVER,),
    check,
    short_title="its library cannot be opened",
)
