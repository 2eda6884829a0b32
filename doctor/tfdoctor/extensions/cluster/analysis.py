"""Evaluate a cluster specification and the probe results: find faults, members and a summary."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections import Counter
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Severity
from tfdoctor.core.task_addresses import Address, is_local_host, normalize_host, parse_address
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.extensions.cluster.models import (
    ClusterEvaluation,
    ClusterSpecification,
    Fault,
    InstalledRelease,
    Member,
    Task,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdoctor.core.facts.network import ConnectionResult, ListeningPorts, Proxy

__all__ = ["evaluate_cluster", "find_own_task", "map_connectable_addresses"]

JOB_NAMES = ("chief", "worker", "ps", "evaluator")
"""The jobs that the strategies of TensorFlow 2 accept (python/distribute/multi_worker_util.py)."""
MAX_FAULTS_PER_KIND = 50
"""The maximum number of faults with the same name that are reported."""
TEXT_BY_FAILURE = {
    "refused": "refuses the connection: nothing listens there, or it is not started yet",
    "timeout": "does not answer in time: a firewall, or no such machine",
    "no-such-name": "has a name that does not resolve here",
    "not-tensorflow": "answers, but not as a TensorFlow server does",
}
"""A clause for each kind of failure (see `Member`)."""
NO_ROUTE_ENDINGS = ("unreachable", "no route to host", "host is down")
"""The ends of the system's error messages for a host that cannot be reached at all."""


def find_own_task(specification: ClusterSpecification) -> Task | None:
    """Return the task of this process, or None if the specification starts none or several tasks."""
    return specification.tasks[0] if len(set(specification.tasks)) == 1 else None


def map_connectable_addresses(specification: ClusterSpecification) -> dict[Task, Address]:
    """Map each task whose address has a host and a port to that address."""
    parsed = {task: parse_address(address) for task, address in specification.addresses}
    return {task: address for task, address in parsed.items() if address.host and address.port}


def evaluate_cluster(
    specification: ClusterSpecification,
    source: str,
    *,
    listening_ports: ListeningPorts | None = None,
    connection_results: Mapping[Task, ConnectionResult] | None = None,
    proxy: Proxy | None = None,
    installed_releases: Sequence[InstalledRelease] = (),
) -> ClusterEvaluation:
    """Evaluate a cluster specification from `source` ("env", a file name, or "text").

    `listening_ports` has the open ports and the addresses of this machine, or is None if they are unknown.
    `connection_results` has the result of connecting to each task, or is None if no connections were requested.
    `proxy` is the proxy that gRPC uses on this machine, or None if there is none.
    `installed_releases` has the TensorFlow of this machine, then those of other machines. It is empty if no comparison was
    requested.
    """
    task = find_own_task(specification)
    addresses = {other_task: parse_address(address) for other_task, address in specification.addresses}
    faults = [
        *specification.faults,
        *_find_invalid_address_faults(addresses, specification),
        *_find_task_faults(specification),
        *_find_job_faults(specification),
        *_find_shared_address_faults(addresses),
        *_find_loopback_faults(addresses),
        *_find_own_address_faults(addresses.get(task) if task else None, task, source, listening_ports),
    ]
    members = tuple(
        _make_member(
            other_task,
            address,
            is_self=other_task == task,
            source=source,
            listening_ports=listening_ports,
            connection_results=connection_results,
        )
        for other_task, address in addresses.items()
    )
    faults += _find_unreachable_faults(members)
    if proxy is not None and (source == "env" or connection_results is not None):
        faults += _find_proxy_faults(addresses, task, proxy)
    faults += _find_version_faults(installed_releases)
    limited_faults = tuple(_limit_faults(faults))
    notes = [specification.unknown_note] if specification.unknown_note else []
    notes += [_describe_busy_port(member) for member in members if member.is_own_task and member.is_listening]
    notes += _describe_versions(installed_releases)
    return ClusterEvaluation(
        source=source,
        specification=specification,
        task=task,
        members=members,
        faults=limited_faults,
        summary=_summarize(specification, addresses, task, faults, members),
        has_connection_results=connection_results is not None,
        notes=tuple(notes),
    )


