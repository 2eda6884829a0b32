"""Looking at a machine: all probes, side by side, each with its deadline, into one `Facts`."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tfdoctor.errors import Error
from tfdoctor.facts import NOT_REHEARSED, Absent, DriverFacts, Facts, KernelFacts, Known, Unknown, value_of
from tfdoctor.predict import build_of, dlopen_caller, list_opened_sonames
from tfdoctor.predict.rehearsal import plan_rehearsal
from tfdoctor.probes import (
    containers,
    driver,
    environment,
    interpreter_selection,
    kernel,
    loading,
    machine,
    permissions,
    python,
    rehearsal,
    toolkits,
)
from tfdoctor.probes.target import limit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.facts import (
        CudaDriver,
        EnvironmentFacts,
        Fact,
        LoaderFacts,
        Nvml,
        PythonFacts,
        TensorFlowFacts,
    )
    from tfdoctor.facts.imports import RehearsalFacts
    from tfdoctor.facts.python import Choice
    from tfdoctor.system import System

T = TypeVar("T")
HIDING = "CUDA_VISIBLE_DEVICES"


class _Result(Generic[T]):
    """What a probe gives, some day. (`concurrent.futures` has this, and loads `logging`.)"""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._values: list[T] = []
        self._error: BaseException | None = None

    def run(self, probe: Callable[[], T]) -> None:
        """Run the probe."""
        try:
            self._values.append(probe())
        except BaseException as error:
            self._error = error
        self._there.set()

    def get(self, timeout: float) -> T:
        """Return the probe's value, or raise its error. Raises _LateError if there is none within `timeout`
        seconds.
        """
        if not self._there.wait(timeout):
            raise _LateError
        if self._error is not None:
            raise self._error
        return self._values[0]


class _LateError(Exception):
    """A probe that did not end in time."""


class _Probes:
    """Probes that run side by side in daemon threads: one that hangs, even in the kernel, cannot keep us."""

    def __init__(self, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout
        self.seconds: dict[str, float] = {}

    @property
    def left(self) -> float:
        """Return the seconds until the deadline; a little more than none after it."""
        return max(0.2, self._deadline - time.monotonic())

    def start(self, name: str, probe: Callable[[], T]) -> _Result[T]:
        """Run `probe` in a thread of its own."""
        result: _Result[T] = _Result()

        def work() -> None:
            began = time.monotonic()
            result.run(probe)
            self.seconds[name] = round(time.monotonic() - began, 4)

        threading.Thread(target=work, name=f"probe {name}", daemon=True).start()
        return result

    def value(self, result: _Result[T], what: str, otherwise: Callable[[Unknown], T]) -> T:
        """Return the probe's result; `otherwise` of the reason if it crashed or did not end in time."""
        try:
            return result.get(self.left)
        except Error:
            raise
        except _LateError:
            return otherwise(Unknown(f"looking at {what} did not finish in time", what))
        except Exception as error:
            return otherwise(Unknown(f"looking at {what} crashed: {type(error).__name__}: {error}", what))


def survey(
    system: System,
    compat: Compat,
    *,
    requested_python: str | None = None,
    timeout: float = 10.0,
    meanwhile: Callable[[], object] | None = None,
) -> Facts:
    """Look at everything. `timeout` (seconds) bounds the whole; a probe that hangs costs only its own fact.

    `meanwhile` is called while the first probes look: loading what judges, say. It imports no package that probes
    import from: two threads that load one package can each meet the other's half.

    Raises UsageError where the Python that was asked for cannot be examined.
    """
    try:
        return _survey(system, compat, requested_python, timeout, meanwhile)
    except BaseException:  # Ctrl-C, or the wrong Python: nothing that was started may outlive this
        system.stop()
        raise


