"""The loader cannot open the driver's library, libcuda.so.1.

What it means
-------------
TensorFlow reaches the GPU through libcuda.so.1, which comes with NVIDIA's driver and with nothing else: not
with CUDA, not with a wheel. Without it TensorFlow registers no GPU, whatever else is installed (TensorFlow
1.13 and older cannot even be imported).

How it is seen
--------------
The loader's rules are followed for `libcuda.so.1` as TensorFlow opens it, and a child process opens it for
real. What else is known tells why: no card on the PCI bus, a card that nouveau drives, a driver whose
library lies where the loader does not look, is damaged or is another machine's. A container that was given
no GPU is TFD401, and WSL's own library is TFD108.

What to do
----------
Install the driver for this distribution, or, where the file is there, let the loader find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.facts import Absent, Known, value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.predict import list_driver_files
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext, evidence_from
from tfdoctor.rules.shared import drivers, kernels, path_shadowing
from tfdoctor.rules.shared.pythons import examine_others

if TYPE_CHECKING:
    from tfdoctor.facts import Resolution

DEFAULT_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
"""Folders in which the loader looks without being told; Debian's multiarch ones lie below them."""


def check(context: RuleContext) -> Result:
    facts = context.facts
    if facts.machine.system == "Darwin":
        return NotApplicable("there is no CUDA on macOS")
    state = drivers.driver_state(context)
    if state.cause is None and state.resolution is None and state.answer is None:
        return CouldNotCheck(getattr(facts.driver.cuda, "why", "") or "the driver did not answer")
    if state.cause is not Cause.NO_DRIVER:
        return ()
    known = kernels.module_rule_code(context)
    if known:
        return NotApplicable(f"NVIDIA's kernel module does not run, for a reason that {known} explains")
    evidence = [Evidence("the loader", state.why), *_surroundings(context)]
    failed = state.resolution if state.resolution is not None and not state.resolution.ok else None
    if failed is None:
        return [_build_load_finding(context, state.why, evidence)]
    if failed.path or any(attempt.problem for attempt in failed.tried):
        return [
            path_shadowing.with_shadowing(
                context, _build_damaged_finding(context, failed, evidence), ["libcuda.so.1"]
            )
        ]
    files = list_driver_files(facts)
    if files:
        return [_build_search_finding(context, files, evidence)]
    return [_build_absent_finding(context, evidence)]


def _error(
    title: str, explanation: str, evidence: list[Evidence], remedies: list[Remedy] | None = None
) -> Finding:
    return RULE.finding(
        Cause.NO_DRIVER,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=evidence,
        remedies=remedies or (),
    )


def _build_load_finding(context: RuleContext, why: str, evidence: list[Evidence]) -> Finding:
    """Report that libcuda fails to load although the loader's rules allow it, or that cuInit returns 303."""
    return _error(
        "The driver's library libcuda.so.1 exists but does not load",
        f"{why} The file is there; a part of the driver that it needs is damaged or missing.",
        evidence,
        [_reinstall(context)],
    )


def _build_damaged_finding(context: RuleContext, failed: Resolution, evidence: list[Evidence]) -> Finding:
    bad = next((attempt for attempt in failed.tried if attempt.problem), None)
    if bad is None:
        lost = ", ".join(name for name in failed.really_missing if name != "libcuda.so.1")
        return _error(
            "The driver's library libcuda.so.1 lacks something that it needs",
            f"{failed.path} is there, and the loader cannot give it {lost or 'a library that it needs'}. The "
            "driver is installed in part.",
            evidence,
            [_reinstall(context)],
        )
    evidence = [*evidence, Evidence(bad.path, bad.problem)]
    if "class" in bad.problem or "machine" in bad.problem:
        return _error(
            "The driver's library is for another architecture",
            f"{bad.path} is not for this Python ({bad.problem}): the 64-bit part of the driver for "
            f"{context.facts.machine.machine or 'this machine'} is missing, or a 32-bit or foreign one was "
            "installed alone.",
            evidence,
            [_reinstall(context)],
        )
    empty = " An empty file is what an image keeps that was made from a running GPU container." * (
        "too short" in bad.problem and bool(context.facts.machine.container)
    )
    remedies = [_reinstall(context)]
    if context.facts.machine.container:
        remedies = [
            Remedy(
                "Remove the file from the image, and start the container with GPUs: the driver's libraries "
                "come from the host.",
                (f"rm {advice.quote(bad.path)}",),
            )
        ]
    return _error(
        "The driver's library libcuda.so.1 is damaged",
        f"The loader stops at {bad.path}: {bad.problem}.{empty}",
        evidence,
        remedies,
    )


def _build_search_finding(context: RuleContext, files: tuple[str, ...], evidence: list[Evidence]) -> Finding:
    folder = files[0].rpartition("/")[0]
    root = advice.sudo(context.target)
    known = folder in DEFAULT_FOLDERS or folder.endswith("-linux-gnu")
    tell: tuple[str, ...] = (f"{root}ldconfig", advice.check_again(context.target))
    if not known:
        line = f"echo {advice.quote(folder)} | {root}tee /etc/ld.so.conf.d/nvidia-driver.conf"
        tell = (line, *tell)
    return _error(
        "The driver's library exists, but the loader does not find it",
        f"A driver's library is on this machine ({files[0]}), and the loader does not look "
        f"there{' for it under the name libcuda.so.1' if known else ''}.",
        [*evidence, Evidence(folder, ", ".join(path.rpartition("/")[2] for path in files))],
        [
            Remedy("Tell the loader about it.", tell, changes_system=True),
            Remedy("Name its folder, for this shell only.", (advice.export_path([folder]),)),
        ],
    )


