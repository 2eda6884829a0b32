"""Verification of an image with a fake engine: GPU access, the stage `runtime`, and how containers end."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rules.make_facts import COMPAT, healthy
from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.core.facts import DeviceNodes, Known, Unknown, value_of
from tfdoctor.core.facts.loading import RemovedEntriesResult, ReplacedLibrary
from tfdoctor.core.facts.python import UnusablePython
from tfdoctor.core.findings import Cause, Finding, Severity
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.images.engine import EngineError, GpuAccess
from tfdoctor.images.engine.system import ContainerEndedError, StartError
from tfdoctor.remedies.image import adapt_image_finding
from tfdoctor.remedies.target import Target, TargetImage
from tfdoctor.rules import prediction_differs
from tfdoctor.system import CommandResult
from tfdoctor.verification import image as module
from tfdoctor.verification import python as python_module
from tfdoctor.verification.image import (
    _check_runtime,
    _describe_entrypoint,
    _is_unknown_device,
    _shorten_message,
    find_python,
    get_gpu_option,
    list_gpu_access,
    verify_image,
)
from tfdoctor.verification.python import verify_python
from tfdoctor.verification.session import VerificationRun, VerifyRequest, complete_request, ignore_stage

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Verification
    from tfdoctor.images.engine import ContainerEngine
    from tfdoctor.system import System

SIMULATED = parse_simulation(COMPAT, ["T4"])


def make_engine(
    name: str = "docker", *, runtimes: tuple[str, ...] = (), cdi: bool = False, **info: Any
) -> Any:
    """Return an engine that has every image except `missing`."""
    details = {"user": "1000", "environment": {"LD_LIBRARY_PATH": "/opt/lib"}, "entrypoint": ()}
    details |= {"labels": {}, "architecture": "amd64", **info}
    return SimpleNamespace(
        name=name,
        runtimes=runtimes,
        supports_cdi=cdi,
        architecture="amd64",
        find_image=lambda image: None if image == "missing" else SimpleNamespace(**details),
    )


def list_mechanisms(engine: Any, gpus: str | None) -> list[tuple[str, tuple[str, ...]]]:
    return [(access.mechanism, access.devices) for access in list_gpu_access(engine, gpus)]


def test_kinds_of_gpu_access() -> None:
    all_kinds = make_engine(runtimes=("runc", "nvidia"), cdi=True)
    assert list_mechanisms(all_kinds, None) == [("gpus", ("all",)), ("runtime", ("all",)), ("cdi", ("all",))]
    assert list_mechanisms(make_engine(runtimes=("runc",)), "0,1") == [("gpus", ("0", "1"))]
    assert list_mechanisms(make_engine("podman", runtimes=("nvidia",), cdi=True), "") == [("cdi", ("all",))]
    assert list_mechanisms(all_kinds, "none") == [("none", ("all",))]
    assert get_gpu_option(all_kinds) == "--gpus all"


def test_entrypoint_that_is_not_run() -> None:
    assert [
        _describe_entrypoint(words)
        for words in ((), ("/usr/bin/tini", "--"), ("tini", "-g", "--", "/app/start", "now"), ("x" * 50,))
    ] == [
        "",
        "",
        "; its ENTRYPOINT (/app/start now) is not run",
        f"; its ENTRYPOINT ({'x' * 40} […]) is not run",
    ]


def test_messages_of_the_engine() -> None:
    assert (
        _shorten_message("OCI runtime: nvidia-container-cli: no\nreason") == "nvidia-container-cli: no reason"
    )
    assert _shorten_message("something else") == "something else"
    assert _shorten_message("x" * 400) == "x" * 300 + " […]"
    containers = value_of(healthy().containers)
    assert _is_unknown_device("device error: 0: unknown device", containers)
    assert not _is_unknown_device("device error: 0", containers)
    assert not _is_unknown_device("unresolvable CDI devices nvidia.com/gpu=9", None)


@pytest.mark.parametrize(
    ("facts", "options", "status", "detail"),
    [
        ("driver", {}, "passed", "a container starts with --gpus all; its ENTRYPOINT (x) is not run"),
        ("nodes", {}, "passed", "a container starts with --gpus all; its ENTRYPOINT (x) is not run"),
        (
            "nothing",
            {},
            "failed",
            "the container starts with --gpus all, but gets neither a driver nor a device node",
        ),
        ("hidden", {}, "passed", "a container starts with --gpus all; its ENTRYPOINT (x) is not run"),
        ("other nodes", {"gpus": "none"}, "failed", "the container was started without GPUs, as asked"),
        (
            "nothing",
            {"device": "CPU"},
            "passed",
            "a container starts with --gpus all; its ENTRYPOINT (x) is not run",
        ),
        (
            "nothing",
            {"simulated_gpus": SIMULATED},
            "passed",
            "a container starts, without GPUs: a stand-in driver is added",
        ),
    ],
)
def test_runtime_stage(facts: str, options: dict[str, Any], status: str, detail: str) -> None:
    found = healthy()
    cuda = value_of(found.driver.cuda)
    assert cuda is not None
    no_cuda = Known(replace(cuda, loaded=False), "x")
    nodes = {
        "nodes": ("/dev/null", "/dev/nvidia0"),
        "other nodes": ("/dev/dri",),
        "nothing": (),
        "hidden": (),
    }.get(facts)
    if facts == "hidden":
        loader = value_of(found.loader)
        assert loader is not None
        empty_file = ReplacedLibrary("libcuda.so.1", "/old/libcuda.so.1", "/usr/lib/libcuda.so.1")
        result = RemovedEntriesResult("LD_LIBRARY_PATH", ("/old",), loader.resolutions, (), (empty_file,))
        found = replace(found, loader=Known(replace(loader, without=(result,)), "x"))
    if nodes is not None:
        found = replace(
            found, driver=replace(found.driver, cuda=no_cuda, nodes=Known(DeviceNodes(nodes), "/dev"))
        )
    run = VerificationRun("x", complete_request(VerifyRequest(**options)), ignore_stage)
    _check_runtime(run, found, GpuAccess("gpus"), 1.5, ("x",))
    ((stage),) = run.stages
    assert (stage.status, stage.detail, stage.seconds) == (status, detail, 1.5)
    assert run.cause is (Cause.CONTAINER_NO_GPU if status == "failed" else None)
    found = healthy()
    unknown = replace(found, driver=replace(found.driver, cuda=Unknown("x", "no"), nodes=Unknown("x", "no")))
    again = VerificationRun("x", complete_request(VerifyRequest()), ignore_stage)
    _check_runtime(again, unknown, GpuAccess("none"), 0, ())
    assert again.has_failed


def test_python_that_does_not_start_is_the_cause_not_the_gpu() -> None:
    """Nothing in the container could ask the driver."""
    found = healthy()
    driver = replace(found.driver, cuda=Unknown("x", "no"), nodes=Known(DeviceNodes(()), "/dev"))
    found = replace(found, driver=driver, python=UnusablePython("x", "it exited with status 1"))
    run = VerificationRun("x", complete_request(VerifyRequest()), ignore_stage)
    _check_runtime(run, found, GpuAccess("gpus"), 1, ())
    assert (run.cause, run.stages[0].detail) == (Cause.PYTHON_UNUSABLE, "the image's Python does not start")


def test_first_python_with_tensorflow_is_chosen() -> None:
    asked: list[str] = []

    def run(argv: list[str], **_: Any) -> CommandResult:
        asked.append(argv[0])
        return CommandResult(tuple(argv), int(argv[0] != "/bin/python3"))

    def which(name: str) -> str | None:
        return None if name == "python" else f"/bin/{name}"

    system = cast("System", SimpleNamespace(which=which, run=run))
    assert find_python(system) == "/bin/python3"
    assert asked == ["/bin/python3"]
    system = cast("System", SimpleNamespace(which=lambda name: f"/usr/{name}", run=run))
    assert find_python(system) is None


class FakeContainer:
    """A container that starts or ends as `outcomes` says: one outcome for each attempt."""

    def __init__(self, *outcomes: Any, oom: bool = False) -> None:
        self.outcomes, self.oom = list(outcomes), oom
        self.requests: list[Any] = []

    def __call__(self, _: Any, request: Any) -> FakeContainer:
        self.requests.append(request)
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return self

    def __enter__(self) -> FakeContainer:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_state(self) -> dict[str, bool]:
        return {"OOMKilled": self.oom}

    def which(self, name: str) -> str:
        return f"/bin/{name}"

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        return CommandResult(tuple(argv), 0)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the shared stages do: the names of the stages that they fail."""
    failing: list[Any] = []

    def examine(*_: Any, python: str | None, modify_facts: Any = None, **__: Any) -> Any:
        assert python in ("/bin/python", "/requested", "/env/bin/python")
        facts = healthy()
        return diagnose(modify_facts(facts) if modify_facts is not None else facts, COMPAT)

    def run_stages(run: VerificationRun, *_: Any) -> None:
        for stage in failing:
            if isinstance(stage, BaseException):
                raise stage
            run.record_failure(stage, "broken", Cause.NUMPY_ABI)

    for target in (module, python_module):
        monkeypatch.setattr(target, "examine", examine)
        monkeypatch.setattr(target, "run_stages", run_stages)
    return failing


