"""Whole outputs of command lines and of results; `pytest tests/render --refresh` rewrites the files in `expected`.

No command here examines this machine, and most name an old release, whose data no longer change. What is compared is
what users read; a test elsewhere need not repeat it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.planner import call_tfdoctor
from extensions.bench.made import make_bench, make_devices_line, make_run_line, make_training_line
from extensions.fleet.made import answer, gather_results, with_value
from extensions.lint import cases
from recorded import HOSTS, load_report
from render.screens import fix_screen, load_log_report
from tfdoctor import __version__
from tfdoctor.core.findings import Cause, Observation, Severity, Simulation, Stage, Verification
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.environments.candidates import list_fix_candidates, list_unfixed, make_environment
from tfdoctor.environments.history.journal import UndoResult
from tfdoctor.environments.history.record import HistoryEntry
from tfdoctor.environments.models import Attempt, FixOffer, FixResult, FixStatus
from tfdoctor.extensions.bench.html import make_benchmark_html
from tfdoctor.extensions.bench.models import GpuObservation, Interconnect
from tfdoctor.extensions.bench.render import render_bench
from tfdoctor.extensions.bench.svg import make_bench_svg
from tfdoctor.extensions.fleet.analysis import evaluate_fleet
from tfdoctor.extensions.fleet.html import make_fleet_html
from tfdoctor.logs.excerpt import make_excerpt
from tfdoctor.render import notebook
from tfdoctor.render.fix import render_fix, render_undo
from tfdoctor.render.html.check import make_report_html
from tfdoctor.render.html.log import make_logs_html
from tfdoctor.render.html.verify import make_verification_html
from tfdoctor.render.install import render_installation
from tfdoctor.render.report import render_report
from tfdoctor.render.run_summary import render_run
from tfdoctor.render.verify import make_junit_xml, render_result, render_simulation, render_stage

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parents[1]
EXPECTED = Path(__file__).with_name("expected")
PLACEMENT_LOG = """\
Device mapping:
/job:localhost/replica:0/task:0/device:GPU:0 -> device: 0, name: Tesla T4, pci bus id: 0000:00:05.0, compute capability: 7.5
/job:localhost/replica:0/task:0/device:GPU:1 -> device: 1, name: Tesla T4, pci bus id: 0000:00:06.0, compute capability: 7.5
"""
DOCKERFILE = """\
FROM nvidia/cuda:11.2.2-base-ubuntu20.04
RUN apt-get update && apt-get install -y python3-pip
ENV CUDA_VISIBLE_DEVIES=0
RUN pip3 install tensorflow==2.15.0
"""
COMPOSE = """\
services:
  train:
    build: .
  serve:
    image: tensorflow/tensorflow:2.4.0-gpu
    deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}
  other:
    image: ${IMAGE}
