"""`tfdoctor check --against` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tfdoctor.report.diff.flatten import AREAS

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ROOT / "tests" / "hosts"
GOOD, BAD = str(HOSTS / "healthy-one-gpu"), str(HOSTS / "hidden-by-minus-one")


def run(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("then", "now", "status"), [(GOOD, BAD, 1), (BAD, GOOD, 0), (GOOD, GOOD, 0)])
def test_the_exit_status_is_check_s(then: str, now: str, status: int) -> None:
    done = run("check", "--facts", now, "--against", then)
    assert done.returncode == status, done.stderr
    assert "Compared with" in done.stdout
    assert ("CUDA_VISIBLE_DEVICES: not set → -1" in done.stdout) is (now == BAD)
    assert ("(explains TFD601)" in " ".join(done.stdout.split())) is (now == BAD)
    quiet = run("check", "--facts", now, "--against", then, "--quiet")
    assert "Compared" not in quiet.stdout
    assert quiet.returncode == status


def test_json_is_by_the_schema() -> None:
    path = ROOT / "docs" / "schemas" / "check.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    done = run("check", "--facts", BAD, "--against", GOOD, "--json")
    answer = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema).validate(answer)
    first = answer["differences"][0]
    assert {key: first[key] for key in ("name", "area", "was", "is", "matters", "explains")} == {
        "name": "CUDA_VISIBLE_DEVICES",
        "area": "variables",
        "was": "not set",
        "is": "-1",
        "matters": "explains",
        "explains": ["TFD601"],
    } or "TFD601" in first["explains"]
    assert answer["against"]["found_now_only"] == ["TFD601"]
    assert schema["properties"]["differences"]["items"]["properties"]["area"]["enum"] == list(AREAS)
    assert "differences" not in json.loads(run("check", "--facts", BAD, "--json").stdout)


def test_a_bundle_that_is_none_ends_with_2_and_a_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"\x1f\x8bnot really")
    (tmp_path / "empty").mkdir()
    for path in (broken, tmp_path / "empty", tmp_path / "nowhere"):
        for more in ((), ("--facts", GOOD)):
            done = run("check", "--against", str(path), *more)
            assert done.returncode == 2
            assert done.stderr.startswith("tfdoctor: ")
            assert "Traceback" not in done.stderr
            assert not done.stdout
    answer = json.loads(run("check", "--against", str(broken), "--json").stdout)
    assert answer["error"]["code"] == 2


def test_this_machine_does_not_differ_from_what_was_captured_of_it(tmp_path: Path) -> None:
    bundle = str(tmp_path / "now.tar.gz")
    home = tmp_path / "home" / "somebody"
    home.mkdir(parents=True)
    env = {"HOME": str(home), "USER": "somebody", "LD_LIBRARY_PATH": f"{home}/lib:/opt/x"}
    python = ("--python", sys.executable)
    assert run("capture", "-o", bundle, *python, env=env).returncode == 0
    same = json.loads(run("check", "--against", bundle, "--json", *python, env=env).stdout)
    assert same["differences"] == []
    assert same["against"]["another_machine"] == []
    other = json.loads(
        run("check", "--against", bundle, "--json", *python, env={**env, "XLA_FLAGS": "--xla_x"}).stdout
    )
    assert [(one["name"], one["is"]) for one in other["differences"]] == [("XLA_FLAGS", "--xla_x")]
