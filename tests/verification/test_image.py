"""Verification of an image, as far as it needs no real engine: stages, refusals of an engine, and messages."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rules.make_facts import COMPAT
from tfdoctor.cli.verify import _parse_devices
from tfdoctor.core.errors import UsageError
from tfdoctor.core.findings import Cause, Remedy, Verification
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.diagnosis.tensorflow_run import RunAnswer, make_observation
from tfdoctor.images.engine import GpuAccess
from tfdoctor.images.engine.system import ContainerEndedError, _is_missing_command
from tfdoctor.planning.hypothetical_facts import EnvironmentSketch, make_facts_from_sketch
from tfdoctor.remedies.target import TargetImage
from tfdoctor.render.verify import render_result
from tfdoctor.rules.changed_files import _is_omitted_from_images
from tfdoctor.system import CommandResult, Failure
from tfdoctor.verification.findings import (
    make_ended_early_finding,
    make_gpu_count_finding,
    make_out_of_memory_finding,
    make_timeout_finding,
)
from tfdoctor.verification.image import _explain_refusal
from tfdoctor.verification.session import VerificationRun, VerifyRequest, complete_request, ignore_stage
from tfdoctor.verification.stages import STAGES, Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.engine import ContainerEngine

IMAGE = TargetImage("team/app:1", "docker", "--gpus all", "1000")


def make_verifying(*stages: str, image: TargetImage | None = IMAGE, **options: Any) -> VerificationRun:
    """Return a verification of `image`, or of a Python if it is None."""
    request = complete_request(VerifyRequest(stages=stages or STAGES, **options))
    return VerificationRun(
        image.name if image is not None else "/opt/bin/python", request, ignore_stage, image
    )


def get_refusal(message: str, *devices: str, podman: bool = False, host: Any = None) -> Finding:
    """Return the finding for an engine's refusal to start a container with GPUs."""
    engine = cast("ContainerEngine", SimpleNamespace(name="podman" if podman else "docker"))
    access = GpuAccess("cdi" if podman else "gpus", devices or ("all",))
    image = TargetImage("team/tf:1", engine.name)
    return _explain_refusal(engine, COMPAT, [(access, message)], host, image)


# ---------------------------------------------------------------- stages that did not run are not passed


# ---------------------------------------------------------------- time and memory


def test_exceeded_deadline_is_named() -> None:
    finding = make_timeout_finding(
        make_verifying("import", limits=Limits.from_seconds(1)), "import", "did not end within 1 s."
    )
    assert finding.title == "import did not end within 1 s"
    assert finding.remedies[0].commands == ("tfdoctor verify team/app:1 --timeout 60",)


@pytest.mark.parametrize("memory", [100 << 20, 8 << 30])
def test_memory_limit_is_named(memory: int) -> None:
    finding = make_out_of_memory_finding(make_verifying(memory_bytes=memory), is_reported=True)
    assert finding.cause is Cause.OOM
    assert f"{memory >> 20}m" in finding.title or f"{memory >> 30}g" in finding.title
    assert finding.remedies[0].commands == ("tfdoctor verify team/app:1",)


def test_sigkill_without_limit_suggests_machine_memory() -> None:
    finding = make_out_of_memory_finding(make_verifying(), is_reported=False)
    assert "SIGKILL" in finding.title
    assert "machine's memory" in finding.title


@pytest.mark.parametrize(
    ("result", "timed_out"),
    [
        (CommandResult(("python",), None, failure=Failure.TIMEOUT), True),
        (CommandResult(("python",), -14), True),
        (CommandResult(("python",), -9), False),
        (CommandResult(("python",), 137), False),
    ],
)
def test_stopped_run_contradicts_no_prediction(result: CommandResult, timed_out: bool) -> None:
    distributions = (("tensorflow", "2.20.0"),)
    facts = make_facts_from_sketch(COMPAT, EnvironmentSketch("2.20.0", "tensorflow", "3.11", distributions))
    observed = make_observation(RunAnswer(False, None, (), "", 1.0, timed_out), result, (), COMPAT)
    assert (observed.gpu_registered, observed.cause) == (None, Cause.INCONCLUSIVE)
    report = diagnose(facts, COMPAT, observed, image=IMAGE)
    assert "TFD901" not in {finding.code for finding in report.findings}
    assert any(outcome.code == "TFD901" and "was run and" in outcome.reason for outcome in report.outcomes)


# ---------------------------------------------------------------- the --gpus option


@pytest.mark.parametrize(
    "text",
    ["all", "none", "0", "0,1", "0:1", "GPU-8a3b", "MIG-1fa2/0/1", "GPU-3faa8dd0-11,GPU-4567", "gpu0", None],
)
def test_valid_gpus_option_is_accepted(text: str | None) -> None:
    assert _parse_devices(text) == text


@pytest.mark.parametrize("text", ["banana", "", "0,", "0,all", "-1", "0 1", "GPU-", "x" * 500])
def test_invalid_gpus_option_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--devices"):
        _parse_devices(text)


HOOK_REFUSAL = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
    "error running hook #0: exit status 1, stdout: , stderr: nvidia-container-cli: device error: 0,1: unknown device"
)
CDI_REFUSAL = (
    "preparing container 0123 for attach: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"
)


def test_missing_gpu_is_not_a_broken_driver() -> None:
    finding = get_refusal(HOOK_REFUSAL, "0", "1")
    assert finding.cause is Cause.NO_DEVICE
    assert finding.remedies[0].commands == ("nvidia-smi -L",)


