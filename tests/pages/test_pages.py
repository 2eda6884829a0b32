"""The examples of the documentation are current: every `console` block is run and compared, and pictures are fresh.

`pytest tests/pages --refresh` rewrites the blocks and docs/pictures. The commands of a block run in a folder that has
the checkout's `tests` and a `train.log`: the page's first `text` block, which is the log that people paste.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat.every_row import for_each
from tfdoctor.cli.explain import load_documentation
from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.core.findings import Cause
from tfdoctor.core.versions import major_minor
from tfdoctor.diagnosis.explain import SITUATION_PAGES, find_entries
from tfdoctor.logs.report import diagnose_log
from tfdoctor.system.archive import DEMOS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


def run_page_command(command: str, folder: Path) -> str:
    """Return what a command of a page prints on both streams at 80 columns."""
    program, *arguments = command.split(" ", 1)
    assert program in {"tfdoctor", "./scripts/tfdoctor"}, command
    environment = {
        name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "NO_COLOR"}
    } | {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "TFDOCTOR_CALLED": "tfdoctor"}
    result = subprocess.run(
        ["/bin/sh", "-c", " ".join(['"$0" -m tfdoctor', *arguments]), sys.executable],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode in {0, 1}, result.stdout
    return "\n".join(line.rstrip() for line in result.stdout.splitlines()) + "\n"


def refresh_blocks(page: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each `console` block of a page and the same block with the current output."""
    log_text = next((match["text"] for match in FENCE.finditer(page) if match["kind"] == "text"), "")
    (folder / "train.log").write_text(log_text, encoding="utf-8")
    (folder / "tests").symlink_to(ROOT / "tests")
    for match in FENCE.finditer(page):
        if match["kind"] == "console":
            commands = re.findall(r"^\$ (.*)$", match["text"], re.MULTILINE)
            assert commands, match["text"]
            assert match["text"].startswith("$ ")
            yield (
                match["text"],
                "".join(f"$ {command}\n{run_page_command(command, folder)}" for command in commands),
            )


@pytest.mark.few(8)
@pytest.mark.parametrize("name", PAGES)
def test_console_blocks_are_current(name: str, tmp_path: Path, refresh: bool) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    for block, current in refresh_blocks(page, tmp_path):
        if refresh:
            page = page.replace(block, current)
            (ROOT / name).write_text(page, encoding="utf-8")
        assert block == current or refresh


def test_pictures_are_fresh_and_fetch_nothing(refresh: bool) -> None:
    script = [sys.executable, str(ROOT / "scripts" / "make_pictures.py"), *([] if refresh else ["--check"])]
    assert subprocess.run(script, check=False).returncode == 0
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())
    assert len(pictures) == len(("light", "dark"))
    for path in pictures:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"\w+://[^\"'\s<]+", text)) == {"http://www.w3.org/2000/svg"}
        assert "@import" not in text
        assert "url(" not in text


def test_fixed_machine_differs_by_the_wheels_alone() -> None:
    """Compare the machines of the two pictures: the second shows the result of the first one's command."""
    broken, fixed = (
        json.loads((ROOT / "tests" / "hosts" / name / "host.json").read_text(encoding="utf-8"))
        for name in ("plain-pip-install", "healthy-one-gpu")
    )
    assert {name for name in fixed if fixed[name] != broken[name]} == {"commands", "elf"}
    assert broken["elf"] == {path: facts for path, facts in fixed["elf"].items() if "/nvidia/" not in path}


def test_pages_use_the_demonstration_if_there_is_one() -> None:
    """A reader who installed tfdoctor has demo:NAME, not the folder tests/hosts of a checkout."""
    for name in PAGES:
        page = (ROOT / name).read_text(encoding="utf-8")
        assert not [demo for demo in DEMOS if f"--from tests/hosts/{demo}" in page], name


def test_pages_pin_the_release_next_to_the_extra() -> None:
    """The newest release does not find all of NVIDIA's wheels, so no page recommends what takes it."""
    assert Compat.load().newest.runpath_misses
    bare = "pip install 'tensorflow[and-cuda]'"
    pages = {name for name in PAGES if bare in (ROOT / name).read_text(encoding="utf-8")}
    assert pages == {"docs/accuracy.md", "docs/situations/old-cards.md"}  # a measurement, and a warning


def test_releases_of_nvidias_images_are_listed() -> None:
    page = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
    row = re.search(r"^\| `ngc` \|.*\| (?P<releases>[^|]+) \|$", page, re.MULTILINE)
    assert row is not None
    minors = {major_minor(image.tensorflow) for image in Compat.load().images.ngc_images if image.tensorflow}
    assert set(row["releases"].split(", ")) == minors


def test_explain_refers_to_the_situation_pages() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "situations").glob("*.md")}
    assert set(SITUATION_PAGES) == pages
    for page, (queries, command) in SITUATION_PAGES.items():
        assert command.startswith("tfdoctor ")
        for query in queries.split():
            with contextlib.suppress(UsageError):
                find_entries(
                    query, load_documentation()
                )  # a rule, a cause or a message with this name: explain prints it
                continue
            with pytest.raises(UsageError) as raised:
                find_entries(query, load_documentation())
            assert f"docs/situations/{page}.md" in (raised.value.hint or ""), query
            answer = find_entries(f"{query} no GPU", load_documentation()).meaning
            assert f"docs/situations/{page}.md" in answer, query


@for_each(PAGES)
def test_explain_commands_of_pages_work(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for query in re.findall(r'`tfdoctor explain "([^"`]+)"`', text):
        assert find_entries(query, load_documentation()).query == query


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("docs/situations/")])
def test_logs_of_the_situation_pages_have_a_cause(name: str) -> None:
    """Find a cause in every log except that of pip behind a proxy, which is no TensorFlow log."""
    match = FENCE.search((ROOT / name).read_text(encoding="utf-8"))
    assert match is not None
    log_report = diagnose_log(iter([match["text"].encode()]), Compat.load(), "train.log")
    assert (log_report.cause is Cause.INCONCLUSIVE) == name.endswith("/network.md")


def test_every_schema_is_listed() -> None:
    page = (ROOT / "docs" / "schemas.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs" / "schemas").glob("*.json"):
        assert f"(schemas/{path.name})" in page


def test_page_about_pods_shows_no_command_of_docker() -> None:
    page = (ROOT / "docs" / "situations" / "kubernetes.md").read_text(encoding="utf-8")
    assert "docker run" not in page
    assert "kubectl set env" in page
    assert "limits: {nvidia.com/gpu: 1}" in page
