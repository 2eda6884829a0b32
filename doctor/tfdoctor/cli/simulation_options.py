"""Parse the `--simulate` option, and verify with the stand-in driver for the simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.errors import UsageError
from tfdoctor.planning.arguments import parse_gpu, validate_driver
from tfdoctor.verification.simulate.request import add_stand_in, make_simulated_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.core.findings import Verification
    from tfdoctor.images.engine import ContainerEngine
    from tfdoctor.system import LiveSystem
    from tfdoctor.verification.session import VerifyRequest
    from tfdoctor.verification.simulate.request import SimulatedGpus

__all__ = [
    "make_stand_in_system",
    "parse_simulation",
    "print_simulation_note",
    "print_simulation_title",
    "verify_simulated_image",
    "verify_simulated_python",
]

MAX_GPUS = 32
"""The largest number of GPUs that the stand-in driver can simulate."""


def parse_simulation(
    compat: Compat, names: Sequence[str], *, driver: str | None = None, count: int | None = None
) -> SimulatedGpus | None:
    """Return the simulation that --simulate, --driver and --gpu-count request, or None if there is none.

    `names` are the values of --simulate. Raise UsageError if a value is invalid.
    """
    if not names:
        return None
    driver = validate_driver(compat, driver)
    simulated_gpus = [parse_gpu(compat, name, "--simulate") for name in names]
    arguments = [argument for name in names for argument in ("--simulate", name)]
    arguments += ["--driver", driver] if driver is not None else []
    if count is not None:
        if len(simulated_gpus) != 1 or not 1 <= count <= MAX_GPUS:
            msg = f"--gpu-count: with one --simulate, the number of such GPUs, from 1 to {MAX_GPUS}."
            raise UsageError(
                msg, hint='--simulate "RTX 4090" --gpu-count 2, or --simulate "RTX 4090" --simulate "T4"'
            )
        simulated_gpus *= count
        arguments += ["--gpu-count", str(count)]
    if len(simulated_gpus) > MAX_GPUS:
        msg = f"--simulate: {len(simulated_gpus)} cards; {MAX_GPUS} are possible."
        raise UsageError(msg)
    return make_simulated_gpus(compat, simulated_gpus, driver=driver, typed_options=arguments)


def make_stand_in_system(python: str | None, simulation: SimulatedGpus) -> LiveSystem:
    """Return a `LiveSystem` whose child processes load the stand-in driver.

    Raise CompilerError if the stand-in cannot be built.
    """
    from tfdoctor.diagnosis import make_live_system
    from tfdoctor.verification.simulate.build import build_stand_in

    host = make_live_system(python)
    folder = build_stand_in(host.env)
    return make_live_system(python, env=add_stand_in(host.env, simulation, str(folder)))


def print_simulation_title(simulation: SimulatedGpus, *, quiet: bool) -> None:
    """Print, before any other output, that this is a simulation."""
    from tfdoctor.render.terminal import OUT
    from tfdoctor.render.verify import render_simulation

    if not quiet:
        OUT.write(render_simulation(simulation.title, **OUT.layout))


def print_simulation_note(*, quiet: bool) -> None:
    """Print, after other output, that nothing was computed on a GPU."""
    from tfdoctor.render.terminal import OUT

    if not quiet:
        OUT.write(
            "Simulated: nothing was computed. `tfdoctor verify --simulate` reads its kernels, and computes.\n"
        )


def verify_simulated_python(
    compat: Compat, python: str | None, request: VerifyRequest, simulation: SimulatedGpus, *, quiet: bool
) -> Verification:
    """Verify a Python of this host with the stand-in driver.

    Raise CompilerError if the stand-in cannot be built, and the errors of `verify_python`.
    """
    from tfdoctor.cli.callbacks import make_stage_printer
    from tfdoctor.render.progress import open_progress
    from tfdoctor.verification.python import verify_python

    system = make_stand_in_system(python, simulation)
    print_simulation_title(simulation, quiet=quiet)
    with open_progress(quiet=quiet, animated=False) as display:
        return verify_python(
            system, compat, python, request, on_stage=make_stage_printer(quiet=quiet), progress=display
        )


def verify_simulated_image(
    engine: ContainerEngine,
    compat: Compat,
    image: str,
    request: VerifyRequest,
    simulation: SimulatedGpus,
    *,
    quiet: bool,
) -> Verification:
    """Verify an image with the stand-in driver.

    Raise CompilerError if the stand-in cannot be built, and the errors of `verify_image`.
    """
    from tfdoctor.cli.callbacks import make_stage_printer
    from tfdoctor.render.progress import open_progress
    from tfdoctor.verification.image import verify_image
    from tfdoctor.verification.simulate.build import build_stand_in

    stand_in = build_stand_in()
    print_simulation_title(simulation, quiet=quiet)
    with open_progress(quiet=quiet, animated=False) as display:
        print_stage = make_stage_printer(quiet=quiet)
        return verify_image(
            engine, compat, image, request, on_stage=print_stage, stand_in=stand_in, progress=display
        )
