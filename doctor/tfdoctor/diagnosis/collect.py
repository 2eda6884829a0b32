"""Collect the facts about a machine. All probes run at the same time, with a common deadline."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tfdoctor.core.errors import Error
from tfdoctor.core.facts import (
    NO_REHEARSAL_REASON,
    Absent,
    DriverFacts,
    Facts,
    KernelFacts,
    Known,
    Unknown,
    value_of,
)
from tfdoctor.prediction.build import describe_build, find_dlopen_caller, list_opened_sonames
from tfdoctor.prediction.rehearsal import plan_rehearsal
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
from tfdoctor.probes.target import compute_probe_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import (
        CudaDriver,
        EnvironmentFacts,
        Fact,
        LoaderFacts,
        Nvml,
        PythonFacts,
        TensorFlowFacts,
    )
    from tfdoctor.core.facts.imports import RehearsalFacts
    from tfdoctor.core.facts.python import PythonChoice
    from tfdoctor.system import System

T = TypeVar("T")
VISIBLE_DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
NOTICE_AFTER_S = 5.0
"""The time in seconds after which a message says which probe is awaited."""
MIN_REMAINING_S = 0.2
"""The shortest time in seconds for which the result of a probe is awaited, even after the deadline."""


class _Result(Generic[T]):
    """The future result of a probe, like `concurrent.futures.Future`.

    That module is not used because it imports `logging`, which is slow.
    """

    def __init__(self) -> None:
        self._done = threading.Event()
        self._values: list[T] = []  # one value after the end of the probe, because T may include None
        self._error: BaseException | None = None

    def run(self, probe: Callable[[], T]) -> None:
        """Run the probe and store its value or error."""
        try:
            self._values.append(probe())
        except BaseException as error:
            self._error = error
        self._done.set()

    def get(self, timeout: float) -> T:
        """Wait for the probe and return its value, or raise its error.

        Raise _LateError if the probe does not end within `timeout` seconds.
        """
        if not self._done.wait(timeout):
            raise _LateError
        if self._error is not None:
            raise self._error
        return self._values[0]


class _LateError(Exception):
    """A probe did not end in time."""


class _Probes:
    """A group of probes with a common deadline.

    They run in daemon threads, so that a probe that hangs does not prevent tfdoctor from exiting.
    """

    def __init__(self, timeout: float, on_message: Callable[[str], None]) -> None:
        self._deadline = time.monotonic() + timeout
        self._notice_time = time.monotonic() + NOTICE_AFTER_S
        self._on_message = on_message
        self.seconds: dict[str, float] = {}
        """The duration of each finished probe in seconds, by name."""

    @property
    def remaining_s(self) -> float:
        """The time until the deadline in seconds, at least `MIN_REMAINING_S`."""
        return max(MIN_REMAINING_S, self._deadline - time.monotonic())

    def start(self, name: str, probe: Callable[[], T]) -> _Result[T]:
        """Start a probe in its own thread, and return its future result."""
        result: _Result[T] = _Result()

        def run_probe() -> None:
            start_time = time.monotonic()
            result.run(probe)
            self.seconds[name] = round(time.monotonic() - start_time, 4)

        threading.Thread(target=run_probe, name=f"probe {name}", daemon=True).start()
        return result

    def get_value(self, result: _Result[T], subject: str, make_fallback: Callable[[Unknown], T]) -> T:
        """Return the value of a probe, or the fallback value if the probe crashed or did not end in time.

        `make_fallback` makes the fallback value from the reason, which mentions the `subject` of the probe. If the
        probe raised a tfdoctor Error, raise that error again.
        """
        try:
            if self._deadline > self._notice_time:
                try:
                    return result.get(max(0.0, self._notice_time - time.monotonic()))
                except _LateError:
                    seconds = round(self.remaining_s)
                    self._on_message(
                        f"Waiting for {subject}, at most {seconds} s more: this machine is slow …"
                    )
                    self._notice_time = float("inf")  # one message is enough
            return result.get(self.remaining_s)
        except Error:
            raise
        except _LateError:
            return make_fallback(Unknown(f"looking at {subject} did not finish in time", subject))
        except Exception as error:
            return make_fallback(
                Unknown(f"looking at {subject} crashed: {type(error).__name__}: {error}", subject)
            )


def run_probes(
    system: System,
    compat: Compat,
    *,
    requested_python: str | None = None,
    timeout: float = 10.0,
    meanwhile: Callable[[], object] | None = None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Facts:
    """Run all probes and return the facts.

    `timeout` is the time limit in seconds for all probes together. A probe that hangs affects only its own fact.
    `on_message` is called once with a sentence if they take longer than NOTICE_AFTER_S. `meanwhile` is called while the
    first probes run, for example to import the rules. It must not import a package that probes import as well: if two
    threads import it at the same time, one can get a partially initialized module.

    Raise UsageError if the requested Python cannot be examined.
    """
    try:
        return _collect_facts(system, compat, requested_python, timeout, meanwhile, on_message)
    except BaseException:  # for example Ctrl-C: child processes must not continue
        system.stop()
        raise


def _collect_facts(
    system: System,
    compat: Compat,
    requested_python: str | None,
    timeout: float,
    meanwhile: Callable[[], object] | None,
    on_message: Callable[[str], None],
) -> Facts:
    """Run all probes and combine their results. The caller stops the child processes after an exception."""
    probes = _Probes(timeout, on_message)
    choice = interpreter_selection.choose_python(system, requested_python)
    interpreter, is_requested = choice.path, requested_python is not None
    probe_timeout = compute_probe_timeout(timeout)

    def query_driver(**options: Any) -> tuple[Fact[CudaDriver], Fact[Nvml]]:
        return driver.probe_libraries(system, interpreter, timeout=probe_timeout, **options)

    start, get_value = probes.start, probes.get_value
    python_result = start(
        "python", lambda: python.probe(system, choice, is_requested=is_requested, timeout=probe_timeout)
    )
    variables_result = start(
        "variables",
        lambda: environment.probe(system, interpreter, kernel=choice.kernel, timeout=probe_timeout / 2),
    )

    def probe_variables() -> EnvironmentFacts:
        return get_value(variables_result, "that Python's variables", lambda _: environment.probe(system))

    path_result = start(
        "python on PATH",
        lambda: interpreter_selection.examine_python_on_path(system, choice, timeout=probe_timeout / 2),
    )
    first_driver_result = start("driver", query_driver)
    unhidden_result = start(
        "driver, nothing hidden",
        lambda: (
            query_driver(
                libnvml="-",
                variables={**probe_variables().changed, VISIBLE_DEVICES_VARIABLE: None},
                variant="unhidden",
            )
            if VISIBLE_DEVICES_VARIABLE in probe_variables().variables
            else None
        ),
    )
    machine_facts = machine.probe(system)
    smi_result = start(
        "nvidia-smi", lambda: driver.probe_smi(system, timeout=probe_timeout / 2, machine=machine_facts)
    )
    pci_result = start("pci", lambda: driver.probe_pci(system))
    kernel_result = start(
        "kernel",
        lambda: kernel.probe(
            system,
            machine_facts,
            lambda: get_value(pci_result, "the PCI bus", _return_reason),
            timeout=probe_timeout / 4,
        ),
    )
    links_result = start(
        "links",
        lambda: kernel.probe_links(
            system, get_value(pci_result, "the PCI bus", _return_reason), timeout=probe_timeout / 2
        ),
    )
    module_result = start("kernel module", lambda: driver.probe_kernel_module(system))
    modules_result = start("modules", lambda: driver.probe_modules(system))
    nodes_result = start("nodes", lambda: driver.probe_device_nodes(system))
    files_result = start("driver files", lambda: driver.probe_driver_files(system))
    toolkits_result = start("toolkits", lambda: toolkits.probe(system))
    nvcc_result = start("nvcc", lambda: toolkits.probe_nvcc(system, timeout=probe_timeout / 2))
    engines_result = start(
        "containers", lambda: containers.probe(system, timeout=min(3.0, probe_timeout / 2))
    )

    if meanwhile is not None:
        meanwhile()
    python_fact, tensorflow_fact = get_value(
        python_result, "the target Python", lambda unknown: (unknown, unknown)
    )
    loader_result = start(
        "loader",
        lambda: _probe_loader(
            system, compat, python_fact, tensorflow_fact, machine_facts.cpu_flags, probe_variables().variables
        ),
    )
    first_tensorflow = value_of(tensorflow_fact)
    hidden_tensorflow = first_tensorflow.behind if first_tensorflow is not None else None
    hidden_loader_result = start(
        "loader, behind",
        lambda: (
            _probe_loader(
                system,
                compat,
                python_fact,
                Known(hidden_tensorflow, hidden_tensorflow.package_dir),
                machine_facts.cpu_flags,
                probe_variables().variables,
            )
            if hidden_tensorflow is not None
            else Absent("the loader", "there is no other TensorFlow behind this one")
        ),
    )
    rehearsal_result = start(
        "rehearsal",
        lambda: _probe_rehearsal(
            system,
            compat,
            python_fact,
            tensorflow_fact,
            probe_variables().variables,
            timeout=probes.remaining_s,
        ),
    )
    loader_fact = get_value(loader_result, "the loader", _return_reason)
    choice = get_value(path_result, "the Python on PATH", lambda _: choice)
    if not isinstance(tensorflow_fact, Known):
        other_pythons = start("other Pythons", lambda: _add_other_pythons(system, choice, python_fact))
        choice = get_value(other_pythons, "the other Pythons here", lambda _: choice)
    cuda, nvml = get_value(first_driver_result, "the driver", lambda unknown: (unknown, unknown))
    changed_variables = probe_variables().changed
    if changed_variables:  # query the driver with the variables that the startup of that Python sets
        second_driver_result = start(
            "driver, with its variables",
            lambda: query_driver(variables=changed_variables, variant="with-its-variables"),
        )
        cuda, nvml = get_value(second_driver_result, "the driver", lambda unknown: (unknown, unknown))
    if isinstance(python_fact, Unknown) and system.own_python is None and _driver_hangs(cuda):
        cuda = nvml = Unknown("the Python in which it would be asked does not answer", interpreter)
    cuda, nvml = _probe_tensorflow_driver(
        system, interpreter, loader_fact, cuda, nvml, probes.remaining_s, changed_variables
    )
    unhidden_driver_facts = get_value(unhidden_result, "the driver", lambda unknown: (unknown, unknown))
    unhidden_cuda, _nvml = unhidden_driver_facts if unhidden_driver_facts is not None else (None, None)
    return Facts(
        machine=machine_facts,
        environment=probe_variables(),
        driver=DriverFacts(
            pci=get_value(pci_result, "the PCI bus", _return_reason),
            kernel_module=get_value(module_result, "the kernel module", _return_reason),
            modules=get_value(modules_result, "kernel modules", _return_reason),
            nodes=get_value(nodes_result, "device nodes", _return_reason),
            smi=get_value(smi_result, "nvidia-smi", _return_reason),
            cuda=cuda,
            cuda_unhidden=unhidden_cuda,
            nvml=nvml,
            dxcore=system.exists("/dev/dxg"),
            driver_files=get_value(files_result, "the driver's files", lambda _: ()),
        ),
        python=python_fact,
        tensorflow=tensorflow_fact,
        loader=loader_fact,
        toolkits=get_value(toolkits_result, "CUDA toolkits", lambda _: ()),
        nvcc=get_value(nvcc_result, "nvcc", _return_reason),
        containers=get_value(engines_result, "container engines", _return_reason),
        kernel=dataclasses.replace(
            get_value(kernel_result, "the kernel", _make_unknown_kernel),
            links=get_value(links_result, "how the cards are joined", _return_reason),
        ),
        rehearsal=get_value(rehearsal_result, "the packages that TensorFlow imports", _return_reason),
        loader_behind=get_value(hidden_loader_result, "the loader", _return_reason),
        seconds=dict(sorted(probes.seconds.items())),
        choice=choice,
    )


def _return_reason(unknown: Unknown) -> Unknown:
    """Return the reason unchanged: the fallback value of a fact is the reason why it is unknown."""
    return unknown


def _make_unknown_kernel(unknown: Unknown) -> KernelFacts:
    """Return kernel facts that are all unknown for the given reason."""
    return KernelFacts(unknown, unknown, unknown, unknown, unknown, unknown)


def _add_other_pythons(system: System, choice: PythonChoice, python_fact: Fact[PythonFacts]) -> PythonChoice:
    """Return the choice with the other Pythons on this machine that have TensorFlow."""
    interpreter = value_of(python_fact)
    prefix = interpreter.prefix if interpreter is not None else ""
    return dataclasses.replace(
        choice, others=interpreter_selection.find_other_pythons(system, choice, prefix)
    )


def _driver_hangs(cuda: Fact[CudaDriver]) -> bool:
    """Return whether the driver did not answer within its time limit."""
    return isinstance(cuda, Unknown) and "did not answer within" in cuda.why


def _probe_loader(
    system: System,
    compat: Compat,
    python_fact: Fact[PythonFacts],
    tensorflow_fact: Fact[TensorFlowFacts],
    cpu_flags: frozenset[str],
    variables: Mapping[str, str],
) -> Fact[LoaderFacts]:
    """Resolve TensorFlow's libraries as the loader does, and add the reasons why files cannot be read."""
    interpreter, tensorflow = value_of(python_fact), value_of(tensorflow_fact)
    if interpreter is None or tensorflow is None:
        return Absent("the loader", "TensorFlow is not installed")
    build = describe_build(tensorflow, compat)
    loader_fact = loading.probe(
        system,
        interpreter,
        tensorflow,
        sonames=list_opened_sonames(build),
        caller=find_dlopen_caller(build),
        is_linked_to_cuda=build.linkage == "needed",
        loads_globally=build.version is None or build.has_trait("shown-symbols"),
        cpu_flags=cpu_flags,
        variables=variables,
    )
    return permissions.add_denied_files(system, loader_fact)


