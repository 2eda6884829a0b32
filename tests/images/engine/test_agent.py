"""Tests of the agent script, which answers JSON requests from inside a container, on every installed Python."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tfdoctor.payload
from payload.test_pythons import PYTHONS, on_every_python
from processes import find_processes_by_word
from tfdoctor.images.engine.system import ContainerSystem
from tfdoctor.system.payloads import list_payload_files

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENT = Path(tfdoctor.payload.__file__).with_name("agent.py")
MARKER = "tfdoctor-payload:"


class Agent:
    """A running agent process."""

    def __init__(self, interpreter: str, folder: Path) -> None:
        env = {b"PATH": os.environb[b"PATH"], b"LC_ALL": b"C", b"ODD": b"\xff", b"SNOW": "☃".encode()}
        self.process = subprocess.Popen(
            [interpreter, "-B", str(AGENT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=env,
        )
        self.number = 0

    def send(self, op: str, **fields: Any) -> int:
        assert self.process.stdin is not None
        self.number += 1
        self.process.stdin.write(json.dumps({"op": op, "id": self.number, **fields}) + "\n")
        self.process.stdin.flush()
        return self.number

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(MARKER), line
        answer: dict[str, Any] = json.loads(line.removeprefix(MARKER))
        return answer

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        number = self.send(op, **fields)
        answer = self.receive()
        assert answer["id"] == number
        return answer

    def end(self) -> str:
        _, stderr = self.process.communicate(timeout=20)
        return stderr


@pytest.fixture
def agent(version: str, tmp_path: Path) -> Iterator[Agent]:
    process = Agent(PYTHONS[version], tmp_path)
    yield process
    stderr = process.end()
    assert process.process.returncode == 0
    assert stderr == ""


def decode_data(answer: dict[str, Any]) -> bytes:
    return base64.b64decode(answer["data"])


@on_every_python
def test_hello_reports_folder_environment_and_platform(agent: Agent, version: str, tmp_path: Path) -> None:
    hello = agent.ask("hello")
    assert hello["cwd"] == str(tmp_path)
    assert hello["env"]["SNOW"] == "☃"
    assert hello["env"]["ODD"] in ("\udcff", "\ufffd")
    assert hello["platform"] == {
        "system": os.uname().sysname,
        "machine": os.uname().machine,
        "release": os.uname().release,
        "uid": str(os.geteuid()),
    }


@on_every_python
def test_agent_reads_and_lists_files(agent: Agent, version: str, tmp_path: Path) -> None:
    path = tmp_path / "ünï ☃.txt"
    path.write_bytes(bytes(range(256)) * 1000)
    status = path.stat()
    content = agent.ask("read", path=str(path), size=1 << 20)
    assert decode_data(content) == path.read_bytes()
    assert (content["size"], content["inode"], content["device"]) == (256_000, status.st_ino, status.st_dev)
    assert decode_data(agent.ask("read", path=str(path), size=5, offset=255)) == b"\xff\x00\x01\x02\x03"
    assert decode_data(agent.ask("read", path="/dev/zero", size=1000)) == bytes(1000)
    os.mkfifo(tmp_path / "fifo")
    assert decode_data(agent.ask("read", path=str(tmp_path / "fifo"), size=10)) == b""
    for bad_path, number in ((tmp_path / "none", 2), (tmp_path, 21), (path / "x", 20)):
        assert agent.ask("read", path=str(bad_path), size=10)["errno"] == number
    (tmp_path / "link").symlink_to(path)
    link_status = agent.ask("stat", path=str(tmp_path / "link"))
    assert (link_status["exists"], link_status["dir"], link_status["real"]) == (
        True,
        False,
        str(path.resolve()),
    )
    assert agent.ask("stat", path=str(tmp_path / "none"))["exists"] is False
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / os.fsdecode(b"\xff")).touch()
    assert agent.ask("listdir", path=str(tmp_path))["names"] == sorted(
        ["fifo", "link", "odd", "ünï ☃.txt"], key=os.fsencode
    )
    assert agent.ask("listdir", path=str(tmp_path / "odd"))["names"] in (["\udcff"], ["\ufffd"])
    assert agent.ask("listdir", path=str(tmp_path / "none"))["errno"] == 2


@on_every_python
def test_agent_finds_and_runs_commands(agent: Agent, version: str) -> None:
    path = agent.ask("which", name="sh")["path"]
    assert os.access(path, os.X_OK)
    assert agent.ask("which", name="no-such-program")["path"] is None
    script = 'printf "%s|%s|%s" "$1" "$NEW" "$SNOW"; echo e >&2; exit 5'
    result = agent.ask(
        "run", argv=["sh", "-c", script, "x", "é☃"], timeout=20, env={"NEW": "ñ"}, unset=["SNOW"]
    )
    assert base64.b64decode(result["stdout"]).decode() == "é☃|ñ|"
    assert (base64.b64decode(result["stderr"]), result["status"], result["timed_out"]) == (b"e\n", 5, False)
    assert agent.ask("run", argv=["no-such-program"], timeout=20)["failure"] == 2
    assert agent.ask("run", argv=["/etc/passwd"], timeout=20)["failure"] == 13
    assert agent.ask("run", argv=["sh", "-c", "kill -9 $$"], timeout=20)["status"] == -9


@on_every_python
def test_timeout_ends_a_command_and_its_children(agent: Agent, version: str, tmp_path: Path) -> None:
    start = time.monotonic()
    script = f"(sleep 3; echo >{tmp_path}/survived) & echo early; sleep 60"
    result = agent.ask("run", argv=["sh", "-c", script], timeout=0.3)
    assert result["timed_out"] is True
    assert base64.b64decode(result["stdout"]) == b"early\n"
    assert time.monotonic() - start < 10
    assert agent.ask("run", argv=["sleep", "0"], timeout=5)["status"] == 0
    assert not find_processes_by_word(str(tmp_path / "survived"))


@on_every_python
def test_quick_request_overtakes_a_slow_one(agent: Agent, version: str) -> None:
    slow = agent.send("run", argv=["sleep", "1"], timeout=20)
    quick = agent.send("stat", path="/")
    assert [agent.receive()["id"], agent.receive()["id"]] == [quick, slow]


@on_every_python
def test_put_writes_files_into_a_new_folder(agent: Agent, version: str) -> None:
    files = {"a.py": base64.b64encode(b"\x00\xff").decode(), "a_b.py": base64.b64encode(b"").decode()}
    folder = Path(agent.ask("put", files=files)["folder"])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a.py": b"\x00\xff", "a_b.py": b""}
    shutil.rmtree(folder)


@on_every_python
def test_script_runs_with_its_modules_after_put(
    agent: Agent, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = AGENT.with_name("target.py")
    system = object.__new__(ContainerSystem)
    monkeypatch.setattr(system, "_ask", lambda request, _=None: agent.ask(**request))
    assert system._copy_payload("target.py") == "target.py"
    path = Path(system._copy_payload(str(script)))
    result = agent.ask("run", argv=[PYTHONS[version], "-B", str(path)], timeout=60)
    assert base64.b64decode(result["stdout"]).decode().startswith(MARKER), base64.b64decode(result["stderr"])
    assert {file.name for file in path.parent.iterdir()} == {file.name for file in list_payload_files(script)}
    assert len(list_payload_files(script)) > 1
    shutil.rmtree(path.parent)


@on_every_python
@pytest.mark.parametrize("question", [{"op": "none"}, {"op": "read"}, {"op": "run", "argv": 5, "timeout": 1}])
def test_invalid_request_gets_an_error(agent: Agent, version: str, question: dict[str, Any]) -> None:
    assert agent.ask(**question)["errno"] == 5
    assert agent.ask("stat", path="/")["exists"] is True
