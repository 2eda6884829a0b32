"""The steps of scripts/update_all.py, and that the table they produce is fresh."""

from __future__ import annotations

import datetime as dt
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    import pytest

ROOT = Path(__file__).resolve().parents[1]


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
    assert "| images.toml | 2026-05-05 |" in report
    assert module.load_reasons()["images.toml"][1] in report