def _probe_rehearsal(
    system: System,
    compat: Compat,
    python_fact: Fact[PythonFacts],
    tensorflow_fact: Fact[TensorFlowFacts],
    variables: Mapping[str, str],
    *,
    timeout: float,
) -> Fact[RehearsalFacts]:
    """Run the imports of TensorFlow's packages in a child process, and return the results."""
    interpreter, tensorflow = value_of(python_fact), value_of(tensorflow_fact)
    plan = (
        plan_rehearsal(interpreter, tensorflow, variables, compat)
        if interpreter is not None and tensorflow is not None
        else None
    )
    if interpreter is None or tensorflow is None or plan is None:
        return Absent("the packages that TensorFlow imports", NO_REHEARSAL_REASON)
    return rehearsal.probe(
        system,
        interpreter,
        plan.modules,
        plan.generated_sources,
        plan.reasons,
        plan.keras_modules,
        version=tensorflow.version or "",
        timeout=timeout,
    )


def _probe_tensorflow_driver(
    system: System,
    interpreter: str,
    loader_fact: Fact[LoaderFacts],
    cuda: Fact[CudaDriver],
    nvml: Fact[Nvml],
    timeout: float,
    variables: Mapping[str, str | None],
) -> tuple[Fact[CudaDriver], Fact[Nvml]]:
    """Return the facts about libcuda and NVML, with those of the libcuda that TensorFlow would open.

    If `cuda` is already about that file, or if the file is not known, both facts are returned unchanged.
    """
    loader = value_of(loader_fact)
    library = loader.find_resolution("libcuda.so.1") if loader is not None else None
    driver_facts = value_of(cuda)
    if (
        library is None
        or library.path is None
        or not library.ok
        or driver_facts is None
        or driver_facts.crashed
    ):
        return cuda, nvml
    if driver_facts.path is not None and system.realpath(driver_facts.path) == system.realpath(library.path):
        return cuda, nvml
    cuda_of_library, _ = driver.probe_libraries(
        system,
        interpreter,
        timeout=timeout,
        libcuda=library.path,
        libnvml="-",
        variables=variables,
        variant="as-tensorflow",
    )
    return cuda_of_library, nvml
