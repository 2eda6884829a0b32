"""The other forms of a plan: compose, devcontainer, Kubernetes, Apptainer, requirements, an SBOM. Pure text."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.advice.image import start_of
from tfdoctor.dockerfile import apptainer, sbom
from tfdoctor.dockerfile.write import CACHE, LOCKED, UID, interpreter
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.advice.target import InImage
    from tfdoctor.dockerfile.write import Context
    from tfdoctor.plan import Option

__all__ = ["VOLUME", "EmittedImage", "Form", "default_tag", "emit", "run_line"]

VOLUME = "tensorflow-cuda-cache"
"""The volume that what we print keeps CUDA's compiled kernels on."""


class Form(str, enum.Enum):
    """What a plan can be written as."""

    context = "context"
    """A folder: see `dockerfile.folder`."""
    compose = "compose"
    devcontainer = "devcontainer"
    k8s = "k8s"
    apptainer = "apptainer"
    requirements = "requirements"
    sbom = "sbom"


@dataclass(frozen=True, slots=True)
class EmittedImage:
    """An image, and how it comes to be."""

    option: Option
    context: Context
    tag: str
    command: str
    """`tfdoctor build` with all that was asked for, as it is typed."""
    uid: int = UID
    """Of the image's user."""
    loose: tuple[str, ...] = ()
    """Requirements that are not pinned: which versions they bring is seen when it is built."""
    build: tuple[str, ...] = ()
    """What `docker build` is given besides: `("--network host",)`."""

    def format_build_command(self, program: str, folder: str, *more: str) -> str:
        """Return the command line that builds the folder; `program`: `"docker build"`.

        Folder: as a shell reads it.
        """
        return " ".join((program, *self.build, *more, f"-t {self.tag}", folder))


def default_tag(option: Option) -> str:
    """Return what the image of a plan is called: `"tfdoctor/tensorflow:1.14.0-cuda10.0-py3.6"`."""
    return (
        f"tfdoctor/tensorflow:{option.tensorflow}-cuda{versions.major_minor(option.cuda)}-py{option.python}"
    )


def run_line(image: InImage, *, user: str = "") -> str:
    """Return how a container of the image is started: with its GPUs, this folder, and a volume for compiled kernels.

    `user`: what `--user` is given where the folder is not of the image's user; as a shell reads it.
    """
    who = (f"--user {user}",) if user else ()
    return start_of(image, "-it", *who, '-v "$PWD":/workspace', f"-v {VOLUME}:{CACHE}")


def emit(form: Form, made: EmittedImage) -> str:
    """Return the plan in another form; not `Form.context`, which is a folder."""
    return _FORMS[form](made)


def _compose(made: EmittedImage) -> str:
    """Return a service with the GPUs, from the image that `tfdoctor build` makes."""
    return (
        f"# {made.command} makes the image.\n"
        "services:\n"
        "  tensorflow:\n"
        f"    image: {made.tag}\n"
        f"    user: \"{made.uid}\"  # where this folder is another user's: that one's `id -u`\n"
        "    volumes:\n"
        "      - .:/workspace\n"
        f"      - {VOLUME}:{CACHE}\n"
        "    deploy:\n"
        "      resources:\n"
        "        reservations:\n"
        "          devices:\n"
        "            - driver: nvidia\n"
        "              count: all\n"
        "              capabilities: [gpu]\n"
        "volumes:\n"
        f"  {VOLUME}:\n"
    )


def _devcontainer(made: EmittedImage) -> str:
    document = {
        "name": f"TensorFlow {made.option.tensorflow}",
        "image": made.tag,
        "hostRequirements": {"gpu": True},
        "runArgs": ["--gpus", "all"],
        "mounts": [f"source={VOLUME},target={CACHE},type=volume"],
        "containerUser": str(made.uid),
        "customizations": {
            "tfdoctor": {"image": f"{made.command} makes it."},
            "vscode": {"settings": {"python.defaultInterpreterPath": _path(made.option)}},
        },
    }
    return json.dumps(document, indent=2) + "\n"


def _path(option: Option) -> str:
    """Return the interpreter as a path: an editor does not search for it."""
    command = interpreter(option)
    return command if "/" in command else "/usr/bin/python3"


def _k8s(made: EmittedImage) -> str:
    """Return a pod that lists its GPU and ends."""
    root = "" if made.uid == 0 else "    runAsNonRoot: true\n"
    look = "import tensorflow as tf; print(tf.config.experimental.list_physical_devices('GPU'))"
    if versions.satisfies(made.option.release.version, "<1.14"):
        look = "from tensorflow.python.client import device_lib as d; print(d.list_local_devices())"
    command = json.dumps([interpreter(made.option), "-c", look])
    return (
        f"# {made.command} --push makes the image and pushes it: --tag REGISTRY/NAME:TAG names a registry that the\n"
        "# cluster pulls from. The nodes need NVIDIA's device plugin (or GPU operator).\n"
        "apiVersion: v1\n"
        "kind: Pod\n"
        "metadata:\n"
        "  name: tensorflow\n"
        "spec:\n"
        "  restartPolicy: Never\n"
        "  securityContext:\n"
        f"{root}"
        f"    runAsUser: {made.uid}\n"
        f"    runAsGroup: {made.uid}\n"
        f"    fsGroup: {made.uid}\n"
        "  containers:\n"
        "    - name: tensorflow\n"
        f"      image: {made.tag}\n"
        f"      command: {command}\n"
        "      resources:\n"
        "        limits:\n"
        "          nvidia.com/gpu: 1\n"
        "      volumeMounts:\n"
        "        - name: cuda-cache\n"
        f"          mountPath: {CACHE}\n"
        "  volumes:\n"
        "    - name: cuda-cache  # ends with the pod; a persistentVolumeClaim keeps what CUDA compiled for your card\n"
        "      emptyDir: {}\n"
    )


def _apptainer(made: EmittedImage) -> str:
    return apptainer.definition(made.option, made.context, made.command)


def _sbom(made: EmittedImage) -> str:
    return sbom.bill(made.option, made.context, made.tag, made.loose)


def _requirements(made: EmittedImage) -> str:
    """Return everything that pip installs, pinned and hashed, in one file."""
    files = made.context.files
    parts = [files[name].decode() for name in LOCKED if name in files]
    head = "# pip install --no-deps --require-hashes --no-build-isolation -r THIS_FILE\n"
    if made.loose:
        head += (
            "# What you also asked for has no hashes here, and comes after it, under the constraints that\n"
        )
        head += "# --emit context writes: pip install -c constraints.txt -r requirements.txt\n"
        head += "".join(f"#   {clean_line(line)}\n" for line in made.loose)
    return head + "".join(parts)


_FORMS: dict[Form, Callable[[EmittedImage], str]] = {
    Form.compose: _compose,
    Form.devcontainer: _devcontainer,
    Form.k8s: _k8s,
    Form.apptainer: _apptainer,
    Form.requirements: _requirements,
    Form.sbom: _sbom,
}
