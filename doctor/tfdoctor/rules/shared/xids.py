"""What NVIDIA's Xid numbers mean, and how much each matters.

From NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors: the listing with its columns for hardware, driver
and application, and the catalog with its resolution buckets), the names in nverror.h of NVIDIA's open kernel
modules, and "Dynamic Page Retirement" and "GPU Memory Error Management" for 48, 63, 64, 94 and 95. A number that
is not here is told as it stands, without a judgement.
"""

from __future__ import annotations

import enum

from tfdoctor.records import dataclass


class Kind(enum.Enum):
    """What an Xid speaks of."""

    PROGRAM = "program"
    """A program did something wrong, or was ended: the card is well, as long as it is one program's doing."""
    NOTE = "note"
    """Told for the record; the driver has dealt with it."""
    FAULT = "fault"
    """The card, its memory, its bus or its firmware is in trouble."""
    LOST = "lost"
    """The card is gone or unusable until it is reset or the machine restarts."""


@dataclass(frozen=True, slots=True)
class Xid:
    kind: Kind
    meaning: str
    """As half a sentence."""


XIDS: dict[int, Xid] = {
    13: Xid(Kind.PROGRAM, "a program's kernel failed on the card (graphics engine exception)"),
    31: Xid(Kind.PROGRAM, "a program reached for memory that is not its own (page fault)"),
    32: Xid(Kind.FAULT, "commands to the card arrived damaged: driver, bus or memory"),
    38: Xid(Kind.FAULT, "the driver's firmware failed"),
    43: Xid(Kind.PROGRAM, "a program's work was stopped after it had failed"),
    45: Xid(Kind.PROGRAM, "work was cleaned up after a program ended or another error"),
    46: Xid(Kind.FAULT, "the card stopped processing"),
    48: Xid(Kind.FAULT, "the card's memory had an error that could not be corrected (double bit ECC)"),
    56: Xid(Kind.NOTE, "the display engine had an error"),
    57: Xid(Kind.FAULT, "the card's memory interface failed to be set up"),
    58: Xid(Kind.FAULT, "the card's memory timing is in error"),
    61: Xid(Kind.FAULT, "the card's micro-controller stopped at a breakpoint"),
    62: Xid(Kind.FAULT, "the card's micro-controller halted"),
    63: Xid(Kind.NOTE, "a bad piece of the card's memory was noted, to be replaced at the next reset"),
    64: Xid(Kind.FAULT, "a bad piece of the card's memory could not be replaced"),
    68: Xid(Kind.PROGRAM, "the video decoder failed"),
    69: Xid(Kind.PROGRAM, "a program gave the graphics engine something that it does not know"),
    74: Xid(Kind.FAULT, "an NVLink connection failed"),
    79: Xid(Kind.LOST, "the card has fallen off the bus"),
    92: Xid(Kind.NOTE, "the card's memory needs many corrections (single bit ECC)"),
    94: Xid(Kind.PROGRAM, "a memory error was contained: only the program that met it was ended"),
    95: Xid(Kind.LOST, "a memory error could not be contained: the card needs a reset"),
    109: Xid(Kind.PROGRAM, "switching between programs took too long"),
    110: Xid(Kind.FAULT, "a security fault of the card"),
    119: Xid(Kind.FAULT, "the card's system processor (GSP) did not answer in time"),
    120: Xid(Kind.FAULT, "the card's system processor (GSP) failed"),
    121: Xid(Kind.NOTE, "the link between processor and card (C2C) corrected errors"),
    140: Xid(Kind.FAULT, "the card's memory had an error that was not recovered (ECC)"),
    143: Xid(Kind.LOST, "the card could not be initialised"),
    154: Xid(Kind.FAULT, "the driver asks for something to be done"),
}
UNKNOWN = Xid(Kind.NOTE, "an event that is not in tfdoctor's table")
BUS_LOST = 79


def meaning(number: int) -> Xid:
    """The table's row; for a number that is not in it, one that says so."""
    return XIDS.get(number, UNKNOWN)


def recovery_asked(text: str) -> str:
    """What an Xid 154 asks for, of "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"."""
    return text.rpartition(" to ")[2].rpartition("(")[2].rstrip(") .") if " to 0x" in text else ""
