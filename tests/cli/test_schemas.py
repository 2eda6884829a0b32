"""The JSON output of the commands follows the schemas of docs/schemas."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cli.planner import call_tfdoctor, validate
from recorded import FOLDERS, HOSTS, load_report
from tfdoctor.core.findings import Cause, OutcomeKind, Stage, Verification
from tfdoctor.render.report import make_report_json
from tfdoctor.render.verify import make_verification_json
from tfdoctor.rules import ALL_RULES
from tfdoctor.verification.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs" / "schemas"


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return loaded


def tfdoctor(*args: str) -> tuple[int, Any, str]:
    """Return the exit status, standard output as JSON, and standard error."""
    result = call_tfdoctor(*args)
    return result.status, result.json, result.err


def test_schemas_are_valid() -> None:
    for path in SCHEMAS.iterdir():
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))
        assert path.name.endswith(".schema.json")


def test_shared_definitions_are_equal() -> None:
    assert schema("build")["$defs"]["option"] == schema("recommend")["$defs"]["option"]
    assert schema("build")["$defs"]["finding"] == schema("verify")["$defs"]["finding"]
    verify = schema("verify")
    in_build = schema("build")["$defs"]["verification"]
    assert (in_build["required"], in_build["properties"]) == (verify["required"], verify["properties"])
    names = in_build["properties"]["stages"]["items"]["properties"]["name"]["enum"]
    assert names == list(STAGES)


@pytest.mark.parametrize("cause", [None, Cause.NO_NVIDIA_RUNTIME])
def test_verification_follows_the_schema(cause: Cause | None) -> None:
    report = load_report(HOSTS / "docker-without-toolkit")
    status = "passed" if cause is None else "failed"
    verification = Verification(
        target="python:3.11",
        stages=(Stage("runtime", status, "", 0.4), Stage("driver", "skipped", "after a failure", 0.0)),
        expected=1,
        visible=None,
        computed=None,
        cause=cause,
        summary="as it is",
        findings=report.findings,
        access="--gpus all",
    )
    assert report.findings
    answer = json.loads(json.dumps(make_verification_json(verification)))
    validate(answer, "verify")
    answer["stages"][0]["name"] = "start"
    with pytest.raises(jsonschema.ValidationError):
        validate(answer, "verify")


def test_verify_of_a_python_without_tensorflow() -> None:
    status, answer, _ = tfdoctor("verify", "--json", "--python", sys.executable)
    validate(answer, "verify")
    assert status == 1
    assert answer["verdict"]["gpu_usable"] is False


def test_schema_lists_every_outcome() -> None:
    properties = schema("check")["properties"]
    kinds = [kind.value for kind in OutcomeKind]
    assert sorted(properties["outcomes"]["required"]) == sorted(kinds)
    assert sorted(properties["rules"]["items"]["properties"]["outcome"]["enum"]) == sorted(kinds)


def test_check_on_this_machine() -> None:
    status, answer, _ = tfdoctor("check", "--json", "--python", sys.executable)
    validate(answer, "check")
    assert status in (0, 1)
    assert status == any(finding["severity"] == "error" for finding in answer["findings"])
    assert sum(answer["outcomes"].values()) == len(ALL_RULES) == len(answer["rules"])
    assert answer["outcomes"]["crashed"] == 0
    assert answer["observed"] is None


@pytest.mark.few(40)
@pytest.mark.parametrize("host", FOLDERS, ids=lambda path: path.name)
def test_check_on_a_recorded_machine(host: Path) -> None:
    answer = json.loads(json.dumps(make_report_json(load_report(host))))
    validate(answer, "check")
    assert answer["outcomes"]["crashed"] == 0


@pytest.mark.parametrize("args", [(), ("TFD101",), ("no-device",), ("libs-unlisted",)])
def test_explain(args: tuple[str, ...]) -> None:
    status, answer, err = tfdoctor("explain", "--json", *args)
    validate(answer, "explain")
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    "args",
    [
        ("explain", "--json", "nothing-like-that"),
        ("check", "--json", "--python", "/nowhere/python"),
        ("check", "--json", "--from", "/nowhere"),
        ("check", "--json", "--no-such-option"),
        ("check", "--json", "--timeout", "soon"),
        ("no-such-command", "--json"),
    ],
    ids=" ".join,
)
def test_errors_are_json(args: tuple[str, ...]) -> None:
    status, answer, err = tfdoctor(*args)
    validate(answer, "error")
    assert status == answer["error"]["code"] == 2
    assert err == ""


@pytest.mark.parametrize("name", ["check", "lint"])
def test_a_command_prints_its_schema(name: str) -> None:
    assert tfdoctor(name, "--json-schema") == (0, schema(name), "")
