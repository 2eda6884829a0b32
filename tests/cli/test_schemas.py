"""The JSON that the commands print is what docs/schemas promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from recorded import report
from tfdoctor.compat import Compat
from tfdoctor.examine.collect import survey
from tfdoctor.findings import Cause, OutcomeKind, Stage, Verification
from tfdoctor.render.report import report_json
from tfdoctor.render.verify import verification_json
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules import ALL_RULES
from tfdoctor.system import RecordedSystem
from tfdoctor.verify.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
HOSTS = sorted(path.parent for path in (ROOT / "tests" / "hosts").glob("*/host.json"))


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return loaded


def validate(answer: Any, name: str) -> None:
    jsonschema.Draft202012Validator(schema(name)).validate(answer)


def tfdoctor(*args: str) -> tuple[int, Any, str]:
    """Exit status, standard output as JSON, standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *args], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_a_schema_is_a_schema(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))
    assert path.name.endswith(".schema.json")


@pytest.mark.parametrize("name", ["check", "explain", "recommend", "build", "verify"])
def test_the_causes_are_the_vocabulary(name: str) -> None:
    assert schema(name)["$defs"]["cause"]["enum"] == [cause.value for cause in Cause]


def test_an_option_and_a_verification_are_the_same_everywhere() -> None:
    assert schema("build")["$defs"]["option"] == schema("recommend")["$defs"]["option"]
    assert schema("build")["$defs"]["finding"] == schema("verify")["$defs"]["finding"]
    verify = schema("verify")
    inside = schema("build")["$defs"]["verification"]
    assert (inside["required"], inside["properties"]) == (verify["required"], verify["properties"])
    names = inside["properties"]["stages"]["items"]["properties"]["name"]["enum"]
    assert names == list(STAGES)


@pytest.mark.parametrize("cause", [None, Cause.NO_NVIDIA_RUNTIME])
def test_verify(cause: Cause | None) -> None:
    report = diagnose(
        survey(RecordedSystem(ROOT / "tests" / "hosts" / "docker-without-toolkit"), Compat.load()),
        Compat.load(),
    )
    status = "passed" if cause is None else "failed"
    done = Verification(
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
    answer = json.loads(json.dumps(verification_json(done)))
    validate(answer, "verify")
    answer["stages"][0]["name"] = "start"
    with pytest.raises(jsonschema.ValidationError):
        validate(answer, "verify")


def test_verify_of_a_python_without_tensorflow() -> None:
    status, answer, _ = tfdoctor("verify", "--json", "--python", sys.executable)
    validate(answer, "verify")
    assert status == 1
    assert answer["verdict"]["gpu_usable"] is False


def test_the_outcomes_are_all_outcomes() -> None:
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


@pytest.mark.skipif(not HOSTS, reason="no recorded machines")
@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
@pytest.mark.few(40)
def test_check_on_a_recorded_machine(host: Path) -> None:
    answer = json.loads(json.dumps(report_json(report(host))))
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
        ("check", "--json", "--facts", "/nowhere"),
        ("check", "--json", "--no-such-option"),
        ("check", "--json", "--timeout", "soon"),
        ("no-such-command", "--json"),
    ],
    ids=" ".join,
)
def test_an_error_is_json_too(args: tuple[str, ...]) -> None:
    status, answer, err = tfdoctor(*args)
    validate(answer, "error")
    assert status == answer["error"]["code"] == 2
    assert err == ""
