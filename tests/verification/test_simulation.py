"""Verification with a stand-in driver: what fails, what is never passed, and what the report says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jsonschema
import pytest

from recorded import HOSTS, load_report
from rules.make_facts import COMPAT, healthy
from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.core.facts import Known, Unknown, value_of
from tfdoctor.core.findings import Cause, Verification
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.planning.hypothetical_facts import EnvironmentSketch, make_facts_from_sketch
from tfdoctor.render.verify import make_junit_xml, make_verification_json, render_result
from tfdoctor.verification import simulation
from tfdoctor.verification.session import VerificationRun, VerifyRequest, complete_request, ignore_stage
from tfdoctor.verification.simulate.facts import RealGpuFilter, hide_real_gpu
from tfdoctor.verification.simulate.kernels import GpuCode

if TYPE_CHECKING:
    from tfdoctor.system import System

ROOT = Path(__file__).resolve().parents[2]
BINARIES_220 = {"60,70,80,89|90a": 1149, "60,70,80,89,90|90": 319, "|90": 131}
EARLIER_STAGES = ("driver", "libraries", "import", "visible")


def run_verification(
    monkeypatch: pytest.MonkeyPatch,
    card: str,
    driver: str | None = None,
    counts: dict[str, int] | None = None,
) -> Verification:
    """Verify TensorFlow 2.20 after the stages before `compute`, with fat binaries as in `counts`."""
    simulation_request = parse_simulation(COMPAT, [card], driver=driver)
    assert simulation_request is not None
    binaries = GpuCode(
        BINARIES_220 if counts is None else counts, "" if counts != {} else "they could not be read"
    )
    monkeypatch.setattr(simulation, "read_gpu_code", lambda *_: binaries)
    sketch = EnvironmentSketch("2.20.0", "tensorflow", "3.11", (("tensorflow", "2.20.0"),))
    facts = make_facts_from_sketch(COMPAT, sketch)
    cuda = value_of(healthy().driver.cuda)
    assert cuda is not None
    device = replace(
        cuda.devices[0],
        compute_capability=simulation_request.cards[0].capability,
        name=simulation_request.cards[0].name,
    )
    cuda_facts = replace(cuda, version=simulation_request.cuda, devices=(device,), count=1)
    facts = hide_real_gpu(
        replace(facts, driver=replace(facts.driver, cuda=Known(cuda_facts, "the stand-in")))
    )
    report = diagnose(facts, COMPAT)
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    assert python is not None
    assert tensorflow is not None
    run = VerificationRun(
        "/opt/bin/python", complete_request(VerifyRequest(simulated_gpus=simulation_request)), ignore_stage
    )
    for name in EARLIER_STAGES:
        run.record_stage(name, "passed", "as it should")
    run.visible_count = 1
    simulation.check_kernels(run, cast("System", None), python, tensorflow, report, COMPAT)
    run.findings += report.findings
    return run.make_result()


def get_stage(result: Verification, name: str) -> tuple[str, str]:
    """Return the status and the detail of a stage."""
    return next((item.status, item.detail) for item in result.stages if item.name == name)


def test_machine_code_is_reported_and_stages_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run_verification(monkeypatch, "RTX 4090")
    status, detail = get_stage(result, "compute")
    assert status == "skipped"
    assert detail.startswith("not simulated: ")
    assert "machine code for compute capability 8.9 in all 1468 fat binaries" in detail
    assert get_stage(result, "cudnn")[0] == get_stage(result, "nccl")[0] == "skipped"
    assert (result.ok, result.cause) == (True, Cause.HEALTHY)
    assert "(simulated: GeForce RTX 4090" in result.summary
    assert "nothing was computed" in result.summary


@pytest.mark.parametrize(
    ("card", "driver", "cause", "said"),
    [
        ("RTX 5090", None, Cause.GPU_TOO_NEW, "no code for compute capability 12.0 in 1149 of 1468"),
        ("GTX 980", None, Cause.GPU_TOO_OLD, "no code for compute capability 5.2"),
        ("H100", "535", Cause.DRIVER_TOO_OLD, "555.42.02 is needed"),
        ("Tesla T4", "510", Cause.DRIVER_TOO_OLD, "525.60.13 or newer is needed"),
    ],
)
def test_unsupported_gpu_fails_the_compute_stage(
    monkeypatch: pytest.MonkeyPatch, card: str, driver: str | None, cause: Cause, said: str
) -> None:
    result = run_verification(monkeypatch, card, driver)
    status, detail = get_stage(result, "compute")
    assert (status, result.ok, result.cause) == ("failed", False, cause)
    assert said in detail
    assert [finding.cause for finding in result.findings].count(cause) == 1
    assert get_stage(result, "cudnn") == ("skipped", "not tried: compute failed")


def test_libraries_without_code_fail_the_compute_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the binaries have code for the card, the planner's reasons against this release decide."""
    result = run_verification(monkeypatch, "RTX 5090", counts={"90|90": 3, "60,70,80,89|90": 1465})
    status, detail = get_stage(result, "compute")
    assert (status, result.ok, result.cause) == ("failed", False, Cause.GPU_TOO_NEW)
    assert "fail on Blackwell" in detail
    causes = [finding.cause for finding in result.findings]
    assert causes.count(Cause.GPU_TOO_NEW) == 1


