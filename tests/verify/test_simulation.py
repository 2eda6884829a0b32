"""Verifying beside a stand-in: what is red, what is never green, and what is told of it."""

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

from rules.make_facts import COMPAT, healthy
from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.facts import Known, Unknown, value_of
from tfdoctor.findings import Cause, Verification
from tfdoctor.plan.hypothetical_facts import Sketch, make_sketched_facts
from tfdoctor.render.verify import junit, render_end, verification_json
from tfdoctor.report.diagnose import diagnose
from tfdoctor.simulate.facts import AsSimulated, as_simulated
from tfdoctor.simulate.kernels import Binaries
from tfdoctor.verify import simulation
from tfdoctor.verify.session import Verifying, Wish, complete_request, ignore_stage

if TYPE_CHECKING:
    from tfdoctor.system import System

ROOT = Path(__file__).resolve().parents[2]
OF_220 = {"60,70,80,89|90a": 1149, "60,70,80,89,90|90": 319, "|90": 131}
EARLIER = ("driver", "libraries", "import", "visible")


def run_verification(
    monkeypatch: pytest.MonkeyPatch,
    card: str,
    driver: str | None = None,
    counts: dict[str, int] | None = None,
) -> Verification:
    """TensorFlow 2.20 that has passed the stages before `compute`, with such fat binaries."""
    asked = parse_simulation(COMPAT, [card], driver=driver)
    assert asked is not None
    found = Binaries(OF_220 if counts is None else counts, "" if counts != {} else "they could not be read")
    monkeypatch.setattr(simulation, "read_kernels", lambda *_: found)
    sketch = Sketch("2.20.0", "tensorflow", "3.11", (("tensorflow", "2.20.0"),))
    facts = make_sketched_facts(COMPAT, sketch)
    cuda = value_of(healthy().driver.cuda)
    assert cuda is not None
    one = replace(cuda.devices[0], compute_capability=asked.cards[0].capability, name=asked.cards[0].name)
    shown = replace(cuda, version=asked.cuda, devices=(one,), count=1)
    facts = as_simulated(replace(facts, driver=replace(facts.driver, cuda=Known(shown, "the stand-in"))))
    report = diagnose(facts, COMPAT)
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    assert python is not None
    assert tensorflow is not None
    run = Verifying("/opt/bin/python", complete_request(Wish(simulated=asked)), ignore_stage)
    for name in EARLIER:
        run.add(name, "passed", "as it should")
    run.visible = 1
    simulation.judge_kernels(run, cast("System", None), python, tensorflow, report, COMPAT)
    run.findings += report.findings
    return run.result()


def stage(done: Verification, name: str) -> tuple[str, str]:
    return next((one.status, one.detail) for one in done.stages if one.name == name)


def test_machine_code_is_said_and_nothing_is_green_that_was_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = run_verification(monkeypatch, "RTX 4090")
    status, detail = stage(done, "compute")
    assert status == "skipped"
    assert detail.startswith("not simulated: ")
    assert "machine code for compute capability 8.9 in all 1468 fat binaries" in detail
    assert stage(done, "cudnn")[0] == stage(done, "nccl")[0] == "skipped"
    assert (done.ok, done.cause) == (True, Cause.HEALTHY)
    assert "(simulated: GeForce RTX 4090" in done.summary
    assert "nothing was computed" in done.summary


@pytest.mark.parametrize(
    ("card", "driver", "cause", "said"),
    [
        ("RTX 5090", None, Cause.GPU_TOO_NEW, "no code for compute capability 12.0 in 1149 of 1468"),
        ("GTX 980", None, Cause.GPU_TOO_OLD, "no code for compute capability 5.2"),
        ("H100", "535", Cause.DRIVER_TOO_OLD, "555.42.02 is needed"),
        ("Tesla T4", "510", Cause.DRIVER_TOO_OLD, "525.60.13 or newer is needed"),
    ],
)
def test_what_cannot_run_is_red(
    monkeypatch: pytest.MonkeyPatch, card: str, driver: str | None, cause: Cause, said: str
) -> None:
    done = run_verification(monkeypatch, card, driver)
    status, detail = stage(done, "compute")
    assert (status, done.ok, done.cause) == ("failed", False, cause)
    assert said in detail
    assert any(finding.cause is cause for finding in done.findings)
    assert stage(done, "cudnn") == ("skipped", "not tried: compute failed")


def test_ptx_alone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    status, detail = stage(run_verification(monkeypatch, "H100", "555"), "compute")
    assert status == "skipped"
    assert "PTX alone for compute capability 9.0" in detail
    assert "at the first start" in detail


def test_files_that_cannot_be_read_leave_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = run_verification(monkeypatch, "RTX 4090", counts={})
    assert "is not known: they could not be read" in stage(fine, "compute")[1]
    assert not any("fat binaries" in text for text in (fine.simulated.proves if fine.simulated else ()))
    assert run_verification(monkeypatch, "GTX 980", counts={}).cause is Cause.GPU_TOO_OLD


# ---------------------------------------------------------------- what is told


def schema(name: str) -> Any:
    return json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))


def test_a_simulation_never_says_that_a_gpu_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = verification_json(run_verification(monkeypatch, "RTX 4090"))
    red = verification_json(run_verification(monkeypatch, "GTX 980"))
    for answer in (fine, red):
        jsonschema.validate(answer, schema("verify"))
        assert answer["simulated"]["does_not_prove"]
    assert fine["verdict"]["gpu_usable"] is None
    assert red["verdict"]["gpu_usable"] is False
    assert (fine["simulated"]["card"], fine["simulated"]["driver"]) == ("GeForce RTX 4090", "595.71.05")
    assert fine["gpus"] == {"expected": 1, "visible": 1, "computed": None}


