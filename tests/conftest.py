"""What every test gets: no network, a limit for `async def` tests, Hypothesis without deadlines."""

import ipaddress
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["lictor.testing.plugin"]  # by name, so that it is there in a tree that is not installed too

HANGS_AFTER = 60.0  # seconds; only a test that is stuck takes that long
SLOW = {"slow", "crash", "stress", "browser", "fuzz"}

settings.register_profile("lictor", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("lictor")


class NetworkRefused(RuntimeError):
    """A test tried to leave this machine."""


def is_local(host: object) -> bool:
    """Tell whether `host` (name, address, bytes or nothing) stays on the loopback interface."""
    name = host.decode() if isinstance(host, bytes) else host
    if not name or name == "localhost":
        return True
    try:
        return ipaddress.ip_address(str(name).partition("%")[0]).is_loopback
    except ValueError:
        return False


def _guard(event: str, args: tuple[object, ...]) -> None:
    if event in {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind"}:
        address = args[1]
        host = address[0] if isinstance(address, tuple) else None  # AF_UNIX addresses are strings
    elif event in {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}:
        host = args[0]
    else:
        return
    if not is_local(host):
        raise NetworkRefused(f"{event} to {host!r}: tests reach loopback only")


# A job in the background of a script is born deaf to Ctrl-C, and so would be every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An audit hook sees every socket call of the process, also those of C extensions that use `socket`,
# and nothing a test does can take it away.
sys.addaudithook(_guard)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give `async def` tests a limit, unless they are meant to take long."""
    for item in items:
        if not any(item.get_closest_marker(mark) for mark in SLOW):
            item.add_marker(pytest.mark.lictor_timeout(HANGS_AFTER))
