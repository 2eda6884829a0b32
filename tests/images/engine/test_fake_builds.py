"""Tests of pulling, inspecting and building on a fake engine, and of what its answers mean."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from images.engine.fake_engine import FakeApi, make_api_error, make_engine, make_frame
from tfdoctor.compat import Compat
from tfdoctor.diagnosis.progress import Progress
from tfdoctor.images.engine import BuildFailedError, BuildRequest, EngineError, build, connection, image
from tfdoctor.images.engine.building import make_layer_event, make_unfinished_image_name
from tfdoctor.images.engine.connection import make_engine_error
from tfdoctor.images.engine.image import BaseImageError, BuildSettings, build_image, inspect_base, pin_base
from tfdoctor.images.engine.push import push
from tfdoctor.images.engine.registry import RegistryReply
from tfdoctor.images.write import UserAdditions
from tfdoctor.planning import BaseImage, Option, Recipe, Request, recommend
from tfdoctor.prediction.fit.models import Host

DIGEST = "sha256:" + "a" * 64
ID = "sha256:" + "b" * 64


def plan(recipe: Recipe, tensorflow: str, base: str | None = None, python: str | None = None) -> Option:
    request = Request(tensorflow=tensorflow, recipe=recipe, base=base, python=python)
    return recommend(Compat.load(), request, Host()).options[0]


# ---------------------------------------------------------------- the engine


def describe(version: dict[str, Any], info: dict[str, Any]) -> connection.ContainerEngine:
    client = SimpleNamespace(version=lambda: version, info=lambda: info)
    return connection._describe_engine(client, "unix:///s")  # type: ignore[arg-type]


def test_features_of_an_engine() -> None:
    engine = describe(
        {"Version": "27.1", "ApiVersion": "1.44", "Components": [{"Name": "Engine"}]},
        {
            "Runtimes": {"runc": {}, "nvidia": {}},
            "DefaultRuntime": "nvidia",
            "SecurityOptions": ["name=rootless"],
        },
    )
    assert (engine.name, engine.version, engine.api_version) == ("docker", "27.1", (1, 44))
    assert (engine.runtimes, engine.default_runtime) == (("nvidia", "runc"), "nvidia")
    assert (engine.is_rootless, engine.supports_cdi) == (True, False)
    podman = describe(
        {"Components": [{"Name": "x"}, {"Name": "Podman Engine"}]}, {"SecurityOptions": ["seccomp"]}
    )
    assert (podman.name, podman.supports_cdi, podman.is_rootless) == ("podman", True, False)
    assert (podman.api_version, podman.default_runtime) == ((1, 24), "")


@pytest.mark.parametrize(
    ("api", "folders", "expected"),
    [
        ("1.44", ["/etc/cdi"], True),
        ("1.43", ["/etc/cdi"], False),
        ("2", ["/etc/cdi"], False),
        ("1.45", [], False),
    ],
)
def test_cdi_needs_version_1_44_and_a_folder(api: str, folders: list[str], expected: bool) -> None:
    assert describe({"ApiVersion": api}, {"CDISpecDirs": folders}).supports_cdi is expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"DOCKER_CERT_PATH": "/keys"}, ("/keys", False)),
        ({"DOCKER_TLS_VERIFY": "1", "HOME": "/home/me"}, ("/home/me/.docker", True)),
        ({"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/keys"}, ("/keys", True)),
    ],
)
def test_tls_variables_are_followed(
    environment: dict[str, str], expected: tuple[str, bool] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_load_tls", lambda folder, *, verify: (str(folder), verify))
    system: Any = SimpleNamespace(env=environment)
    assert connection._load_tls_from_env(system) == expected  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("url", "error", "kind"),
    [
        ("unix:///run/s", PermissionError(13, "no"), "engine-permission"),
        ("tcp://host:1", OSError(1, "no"), "engine-permission"),
        ("unix:///no/such", FileNotFoundError(2, "no"), "engine-missing"),
        ("unix:///no/such", ValueError("x"), "engine-missing"),
        ("unix:///", ConnectionRefusedError(111, "refused"), "engine-silent"),
        ("tcp://host:1", FileNotFoundError(2, "no"), "engine-silent"),
    ],
)
def test_kind_of_an_unreachable_engine(url: str, error: OSError, kind: str) -> None:
    for wrapped in (error, ValueError("aborted", error)):
        assert connection._make_unreachable_error(url, wrapped).kind == kind


def test_most_useful_failure_is_chosen() -> None:
    failures = []
    for kind in ("engine-missing", "engine-silent", "engine-permission", "engine-permission"):
        failures.append(EngineError(f"{kind} {len(failures)}"))
        failures[-1].kind = kind
    assert connection._choose_failure(failures) is failures[2]
    assert connection._choose_failure(failures[:2]) is failures[1]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("write: No space left on device", "disk is full"),
        ("toomanyrequests: x", "limit for anonymous pulls"),
        ("you have reached your pull rate limit", "limit for anonymous pulls"),
        ("unauthorized: x", "docker login REGISTRY"),
        ("authentication required", "docker login REGISTRY"),
        ("access denied", "docker login REGISTRY"),
        ("x509: unknown", "certificate authority"),
        ("bad certificate", "certificate authority"),
        ("i/o timeout", "own network"),
        ("connection refused", "own network"),
        ("lookup x: no such host", "own network"),
        ("dial tcp 1.2.3.4", "own network"),
        ("Cannot connect to the daemon", "went away"),
        ("Connection aborted.", "went away"),
        ("Connection broken", "went away"),
        ("Read timed out.", "went away"),
        ("invalid reference", ""),
    ],
)
def test_hint_follows_from_the_message(text: str, hint: str) -> None:
    error = make_engine_error(RuntimeError(text), "pulling x")
    assert error.message == f"pulling x: {text}"
    assert hint in (error.hint or "")
    assert bool(error.hint) is bool(hint)


def test_parts_of_an_image() -> None:
    response = {
        "Id": ID,
        "RepoTags": ["a:1"],
        "RepoDigests": [f"a@{DIGEST}"],
        "Size": 5,
        "Os": "linux",
        "Architecture": "amd64",
        "Config": {"Env": ["A=b=c"], "Labels": {"x": 1}, "User": "1000", "Entrypoint": ["/e"]},
        "RootFS": {"Layers": [DIGEST]},
    }
    api = FakeApi()
    api.images = {"a:1": response, "empty": {"Config": None, "RootFS": None, "RepoTags": None, "Size": None}}
    found = make_engine(api).find_image("a:1")
    assert found is not None
    assert (found.id, found.tags, found.size_bytes, found.digests) == (ID, ("a:1",), 5, (f"a@{DIGEST}",))
    assert (found.environment, found.labels) == ({"A": "b=c"}, {"x": "1"})
    assert (found.os, found.architecture, found.user) == ("linux", "amd64", "1000")
    assert (found.entrypoint, found.layers) == (("/e",), (DIGEST,))
    empty = make_engine(api).find_image("empty")
    assert empty is not None
    assert (empty.tags, empty.size_bytes, empty.environment, empty.user) == ((), 0, {}, "")
    assert make_engine(api).find_image("none") is None
    assert make_engine(api).remove_image("empty")
    assert not make_engine(api).remove_image("empty")
    api.errors["inspect_image"] = [make_api_error("broken")]
    with pytest.raises(EngineError, match="looking for the image a:1: broken"):
        make_engine(api).find_image("a:1")


# ---------------------------------------------------------------- builds


def stream(*texts: str) -> list[dict[str, Any]]:
    return [{"stream": f"{text}\n"} for text in texts]


REQUEST = BuildRequest("FROM x\n", {}, "mine:1")


def test_events_of_a_build() -> None:
    api = FakeApi()
    api.messages = [
        *stream("Step 1/2 : FROM x", "---> 0123456789ab", "STEP 2/2: RUN y", "--> Using cache 12", "said"),
        {"status": "Extracting", "id": "abc", "progressDetail": {"current": 3, "total": 9}},
        *stream(
            "Removing intermediate container 1", "---> Running in 1", "", "Successfully built 0123456789ab"
        ),
        {"aux": {"ID": ID}},
    ]
    events = [*build(make_engine(api), REQUEST)]
    assert [(event.kind, event.text, event.step_number, event.step_count) for event in events] == [
        ("step", "FROM x", 1, 2),
        ("step", "RUN y", 2, 2),
        ("cached", "RUN y", 2, 2),
        ("output", "said", 2, 2),
        ("layer", "Extracting", 2, 2),
        ("image", ID, 2, 2),
    ]
    assert (events[4].layer_id, events[4].transferred_bytes, events[4].layer_bytes) == ("abc", 3, 9)
    assert api.calls == ["build"], "a complete build leaves no unfinished image"
    api.messages = stream("Successfully built 0123456789ab")
    assert [event.text for event in build(make_engine(api), REQUEST)] == ["0123456789ab"]
    api.messages = [{"aux": {"ID": "x"}}, {"aux": "text"}]
    with pytest.raises(EngineError, match="without an image and without a reason"):
        list(build(make_engine(api), REQUEST))
    assert make_layer_event({"progressDetail": {"current": "x"}}).transferred_bytes is None


def test_failed_step_reports_its_last_40_lines() -> None:
    api = FakeApi()
    api.messages = [*stream("Step 1/1 : RUN y", *map(str, range(60))), {"error": "exit 1"}]
    with pytest.raises(BuildFailedError, match="the step `RUN y` failed: exit 1") as caught:
        list(build(make_engine(api), REQUEST))
    assert caught.value.output == tuple(map(str, range(20, 60)))
    api.messages = [{"error": "no"}]
    with pytest.raises(BuildFailedError, match="the build failed: no"):
        list(build(make_engine(api), REQUEST))


@pytest.mark.parametrize(
    ("last", "previous", "calls"),
    [
        ({"Id": "new"}, None, ["tag new"]),
        ({"Id": "new"}, {"Id": "old"}, ["tag new", "remove_image old"]),
        ({"Id": "new"}, {"Id": "new"}, ["tag new"]),
        ({"Id": "new", "RepoTags": ["base:1"]}, None, []),
        ({"Id": "new", "RepoDigests": [f"base@{DIGEST}"]}, None, []),
        (None, None, []),
    ],
)
def test_finished_steps_of_a_failed_build_get_a_name(
    last: dict[str, Any] | None, previous: dict[str, Any] | None, calls: list[str]
) -> None:
    api = FakeApi()
    name = make_unfinished_image_name("mine:1")
    api.images = {
        key: value for key, value in (("0123456789ab", last), (name, previous)) if value is not None
    }
    api.messages = [
        *stream("Step 1/2 : FROM x", "---> 0123456789ab", "Step 2/2 : RUN y"),
        {"error": "exit 1"},
    ]
    with pytest.raises(BuildFailedError):
        list(build(make_engine(api), REQUEST))
    assert [
        call.partition(" tfdoctor/")[0] for call in api.calls if call.startswith(("tag", "remove"))
    ] == calls


@pytest.mark.parametrize(
    ("output", "hint"),
    [
        ("No space left on device", "disk is full"),
        ("certificate verify failed", "--ca-cert"),
        ("self-signed certificate", "--ca-cert"),
        ("self signed certificate", "--ca-cert"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES", "another --index"),
        ("Temporary failure resolving 'x'", "--proxy URL"),
        ("Name or service not known", "--proxy URL"),
        ("Failed to establish a new connection\nNo matching distribution", "--proxy URL"),
        ("NewConnectionError", "--proxy URL"),
        ("connection timed out", "--proxy URL"),
        ("ConnectTimeoutError", "--proxy URL"),
        ("Temporary failure in name resolution", "--proxy URL"),
        ("Network is unreachable", "--proxy URL"),
        ("Could not find a version", "does not have it"),
        ("No matching distribution", "does not have it"),
        ("conflicting dependencies", "loosen it"),
        ("NO_PUBKEY A4B4", "retired key"),
        ("is not signed", "retired key"),
        ("exit", ""),
    ],
)
def test_hint_follows_from_the_output(output: str, hint: str) -> None:
    api = FakeApi()
    api.messages = [*stream("Step 1/1 : RUN y", output), {"error": "exit 1"}]
    with pytest.raises(BuildFailedError) as caught:
        list(build(make_engine(api), REQUEST))
    assert hint in (caught.value.hint or "")
    assert bool(caught.value.hint) is bool(hint)


def build_with(api: FakeApi, option: Option, **settings: Any) -> list[str]:
    """Build the image of a plan and return its titles of stages."""
    progress = Mock(spec=Progress)
    try:
        build_image(
            make_engine(api),
            option,
            UserAdditions(),
            BuildSettings("mine:1", **settings),
            progress,
            is_custom_base=False,
        )
    finally:
        titles = [call.args[0] for call in progress.begin_stage.call_args_list]
    return titles


def test_base_is_pulled_once_and_the_finished_image_replaces_the_unfinished() -> None:
    option = plan(Recipe.OFFICIAL, "2.4.3")
    assert option.base is not None
    unfinished = make_unfinished_image_name("mine:1")
    api = FakeApi()
    api.images = {option.base.reference: {"Id": "base"}, ID: {"Id": ID}, unfinished: {"Id": "old"}}
    api.messages = [{"aux": {"ID": ID}}]
    titles = build_with(api, option, proxy="http://p", no_proxy="a,b")
    assert titles == ["Building mine:1"]
    assert "pull" not in api.calls
    assert unfinished not in api.images
    assert api.created["buildargs"] == {
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://p"),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), "a,b"),
    }
    del api.images[ID]
    with pytest.raises(EngineError, match="no longer has it"):
        build_with(api, option)
    assert api.created["buildargs"] == {}


@pytest.mark.parametrize("state", ["missing", "login", "limited", "unreachable", "unclear"])
def test_base_that_cannot_be_pulled(state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = RegistryReply("x", state, None, "the registry says no.")
    monkeypatch.setattr(image, "query_registry", lambda *_, **__: reply)
    api = FakeApi()
    api.errors["pull"] = [make_api_error("dial tcp: no route")]
    with pytest.raises((BaseImageError, EngineError)) as caught:
        build_with(api, plan(Recipe.OFFICIAL, "2.4.3"))
    is_asked = state in ("unreachable", "unclear")
    assert ("pull" in api.calls) is is_asked
    assert isinstance(caught.value, EngineError) is is_asked
    assert ("the registry says no." in f"{caught.value.message} {caught.value.hint}") is (state != "unclear")


@pytest.mark.parametrize(
    ("digests", "expected"),
    [
        ((), None),
        ((f"other@{DIGEST}",), None),
        ((f"mirror.example/library/x@{DIGEST}", f"x@{ID}"), ID),
    ],
)
def test_base_is_pinned_to_the_digest_of_its_registry(digests: tuple[str, ...], expected: str | None) -> None:
    option = dataclasses.replace(plan(Recipe.OFFICIAL, "2.4.3"), base=BaseImage("x:1", "", "python3"))
    api = FakeApi()
    api.images = {"x:1": {"RepoDigests": digests}}
    pinned = pin_base(make_engine(api), option)
    assert pinned.base is not None
    assert pinned.base.digest == expected
    if expected is not None:
        api.images = {pinned.base.reference: {"RepoDigests": [f"x@{DIGEST}"]}}
        assert pin_base(make_engine(api), pinned) is pinned


@pytest.mark.parametrize(
    ("recipe", "output", "expected"),
    [
        (Recipe.PIP_CUDA, "system=debian 12\npython=3.11 python3 venv pip\n", ("debian 12", "python3", ())),
        (
            Recipe.PIP_CUDA,
            "python=3.9 python3 venv pip\npython=3.11 python3.11 venv \n",
            ("", "python3.11", ()),
        ),
        (
            Recipe.PIP_CUDA,
            "system=debian 12\napt=yes\n",
            ("debian 12", "python3.11", ("python3.11", "python3.11-venv")),
        ),
        (
            Recipe.PIP_CUDA,
            "system=x 1\npython=3.11 python3  pip\napt=yes\n",
            ("x 1", "python3.11", ("python3.11", "python3.11-venv")),
        ),
        (
            Recipe.PIP_CUDA,
            "system=debian 12\npython=3.11 python3  pip\n",
            "It has 3.11: --python-version 3.11",
        ),
        (Recipe.PIP_CUDA, "system=debian 12\n", "It has 3.11: "),
        (Recipe.PIP_CUDA, "system=debian 11\napt=yes\n", "It has 3.9: --python-version 3.9"),
        (
            Recipe.PIP_CUDA,
            "python=3.8 python3 venv pip\npython=3.9 python3.9 venv pip\napt=yes\n",
            "It has 3.8, 3.9:",
        ),
        (Recipe.PIP_CUDA, "apt=yes\n", "It has none"),
        (Recipe.OFFICIAL, "python=3.6 python3  pip\n", ("", "python3", ())),
        (Recipe.OFFICIAL, "python=3.6 python3\napt=yes\n", ("", "python3.6", ("python3-pip",))),
        (Recipe.OFFICIAL, "python=3.6 python3 venv \n", "It has 3.6"),
    ],
)
def test_python_of_a_base_image(recipe: Recipe, output: str, expected: tuple[str, ...] | str) -> None:
    option = (
        plan(Recipe.PIP_CUDA, "2.15", python="3.11") if recipe is Recipe.PIP_CUDA else plan(recipe, "2.4.3")
    )
    option = dataclasses.replace(
        option, base=BaseImage("x:1", "", ""), python="3.6" if recipe is Recipe.OFFICIAL else "3.11"
    )
    engine = make_engine(FakeApi(make_frame(1, output.encode())))
    if isinstance(expected, str):
        with pytest.raises(BaseImageError) as caught:
            inspect_base(engine, option)
        system = output.partition("system=")[2].partition("\n")[0] or "of an unknown system"
        assert f"x:1 ({system}) has no Python" in caught.value.message
        assert expected in (caught.value.hint or "")
        return
    base = inspect_base(engine, option).base
    assert base is not None
    assert (base.system, base.python_command, base.python_packages) == expected


def test_other_python_of_a_base_system_is_installed() -> None:
    option = plan(Recipe.PIP_CUDA, "2.13", python="3.8")
    option = dataclasses.replace(option, base=BaseImage("x:1", "", ""))
    engine = make_engine(FakeApi(make_frame(1, b"system=ubuntu 18.04\napt=yes\n")))
    base = inspect_base(engine, option).base
    assert base is not None
    assert (base.python_command, base.python_packages) == ("python3.8", ("python3.8", "python3.8-venv"))


@pytest.mark.parametrize(("status", "error", "reason"), [(1, b"odd", "odd"), (126, b"", "no shell in it")])
def test_base_image_without_a_shell(status: int, error: bytes, reason: str) -> None:
    option = dataclasses.replace(plan(Recipe.OFFICIAL, "2.4.3"), base=BaseImage("x:1", "", ""))
    engine = make_engine(FakeApi(make_frame(2, error), ExitCode=status))
    with pytest.raises(BaseImageError, match=f"x:1 cannot be looked into: {reason}"):
        inspect_base(engine, option)


def test_digest_of_a_pushed_image_is_reported() -> None:
    messages = [{"status": f"digest: {ID}", "id": "layer"}, {"aux": {"Digest": DIGEST}}, {"status": "done"}]
    api = Mock(push=lambda *_, **__: messages)
    progress = Mock(spec=Progress)
    assert push(make_engine(api), "x:1", progress) == DIGEST
    assert [call.args[0] for call in progress.report_layer.call_args_list] == ["layer"]
    for wrong, text in (([{"error": "denied"}], "pushing x:1: denied"), ([], "did not report")):
        api.push = lambda *_, wrong=wrong, **__: wrong
        with pytest.raises(EngineError, match=text):
            push(make_engine(api), "x:1", progress)


@pytest.mark.parametrize(
    ("program", "command"), [("docker", "start docker"), ("podman", "start podman.socket"), ("", "Install")]
)
def test_installed_engine_that_does_not_run(
    program: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Do not advise to install what is installed."""
    monkeypatch.setattr(
        connection.shutil, "which", lambda name: f"/usr/bin/{name}" if name == program else None
    )
    failure = connection._make_unreachable_error("unix:///no/such", FileNotFoundError(2, "no"))
    assert command in failure.hint
    assert ("is installed" in failure.message) == bool(program)
    assert ("Install" in failure.hint) == (not program)
