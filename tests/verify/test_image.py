"""Verifying an image, up to what a real engine is needed for: stages, what an engine refuses, what is told of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rules.make_facts import COMPAT
from tfdoctor.advice.target import InImage
from tfdoctor.cli.verify import _gpus
from tfdoctor.engine import GpuAccess
from tfdoctor.engine.system import ContainerEndedError, _is_missing_command
from tfdoctor.errors import UsageError
from tfdoctor.examine.tensorflow_run import Said, make_observation
from tfdoctor.findings import Cause, Remedy, Verification
from tfdoctor.plan.hypothetical_facts import Sketch, make_sketched_facts
from tfdoctor.render.verify import render_end
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules.changed_files import _is_omitted_from_images
from tfdoctor.system import CommandResult, Failure
from tfdoctor.verify.findings import report_ended_early, report_gpu_count, report_killed, report_late
from tfdoctor.verify.image import _explain_refusal
from tfdoctor.verify.session import Verifying, Wish, complete_request, ignore_stage
from tfdoctor.verify.stages import STAGES, Limits, read_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.engine import ContainerEngine
    from tfdoctor.findings import Finding

IMAGE = InImage("team/app:1", "docker", "--gpus all", "1000")


def make_verifying(*stages: str, image: InImage | None = IMAGE, **words: Any) -> Verifying:
    wish = complete_request(Wish(stages=stages or STAGES, **words))
    return Verifying(image.name if image is not None else "/opt/bin/python", wish, ignore_stage, image)


def get_refusal(said: str, *devices: str, podman: bool = False, host: Any = None) -> Finding:
    engine = cast("ContainerEngine", SimpleNamespace(name="podman" if podman else "docker"))
    access = GpuAccess("cdi" if podman else "gpus", devices or ("all",))
    return _explain_refusal(engine, COMPAT, [(access, said)], host)


# ---------------------------------------------------------------- nothing is green that did not run


def test_a_failure_before_the_stages_that_are_asked_for_is_theirs() -> None:
    run = make_verifying("import", "visible")
    run.fail("runtime", "the engine refused", Cause.NO_NVIDIA_RUNTIME)
    done = run.result()
    assert done.ok is False
    assert [(one.name, one.status) for one in done.stages] == [("import", "failed"), ("visible", "skipped")]
    assert done.cause is Cause.NO_NVIDIA_RUNTIME


def test_a_stage_that_nothing_is_behind_is_said_to_be_all_there_was() -> None:
    run = make_verifying("runtime")
    run.add("runtime", "passed", "a container starts")
    done = run.result()
    assert done.summary == "runtime passed; TensorFlow was not started"
    assert "GPU" not in done.summary


# ---------------------------------------------------------------- time and memory


def test_a_deadline_is_named_and_is_nobodys_fault() -> None:
    one = report_late(
        make_verifying("import", limits=Limits.with_seconds(1)), "import", "did not end within 1 s."
    )
    assert one.title == "import did not end within 1 s"
    assert one.remedies[0].commands == ("tfdoctor verify team/app:1 --timeout 60",)


@pytest.mark.parametrize("memory", [100 << 20, 8 << 30])
def test_the_limit_of_memory_is_named(memory: int) -> None:
    one = report_killed(make_verifying(memory=memory), sure=True)
    assert one.cause is Cause.OOM
    assert f"{memory >> 20}m" in one.title or f"{memory >> 30}g" in one.title
    assert one.remedies[0].commands == ("tfdoctor verify team/app:1",)


def test_without_a_limit_it_is_the_machines() -> None:
    one = report_killed(make_verifying(), sure=False)
    assert "SIGKILL" in one.title
    assert "machine's memory" in one.title


@pytest.mark.parametrize(
    ("result", "timed_out"),
    [
        (CommandResult(("python",), None, failure=Failure.TIMEOUT), True),
        (CommandResult(("python",), -14), True),
        (CommandResult(("python",), -9), False),
        (CommandResult(("python",), 137), False),
    ],
)
def test_tensorflow_that_was_stopped_differs_from_no_prediction(
    result: CommandResult, timed_out: bool
) -> None:
    distributions = (("tensorflow", "2.20.0"),)
    facts = make_sketched_facts(COMPAT, Sketch("2.20.0", "tensorflow", "3.11", distributions))
    observed = make_observation(Said(False, None, (), "", 1.0, timed_out), result, (), COMPAT)
    assert (observed.gpu_registered, observed.cause) == (None, Cause.INCONCLUSIVE)
    report = diagnose(facts, COMPAT, observed, image=IMAGE)
    assert "TFD901" not in {finding.code for finding in report.findings}
    assert any(one.code == "TFD901" and "was run and" in one.why for one in report.outcomes)


def test_the_last_line_before_a_sigkill_is_not_its_reason() -> None:
    harmless = (
        "I tensorflow/core/platform/cpu_feature_guard.cc:182] This TensorFlow binary is optimized: AVX2 FMA"
    )
    result = CommandResult(
        ("python",), 137, '\ntfdoctor-payload:{"stage": "import", "status": "begin"}\n', harmless
    )
    stage = read_answer(result, Limits()).stage("import")
    assert stage is not None
    assert "SIGKILL" in stage.detail
    assert "AVX2" not in stage.detail


# ---------------------------------------------------------------- which GPUs


@pytest.mark.parametrize(
    "text",
    ["all", "none", "0", "0,1", "0:1", "GPU-8a3b", "MIG-1fa2/0/1", "GPU-3faa8dd0-11,GPU-4567", "gpu0", None],
)
def test_which_gpus(text: str | None) -> None:
    assert _gpus(text) == text


@pytest.mark.parametrize("text", ["banana", "", "0,", "0,all", "-1", "0 1", "GPU-", "x" * 500])
def test_what_are_no_gpus(text: str) -> None:
    with pytest.raises(UsageError, match="--gpus"):
        _gpus(text)


HOOK = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
    "error running hook #0: exit status 1, stdout: , stderr: nvidia-container-cli: device error: 0,1: unknown device"
)
CDI = (
    "preparing container 0123 for attach: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"
)


def test_a_card_that_is_not_there_is_no_broken_driver() -> None:
    one = get_refusal(HOOK, "0", "1")
    assert one.cause is Cause.NO_DEVICE
    assert one.remedies[0].commands == ("nvidia-smi -L",)


def test_the_driver_is_to_blame_where_all_were_asked_for() -> None:
    said = "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open"
    assert get_refusal(said).cause is Cause.CONTAINER_DRIVER_LIBS


def test_podman_without_a_specification_is_told_how_to_write_one() -> None:
    one = get_refusal(CDI, podman=True)
    assert one.cause is Cause.NO_NVIDIA_RUNTIME
    lines = one.remedies[0].commands
    assert lines[0].endswith("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
    assert not any("docker" in line for remedy in one.remedies for line in remedy.commands)


def test_what_has_nothing_to_do_with_gpus_is_not_laid_on_them() -> None:
    one = get_refusal("cgroups: cannot find cgroup mount destination")
    assert one.cause is Cause.INCONCLUSIVE
    assert "log" not in one.title


@pytest.mark.parametrize(
    ("visible", "given", "words", "first"),
    [
        (1, 1, {"gpus": "0"}, "tfdoctor verify team/app:1 --gpus all"),
        (1, 1, {}, "nvidia-smi -L"),
        (3, 3, {}, "tfdoctor verify team/app:1 --expect-gpus 3"),
    ],
)
def test_another_number_of_gpus_is_explained(
    visible: int, given: int, words: Mapping[str, Any], first: str
) -> None:
    one = report_gpu_count(make_verifying(expected=2, **words), visible, given)
    assert one.explanation
    assert one.remedies[0].commands == (first,)
    assert any("--expect-gpus" in line for remedy in one.remedies for line in remedy.commands)


# ---------------------------------------------------------------- no Python


def test_no_python_is_a_cause_with_a_way() -> None:
    one = report_ended_early(make_verifying(), ContainerEndedError("", no_python=True))
    assert one.cause is Cause.PYTHON_UNUSABLE
    assert one.remedies[1].commands == (
        "tfdoctor build --base team/app:1 --tag team/app:1-fixed",
        "tfdoctor verify team/app:1-fixed",
    )
    assert report_ended_early(make_verifying(), ContainerEndedError("", oom=True)).cause is Cause.OOM
    broken = report_ended_early(
        make_verifying(), ContainerEndedError("python3: error while loading shared libraries")
    )
    assert "loading shared libraries" in broken.evidence[0].text


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ('OCI runtime create failed: exec: "sh": executable file not found in $PATH: unknown', True),
        ("crun: executable file `sh` not found in $PATH: No such file or directory: OCI runtime exec", True),
        ("[FATAL tini (7)] exec sh failed: No such file or directory", True),
        ('exec: "nvidia-container-cli": executable file not found in $PATH', False),
    ],
)
def test_a_command_that_an_image_does_not_have(said: str, missing: bool) -> None:
    assert _is_missing_command(said, "sh") is missing


# ---------------------------------------------------------------- what is typed


def test_the_command_that_tells_more_names_the_image() -> None:
    run = make_verifying("import")
    run.fail("import", "no", Cause.NUMPY_ABI)
    run.findings = [replace(report_late(run, "import", "x"), cause=Cause.NUMPY_ABI)]
    done: Verification = run.result()
    assert done.typed == "tfdoctor verify team/app:1"
    assert "tfdoctor verify team/app:1 -v" in render_end(done, width=100)


def test_a_python_is_named_again() -> None:
    assert make_verifying(image=None).build_command() == "tfdoctor verify --python /opt/bin/python"


def test_the_lines_of_a_dockerfile_are_shown_whole() -> None:
    run = make_verifying("import")
    run.fail("import", "no", Cause.NUMPY_ABI)
    lines = (
        "USER root",
        *(f"RUN pip install something=={n}" for n in range(8)),
        "docker build -t x .",
        "tfdoctor verify x",
    )
    run.findings = [replace(report_late(run, "import", "x"), remedies=(Remedy("Write this.", lines),))]
    shown = render_end(run.result(), width=100)
    assert all(line in shown for line in lines)


def test_what_our_own_images_go_without_is_not_gone() -> None:
    context = cast("Any", SimpleNamespace(build=SimpleNamespace(version="2.16.2"), compat=COMPAT))
    assert _is_omitted_from_images(context, "nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so")
    assert not _is_omitted_from_images(context, "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc")
