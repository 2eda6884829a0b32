"""`tfdoctor verify`."""

from __future__ import annotations

import enum
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.callbacks import make_stage_printer
from tfdoctor.cli.options import (
    Force,
    Html,
    Json,
    Quiet,
    Simulate,
    argument,
    command,
    finite,
    option,
    verbose_option,
)
from tfdoctor.cli.simulation_options import parse_simulation, verify_simulated_image, verify_simulated_python
from tfdoctor.compat import Compat
from tfdoctor.dockerfile.write import check_reference
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT
from tfdoctor.render.verify import junit, render_end, verification_json
from tfdoctor.system.writing import check_file, write_file
from tfdoctor.text import clean_line
from tfdoctor.verify.session import Wish
from tfdoctor.verify.stages import STAGES, Limits

if TYPE_CHECKING:
    from tfdoctor.engine import ContainerEngine
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Verification

PROBE_TIMEOUT_S = 8.0
"""Seconds that looking at this machine may take: how many GPUs it has, and what is wrong with its engine."""
_GPU = r"(?:(?:gpu|mig)?\d{1,3}(?::\d{1,3})?|(?:GPU|MIG)-[A-Za-z0-9/-]{4,80})"
_GPUS = re.compile(rf"all|none|{_GPU}(?:,{_GPU}){{0,63}}")
"""An index, one of MIG (0:1), a UUID; as CDI may name them, too (gpu0)."""
_MEMORY = re.compile(r"(\d{1,6})([kmg])b?", re.IGNORECASE)


class ComputeDevice(str, enum.Enum):
    """What the computations are tried on."""

    GPU = "GPU"
    CPU = "CPU"


@command
def verify(
    image: Annotated[str | None, argument("An image of the local engine.", metavar="[IMAGE]")] = None,
    python: Annotated[
        str | None,
        option("A Python on this machine instead of an image; with IMAGE: the Python in it.", metavar="PATH"),
    ] = None,
    expect_gpus: Annotated[
        int | None,
        option("The number of GPUs to expect. Default: the host's.", min=0, max=256, metavar="N"),
    ] = None,
    gpus: Annotated[
        str | None,
        option(
            "Which GPUs the container gets: all, 0,1, a UUID, none. With --simulate: how many.",
            metavar="SPEC",
        ),
    ] = None,
    simulate: Simulate = None,
    driver: Annotated[
        str | None, option("With --simulate: behind this driver. Default: the newest.", metavar="V")
    ] = None,
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
            callback=finite,
        ),
    ] = None,
    memory: Annotated[str | None, option("The container's memory limit: 8g.", metavar="SIZE")] = None,
    device: Annotated[
        ComputeDevice, option("CPU: the same computations without a GPU, to test everything else.")
    ] = ComputeDevice.GPU,
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
    """Verify, tell, and return the exit status.

    Starts the image with the GPUs (or uses a Python on this machine) and runs the stages in order; the first
    that fails is named, with its root cause. The container is removed. Exit status 1 where a stage failed.

    With --simulate no GPU is needed: TensorFlow meets a stand-in of that card and driver. That shows whether its
    libraries are found, whether it registers the card, and whether it has kernels for it; software then computes
    with these.
    """
    if image is None and python is None:
        raise UsageError(
            "verify needs an IMAGE or --python PATH.",
            hint="tfdoctor verify IMAGE, or tfdoctor verify --python PATH.",
        )
    compat = Compat.load()
    asked = parse_simulation(compat, simulate or (), driver=driver, gpus=gpus)
    if asked is None and driver is not None:
        raise UsageError("--driver belongs to --simulate: a real driver is what it is.")
    if asked is not None and device is not ComputeDevice.GPU:
        raise UsageError("--device CPU needs no card, and --simulate is of a card; give one of them.")
    wish = Wish(
        stages=_stages(stages),
        expected=expect_gpus,
        gpus=_gpus(gpus) if asked is None else None,
        limits=Limits.with_seconds(timeout) if timeout is not None else Limits(),
        memory=_memory(memory),
        python=python if image is not None else None,
        device=device.value,
        simulated=asked,
    )
    if junit_file is not None:
        check_file(junit_file, force=force, option="--junit")
    if html is not None:
        check_file(html, force=force, option="--html")
    if image is None:
        done = _python(compat, python, wish, quiet=quiet or as_json)
    else:
        done = _image(compat, check_reference(image), wish, quiet=quiet or as_json)
    tell(done, as_json=as_json, verbose=verbose, quiet=quiet)
    if junit_file is not None:
        write_file(junit_file, junit(done).encode("utf-8"), force=force, option="--junit")
    if html is not None:
        _write_page(html, done, force=force, quiet=quiet)
    return ExitCode.OK if done.ok else ExitCode.FOUND


