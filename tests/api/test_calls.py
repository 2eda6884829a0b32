"""`tfdoctor.check`, `.diagnose` and `.recommend`: what the command line prints as JSON, and nothing else."""

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
LOG = "gpu_device.cc:1956] Cannot dlopen some GPU libraries. Skipping registering GPU devices...\nünïcödé\n"


def run_json(*words: str, text: str = "") -> dict[str, Any]:
    command = [sys.executable, "-m", "tfdoctor", *words, "--json"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    return dict(json.loads(done.stdout))


def drop_times(answer: Any) -> dict[str, Any]:
    answer["facts"].pop("seconds", None)
    return {key: value for key, value in answer.items() if key != "at"}


@pytest.mark.few(2)
@pytest.mark.parametrize("host", ["healthy-two-gpus", "nouveau", "environment-deleted", "wsl2-healthy"])
def test_check_returns_what_is_printed(host: str) -> None:
    mine = tfdoctor.check(facts=HOSTS / host)
    assert drop_times(mine) == drop_times(run_json("check", "--facts", str(HOSTS / host)))


def test_check_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    mine = tfdoctor.check(str(tmp_path / "env"))
    theirs = run_json("check", "--python", str(tmp_path / "env"))
    for name in ("executable", "version", "distributions"):
        assert mine["facts"]["python"]["known"][name] == theirs["facts"]["python"]["known"][name]
    assert mine["verdict"] == theirs["verdict"]
    assert [one["code"] for one in mine["findings"]] == [one["code"] for one in theirs["findings"]]


def test_check_sees_the_variables_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a program has set until it asks: a program that it starts then has it, too."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert tfdoctor.check(sys.executable)["facts"]["environment"]["variables"]["CUDA_VISIBLE_DEVICES"] == "7"
    code = (
        "import os, sys; os.environ['CUDA_VISIBLE_DEVICES'] = '7'\n"
        "import tfdoctor; print(tfdoctor.check(sys.executable)['facts']['environment']['variables'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout)["CUDA_VISIBLE_DEVICES"] == "7"
    assert done.stderr == ""


def test_diagnose_returns_what_is_printed() -> None:
    theirs = run_json("diagnose", "-", text=LOG)
    assert tfdoctor.diagnose(LOG) == tfdoctor.diagnose(LOG.encode()) == theirs
    assert theirs["verdict"]["cause"] == "libs-unlisted"
    tfdoctor.diagnose("\udcff\ud800 no text\0")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpu": "RTX 3060"}, ("--gpu", "RTX 3060")),
        (
            {"tf": "2.15", "gpu": ["8.6", "7.5"], "driver": "550", "python": "3.11", "method": "pip"},
            (
                *("--tf", "2.15", "--gpu", "8.6", "--gpu", "7.5", "--driver", "550", "--python", "3.11"),
                *("--method", "pip"),
            ),
        ),
        ({"tf": "1.14", "gpu": "RTX 4090"}, ("--tf", "1.14", "--gpu", "RTX 4090")),
        ({"facts": HOSTS / "nouveau"}, ("--facts", str(HOSTS / "nouveau"))),
    ],
    ids=str,
)
def test_recommend_returns_what_is_printed(asked: dict[str, Any], words: tuple[str, ...]) -> None:
    assert tfdoctor.recommend(**asked) == run_json("recommend", *words)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: tfdoctor.check("/nowhere/python"),
        lambda: tfdoctor.check(facts="/nowhere"),
        lambda: tfdoctor.check(facts=HOSTS / "nouveau", deep=True),
        lambda: tfdoctor.recommend("99"),
        lambda: tfdoctor.recommend(gpu="Voodoo 2"),
        lambda: tfdoctor.recommend(method="magic"),
        lambda: tfdoctor.recommend(gpu="8.6", facts="x"),
    ],
)
def test_a_wrong_request_is_an_error_with_a_message(wrong: Any) -> None:
    with pytest.raises(tfdoctor.Error) as caught:
        wrong()
    assert caught.value.exit_code == 2
    assert caught.value.message


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    tfdoctor.check(sys.executable)
    tfdoctor.diagnose(LOG)
    tfdoctor.recommend(gpu="8.6")
    assert capfd.readouterr() == ("", "")


def test_it_works_beside_the_main_thread() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(tfdoctor.check(sys.executable)))
    thread.start()
    thread.join()
    assert found[0]["schema_version"] == 1


