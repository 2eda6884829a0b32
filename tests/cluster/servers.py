"""Real servers of tf.distribute on this machine's CPU, a process each: started, watched, and killed for certain."""

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
"""What a program prints when all of its cluster has worked together (a server: when it serves)."""
LIFE = 150
"""Seconds after which a server dies by itself, whatever became of the test."""


def ports(count: int) -> list[int]:
    """Ports at which nothing listens now."""
    with contextlib.ExitStack() as held:
        taken = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in taken]


def config(cluster: dict[str, list[str]], job: str, index: int) -> str:
    """A TF_CONFIG."""
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


class Servers:
    """The processes of one cluster; leaving kills all of them with all that they started."""

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
        """One task; before: a command that runs it. Its log is FOLDER/NAME.log."""
        log = self.folder / f"{name}.log"
        kept = {word: os.environ[word] for word in ("PATH", "HOME", "LANG", "TMPDIR") if word in os.environ}
        env = {**kept, "TF_CONFIG": tf_config, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONDONTWRITEBYTECODE": "1"}
        argv = ["timeout", "--foreground", "-s", "KILL", str(LIFE), *before, python, "-c", program]
        with log.open("wb") as out:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
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
        """Whether its log has this within this time."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if re.search(pattern, self.text(name)):
                return True
            time.sleep(0.2)
        return False

    def wait(self, names: Sequence[str], seconds: float) -> bool:
        """Whether each has said that it works, or has ended, within this time."""
        ends = time.monotonic() + seconds
        processes = {name: process for name, process, _ in self.started}
        while time.monotonic() < ends:
            if all(self.is_done(name) or processes[name].poll() is not None for name in names):
                return True
            time.sleep(0.2)
        return False

    def wait_for_ports(self, places: Sequence[int], seconds: float) -> bool:
        """Whether something takes connections at each of these ports within this time."""
        ends = time.monotonic() + seconds
        left = list(places)
        while left and time.monotonic() < ends:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", left[0]), 1):
                left.pop(0)
                continue
            time.sleep(0.2)
        return not left


def tfdoctor(*words: str, env: dict[str, str] | None = None) -> tuple[int, Any]:
    """Exit status and JSON of tfdoctor."""
    ended = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *words, "--json"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    return ended.returncode, json.loads(ended.stdout)
