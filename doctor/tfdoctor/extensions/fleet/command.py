"""The commands `tfdoctor fleet run` and `tfdoctor fleet report`."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.options import (
    FailOn,
    FailOnOption,
    Force,
    Json,
    argument,
    check_finite,
    command,
    option,
    verbose_option,
)
from tfdoctor.core.errors import ExitCode, UsageError
from tfdoctor.core.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfdoctor.extensions.fleet.aggregation import GatheredResults
    from tfdoctor.extensions.fleet.models import Fleet
    from tfdoctor.extensions.fleet.nodes import NodeEngine, NodeJob
    from tfdoctor.extensions.fleet.nodes.store import ResultStore, StoredNode


MAX_SPECIFICATION_ARGUMENT_CHARS = 60_000
"""The largest number of characters of a specification on a command line.

Linux allows 128 KiB for an argument, and this one is quoted twice.
"""
CONNECT_DEADLINE_SHARE = 0.6
"""The share of a host's deadline that is for connecting.

Starting Python and tfdoctor there takes time as well.
"""


Folder = Annotated[
    Path,
    argument(
        "The results: a file NODE.json for each host, as `tfdoctor check --json` prints it.", metavar="DIR"
    ),
]
FleetHtml = Annotated[
    Path | None,
    option("Also write the answer to this file as a page for a browser; it names the hosts.", metavar="FILE"),
]
Verbose = Annotated[bool, verbose_option("Show all findings, hosts and groups.")]


@command(
    "tfdoctor fleet run results --ssh node1,node2",
    "tfdoctor fleet run results --slurm gpu --pass-on=--gres=gpu:1",
    "tfdoctor fleet run results --resume --ssh hosts.txt",
)
def run_fleet(
    folder: Folder,
    ssh: Annotated[
        str | None,
        option("Ask these hosts through ssh: a,b,c or a file with one name per line.", metavar="HOSTS"),
    ] = None,
    slurm: Annotated[
        str | None,
        option("Ask each node of this Slurm partition; `job`: of this allocation.", metavar="PARTITION"),
    ] = None,
    dask: Annotated[
        str | None, option("Ask each host that has a worker of this Dask scheduler.", metavar="ADDRESS")
    ] = None,
    ray: Annotated[str | None, option("Ask each node of this Ray cluster.", metavar="ADDRESS")] = None,
    kubernetes: Annotated[
        str | None,
        option("Start a Job on each node, in this namespace; needs --image.", metavar="NAMESPACE"),
    ] = None,
    image: Annotated[
        str | None, option("The image for --kubernetes; its Python is examined.", metavar="IMAGE")
    ] = None,
    gpu_count: Annotated[
        int, option("The number of GPUs that each pod of --kubernetes requests.", min=0, max=64, metavar="N")
    ] = 1,
    emit: Annotated[
        bool, option("Print the manifest for --kubernetes, to apply it yourself.", "--emit")
    ] = False,
    python: Annotated[
        str | None, option("The Python to examine on each host, as for `check`.", metavar="PATH")
    ] = None,
    runner: Annotated[
        str, option("The Python 3.10 or later that runs tfdoctor on each host.", metavar="PATH")
    ] = "python3",
    timeout: Annotated[
        float,
        option(
            "Stop waiting for a host after this many seconds.",
            min=5,
            max=3600,
            metavar="SECONDS",
            callback=check_finite,
        ),
    ] = 120.0,
    connect: Annotated[
        str | None,
        option(
            "Let each host connect to all others at this port, or to the tasks of this TF_CONFIG, and report which "
            "ones it does not reach.",
            metavar="PORT|JSON|FILE",
        ),
    ] = None,
    resume: Annotated[bool, option("Ask only the hosts that have no result yet.", "--resume")] = False,
    pass_on: Annotated[
        list[str] | None,
        option("Pass this option to ssh or srun: -p2222, --gres=gpu:8.", metavar="OPTION"),
    ] = None,
    dry_run: Annotated[
        bool, option("Show which hosts would be asked, and what; ask none.", "--dry-run", "-n")
    ] = False,
    fail_on: FailOnOption = FailOn.error,
    html: FleetHtml = None,
    force: Force = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Run `check` on the hosts, keep the results, report on them and return the exit status.

    Groups the hosts that are alike in driver, kernel, GPUs, TensorFlow, Python, libraries, packages, variables and
    paths, and shows how the others differ.

    Nothing needs to be installed on the hosts: one file is sent there, runs `check --json`, and is removed; with
    --connect it then runs `cluster --connect --json`. Results are kept in DIR as they arrive, and are not trusted.
    """
    _check_page(html, folder, force=force)
    engine_values = {"ssh": ssh, "slurm": slurm, "dask": dask, "ray": ray, "kubernetes": kubernetes}
    chosen_engines = [name for name, value in engine_values.items() if value is not None]
    if len(chosen_engines) != 1:
        raise UsageError(
            "`fleet run` needs one of --ssh, --slurm, --dask, --ray and --kubernetes.",
            hint="tfdoctor fleet run DIR --ssh a,b",
        )
    if kubernetes is None and (image or emit):
        raise UsageError("--image and --emit go with --kubernetes.")
    arguments = ("check", "--json", *(("--python", python) if python else ()))
    if kubernetes is not None and emit:
        if connect is not None:
            raise UsageError("--connect asks the hosts, and --emit asks nobody.")
        return _emit_manifest(kubernetes, image, arguments, runner, timeout, gpu_count)

    def make_engine() -> NodeEngine:
        return _make_engine(
            chosen_engines[0],
            engine_values[chosen_engines[0]] or "",
            pass_on or [],
            image=image,
            gpus=gpu_count,
        )

    first_engine = make_engine()
    connect_arguments = None if connect is None else _make_connect_command(connect, first_engine, timeout)
    if not _run_on_hosts(first_engine, folder, arguments, runner, timeout, resume=resume, dry_run=dry_run):
        return ExitCode.OK
    if connect_arguments is not None:
        from tfdoctor.extensions.fleet.nodes.store import PEERS_FOLDER, ResultStore

        answered_hosts = {
            host
            for host, ending in ResultStore(folder).load_journal().items()
            if ending.outcome == "answered"
        }
        if answered_hosts:
            _run_on_hosts(
                make_engine(),
                folder / PEERS_FOLDER,
                connect_arguments,
                runner,
                timeout,
                resume=resume,
                allowed_hosts=answered_hosts,
            )
    result = load_results(folder, chosen_engines[0])
    return _publish(result, html, fail_on, force=force, as_json=as_json, verbose=verbose)


