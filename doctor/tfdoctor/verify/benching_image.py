"""Timing the TensorFlow of an image, in a container of it: its lines come when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.advice.pip import quote
from tfdoctor.engine import EngineError, RunRequest
from tfdoctor.engine.system import ContainerSystem, StartError
from tfdoctor.errors import UsageError
from tfdoctor.examine import look
from tfdoctor.facts import value_of
from tfdoctor.system.payloads import Lines, run_payload
from tfdoctor.verify.benching import LOOKING, timed
from tfdoctor.verify.image import python_with_tensorflow, ways

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tfdoctor.compat import Compat
    from tfdoctor.engine import Engine
    from tfdoctor.system import CommandResult, System
    from tfdoctor.verify.benching import BenchWish, Timing

__all__ = ["bench_image"]


def bench_image(
    engine: Engine,
    compat: Compat,
    image: str,
    python: str | None,
    wish: BenchWish,
    *,
    told: Callable[[dict[str, Any]], None],
    machine: System | None,
) -> Timing:
    """Time what is wished in a container with the GPUs; the container is removed.

    `python`: the one in the image. `machine`: the machine of the engine, where it is this one: its cards are watched.
    Raises EngineError where the image or the engine is not there or it starts no container, UsageError where no
    Python answers in the image.
    """
    if engine.image(image) is None:
        message = f"the image {image} is not here."
        raise EngineError(message, hint=f"{engine.name} pull {image}")
    with _started(engine, image, wish) as system:
        place = python or python_with_tensorflow(system)
        facts = look(system, compat, python=place, timeout=LOOKING)
        interpreter = value_of(facts.python)
        if interpreter is None:
            message = f"no Python answers in {image}."
            raise UsageError(message, hint=f"tfdoctor verify {image}")

        def run(keep: Callable[[dict[str, Any]], None]) -> CommandResult:
            words = [wish.as_json(shortly=True)]
            _, result = run_payload(system, interpreter.executable, "stages", words, **wish.conditions)
            Lines(keep)(f"{result.stdout}\n".encode())
            return result

        again = f"tfdoctor verify {quote(image)}"
        return timed(system, compat, facts, wish, told, target=image, run=run, watched=machine, look=again)


def _started(engine: Engine, image: str, wish: BenchWish) -> ContainerSystem:
    """By the first way to the GPUs that the engine takes. Raises EngineError with what it said to the first."""
    refused = None
    for access in ways(engine, None if wish.gpus else "none"):
        try:
            return ContainerSystem(engine, RunRequest(image=image, command=(), shm_size=1 << 30, gpus=access))
        except StartError as error:
            refused = refused or error
    said = refused.said if refused is not None else "it knows no way to GPUs"
    message = f"the engine starts no container with GPUs: {said[:400]}"
    raise EngineError(
        message, hint=f"tfdoctor verify {image} says why; with --devices CPU:0 no GPU is asked for."
    )
