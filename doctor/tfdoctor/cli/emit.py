"""The other forms of a plan: compose, devcontainer, Apptainer, a list of requirements. Pure text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tfdoctor.build import default_tag
from tfdoctor.dockerfile import VENV
from tfdoctor.plan import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.dockerfile import Context
    from tfdoctor.plan import Option

__all__ = ["FORMS", "emit"]


def emit(form: str, option: Option, context: Context) -> str:
    """The plan in one of `FORMS`."""
    return FORMS[form](option, context)


def _image(option: Option) -> str:
    return default_tag(option)


def _compose(option: Option, context: Context) -> str:
    """A service with the GPUs, built from the Dockerfile that `--print` gives."""
    del context
    return (
        f"# tfdoctor build --tf {option.tensorflow} --recipe {option.recipe.value} makes the image.\n"
        "services:\n"
        "  tensorflow:\n"
        f"    image: {_image(option)}\n"
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


def _devcontainer(option: Option, context: Context) -> str:
    del context
    interpreter = (
        f"{VENV}/bin/python" if option.recipe in (Recipe.PIP_CUDA, Recipe.CUDA_BASE) else "/usr/bin/python3"
    )
    document = {
        "name": f"TensorFlow {option.tensorflow}",
        "image": _image(option),
        "hostRequirements": {"gpu": True},
        "runArgs": ["--gpus", "all"],
        "containerUser": "1000",
        "customizations": {"vscode": {"settings": {"python.defaultInterpreterPath": interpreter}}},
    }
    return json.dumps(document, indent=2) + "\n"


def _apptainer(option: Option, context: Context) -> str:
    """A definition file that starts from the image in the local engine."""
    del context
    path = (
        f"    export PATH={VENV}/bin:$PATH\n" if option.recipe in (Recipe.PIP_CUDA, Recipe.CUDA_BASE) else ""
    )
    return (
        f"# First: tfdoctor build --tf {option.tensorflow} --recipe {option.recipe.value}\n"
        f"# Then:  apptainer build tensorflow.sif tensorflow.def && apptainer exec --nv tensorflow.sif python\n"
        "Bootstrap: docker-daemon\n"
        f"From: {_image(option)}\n\n"
        "%environment\n"
        f"{path}"
        "    export LC_ALL=C.UTF-8\n\n"
        "%runscript\n"
        '    exec python "$@"\n'
    )


def _requirements(option: Option, context: Context) -> str:
    """Everything that pip installs, pinned and hashed, in one file."""
    del option
    names = ("cuda.txt", "release.txt", "tensorflow.txt")
    parts = [context.files[name].decode() for name in names if name in context.files]
    head = "# pip install --no-deps --require-hashes --no-build-isolation -r THIS_FILE\n"
    return head + "".join(parts)


FORMS: dict[str, Callable[[Option, Context], str]] = {
    "compose": _compose,
    "devcontainer": _devcontainer,
    "apptainer": _apptainer,
    "requirements": _requirements,
}
