"""uv and pip: selection, commands, running and stopping, and messages for their failures."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cli.installing import UV, needs_uv, write_wheel
from tfdoctor.core.causes.steps import Install
from tfdoctor.environments.actions import format_steps
from tfdoctor.environments.disk_space import capture_output
from tfdoctor.environments.installers import (
    Installer,
    InstallFailedError,
    _make_failure_error,
    can_run,
    find_installer,
    list_uv_options,
    make_child_environment,
    run_installer,
    run_installers,
)
from tfdoctor.environments.models import Environment

RUN_CODE = (sys.executable, "-c")
QUIET = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "PIP_CONFIG_FILE": os.devnull}


def write_program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


# ---------------------------------------------------------------- selection and commands


def test_uv_is_preferred_if_it_supports_the_python(tmp_path: Path) -> None:
    uv = write_program(tmp_path, "uv", "exit 0")
    env = {**QUIET, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    installer = find_installer("/some/python", env=env)
    assert installer.make_install_command(["a"]) == (
        str(uv),
        "pip",
        "install",
        "--python",
        "/some/python",
        "a",
    )
    assert installer.make_uninstall_command(["a"]) == (
        str(uv),
        "pip",
        "uninstall",
        "--python",
        "/some/python",
        "a",
    )
    write_program(tmp_path, "uv", 'test "$1" = --version')  # uv runs but cannot use this Python
    with pytest.raises(InstallFailedError, match="has no pip"):
        find_installer("/some/python", env=env)
    with pytest.raises(InstallFailedError, match="uv cannot install into"):
        find_installer("/some/python", prefer="uv", env=env)
    python = write_program(tmp_path, "python", "exit 0")
    pip = find_installer(str(python), env=env)
    assert pip.name == "pip"
    assert pip.make_install_command(["a"]) == (str(python), "-m", "pip", "install", "a")
    assert pip.make_uninstall_command(["a"]) == (str(python), "-m", "pip", "uninstall", "-y", "a")
    write_program(tmp_path, "uv", "exit 127")  # a shim without a program
    with pytest.raises(InstallFailedError, match="uv is not on PATH"):
        find_installer(str(python), prefer="uv", env=env)


@needs_uv
def test_settings_of_the_working_folder_do_not_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A uv.toml can name another index, and wheels whose code then runs."""
    (tmp_path / "uv.toml").write_text("this is not TOML")
    folder = tmp_path / "below"
    folder.mkdir()
    monkeypatch.chdir(folder)
    command = (str(UV), "pip", "list", "--quiet", "--python", sys.executable)
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    assert can_run(command, os.environ)
    assert capture_output(command, os.environ) is not None
    run_installer(command, env=os.environ, on_line=None)


def test_relative_paths_in_variables_name_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = make_child_environment(
        {**QUIET, "UV_FIND_LINKS": "wheels,https://example.org/x", "SSL_CERT_FILE": "a.pem"}
    )
    assert env["UV_FIND_LINKS"] == f"{tmp_path}/wheels,https://example.org/x"
    assert env["SSL_CERT_FILE"] == f"{tmp_path}/a.pem"


def test_missing_pip_is_bootstrapped(tmp_path: Path) -> None:
    """The commands are those that `check` prints."""
    python = write_program(tmp_path, "python", 'test "$3" = ensurepip')
    installer = find_installer(str(python), env={**QUIET, "PATH": "/usr/bin:/bin"})
    assert installer.setup_command == (str(python), "-m", "ensurepip")
    assert installer.make_install_command(["a"]) == (str(python), "-m", "pip", "install", "a")
    environment = Environment("/env", str(python), "venv", "")
    assert format_steps((Install(("a",)),), environment, installer) == (
        f"{python} -m ensurepip",
        f"{python} -m pip install a",
    )


def test_variables_of_an_installer(tmp_path: Path) -> None:
    child = make_child_environment(
        {
            **QUIET,
            "PYTHONPATH": "x",
            "PIP_TARGET": "x",
            "CONDA_DEFAULT_ENV": "x",
            "KEPT": "x",
            "COLUMNS": "40",
        }
    )
    assert child["KEPT"] == "x"
    assert child["PIP_USER"] == "0"
    assert int(child["COLUMNS"]) > 1000, "a sentence of uv is one line"
    assert not {"PYTHONPATH", "PIP_TARGET", "CONDA_DEFAULT_ENV"} & set(child)