def _find_version_faults(installed_releases: Sequence[InstalledRelease]) -> list[Fault]:
    """Return a warning as a list if the machines have different TensorFlow versions."""
    machines_by_release: dict[str, list[str]] = {}
    for machine in installed_releases:
        if machine.version is not None:
            machines_by_release.setdefault(machine.version, []).append(_clean_text(machine.machine))
    if len(machines_by_release) < 2:
        return []
    versions_text = "; ".join(
        f"{release}: {_clean_text(join_words(names[:4]))}" for release, names in machines_by_release.items()
    )
    message = f"The machines have different TensorFlows ({versions_text}). TensorFlow does not support that in one cluster."
    return [Fault("version-differs", Severity.WARNING, None, message, "Install the same version everywhere.")]


def _describe_versions(installed_releases: Sequence[InstalledRelease]) -> list[str]:
    """Return notes on machines with the same version, and on machines whose version is unknown."""
    releases = {machine.version for machine in installed_releases if machine.version is not None}
    unknown_machines = [
        _clean_text(machine.machine) for machine in installed_releases if machine.version is None
    ]
    notes = []
    if len(releases) == 1 and len(installed_releases) - len(unknown_machines) > 1:
        notes.append(
            f"{len(installed_releases) - len(unknown_machines)} machines have the same TensorFlow, {releases.pop()}."
        )
    if unknown_machines:
        notes.append(
            f"No version of TensorFlow is known of {join_words(unknown_machines[:4])}: not compared."
        )
    return notes


def _limit_faults(faults: Iterable[Fault]) -> Iterable[Fault]:
    """Yield each fault once, and at most `MAX_FAULTS_PER_KIND` faults of the same kind."""
    counts: dict[str, int] = {}
    reported_keys = set()
    for fault in faults:
        counts[fault.kind] = counts.get(fault.kind, 0) + 1
        key = (fault.kind, fault.task, fault.message)
        if counts[fault.kind] <= MAX_FAULTS_PER_KIND and key not in reported_keys:
            reported_keys.add(key)
            yield fault


def _clean_text(text: str) -> str:
    return clean_line(text, limit=70)


def _find_invalid_address_faults(
    addresses: Mapping[Task, Address], cluster_spec: ClusterSpecification
) -> list[Fault]:
    """Return faults for invalid addresses that the parser of the specification has not reported yet."""
    reported_tasks = {fault.task for fault in cluster_spec.faults if fault.kind == "cluster-address"}
    faults = []
    for task, address in addresses.items():
        if not address.fault or str(task) in reported_tasks:
            continue
        if address.port == 0 and len(addresses) == 1:
            continue  # a single server may use any port
        text = _clean_text(address.text)
        message = f'{_clean_text(str(task))} is "{text}": {_clean_text(address.fault)}.'
        faults.append(Fault("cluster-address", Severity.ERROR, str(task), message, _suggest_address(address)))
    return faults


def _suggest_address(address: Address) -> str:
    """Return a sentence that says how to correct an address."""
    missing_colon = re.fullmatch(r"(localhost)(\d{2,5})", address.text, re.IGNORECASE)
    if missing_colon:
        return f'Write "{missing_colon[1]}:{missing_colon[2]}".'
    scheme_match = re.fullmatch(r"[A-Za-z+.-]{1,20}:/{1,3}([^/]{1,200}:\d{1,5})/?", address.text)
    if scheme_match:
        return f'Write "{_clean_text(scheme_match[1])}".'
    if address.host and address.port is None and "no port" in address.fault:
        host = f"[{address.host}]" if ":" in address.host else address.host
        return f'Add the port at which that task listens: "{_clean_text(host)}:2222".'
    return "Write HOST:PORT, with a port from 1 to 65535."


def _format_indices(indices: list[int]) -> str:
    """Return the task indices of a job in words, or the first 8 of them if they have gaps."""
    if not indices:
        return "no task"
    if indices != list(range(len(indices))):
        return join_words([str(index) for index in indices[:8]])
    return "the task 0 alone" if len(indices) == 1 else f"0 to {len(indices) - 1}"


