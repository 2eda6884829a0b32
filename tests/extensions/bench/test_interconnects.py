"""Interconnects between host and GPUs: scripted nvidia-smi output and measured copies."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from cli.planner import validate
from extensions.bench.made import make_devices_line, make_run_line, make_training_line
from recorded import HOSTS
from tfdoctor.compat import Compat
from tfdoctor.diagnosis import collect_facts
from tfdoctor.extensions.bench import runner
from tfdoctor.extensions.bench.analysis import evaluate_bench
from tfdoctor.extensions.bench.interconnects import MIN_SAMPLES, find_pairs_without_peer_access
from tfdoctor.extensions.bench.render import make_bench_json, render_bench
from tfdoctor.extensions.bench.svg import make_bench_svg
from tfdoctor.system import CommandResult, RecordedSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tfdoctor.extensions.bench.models import Bench

TWO = ("GPU:0", "GPU:1")
MIB = 1 << 20


def make_link_xml(generation: int, lanes: int, most: tuple[int, int] = (4, 16)) -> str:
    """Return the PCIe section of one GPU in `nvidia-smi -q -x`, as in its DTD v12."""
    return (
        "<pci><pci_gpu_link_info><pcie_gen>"
        f"<max_link_gen>{most[0]}</max_link_gen><current_link_gen>{generation}</current_link_gen>"
        f"<max_device_link_gen>{most[0]}</max_device_link_gen><max_host_link_gen>{most[0]}</max_host_link_gen>"
        f"</pcie_gen><link_widths><max_link_width>{most[1]}x</max_link_width>"
        f"<current_link_width>{lanes}x</current_link_width></link_widths></pci_gpu_link_info></pci>"
    )


def measure_two_gpus(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    links: tuple[str, str],
    way: str,
    *parts: dict[str, Any],
    clock: str = "",
    peers: str = "",
) -> Bench:
    """Return the result for the recorded host `healthy-two-gpus` whose payload prints `parts`."""
    host = json.loads((HOSTS / "healthy-two-gpus" / "host.json").read_text("utf-8"))
    smi = host["commands"]["nvidia-smi -q -x"]
    first, second, end = smi["stdout"].split("  </gpu>\n")
    smi["stdout"] = f"{first}{links[0]}  </gpu>\n{second}{links[1]}  </gpu>\n{end}"
    topology = host["commands"]["nvidia-smi topo -m"]
    topology["stdout"] = topology["stdout"].replace("PIX", way)
    driver = host["commands"]["payload:driver"]
    driver["stdout"] = driver["stdout"].replace('"multiprocessors": 82', f'"multiprocessors": 82{clock}')
    if peers:
        peer_matrix = (
            topology["stdout"]
            .replace("\tCPU Affinity", "")
            .replace(f"\t{way}", f"\t{peers}")
            .replace("\t0-15", "")
        )
        host["commands"]["nvidia-smi topo -p2p r"] = {"stdout": peer_matrix}
    (folder / "host.json").write_text(json.dumps(host), "utf-8")
    system, compat = RecordedSystem(folder), Compat.load()
    monkeypatch.setattr(runner, "SAMPLE_INTERVAL_S", 0.01)
    card_reads = threading.Semaphore(0)

    def cards_now(recording: RecordedSystem) -> Any:
        cards = read_cards(recording)
        card_reads.release()
        return cards

    read_cards = runner.read_gpu_states
    monkeypatch.setattr(runner, "read_gpu_states", cards_now)

    def run(keep: Callable[[dict[str, Any]], None]) -> CommandResult:
        for part in (
            {"stage": "import", "tensorflow": "2.20.0"},
            make_devices_line("CPU:0", *TWO),
            *parts,
            {"end": True},
        ):
            keep(part)
        for _ in range(
            MIN_SAMPLES + 2
        ):  # the payload runs until the GPUs were read often enough, and once before it
            assert card_reads.acquire(timeout=60)
        return CommandResult(("python",), returncode=0)

    request = runner.BenchRequest(seconds=1)
    timing = runner.run_bench(
        system,
        compat,
        collect_facts(system, compat),
        request,
        lambda _: None,
        target="x",
        run=run,
        gpu_system=system,
    )
    return evaluate_bench(timing.measurements, timing.target, timing.expected_speeds)


def make_copy_line(source: str, target: str, gbps: float, size: int = 64 * MIB) -> dict[str, Any]:
    """Return the payload line of a copy between two devices."""
    return make_run_line(size / gbps / 1e9, source, target, workload="copy", size=size, bytes=size)


def test_reduced_lanes_are_reported_with_the_measured_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = measure_two_gpus(
        tmp_path,
        monkeypatch,
        (make_link_xml(4, 16), make_link_xml(3, 4)),
        "SYS",
        make_copy_line("CPU:0", "GPU:0", 12.6),
        make_copy_line("CPU:0", "GPU:1", 2.9),
        make_copy_line("GPU:0", "GPU:1", 2.5),
    )
    links = {(pair.first_device, pair.second_device): pair for pair in bench.links}
    assert links["CPU:0", "GPU:0"].description == "PCI Express 4.0 x16"
    assert links["CPU:0", "GPU:0"].max_gbps == pytest.approx(31.5, rel=1e-3)
    assert links["CPU:0", "GPU:0"].measured_gbps == pytest.approx(12.6)
    assert links["CPU:0", "GPU:1"].max_gbps == pytest.approx(3.94, rel=1e-3)
    assert (links[TWO].kind, links[TWO].description) == ("processors", "SYS")
    assert links[TWO].max_gbps == links["CPU:0", "GPU:1"].max_gbps  # limited by the slower of the two links
    (finding,) = bench.findings
    assert finding.code == "TFD831"
    assert finding.title == "GPU:1 uses 4 of 16 lanes and generation 3 of 4 of PCI Express"
    assert finding.explanation.endswith("At most 3.9 GB/s come to it. 2.9 GB/s were measured.")
    validate(make_bench_json(bench), "bench")
    assert "40 % of PCIe 4.0 x16" in render_bench(bench)


def test_reduced_pcie_generation_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = measure_two_gpus(
        tmp_path,
        monkeypatch,
        (make_link_xml(1, 16), make_link_xml(4, 16)),
        "PHB",
        make_copy_line("CPU:0", "GPU:0", 2.0),
    ).findings
    assert finding.title == "GPU:0 uses generation 1 of 4 of PCI Express"


def test_nvlink_bandwidth_by_number_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = measure_two_gpus(
        tmp_path,
        monkeypatch,
        (make_link_xml(4, 16), make_link_xml(4, 16)),
        "NV4",
        make_copy_line("GPU:0", "GPU:1", 40.0),
    )
    (nvlink,) = [pair for pair in bench.links if pair.kind == "nvlink"]
    assert nvlink.max_gbps == pytest.approx(
        56.25, rel=1e-3
    )  # compute capability 8.6: 14.06 GB/s for each link
    assert nvlink.measured_gbps == pytest.approx(40)
    assert bench.findings == ()


@pytest.mark.parametrize(
    ("said", "peer"), [("OK", True), ("CNS", False), ("NS", False), ("U", None), ("", None)]
)
def test_peer_access_is_read_from_topology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, peer: bool | None
) -> None:
    parts = [
        make_training_line(1.0, "GPU:0"),
        make_training_line(1.0, "GPU:1"),
        make_training_line(2.0, *TWO),
        make_training_line(0.5, *TWO, part="compute"),
    ]
    bench = measure_two_gpus(
        tmp_path, monkeypatch, (make_link_xml(4, 16), make_link_xml(4, 16)), "PHB", *parts, peers=said
    )
    (connection,) = [pair for pair in bench.links if pair.first_device == "GPU:0"]
    assert connection.has_peer_access is peer
    assert ("cannot reach each other's memory" in bench.scalings[0].reasons[0]) is (peer is False)


def test_links_are_unknown_without_nvidia_smi_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = measure_two_gpus(
        tmp_path,
        monkeypatch,
        ("", make_link_xml(9, 16, (9, 16))),
        "X9",
        make_copy_line("CPU:0", "GPU:0", 9.0),
    )
    links = {(pair.first_device, pair.second_device): pair for pair in bench.links}
    assert ("CPU:0", "GPU:0") not in links
    assert links["CPU:0", "GPU:1"].max_gbps is None
    assert TWO not in links
    assert bench.findings == ()
    validate(make_bench_json(bench), "bench")


def test_peak_of_each_data_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaks are unknown without a clock rate; float16 products are compared with the float16 peak."""
    bench = measure_two_gpus(tmp_path, monkeypatch, ("", ""), "PIX", make_training_line(1.0, "GPU:0"))
    assert all(not device.peak_gflops_by_dtype for device in bench.devices)
    product = make_run_line(0.1, "GPU:0", size=8192, flop=2.0 * 8192**3, dtype="float16")
    clock = ', "clock_khz": 1695000'
    bench = measure_two_gpus(
        tmp_path, monkeypatch, ("", ""), "PIX", product, make_training_line(1.0, "GPU:0"), clock=clock
    )
    gpu = bench.devices[1]
    assert gpu.peak_gflops == gpu.peak_gflops_by_dtype["float32"] == pytest.approx(35_600, rel=0.01)
    assert gpu.peak_gflops_by_dtype["tf32"] == gpu.peak_gflops_by_dtype["float32"]
    assert gpu.peak_gflops_by_dtype["float16"] == pytest.approx(71_000, rel=0.01)
    assert "11 TFLOP/s, 15 % of peak" in render_bench(bench)
    assert "the peak of GPU:0 in float16: 71.2 TFLOP/s" not in make_bench_svg(
        bench
    )  # a single size draws no limit line


@pytest.mark.parametrize(
    ("rows", "lacking"),
    [
        (("N Y", "Y N"), frozenset()),
        (("N N", "N N"), frozenset({("GPU:0", "GPU:1"), ("GPU:1", "GPU:0")})),
        (("N Y", "N N"), frozenset({("GPU:1", "GPU:0")})),
    ],
)
def test_peer_matrix_in_tensorflow_log(rows: tuple[str, str], lacking: frozenset[tuple[str, str]]) -> None:
    start = "2026-11-25 07:23:45.4: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1200] "
    lines = ["Device interconnect StreamExecutor with strength 1 edge matrix:", "     0 1 "]
    lines += [f"{number}:   {row} " for number, row in enumerate(rows)]
    assert find_pairs_without_peer_access("\n".join(start + line for line in lines)) == lacking
    assert find_pairs_without_peer_access("nothing of the kind") is None