def test_driver_is_the_cause_if_all_gpus_were_requested() -> None:
    message = (
        "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open"
    )
    assert get_refusal(message).cause is Cause.CONTAINER_DRIVER_LIBS


def test_podman_without_cdi_specification_has_a_remedy() -> None:
    finding = get_refusal(CDI_REFUSAL, podman=True)
    assert finding.cause is Cause.NO_NVIDIA_RUNTIME
    commands = finding.remedies[0].commands
    assert commands[0].endswith("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
    assert not any("docker" in line for remedy in finding.remedies for line in remedy.commands)


def test_unrelated_refusal_is_inconclusive() -> None:
    finding = get_refusal("cgroups: cannot find cgroup mount destination")
    assert finding.cause is Cause.INCONCLUSIVE
    assert "log" not in finding.title


@pytest.mark.parametrize(
    ("visible", "given", "words", "first", "explanation"),
    [
        (
            1,
            1,
            {"gpus": "0"},
            "tfdoctor verify team/app:1 --devices all",
            "1 there, and TensorFlow lists all of them.",
        ),
        (1, 1, {"gpus": "all"}, "nvidia-smi -L", "1 there, and TensorFlow lists all of them."),
        (1, 1, {}, "nvidia-smi -L", "1 there, and TensorFlow lists all of them."),
        (1, 2, {}, "tfdoctor verify team/app:1 --gpu-count 1", "2 there, and TensorFlow lists 1."),
        (
            3,
            3,
            {},
            "tfdoctor verify team/app:1 --gpu-count 3",
            "3 there, and TensorFlow lists all of them.",
        ),
        (3, None, {}, "tfdoctor verify team/app:1 --gpu-count 3", ""),
    ],
)
def test_unexpected_number_of_gpus_is_explained(
    visible: int, given: int | None, words: Mapping[str, Any], first: str, explanation: str
) -> None:
    finding = make_gpu_count_finding(make_verifying(expected=2, **words), visible, given)
    assert finding.explanation == (f"The driver shows {explanation}" if explanation else "")
    assert finding.remedies[0].commands == (first,)
    assert any("--gpu-count" in line for remedy in finding.remedies for line in remedy.commands)


# ---------------------------------------------------------------- no Python


def test_image_without_python_has_a_remedy() -> None:
    finding = make_ended_early_finding(make_verifying(), ContainerEndedError("", no_python=True))
    assert finding.cause is Cause.PYTHON_UNUSABLE
    assert finding.remedies[1].commands == (
        "tfdoctor build --base team/app:1 --tag team/app:fixed",
        "tfdoctor verify team/app:fixed",
    )
    assert make_ended_early_finding(make_verifying(), ContainerEndedError("", oom=True)).cause is Cause.OOM
    broken_python = make_ended_early_finding(
        make_verifying(), ContainerEndedError("python3: error while loading shared libraries")
    )
    assert "loading shared libraries" in broken_python.evidence[0].text
    silent = make_ended_early_finding(make_verifying(), ContainerEndedError(""))
    assert silent.evidence[0].text == "it said nothing"


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ('OCI runtime create failed: exec: "sh": executable file not found in $PATH: unknown', True),
        ("crun: executable file `sh` not found in $PATH: No such file or directory: OCI runtime exec", True),
        ("[FATAL tini (7)] exec sh failed: No such file or directory", True),
        ('exec: "nvidia-container-cli": executable file not found in $PATH', False),
    ],
)
def test_missing_command_in_image_is_recognized(said: str, missing: bool) -> None:
    assert _is_missing_command(said, "sh") is missing


# ---------------------------------------------------------------- suggested commands


def test_suggested_command_names_the_image() -> None:
    run = make_verifying("import")
    run.record_failure("import", "no", Cause.NUMPY_ABI)
    run.findings = [replace(make_timeout_finding(run, "import", "x"), cause=Cause.NUMPY_ABI)]
    result: Verification = run.make_result()
    assert result.command == "tfdoctor verify team/app:1"
    assert "tfdoctor verify team/app:1 -v" in render_result(result, width=100)


def test_dockerfile_lines_are_not_cut() -> None:
    run = make_verifying("import")
    run.record_failure("import", "no", Cause.NUMPY_ABI)
    commands = (
        "USER root",
        *(f"RUN pip install something=={n}" for n in range(8)),
        "docker build -t x .",
        "tfdoctor verify x",
    )
    run.findings = [
        replace(make_timeout_finding(run, "import", "x"), remedies=(Remedy("Write this.", commands),))
    ]
    output = render_result(run.make_result(), width=100)
    assert all(line in output for line in commands)


def test_files_omitted_from_our_images_are_not_missing() -> None:
    context = cast("Any", SimpleNamespace(build=SimpleNamespace(version="2.16.2"), compat=COMPAT))
    assert _is_omitted_from_images(context, "nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so")
    assert not _is_omitted_from_images(context, "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc")


# ---------------------------------------------------------------- a container that does not start


@pytest.mark.parametrize(
    ("message", "commands"),
    [
        (
            "unable to find user nosuch: no matching entries in passwd file",
            ("USER 1000", "docker build -t team/tf:1-fixed .", "tfdoctor verify team/tf:1-fixed"),
        ),
        ('invalid mount config for type "bind"', ("docker run --rm team/tf:1 true",)),
    ],
)
def test_refusal_without_gpus_has_advice_about_the_image(message: str, commands: tuple[str, ...]) -> None:
    finding = get_refusal(message)
    assert finding.cause is Cause.INCONCLUSIVE
    assert [remedy.commands for remedy in finding.remedies] == [commands]
