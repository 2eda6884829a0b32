"""The advice for a broken image, applied as it is printed, gives an image that verifies: for each cause an image has.

Opt-in as all that needs real wheels (TFDOCTOR_LAB=1). A real image is built by Docker or by Podman, and broken in one
way at a time; then the printed lines go into a Dockerfile that begins with it, and the printed commands are typed, by
that engine's own client. What they need of this network (a certificate, the host's network) is in the broken image,
or added to the command.
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
    HERE,
    MARKS,
    docker_ground,
    make,
    podman_ground,
    tfdoctor,
    verify,
    with_cuda_10,
)
from tfdoctor.engine import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.images import Ground

pytestmark = MARKS

READY = os.environ.get("TFDOCTOR_LAB_IMAGE")
"""An image of 2.16 that `tfdoctor build` made, and that is in Docker already."""
SITE = "/opt/tensorflow/lib/python3.11/site-packages"
PACKAGES = "/usr/local/lib/python2.7/dist-packages"
"""Of the images of 1.13 and 1.14."""
CUDA = "/usr/local/cuda-10.0/lib64"
OFFICIAL = ("--python", "2.7", "--recipe", "official")
PIP = "/opt/tensorflow/bin/pip install -q --no-deps"
LISTS = (
    "import tensorflow as tf; c = getattr(tf.config, 'experimental', tf.config); "
    "print('%d GPU' % len(c.list_physical_devices('GPU')))"
)
GPUS = {"docker": 1, "podman": 2}
"""That each engine has."""
FUTURE = f"""\
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
"""TensorFlow's library asks for a glibc that is not there yet. No wheel wants one newer than 2.27, and no system that
can be had is older than that."""


@dataclass(frozen=True)
class Ill:
    """An image that is broken in one way."""

    cause: str
    lines: str
    """Below `FROM` a good one."""
    cure: str = "lines"
    """What of the advice is applied: "lines" of a Dockerfile, the option of "run", or the "rebuild"."""
    name: str = ""
    on: str = "2.16"
    """The TensorFlow of the good one."""
    engine: str = "docker"

    @property
    def word(self) -> str:
        return f"{self.engine}-{self.on}-{(self.name or self.cause).replace(' ', '-')}"


