"""What a recording stores of each response, what it omits, and how it responds later."""

from __future__ import annotations

import errno
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.core.errors import UsageError
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.probes.ldcache import parse_ldcache
from tfdoctor.system import CommandResult, Failure, RecordedSystem, RecordingSystem, bundle
from tfdoctor.system.elf import ElfError, ElfFile, ElfProblem
from tfdoctor.system.recording import PRESENT_PLACEHOLDER, _get_changed_fields

if TYPE_CHECKING:
    from pathlib import Path


HOME = f"/home/{'quill'}"


def make_system(**host: Any) -> RecordedSystem:
    """Return a recording with these tables of host.json."""
    return RecordedSystem({"host.json": json.dumps({"schema_version": 1, **host}).encode()})


def make_recording(files: dict[str, bytes] | None = None, **tables: Any) -> bundle.Recording:
    return bundle.Recording(tables, files or {}, {}, "/", {})


# ---------------------------------------------------------------- host.json


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("env", 1),
        ("exists", 1),
        ("which", 1),
        ("listings", ["a", 1]),
        ("listings", "a"),
        ("elf", []),
        ("elf", {"problem": "no such problem"}),
        ("elf", {"errno": True}),
        ("elf", {"errno": "2"}),
        ("elf", {"verdef": [1]}),
        ("elf", {"soname": 1}),
        ("elf", {"rpath": ["a"]}),
        ("elf", {"runpath": 1}),
        ("elf", {"machine": "x"}),
        ("elf", {"size": True}),
        ("elf", {"verneed": {}}),
        ("elf", {"verneed": ["ab"]}),
        ("elf", {"verneed": [["a"]]}),
        ("elf", {"verneed": [[1, []]]}),
        ("elf", {"verneed": [["a", [1]]]}),
        ("elf", {"device_inode": "12"}),
        ("elf", {"device_inode": [1, 2, 3]}),
        ("elf", {"device_inode": [1, True]}),
        ("commands", "x"),
        ("commands", {"failure": "no such failure"}),
        ("commands", {"returncode": True}),
        ("commands", {"seconds": "1"}),
        ("commands", {"stdout_file": 1}),
        ("commands", {"stderr_file": 1}),
        ("errors", ["read", 13, "x", "y"]),
        ("errors", ["stat", 13, "x"]),
        ("errors", ["read", True, "x"]),
        ("errors", ["list", 13, None]),
        ("errors", {"read": 13}),
        ("files", "\ud800"),
    ],
)
def test_invalid_entry_is_refused(table: str, value: Any) -> None:
    with pytest.raises(UsageError, match="stands under '/x'"):
        make_system(**{table: {"/x": value}})


def test_invalid_top_level_is_refused() -> None:
    for host in ({"cwd": 1}, {"python": [1]}, {"env": ["a"]}, {"commands": []}):
        with pytest.raises(UsageError):
            make_system(**host)
    for content in (b'{"schema_version": 2}', b"[]"):
        with pytest.raises(UsageError, match="not a recording"):
            RecordedSystem({"host.json": content})


def test_valid_entries_are_accepted() -> None:
    system = make_system(
        which={"a": None, "b": ""},
        elf={
            "/all": {
                "verneed": [["libc.so.6", ["GLIBC_2.2"]]],
                "device_inode": [1, 2],
                "soname": None,
                "size": 3,
            },
            "/bad": {"problem": ElfProblem.TRUNCATED.value, "detail": "cut"},
            "/denied": {"errno": 13},
            "/named": {"errno": 5, "strerror": "I/O"},
        },
        commands={"x": {"failure": None, "returncode": None, "seconds": 1.5}},
        python=None,
    )
    assert (system.which("a"), system.which("b"), system.which("c")) == (None, None, None)
    elf = system.read_elf("/all")
    assert (elf.machine, elf.verneed, elf.device_inode) == (62, (("libc.so.6", ("GLIBC_2.2",)),), (1, 2))
    assert (elf.nodeflib, elf.truncated, elf.needed, elf.program) == (False, False, (), "")
    with pytest.raises(ElfError, match="cut") as caught:
        system.read_elf("/bad")
    assert caught.value.problem is ElfProblem.TRUNCATED
    with pytest.raises(OSError, match="recorded error") as refused:
        system.read_elf("/denied")
    assert refused.value.errno == errno.EACCES
    with pytest.raises(OSError, match="I/O"):
        system.read_elf("/named")
    with pytest.raises(FileNotFoundError):
        system.read_elf("/absent")
    assert (system.cwd, system.python, system.own_python) == ("/", None, "python3")


