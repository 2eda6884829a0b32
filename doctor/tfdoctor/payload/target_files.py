# Part of target.py: inspect files and folders, and record those that may not be read.
import errno
import os
import re
import stat
import struct
import sys

MAX_READ_BYTES = 1 << 20
REFUSED_PATHS = []  # paths that exist but may not be read or listed
LISTED_FOLDERS = {}  # the sorted names in each folder that was listed
# The field e_machine of an ELF object, by the kernel's name for the machine.
MACHINES = {"x86_64": b"\x3e\x00", "aarch64": b"\xb7\x00"}
SYSTEM_LIBRARY = re.compile(
    r"^lib(z|stdc\+\+|gcc_s|ffi|ssl|crypto|lzma|bz2|expat|uuid|gomp|gfortran|openblas\w*|blas|lapack|m|c|dl|rt|pthread)\.so"
)


def record_refused(path, error):
    """Record a path if this user may not access it (EACCES)."""
    if error.errno == errno.EACCES and path not in REFUSED_PATHS:
        REFUSED_PATHS.append(path)


def read_text(path, limit=MAX_READ_BYTES):
    """Return the beginning of a file as text; None if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(limit).decode("utf-8", "replace")
    except (IOError, OSError) as error:
        record_refused(path, error)
        return None


def list_names(folder):
    """Return the sorted names in a folder; [] if it cannot be listed."""
    if folder not in LISTED_FOLDERS:
        try:
            LISTED_FOLDERS[folder] = sorted(os.listdir(folder or "."))
        except OSError as error:
            record_refused(folder, error)
            LISTED_FOLDERS[folder] = []
    return LISTED_FOLDERS[folder]


def get_size(path):
    """Return the size of a file in bytes; None if it does not exist.

    Return -1 if it is not a regular file or is inaccessible. An inaccessible file is also recorded.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        record_refused(path, error)
        return -1 if error.errno == errno.EACCES else None
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def is_truncated(path, size):
    """Return whether an ELF object is shorter than its headers state.

    Every file of less than 64 bytes counts as truncated. A longer file that is not ELF does not.
    """
    try:
        with open(path, "rb") as stream:
            header = stream.read(64)
            if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
                return len(header) < 64
            phoff, shoff = struct.unpack("<QQ", header[32:48])
            phnum, shentsize, shnum = struct.unpack("<HHH", header[56:62])
            stream.seek(min(phoff, 1 << 42))
            table = stream.read(phnum * 56)
    except (IOError, OSError):
        return False
    ends = [shoff + shnum * shentsize if shoff else 0, phoff + phnum * 56]
    for position in range(0, len(table) - 55, 56):
        offset, length = struct.unpack("<8xQ16xQ", table[position : position + 40])
        ends.append(offset + length)
    return max(ends) > size


def is_foreign_object(path):
    """Return whether the first bytes of a file show that it is no shared object for this machine."""
    try:
        with open(path, "rb") as stream:
            header = stream.read(20)
    except (IOError, OSError):
        return False
    if header.startswith(b"\x7fELF\x02\x01"):
        kernel_machine = os.uname()[4] if hasattr(os, "uname") else ""
        return header[18:20] != MACHINES.get(kernel_machine, header[18:20])
    return not header.startswith((b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"))  # Windows and macOS


def hash_file_prefix(path, limit=(4 << 20) + 1):
    """Return the hash of a file's first `limit` bytes, formatted as in RECORD; None if it cannot be read."""
    import base64  # seldom needed, and slow to import
    import hashlib

    try:
        with open(path, "rb") as stream:
            digest = hashlib.sha256(stream.read(limit)).digest()
    except (IOError, OSError):
        return None
    return "sha256=" + base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


def has_syntax_error(path):
    """Return whether a source file has a syntax error."""
    try:
        with open(path, "rb") as stream:
            compile(stream.read(MAX_READ_BYTES), path, "exec", 0, True)
    except (SyntaxError, ValueError, TypeError):
        return True
    except (IOError, OSError):
        pass
    return False


def list_refused_paths():
    """Return the recorded paths that this user may not access.

    Each entry is [path, path that denies access, its owner, whether this user owns it, its mode]. The last three
    are None if the path cannot be inspected.
    """
    entries, paths = [], sorted(set(REFUSED_PATHS), key=lambda path: (("-info" + os.sep) in path, REFUSED_PATHS.index(path)))
    for path in paths:
        if len(entries) >= 60:
            break
        blocking_path, status = path, None
        while status is None:
            try:
                status = os.stat(blocking_path)
            except OSError:
                if os.path.dirname(blocking_path) == blocking_path:
                    break
                blocking_path = os.path.dirname(blocking_path)
        if status is None:
            entries.append([path, path, None, None, None])
            continue
        try:
            import pwd

            owner = pwd.getpwuid(status.st_uid).pw_name
        except (ImportError, KeyError):
            owner = str(status.st_uid)
        if ("-info" + os.sep) in path and any(known_entry[1] == blocking_path for known_entry in entries):
            continue  # one of METADATA and RECORD is enough
        entries.append([path, blocking_path, owner, status.st_uid == os.geteuid(), "%o" % (status.st_mode & 0o7777)])
    return entries


def get_owner(path):
    """Return the user name of a path's owner; "" if it is unknown."""
    try:
        import pwd

        return pwd.getpwuid(os.stat(path).st_uid).pw_name
    except Exception:
        return ""


def list_overriding_libraries():
    """Return the libraries in LD_PRELOAD, and those in LD_LIBRARY_PATH that replace system libraries.

    Only system libraries that Python or its packages use are considered.
    """
    paths = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    for folder in os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        paths += [os.path.join(folder, name) for name in list_names(folder) if folder and SYSTEM_LIBRARY.match(name)]
    return paths[:20]


def list_noexec_folders(path):
    """Return [folder, mount point] for each library folder on a file system that forbids execution."""
    flag, entries = getattr(os, "ST_NOEXEC", 8), []  # Python 2 does not define the flag

    def is_noexec(folder):
        try:
            return bool(os.statvfs(folder).f_flag & flag)
        except (AttributeError, OSError):
            return False

    library_folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for folder in path + [entry for entry in library_folders if entry]:
        mount_point = os.path.realpath(folder)
        if sys.platform.startswith("linux") and os.path.isdir(mount_point) and is_noexec(mount_point):
            while os.path.dirname(mount_point) != mount_point and is_noexec(os.path.dirname(mount_point)):
                mount_point = os.path.dirname(mount_point)
            entries.append([folder, mount_point])
    return entries[:60]


def list_mapped_libraries(stdlib):
    """Return the shared objects that are already mapped, except for those of the standard library.

    .pth files and sitecustomize can load some.
    """
    paths = []
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                fields = line.split(None, 5)
                path = fields[5].strip() if len(fields) == 6 else ""
                # No path starts with a newline.
                if ".so" in os.path.basename(path) and path not in paths and not path.startswith(stdlib or "\n"):
                    paths.append(path)
    except (IOError, OSError, UnicodeError):
        pass
    return paths
