"""Outputs of tfdoctor that are published: they have no planted secret, and ordinary lines are unchanged."""

from __future__ import annotations

import html
import json
import sys
from typing import TYPE_CHECKING

import pytest

from cli.planner import Tfdoctor
from core.privacy.kinds import KINDS, PLAIN
from extensions.fleet.made import answer, with_value
from tfdoctor.cli.capture import record_system
from tfdoctor.compat import Compat
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.system import LiveSystem, RecordedSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RECORDED_HOST = "healthy-two-gpus"
LOG_LINES = PLAIN[1:4]
"""Lines of a log for which a cause is found."""


def make_recording(folder: Path, text: str) -> Path:
    """Create a recording of a machine with this text in a variable that TensorFlow reads."""
    from recorded import HOSTS

    host = json.loads((HOSTS / RECORDED_HOST / "host.json").read_text(encoding="utf-8"))
    host["env"]["TF_XLA_FLAGS"] = text
    folder.mkdir()
    (folder / "host.json").write_text(json.dumps(host), encoding="utf-8")
    return folder


def group_kinds() -> list[list[str]]:
    """Return all kinds in groups without equal secrets, because a known secret is hidden everywhere."""
    groups: list[list[str]] = []
    for kind, (_, secret) in KINDS.items():
        for group in groups:
            if not any(secret in KINDS[other][1] or KINDS[other][1] in secret for other in group):
                group.append(kind)
                break
        else:
            groups.append([kind])
    return groups


def read_log_page(tfdoctor: Tfdoctor, folder: Path, text: str) -> Iterator[str]:
    (folder / "log").write_text("\n".join([*LOG_LINES, *text.split("\n"), *LOG_LINES]), encoding="utf-8")
    tfdoctor("diagnose", "--html", str(folder / "page.html"), str(folder / "log"))
    yield (folder / "page.html").read_text(encoding="utf-8")
    yield tfdoctor("diagnose", "--format", "github", str(folder / "log")).out


def read_machine_page(tfdoctor: Tfdoctor, folder: Path, text: str) -> Iterator[str]:
    bundle = make_recording(folder / "bundle", text)
    tfdoctor("check", "--html", str(folder / "page.html"), "--from", str(bundle))
    yield (folder / "page.html").read_text(encoding="utf-8")
    yield tfdoctor("report", "--from", str(bundle)).out


def read_capture(_tfdoctor: Tfdoctor, folder: Path, text: str) -> Iterator[str]:
    system = RecordedSystem(make_recording(folder / "bundle", text))
    yield from map(
        bytes.decode,
        record_system(system, Compat.load(), python=None, timeout=60, local=False).files.values(),
    )


def read_fleet(tfdoctor: Tfdoctor, folder: Path, text: str) -> Iterator[str]:
    (folder / "fleet").mkdir()
    for number in range(3):
        host_answer = answer(RECORDED_HOST, number)
        if number == 2:
            host_answer = with_value(host_answer, "variables", "TF_XLA_FLAGS", text)
            host_answer["verdict"] = {**host_answer["verdict"], "summary": text}
        (folder / "fleet" / f"h{number}.json").write_text(json.dumps(host_answer), encoding="utf-8")
    yield tfdoctor(
        "fleet", "report", str(folder / "fleet"), "--json", "--html", str(folder / "page.html")
    ).out
    yield (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.few(2)
@pytest.mark.parametrize("read", [read_log_page, read_machine_page, read_capture, read_fleet])
def test_no_planted_secret_is_in_the_output(
    read: Callable[[Tfdoctor, Path, str], Iterator[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(KINDS) >= 78
    survived = []
    for number, kinds in enumerate(group_kinds()):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = "\n".join(KINDS[kind][0].format(KINDS[kind][1]) for kind in kinds)
        for output in read(Tfdoctor(monkeypatch, capsys), folder, text):
            for kind in kinds:
                secret = KINDS[kind][1]
                spellings = {secret, html.escape(secret), json.dumps(secret)[1:-1]}
                survived += [kind] if any(spelling in output for spelling in spellings) else []
    assert survived == []


def test_ordinary_lines_are_not_redacted() -> None:
    assert len(PLAIN) >= 60
    changed = Redactor().redact_texts(PLAIN)
    assert [line for line in PLAIN if changed[line] != line or Redactor().text(line) != line] == []


def test_unknown_variables_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENCRYPTION_KEY", "hunter2Zq7")
    monkeypatch.setenv("NVIDIA_CUSTOMER", "mustermann")
    recording = record_system(LiveSystem(), Compat.load(), python=sys.executable, timeout=60, local=True)
    content = b"".join(recording.files.values())
    assert b"hunter2Zq7" not in content
    assert b"mustermann" not in content
