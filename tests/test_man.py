"""The manual page: it has the same content as `--help`, and the programs that display it accept it."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfdoctor import __version__
from tfdoctor.cli.main import EXIT_STATUS_MEANINGS, iter_commands, make_command_group
from tfdoctor.core.errors import ExitCode

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tfdoctor.1"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_man", ROOT / "scripts" / "generate_man.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_fresh() -> None:
    assert load_script().page() == PAGE.read_text(encoding="utf-8"), (
        "stale: run python scripts/generate_man.py"
    )


def test_page_lists_all_exit_statuses() -> None:
    assert list(EXIT_STATUS_MEANINGS) == [int(code) for code in ExitCode]


def render_page(*command: str) -> str:
    """Return the page as text of 200 columns, without overstrikes and escapes."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    assert done.stderr == ""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout).split())


@pytest.mark.parametrize(
    "command",
    [("groff", "-man", "-ww", "-Tascii", "-rLL=200n"), ("mandoc", "-T", "ascii", "-O", "width=200")],
    ids=lambda command: command[0],
)
def test_page_has_the_texts_of_help(command: tuple[str, ...]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    text = render_page(*command, str(PAGE)).replace("-", "").replace(" ", "")
    assert f"tfdoctor{__version__}" in text
    for name, item in iter_commands(make_command_group()):
        assert f"tfdoctor{name.replace(' ', '')}[OPTIONS]" in text
        texts = [item.help.partition("\n")[0]]
        for param in item.params:
            texts += [*param.opts, param.help] if param.param_type_name == "option" else [param.help]
        for phrase in texts:
            plain = phrase.replace("`", "").replace("…", "...").replace("-", "").replace(" ", "")
            assert plain in text, phrase


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="no mandoc")
def test_mandoc_finds_no_error() -> None:
    done = subprocess.run(
        [shutil.which("mandoc") or "", "-T", "lint", "-W", "error", str(PAGE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_page_uses_known_requests_only() -> None:
    """A line that begins with a dot or a quote is a roff request; only known requests occur."""
    requests = re.findall(r"^[.'](\S*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(requests) <= {"TH", "SH", "SS", "TP", "PP", "B", "BR", "br"}
    assert PAGE.read_text(encoding="utf-8").isascii()
