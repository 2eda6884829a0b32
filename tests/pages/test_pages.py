"""What a page shows is what happens: every `console` block is typed again and compared, and pictures are fresh.

`pytest tests/pages --refresh` writes the blocks and docs/pictures anew. A block is typed at the checkout's root, beside
which `train.log` is the page's first `text` block: the words that people paste.
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

from tfdoctor.compat import Compat
from tfdoctor.errors import UsageError
from tfdoctor.explain import SITUATIONS, lookup
from tfdoctor.findings import Cause
from tfdoctor.logs.report import diagnose_log

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


def run_typed(command: str, folder: Path) -> str:
    """What a command of a page prints, on both streams, 80 columns wide."""
    program, *words = command.split(" ", 1)
    assert program in {"tfdoctor", "./scripts/tfdoctor"}, command
    environment = {
        name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "NO_COLOR"}
    } | {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "TFDOCTOR_CALLED": "tfdoctor"}
    done = subprocess.run(
        ["/bin/sh", "-c", " ".join(['"$0" -m tfdoctor', *words]), sys.executable],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def as_shown(page: str, folder: Path) -> Iterator[tuple[str, str]]:
    """(block, the same as it is today) of each `console` block that a page has."""
    first = next((match["text"] for match in FENCE.finditer(page) if match["kind"] == "text"), "")
    (folder / "train.log").write_text(first, encoding="utf-8")
    (folder / "tests").symlink_to(ROOT / "tests")
    for match in FENCE.finditer(page):
        if match["kind"] == "console":
            commands = re.findall(r"^\$ (.*)$", match["text"], re.MULTILINE)
            assert commands, match["text"]
            assert match["text"].startswith("$ ")
            yield match["text"], "".join(f"$ {command}\n{run_typed(command, folder)}" for command in commands)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_is_what_happens(name: str, tmp_path: Path, refresh: bool) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    for block, now in as_shown(page, tmp_path):
        if refresh:
            page = page.replace(block, now)
            (ROOT / name).write_text(page, encoding="utf-8")
        assert block == now or refresh


def test_pictures_are_fresh_and_fetch_nothing(refresh: bool) -> None:
    script = [sys.executable, str(ROOT / "scripts" / "make_pictures.py"), *([] if refresh else ["--check"])]
    assert subprocess.run(script, check=False).returncode == 0
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())
    assert len(pictures) >= 4
    for path in pictures:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"\w+://[^\"'\s<]+", text)) == {"http://www.w3.org/2000/svg"}
        assert "@import" not in text
        assert "url(" not in text


def test_the_fixed_machine_is_the_sick_one_with_the_wheels() -> None:
    """The second picture shows what the first one's command leads to."""
    sick, fixed = (
        json.loads((ROOT / "tests" / "hosts" / name / "host.json").read_text(encoding="utf-8"))
        for name in ("plain-pip-install", "healthy-one-gpu")
    )
    assert {name for name in fixed if fixed[name] != sick[name]} == {"commands", "elf"}
    assert sick["elf"] == {path: known for path, known in fixed["elf"].items() if "/nvidia/" not in path}


def test_explain_leads_to_the_pages_of_situations() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "situations").glob("*.md")}
    assert set(SITUATIONS) == pages
    for page, (words, command) in SITUATIONS.items():
        assert command.startswith("tfdoctor ")
        for word in words.split():
            with contextlib.suppress(UsageError):
                lookup(word)  # a rule's or cause's own name, or a message: that is told
                continue
            with pytest.raises(UsageError) as raised:
                lookup(f"{word} no GPU")
            assert f"docs/situations/{page}.md" in (raised.value.hint or ""), word


@pytest.mark.parametrize("name", PAGES)
def test_what_pages_have_explained_is_explained(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for query in re.findall(r'`tfdoctor explain "([^"`]+)"`', text):
        assert lookup(query).query == query


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("docs/situations/")])
def test_the_words_that_people_paste_are_understood(name: str) -> None:
    """But for those of pip behind a proxy, which is no log of TensorFlow's."""
    match = FENCE.search((ROOT / name).read_text(encoding="utf-8"))
    assert match is not None
    found = diagnose_log(iter([match["text"].encode()]), Compat.load(), "train.log")
    assert (found.cause is Cause.INCONCLUSIVE) == name.endswith("/network.md")


def test_every_schema_is_listed() -> None:
    page = (ROOT / "docs" / "schemas.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs" / "schemas").glob("*.json"):
        assert f"(schemas/{path.name})" in page