def verify(
    monkeypatch: pytest.MonkeyPatch,
    container: FakeContainer,
    *,
    host: Facts | None = None,
    stand_in: Path | None = None,
    image_info: dict[str, Any] | None = None,
    **options: Any,
) -> Verification:
    monkeypatch.setattr(module, "ContainerSystem", container)
    engine = cast("ContainerEngine", make_engine(runtimes=("nvidia",), **(image_info or {})))
    return verify_image(engine, COMPAT, "app", VerifyRequest(**options), host=host, stand_in=stand_in)


def test_missing_image_names_the_command() -> None:
    with pytest.raises(EngineError, match="the image missing is not here") as error:
        verify_image(make_engine(), COMPAT, "missing", VerifyRequest())
    assert error.value.hint == "docker pull missing"


def test_container_with_gpus(monkeypatch: pytest.MonkeyPatch, stages: list[str]) -> None:
    container = FakeContainer(StartError("no such option"), None)
    result = verify(monkeypatch, container, host=healthy(), memory_bytes=5, stages=("runtime", "driver"))
    assert [request.gpus.mechanism for request in container.requests] == ["gpus", "runtime"]
    assert (container.requests[0].memory_bytes, container.requests[0].shm_size) == (5, 1 << 30)
    assert container.requests[0].simulation_files == {}
    assert (result.access, result.expected) == ("--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all", 1)
    assert [(stage.name, stage.status) for stage in result.stages] == [
        ("runtime", "passed"),
        ("driver", "skipped"),
    ]
    result = verify(monkeypatch, FakeContainer(None), stages=("driver",), python="/requested", expected=3)
    assert [stage.name for stage in result.stages] == ["driver"]
    assert result.expected == 3
    assert verify(monkeypatch, FakeContainer(None), host=healthy(), gpus="0,1").expected == 2
    assert verify(monkeypatch, FakeContainer(None)).expected is None


