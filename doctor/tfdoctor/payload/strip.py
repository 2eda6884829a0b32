# Removes the debugging symbol tables of shared objects: the bytes after the last segment that the loader maps,
# and the section headers that describe these bytes. The loader uses neither. Standard library only; runs on
# Python 2.7 and 3.5 to 3.14. Arguments: files, or folders to search. A file whose layout is not the expected one
# is left unchanged.
from __future__ import print_function

import os
import struct
import sys

MIN_SAVED_BYTES = 1 << 20  # a smaller saving does not justify changing a file


def find_segments_end(stream, size):
    """Return the offset after the last segment; None if the file has a layout that must not be changed."""
    stream.seek(0)
    header = stream.read(64)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        return None
    object_type, phoff, shoff, phentsize, phnum, shentsize, shnum = struct.unpack(
        "<16xH14xQQ6xHHHH2x", header
    )
    # Only ET_DYN (3) with headers of the standard size, and with a plain number of program headers (not PN_XNUM).
    if object_type != 3 or phentsize != 56 or phnum == 0xFFFF or shentsize != 64 or phoff > size:
        return None
    if not shoff or shoff + shnum * 64 > size:
        return None
    stream.seek(phoff)
    table = stream.read(phnum * 56)
    if len(table) < phnum * 56:
        return None
    end = phoff + phnum * 56
    for index in range(phnum):
        offset, file_size = struct.unpack_from("<8xQ16xQ", table, index * 56)
        end = max(end, offset + file_size)
    stream.seek(shoff)
    sections = stream.read(shnum * 64)
    for index in range(shnum):
        section_type, flags, offset, length = struct.unpack_from("<4xIQ8xQQ", sections, index * 64)
        is_mapped = flags & 2 and section_type != 8  # SHF_ALLOC, and not SHT_NOBITS
        if is_mapped and offset + length > end:
            return None
    return end if shoff >= end else None


def strip(path):
    """Strip a file, and return the number of removed bytes, which is 0 if the file is left unchanged."""
    with open(path, "rb") as stream:  # opening it for writing would copy it into the image layer
        size = os.fstat(stream.fileno()).st_size
        end = find_segments_end(stream, size)
    if end is None or size - end < MIN_SAVED_BYTES:
        return 0
    with open(path, "r+b") as stream:
        stream.seek(40)
        stream.write(struct.pack("<Q", 0))  # e_shoff
        stream.seek(60)
        stream.write(struct.pack("<HH", 0, 0))  # e_shnum, e_shstrndx
        stream.truncate(end)
    return size - end


def iter_objects(arguments):
    """Yield the files among the arguments, and the shared objects below the folders, except for links."""
    for argument in arguments:
        if os.path.isfile(argument):
            yield argument
        for folder, _, names in sorted(os.walk(argument)):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if ".so" in name and not os.path.islink(path):
                    yield path


def main():
    for path in iter_objects(sys.argv[1:]):
        removed_bytes = strip(path)
        if removed_bytes:
            print("%s: %d bytes of symbol tables" % (path, removed_bytes))


if __name__ == "__main__":
    main()
