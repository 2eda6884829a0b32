"""What software computes beside a stand-in is shown; what it cannot compute says nothing of the image."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from rules.make_facts import COMPAT, healthy
from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.errors import Error
from tfdoctor.facts import value_of
from tfdoctor.findings import Cause
from tfdoctor.predict import build_of
from tfdoctor.simulate.kernels import Binaries
from tfdoctor.system import CommandResult
from tfdoctor.system.payloads import MARKER
from tfdoctor.verify import software
from tfdoctor.verify.session import Verifying, Wish, complete_request, ignore_stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.simulate.compute_libraries import LibrarySet
    from tfdoctor.system import System

OF_220 = {"60,70,80,89|90a:8.5": 1149, "60,70,80,89,90|90:8.5": 319}
KERNELS = "machine code for compute capability 8.9"
COMPUTED = [
    {"stage": "import", "status": "passed", "detail": "TensorFlow 2.20.0"},
    {"stage": "visible", "status": "passed", "detail": "TensorFlow lists 2 GPUs", "devices": ["a", "b"]},
    {"stage": "compute", "gpu": 0, "ok": True},
    {"stage": "compute", "gpu": 1, "ok": True},
    {"stage": "compute", "status": "passed", "detail": "GPU:0 computes correctly: float32"},
]
CONVOLVED = {"stage": "cudnn", "status": "passed", "detail": "a convolution is right"}
SUMMED = {"stage": "nccl", "status": "passed", "detail": "an all-reduce is right"}


class _System:
    """Answers as the payload does, and keeps with what it was started."""

    def __init__(self, rows: list[dict[str, Any]], returncode: int = 0, stderr: str = "") -> None:
        self.env = {"LD_LIBRARY_PATH": "/opt/lib:/standin", "STANDIN_GPUS": "2"}
        self.rows, self.returncode, self.stderr = rows, returncode, stderr
        self.given: Mapping[str, str] = {}
        self.asked: dict[str, Any] = {}

    def run(self, argv: list[str], *, env: Mapping[str, str], **_: object) -> CommandResult:
        self.given, self.asked = env, json.loads(argv[-1])
        out = "".join(f"{MARKER}{json.dumps(row)}\n" for row in self.rows)
        return CommandResult(tuple(argv), self.returncode, out, self.stderr, seconds=9.0)

    def stop(self) -> None:
        """Nothing runs."""


def compute_result(
    system: _System, *, counts: dict[str, int] | None = None, why: str = "", stages: tuple[str, ...] = ()
) -> tuple[Verifying, list[LibrarySet]]:
    asked = parse_simulation(COMPAT, ["RTX 4090"], gpus="2")
    wish = Wish(simulated=asked, **({"stages": stages} if stages else {}))
    run = Verifying("/opt/bin/python", complete_request(wish), ignore_stage)
    built: list[LibrarySet] = []

    def make(wanted: LibrarySet, _: tuple[int, ...] | None) -> str:
        built.append(wanted)
        if why:
            raise Error(why, hint="Install one.")
        return "/software"

    run.software = make
    facts = healthy()
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    assert python is not None
    assert tensorflow is not None
    binaries = Binaries(OF_220 if counts is None else counts)
    build = build_of(tensorflow, COMPAT)
    software.run_computing(run, cast("System", system), python, build, binaries, KERNELS)
    return run, built


def statuses(run: Verifying) -> dict[str, tuple[str, str]]:
    return {stage.name: (stage.status, stage.detail) for stage in run.stages}


def test_what_it_computes_is_shown_and_said_to_be_software() -> None:
    system = _System([*COMPUTED, CONVOLVED, SUMMED, {"end": True}])
    run, built = compute_result(system)
    assert {name: status for name, (status, _) in statuses(run).items()} == dict.fromkeys(
        ("compute", "cudnn", "nccl"), "passed"
    )
    assert all(detail.startswith("in software: ") for _, detail in statuses(run).values())
    assert statuses(run)["compute"][1].endswith(f"There is {KERNELS}")
    done = run.result()
    assert (done.computed, done.cause) == (2, Cause.HEALTHY)
    assert done.summary.startswith("TensorFlow sees 2 GPUs (simulated: ")
    assert done.summary.endswith("computes on them in software")
    assert done.simulated is not None
    assert sum("right" in text for text in done.simulated.proves) == 3
    assert "cuBLAS" in done.simulated.does_not_prove[0]
    assert [one.cudnn for one in built] == [build.cudnn for build in (COMPAT.release("2.20.0"),) if build]


def test_its_libraries_stand_before_all_others_and_the_newest_text_is_taken() -> None:
    system = _System([*COMPUTED, {"end": True}])
    compute_result(system)
    assert system.given["LD_LIBRARY_PATH"] == "/software:/opt/lib:/standin"
    assert system.given["LD_PRELOAD"] == "/software/libnccl.so.2"
    assert system.given["STANDIN_TEXTS"] == "90"
    assert system.asked["small"] is True


@pytest.mark.parametrize(
    ("rows", "returncode", "stderr", "stage", "said"),
    [
        (
            [*COMPUTED, {"stage": "cudnn", "status": "failed", "detail": "No DNN in stream executor"}],
            0,
            "",
            "cudnn",
            "No DNN",
        ),
        ([*COMPUTED, CONVOLVED, {"stage": "nccl", "status": "begin"}], -11, "", "nccl", "SIGSEGV"),
        (
            [*COMPUTED[:2], {"stage": "compute", "status": "begin"}],
            -6,
            "[software GPU] kernel k: 801 cannot run wgmma",
            "compute",
            "cannot run wgmma",
        ),
        (
            [*COMPUTED[:2], {"stage": "compute", "status": "failed", "detail": "the product is off by 7"}],
            0,
            "",
            "compute",
            "off by 7",
        ),
        ([], 1, "ImportError: libcudart.so.12", "compute", "ImportError"),
    ],
)
def test_what_it_cannot_compute_is_never_red(
    rows: list[dict[str, Any]], returncode: int, stderr: str, stage: str, said: str
) -> None:
    run, _ = compute_result(_System(rows, returncode, stderr))
    status, detail = statuses(run)[stage]
    assert status == "skipped"
    assert detail.startswith("not computed in software: ")
    assert said in detail
    assert set(statuses(run)) == {"compute", "cudnn", "nccl"}
    assert run.result().cause is Cause.HEALTHY
    if stage == "compute":
        assert run.computed is None
        assert "cudnn" in statuses(run)
        assert statuses(run)["cudnn"][0] == "skipped"


def test_one_card_has_nobody_to_sum_with() -> None:
    skipped = {"stage": "nccl", "status": "skipped", "detail": "an all-reduce takes at least two GPUs"}
    run, _ = compute_result(_System([*COMPUTED, CONVOLVED, skipped, {"end": True}]))
    assert statuses(run)["nccl"] == ("skipped", "an all-reduce takes at least two GPUs")


def test_without_a_compiler_it_says_what_to_install() -> None:
    run, _ = compute_result(_System([]), why="there is no C++ compiler here.")
    assert statuses(run)["compute"] == (
        "skipped",
        f"not computed in software: there is no C++ compiler here. Install one. There is {KERNELS}",
    )


def test_machine_code_alone_cannot_be_run() -> None:
    system = _System([])
    run, built = compute_result(system, counts={"60,70,80": 10})
    assert "machine code alone" in statuses(run)["compute"][1]
    assert (built, system.asked) == ([], {})


def test_only_what_is_asked_for_is_tried() -> None:
    system = _System([*COMPUTED, {"end": True}])
    run, _ = compute_result(system, stages=("compute",))
    assert system.asked["stages"] == ["import", "visible", "compute"]
    assert set(statuses(run)) == {"compute"}
