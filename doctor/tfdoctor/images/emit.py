"""Format a plan for Compose, dev containers, Kubernetes or Apptainer, or as requirements or SBOM."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.text import clean_line
from tfdoctor.images import apptainer
from tfdoctor.images.write import (
    CUDA_CACHE_FOLDER,
    DEFAULT_UID,
    LOCK_FILES,
    PIP_CONFIG_SECRET,
    SBOM_FILE,
    get_python_command,
)
from tfdoctor.remedies.image import format_start_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.images.write import BuildContext
    from tfdoctor.planning import Option
    from tfdoctor.remedies.target import TargetImage

__all__ = ["CUDA_CACHE_VOLUME", "EmittedImage", "Form", "emit", "format_run_command", "make_default_tag"]

BUILD_FOLDER = "./tensorflow-image"
"""The folder beside an emitted file in which the build context is expected."""
PIP_CONFIG_FILE = ".config/pip/pip.conf"
"""The user's configuration of pip, below the home directory."""
CUDA_CACHE_VOLUME = "tensorflow-cuda-cache"
"""Name of the volume for compiled CUDA kernels in the commands and files that tfdoctor writes."""


class Form(str, enum.Enum):
    """An output form of a plan."""

    context = "context"
    """A build folder, which `images.folder` makes."""
    compose = "compose"
    devcontainer = "devcontainer"
    k8s = "k8s"
    apptainer = "apptainer"
    requirements = "requirements"
    sbom = "sbom"


@dataclass(frozen=True, slots=True)
class EmittedImage:
    """An image to build: its plan, build context, name and command."""

    option: Option
    context: BuildContext
    tag: str
    command: str
    """The `tfdoctor build` command with all options of the user, quoted for a shell."""
    uid: int = DEFAULT_UID
    """The ID of the image's user."""
    unpinned_requirements: tuple[str, ...] = ()
    """Requirements that are not pinned. Their versions are known only after the build."""
    build_options: tuple[str, ...] = ()
    """Additional options for `docker build`, such as `--network host`."""
    needs_pip_config: bool = False
    """Whether the build needs pip's configuration as a secret, because the package index needs a login."""

    def format_build_command(self, program: str, folder: str, *options: str) -> str:
        """Return the command line that builds the folder.

        `program` is `docker build` or another builder. `folder` must be quoted for a shell. `options` are added to
        `build_options`.
        """
        secret_options = (
            (f'--secret id={PIP_CONFIG_SECRET},src="$HOME/{PIP_CONFIG_FILE}"',)
            if self.needs_pip_config
            else ()
        )
        return " ".join((program, *self.build_options, *secret_options, *options, f"-t {self.tag}", folder))


def make_default_tag(option: Option) -> str:
    """Return the default name for the image of a plan: `localhost/tfdoctor/tensorflow:1.14.0-cuda10.0-py3.6`.

    An engine never pulls a name below `localhost/` from a public registry, where anybody may own the name.
    """
    cuda = versions.major_minor(option.cuda)
    return f"localhost/tfdoctor/tensorflow:{option.tensorflow}-cuda{cuda}-py{option.python}"


def format_run_command(image: TargetImage, *, user: str = "") -> str:
    """Return the command that starts a container with GPUs, this folder and a volume for compiled kernels.

    `user` is the value for `--user`, quoted for a shell. It is only needed if the folder does not belong to the image's
    user.
    """
    user_option = (f"--user {user}",) if user else ()
    return format_start_command(
        image, "-it", *user_option, '-v "$PWD":/workspace', f"-v {CUDA_CACHE_VOLUME}:{CUDA_CACHE_FOLDER}"
    )


def emit(form: Form, image: EmittedImage) -> str:
    """Return the plan as text in this form. Raise KeyError for `Form.context`, which is a folder."""
    return _FORMS[form](image)


def _format_compose(image: EmittedImage) -> str:
    """Return a compose file with a service that runs the image with all GPUs."""
    build, secrets = BUILD_FOLDER, ""
    if image.needs_pip_config:
        build = f"{{context: {BUILD_FOLDER}, secrets: [{PIP_CONFIG_SECRET}]}}"
        secrets = f'secrets:\n  {PIP_CONFIG_SECRET}: {{file: "${{HOME}}/{PIP_CONFIG_FILE}"}}\n'
    return (
        f"# {image.command} makes the image. So does `docker compose build`, after\n"
        f"# {image.command} --emit context {BUILD_FOLDER}\n"
        "services:\n"
        "  tensorflow:\n"
        f"    image: {image.tag}\n"
        f"    build: {build}\n"
        "    shm_size: 1gb  # NCCL uses it between GPUs\n"
        "    ulimits: {memlock: -1}\n"
        f'    user: "{image.uid}"  # the owner of this folder, see `id -u`\n'
        "    volumes:\n"
        "      - .:/workspace\n"
        f"      - {CUDA_CACHE_VOLUME}:{CUDA_CACHE_FOLDER}\n"
        "    deploy:\n"
        "      resources:\n"
        "        reservations:\n"
        "          devices:\n"
        "            - driver: nvidia\n"
        "              count: all\n"
        "              capabilities: [gpu]\n"
        "volumes:\n"
        f"  {CUDA_CACHE_VOLUME}:\n"
        f"{secrets}"
    )


