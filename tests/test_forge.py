"""Files for the forge and for packagers name what exists, and agree with the package."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import tfdoctor
from tfdoctor.cli.commands import list_commands
from tfdoctor.core.toml import loads

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
sys.path.insert(0, str(ROOT / "scripts"))
CONDA_NAMES = {"docker": "docker-py"}


def load_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def load_release() -> Any:
    loader = SourceFileLoader("release", str(ROOT / "scripts" / "release"))
    spec = importlib.util.spec_from_loader("release", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_exists_with_few_rights(path: Path) -> None:
    workflow = load_yaml(path)
    assert "workflow_dispatch" in workflow[True]  # YAML 1.1 reads `on` as true
    assert {"name", "permissions", "concurrency", "jobs"} <= set(workflow)
    stages = set(
        re.findall(r"^stage_(\w+)\(\)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 360
        named = job.get("strategy", {}).get("matrix", {}).get("stage", [])
        assert set(named) <= stages
        for step in job["steps"]:
            assert "uses" in step or "run" in step
            for script in re.findall(r"(?:^|\s)((?:scripts|\.ci)/[\w.]+)", step.get("run", "")):
                assert (ROOT / script).is_file(), script
    assert "secrets." not in path.read_text(encoding="utf-8")


def test_a_refresh_that_fails_in_part_is_proposed_with_its_report() -> None:
    steps = load_yaml(ROOT / ".github" / "workflows" / "refresh.yml")["jobs"]["refresh"]["steps"]
    fetch, propose = steps[-2:]
    assert "--fetch --report report.md" in fetch["run"]
    assert "--body-file report.md" in propose["run"]
    assert propose["if"] == "${{ !cancelled() }}"


def test_the_forms_ask_for_what_tfdoctor_prints() -> None:
    text = ""
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = load_yaml(path)
        ids = [item["id"] for item in form.get("body", []) if "id" in item]
        assert len(ids) == len(set(ids))
        text += path.read_text(encoding="utf-8")
    named = set(re.findall(r"`tfdoctor (\w+)", text))
    assert {"report", "capture"} <= named <= set(list_commands())


def test_citation_and_changelog_name_this_version() -> None:
    citation = load_yaml(ROOT / "CITATION.cff")
    day, text = load_release().read_section(tfdoctor.__version__)
    assert (citation["version"], citation["date-released"]) == (tfdoctor.__version__, day)
    assert len(text) > 100


def test_the_recipe_has_the_dependencies_of_the_package() -> None:
    recipe = load_yaml(ROOT / "packaging" / "conda" / "recipe.yaml")
    assert recipe["context"]["version"] == tfdoctor.__version__
    expected = set()
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        bounds = sorted(str(requirement.specifier).split(","), reverse=True)
        expected.add(f"{CONDA_NAMES.get(requirement.name, requirement.name)} {','.join(bounds)}")
    assert {line for line in recipe["requirements"]["run"] if not line.startswith("python ")} == expected


def test_a_release_needs_an_address(tmp_path: Path) -> None:
    release = load_release()
    with pytest.raises(release.StepError, match="PROJECT"):
        release.Release(tmp_path, None, allows_placeholder=False).check_address()
    with pytest.raises(release.StepError, match=r"9\.9\.9"):
        release.read_section("9.9.9")
