"""Benchmark TensorFlow in a Python installation on this machine, and sample the GPUs meanwhile."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from tfdoctor.core.errors import UsageError
from tfdoctor.core.facts import value_of
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import clean_line
from tfdoctor.diagnosis import collect_facts
from tfdoctor.diagnosis.cards import (
    find_tensorflow_names,
    read_gpu_states,
    read_interconnects,
    read_peer_access,
)
from tfdoctor.extensions.bench.models import GpuObservation, Interconnect
from tfdoctor.extensions.bench.reader import RawMeasurements, parse_payload_lines
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.remedies.target import build_target
from tfdoctor.system import Failure
from tfdoctor.system.payloads import stream_payload
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.verification.target_stages import find_expected_speeds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.compat.cards import Cards
    from tfdoctor.core.facts import Facts, SmiGpu
    from tfdoctor.system import CommandResult, LiveSystem, System

    OnLine = Callable[[dict[str, Any]], None]

__all__ = [
    "PROBE_TIMEOUT_S",
    "BenchRequest",
    "BenchResult",
    "bench_python",
    "list_interconnects",
    "run_bench",
]

PROBE_TIMEOUT_S = 30.0
"""Time limit in seconds for a probe of the Python."""
SETUP_TIMEOUT_S = 300.0
"""Seconds in addition to the requested time, for importing TensorFlow, building graphs and the last measurement."""
SAMPLE_INTERVAL_S = 3.0
"""Seconds between two samples of the GPUs. nvidia-smi takes little processor time."""
MAX_STORED_LINES = 20_000
"""Limit for the payload lines that are stored."""
LINK_KINDS = {"PIX": "switch", "PXB": "switch", "PSB": "switch", "PHB": "bridge", "NODE": "bridges"}
"""The kind of connection between two GPUs, by the code in nvidia-smi's topology matrix."""


