"""The commands about images: recommend, build, verify. Each one's work is in its own module, as in main.py."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from tfdoctor.cli.options import finite


class MethodChoice(str, enum.Enum):
    """How TensorFlow is to be brought."""

    pip = "pip"
    container = "container"


class RecipeChoice(str, enum.Enum):
    """How an image is put together."""

    pip_cuda = "pip-cuda"
    cuda_base = "cuda-base"
    official = "official"
    ngc = "ngc"


class Form(str, enum.Enum):
    """Other forms of a plan."""

    compose = "compose"
    devcontainer = "devcontainer"
    apptainer = "apptainer"
    requirements = "requirements"


def recommend(
    tf: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help='Releases: 2.15, 2.15.0, ">=2.10,<2.13". Default: the best.'),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|CC", help='A card: "RTX 5090", 8.6. Default: this machine\'s.'),
    ] = None,
    driver: Annotated[str | None, typer.Option(metavar="V", help="The driver: 550.54.14, or 550.")] = None,
    python: Annotated[str | None, typer.Option(metavar="V", help="This Python: 3.11.")] = None,
    method: Annotated[MethodChoice | None, typer.Option(help="Only this way.")] = None,
    facts: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="For a recorded machine instead of this one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every option, every part and every reason.")
    ] = False,
) -> None:
    """Which TensorFlow fits this machine, and how is it got?

    Without --tf: the best one. Changes nothing, and uses no network. Exit status 1 where nothing fits.
    """
    from tfdoctor.cli import recommend as command

    raise typer.Exit(
        command.show(
            tf=tf,
            gpus=gpu or [],
            driver=driver,
            python=python,
            method=method.value if method is not None else None,
            facts=facts,
            as_json=as_json,
            verbose=verbose,
        )
    )


def build(
    tf: Annotated[
        str | None, typer.Option(metavar="SPEC", help="TensorFlow: 1.14, 2.15.1, latest. Default: the best.")
    ] = None,
    python: Annotated[str | None, typer.Option(metavar="V", help="This Python: 3.11.")] = None,
    recipe: Annotated[RecipeChoice | None, typer.Option(help="Force a recipe.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", "-t", metavar="TAG", help="The image's name.")] = None,
    requirements: Annotated[
        list[Path] | None, typer.Option("-r", "--requirements", metavar="FILE", help="Install these, too.")
    ] = None,
    package: Annotated[
        list[str] | None, typer.Option(metavar="P", help='Install this, too: pandas, "scipy<1.12".')
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Build on this image (Debian or Ubuntu, or with a Python)."),
    ] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="MIRROR", help="Pull bases from here: HOST[:PORT][/PATH].")
    ] = None,
    index: Annotated[
        str | None, typer.Option(metavar="URL", help="The package index, without a password.")
    ] = None,
    ca_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your network's certificate authority (PEM).")
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="URL", help="A proxy for the build; kept out of the image.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="NAME", help="The engine's network to build in: host.")
    ] = None,
    platform: Annotated[str | None, typer.Option(metavar="OS/ARCH", help="linux/amd64.")] = None,
    gpu: Annotated[
        list[str] | None, typer.Option(metavar="NAME|CC", help="For this card instead of this machine's.")
    ] = None,
    driver: Annotated[str | None, typer.Option(metavar="V", help="For this driver.")] = None,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="For any machine: do not look at this one.")
    ] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Build every step anew.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not verify the image.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", "-n", help="Show the plan, its sizes and the Dockerfile; build nothing."),
    ] = False,
    print_only: Annotated[bool, typer.Option("--print", help="Print the Dockerfile alone.")] = False,
    emit: Annotated[Form | None, typer.Option(help="Print another form of the plan.")] = None,
    check_file: Annotated[
        Path | None,
        typer.Option(
            "--check", metavar="DOCKERFILE", help="Say what of a Dockerfile will not work, and why."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all output of the build.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Build a container image in which TensorFlow sees the GPUs.

    Plans for this machine (or --gpu, --driver, --anywhere), pulls the base, installs pinned and hashed packages,
    verifies the result. What it made is told, with the command that removes it.
    """
    if check_file is not None:
        from tfdoctor.cli import build_check

        raise typer.Exit(build_check.check(check_file, as_json=as_json))
    from tfdoctor.cli import build as command

    raise typer.Exit(
        command.build(
            command.Options(
                tf=tf,
                python=python,
                recipe=recipe.value if recipe is not None else None,
                tag=tag,
                requirements=requirements or [],
                packages=package or [],
                base=base,
                registry=registry,
                index=index,
                ca_cert=ca_cert,
                proxy=proxy,
                platform=platform,
                network=network,
                gpus=gpu or [],
                driver=driver,
                anywhere=anywhere,
                no_cache=no_cache,
                no_verify=no_verify,
                dry_run=dry_run,
                print_only=print_only,
                emit=emit.value if emit is not None else None,
                as_json=as_json,
                verbose=verbose,
                quiet=quiet,
            )
        )
    )


class Device(str, enum.Enum):
    """What the computations are tried on."""

    GPU = "GPU"
    CPU = "CPU"


def verify(
    image: Annotated[
        str | None, typer.Argument(metavar="[IMAGE]", help="An image of the local engine.")
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="A Python of this machine instead of an image; with IMAGE: the one in it."
        ),
    ] = None,
    expect_gpus: Annotated[
        int | None,
        typer.Option(min=0, max=256, metavar="N", help="How many GPUs there must be. Default: the host's."),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Which GPUs the container gets: all, 0,1, a UUID, none."),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|LIST",
            help="Up to this stage, or these: runtime, driver, libraries, import, visible, compute, cudnn, nccl.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=86400,
            metavar="SECONDS",
            callback=finite,
            help="The longest that one stage of TensorFlow's may take.",
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What the container may take: 8g.")
    ] = None,
    device: Annotated[
        Device, typer.Option(help="CPU: the same computations without a GPU, to try the rest.")
    ] = Device.GPU,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write JUnit's XML, for continuous integration.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the evidence.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
) -> None:
    """Does TensorFlow in there really see the GPUs, and compute on them?

    Starts the image with the GPUs (or takes a Python of this machine) and goes through the stages in order; the first
    that fails is named, with its root cause. The container is removed. Exit status 1 where a stage failed.
    """
    from tfdoctor.cli import verify as command

    raise typer.Exit(
        command.verify(
            image,
            python=python,
            expect=expect_gpus,
            gpus=gpus,
            stages=stages,
            timeout=timeout,
            memory=memory,
            device=device.value,
            junit=junit,
            as_json=as_json,
            verbose=verbose,
            quiet=quiet,
        )
    )


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (recommend, build, verify):
        app.command()(command)
