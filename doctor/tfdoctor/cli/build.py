"""`tfdoctor build`."""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from tfdoctor.cli.files import requirement_lines, text_of
from tfdoctor.cli.recommend import checked_driver, checked_python, host_for, planned
from tfdoctor.compat import Compat
from tfdoctor.dockerfile.write import Extras, check_index, check_reference
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.fit import Host
from tfdoctor.plan import Method, Recipe, Request
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdoctor.dockerfile.write import Context
    from tfdoctor.engine import Engine
    from tfdoctor.engine.connection import Image
    from tfdoctor.findings import Verification
    from tfdoctor.plan import Option, Recommendation

_PROXY = re.compile(r"https?://[^\s\x00-\x1f]{1,500}")
_PLATFORM = re.compile(r"linux/amd64(/v[1-4])?")


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    tf: str | None
    python: str | None
    recipe: str | None
    tag: str | None
    requirements: Sequence[Path]
    packages: Sequence[str]
    base: str | None
    registry: str | None
    index: str | None
    ca_cert: Path | None
    proxy: str | None
    platform: str | None
    network: str | None
    gpus: Sequence[str]
    driver: str | None
    anywhere: bool
    no_cache: bool
    no_verify: bool
    dry_run: bool
    print_only: bool
    emit: str | None
    as_json: bool
    verbose: bool
    quiet: bool


def build(options: Options) -> int:
    """Plan, write, build, verify. Returns the exit status."""
    if options.as_json and (options.print_only or options.emit is not None):
        raise UsageError(
            "--json prints the plan as JSON, --print and --emit another form of it; give one of them.",
            hint="--dry-run --json has the Dockerfile, too.",
        )
    compat = Compat.load()
    extras = _extras(options)
    request, host = _request(options, extras), _host(options, compat)
    answer = planned(compat, request, host)
    if answer.conflict is not None:
        return _no_plan(answer, options)
    option = _chosen(answer, options)
    if options.tag is not None:
        _check_tag(options.tag)
    if options.print_only or options.emit is not None:
        from tfdoctor.cli.emit import emit
        from tfdoctor.images.build import context_of

        context = context_of(option, extras)
        sys.stdout.write(
            context.dockerfile if options.emit is None else emit(options.emit, option, context, options.tag)
        )
        return ExitCode.OK
    if options.dry_run:
        return _dry_run(option, extras, options)
    return _build(option, extras, options)


# ---------------------------------------------------------------- the request


def _request(options: Options, extras: Extras) -> Request:
    return Request(
        tensorflow=options.tf,
        python=checked_python(options.python),
        method=Method.CONTAINER,
        recipe=Recipe(options.recipe) if options.recipe is not None else None,
        base=check_reference(options.base) if options.base is not None else None,
        requirements=extras.requirements,
    )


def _check_tag(tag: str) -> None:
    if "@" in check_reference(tag):
        msg = f"--tag: `{tag}` has a digest, which is not known before it is built."
        raise UsageError(msg)


def _host(options: Options, compat: Compat) -> Host:
    """The machine that the image is for: this one, unless another is named, or none."""
    if options.anywhere or options.emit is not None or options.print_only:
        if options.gpus:
            return host_for(compat, gpus=options.gpus, driver=options.driver, facts=None)
        return Host(driver=checked_driver(options.driver))
    host = host_for(compat, gpus=options.gpus, driver=options.driver, facts=None)
    # The image's own system counts: of this machine only its cards, driver and processor do.
    windows = host.wsl or host.system == "Windows"
    return dataclasses.replace(host, glibc=None, python=None, system="Linux", wsl=windows)


def _extras(options: Options) -> Extras:
    certificate = None
    if options.ca_cert is not None:
        certificate = text_of(options.ca_cert, "--ca-cert").encode()
        if b"-----BEGIN CERTIFICATE-----" not in certificate:
            msg = f"--ca-cert: {clean_line(str(options.ca_cert))} is not a certificate in PEM form."
            raise UsageError(msg, hint="It begins with -----BEGIN CERTIFICATE-----.")
        if b"PRIVATE KEY" in certificate:
            shown = clean_line(str(options.ca_cert))
            msg = f"--ca-cert: {shown} has a private key in it, which would stay in the image."
            raise UsageError(msg)
    if options.platform is not None and not _PLATFORM.fullmatch(options.platform):
        raise UsageError(
            "--platform: linux/amd64 is meant.", hint="TensorFlow's arm64 wheels have no GPU code."
        )
    if options.proxy is not None and not _PROXY.fullmatch(options.proxy):
        raise UsageError("--proxy: an address such as http://HOST:PORT is meant.")
    return Extras(
        requirements=requirement_lines(options.requirements, options.packages),
        ca_certificate=certificate,
        index=check_index(options.index) if options.index is not None else None,
        platform=options.platform,
    )


def _chosen(answer: Recommendation, options: Options) -> Option:
    """The best option, with its base on the mirror."""
    from tfdoctor.images.build import with_mirror

    return with_mirror(answer.options[0], options.registry if options.base is None else None)


