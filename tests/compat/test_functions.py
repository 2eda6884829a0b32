"""compat/functions.json and the script that reads it from wheels."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tfdoctor.compat import Compat
from tfdoctor.compat.decode import DataError
from tfdoctor.compat.functions import load_functions

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
try:
    import update_functions as script
finally:
    sys.path.pop(0)

TABLE = Compat.load().functions
SESSION = "/opt/env/lib/python3.6/site-packages/tensorflow/python/client/session.py"
SOURCE = (
    '"""Text."""\nimport a\nfrom b import (\n    c,\n)\n\n\n'
    "def run(x):\n    return x\n\n\nclass K:\n    def run(self):\n        pass\n\n\nd = 1\n"
    "try:\n    from tensorflow._api.v2 import audio\n    import e\nexcept ImportError:\n    raise\nif d:\n    f()\n"
)


def write_table(folder: Path, words: str) -> Path:
    raw = {
        "schema_version": 1,
        "as_of": "2026-01-01",
        "sources": ["x"],
        "releases": ["1.0.0", "1.1.0"],
        "files": {"tensorflow/a.py": {"functions": {"run": words}}},
    }
    (folder / "functions.json").write_text(json.dumps(raw), encoding="utf-8")
    return folder


def test_every_release_is_measured() -> None:
    assert (
        script.find_problems(json.loads((ROOT / "compat" / "functions.json").read_text(encoding="utf-8")))
        == []
    )
    source_lines = Compat.load().source_lines
    builds = {build.version for build in source_lines.unpublished_builds}
    assert TABLE.releases == tuple(release for release in source_lines.releases if release not in builds)


def test_table_is_as_the_script_writes_it() -> None:
    text = (ROOT / "compat" / "functions.json").read_text(encoding="utf-8")
    raw = json.loads(text)
    assert script.render(script.load_known(raw), raw["as_of"]) == text


def test_lines_of_functions() -> None:
    lines = script.find_function_lines(SOURCE, ("run", "<module>"))
    assert lines == {"run": [(8, 9), (13, 14)], "<module>": [(2, 2), (3, 5), (20, 20), (22, 22), (24, 24)]}


def test_releases_of_a_line_in_a_function(tmp_path: Path) -> None:
    table = load_functions(write_table(tmp_path, "3-5:0 4-6:1 9:0"))
    path = "/x/dist-packages/tensorflow/a.py"
    assert table.find_releases(path, 3, "run") == {"1.0.0"}
    assert table.find_releases(path, 4, "run") == {"1.0.0", "1.1.0"}
    assert table.find_releases("C:\\x\\site-packages\\tensorflow\\a.py", 6, "run") == {"1.1.0"}
    assert table.find_releases(path, 7, "run") == frozenset()
    assert table.find_releases(path, 9, "run") == {"1.0.0"}
    assert table.find_releases(path, 4, "other") is None
    assert table.find_releases("/x/tensorflow/a.py", 4, "run") is None


def test_path_that_lost_a_backslash_in_markdown_is_read() -> None:
    packages = "C:\\env\\lib\\site-packages\\tensorflow"
    expected = TABLE.find_releases(f"{packages}\\__init__.py", 41, "<module>")
    assert expected
    assert TABLE.find_releases(f"{packages}_init_.py", 41, "<module>") == expected
    assert TABLE.find_releases(f"{packages}\\python__init__.py", 40, "<module>") == TABLE.find_releases(
        f"{packages}\\python\\__init__.py", 40, "<module>"
    )


@pytest.mark.parametrize("words", ["3-5:x", "x:0", "a-b:0"])
def test_damaged_table_is_rejected(tmp_path: Path, words: str) -> None:
    table = load_functions(write_table(tmp_path, words))
    with pytest.raises(DataError, match=r"functions\.json"):
        table.find_releases("/x/site-packages/tensorflow/a.py", 4, "run")


def test_folder_of_a_file_distinguishes_releases() -> None:
    core_releases = {
        release
        for line in range(900, 1500, 50)
        for release in TABLE.find_releases(SESSION.replace("tensorflow", "tensorflow_core"), line, "_do_call")
        or ()
    }
    assert core_releases <= {
        version for version in TABLE.releases if version.startswith(("1.15", "2.0", "2.1."))
    }
