"""The commands that change a Python environment. Each one's work is in its own module, as in main.py."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from tfdoctor.cli.options import Timeout  # noqa: TC001 - Typer reads it when it runs


class InstallerChoice(str, enum.Enum):
    """What installs."""

    uv = "uv"
    pip = "pip"


def install(
    tf: Annotated[
        str | None, typer.Option(metavar="SPEC", help="TensorFlow: 2.15.1, 2.20, latest. Default: the best.")
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(metavar="V|PATH", help="Make it from this Python: 3.11, 3.11.7, /usr/bin/python3.11."),
    ] = None,
    into: Annotated[
        Path, typer.Option(metavar="DIR", help="The environment's folder, which is made.")
    ] = Path("tensorflow-env"),
    requirements: Annotated[
        list[Path] | None,
        typer.Option(
            "-r",
            "--requirements",
            metavar="FILE",
            help="Install what it lists, with the TensorFlow in it: requirements, pyproject.toml, "
            "environment.yml, poetry.lock, uv.lock.",
        ),
    ] = None,
    package: Annotated[
        list[str] | None, typer.Option(metavar="P", help='Install this, too: pandas, "scipy<1.12".')
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option(metavar="NAME|CC", help="For this card instead of this machine's.")
    ] = None,
    driver: Annotated[str | None, typer.Option(metavar="V", help="For this driver.")] = None,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="For any card and driver: do not look at this machine's.")
    ] = False,
    facts: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="For a recorded machine's cards and driver.")
    ] = None,
    index: Annotated[
        str | None, typer.Option(metavar="URL", help="The package index, without a password.")
    ] = None,
    installer: Annotated[
        InstallerChoice | None, typer.Option(help="What installs. Default: uv where there is one.")
    ] = None,
    no_deep: Annotated[
        bool, typer.Option("--no-deep", help="Do not run TensorFlow at the end, also where there is a GPU.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", "-n", help="Show the plan, its sizes and the commands; change nothing."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show all output, and every check at the end.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Make a virtual environment in which TensorFlow sees the GPUs.

    Plans as `recommend` does, makes a new folder with pinned and hashed packages, NVIDIA's CUDA wheels among them,
    and checks the result. No system Python is touched. Interrupted: the same command goes on.
    """
    from tfdoctor.cli import install as command

    raise typer.Exit(
        command.install(
            command.Options(
                tf=tf,
                python=python,
                into=into,
                requirements=requirements or [],
                packages=package or [],
                gpus=gpu or [],
                driver=driver,
                anywhere=anywhere,
                facts=facts,
                index=index,
                installer=installer.value if installer is not None else None,
                no_deep=no_deep,
                dry_run=dry_run,
                as_json=as_json,
                verbose=verbose,
                quiet=quiet,
            )
        )
    )


def fix(
    codes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODE…]", help="These findings alone: TFD203. Default: all that can be fixed."
        ),
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The Python to fix, as for `check`.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show what would be done; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take back everything that fix has done here.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --undo: also where files were changed since; those stay.")
    ] = False,
    installer: Annotated[
        InstallerChoice | None, typer.Option(help="What installs. Default: uv where there is one.")
    ] = None,
    timeout: Timeout = 10.0,
    no_deep: Annotated[
        bool, typer.Option("--no-deep", help="Do not run TensorFlow at the end, also where there is a GPU.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
) -> None:
    """Mend what `check` finds in a Python environment, as far as software can.

    No root, no drivers. What was changed is written down: --undo restores it. Exit status 1 where an error is left.
    """
    from tfdoctor.cli import fix as command

    raise typer.Exit(
        command.fix(
            command.Options(
                codes=codes or [],
                python=python,
                dry_run=dry_run,
                yes=yes,
                undo=undo,
                force=force,
                installer=installer.value if installer is not None else None,
                timeout=timeout,
                deep=not no_deep,
                as_json=as_json,
                verbose=verbose,
                quiet=quiet,
            )
        )
    )


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (install, fix):
        app.command()(command)