def _find_task_faults(cluster_spec: ClusterSpecification) -> list[Fault]:
    """Return faults for started tasks that are not in the cluster, or that are started more than once."""
    jobs = cluster_spec.jobs or {}
    faults = []
    start_counts = Counter(cluster_spec.tasks)
    indices_by_job: dict[str, str] = {}
    for task in start_counts if cluster_spec.jobs is not None else ():
        task_text = _clean_text(str(task))
        if task.type not in jobs and task.type != "evaluator":
            job_names_text = join_words([_clean_text(job) for job in list(jobs)[:6]])
            message = (
                f"This process is {task_text}, and the cluster has no job {_clean_text(task.type)}"
                f"{f': it has {job_names_text}' if job_names_text else ''}."
            )
            faults.append(Fault("cluster-task", Severity.ERROR, str(task), message))
        elif task.type in jobs and task.index not in jobs[task.type]:
            if task.type not in indices_by_job:
                indices_by_job[task.type] = _format_indices(list(jobs[task.type]))
            message = f"This process is {task_text}, and the job {_clean_text(task.type)} has {indices_by_job[task.type]}."
            faults.append(Fault("cluster-task", Severity.ERROR, str(task), message, "Indices start at 0."))
    free_task = next(
        (candidate for candidate, _ in cluster_spec.addresses if candidate not in start_counts), None
    )
    fix = f"Start one of them as {_clean_text(str(free_task))}." if free_task is not None else ""
    for task, count in start_counts.items():
        if count > 1:
            message = f"{count} servers are started as {_clean_text(str(task))}; each task starts once."
            faults.append(Fault("cluster-task", Severity.ERROR, str(task), message, fix))
    return faults


def _find_job_faults(cluster_spec: ClusterSpecification) -> list[Fault]:
    """Return faults for a second chief, listed evaluators, and job names that TensorFlow refuses."""
    faults = []
    jobs = cluster_spec.jobs or {}
    chiefs = [job for job in ("master", "chief") if jobs.get(job)]
    if len(chiefs) == 2:
        faults.append(
            Fault(
                "chief-twice",
                Severity.ERROR,
                None,
                'The cluster has a "chief" and a "master", which is the chief\'s name in TensorFlow 1.',
                'Leave one, as "chief".',
            )
        )
    for job in ("chief", "master"):
        if len(jobs.get(job, {})) > 1:
            second_index = sorted(jobs[job])[1]
            message = f"The cluster has {len(jobs[job])} tasks of {job}, and TensorFlow takes one at most."
            faults.append(Fault("chief-twice", Severity.ERROR, f"{job}:{second_index}", message))
    if jobs.get("evaluator"):
        count = len(jobs["evaluator"])
        message = "The evaluator is no part of the training cluster, and is listed in it."
        if count > 1:
            message = (
                f"{count} evaluators are listed; TensorFlow refuses more than one, and none need be listed."
            )
        first_task = f"evaluator:{min(jobs['evaluator'])}"
        faults.append(
            Fault(
                "evaluator-in-cluster",
                Severity.ERROR if count > 1 else Severity.WARNING,
                first_task,
                message,
                'Take "evaluator" out of "cluster".',
            )
        )
    if cluster_spec.kind == "TF_CONFIG":
        faults += [_make_job_name_fault(job) for job in jobs if job not in JOB_NAMES]
    elif any(not re.fullmatch(r"[A-Za-z]\w*", job, re.ASCII) for job in jobs):
        faults += [
            _make_job_name_fault(job) for job in jobs if not re.fullmatch(r"[A-Za-z]\w*", job, re.ASCII)
        ]
    else:  # a bare ClusterSpec may have any job names: report only misspelled ones
        faults += [_make_job_name_fault(job) for job in jobs if job not in JOB_NAMES and _suggest_job(job)]
    return faults


def _suggest_job(job: str) -> str:
    """Return the job name that was probably intended, or an empty string if there is none."""
    if job == "master":
        return ""
    normalized = job.strip().lower().replace("-", "").replace("_", "")
    for name, intended in (
        ("parameterserver", "ps"),
        ("paramserver", "ps"),
        ("eval", "evaluator"),
        ("slave", "worker"),
    ):
        if normalized.removesuffix("s") == name:
            return intended
    close_names = difflib.get_close_matches(normalized, JOB_NAMES, n=1, cutoff=0.75)
    if close_names:
        return close_names[0]
    return "ps" if normalized == "p" else ""


def _make_job_name_fault(job: str) -> Fault:
    """Return the fault for a job name that TensorFlow 2 refuses."""
    job_text = _clean_text(job)
    if job == "master":
        return Fault(
            "job-name",
            Severity.WARNING,
            None,
            'The job "master" is TensorFlow 1\'s; the strategies of TensorFlow 2 refuse it.',
            'For TensorFlow 2 write "chief".',
        )
    intended = _suggest_job(job)
    return Fault(
        "job-name",
        Severity.ERROR,
        None,
        f'The strategies of TensorFlow 2 refuse the job "{job_text}": they know chief, worker, ps and evaluator.',
        f'Write "{intended}".' if intended else "",
    )