def test_a_real_verification_says_that_nothing_was_simulated() -> None:
    run = Verifying("/opt/bin/python", complete_request(Wish()), ignore_stage)
    run.add("driver", "passed", "it answers")
    answer = verification_json(run.result())
    assert answer["simulated"] is None
    assert answer["verdict"]["gpu_usable"] is True
    assert "simulate" not in junit(run.result())


def test_every_form_is_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_verification(monkeypatch, "RTX 4090")
    screen = " ".join(render_end(done).split())
    assert "Shows the environment lets TensorFlow find a driver" in screen
    assert "Not shown that anything is computed" in screen
    assert "simulated" in render_end(done, quiet=True)
    assert '<testsuite name="tfdoctor verify /opt/bin/python (simulated: GeForce RTX 4090 (' in junit(done)
    assert done.typed == "tfdoctor verify --python /opt/bin/python --simulate 'RTX 4090'"


# ---------------------------------------------------------------- what was seen


def test_the_machines_own_card_does_not_count() -> None:
    seen = as_simulated(healthy())
    driver = seen.driver
    assert all(
        isinstance(one, Unknown)
        for one in (
            driver.pci,
            driver.kernel_module,
            driver.modules,
            driver.nodes,
            driver.smi,
            seen.kernel.log,
        )
    )
    assert seen.driver.nvml == healthy().driver.nvml


def with_stand_in(*, stand_in: bool) -> Any:
    facts = healthy()
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    fact = Known(replace(cuda, stand_in=stand_in, path="/x/libcuda.so.1"), "libcuda")
    return replace(facts, driver=replace(facts.driver, cuda=fact, cuda_unhidden=fact))


def test_the_stand_in_is_judged_as_a_driver_where_it_was_asked_for() -> None:
    as_if = AsSimulated()
    report = diagnose(as_if(with_stand_in(stand_in=True)), COMPAT)
    assert as_if.other is None
    assert "TFD107" not in {finding.code for finding in report.findings}


def test_another_libcuda_before_it_is_kept_in_mind() -> None:
    as_if = AsSimulated()
    as_if(with_stand_in(stand_in=False))
    assert as_if.other == "/x/libcuda.so.1"


def test_check_names_a_stand_in_that_it_meets() -> None:
    report = diagnose(with_stand_in(stand_in=True), COMPAT)
    root = report.root
    assert root is not None
    assert (root.code, root.cause) == ("TFD107", Cause.STUB_LIBCUDA)
    assert root.title == "tfdoctor's stand-in stands in for the driver"
    assert report.verdict.gpu_usable is False


# ---------------------------------------------------------------- typed


def run_typed(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", "verify", "--python", sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
        timeout=120,
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_stand_in_reaches_the_child_and_nothing_else(tmp_path: Path) -> None:
    done = run_typed("--simulate", "RTX 4090", "--gpus", "2", "--json", XDG_CACHE_HOME=str(tmp_path))
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, schema("verify"))
    stages = {one["name"]: one for one in answer["stages"]}
    assert stages["driver"]["detail"] == "libcuda answers (simulated): CUDA 13.2, 2 devices"
    assert stages["libraries"]["status"] == "failed"  # there is no TensorFlow in the environment of the tests
    assert answer["verdict"]["cause"] == "tensorflow-missing"
    assert [one.name for one in tmp_path.iterdir()] == ["tfdoctor"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--driver", "550"), "--driver belongs to --simulate"),
        (("--simulate", "T4", "--device", "CPU"), "give one of them"),
        (("--simulate", "T4", "--gpus", "all"), "how many such cards"),
        (("--simulate", "nothing"), "no NVIDIA GPU called"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], said: str) -> None:
    done = run_typed(*words)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--simulate", "T4"), "it goes with --deep"),
        (("--driver", "550"), "it goes with --deep"),
        (("--deep", "--driver", "550"), "--driver belongs to --simulate"),
        (("--deep", "--simulate", "T4", "--fix"), "it goes with --deep"),
    ],
)
def test_check_simulates_with_deep_alone(words: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfdoctor", "check", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_check_is_labelled(tmp_path: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "tfdoctor",
        "check",
        "--deep",
        "--simulate",
        "RTX 4090",
        "--python",
        sys.executable,
    ]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    shown = subprocess.run(line, capture_output=True, text=True, check=False, env=env, timeout=120).stdout
    assert shown.startswith("Simulated: GeForce RTX 4090")
    assert "nothing was computed" in shown
    told = subprocess.run(
        [*line, "--json"], capture_output=True, text=True, check=False, env=env, timeout=120
    )
    answer = json.loads(told.stdout)
    jsonschema.validate(answer, schema("check"))
    assert answer["simulated"]["driver"] == "595.71.05"
    assert answer["verdict"]["gpu_usable"] is not True


def test_a_built_image_is_verified_or_not_simulated() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfdoctor", "build", "--simulate", "T4", "--no-verify"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "--no-verify" in done.stderr


def test_what_has_cuda_linked_into_it_is_run_by_software_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = Sketch("1.13.2", "tensorflow-gpu", "3.7", (("tensorflow-gpu", "1.13.2"),))
    facts = make_sketched_facts(COMPAT, sketch)
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    run = Verifying(
        "/opt/bin/python", complete_request(Wish(simulated=parse_simulation(COMPAT, ["T4"]))), ignore_stage
    )
    assert not simulation.can_list_gpus(run, tensorflow, COMPAT)
    assert {one.name: one.status for one in run.stages} == {"import": "skipped", "visible": "skipped"}
    assert simulation.can_list_gpus(
        run, replace(tensorflow, version="2.20.0", distribution="tensorflow"), COMPAT
    )
