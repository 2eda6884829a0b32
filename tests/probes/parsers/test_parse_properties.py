"""Properties of every parser on any text: it returns a result that JSON can hold, in time linear in the text."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfdoctor.probes.parsers.registry import PARSERS, detect_kind

# Pieces of real outputs lead parsers into branches that random characters alone never reach.
PIECES = (
    "| NVIDIA-SMI 999.1 Driver Version: 999.1 CUDA Version: 9.9 |",
    "|   0  Tesla T4  Off  | 00000000:01:00.0 Off |", "| N/A 1C P0 1W / 1W | 1MiB / 2MiB | 0% Default |",
    "+---+---+", "|=====+=====|", "| Processes: GPU Memory |", "| MIG devices: |", "|  0    7   0   0  |",
    "|    0   N/A  N/A  12  C  python  3MiB |", "|    0     12  G  X  N/A |", "| Not Supported |",
    "|    0     Not Supported |", "No running processes found", "\\n\",", "\"", "\x1b[4m", "\x1b]0;",
    "GPU 0: T4 (UUID: GPU-1)", "MIG 1g.5gb Device 0: (UUID: MIG-1)", "\tGPU0\tCPU Affinity",
    "GPU0\t X \t0-3", "GPU 00:00:00.0", "FB Memory Usage", "        Total : 1 MiB", "Processes : None",
    "<nvidia_smi_log>", "<gpu id='0'>", "</gpu>", "<!DOCTYPE nvidia_smi_log [", "]>", "&a;",
    "</nvidia_smi_log>", "01:00.0 VGA compatible controller [0300]: a [10de:1b80]",
    "01:00.0 \"a [0300]\" \"b\"", "Kernel driver in use: nvidia", "nvidia 1000 1 a,b", "ii a 1 amd64 b",
    "a/b 1 amd64", "a==1", "a=1=b", "a (1)", "a  1  b_0  c", "liba.so (libc6) => /a", "liba.so -> libb.so",
    "#define CUDNN_MAJOR 9", "\"cuda\" : {", "\"version\" : \"1.2\"", "CUDA Version 1.2.3",
    "release 1.2, V1.2.3", "Built on a_b", "Build cuda_1", "NVRM version: NVIDIA 1.2 GCC version: x",
    "Device Index: 0", "Model: (null)", "Runtimes: nvidia", "map[a:{", "{\"Runtimes\":{",
    "== check pips ==", "== env ==", "LD_LIBRARY_PATH is unset", "name, memory.total [MiB]", "T4, 1 MiB",
    "[N/A]", "Unable to determine the device handle for GPU 0000:01:00.0: x", "nvml error: ",
    "nvidia-smi: not found", "exit status 9", "9" * 30, "\r", "\u3000", "│ ", "> ", "`", "^C", "<br>",
    "\ud800", "İ", "²", "٣",
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.one_of(st.sampled_from(PIECES), st.sampled_from(" \n\n\t|"), st.text(max_size=8)), max_size=60
    ).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=40).map("\n".join),
)


@pytest.mark.parametrize("kind", PARSERS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXTS)
def test_any_text_is_parsed(kind: str, text: str) -> None:
    result = PARSERS[kind](text).as_dict()
    assert json.loads(json.dumps(result)) == result


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXTS)
def test_detect_accepts_any_text(text: str) -> None:
    assert detect_kind(text) in {None, *PARSERS}


REPEATED_UNITS = (
    " ", "a", "\t|", "+-", "| 0 T Off ", "0 N/A N/A 1 C a ", "a (", "a -> => ", "a=", "0:00:", "GPU 0: ",
    "\"a\":{", "\x1b[", "\\n", "1.", "a, ",
)  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", [*PARSERS, "auto"])
def test_long_lines_take_linear_time(kind: str) -> None:
    """Parse 200 kB on one line: a quadratic parser takes many minutes, so the limit can be generous."""
    run = detect_kind if kind == "auto" else PARSERS[kind]
    size = 200_000
    for unit in REPEATED_UNITS:
        text = unit * (size // len(unit)) + "x---==="
        started = time.process_time()
        run(text)
        assert time.process_time() - started < 6, unit
