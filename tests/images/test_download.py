"""download.sh with a real pip: what was downloaded before a build failed is not downloaded again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tfdoctor.compat.folder import data_dir

if TYPE_CHECKING:
    from pathlib import Path

SH = shutil.which("sh") or "/bin/sh"
NAMES = ("tfd_one", "tfd_two")


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Return a folder with two wheels, beside a lock file that names them."""
    folder = tmp_path / "index"
    folder.mkdir()
    pins = []
    for name in NAMES:
        path = folder / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(f"{name}.py", "x = 1\n")
            for file, text in (
                ("METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"),
                ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
                ("RECORD", ""),
            ):
                wheel.writestr(f"{name}-1.0.dist-info/{file}", text)
        pins.append(f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    (tmp_path / "lock.txt").write_text("".join(pins), encoding="ascii")
    return folder


def download(index: Path, lines: int) -> subprocess.CompletedProcess[str]:
    """Run the script and return how it ended. The index is a folder."""
    script, folder = data_dir("dockerfiles") / "download.sh", index.parent
    (folder / "kept").mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment |= {"PIP_FIND_LINKS": str(index), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    pip = (sys.executable, "-m", "pip", "download", "--no-cache-dir", "--no-deps", "--require-hashes")
    return subprocess.run(
        [SH, str(script), str(folder / "kept"), str(lines), str(folder / "lock.txt"), *pip],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def list_kept(index: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in (index.parent / "kept").iterdir())


@pytest.mark.parametrize("lines", [1, 1000])
def test_second_build_needs_no_index(index: Path, lines: int) -> None:
    first = download(index, lines)
    assert (first.returncode, list_kept(index)) == (0, list(NAMES)), first.stderr
    shutil.rmtree(index)
    second = download(index, lines)
    assert (second.returncode, list_kept(index)) == (0, list(NAMES)), second.stderr


def test_large_packages_are_kept_one_by_one(index: Path) -> None:
    """The second one is missing, as if the network had failed after the first."""
    (index / "tfd_two-1.0-py3-none-any.whl").unlink()
    assert download(index, 1).returncode != 0
    assert list_kept(index) == ["tfd_one"]


def test_file_that_was_cut_off_is_downloaded_again(index: Path) -> None:
    assert download(index, 1).returncode == 0
    path = index.parent / "kept" / "tfd_one-1.0-py3-none-any.whl"
    content = path.read_bytes()
    path.write_bytes(content[:50])
    assert download(index, 1).returncode == 0
    assert path.read_bytes() == content