"""
NVIDIA_SMI = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.82.01    Driver Version: 470.82.01    CUDA Version: 11.4     |
+-----------------------------------------------------------------------------+
"""
CLUSTER = (
    '{"cluster": {"worker": ["a:1", "b1", "c:1"], "ps": ["a:1"]}, "task": {"type": "worker", "index": 5}}'
)
COMMANDS = {
    "check": (
        "check --from hosts/hidden-by-minus-one --against hosts/healthy-one-gpu",
        "check --from hosts/updated-without-restart --against hosts/two-other-cudas -v",
        "check --from hosts/driver-hangs -v",
        *(
            f"check --from hosts/{host}"
            for host in (
                "healthy-two-gpus",
                "container-without-gpu",
                "driver-hangs",
                "blackwell-with-tf218",
                "two-other-cudas",
                "hidden-by-slurm",
                "misspelt",
                "environment-gone-and-another-works",
            )
        ),
        "COLUMNS=100 check --from hosts/container-without-gpu -v",
        "check --from hosts/container-without-gpu -q",
        "COLUMNS=50 check --from hosts/mig-parent",
        "report --from hosts/healthy-two-gpus",
        "report --from hosts/updated-without-restart",
        "parse auto smi.txt",
    ),
    "recommend": (
        "recommend --gpu 'RTX 3090' --driver 470.82 --tf 2.10",
        "recommend --gpu 'RTX 3090' --driver 470.82 --tf 2.10 -v",
        "COLUMNS=72 recommend --gpu 'RTX 3090' --driver 470.82 --tf 2.10",
        "COLUMNS=60 recommend --gpu 'GTX 1080 Ti' --driver 535 --tf 2.4",
        "recommend --gpu 'GTX 680' --tf 2.4",
        "recommend --gpu 'RTX 4090' --driver 450.80 --tf 1.14 -v",
        "recommend --from hosts/jetson-with-a-desktop-wheel --tf 2.10",
        "recommend --from hosts/wsl2-healthy --tf 2.10 --method pip",
        "build --anywhere --tf 2.4 --dry-run",
        "build --check Dockerfile",
        "build --check compose.yaml",
    ),
    "matrix": (
        "matrix --tf 2.4 --all",
        "matrix --tf 2.4",
        "matrix --tf 1.15 --gpu 8.6",
        "matrix --tf 2.4 --gpu 'RTX 3060'",
        "COLUMNS=50 matrix --tf 2.4 --gpu 7.5 --all",
        "matrix --tf 1.15 --gpu 'GTX 1080 Ti' --format markdown",
        "matrix --cuda 11.2",
        "COLUMNS=140 matrix --cuda 10",
        "COLUMNS=140 matrix --cuda 10 --gpu 'GTX 1080 Ti'",
        "COLUMNS=60 matrix --cuda 11.2 --gpu 9.0",
        "matrix --cuda 10.0 --windows",
        "matrix --cuda 9 --format markdown",
        "matrix --cuda 11.2 --cudnn 7",
    ),
    "explain": (
        "explain TFD203",
        "explain TFD203 -v",
        "explain libs-unlisted",
        "COLUMNS=50 explain inconclusive -v",
        "explain TFD711",
    ),
    "diagnose": (
        "diagnose logs/lab/2.1.4-cc-80-30.log",
        "diagnose logs/lab/2.1.4-without-cusolver.log -v",
        "COLUMNS=50 diagnose logs/lab/2.21.0-all-missing-named.log",
        "diagnose logs/lab/2.4.4-all-present.log logs/data/tf210-without-cusolver.txt",
        "diagnose --format markdown logs/lab/1.14.0-another-cuda.log",
        "diagnose --format markdown logs/lab/2.10.1-all-missing.log",
        "diagnose empty.log",
        "diagnose --placement placement.log",
        "diagnose --placement placement.log -v --svg ops.svg",
        "COLUMNS=50 diagnose --placement placement.log",
        "diagnose --placement empty.log",
    ),
    "extensions": (
        f"cluster --tf-config {shlex.quote(CLUSTER)}",
        f"cluster --tf-config {shlex.quote(CLUSTER)} -v",
        "cluster server.py",
        "fleet report fleet",
        "fleet report fleet -v",
        "COLUMNS=50 fleet report fleet",
        "lint --tf 2.16 --gpu-count 1 lint",
        "lint --tf 2.16 --gpu-count 1 --format sarif lint/misspelt.py",
        "lint --tf 2.16 --gpu-count 1 --format junit lint",
        "lint --tf 2.16 --gpu-count 1 --diff lint",
    ),
}
"""Command lines by the name of the expected file. `COLUMNS=N` before one sets the width of the terminal."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the command lines name."""
    path = tmp_path_factory.mktemp("snapshots")
    for name in ("hosts", "logs"):
        (path / name).symlink_to(TESTS / name)
    ops = (
        "MatMul",
        "Conv2D",
        "Relu",
        "Const",
        "Add",
        "Mul",
        "Sub",
        "Shape",
        "Cast",
        "Pad",
        "Max",
        "Min",
        "Sum",
        "Exp",
    )
    lines = [
        f"n{number}: ({op}): /job:localhost/replica:0/task:0/device:{'CPU' if number % 5 == 0 else 'GPU'}:0"
        for number, op in enumerate(op for rank, op in enumerate(ops, 1) for _ in range(rank))
    ]
    files = {
        "placement.log": PLACEMENT_LOG + "\n".join(lines) + "\n",
        "empty.log": "",
        "Dockerfile": DOCKERFILE,
        "compose.yaml": COMPOSE,
        "smi.txt": NVIDIA_SMI,
        "server.py": 'c = tf.train.ClusterSpec({"worker": ["a:1", "b"]})\ntf.train.Server(c, "worker", 3)\n',
        "lint/Dockerfile": cases.DOCKERFILE,
        "lint/job.sh": cases.SHELL,
        "lint/job.yaml": cases.YAML,
        "lint/misspelt.py": 'import os\nos.environ["CUDA_VISIBLE_DEVIES"] = "0"\n',
    }
    files |= {f"lint/{name.replace(' ', '-')}.py": text for name, text in cases.PYTHON.items()}
    hosts = {f"node{number}": answer("healthy-two-gpus", number, at=None) for number in range(4)}
    hosts |= {
        "odd": answer("driver-too-old-for-libcuda", 9, at=None),
        "other": with_value(answer("healthy-two-gpus", 8, at=None), "TensorFlow", "TensorFlow", "2.10.0"),
    }
    files |= {f"fleet/{name}.json": json.dumps(result) for name, result in hosts.items()}
    files["fleet/broken.json"] = "{"
    for name, text in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return path


