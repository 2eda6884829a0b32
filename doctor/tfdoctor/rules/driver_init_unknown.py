"""The driver is installed but does not start.

What it means
-------------
cuInit, the function that every CUDA program calls first, fails with a number that says little: usually
CUDA_ERROR_UNKNOWN (999). Or the driver crashes, or does not answer at all. TensorFlow then registers no GPU.

How it is seen
--------------
A child process calls cuInit, with a time limit. The kernel modules, the environment and nvidia-smi show which
of the usual reasons it is: nvidia_uvm is not loaded, the machine was suspended, MPS interferes, or a system with
NVSwitch has no Fabric Manager.

What to do
----------
There is a remedy for each error number. If the number gives no reason, look at the kernel's log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.prediction.fit.drivers import find_driver_version
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.remedies.system import APT, get_package_manager, make_driver_remedy
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, kernels, prerequisites

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.core.facts import CudaDriver

MPS_ERROR_CODES = frozenset({800, 805, 806, 807, 808, 809})
"""Numbers of the CUDA errors about the Multi-Process Service."""


def check(context: RuleContext) -> Result:
    hang_reason = drivers.find_hang_reason(context)
    if hang_reason:
        return [_build_hang_finding(context, hang_reason)]
    unmet_result = prerequisites.require_driver_result(context)
    if unmet_result is not None:
        return unmet_result
    state = drivers.determine_driver_state(context)
    if state.driver_result is None or state.cause is None:
        return ()
    if state.cause is not Cause.DRIVER_INIT_UNKNOWN:
        return NotApplicable("the driver's answer names the reason itself")
    if drivers.list_node_problems(context):
        return NotApplicable("device nodes are missing or closed, which TFD113 explains")
    code = kernels.find_missing_module_rule(context)
    if code:
        return NotApplicable(f"NVIDIA's kernel module does not run, for a reason that {code} explains")
    title, explanation, remedies = _explain_crash(context, state.driver_result) or _explain_failure(
        context, state.driver_result
    )
    source = getattr(context.facts.driver.cuda, "source", "libcuda.so.1")
    evidence = [
        Evidence(source, state.reason),
        *drivers.list_module_evidence(context),
        *drivers.list_smi_evidence(context),
    ]
    return [_build_finding(title, explanation, evidence, remedies)]


def _build_finding(title: str, explanation: str, evidence: list[Evidence], remedies: list[Remedy]) -> Finding:
    """Return a finding of this rule."""
    return RULE.make_finding(
        Cause.DRIVER_INIT_UNKNOWN,
        Severity.ERROR,
        explanation,
        title=title,
        evidence=evidence,
        remedies=remedies,
    )


def _build_hang_finding(context: RuleContext, reason: str) -> Finding:
    """Return the finding that the driver does not answer."""
    source = getattr(context.facts.driver.cuda, "source", "") or "libcuda.so.1"
    return _build_finding(
        "The driver does not answer",
        f"A child process called cuInit, and {reason}. Every CUDA program will hang there too, TensorFlow "
        "included. Usually the card or its kernel module is stuck; a first call after start can also be slow "
        "where many cards have to be woken up.",
        [
            Evidence(source, reason),
            *drivers.list_module_evidence(context),
            *drivers.list_smi_evidence(context),
        ],
        [
            Remedy("Give it more time once, to tell slow from stuck.", ("tfdoctor check --timeout 60",)),
            drivers.make_kernel_log_remedy(context),
            drivers.make_reboot_remedy(
                context, "Where the kernel's log reports Xid or NVRM errors, restart."
            ),
        ],
    )


def _explain_crash(context: RuleContext, driver_result: CudaDriver) -> kernels.ProblemExplanation | None:
    """Explain a crash of the driver's library; None if it did not crash."""
    if not driver_result.crashed:
        return None
    remedies = [drivers.make_kernel_log_remedy(context)]
    preload = context.facts.environment.variables.get("LD_PRELOAD")
    if preload:
        remedies.insert(
            0,
            Remedy(
                "LD_PRELOAD is set: try without it.",
                ("unset LD_PRELOAD", format_check_command(context.target)),
            ),
        )
    if not context.facts.machine.container:
        install_remedy = make_driver_remedy(context.target)
        remedies.append(
            Remedy(
                f"Reinstall the driver. {install_remedy.text}", install_remedy.commands, changes_system=True
            )
        )
    return (
        "The driver's library crashes",
        (
            f"The child process that called cuInit was ended by {driver_result.crashed}. The libraries of the "
            "driver are damaged, have different versions at once, or something that is loaded before them "
            "breaks them."
        ),
        remedies,
    )


