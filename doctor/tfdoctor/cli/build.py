"""`tfdoctor build`."""

from __future__ import annotations

import dataclasses
import enum
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli import values
from tfdoctor.cli.files import requirement_lines, text_of
from tfdoctor.cli.machine import host_for
from tfdoctor.cli.options import (
    Driver,
    Gpus,
    Index,
    Json,
    OnlyErrors,
    Packages,
    command,
    option,
    verbose_option,
)
from tfdoctor.compat import Compat
from tfdoctor.dockerfile.emit import Form, default_tag
from tfdoctor.dockerfile.emit import emit as emitted
from tfdoctor.dockerfile.write import Extras, check_index, check_reference
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.fit import Host
from tfdoctor.plan import Method, Recipe, Request
from tfdoctor.plan.asked import checked_driver, checked_python, planned
from tfdoctor.render.build import build_json, render_built, render_dry_run
from tfdoctor.render.json import write_json
from tfdoctor.render.plan import recommendation_json, render_recommendation
from tfdoctor.render.progress import progress
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.engine import Engine
    from tfdoctor.findings import Verification
    from tfdoctor.plan import Recommendation

_PROXY = re.compile(r"https?://[^\s\x00-\x1f]{1,500}")
_PLATFORM = re.compile(r"linux/amd64(/v[1-4])?")


class RecipeChoice(str, enum.Enum):
    """How an image is put together."""

    pip_cuda = "pip-cuda"
    cuda_base = "cuda-base"
    official = "official"
    ngc = "ngc"


@command
def build(
    tf: Annotated[
        str | None,
        option(
            "TensorFlow: 1.14, 2.15.1, latest. Default: the best.",
            metavar="SPEC",
            autocompletion=values.releases,
        ),
    ] = None,
    python: Annotated[str | None, option("This Python: 3.11.", metavar="V")] = None,
    recipe: Annotated[RecipeChoice | None, option("Force a recipe.")] = None,
    tag: Annotated[str | None, option("The image's name.", "--tag", "-t", metavar="TAG")] = None,
    requirements: Annotated[
        list[Path] | None, option("Install these, too.", "-r", "--requirements", metavar="FILE")
    ] = None,
    package: Packages = None,
    base: Annotated[
        str | None,
        option("Build on this image (Debian or Ubuntu, or with a Python).", metavar="IMAGE"),
    ] = None,
    registry: Annotated[
        str | None, option("Pull bases from here: HOST[:PORT][/PATH].", metavar="MIRROR")
    ] = None,
    index: Index = None,
    ca_cert: Annotated[
        Path | None, option("Your network's certificate authority (PEM).", metavar="FILE")
    ] = None,
    proxy: Annotated[
        str | None, option("A proxy for the build; kept out of the image.", metavar="URL")
    ] = None,
    network: Annotated[str | None, option("The engine's network to build in: host.", metavar="NAME")] = None,
    platform: Annotated[str | None, option("linux/amd64.", metavar="OS/ARCH")] = None,
    gpu: Gpus = None,
    driver: Driver = None,
    anywhere: Annotated[bool, option("For any machine: do not look at this one.", "--anywhere")] = False,
    no_cache: Annotated[bool, option("Build every step again.", "--no-cache")] = False,
    no_verify: Annotated[bool, option("Do not verify the image.", "--no-verify")] = False,
    dry_run: Annotated[
        bool,
        option("Show the plan, its sizes and the Dockerfile; build nothing.", "--dry-run", "-n"),
    ] = False,
    print_only: Annotated[bool, option("Print the Dockerfile alone.", "--print")] = False,
    emit: Annotated[Form | None, option("Print another form of the plan.")] = None,
    check_file: Annotated[
        Path | None,
        option("Say what of a Dockerfile will not work, and why.", "--check", metavar="DOCKERFILE"),
    ] = None,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show all output of the build.")] = False,
    quiet: OnlyErrors = False,
) -> int:
    """Plan, write, build, verify. Returns the exit status.

    Plans for this machine (or --gpu, --driver, --anywhere), pulls the base, installs pinned and hashed packages,
    verifies the result. Prints what was created and how to remove it.
    """
    if check_file is not None:
        from tfdoctor.cli.build_check import check

        return check(check_file, as_json=as_json)
    from tfdoctor.engine import connect
    from tfdoctor.engine.image import Settings, build_image, context_of, with_mirror

    text_alone = print_only or emit is not None
    if as_json and text_alone:
        raise UsageError(
            "--json prints the plan as JSON, --print and --emit another form of it; give one of them.",
            hint="--dry-run --json has the Dockerfile, too.",
        )
    compat = Compat.load()
    if platform is not None and not _PLATFORM.fullmatch(platform):
        raise UsageError(
            "--platform: only linux/amd64 works.", hint="TensorFlow's arm64 wheels have no GPU code."
        )
    if proxy is not None and not _PROXY.fullmatch(proxy):
        raise UsageError("--proxy: expected an address such as http://HOST:PORT.")
    extras = Extras(
        requirements=requirement_lines(requirements or (), package or ()),
        ca_certificate=_certificate(ca_cert) if ca_cert is not None else None,
        index=check_index(index) if index is not None else None,
        platform=platform,
    )
    request = Request(
        tensorflow=tf,
        python=checked_python(python),
        method=Method.CONTAINER,
        recipe=Recipe(recipe.value) if recipe is not None else None,
        base=check_reference(base) if base is not None else None,
        requirements=extras.requirements,
    )
    host = _host(compat, gpus=gpu or (), driver=driver, look=not (anywhere or text_alone))
    answer = planned(compat, request, host)
    if answer.conflict is not None:
        _no_plan(answer, as_json=as_json, text_alone=text_alone, for_this_one=not gpu)
        return ExitCode.FOUND
    option = with_mirror(answer.options[0], registry if base is None else None)
    name = _checked_tag(tag) if tag is not None else default_tag(option)
    if text_alone or dry_run:
        context = context_of(option, extras)
        if emit is not None:
            sys.stdout.write(emitted(emit, option, context, name))
        elif print_only:
            sys.stdout.write(context.dockerfile)
        elif as_json:
            write_json(build_json(option, context.dockerfile))
        else:
            OUT.write(render_dry_run(option, context.dockerfile, name, **OUT.looks))
        return ExitCode.OK
    settings = Settings(
        tag=name,
        registry=registry,
        ca_file=str(ca_cert) if ca_cert is not None else None,
        proxy=proxy,
        no_cache=no_cache,
        network=network,
    )
    engine, began = connect(), time.monotonic()
    with progress(quiet=quiet or as_json, verbose=verbose) as told:
        for caveat in option.caveats:
            if caveat.serious:
                told.stage(f"Note: {caveat.text}")
        option, context, image = build_image(
            engine, option, extras, settings, told, custom_base=base is not None
        )
    if not (quiet or as_json):
        OUT.write(render_built(option, name, image.size, time.monotonic() - began))
    done = None
    if not no_verify:
        done = _verify(engine, compat, image.id, name, as_json=as_json, verbose=verbose, quiet=quiet)
    if as_json:
        made = {"id": image.id, "tags": list(image.tags), "size_bytes": image.size}
        write_json(build_json(option, context.dockerfile, made, done))
    return ExitCode.FOUND if done is not None and done.ok is False else ExitCode.OK


