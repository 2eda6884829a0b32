"""What is written, and what was seen → faults, members and the answer in a sentence. Pure."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections import Counter
from typing import TYPE_CHECKING

from tfdoctor.cluster.addresses import is_local, normalize_host, parse_address
from tfdoctor.cluster.models import Address, ClusterAnswer, Fault, InstalledRelease, Member, Task, Written
from tfdoctor.findings import Severity
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdoctor.facts.network import Listening, Proxy, Reached

__all__ = ["evaluate_cluster", "find_own_task", "list_connectable"]

JOBS = ("chief", "worker", "ps", "evaluator")
"""What the strategies of TensorFlow 2 take (python/distribute/multi_worker_util.py)."""
MAX_FAULTS_PER_NAME = 50
"""Faults of one name; more say nothing more."""
WHY = {
    "refused": "refuses the connection: nothing listens there, or it is not started yet",
    "timeout": "does not answer in time: a firewall, or no such machine",
    "no-such-name": "has a name that does not resolve here",
    "not-tensorflow": "answers, but not as a TensorFlow server does",
}


UNROUTED = ("unreachable", "no route to host", "host is down")
"""Ends of what a system says where it does not even wait."""


def find_own_task(written: Written) -> Task | None:
    """Return the task of this process; None if the text starts several, or does not say."""
    return written.tasks[0] if len(set(written.tasks)) == 1 else None


def list_connectable(written: Written) -> dict[Task, Address]:
    """Return the addresses that can be connected to."""
    read = {task: parse_address(address) for task, address in written.addresses}
    return {task: address for task, address in read.items() if address.host and address.port}


def evaluate_cluster(
    written: Written,
    source: str,
    *,
    listening: Listening | None = None,
    reached: Mapping[Task, Reached] | None = None,
    proxy: Proxy | None = None,
    installed: Sequence[InstalledRelease] = (),
) -> ClusterAnswer:
    """Return the faults and notes of a cluster.

    listening: what listens on this machine, and its addresses; None: not known. reached: what came of
    connecting to
    each task; None: it was not asked for. proxy: the one that gRPC takes here. installed: the TensorFlow
    of this machine and of others, this one first; empty: they were not asked for.
    """
    task = find_own_task(written)
    read = {one: parse_address(address) for one, address in written.addresses}
    faults = [
        *written.faults,
        *_addresses(read, written),
        *_tasks(written),
        *_jobs(written),
        *_check_duplicates(read),
        *_here(read),
        *_check_own_address(read.get(task) if task else None, task, source, listening),
    ]
    members = tuple(
        _member(one, address, one == task, source, listening, reached) for one, address in read.items()
    )
    faults += _unreachable(members)
    if proxy is not None and (source == "env" or reached is not None):
        faults += _check_proxy(read, task, proxy)
    faults += _check_versions(installed)
    kept = tuple(_limit_faults(faults))
    notes = [written.partly] if written.partly else []
    notes += [_describe_busy_port(one) for one in members if one.self and one.listening]
    notes += _note_versions(installed)
    return ClusterAnswer(
        source,
        written,
        task,
        members,
        kept,
        _summary(written, read, task, faults, members),
        reached is not None,
        tuple(notes),
    )


def _check_versions(installed: Sequence[InstalledRelease]) -> list[Fault]:
    """Return a warning if two machines have different TensorFlows: TensorFlow does not support it."""
    machines: dict[str, list[str]] = {}
    for one in installed:
        if one.release is not None:
            machines.setdefault(one.release, []).append(_format_text(one.machine))
    if len(machines) < 2:
        return []
    said = "; ".join(
        f"{release}: {_format_text(join_words(names[:4]))}" for release, names in machines.items()
    )
    message = (
        f"The machines have different TensorFlows ({said}). TensorFlow does not support that in one cluster."
    )
    return [Fault("version-differs", Severity.WARNING, None, message, "Install the same version everywhere.")]


def _note_versions(installed: Sequence[InstalledRelease]) -> list[str]:
    """Return what `_check_versions` could not compare, and that what it compared is the same."""
    releases = {one.release for one in installed if one.release is not None}
    unknown = [_format_text(one.machine) for one in installed if one.release is None]
    notes = []
    if len(releases) == 1 and len(installed) - len(unknown) > 1:
        notes.append(f"{len(installed) - len(unknown)} machines have the same TensorFlow, {releases.pop()}.")
    if unknown:
        notes.append(f"No version of TensorFlow is known of {join_words(unknown[:4])}: not compared.")
    return notes


def _limit_faults(faults: Iterable[Fault]) -> Iterable[Fault]:
    """Return each fault once, and at most `MAX_FAULTS_PER_NAME` of a name."""
    seen: dict[str, int] = {}
    said = set()
    for fault in faults:
        seen[fault.name] = seen.get(fault.name, 0) + 1
        key = (fault.name, fault.task, fault.message)
        if seen[fault.name] <= MAX_FAULTS_PER_NAME and key not in said:
            said.add(key)
            yield fault


def _format_text(text: str) -> str:
    return clean_line(text, limit=70)


def _addresses(read: Mapping[Task, Address], written: Written) -> list[Fault]:
    told = {fault.task for fault in written.faults if fault.name == "cluster-address"}
    faults = []
    for task, address in read.items():
        if not address.fault or str(task) in told:
            continue
        if address.port == 0 and len(read) == 1:
            continue  # a server alone may take any port
        text = _format_text(address.text)
        message = f'{_format_text(str(task))} is "{text}": {_format_text(address.fault)}.'
        faults.append(Fault("cluster-address", Severity.ERROR, str(task), message, _suggest_address(address)))
    return faults


def _suggest_address(address: Address) -> str:
    joined = re.fullmatch(r"(localhost)(\d{2,5})", address.text, re.IGNORECASE)
    if joined:
        return f'Write "{joined[1]}:{joined[2]}".'
    scheme = re.fullmatch(r"[A-Za-z+.-]{1,20}:/{1,3}([^/]{1,200}:\d{1,5})/?", address.text)
    if scheme:
        return f'Write "{_format_text(scheme[1])}".'
    if address.host and address.port is None and "no port" in address.fault:
        host = f"[{address.host}]" if ":" in address.host else address.host
        return f'Add the port at which that task listens: "{_format_text(host)}:2222".'
    return "Write HOST:PORT, with a port from 1 to 65535."


def _indices(indices: list[int]) -> str:
    """Name the tasks of a job."""
    if not indices:
        return "no task"
    if indices != list(range(len(indices))):
        return join_words([str(one) for one in indices[:8]])
    return "the task 0 alone" if len(indices) == 1 else f"0 to {len(indices) - 1}"


def _tasks(written: Written) -> list[Fault]:
    jobs = written.jobs or {}
    faults = []
    started = Counter(written.tasks)
    indices: dict[str, str] = {}
    for task in started if written.jobs is not None else ():
        shown = _format_text(str(task))
        if task.type not in jobs and task.type != "evaluator":
            has = join_words([_format_text(job) for job in list(jobs)[:6]])
            message = (
                f"This process is {shown}, and the cluster has no job {_format_text(task.type)}"
                f"{f': it has {has}' if has else ''}."
            )
            faults.append(Fault("cluster-task", Severity.ERROR, str(task), message))
        elif task.type in jobs and task.index not in jobs[task.type]:
            if task.type not in indices:
                indices[task.type] = _indices(list(jobs[task.type]))
            message = (
                f"This process is {shown}, and the job {_format_text(task.type)} has {indices[task.type]}."
            )
            faults.append(
                Fault("cluster-task", Severity.ERROR, str(task), message, "Indices are counted from 0.")
            )
    other = next((one for one, _ in written.addresses if one not in started), None)
    fix = f"Start one of them as {_format_text(str(other))}." if other is not None else ""
    for task, count in started.items():
        if count > 1:
            message = f"{count} servers are started as {_format_text(str(task))}; each task starts once."
            faults.append(Fault("cluster-task", Severity.ERROR, str(task), message, fix))
    return faults


def _jobs(written: Written) -> list[Fault]:
    faults = []
    jobs = written.jobs or {}
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
            second = sorted(jobs[job])[1]
            message = f"The cluster has {len(jobs[job])} tasks of {job}, and TensorFlow takes one at most."
            faults.append(Fault("chief-twice", Severity.ERROR, f"{job}:{second}", message))
    if jobs.get("evaluator"):
        many = len(jobs["evaluator"])
        message = "The evaluator is no part of the training cluster, and is listed in it."
        if many > 1:
            message = (
                f"{many} evaluators are listed; TensorFlow refuses more than one, and none need be listed."
            )
        first = f"evaluator:{min(jobs['evaluator'])}"
        faults.append(
            Fault(
                "evaluator-in-cluster",
                Severity.ERROR if many > 1 else Severity.WARNING,
                first,
                message,
                'Take "evaluator" out of "cluster".',
            )
        )
    if written.kind == "TF_CONFIG":
        faults += [_job_name(job) for job in jobs if job not in JOBS]
    elif any(not re.fullmatch(r"[A-Za-z]\w*", job, re.ASCII) for job in jobs):
        faults += [_job_name(job) for job in jobs if not re.fullmatch(r"[A-Za-z]\w*", job, re.ASCII)]
    else:
        faults += [_job_name(job) for job in jobs if job not in JOBS and _suggest_job(job)]
    return faults


def _suggest_job(job: str) -> str:
    """Return the job's name that is meant, or ""."""
    if job == "master":
        return ""
    word = job.strip().lower().replace("-", "").replace("_", "")
    for name, meant in (
        ("parameterserver", "ps"),
        ("paramserver", "ps"),
        ("eval", "evaluator"),
        ("slave", "worker"),
    ):
        if word.removesuffix("s") == name:
            return meant
    return next(iter(difflib.get_close_matches(word, JOBS, 1, 0.75)), "") or ("ps" if word == "p" else "")


