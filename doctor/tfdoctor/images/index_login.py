"""Find the login of a package index where pip looks for it, and keep it out of what an image or a log shows."""

from __future__ import annotations

import netrc
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line

if TYPE_CHECKING:
    from tfdoctor.system import System

__all__ = ["IndexLogin", "find_index_login"]

KEYRING_TIMEOUT_S = 60
"""The seconds that the keyring program gets, because it may ask the user to unlock the keyring."""


@dataclass(frozen=True, slots=True)
class IndexLogin:
    """The login of a package index."""

    index_url: str
    """The URL of the index without user and password."""
    user: str = field(repr=False)
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        """The URL with the login. It must not get into a command line, a file that stays, or a message."""
        parts = urlsplit(self.index_url)
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))

    def make_pip_config(self) -> bytes:
        """Return the content of a pip.conf that sets the index with its login."""
        return f"[global]\nindex-url = {self.url}\n".encode()

    def redact(self, text: str) -> str:
        """Return the text without the password, also as it is written in a URL. pip hides it, other programs may not."""
        for secret in {self.password, quote(self.password, safe=""), quote(self.password)}:
            if len(secret) > 2:
                text = text.replace(secret, "****")
        return text


def find_index_login(url: str, system: System) -> IndexLogin | None:
    """Return the login for an index, or None if there is none. `url` may name the user, but has no password.

    The login is taken from the netrc file (NETRC, or ~/.netrc), else from the `keyring` program if the URL names a user.
    Raise UsageError if the URL names a user without a password, or if the netrc file cannot be parsed.
    """
    parts = urlsplit(url)
    user = unquote(parts.username) if parts.username is not None else None
    host = parts.hostname or ""
    bare_url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    for login_name, password in _list_netrc_logins(host, system):
        if user in (None, login_name):
            return IndexLogin(bare_url, login_name, password)
    if user is None:
        return None
    keyring = system.which("keyring")
    services = (bare_url, urlsplit(bare_url).netloc)  # in the order in which pip asks
    for command in [(keyring, "get", service, user) for service in services] if keyring is not None else ():
        result = system.run(command, timeout=KEYRING_TIMEOUT_S)
        password = result.stdout.rstrip("\r\n")
        if result.ok and password:
            return IndexLogin(bare_url, user, password)
    # The user is not named: a token may have been given in its place.
    msg = f"--index: no password of this user for {clean_line(host, limit=200)} was found."
    raise UsageError(
        msg,
        hint=f"In ~/.netrc: machine {clean_line(host, limit=200)} login USER password PASSWORD   "
        "(or: keyring set URL USER)",
    )


def _list_netrc_logins(host: str, system: System) -> list[tuple[str, str]]:
    """Return user and password of the host in the netrc file. A `default` entry is for no index.

    Raise UsageError if the file cannot be parsed.
    """
    home = system.env.get("HOME", "")
    path = system.env.get("NETRC") or f"{home}/.netrc"
    if not os.path.isfile(path):  # noqa: PTH113 - the path is text from the environment
        return []
    try:
        entry = netrc.netrc(path).hosts.get(host)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{clean_line(path)} cannot be read: {clean_line(str(error), limit=200)}"
        raise UsageError(msg) from error
    except netrc.NetrcParseError as error:  # its text may quote a password
        msg = f"{clean_line(path)} is not in the form of netrc (line {error.lineno})."
        raise UsageError(msg, hint="machine HOST login USER password PASSWORD") from None
    return [(entry[0], entry[2] or "")] if entry is not None and entry[0] else []