def _checked_tag(tag: str) -> str:
    """Raises UsageError."""
    if "@" in check_reference(tag):
        msg = f"--tag: `{tag}` has a digest, which is not known before it is built."
        raise UsageError(msg)
    return tag


def _host(compat: Compat, *, gpus: Sequence[str], driver: str | None, look: bool) -> Host:
    """The machine that the image is for: this one, unless another is named, or none (not `look`)."""
    if gpus and not look:
        return host_for(compat, gpus=gpus, driver=driver, facts=None)
    if not look:
        return Host(driver=checked_driver(driver))
    host = host_for(compat, gpus=gpus, driver=driver, facts=None)
    # The image's own system counts: of this machine only its cards, driver and processor do.
    windows = host.wsl or host.system == "Windows"
    return dataclasses.replace(host, glibc=None, python=None, system="Linux", wsl=windows)


def _certificate(path: Path) -> bytes:
    """Raises UsageError."""
    shown = clean_line(str(path))
    certificate = text_of(path, "--ca-cert").encode()
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        msg = f"--ca-cert: {shown} is not a certificate in PEM form."
        raise UsageError(msg, hint="It begins with -----BEGIN CERTIFICATE-----.")
    if b"PRIVATE KEY" in certificate:
        msg = f"--ca-cert: {shown} has a private key in it, which would stay in the image."
        raise UsageError(msg)
    return certificate


def _no_plan(answer: Recommendation, *, as_json: bool, text_alone: bool, for_this_one: bool) -> None:
    if as_json:
        write_json(recommendation_json(answer))
    elif text_alone:  # standard output is a file for something else
        ERR.write(render_recommendation(answer, width=ERR.width))
    else:
        OUT.write(render_recommendation(answer, **OUT.looks))
        if answer.host.cards and for_this_one:
            OUT.write("\nFor another machine than this one: --anywhere, or --gpu NAME --driver V.\n")


WITHOUT_GPU = ("libraries", "import")
"""What can be verified where there is no GPU."""


def _verify(
    engine: Engine, compat: Compat, image: str, tag: str, *, as_json: bool, verbose: bool, quiet: bool
) -> Verification:
    """Verify what was built: on the GPUs of this machine, or, where it has none, as far as that goes."""
    from tfdoctor.cli.verify import host_of_engine, tell, telling
    from tfdoctor.verify.image import verify_image
    from tfdoctor.verify.verifying import Wish, expected_gpus

    host = host_of_engine(compat, engine)
    shown = expected_gpus(host, None) if host is not None else None
    wish = Wish() if shown or host is None else Wish(stages=WITHOUT_GPU, gpus="none")
    on_stage = telling(quiet=quiet or as_json)
    done = dataclasses.replace(
        verify_image(engine, compat, image, wish, host=host, on_stage=on_stage), target=tag
    )
    if not as_json:
        tell(done, as_json=False, verbose=verbose, quiet=quiet)
    if wish.stages == WITHOUT_GPU and not (quiet or as_json):
        OUT.write(f"This machine shows no GPU: on one that has some, run  tfdoctor verify {tag}\n")
    return done
