"""Run the check with Slurm: one task runs on each node of the current allocation, or of a partition."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.fleet.nodes.models import NodeAnswer
from tfdoctor.extensions.fleet.nodes.process_pool import make_node_script, run_on_hosts
from tfdoctor.system.children import Children

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.extensions.fleet.nodes.models import NodeJob
    from tfdoctor.system.children import ChildResult

__all__ = ["ALLOCATION_NAME", "SlurmEngine"]

ALLOCATION_NAME = "job"
"""The value instead of a partition's name that selects the nodes of the current allocation."""
DEFAULT_PARALLEL = 64
"""The default number of nodes that are reached at the same time."""
COMMAND_TIMEOUT_S = 30.0
"""Seconds that Slurm's own commands may take."""
NAME_PATTERN = re.compile(r"[A-Za-z0-9_][\w.-]{0,252}")
"""A valid name of a partition or a node. It must not look like an option."""
LOST_MESSAGE = re.compile(
    rb"Unable to create step|Unable to allocate|nodes? .{0,80}(?:not responding|DOWN|unavailable)|Node failure|"
    rb"Requested nodes are busy|NODE_FAIL|nodes required for job are DOWN",
    re.IGNORECASE,
)
"""A message of srun if it cannot run a task on the node."""
BUSY_MESSAGE = re.compile(r"Requested nodes are busy|Immediate execution impossible", re.IGNORECASE)
"""A message of srun if it got no node in time."""
DOWN_STATES = frozenset(
    ("down", "drained", "draining", "fail", "failing", "error", "powered_down", "powering_down")
)
"""The node states in which Slurm starts no tasks."""
STATE_SUFFIXES = "*~#!%$@^-+"
"""The characters that `sinfo` appends to a state."""


