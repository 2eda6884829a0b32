"""The metadata of the package, and the README as a package index shows it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tfdoctor
from cli.planner import call_tfdoctor
from tfdoctor.compat import Compat
from tfdoctor.compat.folder import find_commit
from tfdoctor.core import links

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def hooks() -> Any:
    pytest.importorskip("hatchling", reason="no hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_and_pictures_of_the_readme_work_on_an_index(hooks: Any) -> None:
    text = hooks.convert_readme((ROOT / "README.md").read_text(encoding="utf-8"), links, "9.8.7")
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(targets) > 25
    assert [target for target in targets if "://" not in target and not target.startswith("#")] == []
    assert "<picture" not in text
    assert "<!--" not in text
    assert "uvx tfdoctor check" in text
    assert "./scripts/" not in text
    for target in targets:
        if "github.io" in target:
            page = target.partition("/9.8.7/")[2].partition("#")[0]
            assert (ROOT / "docs" / page).is_file() or (ROOT / "docs" / f"{page.rstrip('/')}.md").is_file(), (
                page
            )


def test_the_addresses_come_from_one_variable(hooks: Any) -> None:
    metadata: dict[str, Any] = {"version": "9.8.7"}
    hooks.CustomMetadataHook(str(ROOT), {}).update(metadata)
    assert all(links.PROJECT.partition("/")[0].lower() in url.lower() for url in metadata["urls"].values())
    assert metadata["readme"]["content-type"] == "text/markdown"


def test_the_changelog_dates_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(tfdoctor.__version__)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE)


def test_the_version_names_commit_and_tables() -> None:
    commit = find_commit()
    expected = f"commit {commit}, " if commit else ""
    output = call_tfdoctor("--version").out
    assert output == f"tfdoctor {tfdoctor.__version__} ({expected}tables of {Compat.load().as_of})\n"
    git = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    if git.returncode == 0:
        assert git.stdout.strip() == commit
