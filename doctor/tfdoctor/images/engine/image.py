"""Build the image of a plan: pull and inspect the base image, render the Dockerfile and build it.

This module prints nothing, but reports to a `Progress`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from docker.errors import APIError, DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.core.errors import Error
from tfdoctor.images.engine import (
    BuildFailedError,
    BuildRequest,
    EngineError,
    RunRequest,
    build,
    query_registry,
    run,
)
from tfdoctor.images.engine.building import (
    make_layer_event,
    make_unfinished_image_name,
    remove_unfinished_image,
)
from tfdoctor.images.engine.client_build import build_with_client, find_buildkit_client
from tfdoctor.images.engine.connection import make_engine_error
from tfdoctor.images.engine.registry import apply_mirror, parse_reference
from tfdoctor.images.write import (
    PIP_CONFIG_SECRET,
    BuildContext,
    UserAdditions,
    render_dockerfile,
    validate_reference,
)

if TYPE_CHECKING:
    from tfdoctor.diagnosis.progress import Progress
    from tfdoctor.images.engine import BuildEvent, ContainerEngine
    from tfdoctor.images.engine.connection import Image
    from tfdoctor.images.index_login import IndexLogin
    from tfdoctor.planning import Option

__all__ = [
    "BaseImageError",
    "BuildSettings",
    "build_image",
    "inspect_base",
    "pin_base",
    "render_context",
    "with_mirror",
]

BASE_PROBE_SCRIPT = (
    '. /etc/os-release 2>/dev/null; echo "system=$ID $VERSION_ID"; '
    "for p in python3 python2 python3.5 python3.6 python3.7 python3.8 python3.9 python3.10 python3.11 python3.12 "
    "python3.13 python3.14 python2.7 python; do "
    "w=$(command -v $p) || continue; "
    "v=$($p -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])' 2>/dev/null) || continue; "
    "m=$($p -c 'import venv, ensurepip; print(\"venv\")' 2>/dev/null); "
    "i=$($p -c 'import pip; print(\"pip\")' 2>/dev/null); "
    'echo "python=$v $p $m $i"; done; '
    "command -v apt-get >/dev/null && echo apt=yes; exit 0"
)
"""A shell script that reports the system and the Python versions of a base image that the user chose."""
_PYTHON_LINE = re.compile(r"python=(\d\.\d{1,2}) (python[0-9.]{0,5}) ?(venv)? ?(pip)?")
"""A line of its output: version, command, and the words "venv" and "pip" if these can be imported."""


class BaseImageError(Error):
    """The base image cannot be pulled or used."""

    kind = "base-image"


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """Build settings that do not change the Dockerfile."""

    tag: str
    registry: str | None = None
    """A mirror to pull base images from. None for their own registries."""
    ca_file: str | None = None
    """A file with certificate authorities for the registry. None for the default."""
    proxy: str | None = None
    """The URL of a proxy for the registry query and the build steps. None to set none."""
    no_proxy: str | None = None
    """Hosts that are reached without the proxy, separated by commas."""
    no_cache: bool = False
    """Whether to build every step again."""
    network: str | None = None
    """The network of the build steps, such as `host`. None for the engine's default."""
    login: IndexLogin | None = None
    """The login of the package index. None if it needs none."""


def with_mirror(option: Option, registry: str | None) -> Option:
    """Return the plan with its base and conda images on the mirror `registry`. None leaves it unchanged.

    Raise UsageError if the mirror is not a valid part of an image name.
    """
    if registry is None or option.base is None:
        return option
    name = validate_reference(apply_mirror(option.base.reference, registry))
    conda = option.conda_cuda
    if conda is not None:
        conda = replace(conda, image=validate_reference(apply_mirror(conda.image, registry)))
    return replace(option, base=replace(option.base, image=name, digest=None), conda_cuda=conda)


def render_context(option: Option, extras: UserAdditions) -> BuildContext:
    """Return the Dockerfile of a plan and the files that it copies. Raise UsageError for invalid extras."""
    package, release = option.release.package, option.release.version
    compat = Compat.load()
    return render_dockerfile(
        option,
        extras,
        lock=compat.locks.get_lock(package, release, option.python),
        tools=compat.locks.get_tools_lock(option.python),
        leftovers=compat.leftovers,
    )


