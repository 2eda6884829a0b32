"""The `tfdoctor build` command."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli import completion_values
from tfdoctor.cli.build_emit import format_command, write_context
from tfdoctor.cli.confirmation import confirm_download
from tfdoctor.cli.files import read_option_file, read_requirement_lines
from tfdoctor.cli.machine import select_host
from tfdoctor.cli.options import (
    Driver,
    Gpus,
    Index,
    Json,
    OnlyErrors,
    Packages,
    Simulate,
    Yes,
    argument,
    command,
    option,
    verbose_option,
)
from tfdoctor.cli.simulation_options import parse_simulation, verify_simulated_image
from tfdoctor.compat import Compat
from tfdoctor.core.errors import Error, ExitCode, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.images.emit import EmittedImage, Form, make_default_tag
from tfdoctor.images.emit import emit as format_emitted
from tfdoctor.images.folder import group_app_files
from tfdoctor.images.index_login import find_index_login
from tfdoctor.images.read.bases import find_base_contents
from tfdoctor.images.write import (
    DEFAULT_UID,
    MAX_UID,
    AppFiles,
    UserAdditions,
    validate_index,
    validate_reference,
)
from tfdoctor.planning import Method, Recipe, Request
from tfdoctor.planning.arguments import (
    add_machine_arguments,
    make_plan,
    parse_python_version,
    validate_driver,
)
from tfdoctor.prediction.fit.models import Host
from tfdoctor.render.build import make_build_json, render_built_image, render_dry_run
from tfdoctor.render.json import write_json
from tfdoctor.render.plan import format_bytes, make_recommendation_json, render_recommendation
from tfdoctor.render.progress import open_progress
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Verification
    from tfdoctor.images.engine import ContainerEngine
    from tfdoctor.images.index_login import IndexLogin
    from tfdoctor.planning import Option, Recommendation
    from tfdoctor.verification.simulate.request import SimulatedGpus

STAGES_WITHOUT_GPU = ("libraries", "import")
"""The verification stages that need no GPU."""
_PROXY = re.compile(r"https?://[^\s\x00-\x1f]{1,500}")
_PLATFORM = re.compile(r"linux/amd64(/v[1-4])?")


class ConflictError(Error):
    """The user's requirements are incompatible with the plan."""

    kind = "conflict"


class RecipeChoice(str, enum.Enum):
    """The value of `--recipe`, which selects how the image is built."""

    pip_cuda = "pip-cuda"
    cuda_base = "cuda-base"
    official = "official"
    conda_cuda = "conda-cuda"
    ngc = "ngc"