ILLS = (
    Ill("numpy-abi", f"RUN {PIP} numpy==2.0.2"),
    Ill("protobuf-conflict", f"RUN {PIP} protobuf==3.19.6"),
    Ill("package-conflict", "RUN /opt/tensorflow/bin/pip uninstall -q -y wrapt", name="package gone"),
    Ill("libs-not-installed", f"RUN rm {SITE}/nvidia/cufft/lib/libcufft.so.11"),
    Ill(
        "libs-wrong-version",
        f"RUN /opt/tensorflow/bin/pip uninstall -q -y nvidia-cufft-cu12 && {PIP} nvidia-cufft-cu11==10.9.0.58",
    ),
    Ill("cudnn-missing", "RUN /opt/tensorflow/bin/pip uninstall -q -y nvidia-cudnn-cu12"),
    Ill("cudnn-version-mismatch", f"RUN {PIP} nvidia-cudnn-cu12==9.3.0.75"),
    Ill("libs-transitive", f"RUN rm {SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12"),
    Ill(
        "damaged-file",
        f"RUN cd {SITE}/nvidia/cufft/lib && f=$(readlink -f libcufft.so.11) && head -c 100000 $f >/t && cp /t $f",
    ),
    Ill("not-permitted", f"RUN chmod 000 {SITE}/nvidia/cufft/lib/libcufft.so.11"),
    Ill(
        "libs-not-on-path",
        f"RUN mkdir /elsewhere && mv {SITE}/nvidia/cufft/lib/libcufft.so.11 /elsewhere/ && "
        "/opt/tensorflow/bin/pip uninstall -q -y nvidia-cufft-cu12 && mkdir -p /usr/local/cuda/lib64 && "
        "mv /elsewhere/* /usr/local/cuda/lib64/",
    ),
    Ill("stub-libcuda", "COPY stub.so /stubs/libcuda.so.1\nENV LD_LIBRARY_PATH=/stubs"),
    Ill(
        "compat-not-supported",
        "COPY refusing.so /usr/local/cuda-12.4/compat/libcuda.so.1\nENV LD_LIBRARY_PATH=/usr/local/cuda-12.4/compat",
    ),
    Ill(
        "libstdcxx-too-old",
        "COPY oldstdc++.so /opt/other/lib/libstdc++.so.6\nENV LD_LIBRARY_PATH=/opt/other/lib",
    ),
    Ill("glibc-too-old", "COPY future.py /\nRUN /opt/tensorflow/bin/python /future.py", "rebuild"),
    Ill("shadowed-module", "RUN mkdir /own && echo x=1 >/own/numpy.py\nENV PYTHONPATH=/own"),
    Ill("hidden-by-env", "ENV CUDA_VISIBLE_DEVICES=-1", "run"),
    Ill(
        "hidden-by-env",
        f"""RUN echo "import os; os.environ['CUDA_VISIBLE_DEVICES']='-1'" >{SITE}/gpus.pth""",
        name="hidden by a file",
    ),
    Ill(
        "cpu-only-build",
        f"RUN {PIP} tensorflow-cpu==2.16.2 && rm -r {SITE}/tensorflow-2.16.2.dist-info",
        "rebuild",
    ),
    Ill("both-packages", f"RUN {PIP} tensorflow-cpu==2.16.2"),
    Ill("tensorflow-missing", "RUN /opt/tensorflow/bin/pip uninstall -q -y tensorflow", "rebuild"),
    Ill("python-unusable", "RUN rm -f /usr/bin/python3* /opt/tensorflow/bin/python*", "rebuild"),
    Ill("nvml-missing", "ENV NVIDIA_DRIVER_CAPABILITIES=compute", on="2.21"),
    Ill(
        "nvml-missing",
        "ENV NVIDIA_DRIVER_CAPABILITIES=compute",
        "run",
        name="NVML for one container",
        on="2.21",
    ),
    Ill(
        "import-missing-cuda-lib",
        f"RUN rm {CUDA}/libcusolver.so.10.0 && ldconfig",
        "rebuild",
        on="1.13",
    ),
)
OLDER = (
    Ill("not-permitted", f"RUN chmod 000 {CUDA}/libcufft.so.10.0"),
    Ill("libs-not-on-path", "RUN rm /etc/ld.so.conf.d/c.conf && ldconfig"),
    Ill("stub-libcuda", "COPY stub.so /stubs/libcuda.so.1\nENV LD_LIBRARY_PATH=/stubs"),
    Ill("shadowed-module", "RUN mkdir /own && echo x=1 >/own/numpy.py\nENV PYTHONPATH=/own"),
    Ill("tensorflow-missing", "RUN python2 -m pip uninstall -q -y tensorflow-gpu", "rebuild"),
    Ill("hidden-by-env", "ENV CUDA_VISIBLE_DEVICES=-1", "run"),
    Ill(
        "hidden-by-env",
        f"""RUN echo "import os; os.environ['CUDA_VISIBLE_DEVICES']='-1'" >{PACKAGES}/gpus.pth""",
        name="hidden by a file",
    ),
    Ill("libs-not-installed", f"RUN rm {CUDA}/libcufft.so.10.0 && ldconfig", "rebuild"),
)
"""Of 1.14, whose image is small."""
BOTH = {
    *("numpy-abi", "cudnn-missing", "libs-transitive", "damaged-file", "stub-libcuda", "hidden-by-env"),
    *("hidden by a file", "tensorflow-missing"),
}
"""The ways of 2.16 that are tried with Podman, too."""
WITH_BOTH = tuple(ill for ill in ILLS if (ill.name or ill.cause) in BOTH)
WITH_PODMAN = tuple(replace(ill, engine="podman", on="1.14") for ill in OLDER)
MODERN = {"libs-transitive", "stub-libcuda", "hidden by a file", "NVML for one container"}
"""The ways that are tried with the image of 2.21 that other tests make, too."""
FEW = (*WITH_PODMAN[::4], *(replace(ill, on="2.21") for ill in ILLS if (ill.name or ill.cause) in MODERN))
"""Each a quarter of a minute; TFDOCTOR_LAB_FULL=1 takes all."""
ALL = (*WITH_PODMAN, *ILLS, *(replace(ill, engine="podman") for ill in WITH_BOTH))
TRIED = ALL if environments.list_everything() else FEW