def build_image(
    engine: ContainerEngine,
    option: Option,
    extras: UserAdditions,
    settings: BuildSettings,
    progress: Progress,
    *,
    is_custom_base: bool,
) -> tuple[Option, BuildContext, Image]:
    """Pull the base image and build on it. Return the plan as built, its context and the image.

    `is_custom_base` says whether the user chose the base image. If so, it is inspected first. If the build fails, its
    container is removed and the finished steps stay in the engine's cache.

    Raise BaseImageError if the base image cannot be pulled or used, BuildFailedError if a step fails, EngineError if the
    engine fails, and UsageError if an extra is invalid.
    """
    assert option.base is not None  # noqa: S101 - every container option has one
    reference = option.base.reference
    client = find_buildkit_client(engine)
    if settings.login is not None and client is None:
        raise EngineError(
            "an index with a login needs BuildKit: the classic builder would store the password in the image.",
            hint="Install Docker's buildx plugin (docker-buildx-plugin, docker-buildx).",
        )
    extras = replace(extras, caches_downloads=client is not None)
    _pull_base(engine, reference, settings, progress, platform=extras.platform)
    if is_custom_base:
        progress.begin_stage(f"Looking into {reference}")
        option = inspect_base(engine, option)
    option = pin_base(engine, option)
    shortage = describe_disk_shortage(engine, option)
    if shortage:
        progress.begin_stage(f"Note: {shortage}")
    context = render_context(option, extras)
    progress.begin_stage(f"Building {settings.tag}")
    request = BuildRequest(
        dockerfile=context.dockerfile,
        files=context.files,
        executables=context.executables,
        tag=settings.tag,
        arguments=_make_proxy_arguments(settings),
        no_cache=settings.no_cache,
        platform=extras.platform,
        network=settings.network,
        secrets={PIP_CONFIG_SECRET: settings.login.make_pip_config()} if settings.login is not None else {},
    )
    redact = settings.login.redact if settings.login is not None else str
    image_id = ""

    def report(event: BuildEvent) -> None:
        _report_event(progress, replace(event, text=redact(event.text)))

    try:
        if client is not None:
            image_id = build_with_client(engine, client, request, report)
            progress.end_step()
        else:
            with contextlib.closing(build(engine, request)) as events:
                for event in events:
                    report(event)
                    if event.kind == "image":
                        image_id = event.text
    except BaseException as error:
        if isinstance(error, BuildFailedError):
            error.message = redact(error.message)
            error.output = tuple(map(redact, error.output))
            if settings.login is not None:  # pip reports a refused login as a missing package
                error.hint = f"{error.hint} Or the index refuses the login.".lstrip()
            progress.report_failure(error.step, error.output)
        _report_unfinished(engine, settings.tag, progress)
        raise
    remove_unfinished_image(engine, settings.tag)
    image = engine.find_image(image_id)
    if image is None:
        msg = f"the engine built {image_id[:19]} and no longer has it."
        raise EngineError(msg)
    return option, context, image


def describe_disk_shortage(engine: ContainerEngine, option: Option) -> str:
    """Return that the engine's disk has less space than the image needs; "" if it has enough, or if that is unknown."""
    needed_bytes = option.size_bytes
    if needed_bytes is None or not engine.url.startswith("unix://"):
        return ""
    try:
        folder = str(engine.client.info().get("DockerRootDir") or "")
        free_bytes = shutil.disk_usage(folder).free if folder else needed_bytes
    except (OSError, DockerException, RequestException):
        return ""
    if free_bytes >= needed_bytes:
        return ""
    return (
        f"{folder} has {free_bytes / 1e9:.1f} GB free, and the image needs about {needed_bytes / 1e9:.1f} GB, less what is "
        f"in the cache. To make room: {engine.name} system df; {engine.name} builder prune"
    )


def _report_unfinished(engine: ContainerEngine, tag: str, progress: Progress) -> None:
    """Report the image with the finished steps of a failed build, and the command that removes it."""
    with contextlib.suppress(EngineError):
        image = engine.find_image(make_unfinished_image_name(tag))
        if image is not None:
            name = image.tags[0] if image.tags else make_unfinished_image_name(tag)
            progress.begin_stage(
                f"The steps that ended are kept as {name} ({image.size_bytes / 1e9:.1f} GB): the next build goes on from "
                f"there. Remove them: {engine.name} rmi {name}"
            )


def pin_base(engine: ContainerEngine, option: Option) -> Option:
    """Return the plan with its base image pinned by digest.

    The plan is unchanged if the engine does not know the image's digest in its registry.
    """
    base = option.base
    assert base is not None  # noqa: S101 - every container option has one
    image = engine.find_image(base.reference)
    if image is None or "@" in base.reference:
        return option
    base_reference = parse_reference(base.image)
    for digest in image.digests:
        reference = parse_reference(digest)
        if (reference.registry, reference.repository) == (base_reference.registry, base_reference.repository):
            return replace(option, base=replace(base, digest=reference.digest))
    return option


