"""Pages: whole, small, without anything that is fetched, and nothing from outside gets out of its place."""

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

from recorded import FOLDERS, HOSTS, report
from tfdoctor.cli.check import check
from tfdoctor.cli.diagnose import diagnose
from tfdoctor.cli.verify import verify
from tfdoctor.compat import Compat
from tfdoctor.errors import UsageError
from tfdoctor.findings import Cause, Evidence, Severity, Simulation, Stage, Status, Verification
from tfdoctor.logs.excerpt import ENDS, MAX_WHOLE_LINES, excerpt
from tfdoctor.logs.report import diagnose_log
from tfdoctor.privacy.redactor import Redactor
from tfdoctor.render.html.check import report_html
from tfdoctor.render.html.document import embed_json
from tfdoctor.render.html.log import logs_html
from tfdoctor.render.html.verify import verification_html
from tfdoctor.report.dependency_chain import JOINTS, make_chain
from tfdoctor.report.library_search import Fate, list_searches

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 300_000
"""Bytes of a report: what a mail takes."""
USER = "alice"
HOSTILE = '</script></style><img src=x onerror="alert(1)">\x1b[31m\u202e{{7*7}}{% raw %}'


class Elements(HTMLParser):
    """Every element of a page with its attributes; what is not closed in order raises."""

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


def run_check(page: bytes, *, pictures: int = 0) -> Elements:
    """A page that fetches nothing, runs only what its policy names, and has every id once; pictures: data: alone."""
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


def page_of(folder: Path) -> bytes:
    return report_html(report(folder), typed="tfdoctor check")


@pytest.mark.few(12)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_machine_has_a_page_with_its_verdict(folder: Path) -> None:
    page = page_of(folder)
    assert len(page) < LARGEST
    text = " ".join(run_check(page).texts)
    found = report(folder)
    assert " ".join(found.verdict.headline.split()) in " ".join(text.split())
    for finding in found.findings:
        assert finding.code in text


@pytest.mark.few(12)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_chain_breaks_where_the_root_cause_is(folder: Path) -> None:
    found = report(folder)
    joints = make_chain(found)
    assert [one.name for one in joints] == list(JOINTS)
    broken = [one for one in joints if one.broken]
    wanted = found.root is not None and found.root.severity is Severity.ERROR
    assert len(broken) == wanted
    assert all(one.status is Status.BAD for one in broken)
    if found.verdict.gpu_usable:
        assert not [one.name for one in joints if one.status is Status.BAD]


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
def test_each_joint_can_break(host: str, joint: str) -> None:
    assert [one.name for one in make_chain(report(HOSTS / host)) if one.broken] == [joint]


def fates(host: str) -> dict[str, set[Fate]]:
    return {
        one.soname: {file.fate for file in one.files} for one in list_searches(report(HOSTS / host).facts)
    }


def test_the_search_of_a_library_tells_what_became_of_each_file() -> None:
    assert fates("healthy-one-gpu")["libcudart.so.12"] == {Fate.OPENED}
    assert fates("stub-before-the-driver")["libcuda.so.1"] >= {Fate.OPENED, Fate.HIDDEN}
    assert Fate.OTHER_VERSION in fates("two-other-cudas")["libcudart.so.12"]
    assert Fate.UNUSABLE in {one for found in fates("noexec").values() for one in found}
    assert fates("plain-pip-install")["libcudart.so.12"] == set()


def test_what_is_there_and_not_looked_at_is_said() -> None:
    facts = report(HOSTS / "libcuda-where-nobody-looks").facts
    every = [file for one in list_searches(facts) for file in one.files]
    loader = facts.loader.value  # type: ignore[union-attr]
    assert len(every) >= len(loader.resolutions) - 2


