"""What the target payload reads from RECORD files of wheels, on every Python of this machine."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
import time
import zipfile
from typing import TYPE_CHECKING

import pytest

from payload.test_pythons import PYTHONS, on_every_python
from tfdoctor.core.facts import value_of
from tfdoctor.core.facts.python import PythonChoice
from tfdoctor.probes import python
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.core.facts import PythonFacts

CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"


def make_elf(size: int, *, segment_end: int | None = None) -> bytes:
    """Return an ELF object of `size` bytes whose only segment ends at `segment_end`, by default at `size`."""
    end = segment_end or size
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, end, end, 4096)
    return (header + segment).ljust(size, b"\0")


def install(site: Path, name: str, version: str, files: dict[str, bytes], *, modified: float = 0.0) -> None:
    dist_info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    dist_info.mkdir(parents=True)
    (dist_info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n", encoding="utf-8"
    )
    lines = []
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    (dist_info / "RECORD").write_text("".join([*lines, f"{dist_info.name}/RECORD,,\n"]), encoding="utf-8")
    if modified:
        os.utime(dist_info / "RECORD", (modified, modified))


def probe_facts(version: str, site: Path) -> PythonFacts:
    system = LiveSystem(env={**os.environ, "PYTHONPATH": str(site)})
    facts = value_of(
        python.probe(system, PythonChoice(PYTHONS[version], PYTHONS[version]), is_requested=True, timeout=60)[
            0
        ]
    )
    assert facts is not None
    return facts


@on_every_python
def test_current_owner_of_a_shared_file_is_identified(version: str, tmp_path: Path) -> None:
    first, last = make_elf(4000), make_elf(4000) + b"\1"
    install(tmp_path, "nvidia-cudnn-cu12", "9.3.0.75", {CUDNN: first, "nvidia/__init__.py": b""})
    install(tmp_path, "nvidia-cudnn-cu13", "9.13.0", {CUDNN: last, "nvidia/__init__.py": b""})
    (shared,) = probe_facts(version, tmp_path).shared
    assert (shared.path, shared.location) == (CUDNN, str(tmp_path))
    assert [name for name, _ in shared.owners] == ["nvidia-cudnn-cu12", "nvidia-cudnn-cu13"]
    assert shared.now == ("nvidia-cudnn-cu13", "9.13.0")
    unknown = make_elf(4001)[:-1] + b"\2"  # the same size: only the hash tells them apart
    (tmp_path / CUDNN).write_bytes(first)
    assert probe_facts(version, tmp_path).shared[0].now == ("nvidia-cudnn-cu12", "9.3.0.75")
    (tmp_path / CUDNN).write_bytes(unknown)
    assert probe_facts(version, tmp_path).shared[0].now in {("nvidia-cudnn-cu13", "9.13.0"), None}
    (tmp_path / CUDNN).unlink()
    assert probe_facts(version, tmp_path).shared[0].now is None


def test_large_shared_file_belongs_to_the_last_installed(tmp_path: Path) -> None:
    content = make_elf((4 << 20) + 1)
    now = time.time()
    install(
        tmp_path, "nvidia-nccl-cu13", "2.27", {"nvidia/nccl/lib/libnccl.so.2": content}, modified=now - 9000
    )
    install(tmp_path, "nvidia-nccl-cu12", "2.21", {"nvidia/nccl/lib/libnccl.so.2": content}, modified=now)
    version = next(iter(PYTHONS))
    assert probe_facts(version, tmp_path).shared[0].now == ("nvidia-nccl-cu12", "2.21")
    os.utime(tmp_path / "nvidia_nccl_cu13-2.27.dist-info" / "RECORD", (now, now))
    assert probe_facts(version, tmp_path).shared[0].now is None


@on_every_python
def test_missing_truncated_and_replaced_files(version: str, tmp_path: Path) -> None:
    names = ("gone", "cut", "other", "whole")
    files = {f"nvidia/cublas/lib/lib{name}.so.12": make_elf(9000) for name in names}
    install(tmp_path, "nvidia-cublas-cu12", "12.5.3.2", files)
    folder = tmp_path / "nvidia/cublas/lib"
    (folder / "libgone.so.12").unlink()
    (folder / "libcut.so.12").write_bytes(make_elf(9000)[:5000])
    (folder / "libother.so.12").write_bytes(make_elf(8000))
    wheel = probe_facts(version, tmp_path).find_distribution("nvidia-cublas-cu12")
    assert wheel is not None
    assert wheel.files == tuple(files)
    assert wheel.lost == ("nvidia/cublas/lib/libgone.so.12",)
    assert [(file.path.rpartition("/")[2], file.recorded, file.size, file.cut) for file in wheel.changed] == [
        ("libcut.so.12", 9000, 5000, True),
        ("libother.so.12", 9000, 8000, False),
    ]


def test_hostile_records_are_read_with_limits(tmp_path: Path) -> None:
    install(tmp_path, "nvidia-cublas-cu12", "1", {})
    dist_info = tmp_path / "nvidia_cublas_cu12-1.dist-info"
    record = dist_info / "RECORD"
    version = next(iter(PYTHONS))
    for content in (
        b"../../etc/x.so,,1\n/etc/y.so,,1\n",
        b"x.so," * 100_000,
        b"\xff\xfe.so,,9\n.so,\n",
        b"a.so,,\n" * 9999,
    ):
        record.write_bytes(content)
        wheel = probe_facts(version, tmp_path).find_distribution("nvidia-cublas-cu12")
        assert wheel is not None
        assert len(wheel.files) <= 400
        assert not any(path.startswith(("/", "..")) for path in wheel.files)
    record.unlink()
    os.mkfifo(record)
    assert probe_facts(version, tmp_path).find_distribution("nvidia-cublas-cu12") is not None


def test_nvidia_pins_of_other_packages_are_read(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.5.1", {})
    metadata = tmp_path / "torch-2.5.1.dist-info" / "METADATA"
    pin = "nvidia-cudnn-cu12==9.1.0.70; platform_system == 'Linux'"
    metadata.write_text(
        f"Name: torch\nVersion: 2.5.1\nRequires-Dist: filelock\nRequires-Dist: {pin}\n\n", encoding="utf-8"
    )
    torch = probe_facts(next(iter(PYTHONS)), tmp_path).find_distribution("torch")
    assert torch is not None
    assert torch.pins == (pin,)
    assert torch.requires == ()


@on_every_python
def test_file_newer_than_its_record_is_hashed(version: str, tmp_path: Path) -> None:
    """The size is unchanged, so only the hash shows the damage. A file that is as old as its RECORD is not read."""
    install(
        tmp_path,
        "tensorflow",
        "2.15.1",
        {"tensorflow/__init__.py": b""},
    )
    metadata = tmp_path / "tensorflow-2.15.1.dist-info" / "METADATA"
    metadata.write_text("Name: tensorflow\nVersion: 2.15.1\nRequires-Dist: numpy\n\n", encoding="utf-8")
    files = {f"numpy/linalg/{name}.so": make_elf(5000) for name in ("older", "damaged", "touched")}
    install(tmp_path, "numpy", "1.26.4", files, modified=time.time() - 1000)
    for name in ("older", "damaged"):
        (tmp_path / f"numpy/linalg/{name}.so").write_bytes(make_elf(5000)[:4000].ljust(5000, b"\1"))
    os.utime(tmp_path / "numpy/linalg/older.so", (time.time() - 2000,) * 2)
    numpy = probe_facts(version, tmp_path).find_distribution("numpy")
    assert numpy is not None
    assert [(file.path, file.what) for file in numpy.differs] == [("numpy/linalg/damaged.so", "altered")]


@on_every_python
def test_file_of_tensorflow_with_other_content_of_the_same_size(version: str, tmp_path: Path) -> None:
    """patchelf and conda-pack leave objects that work; zeros and broken source do not."""
    names = ("patched.so", "zeros.so", "edited.py", "broken.py", "older.so")
    contents = {name: make_elf(5000) if name.endswith(".so") else b"a = 1\n" for name in names}
    files = {f"tensorflow/{name}": content for name, content in contents.items()}
    install(tmp_path, "tensorflow", "2.15.1", files, modified=time.time() - 1000)
    (tmp_path / "tensorflow/patched.so").write_bytes(make_elf(5000)[:4000].ljust(5000, b"\1"))
    (tmp_path / "tensorflow/zeros.so").write_bytes(bytes(5000))
    (tmp_path / "tensorflow/edited.py").write_bytes(b"a = 2\n")
    (tmp_path / "tensorflow/broken.py").write_bytes(b"a = (\n")
    tensorflow = probe_facts(version, tmp_path).find_distribution("tensorflow")
    assert tensorflow is not None
    assert {file.path.partition("/")[2]: file.what for file in tensorflow.differs} == {
        "patched.so": "changed",
        "zeros.so": "altered",
        "edited.py": "changed",
        "broken.py": "syntax",
    }


@on_every_python
def test_shadowing_tensorflow_py_is_reported(version: str, tmp_path: Path) -> None:
    """Python imports tensorflow.py instead of the package if it comes first on the path."""
    install(tmp_path / "site", "tensorflow", "2.15.1", {"tensorflow/__init__.py": b""})
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "tensorflow.py").write_bytes(b"")
    for folders, hides in (("code:site", True), ("site:code", False)):
        python_path = ":".join(str(tmp_path / name) for name in folders.split(":"))
        system = LiveSystem(env={**os.environ, "PYTHONPATH": python_path})
        choice = PythonChoice(PYTHONS[version], PYTHONS[version])
        tensorflow = value_of(python.probe(system, choice, is_requested=True, timeout=60)[1])
        assert tensorflow is not None
        assert tensorflow.shadowed_by == (str(tmp_path / "code" / "tensorflow.py") if hides else None)


@on_every_python
def test_object_replaced_by_other_content_is_altered(version: str, tmp_path: Path) -> None:
    """Zeros, text or another architecture are `altered`; a stripped object or another build is only `changed`."""
    install(
        tmp_path,
        "tensorflow",
        "2.15.1",
        {f"tensorflow/{name}.so": make_elf(5000) for name in ("zeros", "text", "stripped", "arm", "whole")},
    )
    (tmp_path / "tensorflow/zeros.so").write_bytes(bytes(3000))
    (tmp_path / "tensorflow/text.so").write_bytes(b"<html>" * 2000)
    (tmp_path / "tensorflow/stripped.so").write_bytes(make_elf(4000))
    arm = bytearray(make_elf(4000))
    arm[18] = 0x28
    (tmp_path / "tensorflow/arm.so").write_bytes(arm)
    tensorflow = probe_facts(version, tmp_path).find_distribution("tensorflow")
    assert tensorflow is not None
    assert {file.path.partition("/")[2]: file.what for file in tensorflow.differs} == {
        "zeros.so": "altered",
        "text.so": "altered",
        "stripped.so": "changed",
        "arm.so": "altered",
    }


@on_every_python
def test_module_in_an_archive_shadows_a_later_one(version: str, tmp_path: Path) -> None:
    install(tmp_path / "site", "six", "1.17.0", {"six.py": b""})
    archive, text = tmp_path / "old.zip", tmp_path / "text.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        stream.writestr("six.py", "")
    text.write_bytes(b"no archive")
    path = f"{text}:{archive}:{tmp_path / 'site'}"
    system = LiveSystem(env={**os.environ, "PYTHONPATH": path})
    choice = PythonChoice(PYTHONS[version], PYTHONS[version])
    facts = value_of(python.probe(system, choice, is_requested=True, timeout=60)[0])
    assert facts is not None
    assert {shadow.taken for shadow in facts.shadows if shadow.name == "six"} == {f"{archive}/six.py"}


@on_every_python
def test_folder_with_bytecode_alone_is_not_hidden(version: str, tmp_path: Path) -> None:
    """pip leaves it of a package that it removed; keras is then only where PYTHONPATH leads."""
    for name in ("first/keras/__init__.py", "first/rich/__init__.py", "second/rich/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "second/keras/src/__pycache__").mkdir(parents=True)
    (tmp_path / "second/keras/src/__pycache__/x.pyc").touch()
    system = LiveSystem(env={**os.environ, "PYTHONPATH": f"{tmp_path}/first:{tmp_path}/second"})
    choice = PythonChoice(PYTHONS[version], PYTHONS[version])
    facts = value_of(python.probe(system, choice, is_requested=True, timeout=60)[0])
    assert facts is not None
    assert {shadow.name for shadow in facts.shadows} & {"keras", "rich"} == {"rich"}


@on_every_python
def test_tensorflow_in_an_archive(version: str, tmp_path: Path) -> None:
    """No shared object can be loaded out of an archive, so it stops the import where it comes first."""
    install(tmp_path / "site", "tensorflow", "2.15.1", {"tensorflow/__init__.py": b""})
    archive = tmp_path / "deps.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        stream.writestr("tensorflow/__init__.py", "")
    site, choice = tmp_path / "site", PythonChoice(PYTHONS[version], PYTHONS[version])
    for folders, shadow, only in (
        ((archive, site), f"{archive}/tensorflow/__init__.py", None),
        ((site, archive), None, None),
        ((archive,), f"{archive}/tensorflow/__init__.py", str(archive)),
    ):
        system = LiveSystem(env={**os.environ, "PYTHONPATH": ":".join(map(str, folders))})
        tensorflow = value_of(python.probe(system, choice, is_requested=True, timeout=60)[1])
        if version == "2.7" and only is not None:
            continue  # it has no finder that says where a module is without importing it
        assert tensorflow is not None
        assert (tensorflow.shadowed_by, tensorflow.archive, tensorflow.behind) == (shadow, only, None)


@on_every_python
def test_extension_modules_of_another_python(version: str, tmp_path: Path) -> None:
    tag = "cpython-37m" if version != "3.7" else "cpython-38"
    foreign, plain = f"numpy/core/_umath.{tag}-x86_64-linux-gnu.so", "h5py/_conv.so"
    install(tmp_path, "numpy", "1.26.4", {foreign: make_elf(900), "numpy/core/plain.so": make_elf(900)})
    install(tmp_path, "h5py", "3.10.0", {plain: make_elf(900)})
    install(tmp_path, "tensorflow", "2.15.1", {"tensorflow/__init__.py": b""})
    metadata = tmp_path / "tensorflow-2.15.1.dist-info" / "METADATA"
    metadata.write_text("Name: tensorflow\nVersion: 2.15.1\nRequires-Dist: numpy\nRequires-Dist: h5py\n\n")
    facts = probe_facts(version, tmp_path)
    differences = {
        (file.path, file.what)
        for name in ("numpy", "h5py")
        if (distribution := facts.find_distribution(name)) is not None
        for file in distribution.differs
    }
    assert differences == ({(foreign, "other-python")} if version != "2.7" else set())


@on_every_python
def test_every_kind_of_record_line_is_read(version: str, tmp_path: Path) -> None:
    install(tmp_path, "tensorflow", "2.20.0", {"tensorflow/__init__.py": b""})
    lines = (
        "tensorflow/first.py,sha256=x,3",
        f"{'long/' * 500}path.py,sha256=x,3",
        "tensorflow/header.h,sha256=x,3",
        "tensorflow/two.solid.py,,",
        '"tensorflow/with,comma.py",sha256=x,3',
        "../../bin/script.py,sha256=x,3",
        "tensorflow/library.so.2,sha256=x,3",
        "tensorflow/tests/left_out.py,sha256=x,3",
        "tensorflow/last.py,sha256=x,3",
    )
    record = tmp_path / "tensorflow-2.20.0.dist-info" / "RECORD"
    for end in ("\n", "\r\n"):
        record.write_bytes(end.join(lines).encode())
        distribution = next(
            distribution
            for distribution in probe_facts(version, tmp_path).distributions
            if distribution.name == "tensorflow"
        )
        missing = [f"tensorflow/{name}" for name in ("first.py", "two.solid.py", "library.so.2", "last.py")]
        assert [(file.path, file.what) for file in distribution.differs] == [
            (name, "missing") for name in missing
        ]
        assert distribution.lost == ("tensorflow/library.so.2",)


@on_every_python
def test_requirements_after_a_multiline_licence_are_read(version: str, tmp_path: Path) -> None:
    install(tmp_path, "tensorflow", "2.15.1", {"tensorflow/__init__.py": b""})
    metadata = tmp_path / "tensorflow-2.15.1.dist-info" / "METADATA"
    metadata.write_text("Name: tensorflow\nVersion: 2.15.1\nRequires-Dist: ml-dtypes\n\n", encoding="utf-8")
    install(tmp_path, "ml-dtypes", "0.3.2", {"ml_dtypes/__init__.py": b""})
    (tmp_path / "ml_dtypes-0.3.2.dist-info" / "METADATA").write_text(
        "Name: ml-dtypes\nVersion: 0.3.2\nLicense: \n        Apache\n        \n        Requires-Dist: none\n"
        "Requires-Dist: numpy >1.20\n\nRequires-Dist: a text\n",
        encoding="utf-8",
    )
    ml_dtypes = probe_facts(version, tmp_path).find_distribution("ml-dtypes")
    assert ml_dtypes is not None
    assert ml_dtypes.requires == ("numpy >1.20",)


@on_every_python
def test_file_shadows_a_namespace_package(version: str, tmp_path: Path) -> None:
    """protobuf's `google` is a namespace package: it has no `__init__.py`."""
    install(tmp_path / "site", "protobuf", "7.36.2", {"google/protobuf/__init__.py": b""})
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "google.py").write_bytes(b"")
    path = f"{tmp_path / 'code'}:{tmp_path / 'site'}"
    choice = PythonChoice(PYTHONS[version], PYTHONS[version])
    facts = value_of(
        python.probe(
            LiveSystem(env={**os.environ, "PYTHONPATH": path}), choice, is_requested=True, timeout=60
        )[0]
    )
    assert facts is not None
    assert {shadow.taken for shadow in facts.shadows if shadow.name == "google"} == {
        f"{tmp_path}/code/google.py"
    }


@on_every_python
@pytest.mark.parametrize(("package", "is_shadowed"), [("protobuf", True), ("auth", False)])
def test_parts_of_a_namespace_package_hide_equal_packages(
    package: str, is_shadowed: bool, version: str, tmp_path: Path
) -> None:
    """`pip install --target .` of protobuf hides the protobuf of the environment, and google.auth does not."""
    install(tmp_path / "site", "protobuf", "7.36.2", {"google/protobuf/__init__.py": b""})
    install(tmp_path / "code", package, "3.19.3", {f"google/{package}/__init__.py": b""})
    path = f"{tmp_path / 'code'}:{tmp_path / 'site'}"
    system = LiveSystem(env={**os.environ, "PYTHONPATH": path})
    choice = PythonChoice(PYTHONS[version], PYTHONS[version])
    facts = value_of(python.probe(system, choice, is_requested=True, timeout=60)[0])
    assert facts is not None
    assert any(shadow.name == "google" for shadow in facts.shadows) is is_shadowed