def _find_shared_address_faults(addresses: Mapping[Task, Address]) -> list[Fault]:
    """Return a fault for each task that has the address of an earlier one."""
    task_by_endpoint: dict[tuple[str, int], Task] = {}
    faults = []
    for task, address in addresses.items():
        if not address.host or not address.port:
            continue
        endpoint = (normalize_host(address.host), address.port)
        if endpoint in task_by_endpoint:
            message = (
                f"{_clean_text(str(task_by_endpoint[endpoint]))} and {_clean_text(str(task))} both are "
                f"{_clean_text(address.text)}: only one can "
                "listen there."
            )
            fix = f"Give {_clean_text(str(task))} another port."
            faults.append(Fault("address-twice", Severity.ERROR, str(task), message, fix))
        else:
            task_by_endpoint[endpoint] = task
    return faults


def _find_loopback_faults(addresses: Mapping[Task, Address]) -> list[Fault]:
    """Return faults for loopback addresses in a cluster that also has other machines."""
    hosts = [address.host for address in addresses.values() if address.host]
    if all(map(is_local_host, hosts)):
        return []
    faults = []
    for task, address in addresses.items():
        if address.host and address.port is not None and not address.fault and is_local_host(address.host):
            message = (
                f"{_clean_text(str(task))} is {_clean_text(address.text)}, which each task takes "
                "for its own machine, and "
                "other tasks are on other machines."
            )
            fix = "Write the name under which they know that machine."
            faults.append(Fault("localhost-among-hosts", Severity.ERROR, str(task), message, fix))
    return faults


def _find_own_address_faults(
    address: Address | None, task: Task | None, source: str, listening_ports: ListeningPorts | None
) -> list[Fault]:
    """Return a warning as a list if the address of this process does not belong to this machine.

    Only the TF_CONFIG of this machine is checked, and only IP addresses, because names need a resolver.
    """
    if (
        address is None
        or address.fault
        or source != "env"
        or listening_ports is None
        or not listening_ports.addresses
    ):
        return []
    try:
        own_address = ipaddress.ip_address(address.host)
    except ValueError:
        return []
    if is_local_host(address.host) or str(own_address) in listening_ports.addresses:
        return []
    own_addresses_text = join_words(
        sorted(address_text for address_text in listening_ports.addresses if not is_local_host(address_text))[
            :4
        ]
    )
    message = (
        f"This process is {task}, and {address.host} is no address of this machine "
        f"({own_addresses_text or 'it has none but loopback'})."
    )
    fix = "Check its index. Where ports are forwarded to this machine (containers, NAT) it can be right."
    return [Fault("wrong-self-address", Severity.WARNING, str(task), message, fix)]


def _make_member(
    task: Task,
    address: Address,
    is_self: bool,
    source: str,
    listening_ports: ListeningPorts | None,
    connection_results: Mapping[Task, ConnectionResult] | None,
) -> Member:
    """Return the member for a task, with the results of the probes."""
    result = connection_results.get(task) if connection_results else None
    is_listening: bool | None = None
    if listening_ports is not None and address.port and listening_ports.ports is not None:
        is_on_this_machine = (
            is_local_host(address.host)
            or address.host in listening_ports.addresses
            or (is_self and source == "env")
        )
        # the port of a task on another machine says nothing about that task
        is_listening = address.port in listening_ports.ports if is_on_this_machine else None
    if result is None:
        return Member(task, address.text, is_self, is_listening=is_listening)
    return Member(
        task,
        address.text,
        is_self,
        is_reachable=result.ok,
        failure_kind=result.failure,
        detail=result.detail,
        is_listening=is_listening,
    )


def _describe_busy_port(member: Member) -> str:
    return (
        f"Something listens at the port of {_clean_text(str(member.task))} here: this task runs "
        "already, or another program "
        "has its port."
    )