# ---------------------------------------------------------------- what is answered


def _no_plan(answer: Recommendation, options: Options) -> int:
    from tfdoctor.render.plan_console import render_recommendation
    from tfdoctor.render.terminal import colour, width, write

    if options.as_json:
        from tfdoctor.render.json import write_json
        from tfdoctor.render.plan_json import recommendation_json

        write_json(recommendation_json(answer))
    else:
        if options.print_only or options.emit is not None:  # standard output is a file for something else
            sys.stderr.write(render_recommendation(answer, width=width()))
            return ExitCode.FOUND
        write(render_recommendation(answer, width=width(), colour=colour()))
        if answer.host.cards and not options.gpus:
            write("\nFor another machine than this one: --anywhere, or --gpu NAME --driver V.\n")
    return ExitCode.FOUND


def _dry_run(option: Option, extras: Extras, options: Options) -> int:
    from tfdoctor.images.build import context_of, default_tag

    context = context_of(option, extras)
    if options.as_json:
        _write(option, context, None)
        return ExitCode.OK
    from tfdoctor.render.plan_console import render_option
    from tfdoctor.render.terminal import colour, width, write

    write(render_option(option, width=width(), colour=colour()))
    write(f"\nNothing was built. This would be {options.tag or default_tag(option)}:\n\n{context.dockerfile}")
    return ExitCode.OK


def _write(
    option: Option, context: Context, image: Image | None, verification: dict[str, Any] | None = None
) -> None:
    from tfdoctor.render.json import write_json
    from tfdoctor.render.plan_json import build_json

    made = None
    if image is not None:
        made = {"id": image.id, "tags": list(image.tags), "size_bytes": image.size}
    write_json(build_json(option, context.dockerfile, made, verification))


def _build(option: Option, extras: Extras, options: Options) -> int:
    from tfdoctor.cli.progress import watching
    from tfdoctor.engine import BuildFailedError, connect
    from tfdoctor.images.build import Settings, build_image, default_tag

    engine = connect()
    settings = Settings(
        tag=options.tag or default_tag(option),
        registry=options.registry,
        ca_file=str(options.ca_cert) if options.ca_cert is not None else None,
        proxy=options.proxy,
        no_cache=options.no_cache,
        network=options.network,
    )
    began = time.monotonic()
    with watching(quiet=options.quiet or options.as_json, verbose=options.verbose) as watcher:
        for caveat in option.caveats:
            if caveat.serious:
                watcher.stage(f"Note: {caveat.text}")
        try:
            option, context, image = build_image(
                engine, option, extras, settings, watcher, custom_base=options.base is not None
            )
        except BuildFailedError as error:
            watcher.failed(error)
            raise
    seconds = time.monotonic() - began
    if not (options.quiet or options.as_json):
        _tell(option, image, settings.tag, seconds)
    done = None if options.no_verify else _verify(engine, image.id, settings.tag, options)
    if options.as_json:
        from tfdoctor.render.verify_json import verification_json

        _write(option, context, image, verification_json(done) if done is not None else None)
    return ExitCode.FOUND if done is not None and done.ok is False else ExitCode.OK


WITHOUT_GPU = ("libraries", "import")
"""What can be verified where there is no GPU."""


def _verify(engine: Engine, image: str, tag: str, options: Options) -> Verification:
    """Verify what was built: on the GPUs of this machine, or, where it has none, as far as that goes."""
    from tfdoctor.cli import verify as command
    from tfdoctor.verify import Wish, expected_gpus, verify_image

    host = command.host_of_engine(Compat.load(), engine)
    shown = expected_gpus(host, None) if host is not None else None
    wish = Wish() if shown or host is None else Wish(stages=WITHOUT_GPU, gpus="none")
    quiet = options.quiet or options.as_json
    teller = command.Teller(quiet=quiet)
    done = verify_image(engine, Compat.load(), image, wish, host=host, on_stage=teller)
    done = dataclasses.replace(done, target=tag)
    if not options.as_json:
        command.tell(done, as_json=False, verbose=options.verbose, quiet=options.quiet)
    if wish.stages == WITHOUT_GPU and not quiet:
        from tfdoctor.render.terminal import write

        write(f"This machine shows no GPU: on one that has some, run  tfdoctor verify {tag}\n")
    return done


def _tell(option: Option, image: Image, tag: str, seconds: float) -> None:
    from tfdoctor.render.plan_console import size_text
    from tfdoctor.render.terminal import write

    name = option.base.image if option.base is not None else ""
    write(
        f"Built {tag} ({size_text(image.size)}, {seconds:.0f} s) on {clean_line(name)}: TensorFlow "
        f"{option.tensorflow}, Python {option.python}, CUDA {option.cuda}.\n"
        f"Run it:     docker run --rm -it --gpus all {tag}\n"
        f"Remove it:  docker rmi {tag}\n"
    )
