"""The `tfdoctor verify` command."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.callbacks import make_stage_printer
from tfdoctor.cli.options import (
    Force,
    Html,
    Json,
    Quiet,
    Simulate,
    SimulatedDriver,
    argument,
    check_finite,
    command,
    option,
    verbose_option,
)
from tfdoctor.cli.simulation_options import parse_simulation, verify_simulated_image, verify_simulated_python
from tfdoctor.compat import Compat
from tfdoctor.core.errors import ExitCode, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.images.write import validate_reference
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT
from tfdoctor.render.verify import make_junit_xml, make_verification_json, render_result
from tfdoctor.system.writing import check_output_file, write_file
from tfdoctor.verification.session import VerifyRequest
from tfdoctor.verification.stages import STAGES, Limits

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Verification
    from tfdoctor.images.engine import ContainerEngine

PROBE_TIMEOUT_S = 8.0
"""The time limit in seconds for examining this host."""
_GPU_PATTERN = r"(?:(?:gpu|mig)?\d{1,3}(?::\d{1,3})?|(?:GPU|MIG)-[A-Za-z0-9/-]{4,80})"
_GPU_LIST = re.compile(rf"all|none|{_GPU_PATTERN}(?:,{_GPU_PATTERN}){{0,63}}")
"""Matches a list of GPU indexes, MIG indexes (0:1), UUIDs, or CDI names (gpu0)."""
_MEMORY = re.compile(r"(\d{1,6})([kmg])b?", re.IGNORECASE)


@command(
    "tfdoctor verify team/tf:2.20",
    "tfdoctor verify --python ~/tf/bin/python",
    'tfdoctor verify team/tf:2.20 --simulate "RTX 4090"',
)
def verify(
    image: Annotated[str | None, argument("An image of the local engine.", metavar="[IMAGE]")] = None,
    python: Annotated[
        str | None,
        option("A Python on this machine instead of an image; with IMAGE: the Python in it.", metavar="PATH"),
    ] = None,
    gpu_count: Annotated[
        int | None,
        option(
            "Expect this number of GPUs. Default: the host's. With --simulate: simulate this number.",
            min=0,
            max=256,
            metavar="N",
        ),
    ] = None,
    devices: Annotated[
        str | None,
        option(
            "Compute on these GPUs (all, none, 0,1 or a UUID) or, to test everything else, on the CPU (CPU).",
            metavar="LIST|CPU",
        ),
    ] = None,
    simulate: Simulate = None,
    driver: SimulatedDriver = None,
    stages: Annotated[
        str | None,
        option(
            "Up to this stage, or these: runtime, driver, libraries, import, visible, compute, cudnn, nccl.",
            metavar="NAME|LIST",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        option(
            "Stop a stage that runs TensorFlow after this many seconds.",
            min=1,
            max=86400,
            metavar="SECONDS",
            callback=check_finite,
        ),
    ] = None,
    memory: Annotated[str | None, option("The container's memory limit: 8g.", metavar="SIZE")] = None,
    junit_file: Annotated[
        Path | None,
        option("Also write JUnit XML, for continuous integration.", "--junit", metavar="FILE"),
    ] = None,
    html: Html = None,
    force: Force = False,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show the evidence.")] = False,
    quiet: Quiet = False,
) -> int:
    """Verify an image or a Python, print the result and return the exit status.

    Starts the image with the GPUs (or uses a Python on this machine) and runs the stages in order; the first
    that fails is named, with its root cause. The container is removed. Exit status 1 if a stage failed.

    With --simulate no GPU is needed: the GPU and its driver are simulated. This shows whether the libraries are found,
    whether TensorFlow registers the GPU, and whether it has kernels for it; they are then computed in software.
    """
    if image is None and python is None:
        raise UsageError(
            "verify needs an IMAGE or --python PATH.",
            hint="tfdoctor verify IMAGE, or tfdoctor verify --python PATH.",
        )
    compat = Compat.load()
    simulation = parse_simulation(compat, simulate or (), driver=driver, count=gpu_count)
    if simulation is None and driver is not None:
        raise UsageError("--driver belongs to --simulate: a real driver is what it is.")
    is_cpu_run = (devices or "").upper() == "CPU"
    if simulation is not None and devices is not None:
        raise UsageError("--devices and --simulate cannot be combined: --simulate replaces the GPUs.")
    request = VerifyRequest(
        stages=_parse_stages(stages),
        expected=gpu_count if simulation is None else None,
        gpus=None if is_cpu_run else _parse_devices(devices),
        limits=Limits.from_seconds(timeout) if timeout is not None else Limits(),
        memory_bytes=_parse_memory(memory),
        python=python if image is not None else None,
        device="CPU" if is_cpu_run else "GPU",
        simulated_gpus=simulation,
    )
    if junit_file is not None:
        check_output_file(junit_file, force=force, option="--junit")
    if html is not None:
        check_output_file(html, force=force, option="--html")
    if image is None:
        verification = _verify_python(compat, python, request, quiet=quiet or as_json)
    else:
        verification = _verify_image(compat, validate_reference(image), request, quiet=quiet or as_json)
    print_result(verification, as_json=as_json, verbose=verbose, quiet=quiet)
    if junit_file is not None:
        write_file(junit_file, make_junit_xml(verification).encode("utf-8"), force=force, option="--junit")
    if html is not None:
        from tfdoctor.cli.html_file import write_redacted_page
        from tfdoctor.render.html.verify import make_verification_html

        write_redacted_page(html, partial(make_verification_html, verification), force=force, quiet=quiet)
    return ExitCode.OK if verification.ok else ExitCode.FOUND


def _verify_image(compat: Compat, image: str, request: VerifyRequest, *, quiet: bool) -> Verification:
    """Verify an image of the local engine."""
    from tfdoctor.images.engine import connect
    from tfdoctor.verification.image import verify_image

    engine = connect()
    if request.simulated_gpus is not None:
        return verify_simulated_image(engine, compat, image, request, request.simulated_gpus, quiet=quiet)
    host = collect_engine_host_facts(compat, engine)
    return verify_image(engine, compat, image, request, host=host, on_stage=make_stage_printer(quiet=quiet))


def collect_engine_host_facts(compat: Compat, engine: ContainerEngine) -> Facts | None:
    """Return the facts of this host if the engine runs on it, or None if the engine is remote."""
    from tfdoctor.diagnosis import collect_facts
    from tfdoctor.system import LiveSystem

    if not engine.url.startswith("unix://"):
        return None
    return collect_facts(LiveSystem(), compat, timeout=PROBE_TIMEOUT_S)


def _verify_python(
    compat: Compat, python: str | None, request: VerifyRequest, *, quiet: bool
) -> Verification:
    """Verify a Python of this host."""
    from tfdoctor.diagnosis import make_live_system
    from tfdoctor.verification.python import verify_python

    if request.simulated_gpus is not None:
        return verify_simulated_python(compat, python, request, request.simulated_gpus, quiet=quiet)
    return verify_python(
        make_live_system(python), compat, python, request, on_stage=make_stage_printer(quiet=quiet)
    )


def print_result(verification: Verification, *, as_json: bool, verbose: bool, quiet: bool) -> None:
    """Print the result of a verification, as JSON if `as_json` is set."""
    if as_json:
        write_json(make_verification_json(verification))
    else:
        OUT.write(render_result(verification, verbose=verbose, quiet=quiet, **OUT.layout))


def _parse_stages(text: str | None) -> tuple[str, ...]:
    """Return the stages that `--stages` selects.

    A single name selects that stage and all before it; several names select only those stages. None selects all.
    Raise UsageError if a name is unknown.
    """
    if text is None:
        return STAGES
    names = [name.strip() for name in text.split(",")]
    unknown_name = next((name for name in names if name not in STAGES), None)
    if unknown_name is not None:
        msg = f"--stages: there is no stage `{clean_line(unknown_name)}`."
        raise UsageError(
            msg, hint=f"They are, in order: {', '.join(STAGES)}. One name: all stages up to that one."
        )
    if len(names) == 1:
        return STAGES[: STAGES.index(names[0]) + 1]
    return tuple(name for name in STAGES if name in names)


def _parse_devices(text: str | None) -> str | None:
    """Return the value of `--devices` unchanged. Raise UsageError if it is invalid."""
    if text is None or _GPU_LIST.fullmatch(text):
        return text
    raise UsageError(
        "--devices: expected CPU, all, none, indexes or UUIDs.", hint="For example --devices 0,1"
    )


def _parse_memory(text: str | None) -> int | None:
    """Return the value of `--memory` in bytes, or None if it is absent. Raise UsageError if it is invalid."""
    if text is None:
        return None
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise UsageError("--memory: expected a size such as 8g or 500m.")
    return int(match[1]) * {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[match[2].lower()]
