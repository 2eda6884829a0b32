"""`tfdoctor cluster` on the command line."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from cli.planner import CommandResult, call_tfdoctor, validate

if TYPE_CHECKING:
    from pathlib import Path

GOOD = '{"cluster": {"worker": ["localhost:2998", "localhost:2999"]}, "task": {"type": "worker", "index": 0}}'


def run(*args: str, variable: str | None = None, stdin: str = "") -> CommandResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TF_CONFIG", raising=False)
        return call_tfdoctor(
            "cluster", *args, stdin=stdin, env={} if variable is None else {"TF_CONFIG": variable}
        )


def test_configuration_from_option_file_stdin_and_variable(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(GOOD)
    for args, variable, stdin_text, source in (
        (["--tf-config", GOOD], None, "", "text"),
        (["--tf-config", str(tmp_path / "c.json")], None, "", str(tmp_path / "c.json")),
        ([str(tmp_path / "c.json")], None, "", str(tmp_path / "c.json")),
        (["-"], None, GOOD, "-"),
        ([], GOOD, "", "env"),
    ):
        result = run(*args, "--json", variable=variable, stdin=stdin_text)
        answer = result.json
        validate(answer, "cluster")
        assert result.status == 0
        assert answer["source"] == source
        assert answer["task"] == {"type": "worker", "index": 0}
        assert [member["reachable"] for member in answer["members"]] == [None, None]


def test_text_output_and_exit_status() -> None:
    invalid = GOOD.replace("localhost:2999", "localhost2999")
    result = run("--tf-config", invalid)
    assert result.status == 1
    assert 'Write "localhost:2999".' in result.out
    assert run("--tf-config", invalid, "--fail-on", "never").status == 0


def test_unreachable_task_is_a_finding() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    config = json.dumps({"worker": [f"127.0.0.1:{port}"]})
    result = run("--tf-config", config, "--connect", "--json")
    answer = result.json
    validate(answer, "cluster")
    assert result.status == 1
    assert [item["why"] for item in answer["members"]] == ["refused"]
    assert [item["name"] for item in answer["findings"]] == ["unreachable"]


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("print(1)\n")
    (tmp_path / "old.py").write_text("print 1\n")
    for args, status, message in (
        ([], 2, "TF_CONFIG is not set"),
        (["--tf-config", str(tmp_path / "gone.json")], 2, "cannot be read"),
        ([str(tmp_path)], 2, "cannot be read"),
        (["x", "--tf-config", "{}"], 2, "give one of them"),
        ([str(tmp_path / "none.py")], 3, "no ClusterSpec"),
        ([str(tmp_path / "old.py")], 3, "line 1"),
    ):
        result = run(*args)
        assert (result.status, result.out) == (status, ""), result
        assert message in result.err