# ---------------------------------------------------------------- responses


def test_paths_are_answered_from_all_tables() -> None:
    host = {
        "files": {"/etc/a": "text", "/deep/er/file": ""},
        "elf": {"/lib/libx.so.1": {}},
        "links": {"/lib/libx.so": "/lib/libx.so.1", "/lib64": "/lib", "/lib64/own": "/etc"},
        "directories": {"/srv": ["listed"], "/": ["top"]},
        "exists": {"/etc/hidden": True, "/etc/a": False},
        "folders": {"/etc/folder": True, "/srv": False},
        "listings": {"/var": ["z", "a"]},
        "errors": {
            "/closed/x": ["read", 13, "Permission denied"],
            "/closed": ["list", 13, "Permission denied"],
        },
    }
    system = make_system(**host)
    for path in (
        "/etc/hidden",
        "/etc/./hidden",
        "/deep",
        "/lib64/libx.so",
        "/srv/listed",
        "/top",
        "/deep/er/file",
    ):
        assert system.exists(path), path
    for path in ("/etc/a", "/srv/other", "/absent", "/listed"):
        assert not system.exists(path), path
    for path in ("/etc", "/", "/deep/er", "/lib64", "/etc/folder", "/etc/../deep"):
        assert system.is_dir(path), path
    for path in ("/etc/a", "/srv", "/absent"):
        assert not system.is_dir(path), path
    assert system.listdir("/var") == ["z", "a"]
    assert system.listdir("/lib64") == ["libx.so", "libx.so.1"]
    assert system.listdir("/srv") == ["listed"]
    assert system.listdir("/deep") == ["er"]
    assert "etc" in system.listdir("/")
    assert system.realpath("/lib64/libx.so") == "/lib/libx.so.1"
    assert system.realpath("/lib64/own/a") == "/etc/a"  # the longest link comes first
    assert system.realpath("/lib640") == "/lib640"
    assert system.read_bytes("/etc/a", limit=2) == b"te"
    with pytest.raises(PermissionError):
        system.read_text("/closed/x")
    with pytest.raises(PermissionError):
        system.listdir("/closed")
    with pytest.raises(FileNotFoundError):
        system.read_text("/closed")
    with pytest.raises(FileNotFoundError):
        system.listdir("/absent")


def test_endless_links_end() -> None:
    system = make_system(links={"/a": "/b", "/b": "/a", "/c": "/c/c"})
    assert system.realpath("/a") in ("/a", "/b")
    assert len(system.realpath("/c/x")) < 5000


def test_stored_files_are_found_by_their_path() -> None:
    host = {"schema_version": 1, "stored": {"/odd name": "unnamed/1", "/gone": "unnamed/2"}}
    system = RecordedSystem(
        {
            "host.json": json.dumps(host).encode(),
            "root/unnamed/1": b"odd",
            "root/etc/b": b"abc",
            "output/x": b"no",
        }
    )
    assert system.read_text("/odd name") == "odd"
    assert system.read_bytes("/etc/b", limit=2) == b"ab"
    for path in ("/gone", "/output/x", "/x"):
        assert not system.exists(path)


def test_commands_are_answered_by_key_or_arguments() -> None:
    commands = {
        "a b": {"stdout": "arguments"},
        "key": {"stdout": {"json": 1}, "stderr": "e", "returncode": 3, "seconds": 9},
        "slow": {"failure": Failure.TIMEOUT.value, "seconds": 2.5},
        "slower": {"failure": Failure.TIMEOUT.value},
        "gone": {"failure": Failure.NOT_FOUND.value, "detail": "d", "seconds": 4},
    }
    system = make_system(commands=commands)
    assert system.run(["a", "b"], timeout=7).stdout == "arguments"
    assert system.run(["a", "b"], timeout=7).returncode == 0
    result = system.run(["a", "b"], timeout=7, key="key")
    assert (result.stdout, result.stderr, result.returncode, result.seconds) == ('{"json": 1}', "e", 3, 0)
    assert [system.run([name], timeout=7).seconds for name in ("slow", "slower", "gone")] == [2.5, 7, 0]
    assert system.run(["slow"], timeout=7).returncode is None
    absent = system.run(["x", "y"], timeout=7)
    assert (absent.failure, absent.argv, absent.returncode) == (Failure.NOT_FOUND, ("x", "y"), None)


