"""The NVIDIA card, or its kernel module, was switched off on purpose.

What it means
-------------
On laptops with two graphics cards (Optimus), tools switch the NVIDIA card off to save power: prime-select, bbswitch,
supergfxctl, envycontrol, system76-power. They forbid its kernel module to modprobe, or take the card off the bus.
Somebody may also have written such a line by hand. The driver's libraries are there, and no card is shown.

How it is seen
--------------
No NVIDIA module is loaded, and Ubuntu's /etc/prime-discrete says `off`, or modprobe's configuration or the kernel's
command line forbids the module.

What to do
----------
Switch the card on with the tool that switched it off, then restart.
"""

from __future__ import annotations

from tfdoctor import advice
from tfdoctor.facts import value_of
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import Context, Result, Rule, given
from tfdoctor.rules.shared import drivers, kernels


def check(context: Context) -> Result:
    cause = given(kernels.without_module(context))
    if not kernels.switched_off(context):
        return ()
    root = advice.sudo(context.target)
    found = kernels.files(context)
    blocked = found.blocked if found is not None else ()
    prime = value_of(context.facts.kernel.prime) == "off"
    evidence = [Evidence("/etc/prime-discrete", "off")] if prime else []
    evidence += [Evidence(path, line) for path, line in blocked]
    evidence += drivers.pci_evidence(context)
    remedies = []
    if prime:
        remedies.append(
            Remedy(
                "Let the NVIDIA card be used on demand (Ubuntu's tool), then restart.",
                (f"{root}prime-select on-demand", f"{root}reboot"),
                changes_system=True,
            )
        )
        why = "prime-select has switched the NVIDIA card off, in favour of the processor's own graphics."
    else:
        path, line = blocked[0]
        why = f"{path} says `{line}`: NVIDIA's kernel module is there and is kept from being loaded."
        remedies.append(
            Remedy(
                "A tool that switches graphics wrote it: use that, and restart (supergfxctl -m Hybrid, envycontrol "
                "-s hybrid, system76-power graphics hybrid)."
            )
        )
        remedies.append(
            Remedy(
                "Written by hand: take the line away, renew the initial RAM disk, and restart.",
                (f"grep -n nvidia {advice.quote(path)}",),
            )
        )
    return [
        RULE.finding(
            cause,
            Severity.ERROR,
            why,
            title="The NVIDIA card is switched off (prime-select)"
            if prime
            else "NVIDIA's kernel module is forbidden to modprobe",
            evidence=evidence,
            remedies=remedies,
        )
    ]


RULE = Rule(
    "TFD119",
    "card-switched-off",
    "The NVIDIA card, or its kernel module, was switched off on purpose",
    (Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN, Cause.NO_DRIVER),
    check,
    needs=(kernels.waits_for_module,),
)
