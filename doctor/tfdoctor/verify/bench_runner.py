"""Timing the TensorFlow of a Python on this machine: its lines as they come, and the cards watched meanwhile."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from tfdoctor.advice.pip import check_again
from tfdoctor.advice.target import target_of
from tfdoctor.bench import Interconnect, Measured, Watched, read_lines
from tfdoctor.errors import UsageError
from tfdoctor.examine import collect_facts
from tfdoctor.examine.cards import read_cards, read_interconnects, read_peer_access, tensorflow_names
from tfdoctor.facts import value_of
from tfdoctor.records import dataclass
from tfdoctor.system import Failure
from tfdoctor.system.payloads import follow_payload
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.text import clean_line
from tfdoctor.verify.target_stages import find_expected_speeds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.compat.cards import Cards
    from tfdoctor.facts import Facts, SmiGpu
    from tfdoctor.system import CommandResult, LiveSystem, System

    Told = Callable[[dict[str, Any]], None]

__all__ = ["PROBE_TIMEOUT_S", "BenchWish", "Timing", "bench_python", "list_links", "run_bench"]

PROBE_TIMEOUT_S = 30.0
SETTING_UP = 300.0
"""Seconds that importing TensorFlow, building the graphs and the last piece of work may take beside `time`."""
WATCH_INTERVAL_S = 3.0
"""Seconds between two looks at the cards. nvidia-smi takes little of a processor, and it is one of the others."""
MAX_KEPT_LINES = 20_000
"""Lines that are kept."""


class _Conditions(TypedDict):
    timeout: float
    env: dict[str, str]
    unset: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BenchWish:
    """What is timed, and for how long."""

    seconds: float = 60.0
    devices: tuple[str, ...] = ()
    """Empty: the CPU and each GPU."""
    workloads: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    """Empty: float32, and on each GPU those that it has."""
    sizes: tuple[int, ...] = ()
    xla: bool = False

    @property
    def gpus(self) -> bool:
        """Return whether GPUs are requested."""
        return not self.devices or any(name.startswith("GPU") for name in self.devices)

    @property
    def conditions(self) -> _Conditions:
        """Return the deadline and the variables that TensorFlow runs with."""
        return {
            "timeout": self.seconds + SETTING_UP,
            "env": {} if self.gpus else {"CUDA_VISIBLE_DEVICES": "-1"},
            # The log tells of compiling; nobody else sees it.
            "unset": ("TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_MIN_LOG_LEVEL"),
        }

    def as_json(self, *, shortly: bool = False) -> str:
        """Return the request for the payload.

        `shortly`: each time is sent twice at most, if all of it comes at the end.
        """
        bench = {
            "shortly": shortly,
            "time": self.seconds,
            "devices": list(self.devices),
            "workloads": list(self.workloads),
            "dtypes": list(self.dtypes),
            "sizes": list(self.sizes),
            "xla": self.xla,
        }
        return json.dumps({"stages": ["bench"], "device": "GPU" if self.gpus else "CPU", "bench": bench})


@dataclass(frozen=True, slots=True)
class Timing:
    """What was timed, with what is known of the cards."""

    target: str
    measured: Measured
    peaks: dict[str, dict[str, float]]
    software: bool = False
    """The driver is no driver: its GPUs are software, or a stand-in's."""
    look: str = "tfdoctor check"
    """What says what is wrong with this TensorFlow."""
    interrupted: BaseException | None = None
    """Ctrl-C or the like: what was measured by then is kept."""


def bench_python(
    system: LiveSystem,
    compat: Compat,
    python: str | None,
    wish: BenchWish,
    *,
    told: Told,
) -> Timing:
    """Time what is wished. Raises UsageError where there is no such Python."""
    facts = collect_facts(system, compat, python=python, timeout=PROBE_TIMEOUT_S)
    interpreter = value_of(facts.python)
    if interpreter is None:
        raise UsageError("no Python was found.", hint="tfdoctor bench --python PATH")

    def run(keep: Told) -> CommandResult:
        return follow_payload(
            system, interpreter.executable, "stages", [wish.as_json()], keep, **wish.conditions
        )

    again = check_again(target_of(facts, compat))
    where = interpreter.executable
    return run_bench(system, compat, facts, wish, told, target=where, run=run, watched=system, look=again)


def run_bench(
    system: System,
    compat: Compat,
    facts: Facts,
    wish: BenchWish,
    told: Told,
    *,
    target: str,
    run: Callable[[Told], CommandResult],
    watched: System | None,
    look: str = "tfdoctor check",
) -> Timing:
    """Read what `run` reports line by line, and watch the cards through `watched`, the machine that has them.

    `look`: the command that says what is wrong with this TensorFlow.
    """
    peaks = {f"GPU:{index}": speeds for index, speeds in find_expected_speeds(facts, compat.cards).items()}
    cuda = value_of(facts.driver.cuda)
    software = cuda is not None and (cuda.software or cuda.stand_in)
    parts: list[dict[str, Any]] = []

    def keep(part: dict[str, Any]) -> None:
        if len(parts) < MAX_KEPT_LINES:
            parts.append(part)
        told(part)

    watch = _Watch(watched, facts) if watched is not None else None
    interrupted: BaseException | None = None
    stopped = ""
    pairs: dict[tuple[str, str], str] = {}
    peers: dict[tuple[str, str], bool] = {}
    if watch is not None and watched is not None and wish.gpus and tensorflow_names(facts):
        pairs, peers = read_interconnects(watched, facts), read_peer_access(watched, facts)
        watch.start()
    try:
        with stop_on_signal(system):
            result = run(keep)
        stopped = _describe_end(result, parts)
    except KeyboardInterrupt as signal:
        interrupted, stopped = signal, "It was interrupted; what was timed by then is shown."
        if not read_lines(parts).any_timed:
            stopped = "It was interrupted before anything was timed."
    finally:
        if watch is not None:
            watch.over.set()
    measured = read_lines(parts)
    seen = watch.list_samples() if watch is not None else ()
    return Timing(
        target,
        replace(
            measured,
            watched=seen,
            stopped=stopped,
            links=list_links(seen, pairs, peers, facts, compat.cards),
            interrupted=interrupted is not None,
            asked=bool(wish.devices),
        ),
        peaks,
        software,
        look,
        interrupted,
    )