def test_number_of_providers_decides_only_if_recorded() -> None:
    system = make_system(unresolved={"/lib/a#2": ["two"], "/lib/a": ["any"]})
    assert system.find_unresolved_symbols("/lib/../lib/a", ["x", "y"]) == ("two",)
    assert system.find_unresolved_symbols("/lib/a", ["x"]) == ("any",)
    assert system.find_unresolved_symbols("/lib/b", ["x"]) == ()


# ---------------------------------------------------------------- recording


class Machine(RecordedSystem):
    """A machine whose responses can change."""

    result = CommandResult((), 0)
    symbols: tuple[str, ...] = ()

    def find_unresolved_symbols(self, path: str, providers: Any) -> tuple[str, ...]:
        del path
        return self.symbols[: len(providers)]

    def run(self, argv: Any, **_: Any) -> CommandResult:
        del argv
        return self.result


def make_machine(**host: Any) -> tuple[Machine, RecordingSystem]:
    machine = Machine({"host.json": json.dumps({"schema_version": 1, **host}).encode()})
    return machine, RecordingSystem(machine)


def test_only_requested_variables_are_recorded() -> None:
    _, recording = make_machine(env={"READ": "1", "TESTED": "2", "SEEN": "3", "INCLUDED": "4", "BOTH": "5"})
    assert recording.env["READ"] == recording.env.get("READ") == "1"
    assert ("TESTED" in recording.env, "ABSENT" in recording.env, recording.env.get("ABSENT")) == (
        True,
        False,
        None,
    )
    assert "BOTH" in recording.env
    assert recording.env["BOTH"]
    assert len(recording.env) == len(list(recording.env)) == len(list(recording.env.values())) == 5
    env = recording.get_recording(lambda name: name == "INCLUDED").env
    assert env == {"READ": "1", "TESTED": PRESENT_PLACEHOLDER, "INCLUDED": "4", "BOTH": "5"}
    assert set(recording.get_recording().env) == {"READ", "TESTED", "BOTH"}


def test_responses_are_recorded_by_normalized_path() -> None:
    machine, recording = make_machine(
        files={"/etc/a": "long text"},
        links={"/l": "/etc"},
        errors={"/no": ["read", 13, "Permission denied"], "/nolist": ["list", 13, "Permission denied"]},
        elf={
            "/so": {"soname": "x", "device_inode": [1, 2]},
            "/bad": {"problem": ElfProblem.TRUNCATED.value, "detail": "cut"},
            "/denied": {"errno": 13, "strerror": "Permission denied"},
        },
        which={"tool": "/bin/tool"},
    )
    assert recording.read_text("/etc/../etc/a") == "long text"
    recording.read_bytes("/etc/a", limit=4)  # a shorter read does not replace a longer one
    for path, action in (
        ("/no", recording.read_bytes),
        ("/absent", recording.read_bytes),
        ("/nolist", recording.listdir),
        ("/absent", recording.listdir),
        ("/bad", recording.read_elf),
        ("/denied", recording.read_elf),
        ("/absent", recording.read_elf),
    ):
        with pytest.raises((OSError, ElfError)):
            action(path)
    recording.read_elf("/so")
    recording.exists("/etc/a")
    recording.exists("/etc/b")
    recording.is_dir("/etc")
    recording.listdir("/etc")
    assert recording.realpath("/l") == "/etc"
    recording.realpath("/etc")
    assert (recording.which("tool"), recording.which("none")) == ("/bin/tool", None)
    recorded = recording.get_recording()
    assert recorded.files == {"/etc/a": b"long text"}
    assert recorded.tables == {
        "commands": {},
        "elf": {
            "/so": {"soname": "x", "device_inode": (1, 2)},
            "/bad": {"problem": ElfProblem.TRUNCATED.value, "detail": "cut"},
            "/denied": {"errno": 13, "strerror": "Permission denied"},
        },
        "links": {"/l": "/etc"},
        "listings": {"/etc": ["a"]},
        "which": {"tool": "/bin/tool"},
        "exists": {"/etc/a": True, "/etc/b": False},
        "folders": {"/etc": True},
        "errors": {"/no": ["read", 13, "Permission denied"], "/nolist": ["list", 13, "Permission denied"]},
        "unresolved": {},
    }
    assert (recording.own_python, recording.cwd) == (machine.own_python, machine.cwd)


