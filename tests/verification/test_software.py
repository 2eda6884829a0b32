"""Software computation with a stand-in driver: its results are reported, and its limits do not fail the image."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rules.make_facts import COMPAT, healthy
from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.core.errors import Error
from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause
from tfdoctor.prediction.build import describe_build
from tfdoctor.system import CommandResult
from tfdoctor.system.payloads import MARKER
from tfdoctor.verification import software
from tfdoctor.verification.session import VerificationRun, VerifyRequest, complete_request, ignore_stage
from tfdoctor.verification.simulate.kernels import GpuCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.system import System
    from tfdoctor.verification.simulate.compute_libraries import LibrarySet

BINARIES_220 = {"60,70,80,89|90a:8.5": 1149, "60,70,80,89,90|90:8.5": 319}
KERNELS = "machine code for compute capability 8.9"
COMPUTE_PASSED = [
    {"stage": "import", "status": "passed", "detail": "TensorFlow 2.20.0"},
    {"stage": "visible", "status": "passed", "detail": "TensorFlow lists 2 GPUs", "devices": ["a", "b"]},
    {"stage": "compute", "gpu": 0, "ok": True},
    {"stage": "compute", "gpu": 1, "ok": True},
    {"stage": "compute", "status": "passed", "detail": "GPU:0 computes correctly: float32"},
]
CUDNN_PASSED = {"stage": "cudnn", "status": "passed", "detail": "a convolution is right"}
NCCL_PASSED = {"stage": "nccl", "status": "passed", "detail": "an all-reduce is right"}


class _System:
    """A system that prints the given payload lines and remembers the environment and the request."""

    def __init__(self, rows: list[dict[str, Any]], returncode: int = 0, stderr: str = "") -> None:
        self.env = {"LD_LIBRARY_PATH": "/opt/lib:/standin", "STANDIN_GPUS": "2"}
        self.rows, self.returncode, self.stderr = rows, returncode, stderr
        self.environment: Mapping[str, str] = {}
        self.request: dict[str, Any] = {}

    def run(self, argv: list[str], *, env: Mapping[str, str], **_: object) -> CommandResult:
        self.environment, self.request = env, json.loads(argv[-1])
        out = "".join(f"{MARKER}{json.dumps(row)}\n" for row in self.rows)
        return CommandResult(tuple(argv), self.returncode, out, self.stderr, seconds=9.0)

    def stop(self) -> None:
        """Nothing runs."""


def run_compute(
    system: _System, *, counts: dict[str, int] | None = None, why: str = "", stages: tuple[str, ...] = ()
) -> tuple[VerificationRun, list[LibrarySet]]:
    """Run the compute stages in software; return the verification and the library sets that were built."""
    simulated = parse_simulation(COMPAT, ["RTX 4090"], count=2)
    request = VerifyRequest(simulated_gpus=simulated, **({"stages": stages} if stages else {}))
    run = VerificationRun("/opt/bin/python", complete_request(request), ignore_stage)
    built: list[LibrarySet] = []

    def make(libraries: LibrarySet, _: tuple[int, ...] | None) -> str:
        built.append(libraries)
        if why:
            raise Error(why, hint="Install one.")
        return "/software"

    run.build_software_gpu = make
    facts = healthy()
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    assert python is not None
    assert tensorflow is not None
    binaries = GpuCode(BINARIES_220 if counts is None else counts)
    build = describe_build(tensorflow, COMPAT)
    software.run_computing_stages(run, cast("System", system), python, build, binaries, KERNELS)
    return run, built


def get_statuses(run: VerificationRun) -> dict[str, tuple[str, str]]:
    """Return the status and the detail of each stage."""
    return {stage.name: (stage.status, stage.detail) for stage in run.stages}


def test_software_results_are_marked_as_software() -> None:
    system = _System([*COMPUTE_PASSED, CUDNN_PASSED, NCCL_PASSED, {"end": True}])
    run, built = run_compute(system)
    assert {name: status for name, (status, _) in get_statuses(run).items()} == dict.fromkeys(
        ("compute", "cudnn", "nccl"), "passed"
    )
    assert all(detail.startswith("in software: ") for _, detail in get_statuses(run).values())
    assert get_statuses(run)["compute"][1].endswith(f"There is {KERNELS}")
    result = run.make_result()
    assert (result.computed, result.cause) == (2, Cause.HEALTHY)
    assert result.summary.startswith("TensorFlow sees 2 GPUs (simulated: ")
    assert result.summary.endswith("computes on them in software")
    assert result.simulated is not None
    assert sum("right" in text for text in result.simulated.proves) == 3
    assert "cuBLAS" in result.simulated.does_not_prove[0]
    assert [library_set.cudnn for library_set in built] == [
        build.cudnn for build in (COMPAT.find_release("2.20.0"),) if build
    ]


def test_software_libraries_come_first() -> None:
    system = _System([*COMPUTE_PASSED, {"end": True}])
    run_compute(system)
    assert system.environment["LD_LIBRARY_PATH"] == "/software:/opt/lib:/standin"
    assert system.environment["LD_PRELOAD"] == "/software/libnccl.so.2"
    assert system.environment["STANDIN_TEXTS"] == "90"
    assert system.request["small"] is True


@pytest.mark.parametrize(
    ("rows", "returncode", "stderr", "stage", "said"),
    [
        (
            [*COMPUTE_PASSED, {"stage": "cudnn", "status": "failed", "detail": "No DNN in stream executor"}],
            0,
            "",
            "cudnn",
            "No DNN",
        ),
        ([*COMPUTE_PASSED, CUDNN_PASSED, {"stage": "nccl", "status": "begin"}], -11, "", "nccl", "SIGSEGV"),
        (
            [*COMPUTE_PASSED[:2], {"stage": "compute", "status": "begin"}],
            -6,
            "[software GPU] kernel k: 801 cannot run wgmma",
            "compute",
            "cannot run wgmma",
        ),
        (
            [
                *COMPUTE_PASSED[:2],
                {"stage": "compute", "status": "failed", "detail": "the product is off by 7"},
            ],
            0,
            "",
            "compute",
            "off by 7",
        ),
        ([], 1, "ImportError: libcudart.so.12", "compute", "ImportError"),
    ],
)
def test_software_failure_is_skipped_not_failed(
    rows: list[dict[str, Any]], returncode: int, stderr: str, stage: str, said: str
) -> None:
    run, _ = run_compute(_System(rows, returncode, stderr))
    status, detail = get_statuses(run)[stage]
    assert status == "skipped"
    assert detail.startswith("not computed in software: ")
    assert said in detail
    assert set(get_statuses(run)) == {"compute", "cudnn", "nccl"}
    assert run.make_result().cause is Cause.HEALTHY
    if stage == "compute":
        assert run.computed_count is None
        assert "cudnn" in get_statuses(run)
        assert get_statuses(run)["cudnn"][0] == "skipped"


def test_nccl_is_skipped_with_one_gpu() -> None:
    skipped = {"stage": "nccl", "status": "skipped", "detail": "an all-reduce takes at least two GPUs"}
    run, _ = run_compute(_System([*COMPUTE_PASSED, CUDNN_PASSED, skipped, {"end": True}]))
    assert get_statuses(run)["nccl"] == ("skipped", "an all-reduce takes at least two GPUs")


def test_missing_compiler_names_what_to_install() -> None:
    run, _ = run_compute(_System([]), why="there is no C++ compiler here.")
    assert get_statuses(run)["compute"] == (
        "skipped",
        f"not computed in software: there is no C++ compiler here. Install one. There is {KERNELS}",
    )


def test_versions_of_the_software_libraries() -> None:
    """The release's exact cuDNN is used if its major version is that of the build."""
    tensorflow = value_of(healthy().tensorflow)
    assert tensorflow is not None
    build = describe_build(tensorflow, COMPAT)
    assert build.release is not None
    exact = software._list_libraries(build)
    assert exact is not None
    assert (exact.cuda, exact.cudnn) == (build.cuda, build.release.cudnn)
    for changes, cudnn in (
        ({"cudnn": "9"}, build.release.cudnn),
        ({"cudnn": "8"}, "8"),
        ({"cudnn": "9.9", "release": None}, "9.9"),
        ({"cudnn": None}, None),
        ({"cuda": None}, None),
        ({"required_libraries": ()}, None),
    ):
        libraries = software._list_libraries(replace(build, **changes))
        assert (libraries.cudnn if libraries is not None else None) == cudnn, changes


def test_machine_code_without_ptx_is_not_run() -> None:
    system = _System([])
    run, built = run_compute(system, counts={"60,70,80": 10})
    assert "machine code alone" in get_statuses(run)["compute"][1]
    assert (built, system.request) == ([], {})


def test_only_requested_stages_are_run() -> None:
    system = _System([*COMPUTE_PASSED, {"end": True}])
    run, _ = run_compute(system, stages=("compute",))
    assert system.request["stages"] == ["import", "visible", "compute"]
    assert set(get_statuses(run)) == {"compute"}
