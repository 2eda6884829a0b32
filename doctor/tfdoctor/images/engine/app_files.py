"""Read the user's own code for an image, as `docker build` would send it: .dockerignore is respected."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from docker.utils.build import exclude_paths

from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.images.write import APP_CONTEXT_FOLDER, AppFiles

__all__ = ["read_app_files"]

MAX_BYTES = 256 * 1024 * 1024
"""The largest total size: data belongs into a volume, not into an image."""
MAX_FILES = 20_000
IGNORE_FILE = ".dockerignore"
MAX_WILDCARDS = 4
"""The largest number of * in a name of a pattern: the time to match one grows exponentially with it."""
IGNORED_NAMES = (
    ".git",
    ".venv",
    "**/__pycache__",
    "**/.ipynb_checkpoints",
    "**/.mypy_cache",
    "**/.pytest_cache",
)
"""Patterns of files that no program needs, before the user's own patterns."""
SECRET_NAME = re.compile(
    r"(?:.{0,80}[._-])?env(?:\.(?!py$)[a-z0-9_-]{1,40}|rc)?~?|env\.sh|[._]netrc|\.pypirc|\.npmrc|\.yarnrc(?:\.yml)?|\.git-credentials|\.pgpass"
    r"|\.htpasswd|\.dockercfg|.{0,80}kubeconfig.{0,40}|(?:.{0,80}_)?id_(?:rsa|dsa|ecdsa|ed25519)(?:_.{1,40})?|private[._-]?key.{0,40}"
    r"|(?:.{0,80}[._-])?(?:credentials?|secrets?|passwords?)(?:[._-].{0,40})?\.(?:json|ya?ml|toml|ini|cfg|conf|txt|csv)|token\.(?:json|txt)"
    r"|\.?(?:credentials?|secrets?|passwords?|token)|.{0,80}service[-_]account.{0,80}\.json|accesstokens\.json|auth\.(?:json|toml)"
    r"|kaggle\.json|\.databrickscfg|\.boto|\.s3cfg|\.my\.cnf|\.vault-token|rclone\.conf|clearml\.conf|\.comet\.config"
    r"|\.modal\.toml|ngrok\.yml|\.?pip\.conf|\.condarc|.{0,200}\.tf(?:state(?:\.backup)?|vars)|\..{2,12}_history"
    r"|.{1,200}\.(?:p12|pfx|jks|keystore|kdbx|ppk|gpg|key)"
)
"""The name of a file that usually holds a password or a key, in lower case."""
SECRET_FOLDERS = {
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".azure",
    ".envs",
    ".huggingface",
    ".ngrok2",
    "gcloud",
}
SETTINGS_SUFFIXES = {
    "",
    ".json",
    ".yaml",
    ".yml",
    ".toml",
    ".ini",
    ".cfg",
    ".conf",
    ".config",
    ".properties",
    ".sh",
    ".xml",
}
"""The suffixes of files that hold settings, among which passwords and tokens are searched for."""
MAX_SETTINGS_BYTES = 256 * 1024
_SECRET_SETTING = re.compile(
    rb"(?i)(?:passwo?r?d|passphrase|secret|secret_?key|private_?key|api_?key|(?:auth|access|oauth|refresh)_?token)"
    rb"[\"']?[ \t]{0,20}[:=][ \t]{0,20}[\"']?[^\s\"'$<{*]{6,}|[a-z]://[^\s/:@\"']{1,80}:[^\s/@\"'$<{*]{3,200}@"
)
"""A setting that is a password, a token or a key, or an address with a password; not one that names a variable."""
_EXAMPLE_SUFFIXES = (".example", ".sample", ".template", ".dist")
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")


def read_app_files(folder: Path) -> AppFiles:
    """Return the files of a folder for the image, by name in the build context.

    Raise UsageError if the folder cannot be read, is too large, or has a file that looks like a secret.
    """
    display_name = clean_line(str(folder))
    if not folder.is_dir():
        msg = f"--copy: {display_name} is not a folder."
        raise UsageError(msg)
    contents: dict[str, bytes] = {}
    executables: set[str] = set()
    secrets: list[str] = []
    total_bytes = 0
    try:
        for name in sorted(exclude_paths(str(folder), [*IGNORED_NAMES, *_read_ignore_patterns(folder)])):
            path = folder / name
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) or name == IGNORE_FILE:
                continue
            _check_file(folder, path, name)
            total_bytes += path.stat().st_size
            if total_bytes > MAX_BYTES or len(contents) >= MAX_FILES:
                msg = f"--copy: {display_name} has more than {MAX_BYTES >> 20} MiB or {MAX_FILES:,} files."
                raise UsageError(
                    msg,
                    hint="Data belongs in a volume. What the program does not need: list it in .dockerignore.",
                )
            content = path.read_bytes()
            if _is_secret(name, content):
                secrets.append(name)
            context_name = f"{APP_CONTEXT_FOLDER}/{name.replace(os.sep, '/')}"
            contents[context_name] = content
            if path.stat().st_mode & stat.S_IXUSR:
                executables.add(context_name)
    except OSError as error:
        msg = (
            f"--copy: {clean_line(str(error.filename or folder))} cannot be read: {error.strerror or error}."
        )
        raise UsageError(msg) from error
    if secrets:
        names = [clean_line(name, limit=200) for name in secrets[:5]] + (["others"] if secrets[5:] else [])
        msg = f"--copy: {join_words(names)} may hold a password or a key, which would stay in the image."
        raise UsageError(
            msg, hint=f"List it in {display_name}/.dockerignore, or, if it is none, give it another name."
        )
    if not contents:
        msg = f"--copy: {display_name} has no file to copy."
        raise UsageError(msg)
    return AppFiles(contents, frozenset(executables))


def _read_ignore_patterns(folder: Path) -> list[str]:
    """Return the patterns of the folder's .dockerignore. Raise UsageError if one has too many wildcards."""
    path = folder / IGNORE_FILE
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    for pattern in patterns:
        if any(part.replace("**", "").count("*") > MAX_WILDCARDS for part in pattern.split("/")):
            msg = f"{clean_line(str(path))}: `{clean_line(pattern, limit=80)}` has more than {MAX_WILDCARDS} wildcards in a name."
            raise UsageError(msg, hint="Matching it could take minutes. Shorten it.")
    return patterns


def _check_file(folder: Path, path: Path, name: str) -> None:
    """Raise UsageError if the path is no regular file, or is a link that leads out of the folder."""
    target = Path(os.path.realpath(path))
    reason = ""
    if not target.is_relative_to(os.path.realpath(folder)):
        reason = "is a link that leads out of the folder"
    elif not target.is_file():
        reason = "is not a regular file"
    elif re.search(r"[\x00-\x1f\x7f]", name):
        reason = "has a control character in its name"
    if reason:
        msg = f"--copy: {clean_line(name, limit=200)} {reason}."
        raise UsageError(msg, hint="List it in .dockerignore, or copy what it names.")


def _is_secret(name: str, content: bytes) -> bool:
    """Return whether the file has the name of a secret, or contains a private key, or settings with a secret."""
    *folders, base_name = Path(name.lower()).parts
    has_secret_name = bool(
        SECRET_NAME.fullmatch(base_name) and not base_name.endswith(_EXAMPLE_SUFFIXES)
    ) or not SECRET_FOLDERS.isdisjoint(folders)
    if has_secret_name or _PRIVATE_KEY.search(content) is not None:
        return True
    if Path(base_name).suffix not in SETTINGS_SUFFIXES or len(content) > MAX_SETTINGS_BYTES:
        return False
    return _SECRET_SETTING.search(content) is not None