def test_pip_settings_apply_to_uv(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = https://me:secret@example.org/simple\ncert = /ca.pem\n"
        "[install]\nextra-index-url = https://a.example/simple\n  https://b.example/simple\n[download]\nproxy = no\n",
        encoding="utf-8",
    )
    env = {"PATH": "", "HOME": str(home), "XDG_CONFIG_DIRS": "/nowhere"}
    child = make_child_environment(env)
    assert child["UV_DEFAULT_INDEX"] == "https://me:secret@example.org/simple"
    assert child["UV_INDEX"] == "https://a.example/simple https://b.example/simple"
    assert child["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert child["SSL_CERT_FILE"] == "/ca.pem"
    assert "ALL_PROXY" not in child
    assert (
        make_child_environment({**env, "PIP_INDEX_URL": "https://c.example"})["UV_DEFAULT_INDEX"]
        == "https://c.example"
    )
    with_uv_setting = make_child_environment({**env, "UV_DEFAULT_INDEX": "https://uv.example"})
    assert (with_uv_setting["UV_DEFAULT_INDEX"], with_uv_setting.get("UV_INDEX")) == (
        "https://uv.example",
        None,
    )
    assert "UV_DEFAULT_INDEX" not in make_child_environment({**env, "PIP_CONFIG_FILE": os.devnull})
    assert list_uv_options({**QUIET, "PIP_NO_INDEX": "true"}) == ("--no-index",)
    assert list_uv_options({**QUIET, "PIP_NO_INDEX": "true", "UV_INDEX": "https://uv.example"}) == ()
    assert list_uv_options({**QUIET, "PIP_NO_INDEX": "0"}) == ()


@pytest.mark.parametrize("text", ["[global\n", "\0\0\0", "index-url = x\n", "[global]\nindex-url = x\n" * 2])
def test_invalid_pip_configuration_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "pip.conf").write_text(text, encoding="utf-8")
    child = make_child_environment({"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")})
    assert "UV_DEFAULT_INDEX" not in child


# ---------------------------------------------------------------- running


def test_output_lines_are_cleaned_and_redacted() -> None:
    code = "import sys; sys.stdout.write('one\\rtwo\\n\\x1b[31mred\\x1b[0m'); sys.stdout.flush(); "
    code += "sys.stderr.write('\\nhttps://me:secret@example.org/x\\n' + 'y' * 1000000)"
    lines: list[str] = []
    run_installer([*RUN_CODE, code], env=QUIET, on_line=lines.append)
    assert lines[:4] == ["one", "two", "red", "https://example.org/x"]
    assert len(lines) == 5
    assert len(lines[4]) <= 4100


def test_failed_installer_stops_the_parallel_ones(tmp_path: Path) -> None:
    lines: list[str] = []
    run_installers([[*RUN_CODE, "print(1)"], [*RUN_CODE, "print(2)"]], env=QUIET, on_line=lines.append)
    assert sorted(lines) == ["1", "2"]
    late = f"import time; time.sleep(60); open({str(tmp_path / 'late')!r}, 'w')"
    start = time.monotonic()
    with pytest.raises(InstallFailedError, match="status 7"):
        run_installers([[*RUN_CODE, late], [*RUN_CODE, "raise SystemExit(7)"]], env=QUIET, on_line=None)
    assert time.monotonic() - start < 9
    assert not (tmp_path / "late").exists()


def test_interrupt_stops_the_program_and_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    stubborn = "import os, signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    stubborn += (
        f"open({str(pid_file)!r}, 'w').write(str(os.getpid())); print('up', flush=True); time.sleep(60)"
    )
    code = f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {stubborn!r}]); time.sleep(60)"

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_installer([*RUN_CODE, code], env=QUIET, on_line=interrupt)
    state = Path(f"/proc/{pid_file.read_text()}/stat")
    assert not state.exists() or state.read_text().split()[2] in "ZX"


