"""TFD206, cudnn-version-mismatch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.make_facts import (
    SITE,
    context,
    finding,
    healthy,
    make_found,
    make_resolution,
    run,
    with_loader,
    with_python,
)
from tfdoctor.core.facts import (
    Distribution,
    value_of,
)
from tfdoctor.core.facts.files import ChangedFile, SharedFile
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.rules import (
    cudnn_version_mismatch,
)

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts
from rules.owners_facts import _make_cudnn


@pytest.mark.parametrize(
    ("file", "severity"), [("libcudnn.so.8.0.5", Severity.ERROR), ("libcudnn.so.8.2.4", None)]
)
def test_older_minor_of_cudnn_is_reported(file, severity):
    folder = "/usr/local/cuda/lib64"
    facts = with_loader(
        healthy("2.10.1"),
        make_resolution("libcudnn.so.8", f"{folder}/libcudnn.so.8"),
        also_found=(make_found(f"{folder}/libcudnn.so.8"), make_found(f"{folder}/{file}")),
    )
    outcome = run(cudnn_version_mismatch.RULE, facts)
    assert context(facts).prediction.gpu_registered
    assert [f.severity for f in outcome.findings] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("tensorflow", "cudnn", "refused"),
    [
        ("1.14.0", "7.3.1", False),
        ("1.14.0", "7.2.1", True),
        ("1.15.5", "7.4.1", True),
        ("1.15.5", "7.5.0", True),
        ("1.15.5", "7.6.0", False),
        ("2.0.4", "7.4.2", True),
        ("2.0.4", "7.6.5", False),
    ],
)
def test_cudnn_is_compared_with_the_compiled_version(tensorflow: str, cudnn: str, *, refused: bool) -> None:
    """The version listed on tensorflow.org, 7.4 for all of these, does not count."""
    folder = "/usr/local/cuda/lib64"
    facts = with_loader(
        healthy(tensorflow, distribution="tensorflow-gpu"),
        make_resolution("libcudnn.so.7", f"{folder}/libcudnn.so.7"),
        also_found=(make_found(f"{folder}/libcudnn.so.7"), make_found(f"{folder}/libcudnn.so.{cudnn}")),
    )
    outcome = run(cudnn_version_mismatch.RULE, facts)
    assert [f.code for f in outcome.findings] == (["TFD206"] if refused else [])
    assert outcome.kind is not OutcomeKind.COULD_NOT_CHECK


def test_version_comes_from_the_wheel():
    old = with_python(healthy(), installed={"nvidia-cudnn-cu12": "9.1.0.70"})
    assert "9.1.0.70" in finding(cudnn_version_mismatch.RULE, old).title
    new = with_python(healthy(), installed={"nvidia-cudnn-cu12": "9.3.0.75"})
    assert run(cudnn_version_mismatch.RULE, new).kind is OutcomeKind.CLEAN
    assert run(cudnn_version_mismatch.RULE, healthy()).kind is OutcomeKind.COULD_NOT_CHECK


def _with_cudnn(facts: Facts, path: str, *wheels: Distribution, real: str = "", **fields: Any) -> Facts:
    python = value_of(facts.python)
    assert python is not None
    shared = fields.pop("shared", ())
    facts = with_python(facts, distributions=(*python.distributions, *wheels), shared=shared)
    return with_loader(facts, replace(make_resolution("libcudnn.so.9", path), real=real, **fields))


@pytest.mark.parametrize(
    "path",
    [
        f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9",
        f"{SITE}/tensorflow/python/../../nvidia/cudnn/lib/libcudnn.so.9",
        f"{SITE}/tensorflow/../nvidia/cudnn/lib/libcudnn.so.9",
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_old_cudnn_wheel_is_recognized_by_any_path(path: str, *, listed: bool) -> None:
    files = ("nvidia/cudnn/lib/libcudnn.so.9",) if listed else ()
    facts = _with_cudnn(healthy("2.20.0"), path, _make_cudnn("9.1.0.70", files=files))
    assert "9.1.0.70" in finding(cudnn_version_mismatch.RULE, facts).title
    assert not run(
        cudnn_version_mismatch.RULE,
        _with_cudnn(healthy("2.20.0"), path, _make_cudnn("9.3.0.75", files=files)),
    ).findings


def test_old_cudnn_wheel_is_recognized_through_links() -> None:
    wheel = _make_cudnn("9.1.0.70", real_location="/store/packages")
    for path, real in (
        ("/opt/linked/libcudnn.so.9", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"),
        ("/store/packages/nvidia/cudnn/lib/libcudnn.so.9", ""),
        ("/opt/linked/libcudnn.so.9", "/store/packages/nvidia/cudnn/lib/libcudnn.so.9"),
    ):
        facts = _with_cudnn(healthy("2.20.0"), path, wheel, real=real)
        assert "9.1.0.70" in finding(cudnn_version_mismatch.RULE, facts).title


def test_version_of_unpackaged_cudnn_comes_from_its_file() -> None:
    facts = _with_cudnn(healthy("2.20.0"), "/usr/lib/libcudnn.so.9", version="9.1.0")
    assert "9.1.0" in finding(cudnn_version_mismatch.RULE, facts).title
    unknown = run(
        cudnn_version_mismatch.RULE, _with_cudnn(healthy("2.20.0"), "/usr/lib/../lib/libcudnn.so.9")
    )
    assert unknown.kind is OutcomeKind.COULD_NOT_CHECK
    assert "/usr/lib/libcudnn.so.9" in unknown.reason


def test_current_owner_of_the_file_determines_the_version() -> None:
    name = "nvidia/cudnn/lib/libcudnn.so.9"
    wheels = (
        _make_cudnn("9.3.0.75", files=(name,)),
        Distribution("nvidia-cudnn-cu13", "9.1.0.70", SITE, "pip", files=(name,)),
    )
    owners = tuple((wheel.name, wheel.version) for wheel in wheels)
    for owner, codes in ((owners[1], ["TFD206"]), (owners[0], [])):
        shared = (SharedFile(name, SITE, owners, owner),)
        facts = _with_cudnn(healthy("2.20.0"), f"{SITE}/{name}", *wheels, shared=shared)
        assert [result.code for result in run(cudnn_version_mismatch.RULE, facts).findings] == codes
    facts = _with_cudnn(
        healthy("2.20.0"),
        f"{SITE}/{name}",
        *wheels,
        shared=(SharedFile(name, SITE, owners, None),),
        version="9.1.0",
    )
    assert (
        "9.1.0" in finding(cudnn_version_mismatch.RULE, facts).title
    )  # The version comes from cuDNN's header.


def test_changed_file_does_not_have_the_wheel_version() -> None:
    name = "nvidia/cudnn/lib/libcudnn.so.9"
    wheel = _make_cudnn("9.3.0.75", files=(name,), changed=(ChangedFile(name, 100, 120, cut=False),))
    facts = _with_cudnn(healthy("2.20.0"), f"{SITE}/{name}", wheel, version="9.1.0")
    assert "9.1.0" in finding(cudnn_version_mismatch.RULE, facts).title