def _write_page(target: Path, done: Verification, *, force: bool, quiet: bool) -> None:
    """The answer as a page, redacted. Raises UsageError, Error."""
    from tfdoctor.cli.html_file import write_page
    from tfdoctor.render.html.verify import verification_html
    from tfdoctor.system.identity import redactor_for

    page = verification_html(done, redactor_for(os.environ, local=True))
    write_page(target, page, force=force, quiet=quiet)


def _image(compat: Compat, image: str, wish: Wish, *, quiet: bool) -> Verification:
    """With the engine that is to be found."""
    from tfdoctor.engine import connect
    from tfdoctor.verify.image import verify_image

    engine = connect()
    if wish.simulated is not None:
        return verify_simulated_image(engine, compat, image, wish, wish.simulated, quiet=quiet)
    host = host_of_engine(compat, engine)
    return verify_image(engine, compat, image, wish, host=host, on_stage=make_stage_printer(quiet=quiet))


def host_of_engine(compat: Compat, engine: ContainerEngine) -> Facts | None:
    """Return this machine, where the engine is on it."""
    from tfdoctor.examine import collect_facts
    from tfdoctor.system import LiveSystem

    if not engine.url.startswith("unix://"):
        return None
    return collect_facts(LiveSystem(), compat, timeout=PROBE_TIMEOUT_S)


def _python(compat: Compat, python: str | None, wish: Wish, *, quiet: bool) -> Verification:
    from tfdoctor.examine import live_machine
    from tfdoctor.verify.python import verify_python

    if wish.simulated is not None:
        return verify_simulated_python(compat, python, wish, wish.simulated, quiet=quiet)
    return verify_python(live_machine(python), compat, python, wish, on_stage=make_stage_printer(quiet=quiet))


def tell(done: Verification, *, as_json: bool, verbose: bool, quiet: bool) -> None:
    """Print the answer."""
    if as_json:
        write_json(verification_json(done))
    else:
        OUT.write(render_end(done, verbose=verbose, quiet=quiet, **OUT.looks))


def _stages(text: str | None) -> tuple[str, ...]:
    """Return `"visible"`: that stage and those before it; `"import,visible"`: those."""
    if text is None:
        return STAGES
    names = [name.strip() for name in text.split(",")]
    wrong = next((name for name in names if name not in STAGES), None)
    if wrong is not None:
        msg = f"--stages: there is no stage `{clean_line(wrong)}`."
        raise UsageError(
            msg, hint=f"They are, in order: {', '.join(STAGES)}. One name: all stages up to that one."
        )
    if len(names) == 1:
        return STAGES[: STAGES.index(names[0]) + 1]
    return tuple(name for name in STAGES if name in names)


def _gpus(text: str | None) -> str | None:
    if text is None or _GPUS.fullmatch(text):
        return text
    raise UsageError("--gpus: expected all, none, indexes or UUIDs.", hint="For example --gpus 0,1")


def _memory(text: str | None) -> int | None:
    if text is None:
        return None
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise UsageError("--memory: expected a size such as 8g or 500m.")
    return int(match[1]) * {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[match[2].lower()]
