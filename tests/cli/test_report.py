"""`tfdoctor report`: complete, redacted Markdown that no content can break."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.planner import call_tfdoctor
from tfdoctor.cli.capture import record_system
from tfdoctor.cli.report import report
from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.core.findings import Evidence, Report
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.render.markdown import escape_prose, fence_lines, format_code_span
from tfdoctor.render.report_markdown import MAX_COMMENT_CHARS, make_report_markdown
from tfdoctor.system import RecordedSystem

HOSTS = Path(__file__).parents[1] / "hosts"


run = functools.partial(call_tfdoctor, "report")


def make_report(name: str) -> Report:
    compat = Compat.load()
    return diagnose(run_probes(RecordedSystem(HOSTS / name), compat), compat)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "folder", sorted(p.parent for p in HOSTS.glob("*/host.json"))[::6], ids=lambda p: p.name
)
def test_report_of_every_recording(folder: Path) -> None:
    compat = Compat.load()
    text = make_report_markdown(
        record_system(RecordedSystem(folder), compat, python=None, timeout=10, local=False).recording_report
    )
    assert text.startswith("**")
    assert len(text) <= MAX_COMMENT_CHARS
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text) is None


def test_long_report_is_truncated() -> None:
    host_report = make_report("container-without-gpu")
    variables = {f"TF_VARIABLE_{number}": "x" * 300 for number in range(1000)}
    facts = dataclasses.replace(
        host_report.facts, environment=dataclasses.replace(host_report.facts.environment, variables=variables)
    )
    text = make_report_markdown(dataclasses.replace(host_report, facts=facts))
    assert len(text) <= MAX_COMMENT_CHARS
    assert "more lines were cut" in text
    assert text.count("<details>") == text.count("</details>") > 0
    assert "Made by `tfdoctor report`" in text
    assert "`tensorflow`" in text


def test_hostile_text_is_escaped() -> None:
    host_report = make_report("container-without-gpu")
    hostile = "````\n</details>\x1b[31m @somebody #1 <img src=x> | `x` \u202e"
    findings = tuple(
        dataclasses.replace(f, title=hostile, explanation=hostile, evidence=(Evidence(hostile, hostile),))
        for f in host_report.findings
    )
    text = make_report_markdown(dataclasses.replace(host_report, findings=findings))
    outside, open_fence = [], ""
    for line in text.split("\n"):
        fence = re.match(r"`{3,}", line)
        if not open_fence and fence:
            open_fence = fence[0]
        elif open_fence and line == open_fence:
            open_fence = ""
        elif not open_fence:
            outside.append(line)
    assert not open_fence
    unquoted = re.sub(r"`[^`\n]*`", "", "\n".join(outside))
    assert unquoted.count("</details>") == unquoted.count("<details>")
    assert not re.search(r"<img|@somebody|#1\b|\x1b|\u202e", unquoted)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_quoted(text: str) -> None:
    assert format_code_span(text).count("`") in (0, 2)
    assert re.search(r"(?<!\\)\|", format_code_span(text)) is None
    assert not re.search(r"[<>](?!!--|--)|\n", escape_prose(text).replace("<!-- -->", ""))
    lines = fence_lines([text])
    assert lines[0].removesuffix("text") == lines[-1]
    assert not any(line.strip() == lines[-1] for line in lines[1:-1])


def test_output_file(tmp_path: Path) -> None:
    target, recording = tmp_path / "r.md", HOSTS / "healthy-one-gpu"

    def write(output: Path, recording: Path = recording, *, force: bool = False) -> int:
        return report(recording_path=recording, python=None, output=output, timeout=10, force=force)

    assert write(target) == 0
    assert target.read_text(encoding="utf-8").startswith("**TensorFlow")
    assert write(target, force=True) == 0
    for output, recording_folder in (
        (target, recording),
        (tmp_path, recording),
        (tmp_path / "no/r.md", recording),
        (tmp_path / "s", tmp_path),
    ):
        with pytest.raises(UsageError):
            write(output, recording_folder)
    assert [path.name for path in tmp_path.iterdir()] == ["r.md"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk_is_an_error() -> None:
    result = run("--from", str(HOSTS / "healthy-one-gpu"), "-o", "/dev/full")
    assert result.status == 3
    assert "No space left" in result.err
