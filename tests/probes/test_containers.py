"""Container engines: Docker's client and socket, CDI specifications and toolkit files on a simulated machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tfdoctor.core.engine_output import (
    classify_failure,
    find_version,
    parse_daemon_json,
    parse_info,
    parse_toolkit_toml,
)
from tfdoctor.core.facts import Absent, Known, Unknown, value_of
from tfdoctor.core.facts.containers import ContainerFacts, DockerEngine, UnreachableEngine
from tfdoctor.probes import containers
from tfdoctor.probes.parsers.cdi import CdiError, parse_cdi
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WITH_INDENT = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              hostPath: /run/nvidia/driver/dev/nvidia0
    - name: all
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
containerEdits:
    env:
        - NVIDIA_VISIBLE_DEVICES=void
    hooks:
        - hookName: createContainer
          path: /usr/bin/nvidia-cdi-hook
          args:
            - nvidia-cdi-hook
            - create-symlinks
            - --link
            - libcuda.so.1::/lib/x86_64-linux-gnu/libcuda.so
    mounts:
        - hostPath: /lib/x86_64-linux-gnu/libcuda.so.570.133.20
          containerPath: /lib/x86_64-linux-gnu/libcuda.so.570.133.20
          options:
            - ro
"""
"""The layout of toolkit 1.18 and later."""
WITHOUT_INDENT = """cdiVersion: 0.3.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-ctk
    - ../card1::/dev/dri/by-path/pci-0000:01:00.0-card
    hookName: createContainer
    path: /usr/bin/nvidia-ctk
  mounts:
  - containerPath: /usr/bin/nvidia-smi
    hostPath: '/usr/bin/nvidia-smi'   # a comment
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/dri/card1
    - path: /dev/nvidia0
  name: "0"
kind: nvidia.com/gpu
"""
"""The layout of older toolkits: sorted keys, list items in the column of their key."""


def test_cdi_yaml_in_both_layouts() -> None:
    indented, unindented = parse_cdi(WITH_INDENT), parse_cdi(WITHOUT_INDENT)
    assert (indented.kind, indented.version, indented.devices, indented.driver_version) == (
        "nvidia.com/gpu", "0.5.0", ("0", "all"), "570.133.20",
    )  # fmt: skip
    assert set(indented.paths) == {
        "/lib/x86_64-linux-gnu/libcuda.so.570.133.20", "/usr/bin/nvidia-cdi-hook",
        "/run/nvidia/driver/dev/nvidia0", "/dev/nvidia0",
    }  # fmt: skip
    assert unindented.devices == ("0",)
    assert set(unindented.paths) == {
        "/dev/nvidiactl", "/usr/bin/nvidia-smi", "/usr/bin/nvidia-ctk", "/dev/dri/card1", "/dev/nvidia0",
    }  # fmt: skip
    assert unindented.driver_version is None


def test_cdi_json_is_parsed() -> None:
    spec = {
        "cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}],
        "containerEdits": {"mounts": [{"hostPath": "/a"}, "no table", {"hostPath": 3}]},
    }  # fmt: skip
    assert parse_cdi(json.dumps(spec)).paths == ("/a",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("{", "not JSON"),
        ("devices: []\n", "no `kind`"),
        ("kind: nvidia.com/gpu\njust words\n", "line 2"),
        ("kind: &a nvidia.com/gpu\n", "beyond"),
        ("kind: x\ndevices: *a\n", "line 2"),
        ("kind: x\n? [a]\n: b\n", "line 2: a key that is no text"),
        ("kind: x\ndevices: [1, 2\n", "line 2"),
        ("kind: x\n\tdevices: y\n", "tab"),
        ("kind: x\n    stray: y\n", "line 2"),
        ("- a\n" * 60_000, "lines"),
        ("\n".join("  " * n + "a:" for n in range(60)), "too deep"),
    ],
)
def test_invalid_cdi_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(CdiError, match=said):
        parse_cdi(text)


