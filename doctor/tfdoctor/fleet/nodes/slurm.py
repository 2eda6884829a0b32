"""Nodes that Slurm runs one task on each of: those of this allocation, or of a partition."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from tfdoctor.errors import Error, UsageError
from tfdoctor.fleet.nodes.started import each, script
from tfdoctor.system.children import run
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.fleet.nodes.models import Answer, Job
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
        try:
            ran = run(argv, timeout=ANSWERING, env=dict(os.environ))
        except (OSError, ValueError) as error:
            msg = f"{argv[0]} could not be started: {error}."
            raise Error(msg) from error
        if ran.returncode != 0:
            why = clean_line(ran.stderr.decode("utf-8", "replace"), limit=200)
            msg = f"{argv[0]}: {why or 'no answer'}."
            raise Error(msg)
        names = set(ran.stdout.decode("utf-8", "replace").split())
        return tuple(sorted(name for name in names if NAME.fullmatch(name)))

    def run(self, hosts: Sequence[str], job: Job) -> Iterator[Answer]:
        words = ["srun", "--quiet", "--nodes=1", "--ntasks=1", "--job-name=tfdoctor", "--kill-on-bad-exit=0"]
        if self._inside:
            words.append("--overlap")
        else:
            words += [f"--partition={self._partition}", f"--immediate={max(5, round(job.deadline / 2))}"]
            words.append(f"--time={-(-round(job.deadline) // 60) + 1}")
        words += self._options
        inside = ["sh", "-c", script(job)]
        return each(
            hosts,
            job,
            lambda host: [*words, f"--nodelist={host}", *inside],
            _lost,
            parallel=self._parallel,
        )


def _lost(ran: Ran) -> bool:
    return bool(ran.returncode) and not ran.stdout.strip() and GONE.search(ran.stderr[-20_000:]) is not None