def _job_name(job: str) -> Fault:
    shown = _format_text(job)
    if job == "master":
        return Fault(
            "job-name",
            Severity.WARNING,
            None,
            'The job "master" is TensorFlow 1\'s; the strategies of TensorFlow 2 refuse it.',
            'For TensorFlow 2 write "chief".',
        )
    meant = _suggest_job(job)
    return Fault(
        "job-name",
        Severity.ERROR,
        None,
        f'The strategies of TensorFlow 2 refuse the job "{shown}": they know chief, worker, ps and evaluator.',
        f'Write "{meant}".' if meant else "",
    )


def _check_duplicates(read: Mapping[Task, Address]) -> list[Fault]:
    held: dict[tuple[str, int], Task] = {}
    faults = []
    for task, address in read.items():
        if not address.host or not address.port:
            continue
        place = (normalize_host(address.host), address.port)
        if place in held:
            message = (
                f"{_format_text(str(held[place]))} and {_format_text(str(task))} both are "
                f"{_format_text(address.text)}: only one can "
                "listen there."
            )
            fix = f"Give {_format_text(str(task))} another port."
            faults.append(Fault("address-twice", Severity.ERROR, str(task), message, fix))
        else:
            held[place] = task
    return faults


def _here(read: Mapping[Task, Address]) -> list[Fault]:
    hosts = [address.host for address in read.values() if address.host]
    if all(map(is_local, hosts)):
        return []
    faults = []
    for task, address in read.items():
        if address.host and address.port is not None and not address.fault and is_local(address.host):
            message = (
                f"{_format_text(str(task))} is {_format_text(address.text)}, which each task takes "
                "for its own machine, and "
                "other tasks are on other machines."
            )
            fix = "Write the name under which they know that machine."
            faults.append(Fault("localhost-among-hosts", Severity.ERROR, str(task), message, fix))
    return faults