def _explain_failure(context: RuleContext, driver_result: CudaDriver) -> kernels.ProblemExplanation:
    """Explain the error that cuInit returned."""
    code = driver_result.init or 0
    # if MPS is in use, its errors also appear as CUDA_ERROR_UNKNOWN (999)
    if code in MPS_ERROR_CODES or (
        code == 999 and "CUDA_MPS_PIPE_DIRECTORY" in context.facts.environment.variables
    ):
        return _explain_mps(context, driver_result)
    explain_by_code: dict[int, Callable[[RuleContext], kernels.ProblemExplanation]] = {
        2: _explain_memory_failure,  # CUDA_ERROR_OUT_OF_MEMORY
        46: _explain_unavailable_device,  # CUDA_ERROR_DEVICE_UNAVAILABLE
        214: _explain_ecc_error,  # CUDA_ERROR_ECC_UNCORRECTABLE
        304: _explain_failed_system_call,  # CUDA_ERROR_OPERATING_SYSTEM
        802: _explain_fabric_manager,  # CUDA_ERROR_SYSTEM_NOT_READY
    }
    explain = explain_by_code.get(code)
    return explain(context) if explain is not None else _explain_unknown_error(context, driver_result)


def _explain_unknown_error(context: RuleContext, driver_result: CudaDriver) -> kernels.ProblemExplanation:
    """Explain an error without a function of its own, such as 999, 3 or 101.

    The explanation is based on the machine's state, which says more than the number.
    """
    driver, sudo = context.facts.driver, get_sudo_prefix(context.target)
    error = f"{driver_result.init_name} ({driver_result.init})"
    modules = value_of(driver.modules)
    machine = context.facts.machine
    # on these machines /proc does not show the module even if it is loaded
    is_module_invisible = machine.wsl or machine.container or machine.jetson
    if isinstance(driver.kernel_module, Absent) and not is_module_invisible:
        return (
            "NVIDIA's kernel module is not loaded",
            (
                f"cuInit answers {error}, and the kernel's part of the driver is not running: it was not "
                "built for this kernel, or Secure Boot refuses it because it is not signed."
            ),
            [drivers.make_load_module_remedy(context), Remedy("Is Secure Boot on?", ("mokutil --sb-state",))],
        )
    if modules is not None and "nvidia" in modules and "nvidia_uvm" not in modules:
        return (
            "The kernel module nvidia_uvm is not loaded",
            (
                f"cuInit answers {error}. The module nvidia is loaded and nvidia_uvm, which CUDA needs next to "
                "it, is not."
            ),
            [
                drivers.make_load_module_remedy(context, "nvidia-uvm"),
                Remedy(
                    "To have it after each start:",
                    (f"echo nvidia-uvm | {sudo}tee /etc/modules-load.d/nvidia-uvm.conf",),
                    changes_system=True,
                ),
            ],
        )
    explanation = kernels.explain_from_kernel_log(context)
    if explanation is not None:
        return explanation
    if context.facts.machine.container or context.facts.machine.wsl:
        restart_remedy = Remedy(
            "In Windows' PowerShell, then open the distribution again:",
            ("wsl --shutdown",),
            changes_system=True,
        )
        if context.facts.machine.container:
            restart_remedy = Remedy(
                "Restart the container; if that does not help, check the host:", ("nvidia-smi",)
            )
        return (
            f"The driver fails: {driver_result.init_name}",
            f"cuInit answers {error}, which names no reason.",
            [restart_remedy],
        )
    return (
        f"The driver fails: {driver_result.init_name}",
        (
            f"cuInit answers {error}, which names no reason. After the machine slept the usual one is that "
            "nvidia_uvm has lost the card; otherwise the kernel's log has it."
        ),
        [
            Remedy(
                "Load nvidia_uvm again (end programs that use the card first).",
                (
                    f"{sudo}rmmod nvidia_uvm",
                    f"{sudo}modprobe nvidia-uvm",
                    format_check_command(context.target),
                ),
                changes_system=True,
            ),
            drivers.make_kernel_log_remedy(context),
            drivers.make_reboot_remedy(context),
        ],
    )


def _explain_memory_failure(context: RuleContext) -> kernels.ProblemExplanation:
    """Explain error 2: the operating system gives the driver no memory."""
    del context
    return (
        "The driver cannot get memory from the system",
        (
            "cuInit answers CUDA_ERROR_OUT_OF_MEMORY (2). It means the computer's memory, not the card's: "
            "CUDA reserves much address space, and a limit (`ulimit -v`, a batch system) or a full memory "
            "forbids it."
        ),
        [Remedy("Look at the limit and at the free memory.", ("ulimit -v", "free -m"))],
    )


def _explain_unavailable_device(context: RuleContext) -> kernels.ProblemExplanation:
    """Explain error 46: another process uses the GPU exclusively, or the GPU is in a bad state."""
    return (
        "The card is present but not available",
        (
            "The driver answers CUDA_ERROR_DEVICE_UNAVAILABLE (46): another process has the card for itself "
            "(compute mode Exclusive_Process or Prohibited), or the card is in a bad state."
        ),
        [
            Remedy(
                "See who uses it, and in which compute mode it is.",
                ("nvidia-smi", "nvidia-smi --query-gpu=index,compute_mode --format=csv"),
            ),
            drivers.make_kernel_log_remedy(context),
        ],
    )


