"""A machine with secrets in all files and commands that tfdoctor reads: a folder as its root, and scripts as commands.

It is the recorded host `healthy-one-gpu` with real files, ELF objects and links, so that a live system can run on
it. All identifiers are invented.
"""

from __future__ import annotations

import base64
import json
import platform
import struct
from typing import TYPE_CHECKING, Any

from tfdoctor.system import LiveSystem
from tfdoctor.system.elf import ELF_MACHINE_BY_NAME

if TYPE_CHECKING:
    from pathlib import Path

USER, OTHER, THIRD = "quillfeather", "brackwater", "mossgrove"
HOST, DOMAIN = "gpu-tower-17", "corp.thistledown.example"
UUID = "1f2e3d4c-5b6a-4788-9000-000000000000"
CONTAINER = "4f5e6d7c8b9a4f5e6d7c8b9a4f5e6d7c8b9a4f5e6d7c8b9a4f5e6d7c8b9a1234"

SECRETS: dict[str, str] = {
    "user": USER,
    "another user": OTHER,
    "a third user": THIRD,
    "full name": "Quentin Featherstonehaugh",
    "host": HOST,
    "domain": DOMAIN,
    "build host": "builder-of-kernels-03",
    "proxy host": "proxy-inside",
    "index host": "wheels.thistledown.example",
    "registry": "registry.thistledown.example",
    "worker": "worker-zero.thistledown.example",
    "second worker": "worker-one",
    "cluster node": "node-0421",
    "private address": "10.20.30.41",
    "other private address": "192.168.77.3",
    "public address": "203.0.113.77",
    "address like a version": "11.7.4.91",
    "address in a name": "172.16.9.8",
    "ipv6": "fd12:3456:789a:1::42",
    "link-local": "fe80::5054:ff:fe12:3456",
    "mac": "52:54:00:12:34:56",
    "mac with hyphens": "0C-C4-7A-AB-CD-EF",
    "e-mail": "quentin.f@thistledown.example",
    "other e-mail": "ops+gpu@thistledown.example",
    "GPU UUID": UUID,
    "MIG UUID": "9a8b7c6d-5e4f-4a3b-8c2d-1e0f9a8b7c6d",
    "start of a UUID": "1f2e3d4c",
    "other GPU UUID": "77665544-3322-4110-8fee-ddccbbaa9988",
    "file system UUID": "0e1d2c3b-4a59-4687-9695-a4b3c2d1e0f0",
    "pod UUID": "3c4d5e6f_7a8b_4c9d_8e0f_1a2b3c4d5e6f",
    "GPU serial": "1324021098765",
    "board part": "900-21010-0000-000",
    "chassis serial": "CHS998877AB",
    "machine id": "b3f0c1d2e4a5968778695a4b3c2d1e0f",
    "container": CONTAINER,
    "short container": CONTAINER[:12],
    "pod": "trainer-7d9f8b6c5-x2x4z",
    "namespace": "merger-project",
    "SLURM account": "acct-astro-9",
    "job name": "finetune-unreleased-model",
    "NVIDIA key": "nvapi-Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56",
    "Hugging Face token": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "W&B key": "5f4dcc3b5aa765d61d8327deb882cf99a1b2c3d4",
    "GitHub token": "ghp_Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56Qr78",
    "AWS key id": "AKIAQ7EXAMPLE3KEYS42",
    "AWS secret": "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",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "bearer": "tOk3n-0f-th3-b34r3r-99",
    "proxy user": "svc-proxyuser",
    "proxy password": "Pr0xyPa55word",
    "index password": "1ndexPassw0rd",
    "registry password": "R3gistryP4ss",
    "password on a command line": "c0mmandLineP4ss",
    "key in a log": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "private key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
    "command line": "train_unreleased_model.py",
    "other command line": "/opt/startup/steal_the_show",
    "project folder": "brackwater-private-notes",
    "ELF user": "elfbuilder",
}