@command("tfdoctor fleet report results", "tfdoctor fleet report results --html fleet.html")
def report_fleet(
    folder: Folder,
    fail_on: FailOnOption = FailOn.error,
    html: FleetHtml = None,
    force: Force = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Evaluate the results in a folder, report on them and return the exit status.

    Asks no host. The results can also be made by hand: `tfdoctor check --json > DIR/NODE.json` on each host.
    """
    _check_page(html, folder, force=force)
    result = load_results(folder, "folder")
    return _publish(result, html, fail_on, force=force, as_json=as_json, verbose=verbose)


def _check_page(html: Path | None, folder: Path, *, force: bool) -> None:
    """Raise UsageError if the page cannot be written, before any host is asked."""
    if html is not None:
        from tfdoctor.system.writing import check_output_file

        check_output_file(html, force=force, option="--html", input_paths=folder.glob("*.json"))


def _publish(
    result: Fleet, html: Path | None, fail_on: FailOn, *, force: bool, as_json: bool, verbose: bool
) -> int:
    """Print the result, write the page if requested, and return the exit status."""
    from tfdoctor.core.privacy.redactor import Redactor
    from tfdoctor.extensions.fleet.render import make_fleet_json, redact_fleet, render_fleet
    from tfdoctor.render.terminal import OUT

    # the terminal shows the unredacted result
    published_result = redact_fleet(result, Redactor()) if html is not None or as_json else result
    if html is not None:
        from tfdoctor.cli.html_file import write_page
        from tfdoctor.extensions.fleet.html import make_fleet_html

        write_page(
            html, make_fleet_html(published_result), force=force, quiet=as_json, remark="it names the hosts"
        )
    if as_json:
        from tfdoctor.render.json import write_json

        write_json(make_fleet_json(published_result))
    else:
        OUT.write(render_fleet(result, verbose=verbose, **OUT.layout))
    return ExitCode.FOUND if fail_on.is_reached(result.findings) else ExitCode.OK


def _make_connect_command(connect: str, engine: NodeEngine, deadline: float) -> tuple[str, ...]:
    """Return the arguments of the command with which each host connects to the others.

    `connect` is a port, a specification or the name of a file, and `deadline` is in seconds. Raise UsageError if
    `connect` is invalid or too long.
    """
    import json

    from tfdoctor.extensions.cluster.command import load_specification
    from tfdoctor.extensions.cluster.connect import CONNECT_COMMAND
    from tfdoctor.extensions.fleet.peers import get_machine_name

    if connect.isdecimal() and len(connect) < 6:  # a port; a longer number names a file
        if not 0 < int(connect) < 65536:
            raise UsageError("--connect: a port is a number from 1 to 65535.")
        if engine.name == "kubernetes":
            raise UsageError("--connect PORT: pods do not have their nodes' names. Give the run's TF_CONFIG.")
        hosts = dict.fromkeys(get_machine_name(host_name) for host_name in engine.hosts())
        addresses = [f"[{host}]:{connect}" if ":" in host else f"{host}:{connect}" for host in hosts]
        cluster: object = {"worker": addresses}
    else:
        specification = load_specification(connect).specifications[0]
        cluster = specification.original_cluster
        if specification.jobs is None or not cluster:
            reason = specification.faults[0].message if specification.faults else "it has no cluster."
            msg = f"--connect: {reason}"
            raise UsageError(msg)
    tf_config = json.dumps({"cluster": cluster}, separators=(",", ":"))
    if len(tf_config) > MAX_SPECIFICATION_ARGUMENT_CHARS:
        msg = (
            f"--connect: {len(tf_config):,} characters of addresses are more than a command line takes "
            f"({MAX_SPECIFICATION_ARGUMENT_CHARS:,})."
        )
        raise UsageError(msg, hint="Take some of the hosts: a few tell whether a network is cut in two.")
    # `connect.run_connect` accepts at most three digits.
    return (
        *CONNECT_COMMAND,
        "--timeout",
        f"{min(999.0, deadline * CONNECT_DEADLINE_SHARE):.0f}",
        "--tf-config",
        tf_config,
    )


def _emit_manifest(
    namespace: str, image: str | None, arguments: tuple[str, ...], runner: str, deadline: float, gpus: int
) -> int:
    """Print the Kubernetes manifest and return the exit status.

    Raise UsageError if the image or the namespace is invalid.
    """
    from tfdoctor.extensions.fleet.nodes import NodeJob
    from tfdoctor.extensions.fleet.nodes.kubernetes import format_manifest, validate_image
    from tfdoctor.extensions.fleet.nodes.zipapp import build_zipapp
    from tfdoctor.render.terminal import OUT

    image = validate_image(namespace, image)
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as folder:
        path = Path(folder, "tfdoctor.pyz")
        path.write_bytes(build_zipapp())
        OUT.write_document(
            format_manifest(
                namespace, image, NodeJob(path, arguments, python=runner, time_limit_s=deadline), gpus=gpus
            )
        )
    return ExitCode.OK


def _make_engine(name: str, value: str, options: list[str], *, image: str | None, gpus: int) -> NodeEngine:
    """Return the engine that runs commands on the hosts.

    `value` is the value of the engine's option: hosts, a partition, an address or a namespace. Raise UsageError if the
    options are wrong, and Error if the engine cannot be used.
    """
    if options and name not in ("ssh", "slurm"):
        raise UsageError("--pass-on is for ssh and srun.")
    if name == "dask":
        from tfdoctor.extensions.fleet.nodes.dask import DaskEngine

        return DaskEngine(value)
    if name == "kubernetes":
        from tfdoctor.cli.log_arguments import write_note
        from tfdoctor.extensions.fleet.nodes.kubernetes import KubernetesEngine

        engine = KubernetesEngine(value, image, gpus=gpus)
        write_note(engine.requests_note)
        return engine
    if name == "ray":
        from tfdoctor.extensions.fleet.nodes.ray import RayEngine

        return RayEngine(value)
    if name == "slurm":
        from tfdoctor.extensions.fleet.nodes.slurm import SlurmEngine

        return SlurmEngine(value, options=options)
    from tfdoctor.cli.files import read_option_file
    from tfdoctor.extensions.fleet.nodes.ssh import SshEngine, parse_host_names

    is_file = "," not in value and os.path.isfile(value)  # noqa: PTH113 - of a long name, Path.is_file raises OSError
    hosts = parse_host_names(read_option_file(Path(value), "--ssh") if is_file else value)
    if not hosts:
        raise UsageError("--ssh names no host.")
    return SshEngine(hosts, options=options)


def _run_on_hosts(
    engine: NodeEngine,
    folder: Path,
    arguments: tuple[str, ...],
    runner: str,
    deadline: float,
    *,
    resume: bool,
    dry_run: bool = False,
    allowed_hosts: Collection[str] | None = None,
) -> bool:
    """Run the command on the hosts, or only on the hosts in `allowed_hosts`, and store the results.

    Return False if the command was only printed because `dry_run` is set, else True. Raise UsageError if the folder is
    not empty or there are no hosts, and Error if the engine fails.
    """
    from tfdoctor.cli.log_arguments import write_note
    from tfdoctor.extensions.fleet.nodes import NodeJob
    from tfdoctor.extensions.fleet.nodes.store import ResultStore
    from tfdoctor.extensions.fleet.nodes.zipapp import build_zipapp
    from tfdoctor.system.writing import make_scratch_folder

    store = ResultStore(folder)
    if not (store.is_empty or resume):
        msg = f"{clean_line(str(folder))} is not empty."
        raise UsageError(
            msg, hint="Name a new folder, or give --resume to ask only the hosts that are missing."
        )
    hosts = [host for host in engine.hosts() if allowed_hosts is None or host in allowed_hosts]
    if not hosts:
        msg = f"{engine.name} knows no host."
        raise UsageError(msg)
    finished_hosts = (
        {host for host, ending in store.load_journal().items() if ending.outcome == "answered"}
        if resume
        else set()
    )
    remaining_hosts = [host for host in hosts if host not in finished_hosts]
    if dry_run:
        from tfdoctor.render.screen import format_count
        from tfdoctor.render.terminal import OUT

        names = ", ".join(clean_line(host, limit=80) for host in remaining_hosts[:50])
        omitted_note = f" and {len(remaining_hosts) - 50} more" if len(remaining_hosts) > 50 else ""
        count = format_count(len(remaining_hosts), "host")
        OUT.write(
            f"Would run {runner} tfdoctor.pyz {' '.join(arguments)} on {count}: {names}{omitted_note}\n"
        )
        return False
    store.create_folder()
    finished_note = (
        f", {len(hosts) - len(remaining_hosts)} have a result" if len(remaining_hosts) < len(hosts) else ""
    )
    write_note(
        f"Asking {len(remaining_hosts)} host{'s' * (len(remaining_hosts) != 1)} through {engine.name}{finished_note}; "
        f"results in {folder}."
    )
    with make_scratch_folder() as temporary:
        path = temporary / "tfdoctor.pyz"
        path.write_bytes(build_zipapp())
        _store_results(
            engine, remaining_hosts, NodeJob(path, arguments, python=runner, time_limit_s=deadline), store
        )
    return True


def _store_results(engine: NodeEngine, hosts: list[str], job: NodeJob, store: ResultStore) -> None:
    """Run the job on the hosts, and store each result as soon as it arrives."""
    from tfdoctor.cli.log_arguments import write_note

    start_time, result_count = time.time(), 0
    with contextlib.ExitStack() as stack:
        results = engine.run(hosts, job)
        # close a generator at once, even after an exception; other iterators have no `close`
        stack.callback(getattr(results, "close", lambda: None))
        try:
            for result in results:
                arrival = time.time()
                store.save_answer(
                    result,
                    request_time=arrival - result.duration_s if result.duration_s else start_time,
                    response_time=arrival,
                )
                result_count += 1
                if result.outcome != "answered":
                    write_note(
                        f"{clean_line(result.host, limit=80)}: {result.outcome}{f': {result.reason}' if result.reason else ''}"
                    )
        except KeyboardInterrupt:
            write_note(f"{result_count} of {len(hosts)} hosts had answered; --resume asks the others.")
            raise


def load_results(folder: Path, engine: str) -> Fleet:
    """Read and evaluate the results in a folder. Raise UsageError if there are none."""
    from tfdoctor.extensions.fleet.aggregation import GatheredResults
    from tfdoctor.extensions.fleet.analysis import evaluate_fleet
    from tfdoctor.extensions.fleet.nodes.store import PEERS_FOLDER, ResultStore
    from tfdoctor.extensions.fleet.results import MAX_ANSWER_BYTES

    results_store, gathered = ResultStore(folder), GatheredResults()
    for node in results_store.iter_nodes(MAX_ANSWER_BYTES):
        _add_result(gathered, node)
    if not gathered.hosts:
        msg = f"{clean_line(str(folder))} has no results."
        raise UsageError(msg, hint="tfdoctor check --json > DIR/$(hostname).json on each host")
    if (folder / PEERS_FOLDER).is_dir():
        for node in ResultStore(folder / PEERS_FOLDER).iter_nodes(MAX_ANSWER_BYTES):
            _add_connections(gathered, node)
    return evaluate_fleet(engine, gathered, ignored_file_count=results_store.ignored_file_count)


def _add_connections(gathered: GatheredResults, node: StoredNode) -> None:
    """Add the result of a host's connections to the others, or the reason why there is none."""
    from tfdoctor.extensions.fleet.peers import parse_peers
    from tfdoctor.extensions.fleet.results import UnusableResultError

    host_state = gathered.hosts.get(node.host)
    if host_state is not None and host_state.state in ("lost", "timeout"):
        return  # the missing result is reported already
    ending = node.journal_entry
    if ending is not None and ending.outcome != "answered":
        gathered.peer_failure_by_host[node.host] = ending.reason
    elif node.content is None:
        gathered.peer_failure_by_host[node.host] = node.read_error or "its file is gone"
    else:
        try:
            gathered.peers_by_host[node.host] = parse_peers(node.content)
        except UnusableResultError as error:
            gathered.peer_failure_by_host[node.host] = str(error)


def _add_result(gathered: GatheredResults, node: StoredNode) -> None:
    """Add the result of a host, or the reason why it has none.

    If the last run failed on the host, the file of an earlier run is ignored.
    """
    from tfdoctor.extensions.fleet.results import UnusableResultError, parse_result

    ending = node.journal_entry
    seconds = ending.duration_s if ending is not None else None
    if ending is not None and ending.outcome in ("lost", "timeout"):
        gathered.add_failure(
            node.host, "lost" if ending.outcome == "lost" else "timeout", ending.reason, seconds=seconds
        )
        return
    if ending is not None and ending.outcome != "answered":
        gathered.add_failure(node.host, "failed", ending.reason, seconds=seconds)
        return
    if node.content is None:
        gathered.add_failure(node.host, "failed", node.read_error or "its file is gone", seconds=seconds)
        return
    try:
        result = parse_result(node.content)
    except UnusableResultError as error:
        gathered.add_failure(node.host, "failed", str(error), seconds=seconds)
        return
    asked_at, arrived_at = (ending.request_time, ending.response_time) if ending is not None else (None, None)
    gathered.add(node.host, result, seconds=seconds, request_time=asked_at, response_time=arrived_at)