def test_commands_are_recorded_without_empty_fields() -> None:
    machine, recording = make_machine()
    machine.result = CommandResult(("a", "b"), 0, stdout="out", seconds=1.26)
    recording.run(["a", "b"], timeout=1)
    machine.result = CommandResult(("a",), None, failure=Failure.TIMEOUT, detail="d", seconds=1.26)
    recording.run(["a"], timeout=1, key="key")
    assert recording.get_recording().tables["commands"] == {
        "a b": {"stdout": "out"},
        "key": {"failure": Failure.TIMEOUT.value, "detail": "d", "seconds": 1.3},
    }


def test_symbols_are_recorded_by_number_of_providers_if_it_matters() -> None:
    machine, recording = make_machine()
    machine.symbols = ("s",)
    recording.find_unresolved_symbols("/a", [])
    recording.find_unresolved_symbols("/a", ["x"])
    recording.find_unresolved_symbols("/b", ["x"])
    recording.find_unresolved_symbols("/c", [])
    assert recording.get_recording().tables["unresolved"] == {"/a#0": [], "/a#1": ["s"], "/b": ["s"]}


def test_different_responses_for_two_spellings_are_both_recorded() -> None:
    _, recording = make_machine()
    recording._record_response("folders", "/a/../b", False)
    recording._record_response("folders", "/b", False)
    recording._record_response("folders", "/c/../b", True)
    assert recording.get_recording().tables["folders"] == {"/b": False, "/c/../b": True}


def test_written_recording_has_accepted_variables_only(tmp_path: Path) -> None:
    _, recording = make_machine(env={"A": "1", "B": "2"})
    assert recording.env["A"] + recording.env["B"] == "12"
    recording.write(tmp_path / "bundle", lambda name: name == "B")
    assert dict(RecordedSystem(tmp_path / "bundle").env) == {"B": "2"}


# ---------------------------------------------------------------- files of a recording


def test_long_texts_become_files() -> None:
    limit = bundle.MAX_INLINE_CHARS
    recording = make_recording(
        {
            "/short": b"x" * limit,
            "/etc/long": b"x" * (limit + 1),
            "/binary": b"\xff",
            "/odd name/a": b"y" * 200,
            "/parent": b"p" * 200,
            "/parent/child": b"c" * 200,
        },
        commands={
            "dmesg": {"stdout": "o" * (limit + 1), "stderr": "e" * limit},
            "a  B!": {"stderr": "e" * 200},
        },
    )
    recording.python = "/py"
    files = bundle.build_recording_files(recording)
    host = json.loads(files["host.json"])
    assert host["files"] == {"/short": "x" * limit}
    assert host["stored"] == {"/odd name/a": "unnamed/1", "/parent": "unnamed/2"}
    assert host["commands"] == {
        "a  B!": {"stderr_file": "output/01-a-b.stderr.txt"},
        "dmesg": {"stdout_file": "output/02-dmesg.stdout.txt", "stderr": "e" * limit},
    }
    assert (host["python"], "env" in host) == ("/py", False)
    assert set(files) == {
        "host.json", "root/etc/long", "root/binary", "root/unnamed/1", "root/unnamed/2", "root/parent/child",
        "output/01-a-b.stderr.txt", "output/02-dmesg.stdout.txt",
    }  # fmt: skip
    system = RecordedSystem(files)
    for path, content in recording.files.items():
        if path != "/parent":
            assert system.read_bytes(path) == content
    assert "stdout" in recording.tables["commands"]["dmesg"]  # the recording itself is unchanged


