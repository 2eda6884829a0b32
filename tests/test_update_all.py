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