def _find_unreachable_faults(members: Iterable[Member]) -> list[Fault]:
    """Return faults for tasks that could not be reached, except this process if it refuses connections."""
    faults = []
    for member in members:
        if member.is_reachable is not False or (member.is_own_task and member.failure_kind == "refused"):
            continue  # reached, not tried, or this process, whose server has not started yet
        problem = TEXT_BY_FAILURE.get(member.failure_kind or "", "cannot be reached")
        if member.failure_kind == "timeout" and member.detail.endswith(NO_ROUTE_ENDINGS):
            problem = "cannot be reached: there is no way to that machine from here"
        detail = f" ({_clean_text(member.detail)})" if member.detail else ""
        message = f"{_clean_text(str(member.task))} at {_clean_text(member.address)} {problem}{detail}."
        fix = {
            "refused": "Start that task, and compare its port with this address.",
            "timeout": "Open the port between the machines, both ways; check the address.",
            "no-such-name": "Write a name that every machine resolves, or the address.",
            "not-tensorflow": "Find out what listens there (ss -ltnp), and give the task another port.",
        }.get(member.failure_kind or "", "")
        faults.append(Fault("unreachable", Severity.ERROR, str(member.task), message, fix))
    return faults


def _find_proxy_faults(addresses: Mapping[Task, Address], own_task: Task | None, proxy: Proxy) -> list[Fault]:
    """Return a warning as a list if gRPC uses a proxy. TensorFlow 2.20 waits forever if it does."""
    # a dict keeps the order and drops duplicates
    hosts = {
        address.host: None
        for candidate, address in addresses.items()
        if candidate != own_task
        and address.host
        and address.port
        and not _is_excluded_from_proxy(address.host, proxy.excluded_hosts)
    }
    if not hosts:
        return []
    host_texts = [_clean_text(host) for host in list(hosts)[:4]]
    more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""
    message = (
        f"{proxy.variable} is set here, and gRPC obeys it: TensorFlow connects to "
        f"{join_words(host_texts)}{more} through that "
        "proxy, which seldom works. The tasks then wait for each other without a message."
    )
    fix = f"Unset {proxy.variable} where the tasks start, or list their hosts: {proxy.listed_in}={','.join(host_texts)}"
    return [Fault("unreachable", Severity.WARNING, None, message, fix)]


def _is_excluded_from_proxy(host: str, entries: Iterable[str]) -> bool:
    """Return whether one of the entries excludes a host from the proxy.

    gRPC compares the ends of host names; its newer versions also accept networks.
    """
    for entry in entries:
        if host.endswith(entry.lower()):
            return True
        if "/" in entry:
            try:
                if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                continue
    return False


def _summarize(
    cluster_spec: ClusterSpecification,
    addresses: Mapping[Task, Address],
    task: Task | None,
    faults: Sequence[Fault],
    members: tuple[Member, ...],
) -> str:
    """Return a summary of one or two sentences."""
    if cluster_spec.jobs is None:
        return (
            "TensorFlow cannot use this specification."
            if faults
            else "What the cluster is could not be read."
        )
    errors = [fault for fault in faults if fault.severity is Severity.ERROR]
    if not addresses and not errors:
        return "There is no cluster: TensorFlow runs on this machine alone."
    jobs_text = join_words(
        [
            f"{len(tasks)} "
            f"{_clean_text(job)}{'s' if len(tasks) != 1 and job in ('worker', 'chief', 'evaluator') else ''}"
            for job, tasks in list(cluster_spec.jobs.items())[:6]
        ]
    )
    self_note = f"; this is {_clean_text(str(task))}" if task else ""
    error_count_text = f"{len(errors)} error{'s' if len(errors) != 1 else ''}"
    unreachable_count = sum(fault.kind == "unreachable" for fault in errors)
    if unreachable_count:
        failure_text = f"{unreachable_count} of {len(members)} tasks cannot be reached from here"
        other_count = len(errors) - unreachable_count
        more = f", and {other_count} other error{'s' if other_count > 1 else ''}" if other_count > 0 else ""
        return f"A cluster of {jobs_text}{self_note}: {failure_text}{more}."
    if errors:
        return f"A cluster of {jobs_text}{self_note}: {error_count_text} in its specification."
    reachable_count = sum(member.is_reachable is True for member in members)
    answers_text = (
        f" {reachable_count} of {len(members)} answer."
        if any(member.is_reachable is not None for member in members)
        else ""
    )
    return (
        f"A cluster of {jobs_text}{self_note}: its specification is one that TensorFlow takes.{answers_text}"
    )