# ---------------------------------------------------------------- shortening


@pytest.mark.parametrize(
    ("path", "content", "shortened", "omitted"),
    [
        ("/proc/12/environ", b"SECRET=1", b"", {}),
        ("/proc/12/cmdline", b"python\0x", b"python\0x", {}),
        (
            "/proc/12/status",
            b"Name:\ta\nUmask:\t1\nState:\tS\nUid:\t5\t5\nPPid:\t1\n",
            b"Name:\ta\nState:\tS\nUid:\t5\t5\nPPid:\t1\n",
            {},
        ),
        ("/etc/passwd", b"root:x:0:0:r:/root:/sh\nme:!:5:6:n:/h:/sh\nbad:1\n", b"", {"accounts": 3}),
        (
            "/lib/modules/6/modules.dep",
            b"a.ko:\nnvidia.ko:\nnouveau.ko: b\n",
            b"nvidia.ko:\nnouveau.ko: b\n",
            {"lines of modules.dep": 1},
        ),
        ("/h/config.json", b'{"auths": {}, "currentContext": "c"}', b'{"currentContext": "c"}', {"registries' credentials": 1}),
        ("/h/config.json", b'["auths"] "auths"', b"{}", {"registries' credentials": 1}),
        ("/h/config.json", b'{"other": 1}', b'{"other": 1}', {}),
        ("/etc/other", b"x", b"x", {}),
    ],
)  # fmt: skip
def test_file_is_reduced_to_its_useful_part(
    path: str, content: bytes, shortened: bytes, omitted: dict[str, int]
) -> None:
    recording = bundle.shorten_recording(make_recording({path: content}))
    assert recording.files == {path: shortened}
    assert recording.omitted_counts == omitted


def test_accounts_of_recorded_processes_stay() -> None:
    files = {"/proc/3/status": b"Uid:\t5\t5\n", "/etc/passwd": b"root:x:0:0::/:/\nme:!:5:6:n:/h:/sh\nq:x:5\n"}
    recording = bundle.shorten_recording(make_recording(files))
    assert recording.files["/etc/passwd"] == b"me:x:5:6::/:\n"
    assert recording.omitted_counts == {"accounts": 2}