def test_container_that_does_not_start(monkeypatch: pytest.MonkeyPatch, stages: list[str]) -> None:
    refusal = StartError("could not select device driver")
    result = verify(monkeypatch, FakeContainer(refusal, StartError("unknown runtime nvidia")))
    assert result.access == "--gpus all"
    assert result.failed_stage is not None
    assert result.failed_stage.name == "runtime"
    assert result.failed_stage.detail.endswith(": could not select device driver")
    assert len(result.findings) == 1
    assert len(result.findings[0].evidence) == 2
    ended = ContainerEndedError("python: not found", no_python=True)
    result = verify(monkeypatch, FakeContainer(ended))
    assert (result.cause, result.access) == (Cause.PYTHON_UNUSABLE, "--gpus all")
    assert result.failed_stage is not None
    assert result.failed_stage.name == "runtime"
    assert [finding.title for finding in result.findings] == ["There is no Python in this image"]


def test_container_that_ends_early(monkeypatch: pytest.MonkeyPatch, stages: list[Any]) -> None:
    stages.append(ContainerEndedError("broken"))
    result = verify(monkeypatch, FakeContainer(None), stages=("runtime", "import"))
    assert [(stage.name, stage.status) for stage in result.stages] == [
        ("runtime", "passed"),
        ("import", "failed"),
    ]
    assert result.findings[0].title == "The image's Python does not start"


def test_killed_container_ran_out_of_memory(monkeypatch: pytest.MonkeyPatch, stages: list[str]) -> None:
    assert verify(monkeypatch, FakeContainer(None, oom=True)).cause is Cause.HEALTHY
    stages.append("compute")
    assert verify(monkeypatch, FakeContainer(None)).cause is Cause.NUMPY_ABI
    result = verify(monkeypatch, FakeContainer(None, oom=True), memory_bytes=1 << 30)
    assert result.cause is Cause.OOM
    assert [finding.title for finding in result.findings] == [
        "The container reached its limit of memory of 1g and was killed"
    ]


def test_killed_probe_is_not_a_fault_of_the_prediction(
    monkeypatch: pytest.MonkeyPatch, stages: list[str]
) -> None:
    difference = prediction_differs.RULE.make_finding(Cause.INCONCLUSIVE, Severity.WARNING, "x", title="x")
    monkeypatch.setattr(module, "run_stages", lambda run, *_: run.findings.append(difference))
    result = verify(monkeypatch, FakeContainer(None, oom=True), memory_bytes=200 << 20)
    assert [(finding.cause, finding.severity) for finding in result.findings] == [
        (Cause.OOM, Severity.WARNING)
    ]


