"""The core, and every other extension, work without an extension."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTENSIONS = ("bench", "cluster", "fleet", "lint", "mcp")
PROGRAM = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv.pop(1))
import tfdoctor
if sys.argv[1:] == ["import"]:
    for module in pkgutil.walk_packages(tfdoctor.__path__, "tfdoctor."):
        if ".payload" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
else:
    from tfdoctor.__main__ import run
    run()
"""


@pytest.mark.few(2)
@pytest.mark.parametrize("name", EXTENSIONS)
def test_everything_else_works_without_it(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "doctor"
    shutil.copytree(ROOT / "doctor", folder, ignore=shutil.ignore_patterns("__pycache__", "standin"))
    shutil.rmtree(folder / "tfdoctor" / "extensions" / name)
    for data in ("compat", "dockerfiles", "docs"):
        (tmp_path / data).symlink_to(ROOT / data)
    entry_points = configparser.ConfigParser()
    entry_points["tfdoctor.commands"] = {
        other: f"tfdoctor.extensions.{other}:EXTENSION" for other in EXTENSIONS if other != name
    }
    metadata = folder / "tfdoctor-0.1.0.dist-info"
    metadata.mkdir()
    with (metadata / "entry_points.txt").open("w") as file:
        entry_points.write(file)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", "-c", PROGRAM, str(folder), *words],
            capture_output=True,
            text=True,
            check=False,
        )

    imported = run("import")
    assert imported.returncode == 0, imported.stderr
    listed = run("--help").stdout.split("\n\n")[1].splitlines()
    commands = {re.split(r"  +", line)[1] for line in listed}
    assert {"check", *EXTENSIONS} - commands == {name}
    assert run(name, "--help").returncode == 2
    host = ROOT / "tests" / "hosts" / "healthy-one-gpu"
    assert json.loads(run("check", "--from", str(host), "--json").stdout)["verdict"]["cause"] == "healthy"
    assert run("explain", "TFD203").returncode == 0
    for other in EXTENSIONS:
        if other != name:
            result = run(other, "--help")
            assert result.returncode == 0, result.stderr