def test_cdi_without_the_fast_yaml_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parse_cdi(WITH_INDENT)
    monkeypatch.delattr(yaml, "CBaseLoader", raising=False)
    assert parse_cdi(WITH_INDENT) == parsed
    for text, message in (
        ("kind: &a x\n", "line 1"),
        ("kind: x\n\tdevices: y\n", "line 2"),
        ("kind: \x00\n", "not YAML"),
    ):
        with pytest.raises(CdiError, match=message):
            parse_cdi(text)


def test_general_yaml_is_parsed() -> None:
    text = (
        "---\nkind: |-\n  nvidia.com/gpu\ndevices: [{name: 0}, {name: all}]\ncontainerEdits:\n---\nkind: x\n"
    )
    assert parse_cdi(text).kind == "nvidia.com/gpu"
    assert parse_cdi(text).devices == ("0", "all")


@given(st.text() | st.text(alphabet="ab-:'\"{}[] \n#|&.~", max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(CdiError):
        parse_cdi(text)
    assert isinstance(parse_daemon_json(text)[1], str)
    assert isinstance(parse_toolkit_toml(text)[1], str)
    assert parse_info(text) is None or isinstance(parse_info(text), dict)
    assert classify_failure(text)
    find_version(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "Got permission denied while trying to connect to the Docker daemon socket at unix:///x",
            "permission",
        ),
        (
            "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock",
            "permission",
        ),
        ("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", "not-running"),
        (
            "failed to connect to the docker API at unix:///x; dial unix /x: connect: no such file or directory",
            "not-running",
        ),
        (
            'Failed to initialize: unable to resolve docker endpoint: context "x": context not found',
            "context",
        ),
        ("something new", "other"),
    ],
)
def test_client_error_is_classified(text: str, kind: str) -> None:
    assert classify_failure(text) == kind


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("podman version 4.3.1\n", "4.3.1"),
        ("NVIDIA Container Toolkit CLI version 1.18.0-rc.2\ncommit: 9b1a2c\n", "1.18.0-rc.2"),
        ("cli-version: 1.14.0\nlib-version: 1.14.0\n", "1.14.0"),
        ("apptainer version 1.3.4-1.el9", "1.3.4-1.el9"),
        ("no number", None),
    ],
)
def test_version_is_found_in_output(text: str, version: str | None) -> None:
    assert find_version(text) == version


# ---------------------------------------------------------------- the probe


class CommandRecorder(RecordedSystem):
    """A recorded machine that remembers which commands were run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ran: list[str] = []

    def run(self, argv: Sequence[str], **options: Any) -> Any:
        self.ran.append(options.get("key") or " ".join(argv))
        return super().run(argv, **options)


def probe_containers(folder: Path, **host: Any) -> tuple[ContainerFacts, list[str]]:
    """Return the container facts of the recorded machine and the commands that the probe ran."""
    host.setdefault("which", {"docker": "/usr/bin/docker"})
    (folder / "host.json").write_text(json.dumps({"schema_version": 1, **host}), encoding="utf-8")
    system = CommandRecorder(folder)
    fact = containers.probe(system, timeout=1.0)
    assert isinstance(fact, Known)
    return fact.value, system.ran


SOCKET = {"/var/run": ["docker.sock"]}
DOCKER_INFO = {
    "docker info": {"stdout": json.dumps({"ServerVersion": "28.2.2", "Runtimes": {"runc": {"path": "runc"}}})}
}


def make_context_files(name: str, host: str) -> dict[str, str]:
    """Return the files of Docker's client for a selected context."""
    meta = f"/u/.docker/contexts/meta/{hashlib.sha256(name.encode()).hexdigest()}/meta.json"
    return {
        "/u/.docker/config.json": json.dumps({"currentContext": name}),
        meta: json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}),
    }


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ({"env": {"DOCKER_HOST": "tcp://192.0.2.1:2375"}, "directories": SOCKET}, "remote"),
        ({"env": {"DOCKER_HOST": "ssh://me@there"}, "directories": SOCKET}, "remote"),
        (
            {"env": {"HOME": "/u"}, "files": make_context_files("far", "ssh://there"), "directories": SOCKET},
            "remote",
        ),
        ({"env": {"HOME": "/u", "DOCKER_CONTEXT": "gone"}, "directories": SOCKET}, "context"),
        ({"directories": {"/var/run": []}}, "no-socket"),
        ({"directories": SOCKET | {"/run/systemd/units": ["invocation:docker.socket"]}}, "not-running"),
        ({"directories": SOCKET, "which": {}}, "no-client"),
    ],
)
def test_absent_engine_is_not_asked(tmp_path: Path, host: dict[str, Any], kind: str) -> None:
    facts, ran = probe_containers(tmp_path, commands=DOCKER_INFO, **host)
    answer = value_of(facts.docker)
    assert isinstance(answer, UnreachableEngine)
    assert answer.kind == kind
    assert ran == []


