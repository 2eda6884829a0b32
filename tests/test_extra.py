"""The extra of `pip install 'tfdoctor[tensorflow]'`: `check` finds what it installs healthy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tfdoctor.compat import Compat, Release
from tfdoctor.core.findings import Severity
from tfdoctor.core.toml import loads
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.planning.hypothetical_facts import SITE_PACKAGES, EnvironmentSketch, make_facts_from_sketch
from tfdoctor.remedies.releases import list_companion_pins

ROOT = Path(__file__).resolve().parents[1]
COMPAT = Compat.load()
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]


def read_project() -> dict[str, Any]:
    return dict(loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def parse_requirement() -> Requirement:
    (text,) = read_project()["optional-dependencies"]["tensorflow"]
    return Requirement(text)


def find_release() -> Release:
    """Return the newest release that the requirement allows."""
    allowed = [
        candidate
        for candidate in COMPAT.releases
        if candidate.package == "tensorflow" and candidate.version in parse_requirement().specifier
    ]
    return allowed[-1]


def is_marker_true(python: str, system: str = "linux", machine: str = "x86_64") -> bool:
    marker = parse_requirement().marker
    assert marker is not None
    return marker.evaluate({"python_version": python, "sys_platform": system, "platform_machine": machine})


def is_healthy_with_pip(candidate: Release) -> bool:
    """Return whether this release uses a GPU if only pip installs it."""
    return (
        candidate.pip_extra is not None
        and not candidate.runpath_misses
        and not list_companion_pins(COMPAT, candidate)
    )


def test_extra_applies_to_pythons_with_a_wheel() -> None:
    allowed = find_release()
    assert parse_requirement().extras == {allowed.pip_extra}
    assert {python for python in PYTHONS if is_marker_true(python)} == {*allowed.linux_pythons} & {*PYTHONS}
    assert not is_marker_true("3.12", system="darwin")
    assert not is_marker_true("3.12", system="win32")
    assert not is_marker_true("3.12", machine="aarch64")


def test_extra_allows_newest_release_that_pip_alone_completes() -> None:
    """Fails if a newer release was added that could replace it."""
    suitable = [
        candidate
        for candidate in COMPAT.releases
        if candidate.package == "tensorflow"
        and candidate.version.replace(".", "").isdigit()
        and is_healthy_with_pip(candidate)
    ]
    assert suitable[-1] == find_release()


def find_codes(python: str, distributions: dict[str, str]) -> list[str]:
    """Return the codes of the errors and warnings on a machine with a GPU.

    distributions: the versions of the distributions in the environment, by name.
    """
    allowed = find_release()
    site = SITE_PACKAGES.format(python)
    wheels = {name: COMPAT.find_wheel(name, 12) for name in allowed.required_libraries}
    sketch = EnvironmentSketch(
        allowed.version,
        allowed.package,
        python,
        tuple(distributions.items()),
        has_gpu_code=True,
        path_by_soname={
            name: f"{site}/{wheel.folder}/{name}" for name, wheel in wheels.items() if wheel is not None
        },
        is_container=False,
    )
    report = diagnose(make_facts_from_sketch(COMPAT, sketch), COMPAT)
    assert report.verdict.gpu_usable
    return [finding.code for finding in report.findings if finding.severity is not Severity.INFO]


def run_uv(*arguments: str, text: str) -> str | None:
    """Run uv and return its output, or None if it fails."""
    program = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("no uv")
    done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


@pytest.mark.few(0)
@pytest.mark.parametrize("python", [python for python in PYTHONS if is_marker_true(python)])
def test_resolved_environment_has_no_findings(python: str) -> None:
    """Resolves the extra with today's index; skipped if there is no index."""
    arguments = [
        "pip",
        "compile",
        "-",
        "--python-version",
        python,
        "--python-platform",
        "x86_64-manylinux_2_28",
    ]
    arguments += ["--no-header", "--no-annotate", "--quiet"]
    if run_uv(*arguments, text="packaging") is None:
        pytest.skip("no package index")
    output = run_uv(*arguments, text="\n".join([*read_project()["dependencies"], str(parse_requirement())]))
    assert output is not None
    versions = dict(line.split("==") for line in output.splitlines() if "==" in line)
    assert versions["tensorflow"] == find_release().version
    assert find_codes(python, versions) == []


def test_tensorflow_is_not_a_plain_dependency() -> None:
    assert not [
        text for text in read_project()["dependencies"] if Requirement(text).name.startswith("tensorflow")
    ]
