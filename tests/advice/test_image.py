"""Remedies for an image: nothing is typed into a shell that would change the host's Python, or no image at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdoctor.advice import Target
from tfdoctor.advice.image import OF_HOST, for_images
from tfdoctor.causes.steps import Install, Step, Unset
from tfdoctor.compat import Compat
from tfdoctor.examine import examine
from tfdoctor.findings import Cause, Finding, Remedy, Severity
from tfdoctor.plan.predicted import Sketch, sketched_facts
from tfdoctor.report.diagnose import diagnose
from tfdoctor.system.recorded import RecordedSystem

COMPAT = Compat.load()
HOSTS = sorted(path.parent for path in (Path(__file__).parents[1] / "hosts").glob("*/expect.json"))
FOR_IMAGES = ("ENV ", "FROM ", "RUN ", "docker build ", "docker run ", "tfdoctor ")


def commands(folder: Path, image: str | None) -> dict[str, list[tuple[str, ...]]]:
    """Code → the commands of each remedy, of what is not the host's."""
    report = examine(RecordedSystem(folder), COMPAT, image=image)
    return {
        finding.code: [remedy.commands for remedy in finding.remedies]
        for finding in report.findings
        if finding.cause not in OF_HOST
    }


@pytest.mark.few(8)
@pytest.mark.parametrize("folder", HOSTS, ids=lambda folder: folder.name)
def test_what_is_wrong_in_an_image_is_put_right_in_an_image(folder: Path) -> None:
    for code, remedies in commands(folder, "team/app:1").items():
        for line in (line for lines in remedies for line in lines):
            assert line.startswith(FOR_IMAGES), f"{code}: {line}"
            assert not line.startswith(("tfdoctor check", "tfdoctor fix", "tfdoctor install")), code


def test_a_variable_goes_with_its_line_or_for_one_container() -> None:
    found = commands(HOSTS[0].parent / "hidden-by-empty", "team/app:1")["TFD601"]
    assert ("docker run --gpus all -e CUDA_VISIBLE_DEVICES team/app:1",) in found


def test_what_is_installed_is_a_line_and_then_the_image_is_built_and_verified_anew() -> None:
    distributions = (("tensorflow", "2.16.2"), ("numpy", "2.0.2"))
    modules = tuple(row.package for row in COMPAT.companions)
    facts = sketched_facts(COMPAT, Sketch("2.16.2", "tensorflow", "3.11", distributions, modules=modules))
    root = diagnose(facts, COMPAT, image="team/app:1").root
    assert root is not None
    first, *_, last = root.remedies
    install, *rest = first.commands
    assert install.startswith("RUN ")
    assert install.endswith("-m pip install 'numpy<2'")
    assert rest == ["docker build -t team/app:1 .", "tfdoctor verify team/app:1"]
    assert last.commands == ("tfdoctor build --tf 2.16.2",)
    assert "numpy<2" in diagnose(facts, COMPAT).findings[0].remedies[0].commands[0]


def test_the_finding_that_leads_says_what_the_others_need() -> None:
    def error(code: str, step: Step) -> Finding:
        cause = Cause.NUMPY_ABI if code == "TFD306" else Cause.HIDDEN_BY_ENV
        return Finding(code, cause, Severity.ERROR, "", "", (), (Remedy("Do it.", ("…",), steps=(step,)),))

    root, other = error("TFD306", Install(("numpy<2",))), error("TFD601", Unset("TF_XLA_FLAGS"))
    told = for_images(Target(COMPAT, image="sha256:0123"), root, [root, other])
    lines, variable, *_ = (one.commands for one in told[id(root)].remedies)
    assert lines == (
        "RUN python3 -m pip install 'numpy<2'",
        "docker build -t IMAGE .",
        "tfdoctor verify IMAGE",
    )
    assert variable == ("docker run --gpus all -e TF_XLA_FLAGS sha256:0123",)


def test_another_release_is_another_image() -> None:
    found = commands(HOSTS[0].parent / "blackwell-with-tf218", "team/app:1")["TFD111"]
    assert found == [("tfdoctor build --tf 2.21.0",)]


def test_on_a_machine_nothing_changes() -> None:
    found = commands(HOSTS[0].parent / "hidden-by-empty", None)["TFD601"]
    assert found[0][0] == "unset CUDA_VISIBLE_DEVICES"
