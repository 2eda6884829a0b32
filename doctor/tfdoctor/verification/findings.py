"""Make the findings of a verification that no rule covers, such as timeouts and missing GPUs.

These findings neither confirm nor contradict tfdoctor's prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.remedies.image import choose_image_name
from tfdoctor.remedies.pip import quote
from tfdoctor.verification.session import format_memory_limit

if TYPE_CHECKING:
    from tfdoctor.core.findings import Stage
    from tfdoctor.images.engine.system import ContainerEndedError
    from tfdoctor.verification.session import VerificationRun

__all__ = [
    "make_ended_early_finding",
    "make_failed_stage_finding",
    "make_finding",
    "make_gpu_count_finding",
    "make_out_of_memory_finding",
    "make_timeout_finding",
]

TIMEOUT_FACTOR = 4
"""Factor by which the suggested time limit exceeds the previous one."""


def make_timeout_finding(run: VerificationRun, stage: str, detail: str) -> Finding:
    """Return the finding for a stage that did not end within its time limit."""
    seconds = run.verify_request.limits.get_limit(stage)
    longer_command = f"{run.build_command()} --timeout {max(seconds * TIMEOUT_FACTOR, 60):.0f}"
    return make_finding(
        run.cause or Cause.INCONCLUSIVE,
        f"{stage} did not end within {seconds:.0f} s",
        f"It was stopped, so what it would have done is not known. TensorFlow {detail}",
        (
            Remedy("Give it more time.", (longer_command,)),
            Remedy("If it still does not end, check whether the driver answers at all.", ("nvidia-smi",)),
        ),
    )


def make_failed_stage_finding(run: VerificationRun, stage: Stage) -> Finding:
    """Return the finding for a failed stage, from its error and the log of the run."""
    cause = run.cause or Cause.INCONCLUSIVE
    is_known = cause is not Cause.INCONCLUSIVE
    sees_gpus = "" if stage.name in ("import", "visible") else "sees the GPUs, and "
    cause_remedies = (
        cause.data.log_remedies if isinstance(cause.data.log_remedies, tuple) else (cause.data.log_remedies,)
    )
    remedies = [remedy for remedy in cause_remedies if isinstance(remedy, Remedy)] if is_known else []
    if is_known:
        remedies.append(
            Remedy("See what this cause means, and how to fix it.", (f"tfdoctor explain {cause.value}",))
        )
    else:
        remedies.append(
            Remedy(
                "Look at what the driver says while it happens: NVRM and Xid lines name a fault of card or driver.",
                ("sudo dmesg | grep -i -E 'nvrm|xid' | tail -n 20", run.build_command()),
            )
        )
    return make_finding(
        cause,
        cause.data.finding_title if is_known else f"TensorFlow {sees_gpus}fails at the stage {stage.name}",
        cause.data.meaning if is_known else "Neither its error nor its log says why.",
        tuple(remedies),
        (Evidence(f"the stage {stage.name}", stage.detail),),
    )


def make_out_of_memory_finding(run: VerificationRun, *, is_reported: bool) -> Finding:
    """Return the finding for a process that was killed because memory was used up.

    `is_reported` says whether the container engine reported that reason. If it did not, the reason is assumed, because
    it is the most common one for SIGKILL.
    """
    limit_note = (
        f" of {format_memory_limit(run.verify_request.memory_bytes)}"
        if run.verify_request.memory_bytes
        else ""
    )
    if run.verify_request.memory_bytes:
        title = f"The container reached its limit of memory{limit_note} and was killed"
        if not is_reported:
            title = (
                f"It was killed (SIGKILL): usually the container's limit of memory{limit_note} was reached"
            )
        remedy = Remedy("Give it more, or no limit.", (run.build_command(memory=False),))
        explanation = "The kernel ended a process of the container: it had reached its memory limit."
    else:
        title = "It was killed (SIGKILL): usually the machine's memory was used up"
        remedy = Remedy("See what is free, and who holds the rest.", ("free -h", "sudo dmesg | tail -n 20"))
        explanation = "The kernel ends the process that takes the most where memory runs out."
    return make_finding(Cause.OOM, title, explanation, (remedy,))


def make_gpu_count_finding(run: VerificationRun, visible_count: int, driver_count: int | None) -> Finding:
    """Return the finding for an unexpected number of GPUs.

    `visible_count` is the number that TensorFlow lists. `driver_count` is the number that the driver shows; None if unknown.
    """
    expected = run.expected_count or 0
    is_fewer = visible_count < expected
    if driver_count is None:
        explanation = ""
    elif driver_count == visible_count:
        explanation = f"The driver shows {driver_count} there, and TensorFlow lists all of them."
    else:
        explanation = f"The driver shows {driver_count} there, and TensorFlow lists {visible_count}."
    remedies = [
        Remedy(
            "If that is correct, expect this number.",
            (f"{run.build_command()} --gpu-count {visible_count}",),
        )
    ]
    if (
        is_fewer
        and driver_count == visible_count
        and run.image is not None
        and run.verify_request.gpus not in (None, "all")
    ):
        remedies.insert(
            0, Remedy("Give the container all of them.", (f"{run.build_command(gpus=False)} --devices all",))
        )
    elif is_fewer and driver_count == visible_count:
        remedies.insert(0, Remedy("See which cards the driver of this machine shows.", ("nvidia-smi -L",)))
    return make_finding(
        Cause.INCONCLUSIVE,
        f"{expected} GPU{'s were' if expected != 1 else ' was'} expected, and TensorFlow lists {visible_count}",
        explanation,
        tuple(remedies),
    )


def make_ended_early_finding(run: VerificationRun, error: ContainerEndedError) -> Finding:
    """Return the finding for a container that ended before any stage ran."""
    if error.is_out_of_memory:
        return make_out_of_memory_finding(run, is_reported=True)
    image_name = run.image.name if run.image is not None else "IMAGE"
    image_architecture, architecture = run.architectures
    is_foreign = bool(image_architecture and architecture) and image_architecture != architecture
    if is_foreign or "exec format error" in error.last_stderr_line.lower():
        return _make_foreign_architecture_finding(
            run,
            image_name,
            image_architecture if is_foreign else "another processor",
            architecture,
            error,
        )
    new_image_name = choose_image_name(image_name, is_rebuilt=True)
    verify_command = f"tfdoctor verify {new_image_name}"
    remedies = (
        Remedy(
            "Build an image that has all of it.", (f"tfdoctor build --tag {new_image_name}", verify_command)
        ),
        Remedy(
            "Or on this one, where it is a Debian or an Ubuntu: Python is installed, too.",
            (f"tfdoctor build --base {quote(image_name)} --tag {new_image_name}", verify_command),
        ),
    )
    if error.has_no_python:
        explanation = "TensorFlow is a Python package: without Python nothing can be examined."
        return make_finding(Cause.PYTHON_UNUSABLE, "There is no Python in this image", explanation, remedies)
    return make_finding(
        Cause.PYTHON_UNUSABLE,
        "The image's Python does not start",
        "A container of it ended before its Python answered.",
        remedies,
        (Evidence(f"the container of {image_name}", error.last_stderr_line or "it said nothing"),),
    )


def _make_foreign_architecture_finding(
    run: VerificationRun,
    image_name: str,
    image_architecture: str,
    architecture: str,
    error: ContainerEndedError,
) -> Finding:
    """Return the finding for an image whose programs this machine cannot run."""
    engine = run.image.engine_command if run.image is not None else "docker"
    return make_finding(
        Cause.PYTHON_UNUSABLE,
        f"The image is for {image_architecture}, and this machine is {architecture or 'another'}",
        f"The kernel cannot run its programs (exec format error). Verify it on a machine with {image_architecture}.",
        (
            Remedy(
                "Pull the image for this machine's processor if the registry has it, or build it for that.",
                (
                    f"{engine} pull --platform linux/{architecture} {quote(image_name)}",
                    f"{engine} build --platform linux/{architecture} -t {choose_image_name(image_name)} .",
                )
                if architecture
                else (),
            ),
        ),
        (Evidence(f"the container of {image_name}", error.last_stderr_line or "it said nothing"),),
    )


def make_finding(
    cause: Cause,
    title: str,
    explanation: str,
    remedies: tuple[Remedy, ...],
    evidence: tuple[Evidence, ...] = (),
) -> Finding:
    """Return a finding of severity error for a failed stage, with the code of its cause."""
    return Finding(
        code=cause.data.finding_code,
        cause=cause,
        severity=Severity.ERROR,
        title=title,
        explanation=explanation,
        evidence=evidence,
        remedies=remedies,
    )