def _check_own_address(
    address: Address | None, task: Task | None, source: str, listening: Listening | None
) -> list[Fault]:
    """Check this machine's own TF_CONFIG, only if the address is a number: names are the resolver's."""
    if address is None or address.fault or source != "env" or listening is None or not listening.addresses:
        return []
    try:
        own = ipaddress.ip_address(address.host)
    except ValueError:
        return []
    if is_local(address.host) or str(own) in listening.addresses:
        return []
    addresses = join_words(sorted(one for one in listening.addresses if not is_local(one))[:4])
    message = (
        f"This process is {task}, and {address.host} is no address of this machine "
        f"({addresses or 'it has none but loopback'})."
    )
    fix = "Check its index. Where ports are forwarded to this machine (containers, NAT) it can be right."
    return [Fault("wrong-self-address", Severity.WARNING, str(task), message, fix)]


def _member(
    task: Task,
    address: Address,
    own: bool,
    source: str,
    listening: Listening | None,
    reached: Mapping[Task, Reached] | None,
) -> Member:
    seen = reached.get(task) if reached else None
    here: bool | None = None
    if listening is not None and address.port and listening.ports is not None:
        mine = is_local(address.host) or address.host in listening.addresses or (own and source == "env")
        here = address.port in listening.ports if mine else None
    if seen is None:
        return Member(task, address.text, own, listening=here)
    return Member(task, address.text, own, seen.ok, seen.why, seen.detail, here)


