"""The other forms of a plan: compose, devcontainer, Apptainer, a list of requirements. Pure text."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.dockerfile.write import VENV
from tfdoctor.plan import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.dockerfile.write import Context
    from tfdoctor.plan import Option

__all__ = ["Form", "default_tag", "emit"]


class Form(str, enum.Enum):
    """What a plan can be written as."""

    compose = "compose"
    devcontainer = "devcontainer"
    apptainer = "apptainer"
    requirements = "requirements"


def default_tag(option: Option) -> str:
    """What the image of a plan is called: `"tfdoctor/tensorflow:1.14.0-cuda10.0-py3.6"`."""
    return (
        f"tfdoctor/tensorflow:{option.tensorflow}-cuda{versions.major_minor(option.cuda)}-py{option.python}"
    )


def emit(form: Form, option: Option, context: Context, tag: str | None = None) -> str:
    """The plan in another form; `tag`: the image's name, where it was given."""
    return _FORMS[form](option, context, tag or default_tag(option))


def _command(option: Option, tag: str) -> str:
    """What makes the image under this name."""
    named = f" --tag {tag}" if tag != default_tag(option) else ""
    return f"{option.commands[0]}{named}"


def _compose(option: Option, context: Context, tag: str) -> str:
    """A service with the GPUs, from the image that `tfdoctor build` makes."""
    del context
    return (
        f"# {_command(option, tag)} makes the image.\n"
        "services:\n"
        "  tensorflow:\n"
        f"    image: {tag}\n"
        "    volumes:\n"
        "      - .:/workspace\n"
        "    deploy:\n"
        "      resources:\n"
        "        reservations:\n"
        "          devices:\n"
        "            - driver: nvidia\n"
        "              count: all\n"
        "              capabilities: [gpu]\n"
    )


def _devcontainer(option: Option, context: Context, tag: str) -> str:
    del context
    interpreter = (
        f"{VENV}/bin/python" if option.recipe in (Recipe.PIP_CUDA, Recipe.CUDA_BASE) else "/usr/bin/python3"
    )
    document = {
        "name": f"TensorFlow {option.tensorflow}",
        "image": tag,
        "hostRequirements": {"gpu": True},
        "runArgs": ["--gpus", "all"],
        "containerUser": "1000",
        "customizations": {"vscode": {"settings": {"python.defaultInterpreterPath": interpreter}}},
    }
    return json.dumps(document, indent=2) + "\n"


def _apptainer(option: Option, context: Context, tag: str) -> str:
    """A definition file that starts from the image in the local engine."""
    del context
    path = (
        f"    export PATH={VENV}/bin:$PATH\n" if option.recipe in (Recipe.PIP_CUDA, Recipe.CUDA_BASE) else ""
    )
    return (
        f"# First: {_command(option, tag)}\n"
        f"# Then:  apptainer build tensorflow.sif tensorflow.def && apptainer exec --nv tensorflow.sif python\n"
        "Bootstrap: docker-daemon\n"
        f"From: {tag}\n\n"
        "%environment\n"
        f"{path}"
        "    export LC_ALL=C.UTF-8\n\n"
        "%runscript\n"
        '    exec python "$@"\n'
    )


def _requirements(option: Option, context: Context, tag: str) -> str:
    """Everything that pip installs, pinned and hashed, in one file."""
    del option, tag
    names = ("cuda.txt", "release.txt", "tensorflow.txt")
    parts = [context.files[name].decode() for name in names if name in context.files]
    head = "# pip install --no-deps --require-hashes --no-build-isolation -r THIS_FILE\n"
    return head + "".join(parts)


_FORMS: dict[Form, Callable[[Option, Context, str], str]] = {
    Form.compose: _compose,
    Form.devcontainer: _devcontainer,
    Form.apptainer: _apptainer,
    Form.requirements: _requirements,
}