def _report_event(progress: Progress, event: BuildEvent) -> None:
    """Report a build event to the progress display."""
    if event.kind == "step":
        progress.begin_step(event.step_number, event.step_count, event.text)
    elif event.kind == "cached":
        progress.report_cached()
    elif event.kind == "output":
        progress.report_line(event.text)
    elif event.kind == "layer":
        progress.report_layer(event.layer_id, event.text, event.transferred_bytes, event.layer_bytes)
    else:
        progress.end_step()


def _make_proxy_arguments(settings: BuildSettings) -> dict[str, str]:
    """Return the proxies as build arguments. Engines keep these names out of an image's history."""
    arguments: dict[str, str] = {}
    if settings.proxy:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            arguments[name] = settings.proxy
    if settings.no_proxy:
        arguments |= {"no_proxy": settings.no_proxy, "NO_PROXY": settings.no_proxy}
    return arguments


# ---------------------------------------------------------------- base image


def _pull_base(
    engine: ContainerEngine,
    reference: str,
    settings: BuildSettings,
    progress: Progress,
    *,
    platform: str | None,
) -> None:
    """Pull the base image unless the engine has it.

    The registry is queried first, so that a missing image, a required login or a pull limit is reported at once as a
    BaseImageError. Raise EngineError if the pull fails.
    """
    if engine.find_image(reference) is not None:
        return
    progress.begin_stage(f"Asking the registry for {reference}")
    proxies = {"http": settings.proxy, "https": settings.proxy} if settings.proxy else None
    reply = query_registry(reference, ca_file=settings.ca_file, proxies=proxies)
    if reply.state in ("missing", "login", "limited"):
        msg = f"{reference} cannot be pulled: {reply.message}"
        raise BaseImageError(
            msg,
            hint="--base IMAGE builds on another one, --registry MIRROR pulls from elsewhere.",
        )
    progress.begin_stage(f"Pulling {reference}")
    try:
        for message in engine.client.api.pull(reference, stream=True, decode=True, platform=platform):
            if "error" in message:
                raise make_engine_error(RuntimeError(str(message["error"])), f"pulling {reference}")
            _report_event(progress, make_layer_event(message))
    except (APIError, DockerException, RequestException, HTTPError, OSError, ValueError) as error:
        # The SDK reads the stream with urllib3, whose HTTPError is not wrapped. Truncated JSON is a ValueError.
        failure = make_engine_error(error, f"pulling {reference}")
        if reply.state == "unreachable":
            failure.hint = (
                f"{reply.message} With the image already at hand (docker load, --base) no registry is needed; "
                "--registry MIRROR pulls from elsewhere."
            )
        raise failure from error


def inspect_base(engine: ContainerEngine, option: Option) -> Option:
    """Return the plan with the system of the user's base image, and with its Python or packages for one.

    Raise BaseImageError if the image has no Python of the planned version and cannot install one, and EngineError if the
    engine fails.
    """
    base = option.base
    assert base is not None  # noqa: S101
    result = run(engine, RunRequest(base.reference, ("sh", "-c", BASE_PROBE_SCRIPT), timeout_s=60, user="0"))
    if result.start_error or result.status != 0:
        reason = result.start_error or result.stderr or "no shell in it"
        msg = f"{base.image} cannot be looked into: {reason[:300]}"
        raise BaseImageError(msg, hint="The base needs sh and a Python, or apt-get.")
    system = next(
        (
            line.removeprefix("system=").strip()
            for line in result.stdout.splitlines()
            if line.startswith("system=")
        ),
        "",
    )
    pythons = [
        match.groups()
        for line in result.stdout.splitlines()
        if (match := _PYTHON_LINE.fullmatch(line.rstrip()))
    ]
    needs_venv = option.recipe.needs_venv
    for python_version, command, venv, pip in pythons:
        if python_version == option.python and (venv if needs_venv else pip):
            return replace(option, base=replace(base, system=system, python_command=command))
    has_apt = "apt=yes" in result.stdout
    version, major = option.python, versions.major(option.python)
    versions_in_image = [python_version for python_version, *_ in pythons]
    has_version = version in versions_in_image
    packages: tuple[str, ...] = ()
    packaged_pythons = Compat.load().pythons.list_pythons(*system.split(" ", 1)) if " " in system else ()
    if has_apt and needs_venv and (has_version or version in packaged_pythons):
        packages = (f"python{version}", f"python{version}-venv")
    elif has_apt and not needs_venv and has_version and major >= 3:
        packages = ("python3-pip",)
    if packages:
        return replace(
            option,
            base=replace(base, system=system, python_command=f"python{version}", python_packages=packages),
        )
    available = ", ".join(dict.fromkeys(versions_in_image)) or ", ".join(packaged_pythons) or "none"
    msg = f"{base.image} ({system or 'of an unknown system'}) has no Python {version} to build with."
    raise BaseImageError(
        msg, hint=f"It has {available}: --python-version {available.split(', ')[0]}, or another --base."
    )
