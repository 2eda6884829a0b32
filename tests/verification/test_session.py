"""The request of a verification, the number of expected GPUs, and the summary and command of the result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.make_facts import COMPAT, healthy
from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.core.facts import Known, Unknown, value_of
from tfdoctor.core.findings import Cause
from tfdoctor.remedies.target import TargetImage
from tfdoctor.verification.session import (
    VerificationRun,
    VerifyRequest,
    complete_request,
    count_expected_gpus,
    format_memory_limit,
)
from tfdoctor.verification.stages import STAGES, Limits

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Stage

SIMULATED = parse_simulation(COMPAT, ["RTX 4090"], count=2)
IMAGE = TargetImage("team/app:1")


@pytest.mark.parametrize(
    ("options", "stages", "gpus", "expected"),
    [
        ({}, STAGES, "0", 3),
        ({"stages": ("driver",)}, ("driver",), "0", 3),
        ({"stages": ("import",)}, ("import",), "0", 3),
        ({"stages": ("visible", "runtime")}, ("runtime", "import", "visible"), "0", 3),
        ({"stages": ("nccl",)}, ("import", "visible", "nccl"), "0", 3),
        (
            {"device": "CPU"},
            ("runtime", "libraries", "import", "visible", "compute", "cudnn"),
            "none",
            None,
        ),
        ({"simulated_gpus": SIMULATED}, STAGES, "none", 3),
    ],
)
def test_requested_stages_are_completed(
    options: dict[str, Any], stages: tuple[str, ...], gpus: str, expected: int | None
) -> None:
    request = complete_request(VerifyRequest(**{"gpus": "0", "expected": 3, **options}))
    assert (request.stages, request.gpus, request.expected) == (stages, gpus, expected)


def with_cuda(**changes: Any) -> Facts:
    """Return facts with three visible GPUs, one more GPU that is hidden, and these changes of both answers."""
    facts = healthy()
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    visible, unhidden = (Known(replace(cuda, **{"count": count, **changes}), "x") for count in (3, 4))
    return replace(facts, driver=replace(facts.driver, cuda=visible, cuda_unhidden=unhidden))


def test_number_of_expected_gpus() -> None:
    facts = with_cuda()
    without_unhidden = replace(facts, driver=replace(facts.driver, cuda_unhidden=None))
    unknown = replace(facts, driver=replace(facts.driver, cuda=Unknown("x", "no"), cuda_unhidden=None))
    assert [count_expected_gpus(facts, gpus) for gpus in (None, "", "all")] == [4, 4, 4]
    assert [count_expected_gpus(facts, gpus) for gpus in ("none", "0", "0,5", "GPU-1,GPU-2,GPU-3")] == [
        0,
        1,
        2,
        3,
    ]
    assert count_expected_gpus(without_unhidden, None) == 3
    assert count_expected_gpus(unknown, None) is None
    for changes in ({"loaded": False}, {"init": 100}, {"init": None}, {"count": None}):
        assert count_expected_gpus(with_cuda(**changes), None) is None, changes
    assert count_expected_gpus(with_cuda(count=0), None) == 0


def test_memory_limit_in_the_largest_exact_unit() -> None:
    sizes = [None, 0, 1 << 30, 3 << 29, 1 << 20, 1 << 10, (1 << 20) + 1024, 1500]
    assert [format_memory_limit(size) for size in sizes] == [
        *("0k", "0k", "1g", "1536m", "1m", "1k", "1025k", "1k")
    ]


def make_run(image: TargetImage | None = IMAGE, **options: Any) -> tuple[VerificationRun, list[Stage]]:
    seen: list[Stage] = []
    return VerificationRun(
        "/opt/bin/python", complete_request(VerifyRequest(**options)), seen.append, image
    ), seen


def test_stages_are_recorded_if_they_were_requested() -> None:
    run, seen = make_run(stages=("driver", "libraries", "import"))
    run.record_stage("libraries", "passed", "yes", 1.239)
    run.record_stage("runtime", "passed", "no")
    run.record_failure("driver", "broken", None)
    assert [(stage.name, stage.status, stage.seconds) for stage in seen] == [
        ("libraries", "passed", 1.24),
        ("driver", "failed", 0.0),
    ]
    assert run.cause is Cause.INCONCLUSIVE
    run.record_failure("import", "also", Cause.OOM)
    assert run.cause is Cause.INCONCLUSIVE  # that of the first failure
    result = run.make_result()
    assert [stage.name for stage in result.stages] == ["driver", "libraries", "import"]
    assert result.summary == "driver failed: broken"
    later, _ = make_run(stages=("driver", "libraries"))
    later.record_failure("import", "broken", Cause.OOM)  # no later stage was requested
    assert [(stage.name, stage.status, stage.detail) for stage in later.make_result().stages] == [
        ("driver", "skipped", "not tried: libraries failed"),
        ("libraries", "failed", "broken"),
    ]
    nothing, _ = make_run(stages=())
    nothing.record_failure("import", "broken", Cause.OOM)
    assert (nothing.cause, nothing.make_result().stages) == (None, ())


@pytest.mark.parametrize(
    ("image", "options", "command"),
    [
        (None, {}, "--python /opt/bin/python"),
        (None, {"gpus": "0", "memory_bytes": 1 << 30, "python": "/x"}, "--python /opt/bin/python"),
        (None, {"device": "CPU"}, "--python /opt/bin/python --devices CPU"),
        (IMAGE, {}, "team/app:1"),
        (IMAGE, {"gpus": "0,1"}, "team/app:1 --devices 0,1"),
        (IMAGE, {"gpus": "0", "device": "CPU"}, "team/app:1 --devices CPU"),
        (IMAGE, {"memory_bytes": 1 << 30, "python": "/a b"}, "team/app:1 --memory 1g --python '/a b'"),
        (IMAGE, {"simulated_gpus": SIMULATED}, "team/app:1 --simulate 'RTX 4090' --gpu-count 2"),
    ],
)
def test_command_that_repeats_the_verification(
    image: TargetImage | None, options: dict[str, Any], command: str
) -> None:
    assert make_run(image, **options)[0].build_command() == f"tfdoctor verify {command}"


def test_options_can_be_left_out_of_the_command() -> None:
    run, _ = make_run(gpus="0", memory_bytes=1 << 30)
    assert run.build_command(memory=False) == "tfdoctor verify team/app:1 --devices 0"
    assert run.build_command(gpus=False) == "tfdoctor verify team/app:1 --memory 1g"


@pytest.mark.parametrize(
    ("options", "visible", "computed", "summary"),
    [
        ({}, 1, None, "TensorFlow lists 1 GPU; nothing was computed"),
        ({"device": "CPU"}, 2, None, "TensorFlow lists 2 CPUs; nothing was computed"),
        ({}, 2, 2, "TensorFlow sees and computes on 2 GPUs"),
        ({}, 2, 0, "TensorFlow sees and computes on 0 GPUs"),
        ({"device": "CPU"}, None, 1, "TensorFlow computes correctly on 1 CPU"),
        ({"device": "CPU"}, None, 2, "TensorFlow computes correctly on 2 CPUs"),
        ({"stages": ("import",)}, 2, None, "import passed"),
        (
            {"simulated_gpus": SIMULATED},
            2,
            None,
            "TensorFlow lists 2 GPUs (simulated: TITLE); nothing was computed",
        ),
        (
            {"simulated_gpus": SIMULATED},
            1,
            0,
            "TensorFlow lists 0 GPUs (simulated: TITLE); nothing was computed",
        ),
        (
            {"simulated_gpus": SIMULATED},
            1,
            1,
            "TensorFlow sees 1 GPU (simulated: TITLE) and computes on it in software",
        ),
        (
            {"simulated_gpus": SIMULATED},
            2,
            2,
            "TensorFlow sees 2 GPUs (simulated: TITLE) and computes on them in software",
        ),
    ],
)
def test_summary_of_a_success(
    options: dict[str, Any], visible: int | None, computed: int | None, summary: str
) -> None:
    run, _ = make_run(**options)
    run.record_stage("import", "passed", "yes")
    run.visible_count, run.computed_count = visible, computed
    assert SIMULATED is not None
    assert run.make_result().summary == summary.replace("TITLE", SIMULATED.title)


def test_summary_without_tensorflow() -> None:
    run, _ = make_run(stages=("runtime", "driver"))
    assert run.make_result().summary == "nothing could be tried; TensorFlow was not started"
    run, _ = make_run(stages=("runtime", "driver"))
    run.record_stage("runtime", "passed", "")
    run.record_stage("driver", "skipped", "")
    assert run.make_result().summary == "runtime passed; TensorFlow was not started"


def test_findings_without_a_failure_need_the_driver_stage() -> None:
    for stages, failed, count in ((("driver",), False, 1), (("import",), False, 0), (("import",), True, 1)):
        run, _ = make_run(stages=stages)
        run.findings = ["a finding"]  # type: ignore[list-item]
        if failed:
            run.record_failure("import", "no", None)
        assert len(run.make_result().findings) == count


def test_simulation_expects_its_own_gpus() -> None:
    assert make_run(simulated_gpus=SIMULATED)[0].expected_count == 2
    assert make_run(simulated_gpus=SIMULATED, expected=0)[0].expected_count == 0
    assert make_run(expected=5)[0].expected_count == 5
    run, _ = make_run(simulated_gpus=SIMULATED)
    run.record_stage("import", "passed", "")
    run.record_stage("compute", "passed", "")
    run.simulation_results = ("more",)
    simulated = run.make_result().simulated
    assert simulated is not None
    assert simulated.proves == ("TensorFlow imports", "more")
    assert "nothing" not in simulated.does_not_prove[0]


def test_limits_of_the_stages() -> None:
    limits = Limits(1, 2, 3, 4, 5)
    assert limits.as_json() == {"import": 1, "visible": 2, "compute": 3, "cudnn": 4, "nccl": 5}
    assert limits.sum_limits(("import", "nccl")) == 6
    assert Limits.from_seconds(7) == Limits(7, 7, 7, 7, 7)
