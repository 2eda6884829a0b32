# Which cards the GPU code of a TensorFlow is for, read from the fat binaries of its shared objects.
# Standard library only; runs on Python 2.7 and 3.5 to 3.14. Loads nothing: the files are mapped and read.
# Arguments: folders (every shared object below one counts) and files. Answers with {"binaries":
# {"60,70,89|90a:8.5": 1149}, how many fat binaries have which machine code, and which PTX of which version of its
# instruction set (left out where it cannot be read); "files": how many objects were read; "failed": those that could
# not be}. Modules of PTX without anything in them do not count.
from __future__ import print_function

import sys

if __name__ == "__main__":
    # The script's own folder is on sys.path first, unless Python was told to leave it out: it must not shadow anything.
    if sys.path and not (getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)):
        sys.path.pop(0)

import json
import mmap
import os
import re
import struct
from collections import Counter

MARKER = "tfdoctor-payload:"
MOST = 4096  # shared objects that are read
SMALL = 1 << 16  # bytes: what is smaller has no kernels of TensorFlow's
FAT_MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, CUBIN = 1, 2
LZ4 = 0x2000
TARGET = re.compile(br"\.target\s+sm_\d+([af]?)")
ISA = re.compile(br"\.version\s+(\d{1,2}\.\d{1,2})\s")
CODE = re.compile(br"\.(?!version|target|address_size)[a-z]")


def fat_binaries(data):
    """Return entries of every fat binary in `data`: ({architecture: cubins}, {architecture with the target's letter:
    PTX}).
    """
    cubin, ptx = Counter(), Counter()
    for entries in iter_fat_binaries(data):
        for kind, name, _ in entries:
            (cubin if kind == CUBIN else ptx)[name] += 1
    return cubin, ptx


def iter_fat_binaries(data):
    """Yield [(CUBIN or PTX, architecture, ISA of the PTX), ...] of one fat binary after the other.

    ISA is None for a module without code, empty if it cannot be read.

    Found by their magic wherever they are, because the kernels that MLIR generates are not in .nv_fatbin. A fat
    binary is a 16-byte header (magic, version 1, header size 16, size of the rest) and entries; an entry has a header
    (kind, its size, the payload's padded size, its packed size, minor, major, architecture at 28, flags at 40) and a
    payload.
    """
    at = data.find(FAT_MAGIC)
    while at >= 0:
        after = at + 4
        if at + 16 <= len(data):
            version, header, size = struct.unpack("<HHQ", data[at + 4 : at + 16])
            if version == 1 and header == 16 and at + 16 + size <= len(data):
                entries = _entries(data, at + 16, at + 16 + size)
                if entries is not None:
                    yield entries
                    after = at + 16 + size
        at = data.find(FAT_MAGIC, after)


def kinds_of(entries):
    """Return "60,70,89|90a:8.5": the architectures of its machine code, and of its PTX.

    Empty if it has no code.

    Where all of its PTX is modules without code, so is its machine code, which was compiled from the same source.
    """
    texts = [isa for kind, _, isa in entries if kind == PTX]
    if texts and all(isa is None for isa in texts):
        return ""
    code = sorted(set(name for kind, name, _ in entries if kind == CUBIN))
    ptx = sorted(set(name + (":" + isa if isa else "") for kind, name, isa in entries if kind == PTX and isa is not None))
    return ",".join(code) + "|" + ",".join(ptx) if code or ptx else ""


def _entries(data, at, end):
    found = []
    while at + 64 <= end:
        kind, _, header, size = struct.unpack("<HHIQ", data[at : at + 16])
        packed, _, _, _, arch = struct.unpack("<IIHHI", data[at + 16 : at + 32])
        flags = struct.unpack("<Q", data[at + 40 : at + 48])[0]
        if (
            kind not in (PTX, CUBIN)
            or not 48 <= header <= 4096
            or at + header + size > end
            or not 10 <= arch <= 999
        ):
            return found or None
        name, isa = str(arch), ""
        if kind == PTX:
            # The driver chooses by the header's number; only the text tells that it is for one architecture
            # alone.
            letter, isa = _module(data[at + header : at + header + min(size, 4096)], packed, flags)
            name += letter
        found.append((kind, name, isa))
        at += header + size
    return found


def _module(payload, packed, flags):
    """Return (letter of a PTX module's `.target sm_90a`, its `.version`).

    Empty if there is none, or the packing hides it.

    The version is None if there is nothing else in the module: nobody ever asks for it.
    """
    text, want = payload, 1024
    if flags & LZ4:
        text = lz4_prefix(payload[: packed or len(payload)], want)
    target, isa = TARGET.search(text), ISA.search(text)
    if target and isa and len(text) < want and not CODE.search(text):
        return target.group(1).decode(), None
    return (target.group(1).decode() if target else ""), (isa.group(1).decode() if isa else "")


def lz4_prefix(block, want):
    """Return the first `want` bytes of an LZ4 block (fewer where the block is cut off)."""
    block = bytearray(block)
    out = bytearray()
    at = 0
    try:
        while at < len(block) and len(out) < want:
            token = block[at]
            at += 1
            literal, at = _lz4_length(block, at, token >> 4)
            out += block[at : at + literal]
            at += literal
            if at >= len(block):
                break
            back = block[at] | block[at + 1] << 8
            at += 2
            match, at = _lz4_length(block, at, token & 15)
            if not 0 < back <= len(out):
                break
            for _ in range(match + 4):
                out.append(out[-back])
    except IndexError:
        pass
    return bytes(out[:want])


def _lz4_length(block, at, length):
    if length == 15:
        while True:
            length += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    return length, at


def objects(path):
    """Return the shared objects below a folder, or the file itself; links are not followed."""
    if not os.path.isdir(path):
        return [path] if os.path.isfile(path) else []
    found = []
    for folder, _, names in os.walk(path):
        found += [os.path.join(folder, name) for name in names if ".so" in name]
    return [name for name in found if os.path.isfile(name) and not os.path.islink(name)]


def main():
    kinds, count, failed = Counter(), 0, []
    wanted = sorted(set(os.path.realpath(one) for path in sys.argv[1:] for one in objects(path)))
    for name in wanted[:MOST]:
        try:
            if os.path.getsize(name) < SMALL:
                continue
            with open(name, "rb") as stream:
                view = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                try:
                    found = Counter(kinds for kinds in map(kinds_of, iter_fat_binaries(view)) if kinds)
                finally:
                    view.close()
        except (IOError, OSError, ValueError) as error:
            failed.append("%s: %s" % (name, error))
            continue
        count += 1
        kinds.update(found)
    print(MARKER + json.dumps({"binaries": kinds, "files": count, "failed": failed[:8]}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
