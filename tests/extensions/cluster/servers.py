"""Real servers of tf.distribute on this machine's CPU, one process each, which are always killed at the end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MIRRORED = """
import tensorflow as tf
made = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
strategy = (made or tf.distribute.experimental.MultiWorkerMirroredStrategy)()
one = tf.function(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
print("ALL", float(strategy.experimental_local_results(strategy.run(one))[0]), flush=True)
import time
time.sleep(600)
"""
PARAMETERS = """
import json, os, time
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc")
    print("ALL serves", flush=True)
    server.join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    there = tf.Variable(2.0)
print("ALL", there.device, float(there), flush=True)
time.sleep(600)
"""
SESSION = """
import json, os, time
import tensorflow as tf
v1 = tf.compat.v1
given = json.loads(os.environ["TF_CONFIG"])
server = v1.train.Server(given["cluster"], given["task"]["type"], given["task"]["index"])
if given["task"]["type"] != "chief":
    print("ALL serves", flush=True)
    server.join()
with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
        there = v1.get_variable("there", initializer=2.0)
    with v1.Session(server.target) as session:
        session.run(there.initializer)
        print("ALL", session.run(there), flush=True)
time.sleep(600)
"""
DONE = "ALL "
"""Start of the line that a program prints when its whole cluster has worked, and a server when it serves."""
MAX_LIFETIME_S = 150
"""Seconds after which a server is killed even if the test was interrupted."""


def ports(count: int) -> list[int]:
    """Return ports without a listener."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def config(cluster: dict[str, list[str]], job: str, index: int) -> str:
    """Return a TF_CONFIG."""
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


class Servers:
    """The processes of one cluster; leaving the context kills them and their children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def __enter__(self) -> Servers:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        for _, process, _ in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for _, process, _ in self.started:
            process.wait(20)

    def start(
        self, name: str, python: str, program: str, tf_config: str, *, before: Sequence[str] = ()
    ) -> None:
        """Start one task, whose log is FOLDER/NAME.log; `before` is a command that runs it."""
        log = self.folder / f"{name}.log"
        environment = {
            variable: os.environ[variable]
            for variable in ("PATH", "HOME", "LANG", "TMPDIR")
            if variable in os.environ
        }
        env = {
            **environment,
            "TF_CONFIG": tf_config,
            "CUDA_VISIBLE_DEVICES": "-1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        argv = ["timeout", "--foreground", "-s", "KILL", str(MAX_LIFETIME_S), *before, python, "-c", program]
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=self.folder,
                start_new_session=True,
            )
        self.started.append((name, process, log))

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def is_done(self, name: str) -> bool:
        return any(line.startswith(DONE) for line in self.text(name).splitlines())

    def says(self, name: str, pattern: str, seconds: float) -> bool:
        """Return whether the log matches the pattern within this many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if re.search(pattern, self.text(name)):
                return True
            time.sleep(0.2)
        return False

    def wait(self, names: Sequence[str], seconds: float) -> bool:
        """Return whether each task is done or has ended within this many seconds."""
        deadline = time.monotonic() + seconds
        processes = {name: process for name, process, _ in self.started}
        while time.monotonic() < deadline:
            if all(self.is_done(name) or processes[name].poll() is not None for name in names):
                return True
            time.sleep(0.2)
        return False

    def wait_for_ports(self, numbers: Sequence[int], seconds: float) -> bool:
        """Return whether each of these ports accepts connections within this many seconds."""
        deadline = time.monotonic() + seconds
        remaining = list(numbers)
        while remaining and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", remaining[0]), 1):
                remaining.pop(0)
                continue
            time.sleep(0.2)
        return not remaining


def tfdoctor(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, Any]:
    """Run tfdoctor and return its exit status and parsed JSON output."""
    result = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *arguments, "--json"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    return result.returncode, json.loads(result.stdout)
