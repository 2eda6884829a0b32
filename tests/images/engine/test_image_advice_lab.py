"""Tests that the printed advice repairs a broken image, for each cause that an image can have.

Opt-in, like all tests that need real wheels (TFDOCTOR_LAB=1). Docker or Podman builds a real image, which is then
broken in one way at a time. The printed lines go into a Dockerfile that begins with that image, and the engine's own
client runs the printed commands. Whatever they need of this network (a certificate, the host's network) is in the
broken image or added to the command.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import environments, standins
from lab.engine import Unavailable, cache_folder
from lab.images import (
    CERTIFICATES,
    LAB_BUILD_OPTIONS,
    MARKS,
    make,
    make_cuda_10_image,
    make_docker_engine,
    run_podman_engine,
    tfdoctor,
    verify,
)
from tfdoctor.images.engine import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.images import ImageEngine

pytestmark = MARKS

READY_IMAGE = os.environ.get("TFDOCTOR_LAB_IMAGE")
"""Name of an image of 2.16 that `tfdoctor build` made and Docker already has; None builds one."""
SITE = "/opt/tensorflow/lib/python3.11/site-packages"
PACKAGES = "/usr/local/lib/python2.7/dist-packages"
"""The folder of the packages in the images of 1.13 and 1.14."""
CUDA = "/usr/local/cuda-10.0/lib64"
OFFICIAL = ("--python-version", "2.7", "--recipe", "official")
PIP = "/opt/tensorflow/bin/pip install -q --no-deps"
LIST_GPUS = (
    "import tensorflow as tf; c = getattr(tf.config, 'experimental', tf.config); "
    "print('%d GPU' % len(c.list_physical_devices('GPU')))"
)
GPU_COUNTS = {"docker": 1, "podman": 2}
"""Number of GPUs of each engine."""
REQUIRE_NEW_GLIBC = f"""\
import re
def number(name):
    n = 0
    for c in name:
        n = ((n << 4) + c) & 0xffffffff
        n = (n ^ (n & 0xf0000000) >> 24) & 0x0fffffff
    return n.to_bytes(4, "little")