@pytest.mark.parametrize(
    "host",
    [
        {"directories": SOCKET},
        {
            "directories": SOCKET
            | {"/run/systemd/units": ["invocation:docker.service", "invocation:docker.socket"]}
        },
        {
            "env": {"HOME": "/u"},
            "files": make_context_files("own", "unix:///u/d.sock"),
            "directories": {"/u": ["d.sock"]},
        },
        {
            "env": {"HOME": "/u", "DOCKER_HOST": "unix:///u/d.sock"},
            "files": make_context_files("far", "ssh://there"),
            "directories": {"/u": ["d.sock"]},
        },
    ],
)
def test_local_engine_is_asked_once(tmp_path: Path, host: dict[str, Any]) -> None:
    facts, ran = probe_containers(tmp_path, commands=DOCKER_INFO, **host)
    assert isinstance(value_of(facts.docker), DockerEngine)
    assert ran == ["docker info"]


def test_podman_named_docker_is_podman(tmp_path: Path) -> None:
    facts, ran = probe_containers(
        tmp_path,
        which={"docker": "/usr/bin/docker", "podman": "/usr/bin/podman"},
        files={"/usr/bin/docker": '#!/usr/bin/sh\nexec /usr/bin/podman "$@"\n'},
        commands={"podman --version": {"stdout": "podman version 4.9.3\n"}},
    )
    assert [tool.name for tool in facts.tools] == ["podman"]
    assert isinstance(facts.docker, Absent)
    assert ran == []  # `podman info` would make folders


def test_hanging_and_invalid_answers_are_reported(tmp_path: Path) -> None:
    hung, _ = probe_containers(tmp_path, directories=SOCKET, commands={"docker info": {"failure": "timeout"}})
    garbage, _ = probe_containers(
        tmp_path, directories=SOCKET, commands={"docker info": {"stdout": "\x1b[31m{", "returncode": 1}}
    )
    for facts, kind in ((hung, "timeout"), (garbage, "other")):
        answer = value_of(facts.docker)
        assert isinstance(answer, UnreachableEngine)
        assert answer.kind == kind
        assert answer.text
        assert "\x1b" not in answer.text


def test_path_is_missing_only_in_a_readable_folder(tmp_path: Path) -> None:
    class Closed(RecordedSystem):
        def listdir(self, path: str) -> list[str]:
            if path == "/closed":
                raise PermissionError(13, "Permission denied", path)
            return super().listdir(path)

    spec = {
        "kind": "nvidia.com/gpu",
        "containerEdits": {"mounts": [{"hostPath": p} for p in ("/closed/a", "/open/b", "/open/c")]},
    }
    host = {
        "files": {"/etc/cdi/nvidia.json": json.dumps(spec), "/open/c": ""},
        "directories": {"/closed": []},
    }
    (tmp_path / "host.json").write_text(json.dumps({"schema_version": 1, **host}), encoding="utf-8")
    facts = value_of(containers.probe(Closed(tmp_path), timeout=1.0))
    assert facts is not None
    assert facts.cdi[0].missing == ("/open/b",)


