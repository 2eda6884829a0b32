"""The commands. Each one's work is in its own module, imported when it is called: `--help` stays fast."""

from __future__ import annotations

import contextlib
import enum
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from tfdoctor.errors import Error, ExitCode

app = typer.Typer(
    name="tfdoctor",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Tells why TensorFlow does not see your GPU, and what to type so that it does.",
    epilog="Exit status: 0 nothing found, 1 found, 2 wrong request, 3 could not be done, 130 interrupted.",
)


class FailOn(str, enum.Enum):
    """From which severity on a finding makes the exit status 1."""

    error = "error"
    warning = "warning"
    never = "never"


class OutputFormat(str, enum.Enum):
    """How a report is written."""

    text = "text"
    github = "github"


def _version(asked: bool) -> None:
    if asked:
        from tfdoctor import __version__

        sys.stdout.write(f"tfdoctor {__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Tells why TensorFlow does not see your GPU, and what to type so that it does."""


@app.command()
def check(
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The Python (or its environment's folder) to examine. Default: the active environment's, "
            "else python3 on PATH.",
        ),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also run TensorFlow in a child process and compare (some seconds)."),
    ] = False,
    facts: Annotated[
        Path | None,
        typer.Option(
            metavar="BUNDLE", help="Judge a recorded machine (what `capture` wrote) instead of this one."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, max=3600, metavar="SECONDS", help="The longest that looking may take.")
    ] = 10.0,
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 1 from this severity on.")] = FailOn.error,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the evidence and every check.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
) -> None:
    """Why does TensorFlow (not) see the GPUs?

    Looks at the driver, the Python environment and the loader, and predicts what TensorFlow will do,
    without importing it. Changes nothing, sends nothing.
    """
    from tfdoctor.cli import check as command

    raise typer.Exit(
        command.check(
            python=python,
            deep=deep,
            facts=facts,
            timeout=timeout,
            fail_on=fail_on.value,
            as_json=as_json,
            verbose=verbose,
            quiet=quiet,
        )
    )


