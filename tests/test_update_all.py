"""The steps of scripts/update_all.py, and that the table they produce is fresh."""

from __future__ import annotations

import datetime as dt
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfdoctor.compat import Compat

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))
try:
    from update_support import checklist, files
finally:
    sys.path.remove(str(SCRIPTS))
COMPAT = Compat.load()


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_all", ROOT / "scripts" / "update_all.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def test_steps_name_existing_scripts() -> None:
    for step in load_script().list_steps(None):
        for command in (step.write, step.check):
            assert Path(command[1]).is_file()
        assert step.write != step.check


def test_docstring_names_every_script() -> None:
    text = load_script().__doc__
    for path in (*(ROOT / "scripts").glob("update_*.py"), *(ROOT / "scripts").glob("generate_*.py")):
        assert path.name == "update_all.py" or f"scripts/{path.name} " in text


def test_table_matches_the_authored_data(capfd: pytest.CaptureFixture[str]) -> None:
    module = load_script()
    step = next(step for step in module.list_steps(None) if "registration.toml" in step.name)
    done = module.subprocess.run(step.check, cwd=ROOT, check=False)
    assert done.returncode == 0, capfd.readouterr().err


def test_old_tables_are_reported() -> None:
    module = load_script()
    assert not module.list_old_tables(dt.date(2026, 1, 1))
    assert set(module.list_old_tables(dt.date(2036, 1, 1))) == set(module.load_dates())
    assert {"tensorflow.json", "images.toml", "pythons.toml", "cuda.toml"} <= set(module.load_dates())


def test_every_table_is_young_or_its_age_has_a_reason() -> None:
    """Fails with time. Look through the table and set `as_of`, or say why not in table_ages.json."""
    module = load_script()
    assert not module.list_old_tables(dt.datetime.now(tz=dt.timezone.utc).date())


def test_a_reason_is_for_an_old_table_and_ends() -> None:
    module = load_script()
    dates = module.load_dates()
    for name, (until, reason) in module.load_reasons().items():
        as_of = dt.date.fromisoformat(dates[name])
        assert until - as_of < dt.timedelta(days=365), f"{name}: look through it"
        assert len(reason) > 40
        first_old_day = as_of + module.REVIEW_INTERVAL + dt.timedelta(days=1)
        assert name not in module.list_old_tables(first_old_day)
        assert name in module.list_old_tables(until + dt.timedelta(days=1))


def test_only_messages_have_no_date() -> None:
    module = load_script()
    names = {
        path.relative_to(module.COMPAT).as_posix()
        for path in module.COMPAT.rglob("*")
        if path.suffix in {".toml", ".json"}
    }
    undated = names - set(module.load_dates())
    assert {name for name in undated if not name.startswith("logs/")} == {"remedies.toml"}


def test_the_report_lists_failures_and_ages() -> None:
    module = load_script()
    report = module.format_report(["compat/locks"], dt.date(2026, 12, 1))
    assert "- compat/locks" in report
    assert "## To author\n\n### TensorFlow " in report
    assert "| images.toml | 2026-05-05 |" in report
    assert module.load_reasons()["images.toml"][1] in report