def test_ctrl_c_while_a_program_is_being_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception inside Popen would leave an unknown child process."""
    processes: list[subprocess.Popen[bytes]] = []
    real_popen = subprocess.Popen

    def raise_interrupt(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(real_popen(*args, **options))
        signal.raise_signal(signal.SIGINT)
        return processes[0]

    monkeypatch.setattr(subprocess, "Popen", raise_interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_installer([*RUN_CODE, "import time; time.sleep(60)"], env=QUIET, on_line=None)
    assert processes[0].returncode is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_second_ctrl_c_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('up', flush=True); "
    start = time.monotonic()

    def interrupt_twice(line: str) -> None:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_installer([*RUN_CODE, stubborn + "time.sleep(60)"], env=QUIET, on_line=interrupt_twice)
    assert time.monotonic() - start < 8


def test_remaining_child_is_not_awaited() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '20']); print('done')"
    start = time.monotonic()
    run_installer([*RUN_CODE, code], env=QUIET, on_line=None)
    assert time.monotonic() - start < 10


def test_lock_is_inherited_by_the_program(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as stream:
        code = f"import os; os.fstat({stream.fileno()})"
        run_installer([*RUN_CODE, code], env=QUIET, on_line=None, pass_fds=[stream.fileno()])
        with pytest.raises(InstallFailedError):
            run_installer([*RUN_CODE, code], env=QUIET, on_line=None)


@needs_uv
def test_manually_cleaned_uv_cache(tmp_path: Path) -> None:
    """uv trusts its cache for wheels of an index in a folder, even if files of the cache are missing."""
    assert UV is not None
    index = tmp_path / "index" / "thing"
    index.mkdir(parents=True)
    wheel_path, _ = write_wheel(index, "thing", "1.0", {"thing.py": ""})
    (index / "index.html").write_text(f'<a href="{wheel_path.name}">{wheel_path.name}</a>', encoding="utf-8")
    cache = tmp_path / "cache"
    env = {**QUIET, "UV_CACHE_DIR": str(cache), "UV_DEFAULT_INDEX": index.parent.as_uri()}
    site = tmp_path / "site"
    command = (UV, "pip", "install", "--python", sys.executable, "--target", str(site), "thing")
    lines: list[str] = []
    run_installer(command, env=env, on_line=lines.append)
    assert (site / "thing.py").is_file()
    shutil.rmtree(site)
    for archives in cache.glob("archive-v*"):
        shutil.rmtree(archives)
    run_installer(command, env=env, on_line=lines.append)
    assert (site / "thing.py").is_file()
    assert any("uv cache clean" in line for line in lines)


def test_inherited_output_goes_to_standard_error() -> None:
    code = (
        "from tfdoctor.environments.installers import run_installer; import sys; "
        "run_installer([sys.executable, '-c', 'print(1)'], env={}, on_line=None, inherits_stderr=True)"
    )
    done = subprocess.run([*RUN_CODE, code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "1\n")


# ---------------------------------------------------------------- reasons for failures

# Messages of uv 0.13, pip 22 to 25 and Linux.
UNREACHED = """\
WARNING: Retrying (Retry(total=4, connect=None, read=None)) after connection broken by 'NewConnectionError(
': Failed to establish a new connection: [Errno 111] Connection refused')': /simple/six/
ERROR: Could not find a version that satisfies the requirement six (from versions: none)
ERROR: No matching distribution found for six"""
UNSATISFIABLE = """\
error: No solution found when resolving dependencies
cause: Because you require numpy==1.26 and numpy==1.25, we can conclude that your requirements are unsatisfiable."""
FAILURES = [
    (
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        "disk is full",
    ),
    ("  cause: failed to write to file: No space left on device (os error 28)", "disk is full"),
    (
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        "not the one that was locked",
    ),
    ("error: Hash mismatch for `six==1.17.0`", "not the one that was locked"),
    (UNREACHED, "cannot be reached"),
    (
        "cause: client error (Connect)\ncause: dns error\ncause: failed to lookup address information",
        "cannot be reached",
    ),
    ("ERROR: No matching distribution found for nosuch", "does not have it"),
    (
        "cause: Because nosuch was not found in the package registry and you require nosuch",
        "does not have it",
    ),
    ("ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/", "conflict with each other"),
    (UNSATISFIABLE, "conflict with each other"),
    (
        "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] …",
        "certificate is not trusted",
    ),
    ("cause: invalid peer certificate: UnknownIssuer", "certificate is not trusted"),
    ("error: externally-managed-environment", "PEP 668"),
    (
        "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x'",
        "permission denied",
    ),
    ("ERROR: 401 Client Error: Unauthorized for url: https://example.org", "name and password"),
    ("error: something quite new", "something quite new"),
    ("", "it said nothing"),
]


@pytest.mark.parametrize(("said", "why"), FAILURES)
def test_reason_for_a_failure(said: str, why: str) -> None:
    with pytest.raises(InstallFailedError) as caught:
        run_installer([*RUN_CODE, f"print({said!r}); raise SystemExit(1)"], env=QUIET, on_line=None)
    assert why in caught.value.message
    assert caught.value.exit_code == 3
    assert bool(caught.value.output) == bool(said)


def test_missing_or_killed_program() -> None:
    with pytest.raises(InstallFailedError, match="could not be started: No such file"):
        run_installer(["/nowhere/uv"], env=QUIET, on_line=None)
    with pytest.raises(InstallFailedError, match="ended by SIGKILL"):
        run_installer([*RUN_CODE, "import os; os.kill(os.getpid(), 9)"], env=QUIET, on_line=None)


def test_failure_names_pip() -> None:
    pip = Installer("pip", sys.executable, (sys.executable, "-m", "pip"))
    with pytest.raises(InstallFailedError, match=r"^pip failed"):
        run_installer(pip.make_install_command(["--no-such-option"]), env=QUIET, on_line=None)


def test_failure_without_a_known_reason() -> None:
    """The last line about an error counts, else the last line; a hint about memory follows SIGKILL."""
    for lines, reason in (
        (("error: first", "Failed: second", "hint: an error", "more"), "Failed: second"),
        (("[notice] error", "last"), "last"),
        ((), "it said nothing"),
    ):
        error = _make_failure_error("uv", 1, lines)
        assert (error.message, error.has_no_solution) == (f"uv failed (status 1): {reason}", False)
    assert _make_failure_error("uv", -9, ()).hint == "It may have been short of memory."
    assert _make_failure_error("uv", -15, ()).hint == ""
    assert _make_failure_error("uv", -99, ()).message == "uv was ended by signal 99."
    for text, has_no_solution in (
        ("No matching distribution found", True),
        ("ResolutionImpossible", True),
        ("No space left on device", False),
    ):
        assert _make_failure_error("uv", 1, (text,)).has_no_solution is has_no_solution


def test_settings_of_pip_files_and_variables(tmp_path: Path) -> None:
    """Each file overrides those before it, and variables override files."""
    for name, text in {
        "xdg1/pip/pip.conf": "[global]\nproxy = 1\ncert = a b\n",
        "xdg2/pip/pip.conf": "[global]\nproxy = 2\nclient_cert = c\ntrusted-host = h1\n h2\n",
        "home/.pip/pip.conf": "[global]\nfind-links = /x\n /y\n",
        "home/.config/pip/pip.conf": "[install]\ntrusted-host =\n",
        "own.conf": "[global]\nproxy = own\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    env = {
        "HOME": f"{tmp_path}/home",
        "XDG_CONFIG_DIRS": f"{tmp_path}/xdg1::{tmp_path}/xdg2",
        "PIP_RETRIES": "0",
    }
    child = make_child_environment(env)
    assert (child["ALL_PROXY"], child["SSL_CLIENT_CERT"]) == ("1", str(Path("c").absolute()))
    assert child["UV_INSECURE_HOST"] == "h1 h2"
    assert child["UV_FIND_LINKS"] == "/x,/y"
    assert child["PIP_RETRIES"] == "1"
    assert make_child_environment({**env, "PIP_CONFIG_FILE": f"{tmp_path}/own.conf"})["ALL_PROXY"] == "own"
    assert make_child_environment({**env, "PIP_PROXY": "variable"})["ALL_PROXY"] == "variable"
    assert make_child_environment({**env, "PIP_RETRIES": "2"})["PIP_RETRIES"] == "2"
    assert make_child_environment({**env, "ALL_PROXY": "kept"})["ALL_PROXY"] == "kept"
    with_index = make_child_environment({**env, "UV_FIND_LINKS": "/z"})
    assert (with_index["UV_FIND_LINKS"], with_index["ALL_PROXY"]) == ("/z", "1")
    for value, options in (("YES", ("--no-index",)), (" on ", ("--no-index",)), ("no", ())):
        assert list_uv_options({**QUIET, "PIP_NO_INDEX": value}) == options
    big = tmp_path / "big.conf"
    big.write_text("[global]\nproxy = 1\n" + "#" * 1_000_000)
    assert "ALL_PROXY" not in make_child_environment({"HOME": "/none", "PIP_CONFIG_FILE": str(big)})