@pytest.mark.parametrize(
    ("command", "output", "shortened", "omitted"),
    [
        ("dmesg", "a\nNVRM: x\nb\nc\n\nd", "…\nNVRM: x\n…\n\n…", {"lines of the kernel's log": 4}),
        ("journalctl -k", "usb\nLinux version 6", "…\nLinux version 6", {"lines of the kernel's log": 1}),
        ("dmesgs", "a", "a", {}),
        (
            "docker info",
            '{"ServerVersion": "1", "ID": "x", "Labels": []}',
            '{"ServerVersion": "1"}\n',
            {"parts of docker info": 2},
        ),
        ("docker version", '{"ID": "x"}', '{"ID": "x"}', {}),
        ("list", '["ServerVersion"]', '["ServerVersion"]', {}),
        ("broken", '{"ServerVersion": ', '{"ServerVersion": ', {}),
        ("endless", "x" * ((1 << 20) + 3), "x" * (1 << 20), {"characters of output": 3}),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_output_is_reduced_to_its_useful_part(
    command: str, output: str, shortened: str, omitted: dict[str, int]
) -> None:
    recording = bundle.shorten_recording(
        make_recording(commands={command: {"stdout": output}, "none": {"returncode": 1}})
    )
    assert recording.tables["commands"] == {command: {"stdout": shortened}, "none": {"returncode": 1}}
    assert recording.omitted_counts == omitted


def test_unrelated_names_in_folders_are_omitted() -> None:
    listings = {
        "/home/me": ["diary", "tensorflow", "libz.so.1", "used", "x.pth", "driver"],
        "/": ["etc", "diary"],
        "/etc/x": ["diary"],
        "/lib/modules": ["6.1"],
    }
    recording = bundle.shorten_recording(make_recording({"/home/me/used/file": b""}, listings=listings))
    assert recording.tables["listings"] == {
        "/home/me": ["tensorflow", "libz.so.1", "used", "x.pth", "driver"][:4],
        "/": ["etc"],
        "/etc/x": ["diary"],
        "/lib/modules": ["6.1"],
    }
    assert recording.omitted_counts == {"names in folders": 3}


def test_inodes_are_renumbered() -> None:
    elf = {name: {"device_inode": inode} for name, inode in (("/a", [7, 9]), ("/b", [7, 8]), ("/c", [7, 9]))}
    recording = bundle.shorten_recording(
        make_recording(elf={**elf, "/d": {}, "/e": {"device_inode": [0, 0]}})
    )
    assert [entry.get("device_inode") for entry in recording.tables["elf"].values()] == [
        [1, 1], [1, 2], [1, 1], None, [0, 0],
    ]  # fmt: skip


# ---------------------------------------------------------------- redacting


def make_cache(*entries: tuple[str, str], hwcaps: tuple[str, ...] = (), prefix: bytes = b"") -> bytes:
    """Return an ld.so.cache of glibc 2.33 or newer. Each entry is for x86-64."""
    size = 48 + 24 * len(entries)
    strings, packed, offsets = b"", b"", []
    for number, (soname, path) in enumerate(entries):
        at = size + len(strings)
        strings += soname.encode() + b"\0" + path.encode() + b"\0"
        hwcap = (1 << 62) | number if number < len(hwcaps) else 0
        packed += struct.pack("<iIIIQ", 0x0303, at, at + len(soname) + 1, 0, hwcap)
    for name in hwcaps:
        offsets.append(size + len(strings))
        strings += name.encode() + b"\0"
    strings += b"\0" * (-(size + len(strings)) % 4)
    extension = size + len(strings) if hwcaps else 0
    header = struct.pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", len(entries), len(strings), 2, extension)
    data = b""
    if hwcaps:
        data = struct.pack("<IIIIII", 0xEAA42174, 1, 1, 0, extension + 24, 4 * len(hwcaps))
        data += b"".join(struct.pack("<I", offset) for offset in offsets)
    return prefix + header + packed + strings + data


@pytest.mark.parametrize("hwcaps", [(), ("x86-64-v3",), ("x86-64-v3", "x86-64-v2")])
@pytest.mark.parametrize("prefix", [b"", b"ld.so-1.7.0\0padding!"])
def test_loader_cache_is_rebuilt_with_other_names(hwcaps: tuple[str, ...], prefix: bytes) -> None:
    entries = (("liba.so.1", f"{HOME}/liba.so.1"), ("libb.so.2", "/lib/libb.so.2"))
    content = make_cache(*entries, hwcaps=hwcaps, prefix=prefix)
    assert [(entry.soname, entry.path) for entry in parse_ldcache(content, 62)] == list(entries)
    redactor = Redactor(users=["quill"], hosts=[], secrets=[])
    rebuilt = bundle._rebuild_cache(content, redactor)
    expected = parse_ldcache(content.replace(b"quill", b"uuuuu"), 62)
    actual = parse_ldcache(rebuilt, 62)
    assert [(entry.soname, entry.hwcap) for entry in actual] == [
        (entry.soname, entry.hwcap) for entry in expected
    ]
    assert [entry.path for entry in actual] == [redactor(path) for _, path in entries]
    assert b"quill" not in rebuilt
    assert bundle._rebuild_cache(rebuilt, redactor) == rebuilt  # it is stable


def test_damaged_loader_cache_has_the_entries_that_are_whole() -> None:
    content = make_cache(("liba.so.1", "/a"), ("libb.so.2", "/b"), hwcaps=("x86-64-v3",))
    redactor = Redactor(users=[], hosts=[], secrets=[])
    assert bundle._rebuild_cache(b"no cache", redactor) == b""
    assert bundle._rebuild_cache(content[:47], redactor) == b""
    assert bundle._parse_cache_names(content[:47]) == []
    assert len(bundle._parse_cache_names(content[:72])) == 1
    assert len(bundle._parse_cache_names(content[:95])) == 1
    assert len(bundle._parse_cache_names(content[:96])) == 2
    assert bundle._parse_hwcap_names(content, 0) == ["x86-64-v3"]
    assert bundle._parse_hwcap_names(content[:-30], 0) == []
    assert bundle._parse_hwcap_names(content[:40], 0) == []


def test_payload_lines_are_redacted_as_json() -> None:
    text = f'before\n{bundle.MARKER}{{"a": "quill"}}\n{bundle.MARKER}no json\nafter quill'
    assert list(bundle._split_payload_lines(text)) == [
        ("before\n", None),
        (bundle.MARKER, {"a": "quill"}),
        (f"{bundle.MARKER}no json\nafter quill", None),
    ]
    assert list(bundle._split_payload_lines(' {"a": 1}')) == [("", {"a": 1})]
    redactor = Redactor(users=["quill"], hosts=[], secrets=[])
    user = redactor(f"{HOME}/").split("/")[2]
    redacted = bundle._redact_text(text, redactor)
    assert redacted.startswith(f'before\n{bundle.MARKER}{{"a": ')
    assert "quill" not in redacted
    assert f'"/home/{user}/' in bundle._redact_text(json.dumps({"p": f"{HOME}/lib/x"}), redactor)


def test_redaction_covers_every_part_of_a_recording() -> None:
    recording = bundle.Recording(
        tables={
            "commands": {f"ls {HOME}": {"stdout": f"{HOME}/x", "detail": f"{HOME}/y", "returncode": 1}},
            "listings": {"/home": ["zeta", "quill"], f"{HOME}/": ["b", "a"]},
            "links": {f"{HOME}/a": f"{HOME}/b"},
            "which": {"tool": f"{HOME}/bin/tool"},
        },
        files={
            f"{HOME}/f": b"user quill \xff",
            "/etc/passwd": b"quill:x:5:6::/:\n",
            "/etc/hostname": b"towerhost\n",
            "/proc/5/cmdline": f"python3\0{HOME}/unreleased.py\0".encode(),
            "/proc/5/status": b"Name:\tunreleased\nUid:\t5\n",
        },
        env={"HOME": HOME, "LD_LIBRARY_PATH": f"{HOME}/lib"},
        cwd=f"{HOME}/work",
        platform={"release": "6.1.0-towerhost"},
        python=f"{HOME}/py",
    )
    redactor = Redactor(users=["quill"], hosts=[], secrets=[])
    redacted = bundle.redact_recording(recording, redactor)
    everything = b"\n".join(
        [*bundle.build_recording_files(redacted).values(), *map(str.encode, redacted.files)]
    )
    for secret in (b"quill", b"towerhost"):
        assert secret not in everything, secret
    user = redactor(f"{HOME}/").split("/")[2]
    assert redacted.cwd == f"/home/{user}/work"
    assert (redacted.python or "").startswith(f"/home/{user}/")
    for folder in ("/home", f"/home/{user}/"):  # each name is replaced as in a path
        names = redacted.tables["listings"][folder]
        assert names == sorted(names)
        assert len(names) == 2
    assert user in redacted.tables["listings"]["/home"]
    assert redacted.tables["commands"][f"ls /home/{user}"]["returncode"] == 1
    manifest = bundle.build_manifest(redacted, redactor, {"version": "1"}, "2025-01-01")
    assert manifest["looked_at"]["commands"] == {f"ls /home/{user}": "exit status 1"}
    assert manifest["looked_at"]["folders_listed"] == sorted(redacted.tables["listings"])


def test_manifest_names_failures_and_counts_paths() -> None:
    recording = make_recording(
        commands={"a": {"failure": "timeout"}, "b": {}},
        exists={"/a": True, "/b": False},
        folders={"/b": False},
        errors={"/c": ["read", 13, "denied"]},
    )
    looked_at = bundle.build_manifest(recording, Redactor(users=[], hosts=[], secrets=[]), {}, "")[
        "looked_at"
    ]
    assert looked_at["commands"] == {"a": "timeout", "b": "exit status 0"}
    assert looked_at["paths_tested"] == 2
    assert looked_at["refused"] == {"/c": "denied"}


def test_elf_defaults_are_not_stored() -> None:
    assert _get_changed_fields(ElfFile(62)) == {}
    assert _get_changed_fields(ElfFile(183, needed=("a",))) == {"machine": 183, "needed": ("a",)}
