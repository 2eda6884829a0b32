"""A capture of a machine full of secrets contains none of them and gives the same report as the machine."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.cli.capture import RedactedRecording, record_system
from tfdoctor.compat import Compat
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.probes.ldcache import parse_ldcache
from tfdoctor.render.finding import make_finding_json
from tfdoctor.render.report_markdown import make_report_markdown
from tfdoctor.system import RecordedSystem, RecordingSystem, archive, bundle

sys.path.insert(0, str(Path(__file__).parent))
import planted

if TYPE_CHECKING:
    from tfdoctor.core.findings import Report

HOST = Path(__file__).parents[1] / "hosts" / "healthy-one-gpu"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the planted machine runs Linux")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the machine with the planted secrets."""
    return planted.build_machine(tmp_path_factory.mktemp("planted"), HOST)


@pytest.fixture(scope="module")
def live(machine: Any) -> Report:
    """Return the report about the live machine."""
    return diagnose(run_probes(machine, Compat.load(), timeout=60), Compat.load())


@pytest.fixture(scope="module")
def captured(machine: Any) -> RedactedRecording:
    """Return the capture of the machine."""
    return record_system(machine, Compat.load(), python=None, timeout=60, local=False)


def find_leaks(content: bytes) -> list[str]:
    """Return the kinds of secrets that `content` contains."""
    lowered = content.lower()
    return [
        kind
        for kind, value in planted.SECRETS.items()
        if value.encode() in content
        or value.lower().encode() in lowered
        or _has_other_spelling(value, lowered)
    ]


def _has_other_spelling(value: str, lowered: bytes) -> bool:
    """Return whether `lowered` contains the value in another spelling, e.g. with JSON escapes."""
    spellings = {
        json.dumps(value)[1:-1],
        value.replace("-", ""),
        value.replace("_", "-"),
        value.replace(":", "-"),
    }
    return any(spelling.lower().encode() in lowered for spelling in spellings)


def test_probes_read_at_least_fifty_secrets(machine: Any, live: Report) -> None:
    """A secret that no probe reads proves nothing."""
    assert len(planted.SECRETS) >= 50
    assert len(set(planted.SECRETS.values())) == len(planted.SECRETS)
    recording = RecordingSystem(machine)
    run_probes(recording, Compat.load(), timeout=60)
    files = bundle.build_recording_files(
        recording.get_recording(lambda name: name.startswith(("TF_", "NCCL_", "NVIDIA_", "CUDA_", "XLA_")))
    )
    read_kinds = {
        kind for name, content in files.items() for kind in find_leaks(name.encode() + b"\0" + content)
    }
    assert len(read_kinds) >= 50, sorted(set(planted.SECRETS) - read_kinds)
    assert live.prediction.gpu_registered is not None


def test_capture_contains_no_secret(captured: RedactedRecording, tmp_path: Path) -> None:
    for name, content in captured.files.items():
        assert not find_leaks(name.encode()), name
        assert not find_leaks(content), name
    archive.write_recording(tmp_path / "b.tar.gz", captured.files, force=False)
    assert not find_leaks(gzip.decompress((tmp_path / "b.tar.gz").read_bytes()))
    archive.write_recording(tmp_path / "b", captured.files, force=False)
    for path in (tmp_path / "b").rglob("*"):
        assert not find_leaks(str(path.relative_to(tmp_path)).encode())
        assert path.is_dir() or not find_leaks(path.read_bytes()), path
    assert not find_leaks(make_report_markdown(captured.recording_report).encode())


def test_capture_gives_the_same_report(captured: RedactedRecording, live: Report, tmp_path: Path) -> None:
    assert captured.differences == ()
    redactor = captured.redactor
    expected = [redactor.json(make_finding_json(finding)) for finding in live.findings]
    archive.write_recording(tmp_path / "b.tar.gz", captured.files, force=False)
    archive.write_recording(tmp_path / "b", captured.files, force=False)
    for name in ("b.tar.gz", "b"):
        recorded = RecordedSystem(tmp_path / name)
        report = diagnose(run_probes(recorded, Compat.load()), Compat.load())
        assert [make_finding_json(finding) for finding in report.findings] == expected
        assert [(outcome.code, outcome.kind) for outcome in report.outcomes] == [
            (outcome.code, outcome.kind) for outcome in live.outcomes
        ]
        assert report.prediction.gpu_registered == live.prediction.gpu_registered
        assert report.verdict.cause == live.verdict.cause


def test_equal_values_stay_equal_after_redaction(captured: RedactedRecording) -> None:
    host = json.loads(captured.files["host.json"])
    visible_devices = host["env"]["CUDA_VISIBLE_DEVICES"]
    smi = next(content for name, content in captured.files.items() if "nvidia-smi" in name).decode()
    assert visible_devices.removeprefix("GPU-") in smi
    assert f"/home/{captured.redactor(planted.USER)}/lib" in host["env"]["LD_LIBRARY_PATH"]
    assert "550.54.14" in smi
    target = next(content for name, content in captured.files.items() if "payload-target" in name).decode()
    assert "9.3.0.75" in target
    assert "10.3.6.82" in target
    entries = parse_ldcache(captured.files["root/etc/ld.so.cache"])
    assert [entry.soname for entry in entries] == ["libz.so.1", "libm.so.9"]
    assert entries[0].path.startswith("/home/user")


def test_capture_contains_only_variables_that_were_read(captured: RedactedRecording) -> None:
    names = set(json.loads(captured.files["host.json"])["env"])
    assert not names & {
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "HTTP_PROXY",
        "USER",
        "HOSTNAME",
        "POD_NAME",
        "POD_NAMESPACE",
        "SLURM_JOB_ACCOUNT",
    }
    assert {"PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TF_CONFIG", "SLURM_JOB_ID"} <= names
