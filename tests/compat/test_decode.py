"""The strict loaders: what they refuse, and in which words."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.compat import Compat, DataError, releases
from tfdoctor.data import data_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READ: dict[str, Callable[[Compat], Any]] = {
    "cuda.toml": lambda compat: compat.cuda_releases,
    "cudnn.toml": lambda compat: compat.cudnn_ranges,
    "libraries.toml": lambda compat: compat.libraries,
    "problems.toml": lambda compat: compat.problems,
    "gpus.json": lambda compat: compat.gpus,
    "tensorflow.json": lambda compat: compat.releases,
}
"""What asks for each table."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(data_dir("compat"), tmp_path / "compat")
    return tmp_path / "compat"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "cuda.toml",
            'name = "12.9 Update 1"\nlinux =',
            'name = "12.9 Update 1"\nlinus =',
            r"^compat/cuda.toml: release 12.9.1: unknown key `linus`, did you mean `linux`\?$",
        ),
        (
            "cuda.toml",
            'name = "12.9 Update 1"\n',
            "",
            r"^compat/cuda.toml: release 12.9.1: `name` is missing$",
        ),
        (
            "cuda.toml",
            "schema_version = 1",
            "schema_version = 2",
            "schema_version is 2; this tfdoctor reads 1",
        ),
        ("cuda.toml", "schema_version = 1", "schema_version = ", r"^compat/cuda.toml: not TOML: "),
        ("cuda.toml", 'evidence = "measured"', 'evidence = "mesured"', "did you mean `measured`"),
        ("cuda.toml", "major = 12", 'major = "12"', "family 12: `major` must be a whole number, not text"),
        ("cuda.toml", '"8.9"', '"8.9.1"', "`capabilities`: `8.9.1` is not a compute capability"),
        ("cudnn.toml", "lowest =", "lowset =", r"range 7.6.0: unknown key `lowset`, did you mean `lowest`\?"),
        ("libraries.toml", 'role = "registration"', 'role = "registraton"', "did you mean `registration`"),
        (
            "libraries.toml",
            "nvidia-cuda-runtime-cu12 nvidia",
            "nvidia-cuda-runtime-cu12_nvidia",
            "CUDA major = project folder",
        ),
        (
            "problems.toml",
            "when = { extra =",
            "when = { extar =",
            r"`when`: unknown key `extar`, did you mean `extra`\?",
        ),
        ("problems.toml", 'area = "libraries"', 'area = "library"', "it can be libraries, python"),
        (
            "gpus.json",
            '"sources":["PCI"]',
            '"sources":["PIC"]',
            r"source `PIC` is not explained, did you mean `PCI`\?",
        ),
        ("gpus.json", '"cc":', '"c":', "unknown key `c`|`cc` is missing"),
        ("gpus.json", '"gpus":[', '"gpus":', r"^compat/gpus.json: not JSON: "),
        (
            "tensorflow.json",
            '"yanked":false',
            '"yanked":0',
            "release tensorflow 1.0.0: `yanked` must be true or false, not a number",
        ),
        ("tensorflow.json", '"cubin":', '"cubins":', r"unknown key `cubins`, did you mean `cubin`\?"),
        (
            "tensorflow.json",
            '"released":',
            '"extra":1,"released":',
            "release tensorflow 1.0.0: unknown key `extra`",
        ),
        (
            "tensorflow.json",
            '"linux_pythons":0',
            '"linux_pythons":99999',
            "`linux_pythons` is 99999, but `shared` has only",
        ),
    ],
)
def test_messages(folder: Path, name: str, old: str, new: str, message: str) -> None:
    edit(folder / name, old, new)
    with pytest.raises(DataError, match=message):
        READ[name](Compat(folder))


def test_out_of_order(folder: Path) -> None:
    path = folder / "tensorflow.json"
    table = json.loads(path.read_bytes())
    table["releases"].reverse()
    path.write_text(json.dumps(table), encoding="utf-8")
    rows = Compat(folder).releases
    with pytest.raises(DataError, match="out of order"):
        releases.check_sorted(rows)


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', "{}", '{"schema_version": 1, "as_of": ""}'])
def test_not_even_a_table(folder: Path, text: str) -> None:
    (folder / "tensorflow.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"^compat/tensorflow.json: "):
        _ = Compat(folder).releases


def test_every_row_says_where_it_is_from(folder: Path) -> None:
    edit(folder / "cudnn.toml", 'sources = ["', 'sources = [] #["')
    with pytest.raises(DataError, match="says where it is from"):
        _ = Compat(folder).cudnn_ranges
