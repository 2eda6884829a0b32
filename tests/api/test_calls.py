"""`tfdoctor.check`, `.diagnose` and `.recommend` return what the command line prints as JSON."""

from __future__ import annotations

import ast
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

import tfdoctor
from tfdoctor.api import calls, notebook, shapes

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ROOT / "tests" / "hosts"
LOG_TEXT = (
    "gpu_device.cc:1956] Cannot dlopen some GPU libraries. Skipping registering GPU devices...\nünïcödé\n"
)


def run_json(*words: str, text: str = "") -> dict[str, Any]:
    """Run the command with --json and return its parsed output."""
    command = [sys.executable, "-m", "tfdoctor", *words, "--json"]
    result = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    return dict(json.loads(result.stdout))


def drop_times(answer: Any) -> dict[str, Any]:
    answer["facts"].pop("seconds", None)
    return {key: value for key, value in answer.items() if key != "at"}


@pytest.mark.few(2)
@pytest.mark.parametrize("host", ["healthy-two-gpus", "nouveau", "environment-deleted", "wsl2-healthy"])
def test_check_returns_what_is_printed(host: str) -> None:
    answer = tfdoctor.check(recording=HOSTS / host)
    assert drop_times(answer) == drop_times(run_json("check", "--from", str(HOSTS / host)))


def test_check_of_an_environment_equals_the_command(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    answer = tfdoctor.check(str(tmp_path / "env"))
    printed = run_json("check", "--python", str(tmp_path / "env"))
    for name in ("executable", "version", "distributions"):
        assert answer["facts"]["python"]["known"][name] == printed["facts"]["python"]["known"][name]
    assert answer["verdict"] == printed["verdict"]
    assert [finding["code"] for finding in answer["findings"]] == [
        finding["code"] for finding in printed["findings"]
    ]


def test_check_reports_current_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report variables that the program has set before the call, as a program that it starts inherits them."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert tfdoctor.check(sys.executable)["facts"]["environment"]["variables"]["CUDA_VISIBLE_DEVICES"] == "7"
    code = (
        "import os, sys; os.environ['CUDA_VISIBLE_DEVICES'] = '7'\n"
        "import tfdoctor; print(tfdoctor.check(sys.executable)['facts']['environment']['variables'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(result.stdout)["CUDA_VISIBLE_DEVICES"] == "7"
    assert result.stderr == ""


def test_diagnose_returns_what_is_printed() -> None:
    printed = run_json("diagnose", "-", text=LOG_TEXT)
    assert tfdoctor.diagnose(LOG_TEXT) == tfdoctor.diagnose(LOG_TEXT.encode()) == printed
    assert printed["verdict"]["cause"] == "libs-unlisted"
    tfdoctor.diagnose("\udcff\ud800 no text\0")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpu": "RTX 3060"}, ("--gpu", "RTX 3060")),
        (
            {"tf": "2.15", "gpu": ["8.6", "7.5"], "driver": "550", "python_version": "3.11", "method": "pip"},
            (
                *(
                    "--tf",
                    "2.15",
                    "--gpu",
                    "8.6",
                    "--gpu",
                    "7.5",
                    "--driver",
                    "550",
                    "--python-version",
                    "3.11",
                ),
                *("--method", "pip"),
            ),
        ),
        ({"tf": "1.14", "gpu": "RTX 4090"}, ("--tf", "1.14", "--gpu", "RTX 4090")),
        ({"recording": HOSTS / "nouveau"}, ("--from", str(HOSTS / "nouveau"))),
    ],
    ids=str,
)
def test_recommend_returns_what_is_printed(asked: dict[str, Any], words: tuple[str, ...]) -> None:
    assert tfdoctor.recommend(**asked) == run_json("recommend", *words)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: tfdoctor.check("/nowhere/python"),
        lambda: tfdoctor.check(recording="/nowhere"),
        lambda: tfdoctor.check(recording=HOSTS / "nouveau", deep=True),
        lambda: tfdoctor.recommend("99"),
        lambda: tfdoctor.recommend(gpu="Voodoo 2"),
        lambda: tfdoctor.recommend(method="magic"),
        lambda: tfdoctor.recommend(gpu="8.6", recording="x"),
    ],
)
def test_invalid_request_is_an_error_with_a_message(wrong: Any) -> None:
    with pytest.raises(tfdoctor.Error) as caught:
        wrong()
    assert caught.value.exit_code == 2
    assert caught.value.message


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    tfdoctor.check(sys.executable)
    tfdoctor.diagnose(LOG_TEXT)
    tfdoctor.recommend(gpu="8.6")
    assert capfd.readouterr() == ("", "")


def test_check_works_in_another_thread() -> None:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(tfdoctor.check(sys.executable)))
    thread.start()
    thread.join()
    assert answers[0]["schema_version"] == 1


# ---------------------------------------------------------------- imports and types


def test_import_loads_no_submodule() -> None:
    code = "import sys; before = {*sys.modules}; import tfdoctor; print(*({*sys.modules} - before))"
    result = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["tfdoctor"]
    assert set(tfdoctor.__all__) <= set(dir(tfdoctor))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tfdoctor.nonsense