def test_ptx_without_machine_code_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    status, detail = get_stage(run_verification(monkeypatch, "H100", "555"), "compute")
    assert status == "skipped"
    assert "PTX alone for compute capability 9.0" in detail
    assert "at the first start" in detail


def test_unreadable_binaries_fall_back_to_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_verification(monkeypatch, "RTX 4090", counts={})
    assert "is not known: they could not be read" in get_stage(result, "compute")[1]
    assert not any("fat binaries" in text for text in (result.simulated.proves if result.simulated else ()))
    assert run_verification(monkeypatch, "GTX 980", counts={}).cause is Cause.GPU_TOO_OLD


def test_kernels_are_not_checked_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "read_gpu_code", lambda *_: pytest.fail("it was read"))
    run = VerificationRun(
        "/opt/bin/python",
        complete_request(VerifyRequest(simulated_gpus=parse_simulation(COMPAT, ["T4"]))),
        ignore_stage,
    )
    facts = healthy()
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    assert python is not None
    assert tensorflow is not None
    run.record_failure("import", "no", Cause.NUMPY_ABI)
    simulation.check_kernels(run, cast("System", None), python, tensorflow, diagnose(facts, COMPAT), COMPAT)
    assert [item.name for item in run.stages] == ["import"]


# ---------------------------------------------------------------- reports


def load_schema(name: str) -> Any:
    """Return the JSON schema of a command's output."""
    return json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))


def test_xla_that_does_not_compile_is_named_without_verbose() -> None:
    run = VerificationRun(
        "/opt/bin/python",
        complete_request(VerifyRequest(simulated_gpus=parse_simulation(COMPAT, ["RTX 5070"]))),
        ignore_stage,
    )
    for name in (*EARLIER_STAGES, "compute", "cudnn"):
        run.record_stage(name, "passed", "as it should")
    run.visible_count = run.computed_count = 1
    run.findings += load_report(HOSTS / "blackwell-with-tf221").findings
    output = " ".join(render_result(run.make_result()).split())
    assert "model.compile(..., jit_compile=False)" in output


def test_simulation_never_reports_a_usable_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = make_verification_json(run_verification(monkeypatch, "RTX 4090"))
    failed = make_verification_json(run_verification(monkeypatch, "GTX 980"))
    for answer in (passed, failed):
        jsonschema.validate(answer, load_schema("verify"))
        assert answer["simulated"]["does_not_prove"]
    assert passed["verdict"]["gpu_usable"] is None
    assert failed["verdict"]["gpu_usable"] is False
    assert (passed["simulated"]["card"], passed["simulated"]["driver"]) == ("GeForce RTX 4090", "595.71.05")
    assert passed["gpus"] == {"expected": 1, "visible": 1, "computed": None}


def test_real_verification_is_not_marked_simulated() -> None:
    run = VerificationRun("/opt/bin/python", complete_request(VerifyRequest()), ignore_stage)
    run.record_stage("driver", "passed", "it answers")
    answer = make_verification_json(run.make_result())
    assert answer["simulated"] is None
    assert answer["verdict"]["gpu_usable"] is True
    assert "simulate" not in make_junit_xml(run.make_result())


def test_every_output_format_is_marked_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_verification(monkeypatch, "RTX 4090")
    screen = " ".join(render_result(result).split())
    assert "Shows TensorFlow finds the driver's library" in screen
    assert "Not shown that results are correct" in screen
    assert "simulated" in render_result(result, quiet=True)
    assert (
        '<testsuite name="tfdoctor verify /opt/bin/python (simulated: GeForce RTX 4090 ('
        in make_junit_xml(result)
    )
    assert result.command == "tfdoctor verify --python /opt/bin/python --simulate 'RTX 4090'"


# ---------------------------------------------------------------- facts


def test_real_gpu_of_the_machine_is_ignored() -> None:
    facts = hide_real_gpu(healthy())
    driver = facts.driver
    assert all(
        isinstance(fact, Unknown)
        for fact in (
            driver.pci,
            driver.kernel_module,
            driver.modules,
            driver.nodes,
            driver.smi,
            facts.kernel.log,
        )
    )
    assert facts.driver.nvml == healthy().driver.nvml


