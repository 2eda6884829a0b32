"""A variable, or how the container is started, keeps the GPU or a part of the driver away from TensorFlow.

What it means
-------------
NVIDIA_VISIBLE_DEVICES=none or void gives a container no GPU (`docker run --gpus` overrides it).
NVIDIA_DRIVER_CAPABILITIES selects the parts of the driver that a container gets. Without `compute` there is no
libcuda. Without `utility` there is no NVML, and TensorFlow 2.21 and newer registers no GPU without NVML.
CUDA_VISIBLE_DEVICES hides every GPU from CUDA if it is empty or begins with anything but an index or a UUID (-1, all). A
service of a compose file and a dev container get no GPU unless the file asks for one. Kubernetes refuses a pod that asks for
one outside `limits`, or for a part of one.

How it is seen
--------------
tfdoctor reads the ENV instructions of the last stage and of the stages that it builds on. In a compose file it reads
`environment`, `deploy.resources.reservations.devices`, `gpus`, `runtime` and `devices` of the service. In
devcontainer.json it reads `containerEnv`, `runArgs` and `hostRequirements`. In a pod it reads `env` and `resources` of the
containers that ask for `nvidia.com/gpu`, or whose image is of TensorFlow for GPUs.

What to do
----------
Set NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=compute,utility, and leave CUDA_VISIBLE_DEVICES to
`docker run -e`. Request the GPU in the file or command that starts the container.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule
from tfdoctor.images.read.compose import hides_all_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Evidence, Finding
    from tfdoctor.images.checks.base import CheckContext
    from tfdoctor.images.read.compose import ContainerStart
    from tfdoctor.images.read.models import Setting

_ENOUGH_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES=compute,utility"


def check(context: CheckContext) -> Sequence[Finding]:
    """Return findings about variables of the image and about the file that starts the container."""
    environment = context.image.environment
    findings: list[Finding] = []
    visible_devices = environment.get("CUDA_VISIBLE_DEVICES")
    if (
        visible_devices is not None
        and visible_devices.value is not None
        and hides_all_gpus(visible_devices.value)
    ):
        findings.append(
            _make_finding(
                context,
                visible_devices,
                Cause.HIDDEN_BY_ENV,
                Severity.ERROR,
                "It hides every GPU from CUDA, in every container of this image.",
                "Remove the line.",
            )
        )
    container_devices = environment.get("NVIDIA_VISIBLE_DEVICES")
    if (
        container_devices is not None
        and container_devices.value is not None
        and container_devices.value.strip() in ("none", "void", "")
    ):
        findings.append(
            _make_finding(
                context,
                container_devices,
                Cause.CONTAINER_NO_GPU,
                Severity.WARNING,
                "A container of this image gets no GPU, unless `docker run --gpus` or -e says otherwise.",
                "ENV NVIDIA_VISIBLE_DEVICES=all",
            )
        )
    capabilities = environment.get("NVIDIA_DRIVER_CAPABILITIES")
    if capabilities is not None and (gap := _find_missing_capability(context, capabilities.value)):
        cause, reason = gap
        remedy = f"ENV {_ENOUGH_CAPABILITIES}"
        findings.append(_make_finding(context, capabilities, cause, Severity.ERROR, reason, remedy))
    start = context.container_start
    if start is not None and (context.tensorflow.state != "none" or start.is_in_pod or start.has_gpu_image):
        findings += _find_start_problems(context, start)
    return findings


def _find_start_problems(context: CheckContext, start: ContainerStart) -> list[Finding]:
    """Return findings about the file that starts the container."""
    noun = "container" if start.is_in_pod else "service"
    container_name = f"The {noun} {start.name}" if start.name else "The dev container"
    findings = []
    place = f"the {noun}" if start.name else "devcontainer.json"
    if start.has_gpu is False:
        findings.append(
            RULE.make_finding(
                Cause.CONTAINER_NO_GPU,
                Severity.ERROR,
                f"{container_name} is started without a GPU: "
                f"{start.gpu_problem or f'nothing in {start.file} asks for one'}.",
                title=f"{container_name} is given no GPU",
                evidence=[context.make_evidence(start.line, start.name or "devcontainer.json", start.file)],
                remedies=[
                    Remedy(f"{'Write in' if start.gpu_problem else 'Add to'} {place}: `{start.gpu_setting}`.")
                ],
            )
        )
    visible_devices = start.environment.get("CUDA_VISIBLE_DEVICES")
    if visible_devices is not None and hides_all_gpus(visible_devices):
        findings.append(
            RULE.make_finding(
                Cause.HIDDEN_BY_ENV,
                # a pod may ask for a GPU for other things than CUDA
                Severity.WARNING if start.is_in_pod else Severity.ERROR,
                "It hides every GPU from CUDA.",
                title=f"CUDA_VISIBLE_DEVICES={visible_devices or '(empty)'} keeps the GPU away",
                evidence=[_cite_variable(context, start, "CUDA_VISIBLE_DEVICES")],
                remedies=[Remedy("Remove the line.")],
            )
        )
    capabilities = start.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    if start.has_gpu and (gap := _find_missing_capability(context, capabilities)):
        findings.append(
            RULE.make_finding(
                gap[0],
                Severity.ERROR,
                gap[1],
                title=f"NVIDIA_DRIVER_CAPABILITIES={capabilities} keeps the GPU away",
                evidence=[_cite_variable(context, start, "NVIDIA_DRIVER_CAPABILITIES")],
                remedies=[Remedy(f"{_ENOUGH_CAPABILITIES}, or remove the line.")],
            )
        )
    return findings


def _cite_variable(context: CheckContext, start: ContainerStart, name: str) -> Evidence:
    """Return the line on which the file that starts the container sets a variable."""
    line = start.variable_lines.get(name, start.line)
    return context.make_evidence(line, f"{name}={start.environment[name]}", start.file)


def _find_missing_capability(context: CheckContext, value: str | None) -> tuple[Cause, str] | None:
    """Return the cause and the reason if a value of NVIDIA_DRIVER_CAPABILITIES omits a part that TensorFlow needs."""
    capabilities = {name.strip() for name in (value or "").split(",")}
    release = context.tensorflow.release
    if not value or "all" in capabilities:
        return None
    if "compute" not in capabilities:
        return (
            Cause.CONTAINER_NO_GPU,
            "Without `compute` the container gets no libcuda.so.1, so no GPU is registered.",
        )
    required = context.compat.list_driver_libraries(release.version) if release is not None else ()
    if "utility" not in capabilities and "libnvidia-ml.so.1" in required:
        first_silent_version = context.compat.get_trait("silent-without-nvml").since
        reason = (
            f"Without `utility` the container gets no libnvidia-ml.so.1 (NVML), and TensorFlow from {first_silent_version} on "
            "registers no GPU without it, and says nothing."
        )
        return Cause.NVML_MISSING, reason
    return None


def _make_finding(
    context: CheckContext, setting: Setting, cause: Cause, severity: Severity, reason: str, remedy: str
) -> Finding:
    """Return a finding about an environment variable of the image."""
    return RULE.make_finding(
        cause,
        severity,
        reason,
        title=f"{setting.name}={setting.text or '(empty)'} keeps the GPU away",
        evidence=[context.make_evidence(setting.line, f"ENV {setting.name}={setting.text}")],
        remedies=[Remedy(remedy)],
    )


RULE = DockerfileRule(
    code="TFD515",
    name="gpu-not-given",
    title="A variable of the image keeps the GPU away",
    causes=(Cause.CONTAINER_NO_GPU, Cause.HIDDEN_BY_ENV, Cause.NVML_MISSING),
    check=check,
)
