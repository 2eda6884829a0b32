"""`pip install 'tfdoctor[tensorflow]'`: what it brings is what `check` finds healthy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tfdoctor.advice.releases import companion_pins
from tfdoctor.compat import Compat, Release
from tfdoctor.findings import Severity
from tfdoctor.parse.toml import loads
from tfdoctor.plan.hypothetical_facts import SITE, Sketch, make_sketched_facts
from tfdoctor.report.diagnose import diagnose

ROOT = Path(__file__).resolve().parents[1]
COMPAT = Compat.load()
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]


def project() -> dict[str, Any]:
    return dict(loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def requirement() -> Requirement:
    (one,) = project()["optional-dependencies"]["tensorflow"]
    return Requirement(one)


def release() -> Release:
    """The newest that it allows."""
    allowed = [
        one
        for one in COMPAT.releases
        if one.package == "tensorflow" and one.version in requirement().specifier
    ]
    return allowed[-1]


def parse_wanted(python: str, system: str = "linux", machine: str = "x86_64") -> bool:
    marker = requirement().marker
    assert marker is not None
    return marker.evaluate({"python_version": python, "sys_platform": system, "platform_machine": machine})


def healthy_as_it_comes(one: Release) -> bool:
    """Whether pip alone makes it see a GPU."""
    return one.pip_extra is not None and not one.runpath_misses and not companion_pins(COMPAT, one)


def test_it_is_for_the_pythons_that_have_a_wheel() -> None:
    one = release()
    assert requirement().extras == {one.pip_extra}
    assert {python for python in PYTHONS if parse_wanted(python)} == {*one.linux_pythons} & {*PYTHONS}
    assert not parse_wanted("3.12", system="darwin")
    assert not parse_wanted("3.12", system="win32")
    assert not parse_wanted("3.12", machine="aarch64")


def test_it_is_the_newest_that_needs_nothing_else() -> None:
    """Fails where a release was added that could take its place."""
    fit = [
        one
        for one in COMPAT.releases
        if one.package == "tensorflow" and one.version.replace(".", "").isdigit() and healthy_as_it_comes(one)
    ]
    assert fit[-1] == release()


def find_in(python: str, distributions: dict[str, str]) -> list[str]:
    """The codes of the errors and warnings of an environment with these, on a machine with a card."""
    one = release()
    site = SITE.format(python)
    places = {name: COMPAT.wheel_for(name, 12) for name in one.required_libraries}
    sketch = Sketch(
        one.version,
        one.package,
        python,
        tuple(distributions.items()),
        gpu=True,
        paths={name: f"{site}/{wheel.folder}/{name}" for name, wheel in places.items() if wheel is not None},
        container=False,
    )
    report = diagnose(make_sketched_facts(COMPAT, sketch), COMPAT)
    assert report.verdict.gpu_usable
    return [finding.code for finding in report.findings if finding.severity is not Severity.INFO]


def uv(*words: str, text: str) -> str | None:
    """What uv prints; None where it fails."""
    program = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("no uv")
    done = subprocess.run([program, *words], input=text, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


@pytest.mark.few(0)
@pytest.mark.parametrize("python", [python for python in PYTHONS if parse_wanted(python)])
def test_what_is_resolved_today_is_healthy(python: str) -> None:
    """A dry resolution; where there is no index the tests above say what they can."""
    words = ["pip", "compile", "-", "--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
    words += ["--no-header", "--no-annotate", "--quiet"]
    if uv(*words, text="packaging") is None:
        pytest.skip("no package index")
    said = uv(*words, text="\n".join([*project()["dependencies"], str(requirement())]))
    assert said is not None
    found = dict(line.split("==") for line in said.splitlines() if "==" in line)
    assert found["tensorflow"] == release().version
    assert find_in(python, found) == []


def test_without_the_extra_no_tensorflow_comes() -> None:
    assert not [one for one in project()["dependencies"] if Requirement(one).name.startswith("tensorflow")]
