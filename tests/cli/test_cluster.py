"""`tfdoctor cluster` as it is typed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from cli.planner import validate

if TYPE_CHECKING:
    from pathlib import Path

GOOD = '{"cluster": {"worker": ["localhost:2998", "localhost:2999"]}, "task": {"type": "worker", "index": 0}}'


def run(*args: str, variable: str | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    if variable is not None:
        env["TF_CONFIG"] = variable
    command = [sys.executable, "-m", "tfdoctor", "cluster", *args]
    return subprocess.run(
        command,
        input=given,
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_a_text_a_file_standard_input_and_the_variable(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(GOOD)
    for args, variable, given, source in (
        (["--tf-config", GOOD], None, "", "text"),
        (["--tf-config", str(tmp_path / "c.json")], None, "", str(tmp_path / "c.json")),
        ([str(tmp_path / "c.json")], None, "", str(tmp_path / "c.json")),
        (["-"], None, GOOD, "-"),
        ([], GOOD, "", "env"),
    ):
        done = run(*args, "--json", variable=variable, given=given)
        answer = json.loads(done.stdout)
        validate(answer, "cluster")
        assert done.returncode == 0
        assert answer["source"] == source
        assert answer["task"] == {"type": "worker", "index": 0}
        assert [one["reachable"] for one in answer["members"]] == [None, None]


def test_the_screen_and_the_exit_status() -> None:
    wrong = GOOD.replace("localhost:2999", "localhost2999")
    done = run("--tf-config", wrong)
    assert done.returncode == 1
    assert 'Write "localhost:2999".' in done.stdout
    assert run("--tf-config", wrong, "--fail-on", "never").returncode == 0


def test_a_task_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    config = json.dumps({"worker": [f"127.0.0.1:{port}"]})
    done = run("--tf-config", config, "--connect", "--json")
    answer = json.loads(done.stdout)
    validate(answer, "cluster")
    assert done.returncode == 1
    assert [one["why"] for one in answer["members"]] == ["refused"]
    assert [one["name"] for one in answer["findings"]] == ["unreachable"]


def test_wrong_requests(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("print(1)\n")
    (tmp_path / "old.py").write_text("print 1\n")
    for args, status, words in (
        ([], 2, "TF_CONFIG is not set"),
        (["--tf-config", str(tmp_path / "gone.json")], 2, "cannot be read"),
        ([str(tmp_path)], 2, "cannot be read"),
        (["x", "--tf-config", "{}"], 2, "give one of them"),
        ([str(tmp_path / "none.py")], 3, "no ClusterSpec"),
        ([str(tmp_path / "old.py")], 3, "line 1"),
    ):
        done = run(*args)
        assert (done.returncode, done.stdout) == (status, ""), done
        assert words in done.stderr