def _build_absent_finding(context: RuleContext, evidence: list[Evidence]) -> Finding:
    facts, driver = context.facts, context.facts.driver
    cards = value_of(driver.pci) or ()
    modules = value_of(driver.modules) or ()
    cpu = _cpu_remedies(context)
    if facts.machine.wsl:
        return _wsl_without_gpu(context, evidence)
    if facts.machine.container:
        gpus = [
            Remedy("On the host, check whether its driver works.", ("nvidia-smi",)),
            Remedy("Where it does, start the container with GPUs (Docker: `--gpus all`)."),
        ]
        return _error(
            "This container has no NVIDIA driver, and no card of its host is visible",
            "A container has no driver of its own: it gets the host's when it is started with GPUs. "
            "Here neither a card nor NVIDIA's kernel module is visible.",
            evidence,
            [*cpu, *gpus] if isinstance(facts.tensorflow, Absent) else [*gpus, *cpu],
        )
    if isinstance(driver.pci, Absent):
        return _error(
            "No NVIDIA driver, and no NVIDIA card on the PCI bus",
            "No NVIDIA driver is installed, and no NVIDIA card is on this machine's PCI bus: a driver would "
            "find nothing to drive. If there should be a card, it is not attached (a virtual machine or an "
            "instance type without a GPU), switched off in the firmware, or not seated.",
            evidence,
            [*cpu, Remedy("If there should be a card: attach it or switch it on, then look again.")],
        )
    if "nouveau" in modules or any(card.driver == "nouveau" for card in cards):
        return _error(
            "The card runs on nouveau; NVIDIA's driver is not installed",
            "The card is driven by nouveau, the kernel's open-source driver, which does not support "
            "CUDA. NVIDIA's driver "
            "replaces it.",
            evidence,
            [*_legacy_driver_remedies(context), advice.driver_install(context.target)],
        )
    if driver.driver_files:
        return _error(
            "NVIDIA's driver is not installed; the installed libcuda belongs to the CUDA toolkit",
            f"{driver.driver_files[0]} is not a driver: the toolkit's stub is for linking, and cuda-compat "
            "works only on top of a driver.",
            [*evidence, *(Evidence(path, "is there") for path in driver.driver_files[:4])],
            [*_legacy_driver_remedies(context), advice.driver_install(context.target)],
        )
    return _error(
        "NVIDIA's driver is not installed",
        "libcuda.so.1 comes with NVIDIA's driver and with nothing else; it is nowhere on this machine.",
        evidence,
        [*_legacy_driver_remedies(context), advice.driver_install(context.target)],
    )


def _cpu_remedies(context: RuleContext) -> list[Remedy]:
    """List the remedies for a user who needs no GPU."""
    facts, choice = context.facts, context.facts.choice
    if isinstance(facts.tensorflow, Known):
        return [Remedy("TensorFlow works here on the CPU; nothing needs to be installed for that.")]
    if choice is not None and choice.others:
        return examine_others(context)
    release = advice.best_release(context.target)
    nobody_meant_it = choice is not None and choice.lost
    if nobody_meant_it or release is None or context.prediction.cause is not Cause.TENSORFLOW_MISSING:
        return []
    return [advice.install_for_cpu(context.target, release, "If the CPU is enough, install TensorFlow.")]


def _wsl_without_gpu(context: RuleContext, evidence: list[Evidence]) -> Finding:
    if context.facts.machine.wsl == 1:
        return _error(
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
    return _error(
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


def _legacy_driver_remedies(context: RuleContext) -> list[Remedy]:
    """List which driver a card needs that the newest driver no longer supports."""
    said = []
    ubuntu, root = context.target.distribution == "ubuntu", advice.sudo(context.target)
    for device in drivers.list_known_devices(context):
        branch = context.compat.cards.find_ended(device.compute_capability or "99")
        if branch is not None:
            said.append(
                Remedy(
                    f"Install a driver of branch {branch.last}, the last one for {device.name}, then "
                    f"restart; newer branches do not support this "
                    "card.",
                    (f"{root}ubuntu-drivers install nvidia:{branch.last}", f"{root}reboot") if ubuntu else (),
                    changes_system=True,
                )
            )
    return list(dict.fromkeys(said))


def _surroundings(context: RuleContext) -> list[Evidence]:
    driver = context.facts.driver
    lines = [*drivers.pci_evidence(context), *drivers.module_evidence(context)]
    if isinstance(driver.smi, Absent):
        lines.append(evidence_from(driver.smi, driver.smi.why))
    return [*lines, *drivers.smi_evidence(context)]


def _reinstall(context: RuleContext) -> Remedy:
    if context.facts.machine.container:
        return Remedy("Start the container again; the driver's libraries come from the host.")
    install = advice.driver_install(context.target)
    return Remedy(f"Reinstall the driver. {install.text}", install.commands, changes_system=True)


RULE = Rule(
    "TFD101",
    "no-driver",
    "NVIDIA's driver library cannot be opened",
    (Cause.NO_DRIVER,),
    check,
    row="its library cannot be opened",
)
