"""Verify TensorFlow in an image, in a container with the GPUs."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tfdoctor.core.facts import value_of
from tfdoctor.core.facts.python import UnusablePython
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import clean_line
from tfdoctor.diagnosis import examine
from tfdoctor.images.engine import EngineError, GpuAccess, RunRequest
from tfdoctor.images.engine.container_run import SIMULATION_FOLDER
from tfdoctor.images.engine.system import ContainerEndedError, ContainerSystem, StartError
from tfdoctor.logs.report import diagnose_log
from tfdoctor.remedies import engine as engine_advice
from tfdoctor.remedies import engine_state
from tfdoctor.remedies.engine import CAPABILITIES_VARIABLE, excludes_capability, make_capabilities_remedy
from tfdoctor.remedies.image import adapt_image_finding, make_dockerfile_remedy
from tfdoctor.remedies.target import TargetImage, build_target
from tfdoctor.rules import prediction_differs
from tfdoctor.verification.findings import (
    make_ended_early_finding,
    make_finding,
    make_out_of_memory_finding,
)
from tfdoctor.verification.session import VerificationRun, complete_request, count_expected_gpus, ignore_stage
from tfdoctor.verification.simulate.build import build_software_gpu
from tfdoctor.verification.simulate.facts import RealGpuFilter
from tfdoctor.verification.simulate.request import add_stand_in
from tfdoctor.verification.simulate.sources import SOURCE_BY_SONAME
from tfdoctor.verification.target_stages import PROBE_TIMEOUT_S, run_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import Facts
    from tfdoctor.core.facts.containers import ContainerFacts
    from tfdoctor.core.findings import Stage, Verification
    from tfdoctor.diagnosis.progress import Progress
    from tfdoctor.images.engine import ContainerEngine
    from tfdoctor.system import System
    from tfdoctor.verification.session import VerifyRequest
    from tfdoctor.verification.simulate.request import SimulatedGpus

__all__ = ["find_python", "get_gpu_option", "list_gpu_access", "verify_image"]

_PYTHON_COMMANDS = ("python", "python3", "python2")
_TENSORFLOW_TEST_CODE = (
    "import sys\n"
    "try:\n from importlib.util import find_spec\n"
    "except ImportError:\n from pkgutil import find_loader as find_spec\n"
    "sys.exit(not find_spec('tensorflow'))"
)
"""Code for Python 2 and 3 that exits with status 0 if TensorFlow is installed."""
_UNKNOWN_DEVICE = re.compile(r"device error: .{0,400}unknown device|unresolvable CDI devices?")
"""The part of an engine's message about a GPU that does not exist."""
_ERROR_REASON = re.compile(
    r"(?:nvidia-container-cli|could not select|unresolvable|exec: ).{0,300}", re.DOTALL
)
"""The part of an engine's message that states the reason."""
INIT_PROGRAMS = frozenset({"tini", "tini-static", "dumb-init", "catatonit", "docker-init"})
"""Programs that only start another program and forward signals to it."""


