"""For whom commands are: a Python, its TensorFlow, and what its person has at this machine. Pure."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from tfdoctor.facts import value_of
from tfdoctor.fit import Host, build_host
from tfdoctor.predict import build_of
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.facts import Facts, PythonFacts, TensorFlowFacts
    from tfdoctor.facts.python import Choice
    from tfdoctor.predict import Build

__all__ = ["InImage", "Target", "target_of"]


@dataclass(frozen=True, slots=True)
class InImage:
    """An image that is looked at, and how its containers are started here."""

    name: str
    """As it was given to the engine; empty for an image that a Dockerfile will make."""
    program: str = "docker"
    """Whose commands are typed: docker or podman."""
    access: str = "--gpus all"
    """The option of `run` that gives the GPUs."""
    user: str = ""
    """Who runs in it: empty for root."""


@dataclass(frozen=True, slots=True)
class Target:
    """What commands are made for. None and empty: nobody looked, and the commands come out general."""

    compat: Compat
    host: Host = field(default_factory=Host)
    python: PythonFacts | None = None
    """The Python that is examined."""
    choice: Choice | None = None
    """How it was found."""
    tensorflow: TensorFlowFacts | None = None
    build: Build | None = None
    library_path: tuple[str, ...] = ()
    """LD_LIBRARY_PATH as the loader reads it."""
    runpath_folders: tuple[str, ...] = ()
    """Where TensorFlow itself looks."""
    variables: Mapping[str, str] = field(default_factory=dict)
    programs: frozenset[str] | None = None
    """Those of interest that are on this person's PATH."""
    root: bool | None = None
    distribution: str | None = None
    """The ID of /etc/os-release."""
    like: tuple[str, ...] = ()
    """Its ID_LIKE."""
    image: InImage | None = None
    """None: what is typed takes effect here."""


def target_of(facts: Facts, compat: Compat, image: InImage | None = None) -> Target:
    """Return the target that an examined machine is, or an image, which root makes."""
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
        build=build_of(tensorflow, compat) if tensorflow is not None else None,
        library_path=loader.library_path if loader is not None else (),
        runpath_folders=loader.runpath_folders if loader is not None else (),
        variables=facts.environment.variables,
        programs=facts.environment.programs,
        root=machine.root,
        distribution=machine.distribution_id,
        like=machine.distribution_like,
        image=image,
    )
