"""Differences between two recordings of a machine (doctor/tfdoctor/diagnosis/diff)."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from recorded import HOSTS, load_report
from rules.make_facts import (
    SITE,
    healthy,
    make_missing,
    make_resolution,
    with_environment,
    with_loader,
    with_machine,
    with_python,
    with_tensorflow,
)
from tfdoctor.compat import Compat
from tfdoctor.core.facts import Absent, Known, SmiFacts, Unknown, value_of
from tfdoctor.diagnosis.diff import Importance, compare
from tfdoctor.diagnosis.diff.flatten import AREAS, make_snapshot
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.render.diff import render_comparison

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Report
    from tfdoctor.diagnosis.diff import Comparison, Difference

NAMES = sorted(path.parent.name for path in HOSTS.glob("*/host.json"))
COMPAT = Compat.load()


def host(name: str) -> Report:
    return load_report(HOSTS / name)


def compare_facts(old: Facts, new: Facts) -> Comparison:
    return compare(diagnose(old, COMPAT), diagnose(new, COMPAT))


def find_difference(comparison: Comparison, name: str) -> Difference | None:
    return next((difference for difference in comparison.differences if difference.name == name), None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.few(30)
def test_machine_equals_itself(name: str) -> None:
    assert not compare(host(name), host(name)).differences


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hidden-by-minus-one", "CUDA_VISIBLE_DEVICES"),
        ("updated-without-restart", "NVIDIA driver"),
        ("driver-below-cuda-12", "NVIDIA driver"),
        ("cudnn-of-an-older-minor", "libcudnn.so.9"),
        ("cudnn-of-two-cudas", "nvidia-cudnn-cu13"),
        ("part-of-cudnn-cut-short", "nvidia-cudnn-cu12: libcudnn_ops.so.9"),
        ("two-other-cudas", "LD_LIBRARY_PATH"),
        ("pascal-with-cudnn-9-11", "GPU 0"),
        ("kernel-updated", "kernel modules"),
        ("nouveau", "card at 0000:01:00.0"),
        ("container-without-gpu", "container"),
        ("nodes-missing", "device nodes"),
        ("compute-prohibited", "NVIDIA GeForce RTX 4090 0: compute mode"),
        ("shadowed", "hidden by"),
        ("smi-hangs", "nvidia-smi"),
        ("torch-pins-another-cudnn", "torch"),
        ("stub-before-the-driver", "libcuda.so.1"),
    ],
)
def test_explaining_difference_comes_first(name: str, expected: str) -> None:
    report = host(name)
    comparison = compare(host("healthy-one-gpu"), report)
    difference = find_difference(comparison, expected)
    assert difference is not None
    assert difference.importance is Importance.EXPLAINS
    root = report.root_finding.code if report.root_finding is not None else report.findings[0].code
    assert root in comparison.differences[0].findings
    weights = [list(Importance).index(item.importance) for item in comparison.differences]
    assert weights == sorted(weights)
    assert expected in render_comparison(comparison, "good", width=100)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("healthy")])
def test_healthy_machines_need_no_explanation(name: str) -> None:
    for first, second in (("healthy-one-gpu", name), (name, "healthy-one-gpu")):
        assert not any(d.findings for d in compare(host(first), host(second)).differences)


def test_resolved_findings_are_listed() -> None:
    comparison = compare(host("hidden-by-minus-one"), host("healthy-one-gpu"))
    assert comparison.resolved_codes == ("TFD601",)
    assert not comparison.new_codes
    assert "Found then and not now: TFD601" in render_comparison(comparison, "bad")


def test_earlier_findings_are_not_explained() -> None:
    old = with_environment(healthy(), CUDA_VISIBLE_DEVICES="-1")
    new = with_environment(healthy(), CUDA_VISIBLE_DEVICES="-1", TF_FORCE_GPU_ALLOW_GROWTH="true")
    (difference,) = compare_facts(old, new).differences
    assert (difference.name, difference.old_value, difference.findings) == (
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "not set",
        (),
    )


def test_volatile_facts_are_ignored() -> None:
    facts = healthy()
    smi = value_of(facts.driver.smi)
    assert isinstance(smi, SmiFacts)
    busy_smi = replace(smi, gpus=tuple(replace(gpu, memory_used_mib=9000, uuid="GPU-2") for gpu in smi.gpus))
    later = replace(
        facts, driver=replace(facts.driver, smi=Known(busy_smi, "nvidia-smi")), seconds={"python": 9.9}
    )
    assert not compare_facts(facts, later).differences


def test_moved_environment_is_no_difference() -> None:
    def move_paths(value: object) -> object:
        if isinstance(value, str):
            return (
                value.replace("/env/", "/srv/other/")
                if value.startswith("/env/")
                else value.replace("/env", "/srv/other")
            )
        if isinstance(value, tuple):
            return tuple(move_paths(inner) for inner in value)
        if isinstance(value, dict):
            return {key: move_paths(inner) for key, inner in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{f.name: move_paths(getattr(value, f.name)) for f in dataclasses.fields(value)}
            )
        return value

    facts = healthy()
    moved = move_paths(facts)
    assert moved != facts
    comparison = compare_facts(facts, moved)
    assert not comparison.differences
    assert comparison.environment_prefixes == ("/env", "/srv/other")


def test_removed_folder_explains_a_missing_library() -> None:
    good = with_environment(healthy(), LD_LIBRARY_PATH="/opt/cuda/lib64:/opt/more")
    for value, explains in (("/opt/more", True), ("/opt/cuda/lib64:/opt/more:/opt/new", False)):
        bad = with_loader(with_environment(healthy(), LD_LIBRARY_PATH=value), make_missing("libcufft.so.11"))
        difference = find_difference(compare_facts(good, bad), "LD_LIBRARY_PATH")
        assert difference is not None
        assert bool(difference.findings) is explains
        assert (difference.removed_items, difference.added_items) == (
            (("/opt/cuda/lib64",), ()) if explains else ((), ("/opt/new",))
        )


def test_unknown_facts_are_compared_only_if_new() -> None:
    facts = healthy()
    without_module = replace(
        facts, driver=replace(facts.driver, kernel_module=Unknown("no permission", "/proc"))
    )
    assert find_difference(compare_facts(without_module, facts), "kernel module") is None
    difference = find_difference(compare_facts(facts, without_module), "kernel module")
    assert difference is not None
    assert difference.new_value == "not known: no permission"


def test_other_tensorflow_hides_library_differences() -> None:
    comparison = compare_facts(healthy("2.18.1"), healthy("2.10.1", python="3.10.1"))
    assert find_difference(comparison, "TensorFlow") is not None
    assert not [difference for difference in comparison.differences if difference.area == "CUDA libraries"]


def test_removed_tensorflow_is_one_difference() -> None:
    facts = healthy()
    without_tensorflow = replace(facts, tensorflow=Absent("python"), loader=Absent("the loader"))
    without_tensorflow = with_python(without_tensorflow, installed={"tensorflow": None})
    names = [
        difference.name
        for difference in compare_facts(facts, without_tensorflow).differences
        if difference.area == "TensorFlow"
    ]
    assert names == ["TensorFlow"]


def test_moved_library_is_listed_with_its_version() -> None:
    changed = with_loader(
        healthy(), replace(make_resolution("libcudnn.so.9", "/usr/lib/libcudnn.so.9"), version="9.1.0")
    )
    difference = find_difference(compare_facts(healthy(), changed), "libcudnn.so.9")
    assert difference is not None
    assert difference.new_value == "9.1.0 in /usr/lib"
    assert difference.findings == ("TFD206",)


def test_other_machine_needs_more_than_one_sign() -> None:
    facts = healthy()
    changed = with_machine(facts, distribution_id="fedora", distribution="Fedora 40")
    assert not compare_facts(facts, changed).other_machine_reasons
    assert compare_facts(facts, with_machine(changed, container="docker")).other_machine_reasons
    assert compare_facts(facts, with_machine(facts, machine="aarch64")).other_machine_reasons
    text = render_comparison(compare_facts(facts, with_machine(facts, machine="aarch64")), "x")
    assert "another machine" in text


def test_control_characters_are_removed() -> None:
    hostile = with_environment(healthy(), TF_XLA_FLAGS="\x1b[31mred\x07" + "x" * 5000)
    text = render_comparison(compare_facts(healthy(), hostile), "name\x1b[0m", verbose=True)
    assert "\x1b" not in text
    assert len(text) < 4000


def test_every_area_is_listed() -> None:
    for name in NAMES:
        assert {area for area, _ in make_snapshot(host(name).facts)} <= set(AREAS)
    assert SITE not in str(make_snapshot(with_tensorflow(healthy())))