def build_machine(root: Path, host: Path) -> LiveSystem:
    """Build the machine below `root` from the recording `host`."""
    root = root.resolve()
    recorded: dict[str, Any] = json.loads((host / "host.json").read_text(encoding="utf-8"))
    s, home = SECRETS, f"/home/{USER}"

    def move_file(text: str) -> str:
        return text.replace("/srv/tf", f"{home}/tf")

    files: dict[str, str] = {move_file(path): text for path, text in recorded["files"].items()}
    files |= {
        "/proc/version": f"Linux version 5.15.0-105-generic ({OTHER}@{s['build host']}) (gcc 11.4.0) #1 SMP\n",
        "/proc/1/cgroup": f"0::/kubepods/burstable/pod{s['pod UUID']}/cri-{CONTAINER}.scope\n",
        "/proc/cmdline": f"BOOT_IMAGE=/vmlinuz root=UUID={s['file system UUID']} ip={s['private address']}\n",
        "/proc/4711/status": "Name:\ttrain_unreleased\nState:\tS (sleeping)\nUid:\t1234\t1234\t1234\t1234\n",
        "/proc/4711/cmdline": f"{home}/tf/bin/python\0{home}/{s['command line']}\0--token\0{s['Hugging Face token']}\0",
        "/proc/4711/environ": f"WANDB_API_KEY={s['W&B key']}\0",
        "/etc/passwd": f"root:x:0:0:root:/root:/bin/sh\n{THIRD}:x:1234:1234:{s['full name']}:/home/{THIRD}:/bin/sh\n"
        f"{OTHER}:x:1235:1235:{s['full name']}:/home/{OTHER}:/bin/sh\n",
        f"{home}/.docker/config.json": json.dumps(
            {
                "auths": {
                    f"https://{s['registry']}/v1/": {
                        "auth": base64.b64encode(f"{OTHER}:{s['registry password']}".encode()).decode()
                    }
                },
                "currentContext": "default",
                "HttpHeaders": {"X-Meta": s["bearer"]},
            }
        ),
        f"{home}/lib/{s['project folder']}.txt": "",
        "/etc/hostname": f"{HOST}.{DOMAIN}\n",
        "/etc/machine-id": s["machine id"] + "\n",
        "/etc/modprobe.d/own.conf": f"# {s['e-mail']} on {HOST}\noptions nvidia A=1 # token={s['GitHub token']}\n",
        "/usr/local/cuda-12.4/version.json": json.dumps(
            {"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, "packager": s["other e-mail"]}
        ),
    }
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    runpaths = f":/home/{s['ELF user']}/lib:/opt/{s['GitHub token']}"
    for path, entry in recorded["elf"].items():
        target = root / move_file(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        runpath = entry.get("runpath")
        target.write_bytes(
            build_elf(
                entry.get("soname"), entry.get("needed", ()), f"{runpath}{runpaths}" if runpath else None
            )
        )
    for path, target_path in recorded["links"].items():
        link = root / move_file(path).lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            parents = "../" * (len(move_file(path).strip("/").split("/")) - 1)
            link.symlink_to(f"{parents}{move_file(target_path).lstrip('/')}")
    for folder, names in recorded["directories"].items():
        (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for name in names:
            if not (root / folder.lstrip("/") / name).exists():
                (root / folder.lstrip("/") / name).touch()
    (root / "etc/ld.so.cache").write_bytes(
        build_ld_cache(f"/home/{THIRD}/lib/libz.so.1", f"/usr/lib/{HOST}/libm.so.9")
    )
    return LiveSystem(str(root), _environment(root, recorded, move_file), cwd=f"{home}/work")


def _environment(root: Path, recorded: dict[str, Any], move_file: Any) -> dict[str, str]:
    """Write the commands of the machine and return its environment variables."""
    s, home = SECRETS, f"/home/{USER}"
    commands = root / "commands"
    answers = {name: entry["stdout"] for name, entry in recorded["commands"].items()}
    smi = answers["nvidia-smi -q -x"].replace(
        "</gpu>",
        f"<serial>{s['GPU serial']}</serial><board_part_number>{s['board part']}</board_part_number>"
        f"<chassis_serial_number>{s['chassis serial']}</chassis_serial_number><processes>"
        f"<process_info><pid>4711</pid><type>C</type><process_name>{home}/tf/bin/python {s['command line']} --password "
        f"{s['password on a command line']}</process_name><used_memory>900 MiB</used_memory></process_info>"
        f"<process_info><pid>4712</pid><type>C</type><process_name>{s['other command line']}</process_name>"
        "<used_memory>20 MiB</used_memory></process_info></processes></gpu>",
    )
    log = f"""[    0.000000] Linux version 5.15.0-105-generic ({OTHER}@{s["build host"]}) (gcc) #1 SMP
[    0.000001] Command line: root=UUID={s["file system UUID"]} nvidia-drm.modeset=1 ip={s["private address"]}
[    1.000000] e1000e 0000:00:19.0 eth0: {s["mac"]} at {s["other private address"]}
Nov 21 10:00:00 {HOST} kernel: nvidia-nvlink: {s["link-local"]} and {s["ipv6"]}, {s["mac with hyphens"]}
Nov 21 10:00:01 {HOST} kernel: NVRM: GPU at PCI:0000:01:00: GPU-{s["other GPU UUID"]}
Nov 21 10:00:01 {HOST} kernel: NVRM: GPU Board Serial Number: {s["GPU serial"]}
Nov 21 10:00:02 {HOST} kernel: NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name={s["command line"]}, Ch 00000008
[   10.000000] nvidia: {s["key in a log"]} from {s["public address"]} and {s["address like a version"]}
[   11.000000] nvidia: host_{s["address in a name"]}.log MIG-{s["MIG UUID"]} Authorization: Bearer {s["bearer"]}
[   12.000000] nvidia: {s["JWT"]} and aws_secret_access_key={s["AWS secret"]} {s["AWS key id"]}
[   13.000000] nvidia: -----BEGIN PRIVATE KEY----- {s["private key"]} -----END PRIVATE KEY-----
"""
    docker = {
        "ID": s["machine id"], "Name": HOST, "ServerVersion": "24.0.7", "OSType": "linux", "Labels": [f"owner={OTHER}"],
        "HttpProxy": f"http://{s['proxy user']}:{s['proxy password']}@{s['proxy host']}:3128", "NoProxy": f".{DOMAIN}",
        "RegistryConfig": {"Mirrors": [f"https://{s['registry']}/"]}, "Swarm": {"NodeAddr": s["private address"]},
        "Runtimes": {"runc": {"path": "runc"}}, "DefaultRuntime": "runc", "DockerRootDir": f"/home/{THIRD}/docker",
        "SecurityOptions": ["name=seccomp,profile=builtin"], "Warnings": [f"cannot reach {s['worker']}:2376/"],
    }  # fmt: skip
    texts = {"smi": smi, "log": log, "docker": json.dumps(docker) + "\n"}
    texts |= {
        name.replace(":", "."): move_file(text)
        for name, text in answers.items()
        if name.startswith("payload:")
    }
    commands.mkdir()
    for name, text in texts.items():
        (commands / name).write_text(text, encoding="utf-8")
    scripts = {
        "nvidia-smi": f"/bin/cat {commands}/smi",
        "dmesg": f"/bin/cat {commands}/log",
        "docker": f'case "$1" in info) /bin/cat {commands}/docker;; *) echo "Docker version 24.0.7, build 0";; esac',
        "python3": f'case "$2" in *target.py) what=target;; *) what=driver;; esac; /bin/cat {commands}/payload.$what; '
        f'echo "warning: index https://{OTHER}:{s["index password"]}@{s["index host"]}/simple" >&2',
        "nvcc": "echo 'Cuda compilation tools, release 12.4, V12.4.131'",
    }
    folder = root / "bin"
    folder.mkdir()
    for name, body in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    cluster = {
        "cluster": {
            "worker": [f"{s['worker']}:2222", f"{s['second worker']}:2222", f"{s['private address']}:2222"]
        }
    }
    return {
        "PATH": f"{folder}:{home}/bin",
        "HOME": home,
        "USER": USER,
        "HOSTNAME": f"{HOST}.{DOMAIN}",
        "LD_LIBRARY_PATH": f"{home}/lib:/home/{OTHER}/cuda/lib64",
        "CUDA_VISIBLE_DEVICES": f"GPU-{s['start of a UUID']}",
        "CUDA_CACHE_PATH": f"/scratch/{USER}_cache/{HOST}",
        "NVIDIA_API_KEY": s["NVIDIA key"],
        "TF_CONFIG": json.dumps(cluster),
        "TF_LOG_SINK": f"https://{s['proxy user']}:{s['proxy password']}@{s['index host']}/?token={s['W&B key']}",
        "NCCL_SOCKET_IFNAME": f"={s['address like a version']}",
        "XLA_FLAGS": f"--xla_dump_to=/mnt/{s['namespace']}/{s['job name']}",
        "HF_TOKEN": s["Hugging Face token"],
        "AWS_SECRET_ACCESS_KEY": s["AWS secret"],
        "SLURM_JOB_ID": "4242",
        "SLURM_JOB_ACCOUNT": s["SLURM account"],
        "SLURM_JOB_NAME": s["job name"],
        "SLURMD_NODENAME": s["cluster node"],
        "NCCL_TOPO_FILE": f"/etc/topo/{s['cluster node']}.{s['SLURM account']}.xml",
        "POD_NAME": s["pod"],
        "POD_NAMESPACE": s["namespace"],
        "TF_DUMP_DIR": f"/logs/{s['pod']}/{s['namespace']}/{s['short container']}",
        "HTTP_PROXY": f"http://{s['proxy user']}:{s['proxy password']}@{s['proxy host']}:3128",
        "KUBERNETES_SERVICE_HOST": s["other private address"],
    }


def build_elf(soname: str | None, needed: Any, runpath: str | None) -> bytes:
    """Return a shared object that has only a dynamic section."""
    strings = b"\0"
    tags: list[tuple[int, int]] = []
    for tag, text in ((14, soname), (29, runpath), *((1, name) for name in needed)):
        if text is not None:
            tags.append((tag, len(strings)))
            strings += text.encode() + b"\0"
    dynamic_offset = 64 + 2 * 56
    strings_offset = dynamic_offset + 16 * (len(tags) + 2)
    tags += [(5, strings_offset), (0, 0)]
    size = strings_offset + len(strings)
    machine = ELF_MACHINE_BY_NAME.get(platform.machine().lower(), 62)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + b"\0" * 9,
        3,
        machine,
        1,
        0,
        64,
        0,
        0,
        64,
        56,
        2,
        0,
        0,
        0,
    )
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    segments += struct.pack(
        "<IIQQQQQQ", 2, 4, dynamic_offset, dynamic_offset, dynamic_offset, 16 * len(tags), 16 * len(tags), 8
    )
    return header + segments + b"".join(struct.pack("<qQ", *tag) for tag in tags) + strings


def build_ld_cache(*paths: str) -> bytes:
    """Return the content of an /etc/ld.so.cache that lists `paths`."""
    strings_offset = 48 + 24 * len(paths)
    strings, entries = b"", b""
    for path in paths:
        name = path.rpartition("/")[2].encode() + b"\0"
        name_offset = strings_offset + len(strings)
        entries += struct.pack("<iIIIQ", 0x0303, name_offset, name_offset + len(name), 0, 0)
        strings += name + path.encode() + b"\0"
    return (
        struct.pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", len(paths), len(strings), 2, 0)
        + entries
        + strings
    )
