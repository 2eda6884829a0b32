"""The stages `driver`, `libraries` and those of the payload: when each is passed, failed or skipped."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rules.make_facts import (
    COMPAT,
    healthy,
    make_missing,
    remove_libraries,
    with_loader,
    without_tensorflow,
)
from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.core.facts import Known, Unknown, value_of
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.system import CommandResult, Failure
from tfdoctor.system.payloads import MARKER
from tfdoctor.verification import simulation, target_stages
from tfdoctor.verification.session import VerificationRun, VerifyRequest, complete_request, ignore_stage
from tfdoctor.verification.stages import STAGES
from tfdoctor.verification.target_stages import find_expected_speeds, find_float32_speeds, run_stages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.core.facts import Facts
    from tfdoctor.system import System

IMPORTED = {"stage": "import", "status": "passed", "detail": "TensorFlow 2.18.1", "seconds": 1}
VISIBLE = {"stage": "visible", "status": "passed", "detail": "lists it", "devices": ["/GPU:0"]}
COMPUTED = [
    {"stage": "compute", "gpu": 0, "ok": True},
    {"stage": "compute", "status": "passed", "detail": "computes"},
]
CUDNN = {"stage": "cudnn", "status": "passed", "detail": "convolves"}
NCCL = {"stage": "nccl", "status": "skipped", "detail": "one GPU", "topology": "GPU0 X"}
ALL_LINES = [IMPORTED, VISIBLE, *COMPUTED, CUDNN, NCCL, {"end": True}]


class FakeSystem:
    """A system whose payload prints these lines; it remembers the command."""

    def __init__(
        self, *lines: Mapping[str, Any], status: int | None = 0, stderr: str = "", **ending: Any
    ) -> None:
        self.env: dict[str, str] = {}
        self.lines, self.status, self.stderr, self.ending = lines, status, stderr, ending
        self.calls: list[tuple[list[str], dict[str, Any]]] = []

    def run(self, argv: list[str], **options: Any) -> CommandResult:
        self.calls.append((argv, options))
        out = "".join(f"{MARKER}{json.dumps(line)}\n" for line in self.lines)
        return CommandResult(tuple(argv), self.status, out, self.stderr, seconds=9.0, **self.ending)

    def stop(self) -> None:
        """Nothing runs."""


def verify(
    facts: Facts, system: FakeSystem | None = None, *stages: str, **options: Any
) -> tuple[VerificationRun, dict[str, tuple[str, str]]]:
    """Run the stages; return the verification and (status, detail) of each stage."""
    request = complete_request(VerifyRequest(stages=stages or STAGES, **options))
    run = VerificationRun("/opt/bin/python", request, ignore_stage)
    run_stages(run, cast("System", system or FakeSystem(*ALL_LINES)), COMPAT, diagnose(facts, COMPAT))
    return run, {stage.name: (stage.status, stage.detail) for stage in run.stages}


def with_cuda(**changes: Any) -> Facts:
    """Return healthy facts with other fields of CudaDriver."""
    facts = healthy()
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    return replace(facts, driver=replace(facts.driver, cuda=Known(replace(cuda, **changes), "libcuda.so.1")))


def test_all_stages_of_a_healthy_machine() -> None:
    system = FakeSystem(*ALL_LINES)
    run, stages = verify(healthy(), system)
    assert stages == {
        "driver": ("passed", "libcuda answers: CUDA 12.8, 1 device"),
        "libraries": ("passed", "the loader gives all 7 that TensorFlow opens"),
        "import": ("passed", "TensorFlow 2.18.1"),
        "visible": ("passed", "lists it"),
        "compute": ("passed", "computes"),
        "cudnn": ("passed", "convolves"),
        "nccl": ("skipped", "one GPU (GPU0 X)"),
    }
    assert (run.visible_count, run.computed_count, run.cause, run.findings) == (1, 1, None, [])
    ((argv, options),) = system.calls
    request = json.loads(argv[-1])
    assert request["stages"] == ["import", "visible", "compute", "cudnn", "nccl"]
    assert request["device"] == "GPU"
    assert "in_cwd" not in request, "a verification on the host runs no code of the working folder"
    assert request["expected"] == find_float32_speeds(healthy(), COMPAT.cards)
    assert options["timeout"] == sum(request["limits"].values()) + 15
    assert options["env"]["NCCL_DEBUG"] == "WARN"
    assert "CUDA_VISIBLE_DEVICES" not in options["env"]


def test_cpu_needs_no_gpu() -> None:
    system = FakeSystem(IMPORTED, *COMPUTED, CUDNN, {"end": True})
    run, stages = verify(with_cuda(count=0, init=100), system, device="CPU")
    assert list(stages) == ["libraries", "import", "compute", "cudnn"]
    assert {status for status, _ in stages.values()} == {"passed"}
    ((argv, options),) = system.calls
    assert "expected" not in json.loads(argv[-1])
    assert options["env"]["CUDA_VISIBLE_DEVICES"] == "-1"
    assert "NCCL_DEBUG" not in options["env"]
    assert run.computed_count == 1
    run, stages = verify(remove_libraries(healthy()), system, device="CPU")
    assert stages["libraries"][0] == "failed"
    assert [finding.severity for finding in run.findings if finding.severity is Severity.INFO] == []


DRIVER_PASSED = ("passed", "libcuda answers: CUDA 12.8, 1 device")
SEVEN = "libcublas.so.12, libcublasLt.so.12, libcudart.so.12, libcudnn.so.9, libcufft.so.11, libcusolver.so.11, libcusparse.so.12"


@pytest.mark.parametrize(
    ("facts", "detail", "cause"),
    [
        (with_cuda(init=100, count=0), "The driver shows no GPU", Cause.NO_DEVICE),
        (with_cuda(count=0, devices=()), "The driver shows no GPU", Cause.NO_DEVICE),
        (with_cuda(count=None, devices=()), "CUDA_SUCCESS", Cause.INCONCLUSIVE),
        (
            with_cuda(loaded=False, load_error="not found", init=None, count=None),
            "The driver's library libcuda.so.1 exists but does not load",
            Cause.NO_DRIVER,
        ),
        (
            with_loader(healthy(), make_missing("libcuda.so.1")),
            "The driver's library exists, but the loader does not find it",
            Cause.NO_DRIVER,
        ),
    ],
    ids=range(5),
)
def test_driver_that_fails(facts: Facts, detail: str, cause: Cause) -> None:
    run, stages = verify(facts)
    assert stages == {"driver": ("failed", detail)}
    assert run.cause is cause
    assert all(finding.severity is Severity.ERROR for finding in run.findings)
    # Whoever does not ask about the driver gets an answer about the libraries.
    assert verify(facts, None, "libraries")[1] == {
        "libraries": ("passed", "the loader gives all 7 that TensorFlow opens")
    }


def test_unknown_driver_and_unknown_libraries_are_skipped() -> None:
    facts = healthy()
    facts = replace(facts, driver=replace(facts.driver, cuda=Unknown("x", "no Python")))
    assert verify(facts, None, "driver", "libraries", "import")[1] == {
        "driver": ("skipped", "the driver could not be asked"),
        "libraries": ("passed", "the loader gives all 7 that TensorFlow opens"),
        "import": ("passed", "TensorFlow 2.18.1"),
    }
    loader = value_of(healthy().loader)
    assert loader is not None
    no_libraries = replace(healthy(), loader=Known(replace(loader, resolutions=()), "x"))
    for facts in (replace(healthy(), loader=Unknown("x", "no")), no_libraries):
        run, stages = verify(facts, None, "libraries")
        assert stages == {"libraries": ("skipped", "which libraries this TensorFlow opens is not known")}
        assert (run.cause, run.findings) == (None, [])


@pytest.mark.parametrize(
    ("facts", "detail", "cause", "codes"),
    [
        (
            remove_libraries(healthy()),
            f"the loader cannot open {SEVEN}",
            Cause.LIBS_NOT_INSTALLED,
            ["TFD201"],
        ),
        (without_tensorflow(healthy()), "there is no TensorFlow in it", Cause.TENSORFLOW_MISSING, ["TFD301"]),
        (
            replace(healthy(), python=Unknown("x", "no"), tensorflow=Unknown("x", "no")),
            "no Python answers in it",
            Cause.INCONCLUSIVE,
            ["TFD903"],
        ),
    ],
    ids=range(3),
)
def test_environment_without_tensorflow_or_libraries(
    facts: Facts, detail: str, cause: Cause, codes: list[str]
) -> None:
    run, stages = verify(facts)
    assert stages == {"driver": DRIVER_PASSED, "libraries": ("failed", detail)}
    assert (run.cause, [finding.code for finding in run.findings]) == (cause, codes)
    run, stages = verify(facts, None, "driver")
    assert (stages, run.cause, run.findings) == ({"driver": DRIVER_PASSED}, None, [])
    if "loader" not in detail:
        assert verify(facts, None, "import")[1] == {"import": ("failed", detail)}


BEGUN = {"stage": "compute", "status": "begin"}
SEGFAULT = "TensorFlow was ended by a segmentation fault (SIGSEGV)."
KILLED = "TensorFlow was ended by SIGKILL: usually the memory was used up."


def fail(stage: str, **more: Any) -> dict[str, Any]:
    return {"stage": stage, "status": "failed", "detail": "bad", **more}


@pytest.mark.parametrize(
    ("system", "stage", "detail", "cause", "titles"),
    [
        (
            FakeSystem({**IMPORTED, "status": "failed", "detail": "no", "error": "boom"}),
            "import",
            "no",
            Cause.INCONCLUSIVE,
            ["import tensorflow failed: boom"],
        ),
        (
            FakeSystem({"stage": "import", "status": "begin"}, status=-14),
            "import",
            "did not end within 180 s.",
            Cause.INCONCLUSIVE,
            ["import did not end within 180 s"],
        ),
        (
            FakeSystem({"stage": "import", "status": "begin"}, status=None, failure=Failure.TIMEOUT),
            "import",
            "did not end within 180 s.",
            Cause.INCONCLUSIVE,
            ["import did not end within 180 s"],
        ),
        *(
            (
                FakeSystem(IMPORTED, VISIBLE, BEGUN, status=status),
                "compute",
                KILLED,
                Cause.OOM,
                ["It was killed (SIGKILL): usually the machine's memory was used up"],
            )
            for status in (-9, 137)
        ),
        (
            FakeSystem(IMPORTED, VISIBLE, BEGUN, status=-11),
            "compute",
            SEGFAULT,
            Cause.INCONCLUSIVE,
            ["TensorFlow sees the GPUs, and fails at the stage compute"],
        ),
        (
            FakeSystem(IMPORTED, VISIBLE, *COMPUTED, fail("cudnn")),
            "cudnn",
            "bad",
            Cause.INCONCLUSIVE,
            ["TensorFlow sees the GPUs, and fails at the stage cudnn"],
        ),
        (
            FakeSystem(
                *(IMPORTED, VISIBLE, *COMPUTED, CUDNN, fail("nccl", topology="GPU0 X")),
                stderr="a NCCL WARN first\nb NCCL WARN last\n",
            ),
            "nccl",
            "bad. NCCL: last (GPU0 X)",
            Cause.NCCL_FAILURE,
            ["NCCL, through which several GPUs communicate with each other, failed"],
        ),
    ],
    ids=range(8),
)
def test_payload_that_fails(
    system: FakeSystem, stage: str, detail: str, cause: Cause, titles: list[str]
) -> None:
    run, stages = verify(healthy(), system)
    assert (stages[stage], run.cause) == (("failed", detail), cause)
    assert [finding.title for finding in run.findings] == titles
    assert list(stages)[-1] == stage  # the later ones were not tried
    assert (run.visible_count, run.computed_count) == {
        "import": (None, None),
        "compute": (1, 0),
        "cudnn": (1, 1),
        "nccl": (1, 1),
    }[stage]


@pytest.mark.parametrize(
    ("devices", "expected", "detail", "title"),
    [
        (2, 1, "TensorFlow lists 2 of 1 GPU", "1 GPU was expected, and TensorFlow lists 2"),
        (1, 2, "TensorFlow lists 1 of 2 GPUs", "2 GPUs were expected, and TensorFlow lists 1"),
        (0, 2, "TensorFlow lists 0 of 2 GPUs", "2 GPUs were expected, and TensorFlow lists 0"),
        (1, 1, "", ""),
        (1, None, "", ""),
        (0, 0, "", ""),
    ],
)
def test_number_of_gpus_is_compared(devices: int, expected: int | None, detail: str, title: str) -> None:
    names = [f"/GPU:{number}" for number in range(devices)]
    system = FakeSystem(IMPORTED, {**VISIBLE, "devices": names}, {"end": True})
    run, stages = verify(healthy(), system, expected=expected)
    assert stages["visible"] == (("failed", detail) if detail else ("passed", "lists it"))
    assert [finding.title for finding in run.findings if finding.code != "TFD901"] == [title][: bool(title)]
    assert run.visible_count == devices


def test_stage_that_lists_nothing_does_not_see_the_gpus() -> None:
    run, stages = verify(healthy(), FakeSystem(IMPORTED, fail("visible"), status=1))
    assert stages["visible"] == ("failed", "bad")
    assert run.findings[0].title == "TensorFlow fails at the stage visible"


@pytest.mark.parametrize(
    ("severity", "cause"),
    [(Severity.ERROR, Cause.LIBS_NOT_INSTALLED), (Severity.WARNING, Cause.INCONCLUSIVE)],
)
def test_error_that_the_rules_know_is_the_cause(
    monkeypatch: pytest.MonkeyPatch, severity: Severity, cause: Cause
) -> None:
    """If neither the error nor the log names a cause, an error of the rules does, but no warning."""
    report = diagnose(remove_libraries(healthy()), COMPAT)
    assert report.root_finding is not None
    root = replace(report.root_finding, severity=severity)
    monkeypatch.setattr(
        target_stages, "evaluate_facts", lambda *_, **__: replace(report, root_finding=root, findings=(root,))
    )
    assert verify(healthy(), FakeSystem(IMPORTED, VISIBLE, fail("compute")), "compute")[0].cause is cause


def test_expected_speeds_of_known_gpus() -> None:
    facts = with_cuda()
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    known = replace(cuda.devices[0], clock_mhz=1000, multiprocessors=100)
    devices = (
        known,
        replace(known, ordinal=1, clock_mhz=None),
        replace(known, ordinal=2, multiprocessors=None),
        replace(known, ordinal=3, compute_capability=None),
    )
    speeds = find_expected_speeds(with_cuda(devices=devices), COMPAT.cards)
    assert list(speeds) == ["0"]
    adds = COMPAT.cards.list_adds_per_clock("9.0", known.name)
    assert speeds["0"] == {name: 200.0 * number for name, number in adds.items()}
    assert find_float32_speeds(with_cuda(devices=devices), COMPAT.cards) == {"0": speeds["0"]["float32"]}
    unknown = replace(healthy(), driver=replace(healthy().driver, cuda=Unknown("x", "no")))
    assert find_expected_speeds(unknown, COMPAT.cards) == {}


# ---------------------------------------------------------------- a simulated driver


def test_simulated_driver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(simulation, "check_kernels", lambda *_: calls.append("kernels"))
    simulated = parse_simulation(COMPAT, ["RTX 4090"])
    system = FakeSystem(IMPORTED, VISIBLE, {"end": True})
    _, stages = verify(healthy(), system, simulated_gpus=simulated)
    assert stages["driver"] == ("passed", "libcuda answers (simulated): CUDA 12.8, 1 device")
    assert stages["visible"][0] == "passed"
    assert json.loads(system.calls[0][0][-1])["stages"] == ["import", "visible"]
    assert calls == ["kernels"]
    monkeypatch.setattr(simulation, "can_list_gpus", lambda *_: False)
    _, stages = verify(healthy(), system, simulated_gpus=simulated)
    assert list(stages) == ["driver", "libraries"]
    assert len(system.calls) == 1
    assert calls == ["kernels", "kernels"]


@pytest.mark.parametrize(
    ("facts", "card", "other", "detail", "title"),
    [
        (
            with_cuda(count=0, devices=()),
            ("RTX 4090", "470"),
            None,
            "speaks CUDA 11.4, which knows cards up to compute capability 8.7",
            "This driver does not show this card",
        ),
        (
            with_cuda(),
            ("RTX 4090", None),
            "/x/libcuda.so.1",
            "/x/libcuda.so.1 is found before the stand-in: nothing could be simulated",
            "/x/libcuda.so.1 is found before the stand-in",
        ),
        # The toolkit's stub is reported by a rule.
        (with_cuda(init=34), ("RTX 4090", None), "/x/libcuda.so.1", "", ""),
        (
            replace(healthy(), driver=replace(healthy().driver, cuda=Unknown("x", "no"))),
            ("RTX 4090", None),
            "/x/libcuda.so.1",
            "nothing could be simulated",
            "/x/libcuda.so.1 is found before the stand-in",
        ),
        (with_cuda(), ("RTX 4090", "470"), None, "", ""),
        (with_cuda(count=0, devices=()), ("RTX 4090", None), None, "", ""),
    ],
    ids=range(6),
)
def test_simulation_that_cannot_work(
    facts: Facts, card: tuple[str, str | None], other: str | None, detail: str, title: str
) -> None:
    simulated = parse_simulation(COMPAT, [card[0]], driver=card[1])
    request = complete_request(VerifyRequest(stages=("driver",), simulated_gpus=simulated))
    run = VerificationRun("/opt/bin/python", request, ignore_stage)
    run.other_libcuda = other
    assert simulation.check_simulated_driver(run, facts) is bool(detail)
    assert [(stage.status, detail in stage.detail) for stage in run.stages] == (
        [("failed", True)] if detail else []
    )
    assert [finding.title for finding in run.findings] == [title][: bool(title)]
