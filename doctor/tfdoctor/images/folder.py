"""Make the files of a build folder: a Dockerfile, the files that it copies and a README."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from tfdoctor import __version__
from tfdoctor.core.text import clean_line
from tfdoctor.images.emit import format_run_command
from tfdoctor.images.write import APP_CONTEXT_FOLDER, SBOM_FILE
from tfdoctor.remedies.target import TargetImage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.images.emit import EmittedImage

__all__ = ["FILE_DESCRIPTIONS", "group_app_files", "make_folder_files"]

FILE_DESCRIPTIONS = {
    "Dockerfile": "the steps",
    "tools.txt": "pip and what it builds with, pinned and hashed",
    "cuda.txt": "NVIDIA's wheels, pinned and hashed",
    "release.txt": "TensorFlow, pinned and hashed",
    "tensorflow.txt": "TensorFlow and what it requires, pinned and hashed",
    "constraints.txt": "what your requirements may not change",
    "requirements.txt": "your requirements",
    "strip.py": "takes symbol tables for debuggers off libraries",
    "download.sh": "keeps downloads for the next build",
    "settle.sh": "ends each step: one time for all files, and whose they are",
    "ca.crt": "your network's certificate authority",
    f"{APP_CONTEXT_FOLDER}/": "your code",
    ".dockerignore": "sends nothing else to the engine",
    SBOM_FILE: "what the locks put into the image (CycloneDX)",
}
"""The descriptions of files for the README, by file name."""


def make_folder_files(image: EmittedImage) -> dict[str, bytes]:
    """Return the content of each file, by file name. The same plan always gives the same bytes."""
    context_files = {"Dockerfile": image.context.dockerfile.encode(), **image.context.files}
    names = group_app_files(image.context.files)
    ignore_patterns = "*\n" + "".join(f"!{name.rstrip('/')}\n" for name in sorted(names))
    files = {**context_files, ".dockerignore": ignore_patterns.encode()}
    return {**files, "README.md": _format_readme(image, group_app_files(files)).encode()}


def group_app_files(names: Iterable[str]) -> list[str]:
    """Return file names of a build context, with the folder in place of the files of the user's own code."""
    prefix = f"{APP_CONTEXT_FOLDER}/"
    return list(dict.fromkeys(prefix if name.startswith(prefix) else name for name in names))


def _make_reproducible_options(image: EmittedImage) -> tuple[str, str]:
    """Return the BuildKit options for an image that is identical in every build."""
    return (
        f"--build-arg SOURCE_DATE_EPOCH={image.context.epoch}",
        f"--output type=docker,name={image.tag},rewrite-timestamp=true",
    )


def _format_readme(image: EmittedImage, names: Iterable[str]) -> str:
    """Return the README, which says how to build, run, verify and reproduce the image."""
    option, tag = image.option, image.tag
    table_rows = "".join(f"| `{name}` | {FILE_DESCRIPTIONS[name]} |\n" for name in sorted(names))
    release_date = dt.datetime.fromtimestamp(image.context.epoch, dt.timezone.utc).date()
    run_as_user = format_run_command(TargetImage(tag), user='"$(id -u):$(id -g)"')
    unpinned_note = (
        "What `requirements.txt` does not pin is taken as new as the package index has it on the day.\n"
        if image.unpinned_requirements
        else ""
    )
    login_note = (
        "The package index needs a login, which pip's configuration has: `[global]` and `index-url =\n"
        "https://USER:PASSWORD@HOST/simple/`. BuildKit mounts it, and no layer keeps it.\n\n"
        if image.needs_pip_config
        else ""
    )
    return (
        f"# TensorFlow {option.tensorflow} for NVIDIA GPUs\n\n"
        f"Python {option.python}, CUDA {option.cuda}. Made by tfdoctor {__version__}:\n\n"
        f"```sh\n{clean_line(image.command, limit=4000)}\n```\n\n"
        "## Build it\n\n"
        f"```sh\n{image.format_build_command('docker build', '.')}\n```\n\n"
        f"{login_note}"
        "## Run it\n\n"
        f"```sh\n{format_run_command(TargetImage(tag))}\n```\n\n"
        "`/workspace` is this folder; the volume keeps what CUDA compiles for your card. The user in the container is "
        f"{image.uid}. If the\nfolder belongs to another user, run it as that user:\n\n"
        f"```sh\n{run_as_user}\n```\n\n"
        f'Only {image.uid} may `pip install` more packages; `tfdoctor build --uid "$(id -u)"` makes that you.\n'
        "With Podman, `--device nvidia.com/gpu=all` stands for `--gpus all`.\n\n"
        "## Does TensorFlow in it see the GPUs?\n\n"
        f"```sh\ntfdoctor verify {tag}\n```\n\n"
        "## Reproduce the image\n\n"
        f"Every file gets the day of the release ({release_date}), so that two builds give the same files. The layers\n"
        "also carry when folders were made, and the image when it was built; with these commands, "
        "everything is identical:\n\n"
        "```sh\n"
        f"{image.format_build_command('podman build', '.', f'--timestamp {image.context.epoch}')}\n"
        f"{image.format_build_command('docker buildx build', '.', *_make_reproducible_options(image))}  "
        " # BuildKit 0.13 or newer\n"
        "```\n\n"
        f"{unpinned_note}"
        "A base named by its tag may change: `tfdoctor build --pin` names it by its digest.\n\n"
        "## Files\n\n"
        f"| file | what it is |\n|---|---|\n{table_rows}"
    )