KINDS = {"PIX": "switch", "PXB": "switch", "PSB": "switch", "PHB": "bridge", "NODE": "bridges"}
"""What nvidia-smi prints of a way between two cards → what it goes through."""


def list_links(
    seen: Sequence[Watched],
    pairs: Mapping[tuple[str, str], str],
    peers: Mapping[tuple[str, str], bool],
    facts: Facts,
    cards: Cards,
) -> tuple[Interconnect, ...]:
    """List the links between the host and each card, and between two cards, with what they can carry.

    `pairs`: two devices → what nvidia-smi prints of the link between them; `peers`: → whether one reaches the
    other's memory.
    """
    cuda = value_of(facts.driver.cuda)
    capability = {f"GPU:{one.ordinal}": one.compute_capability for one in (cuda.devices if cuda else ())}
    hosts = {}
    for card in seen:
        if card.lanes and card.generation:
            speed = cards.pcie_gbps(card.generation, card.lanes)
            how = f"PCI Express {card.generation}.0 x{card.lanes}"
            hosts[card.device] = Interconnect("CPU:0", card.device, "pcie", how, speed)
    found = list(hosts.values())
    for (one, other), said in pairs.items():
        speed = None
        if said.startswith("NV") and said[2:].isdigit():
            kind = "nvlink"
            speed = cards.nvlink_gbps(capability.get(one) or "", int(said[2:]))
        else:
            kind = KINDS.get(said, "processors" if said in ("SYS", "SOC") else "other")
            speeds = [hosts[name].gbps for name in (one, other) if name in hosts]
            known = [speed for speed in speeds if speed is not None]
            speed = min(known) if len(known) == 2 and kind != "other" else None
        found.append(Interconnect(one, other, kind, said, speed, peer=peers.get((one, other))))
    return tuple(found)


def _describe_end(result: CommandResult, parts: list[dict[str, Any]]) -> str:
    if any(part.get("end") for part in parts):
        return ""
    shown = "; what was timed by then is shown" if read_lines(parts).any_timed else ""
    if result.failure is Failure.TIMEOUT:
        return f"TensorFlow did not end in time and was stopped{shown}."
    if result.returncode is not None and result.returncode < 0:
        return f"Signal {-result.returncode} ended TensorFlow{shown}."
    last = next((row for row in reversed(result.stderr.splitlines()) if row.strip()), "")
    said = f" Its last line: {clean_line(last, limit=300)}" if last else ""
    return f"TensorFlow ended before its time{shown}.{said}"


class _Watch(threading.Thread):
    """Asks nvidia-smi now and then. A thread: TensorFlow computes meanwhile."""

    def __init__(self, system: System, facts: Facts) -> None:
        super().__init__(name="watch", daemon=True)
        self.over = threading.Event()
        self._system = system
        self._devices = tensorflow_names(facts)
        # Whoever computes there now is no program of ours; TensorFlow's own process comes later.
        self._before: dict[str, dict[int | None, str]] = {}
        self._cards: dict[str, Watched] = {}

    def start(self) -> None:
        """Record who computes on the cards now, then start to sample them."""
        for bus, card in read_cards(self._system).items():
            computing = (one for one in card.processes if one.kind != "G")
            self._before[bus] = {one.pid: clean_line(one.name or f"process {one.pid}") for one in computing}
        super().start()

    def run(self) -> None:
        while not self.over.wait(WATCH_INTERVAL_S):
            for bus, card in read_cards(self._system).items():
                if bus in self._devices:
                    self._cards[self._devices[bus]] = self._add_sample(bus, card)

    def _add_sample(self, bus: str, card: SmiGpu) -> Watched:
        device = self._devices[bus]
        old, health = self._cards.get(device, Watched(device)), card.health
        heat = [t for t in (old.temperature, health.temperature if health else None) if t is not None]
        there = {one.pid for one in card.processes}
        still = [name for pid, name in self._before.get(bus, {}).items() if pid in there]
        return Watched(
            device,
            tuple(dict.fromkeys((*old.slowdowns, *(health.slowdowns if health else ())))),
            max(heat, default=None),
            health.power_limit if health else None,
            health.power_default if health else None,
            tuple(dict.fromkeys((*old.processes, *still))),
            _most(old.lanes, health.link_width if health else None),
            _most(old.lanes_most, health.link_width_most if health else None),
            _most(old.generation, health.link_generation if health else None),
            _most(old.generation_most, health.link_generation_most if health else None),
            old.looks + 1,
        )

    def list_samples(self) -> tuple[Watched, ...]:
        """Return the samples of all cards that were sampled."""
        return tuple(self._cards[name] for name in sorted(self._cards))


def _most(one: int | None, other: int | None) -> int | None:
    return max((number for number in (one, other) if number is not None), default=None)
