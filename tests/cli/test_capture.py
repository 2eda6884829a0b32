"""`tfdoctor capture` as a user runs it, and `check --from` of the bundle."""

from __future__ import annotations

import functools
import getpass
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tfdoctor.cli.capture import capture, record_system
from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.system import RecordedSystem, archive

ROOT = Path(__file__).parents[2]
HOSTS = sorted(path.parent for path in (ROOT / "tests" / "hosts").glob("*/host.json"))


def run(
    *args: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=120,
        check=False,
    )


def write_script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def make_report(*args: str, env: dict[str, str] | None = None) -> Any:
    """Return the answer of `check --json` without durations and with mapped files sorted, as their order varies."""
    answer = json.loads(run("check", "--json", "--fail-on", "never", *args, env=env).stdout)
    del answer["facts"]["seconds"]
    python_facts = answer["facts"]["python"].get("known")
    if python_facts:
        python_facts["mapped"] = sorted(python_facts["mapped"])
    return answer


def drop_home(answer: Any) -> Any:
    """Return the answer with user names replaced by `user`, as a capture replaces them."""
    text = json.dumps(answer)
    names = {getpass.getuser(), *re.findall(r"/(?:home|work|projects?|u)/([^/\"\s:]+)(?=/)", text)} - {"root"}
    for name in names:
        text = re.sub(rf"\b{re.escape(name)}\b", "user", text)
    return json.loads(text)


@functools.cache
def compat() -> Compat:
    return Compat.load()


@pytest.mark.few(3)
@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
def test_redaction_keeps_the_verdict(host: Path) -> None:
    captured = record_system(RecordedSystem(host), compat(), python=None, timeout=10, local=False)
    assert captured.differences == ()
    files = {name: content for name, content in captured.files.items() if name != archive.MANIFEST_FILE}
    second = record_system(RecordedSystem(files), compat(), python=None, timeout=10, local=False)
    assert {name: content for name, content in second.files.items() if name != archive.MANIFEST_FILE} == files


def test_capture_has_the_verdict_of_the_machine(tmp_path: Path) -> None:
    """Give the same verdict for the machine and its capture; only names are replaced, and none of them decides."""
    hanging = write_script(tmp_path / "nvidia-smi", "sleep 60")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "0", "HOME": "/nowhere"}
    target = tmp_path / "b.tar.gz"
    result = run("capture", "-o", str(target), "--python", sys.executable, "--timeout", "5", env=env)
    assert result.returncode == 0, result.stderr
    assert f"tfdoctor check --from {target}" in result.stdout
    live = drop_home(make_report("--python", sys.executable, "--timeout", "5", env=env))
    assert live["facts"]["driver"]["smi"]["known"]["kind"] == "timeout"
    hanging.unlink()
    recorded = drop_home(make_report("--from", str(target)))
    assert recorded["findings"] == live["findings"]
    assert recorded["outcomes"] == live["outcomes"]
    assert recorded["prediction"] == live["prediction"]
    assert recorded["verdict"] == live["verdict"]
    assert recorded["facts"]["driver"] == live["facts"]["driver"]


def test_json_follows_the_schema_and_the_manifest(tmp_path: Path) -> None:
    result = run("capture", "--json", "-o", "x.tar.gz", cwd=tmp_path)
    answer = json.loads(result.stdout)
    schema = json.loads((ROOT / "docs/schemas/capture.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(answer)
    assert answer["judged"]["differs_from_the_machine"] == []
    assert answer["bundle"]["bytes"] == (tmp_path / "x.tar.gz").stat().st_size < 1 << 20
    manifest = json.loads(archive.read_recording(tmp_path / "x.tar.gz")["manifest.json"])
    assert manifest["looked_at"]["commands"]["payload:target"] == "exit status 0"
    assert len(manifest["captured_on"]) == len("2026-01-31")
    assert manifest["replaced"] == answer["replaced"]


def test_default_file_name_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("capture", cwd=tmp_path)
    (bundle,) = tmp_path.iterdir()
    assert bundle.name.startswith("tfdoctor-2")
    assert bundle.name.endswith(".tar.gz")
    assert bundle.name in result.stdout
    assert "Inspect it before you send it" in result.stdout
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="exists"):
        capture(output=None, python=None, timeout=10, force=False, as_json=False)


def test_invalid_requests_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").touch()
    (tmp_path / "mine.tar.gz").write_bytes(b"data")
    monkeypatch.chdir(tmp_path)
    for name in ("", "/", "/nowhere/x.tar.gz", "x.zip", "mine", "mine.tar.gz", "/dev/null"):
        with pytest.raises(UsageError):
            capture(output=Path(name), python=None, timeout=10, force=True, as_json=False)
    with pytest.raises(UsageError):
        capture(output=Path("x"), python="/nowhere/python", timeout=10, force=True, as_json=False)
    result = run("capture", "-o", "mine", "--force", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("tfdoctor: -o: mine exists")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.tar.gz"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    assert run("capture", "-o", str(tmp_path / "closed/x.tar.gz")).returncode == 3


def test_interrupt_leaves_no_bundle(tmp_path: Path) -> None:
    hanging = write_script(tmp_path / "python", f"echo started > {tmp_path}/started; sleep 60")
    command = [sys.executable, "-m", "tfdoctor", "capture", "-o", str(tmp_path / "x.tar.gz")]
    with subprocess.Popen(
        [*command, "--python", str(hanging), "--timeout", "50"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        try:
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, stderr) == (130, b"Interrupted.\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["python", "started"]