def hostile(folder: Path) -> bytes:
    found = report(folder)
    root = dataclasses.replace(
        found.findings[0],
        title=HOSTILE,
        explanation=HOSTILE,
        evidence=(Evidence(HOSTILE, HOSTILE, 3),),
        remedies=tuple(
            dataclasses.replace(one, text=HOSTILE, commands=(HOSTILE,)) for one in found.findings[0].remedies
        ),
    )
    verdict = dataclasses.replace(found.verdict, headline=HOSTILE, summary=HOSTILE)
    variables = dataclasses.replace(found.facts.environment, variables={HOSTILE: HOSTILE})
    facts = dataclasses.replace(found.facts, environment=variables)
    changed = dataclasses.replace(
        found, findings=(root, *found.findings[1:]), root=root, verdict=verdict, facts=facts
    )
    return report_html(changed, typed=HOSTILE, fix=HOSTILE, differences=(HOSTILE,))


def test_hostile_text_stays_text() -> None:
    page = hostile(HOSTS / "plain-pip-install")
    elements = run_check(page)
    text = " ".join(elements.texts)
    assert '<img src=x onerror="alert(1)">' in text
    assert "{{7*7}}" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_data_cannot_end_its_element() -> None:
    text = embed_json({"name": "</script><!--&\u2028é"})
    assert not set(text) & set("<>&\u2028é")
    assert json.loads(text) == {"name": "</script><!--&\u2028é"}


def test_check_writes_what_is_redacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.html"
    assert check(facts=HOSTS / "plain-pip-install", html=target) == 1
    assert "as a page" in capsys.readouterr().err
    run_check(target.read_bytes())
    with pytest.raises(UsageError, match="exists"):
        check(facts=HOSTS / "plain-pip-install", html=target)
    check(facts=HOSTS / "plain-pip-install", html=target, force=True, quiet=True)
    assert capsys.readouterr().err == ""
    with pytest.raises(UsageError, match="--fix"):
        check(html=tmp_path / "other.html", then_fix=True)


def test_the_page_tells_nobodys_name(tmp_path: Path) -> None:
    home = f"/home/{USER}/tf"
    machine = tmp_path / "machine"
    machine.mkdir()
    recorded = (HOSTS / "plain-pip-install" / "host.json").read_text(encoding="utf-8")
    assert "/srv/tf" in recorded
    (machine / "host.json").write_text(recorded.replace("/srv/tf", home), encoding="utf-8")
    check(facts=machine, html=tmp_path / "page.html", quiet=True)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert USER not in page
    assert "home/user/tf" in page


# ---------------------------------------------------------------- logs

SAID = (
    "2024-01-01 00:00:00.000000: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2251] Cannot dlopen some GPU "
    "libraries. Please make sure the missing libraries mentioned above are installed properly"
)
LOG = f"{SAID}\nSkipping registering GPU devices...\n"


def log_page(text: str, redactor: Redactor | None = None) -> bytes:
    found = diagnose_log([text.encode()], Compat.load(), "train.log")
    return logs_html([(found, excerpt([text.encode()], found))], redactor or Redactor())


def test_a_log_has_its_deciding_lines_marked() -> None:
    page = log_page(f"first\n{LOG}last\n")
    elements = run_check(page)
    hits = [a["id"] for tag, a in elements.found if tag == "li" and a.get("class") == "hit"]
    assert hits
    assert set(hits) <= {"L2", "L3"}
    text = " ".join(elements.texts)
    assert "Cannot dlopen" in text


def test_what_the_program_itself_prints_is_not_shown() -> None:
    known = "2024-01-01 00:00:00.000000: I tensorflow/core/util/port.cc:113] oneDNN custom operations are on."
    trace = (
        'Traceback (most recent call last):\n  File "train.py", line 3\n    login("hunter2")\nValueError: no'
    )
    text = " ".join(run_check(log_page(f"my words\n{known}\n{trace}\n{LOG}bye\n")).texts)
    for shown in ("oneDNN custom", 'File "train.py"', "ValueError: no", "Skipping registering"):
        assert shown in text
    for hidden in ("my words", "hunter2", "bye"):
        assert hidden not in text


