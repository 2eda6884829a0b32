"""`tfdoctor mcp`: the protocol, right answers, and clients that are hostile."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tfdoctor.extensions.mcp import protocol
from tfdoctor.extensions.mcp.tools import TOOLS, ArgumentError, make_call, make_input_schema

SERVER = (sys.executable, "-m", "tfdoctor", "mcp")
MACHINES = {
    "healthy-one-gpu": "healthy",
    "plain-pip-install": "libs-not-installed",
    "updated-without-restart": "driver-lib-mismatch",
    "two-other-cudas": "libs-wrong-version",
    "blackwell-with-tf218": "gpu-too-new",
    "container-without-gpu": "container-no-gpu",
}
LOGS = {
    "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: "
    "No such file or directory\nSkipping registering GPU devices...": "libs-not-installed",
    "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected": "no-device",
    "failed call to cuInit: UNKNOWN ERROR (303)": "no-driver",
    "failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver "
    "combination": "driver-lib-mismatch",
    "Epoch 1/10": "inconclusive",
}


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    return request(number, "tools/call", name=name, arguments=arguments)


def exchange(*lines: Any, options: tuple[str, ...] = (), cwd: Path | None = None) -> dict[Any, Any]:
    """Send the lines and return the responses by id. The server must end by itself with status 0."""
    data = b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines
    )
    done = subprocess.run(
        [*SERVER, *options], input=data, capture_output=True, cwd=cwd, timeout=240, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return {message["id"]: message for message in map(json.loads, done.stdout.splitlines())}


def test_the_session_of_a_client() -> None:
    answers = exchange(
        request(0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request(1, "tools/list"),
        request(2, "ping"),
        request(3, "resources/list"),
        *(call(10 + i, "check", recording=f"demo:{name}") for i, name in enumerate(MACHINES)),
        call(20, "explain", term="TFD201"),
        call(21, "matrix", tf="2.20"),
        call(22, "recommend", gpu=["RTX 4090"], driver="550", method="pip"),
    )
    assert answers[0]["result"]["protocolVersion"] == "2025-06-18"
    tools = {tool["name"]: tool for tool in answers[1]["result"]["tools"]}
    assert list(tools) == list(TOOLS)
    assert answers[2]["result"] == {}
    assert answers[3]["error"]["code"] == protocol.UNKNOWN_METHOD
    for number, (name, cause) in enumerate(MACHINES.items(), 10):
        document = answers[number]["result"]["structuredContent"]
        assert document["verdict"]["cause"] == cause, name
        assert "facts" not in document
    names = {
        **dict.fromkeys(range(10, 10 + len(MACHINES)), "check"),
        20: "explain",
        21: "matrix",
        22: "recommend",
    }
    for number, name in names.items():
        result = answers[number]["result"]
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        jsonschema.validate(result["structuredContent"], tools[name]["outputSchema"])
    assert answers[21]["result"]["structuredContent"]["rows"][0]["tensorflow"] == "2.20.0"


def test_logs_get_their_cause() -> None:
    answers = exchange(*(call(number, "diagnose", text=text) for number, text in enumerate(LOGS)))
    verdicts = [answers[number]["result"]["structuredContent"]["verdict"] for number in range(len(LOGS))]
    assert [verdict["cause"] for verdict in verdicts] == list(LOGS.values())


def test_files_are_read_only_in_the_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "train.py").write_text("import os\nos.environ['CUDA_VISIBLE_DEVICE'] = '0'\n")
        (folder / "x.log").write_text("failed call to cuInit: UNKNOWN ERROR (303)\n")
    (inside / "link.log").symlink_to(outside / "x.log")
    (inside / "linked").symlink_to(outside)
    answers = exchange(
        call(1, "lint"),
        call(2, "diagnose", file="x.log"),
        *(
            call(number, *words[:1], **words[1])
            for number, words in enumerate(
                [
                    ("diagnose", {"file": str(outside / "x.log")}),
                    ("diagnose", {"file": "../outside/x.log"}),
                    ("diagnose", {"file": "link.log"}),
                    ("diagnose", {"file": "/etc/passwd"}),
                    ("lint", {"paths": ["train.py", "linked/train.py"]}),
                    ("check", {"recording": str(outside)}),
                    ("check", {"recording": "demo:../../../etc"}),
                    ("check", {"python": "/usr/bin/python3"}),
                    ("check", {"python": "linked/bin/python"}),
                    ("fix", {"python": str(outside)}),
                ],
                10,
            )
        ),
        options=("--folder", str(inside)),
        cwd=tmp_path,
    )
    assert answers[1]["result"]["structuredContent"]["findings"][0]["name"] == "misspelt-variable"
    assert answers[2]["result"]["structuredContent"]["verdict"]["cause"] == "no-driver"
    for number in range(10, 20):
        result = answers[number]["result"]
        assert result["isError"], number
        assert "structuredContent" not in result
        assert "outside" in result["content"][0]["text"] or "no demonstration" in result["content"][0]["text"]


def test_only_the_python_of_an_environment_runs(tmp_path: Path) -> None:
    inside, outside, ran = tmp_path / "inside", tmp_path / "outside", tmp_path / "ran"
    tool = outside / "tool"
    scripts = [inside / "deploy.sh", inside / "python", inside / "named/bin/other", tool]
    for script in scripts:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\necho "$0" >>"{ran}"\n')
        script.chmod(0o755)
    (inside / "link").symlink_to(tool)
    for name in ("named", "foreign", "led-out"):
        (inside / name).mkdir(exist_ok=True)
        (inside / name / "pyvenv.cfg").touch()
    (inside / "foreign/bin").mkdir()
    (inside / "foreign/bin/python").symlink_to(tool)
    (inside / "led-out/bin").symlink_to(outside)
    (outside / "python").symlink_to(sys.executable)
    names = ["deploy.sh", "python", "named/bin/other", "link", "foreign", "foreign/bin/python", "led-out"]
    answers = exchange(
        *(call(number, "check", python=name) for number, name in enumerate(names)),
        *(call(100 + number, "fix", python=name) for number, name in enumerate(names)),
        options=("--folder", str(inside)),
        cwd=tmp_path,
    )
    for number in range(len(names)):
        for result in (answers[number]["result"], answers[100 + number]["result"]):
            assert result["isError"], names[number]
    assert not ran.exists(), ran.read_text()


def test_python_of_an_environment_runs(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    names = ["env", "env/bin/python", str(tmp_path / "env/bin/python3")]
    answers = exchange(
        *(call(number, "check", python=name) for number, name in enumerate(names)),
        options=("--folder", str(tmp_path)),
    )
    for number, name in enumerate(names):
        assert not answers[number]["result"].get("isError"), name


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", protocol.PARSE_ERROR),
        (b"\xff\xfe", protocol.PARSE_ERROR),
        (b"[" * 100_000, protocol.PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1' + b"0" * 5000 + b', "method": "ping"}', protocol.PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', protocol.PARSE_ERROR),
        (b"[]", protocol.INVALID_REQUEST),
        (b"7", protocol.INVALID_REQUEST),
        (b'{"id": 5, "method": "ping"}', protocol.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', protocol.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', protocol.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 5, "method": 3}', protocol.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "ping", "params": [1]}', protocol.INVALID_PARAMS),
        (
            b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": ["x"]}}',
            protocol.INVALID_PARAMS,
        ),
    ],
)
def test_a_wrong_line_gets_an_error_and_the_next_one_is_served(line: bytes, code: int) -> None:
    answers = exchange(line, request(2, "ping"))
    assert answers.pop(2)["result"] == {}
    (answer,) = answers.values()
    assert answer["error"]["code"] == code


def test_a_line_without_end_costs_no_memory() -> None:
    program = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (900 << 20, 900 << 20))
sys.argv[1:] = ["mcp"]
from tfdoctor.__main__ import run
run()
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    for _ in range(2000):
        process.stdin.write(b"x" * (1 << 20))
    out, _ = process.communicate(b"\n" + json.dumps(request(1, "ping")).encode() + b"\n", timeout=120)
    too_large, pong = map(json.loads, out.splitlines())
    assert too_large["error"]["code"] == protocol.INVALID_REQUEST
    assert pong["result"] == {}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("explain", {}),
        ("explain", {"term": ""}),
        ("explain", {"term": "x" * 1001}),
        ("explain", {"term": "\ud800"}),
        ("explain", {"term": ["TFD201"]}),
        ("check", []),
        ("check", {"facts": "x"}),
        ("check", {"deep": "yes"}),
        ("check", {"for": "rm"}),
        ("check", {"recording": "a\0b"}),
        ("check", {"python": "--yes"}),
        ("fix", {"python": "-"}),
        ("diagnose", {}),
        ("diagnose", {"text": "a", "file": "b"}),
        ("matrix", {}),
        ("recommend", {"gpu": "RTX 4090"}),
        ("recommend", {"gpu": ["T4"] * 101}),
        ("fix", {"apply": True}),
        ("fix", {"undo": True}),
    ],
)
def test_wrong_arguments_are_refused(name: str, arguments: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        make_call(TOOLS[name], arguments, [str(tmp_path)], allow_fix=False)


@pytest.mark.parametrize("name", TOOLS)
def test_an_argument_is_never_an_option(name: str, tmp_path: Path) -> None:
    tool = TOOLS[name]
    for parameter, spec in tool.parameters.items():
        if spec.kind == "boolean" or spec.choices or spec.role in ("log", "python"):
            continue
        for text in ("--yes", "-h", "--", "-"):
            value = [text] if spec.kind == "array" else text
            arguments = {**dict.fromkeys(tool.required, "x"), parameter: value}
            words = make_call(tool, arguments, [str(tmp_path)], allow_fix=True).words
            options = words[: words.index("--")] if "--" in words else words
            assert not {"--yes", "-h", "-"} & set(options), (parameter, words)


def test_fix_changes_nothing_without_permission(tmp_path: Path) -> None:
    folders = [str(tmp_path)]
    assert "--dry-run" in make_call(TOOLS["fix"], {}, folders, allow_fix=False).words
    assert "--dry-run" in make_call(TOOLS["fix"], {"apply": False}, folders, allow_fix=True).words
    allowed = make_call(TOOLS["fix"], {"apply": True}, folders, allow_fix=True).words
    assert "--yes" in allowed
    assert "--dry-run" not in allowed
    with pytest.raises(ArgumentError):
        make_call(TOOLS["fix"], {"apply": True, "undo": True}, folders, allow_fix=True)
    assert set(make_input_schema(TOOLS["fix"], allow_fix=False)["properties"]) == {"codes", "python"}


def test_input_schemas_are_valid_and_agree_with_the_checks(tmp_path: Path) -> None:
    for tool in TOOLS.values():
        schema = make_input_schema(tool, allow_fix=True)
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        for value in ({}, {"tf": "2.20"}, {"term": "x"}, {"tf": 3}, {"for": "pip"}, {"for": "x"}, {"no": 1}):
            try:
                make_call(tool, value, [str(tmp_path)], allow_fix=True)
                is_accepted = True
            except ArgumentError as error:
                is_accepted = "give " in str(
                    error
                )  # a condition between parameters, which the schema has not
            assert is_accepted == validator.is_valid(value), (tool.name, value)


def test_a_call_can_be_cancelled() -> None:
    process = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for message in (
        call(1, "check", recording="demo:healthy-one-gpu"),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": []}},
        request(2, "ping"),
    ):
        process.stdin.write(json.dumps(message).encode() + b"\n")
    out, _ = process.communicate(timeout=120)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [2]


def test_a_signal_ends_the_server() -> None:
    process = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request(1, "ping")).encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == -signal.SIGTERM
    process.communicate()


def test_the_start_is_quick() -> None:
    """In seconds of the processor, which a machine that is busy with other tests does not change much."""

    def measure() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        exchange(request(1, "ping"))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(measure() for _ in range(3)) <= 0.3


def test_an_independent_client() -> None:
    """The client of the package `mcp`, where an environment has it: TFDOCTOR_MCP_PYTHON names its Python."""
    python = os.environ.get("TFDOCTOR_MCP_PYTHON")
    if not python:
        pytest.skip("TFDOCTOR_MCP_PYTHON names no Python with the package mcp")
    script = Path(__file__).with_name("client.py")
    cases = [
        *(("check", {"recording": f"demo:{name}"}, cause) for name, cause in MACHINES.items()),
        *(("diagnose", {"text": text}, cause) for text, cause in LOGS.items()),
    ]
    done = subprocess.run(
        [python, str(script), *SERVER],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_lint_reads_no_file_through_a_link_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("import tensorflow as tf\nwith tf.device('inner-name'): pass\n")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/t.py").symlink_to("../outside.py")
    answers = exchange(
        call(1, "lint"), call(2, "lint", paths=["."]), options=("--folder", str(tmp_path / "inside"))
    )
    for number in (1, 2):
        assert "inner-name" not in json.dumps(answers[number])