def _survey(
    system: System,
    compat: Compat,
    requested_python: str | None,
    timeout: float,
    meanwhile: Callable[[], object] | None,
) -> Facts:
    probes = _Probes(timeout)
    chosen = interpreter_selection.choose(system, requested_python)
    interpreter, asked = chosen.path, requested_python is not None
    limit = limit_of(timeout)

    def ask_driver(**how: Any) -> tuple[Fact[CudaDriver], Fact[Nvml]]:
        return driver.probe_libraries(system, interpreter, timeout=limit, **how)

    start, value = probes.start, probes.value
    target = start("python", lambda: python.probe(system, chosen, asked=asked, timeout=limit))
    variables = start(
        "variables", lambda: environment.probe(system, interpreter, kernel=chosen.kernel, timeout=limit / 2)
    )

    def probe_variables() -> EnvironmentFacts:
        return value(variables, "that Python's variables", lambda _: environment.probe(system))

    libraries = start("driver", ask_driver)
    unhidden = start(
        "driver, nothing hidden",
        lambda: (
            ask_driver(libnvml="-", variables={**probe_variables().changed, HIDING: None}, variant="unhidden")
            if HIDING in probe_variables().variables
            else None
        ),
    )
    computer = machine.probe(system)
    smi = start("nvidia-smi", lambda: driver.probe_smi(system, timeout=limit / 2, machine=computer))
    pci = start("pci", lambda: driver.probe_pci(system))
    around = start(
        "kernel",
        lambda: kernel.probe(system, computer, lambda: value(pci, "the PCI bus", _itself), timeout=limit / 4),
    )
    links = start(
        "links",
        lambda: kernel.probe_links(system, value(pci, "the PCI bus", _itself), timeout=limit / 2),
    )
    kernel_module = start("kernel module", lambda: driver.probe_kernel_module(system))
    modules = start("modules", lambda: driver.probe_modules(system))
    nodes = start("nodes", lambda: driver.probe_nodes(system))
    files = start("driver files", lambda: driver.probe_driver_files(system))
    kits = start("toolkits", lambda: toolkits.probe(system))
    nvcc = start("nvcc", lambda: toolkits.probe_nvcc(system, timeout=limit / 2))
    engines = start("containers", lambda: containers.probe(system, timeout=min(3.0, limit / 2)))

    if meanwhile is not None:
        meanwhile()
    python_fact, tensorflow_fact = value(target, "the target Python", lambda unknown: (unknown, unknown))
    followed = start(
        "loader",
        lambda: _loader(
            system, compat, python_fact, tensorflow_fact, computer.cpu_flags, probe_variables().variables
        ),
    )
    first = value_of(tensorflow_fact)
    second = first.behind if first is not None else None
    behind = start(
        "loader, behind",
        lambda: (
            _loader(
                system,
                compat,
                python_fact,
                Known(second, second.package_dir),
                computer.cpu_flags,
                probe_variables().variables,
            )
            if second is not None
            else Absent("the loader", "there is no other TensorFlow behind this one")
        ),
    )
    rehearsed = start(
        "rehearsal",
        lambda: _rehearsal(
            system, compat, python_fact, tensorflow_fact, probe_variables().variables, timeout=probes.left
        ),
    )
    loader_fact = value(followed, "the loader", _itself)
    if not isinstance(tensorflow_fact, Known):
        at_hand = start("other Pythons", lambda: _add_other_pythons(system, chosen, python_fact))
        chosen = value(at_hand, "the other Pythons here", lambda _: chosen)
    cuda, nvml = value(libraries, "the driver", lambda unknown: (unknown, unknown))
    changed = probe_variables().changed
    if changed:  # with what that Python's own start makes of the variables, whatever Python asks the driver
        again = start(
            "driver, with its variables", lambda: ask_driver(variables=changed, variant="with-its-variables")
        )
        cuda, nvml = value(again, "the driver", lambda unknown: (unknown, unknown))
    if isinstance(python_fact, Unknown) and system.own_python is None and _driver_hangs(cuda):
        cuda = nvml = Unknown("the Python in which it would be asked does not answer", interpreter)
    cuda, nvml = _as_tensorflow_loads(system, interpreter, loader_fact, cuda, nvml, probes.left, changed)
    without = value(unhidden, "the driver", lambda unknown: (unknown, unknown))
    return Facts(
        machine=computer,
        environment=probe_variables(),
        driver=DriverFacts(
            pci=value(pci, "the PCI bus", _itself),
            kernel_module=value(kernel_module, "the kernel module", _itself),
            modules=value(modules, "kernel modules", _itself),
            nodes=value(nodes, "device nodes", _itself),
            smi=value(smi, "nvidia-smi", _itself),
            cuda=cuda,
            cuda_unhidden=without[0] if without is not None else None,
            nvml=nvml,
            dxcore=system.exists("/dev/dxg"),
            driver_files=value(files, "the driver's files", lambda _: ()),
        ),
        python=python_fact,
        tensorflow=tensorflow_fact,
        loader=loader_fact,
        toolkits=value(kits, "CUDA toolkits", lambda _: ()),
        nvcc=value(nvcc, "nvcc", _itself),
        containers=value(engines, "container engines", _itself),
        kernel=dataclasses.replace(
            value(around, "the kernel", _make_unknown_kernel),
            links=value(links, "how the cards are joined", _itself),
        ),
        rehearsal=value(rehearsed, "the packages that TensorFlow imports", _itself),
        loader_behind=value(behind, "the loader", _itself),
        seconds=dict(sorted(probes.seconds.items())),
        choice=chosen,
    )


