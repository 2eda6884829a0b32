# Queries libcuda.so.1 and libnvidia-ml.so.1. The loader of this process loads them, as it would for TensorFlow.
# Standard library only; runs on Python 2.7 and 3.5 to 3.14. It computes nothing and creates no context, so it
# takes no GPU memory. Arguments: the name or path of each of the two libraries ("-" to skip one), then a JSON
# object of environment variables to set first (null: unset), because this Python's startup may have changed them.
from __future__ import print_function

import sys

# Remove the script's own folder, which comes first unless Python runs in safe mode: it must not shadow
# modules.
if sys.path and not (getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)):
    sys.path.pop(0)

import ctypes
import errno
import json
import os
import re

MARKER = "tfdoctor-payload:"
MAX_DEVICES = 256  # a larger count can only come from a faulty library
CLOCK_RATE, MULTIPROCESSOR_COUNT, MAJOR, MINOR = 13, 16, 75, 76  # CUdevice_attribute


def decode(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def find_mapped_library(fragment):
    """Return the path of the first file mapped by this process whose name contains `fragment`, or None."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                fields = line.split(None, 5)
                if len(fields) == 6 and fragment in os.path.basename(fields[5]):
                    return fields[5].strip()
    except (IOError, OSError):
        pass
    return None


def load_library(name):
    """Load a library. Return it and "", or None and the loader's error."""
    try:
        return ctypes.CDLL(name), ""
    except OSError as error:
        return None, str(error)


def find_function(library, *names):
    """Return the first of the named functions that a library exports; None if it exports none of them."""
    for name in names:
        try:
            return getattr(library, name)
        except AttributeError:
            continue
    return None


def query_attribute(library, device, number, facts):
    """Return an attribute of a device. If the query fails, return None and store the error in `facts`."""
    query = find_function(library, "cuDeviceGetAttribute")
    value = ctypes.c_int(0)
    status = query(ctypes.byref(value), number, device) if query is not None else -1  # -1: no such function
    if status:
        facts["attribute_error"] = status
        return None
    return value.value


def format_uuid(uuid_bytes):
    digits = "".join("%02x" % byte for byte in bytearray(uuid_bytes))
    return "GPU-%s-%s-%s-%s-%s" % (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])


def describe_cuda_device(library, ordinal):
    """Return the facts about a CUDA device."""
    device = ctypes.c_int(0)
    facts = {"ordinal": ordinal}
    get = find_function(library, "cuDeviceGet")
    if get is None or get(ctypes.byref(device), ordinal):
        return facts
    buffer = ctypes.create_string_buffer(256)
    query = find_function(library, "cuDeviceGetName")
    if query is not None and not query(buffer, 255, device):
        facts["name"] = decode(buffer.value)
    query = find_function(library, "cuDeviceGetPCIBusId")
    if query is not None and not query(buffer, 255, device):
        facts["pci_bus_id"] = decode(buffer.value).lower()
    uuid_bytes = (ctypes.c_ubyte * 16)()
    query = find_function(library, "cuDeviceGetUuid_v2", "cuDeviceGetUuid")
    if query is not None and not query(ctypes.byref(uuid_bytes), device):
        facts["uuid"] = format_uuid(uuid_bytes)
    total = ctypes.c_size_t(0)
    query = find_function(library, "cuDeviceTotalMem_v2", "cuDeviceTotalMem")
    if query is not None and not query(ctypes.byref(total), device):
        facts["memory_mib"] = int(total.value >> 20)
    major, minor = query_attribute(library, device, MAJOR, facts), query_attribute(library, device, MINOR, facts)
    if major is None or minor is None:
        major_value, minor_value = ctypes.c_int(0), ctypes.c_int(0)
        query = find_function(library, "cuDeviceComputeCapability")
        if query is not None and not query(ctypes.byref(major_value), ctypes.byref(minor_value), device):
            major, minor = major_value.value, minor_value.value
    if major is not None and minor is not None:
        facts["compute_capability"] = "%d.%d" % (major, minor)
    facts["multiprocessors"] = query_attribute(library, device, MULTIPROCESSOR_COUNT, facts)
    facts["clock_khz"] = query_attribute(library, device, CLOCK_RATE, {})
    return facts


def list_inaccessible_nodes():
    """Return the NVIDIA device nodes whose permissions deny this user access. The nodes are not opened."""
    try:
        names = sorted(os.listdir("/dev"))
    except OSError:
        return []
    paths = ["/dev/" + name for name in names if name.startswith("nvidia")]
    return [path for path in paths if not os.path.isdir(path) and not os.access(path, os.R_OK | os.W_OK)][:32]


def list_refused_nodes(inaccessible_nodes):
    """Return the device nodes that the kernel refuses to open (EPERM) although their permissions allow it.

    A cgroup can cause that. Call this only after cuInit has failed, because it opens the nodes, as cuInit does.
    """
    refused = []
    try:
        names = sorted(os.listdir("/dev"))
    except OSError:
        return []
    for name in names:
        path = "/dev/" + name
        if not re.match(r"nvidia(\d+|ctl|-uvm)$", name) or path in inaccessible_nodes:
            continue
        try:
            os.close(os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0)))
        except OSError as error:
            if error.errno == errno.EPERM:
                refused.append(path)
    return refused[:32]


