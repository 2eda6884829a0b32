"""Known problems, and the releases and GPUs that they affect."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat, capability_matches
from tfdoctor.core import versions

COMPAT = Compat.load()


def test_problems_of_a_release() -> None:
    ids = {problem.id for problem in COMPAT.list_problems("tensorflow", "2.21.0")}
    assert {"runpath-without-cusolver", "nvml-required", "cudnn-unpinned"} <= ids
    assert "ptx-sm90a-on-blackwell" not in ids
    pascal = {problem.id for problem in COMPAT.list_problems("tensorflow", "2.21.0", capability="6.1")}
    ampere = {problem.id for problem in COMPAT.list_problems("tensorflow", "2.21.0", capability="8.6")}
    assert "cudnn-unpinned" in pascal
    assert "cudnn-unpinned" not in ampere
    assert {problem.area for problem in COMPAT.list_problems("tensorflow", "2.18.0", area="images")} == {
        "images"
    }
    assert [problem.id for problem in COMPAT.list_problems("tensorflow", "2.0.4", area="gpu")] == []


@pytest.mark.parametrize(
    ("capability", "condition", "expected"),
    [
        ("7.0", "<7.5", True),
        ("7.5", "<7.5", False),
        ("5.0", ">=5.0,<5.2", True),
        ("5.2", ">=5.0,<5.2", False),
        ("10.0", ">=9.0", True),
        ("3.7", "!=3.7", False),
        ("3.7", None, True),
    ],
)
def test_capability_matches(capability: str, condition: str | None, *, expected: bool) -> None:
    assert capability_matches(capability, condition) is expected


def test_invalid_condition_raises_an_error() -> None:
    with pytest.raises(versions.VersionSyntaxError):
        capability_matches("7.0", "about 7")
