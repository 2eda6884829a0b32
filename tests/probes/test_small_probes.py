"""Probes of the machine, its addresses, its toolkits, and files that may not be used."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rules.make_facts import healthy, make_missing, with_loader
from tfdoctor.core.facts import (
    FOLDER_DENIED,
    NOEXEC_ERROR,
    PERMISSION_DENIED,
    Absent,
    Known,
    LoadAttempt,
    SmiProcess,
    Unknown,
    value_of,
)
from tfdoctor.core.facts.python import DeniedPath
from tfdoctor.probes import machine, network, permissions, processes, toolkits
from tfdoctor.system import RecordedSystem


def make_system(**host: Any) -> RecordedSystem:
    """Return a recorded machine with these tables of host.json."""
    return RecordedSystem({"host.json": json.dumps({"schema_version": 1, **host}).encode()})


# ---------------------------------------------------------------- the machine


def test_operating_system_and_processor() -> None:
    release = 'ID=ubuntu\nID_LIKE="debian other"\nPRETTY_NAME=\'Ubuntu 22.04\'\nVERSION_ID="22.04"\nlower=1\n'
    facts = machine.probe(
        make_system(
            platform={"system": "Linux", "machine": "x86_64", "release": "6.1", "uid": "0"},
            files={
                "/usr/lib/os-release": release,
                "/proc/cpuinfo": "vendor_id\t: GenuineIntel\nflags\t\t: avx lm\n\nflags : later\n",
                "/etc/nv_tegra_release": "",
            },
        )
    )
    assert (facts.system, facts.machine, facts.kernel) == ("Linux", "x86_64", "6.1")
    assert (facts.distribution, facts.distribution_id, facts.distribution_version) == (
        "Ubuntu 22.04",
        "ubuntu",
        "22.04",
    )
    assert facts.distribution_like == ("debian", "other")
    assert facts.cpu_flags == {"avx", "lm", "GenuineIntel"}
    assert (facts.root, facts.jetson, facts.wsl, facts.container) == (True, True, None, None)
    both = {"/etc/os-release": "ID=etc\n", "/usr/lib/os-release": "ID=usr\n"}
    facts = machine.probe(make_system(files=both, platform={"uid": "1000"}))
    assert (facts.distribution_id, facts.root, facts.jetson, facts.cpu_flags) == (
        "etc",
        False,
        False,
        frozenset(),
    )
    assert machine.probe(make_system()).root is None
    assert machine.parse_cpu_flags("Features : asimd\n") == {"asimd"}


@pytest.mark.parametrize(
    ("line", "limits"),
    [
        (
            "Max address space         1536000000           unlimited            bytes     ",
            (1536000000, None),
        ),
        (
            "Max address space         1536000000           1536000000           bytes",
            (1536000000, 1536000000),
        ),
        ("Max address space         unlimited            unlimited            bytes", (None, None)),
        ("Max cpu time              1                    2                    seconds", (None, None)),
    ],
)
def test_limits_of_the_address_space(line: str, limits: tuple[int | None, int | None]) -> None:
    assert machine.parse_address_limits(f"Limit                     Soft Limit\n{line}\n") == limits


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "max\n"}, None),
        (
            {
                "/proc/self/cgroup": "0::/a/b\n",
                "/sys/fs/cgroup/a/b/memory.max": "300000000\n",
                "/sys/fs/cgroup/a/memory.max": "200000000\n",
                "/sys/fs/cgroup/memory.max": "max\n",
            },
            200000000,
        ),
        # A container may see the group of its host, and has only the mount point.
        ({"/proc/self/cgroup": "0::/../..\n", "/sys/fs/cgroup/memory.max": "9\n"}, 9),
        (
            {
                "/proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/docker/1\n0::/\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "134217728\n",
            },
            134217728,
        ),
        (
            {
                "/proc/self/cgroup": "4:memory:/\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            None,
        ),
    ],
)
def test_memory_limit_of_the_cgroups(files: dict[str, str], limit: int | None) -> None:
    assert machine.probe(make_system(files=files)).memory_limit == limit


@pytest.mark.parametrize(
    ("host", "container"),
    [
        ({"exists": {"/.dockerenv": True, "/run/.containerenv": True}}, "docker"),
        ({"exists": {"/.dockerenv": True}, "env": {"KUBERNETES_SERVICE_HOST": "x"}}, "kubernetes"),
        ({"exists": {"/run/.containerenv": True}, "env": {"KUBERNETES_SERVICE_HOST": "x"}}, "podman"),
        ({"env": {"APPTAINER_CONTAINER": "x", "KUBERNETES_SERVICE_HOST": "x"}}, "apptainer"),
        ({"env": {"SINGULARITY_CONTAINER": "x"}}, "apptainer"),
        ({"env": {"KUBERNETES_SERVICE_HOST": "x", "container": "lxc"}}, "kubernetes"),
        ({"env": {"container": "lxc"}}, "lxc"),
        ({"env": {"container": "systemd-nspawn"}}, "systemd-nspawn"),
        ({"env": {"container": "new"}, "files": {"/proc/1/cgroup": "0::/docker/1"}}, "container"),
        ({"files": {"/proc/1/cgroup": "1:x:/kubepods/docker/1"}}, "kubernetes"),
        ({"files": {"/proc/1/cgroup": "1:x:/docker/1"}}, "docker"),
        ({"files": {"/proc/1/cgroup": "1:x:/libpod_parent"}}, "podman"),
        ({"files": {"/proc/1/cgroup": "1:x:/lxc/1"}}, "lxc"),
        ({"files": {"/proc/1/cgroup": "0::/init.scope docker"}}, None),
    ],
)  # fmt: skip
def test_kind_of_container(host: dict[str, Any], container: str | None) -> None:
    assert machine.probe(make_system(**host)).container == container


@pytest.mark.parametrize(
    ("kernel", "version", "has_dxg", "wsl"),
    [
        ("5.15-microsoft-standard-WSL2", "", False, 2),
        ("4.19-Microsoft-standard", "", False, 2),
        ("4.4.0-19041-Microsoft", "", False, 1),
        ("4.4.0-19041-Microsoft", "", True, 2),
        ("5.15-custom", "Linux version 5.15 (root@Microsoft) WSL2", False, 2),
        ("6.1", "Linux version 6.1", True, None),
    ],
)
def test_version_of_wsl(kernel: str, version: str, has_dxg: bool, wsl: int | None) -> None:
    host = {
        "platform": {"release": kernel},
        "files": {"/proc/version": version},
        "exists": {"/dev/dxg": has_dxg},
    }
    assert machine.probe(make_system(**host)).wsl == wsl


# ---------------------------------------------------------------- the network

TCP = """  sl  local_address rem_address   st tx_queue rx_queue
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000
   1: 0100007F:1F91 0100007F:0050 01 00000000:00000000
   2: 0100007F:XXXX 00000000:0000 0A 00000000:00000000
   3: 0100007F:1F92 00000000:0000 0A
