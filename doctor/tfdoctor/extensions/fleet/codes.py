"""The kinds of fleet findings, with the texts that `tfdoctor explain` prints."""

from __future__ import annotations

from tfdoctor.core.causes.codes import CodePage

__all__ = ["FLEET_PAGES"]

FLEET_PAGES = (
    CodePage(
        "gpu-unused",
        "Hosts on which TensorFlow will not use its GPUs",
        "The check of these hosts predicts that TensorFlow registers no GPU there, or could not determine it.",
        "A job over several hosts then trains on the CPU there, and all others wait for it at each step; or it fails "
        "on these hosts alone. The cause is the one that `check` names there.",
        "Run `tfdoctor check` on one of them: it names the commands.",
    ),
    CodePage(
        "host-silent",
        "Hosts that did not answer",
        "A host could not be reached, went away, or had no answer within its deadline.",
        "Nothing is known of it. A driver that hangs holds up every program that asks it; `check` gives up on it after "
        "--timeout seconds, and says so.",
        "Check whether it is up. Then run it again with --resume: it asks only the hosts that have no result.",
    ),
    CodePage(
        "answer-unusable",
        "Hosts whose answer cannot be used",
        "What came is not what `check --json` prints, is too large, or contradicts itself.",
        "Results come from other machines and are not trusted. Something else on that host may print on standard "
        "output (a shell's start-up file), or another tfdoctor than this one wrote the file.",
        "Run `tfdoctor check --json` there by hand, and look at what it prints.",
    ),
    CodePage(
        "versions-differ",
        "Versions that should be the same everywhere are not",
        "TensorFlow or NCCL has more than one version in the fleet.",
        "The tasks of one tf.distribute job talk to each other in the protocol of their version. NCCL refuses ranks of "
        "other versions, or hangs. TensorFlow's wheels for pip bring NCCL as nvidia-nccl-cu12.",
        "Install the same versions on all hosts of one job.",
    ),
    CodePage(
        "card-missing",
        "Hosts with fewer cards than their twins",
        "A few hosts have fewer cards of a model than nearly all others that have it.",
        "A card fell off the bus, is switched off, lost its power cable or was taken out. Where many hosts have the "
        "smaller number it is another kind of host, and no fault.",
        "Look with `lspci -d 10de:` and `dmesg | grep -i xid`; restart the host; then have the card looked at.",
    ),
    CodePage(
        "cards-differ",
        "Not all hosts have the same cards",
        "Models, memory or numbers of cards differ between hosts.",
        "A synchronous job goes at the pace of the slowest card, and a batch must fit into the smallest memory.",
        "Give a job hosts of one kind, or give each worker a batch that suits its card.",
    ),
    CodePage(
        "card-slowed",
        "Cards that are slower than their twins",
        "A card uses fewer lanes of PCI Express, or has a lower clock or power limit, than the same model elsewhere.",
        "It sits in another slot or not firmly in its own, a riser is broken, or somebody set a limit.",
        "Look with nvidia-smi -q -d CLOCK,POWER and at its link; lspci -vv shows what card and slot can do.",
    ),
    CodePage(
        "card-faults",
        "Cards that report faults",
        "Memory errors, a reset that the driver asks for, or faults in the kernel's log, of some hosts.",
        "Such a card may stop a job after hours, or give wrong numbers.",
        "Run `tfdoctor check` on that host: it names the card and what to do.",
    ),
    CodePage(
        "host-differs",
        "Hosts that differ from the majority",
        "Something that TensorFlow depends on differs from the largest group of hosts.",
        "A host that missed an update, has another image or another variable. It may work all the same.",
        "Bring it to the state of the others, or leave it if the difference is intended.",
    ),
    CodePage(
        "clock-skew",
        "Hosts whose clock is wrong",
        "The host's clock was outside the time in which it was asked, by the clock of the machine that asked.",
        "Logs of several hosts cannot be put in order, checkpoints seem to come from the future, and Kerberos and TLS "
        "refuse it. Known only of hosts that `fleet run` asked.",
        "Look with `timedatectl`, and start time synchronisation.",
    ),
    CodePage(
        "same-card-twice",
        "Two hosts that are one machine",
        "Results of different names show the same card, by its identifier.",
        "A machine answered under two names, or a result was copied.",
        "Name each machine once.",
    ),
    CodePage(
        "peers-apart",
        "Hosts that do not reach each other",
        "With `fleet run --connect`, hosts got no answer from the address of a peer, or do not know its name.",
        "The tasks of a job wait for each other at their start, without end. A peer that refuses the connection was "
        "reached: nothing listens there yet. Whether a firewall refuses in its name cannot be seen from outside.",
        "Open the ports between the hosts, or give TF_CONFIG names and addresses that all of them reach; "
        "`tfdoctor cluster --connect` on such a host shows each peer.",
    ),
)