def run_line(line: str, folder: Path) -> str:
    """Return the output of a command line, after it and its exit status."""
    words = shlex.split(line)
    columns = words.pop(0).partition("=")[2] if words[0].startswith("COLUMNS=") else "80"
    result = call_tfdoctor(*words, env={"COLUMNS": columns, "TERM": "dumb", "FORCE_COLOR": ""}, cwd=folder)
    return (
        f"$ {shlex.join(words)}  # {columns} columns, exit status {result.status}\n{result.out}{result.err}\n"
    )


def compare_with_expected(name: str, text: str, refresh: bool) -> None:
    text = re.sub(rf'(\btfdoctor (?:report` )?|"){re.escape(__version__)}', r"\1VERSION", text)
    text = re.sub(r"(?i)(as of) \d{4}-\d\d-\d\d", r"\1 DATE", text)
    path = EXPECTED / f"{name}.txt"
    if refresh:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_output_is_as_expected(name: str, folder: Path, refresh: bool) -> None:
    text = "".join(run_line(line, folder) for line in COMMANDS[name])
    if name == "diagnose":
        text += (folder / "ops.svg").read_text(encoding="utf-8")
        (folder / "ops.svg").unlink()
    compare_with_expected(name, text.replace(str(folder), "FOLDER"), refresh)


# ---------------------------------------------------------------- results that no command can repeat


def make_verification(host: str, *, simulated: bool = False) -> Verification:
    report = load_report(HOSTS / host)
    stages = (
        Stage("runtime", "passed", "a container starts with --gpus all", 0.5),
        Stage("driver", "failed", "no device", 0.04),
        Stage("libraries", "skipped", "not tried: driver failed", 0.0),
    )
    simulation = Simulation(
        "RTX 4090", ("RTX 4090",), ("8.9",), "580", "13.0", ("it starts",), ("speed", "memory", "heat")
    )
    return Verification(
        "an-image:latest",
        stages,
        1,
        0,
        0,
        Cause.NO_DEVICE,
        report.verdict.summary,
        tuple(finding for finding in report.findings if finding.severity > Severity.INFO),
        simulated=simulation if simulated else None,
    )


def list_verification_texts() -> list[str]:
    texts = []
    for host, simulated in (("plain-pip-install", False), ("container-without-gpu", True)):
        verification = make_verification(host, simulated=simulated)
        texts += [render_stage(stage) for stage in verification.stages]
        texts += [render_simulation("RTX 4090 and driver 580", width=50), make_junit_xml(verification)]
        texts += [render_result(verification, verbose=verbose) for verbose in (False, True)]
        texts.append(render_result(verification, quiet=True, width=50))
    return texts