@app.command()
def capture(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="BUNDLE", help="A folder, or a file that ends in .tar.gz."),
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The Python to examine, as for `check`.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, max=3600, metavar="SECONDS", help="The longest that looking may take.")
    ] = 10.0,
    force: Annotated[bool, typer.Option("--force", help="Replace a bundle that is there already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Record what `check` looks at, so that it can be judged elsewhere.

    Users, hosts, addresses, tokens, serial numbers and UUIDs are replaced, the same by the same. Sends nothing.
    """
    from tfdoctor.cli import capture as command

    raise typer.Exit(
        command.capture(output=output, python=python, timeout=timeout, force=force, as_json=as_json)
    )


@app.command()
def report(
    facts: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="Of a recorded machine instead of this one.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The Python to examine, as for `check`.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, not to the terminal."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, max=3600, metavar="SECONDS", help="The longest that looking may take.")
    ] = 10.0,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """The Markdown that a maintainer asks for in a bug report, redacted.

    Versions, verdict, findings and what they rest on. Sends nothing.
    """
    from tfdoctor.cli import report as command

    raise typer.Exit(command.report(facts=facts, python=python, output=output, timeout=timeout, force=force))


@app.command()
def diagnose(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE…|-]", help="Logs, also .gz, .bz2, .xz and .zst; - or nothing: standard input."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Read on as the log grows, until Ctrl-C or the end of the pipe."),
    ] = False,
    host: Annotated[
        bool, typer.Option("--host", help="The log is of this machine: look here where it leaves a question.")
    ] = False,
    output: Annotated[
        OutputFormat, typer.Option("--format", help="github: Markdown for an issue, redacted.")
    ] = OutputFormat.text,
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 1 from this severity on.")] = FailOn.error,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all evidence.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
) -> None:
    """What does this TensorFlow log mean?

    Reads any log, or what people paste of one, and names the one root cause. Sends nothing.
    """
    from tfdoctor.cli import diagnose as command

    raise typer.Exit(
        command.diagnose(
            files or [],
            follow=follow,
            host=host,
            fail_on=fail_on.value,
            as_json=as_json,
            as_github=output is OutputFormat.github,
            verbose=verbose,
            quiet=quiet,
        )
    )


@app.command("run", context_settings={"allow_interspersed_args": False})
def run_program(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND…", help="The program and its arguments.")
    ] = None,
    verbose_loader: Annotated[
        bool,
        typer.Option(
            "--verbose-loader/--no-verbose-loader",
            help="Have TensorFlow name the libraries it cannot open (TF_CPP_VMODULE), or leave the environment alone.",
        ),
    ] = True,
    fail_on: Annotated[
        FailOn,
        typer.Option(help="Exit with 1 from this severity on where the program itself ended with 0."),
    ] = FailOn.never,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all evidence.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
) -> None:
    """Run a program as it is, and say at its end what its log meant.

    Input, output, signals and the exit status are the program's (126, 127: it could not be started; a signal
    that ends it ends tfdoctor, too). The answer goes to standard error.
    """
    from tfdoctor.cli import run as module

    raise typer.Exit(
        module.run(
            command or [],
            verbose_loader=verbose_loader,
            fail_on=fail_on.value,
            verbose=verbose,
            quiet=quiet,
        )
    )


@app.command()
def explain(
    what: Annotated[
        str | None,
        typer.Argument(metavar="[CODE|CAUSE]", help="TFD203, or libs-not-on-path; nothing lists all."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What does a finding's code, or a cause, mean?"""
    from tfdoctor.cli import explain as command

    raise typer.Exit(command.explain(what, as_json=as_json))


@app.command()
def matrix(
    tf: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help='Releases: 2.15 (its newest), 2.15.0, ">=2.10,<2.13", latest. One release: its whole card.',
        ),
    ] = None,
    cuda: Annotated[str | None, typer.Option(metavar="V", help="Built with this CUDA: 12, 11.2.")] = None,
    cudnn: Annotated[str | None, typer.Option(metavar="V", help="Built with this cuDNN: 9, 8.1.")] = None,
    python: Annotated[
        str | None, typer.Option(metavar="V", help="With a wheel for this Python: 3.11.")
    ] = None,
    cc: Annotated[
        str | None, typer.Option(metavar="CC", help="With code for this compute capability: 8.6.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help='With code for this card: "RTX 3060", or its PCI id.')
    ] = None,
    driver: Annotated[
        str | None, typer.Option(metavar="V", help="That run on this driver: 550.54.14.")
    ] = None,
    windows: Annotated[bool, typer.Option("--windows", help="Windows wheels and drivers.")] = False,
    package: Annotated[
        str | None, typer.Option(metavar="NAME", help="tensorflow or tensorflow-gpu alone.")
    ] = None,
    list_gpus: Annotated[bool, typer.Option("--list-gpus", help="List the cards that --gpu knows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
) -> None:
    """Which TensorFlow goes with which CUDA, cuDNN, Python, driver and GPU?

    Read from the wheels of every release. With conditions: the releases that fulfil all of them.
    """
    from tfdoctor.cli import matrix as command
    from tfdoctor.compat.matrix import MatrixQuery

    if list_gpus:
        raise typer.Exit(command.list_gpus(as_json=as_json))
    query = MatrixQuery(
        tf=tf,
        cuda=cuda,
        cudnn=cudnn,
        python=python,
        capability=cc,
        driver=driver,
        os="windows" if windows else "linux",
        package=package,
    )
    raise typer.Exit(command.show_matrix(query, gpu, as_json=as_json, as_markdown=as_markdown))


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


@app.command()
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


@app.command()
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


@app.command()
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
            min=1, max=86400, metavar="SECONDS", help="The longest that one stage of TensorFlow's may take."
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


@app.command()
def parse(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND|auto", help="What printed it: smi_table, nvcc, ldconfig …, or auto."),
    ],
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="The output; - or nothing: standard input.")
    ] = "-",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What does this output of nvidia-smi, nvcc, ldconfig, lspci … say?"""
    from tfdoctor.cli import parse as command

    raise typer.Exit(command.parse(kind, file, as_json=as_json))


def run() -> NoReturn:
    """The entry point: run a command and turn every end into a documented exit status."""
    ours = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    wants_json = "--json" in ours
    try:
        code = app(standalone_mode=False)
        status = code if isinstance(code, int) else 0
        if status == ExitCode.INTERRUPTED:  # Typer turns a KeyboardInterrupt into this status
            _say("Interrupted.")
        sys.stdout.flush()
    except typer.Exit as end:
        status = end.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _say("Interrupted.")
        status = ExitCode.INTERRUPTED
    except BrokenPipeError:  # `tfdoctor check | head`: nobody is left to tell
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = ExitCode.OK
    except Error as error:
        status = _fail(error.exit_code, error.kind, error.message, error.hint, wants_json)
    except OSError as error:
        status = _fail(
            ExitCode.IMPOSSIBLE, "system", f"{error.strerror or error}", str(error.filename or ""), wants_json
        )
    except Exception as error:
        if not hasattr(error, "format_message"):  # Typer's own usage errors have it
            raise
        status = _fail(ExitCode.USAGE, "usage", error.format_message(), "Try --help.", wants_json)
    sys.exit(int(status))


def _fail(code: ExitCode, kind: str, message: str, hint: str, wants_json: bool) -> ExitCode:
    from tfdoctor.redact import clean

    if wants_json:
        from tfdoctor.render.json import write_json

        write_json(
            {
                "schema_version": 1,
                "error": {"code": int(code), "kind": kind, "message": message, "hint": hint},
            }
        )
        return code
    _say(f"tfdoctor: {clean(message)}")
    if hint:
        _say(f"hint: {clean(hint)}")
    return code


def _say(text: str, *_: Any) -> None:
    with contextlib.suppress(OSError):
        encoding = sys.stderr.encoding or "ascii"
        sys.stderr.write(text.encode(encoding, "replace").decode(encoding) + "\n")