def _format_devcontainer(image: EmittedImage) -> str:
    """Return a devcontainer.json for the image."""
    build: dict[str, object] = {"dockerfile": f"{BUILD_FOLDER}/Dockerfile", "context": BUILD_FOLDER}
    if image.needs_pip_config:
        source = f"${{localEnv:HOME}}/{PIP_CONFIG_FILE}"
        build["options"] = ["--secret", f"id={PIP_CONFIG_SECRET},src={source}"]
    document = {
        "name": f"TensorFlow {image.option.tensorflow}",
        "build": build,
        "hostRequirements": {"gpu": True},
        "runArgs": ["--gpus", "all"],
        "mounts": [f"source={CUDA_CACHE_VOLUME},target={CUDA_CACHE_FOLDER},type=volume"],
        "containerUser": str(image.uid),
        "customizations": {
            "tfdoctor": {
                "build": f"{image.command} --emit context {BUILD_FOLDER} writes it next to this file."
            },
            "vscode": {"settings": {"python.defaultInterpreterPath": _find_interpreter_path(image.option)}},
        },
    }
    return json.dumps(document, indent=2) + "\n"


def _find_interpreter_path(option: Option) -> str:
    """Return the absolute path of the Python interpreter, because an editor does not search PATH."""
    command = get_python_command(option)
    return command if "/" in command else "/usr/bin/python3"


def _format_pod(image: EmittedImage) -> str:
    """Return a Kubernetes pod that prints the GPUs that TensorFlow sees, and exits."""
    non_root_setting = "" if image.uid == 0 else "    runAsNonRoot: true\n"
    script = "import tensorflow as tf; print(tf.config.experimental.list_physical_devices('GPU'))"
    if versions.satisfies(image.option.release.version, "<1.14"):
        script = "from tensorflow.python.client import device_lib as d; print(d.list_local_devices())"
    command = json.dumps([get_python_command(image.option), "-c", script])
    return (
        f"# {image.command} --push makes the image and pushes it: --tag REGISTRY/NAME:TAG names a registry that the\n"
        "# cluster pulls from. The nodes need NVIDIA's device plugin (or GPU operator).\n"
        "apiVersion: v1\n"
        "kind: Pod\n"
        "metadata:\n"
        "  name: tensorflow\n"
        "spec:\n"
        "  restartPolicy: Never\n"
        "  securityContext:\n"
        f"{non_root_setting}"
        f"    runAsUser: {image.uid}\n"
        f"    runAsGroup: {image.uid}\n"
        f"    fsGroup: {image.uid}\n"
        "  containers:\n"
        "    - name: tensorflow\n"
        f"      image: {image.tag}\n"
        f"      command: {command}\n"
        "      resources:\n"
        "        limits:\n"
        "          nvidia.com/gpu: 1\n"
        "      volumeMounts:\n"
        "        - name: cuda-cache\n"
        f"          mountPath: {CUDA_CACHE_FOLDER}\n"
        "  volumes:\n"
        "    - name: cuda-cache  # lost with the pod; a persistentVolumeClaim keeps the compiled kernels\n"
        "      emptyDir: {}\n"
    )


def _format_apptainer(image: EmittedImage) -> str:
    return apptainer.format_definition(image.option, image.context, image.command)


def _format_sbom(image: EmittedImage) -> str:
    return image.context.files[SBOM_FILE].decode()


def _format_requirements(image: EmittedImage) -> str:
    """Return a requirements file with every package that pip installs, pinned and hashed."""
    files = image.context.files
    parts = [files[name].decode() for name in LOCK_FILES if name in files]
    header = "# pip install --no-deps --require-hashes --no-build-isolation -r THIS_FILE\n"
    if image.unpinned_requirements:
        header += (
            "# What you also asked for has no hashes here, and comes after it, under the constraints that\n"
        )
        header += "# --emit context writes: pip install -c constraints.txt -r requirements.txt\n"
        header += "".join(f"#   {clean_line(line)}\n" for line in image.unpinned_requirements)
    return header + "".join(parts)


_FORMS: dict[Form, Callable[[EmittedImage], str]] = {
    Form.compose: _format_compose,
    Form.devcontainer: _format_devcontainer,
    Form.k8s: _format_pod,
    Form.apptainer: _format_apptainer,
    Form.requirements: _format_requirements,
    Form.sbom: _format_sbom,
}