class SlurmEngine:
    """An engine for Slurm.

    `options` are additional options of srun, such as `--gres=gpu:8` if a job sees only the GPUs that it requested.
    """

    name = "slurm"

    def __init__(
        self, partition: str, *, options: Sequence[str] = (), parallel: int = DEFAULT_PARALLEL
    ) -> None:
        """Check the arguments.

        Raise UsageError if they are invalid, and Error if Slurm's commands are not found.
        """
        self._in_allocation = partition == ALLOCATION_NAME
        self._options, self._parallel = tuple(options), parallel
        if NAME_PATTERN.fullmatch(partition) is None:
            msg = f"--slurm: {clean_line(partition, limit=80)!r} is no name of a partition."
            raise UsageError(msg)
        self._partition = partition
        for program in ("srun", "scontrol" if self._in_allocation else "sinfo"):
            if shutil.which(program) is None:
                msg = f"there is no {program} on PATH."
                raise Error(msg, hint="Run this where Slurm's commands are: a login node, or inside a job.")
        if self._in_allocation and not os.environ.get("SLURM_JOB_NODELIST"):
            raise UsageError(
                "--slurm job: this runs in no allocation (SLURM_JOB_NODELIST is not set).",
                hint="salloc -N 4 tfdoctor fleet run --slurm job, or name a partition.",
            )

    def hosts(self) -> Sequence[str]:
        """Return the nodes' names. Raise Error if Slurm's command fails."""
        argv = ["sinfo", "-N", "-h", "-p", self._partition, "-o", "%N"]
        if self._in_allocation:
            argv = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
        return tuple(sorted(name for name in set(_run_slurm(argv).split()) if NAME_PATTERN.fullmatch(name)))

    def run(self, hosts: Sequence[str], job: NodeJob) -> Iterator[NodeAnswer]:
        """Yield the results. Nodes that are down are reported at once, because srun would wait for them."""
        name = f"tfdoctor-{uuid4().hex[:12]}"
        arguments = [
            "srun",
            "--quiet",
            "--nodes=1",
            "--ntasks=1",
            f"--job-name={name}",
            "--kill-on-bad-exit=0",
        ]
        if self._in_allocation:
            arguments.append("--overlap")
        else:
            # --immediate is in seconds: srun gives up if it gets no node by then. --time is in minutes: the deadline,
            # rounded up, and one more.
            arguments += [
                f"--partition={self._partition}",
                f"--immediate={max(5, round(job.time_limit_s / 2))}",
            ]
            arguments.append(f"--time={-(-round(job.time_limit_s) // 60) + 1}")
        arguments += self._options
        command = ["/bin/sh", "-c", make_node_script(job)]
        reason_by_down_node = self._find_down_nodes()
        for host in hosts:
            if host in reason_by_down_node:
                yield NodeAnswer(host, "lost", reason=f"Slurm has it as {reason_by_down_node[host]}")
        answers = run_on_hosts(
            [host for host in hosts if host not in reason_by_down_node],
            job,
            lambda host: [*arguments, f"--nodelist={host}", *command],
            _is_lost,
            max_parallel=self._parallel,
            clean_up=lambda: self._cancel_job(name),
        )
        with contextlib.closing(answers):
            for answer in answers:
                yield self._explain_answer(answer) if answer.outcome == "lost" else answer

    def _find_down_nodes(self, *, include_silent: bool = False) -> dict[str, str]:
        """Return the state and reason of each node that gets no tasks, such as "drained: bad disk".

        If `include_silent` is true, nodes that do not respond to Slurm at the moment are included. The result is empty
        if `sinfo` fails.
        """
        try:
            output = _run_slurm(["sinfo", "-N", "-h", "-o", "%N|%T|%E"])
        except Error:
            return {}
        reason_by_node = {}
        for line in output.splitlines():
            name, _, description = line.partition("|")
            state, _, reason = description.partition("|")
            base_state = state.rstrip(STATE_SUFFIXES)
            is_silent = base_state == "unknown" or state.endswith("*")
            if base_state in DOWN_STATES or (include_silent and is_silent):
                description = f"{clean_line(base_state, limit=40)}{', not responding' if is_silent else ''}"
                has_reason = reason not in ("", "none", "None", "Not responding")
                reason_by_node[name] = (
                    f"{description}: {clean_line(reason, limit=200)}" if has_reason else description
                )
        return reason_by_node

    def _explain_answer(self, answer: NodeAnswer) -> NodeAnswer:
        """Return the answer with the node's real state, because srun reports a node that is down as busy."""
        state = self._find_down_nodes(include_silent=True).get(answer.host)
        if state is not None:
            return NodeAnswer(
                answer.host, "lost", reason=f"Slurm has it as {state}", duration_s=answer.duration_s
            )
        if BUSY_MESSAGE.search(answer.reason):
            reason = f"Slurm has given no place on it: {answer.reason.removeprefix('srun: error: ')}"
            return NodeAnswer(answer.host, "timeout", reason=reason, duration_s=answer.duration_s)
        return answer

    def _cancel_job(self, name: str) -> None:
        """Cancel the remaining jobs of this run, because a job survives an srun that was killed."""
        user = str(os.getuid())
        for delay in (0.0, 0.3, 1.0, 2.0):  # a job that was being submitted appears a moment later
            time.sleep(delay)
            try:
                if self._in_allocation:
                    query = [
                        "squeue",
                        "-h",
                        "--steps",
                        "-j",
                        os.environ.get("SLURM_JOB_ID", ""),
                        "-o",
                        "%i %j",
                    ]
                    steps = [
                        line.split() for line in _run_slurm(query).splitlines()
                    ]  # [ID, name of the step]
                    remaining = [step[0] for step in steps if step[1:] == [name]]
                else:
                    states = "PENDING,RUNNING,SUSPENDED,CONFIGURING"
                    remaining = _run_slurm(
                        ["squeue", "-h", f"--name={name}", "-u", user, "-t", states, "-o", "%A"]
                    ).split()
                if not remaining:
                    return
                _run_slurm(["scancel", "--quiet", *remaining])
            except Error:
                continue


def _run_slurm(argv: Sequence[str]) -> str:
    """Return the output of a Slurm command. Raise Error if it fails."""
    try:
        # A new `Children` also works after Ctrl-C.
        result = Children().run(argv, timeout=COMMAND_TIMEOUT_S, env=dict(os.environ))
    except (OSError, ValueError) as error:
        msg = f"{argv[0]} could not be started: {error}."
        raise Error(msg) from error
    if result.returncode != 0:
        last_line = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        reason = clean_line(re.sub(rf"^{argv[0]}: (?:error: |fatal: )?", "", last_line), limit=200)
        msg = f"{argv[0]}: {reason or 'no answer'}."
        raise Error(msg)
    return result.stdout.decode("utf-8", "replace")


def _is_lost(result: ChildResult) -> bool:
    """Return whether the node was not reached or went down.

    The exit status does not tell, because srun ends with 0 if a node goes down during a task.
    """
    return not result.stdout.strip() and LOST_MESSAGE.search(result.stderr[-20_000:]) is not None