def test_calls_load_no_command_line_packages() -> None:
    code = (
        "import sys, tfdoctor; tfdoctor.diagnose('x'); tfdoctor.recommend(gpu='8.6')\n"
        f"tfdoctor.check(recording={str(HOSTS / 'nouveau')!r}); print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert not {"typer", "docker", "requests", "tensorflow"} & {*result.stdout.split()}


def test_stub_has_the_signatures_of_the_functions() -> None:
    stub = ast.parse((ROOT / "doctor" / "tfdoctor" / "__init__.pyi").read_text(encoding="utf-8"))
    code = ast.parse(inspect.getsource(calls) + inspect.getsource(notebook))
    declared, defined = (
        {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)} for tree in (stub, code)
    )
    assert {*declared, "Error"} == {*tfdoctor.__all__}
    for name, function in declared.items():
        for part in ("args", "returns"):
            assert ast.dump(getattr(function, part)) == ast.dump(getattr(defined[name], part)), name


def resolve_schema(schema: dict[str, Any], root: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alternatives that a part of a schema allows, without null."""
    if "$ref" in schema:
        return resolve_schema(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema or "oneOf" in schema:
        return [
            alternative
            for part in schema.get("anyOf", schema.get("oneOf"))
            for alternative in resolve_schema(part, root)
        ]
    return [schema] if schema.get("type") != "null" else []


def compare_fields(hint: Any, schema: dict[str, Any], root: dict[str, Any], path: str) -> int:
    """Return the number of fields that are equal in the type hint and the schema; fail at the first difference."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [alternative for alternative in get_args(hint) if alternative is not type(None)]
        return compare_fields(kinds[0], schema, root, path)
    alternatives = resolve_schema(schema, root)
    if get_origin(hint) is list:
        return sum(
            compare_fields(get_args(hint)[0], alternative["items"], root, f"{path}[]")
            for alternative in alternatives
            if "items" in alternative
        )
    if get_origin(hint) is Literal:
        assert set(get_args(hint)) == {
            value for alternative in alternatives for value in alternative["enum"] if value is not None
        }, path
        return 1
    if not is_typeddict(hint):
        return 1
    fields = get_type_hints(hint)
    names: dict[str, dict[str, Any]] = {}
    for alternative in alternatives:
        names.update(alternative.get("properties", {}))
    options_only = {"against", "differences", "ignored", "settings_file", "simulated"}
    assert fields.keys() == names.keys() - options_only, path
    return sum(compare_fields(kind, names[name], root, f"{path}.{name}") for name, kind in fields.items())


@pytest.mark.parametrize(
    ("shape", "name", "least"),
    [
        (shapes.Check, "check", 30),
        (shapes.Diagnosis, "diagnose", 30),
        (shapes.Recommendation, "recommend", 30),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_types_equal_the_schemas(shape: Any, name: str, least: int) -> None:
    root = json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    start = root["$defs"]["report"] if name == "diagnose" else root
    if name == "recommend":
        start = {key: value for key, value in root.items() if key not in ("oneOf", "anyOf")}
    assert compare_fields(shape, start, root, name) >= least


# ---------------------------------------------------------------- signals


SIGNAL_PROGRAM = """
import os, signal, sys, threading, time
import tfdoctor
def soon():
    while not os.path.exists({started!r}): time.sleep(0.01)
    os.kill(os.getpid(), signal.{number})
{before}
threading.Thread(target=soon, daemon=True).start()
try:
    tfdoctor.check({python!r}, timeout=60)
except KeyboardInterrupt: print("interrupted")
print(tfdoctor.check(sys.executable)["schema_version"], signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize(
    ("number", "before", "status", "said"),
    [
        ("SIGINT", "", 0, ["interrupted", "1 True"]),
        ("SIGTERM", "", -signal.SIGTERM, []),
        (
            "SIGTERM",
            "signal.signal(signal.SIGTERM, lambda *_: print('heard'))",
            0,
            ["heard", "interrupted", "1 True"],
        ),
    ],
    ids=["Ctrl-C", "asked to end", "with a handler of one's own"],
)
def test_signal_handlers_are_restored_after_a_call(
    number: str, before: str, status: int, said: list[str], tmp_path: Path
) -> None:
    """Stop the started processes and answer the next call."""
    started, slow = tmp_path / "started", tmp_path / "python"
    slow.write_text(
        f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}\nexec sleep 60\n", encoding="ascii"
    )
    slow.chmod(0o755)
    code = SIGNAL_PROGRAM.format(started=str(started), number=number, before=before, python=str(slow))
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout.splitlines()) == (status, said), result.stderr
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and Path(f"/proc/{started.read_text().strip()}/stat").exists():
        state = Path(f"/proc/{started.read_text().strip()}/stat").read_text(encoding="ascii").split()[2]
        if state == "Z":
            break
        time.sleep(0.05)
    else:
        with pytest.raises(ProcessLookupError):
            os.kill(int(started.read_text()), 0)
