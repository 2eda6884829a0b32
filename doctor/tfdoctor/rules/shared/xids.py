"""NVIDIA's Xid numbers: their meanings and how serious each is.

The sources are:

* NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors): the listing with its columns for hardware, driver and
  application, and the catalog with its resolution buckets;
* the names in nverror.h of NVIDIA's open kernel modules;
* "Dynamic Page Retirement" and "GPU Memory Error Management" for 48, 63, 64, 94 and 95.

A number that is not in the table is reported without a meaning.
"""

from __future__ import annotations

import enum

from tfdoctor.core.records import dataclass


class XidKind(enum.Enum):
    """The kind of problem that an Xid reports."""

    PROGRAM = "program"
    """A program failed or was ended. If only one program is affected, the GPU itself works."""
    INFORMATION = "note"
    """An event for information only, which the driver has handled."""
    FAULT = "fault"
    """A problem of the GPU, its memory, its bus or its firmware."""
    NEEDS_RESET = "lost"
    """The GPU cannot be used until it is reset or the machine restarts."""


@dataclass(frozen=True, slots=True)
class Xid:
    """The kind and the meaning of one Xid number."""

    kind: XidKind
    meaning: str
    """The meaning as a clause or noun phrase, for use in a sentence."""


XIDS: dict[int, Xid] = {
    13: Xid(XidKind.PROGRAM, "a program's kernel failed on the card (graphics engine exception)"),
    31: Xid(XidKind.PROGRAM, "a program reached for memory that is not its own (page fault)"),
    32: Xid(XidKind.FAULT, "commands to the card arrived damaged: driver, bus or memory"),
    38: Xid(XidKind.FAULT, "the driver's firmware failed"),
    43: Xid(XidKind.PROGRAM, "a program's work was stopped after it had failed"),
    45: Xid(XidKind.PROGRAM, "work was cleaned up after a program ended or another error"),
    46: Xid(XidKind.FAULT, "the card stopped processing"),
    48: Xid(XidKind.FAULT, "the card's memory had an error that could not be corrected (double bit ECC)"),
    56: Xid(XidKind.INFORMATION, "the display engine had an error"),
    57: Xid(XidKind.FAULT, "the card's memory interface failed to be set up"),
    58: Xid(XidKind.FAULT, "the card's memory timing is in error"),
    61: Xid(XidKind.FAULT, "the card's micro-controller stopped at a breakpoint"),
    62: Xid(XidKind.FAULT, "the card's micro-controller halted"),
    63: Xid(
        XidKind.INFORMATION, "a bad piece of the card's memory was noted, to be replaced at the next reset"
    ),
    64: Xid(XidKind.FAULT, "a bad piece of the card's memory could not be replaced"),
    68: Xid(XidKind.PROGRAM, "the video decoder failed"),
    69: Xid(XidKind.PROGRAM, "a program gave the graphics engine something that it does not know"),
    74: Xid(XidKind.FAULT, "an NVLink connection failed"),
    79: Xid(XidKind.NEEDS_RESET, "the card has fallen off the bus"),
    92: Xid(XidKind.INFORMATION, "the card's memory needs many corrections (single bit ECC)"),
    94: Xid(XidKind.PROGRAM, "a memory error was contained: only the program that met it was ended"),
    95: Xid(XidKind.NEEDS_RESET, "a memory error could not be contained: the card needs a reset"),
    109: Xid(XidKind.PROGRAM, "switching between programs took too long"),
    110: Xid(XidKind.FAULT, "a security fault of the card"),
    119: Xid(XidKind.FAULT, "the card's system processor (GSP) did not answer in time"),
    120: Xid(XidKind.FAULT, "the card's system processor (GSP) failed"),
    121: Xid(XidKind.INFORMATION, "the link between processor and card (C2C) corrected errors"),
    140: Xid(XidKind.FAULT, "the card's memory had an error that was not recovered (ECC)"),
    143: Xid(XidKind.NEEDS_RESET, "the card could not be initialised"),
    154: Xid(XidKind.FAULT, "the driver asks for something to be done"),
}
UNKNOWN_XID = Xid(XidKind.INFORMATION, "an event that is not in tfdoctor's table")
"""The entry for numbers that are not in the table."""
FALLEN_OFF_BUS_XID = 79
"""The Xid of a GPU that no longer answers on the bus."""


def find_xid(number: int) -> Xid:
    """Return the table's entry for an Xid number, or `UNKNOWN_XID`."""
    return XIDS.get(number, UNKNOWN_XID)


def parse_recovery_action(text: str) -> str:
    """Return the recovery action that the text of an Xid 154 requests; "" if it names none.

    "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)" requests "Node Reboot
    Required".
    """
    return text.rpartition(" to ")[2].rpartition("(")[2].rstrip(") .") if " to 0x" in text else ""
