"""Write a page for each command of tfdoctor, for the site: `python scripts/command_pages.py FOLDER`.

A page has the help of the command, its options, and examples with their output. The examples run here, on the
machines that are recorded in the package and on the files below; they are not part of the repository because their
output changes with every screen.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.cli.commands import load_command, load_subcommands
from tfdoctor.cli.main import make_command_group

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = {
    "train.log": (
        "2024-05-02 10:11:12.000001: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2251] Cannot dlopen some GPU "
        "libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to "
        "use GPU. Follow the guide at https://www.tensorflow.org/install/gpu for how to download and setup the required "
        "libraries for your platform.\nSkipping registering GPU devices...\n"
    ),
    "train.py": 'import tensorflow as tf\nimport os\n\nos.environ["CUDA_VISABLE_DEVICES"] = "0"\n',
    "cluster.json": '{"worker": ["node1:2222", "node2"]}\n',
    "Dockerfile": "FROM python:3.12-slim\nRUN pip install tensorflow==2.20.0\n",
}
"""The files that the examples read, by name."""
EXAMPLES = {
    "check": [
        "tfdoctor check --from demo:plain-pip-install",
        "tfdoctor check --from demo:driver-below-cuda-12",
    ],
    "diagnose": ["tfdoctor diagnose train.log"],
    "explain": ['tfdoctor explain "Unable to register cuDNN factory"', "tfdoctor explain TFD201"],
    "recommend": ['tfdoctor recommend "RTX 4090" --driver 550', "tfdoctor recommend --tf 1.14 --gpu T4"],
    "matrix": ["tfdoctor matrix 2.20", "tfdoctor matrix --cuda 11.2"],
    "install": ["tfdoctor install --tf 2.20 --gpu T4 --driver 550 --dry-run"],
    "build": ["tfdoctor build --tf 1.14 --gpu T4 --dry-run"],
    "lint": ["tfdoctor lint train.py Dockerfile"],
    "cluster": ["tfdoctor cluster cluster.json"],
    "report": ["tfdoctor report --from demo:plain-pip-install"],
}
"""The examples that show their output, by command: those that need neither a GPU, an engine nor a network."""


def main() -> int:
    """Write the pages and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    group: Any = make_command_group()
    for name in group.commands:
        (folder / f"{name}.md").write_text(render_command(name, group.commands[name]), encoding="utf-8")
    return 0


def render_command(name: str, command: Any) -> str:
    """Return the page of a command as Markdown."""
    parts = [f"# tfdoctor {name}\n"]
    subcommands = load_subcommands(name)
    if subcommands:
        parts.append(f"{command.help}\n")
        for subcommand, (_summary, function) in subcommands.items():
            parts.append(f"## tfdoctor {name} {subcommand}\n")
            parts += _render_details(f"{name} {subcommand}", command.commands[subcommand], function)
    else:
        parts += _render_details(name, command, load_command(name))
    if name in EXAMPLES:
        parts.append("## Output\n")
        parts += (f"```console\n$ {line}\n{run_example(line)}```\n" for line in EXAMPLES[name])
    return "\n".join(parts)


def _render_details(path: str, command: Any, function: Any) -> Iterator[str]:
    """Yield the help, the examples and the options of one command."""
    yield f"{command.help.replace(chr(8), '')}\n"
    if function.examples:
        yield "```sh\n" + "\n".join(function.examples) + "\n```\n"
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [
        parameter for parameter in command.params if parameter not in arguments and not parameter.hidden
    ]
    usage = " ".join(
        ["tfdoctor", path, "[OPTIONS]", *(argument.make_metavar(None) for argument in arguments)]
    )
    yield f"```text\n{usage}\n```\n"
    yield "| option | meaning |\n| --- | --- |"
    for parameter in (*arguments, *options):
        is_option = parameter in options
        names = ", ".join(parameter.opts) if is_option else parameter.make_metavar(None)
        metavar = f" {parameter.metavar}" if is_option and parameter.metavar else ""
        yield (
            f"| `{names}{metavar}`".replace("|", r"\|").replace(r"\| `", "| `", 1)
            + f" | {_format_help(parameter)} |"
        )
    yield ""


def _format_help(parameter: Any) -> str:
    return re.sub(r"\s+", " ", parameter.help or "").replace("|", r"\|")


def run_example(line: str) -> str:
    """Return what a command prints, run in a folder with the files of the examples. Raise RuntimeError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": folder, "COLUMNS": "80", "LANG": "C.UTF-8"}
        result = subprocess.run(
            shlex.split(line), cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    if result.returncode not in (0, 1):
        msg = f"{line}: exit status {result.returncode}: {result.stderr.strip()}"
        raise RuntimeError(msg)
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