def list_fix_texts() -> list[str]:
    """Return the plans and results of `fix`, with an attempt of each status."""
    texts = [text for host in ("two-other-cudas", "nouveau") if (text := fix_screen(HOSTS / host))]
    report, healthy = load_report(HOSTS / "two-other-cudas"), load_report(HOSTS / "healthy-one-gpu")
    environment = make_environment(report, "venv")
    assert environment is not None
    candidate = list_fix_candidates(report, environment)[0]
    attempts = tuple(
        Attempt(candidate, status, ("ln -s a b", "+ export X=1", "pip install c"), "It did not help.", count)
        for status, count in zip(FixStatus, (0, 1, 2, 3), strict=True)
    )
    unfixed = tuple(list_unfixed(load_report(HOSTS / "updated-without-restart"), environment))
    observed = Observation(
        import_ok=True, gpu_registered=True, gpu_count=1, missing_libraries=(), seconds=4.2,
        devices=("GPU:0",), computed=("GPU:0 failed: no kernel", "GPU:1 is right"),
    )  # fmt: skip
    result = FixResult(
        environment, attempts, unfixed, report, healthy, ("An earlier fix was finished.",), observed
    )
    texts += [
        render_fix(result, is_plan=is_plan, asks_next=asks_next, verbose=verbose, quiet=quiet)
        for is_plan, asks_next, verbose, quiet in (
            (True, False, False, False), (True, True, True, False), (False, False, False, False),
            (False, False, True, False), (False, False, False, True),
        )
    ]  # fmt: skip
    texts.append(render_fix(FixResult(environment, (), unfixed, report, report), is_plan=False))
    entry = HistoryEntry(1, "link the libraries", ("TFD203",), "2026-01-31 12:00", 2)
    texts += [render_undo("/srv/tf", UndoResult(entries, 2, ("/srv/tf/a",))) for entries in ((), (entry,))]
    texts += [
        render_installation("/srv/a b", load_report(HOSTS / host), is_correct=is_correct, verbose=False)
        for host in ("healthy-one-gpu", "misspelt", "hidden-by-minus-one")
        for is_correct in (True, False)
    ]
    return texts


def list_deep_texts() -> list[str]:
    """Return the screens of `check --deep`, of notebooks and of `run`."""
    texts = []
    for host in ("healthy-one-gpu", "plain-pip-install", "driver-hangs", "misspelt"):
        report = load_report(HOSTS / host)
        observed = Observation(
            import_ok=True, gpu_registered=False, gpu_count=0, missing_libraries=("liba.so",), seconds=4.2,
            devices=(), computed=("GPU:0 failed: no kernel",), error="no device",
        )  # fmt: skip
        deep_report = dataclasses.replace(report, observed=observed)
        offer = FixOffer("tfdoctor fix --python /srv/tf/bin/python", report.findings[:1])
        texts += [render_report(deep_report, verbose=verbose, offer=offer) for verbose in (False, True)]
        texts += [notebook.make_report_html(report, offer=item, notes=("a note",)) for item in (None, offer)]
    logs = [
        load_log_report(TESTS / "logs/data" / name)
        for name in ("tf210-all-present.txt", "tf212-off-path.txt")
    ]
    for log, status, failures, lost_bytes in (
        (logs[0], 0, (), 0),
        (logs[1], -9, ("a pipe",), 5_000_000),
        (None, 1, (), 0),
    ):
        for quiet in (False, True):
            texts.append(
                render_run(
                    ["python", "a b.py"], status, log, has_messages=True, failures=failures, lost_bytes=lost_bytes,
                    notes=("a note", "another"), verbose=False, quiet=quiet,
                )
            )  # fmt: skip
    return texts


