"""Tests of comparing the results of many hosts: groups of equal hosts, and differences of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extensions.fleet.made import answer, gather_results, with_value
from tfdoctor.core.causes.codes import FLEET_CODES
from tfdoctor.core.findings import Severity
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.extensions.fleet.aggregation import GatheredResults
from tfdoctor.extensions.fleet.analysis import evaluate_fleet
from tfdoctor.extensions.fleet.codes import FLEET_PAGES
from tfdoctor.extensions.fleet.html import make_fleet_html
from tfdoctor.extensions.fleet.render import make_fleet_json, redact_fleet, render_fleet
from tfdoctor.extensions.fleet.results import UnusableResultError, parse_result

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[3] / "docs/schemas/fleet.schema.json").read_text(encoding="utf-8")
)
HEALTHY = "healthy-two-gpus"


def make_healthy_hosts(count: int) -> dict[str, dict[str, Any]]:
    return {f"node{number:03d}": answer(HEALTHY, number) for number in range(count)}


def list_findings(answers: dict[str, dict[str, Any]], name: str) -> list[Any]:
    return [
        finding
        for finding in evaluate_fleet("folder", gather_results(answers)).findings
        if finding.kind == name
    ]


def test_equal_hosts_form_one_group_without_findings() -> None:
    report = evaluate_fleet("folder", gather_results(make_healthy_hosts(5)))
    assert [len(group.hosts) for group in report.groups] == [5]
    assert report.findings == ()
    assert (
        report.summary == "5 of 5 hosts answered; on all of them TensorFlow will use its GPUs; all are alike."
    )


def test_host_with_another_driver_is_reported() -> None:
    answers = {**make_healthy_hosts(4), "odd": answer("driver-too-old-for-libcuda", 99)}
    report = evaluate_fleet("folder", gather_results(answers))
    assert report.groups[1].hosts == ("odd",)
    assert report.groups[1].differences["driver", "NVIDIA driver"] == ("450.80.02", "550.54.14")
    unused = next(finding for finding in report.findings if finding.kind == "gpu-unused")
    assert (unused.hosts, unused.severity) == (("odd",), Severity.ERROR)
    assert "driver-too-old" in unused.message
    assert make_fleet_json(report)["groups"][1]["differs"]["driver"] == "450.80.02"


def test_consequence_of_a_difference_is_not_reported() -> None:
    odd = with_value(answer(HEALTHY, 9), "driver", "NVIDIA driver", "560.1")
    odd = with_value(odd, "driver", "kernel module", "560.1")
    report = evaluate_fleet("folder", gather_results({**make_healthy_hosts(3), "odd": odd}))
    assert list(report.groups[1].differences) == [("driver", "NVIDIA driver")]


def test_host_name_in_a_path_is_no_difference() -> None:
    answers = {
        name: with_value(result, "paths", "preloaded", f"/scratch/{name}/lib/libx.so")
        for name, result in make_healthy_hosts(4).items()
    }
    assert len(evaluate_fleet("folder", gather_results(answers)).groups) == 1


def test_minor_difference_makes_no_group() -> None:
    odd = answer(HEALTHY, 9)
    odd["values"].append({"area": "paths", "name": "nvcc", "value": "12.9", "little": True})
    assert len(evaluate_fleet("folder", gather_results({**make_healthy_hosts(3), "odd": odd})).groups) == 1


def test_unknown_value_makes_no_group() -> None:
    odd = answer(HEALTHY, 9)
    odd["values"].append({"area": "kernel", "name": "log", "value": None, "unknown": "not permitted"})
    assert len(evaluate_fleet("folder", gather_results({**make_healthy_hosts(3), "odd": odd})).groups) == 1


@pytest.mark.parametrize(
    ("area", "name", "what"),
    [("TensorFlow", "TensorFlow", "TensorFlow"), ("packages", "nvidia-nccl-cu12", "NCCL")],
)
def test_different_versions_in_one_job_are_reported(area: str, name: str, what: str) -> None:
    answers = {**make_healthy_hosts(4), "odd": with_value(answer(HEALTHY, 9), area, name, "1.2.3")}
    (finding,) = list_findings(answers, "versions-differ")
    assert finding.hosts == ("odd",)
    assert finding.message.startswith(f"{what} is not the same everywhere")
    assert "1.2.3 on 1 host" in finding.message


def make_one_gpu_host(number: int) -> dict[str, Any]:
    """Return a healthy host without its second GPU."""
    result = answer(HEALTHY, number)
    driver = result["facts"]["driver"]
    for part, key in (("nvml", "devices"), ("smi", "gpus"), ("cuda", "devices")):
        del driver[part]["known"][key][1:]
    del driver["pci"]["known"][1:]
    return result


def test_missing_gpu_is_reported() -> None:
    (finding,) = list_findings({**make_healthy_hosts(6), "odd": make_one_gpu_host(9)}, "card-missing")
    assert finding.hosts == ("odd",)
    assert "1 of this model, NVIDIA GeForce RTX 3090; its 6 twins have 2" in finding.message


def test_no_gpu_is_missing_if_many_hosts_have_fewer() -> None:
    answers = {
        **make_healthy_hosts(6),
        **{f"small{number}": make_one_gpu_host(number + 20) for number in range(4)},
    }
    assert not list_findings(answers, "card-missing")
    assert any("4 hosts have 1" in finding.message for finding in list_findings(answers, "cards-differ"))


@pytest.mark.parametrize(
    ("name", "usual", "slow"),
    [
        ("lanes of PCI Express", "16", "4"),
        ("highest clock", "1980 MHz", "1410 MHz"),
        ("power limit", "400 W", "250 W"),
    ],
)
def test_slower_gpu_is_reported(name: str, usual: str, slow: str) -> None:
    label = f"NVIDIA GeForce RTX 3090 0: {name}"
    answers = {
        host: with_value(result, "cards", label, usual) for host, result in make_healthy_hosts(4).items()
    }
    assert not list_findings(answers, "card-slowed")
    answers["odd"] = with_value(answer(HEALTHY, 9), "cards", label, slow)
    (result,) = list_findings(answers, "card-slowed")
    assert result.hosts == ("odd",)


@pytest.mark.parametrize(
    ("name", "value"),
    [("MIG", "on"), ("ECC", "off"), ("compute mode", "exclusive"), ("lanes of PCI Express", "4")],
)
def test_every_gpu_difference_is_reported(name: str, value: str) -> None:
    label = f"NVIDIA GeForce RTX 3090 0: {name}"
    answers = {**make_healthy_hosts(3), "odd": with_value(answer(HEALTHY, 9), "cards", label, value)}
    (finding,) = list_findings(answers, "host-differs")
    assert (finding.hosts, finding.severity) == (("odd",), Severity.WARNING)
    assert f"{name} {value}, elsewhere" in finding.message


def test_different_gpu_model_is_reported_once() -> None:
    answers = {**make_healthy_hosts(3), "odd": answer("healthy-one-gpu", 9)}
    assert not [finding for finding in list_findings(answers, "host-differs") if "MIG" in finding.message]


def test_only_the_host_with_gpu_faults_is_reported() -> None:
    answers = {**make_healthy_hosts(3), "odd": answer("memory-errors-in-the-log", 9)}
    (finding,) = list_findings(answers, "card-faults")
    assert finding.hosts == ("odd",)


def test_same_gpu_on_two_hosts_is_reported() -> None:
    (finding,) = list_findings(
        {"a": answer(HEALTHY, 1), "b": answer(HEALTHY, 1), "c": answer(HEALTHY, 2)}, "same-card-twice"
    )
    assert finding.hosts == ("a", "b")


@pytest.mark.parametrize(
    ("at", "skewed"), [(1000.0, False), (1011.0, False), (1060.0, True), (900.0, True), (None, False)]
)
def test_clock_outside_the_request_is_skewed(at: float | None, skewed: bool) -> None:
    gathered = GatheredResults()
    item = answer(HEALTHY, at=at)
    gathered.add("a", parse_result(json.dumps(item).encode()), request_time=999.0, response_time=1010.0)
    findings = [item for item in evaluate_fleet("ssh", gathered).findings if item.kind == "clock-skew"]
    assert bool(findings) is skewed


def test_hosts_without_an_answer_are_reported_by_kind() -> None:
    gathered = gather_results(make_healthy_hosts(2))
    gathered.add_failure("gone", "lost", "no route")
    gathered.add_failure("slow", "timeout", "")
    gathered.add_failure("odd", "failed", "what it wrote is not JSON")
    report = evaluate_fleet("ssh", gathered)
    assert [(item.kind, item.hosts) for item in report.findings] == [
        ("host-silent", ("gone",)),
        ("host-silent", ("slow",)),
        ("answer-unusable", ("odd",)),
    ]
    assert [(item.name, item.state, item.group_number) for item in report.hosts] == [
        ("gone", "lost", None),
        ("node000", "ok", 1),
        ("node001", "ok", 1),
        ("odd", "failed", None),
        ("slow", "timeout", None),
    ]


@pytest.mark.parametrize(
    ("usable", "cause", "word", "message"),
    [
        (False, None, "not used", "TensorFlow will not use the GPUs"),
        (
            None,
            "libs-not-installed",
            "unknown",
            "it could not be determined whether TensorFlow uses the GPUs",
        ),
        (False, "inconclusive", "not used", "TensorFlow will not use the GPUs"),
    ],
)
def test_verdict_is_the_same_in_all_outputs(
    usable: bool | None, cause: str | None, word: str, message: str
) -> None:
    result = answer(HEALTHY)
    result["verdict"] = {**result["verdict"], "gpu_usable": usable, "cause": cause}
    report = evaluate_fleet("ssh", gather_results({"a": result}))
    screen, page = render_fleet(report), make_fleet_html(report).decode()
    assert message in screen
    assert message in page
    assert f" {word} " in screen.partition("such as")[2]
    assert word in page


def test_address_in_the_path_of_an_environment_is_redacted() -> None:
    paths = ["/net/192.168.7.9/env", "/net/192.168.7.8/env", "/srv/env"]
    answers = {
        str(number): with_value(answer(HEALTHY), "python", "environment", path)
        for number, path in enumerate(paths)
    }
    answers["3"] = with_value(answer(HEALTHY), "libraries", "libcudnn.so", "9.1.0.70")
    published = redact_fleet(evaluate_fleet("ssh", gather_results(answers)), Redactor())
    text = json.dumps(make_fleet_json(published)) + make_fleet_html(published).decode()
    assert "192.168" not in text
    assert "/srv/env" in text
    assert "9.1.0.70" in text


INVALID_RESULTS: list[Any] = [
    b"",
    b"hello",
    b"[" * 100_000,
    b"\xff\xfe",
    b"5",
    b"{}",
    b'{"schema_version": 1, "tool": {"name": "other"}}',
    b"x" * (5 << 20),
]


def test_greeting_before_the_answer_is_skipped() -> None:
    content = json.dumps(answer(HEALTHY), indent=2).encode()
    assert parse_result(b"Welcome to node7!\r\n{maintenance} on Sunday\n" + content).gpu_usable
    for rest in (content[:20_000], b"}", b"[" * 100_000):
        with pytest.raises(UnusableResultError):
            parse_result(b"Welcome to node7!\n{\n" + rest)


@pytest.mark.parametrize("content", INVALID_RESULTS, ids=range(len(INVALID_RESULTS)))
def test_invalid_result_is_refused(content: bytes) -> None:
    with pytest.raises(UnusableResultError):
        parse_result(content)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", 2),
        ("values", None),
        ("values", [{"area": "a", "name": "b", "value": 5}]),
        ("values", [{"area": "a", "name": "b", "value": "c"}] * 4000),
        ("findings", None),
        ("facts", 5),
        ("verdict", {"gpu_usable": "yes", "cause": None, "summary": ""}),
        ("verdict", {"gpu_usable": False, "cause": "bad luck", "summary": ""}),
        ("prediction", {"gpu_registered": False, "gpu_count": 0}),
        ("prediction", {"gpu_registered": True, "gpu_count": -5}),
        ("prediction", {"gpu_registered": True, "gpu_count": True}),
        ("prediction", {"gpu_registered": True, "gpu_count": 0}),
    ],
)
def test_wrong_or_inconsistent_result_is_refused(key: str, value: object) -> None:
    assert parse_result(json.dumps(answer(HEALTHY)).encode()).gpu_usable
    with pytest.raises(UnusableResultError):
        parse_result(json.dumps(answer(HEALTHY, **{key: value})).encode())


def test_error_message_of_the_host_is_reported() -> None:
    content = {
        "schema_version": 1,
        "error": {"code": 2, "kind": "usage", "message": "no such Python", "hint": ""},
    }
    with pytest.raises(UnusableResultError, match="no such Python"):
        parse_result(json.dumps(content).encode())


def test_control_characters_of_a_host_are_removed() -> None:
    odd = with_value(answer(HEALTHY, 9), "driver", "NVIDIA driver", "\x1b[31m5\x07\u202e")
    gathered = gather_results({**make_healthy_hosts(3), "odd": odd})
    gathered.add_failure("bad\x1b[2J", "failed", "why\x07")
    report = evaluate_fleet("folder", gathered)
    for text in (render_fleet(report, verbose=True), make_fleet_html(report).decode()):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(answer(HEALTHY))), JSON_VALUES)
def test_any_answer_is_read_or_refused(key: str, value: object) -> None:
    try:
        gathered = GatheredResults()
        gathered.add("a", parse_result(json.dumps(answer(HEALTHY, **{key: value})).encode()))
    except UnusableResultError:
        return
    report = evaluate_fleet("folder", gathered)
    render_fleet(report)
    jsonschema.validate(make_fleet_json(report), SCHEMA)


def test_report_of_many_kinds_fits_one_screen() -> None:
    answers = make_healthy_hosts(3) | {
        f"odd{number}": with_value(answer(HEALTHY, number + 50), "system", "distribution", f"Linux {number}")
        for number in range(60)
    }
    report = evaluate_fleet("folder", gather_results(answers))
    assert len(report.groups) == 61
    screen = render_fleet(report)
    assert len(screen.splitlines()) <= 24
    assert max(map(len, screen.splitlines())) <= 80
    assert "in 56 more kinds" in screen
    jsonschema.validate(make_fleet_json(report), SCHEMA)
    assert b"odd59" in make_fleet_html(report)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (
            ["gpu-000-17.cluster.example.org", "gpu-odd-3.cluster.example.org"],
            ["1 gpu-000-17", "2 gpu-odd-3"],
        ),
        (["10.0.0.1", "10.1.0.1"], ["1 10.0.0.1", "2 10.1.0.1"]),
        (["a.x", "b.y"], ["1 a.x", "2 b.y"]),
    ],
)
def test_grid_shows_distinguishing_host_names(names: list[str], shown: list[str]) -> None:
    usual, odd = names
    answers = {usual: answer(HEALTHY, 1), odd: answer("kernel-updated", 2)}
    screen = render_fleet(evaluate_fleet("folder", gather_results(answers)))
    assert all(f"  {label}  " in screen for label in shown)
    assert len({line.index("=") for line in screen.splitlines() if " used " in line and " = " in line}) <= 2


def test_every_finding_has_a_code() -> None:
    assert {kind.name for kind in FLEET_PAGES} == set(FLEET_CODES)
    assert set(SCHEMA["properties"]["findings"]["items"]["properties"]["name"]["enum"]) == set(FLEET_CODES)