def verify_image(
    engine: ContainerEngine,
    compat: Compat,
    image: str,
    verify_request: VerifyRequest,
    *,
    host: Facts | None = None,
    on_stage: Callable[[Stage], None] = ignore_stage,
    stand_in: Path | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Verify an image in a container that is removed at the end.

    `host` contains the facts about this machine; None if the engine runs on another one. `stand_in` is the folder with
    the libraries of the stand-in driver, which are copied into the container if `verify_request.simulated` is set.
    `progress` shows long operations outside the stages.

    Raise EngineError if the image or the engine is not found.
    """
    image_info = engine.find_image(image)
    if image_info is None:
        msg = f"the image {image} is not here."
        raise EngineError(msg, hint=f"{engine.name} pull {image}")
    verify_request = complete_request(verify_request)
    run = VerificationRun(
        image,
        verify_request,
        on_stage,
        image=TargetImage(
            image, engine.name, "", image_info.user, _find_planned_tensorflow(image_info.labels)
        ),
    )
    run.architectures = (image_info.architecture, engine.architecture)
    if run.expected_count is None and host is not None:
        run.expected_count = count_expected_gpus(host, verify_request.gpus)
    started = time.monotonic()
    request = RunRequest(image=image, command=(), memory_bytes=verify_request.memory_bytes, shm_size=1 << 30)
    if verify_request.simulated_gpus is not None and stand_in is not None:
        request = _add_stand_in(request, verify_request.simulated_gpus, image_info.environment, stand_in)
    system, access = _start_container(engine, compat, request, verify_request, host, run)
    if system is None:
        return run.make_result()
    run.gpu_option = access.run_options
    assert run.image is not None  # noqa: S101 - it was given above
    run.image = target_image = dataclasses.replace(
        run.image, gpu_option=access.run_options or get_gpu_option(engine)
    )
    try:
        with system:
            startup_seconds = time.monotonic() - started
            python = verify_request.python or find_python(system)
            simulation = RealGpuFilter() if verify_request.simulated_gpus is not None else None
            report = examine(
                system,
                compat,
                python=python,
                timeout=PROBE_TIMEOUT_S,
                image=target_image,
                modify_facts=simulation,
            )
            run.other_libcuda = simulation.other_libcuda if simulation is not None else None
            if simulation is not None and stand_in is not None:
                run.build_software_gpu = lambda libraries, glibc: system.copy_files(
                    {
                        path.name: path.read_bytes()
                        for path in build_software_gpu(libraries, glibc=glibc, progress=progress).iterdir()
                    }
                )
            if "runtime" in verify_request.stages:
                _check_runtime(run, report.facts, access, startup_seconds, image_info.entrypoint)
                if run.has_failed and not isinstance(report.facts.python, UnusablePython):
                    _explain_missing_gpu(run, report.facts, compat, image_info.environment)
            run_stages(run, system, compat, report)
            if system.get_state().get("OOMKilled"):
                _record_out_of_memory(run)
    except ContainerEndedError as error:
        _record_early_end(run, error, time.monotonic() - started)
    return run.make_result()


def _record_early_end(run: VerificationRun, error: ContainerEndedError, seconds: float) -> None:
    """Add the finding for a container that ended before or during the stages."""
    finding = make_ended_early_finding(run, error)
    run.findings.insert(0, finding)
    run.record_failure("runtime" if not run.stages else "import", finding.title, finding.cause, seconds)


def _record_out_of_memory(run: VerificationRun) -> None:
    """Add the finding for a container in which the kernel killed a process because of the memory limit.

    If no stage failed, it was a probe, so that its prediction is incomplete and no difference from it is a fault.
    """
    finding = make_out_of_memory_finding(run, is_reported=True)
    if run.has_failed:
        run.cause = Cause.OOM
    else:
        finding = dataclasses.replace(finding, severity=Severity.WARNING)
    omitted = (finding.code, prediction_differs.RULE.code)
    run.findings = [finding, *(other for other in run.findings if other.code not in omitted)]


def _find_planned_tensorflow(labels: Mapping[str, str]) -> str:
    """Return the TensorFlow version in the label with tfdoctor's plan; "" if there is none."""
    try:
        plan = json.loads(labels.get("io.tfdoctor.plan", "{}"))
    except (ValueError, RecursionError):
        return ""
    version = plan.get("tensorflow") if isinstance(plan, dict) else None
    return version if isinstance(version, str) else ""


def _explain_missing_gpu(
    run: VerificationRun, facts: Facts, compat: Compat, environment: Mapping[str, str]
) -> None:
    """Add a finding if the request, or a variable of the image, is the reason why a container has no GPU.

    `environment` has the image's own variables.
    """
    capabilities = environment.get(CAPABILITIES_VARIABLE)
    if run.verify_request.gpus == "none":
        title = "The container was started without GPUs, as asked"
        explanation = "With --devices none a container gets no GPU. The host's driver was not examined."
        evidence = Evidence("--devices", "none")
        remedy = Remedy("Give it GPUs.", (run.build_command(gpus=False),))
    elif capabilities is not None and excludes_capability(capabilities, "compute"):
        title = f"The image's {CAPABILITIES_VARIABLE} excludes the driver's libcuda"
        explanation = f"It is {capabilities!r}: without `compute` a container gets no libcuda.so.1."
        evidence = Evidence(f"ENV {CAPABILITIES_VARIABLE}", capabilities)
        remedy = make_capabilities_remedy(build_target(facts, compat, run.image))
    else:
        return
    finding = make_finding(Cause.CONTAINER_NO_GPU, title, explanation, (remedy,), (evidence,))
    run.findings.append(adapt_image_finding(build_target(facts, compat, run.image), finding))


def get_gpu_option(engine: ContainerEngine) -> str:
    """Return the engine's most common option that gives a container access to all GPUs."""
    return list_gpu_access(engine, None)[0].run_options


def _add_stand_in(
    request: RunRequest, simulated: SimulatedGpus, environment: Mapping[str, str], stand_in: Path
) -> RunRequest:
    """Add the stand-in driver to a request, at the end of the image's library path.

    `environment` has the image's environment variables.
    """
    return dataclasses.replace(
        request,
        environment=add_stand_in(environment, simulated, SIMULATION_FOLDER),
        simulation_files={name: (stand_in / name).read_bytes() for name in SOURCE_BY_SONAME},
    )


def _start_container(
    engine: ContainerEngine,
    compat: Compat,
    request: RunRequest,
    verify_request: VerifyRequest,
    host: Facts | None,
    run: VerificationRun,
) -> tuple[ContainerSystem | None, GpuAccess]:
    """Start the container with the first kind of GPU access that the engine accepts.

    Return the system and the access. If no container starts, record the failure in `run` and return None as the
    system.
    """
    started = time.monotonic()
    refusals: list[tuple[GpuAccess, str]] = []
    for access in list_gpu_access(engine, verify_request.gpus):
        try:
            return ContainerSystem(engine, dataclasses.replace(request, gpus=access)), access
        except StartError as error:
            refusals.append((access, error.message))
        except ContainerEndedError as error:
            run.gpu_option = access.run_options
            _record_early_end(run, error, time.monotonic() - started)
            return None, access
    access, message = refusals[0]
    assert run.image is not None  # noqa: S101 - only an image is started
    finding = _explain_refusal(engine, compat, refusals, host, run.image)
    run.gpu_option = access.run_options
    run.findings.append(finding)
    detail = f"{finding.title}: {_shorten_message(message)}"
    run.record_failure("runtime", detail, finding.cause, time.monotonic() - started)
    return None, access


def list_gpu_access(engine: ContainerEngine, gpus: str | None) -> list[GpuAccess]:
    """Return the kinds of GPU access that this engine may accept, the most common first."""
    if gpus == "none":
        return [GpuAccess("none")]
    devices = ("all",) if gpus in (None, "all", "") else tuple(str(gpus).split(","))
    accesses: list[GpuAccess] = []
    if engine.name == "podman":
        return [GpuAccess("cdi", devices)]
    accesses.append(GpuAccess("gpus", devices))
    if "nvidia" in engine.runtimes:
        accesses.append(GpuAccess("runtime", devices))
    if engine.supports_cdi:
        accesses.append(GpuAccess("cdi", devices))
    return accesses


def _explain_refusal(
    engine: ContainerEngine,
    compat: Compat,
    refusals: Sequence[tuple[GpuAccess, str]],
    host: Facts | None,
    image: TargetImage,
) -> Finding:
    """Return the finding that explains the engine's error messages, using the signatures of `diagnose`."""
    # `docker run` prints the messages in this form, in which the signatures recognise them.
    text = "\n".join(f"docker: Error response from daemon: {message}" for _, message in refusals)
    evidence = tuple(
        Evidence(f"{engine.name} run {access.run_options}", clean_line(message, limit=600))
        for access, message in refusals
    )
    (access, _), containers = refusals[0], value_of(host.containers) if host is not None else None
    if access.devices != ("all",) and _is_unknown_device(text, containers):
        return _make_unknown_gpu_finding(engine, access, host, evidence)
    report = diagnose_log([text.encode("utf-8", "replace")], compat, "the engine")
    cause = report.cause
    if cause in (Cause.INCONCLUSIVE, Cause.HEALTHY):
        cause = Cause.NO_NVIDIA_RUNTIME if _mentions_gpus(text) else Cause.INCONCLUSIVE
    general_remedies = list(report.root_finding.remedies) if report.root_finding is not None else []
    if engine.name == "podman" and cause is Cause.NO_NVIDIA_RUNTIME:
        general_remedies = [engine_advice.make_cdi_spec_remedy()]
    specific_remedies: list[Remedy] = []
    if containers is not None:
        specific_remedies = [
            remedy
            for problem in engine_state.list_engine_problems(containers)
            if problem.cause is cause
            for remedy in problem.remedies
        ]
    title = report.root_finding.title if report.root_finding is not None else cause.data.finding_title
    explanation = report.summary if report.root_finding is not None else cause.data.meaning
    if cause is Cause.INCONCLUSIVE:
        title, explanation = (
            "The engine does not start the container",
            "The engine's message is not about GPUs.",
        )
        general_remedies = [_make_start_remedy(image, text)]
    return Finding(
        code=cause.data.finding_code,
        cause=cause,
        severity=Severity.ERROR,
        title=clean_line(title, limit=200),
        explanation=clean_line(explanation, limit=1000),
        evidence=evidence,
        # Remedies for this machine replace the general ones.
        remedies=_drop_duplicates(specific_remedies or general_remedies),
    )


def _make_start_remedy(image: TargetImage, text: str) -> Remedy:
    """Return the remedy for an engine's error message that is not about GPUs."""
    if "unable to find user" in text:
        reason = "The image's USER is not in its /etc/passwd. A number needs no entry there."
        return make_dockerfile_remedy(image, reason, ("USER 1000",))
    command = f"{image.engine_command} run --rm {image.name} true"
    return Remedy("Start it without a GPU, until the engine accepts it.", (command,))


def _drop_duplicates(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Return the remedies without those that repeat the commands, or else the text, of an earlier one."""
    remedy_by_key: dict[object, Remedy] = {}
    for remedy in remedies:
        remedy_by_key.setdefault(remedy.commands or remedy.text, remedy)
    return tuple(remedy_by_key.values())


def _is_unknown_device(text: str, containers: ContainerFacts | None) -> bool:
    """Return whether the engine's error messages say that it has GPUs, but not the requested one.

    For CDI, the message is the same if the engine has no GPUs, so the machine's CDI specifications decide.
    """
    if "unresolvable CDI" in text:
        return containers is not None and bool(engine_advice.list_gpu_cdi_specs(containers))
    return _UNKNOWN_DEVICE.search(text) is not None


def _make_unknown_gpu_finding(
    engine: ContainerEngine, access: GpuAccess, host: Facts | None, evidence: tuple[Evidence, ...]
) -> Finding:
    """Return the finding for a requested GPU that does not exist."""
    count = count_expected_gpus(host, None) if host is not None else None
    requested = ",".join(access.devices)
    count_text = f"The driver shows {count} GPU{'s' * (count != 1)} (from 0 on). " if count else ""
    command = "nvidia-ctk cdi list" if access.mechanism == "cdi" else "nvidia-smi -L"
    return Finding(
        code=Cause.NO_DEVICE.data.finding_code,
        cause=Cause.NO_DEVICE,
        severity=Severity.ERROR,
        title=f"{engine.name} has no GPU {requested}",
        explanation=f"{count_text}--devices takes their indexes or UUIDs, and one of those named does not exist.",
        evidence=evidence,
        remedies=(Remedy("List the existing ones and name those, or use all.", (command,)),),
    )


def _shorten_message(message: str) -> str:
    """Return the part of the engine's message with the reason. The beginning only names engine components."""
    match = _ERROR_REASON.search(message)
    return clean_line(match[0] if match is not None else message, limit=300)


def _mentions_gpus(text: str) -> bool:
    """Return whether the engine's error messages contain a word about GPUs or their drivers."""
    return any(word in text.lower() for word in ("gpu", "nvidia", "cdi", "device driver"))


def find_python(system: System) -> str | None:
    """Return the path of the first Python on the image's PATH that has TensorFlow; None if none has it."""
    for name in _PYTHON_COMMANDS:
        path = system.which(name)
        if path is None:
            continue
        result = system.run([path, "-B", "-c", _TENSORFLOW_TEST_CODE], timeout=20)
        if result.ok:
            return path
    return None


def _describe_entrypoint(entrypoint: Sequence[str]) -> str:
    """Return a note that the image's ENTRYPOINT is not run; "" if it has none, or only an init program."""
    arguments = [
        word
        for word in entrypoint
        if not word.startswith("-") and PurePosixPath(word).name not in INIT_PROGRAMS
    ]
    command = clean_line(" ".join(arguments), limit=40)
    return f"; its ENTRYPOINT ({command}) is not run" if arguments else ""


def _check_runtime(
    run: VerificationRun, facts: Facts, access: GpuAccess, seconds: float, entrypoint: Sequence[str]
) -> None:
    """Record the stage `runtime`: a container starts, and has a driver or device nodes if it needs GPUs."""
    cuda = value_of(facts.driver.cuda)
    nodes = value_of(facts.driver.nodes)
    loader = value_of(facts.loader)
    has_gpu = (
        (cuda is not None and cuda.loaded)
        or (nodes is not None and any(name.startswith("/dev/nvidia") for name in nodes.names))
        # A file of the image hides the driver's library: the stage `driver` reports it.
        or any(
            replaced.soname == "libcuda.so.1" and replaced.other is not None
            for removal_result in (loader.without if loader is not None else ())
            for replaced in removal_result.instead
        )
    )
    if run.verify_request.simulated_gpus is not None:
        run.record_stage(
            "runtime",
            "passed",
            "a container starts, without GPUs: a stand-in driver is added",
            seconds,
        )
        return
    if has_gpu or run.verify_request.device != "GPU":
        detail = (
            f"a container starts with {access.run_options or 'no GPUs'}{_describe_entrypoint(entrypoint)}"
        )
        run.record_stage("runtime", "passed", detail, seconds)
        return
    if isinstance(facts.python, UnusablePython) and cuda is None:
        # Nothing in the container could ask the driver.
        run.record_failure("runtime", "the image's Python does not start", Cause.PYTHON_UNUSABLE, seconds)
        return
    is_without_gpus = run.verify_request.gpus == "none"
    cause = Cause.CONTAINER_NO_GPU
    detail = (
        "the container was started without GPUs, as asked"
        if is_without_gpus
        else f"the container starts with {access.run_options}, but gets neither a driver nor a device node"
    )
    run.record_failure("runtime", detail, cause, seconds)
