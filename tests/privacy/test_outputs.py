"""No planted secret is in anything that tfdoctor writes to be published, and ordinary lines stay as they are."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

import pytest

from cli.planner import Tfdoctor
from fleet.made import answer, with_value
from privacy.kinds import KINDS, PLAIN
from tfdoctor.cli.capture import look
from tfdoctor.compat import Compat
from tfdoctor.privacy.redactor import Redactor
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOST = "healthy-two-gpus"
LOG = PLAIN[1:4]
"""Lines of a log that has a cause."""


def make_recording(folder: Path, text: str) -> Path:
    """A recorded machine with a text in a variable that TensorFlow reads."""
    from recorded import HOSTS

    host = json.loads((HOSTS / HOST / "host.json").read_text(encoding="utf-8"))
    host["env"]["TF_XLA_FLAGS"] = text
    folder.mkdir()
    (folder / "host.json").write_text(json.dumps(host), encoding="utf-8")
    return folder


def documents() -> list[list[str]]:
    """Return all kinds in lists, no secret twice in a list: what was learned once is hidden everywhere."""
    lists: list[list[str]] = []
    for kind, (_, secret) in KINDS.items():
        for one in lists:
            if not any(secret in KINDS[other][1] or KINDS[other][1] in secret for other in one):
                one.append(kind)
                break
        else:
            lists.append([kind])
    return lists


def read_log_page(tfdoctor: Tfdoctor, folder: Path, text: str) -> Iterator[str]:
    (folder / "log").write_text("\n".join([*LOG, *text.split("\n"), *LOG]), encoding="utf-8")
    tfdoctor("diagnose", "--html", str(folder / "page.html"), str(folder / "log"))
    yield (folder / "page.html").read_text(encoding="utf-8")
    yield tfdoctor("diagnose", "--format", "github", str(folder / "log")).out


def read_machine_page(tfdoctor: Tfdoctor, folder: Path, text: str) -> Iterator[str]:
    bundle = make_recording(folder / "bundle", text)
    tfdoctor("check", "--html", str(folder / "page.html"), "--facts", str(bundle))
    yield (folder / "page.html").read_text(encoding="utf-8")
    yield tfdoctor("report", "--facts", str(bundle)).out


def read_capture(_tfdoctor: Tfdoctor, folder: Path, text: str) -> Iterator[str]:
    system = RecordedSystem(make_recording(folder / "bundle", text))
    yield from map(
        bytes.decode, look(system, Compat.load(), python=None, timeout=60, local=False).files.values()
    )


def read_fleet(tfdoctor: Tfdoctor, folder: Path, text: str) -> Iterator[str]:
    (folder / "fleet").mkdir()
    for number in range(3):
        made = answer(HOST, number)
        if number == 2:
            made = with_value(made, "variables", "TF_XLA_FLAGS", text)
            made["verdict"] = {**made["verdict"], "summary": text}
        (folder / "fleet" / f"h{number}.json").write_text(json.dumps(made), encoding="utf-8")
    yield tfdoctor(
        "fleet", "report", str(folder / "fleet"), "--json", "--html", str(folder / "page.html")
    ).out
    yield (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.few(2)
@pytest.mark.parametrize("read", [read_log_page, read_machine_page, read_capture, read_fleet])
def test_no_planted_secret_is_published(
    read: Callable[[Tfdoctor, Path, str], Iterator[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(KINDS) >= 78
    survived = []
    for number, kinds in enumerate(documents()):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = "\n".join(KINDS[kind][0].format(KINDS[kind][1]) for kind in kinds)
        for output in read(Tfdoctor(monkeypatch, capsys), folder, text):
            for kind in kinds:
                secret = KINDS[kind][1]
                spellings = {secret, html.escape(secret), json.dumps(secret)[1:-1]}
                survived += [kind] if any(spelling in output for spelling in spellings) else []
    assert survived == []


def test_ordinary_lines_stay() -> None:
    assert len(PLAIN) >= 60
    changed = Redactor().texts(PLAIN)
    assert [line for line in PLAIN if changed[line] != line or Redactor().text(line) != line] == []