@pytest.mark.parametrize(
    ("architecture", "line", "title"),
    [
        ("arm64", "exec /bin/sh: exec format error", "The image is for arm64, and this machine is amd64"),
        (
            "amd64",
            "[FATAL tini (7)] exec sh failed: Exec format error",
            "The image is for another processor, and this machine is amd64",
        ),
        ("amd64", "segmentation fault", "The image's Python does not start"),
    ],
)
def test_image_of_another_architecture_is_named(
    monkeypatch: pytest.MonkeyPatch, stages: list[Any], architecture: str, line: str, title: str
) -> None:
    broken = ContainerEndedError(line)
    result = verify(monkeypatch, FakeContainer(broken), image_info={"architecture": architecture})
    (finding,) = result.findings
    assert (finding.title, finding.evidence[0].text) == (title, line)
    if "format" in line:
        assert finding.remedies[0].commands[0] == "docker pull --platform linux/amd64 app"


@pytest.mark.parametrize(
    ("environment", "options", "title", "command"),
    [
        (
            {"NVIDIA_DRIVER_CAPABILITIES": "utility"},
            {},
            "The image's NVIDIA_DRIVER_CAPABILITIES excludes the driver's libcuda",
            "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        ),
        ({}, {"gpus": "none"}, "The container was started without GPUs, as asked", "tfdoctor verify app"),
    ],
)
def test_reason_for_a_container_without_gpu(
    monkeypatch: pytest.MonkeyPatch,
    stages: list[Any],
    environment: dict[str, str],
    options: dict[str, Any],
    title: str,
    command: str,
) -> None:
    found = healthy()
    cuda = value_of(found.driver.cuda)
    assert cuda is not None
    driver = replace(
        found.driver,
        cuda=Known(replace(cuda, loaded=False), "x"),
        nodes=Known(DeviceNodes(("/dev/null",)), "/dev"),
    )
    report = diagnose(replace(found, driver=driver), COMPAT)
    monkeypatch.setattr(module, "examine", lambda *_, **__: report)
    result = verify(monkeypatch, FakeContainer(None), image_info={"environment": environment}, **options)
    assert (result.stages[0].name, result.stages[0].status, result.cause) == (
        "runtime",
        "failed",
        Cause.CONTAINER_NO_GPU,
    )
    assert result.findings[0].title == title
    assert result.findings[0].remedies[0].commands[0] == command


def test_built_image_is_not_built_again(monkeypatch: pytest.MonkeyPatch, stages: list[Any]) -> None:
    plan = json.dumps({"tensorflow": "2.20.0"})
    assert module._find_planned_tensorflow({"io.tfdoctor.plan": plan}) == "2.20.0"
    assert module._find_planned_tensorflow({"io.tfdoctor.plan": "["}) == ""
    assert module._find_planned_tensorflow({"io.tfdoctor.plan": "[]"}) == ""
    target = Target(COMPAT, image=TargetImage("app", planned_tensorflow="2.20.0"))
    build = SimpleNamespace(release=COMPAT.find_release("2.20.0"), is_exact_release=True, version="2.20.0")
    for cause, count in ((Cause.DAMAGED_FILE, 0), (Cause.GPU_TOO_NEW, 1)):
        finding = Finding("TFD608", cause, Severity.ERROR, "", "", (), ())
        adapted = adapt_image_finding(replace(target, build=cast("Any", build)), finding)
        assert len(adapted.remedies) == count
    unknown = Finding("TFD608", Cause.INCONCLUSIVE, Severity.ERROR, "", "", (), ())
    assert adapt_image_finding(Target(COMPAT, image=TargetImage("app")), unknown).remedies == ()


def test_stand_in_is_copied_into_the_container(
    monkeypatch: pytest.MonkeyPatch, stages: list[str], tmp_path: Path
) -> None:
    for name in module.SOURCE_BY_SONAME:
        (tmp_path / name).write_bytes(name.encode())
    container = FakeContainer(None, None)
    result = verify(monkeypatch, container, stand_in=tmp_path, simulated_gpus=SIMULATED)
    (request,) = container.requests
    assert request.simulation_files == {name: name.encode() for name in module.SOURCE_BY_SONAME}
    assert request.environment["LD_LIBRARY_PATH"].startswith("/opt/lib:")
    assert request.gpus.mechanism == "none"
    assert (result.access, result.expected) == ("", 1)
    verify(monkeypatch, container, simulated_gpus=SIMULATED)
    assert container.requests[1].simulation_files == {}


def test_python_of_this_machine(monkeypatch: pytest.MonkeyPatch, stages: list[str]) -> None:
    system = cast("System", SimpleNamespace(env={}))
    result = verify_python(system, COMPAT, "/requested", VerifyRequest(stages=("runtime", "driver")))
    assert (result.target, result.expected, [stage.name for stage in result.stages]) == (
        "/env/bin/python",
        1,
        ["driver"],
    )
    result = verify_python(system, COMPAT, "/requested", VerifyRequest(simulated_gpus=SIMULATED, expected=7))
    assert result.expected == 7
    assert result.simulated is not None