def test_a_long_log_keeps_what_decided_and_counts_the_rest() -> None:
    around = "".join(f"step {number} of alice@host.example.com\n" for number in range(30_000))
    text = f"{around}{LOG}{around}"
    found = diagnose_log([text.encode()], Compat.load(), "train.log")
    kept = excerpt((text[at : at + 999].encode() for at in range(0, len(text), 999)), found)
    shown = sum(len(part.lines) for part in kept.parts)
    assert shown + sum(part.missing for part in kept.parts) + kept.after == found.lines == 60_002
    assert shown < 2 * ENDS + 40 < MAX_WHOLE_LINES
    assert any(
        number == 30_001 and "Cannot dlopen" in line for part in kept.parts for number, line in part.lines
    )
    page = logs_html([(found, kept)], Redactor())
    assert len(page) < LARGEST
    assert b"alice" not in page
    run_check(page)


def test_of_a_line_that_was_written_over_the_last_state_is_shown() -> None:
    text = f"10%\r50%\rNum GPUs: 0\n{LOG}"
    found = diagnose_log([text.encode()], Compat.load(), "train.log")
    assert dict(excerpt([text.encode()], found).parts[0].lines)[1] == "Num GPUs: 0"


def test_a_hostile_log_stays_text() -> None:
    page = log_page(f"{LOG}ValueError: {HOSTILE}\n")
    assert '<img src=x onerror="alert(1)">' in " ".join(run_check(page).texts)


def verify_page(folder: Path, detail: str = "", redactor: Redactor | None = None) -> bytes:
    """The page of an image in which what is wrong on this machine fails at the driver."""
    found = report(folder)
    stages = (
        Stage("runtime", "passed", "a container starts with --gpus all", 0.5),
        Stage("driver", "failed", detail or "no device", 0.1),
        Stage("libraries", "skipped", "not tried: driver failed", 0.0),
    )
    shown = Simulation("RTX 4090", ("RTX 4090",), ("8.9",), "580", "13.0", ("it starts",), ("speed",))
    done = Verification(
        "an-image:latest",
        stages,
        1,
        0,
        0,
        Cause.NO_DEVICE,
        detail or found.verdict.summary,
        found.findings,
        simulated=shown,
    )
    return verification_html(done, redactor or Redactor())


def test_a_verification_has_its_stages_and_the_one_that_failed() -> None:
    elements = run_check(verify_page(HOSTS / "no-such-uuid"))
    joints = [
        attributes["class"] for tag, attributes in elements.found if tag == "li" and attributes.get("class")
    ]
    assert joints == ["joint good", "joint bad broken", "joint unknown"]
    text = " ".join(elements.texts)
    assert "Simulated: no GPU was used" in text
    assert "not tried: driver failed" in text


def test_a_verification_stays_text_and_tells_nobodys_name() -> None:
    page = verify_page(HOSTS / "no-such-uuid", f"/home/{USER}/x: {HOSTILE}", Redactor(users=(USER,)))
    assert not any(tag == "img" for tag, _ in run_check(page).found)
    assert USER.encode() not in page


def test_verify_writes_its_page(tmp_path: Path) -> None:
    target = tmp_path / "v.html"
    assert verify(python=sys.executable, stages="driver", html=target, quiet=True) in (0, 1)
    run_check(target.read_bytes())
    with pytest.raises(UsageError):
        verify(python=sys.executable, stages="driver", html=target, quiet=True)


def test_diagnose_writes_several_logs_on_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.log", "two.log"):
        (tmp_path / name).write_text(LOG, encoding="utf-8")
    target = tmp_path / "page.html"
    diagnose(files=[str(tmp_path / "one.log"), str(tmp_path / "two.log")], html=target)
    assert "as a page" in capsys.readouterr().err
    ids = {a["id"] for _, a in run_check(target.read_bytes()).found if "id" in a}
    assert {"L1", "2-L1"} <= ids
    with pytest.raises(UsageError, match="-f"):
        diagnose(files=["x"], html=tmp_path / "other.html", follow=True)