def make_libcuda_facts(*, stand_in: bool) -> Any:
    """Return healthy facts whose libcuda is a stand-in, or another library."""
    facts = healthy()
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    fact = Known(replace(cuda, stand_in=stand_in, path="/x/libcuda.so.1"), "libcuda")
    return replace(facts, driver=replace(facts.driver, cuda=fact, cuda_unhidden=fact))


def test_requested_stand_in_counts_as_a_driver() -> None:
    convert = RealGpuFilter()
    report = diagnose(convert(make_libcuda_facts(stand_in=True)), COMPAT)
    assert convert.other_libcuda is None
    assert "TFD107" not in {finding.code for finding in report.findings}


def test_other_libcuda_is_remembered() -> None:
    convert = RealGpuFilter()
    convert(make_libcuda_facts(stand_in=False))
    assert convert.other_libcuda == "/x/libcuda.so.1"


def test_check_reports_an_unrequested_stand_in() -> None:
    report = diagnose(make_libcuda_facts(stand_in=True), COMPAT)
    root = report.root_finding
    assert root is not None
    assert (root.code, root.cause) == ("TFD107", Cause.STUB_LIBCUDA)
    assert root.title == "tfdoctor's stand-in stands in for the driver"
    assert report.verdict.gpu_usable is False


# ---------------------------------------------------------------- command line


def run_command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run tfdoctor with these words."""
    env = {**os.environ, **variables}
    command = [sys.executable, "-m", "tfdoctor", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("verify", "--driver", "550"), "--driver belongs to --simulate"),
        (("verify", "--simulate", "T4", "--devices", "CPU"), "cannot be combined"),
        (("verify", "--simulate", "T4", "--devices", "all"), "cannot be combined"),
        (("verify", "--simulate", "nothing"), "no NVIDIA GPU called"),
        (("check", "--simulate", "T4"), "can only be combined with --deep"),
        (("check", "--driver", "550"), "can only be combined with --deep"),
        (("check", "--deep", "--driver", "550"), "--driver belongs to --simulate"),
        (("check", "--deep", "--simulate", "T4", "--fix"), "can only be combined with --deep"),
        (("build", "--simulate", "T4", "--no-verify"), "--no-verify"),
    ],
)
def test_conflicting_options_are_refused(words: tuple[str, ...], said: str) -> None:
    process = run_command(*words, *(("--python", sys.executable) if words[0] == "verify" else ()))
    assert (process.returncode, said in process.stderr) == (2, True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_stand_in_is_passed_to_the_child_only(tmp_path: Path) -> None:
    words = ("verify", "--python", sys.executable, "--simulate", "RTX 4090", "--gpu-count", "2", "--json")
    process = run_command(*words, XDG_CACHE_HOME=str(tmp_path))
    answer = json.loads(process.stdout)
    jsonschema.validate(answer, load_schema("verify"))
    stages = {item["name"]: item for item in answer["stages"]}
    assert stages["driver"]["detail"] == "libcuda answers (simulated): CUDA 13.2, 2 devices"
    assert stages["libraries"]["status"] == "failed"  # the test environment has no TensorFlow
    assert answer["verdict"]["cause"] == "tensorflow-missing"
    assert [item.name for item in tmp_path.iterdir()] == ["tfdoctor"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_check_output_is_marked_simulated(tmp_path: Path) -> None:
    words = ("check", "--deep", "--simulate", "RTX 4090", "--python", sys.executable)
    screen = run_command(*words, XDG_CACHE_HOME=str(tmp_path)).stdout
    assert screen.startswith("Simulated: GeForce RTX 4090")
    assert "nothing was computed" in screen
    answer = json.loads(run_command(*words, "--json", XDG_CACHE_HOME=str(tmp_path)).stdout)
    jsonschema.validate(answer, load_schema("check"))
    assert answer["simulated"]["driver"] == "595.71.05"
    assert answer["verdict"]["gpu_usable"] is not True


def test_statically_linked_cuda_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = EnvironmentSketch("1.13.2", "tensorflow-gpu", "3.7", (("tensorflow-gpu", "1.13.2"),))
    facts = make_facts_from_sketch(COMPAT, sketch)
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    run = VerificationRun(
        "/opt/bin/python",
        complete_request(VerifyRequest(simulated_gpus=parse_simulation(COMPAT, ["T4"]))),
        ignore_stage,
    )
    assert not simulation.can_list_gpus(run, tensorflow, COMPAT)
    assert {item.name: item.status for item in run.stages} == {"import": "skipped", "visible": "skipped"}
    assert simulation.can_list_gpus(
        run, replace(tensorflow, version="2.20.0", distribution="tensorflow"), COMPAT
    )