path = "{SITE}/tensorflow/libtensorflow_framework.so.2"
old, new = b"GLIBC_2.14", b"GLIBC_2.94"
data = open(path, "rb").read()
assert b"\\0" + old + b"\\0" in data
data = data.replace(b"\\0" + old + b"\\0", b"\\0" + new + b"\\0")
data, count = re.subn(re.escape(number(old)) + rb"(?=\\0\\0.\\0)", number(new), data, flags=re.DOTALL)
assert count
open(path, "wb").write(data)
"""
"""Makes TensorFlow's library require a glibc that does not exist yet: no wheel requires one newer than 2.27, and no
available system is older than that."""


@dataclass(frozen=True)
class Fault:
    """One way to break an image."""

    cause: str
    lines: str
    """Lines of the Dockerfile below `FROM` with the good image."""
    remedy: str = "lines"
    """The part of the advice to apply: "lines" of a Dockerfile, the option of "run", or the "rebuild"."""
    name: str = ""
    release: str = "2.16"
    """The release of TensorFlow in the good image."""
    engine: str = "docker"

    @property
    def test_id(self) -> str:
        return f"{self.engine}-{self.release}-{(self.name or self.cause).replace(' ', '-')}"


FAULTS = (
    Fault("numpy-abi", f"RUN {PIP} numpy==2.0.2"),
    Fault("protobuf-conflict", f"RUN {PIP} protobuf==3.19.6"),
    Fault("package-conflict", "RUN /opt/tensorflow/bin/pip uninstall -q -y wrapt", name="package gone"),
    Fault("libs-not-installed", f"RUN rm {SITE}/nvidia/cufft/lib/libcufft.so.11"),
    Fault(
        "libs-wrong-version",
        f"RUN /opt/tensorflow/bin/pip uninstall -q -y nvidia-cufft-cu12 && {PIP} nvidia-cufft-cu11==10.9.0.58",
    ),
    Fault("cudnn-missing", "RUN /opt/tensorflow/bin/pip uninstall -q -y nvidia-cudnn-cu12"),
    Fault("cudnn-version-mismatch", f"RUN {PIP} nvidia-cudnn-cu12==9.3.0.75"),
    Fault("libs-transitive", f"RUN rm {SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12"),
    Fault(
        "damaged-file",
        f"RUN cd {SITE}/nvidia/cufft/lib && f=$(readlink -f libcufft.so.11) && head -c 100000 $f >/t && cp /t $f",
    ),
    Fault("not-permitted", f"RUN chmod 000 {SITE}/nvidia/cufft/lib/libcufft.so.11"),
    Fault(
        "libs-not-on-path",
        f"RUN mkdir /elsewhere && mv {SITE}/nvidia/cufft/lib/libcufft.so.11 /elsewhere/ && "
        "/opt/tensorflow/bin/pip uninstall -q -y nvidia-cufft-cu12 && mkdir -p /usr/local/cuda/lib64 && "
        "mv /elsewhere/* /usr/local/cuda/lib64/",
    ),
    Fault("stub-libcuda", "COPY stub.so /stubs/libcuda.so.1\nENV LD_LIBRARY_PATH=/stubs"),
    Fault(
        "compat-not-supported",
        "COPY refusing.so /usr/local/cuda-12.4/compat/libcuda.so.1\nENV LD_LIBRARY_PATH=/usr/local/cuda-12.4/compat",
    ),
    Fault(
        "libstdcxx-too-old",
        "COPY oldstdc++.so /opt/other/lib/libstdc++.so.6\nENV LD_LIBRARY_PATH=/opt/other/lib",
    ),
    Fault("glibc-too-old", "COPY future.py /\nRUN /opt/tensorflow/bin/python /future.py", "rebuild"),
    Fault("shadowed-module", "RUN mkdir /own && echo x=1 >/own/numpy.py\nENV PYTHONPATH=/own"),
    Fault("hidden-by-env", "ENV CUDA_VISIBLE_DEVICES=-1", "run"),
    Fault(
        "hidden-by-env",
        f"""RUN echo "import os; os.environ['CUDA_VISIBLE_DEVICES']='-1'" >{SITE}/gpus.pth""",
        name="hidden by a file",
    ),
    Fault(
        "cpu-only-build",
        f"RUN {PIP} tensorflow-cpu==2.16.2 && rm -r {SITE}/tensorflow-2.16.2.dist-info",
        "rebuild",
    ),
    Fault("both-packages", f"RUN {PIP} tensorflow-cpu==2.16.2"),
    Fault("tensorflow-missing", "RUN /opt/tensorflow/bin/pip uninstall -q -y tensorflow", "rebuild"),
    Fault("python-unusable", "RUN rm -f /usr/bin/python3* /opt/tensorflow/bin/python*", "rebuild"),
    Fault("nvml-missing", "ENV NVIDIA_DRIVER_CAPABILITIES=compute", release="2.21"),
    Fault(
        "nvml-missing",
        "ENV NVIDIA_DRIVER_CAPABILITIES=compute",
        "run",
        name="NVML for one container",
        release="2.21",
    ),
    Fault(
        "import-missing-cuda-lib",
        f"RUN rm {CUDA}/libcusolver.so.10.0 && ldconfig",
        "rebuild",
        release="1.13",
    ),
)
OLD_FAULTS = (
    Fault("not-permitted", f"RUN chmod 000 {CUDA}/libcufft.so.10.0"),
    Fault("libs-not-on-path", "RUN rm /etc/ld.so.conf.d/c.conf && ldconfig"),
    Fault("stub-libcuda", "COPY stub.so /stubs/libcuda.so.1\nENV LD_LIBRARY_PATH=/stubs"),
    Fault("shadowed-module", "RUN mkdir /own && echo x=1 >/own/numpy.py\nENV PYTHONPATH=/own"),
    Fault("tensorflow-missing", "RUN python2 -m pip uninstall -q -y tensorflow-gpu", "rebuild"),
    Fault("hidden-by-env", "ENV CUDA_VISIBLE_DEVICES=-1", "run"),
    Fault(
        "hidden-by-env",
        f"""RUN echo "import os; os.environ['CUDA_VISIBLE_DEVICES']='-1'" >{PACKAGES}/gpus.pth""",
        name="hidden by a file",
    ),
    Fault("libs-not-installed", f"RUN rm {CUDA}/libcufft.so.10.0 && ldconfig", "rebuild"),
)
"""Faults of 1.14, whose image is small."""
NAMES_FOR_BOTH = {
    *("numpy-abi", "cudnn-missing", "libs-transitive", "damaged-file", "stub-libcuda", "hidden-by-env"),
    *("hidden by a file", "tensorflow-missing"),
}
"""Faults of 2.16 that are also tested with Podman."""
FAULTS_FOR_BOTH = tuple(fault for fault in FAULTS if (fault.name or fault.cause) in NAMES_FOR_BOTH)
PODMAN_FAULTS = tuple(replace(fault, engine="podman", release="1.14") for fault in OLD_FAULTS)
MODERN_NAMES = {"libs-transitive", "stub-libcuda", "hidden by a file", "NVML for one container"}
"""Faults that are also tested with the image of 2.21 of other tests."""
DEFAULT_FAULTS = (
    *PODMAN_FAULTS[::4],
    *(replace(fault, release="2.21") for fault in FAULTS if (fault.name or fault.cause) in MODERN_NAMES),
)
"""Each takes 15 seconds; TFDOCTOR_LAB_FULL=1 selects all faults."""
ALL_FAULTS = (*PODMAN_FAULTS, *FAULTS, *(replace(fault, engine="podman") for fault in FAULTS_FOR_BOTH))
SELECTED_FAULTS = ALL_FAULTS if environments.is_full_run() else DEFAULT_FAULTS


def run_verification(ground: ImageEngine, image: str) -> dict[str, Any]:
    return verify(ground.url, image, "--stages", "visible")[1]


def list_remedies(report: dict[str, Any]) -> list[list[str]]:
    return [remedy["commands"] for remedy in report["findings"][0]["remedies"] if remedy["commands"]]


# ---------------------------------------------------------------- a good image


@dataclass(frozen=True)
class Good:
    """An image that verifies, and the arguments that build it here, where no base can be pulled."""

    ground: ImageEngine
    image: str
    release: str
    arguments: tuple[str, ...]


@pytest.fixture(scope="module")
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Good]:
    """Yield one engine and image at a time, because disks are small.

    The parameter is the engine and the release of TensorFlow.
    """
    program, release = request.param
    folder = tmp_path_factory.mktemp("good")
    with contextlib.ExitStack() as stack:
        if program == "docker":
            lab = request.getfixturevalue("lab_engine")
            lab.set_gpu_count(GPU_COUNTS["docker"])
            ground = make_docker_engine(lab)
        else:
            try:
                ground = stack.enter_context(run_podman_engine(cache_folder(), GPU_COUNTS["podman"]))
            except Unavailable as reason:
                pytest.skip(str(reason))
        if request.param == ("docker", "2.21"):
            yield Good(ground, request.getfixturevalue("modern").tag, release, _debian_arguments(ground))
            return
        yield stack.enter_context(
            _build_linked_image(ground, folder)
            if release == "1.13"
            else _build_good_image(ground, release, folder)
        )


def _debian_arguments(ground: ImageEngine) -> tuple[str, ...]:
    return "--base", ground.base("bookworm"), "--python-version", "3.11"


@contextlib.contextmanager
def _build_good_image(ground: ImageEngine, release: str, folder: Path) -> Iterator[Good]:
    arguments = (
        (*OFFICIAL, "--base", make_cuda_10_image(ground, folder))
        if release == "1.14"
        else _debian_arguments(ground)
    )
    if READY_IMAGE and release == "2.16" and ground.program == "docker":
        yield Good(ground, READY_IMAGE, release, arguments)
        return
    image = ground.make_image_name(f"advice:{release}")
    make(ground.url, image, *arguments, "--tf", release)
    yield Good(ground, image, release, arguments)
    ground.remove(image)


@contextlib.contextmanager
def _build_linked_image(ground: ImageEngine, folder: Path) -> Iterator[Good]:
    """Yield an image of TensorFlow 1.13, which is linked with CUDA, on Python 2.7 with stand-ins of CUDA 10.0."""
    bare, image = ground.make_image_name("bare:1.13"), ground.make_image_name("advice:1.13")
    make(ground.url, bare, "--tf", "1.13", *OFFICIAL, "--base", ground.base("bullseye"))
    objects = [
        f"{PACKAGES}/tensorflow/{name}"
        for name in ("libtensorflow_framework.so", "python/_pywrap_tensorflow_internal.so")
    ]
    container = ground.client("create", bare, "true").stdout.strip()
    for path in objects:
        ground.client("cp", f"{container}:{path}", str(folder))
    ground.client("rm", container)
    base = make_cuda_10_image(ground, folder / "cuda", sorted(folder.glob("*.so")))
    for path in folder.glob("*.so"):
        path.unlink()
    arguments = (*OFFICIAL, "--base", base)
    make(ground.url, image, "--tf", "1.13", *arguments)
    ground.remove(bare)
    yield Good(ground, image, "1.13", arguments)
    ground.remove(image, base)


# ---------------------------------------------------------------- broken and repaired images


def make_broken_image(good: Good, folder: Path, fault: Fault) -> str:
    """Build the broken image and return its name."""
    folder.mkdir()
    (folder / "ca.crt").write_bytes(Path(CERTIFICATES).read_bytes())
    (folder / "future.py").write_text(REQUIRE_NEW_GLIBC, encoding="ascii")
    compiled = good.ground.cache / "compiled"
    standins.write_stub_driver(folder / "stub.so", compiled)
    standins.write_driver(folder / "refusing", compiled, nvml=False, init=804)
    (folder / "refusing" / standins.CUDA).rename(folder / "refusing.so")
    standins.write_library(
        folder / "oldstdc++.so", compiled, soname="libstdc++.so.6", symbols=("_Znwm@GLIBCXX_3.4",)
    )
    head = f"FROM {good.image}\nUSER root\nCOPY ca.crt /ca.crt\nENV PIP_CERT=/ca.crt\n"
    (folder / "Dockerfile").write_text(f"{head}{fault.lines}\nUSER 1000\n", encoding="utf-8")
    name = good.ground.make_image_name(f"ill:{fault.test_id.lower()}")
    good.ground.client("build", "--network", "host", "-t", name, str(folder))
    return name


def apply_lines(ground: ImageEngine, folder: Path, image: str, commands: list[str]) -> str:
    """Build the printed lines below FROM, check the printed commands, and return the name of the new image."""
    index = next(n for n, line in enumerate(commands) if line.startswith(f"{ground.program} build "))
    folder.mkdir()
    lines = "\n".join(commands[:index])
    (folder / "Dockerfile").write_text(f"FROM {image}\n{lines}\n", encoding="utf-8")
    arguments = shlex.split(commands[index])
    assert arguments[:3] == [ground.program, "build", "-t"]
    result = ground.client("build", "--network", "host", *arguments[2:-1], str(folder), check=False)
    assert result.returncode == 0, result.stdout[-1500:] + result.stderr[-1500:]
    assert commands[index + 1 :] == [f"tfdoctor verify {arguments[3]}"]
    return arguments[3]


def rebuild_image(good: Good, remedies: list[list[str]]) -> str:
    """Run the first printed `tfdoctor build` on a local base and return the name of the new image."""
    build_command, verify_command = next(
        commands for commands in remedies if commands[0].startswith("tfdoctor build")
    )
    arguments = [
        *shlex.split(build_command)[2:],
        *(() if "--tf" in build_command else ("--tf", good.release)),
    ]
    index = arguments.index("--tf") + 1
    assert arguments[index].startswith(("2.", good.release)), build_command
    arguments[index] = good.release  # the layers of this release are already here
    result = tfdoctor(good.ground.url, "build", *LAB_BUILD_OPTIONS, *good.arguments, *arguments)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return shlex.split(verify_command)[-1]


def check_run_command(good: Good, command: str) -> None:
    """Run the printed command with a program that lists the GPUs."""
    ground = good.ground
    arguments = shlex.split(command)
    if arguments[0] == "env":
        assert arguments[1::2][:1] == ["-u"]
        arguments = arguments[3:]
    assert arguments[:2] == [ground.program, "run"]
    python = "python2" if good.arguments[:2] == OFFICIAL[:2] else "python"
    result = ground.client(*arguments[1:], python, "-c", LIST_GPUS, check=False)
    assert f"{GPU_COUNTS[ground.program]} GPU" in result.stdout, result.stderr[-1500:]


def list_cases() -> list[Any]:
    """Return the test parameters, with the faults of one image next to each other."""
    grounds = [(fault.engine, fault.release) for fault in SELECTED_FAULTS]
    faults = sorted(SELECTED_FAULTS, key=lambda fault: grounds.index((fault.engine, fault.release)))
    return [pytest.param((fault.engine, fault.release), fault, id=fault.test_id) for fault in faults]


@pytest.mark.parametrize("good", [("podman", "1.14")], indirect=True, ids=["podman-1.14"])
def test_podman_gives_gpus_through_cdi(good: Good) -> None:
    engine = connect(good.ground.url)
    assert engine.name == "podman"
    engine.client.close()
    code, answer = verify(good.ground.url, good.image, "--stages", "visible", "--gpu-count", "2")
    assert (code, answer["gpus"]["visible"]) == (0, 2), answer["stages"]


# `ill` is not a fixture: without the scope, `good` would be built again for each test.
@pytest.mark.parametrize(("good", "ill"), list_cases(), indirect=["good"], scope="module")
def test_advice_repairs_the_image(good: Good, tmp_path: Path, ill: Fault) -> None:
    ground = good.ground
    image = make_broken_image(good, tmp_path / "ill", ill)
    new_image = ""
    try:
        answer = run_verification(ground, image)
        assert answer["verdict"]["gpu_usable"] is False
        assert answer["verdict"]["cause"] == ill.cause, answer["verdict"]
        remedies = list_remedies(answer)
        if ill.remedy == "run":
            check_run_command(
                good, next(commands[0] for commands in remedies if f"{ground.program} run" in commands[0])
            )
            return
        if ill.remedy == "rebuild":
            new_image = rebuild_image(good, remedies)
        else:
            build_command = f"{ground.program} build "
            lines = next(
                commands for commands in remedies if any(line.startswith(build_command) for line in commands)
            )
            new_image = apply_lines(ground, tmp_path / "cured", image, lines)
        report = run_verification(ground, new_image)
        assert report["verdict"]["gpu_usable"] is True, report
    finally:
        ground.remove(image, *([new_image] if new_image else []))
