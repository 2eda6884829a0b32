"""Benchmark TensorFlow in an image, in a container. The payload's output arrives only when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.errors import UsageError
from tfdoctor.core.facts import value_of
from tfdoctor.diagnosis import collect_facts
from tfdoctor.extensions.bench.runner import PROBE_TIMEOUT_S, run_bench
from tfdoctor.images.engine import EngineError, RunRequest
from tfdoctor.images.engine.system import ContainerSystem, StartError
from tfdoctor.remedies.pip import quote
from tfdoctor.system.payloads import PayloadDecoder, run_payload
from tfdoctor.verification.image import find_python, list_gpu_access

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tfdoctor.compat import Compat
    from tfdoctor.extensions.bench.runner import BenchRequest, BenchResult
    from tfdoctor.images.engine import ContainerEngine
    from tfdoctor.system import CommandResult, System

__all__ = ["bench_image"]


def bench_image(
    engine: ContainerEngine,
    compat: Compat,
    image: str,
    python: str | None,
    request: BenchRequest,
    *,
    on_line: Callable[[dict[str, Any]], None],
    machine: System | None,
) -> BenchResult:
    """Run the benchmark in a container with the GPUs, and remove the container.

    `python` is the interpreter in the image; None means the first one that has TensorFlow. `on_line` is called with the
    parsed object of each payload line. `machine` is this machine, whose GPUs are sampled; None if the engine runs elsewhere.

    Raise EngineError if the image or the engine is not found or no container starts, or UsageError if no Python runs
    in the image.
    """
    if engine.find_image(image) is None:
        message = f"the image {image} is not here."
        raise EngineError(message, hint=f"{engine.name} pull {image}")
    with _start_container(engine, image, request) as system:
        executable = python or find_python(system)
        facts = collect_facts(system, compat, python=executable, timeout=PROBE_TIMEOUT_S)
        interpreter = value_of(facts.python)
        if interpreter is None:
            message = f"no Python answers in {image}."
            raise UsageError(message, hint=f"tfdoctor verify {image}")

        def run(on_payload_line: Callable[[dict[str, Any]], None]) -> CommandResult:
            arguments = [request.as_json(final_results_only=True)]
            _, result = run_payload(
                system, interpreter.executable, "stages", arguments, **request.payload_options
            )
            PayloadDecoder(on_payload_line)(f"{result.stdout}\n".encode())
            return result

        check_command = f"tfdoctor verify {quote(image)}"
        return run_bench(
            system,
            compat,
            facts,
            request,
            on_line,
            target=image,
            run=run,
            gpu_system=machine,
            check_command=check_command,
        )


def _start_container(engine: ContainerEngine, image: str, bench_request: BenchRequest) -> ContainerSystem:
    """Start a container with the first kind of GPU access that the engine accepts.

    Raise EngineError with the engine's first error message if it accepts none.
    """
    first_error = None
    for access in list_gpu_access(engine, None if bench_request.uses_gpus else "none"):
        try:
            return ContainerSystem(engine, RunRequest(image=image, command=(), shm_size=1 << 30, gpus=access))
        except StartError as error:
            first_error = first_error or error
    reason = first_error.message if first_error is not None else "it knows no way to GPUs"
    message = f"the engine starts no container with GPUs: {reason[:400]}"
    raise EngineError(
        message, hint=f"tfdoctor verify {image} says why; with --devices CPU:0 no GPU is asked for."
    )