def _describe_busy_port(member: Member) -> str:
    return (
        f"Something listens at the port of {_format_text(str(member.task))} here: this task runs "
        "already, or another program "
        "has its port."
    )


def _unreachable(members: Iterable[Member]) -> list[Fault]:
    faults = []
    for one in members:
        if one.reachable is not False or (one.self and one.why == "refused"):
            continue  # this very task is not started yet
        words = WHY.get(one.why or "", "cannot be reached")
        if one.why == "timeout" and one.detail.endswith(UNROUTED):
            words = "cannot be reached: there is no way to that machine from here"
        detail = f" ({_format_text(one.detail)})" if one.detail else ""
        message = f"{_format_text(str(one.task))} at {_format_text(one.address)} {words}{detail}."
        fix = {
            "refused": "Start that task, and compare its port with this address.",
            "timeout": "Open the port between the machines, both ways; check the address.",
            "no-such-name": "Write a name that every machine resolves, or the address.",
            "not-tensorflow": "Find out what listens there (ss -ltnp), and give the task another port.",
        }.get(one.why or "", "")
        faults.append(Fault("unreachable", Severity.ERROR, str(one.task), message, fix))
    return faults


def _check_proxy(read: Mapping[Task, Address], task: Task | None, proxy: Proxy) -> list[Fault]:
    """Return the tasks to which gRPC connects through a proxy (TensorFlow 2.20: these tasks then wait for ever)."""
    hosts = {
        one.host: None
        for other, one in read.items()
        if other != task and one.host and one.port and not _is_excluded(one.host, proxy.without)
    }
    if not hosts:
        return []
    shown = [_format_text(host) for host in list(hosts)[:4]]
    more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""
    message = (
        f"{proxy.variable} is set here, and gRPC obeys it: TensorFlow connects to "
        f"{join_words(shown)}{more} through that "
        "proxy, which seldom works. The tasks then wait for each other without a message."
    )
    fix = f"Unset {proxy.variable} where the tasks start, or list their hosts: {proxy.listed_in}={','.join(shown)}"
    return [Fault("unreachable", Severity.WARNING, None, message, fix)]


def _is_excluded(host: str, entries: Iterable[str]) -> bool:
    """Return whether a host needs no proxy: gRPC compares the ends of names; newer ones also take networks."""
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


def _summary(
    written: Written,
    read: Mapping[Task, Address],
    task: Task | None,
    faults: Sequence[Fault],
    members: tuple[Member, ...],
) -> str:
    if written.jobs is None:
        return (
            "TensorFlow cannot use this specification."
            if faults
            else "What the cluster is could not be read."
        )
    errors = [fault for fault in faults if fault.severity is Severity.ERROR]
    if not read and not errors:
        return "There is no cluster: TensorFlow runs on this machine alone."
    jobs = join_words(
        [
            f"{len(tasks)} "
            f"{_format_text(job)}{'s' if len(tasks) != 1 and job in ('worker', 'chief', 'evaluator') else ''}"
            for job, tasks in list(written.jobs.items())[:6]
        ]
    )
    who = f"; this is {_format_text(str(task))}" if task else ""
    count = f"{len(errors)} error{'s' if len(errors) != 1 else ''}"
    lost = sum(fault.name == "unreachable" for fault in errors)
    if lost:
        of = f"{lost} of {len(members)} tasks cannot be reached from here"
        others = len(errors) - lost
        more = f", and {others} other error{'s' if others > 1 else ''}" if others > 0 else ""
        return f"A cluster of {jobs}{who}: {of}{more}."
    if errors:
        return f"A cluster of {jobs}{who}: {count} in its specification."
    answered = sum(one.reachable is True for one in members)
    seen = (
        f" {answered} of {len(members)} answer." if any(one.reachable is not None for one in members) else ""
    )
    return f"A cluster of {jobs}{who}: its specification is one that TensorFlow takes.{seen}"
