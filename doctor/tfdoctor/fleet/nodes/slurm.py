"""Nodes that Slurm runs one task on each of: those of this allocation, or of a partition."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from tfdoctor.errors import Error, UsageError
from tfdoctor.fleet.nodes.models import NodeAnswer
from tfdoctor.fleet.nodes.process_pool import ask_each, script
from tfdoctor.system.children import Children
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.fleet.nodes.models import Job
    from tfdoctor.system.children import Ran

__all__ = ["ALLOCATION", "SlurmEngine"]

ALLOCATION = "job"
"""Instead of a partition's name: the nodes of the allocation that we run in."""
PARALLEL = 64
ANSWERING = 30.0
"""Seconds that Slurm's own commands have."""
NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,252}")
GONE = re.compile(
    rb"Unable to create step|Unable to allocate|nodes? .{0,80}(?:not responding|DOWN|unavailable)|Node failure|"
    rb"Requested nodes are busy|NODE_FAIL|nodes required for job are DOWN",
    re.IGNORECASE,
)
"""What srun says where it gets no task onto the node."""
BUSY = re.compile(r"Requested nodes are busy|Immediate execution impossible", re.IGNORECASE)
DOWN = frozenset(("down", "drained", "draining", "fail", "failing", "error", "powered_down", "powering_down"))
"""States of nodes that are given no task."""
MARKS = "*~#!%$@^-+"
"""What `sinfo` puts behind a state."""


class SlurmEngine:
    """`options`: what srun is given besides; `--gres=gpu:8` where a job sees only the GPUs that it asked for."""

    name = "slurm"

    def __init__(self, partition: str, *, options: Sequence[str] = (), parallel: int = PARALLEL) -> None:
        """Raises UsageError, and Error where there is no Slurm or it does not answer."""
        self._inside = partition == ALLOCATION
        self._options, self._parallel = tuple(options), parallel
        if NAME.fullmatch(partition) is None:
            msg = f"--slurm: {clean_line(partition, limit=80)!r} is no name of a partition."
            raise UsageError(msg)
        self._partition = partition
        for program in ("srun", "scontrol" if self._inside else "sinfo"):
            if shutil.which(program) is None:
                msg = f"there is no {program} on PATH."
                raise Error(msg, hint="Run this where Slurm's commands are: a login node, or inside a job.")
        if self._inside and not os.environ.get("SLURM_JOB_NODELIST"):
            raise UsageError(
                "--slurm job: this runs in no allocation (SLURM_JOB_NODELIST is not set).",
                hint="salloc -N 4 tfdoctor fleet run --slurm job, or name a partition.",
            )

    def hosts(self) -> Sequence[str]:
        """Raises Error where Slurm does not answer."""
        argv = ["sinfo", "-N", "-h", "-p", self._partition, "-o", "%N"]
        if self._inside:
            argv = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
        return tuple(sorted(name for name in set(_run_slurm(argv).split()) if NAME.fullmatch(name)))

    def run(self, hosts: Sequence[str], job: Job) -> Iterator[NodeAnswer]:
        """Nodes that Slurm itself has as down are told at once: srun would wait for them."""
        name = f"tfdoctor-{uuid4().hex[:12]}"
        words = ["srun", "--quiet", "--nodes=1", "--ntasks=1", f"--job-name={name}", "--kill-on-bad-exit=0"]
        if self._inside:
            words.append("--overlap")
        else:
            words += [f"--partition={self._partition}", f"--immediate={max(5, round(job.deadline / 2))}"]
            words.append(f"--time={-(-round(job.deadline) // 60) + 1}")
        words += self._options
        inside = ["/bin/sh", "-c", script(job)]
        down = self._find_down()
        for host in hosts:
            if host in down:
                yield NodeAnswer(host, "lost", why=f"Slurm has it as {down[host]}")
        answers = ask_each(
            [host for host in hosts if host not in down],
            job,
            lambda host: [*words, f"--nodelist={host}", *inside],
            _is_lost,
            parallel=self._parallel,
            after=lambda: self._cancel_job(name),
        )
        with contextlib.closing(answers):
            for one in answers:
                yield self._explain_answer(one) if one.ended == "lost" else one

    def _find_down(self, *, silent: bool = False) -> dict[str, str]:
        """Return node → its state and the reason, of nodes that take nothing: "down: Not responding".

        silent: with those that do not answer Slurm just now, too.
        """
        try:
            said = _run_slurm(["sinfo", "-N", "-h", "-o", "%N|%T|%E"])
        except Error:
            return {}
        found = {}
        for line in said.splitlines():
            name, _, told = line.partition("|")
            state, _, reason = told.partition("|")
            bare = state.rstrip(MARKS)
            mute = bare == "unknown" or state.endswith("*")
            if bare in DOWN or (silent and mute):
                told = f"{clean_line(bare, limit=40)}{', not responding' if mute else ''}"
                known = reason not in ("", "none", "None", "Not responding")
                found[name] = f"{told}: {clean_line(reason, limit=200)}" if known else told
        return found

    def _explain_answer(self, one: NodeAnswer) -> NodeAnswer:
        """srun says of a node that is down that it is busy."""
        state = self._find_down(silent=True).get(one.host)
        if state is not None:
            return NodeAnswer(one.host, "lost", why=f"Slurm has it as {state}", seconds=one.seconds)
        if BUSY.search(one.why):
            why = f"Slurm has given no place on it: {one.why.removeprefix('srun: error: ')}"
            return NodeAnswer(one.host, "timeout", why=why, seconds=one.seconds)
        return one

    def _cancel_job(self, name: str) -> None:
        """Cancel what is left of ours: a job outlives an srun that was killed."""
        user = str(os.getuid())
        for wait in (0.0, 0.3, 1.0, 2.0):  # one that was being submitted comes a moment later
            time.sleep(wait)
            try:
                if self._inside:
                    asked = [
                        "squeue",
                        "-h",
                        "--steps",
                        "-j",
                        os.environ.get("SLURM_JOB_ID", ""),
                        "-o",
                        "%i %j",
                    ]
                    steps = [line.split() for line in _run_slurm(asked).splitlines()]
                    left = [step[0] for step in steps if step[1:] == [name]]
                else:
                    states = "PENDING,RUNNING,SUSPENDED,CONFIGURING"
                    left = _run_slurm(
                        ["squeue", "-h", f"--name={name}", "-u", user, "-t", states, "-o", "%A"]
                    ).split()
                if not left:
                    return
                _run_slurm(["scancel", "--quiet", *left])
            except Error:
                continue


def _run_slurm(argv: Sequence[str]) -> str:
    """Return what one of Slurm's commands prints. Raises Error."""
    try:
        ran = Children().run(argv, timeout=ANSWERING, env=dict(os.environ))  # after Ctrl-C, too
    except (OSError, ValueError) as error:
        msg = f"{argv[0]} could not be started: {error}."
        raise Error(msg) from error
    if ran.returncode != 0:
        said = ran.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = clean_line(re.sub(rf"^{argv[0]}: (?:error: |fatal: )?", "", said), limit=200)
        msg = f"{argv[0]}: {why or 'no answer'}."
        raise Error(msg)
    return ran.stdout.decode("utf-8", "replace")


def _is_lost(ran: Ran) -> bool:
    """Return where a node goes down in the middle, srun ends with 0."""
    return not ran.stdout.strip() and GONE.search(ran.stderr[-20_000:]) is not None
