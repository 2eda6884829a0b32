# Part of target.py: looking at files and folders, and what may not be looked at.
import errno
import os
import re
import stat
import struct
import sys

LIMIT = 1 << 20
CLOSED = []  # what is there and may not be read or listed
FOLDERS = {}
# What an ELF object has for its machine (e_machine), by the names that the kernel has.
MACHINES = {"x86_64": b"\x3e\x00", "aarch64": b"\xb7\x00"}
SYSTEM_LIBRARY = re.compile(
    r"^lib(z|stdc\+\+|gcc_s|ffi|ssl|crypto|lzma|bz2|expat|uuid|gomp|gfortran|openblas\w*|blas|lapack|m|c|dl|rt|pthread)\.so"
)


def note_refused(path, error):
    if error.errno == errno.EACCES and path not in CLOSED:
        CLOSED.append(path)


def read(path, limit=LIMIT):
    try:
        with open(path, "rb") as stream:
            return stream.read(limit).decode("utf-8", "replace")
    except (IOError, OSError) as error:
        note_refused(path, error)
        return None


def names(folder):
    if folder not in FOLDERS:
        try:
            FOLDERS[folder] = sorted(os.listdir(folder or "."))
        except OSError as error:
            note_refused(folder, error)
            FOLDERS[folder] = []
    return FOLDERS[folder]


def size_of(path):
    """Return bytes; -1 of what is no file, None of what is not there.

    What may not be looked at is noted as closed: -1.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        note_refused(path, error)
        return -1 if error.errno == errno.EACCES else None
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def cut(path, size):
    """Return whether an ELF object ends before its own headers say; False for whatever is none."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(64)
            if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
                return len(head) < 64  # what is no such object is not cut but something else
            phoff, shoff = struct.unpack("<QQ", head[32:48])
            phnum, shentsize, shnum = struct.unpack("<HHH", head[56:62])
            stream.seek(min(phoff, 1 << 42))
            table = stream.read(phnum * 56)
    except (IOError, OSError):
        return False
    ends = [shoff + shnum * shentsize if shoff else 0, phoff + phnum * 56]
    for at in range(0, len(table) - 55, 56):
        offset, length = struct.unpack("<8xQ16xQ", table[at : at + 40])
        ends.append(offset + length)
    return max(ends) > size


def foreign(path):
    """Return whether a file that is to be an object of this kind of machine does not begin as one."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(20)
    except (IOError, OSError):
        return False
    if head.startswith(b"\x7fELF\x02\x01"):
        kernel = os.uname()[4] if hasattr(os, "uname") else ""
        return head[18:20] != MACHINES.get(kernel, head[18:20])
    return not head.startswith((b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"))


def hash_file(path, limit=(4 << 20) + 1):
    import base64  # seldom needed, and slow to import
    import hashlib

    try:
        with open(path, "rb") as stream:
            digest = hashlib.sha256(stream.read(limit)).digest()
    except (IOError, OSError):
        return None
    return "sha256=" + base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


def is_broken(path):
    """Return whether a source is no Python."""
    try:
        with open(path, "rb") as stream:
            compile(stream.read(LIMIT), path, "exec", 0, True)
    except (SyntaxError, ValueError, TypeError):
        return True
    except (IOError, OSError):
        pass
    return False


def list_closed():
    """Return [path, what forbids it, its owner, whether that is this user, its mode] of what may not be read."""
    found, kept = [], sorted(set(CLOSED), key=lambda path: (("-info" + os.sep) in path, CLOSED.index(path)))
    for path in kept:
        if len(found) >= 60:
            break
        at, status = path, None
        while status is None:
            try:
                status = os.stat(at)
            except OSError:
                if os.path.dirname(at) == at:
                    break
                at = os.path.dirname(at)
        if status is None:
            found.append([path, path, None, None, None])
            continue
        try:
            import pwd

            owner = pwd.getpwuid(status.st_uid).pw_name
        except (ImportError, KeyError):
            owner = str(status.st_uid)
        if ("-info" + os.sep) in path and any(known[1] == at for known in found):
            continue  # METADATA and RECORD of one folder
        found.append([path, at, owner, status.st_uid == os.geteuid(), "%o" % (status.st_mode & 0o7777)])
    return found


def owner_of(path):
    try:
        import pwd

        return pwd.getpwuid(os.stat(path).st_uid).pw_name
    except Exception:
        return ""


def list_carried():
    """Return what LD_LIBRARY_PATH and LD_PRELOAD put before the libraries of the system that Python's own modules
    use.
    """
    found = [name for name in os.environ.get("LD_PRELOAD", "").replace(":", " ").split()]
    for folder in os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        found += [os.path.join(folder, name) for name in names(folder) if folder and SYSTEM_LIBRARY.match(name)]
    return found[:20]


def noexec(path):
    """[folder, mount point] of folders with libraries whose file system lets nothing be executed."""
    flag, found = getattr(os, "ST_NOEXEC", 8), []

    def forbids(folder):
        try:
            return bool(os.statvfs(folder).f_flag & flag)
        except (AttributeError, OSError):
            return False

    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for folder in path + [entry for entry in libraries if entry]:
        at = os.path.realpath(folder)
        if sys.platform.startswith("linux") and os.path.isdir(at) and forbids(at):
            while os.path.dirname(at) != at and forbids(os.path.dirname(at)):
                at = os.path.dirname(at)
            found.append([folder, at])
    return found[:60]


def list_mapped(stdlib):
    """Return shared objects already in a bare interpreter: .pth files and sitecustomize can load some before
    TensorFlow.
    """
    found = []
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                fields = line.split(None, 5)
                path = fields[5].strip() if len(fields) == 6 else ""
                if ".so" in os.path.basename(path) and path not in found and not path.startswith(stdlib or "\n"):
                    found.append(path)
    except (IOError, OSError, UnicodeError):
        pass
    return found
