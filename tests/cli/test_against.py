"""`tfdoctor check --against` as a user runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from cli.planner import call_tfdoctor
from tfdoctor.diagnosis.diff.flatten import AREAS

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ROOT / "tests" / "hosts"
GOOD, BAD = str(HOSTS / "healthy-one-gpu"), str(HOSTS / "hidden-by-minus-one")


run = call_tfdoctor


@pytest.mark.parametrize(("then", "now", "status"), [(GOOD, BAD, 1), (BAD, GOOD, 0), (GOOD, GOOD, 0)])
def test_exit_status_is_that_of_check(then: str, now: str, status: int) -> None:
    result = run("check", "--from", now, "--against", then)
    assert result.status == status, result.err
    assert "Compared with" in result.out
    assert ("CUDA_VISIBLE_DEVICES: not set → -1" in result.out) is (now == BAD)
    assert ("(explains TFD601)" in " ".join(result.out.split())) is (now == BAD)
    quiet = run("check", "--from", now, "--against", then, "--quiet")
    assert "Compared" not in quiet.out
    assert quiet.status == status


def test_json_follows_the_schema() -> None:
    path = ROOT / "docs" / "schemas" / "check.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    result = run("check", "--from", BAD, "--against", GOOD, "--json")
    answer = result.json
    jsonschema.Draft202012Validator(schema).validate(answer)
    first = answer["differences"][0]
    assert {key: first[key] for key in ("name", "area", "was", "is", "matters", "explains")} == {
        "name": "CUDA_VISIBLE_DEVICES",
        "area": "variables",
        "was": "not set",
        "is": "-1",
        "matters": "explains",
        "explains": ["TFD601"],
    }
    assert answer["against"]["found_now_only"] == ["TFD601"]
    assert schema["properties"]["differences"]["items"]["properties"]["area"]["enum"] == list(AREAS)
    assert "differences" not in run("check", "--from", BAD, "--json").json


def test_invalid_bundle_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"\x1f\x8bnot really")
    (tmp_path / "empty").mkdir()
    for path in (broken, tmp_path / "empty", tmp_path / "nowhere"):
        for arguments in ((), ("--from", GOOD)):
            result = run("check", "--against", str(path), *arguments)
            assert result.status == 2
            assert result.err.startswith("tfdoctor: ")
            assert "Traceback" not in result.err
            assert not result.out
    answer = run("check", "--against", str(broken), "--json").json
    assert answer["error"]["code"] == 2


def test_machine_equals_its_capture(tmp_path: Path) -> None:
    bundle = str(tmp_path / "now.tar.gz")
    home = tmp_path / "home" / "somebody"
    home.mkdir(parents=True)
    env = {"HOME": str(home), "USER": "somebody", "LD_LIBRARY_PATH": f"{home}/lib:/opt/x"}
    python = ("--python", sys.executable)
    assert run("capture", "-o", bundle, *python, env=env).status == 0
    unchanged = run("check", "--against", bundle, "--json", *python, env=env).json
    assert unchanged["differences"] == []
    assert unchanged["against"]["another_machine"] == []
    changed = json.loads(
        run("check", "--against", bundle, "--json", *python, env={**env, "XLA_FLAGS": "--xla_x"}).out
    )
    assert [(difference["name"], difference["is"]) for difference in changed["differences"]] == [
        ("XLA_FLAGS", "--xla_x")
    ]