def test_the_report_lists_changed_and_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_script()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "describe_todo", lambda _: "")
    for folder in ("compat", "docs", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "compat" / "old.json").write_text("1\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)  # noqa: S607
    (tmp_path / "compat" / "old.json").write_text("2\n3\n", encoding="utf-8")
    (tmp_path / "compat" / "new.json").write_text("4\n", encoding="utf-8")
    report = module.format_report([], dt.date(2026, 12, 1))
    assert "| compat/old.json | +2 | -1 |\n| compat/new.json | new | |\n" in report


@pytest.mark.parametrize("name", ["update_locks", "update_source_lines", "update_functions"])
def test_nothing_new_needs_neither_network_nor_modules(name: str) -> None:
    """As `update_all.py` runs them without `--fetch`: this environment lacks what reads the index."""
    command = [sys.executable, str(SCRIPTS / f"{name}.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout + done.stderr in ("every release is there\n", "nothing is missing\n")


def test_a_missing_module_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise ModuleNotFoundError(name="pypi_simple")

    monkeypatch.setattr(sys, "argv", ["scripts/update_x.py"])
    assert files.report_errors(fail) == 1
    assert capsys.readouterr().err == "pypi_simple is not here: uv run scripts/update_x.py\n"


# --- what a person must author ---


def copy_tables(folder: Path) -> Path:
    return Path(shutil.copytree(ROOT / "compat", folder / "compat"))


def test_nothing_is_to_author_for_what_is_in_the_tables() -> None:
    text = checklist.format_checklist(COMPAT, dt.date(2030, 1, 1))
    assert text.count("Nothing is missing.") == text.count("### TensorFlow ") > 0


def test_a_fresh_release_has_locks_of_its_first_days() -> None:
    newest = next(
        release for release in reversed(COMPAT.releases) if release.gpu and not release.is_prerelease
    )
    released = dt.date.fromisoformat(newest.release_date)
    day = released + dt.timedelta(days=29)
    assert f"`uv run scripts/update_locks.py {newest.version}`" in checklist.format_checklist(COMPAT, day)


@pytest.mark.parametrize(
    ("table", "pattern", "item"),
    [
        ("registration.toml", r'\[\[run\]\]\nversion = "2\.21\.0"\n.*?\n\n', "`[[run]]`"),
        ("registration.toml", r'\[\[compiled\]\]\nversion = "2\.21\.0"\n.*?\n\n', "`[[compiled]]`"),
        ("registration.toml", r'\[\[documented\]\]\nminor = "2\.21"\n.*?\n\n', "`[[documented]]`"),
        ("registration.toml", r"<=2\.22\.0rc0(?=\"\nneeds)", "`[[instructions]]`"),
        ("cuda_wheels.toml", r",<2\.22\.dev0", "`[[set]]`"),
        ("images.toml", r"<=2\.21\.0", "`[[official]]`"),
        ("imports/2.21.json", r'"runs":[^\n]*\n', "`uv run scripts/update_companions.py 2.21.0`"),
    ],
)
def test_what_a_table_lacks_is_to_author(tmp_path: Path, table: str, pattern: str, item: str) -> None:
    compat = copy_tables(tmp_path)
    text = (compat / table).read_text(encoding="utf-8")
    ends = pattern.startswith((",", "<"))
    changed, count = re.subn(
        pattern, f"{',' if pattern.startswith(',') else ''}<=2.20.0" if ends else "", text, flags=re.DOTALL
    )
    assert count == 1
    (compat / table).write_text(changed, encoding="utf-8")
    lines = checklist.format_checklist(Compat(compat), dt.date(2030, 1, 1)).splitlines()
    release = lines.index("### TensorFlow 2.21.0")
    [found] = [line for line in lines[release + 1 :] if line.startswith("- [ ] ") and "2.22" not in line][:1]
    assert item in found


def test_ranges_that_end_before_a_release_are_listed() -> None:
    rows = checklist.list_ended_ranges(COMPAT.folder, ["2.20.0"], "2.21.0")
    assert any(row.startswith("compat/problems.toml:") and "ptx-sm90a-on-blackwell" in row for row in rows)
    assert not any("runpath-without-cusolver" in row for row in rows)


# --- the scripts under `uv run` ---

IMPORT = """
import importlib.metadata as metadata, re, sys
from packaging.utils import canonicalize_name
declared = {canonicalize_name(re.split("[^A-Za-z0-9_.-]", text)[0]) for text in sys.argv[2:]}
todo = [*declared]
for name in todo:
    try:
        needed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        continue
    names = {canonicalize_name(re.split("[^A-Za-z0-9_.-]", text)[0]) for text in needed if "extra ==" not in text}
    todo += names - declared
    declared |= names
owners = metadata.packages_distributions()
class Finder:
    def find_spec(name, path=None, target=None):
        top = name.partition(".")[0]
        if top in owners and top != "tfdoctor" and not {canonicalize_name(owner) for owner in owners[top]} & declared:
            raise ModuleNotFoundError(f"{name} is not declared")
for name in [name for name in sys.modules if name.partition(".")[0] == "packaging"]:
    del sys.modules[name]
sys.meta_path.insert(0, Finder)
sys.path.insert(0, "scripts")
__import__(sys.argv[1])
"""


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("update_*.py")), ids=lambda path: path.stem)
def test_a_script_declares_what_it_imports(path: Path) -> None:
    """`uv run` installs what stands in the head of the script, and nothing else."""
    match = re.search(
        r"^# dependencies = (\[.*?^# \]|\[.*?\]$)", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    if match is None:
        pytest.skip("not for uv run")
    declared = re.findall(r'"([^"]+)"', match[1])
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, path.stem, *declared],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
