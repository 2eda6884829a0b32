"""The image of tfdoctor itself (dockerfiles/tfdoctor.Dockerfile): small, without root, and right about what is mounted."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.images import MARKS, derive_image, make_docker_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.engine import LabEngine
    from lab.images import ImageEngine

pytestmark = MARKS
ROOT = Path(__file__).resolve().parents[3]
TAG, BASE = "tfdoctor-lab/own:1", "tfdoctor-lab/own-base:1"
MAX_IMAGE_BYTES = 120_000_000
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@pytest.fixture(scope="module")
def ground(lab_engine: LabEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageEngine]:
    """Build the image from what git tracks, and yield the engine."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git")
    context = tmp_path_factory.mktemp("own") / "context"
    listed = subprocess.run([git, "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and (not name.startswith("tests/") or name.startswith("tests/hosts/")):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, context / name)
    engine = make_docker_engine(lab_engine)
    files = {"ca.crt": CERTIFICATES.read_bytes()} if CERTIFICATES.exists() else {}
    pip_conf = Path("/etc/pip.conf")
    files |= {"pip.conf": pip_conf.read_bytes() if pip_conf.exists() else b""}
    steps = "COPY pip.conf /etc/pip.conf"
    if "ca.crt" in files:
        steps += f"\nCOPY ca.crt {CERTIFICATES}\nENV PIP_CERT={CERTIFICATES}"
    derive_image(lab_engine.url, engine.base("bookworm"), BASE, steps, files)
    file = str(context / "dockerfiles" / "tfdoctor.Dockerfile")
    engine.client(
        "build",
        "--quiet",
        "--network=host",
        f"--build-arg=BASE={BASE}",
        f"--file={file}",
        f"--tag={TAG}",
        str(context),
    )
    yield engine
    engine.remove(TAG, BASE)


def test_it_is_small_and_has_no_root(ground: ImageEngine) -> None:
    (details,) = json.loads(ground.client("image", "inspect", TAG).stdout)
    assert details["Size"] <= MAX_IMAGE_BYTES
    assert details["Config"]["User"] == "10001:10001"


def test_it_examines_what_is_mounted(ground: ImageEngine, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "train.log").write_text("failed call to cuInit: UNKNOWN ERROR (303)\n")
    (tmp_path / "train.py").write_text("import os\nos.environ['CUDA_VISIBLE_DEVICE'] = '0'\n")
    environment = tmp_path / "env"
    package = environment / "lib" / "python3.11" / "site-packages" / "tensorflow_cpu-2.20.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.20.0\n")
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    (environment / "bin").mkdir()
    (environment / "bin" / "python").symlink_to("/usr/bin/python3.11")

    def run(*words: str) -> dict[str, object]:
        done = ground.client(
            "run",
            "--rm",
            "--network=none",
            f"--volume={tmp_path}:/work:ro",
            f"--volume={environment}:/opt/tf:ro",
            TAG,
            *words,
            "--json",
            check=False,
        )
        document: dict[str, object] = json.loads(done.stdout)
        return document

    assert run("diagnose", "train.log")["verdict"]["cause"] == "no-driver"  # type: ignore[index]
    assert run("lint", "train.py")["findings"][0]["code"] == "TFD711"  # type: ignore[index]
    assert run("check", "--from", "demo:plain-pip-install")["verdict"]["cause"] == "libs-not-installed"  # type: ignore[index]
    assert (
        run("check", "--python", "/opt/tf")["facts"]["python"]["known"]["executable"] == "/opt/tf/bin/python"
    )  # type: ignore[index]
