"""The harness itself: coroutine tests really run, and the network is out of reach."""

import asyncio
import socket

import pytest

reached: list[str] = []


async def test_a_coroutine_test_runs_in_a_loop():
    """An `async def` test is awaited."""
    await asyncio.sleep(0)
    reached.append("yes")


def test_the_coroutine_test_above_was_awaited():
    """A coroutine test that was only created would have left no trace."""
    assert reached == ["yes"]


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "0.0.0.0"])
def test_addresses_beyond_loopback_are_refused(host):
    """Connecting or binding beyond loopback raises before a packet leaves."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock, pytest.raises(RuntimeError, match="loopback only"):
        sock.connect((host, 9))
    with socket.socket(family) as sock, pytest.raises(RuntimeError, match="loopback only"):
        sock.bind((host, 0))


def test_names_are_not_resolved():
    """No name but localhost is looked up."""
    with pytest.raises(RuntimeError, match="loopback only"):
        socket.getaddrinfo("example.org", 443)


async def test_loopback_works():
    """A server and a client on 127.0.0.1 talk as usual."""

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b"hello"
        writer.close()
        await writer.wait_closed()