def test_cdi_of_other_vendors_is_ignored(tmp_path: Path) -> None:
    facts, _ = probe_containers(
        tmp_path,
        files={
            "/etc/cdi/intel.yaml": "kind: intel.com/gpu\n",
            "/etc/cdi/broken.yaml": "?",
            "/etc/cdi/nvidia.yml": "kind: nvidia.com/gpu\n",  # CDI takes .yaml and .json only
            "/etc/cdi/nvidia-broken.yaml": "?",
            "/var/run/cdi/a.yaml": "kind: nvidia.com/gpu\n",
        },
    )
    assert [(spec.path, bool(spec.problem)) for spec in facts.cdi] == [
        ("/etc/cdi/nvidia-broken.yaml", True),
        ("/var/run/cdi/a.yaml", False),
    ]


def test_commented_toolkit_setting_is_ignored(tmp_path: Path) -> None:
    facts, _ = probe_containers(
        tmp_path,
        which={"nvidia-ctk": "/usr/bin/nvidia-ctk"},
        files={
            "/etc/nvidia-container-runtime/config.toml": (
                '[nvidia-container-cli]\n#no-cgroups = true\n[nvidia-container-runtime]\nmode = "cdi"\n'
            )
        },
    )
    toolkit = value_of(facts.toolkit)
    config = value_of(toolkit.config) if toolkit is not None else None
    assert config is not None
    assert (config.no_cgroups, config.mode) == (None, "cdi")


# ---------------------------------------------------------------- one answer by itself

INFO = {"ServerVersion": "28.2.2", "ClientInfo": {"Version": "28.1"}}


def probe_docker(tmp_path: Path, info: dict[str, Any], **host: Any) -> ContainerFacts:
    """Return the facts about a Docker whose engine answers with `info`."""
    host.setdefault("directories", SOCKET)
    commands = {"docker info": {"stdout": json.dumps({**INFO, **info})}, **host.pop("commands", {})}
    return probe_containers(tmp_path, commands=commands, **host)[0]


def test_engine_of_docker(tmp_path: Path) -> None:
    info = {
        "Runtimes": {
            "b": {"path": "/opt/gone"},
            "a": {"path": "runc"},
            "c": {},
            "d": {"path": "/closed/x"},
            "e": {"path": "/opt/there"},
        },
        "DefaultRuntime": "runc",
        "SecurityOptions": ["name=seccomp", "name=rootless"],
        "DockerRootDir": "/var/lib/docker",
        "OperatingSystem": "Debian",
        "CgroupVersion": "2",
        "CgroupDriver": "systemd",
        "Driver": "overlay2",
        "CDISpecDirs": ["/own/cdi"],
    }
    facts = probe_docker(
        tmp_path,
        info,
        directories={**SOCKET, "/opt": ["there"]},
        files={"/usr/bin/runc": "", "/own/cdi/a.yaml": "kind: nvidia.com/gpu\n"},
        errors={"/": ["list", 13, "Permission denied"]},
    )
    engine = value_of(facts.docker)
    assert isinstance(engine, DockerEngine)
    assert [(runtime.name, runtime.path, runtime.found) for runtime in engine.runtimes] == [
        ("a", "runc", True),
        ("b", "/opt/gone", False),
        ("c", "", None),
        ("d", "/closed/x", None),
        ("e", "/opt/there", True),
    ]
    assert (engine.version, engine.default_runtime, engine.rootless, engine.snap, engine.desktop) == (
        "28.2.2",
        "runc",
        True,
        False,
        False,
    )
    assert (engine.cgroup_version, engine.cgroup_driver, engine.storage_driver, engine.cdi_folders) == (
        "2",
        "systemd",
        "overlay2",
        ("/own/cdi",),
    )
    assert [spec.path for spec in facts.cdi] == ["/own/cdi/a.yaml"]
    assert [(tool.name, tool.version, tool.snap) for tool in facts.tools] == [("docker", "28.1", False)]