class _PayloadOptions(TypedDict):
    """Keyword arguments for the functions that run the payload."""

    timeout: float
    env: dict[str, str]
    unset: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """A request for a benchmark."""

    seconds: float = 60.0
    """The time for the measurements."""
    devices: tuple[str, ...] = ()
    """Names of the devices; () means the CPU and each GPU."""
    workloads: tuple[str, ...] = ()
    """Names of the workloads; () means all of them."""
    dtypes: tuple[str, ...] = ()
    """Data types; () means float32 and, on each GPU, the other types that it supports."""
    sizes: tuple[int, ...] = ()
    xla: bool = False

    @property
    def uses_gpus(self) -> bool:
        """Whether GPUs are requested."""
        return not self.devices or any(name.startswith("GPU") for name in self.devices)

    @property
    def payload_options(self) -> _PayloadOptions:
        """The time limit and the changed environment variables for the TensorFlow process."""
        return {
            "timeout": self.seconds + SETUP_TIMEOUT_S,
            "env": {} if self.uses_gpus else {"CUDA_VISIBLE_DEVICES": "-1"},
            # The payload reads messages about compilation from the log.
            "unset": ("TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_MIN_LOG_LEVEL"),
        }

    def as_json(self, *, final_results_only: bool = False) -> str:
        """Return the request for the payload.

        If `shortly` is true, the payload does not print each timing after every round, because its output arrives
        only at the end.
        """
        bench = {
            "shortly": final_results_only,
            "time": self.seconds,
            "devices": list(self.devices),
            "workloads": list(self.workloads),
            "dtypes": list(self.dtypes),
            "sizes": list(self.sizes),
            "xla": self.xla,
        }
        return json.dumps({"stages": ["bench"], "device": "GPU" if self.uses_gpus else "CPU", "bench": bench})


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The measurements of a benchmark, and facts about the GPUs."""

    target: str
    """The path of the Python, or the name of the image."""
    measurements: RawMeasurements
    expected_speeds: dict[str, dict[str, float]]
    """Expected GFLOP/s by the name of the GPU and the data type."""
    is_simulated: bool = False
    """Whether a software GPU or a stand-in driver simulates the GPUs."""
    check_command: str = "tfdoctor check"
    """The tfdoctor command that examines this TensorFlow."""
    interruption: BaseException | None = None
    """The exception of the signal that ended the benchmark early; None if there was none."""


def bench_python(
    system: LiveSystem,
    compat: Compat,
    python: str | None,
    request: BenchRequest,
    *,
    on_line: OnLine,
) -> BenchResult:
    """Run the requested benchmark with a Python on this machine. Raise UsageError if no Python is found.

    `on_line` is called with the object of each payload line as it arrives.
    """
    facts = collect_facts(system, compat, python=python, timeout=PROBE_TIMEOUT_S)
    interpreter = value_of(facts.python)
    if interpreter is None:
        raise UsageError("no Python was found.", hint="tfdoctor bench --python PATH")

    def run(on_payload_line: OnLine) -> CommandResult:
        return stream_payload(
            system,
            interpreter.executable,
            "stages",
            [request.as_json()],
            on_payload_line,
            **request.payload_options,
        )

    check_command = format_check_command(build_target(facts, compat))
    executable = interpreter.executable
    return run_bench(
        system,
        compat,
        facts,
        request,
        on_line,
        target=executable,
        run=run,
        gpu_system=system,
        check_command=check_command,
    )


def run_bench(
    system: System,
    compat: Compat,
    facts: Facts,
    request: BenchRequest,
    on_line: OnLine,
    *,
    target: str,
    run: Callable[[OnLine], CommandResult],
    gpu_system: System | None,
    check_command: str = "tfdoctor check",
) -> BenchResult:
    """Run the benchmark with `run`, and sample the GPUs of `gpu_system` meanwhile.

    `run` starts the payload, and calls its argument with the parsed object of each line. `on_line` is called with the
    same objects. `gpu_system` is the machine that has the GPUs; None if they cannot be sampled.
    """
    expected_speeds = {
        f"GPU:{index}": speeds for index, speeds in find_expected_speeds(facts, compat.cards).items()
    }
    cuda = value_of(facts.driver.cuda)
    is_simulated = cuda is not None and (cuda.software or cuda.stand_in)
    payload_lines: list[dict[str, Any]] = []

    def store_line(line: dict[str, Any]) -> None:
        if len(payload_lines) < MAX_STORED_LINES:
            payload_lines.append(line)
        on_line(line)

    sampler = _GpuSampler(gpu_system, facts) if gpu_system is not None else None
    interrupted: BaseException | None = None
    end_description = ""
    link_codes: dict[tuple[str, str], str] = {}
    peer_access: dict[tuple[str, str], bool] = {}
    if sampler is not None and gpu_system is not None and request.uses_gpus and find_tensorflow_names(facts):
        link_codes, peer_access = read_interconnects(gpu_system, facts), read_peer_access(gpu_system, facts)
        sampler.start()
    try:
        with stop_on_signal(system):
            result = run(store_line)
        end_description = _describe_end(result, payload_lines)
    except KeyboardInterrupt as signal:
        interrupted, end_description = signal, "It was interrupted; what was timed by then is shown."
        if not parse_payload_lines(payload_lines).has_times:
            end_description = "It was interrupted before anything was timed."
    finally:
        if sampler is not None:
            sampler.stop_event.set()
    measured = parse_payload_lines(payload_lines)
    samples = sampler.list_samples() if sampler is not None else ()
    return BenchResult(
        target=target,
        measurements=replace(
            measured,
            gpu_observations=samples,
            stop_reason=end_description,
            links=list_interconnects(samples, link_codes, peer_access, facts, compat.cards),
            was_interrupted=interrupted is not None,
            has_selected_devices=bool(request.devices),
        ),
        expected_speeds=expected_speeds,
        is_simulated=is_simulated,
        check_command=check_command,
        interruption=interrupted,
    )


def list_interconnects(
    samples: Sequence[GpuObservation],
    code_by_pair: Mapping[tuple[str, str], str],
    peer_access_by_pair: Mapping[tuple[str, str], bool],
    facts: Facts,
    cards: Cards,
) -> tuple[Interconnect, ...]:
    """Return the links between the host and each GPU, and between two GPUs, with their speed in GB/s.

    `code_by_pair` maps two devices to the code of their link in nvidia-smi's topology matrix. `peer_access_by_pair` says
    for two devices whether the first can access the memory of the second.
    """
    cuda = value_of(facts.driver.cuda)
    capability_by_name = {
        f"GPU:{device.ordinal}": device.compute_capability for device in (cuda.devices if cuda else ())
    }
    host_links = {}
    for sample in samples:
        if sample.lanes and sample.generation:
            speed = cards.compute_pcie_gbps(sample.generation, sample.lanes)
            description = f"PCI Express {sample.generation}.0 x{sample.lanes}"
            host_links[sample.device] = Interconnect("CPU:0", sample.device, "pcie", description, speed)
    links = list(host_links.values())
    for (first, second), code in code_by_pair.items():
        speed = None
        if code.startswith("NV") and code[2:].isdigit():
            kind = "nvlink"
            speed = cards.compute_nvlink_gbps(capability_by_name.get(first) or "", int(code[2:]))
        else:
            kind = LINK_KINDS.get(code, "processors" if code in ("SYS", "SOC") else "other")
            # The path leads over the links between the two GPUs and the host, so the slower one limits it.
            host_speeds = [host_links[name].max_gbps for name in (first, second) if name in host_links]
            known_speeds = [host_speed for host_speed in host_speeds if host_speed is not None]
            speed = min(known_speeds) if len(known_speeds) == 2 and kind != "other" else None
        links.append(
            Interconnect(
                first, second, kind, code, speed, has_peer_access=peer_access_by_pair.get((first, second))
            )
        )
    return tuple(links)


def _describe_end(result: CommandResult, payload_lines: list[dict[str, Any]]) -> str:
    """Return a sentence about how the payload ended; "" if it ran to its end."""
    if any(payload_line.get("end") for payload_line in payload_lines):
        return ""
    results_note = "; what was timed by then is shown" if parse_payload_lines(payload_lines).has_times else ""
    if result.failure is Failure.TIMEOUT:
        return f"TensorFlow did not end in time and was stopped{results_note}."
    if result.returncode is not None and result.returncode < 0:
        return f"Signal {-result.returncode} ended TensorFlow{results_note}."
    last = next((line for line in reversed(result.stderr.splitlines()) if line.strip()), "")
    last_line = f" Its last line: {clean_line(last, limit=300)}" if last else ""
    return f"TensorFlow ended before its time{results_note}.{last_line}"


class _GpuSampler(threading.Thread):
    """A thread that samples the GPUs with nvidia-smi while TensorFlow computes."""

    def __init__(self, system: System, facts: Facts) -> None:
        super().__init__(name="watch", daemon=True)
        self.stop_event = threading.Event()
        self._system = system
        self._name_by_bus_id = find_tensorflow_names(facts)
        """TensorFlow's names of the GPUs, by PCI bus ID."""
        self._earlier_processes: dict[str, dict[int | None, str]] = {}
        """The names of processes that computed before the benchmark started, by PCI bus ID and process ID."""
        self._samples: dict[str, GpuObservation] = {}
        """The merged samples by TensorFlow's name of the GPU."""

    def start(self) -> None:
        """Record the other processes that compute on the GPUs, and start to sample."""
        for bus, gpu in read_gpu_states(self._system).items():
            computing = (p for p in gpu.processes if p.kind != "G")  # "G" is a graphics process
            self._earlier_processes[bus] = {
                p.pid: clean_line(p.name or f"process {p.pid}") for p in computing
            }
        super().start()

    def run(self) -> None:
        while not self.stop_event.wait(SAMPLE_INTERVAL_S):
            for bus, gpu in read_gpu_states(self._system).items():
                if bus in self._name_by_bus_id:
                    self._samples[self._name_by_bus_id[bus]] = self._merge_sample(bus, gpu)

    def _merge_sample(self, bus: str, gpu: SmiGpu) -> GpuObservation:
        """Return the earlier samples of a GPU, merged with its current values."""
        device = self._name_by_bus_id[bus]
        earlier_sample, health = self._samples.get(device, GpuObservation(device)), gpu.health
        temperatures = [
            t
            for t in (earlier_sample.max_temperature, health.temperature if health else None)
            if t is not None
        ]
        running_pids = {p.pid for p in gpu.processes}
        other_programs = [
            name for pid, name in self._earlier_processes.get(bus, {}).items() if pid in running_pids
        ]
        return GpuObservation(
            device=device,
            slowdowns=tuple(
                dict.fromkeys((*earlier_sample.slowdowns, *(health.slowdowns if health else ())))
            ),
            max_temperature=max(temperatures, default=None),
            power_limit=health.power_limit if health else None,
            default_power_limit=health.power_default if health else None,
            other_processes=tuple(dict.fromkeys((*earlier_sample.other_processes, *other_programs))),
            lanes=_max_known(earlier_sample.lanes, health.link_width if health else None),
            max_lanes=_max_known(earlier_sample.max_lanes, health.link_width_most if health else None),
            generation=_max_known(earlier_sample.generation, health.link_generation if health else None),
            max_generation=_max_known(
                earlier_sample.max_generation, health.link_generation_most if health else None
            ),
            sample_count=earlier_sample.sample_count + 1,
        )

    def list_samples(self) -> tuple[GpuObservation, ...]:
        """Return one merged sample for each sampled GPU."""
        return tuple(self._samples[name] for name in sorted(self._samples))


def _max_known(first: int | None, second: int | None) -> int | None:
    return max((value for value in (first, second) if value is not None), default=None)
