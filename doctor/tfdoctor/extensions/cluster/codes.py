"""The faults of a cluster, with the texts that `explain` prints. Their codes are in `core.causes.codes`."""

from __future__ import annotations

from tfdoctor.core.causes.codes import CodePage

__all__ = ["CLUSTER_PAGES"]


CLUSTER_PAGES = (
    CodePage(
        "cluster-address",
        "An address of a cluster is not HOST:PORT",
        "A task's address has no port, a wrong one, or something else that TensorFlow does not take.",
        'TensorFlow takes "HOST:PORT", and "[ADDRESS]:PORT" for IPv6: no http://, no name of a port. Some wrong '
        'addresses stop the server with "Could not interpret … as a host-port pair"; others pass, and the other '
        "tasks then wait without end. Port 0 is any free port, which only a cluster of one task can use.",
        'Write the host, a colon and a port from 1 to 65535: "localhost:2999".',
    ),
    CodePage(
        "cluster-task",
        "A process does not know which task of the cluster it is",
        "The task is missing, is not in the cluster, or is there twice.",
        'In TF_CONFIG "task" says which of the cluster\'s tasks a process is, by type and index, counted from 0. Two '
        "processes with the same task wait for the one that nobody is; one of them may fail to bind its port.",
        'Give each process its own: {"type": "worker", "index": 1}.',
    ),
    CodePage(
        "json-invalid",
        "TF_CONFIG is not JSON that TensorFlow can use",
        "The text does not parse, or has another form.",
        "TensorFlow reads TF_CONFIG with json.loads: double quotes, no comma before a closing bracket, no quotes "
        'around the whole. A text without "cluster" means: no cluster, each process trains alone.',
        "Write it with json.dumps, and put it into single quotes in a shell.",
    ),
    CodePage(
        "job-name",
        "A job of the cluster has a name that TensorFlow does not take",
        'The strategies of TensorFlow 2 know "chief", "worker", "ps" and "evaluator".',
        'They refuse other names: "Disallowed task type found in cluster spec". TensorFlow 1 also knows "master" for '
        "the chief. tf.train.Server itself takes any name.",
        'Write "worker" for "workers", "chief" for "master".',
    ),
    CodePage(
        "address-twice",
        "Two tasks of the cluster have the same address",
        "Only one server can listen at a port of a machine.",
        "The second server does not start: its address is already in use. All names of loopback are one machine.",
        "Give each task on a machine its own port.",
    ),
    CodePage(
        "chief-twice",
        "The cluster has more than one chief",
        'There is at most one: two tasks of "chief", or "chief" next to "master", are refused.',
        'The chief writes checkpoints and starts what all do once. "master" is its name in TensorFlow 1.',
        'Leave one of them, as "chief"; make the others workers.',
    ),
    CodePage(
        "localhost-among-hosts",
        "An address of this machine alone stands among other machines",
        "localhost is another machine for each task.",
        "Each task that connects to localhost, 127.0.0.1 or 0.0.0.0 connects to its own machine, and does not find the "
        "task there.",
        "Write the name or the address under which the other machines know that one.",
    ),
    CodePage(
        "evaluator-in-cluster",
        "The evaluator is listed in the cluster",
        "It is no part of the training cluster.",
        "TensorFlow accepts an evaluator that the cluster does not list, and no training task talks to it. Where it is "
        "listed, programs that count or wait for all tasks count it, too; two are refused.",
        'Take "evaluator" out of "cluster", and leave it in the "task" of its own process.',
    ),
    CodePage(
        "unreachable",
        "A task of the cluster does not answer",
        "tfdoctor cluster --connect could not reach it as TensorFlow would.",
        "Refused: the machine is there, and nothing listens at that port (not started yet, ended, another port). Timed "
        "out: a firewall, or no such machine. No such name: it does not resolve here. Not TensorFlow: something else "
        "answers at that port. A proxy (http_proxy): gRPC obeys it, and running tasks wait without a "
        "message. It is asked from this machine alone.",
        "Start the task, open the port between the machines, or correct the address.",
    ),
    CodePage(
        "wrong-self-address",
        "This task's own address is none of this machine's",
        "The others would look for this task on another machine.",
        "Its server listens on this machine at that port, whatever the host says; the other tasks connect to the "
        "address in the cluster. Behind a load balancer or with ports that a container engine forwards that is right.",
        "Check the index of this process, or write this machine's address.",
    ),
    CodePage(
        "version-differs",
        "The machines of the cluster have different TensorFlows",
        "tfdoctor cluster --peer compared recorded machines with this one.",
        "TensorFlow does not support two versions in one cluster and promises nothing of what they send each other "
        "(tensorflow.org/guide/versions, what is not covered): it can work, fail with strange errors, or wait without "
        "end. The TensorFlow that is compared is the one of each machine's Python as `check` finds it.",
        "Install the same version everywhere.",
    ),
)