@pytest.mark.parametrize(
    ("info", "snap", "desktop"),
    [
        ({"DockerRootDir": "/var/snap/docker/x"}, True, False),
        ({"OperatingSystem": "Docker Desktop 4"}, False, True),
    ],
)
def test_engine_with_another_file_system(
    tmp_path: Path, info: dict[str, Any], snap: bool, desktop: bool
) -> None:
    """It is not known what such an engine finds, and its CDI folders are not this machine's."""
    info = {**info, "Runtimes": {"runc": {"path": "runc"}}, "CDISpecDirs": ["/own/cdi"]}
    facts = probe_docker(
        tmp_path, info, files={"/usr/bin/runc": "", "/own/cdi/a.yaml": "kind: nvidia.com/gpu\n"}
    )
    engine = value_of(facts.docker)
    assert isinstance(engine, DockerEngine)
    assert (engine.snap, engine.desktop, engine.runtimes[0].found) == (snap, desktop, None)
    assert facts.cdi == ()
    assert isinstance(facts.daemon_config, Absent)
    assert facts.daemon_config.source == (
        "/var/snap/docker/current/config/daemon.json" if snap else "/etc/docker/daemon.json"
    )


@pytest.mark.parametrize(
    ("docker", "host", "path"),
    [
        ("28", {}, "/etc/docker/daemon.json"),
        ("28", {"which": {"docker": "/snap/bin/docker"}}, "/etc/docker/daemon.json"),
        ("", {"which": {"docker": "/snap/bin/docker"}}, "/var/snap/docker/current/config/daemon.json"),
        ("", {"links": {"/usr/bin/docker": "/usr/bin/snap"}}, "/var/snap/docker/current/config/daemon.json"),
        ("", {}, "/etc/docker/daemon.json"),
        (
            "",
            {"env": {"DOCKER_HOST": "unix:///run/user/5/d.sock", "HOME": "/h"}},
            "/h/.config/docker/daemon.json",
        ),
        (
            "",
            {"env": {"DOCKER_HOST": "unix:///run/user/5/d.sock", "XDG_CONFIG_HOME": "/x"}},
            "/x/docker/daemon.json",
        ),
    ],
)
def test_settings_of_the_engine(tmp_path: Path, docker: str, host: dict[str, Any], path: str) -> None:
    files = {path: json.dumps({"runtimes": {"nvidia": {"path": "/n"}}, "default-runtime": "nvidia"})}
    facts = probe_docker(tmp_path, {"ServerVersion": docker}, files=files, **host)
    config = value_of(facts.daemon_config)
    assert config is not None
    assert (config.path, config.default_runtime, [runtime.name for runtime in config.runtimes]) == (
        path,
        "nvidia",
        ["nvidia"],
    )
    assert config.runtimes[0].found is (None if "snap" in path else False)
    unreadable = probe_docker(
        tmp_path, {"ServerVersion": docker}, errors={path: ["read", 13, "Permission denied"]}, **host
    )
    assert unreadable.daemon_config == Unknown(f"{path}: Permission denied", path)