def describe_cuda(name):
    """Return the facts about libcuda and its devices."""
    facts = {"loaded": False, "error": "", "devices": [], "closed_nodes": list_inaccessible_nodes()}
    library, facts["error"] = load_library(name)
    if library is None:
        return facts
    facts["loaded"] = True
    facts["path"] = find_mapped_library("libcuda")
    facts["stand_in"] = find_function(library, "tfdoctor_stand_in") is not None
    facts["software"] = find_function(library, "tfdoctor_software") is not None
    init = find_function(library, "cuInit")
    if init is None:
        facts["error"] = "it has no function cuInit"
        return facts
    result = init(0)
    facts["init"] = result
    error_name = find_function(library, "cuGetErrorName")
    if result and error_name is not None:
        pointer = ctypes.c_char_p()
        if not error_name(result, ctypes.byref(pointer)) and pointer.value:
            facts["init_name"] = decode(pointer.value)
    version = ctypes.c_int(0)
    query = find_function(library, "cuDriverGetVersion")
    if query is not None and not query(ctypes.byref(version)):
        facts["version"] = version.value
    if result:
        facts["refused_nodes"] = list_refused_nodes(facts["closed_nodes"])
        return facts
    count = ctypes.c_int(0)
    query = find_function(library, "cuDeviceGetCount")
    status = query(ctypes.byref(count)) if query is not None else -1  # -1: no such function
    if status:
        facts["count_error"] = status
        return facts
    facts["count"] = count.value
    facts["devices"] = [describe_cuda_device(library, ordinal) for ordinal in range(min(count.value, MAX_DEVICES))]
    return facts


class NvmlMemory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class NvmlPciInfo(ctypes.Structure):  # nvmlPciInfo_t, version 3
    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    ]


def describe_nvml_device(library, index):
    """Return the facts about an NVML device."""
    facts = {"index": index}
    handle = ctypes.c_void_p()
    get = find_function(library, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
    if get is None or get(ctypes.c_uint(index), ctypes.byref(handle)):
        return facts
    buffer = ctypes.create_string_buffer(256)
    for key, symbol in (("name", "nvmlDeviceGetName"), ("uuid", "nvmlDeviceGetUUID")):
        query = find_function(library, symbol)
        if query is not None and not query(handle, buffer, ctypes.c_uint(255)):
            facts[key] = decode(buffer.value)
    memory = NvmlMemory()
    query = find_function(library, "nvmlDeviceGetMemoryInfo")
    if query is not None and not query(handle, ctypes.byref(memory)):
        facts["memory_total_mib"] = int(memory.total >> 20)
        facts["memory_used_mib"] = int(memory.used >> 20)
    pci = NvmlPciInfo()
    query = find_function(library, "nvmlDeviceGetPciInfo_v3")
    if query is not None and not query(handle, ctypes.byref(pci)):
        facts["pci_bus_id"] = "%04x:%02x:%02x.0" % (pci.domain, pci.bus, pci.device)
    return facts


def describe_nvml(name):
    """Return the facts about NVML and its devices."""
    facts = {"loaded": False, "error": "", "devices": []}
    library, facts["error"] = load_library(name)
    if library is None:
        return facts
    facts["loaded"] = True
    facts["path"] = find_mapped_library("libnvidia-ml")
    init = find_function(library, "nvmlInit_v2", "nvmlInit")
    if init is None:
        facts["error"] = "it has no function nvmlInit"
        return facts
    result = init()
    facts["init"] = result
    get_error_text = find_function(library, "nvmlErrorString")
    if result and get_error_text is not None:
        get_error_text.restype = ctypes.c_char_p
        facts["init_error"] = decode(get_error_text(result) or b"")
    buffer = ctypes.create_string_buffer(256)
    query = find_function(library, "nvmlSystemGetDriverVersion")
    if query is not None and not query(buffer, ctypes.c_uint(255)):
        facts["driver_version"] = decode(buffer.value)
    if result:
        return facts
    count = ctypes.c_uint(0)
    query = find_function(library, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
    if query is not None and not query(ctypes.byref(count)):
        facts["count"] = count.value
        facts["devices"] = [describe_nvml_device(library, index) for index in range(min(count.value, MAX_DEVICES))]
    return facts


def print_facts(key, value):
    # Print each library's facts at once: the next library may crash or hang.
    print(MARKER + json.dumps({key: value}))
    sys.stdout.flush()


def main():
    names = (sys.argv[1:] + ["-", "-"])[:2]
    for name, value in (json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}).items():
        if value is None:
            os.environ.pop(str(name), None)
        else:
            os.environ[str(name)] = str(value) if sys.version_info[0] > 2 else value.encode("utf-8")
    if names[0] != "-":
        print_facts("cuda", describe_cuda(names[0]))
    if names[1] != "-":
        print_facts("nvml", describe_nvml(names[1]))
    sys.stdout.flush()
    os._exit(0)  # a driver can hang in its destructors


if __name__ == "__main__":
    main()