"""
TCP6 = "  0: 00000000000000000000000000000000:08AE 0:0 0A 0\n"
FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.7
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
     |-- 999.0.0.7
        /32 host LOCAL
"""
IF_INET6 = "fe80000000000000000000000000abcd 02 40 20 80 eth0\nshort 01\n\n"


@pytest.mark.parametrize(
    ("files", "ports", "addresses"),
    [
        ({"tcp": TCP, "tcp6": TCP6}, {8080, 2222}, set()),
        ({"tcp6": TCP6}, {2222}, set()),
        ({"tcp": ""}, set(), set()),
        ({"fib_trie": FIB_TRIE, "if_inet6": IF_INET6}, None, {"10.0.0.7", "fe80::abcd"}),
        ({}, None, set()),
    ],
)
def test_listening_ports_and_addresses(
    files: dict[str, str], ports: set[int] | None, addresses: set[str]
) -> None:
    listening = network.probe_listening(
        make_system(files={f"/proc/net/{name}": text for name, text in files.items()})
    )
    assert (listening.ports, listening.addresses) == (ports, addresses)


# ---------------------------------------------------------------- toolkits


def test_toolkits_of_all_places_are_found_once() -> None:
    system = make_system(
        cwd="/srv",
        env={"CUDA_HOME": "/data/cuda", "CUDA_ROOT": "/absent", "XLA_FLAGS": "--a --xla_gpu_cuda_data_dir=xla/cuda --b"},
        directories={"/usr/local": ["bin", "cuda", "cuda-12.5", "notes"]},
        links={"/usr/local/cuda": "/usr/local/cuda-12.5"},
        files={
            "/usr/local/cuda-12.5/bin/ptxas": "",
            "/data/cuda/version.json": "{}",
            "/data/cuda/version.txt": "CUDA Version 10.1.243\n",
            "/opt/cuda/nvvm/libdevice/libdevice.10.bc": "",
            "/srv/xla/cuda/version.json": '{"cuda": {"version": "12.3.2"}}',
            "/srv/xla/cuda/version.txt": "CUDA Version 1.0\n",
        },
    )  # fmt: skip
    found = [(kit.path, kit.version, kit.libdevice, kit.ptxas) for kit in toolkits.probe(system)]
    assert found == [
        ("/usr/local/cuda", "12.5", False, True),
        ("/data/cuda", "10.1.243", False, False),
        ("/opt/cuda", None, True, False),
        ("/srv/xla/cuda", "12.3.2", False, False),
    ]
    absolute = make_system(env={"XLA_FLAGS": "--xla_gpu_cuda_data_dir=/x"}, directories={"/x": []})
    assert [kit.path for kit in toolkits.probe(absolute)] == ["/x"]


