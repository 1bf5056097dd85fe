"""Who drives: a name for each driver, and whether its process still lives."""

from __future__ import annotations

import os
import secrets
import socket

__all__ = ["is_alive", "new_owner", "retire"]

_ours: set[str] = set()


def new_owner() -> str:
    """The name of a driver of this process: `host/pid/random`."""
    owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
    _ours.add(owner)
    return owner


def retire(owner: str) -> None:
    """This driver is gone, although its process may live on."""
    _ours.discard(owner)


def is_alive(owner: str) -> bool:
    """Whether a driver can still write: False only when that is known, so that a lease need not run out."""
    host, _, rest = owner.partition("/")
    pid = rest.partition("/")[0]
    if host != socket.gethostname() or not pid.isdigit():
        return True
    if int(pid) == os.getpid():
        return owner in _ours
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(int(pid))


def _is_zombie(pid: int) -> bool:
    """A killed process that its parent has not waited for yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False
