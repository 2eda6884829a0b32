"""Each reason and each caveat of a release, at the value that decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rules.make_facts import COMPAT, healthy, with_cards, with_machine, with_python
from tfdoctor.core.facts import Absent, Known, PciGpu, SmiFacts, SmiGpu, Unknown, value_of
from tfdoctor.core.facts.containers import ContainerFacts, ContainerTool, DockerEngine, UnreachableEngine
from tfdoctor.core.findings import Cause
from tfdoctor.prediction.fit import compatibility, constraints, drivers, matrix
from tfdoctor.prediction.fit.compatibility import list_candidates
from tfdoctor.prediction.fit.constraints import Assessment
from tfdoctor.prediction.fit.drivers import find_driver_version
from tfdoctor.prediction.fit.host import build_host
from tfdoctor.prediction.fit.images import list_fitting_tags
from tfdoctor.prediction.fit.models import Host, HostGpu

NEWEST = COMPAT.select("2.21.0")[0]
NO_AVX = [Cause.ILLEGAL_INSTRUCTION_AVX]
OLD = COMPAT.select("2.10.1")[0]


def make_host(*capabilities: str, **fields: Any) -> Host:
    return Host(cards=tuple(HostGpu(f"card {text}", text) for text in capabilities), **fields)


def list_causes(assessment: Assessment) -> list[Cause]:
    return [reason.cause for reason in assessment.reasons]


# ---------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    ("release", "fields", "container", "causes"),
    [
        (NEWEST, {}, False, []),
        (NEWEST, {"system": "Darwin", "machine": "arm64"}, False, [Cause.NO_DRIVER]),
        (NEWEST, {"system": "Windows"}, False, [Cause.WINDOWS_NATIVE_UNSUPPORTED]),
        (NEWEST, {"system": "Windows"}, True, []),
        (NEWEST, {"machine": "aarch64"}, False, [Cause.CPU_ONLY_BUILD]),
        (NEWEST, {"machine": "AMD64"}, False, []),
        (NEWEST, {"machine": "amd64"}, False, []),
        (replace(NEWEST, glibc="2.27"), {"glibc": "2.26"}, False, [Cause.GLIBC_TOO_OLD]),
        (replace(NEWEST, glibc="2.27"), {"glibc": "2.27"}, False, []),
        (replace(NEWEST, glibc="2.27"), {"glibc": "2.26"}, True, []),
        (replace(NEWEST, glibc="2.27"), {}, False, []),
        (replace(NEWEST, glibc=None), {"glibc": "2.5"}, False, []),
        (replace(NEWEST, cpu_instructions=("avx", "avx2")), {"cpu_flags": frozenset({"avx"})}, False, NO_AVX),
        (replace(NEWEST, cpu_instructions=("avx",)), {"cpu_flags": frozenset()}, False, []),
        (replace(NEWEST, cpu_instructions=None), {"cpu_flags": frozenset({"x"})}, False, []),
    ],
)  # fmt: skip
def test_machine(release: Any, fields: dict[str, Any], container: bool, causes: list[Cause]) -> None:
    assessment = Assessment()
    constraints.check_machine(assessment, release, Host(**fields), container=container)
    assert list_causes(assessment) == causes


def test_reason_on_windows_says_whether_a_wheel_exists() -> None:
    for has_gpu, text in ((True, "needs CUDA and cuDNN installed by hand"), (False, "has no Windows wheel")):
        assessment = Assessment()
        release = replace(OLD, windows_gpu=has_gpu)
        constraints.check_machine(assessment, release, Host(system="Windows"), container=False)
        assert text in assessment.reasons[0].text


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({}, []),
        ({"yanked": True}, ["withdrawn"]),
        ({"version": "2.22.0rc0"}, ["not a final release"]),
    ],
)
def test_caveats_of_the_release_itself(changes: dict[str, Any], texts: list[str]) -> None:
    caveats = constraints.check_release(replace(NEWEST, **changes))
    assert [caveat.is_serious for caveat in caveats] == [True] * len(texts)
    assert all(text in caveat.text for text, caveat in zip(texts, caveats, strict=True))


# ---------------------------------------------------------------- GPUs


@pytest.mark.parametrize(
    ("release", "cards", "cuda", "cudnn", "reasons", "caveats"),
    [
        ("2.21.0", ["9.0"], "12.5", "9.3", [], []),
        ("2.21.0", ["3.0"], "12.5", "9.3", [Cause.GPU_TOO_OLD, Cause.GPU_TOO_OLD], []),
        ("2.21.0", ["5.0"], "12.5", "9.3", [Cause.GPU_TOO_OLD], []),
        ("2.21.0", ["5.0", "5.0", "9.0"], "12.5", "9.3", [Cause.GPU_TOO_OLD], []),
        ("2.20.0", ["12.0"], "12.5", "9.3", [Cause.GPU_TOO_NEW], []),
        ("2.18.1", ["12.0"], "12.5", "9.3", [Cause.GPU_TOO_NEW], []),
        ("2.18.1", [], "12.5", "9.3", [], [(Cause.GPU_TOO_NEW, False), (Cause.GPU_TOO_OLD, False)]),
        ("2.18.1", ["8.9"], "11.2", "8.1", [], []),
        ("2.18.1", ["9.0"], "11.2", "8.1", [Cause.GPU_TOO_NEW], []),
        ("2.10.1", ["9.0"], "11.8", "8.6", [], [(Cause.GPU_TOO_NEW, True)]),
        ("2.10.1", ["9.0"], "11.8", None, [], [(Cause.GPU_TOO_NEW, True)]),
    ],
)
def test_gpus(
    release: str, cards: list[str], cuda: str, cudnn: str | None, reasons: list[Cause], caveats: list[Any]
) -> None:
    assessment = Assessment()
    constraints.check_gpus_and_driver(
        assessment, COMPAT, COMPAT.select(release)[0], make_host(*cards), cuda, cudnn
    )
    assert list_causes(assessment) == reasons
    assert [(caveat.cause, caveat.is_serious) for caveat in assessment.caveats] == caveats


def test_name_of_a_gpu_has_its_capability_once() -> None:
    assert constraints._format_gpu(HostGpu("H100", "9.0")) == "H100 (compute capability 9.0)"
    assert constraints._format_gpu(HostGpu("compute capability 9.0", "9.0")) == "compute capability 9.0"


@pytest.mark.parametrize(
    ("cuda", "capability", "expected"),
    [
        ("12.5", "9.0", None),
        ("12.5", "10.0", "9.0"),
        ("11.2", "8.9", None),
        ("11.2", "9.0", "8.6"),
        ("1.0", "9.0", None),
    ],
)
def test_capability_beyond_a_cuda_version(cuda: str, capability: str, expected: str | None) -> None:
    assert constraints.find_exceeded_capability(COMPAT, cuda, capability) == expected


# ---------------------------------------------------------------- drivers


@pytest.mark.parametrize(
    ("fields", "reasons", "caveats"),
    [
        ({}, [], 0),
        ({"driver": "525.60.13"}, [], 0),
        ({"driver": "525.60.12"}, [Cause.DRIVER_TOO_OLD], 0),
        ({"driver": "525"}, [], 1),
        ({"driver": "520"}, [Cause.DRIVER_TOO_OLD], 0),
        ({"driver": "528.33", "is_wsl": True}, [], 0),
        ({"driver": "527.40", "is_wsl": True}, [Cause.DRIVER_TOO_OLD], 0),
        ({"driver": "527.40", "system": "Windows"}, [Cause.DRIVER_TOO_OLD], 0),
    ],
)
def test_driver_of_a_cuda_version(fields: dict[str, Any], reasons: list[Cause], caveats: int) -> None:
    assessment = Assessment()
    constraints._check_driver(assessment, COMPAT, NEWEST, make_host(**fields), "12.5")
    assert (list_causes(assessment), len(assessment.caveats)) == (reasons, caveats)
    assert not any(caveat.is_serious for caveat in assessment.caveats)


def test_gpu_that_the_driver_reports_is_supported() -> None:
    host = make_host("3.5", "12.0", driver="580.65.06")
    assessment = Assessment()
    assert not constraints.check_driver_support(assessment, COMPAT, host)
    assert list_causes(assessment) == [Cause.NO_DEVICE]
    for supported in (
        replace(host, has_driver_gpus=True),
        replace(host, driver=None),
        make_host("12.0", driver="580.65.06"),
    ):
        assert constraints.check_driver_support(Assessment(), COMPAT, supported)


def test_last_branch_of_a_gpu() -> None:
    assessment = Assessment()
    constraints._check_last_branch(assessment, COMPAT, "12.5", make_host("3.5", "9.0"))
    assert list_causes(assessment) == [Cause.GPU_TOO_OLD]
    assessment = Assessment()
    constraints._check_last_branch(assessment, COMPAT, "11.2", make_host("3.5"))
    assert list_causes(assessment) == []


@pytest.mark.parametrize(
    ("card", "driver", "causes", "caveats"),
    [
        ("9.0", None, [], 0),
        ("9.0", "900.1", [], 0),
        ("2.1", None, [Cause.GPU_TOO_OLD, Cause.GPU_TOO_OLD], 0),
        ("9.0", "470.82.01", [Cause.DRIVER_TOO_OLD], 0),
        ("9.0", "418.1", [Cause.DRIVER_TOO_OLD], 0),
    ],
)
def test_image_of_nvidia(card: str, driver: str | None, causes: list[Cause], caveats: int) -> None:
    image = next(
        image
        for image in COMPAT.images.ngc_images
        if image.driver is not None and image.cuda.startswith("12.")
    )
    assessment = Assessment()
    constraints.check_ngc_image(assessment, COMPAT, image, make_host(card, driver=driver))
    assert (list_causes(assessment), len(assessment.caveats)) == (causes, caveats)
    for reason in assessment.reasons:  # NVIDIA's exception is not in the table: the reason says so
        assert ("on data-center cards" in reason.text) is reason.text.startswith(f"{image.name} needs driver")
    exact = Assessment()
    constraints.check_ngc_image(exact, COMPAT, image, make_host("9.0", driver=image.driver))
    assert (exact.reasons, exact.caveats) == ([], [])


@pytest.mark.parametrize(
    ("driver", "card", "cause"),
    [
        ("580.65.06", "3.5", Cause.NO_DEVICE),
        ("470.82.01", "3.5", None),
        ("470.82.01", "12.0", Cause.DRIVER_TOO_OLD),
        ("470.82.01", "8.6", None),
        ("470.82.01", "9.0", Cause.DRIVER_TOO_OLD),
        ("999.1", "12.0", None),
    ],
)
def test_driver_refuses_a_gpu(driver: str, card: str, cause: Cause | None) -> None:
    refusal = drivers.find_driver_refusal(COMPAT, driver, HostGpu("x", card))
    assert (refusal[0] if refusal else None) is cause


def test_known_drivers() -> None:
    known = drivers.list_known_drivers(COMPAT)
    assert known == sorted(known, key=lambda text: [int(part) for part in text.split(".")], reverse=True)
    assert drivers.find_newest_driver(COMPAT, "550") == next(
        text for text in known if text.startswith("550.")
    )
    assert (drivers.find_newest_driver(COMPAT, "550.1"), drivers.find_newest_driver(COMPAT, "111")) == (
        "550.1",
        "111",
    )
    assert set(drivers.list_known_drivers(COMPAT, "windows")) != set(known)
    limits = drivers.list_refusal_limits(COMPAT)
    assert set(known) <= limits
    newest = max(int(text.split(".")[0]) for text in limits)
    assert str(newest) in limits


# ---------------------------------------------------------------- the host


def with_driver(facts: Any, **changes: Any) -> Any:
    return replace(facts, driver=replace(facts.driver, **changes))


def test_version_of_the_driver_by_source() -> None:
    facts = healthy()
    assert find_driver_version(facts) == ("570.1", "/proc/driver/nvidia/version")
    facts = with_driver(facts, kernel_module=Unknown("x"))
    assert find_driver_version(facts) == ("570.1", "nvmlSystemGetDriverVersion")
    facts = with_driver(facts, nvml=Unknown("x"))
    assert find_driver_version(facts) == ("570.1", "nvidia-smi")
    for version in (None, "N/A"):
        assert find_driver_version(with_driver(facts, smi=Known(SmiFacts(version, None, ()), "x"))) is None
    assert find_driver_version(with_driver(facts, smi=Unknown("x"))) is None


BUS = Known((PciGpu("a", "2330", None), PciGpu("b", "", None)), "x")
OTHER_BUS = Known((PciGpu("a", "ffff", None),), "x")
UNNAMED = Known(replace(value_of(with_cards(healthy()).driver.cuda), count=1), "x")  # type: ignore[type-var]
NO_GPU = {"cuda": Unknown("x"), "smi": Unknown("x"), "pci": Absent("x")}
SMI = SmiFacts(
    "1",
    None,
    (
        SmiGpu(0, "NVIDIA H100 80GB HBM3", None, None, 1, 1, None, None),
        SmiGpu(1, None, None, None, 1, 1, None, None),
    ),
)


@pytest.mark.parametrize(
    ("facts", "has_no_gpu", "cards"),
    [
        (with_driver(healthy(), **NO_GPU), True, []),
        (with_machine(with_driver(healthy(), **NO_GPU), wsl=2), False, []),
        (with_machine(with_driver(healthy(), **NO_GPU), jetson=True), False, []),
        (with_machine(with_driver(healthy(), **NO_GPU), system="Windows"), False, []),
        (with_driver(healthy(), **{**NO_GPU, "pci": Unknown("x")}), False, []),
        (with_driver(healthy(), **{**NO_GPU, "smi": Known(SMI, "x")}), False, ["9.0"]),
        (with_driver(healthy(), **{**NO_GPU, "smi": Known(replace(SMI, gpus=SMI.gpus[1:]), "x")}), False, []),
        (with_driver(healthy(), **{**NO_GPU, "pci": BUS}), False, ["9.0"]),
        (with_driver(healthy(), **{**NO_GPU, "pci": OTHER_BUS, "smi": Known(SMI, "x")}), False, ["9.0"]),
        (with_driver(healthy(), **{**NO_GPU, "cuda": with_cards(healthy()).driver.cuda}), True, []),
        (with_driver(healthy(), **{**NO_GPU, "cuda": UNNAMED}), False, []),
        (with_driver(healthy(), **{**NO_GPU, "cuda_unhidden": healthy().driver.cuda}), False, ["9.0"]),
        (with_cards(healthy(), "8.6"), False, ["8.6"]),
    ],
)  # fmt: skip
def test_gpus_of_the_host(facts: Any, has_no_gpu: bool, cards: list[str]) -> None:
    host = build_host(facts, COMPAT)
    assert (host.has_no_gpu, [gpu.capability for gpu in host.cards]) == (has_no_gpu, cards)
    driver_facts = (facts.driver.cuda, facts.driver.cuda_unhidden)
    reported = any(
        fact is not None and (answer := value_of(fact)) is not None and answer.devices
        for fact in driver_facts
    )
    assert host.has_driver_gpus is bool(reported)


def test_nameless_gpu_has_its_number() -> None:
    facts = with_cards(healthy(), "8.6", "9.0")
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    devices = (replace(cuda.devices[0], name=None), replace(cuda.devices[1], compute_capability=None))
    host = build_host(with_driver(facts, cuda=Known(replace(cuda, devices=devices), "x")), COMPAT)
    assert [gpu.name for gpu in host.cards] == ["GPU 0"]


def make_containers(docker: Any, *tools: str) -> Any:
    names = tuple(ContainerTool(name, f"/{name}", None, False) for name in tools)
    facts = ContainerFacts(names, docker, "", None, Absent("x"), Absent("x"), ())
    return replace(healthy(), containers=Known(facts, "x"))


ENGINE = DockerEngine("28", (), None, False, False, False, None, None, None, ())


@pytest.mark.parametrize(
    ("facts", "has_engine"),
    [
        (make_containers(Known(ENGINE, "x")), True),
        (make_containers(Known(UnreachableEngine("other", ""), "x")), False),
        (make_containers(Known(UnreachableEngine("other", ""), "x"), "podman"), True),
        (make_containers(Unknown("x")), None),
        (make_containers(Absent("x")), False),
        (replace(healthy(), containers=Unknown("x")), None),
    ],
)
def test_container_engine_of_the_host(facts: Any, has_engine: bool | None) -> None:
    assert build_host(facts, COMPAT).has_engine is has_engine


def test_options_that_describe_a_host() -> None:
    assert make_host("8.6", "9.0", "8.6", driver="550").options == ["--gpu 8.6", "--gpu 9.0", "--driver 550"]
    assert make_host().options == []
    facts = with_python(healthy(), glibc=None)
    assert (build_host(facts, COMPAT).python, build_host(facts, COMPAT).glibc) == ("3.11", None)
    unknown = build_host(replace(facts, python=Unknown("x")), COMPAT)
    assert (unknown.python, unknown.glibc, unknown.is_wsl) == (None, None, False)


# ---------------------------------------------------------------- Python and wheels


@pytest.mark.parametrize(
    ("release", "python", "locked", "text"),
    [
        ("2.21.0", "3.11", True, None),
        ("2.21.0", None, True, "no wheel for any Python that is available"),
        ("2.21.0", "3.8", True, "no wheel for Python 3.8 (it has them for 3.10"),
        ("2.21.0", None, False, "no wheel for any Python"),
        ("2.22.0rc0", None, True, "no pinned and tested packages exist for TensorFlow 2.22.0rc0"),
    ],
)
def test_python_of_a_release(release: str, python: str | None, locked: bool, text: str | None) -> None:
    assessment = Assessment()
    version = "2.21.0" if release == "2.22.0rc0" else release
    row = replace(COMPAT.select(version)[0], version=release)
    compatibility.check_python(assessment, COMPAT, row, python, locked=locked)
    assert bool(assessment.reasons) is (text is not None)
    assert text is None or text in assessment.reasons[0].text
    without = Assessment()
    compatibility.check_python(without, COMPAT, replace(row, linux_pythons=()), python, locked=locked)
    assert "(it has them for none)" in without.reasons[0].text


def test_python_of_the_host_is_preferred() -> None:
    choose = compatibility._choose_python
    assert choose(COMPAT, NEWEST, Host(python="3.10")) == "3.10"
    newest = compatibility.find_newest_python(NEWEST, lambda _: True)
    assert newest == NEWEST.linux_pythons[-1]
    assert choose(COMPAT, NEWEST, Host(python="3.8")) == choose(COMPAT, NEWEST, Host())
    assert compatibility.find_newest_python(NEWEST, lambda _: False) is None
    assert choose(COMPAT, replace(NEWEST, version="9.9"), Host(python="3.10")) is None


def test_candidates_of_a_specification() -> None:
    assert [release.version for release in list_candidates(COMPAT, "2.17")] == ["2.17.1", "2.17.0"]
    assert next(release.version for release in list_candidates(COMPAT, "2.15")) == "2.15.1"
    assert "2.15.0.post1" in [release.version for release in list_candidates(COMPAT, "2.15")]
    newest_first = [release.parsed for release in list_candidates(COMPAT)]
    assert newest_first == sorted(newest_first, reverse=True)
    assert not any(
        release.is_prerelease or release.yanked or not release.gpu for release in list_candidates(COMPAT)
    )


def test_release_whose_cuda_is_in_no_wheel() -> None:
    release = COMPAT.select("1.12.3", "tensorflow-gpu")[0]
    assessment = Assessment()
    assert compatibility.check_wheels(assessment, COMPAT, release, Host()) is None
    assert "NVIDIA does not publish as pip packages (" in assessment.reasons[0].text
    assert compatibility._is_in_wheel(COMPAT, "libcudart.so.12")
    assert compatibility._is_in_wheel(COMPAT, "libcudnn.so.9")
    for soname in ("libcudnn.so.7", "libcudart.so.8.0", "libother.so.1", "text"):
        assert not compatibility._is_in_wheel(COMPAT, soname), soname


# ---------------------------------------------------------------- images and the matrix


@pytest.mark.parametrize(
    "changes", [{"cuda": None}, {"cudnn": None}, {"required_libraries": ("libcudart.so.12",)}]
)
def test_release_with_unknown_libraries_has_no_image(changes: dict[str, Any]) -> None:
    assert list_fitting_tags(COMPAT, NEWEST)
    assert list_fitting_tags(COMPAT, replace(NEWEST, **changes)) == []


def test_image_with_the_nearest_cuda_comes_first() -> None:
    tags = list_fitting_tags(COMPAT, NEWEST)
    assert NEWEST.cuda is not None
    minors = list(dict.fromkeys(tuple(map(int, tag.cuda.split(".")[:2])) for tag in tags))
    own = tuple(map(int, NEWEST.cuda.split(".")[:2]))
    newer, older = [minor for minor in minors if minor >= own], [minor for minor in minors if minor < own]
    assert minors == [*sorted(newer), *sorted(older, reverse=True)]


@pytest.mark.parametrize(
    ("query", "has_rows"),
    [
        ({"tf": "2.11", "os": "windows", "cuda": "11"}, False),
        ({"tf": "2.11", "os": "windows", "capability": "8.6"}, False),
        ({"tf": "2.11", "os": "windows", "driver": "600"}, False),
        ({"tf": "2.11", "os": "windows", "cudnn": "8"}, False),
        ({"tf": "2.10", "os": "windows", "cuda": "11"}, True),
        ({"tf": "2.11", "os": "windows"}, True),
        ({"tf": "2.11", "os": "windows", "gpu": False}, True),
        ({"tf": "2.11", "gpu": False}, False),
        ({"tf": "2.11", "cuda": "11.2.9"}, True),
        ({"tf": "2.11", "cuda": "12"}, False),
        ({"tf": "2.11", "python": "3.10.4"}, True),
        ({"tf": "2.11", "python": "3.12"}, False),
        ({"tf": "2.11", "driver": "450.80.02"}, True),
        ({"tf": "2.11", "driver": "450.80.01"}, False),
        ({"tf": "2.11", "capability": "8.6,8.6"}, True),
        ({"tf": "2.11", "capability": "2.0"}, False),
        ({"tf": "2.11", "capability": "3.5", "driver": "580.65.06"}, False),
    ],
)
def test_condition_of_the_matrix(query: dict[str, Any], has_rows: bool) -> None:
    assert bool(matrix.select_rows(COMPAT, matrix.MatrixQuery(**query))) is has_rows


def test_version_with_fewer_numbers_may_match() -> None:
    assert matrix._have_common_prefix("7", "7.4")
    assert not matrix._have_common_prefix("7.5", "7.4")
    assert not matrix._have_common_prefix("8", "7.4")
    assert matrix.find_code_on_gpu(COMPAT, NEWEST, "2.0") == "none"
    assert matrix.find_code_on_gpu(COMPAT, NEWEST, "9.0") == "native"


def test_errors_of_a_row() -> None:
    rows = {row.release.version: row for row in matrix.select_rows(COMPAT)}
    problem = COMPAT.problems[0]
    row = rows["2.21.0"]
    for severity, area, expected in (
        ("error", "gpu", True),
        ("error", "import", False),
        ("warning", "gpu", False),
    ):
        changed = replace(row, problems=(replace(problem, severity=severity, area=area),))
        assert matrix.has_known_error(changed) is expected


def test_json_of_a_row() -> None:
    row = matrix.select_rows(COMPAT, matrix.MatrixQuery(tf="2.21.0", capability="9.0"))[0]
    for changes, field, expected in (
        ({"cpu_instructions": None}, "cpu_instructions", None),
        ({"cpu_instructions": ("avx",)}, "cpu_instructions", ["avx"]),
        ({"evidence": "measured"}, "evidence", "measured"),
        ({"evidence": "inferred"}, "evidence", "documented"),
        ({"gpu": False}, "linkage", None),
    ):
        assert (
            replace(row, release=replace(row.release, **changes)).as_dict(lambda _: None)[field] == expected
        )
    assert row.as_dict(lambda _: None)["code"] == "native"


@pytest.mark.parametrize(
    ("fields", "cause", "text"),
    [
        # NVIDIA's notes allow branch 470 from 470.57 on, and not branch 510.
        ({"driver": "470.57.02", "has_data_center_gpus": True}, None, "branch 470 from 470.57 on runs it"),
        ({"driver": "470", "has_data_center_gpus": True}, None, "branch 470 from 470.57 on runs it"),
        ({"driver": "470.42.01", "has_data_center_gpus": True}, Cause.DRIVER_TOO_OLD, "also branch 470 from"),
        ({"driver": "510.85.02", "has_data_center_gpus": True}, Cause.DRIVER_TOO_OLD, "also branch 470 from"),
        (
            {"driver": "470.57.02", "has_data_center_gpus": False},
            Cause.DRIVER_TOO_OLD,
            "driver 545 or newer; here",
        ),
        ({"driver": "470.57.02"}, Cause.DRIVER_TOO_OLD, "also branch 470 from 470.57 on, branch 525"),
    ],
)
def test_forward_compatibility_of_an_image(fields: dict[str, Any], cause: Cause | None, text: str) -> None:
    (image,) = (image for image in COMPAT.images.ngc_images if image.tag == "24.05-tf2-py3")
    assessment = Assessment()
    constraints.check_ngc_image(assessment, COMPAT, image, make_host("7.5", **fields))
    assert list_causes(assessment) == ([cause] if cause else [])
    (result,) = (*assessment.reasons, *assessment.caveats)
    assert text in result.text


def test_branches_that_do_not_drive_a_gpu_are_not_named() -> None:
    (image,) = (image for image in COMPAT.images.ngc_images if image.tag == "25.02-tf2-py3")
    assert "data-center" not in constraints.describe_image_driver(COMPAT, image, make_host("10.0"))
    hopper = constraints.describe_image_driver(COMPAT, image, make_host("9.0"))
    assert "branch 550" in hopper
    assert "branch 470" not in hopper