def test_release_of_nvcc() -> None:
    text = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.5, V12.5.82\n"
    for commands, which, expected in (
        ({}, {}, Absent),
        ({"nvcc --version": {"stdout": text}}, {"nvcc": "/bin/nvcc"}, Known),
        ({"nvcc --version": {"stdout": text, "returncode": 1}}, {"nvcc": "/bin/nvcc"}, Unknown),
        ({"nvcc --version": {"stdout": "?"}}, {"nvcc": "/bin/nvcc"}, Unknown),
    ):
        fact = toolkits.probe_nvcc(make_system(commands=commands, which=which), timeout=1)
        assert isinstance(fact, expected)
        assert value_of(fact) in (None, "12.5")


# ---------------------------------------------------------------- files that may not be used


def test_owner_of_the_nearest_visible_path() -> None:
    system = make_system(
        platform={"uid": "1000"},
        commands={
            "stat /data/a": {"stdout": "1000 700\n"},
            "stat /srv/x": {"stdout": "1001 640"},
            "stat /srv": {"stdout": "0 755"},
            "stat /bad": {"stdout": "root 755"},
            "stat /short": {"stdout": "0"},
            "stat /failed": {"stdout": "0 755", "returncode": 1},
            "id -nu 1001": {"stdout": "other\n"},
        },
    )
    own = permissions.explain_denied(system, "/data/a/b/c")
    assert own == DeniedPath("/data/a/b/c", closed="/data/a", owner="1000", own=True, mode="700")
    other = permissions.explain_denied(system, "/srv/x")
    assert (other.closed, other.owner, other.own, other.mode) == ("/srv/x", "other", False, "640")
    for path in ("/bad", "/short", "/failed", "relative"):
        assert permissions.explain_denied(system, path) == DeniedPath(path, closed=path)


def test_only_denied_files_of_failed_libraries_are_explained() -> None:
    attempts = (
        LoadAttempt("/a/../a/lib.so", PERMISSION_DENIED, "RPATH"),
        LoadAttempt("/a/lib.so", NOEXEC_ERROR, "RPATH"),
        LoadAttempt("/n/lib.so", NOEXEC_ERROR, "RPATH"),
        LoadAttempt("/f/lib.so", FOLDER_DENIED, "RPATH"),
        LoadAttempt("/cut/lib.so", "file too short", "RPATH"),
    )
    failed = replace(make_missing("libcudnn.so.9"), tried=attempts)
    system = make_system()
    facts = with_loader(healthy(), failed)
    explained = value_of(permissions.add_denied_files(system, facts.loader))
    assert explained is not None
    assert [(denied.path, denied.why) for denied in explained.denied] == [
        ("/a/lib.so", DeniedPath("", closed="").why),
        ("/n/lib.so", "noexec"),
        ("/f/lib.so", DeniedPath("", closed="").why),
    ]
    loader = value_of(facts.loader)
    assert loader is not None
    opened = replace(loader.resolutions[0], tried=attempts)
    unchanged = with_loader(healthy(), opened).loader
    assert permissions.add_denied_files(system, unchanged) is unchanged
    unknown = Unknown("x")
    assert permissions.add_denied_files(system, unknown) is unknown
    many = tuple(LoadAttempt(f"/{number}/lib.so", NOEXEC_ERROR, "RPATH") for number in range(60))
    facts = with_loader(healthy(), replace(failed, tried=many))
    explained = value_of(permissions.add_denied_files(system, facts.loader))
    assert explained is not None
    assert len(explained.denied) == permissions.MAX_FILES


# ---------------------------------------------------------------- processes


def test_names_of_other_users_are_looked_up() -> None:
    def make_status(number: int) -> str:
        return f"Name:\tp{number}\nState:\tS (sleeping)\nUid:\t{number}\t1\n"

    uids = (1000, 7, 8, 9, 10, 11, 12)
    system = make_system(
        platform={"uid": "1000", "system": "Linux"},
        files={"/proc/1/status": "", **{f"/proc/{uid}/status": make_status(uid) for uid in uids}},
        errors={"/proc/99/status": ["read", 13, "Permission denied"]},
        commands={
            "id -nu 7": {"stdout": "seven\n"},
            "id -nu 8": {"stdout": "eight\n", "returncode": 1},
            "id -nu 12": {"stdout": "twelve\n"},
            "id -nu 1000": {"stdout": "me\n"},
        },
    )
    named = SmiProcess(1000, "own name", 1)
    rows = (named, *(SmiProcess(uid, None, 1) for uid in uids[1:]))
    rows += (SmiProcess(99, "closed", 1), SmiProcess(0, "zero", 1), SmiProcess(None, "none", 1))
    found = processes.identify_processes(system, rows)
    assert [(process.name, process.user, process.own) for process in found] == [
        ("own name", "1000", True),
        ("p7", "seven", False),
        ("p8", "8", False),
        ("p9", "9", False),
        ("p10", "10", False),
        ("p11", "11", False),
        ("p12", "12", False),  # only a few names are looked up
        ("closed", None, None),
        ("zero", None, None),
        ("none", None, None),
    ]
    assert {process.state for process in found} == {None}
    windows = make_system(platform={"system": "Windows"})
    assert processes.identify_processes(windows, rows) == rows
    assert processes.identify_processes(system, ()) == ()
    assert processes.find_user_name(system, "-x") == "-x"
