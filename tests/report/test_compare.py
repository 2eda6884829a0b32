"""What differs between two looks at a machine (doctor/tfdoctor/report/diff)."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from recorded import HOSTS, report
from rules.make_facts import (
    SITE,
    find_matches,
    healthy,
    make_lost,
    with_environment,
    with_loader,
    with_machine,
    with_python,
    with_tensorflow,
)
from tfdoctor.compat import Compat
from tfdoctor.facts import Absent, Known, SmiFacts, Unknown, value_of
from tfdoctor.render.diff import render_comparison
from tfdoctor.report.diagnose import diagnose
from tfdoctor.report.diff import Matters, compare
from tfdoctor.report.diff.flatten import AREAS, snapshot

if TYPE_CHECKING:
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Report
    from tfdoctor.report.diff import Comparison, Difference

NAMES = sorted(path.parent.name for path in HOSTS.glob("*/host.json"))
COMPAT = Compat.load()


def host(name: str) -> Report:
    return report(HOSTS / name)


def cut_between(was: Facts, now: Facts) -> Comparison:
    return compare(diagnose(was, COMPAT), diagnose(now, COMPAT))


def list_named(comparison: Comparison, name: str) -> Difference | None:
    return next((one for one in comparison.differences if one.name == name), None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.few(30)
def test_nothing_differs_from_itself(name: str) -> None:
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
def test_what_explains_comes_first_and_is_marked(name: str, expected: str) -> None:
    report = host(name)
    comparison = compare(host("healthy-one-gpu"), report)
    difference = list_named(comparison, expected)
    assert difference is not None
    assert difference.matters is Matters.EXPLAINS
    root = report.root.code if report.root is not None else report.findings[0].code
    assert root in comparison.differences[0].findings
    weights = [list(Matters).index(one.matters) for one in comparison.differences]
    assert weights == sorted(weights)
    assert expected in render_comparison(comparison, "good", width=100)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("healthy")])
def test_where_nothing_is_wrong_nothing_is_explained(name: str) -> None:
    for one, other in (("healthy-one-gpu", name), (name, "healthy-one-gpu")):
        assert not any(d.findings for d in compare(host(one), host(other)).differences)


def test_the_other_way_round_it_says_what_is_gone() -> None:
    comparison = compare(host("hidden-by-minus-one"), host("healthy-one-gpu"))
    assert comparison.gone == ("TFD601",)
    assert not comparison.fresh
    assert "Found then and not now: TFD601" in render_comparison(comparison, "bad")


def test_what_was_wrong_then_already_is_not_explained() -> None:
    was = with_environment(healthy(), CUDA_VISIBLE_DEVICES="-1")
    now = with_environment(healthy(), CUDA_VISIBLE_DEVICES="-1", TF_FORCE_GPU_ALLOW_GROWTH="true")
    (difference,) = cut_between(was, now).differences
    assert (difference.name, difference.was, difference.findings) == (
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "not set",
        (),
    )


def test_what_changes_from_one_second_to_the_next_is_left_out() -> None:
    facts = healthy()
    smi = value_of(facts.driver.smi)
    assert isinstance(smi, SmiFacts)
    busier = replace(smi, gpus=tuple(replace(gpu, memory_used_mib=9000, uuid="GPU-2") for gpu in smi.gpus))
    other = replace(
        facts, driver=replace(facts.driver, smi=Known(busier, "nvidia-smi")), seconds={"python": 9.9}
    )
    assert not cut_between(facts, other).differences


def test_another_prefix_alone_is_no_difference_and_is_said() -> None:
    def move_file(value: object) -> object:
        if isinstance(value, str):
            return (
                value.replace("/env/", "/srv/other/")
                if value.startswith("/env/")
                else value.replace("/env", "/srv/other")
            )
        if isinstance(value, tuple):
            return tuple(move_file(inner) for inner in value)
        if isinstance(value, dict):
            return {key: move_file(inner) for key, inner in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{f.name: move_file(getattr(value, f.name)) for f in dataclasses.fields(value)}
            )
        return value

    facts = healthy()
    other = move_file(facts)
    assert other != facts
    comparison = cut_between(facts, other)
    assert not comparison.differences
    assert comparison.environment == ("/env", "/srv/other")


def test_a_folder_gone_from_the_path_explains_what_is_missing_and_a_new_one_does_not() -> None:
    good = with_environment(healthy(), LD_LIBRARY_PATH="/opt/cuda/lib64:/opt/more")
    for value, explains in (("/opt/more", True), ("/opt/cuda/lib64:/opt/more:/opt/new", False)):
        bad = with_loader(with_environment(healthy(), LD_LIBRARY_PATH=value), make_lost("libcufft.so.11"))
        difference = list_named(cut_between(good, bad), "LD_LIBRARY_PATH")
        assert difference is not None
        assert bool(difference.findings) is explains
        assert (difference.lost, difference.new) == (
            (("/opt/cuda/lib64",), ()) if explains else ((), ("/opt/new",))
        )


def test_what_could_not_be_looked_at_then_is_not_compared_and_now_is_said() -> None:
    facts = healthy()
    blind = replace(facts, driver=replace(facts.driver, kernel_module=Unknown("no permission", "/proc")))
    assert list_named(cut_between(blind, facts), "kernel module") is None
    now = list_named(cut_between(facts, blind), "kernel module")
    assert now is not None
    assert now.is_ == "not known: no permission"


def test_another_tensorflow_opens_other_names_which_is_no_news() -> None:
    comparison = cut_between(healthy("2.18.1"), healthy("2.10.1", python="3.10.1"))
    assert list_named(comparison, "TensorFlow") is not None
    assert not [one for one in comparison.differences if one.area == "CUDA libraries"]


def test_a_tensorflow_that_is_gone_is_one_difference() -> None:
    facts = healthy()
    gone = replace(facts, tensorflow=Absent("python"), loader=Absent("the loader"))
    gone = with_python(gone, installed={"tensorflow": None})
    about = [one.name for one in cut_between(facts, gone).differences if one.area == "TensorFlow"]
    assert about == ["TensorFlow"]


def test_a_library_from_elsewhere_is_told_with_its_version() -> None:
    other = with_loader(
        healthy(), replace(find_matches("libcudnn.so.9", "/usr/lib/libcudnn.so.9"), version="9.1.0")
    )
    difference = list_named(cut_between(healthy(), other), "libcudnn.so.9")
    assert difference is not None
    assert difference.is_ == "9.1.0 in /usr/lib"
    assert difference.findings == ("TFD206",)


def test_another_machine_is_said_where_more_than_one_thing_speaks_for_it() -> None:
    facts = healthy()
    other = with_machine(facts, distribution_id="fedora", distribution="Fedora 40")
    assert not cut_between(facts, other).elsewhere
    assert cut_between(facts, with_machine(other, container="docker")).elsewhere
    assert cut_between(facts, with_machine(facts, machine="aarch64")).elsewhere
    text = render_comparison(cut_between(facts, with_machine(facts, machine="aarch64")), "x")
    assert "another machine" in text


def test_values_from_outside_do_not_reach_the_terminal_raw() -> None:
    evil = with_environment(healthy(), TF_XLA_FLAGS="\x1b[31mred\x07" + "x" * 5000)
    text = render_comparison(cut_between(healthy(), evil), "name\x1b[0m", verbose=True)
    assert "\x1b" not in text
    assert len(text) < 4000


def test_every_area_has_its_place_and_is_in_the_schema() -> None:
    for name in NAMES:
        assert {area for area, _ in snapshot(host(name).facts)} <= set(AREAS)
    assert SITE not in str(snapshot(with_tensorflow(healthy()).__class__ and healthy()))