def _itself(unknown: Unknown) -> Unknown:
    return unknown


def _make_unknown_kernel(unknown: Unknown) -> KernelFacts:
    return KernelFacts(unknown, unknown, unknown, unknown, unknown, unknown)


def _add_other_pythons(system: System, chosen: Choice, python_fact: Fact[PythonFacts]) -> Choice:
    """Return the choice with the other Pythons at hand that have a TensorFlow."""
    interpreter = value_of(python_fact)
    prefix = interpreter.prefix if interpreter is not None else ""
    return dataclasses.replace(
        chosen, others=interpreter_selection.find_other_pythons(system, chosen, prefix)
    )


def _driver_hangs(cuda: Fact[CudaDriver]) -> bool:
    return isinstance(cuda, Unknown) and "did not answer within" in cuda.why


def _loader(
    system: System,
    compat: Compat,
    python_fact: Fact[PythonFacts],
    tensorflow_fact: Fact[TensorFlowFacts],
    cpu_flags: frozenset[str],
    variables: Mapping[str, str],
) -> Fact[LoaderFacts]:
    interpreter, tensorflow = value_of(python_fact), value_of(tensorflow_fact)
    if interpreter is None or tensorflow is None:
        return Absent("the loader", "there is no TensorFlow to follow it for")
    build = build_of(tensorflow, compat)
    followed = loading.probe(
        system,
        interpreter,
        tensorflow,
        sonames=list_opened_sonames(build),
        caller=dlopen_caller(build),
        hard_linked=build.linkage == "needed",
        shown=build.version is None or build.has("shown-symbols"),
        cpu_flags=cpu_flags,
        variables=variables,
    )
    return permissions.with_denied(system, followed)


def _rehearsal(
    system: System,
    compat: Compat,
    python_fact: Fact[PythonFacts],
    tensorflow_fact: Fact[TensorFlowFacts],
    variables: Mapping[str, str],
    *,
    timeout: float,
) -> Fact[RehearsalFacts]:
    interpreter, tensorflow = value_of(python_fact), value_of(tensorflow_fact)
    request = (
        plan_rehearsal(interpreter, tensorflow, variables, compat)
        if interpreter is not None and tensorflow is not None
        else None
    )
    if interpreter is None or tensorflow is None or request is None:
        return Absent("the packages that TensorFlow imports", NOT_REHEARSED)
    return rehearsal.probe(
        system,
        interpreter,
        request.modules,
        request.sources,
        request.oddities,
        request.keras,
        version=tensorflow.version or "",
        timeout=timeout,
    )


def _as_tensorflow_loads(
    system: System,
    interpreter: str,
    loader_fact: Fact[LoaderFacts],
    cuda: Fact[CudaDriver],
    nvml: Fact[Nvml],
    left: float,
    variables: Mapping[str, str | None],
) -> tuple[Fact[CudaDriver], Fact[Nvml]]:
    """Ask the very file that TensorFlow would open, where the child's own loader gave another one."""
    loader = value_of(loader_fact)
    wanted = loader.resolution("libcuda.so.1") if loader is not None else None
    asked = value_of(cuda)
    if wanted is None or wanted.path is None or not wanted.ok or asked is None or asked.crashed:
        return cuda, nvml
    if asked.path is not None and system.realpath(asked.path) == system.realpath(wanted.path):
        return cuda, nvml
    again, _ = driver.probe_libraries(
        system,
        interpreter,
        timeout=left,
        libcuda=wanted.path,
        libnvml="-",
        variables=variables,
        variant="as-tensorflow",
    )
    return again, nvml
