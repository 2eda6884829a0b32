"""Whose a library is (predict/owners.py), and the rules about files that two packages own or that have changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.make_facts import SITE, finding, found, healthy, lost, run, stopped, with_loader, with_python
from tfdoctor.causes.steps import Install, Uninstall
from tfdoctor.facts import Distribution, value_of
from tfdoctor.facts.files import ChangedFile, SharedFile
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import changed_files, cudnn_pins, cudnn_version_mismatch, shared_files

if TYPE_CHECKING:
    from tfdoctor.facts import Facts


def _cudnn(version: str, **more: Any) -> Distribution:
    return Distribution("nvidia-cudnn-cu12", version, SITE, "pip", **more)


def _with_cudnn(facts: Facts, path: str, *wheels: Distribution, real: str = "", **told: Any) -> Facts:
    python = value_of(facts.python)
    assert python is not None
    shared = told.pop("shared", ())
    facts = with_python(facts, distributions=(*python.distributions, *wheels), shared=shared)
    return with_loader(facts, replace(found("libcudnn.so.9", path), real=real, **told))


@pytest.mark.parametrize(
    "path",
    [
        f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9",
        f"{SITE}/tensorflow/python/../../nvidia/cudnn/lib/libcudnn.so.9",
        f"{SITE}/tensorflow/../nvidia/cudnn/lib/libcudnn.so.9",
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_a_wheel_s_cudnn_that_is_too_old_is_seen_however_its_path_is_said(path: str, *, listed: bool) -> None:
    files = ("nvidia/cudnn/lib/libcudnn.so.9",) if listed else ()
    facts = _with_cudnn(healthy("2.20.0"), path, _cudnn("9.1.0.70", files=files))
    assert "9.1.0.70" in finding(cudnn_version_mismatch.RULE, facts).title
    assert not run(
        cudnn_version_mismatch.RULE, _with_cudnn(healthy("2.20.0"), path, _cudnn("9.3.0.75", files=files))
    ).findings


def test_a_wheel_s_cudnn_is_seen_through_links() -> None:
    wheel = _cudnn("9.1.0.70", real_location="/store/packages")
    for path, real in (
        ("/opt/linked/libcudnn.so.9", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"),
        ("/store/packages/nvidia/cudnn/lib/libcudnn.so.9", ""),
        ("/opt/linked/libcudnn.so.9", "/store/packages/nvidia/cudnn/lib/libcudnn.so.9"),
    ):
        facts = _with_cudnn(healthy("2.20.0"), path, wheel, real=real)
        assert "9.1.0.70" in finding(cudnn_version_mismatch.RULE, facts).title


def test_a_cudnn_of_no_package_is_of_the_version_that_the_file_tells() -> None:
    facts = _with_cudnn(healthy("2.20.0"), "/usr/lib/libcudnn.so.9", version="9.1.0")
    assert "9.1.0" in finding(cudnn_version_mismatch.RULE, facts).title
    silent = run(cudnn_version_mismatch.RULE, _with_cudnn(healthy("2.20.0"), "/usr/lib/../lib/libcudnn.so.9"))
    assert silent.kind is OutcomeKind.COULD_NOT_CHECK
    assert "/usr/lib/libcudnn.so.9" in silent.why


def test_of_two_owners_that_one_counts_whose_file_is_there() -> None:
    name = "nvidia/cudnn/lib/libcudnn.so.9"
    wheels = (
        _cudnn("9.3.0.75", files=(name,)),
        Distribution("nvidia-cudnn-cu13", "9.1.0.70", SITE, "pip", files=(name,)),
    )
    owners = tuple((d.name, d.version) for d in wheels)
    for now, codes in ((owners[1], ["TFD206"]), (owners[0], [])):
        shared = (SharedFile(name, SITE, owners, now),)
        facts = _with_cudnn(healthy("2.20.0"), f"{SITE}/{name}", *wheels, shared=shared)
        assert [f.code for f in run(cudnn_version_mismatch.RULE, facts).findings] == codes
    facts = _with_cudnn(
        healthy("2.20.0"),
        f"{SITE}/{name}",
        *wheels,
        shared=(SharedFile(name, SITE, owners, None),),
        version="9.1.0",
    )
    assert "9.1.0" in finding(cudnn_version_mismatch.RULE, facts).title  # its header


def test_a_file_that_is_no_longer_the_wheel_s_has_not_the_wheel_s_version() -> None:
    name = "nvidia/cudnn/lib/libcudnn.so.9"
    wheel = _cudnn("9.3.0.75", files=(name,), changed=(ChangedFile(name, 100, 120, cut=False),))
    facts = _with_cudnn(healthy("2.20.0"), f"{SITE}/{name}", wheel, version="9.1.0")
    assert "9.1.0" in finding(cudnn_version_mismatch.RULE, facts).title


# ---------------------------------------------------------------- files of two packages, files that changed


def _shared(path: str, *owners: tuple[str, str], now: tuple[str, str] | None = None) -> SharedFile:
    return SharedFile(path, SITE, owners, now)


CU12, CU13 = ("nvidia-cudnn-cu12", "9.3.0.75"), ("nvidia-cudnn-cu13", "9.13.0.50")
CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"


def test_files_of_two_packages_are_told_with_whose_they_are_and_how_one_is_left() -> None:
    facts = with_python(
        healthy(), shared=(_shared(CUDNN, CU12, CU13, now=CU13),), installed=dict((CU12, CU13))
    )
    one = finding(shared_files.RULE, facts)
    assert one.severity is Severity.WARNING
    assert "came with nvidia-cudnn-cu13 9.13.0.50" in one.explanation
    assert one.remedies[0].steps == (
        Uninstall(("nvidia-cudnn-cu13",)),
        Install(("nvidia-cudnn-cu12==9.3.0.75",), again=True, dependencies=False),
    )


def test_what_another_package_asks_for_is_not_removed_unasked() -> None:
    torch = Distribution("torch", "2.9.0", SITE, "pip", pins=("nvidia-cudnn-cu13==9.13.0.50",))
    facts = with_python(healthy(), shared=(_shared(CUDNN, CU12, CU13, now=CU13),))
    python = value_of(facts.python)
    assert python is not None
    facts = with_python(facts, distributions=(*python.distributions, torch))
    one = finding(shared_files.RULE, facts)
    assert not any(remedy.steps for remedy in one.remedies)
    assert "torch 2.9.0" in one.remedies[0].text


def test_two_tensorflows_over_each_other_are_another_rule_s() -> None:
    owners = (("tensorflow", "2.10.1"), ("tensorflow-gpu", "2.10.1"))
    facts = with_python(healthy(), shared=(_shared("tensorflow/libtensorflow_framework.so.2", *owners),))
    assert run(shared_files.RULE, facts).kind is OutcomeKind.CLEAN


def _wheel(name: str = "nvidia-cublas-cu12", **more: Any) -> Distribution:
    return Distribution(name, "12.5.3.2", SITE, "pip", **more)


def _with(facts: Facts, *distributions: Distribution, **more: Any) -> Facts:
    python = value_of(facts.python)
    assert python is not None
    return with_python(facts, distributions=(*python.distributions, *distributions), **more)


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, 50, cut=True), Severity.ERROR),
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, 50, cut=False), Severity.INFO),
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, 150, cut=False), Severity.WARNING),
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, -1, cut=False), Severity.ERROR),
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, 50, cut=False, foreign=True), Severity.ERROR),
    ],
)
def test_a_file_of_another_size(change: ChangedFile, severity: Severity) -> None:
    one = finding(changed_files.RULE, _with(healthy(), _wheel(changed=(change,))))
    assert (one.cause, one.severity) == (Cause.DAMAGED_FILE, severity)
    assert "--force-reinstall --no-deps nvidia-cublas-cu12==12.5.3.2" in one.remedies[0].commands[0]


def test_of_a_file_that_two_own_only_one_can_have_the_size() -> None:
    change = ChangedFile(CUDNN, 100, 150, cut=False)
    facts = _with(healthy(), _cudnn("9.3.0.75", changed=(change,)), shared=(_shared(CUDNN, CU12, CU13),))
    assert run(changed_files.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE


def test_conda_patches_what_it_installs() -> None:
    change = ChangedFile("tensorflow/libtensorflow_framework.so.2", 100, 150, cut=False)
    other = replace(_wheel("tensorflow-base", changed=(change,)), installer="conda")
    assert run(changed_files.RULE, _with(healthy(), other)).kind is OutcomeKind.CLEAN


def test_what_our_images_go_without_is_not_lost() -> None:
    for path, kind in (
        ("nvidia/cusolver/lib/libcusolverMg.so.11", OutcomeKind.CLEAN),
        ("nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.5", OutcomeKind.FOUND),
    ):
        assert run(changed_files.RULE, _with(healthy(), _wheel(lost=(path,)))).kind is kind


def test_what_the_loader_misses_or_stops_at_is_told_once() -> None:
    path = "nvidia/cufft/lib/libcufft.so.11"
    gone = with_loader(_with(healthy(), _wheel("nvidia-cufft-cu12", lost=(path,))), lost("libcufft.so.11"))
    assert run(changed_files.RULE, gone).kind is OutcomeKind.NOT_APPLICABLE
    change = ChangedFile(path, 100, 50, cut=True)
    stop = stopped("libcufft.so.11", f"{SITE}/tensorflow/../{path}", "truncated", crash=True)
    cut = with_loader(_with(healthy(), _wheel("nvidia-cufft-cu12", changed=(change,))), stop)
    assert run(changed_files.RULE, cut).kind is OutcomeKind.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("version", "pin", "conflict"),
    [
        ("2.18.1", "nvidia-cudnn-cu12==9.1.0.70", True),
        ("2.18.1", "nvidia-cudnn-cu12==9.10.2.21", False),
        ("2.18.1", "nvidia-cudnn-cu12==8.9.2.26", True),
        ("2.15.1", "nvidia-cudnn-cu12<10.0,>=9.8", True),
        ("2.15.1", "nvidia-cudnn-cu12==8.9.2.26", False),
        ("2.18.1", "nvidia-cudnn-cu12<10.0,>=9.1", False),
        ("2.18.1", "nvidia-cudnn-cu12", False),
        ("2.18.1", "nvidia-cudnn-cu13==9.13.0.50", False),
        ("2.18.1", "nvidia-cudnn-cu12==9.1.*", True),
        ("2.18.1", "nvidia-cudnn-frontend==1.0", False),
        ("2.18.1", "nvidia-cudnn-cu12 nonsense", False),
    ],
)
def test_pins_of_others_beside_what_tensorflow_takes(version: str, pin: str, *, conflict: bool) -> None:
    torch = Distribution("torch", "2.5.1", SITE, "pip", pins=(f"{pin}; platform_system == 'Linux'",))
    found = run(cudnn_pins.RULE, _with(healthy(version), torch)).findings
    assert bool(found) is conflict
    assert all(one.severity is Severity.WARNING for one in found)


def test_an_extra_counts_where_its_wheel_is_there() -> None:
    pin = "nvidia-cudnn-cu12==9.1.0.70; extra == 'with-cuda'"
    jax = Distribution("jax-cuda12-plugin", "0.4.30", SITE, "pip", pins=(pin,))
    assert not run(cudnn_pins.RULE, _with(healthy(), jax)).findings
    assert run(cudnn_pins.RULE, _with(healthy(), jax, _cudnn("9.3.0.75"))).findings