@command(
    "tfdoctor build --tf 1.14",
    "tfdoctor build --tf 2.20 -t team/tf:2.20 -n",
    "tfdoctor build --tf 2.20 --emit compose",
)
def build(
    folder: Annotated[
        Path | None, argument("With --emit context: the folder to write.", metavar="[DIR]")
    ] = None,
    tf: Annotated[
        str | None,
        option(
            "TensorFlow: 1.14, 2.15.1, latest. Default: the best.",
            metavar="SPEC",
            autocompletion=completion_values.complete_release,
        ),
    ] = None,
    python_version: Annotated[str | None, option("For this Python: 3.11.", metavar="V")] = None,
    recipe: Annotated[RecipeChoice | None, option("Force a recipe.")] = None,
    tag: Annotated[str | None, option("The image's name.", "--tag", "-t", metavar="TAG")] = None,
    requirements: Annotated[
        list[Path] | None,
        option("Also install the packages that this file lists.", "-r", "--requirements", metavar="FILE"),
    ] = None,
    package: Packages = None,
    base: Annotated[
        str | None,
        option("Build on this image (Debian or Ubuntu, or with a Python).", metavar="IMAGE"),
    ] = None,
    dev: Annotated[bool, option("Keep the headers, and add a C++ compiler.", "--dev")] = False,
    copy: Annotated[
        Path | None,
        option(
            "Also copy your code into the image, to /app, without what .dockerignore names.", metavar="FOLDER"
        ),
    ] = None,
    entrypoint: Annotated[
        str | None, option('What a container runs: "python train.py".', metavar="COMMAND")
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
    network: Annotated[
        str | None, option("The engine's network for the build: host.", metavar="NAME")
    ] = None,
    uid: Annotated[
        int, option("The user ID of the image's user.", min=0, max=MAX_UID, metavar="N")
    ] = DEFAULT_UID,
    pin: Annotated[
        bool,
        option("Pin the base to the digest that its registry has now; a build always does.", "--pin"),
    ] = False,
    platform: Annotated[str | None, option("The platform: only linux/amd64.", metavar="OS/ARCH")] = None,
    gpu: Gpus = None,
    driver: Driver = None,
    simulate: Simulate = None,
    anywhere: Annotated[bool, option("Plan for any machine, and ignore this one.", "--anywhere")] = False,
    no_cache: Annotated[bool, option("Do not use the build cache.", "--no-cache")] = False,
    no_verify: Annotated[bool, option("Do not verify the image.", "--no-verify")] = False,
    push: Annotated[
        bool, option("Push the image to the registry that --tag names, if it passed verification.", "--push")
    ] = False,
    dry_run: Annotated[
        bool,
        option("Show the plan and its sizes (-v: also the Dockerfile); build nothing.", "--dry-run", "-n"),
    ] = False,
    print_only: Annotated[bool, option("Print only the Dockerfile.", "--print")] = False,
    emit: Annotated[
        Form | None, option("Print another form of the plan; context: write the folder DIR.")
    ] = None,
    force: Annotated[bool, option("With --emit context: replace existing files.", "--force")] = False,
    check_file: Annotated[
        Path | None,
        option("The same as `tfdoctor lint FILE`, in another form.", "--check", metavar="FILE", hidden=True),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
    verbose: Annotated[
        bool, verbose_option("Show all output of the build; with --dry-run the whole plan.")
    ] = False,
    quiet: OnlyErrors = False,
) -> int:
    """Plan, build and verify an image, or print its plan, and return the exit status.

    Plans for this machine (or --gpu, --driver, --anywhere), pulls the base, installs pinned and hashed packages,
    verifies the result. Prints what was created and how to remove it. With --simulate it plans for that GPU and
    verifies with a simulated one.
    """
    if check_file is not None:
        from tfdoctor.cli.build_check import check_build_file

        return check_build_file(check_file, as_json=as_json)
    from tfdoctor.images.engine import connect
    from tfdoctor.images.engine.app_files import read_app_files
    from tfdoctor.images.engine.image import BuildSettings, build_image, render_context, with_mirror

    _check_output_options(emit, folder, print_only=print_only, force=force, as_json=as_json)
    is_text_only = print_only or emit is not None
    _check_push(tag, push=push, builds_image=not (dry_run or is_text_only))
    _check_platform_and_proxy(platform, proxy)
    compat, gpu = Compat.load(), gpu or simulate
    simulation = _parse_build_simulation(compat, simulate or (), driver=driver, no_verify=no_verify)
    ca_file = str(ca_cert) if ca_cert is not None else None
    login = find_index_login(validate_index(index), LiveSystem()) if index is not None else None
    _check_apptainer(emit, login, has_app=copy is not None, has_entrypoint=entrypoint is not None)
    extras = UserAdditions(
        requirements=read_requirement_lines(requirements or (), package or ()),
        ca_certificate=_load_certificate(ca_cert) if ca_cert is not None else None,
        index_url=login.index_url if login is not None else index,
        index_needs_login=login is not None,
        platform=platform,
        uid=0 if emit is Form.apptainer else uid,  # its container runs as the user who starts it
        has_compilers=dev,
        app=read_app_files(copy) if copy is not None else AppFiles(),
        entrypoint=_parse_entrypoint(entrypoint),
    )
    request = Request(
        tensorflow=tf,
        python=parse_python_version(python_version),
        method=Method.CONTAINER,
        recipe=Recipe(recipe.value) if recipe is not None else None,
        base=validate_reference(base) if base is not None else None,
        base_contents=find_base_contents(base, compat) if base is not None else None,
        requirements=extras.requirements,
    )
    host = _choose_host(compat, gpus=gpu or (), driver=driver, examines_host=not (anywhere or is_text_only))
    recommendation = make_plan(compat, request, host)
    if recommendation.conflict is not None:
        recommendation = add_machine_arguments(recommendation, gpu or (), driver)
        _print_conflict(recommendation, as_json=as_json, is_text_only=is_text_only, for_this_host=not gpu)
        return ExitCode.FOUND
    option = with_mirror(recommendation.options[0], registry if base is None else None)
    image_name = _parse_tag(tag) if tag is not None else make_default_tag(option)
    if extras.requirements:
        _check_requirements(
            option,
            extras,
            login,
            ca_file=ca_file,
            proxy=proxy,
            quiet=quiet or as_json,
            without_index=is_text_only,
        )
    if is_text_only or dry_run:
        option = _adapt_to_base(option) if base is not None else option
        option = _pin_base(option, ca_file=ca_file, proxy=proxy) if pin else option
        for_any_host = anywhere or (is_text_only and not (gpu or driver))
        given_options = (
            ("--gpu", gpu), ("--driver", driver), ("--anywhere", for_any_host),
            ("-r", requirements), ("--package", package), ("--base", base), ("--registry", registry),
            ("--dev", dev), ("--copy", copy), ("--entrypoint", entrypoint),
            ("--index", index), ("--ca-cert", ca_cert), ("--network", network), ("--platform", platform),
            ("--uid", uid if uid != DEFAULT_UID else None), ("--tag", tag),
        )  # fmt: skip
        emitted_image = EmittedImage(
            option=option,
            context=render_context(option, extras),
            tag=image_name,
            command=format_command(option, given_options),
            uid=uid,
            unpinned_requirements=extras.requirements,
            needs_pip_config=login is not None,
            build_options=_format_engine_options(("--platform", platform), ("--network", network)),
        )
        if folder is not None:
            OUT.write(write_context(folder, emitted_image, force=force, dry_run=dry_run, quiet=quiet))
            return ExitCode.OK
        return _print_plan(
            emitted_image, emit, print_only=print_only, as_json=as_json, quiet=quiet, complete=verbose
        )
    settings = BuildSettings(
        image_name, registry, ca_file, proxy, no_cache=no_cache, network=network, login=login
    )
    engine, verification, digest = connect(), None, None
    if not confirm_download(_describe_download(option, image_name), yes=yes, quiet=quiet or as_json):
        return ExitCode.FOUND
    start_time = time.monotonic()
    with open_progress(quiet=quiet or as_json, verbose=verbose) as display:
        option, context, image = build_image(
            engine, option, extras, settings, display, is_custom_base=base is not None
        )
    if not (quiet or as_json):
        _report_built(engine, option, image_name, image.size_bytes, time.monotonic() - start_time, uid)
    if not no_verify:
        verification = _verify_image(
            engine, compat, image.id, image_name, simulation, as_json=as_json, verbose=verbose, quiet=quiet
        )
    failed_verification = verification is not None and verification.ok is False
    if push:
        digest = _push_image(
            engine,
            image_name,
            failed_verification=failed_verification,
            quiet=quiet or as_json,
            verbose=verbose,
        )
    if as_json:
        image_fields = {
            "id": image.id,
            "tags": [*image.tags],
            "size_bytes": image.size_bytes,
            "pushed": digest,
        }
        write_json(make_build_json(option, context.dockerfile, image_fields, verification))
    return ExitCode.FOUND if failed_verification else ExitCode.OK


def _describe_download(option: Option, image_name: str) -> str:
    """Return what is built, its serious caveats, and how much is downloaded and stays on the disk."""
    base = option.base.image if option.base is not None else ""
    wheels = option.release.size_bytes if option.recipe.needs_venv else 0
    wheels += option.cuda_set.size_bytes if option.cuda_set is not None else 0
    downloads = wheels + sum(part.download_bytes or 0 for part in option.components)
    size = f", which takes about {format_bytes(option.size_bytes)}" if option.size_bytes is not None else ""
    lines = [
        *(f"Note: {caveat.text}" for caveat in option.caveats if caveat.is_serious),
        f"TensorFlow {option.tensorflow}, Python {option.python}, CUDA {option.cuda} on {base}",
        f"Downloads up to {format_bytes(downloads)} for {image_name}{size}.",
    ]
    return "\n".join(lines)


def _parse_entrypoint(text: str | None) -> tuple[str, ...]:
    """Return the words of the entrypoint, which no shell reads in the image. Raise UsageError if it is invalid."""
    if text is None:
        return ()
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        msg = f"--entrypoint: {clean_line(text, limit=200)}: {error}."
        raise UsageError(msg) from error
    if not words or any(not word.isprintable() for word in words):
        raise UsageError(
            "--entrypoint: expected a program and its arguments.", hint='--entrypoint "python train.py"'
        )
    return words


def _print_plan(
    image: EmittedImage, emit: Form | None, *, print_only: bool, as_json: bool, quiet: bool, complete: bool
) -> int:
    """Print the plan in the requested form, and return the exit status."""
    if as_json:
        write_json(make_build_json(image.option, image.context.dockerfile))
    elif emit is not None:
        sys.stdout.write(format_emitted(emit, image))
    elif print_only:
        if image.context.files and not quiet:  # before the file, so that it is not in the middle of it
            names = ", ".join(sorted(group_app_files(image.context.files)))
            ERR.write(
                f"tfdoctor: this Dockerfile copies {names}. `{image.command} --emit context DIR` writes them as well.\n"
            )
            ERR.flush()
        sys.stdout.write(image.context.dockerfile)
    else:
        OUT.write(render_dry_run(image, complete=complete, **OUT.layout))
    return ExitCode.OK


def _format_engine_options(*options: tuple[str, str | None]) -> tuple[str, ...]:
    """Return the options that have a value as arguments of `docker build`, quoted for a shell."""
    return tuple(f"{name} {shlex.quote(clean_line(value))}" for name, value in options if value)


def _report_built(
    engine: ContainerEngine, option: Option, image_name: str, size_bytes: int, seconds: float, uid: int
) -> None:
    """Print what was built, and how to run and remove it."""
    from tfdoctor.remedies.target import TargetImage
    from tfdoctor.verification.image import get_gpu_option

    image = TargetImage(image_name, engine.name, get_gpu_option(engine))
    user = choose_run_user(uid, rootless=engine.is_rootless)
    OUT.write(render_built_image(option, image, size_bytes, seconds, user=user))


def choose_run_user(uid: int, *, rootless: bool) -> str:
    """Return the value of `run --user` with which a container can write to the user's folder.

    Return "" if the image's own user, `uid`, can write there. In a rootless engine, only root can: it is the user who
    started the engine, and no other ID belongs to an existing user.
    """
    if rootless:
        return "0:0" if uid else ""
    return "" if uid == _get_user_id() else '"$(id -u):$(id -g)"'


def _get_user_id() -> int | None:
    """Return the current user's ID, or None on Windows, which has no user IDs."""
    return os.getuid() if hasattr(os, "getuid") else None


def _check_output_options(
    emit: Form | None, folder: Path | None, *, print_only: bool, force: bool, as_json: bool
) -> None:
    """Raise UsageError if options exclude each other."""
    if as_json and (print_only or emit is not None):
        raise UsageError(
            "--json prints the plan as JSON, --print and --emit another form of it; give one of them.",
            hint="--dry-run --json has the Dockerfile, too.",
        )
    if emit is Form.context and folder is None:
        raise UsageError("--emit context: give the folder to write as well.", hint="--emit context DIR")
    if folder is not None and emit is not Form.context:
        msg = f"`{clean_line(str(folder))}`: only --emit context takes a folder."
        raise UsageError(msg, hint="To build, give no folder: tfdoctor build --tf 2.20")
    if force and emit is not Form.context:
        raise UsageError("--force needs --emit context.", hint="See tfdoctor build --help.")
    if print_only and emit is not None:
        raise UsageError("--print and --emit are two forms of the plan; give one of them.", hint="")


def _check_apptainer(
    emit: Form | None, login: IndexLogin | None, *, has_app: bool, has_entrypoint: bool
) -> None:
    """Raise UsageError for what a definition of Apptainer does not have."""
    if emit is not Form.apptainer:
        return
    if login is not None:
        raise UsageError(
            "--emit apptainer: Apptainer's build has no secrets, so the index's login would be in the image."
        )
    if has_app or has_entrypoint:
        raise UsageError(
            "--emit apptainer: a definition has no --copy and no --entrypoint.",
            hint="apptainer exec --nv IMAGE python train.py runs the program in your folder.",
        )


def _adapt_to_base(option: Option) -> Option:
    """Return the plan, adapted to the contents of the user's base image if the engine has that image.

    Otherwise print a note and return the plan unchanged. Raise BaseError if the image cannot be used as a base.
    """
    from tfdoctor.images.engine import EngineError, connect
    from tfdoctor.images.engine.image import inspect_base

    assert option.base is not None  # noqa: S101 - every container option has one
    name = option.base.reference
    try:
        engine = connect()
        is_present = engine.find_image(name) is not None
        reason = "is not in the engine"
    except EngineError as error:
        is_present, reason = False, f"was not examined: {error.message.rstrip('.')}"
    if is_present:
        return inspect_base(engine, option)
    ERR.write(
        f"Note: {clean_line(name)} {clean_line(reason)}. A build looks into it and stops if it has no Python "
        f"{option.python} and cannot install it. To see its own Dockerfile: docker pull {clean_line(name)}\n"
    )
    return option


def _pin_base(option: Option, *, ca_file: str | None, proxy: str | None) -> Option:
    """Return the plan with the digest that its base image has in the registry now.

    A plan that already has a digest is returned unchanged. Raise Error if the registry returns no digest.
    """
    from tfdoctor.images.engine import query_registry

    assert option.base is not None  # noqa: S101 - every container option has one
    if "@" in option.base.reference:
        return option
    proxies = {"http": proxy, "https": proxy} if proxy else None
    registry_reply = query_registry(option.base.image, ca_file=ca_file, proxies=proxies)
    if registry_reply.digest is None:
        reason = registry_reply.message or f"its registry gives no digest for {option.base.image}."
        msg = f"--pin: {reason}"
        raise Error(msg, hint="Without --pin the base is named by its tag only.")
    return dataclasses.replace(option, base=dataclasses.replace(option.base, digest=registry_reply.digest))


def _push_image(
    engine: ContainerEngine, tag: str, *, failed_verification: bool, quiet: bool, verbose: bool
) -> str | None:
    """Push the image and return its digest. If it failed verification, only print a note; return None."""
    from tfdoctor.images.engine.push import push

    if failed_verification:
        ERR.write(f"{tag} was not pushed: it failed verification. --no-verify --push pushes it anyway.\n")
        return None
    with open_progress(quiet=quiet, verbose=verbose) as display:
        digest = push(engine, tag, display)
    if not quiet:
        OUT.write(f"Pushed {tag}@{digest}\n")
    return digest


def _parse_build_simulation(
    compat: Compat, names: Sequence[str], *, driver: str | None, no_verify: bool
) -> SimulatedGpus | None:
    """Return the simulation for the verification, or None if no GPU is simulated.

    Raise UsageError if GPUs are simulated although verification is disabled, or if a name is unknown.
    """
    if names and no_verify:
        raise UsageError("--simulate is for verifying, which --no-verify leaves out; give one of them.")
    return parse_simulation(compat, names, driver=driver)


def _check_platform_and_proxy(platform: str | None, proxy: str | None) -> None:
    """Raise UsageError if the platform or the proxy is invalid."""
    if platform is not None and not _PLATFORM.fullmatch(platform):
        raise UsageError(
            "--platform: only linux/amd64 works.",
            hint="TensorFlow's arm64 wheels have no GPU code. NVIDIA's own images for arm64: tfdoctor recommend --gpu GH200",
        )
    if proxy is not None and not _PROXY.fullmatch(proxy):
        raise UsageError("--proxy: expected an address such as http://HOST:PORT.")


def _check_push(tag: str | None, *, push: bool, builds_image: bool) -> None:
    """Raise UsageError if `push` is set, but no image is built or `--tag` does not name it."""
    if push and (tag is None or not builds_image):
        raise UsageError(
            "--push: only an image that is built, under the name that --tag gives it, can be pushed.",
            hint="--tag REGISTRY/NAME:TAG --push",
        )


def _check_requirements(
    option: Option,
    extras: UserAdditions,
    login: IndexLogin | None,
    *,
    ca_file: str | None,
    proxy: str | None,
    quiet: bool,
    without_index: bool,
) -> None:
    """Raise ConflictError if the requirements cannot be installed with the versions of the plan.

    This is checked before large downloads. With `without_index`, the network is not used, and the requirements are
    compared only with the pinned versions.
    """
    from tfdoctor.environments.precheck import PrecheckResult, describe_unmet_pin, precheck_requirements
    from tfdoctor.images.engine.image import render_context

    files = render_context(option, extras).files
    constraints = files.get("constraints.txt", b"").decode().splitlines()
    if without_index:
        result = PrecheckResult(
            conflict_reason=describe_unmet_pin(extras.requirements, constraints, option.python)
        )
    else:
        result = precheck_requirements(
            extras.requirements,
            constraints,
            option.python,
            env=os.environ,
            index_url=login.url if login is not None else extras.index_url,
            ca_file=ca_file,
            proxy=proxy,
        )
    if login is not None:
        result = PrecheckResult(login.redact(result.conflict_reason), login.redact(result.unknown_reason))
    if result.conflict_reason:
        reason = result.conflict_reason.rstrip(".")
        msg = f"your requirements cannot be installed beside TensorFlow {option.tensorflow}: {reason}."
        raise ConflictError(
            msg,
            hint="Correct or loosen the named requirement, or choose another TensorFlow with --tf. Nothing was built.",
        )
    if result.unknown_reason and not quiet:
        ERR.write(
            f"Could not check beforehand whether your requirements are compatible with TensorFlow: {result.unknown_reason}\n"
        )


def _parse_tag(tag: str) -> str:
    """Return the image name. Raise UsageError if it has a digest or is invalid."""
    if "@" in validate_reference(tag):
        msg = f"--tag: `{tag}` has a digest, which is not known before it is built."
        raise UsageError(msg)
    return tag


def _choose_host(compat: Compat, *, gpus: Sequence[str], driver: str | None, examines_host: bool) -> Host:
    """Return the host that the image is for: a host with the given GPUs or, if none are given, this host.

    Without `examines_host`, this host is not examined, and an unknown host takes its place. Raise UsageError if a GPU or
    the driver is invalid.
    """
    if gpus and not examines_host:
        return select_host(compat, gpus=gpus, driver=driver, recording_path=None)
    if not examines_host:
        return Host(driver=validate_driver(compat, driver))
    host = select_host(compat, gpus=gpus, driver=driver, recording_path=None)
    # The image brings its own system, so only the GPUs, driver and processor of this host matter.
    is_windows = host.is_wsl or host.system == "Windows"
    return dataclasses.replace(host, glibc=None, python=None, system="Linux", is_wsl=is_windows)


def _load_certificate(path: Path) -> bytes:
    """Read a certificate. Raise UsageError if the file is not a certificate or contains a private key."""
    display_name = clean_line(str(path))
    certificate = read_option_file(path, "--ca-cert").encode()
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        msg = f"--ca-cert: {display_name} is not a certificate in PEM form."
        raise UsageError(msg, hint="It begins with -----BEGIN CERTIFICATE-----.")
    if b"PRIVATE KEY" in certificate:
        msg = f"--ca-cert: {display_name} has a private key in it, which would stay in the image."
        raise UsageError(msg)
    return certificate


def _print_conflict(
    recommendation: Recommendation, *, as_json: bool, is_text_only: bool, for_this_host: bool
) -> None:
    """Print the recommendation, which says why there is no plan."""
    if as_json:
        write_json(make_recommendation_json(recommendation))
    elif is_text_only:  # standard output is for the Dockerfile or another file
        ERR.write(render_recommendation(recommendation, width=ERR.width))
    else:
        OUT.write(render_recommendation(recommendation, **OUT.layout))
        if recommendation.host.cards and for_this_host:
            OUT.write("\nFor a different machine than this one: --anywhere, or --gpu NAME --driver V.\n")


def _verify_image(
    engine: ContainerEngine,
    compat: Compat,
    image: str,
    tag: str,
    simulation: SimulatedGpus | None,
    *,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> Verification:
    """Verify the image on this host's GPUs and print the result.

    On a host without GPUs, only the stages that need none are run. With `simulation`, the stand-in driver replaces
    the GPUs.
    """
    from tfdoctor.cli.callbacks import make_stage_printer
    from tfdoctor.cli.verify import collect_engine_host_facts, print_result
    from tfdoctor.verification.image import verify_image
    from tfdoctor.verification.session import VerifyRequest, count_expected_gpus

    if simulation is not None:
        verification = verify_simulated_image(
            engine,
            compat,
            image,
            VerifyRequest(simulated_gpus=simulation),
            simulation,
            quiet=quiet or as_json,
        )
        verification = dataclasses.replace(verification, target=tag)
        if not as_json:
            print_result(verification, as_json=False, verbose=verbose, quiet=quiet)
        return verification
    host = collect_engine_host_facts(compat, engine)
    gpu_count = count_expected_gpus(host, None) if host is not None else None
    request = (
        VerifyRequest()
        if gpu_count or host is None
        else VerifyRequest(stages=STAGES_WITHOUT_GPU, gpus="none")
    )
    on_stage = make_stage_printer(quiet=quiet or as_json)
    verification = dataclasses.replace(
        verify_image(engine, compat, image, request, host=host, on_stage=on_stage), target=tag
    )
    if not as_json:
        print_result(verification, as_json=False, verbose=verbose, quiet=quiet)
    if request.stages == STAGES_WITHOUT_GPU and not (quiet or as_json):
        OUT.write(f"This machine shows no GPU: on one that has some, run  tfdoctor verify {tag}\n")
    return verification
