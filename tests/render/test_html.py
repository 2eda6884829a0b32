"""HTML pages: complete, small, without external resources, and safe from injected text."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from recorded import FOLDERS, HOSTS, load_report
from tfdoctor.cli.check import check
from tfdoctor.cli.diagnose import diagnose
from tfdoctor.cli.verify import verify
from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.core.findings import Cause, Evidence, Severity, Simulation, Stage, Status, Verification
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.diagnosis.dependency_chain import LINK_NAMES, make_chain
from tfdoctor.diagnosis.library_search import FileOutcome, list_library_searches
from tfdoctor.logs.excerpt import END_LINES, MAX_WHOLE_LINES, make_excerpt
from tfdoctor.logs.report import diagnose_log
from tfdoctor.render.html.check import make_report_html
from tfdoctor.render.html.document import embed_json
from tfdoctor.render.html.log import make_logs_html
from tfdoctor.render.html.verify import make_verification_html

if TYPE_CHECKING:
    from pathlib import Path

MAX_PAGE_BYTES = 300_000
"""Size limit of a report, so that it fits into an e-mail."""
USER = "alice"
HOSTILE = '</script></style><img src=x onerror="alert(1)">\x1b[31m\u202e{{7*7}}{% raw %}'


class Elements(HTMLParser):
    """The elements of a page with their attributes; fails if an element is not closed in order."""

    VOID = frozenset({"meta", "input", "br", "img", "link"})

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page.decode("utf-8"))
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def check_page(page: bytes, *, pictures: int = 0) -> Elements:
    """Check that a page loads nothing, runs only what its policy names and has unique ids; return its elements.

    The number of images must be `pictures`, each from a data: URL.
    """
    elements = Elements(page)
    text = page.decode("utf-8")
    policy = next(
        a["content"] or "" for tag, a in elements.found if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert ("img-src data:" in policy) == bool(pictures)
    for body in re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", text, re.S):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    ids = [a["id"] for _, a in elements.found if "id" in a]
    assert len(ids) == len(set(ids))
    images = [attributes for tag, attributes in elements.found if tag == "img"]
    assert len(images) == pictures
    for tag, attributes in elements.found:
        if tag == "img":
            assert (attributes["src"] or "").startswith("data:image/svg+xml;base64,")
            assert attributes["alt"]
            assert set(attributes) <= {"src", "alt", "class"}
            continue
        assert tag not in {"iframe", "link", "object", "embed", "base"}
        assert not {"style", "src", "srcset"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
        link = attributes.get("href")
        assert link is None or (link.startswith("#") and link[1:] in [*ids, ""]), link
    return elements


def make_page(folder: Path) -> bytes:
    return make_report_html(load_report(folder), check_command="tfdoctor check")


def test_machines_have_a_page_with_their_verdict() -> None:
    for folder in FOLDERS[::4]:
        page, report = make_page(folder), load_report(folder)
        assert len(page) < MAX_PAGE_BYTES
        text = " ".join(" ".join(check_page(page).texts).split())
        assert " ".join(report.verdict.headline.split()) in text
        assert [finding.code for finding in report.findings if finding.code not in text] == []


def test_chain_breaks_at_the_root_cause() -> None:
    for folder in FOLDERS:
        report = load_report(folder)
        links = make_chain(report)
        assert [link.name for link in links] == list(LINK_NAMES)
        broken = [link for link in links if link.is_broken]
        root = report.root_finding
        assert len(broken) == (root is not None and root.severity is Severity.ERROR), folder.name
        assert all(link.status is Status.BAD for link in broken)
        if report.verdict.gpu_usable:
            assert not [link.name for link in links if link.status is Status.BAD]


@pytest.mark.parametrize(
    ("host", "joint"),
    [
        ("no-card-no-driver", "Card"),
        ("kernel-module-not-loaded", "Kernel module"),
        ("updated-without-restart", "User-space driver"),
        ("container-without-gpu", "Container runtime"),
        ("plain-pip-install", "CUDA libraries"),
        ("cudnn-of-an-older-minor", "cuDNN"),
        ("part-of-cudnn-cut-short", "Loader"),
        ("other-numpy", "TensorFlow"),
        ("python-hangs", "Python"),
    ],
)
def test_each_link_can_break(host: str, joint: str) -> None:
    assert [link.name for link in make_chain(load_report(HOSTS / host)) if link.is_broken] == [joint]


def collect_fates(host: str) -> dict[str, set[FileOutcome]]:
    return {
        search.soname: {file.outcome for file in search.files}
        for search in list_library_searches(load_report(HOSTS / host).facts)
    }


def test_library_search_shows_the_fate_of_each_file() -> None:
    assert collect_fates("healthy-one-gpu")["libcudart.so.12"] == {FileOutcome.OPENED}
    assert collect_fates("stub-before-the-driver")["libcuda.so.1"] >= {FileOutcome.OPENED, FileOutcome.HIDDEN}
    assert FileOutcome.OTHER_VERSION in collect_fates("two-other-cudas")["libcudart.so.12"]
    assert FileOutcome.UNUSABLE in {
        fate for file_fates in collect_fates("noexec").values() for fate in file_fates
    }
    assert collect_fates("plain-pip-install")["libcudart.so.12"] == set()


def test_files_outside_the_search_path_are_listed() -> None:
    facts = load_report(HOSTS / "libcuda-where-nobody-looks").facts
    files = [candidate for search in list_library_searches(facts) for candidate in search.files]
    loader = facts.loader.value  # type: ignore[union-attr]
    assert len(files) >= len(loader.resolutions) - 2


def make_hostile_page(folder: Path) -> bytes:
    """Return a page in which every text of a report is hostile."""
    machine_report = load_report(folder)
    root = dataclasses.replace(
        machine_report.findings[0],
        title=HOSTILE,
        explanation=HOSTILE,
        evidence=(Evidence(HOSTILE, HOSTILE, 3),),
        remedies=tuple(
            dataclasses.replace(remedy, text=HOSTILE, commands=(HOSTILE,))
            for remedy in machine_report.findings[0].remedies
        ),
    )
    verdict = dataclasses.replace(machine_report.verdict, headline=HOSTILE, summary=HOSTILE)
    variables = dataclasses.replace(machine_report.facts.environment, variables={HOSTILE: HOSTILE})
    facts = dataclasses.replace(machine_report.facts, environment=variables)
    changed = dataclasses.replace(
        machine_report,
        findings=(root, *machine_report.findings[1:]),
        root_finding=root,
        verdict=verdict,
        facts=facts,
    )
    return make_report_html(changed, check_command=HOSTILE, fix_command=HOSTILE, differences=(HOSTILE,))


def test_hostile_text_is_escaped() -> None:
    page = make_hostile_page(HOSTS / "plain-pip-install")
    elements = check_page(page)
    text = " ".join(elements.texts)
    assert '<img src=x onerror="alert(1)">' in text
    assert "{{7*7}}" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_embedded_json_cannot_end_its_element() -> None:
    text = embed_json({"name": "</script><!--&\u2028é"})
    assert not set(text) & set("<>&\u2028é")
    assert json.loads(text) == {"name": "</script><!--&\u2028é"}


def test_check_writes_a_page_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.html"
    assert check(recording_path=HOSTS / "plain-pip-install", html=target) == 1
    assert "as a page" in capsys.readouterr().err
    check_page(target.read_bytes())
    with pytest.raises(UsageError, match="exists"):
        check(recording_path=HOSTS / "plain-pip-install", html=target)
    check(recording_path=HOSTS / "plain-pip-install", html=target, force=True, quiet=True)
    assert capsys.readouterr().err == ""
    with pytest.raises(UsageError, match="--fix"):
        check(html=tmp_path / "other.html", then_fix=True)


def test_page_contains_no_user_name(tmp_path: Path) -> None:
    home = f"/home/{USER}/tf"
    machine = tmp_path / "machine"
    machine.mkdir()
    recorded = (HOSTS / "plain-pip-install" / "host.json").read_text(encoding="utf-8")
    assert "/srv/tf" in recorded
    (machine / "host.json").write_text(recorded.replace("/srv/tf", home), encoding="utf-8")
    check(recording_path=machine, html=tmp_path / "page.html", quiet=True)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert USER not in page
    assert "home/user/tf" in page


# ---------------------------------------------------------------- logs

LOG_LINE = (
    "2024-01-01 00:00:00.000000: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2251] Cannot dlopen some GPU "
    "libraries. Please make sure the missing libraries mentioned above are installed properly"
)
LOG = f"{LOG_LINE}\nSkipping registering GPU devices...\n"


def log_page(text: str, redactor: Redactor | None = None) -> bytes:
    log_report = diagnose_log([text.encode()], Compat.load(), "train.log")
    return make_logs_html([(log_report, make_excerpt([text.encode()], log_report))], redactor or Redactor())


def test_deciding_lines_of_a_log_are_marked() -> None:
    page = log_page(f"first\n{LOG}last\n")
    elements = check_page(page)
    hits = [a["id"] for tag, a in elements.found if tag == "li" and a.get("class") == "hit"]
    assert hits
    assert set(hits) <= {"L2", "L3"}
    text = " ".join(elements.texts)
    assert "Cannot dlopen" in text


def test_output_of_the_user_program_is_hidden() -> None:
    tensorflow_line = (
        "2024-01-01 00:00:00.000000: I tensorflow/core/util/port.cc:113] oneDNN custom operations are on."
    )
    trace = 'Traceback (most recent call last):\n  File "train.py", line 3\n    login("hunter2")\nValueError: no entry'
    text = " ".join(check_page(log_page(f"my words\n{tensorflow_line}\n{trace}\n{LOG}bye\n")).texts)
    for visible in ("oneDNN custom", 'File "train.py"', "ValueError: …", "Skipping registering"):
        assert visible in text
    for hidden in ("my words", "hunter2", "no entry", "bye"):
        assert hidden not in text


def test_long_log_is_cut_around_the_deciding_lines() -> None:
    noise = "".join(f"step {number} of alice@host.example.com\n" for number in range(30_000))
    text = f"{noise}{LOG}{noise}"
    log_report = diagnose_log([text.encode()], Compat.load(), "train.log")
    log_excerpt = make_excerpt(
        (text[offset : offset + 999].encode() for offset in range(0, len(text), 999)), log_report
    )
    shown_lines = sum(len(part.lines) for part in log_excerpt.parts)
    assert (
        shown_lines + sum(part.omitted_before for part in log_excerpt.parts) + log_excerpt.omitted_after
        == log_report.line_count
        == 60_002
    )
    assert shown_lines < 2 * END_LINES + 40 < MAX_WHOLE_LINES
    assert any(
        number == 30_001 and "Cannot dlopen" in line
        for part in log_excerpt.parts
        for number, line in part.lines
    )
    page = make_logs_html([(log_report, log_excerpt)], Redactor())
    assert len(page) < MAX_PAGE_BYTES
    assert b"alice" not in page
    check_page(page)


def test_last_state_of_an_overwritten_line_is_shown() -> None:
    text = f"10%\r50%\rNum GPUs: 0\n{LOG}"
    log_report = diagnose_log([text.encode()], Compat.load(), "train.log")
    assert dict(make_excerpt([text.encode()], log_report).parts[0].lines)[1] == "Num GPUs: 0"


def test_hostile_log_is_escaped() -> None:
    page = log_page(f"{LOG}NameError: {HOSTILE}\n")
    assert '<img src=x onerror="alert(1)">' in " ".join(check_page(page).texts)


def verify_page(folder: Path, detail: str = "", redactor: Redactor | None = None) -> bytes:
    """Return the page of an image whose driver stage fails with this machine's problem."""
    machine_report = load_report(folder)
    stages = (
        Stage("runtime", "passed", "a container starts with --gpus all", 0.5),
        Stage("driver", "failed", detail or "no device", 0.1),
        Stage("libraries", "skipped", "not tried: driver failed", 0.0),
    )
    simulation = Simulation("RTX 4090", ("RTX 4090",), ("8.9",), "580", "13.0", ("it starts",), ("speed",))
    verification = Verification(
        "an-image:latest",
        stages,
        1,
        0,
        0,
        Cause.NO_DEVICE,
        detail or machine_report.verdict.summary,
        machine_report.findings,
        simulated=simulation,
    )
    return make_verification_html(verification, redactor or Redactor())


def test_verification_page_is_escaped_and_redacted() -> None:
    page = verify_page(HOSTS / "no-such-uuid", f"/home/{USER}/x: {HOSTILE}", Redactor(users=(USER,)))
    assert not any(tag == "img" for tag, _ in check_page(page).found)
    assert USER.encode() not in page


def test_verify_writes_its_page_once(tmp_path: Path) -> None:
    target = tmp_path / "v.html"
    assert verify(python=sys.executable, stages="driver", html=target, quiet=True) in (0, 1)
    check_page(target.read_bytes())
    with pytest.raises(UsageError):
        verify(python=sys.executable, stages="driver", html=target, quiet=True)


def test_diagnose_writes_several_logs_to_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.log", "two.log"):
        (tmp_path / name).write_text(LOG, encoding="utf-8")
    target = tmp_path / "page.html"
    diagnose(files=[str(tmp_path / "one.log"), str(tmp_path / "two.log")], html=target)
    assert "as a page" in capsys.readouterr().err
    ids = {a["id"] for _, a in check_page(target.read_bytes()).found if "id" in a}
    assert {"L1", "2-L1"} <= ids
    with pytest.raises(UsageError, match="-f"):
        diagnose(files=["x"], html=tmp_path / "other.html", follow=True)
