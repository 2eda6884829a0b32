"""The `tfdoctor recommend` command."""

from __future__ import annotations

from typing import Annotated

from tfdoctor.cli import completion_values
from tfdoctor.cli.machine import select_host
from tfdoctor.cli.options import From, Json, argument, command, option, verbose_option
from tfdoctor.compat import Compat
from tfdoctor.core.errors import ExitCode
from tfdoctor.planning import Method, Request
from tfdoctor.planning.arguments import add_machine_arguments, make_plan, parse_python_version
from tfdoctor.render.json import write_json
from tfdoctor.render.plan import make_recommendation_json, render_recommendation
from tfdoctor.render.terminal import OUT


@command(
    "tfdoctor recommend",
    'tfdoctor recommend "RTX 5090" --driver 570',
    "tfdoctor recommend --tf 1.14 --method pip",
)
def recommend(
    gpu_names: Annotated[
        list[str] | None,
        argument(
            'The GPUs, as with --gpu: "RTX 5090", 8.6.',
            metavar="[GPU]...",
            autocompletion=completion_values.complete_gpu,
        ),
    ] = None,
    tf: Annotated[
        str | None,
        option(
            'Releases: 2.15, 2.15.0, ">=2.10,<2.13". Default: the best.',
            metavar="SPEC",
            autocompletion=completion_values.complete_release,
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        option(
            'A card: "RTX 5090", 8.6. Default: this machine\'s.',
            metavar="NAME|CC",
            autocompletion=completion_values.complete_gpu,
        ),
    ] = None,
    driver: Annotated[
        str | None, option("The driver: 550.54.14, or 550 for its newest.", metavar="V")
    ] = None,
    python_version: Annotated[str | None, option("For this Python: 3.11.", metavar="V")] = None,
    method: Annotated[Method | None, option("Only this method.")] = None,
    recording_path: From = None,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show every option, every part and every reason.")] = False,
) -> int:
    """Print the releases that work and how to install them, and return the exit status.

    Without --tf: the best one. Changes nothing, and uses no network. Exit status 1 if nothing fits.
    """
    compat, gpus = Compat.load(), [*(gpu_names or ()), *(gpu or ())]
    host = select_host(compat, gpus=gpus, driver=driver, recording_path=recording_path)
    request = Request(tensorflow=tf, python=parse_python_version(python_version), method=method)
    recommendation = add_machine_arguments(make_plan(compat, request, host), gpus, driver)
    if as_json:
        write_json(make_recommendation_json(recommendation))
    else:
        OUT.write(render_recommendation(recommendation, verbose=verbose, **OUT.layout))
    has_answer = recommendation.conflict is None or recommendation.has_other_builds
    return ExitCode.OK if has_answer else ExitCode.FOUND