def run_verification(ground: Ground, image: str) -> dict[str, Any]:
    return verify(ground.url, image, "--stages", "visible")[1]


def remedies(answer: dict[str, Any]) -> list[list[str]]:
    return [one["commands"] for one in answer["findings"][0]["remedies"] if one["commands"]]


# ---------------------------------------------------------------- a good image


@dataclass(frozen=True)
class Good:
    """An image that verifies, and how it is built here, where no base can be pulled."""

    ground: Ground
    image: str
    release: str
    words: tuple[str, ...]


@pytest.fixture(scope="module")
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Good]:
    """One engine and image after the other, for disks are small. Its parameter: the engine and TensorFlow's release."""
    program, release = request.param
    folder = tmp_path_factory.mktemp("good")
    with contextlib.ExitStack() as stack:
        if program == "docker":
            lab = request.getfixturevalue("lab_engine")
            lab.gpus(GPUS["docker"])
            ground = docker_ground(lab)
        else:
            try:
                ground = stack.enter_context(podman_ground(cache_folder(), GPUS["podman"]))
            except Unavailable as why:
                pytest.skip(str(why))
        if request.param == ("docker", "2.21"):
            yield Good(ground, request.getfixturevalue("modern").tag, release, _on_debian(ground))
            return
        yield stack.enter_context(
            _linked(ground, folder) if release == "1.13" else _good(ground, release, folder)
        )


def _on_debian(ground: Ground) -> tuple[str, ...]:
    return "--base", ground.base("bookworm"), "--python", "3.11"


@contextlib.contextmanager
def _good(ground: Ground, release: str, folder: Path) -> Iterator[Good]:
    words = (*OFFICIAL, "--base", with_cuda_10(ground, folder)) if release == "1.14" else _on_debian(ground)
    if READY and release == "2.16" and ground.program == "docker":
        yield Good(ground, READY, release, words)
        return
    image = ground.list_named(f"advice:{release}")
    make(ground.url, image, *words, "--tf", release)
    yield Good(ground, image, release, words)
    ground.remove(image)


@contextlib.contextmanager
def _linked(ground: Ground, folder: Path) -> Iterator[Good]:
    """TensorFlow 1.13, which is linked with CUDA, on Python 2.7, with stand-ins of CUDA 10.0 and its functions."""
    bare, image = ground.list_named("bare:1.13"), ground.list_named("advice:1.13")
    make(ground.url, bare, "--tf", "1.13", *OFFICIAL, "--base", ground.base("bullseye"))
    objects = [
        f"{PACKAGES}/tensorflow/{name}"
        for name in ("libtensorflow_framework.so", "python/_pywrap_tensorflow_internal.so")
    ]
    container = ground.client("create", bare, "true").stdout.strip()
    for path in objects:
        ground.client("cp", f"{container}:{path}", str(folder))
    ground.client("rm", container)
    whole = with_cuda_10(ground, folder / "cuda", sorted(folder.glob("*.so")))
    for path in folder.glob("*.so"):
        path.unlink()
    words = (*OFFICIAL, "--base", whole)
    make(ground.url, image, "--tf", "1.13", *words)
    ground.remove(bare)
    yield Good(ground, image, "1.13", words)
    ground.remove(image, whole)


# ---------------------------------------------------------------- broken, and put right


def make_broken_image(good: Good, folder: Path, ill: Ill) -> str:
    """The broken image's name."""
    folder.mkdir()
    (folder / "ca.crt").write_bytes(Path(CERTIFICATES).read_bytes())
    (folder / "future.py").write_text(FUTURE, encoding="ascii")
    compiled = good.ground.cache / "compiled"
    standins.stub_driver(folder / "stub.so", compiled)
    standins.driver(folder / "refusing", compiled, nvml=False, init=804)
    (folder / "refusing" / standins.CUDA).rename(folder / "refusing.so")
    standins.library(
        folder / "oldstdc++.so", compiled, soname="libstdc++.so.6", symbols=("_Znwm@GLIBCXX_3.4",)
    )
    head = f"FROM {good.image}\nUSER root\nCOPY ca.crt /ca.crt\nENV PIP_CERT=/ca.crt\n"
    (folder / "Dockerfile").write_text(f"{head}{ill.lines}\nUSER 1000\n", encoding="utf-8")
    name = good.ground.list_named(f"ill:{ill.word.lower()}")
    good.ground.client("build", "--network", "host", "-t", name, str(folder))
    return name


