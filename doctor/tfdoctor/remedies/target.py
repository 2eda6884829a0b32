"""The target of remedies: a Python, its TensorFlow, and the user's programs and permissions."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from tfdoctor.core.facts import value_of
from tfdoctor.core.records import dataclass
from tfdoctor.prediction.build import describe_build
from tfdoctor.prediction.fit.host import build_host
from tfdoctor.prediction.fit.models import Host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import Facts, PythonFacts, TensorFlowFacts
    from tfdoctor.core.facts.python import PythonChoice
    from tfdoctor.prediction.build import Build

__all__ = ["Target", "TargetImage", "build_target"]


@dataclass(frozen=True, slots=True)
class TargetImage:
    """An examined container image, and the options that start its containers on this machine."""

    name: str
    """The name given to the engine; empty for an image that a Dockerfile will build."""
    engine_command: str = "docker"
    """The engine's command: "docker" or "podman"."""
    gpu_option: str = "--gpus all"
    """The option of `run` that gives the GPUs to a container."""
    user: str = ""
    """The user that runs in its containers; empty for root."""
    planned_tensorflow: str = ""
    """The TensorFlow version of the plan with which tfdoctor built the image; empty for other images."""


@dataclass(frozen=True, slots=True)
class Target:
    """The machine, the Python and the user for which remedies are made.

    If a value is None or empty, it is not known, and commands that depend on it are generic.
    """

    compat: Compat
    host: Host = field(default_factory=Host)
    python: PythonFacts | None = None
    """The examined Python."""
    choice: PythonChoice | None = None
    """How that Python was chosen."""
    tensorflow: TensorFlowFacts | None = None
    """The TensorFlow of that Python; None if it has none."""
    build: Build | None = None
    library_path: tuple[str, ...] = ()
    """The entries of LD_LIBRARY_PATH as the loader reads them."""
    runpath_folders: tuple[str, ...] = ()
    """The folders on the RUNPATH of TensorFlow's own shared object."""
    variables: Mapping[str, str] = field(default_factory=dict)
    programs: frozenset[str] | None = None
    """The names of relevant programs on this user's PATH; None if tfdoctor did not search for them."""
    is_root: bool | None = None
    """Whether the user is root; None if that is not known."""
    distribution: str | None = None
    """ID of /etc/os-release."""
    distribution_like: tuple[str, ...] = ()
    """ID_LIKE of /etc/os-release."""
    image: TargetImage | None = None
    """The image that commands must change; None if they change this machine."""


def build_target(facts: Facts, compat: Compat, image: TargetImage | None = None) -> Target:
    """Return the target for the facts about an examined machine or image.

    In an image, every folder counts as writable, because root builds it.
    """
    tensorflow, loader, machine = value_of(facts.tensorflow), value_of(facts.loader), facts.machine
    python = value_of(facts.python)
    if image is not None and python is not None:
        python = replace(python, unwritable=())
    return Target(
        compat=compat,
        host=build_host(facts, compat),
        python=python,
        choice=facts.choice,
        tensorflow=tensorflow,
        build=describe_build(tensorflow, compat) if tensorflow is not None else None,
        library_path=loader.library_path if loader is not None else (),
        runpath_folders=loader.runpath_folders if loader is not None else (),
        variables=facts.environment.variables,
        programs=facts.environment.programs,
        is_root=machine.root,
        distribution=machine.distribution_id,
        distribution_like=machine.distribution_like,
        image=image,
    )
