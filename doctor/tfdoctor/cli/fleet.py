"""`tfdoctor fleet`."""

from __future__ import annotations

import contextlib
import enum
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.options import (
    FailOn,
    Force,
    Json,
    Severe,
    argument,
    command,
    finite,
    option,
    verbose_option,
)
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.findings import Severity
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfdoctor.fleet import Fleet, Gathered
    from tfdoctor.fleet.nodes import Engine, Job
    from tfdoctor.fleet.nodes.store import Store, StoredNode


MAX_SPECIFICATION_CHARS = 60_000
"""Characters of a specification on a node's command line; Linux takes 128 KiB in one word, quoted twice."""
SHARE = 0.6
"""The part of a host's deadline that connecting may take: starting Python and tfdoctor there takes time, too."""


class What(str, enum.Enum):
    """What is to be done."""

    run = "run"
    report = "report"


@command
def fleet(
    what: Annotated[
        What, argument("run: ask the hosts, then report. report: judge what is there.", metavar="run|report")
    ],
    folder: Annotated[
        Path, argument("The results: files NODE.json, as `tfdoctor check --json` prints them.", metavar="DIR")
    ],
    ssh: Annotated[
        str | None,
        option("run: these hosts, through ssh: a,b,c or a file with a name a line.", metavar="HOSTS"),
    ] = None,
    slurm: Annotated[
        str | None,
        option("run: a task on each node of this partition; job: of this allocation.", metavar="PARTITION"),
    ] = None,
    dask: Annotated[
        str | None, option("run: once on each host that has a worker of this scheduler.", metavar="ADDRESS")
    ] = None,
    ray: Annotated[
        str | None, option("run: once on each node of this Ray cluster.", metavar="ADDRESS")
    ] = None,
    kubernetes: Annotated[
        str | None, option("run: a Job on each node, in this namespace; with --image.", metavar="NAMESPACE")
    ] = None,
    image: Annotated[
        str | None, option("run: the image of --kubernetes; its Python is examined.", metavar="IMAGE")
    ] = None,
    gpus: Annotated[
        int, option("run: GPUs that each pod of --kubernetes asks for.", min=0, max=64, metavar="N")
    ] = 1,
    emit: Annotated[
        bool, option("run: only print the manifest of --kubernetes, to apply it yourself.", "--emit")
    ] = False,
    python: Annotated[
        str | None, option("run: the Python to examine there, as for `check`.", metavar="PATH")
    ] = None,
    runner: Annotated[
        str, option("run: the Python 3.10 or later that runs tfdoctor there.", metavar="PATH")
    ] = "python3",
    deadline: Annotated[
        float,
        option("run: each host has so many seconds.", min=5, max=3600, metavar="SECONDS", callback=finite),
    ] = 120.0,
    connect: Annotated[
        str | None,
        option(
            "run: each host then connects to all others at this port, or to the tasks of this TF_CONFIG, and says "
            "whom it does not reach.",
            metavar="PORT|JSON|FILE",
        ),
    ] = None,
    resume: Annotated[bool, option("run: ask only the hosts that have no result yet.", "--resume")] = False,
    pass_on: Annotated[
        list[str] | None, option("run: give this to ssh or srun: -p2222, --gres=gpu:8.", metavar="OPTION")
    ] = None,
    dry_run: Annotated[bool, option("run: only say which hosts, and what.", "--dry-run")] = False,
    fail_on: Severe = FailOn.error,
    html: Annotated[
        Path | None,
        option(
            "Also write the answer to this file as a page for a browser; it names the hosts.", metavar="FILE"
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show all findings, hosts and groups.")] = False,
) -> int:
    """Ask if it is to, read, judge, print. Returns the exit status.

    Groups the hosts that are alike in driver, kernel, cards, TensorFlow, Python, libraries, packages, variables and
    paths, and says what the odd ones have: another version, a card missing or slower, no GPU for TensorFlow.

    Nothing needs to be installed on the hosts: one file travels there, runs `check --json`, and is gone; with
    --connect it then runs `cluster --connect --json`. What comes back is kept in DIR as it comes, and not trusted.
    """
    from tfdoctor.privacy.redactor import Redactor
    from tfdoctor.render.fleet import fleet_json, redact_fleet, render_fleet
    from tfdoctor.render.terminal import OUT

    if html is not None:
        from tfdoctor.system.writing import check_file

        check_file(html, force=force, option="--html", reads=folder.glob("*.json"))
    named = {"ssh": ssh, "slurm": slurm, "dask": dask, "ray": ray, "kubernetes": kubernetes}
    asked = [name for name, value in named.items() if value is not None]
    if what is What.report and (asked or python or resume or pass_on or dry_run or image or emit or connect):
        raise UsageError(
            "`fleet report` asks nobody: --ssh, --slurm, --dask, --ray, --kubernetes and what goes with them "
            "are options of `run`."
        )
    if what is What.run:
        if len(asked) != 1:
            raise UsageError(
                "`fleet run` needs one of --ssh, --slurm, --dask, --ray and --kubernetes.",
                hint="tfdoctor fleet run DIR --ssh a,b",
            )
        if kubernetes is None and (image or emit):
            raise UsageError("--image and --emit go with --kubernetes.")
        words = ("check", "--json", *(("--python", python) if python else ()))
        if kubernetes is not None and emit:
            if connect is not None:
                raise UsageError("--connect asks the hosts, and --emit asks nobody.")
            return _emit_manifest(kubernetes, image, words, runner, deadline, gpus)

        def engine() -> Engine:
            return _engine(asked[0], named[asked[0]] or "", pass_on or [], image=image, gpus=gpus)

        first = engine()
        peers = None if connect is None else _peers(connect, first, deadline)
        if not _ask_hosts(first, folder, words, runner, deadline, resume=resume, dry_run=dry_run):
            return ExitCode.OK
        if peers is not None:
            from tfdoctor.fleet.nodes.store import PEERS, Store

            there = {host for host, end in Store(folder).endings().items() if end.ended == "answered"}
            if there:
                _ask_hosts(engine(), folder / PEERS, peers, runner, deadline, resume=resume, only=there)
    answer = load_results(folder, asked[0] if asked else "folder")
    published = redact_fleet(answer, Redactor()) if html is not None or as_json else answer
    if html is not None:
        from tfdoctor.cli.html_file import write_page
        from tfdoctor.render.html.fleet import fleet_html

        write_page(html, fleet_html(published), force=force, quiet=as_json, remark="it names the hosts")
    if as_json:
        from tfdoctor.render.json import write_json

        write_json(fleet_json(published))
    else:
        OUT.write(render_fleet(answer, verbose=verbose, **OUT.looks))
    if fail_on is FailOn.never:
        return ExitCode.OK
    least = Severity[fail_on.value.upper()]
    return ExitCode.FOUND if any(one.severity >= least for one in answer.findings) else ExitCode.OK


def _peers(connect: str, engine: Engine, deadline: float) -> tuple[str, ...]:
    """Return what each host runs to see whom it reaches. Raises UsageError."""
    import json

    from tfdoctor.cli.cluster import parse_specification
    from tfdoctor.cli.fast_parser import CONNECTING
    from tfdoctor.fleet.peers import machine

    if connect.isdecimal() and len(connect) < 6:
        if not 0 < int(connect) < 65536:
            raise UsageError("--connect: a port is a number from 1 to 65535.")
        if engine.name == "kubernetes":
            raise UsageError("--connect PORT: pods do not have their nodes' names. Give the run's TF_CONFIG.")
        hosts = dict.fromkeys(machine(one) for one in engine.hosts())
        addresses = [f"[{host}]:{connect}" if ":" in host else f"{host}:{connect}" for host in hosts]
        cluster: object = {"worker": addresses}
    else:
        written = parse_specification(connect).written[0]
        cluster = written.shown
        if written.jobs is None or not cluster:
            why = written.faults[0].message if written.faults else "it has no cluster."
            msg = f"--connect: {why}"
            raise UsageError(msg)
    text = json.dumps({"cluster": cluster}, separators=(",", ":"))
    if len(text) > MAX_SPECIFICATION_CHARS:
        msg = (
            f"--connect: {len(text):,} characters of addresses are more than a command line takes "
            f"({MAX_SPECIFICATION_CHARS:,})."
        )
        raise UsageError(msg, hint="Take some of the hosts: a few tell whether a network is cut in two.")
    return (*CONNECTING, "--timeout", f"{min(999.0, deadline * SHARE):.0f}", "--tf-config", text)


def _emit_manifest(
    namespace: str, image: str | None, words: tuple[str, ...], runner: str, deadline: float, gpus: int
) -> int:
    """Print the manifest. Raises UsageError."""
    from tfdoctor.fleet.nodes import Job
    from tfdoctor.fleet.nodes.kubernetes import check_image, format_manifest
    from tfdoctor.fleet.nodes.zipapp import zipapp
    from tfdoctor.render.terminal import OUT

    image = check_image(namespace, image)
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as beside:
        path = Path(beside, "tfdoctor.pyz")
        path.write_bytes(zipapp())
        OUT.document(
            format_manifest(namespace, image, Job(path, words, python=runner, deadline=deadline), gpus=gpus)
        )
    return ExitCode.OK


def _engine(name: str, value: str, options: list[str], *, image: str | None, gpus: int) -> Engine:
    """Raises UsageError, Error."""
    if options and name not in ("ssh", "slurm"):
        raise UsageError("--pass-on is for ssh and srun.")
    if name == "dask":
        from tfdoctor.fleet.nodes.dask import DaskEngine

        return DaskEngine(value)
    if name == "kubernetes":
        from tfdoctor.cli.log_arguments import note
        from tfdoctor.fleet.nodes.kubernetes import KubernetesEngine

        engine = KubernetesEngine(value, image, gpus=gpus)
        note(engine.asks)
        return engine
    if name == "ray":
        from tfdoctor.fleet.nodes.ray import RayEngine

        return RayEngine(value)
    if name == "slurm":
        from tfdoctor.fleet.nodes.slurm import SlurmEngine

        return SlurmEngine(value, options=options)
    from tfdoctor.cli.files import text_of
    from tfdoctor.fleet.nodes.ssh import SshEngine, host_names

    is_file = "," not in value and os.path.isfile(value)  # noqa: PTH113 - of a long name, Path.is_file raises OSError
    hosts = host_names(text_of(Path(value), "--ssh") if is_file else value)
    if not hosts:
        raise UsageError("--ssh names no host.")
    return SshEngine(hosts, options=options)


def _ask_hosts(
    engine: Engine,
    folder: Path,
    words: tuple[str, ...],
    runner: str,
    deadline: float,
    *,
    resume: bool,
    dry_run: bool = False,
    only: Collection[str] | None = None,
) -> bool:
    """Ask the hosts, or `only` these of them, and keep what comes. False: --dry-run. Raises UsageError, Error."""
    from tfdoctor.cli.log_arguments import note
    from tfdoctor.fleet.nodes import Job
    from tfdoctor.fleet.nodes.store import Store
    from tfdoctor.fleet.nodes.zipapp import zipapp
    from tfdoctor.system.writing import scratch_folder

    store = Store(folder)
    if not (store.empty or resume):
        msg = f"{clean_line(str(folder))} is not empty."
        raise UsageError(
            msg, hint="Name a new folder, or give --resume to ask only the hosts that are missing."
        )
    hosts = [host for host in engine.hosts() if only is None or host in only]
    if not hosts:
        msg = f"{engine.name} knows no host."
        raise UsageError(msg)
    done = {host for host, end in store.endings().items() if end.ended == "answered"} if resume else set()
    left = [host for host in hosts if host not in done]
    if dry_run:
        from tfdoctor.render.terminal import OUT

        names = ", ".join(clean_line(host, limit=80) for host in left[:50])
        more = f" and {len(left) - 50} more" if len(left) > 50 else ""
        OUT.write(f"Would run {runner} tfdoctor.pyz {' '.join(words)} on {len(left)} hosts: {names}{more}\n")
        return False
    store.make()
    again = f", {len(hosts) - len(left)} have a result" if len(left) < len(hosts) else ""
    note(
        f"Asking {len(left)} host{'s' * (len(left) != 1)} through {engine.name}{again}; results in {folder}."
    )
    with scratch_folder() as beside:
        path = beside / "tfdoctor.pyz"
        path.write_bytes(zipapp())
        _keep_answers(engine, left, Job(path, words, python=runner, deadline=deadline), store)
    return True


def _keep_answers(engine: Engine, hosts: list[str], job: Job, store: Store) -> None:
    from tfdoctor.cli.log_arguments import note

    began, count = time.time(), 0
    with contextlib.ExitStack() as stack:
        answers = engine.run(hosts, job)
        stack.callback(getattr(answers, "close", lambda: None))
        try:
            for one in answers:
                came = time.time()
                store.keep(one, asked=came - one.seconds if one.seconds else began, came=came)
                count += 1
                if one.ended != "answered":
                    note(f"{clean_line(one.host, limit=80)}: {one.ended}{f': {one.why}' if one.why else ''}")
        except KeyboardInterrupt:
            note(f"{count} of {len(hosts)} hosts had answered; --resume asks the others.")
            raise


def load_results(folder: Path, engine: str) -> Fleet:
    """Return the results of a folder, judged. Raises UsageError if there are none."""
    from tfdoctor.fleet import MAX_ANSWER_BYTES, Gathered, evaluate_fleet
    from tfdoctor.fleet.nodes.store import PEERS, Store

    store, found = Store(folder), Gathered()
    for one in store.results(MAX_ANSWER_BYTES):
        _take(found, one)
    if not found.hosts:
        msg = f"{clean_line(str(folder))} has no results."
        raise UsageError(msg, hint="tfdoctor check --json > DIR/$(hostname).json on each host")
    if (folder / PEERS).is_dir():
        for one in Store(folder / PEERS).results(MAX_ANSWER_BYTES):
            _take_peers(found, one)
    return evaluate_fleet(engine, found, aside=store.aside)


def _take_peers(found: Gathered, one: StoredNode) -> None:
    """Whom a node reaches, or why that is not known."""
    from tfdoctor.fleet import UnusableError, read_peers

    state = found.hosts.get(one.host)
    if state is not None and state.state in ("lost", "timeout"):
        return  # told already
    ending = one.ending
    if ending is not None and ending.ended != "answered":
        found.mute[one.host] = ending.why
    elif one.content is None:
        found.mute[one.host] = one.why or "its file is gone"
    else:
        try:
            found.peers[one.host] = read_peers(one.content)
        except UnusableError as error:
            found.mute[one.host] = str(error)


def _take(found: Gathered, one: StoredNode) -> None:
    """A node's result, or why there is none: what its last run gave counts, not an older file."""
    from tfdoctor.fleet import UnusableError, read_result

    ending = one.ending
    seconds = ending.seconds if ending is not None else None
    if ending is not None and ending.ended in ("lost", "timeout"):
        found.silent(one.host, "lost" if ending.ended == "lost" else "timeout", ending.why, seconds=seconds)
        return
    if ending is not None and ending.ended != "answered":
        found.silent(one.host, "failed", ending.why, seconds=seconds)
        return
    if one.content is None:
        found.silent(one.host, "failed", one.why or "its file is gone", seconds=seconds)
        return
    try:
        result = read_result(one.content)
    except UnusableError as error:
        found.silent(one.host, "failed", str(error), seconds=seconds)
        return
    asked, came = (ending.asked, ending.came) if ending is not None else (None, None)
    found.add(one.host, result, seconds=seconds, asked=asked, came=came)
