"""The strict loaders: which data they reject, and with which messages."""

# decode.py evaluates the annotations of the dataclasses at run time: no `from __future__ import annotations` here.

import dataclasses
import importlib
import json
import pkgutil
import shutil
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

import tfdoctor.compat
from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.decode import decode
from tfdoctor.compat.folder import data_dir
from tfdoctor.core.records import dataclass

READERS: dict[str, Callable[[Compat], Any]] = {
    "cuda.toml": lambda compat: compat.cuda_releases,
    "cudnn.toml": lambda compat: compat.cudnn_ranges,
    "libraries.toml": lambda compat: compat.libraries,
    "problems.toml": lambda compat: compat.problems,
    "gpus.json": lambda compat: compat.gpus,
    "tensorflow.json": lambda compat: compat.releases,
}
"""A function for each file that makes `Compat` load it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(data_dir("compat"), tmp_path / "compat")
    return tmp_path / "compat"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.few(3)
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
def test_message_of_each_invalid_value(folder: Path, name: str, old: str, new: str, message: str) -> None:
    edit(folder / name, old, new)
    with pytest.raises(DataError, match=message):
        READERS[name](Compat(folder))


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', "{}", '{"schema_version": 1, "as_of": ""}'])
def test_text_that_is_no_table_is_rejected(folder: Path, text: str) -> None:
    (folder / "tensorflow.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"^compat/tensorflow.json: "):
        _ = Compat(folder).releases


def test_entry_without_sources_is_rejected(folder: Path) -> None:
    edit(folder / "cudnn.toml", 'sources = ["', 'sources = [] #["')
    with pytest.raises(DataError, match="says where it is from"):
        _ = Compat(folder).cudnn_ranges


SELF_SOURCED = frozenset({"ReleaseCounts", "CudaLibrary", "CudaWheel", "Companion"})
"""Entries that are runs or measurements themselves, and therefore need no source."""


def test_every_entry_class_has_a_source_field() -> None:
    for module in pkgutil.iter_modules(tfdoctor.compat.__path__, "tfdoctor.compat."):
        for name, entry_class in vars(importlib.import_module(module.name)).items():
            if hasattr(entry_class, "NAMED") and name not in SELF_SOURCED:
                assert {"sources", "source"} & {field.name for field in dataclasses.fields(entry_class)}, name


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    NAMED: ClassVar = ("name",)
    name: str
    sizes: tuple[int, ...] = ()
    kinds: frozenset[Literal["small", "large"]] = frozenset()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inside: "Thing | None" = field(default=None, metadata={"key": None})


@dataclass(frozen=True, slots=True)
class Things:
    as_of: str
    things: tuple[Thing, ...] = field(metadata={"key": "thing"})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1", "x: thing 1: a table was expected, not a number"),
        ('{"name": "a", "sizes": [-1]}', "x: thing a: `sizes` must be a whole number, not a number"),
        ('{"name": "a", "sizes": 1}', "x: thing a: `sizes` must be a list, not a number"),
        (
            '{"name": "a", "kinds": ["smal"]}',
            "`kinds` is `smal`; it can be small, large, did you mean `small`?",
        ),
        ('{"name": "a", "parts": {"b": "c"}}', "x: thing a: parts: `b` must be a list of texts, not text"),
        (
            '{"name": "a", "parts": {"b": [1]}}',
            "x: thing a: parts: `b` must be a list of texts, and has a number",
        ),
        ('{"name": "a", "parts": []}', "x: thing a: `parts` must be a table, not a list"),
        ('{"name": ""}', "x: thing 1: `name` is empty"),
        ('{"name": "a", "inside": null}', "x: thing a: unknown key `inside`"),
        ('{"nome": "a"}', "x: thing 1: unknown key `nome`, did you mean `name`?"),
        ('{"colour": "a"}', "x: thing 1: `name` is missing"),
        ('{"name": "a"}, {"name": "a"}', "x: thing a: it is there twice"),
        ("", "x: `thing` has no rows"),
    ],
)
def test_message_of_the_decoder(row: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        decode(Things, json.loads(f'{{"as_of": "now", "thing": [{row}]}}'), "x")
    assert message in str(caught.value)


def test_valid_entry_is_decoded() -> None:
    entry = {"name": "a", "sizes": [1, 2], "kinds": ["large"], "parts": {"b": ["c"]}}
    thing = decode(Things, {"as_of": "now", "thing": [entry]}, "x").things[0]
    assert thing == Thing(name="a", sizes=(1, 2), kinds=frozenset({"large"}), parts={"b": ("c",)})


def test_unsupported_annotation_raises_a_type_error() -> None:
    @dataclass(frozen=True, slots=True)
    class Odd:
        one: complex
        two: "str" = ""

    @dataclass(frozen=True, slots=True)
    class Unevaluated:
        one: "str"

    with pytest.raises(TypeError, match=r"complex'>$"):
        decode(Odd, {"one": 1}, "x")
    with pytest.raises(TypeError, match="without `from __future__ import annotations`"):
        decode(Unevaluated, {"one": 1}, "x")