# ---------------------------------------------------------------- cheap, and typed


def test_importing_it_loads_nothing() -> None:
    code = "import sys; before = {*sys.modules}; import tfdoctor; print(*({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tfdoctor"]
    assert set(tfdoctor.__all__) <= set(dir(tfdoctor))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tfdoctor.nonsense


def test_asking_loads_neither_typer_nor_rich() -> None:
    code = (
        "import sys, tfdoctor; tfdoctor.diagnose('x'); tfdoctor.recommend(gpu='8.6')\n"
        f"tfdoctor.check(facts={str(HOSTS / 'nouveau')!r}); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert not {"typer", "docker", "requests", "tensorflow"} & {*done.stdout.split()}


def test_the_stub_says_what_the_functions_take() -> None:
    stub = ast.parse((ROOT / "doctor" / "tfdoctor" / "__init__.pyi").read_text(encoding="utf-8"))
    code = ast.parse(inspect.getsource(calls) + inspect.getsource(notebook))
    typed, real = (
        {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)} for tree in (stub, code)
    )
    assert {*typed, "Error"} == {*tfdoctor.__all__}
    for name, function in typed.items():
        for part in ("args", "returns"):
            assert ast.dump(getattr(function, part)) == ast.dump(getattr(real[name], part)), name


def resolve_schema(schema: dict[str, Any], whole: dict[str, Any]) -> list[dict[str, Any]]:
    """What a place in a schema can be, without null."""
    if "$ref" in schema:
        return resolve_schema(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema or "oneOf" in schema:
        return [
            one for part in schema.get("anyOf", schema.get("oneOf")) for one in resolve_schema(part, whole)
        ]
    return [schema] if schema.get("type") != "null" else []


def compare(hint: Any, schema: dict[str, Any], whole: dict[str, Any], place: str) -> int:
    """How many fields are alike; fails where one is not."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [one for one in get_args(hint) if one is not type(None)]
        return compare(kinds[0], schema, whole, place)
    said = resolve_schema(schema, whole)
    if get_origin(hint) is list:
        return sum(
            compare(get_args(hint)[0], one["items"], whole, f"{place}[]") for one in said if "items" in one
        )
    if get_origin(hint) is Literal:
        assert set(get_args(hint)) == {word for one in said for word in one["enum"] if word is not None}, (
            place
        )
        return 1
    if not is_typeddict(hint):
        return 1
    fields = get_type_hints(hint)
    names: dict[str, dict[str, Any]] = {}
    for one in said:
        names.update(one.get("properties", {}))
    assert fields.keys() == names.keys() - {"against", "differences", "simulated"}, place
    return sum(compare(kind, names[name], whole, f"{place}.{name}") for name, kind in fields.items())


@pytest.mark.parametrize(
    ("shape", "name", "least"),
    [
        (shapes.Check, "check", 30),
        (shapes.Diagnosis, "diagnose", 30),
        (shapes.Recommendation, "recommend", 30),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_types_are_those_of_the_schemas(shape: Any, name: str, least: int) -> None:
    whole = json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    start = whole["$defs"]["report"] if name == "diagnose" else whole
    if name == "recommend":
        start = {key: value for key, value in whole.items() if key not in ("oneOf", "anyOf")}
    assert compare(shape, start, whole, name) >= least


# ---------------------------------------------------------------- signals


ASKING = """
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
def test_signals_are_the_callers_again(
    number: str, before: str, status: int, said: list[str], tmp_path: Path
) -> None:
    """What was started is stopped; and the next question is answered."""
    started, slow = tmp_path / "started", tmp_path / "python"
    slow.write_text(
        f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}\nexec sleep 60\n", encoding="ascii"
    )
    slow.chmod(0o755)
    code = ASKING.format(started=str(started), number=number, before=before, python=str(slow))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.splitlines()) == (status, said), done.stderr
    until = time.monotonic() + 5
    while time.monotonic() < until and Path(f"/proc/{started.read_text().strip()}/stat").exists():
        state = Path(f"/proc/{started.read_text().strip()}/stat").read_text(encoding="ascii").split()[2]
        if state == "Z":
            break
        time.sleep(0.05)
    else:
        with pytest.raises(ProcessLookupError):
            os.kill(int(started.read_text()), 0)
