"""The commands. Each one's work is in its own module, imported when it is called: `--help` stays fast."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from tfdoctor.cli import environments, images
from tfdoctor.cli.options import Timeout  # noqa: TC001 - Typer reads it when it runs

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
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="BUNDLE",
            help="Say what differs from a recorded machine: when it still worked, or another one.",
        ),
    ] = None,
    timeout: Timeout = 10.0,
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

    Exit status: 0 nothing found, 1 found (--fail-on), 3 where the Python or its TensorFlow could not be looked at
    and nothing else was found, so that nothing is known. With --fail-on never it is 0 in all three cases.
    """
    from tfdoctor.cli import check as command

    raise typer.Exit(
        command.check(
            python=python,
            deep=deep,
            facts=facts,
            against=against,
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
    timeout: Timeout = 10.0,
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
    timeout: Timeout = 10.0,
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
    from tfdoctor.fit.matrix import MatrixQuery

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


images.register(app)
environments.register(app)