@pytest.mark.parametrize(
    ("answer", "kind", "group", "text"),
    [
        (
            {"stderr": "permission denied while trying to connect to x\nmore", "returncode": 1},
            "permission",
            "docker",
            "permission denied",
        ),
        (
            {"stdout": '{"ServerErrors": ["Cannot connect to the Docker daemon at unix:///x."]}'},
            "not-running",
            None,
            "Cannot connect",
        ),
        ({"failure": "timeout", "seconds": 3}, "timeout", None, "`docker info`"),
        ({"returncode": 2}, "other", None, "said nothing of an engine"),
    ],
)
def test_engine_that_does_not_answer(
    tmp_path: Path, answer: dict[str, Any], kind: str, group: str | None, text: str
) -> None:
    commands = {"docker info": answer, "stat docker.sock": {"stdout": "docker\n"}}
    facts, ran = probe_containers(tmp_path, commands=commands, directories=SOCKET)
    engine = value_of(facts.docker)
    assert isinstance(engine, UnreachableEngine)
    assert (engine.kind, engine.group) == (kind, group)
    assert text in engine.text
    assert "\n" not in engine.text
    assert ("stat docker.sock" in ran) is (kind == "permission")
    commands["stat docker.sock"] = {"stdout": "docker", "returncode": 1}
    engine = value_of(probe_containers(tmp_path, commands=commands, directories=SOCKET)[0].docker)
    assert isinstance(engine, UnreachableEngine)
    assert engine.group is None


def test_socket_in_a_closed_folder_is_not_missing(tmp_path: Path) -> None:
    host = {
        "directories": {"/": ["var"]},
        "errors": {"/var": ["list", 13, "Permission denied"]},
        "folders": {"/var": True},
    }
    engine = value_of(probe_containers(tmp_path, commands=DOCKER_INFO, **host)[0].docker)
    assert isinstance(engine, UnreachableEngine)
    assert (engine.kind, "cannot be seen" in engine.text) == ("other", True)


def test_activated_socket_of_another_path_is_asked(tmp_path: Path) -> None:
    host = {
        "env": {"DOCKER_HOST": "unix:///u/d.sock"},
        "directories": {"/u": ["d.sock"], "/run/systemd/units": ["invocation:docker.socket"]},
    }
    facts, ran = probe_containers(tmp_path, commands=DOCKER_INFO, **host)
    assert isinstance(value_of(facts.docker), DockerEngine)
    assert (ran, facts.endpoint) == (["docker info"], "unix:///u/d.sock")


def test_tools_and_their_versions(tmp_path: Path) -> None:
    which = {
        name: f"/usr/bin/{name}" for name in ("docker", "podman", "apptainer", "singularity", "nvidia-ctk")
    }
    commands = {
        "podman --version": {"stdout": "podman version 4.9.3\n"},
        "apptainer --version": {"stdout": "apptainer version 1.3.4", "returncode": 1},
        "nvidia-ctk --version": {"stdout": "NVIDIA Container Toolkit CLI version 1.18.0\n"},
    }
    facts, ran = probe_containers(tmp_path, which=which, commands=commands)
    assert [(tool.name, tool.version) for tool in facts.tools] == [
        ("docker", None),
        ("podman", "4.9.3"),
        ("apptainer", None),
    ]
    del which["nvidia-ctk"], which["apptainer"]
    facts, ran = probe_containers(tmp_path, which=which, commands=commands)
    assert [(tool.name, tool.version) for tool in facts.tools] == [
        ("docker", None),
        ("podman", None),
        ("singularity", None),
    ]
    assert ran == []


@pytest.mark.parametrize(
    ("host", "is_podman"),
    [
        ({"links": {"/usr/bin/docker": "/usr/bin/podman"}}, True),
        ({"files": {"/usr/bin/docker": "#!/bin/sh\nexec podman\n"}}, True),
        ({"files": {"/usr/bin/docker": "#!/bin/sh\nexec docker\n"}}, False),
        ({"files": {"/usr/bin/docker": "ELF podman"}}, False),
        ({}, False),
    ],
)
def test_docker_command_of_podman(tmp_path: Path, host: dict[str, Any], is_podman: bool) -> None:
    which = {"docker": "/usr/bin/docker", "podman": "/usr/bin/podman"}
    facts, _ = probe_containers(tmp_path, which=which, **host)
    assert ("docker" not in {tool.name for tool in facts.tools}) is is_podman
    facts, _ = probe_containers(tmp_path, which={"docker": "/usr/bin/docker"}, **host)
    assert [tool.name for tool in facts.tools] == ["docker"]