def _explain_ecc_error(context: RuleContext) -> kernels.ProblemExplanation:
    """Explain error 214: a memory error that cannot be corrected."""
    return (
        "The card's memory has an error that cannot be corrected",
        "The driver answers CUDA_ERROR_ECC_UNCORRECTABLE (214).",
        [
            Remedy("See the card's error counts.", ("nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER",)),
            drivers.make_reboot_remedy(context, "Restart; if it recurs, the card is faulty."),
        ],
    )


def _explain_failed_system_call(context: RuleContext) -> kernels.ProblemExplanation:
    """Explain error 304: a system call of the driver failed."""
    return (
        "The driver is refused something by the operating system",
        (
            "cuInit answers CUDA_ERROR_OPERATING_SYSTEM (304): a system call of the driver failed. Usually "
            "that is a device node that may not be opened, or a security module or sandbox (SELinux, "
            "AppArmor, seccomp)."
        ),
        [
            Remedy("Look at the nodes and their owner.", ("ls -l /dev/nvidia*",)),
            Remedy(
                "See which call is refused.",
                ("strace -f -e trace=openat,ioctl nvidia-smi 2>&1 | tail -n 40",),
            ),
            drivers.make_kernel_log_remedy(context),
        ],
    )


def _explain_fabric_manager(context: RuleContext) -> kernels.ProblemExplanation:
    """Explain error 802: the service that sets up NVSwitch does not run."""
    sudo, manager = get_sudo_prefix(context.target), get_package_manager(context.target)
    version = find_driver_version(context.facts)
    version_hint = f" It must be of the driver's very version, {version[0]}." if version is not None else ""
    branch = version[0].split(".")[0] if version is not None else ""
    machine = context.facts.machine
    start_commands = (
        f"{sudo}systemctl enable --now nvidia-fabricmanager",
        format_check_command(context.target),
    )
    remedies = [Remedy("Start NVIDIA's Fabric Manager.", start_commands, changes_system=True)]
    if machine.container:
        remedies = [
            Remedy(
                "On the host, start NVIDIA's Fabric Manager.",
                (f"sudo {start_commands[0].removeprefix(sudo)}",),
            )
        ]
    elif manager == APT and machine.distribution_id == "ubuntu" and branch:
        remedies.append(
            Remedy(
                f"Where it is not installed, install the one for branch {branch}.",
                (f"{sudo}apt-get install nvidia-fabricmanager-{branch}", start_commands[0]),
                changes_system=True,
            )
        )
    elif version_hint:
        remedies.append(Remedy(f"If it is not installed, NVIDIA's repository has it.{version_hint}"))
    remedies.append(
        Remedy(
            "Without NVSwitch: in confidential-computing mode the card has to be set ready.",
            ("nvidia-smi conf-compute -grs", f"{sudo}nvidia-smi conf-compute -srs 1"),
            changes_system=True,
        )
    )
    return (
        "The system is not ready: Fabric Manager is not running",
        (
            "cuInit answers CUDA_ERROR_SYSTEM_NOT_READY (802). On machines whose cards are joined by "
            "NVSwitch (HGX, DGX) nothing works before the service nvidia-fabricmanager has set up the "
            f"links.{version_hint}"
        ),
        remedies,
    )


def _explain_mps(context: RuleContext, driver_result: CudaDriver) -> kernels.ProblemExplanation:
    """Explain an error caused by the Multi-Process Service."""
    pipe_directory = context.facts.environment.variables.get("CUDA_MPS_PIPE_DIRECTORY")
    variable_text = f" CUDA_MPS_PIPE_DIRECTORY is {pipe_directory!r}." if pipe_directory else ""
    remedies = []
    if pipe_directory:
        remedies.append(
            Remedy(
                "Do without MPS in this shell.",
                ("unset CUDA_MPS_PIPE_DIRECTORY", format_check_command(context.target)),
            )
        )
    remedies.append(
        Remedy(
            "Check whether the MPS daemon runs, and for whom; end it where it is not wanted.",
            ("ps -ef | grep [n]vidia-cuda-mps", "echo quit | nvidia-cuda-mps-control"),
        )
    )
    failure = "is not permitted" if driver_result.init == 800 else "fails"
    return (
        "The Multi-Process Service (MPS) is in the way",
        (
            f"cuInit {failure}: {driver_result.init_name} ({driver_result.init}). A program that finds an MPS daemon must "
            f"go through it, and it serves one user at a time.{variable_text}"
        ),
        remedies,
    )


RULE = Rule(
    "TFD105",
    "driver-init-unknown",
    "The driver does not start",
    (Cause.DRIVER_INIT_UNKNOWN,),
    check,
    short_title="does not start",
)
