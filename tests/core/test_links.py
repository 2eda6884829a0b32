"""Addresses of the project: none while it is published nowhere, and the same one everywhere after that."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import jsonschema
import pytest

import tfdoctor
from cli.planner import call_tfdoctor
from tfdoctor.cli.explain import explain, load_documentation
from tfdoctor.cli.main import make_command_group
from tfdoctor.core import links
from tfdoctor.diagnosis.explain import CAUSE_BY_LOG_CODE

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
DEMO = "demo:plain-pip-install"


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> str:
    """Publish the project, and return the address of the codes' pages of this version."""
    monkeypatch.setattr(links, "PROJECT", "Somebody/tfdoctor")
    return f"https://somebody.github.io/tfdoctor/{tfdoctor.__version__}/codes/"


def test_no_link_leads_to_a_place_that_is_not_there() -> None:
    assert links.format_rule_url("TFD201", "1.0") is None
    for words in (
        ("explain", "TFD201"),
        ("explain", "TFD201", "--json"),
        ("check", "--from", DEMO, "--json"),
    ):
        assert "github.io" not in call_tfdoctor(*words).out


def test_the_address_follows_from_the_project(published: str) -> None:
    assert links.format_rule_url("TFD201", tfdoctor.__version__) == f"{published}TFD201/"
    assert links.format_rule_url("inconclusive", "1.0") is None
    assert links.format_repository_url("issues") == "https://github.com/Somebody/tfdoctor/issues"


def test_every_code_has_its_page() -> None:
    documentation = load_documentation()
    codes = {rule.code for rule in documentation.rules} | set(documentation.pages) | set(CAUSE_BY_LOG_CODE)
    assert {path.stem for path in (ROOT / "docs" / "codes").glob("TFD*.md")} >= codes


def test_explain_and_json_name_it(published: str, capsys: pytest.CaptureFixture[str]) -> None:
    explain(terms=["TFD201"])
    assert f"On the web: {published}TFD201/" in capsys.readouterr().out
    explain(terms=["TFD201"], as_json=True)
    assert json.loads(capsys.readouterr().out)["rules"][0]["url"] == f"{published}TFD201/"
    make_command_group()(["check", "--from", DEMO, "--json", "--timeout=9"], standalone_mode=False)
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["url"] == f"{published}TFD201/"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("check", ("check", "--from", DEMO, "--timeout=9")),
        ("explain", ("explain", "TFD201")),
        ("diagnose", ("diagnose", str(ROOT / "tests" / "logs" / "lab" / "2.17.1-without-cudart.log"))),
        ("lint", ("lint", str(ROOT / "scripts" / "checkout.py"))),
        ("matrix", ("matrix", "2.20")),
        ("recommend", ("recommend", "RTX 4090")),
        ("build_check", ("build", "--check", str(ROOT / "dockerfiles" / "tfdoctor.Dockerfile"))),
    ],
)
def test_a_document_names_its_schema(
    published: str, schema: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        make_command_group()([*words, "--json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    address = document.pop("$schema")
    assert address == published.replace("/codes/", f"/schemas/{schema}.schema.json")
    jsonschema.validate(
        document | {"$schema": address}, json.loads((SCHEMAS / address.rpartition("/")[2]).read_text("utf-8"))
    )


def test_every_schema_is_named_by_its_document() -> None:
    named = [
        name
        for path in (ROOT / "doctor").rglob("*.py")
        for name in re.findall(r'make_document_head\("(\w+)"\)', path.read_text(encoding="utf-8"))
    ]
    assert {f"{name}.schema.json" for name in named} == {path.name for path in SCHEMAS.glob("*.json")}


def test_sarif_names_it(published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "train.py"
    source.write_text("import os\nos.environ['CUDA_VISIBLE_DEVICE'] = '0'\n")
    make_command_group()(["lint", "--format", "sarif", str(source)], standalone_mode=False)
    driver = json.loads(capsys.readouterr().out)["runs"][0]["tool"]["driver"]
    assert driver["informationUri"] == "https://github.com/Somebody/tfdoctor"
    (rule,) = driver["rules"]
    assert rule["helpUri"] == f"{published}TFD711/"
    assert rule["fullDescription"]["text"]


def test_no_other_file_spells_the_address() -> None:
    found = [
        path.name
        for path in (ROOT / "doctor").rglob("*.py")
        if re.search(r"github\.com/[\w-]+/tfdoctor|tfdoctor\.github\.io", path.read_text(encoding="utf-8"))
    ]
    assert not found