@pytest.mark.parametrize(
    ("host", "version", "executables", "hooks"),
    [
        (
            {
                "files": {
                    "/usr/share/containers/oci/hooks.d/n.json": '{"path": "/usr/bin/nvidia-x"}',
                    "/etc/containers/oci/hooks.d/o.json": "{}",
                }
            },
            None,
            [],
            ("/usr/share/containers/oci/hooks.d/n.json",),
        ),
        (
            {
                "which": {"nvidia-ctk": "/a/nvidia-ctk", "nvidia-container-cli": "/a/cli"},
                "commands": {
                    "nvidia-ctk --version": {"stdout": "no number"},
                    "nvidia-container-cli --version": {"stdout": "cli-version: 1.14.0\n"},
                },
            },
            "1.14.0",
            ["nvidia-container-cli", "nvidia-ctk"],
            (),
        ),
        (
            {
                "which": {"nvidia-ctk": "/a/nvidia-ctk", "nvidia-container-cli": "/a/cli"},
                "commands": {
                    "nvidia-ctk --version": {"stdout": "version 1.18.0"},
                    "nvidia-container-cli --version": {"stdout": "cli-version: 1.14.0\n"},
                },
            },
            "1.18.0",
            ["nvidia-container-cli", "nvidia-ctk"],
            (),
        ),
    ],
)
def test_toolkit_of_nvidia(
    tmp_path: Path, host: dict[str, Any], version: str | None, executables: list[str], hooks: tuple[str, ...]
) -> None:
    facts, _ = probe_containers(tmp_path, **{"which": {}, **host})
    toolkit = value_of(facts.toolkit)
    assert toolkit is not None
    assert (toolkit.version, sorted(name for name, _ in toolkit.executables), toolkit.hooks) == (
        version,
        executables,
        hooks,
    )
    assert isinstance(toolkit.config, Absent)


def test_toolkit_outside_path_and_its_unreadable_settings(tmp_path: Path) -> None:
    folder = containers.TOOLKIT_FOLDERS[-1]
    path = "/etc/nvidia-container-runtime/config.toml"
    facts, _ = probe_containers(
        tmp_path,
        which={},
        files={f"{folder}/nvidia-ctk": ""},
        errors={path: ["read", 13, "Permission denied"]},
    )
    toolkit = value_of(facts.toolkit)
    assert toolkit is not None
    assert toolkit.executables == (("nvidia-ctk", f"{folder}/nvidia-ctk"),)
    assert toolkit.config == Unknown(f"{path}: Permission denied", path)
    assert isinstance(probe_containers(tmp_path, which={})[0].toolkit, Absent)


def test_specifications_that_cannot_be_read(tmp_path: Path) -> None:
    kind = "kind: nvidia.com/gpu\n"
    facts, _ = probe_containers(
        tmp_path,
        files={"/etc/cdi/nvidia-big.yaml": kind + " " * (2 << 20), "/run/cdi/nvidia.yaml": kind},
        directories={"/etc/cdi": ["nvidia-closed.yaml"]},
        errors={"/etc/cdi/nvidia-closed.yaml": ["read", 13, "Permission denied"]},
        links={"/var/run": "/run"},
    )
    assert [(spec.path, spec.problem) for spec in facts.cdi] == [
        ("/etc/cdi/nvidia-big.yaml", "larger than 2 MiB"),
        ("/etc/cdi/nvidia-closed.yaml", "Permission denied"),
        ("/var/run/cdi/nvidia.yaml", ""),
    ]


def test_other_systems_are_not_examined() -> None:
    system = RecordedSystem({"host.json": b'{"schema_version": 1, "platform": {"system": "Windows"}}'})
    assert isinstance(containers.probe(system, timeout=1.0), Absent)
