"""compat/imports: the modules that each release was measured to import."""

from __future__ import annotations

import json

import pytest

from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.compat.imported import list_measured_minors, load_import_needs

COMPAT = Compat.load()
MINORS = list_measured_minors(COMPAT.folder)


@pytest.mark.parametrize("minor", MINORS)
def test_every_table_reads(minor: str) -> None:
    table = load_import_needs(COMPAT.folder, minor)
    assert {"numpy", "google.protobuf"} <= table.attributes_by_module.keys()
    assert table.working_sets
    assert all("numpy" in modules for modules in table.working_sets)
    assert {"random", "json", "typing"} & table.shadowable_modules
    assert not {
        name for name in table.unloaded_files if not name.startswith(("tensorflow/", "tensorflow_core/"))
    }
    assert "tensorflow/python/framework/ops.py" not in table.unloaded_files
    assert not {name for name in table.attributes_by_module if name.startswith(("tensorflow", "keras.", "_"))}


def test_every_minor_with_a_lock_has_a_table() -> None:
    locked = {
        path.name.split("-cp")[0].rpartition("-")[2]
        for path in (data_dir("compat") / "locks").glob("tensorflow-*")
    }
    minors = {".".join(version.split(".")[:2]) for version in locked}
    measurable = {minor for minor in minors if tuple(map(int, minor.split("."))) >= (1, 10)}
    assert measurable <= set(MINORS)
    assert len(COMPAT.releases) > len(MINORS)


def test_nearest_older_table_is_used() -> None:
    newest = MINORS[-1]
    assert COMPAT.find_import_needs(f"{newest}.7").is_measured
    assert not COMPAT.find_import_needs("2.98.0rc1").is_measured
    assert (
        COMPAT.find_import_needs("2.98.0rc1").attributes_by_module
        == load_import_needs(COMPAT.folder, newest).attributes_by_module
    )
    assert COMPAT.find_import_needs("1.2.0") is None
    assert COMPAT.find_import_needs(None) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"neeeds": {}}, "neeeds"),
        ({"needs": None}, "needs"),
        ({"tensorflow": "2.19.0"}, "does not belong"),
        ({"sets": [{"numpy": 1}]}, "numpy"),
        ({"schema_version": 2}, "schema_version"),
    ],
)
def test_message_names_the_invalid_value(tmp_path, change, said) -> None:
    raw = json.loads((data_dir("compat") / "imports" / "2.20.json").read_text(encoding="utf-8"))
    folder = tmp_path / "imports"
    folder.mkdir()
    (folder / "2.20.json").write_text(json.dumps(raw | change), encoding="utf-8")
    with pytest.raises(DataError, match=said):
        Compat(tmp_path).find_import_needs("2.20.0")