def apply_lines(ground: Ground, folder: Path, image: str, commands: list[str]) -> str:
    """The lines as they are printed, below FROM, and the commands after them; the name of what is made."""
    at = next(n for n, line in enumerate(commands) if line.startswith(f"{ground.program} build "))
    folder.mkdir()
    lines = "\n".join(commands[:at])
    (folder / "Dockerfile").write_text(f"FROM {image}\n{lines}\n", encoding="utf-8")
    words = shlex.split(commands[at])
    assert words[:3] == [ground.program, "build", "-t"]
    done = ground.client("build", "--network", "host", *words[2:-1], str(folder), check=False)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    assert commands[at + 1 :] == [f"tfdoctor verify {words[3]}"]
    return words[3]


def rebuilt(good: Good, told: list[list[str]]) -> str:
    """The first `tfdoctor build` that is printed, on a base that is here; the name of what it makes."""
    build, verify_it = next(one for one in told if one[0].startswith("tfdoctor build"))
    words = [*shlex.split(build)[2:], *(() if "--tf" in build else ("--tf", good.release))]
    at = words.index("--tf") + 1
    assert words[at].startswith(("2.", good.release)), build
    words[at] = good.release  # the layers of that one are here
    done = tfdoctor(good.ground.url, "build", *HERE, *good.words, *words)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return shlex.split(verify_it)[-1]


def runs(good: Good, typed: str) -> None:
    """The printed command, with a program behind it."""
    ground = good.ground
    words = shlex.split(typed)
    if words[0] == "env":
        assert words[1::2][:1] == ["-u"]
        words = words[3:]
    assert words[:2] == [ground.program, "run"]
    python = "python2" if good.words[:2] == OFFICIAL[:2] else "python"
    done = ground.client(*words[1:], python, "-c", LISTS, check=False)
    assert f"{GPUS[ground.program]} GPU" in done.stdout, done.stderr[-1500:]


def cases() -> list[Any]:
    """Those of one image are neighbours."""
    grounds = [(ill.engine, ill.on) for ill in TRIED]
    tried = sorted(TRIED, key=lambda ill: grounds.index((ill.engine, ill.on)))
    return [pytest.param((ill.engine, ill.on), ill, id=ill.word) for ill in tried]


@pytest.mark.parametrize("good", [("podman", "1.14")], indirect=True, ids=["podman-1.14"])
def test_podman_gives_gpus_through_cdi(good: Good) -> None:
    engine = connect(good.ground.url)
    assert engine.name == "podman"
    engine.client.close()
    code, answer = verify(good.ground.url, good.image, "--stages", "visible", "--expect-gpus", "2")
    assert (code, answer["gpus"]["visible"]) == (0, 2), answer["stages"]


# The scope is named because `ill` is no fixture: else `good` would be made for each test anew.
@pytest.mark.parametrize(("good", "ill"), cases(), indirect=["good"], scope="module")
def test_the_advice_for_an_image_is_applied_and_helps(good: Good, tmp_path: Path, ill: Ill) -> None:
    ground = good.ground
    image = make_broken_image(good, tmp_path / "ill", ill)
    new = ""
    try:
        answer = run_verification(ground, image)
        assert answer["verdict"]["gpu_usable"] is False
        assert answer["verdict"]["cause"] == ill.cause, answer["verdict"]
        told = remedies(answer)
        if ill.cure == "run":
            runs(good, next(one[0] for one in told if f"{ground.program} run" in one[0]))
            return
        if ill.cure == "rebuild":
            new = rebuilt(good, told)
        else:
            built = f"{ground.program} build "
            lines = next(one for one in told if any(line.startswith(built) for line in one))
            new = apply_lines(ground, tmp_path / "cured", image, lines)
        after = run_verification(ground, new)
        assert after["verdict"]["gpu_usable"] is True, after
    finally:
        ground.remove(image, *([new] if new else []))