def list_bench_texts() -> list[str]:
    two = ("GPU:0", "GPU:1")
    parts = [
        make_run_line(1e-3 * size / 64, device, size=size, flop=2.0 * size**3)
        for size in (64, 256, 1024)
        for device in ("CPU:0", "GPU:0")
    ]
    parts += [make_run_line(2e-4, device, size=1024, flop=2.0 * 1024**3, dtype="float16") for device in two]
    parts += [
        make_training_line(1.0, "GPU:0"), make_training_line(1.1, "GPU:1"), make_training_line(2.0, *two),
        make_training_line(0.5, *two, part="compute"), make_training_line(0.7, *two, part="allreduce"),
        make_run_line(0.01, *two, workload="copy", size=1 << 24, bytes=1 << 24),
        make_run_line(0.02, "GPU:0", workload="conv", size=64, xla=True),
        make_run_line(1.0, "GPU:1", left_out="the time is used up", samples=[]),
    ]  # fmt: skip
    watched = (
        GpuObservation(
            "GPU:1",
            other_processes=("python",),
            slowdowns=("sw_power_cap",),
            max_temperature=91,
            power_limit=60.0,
            default_power_limit=300.0,
        ),
    )
    links = (
        Interconnect("CPU:0", "GPU:0", "pcie", "PCI Express 4.0 x16", 31.5),
        Interconnect(*two, "nvlink", "NV4", 56.2),
    )
    full = make_bench(
        make_devices_line("CPU:0", *two), *parts, watched=watched, links=links, peaks={"GPU:0": 2e4}
    )
    disturbed = make_bench(make_devices_line("CPU:0"), make_run_line(1.0, others=0.5))
    texts = [
        render_bench(bench, verbose=verbose)
        for bench in (full, disturbed, make_bench())
        for verbose in (False, True)
    ]
    return [
        *texts,
        make_bench_svg(full),
        make_bench_svg(full, "dark"),
        read_page(make_benchmark_html(full, Redactor())),
    ]


def read_page(page: bytes) -> str:
    """Return a page without its style and scripts, and without the times that examining took."""
    text = re.sub(r"<(style|script).*?</\1>|<meta[^>]*>|src=\"[^\"]*\"", "", page.decode(), flags=re.DOTALL)
    lines = [line for line in text.splitlines() if line.strip() and ">seconds." not in line]
    facts = [line for line in lines if line.startswith('<tr><th scope="row">')]
    return "\n".join(line for line in lines if line not in facts[80:]) + "\n"


def list_pages() -> list[str]:
    texts = [
        read_page(
            make_report_html(
                load_report(HOSTS / host),
                check_command="tfdoctor check",
                fix_command=fix,
                differences=("a",) * bool(fix),
            )
        )
        for host, fix in (("stub-before-the-driver", "tfdoctor fix"), ("driver-hangs", None))
    ]
    for name in ("tf210-all-present.txt", "tf212-off-path.txt"):
        path = TESTS / "logs/data" / name
        log_report = load_log_report(path)
        texts.append(
            read_page(
                make_logs_html([(log_report, make_excerpt([path.read_bytes()], log_report))], Redactor())
            )
        )
    texts += [
        read_page(make_verification_html(make_verification("plain-pip-install", simulated=item), Redactor()))
        for item in (False, True)
    ]
    hosts = {
        name: answer(host, number, at=None)
        for number, (name, host) in enumerate(
            (("a", "healthy-two-gpus"), ("b", "healthy-two-gpus"), ("c", "kernel-updated"))
        )
    }
    return [*texts, read_page(make_fleet_html(evaluate_fleet("folder", gather_results(hosts))))]


@pytest.mark.parametrize(
    "make_texts", [list_verification_texts, list_fix_texts, list_deep_texts, list_bench_texts, list_pages]
)
def test_result_is_shown_as_expected(make_texts: Callable[[], list[str]], refresh: bool) -> None:
    name = make_texts.__name__.removeprefix("list_").removesuffix("_texts")
    compare_with_expected(name, "\n".join(make_texts()), refresh)


def test_no_command_in_a_sentence_is_broken() -> None:
    """A command that is printed on two lines cannot be copied. Only what is wider than a line may be broken."""
    for path in sorted(EXPECTED.glob("*.txt")):
        lines = path.read_text().splitlines()
        for line, next_line in itertools.pairwise(lines):
            if line.count("`") % 2 and next_line.count("`") % 2 and "`tfdoctor" in f"{line} {next_line}":
                code = f"{line.rpartition('`')[2]} {next_line.strip().partition('`')[0]}"
                assert len(code) > 60 or "tfdoctor" not in code, (path.name, code)
