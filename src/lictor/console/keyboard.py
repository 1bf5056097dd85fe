"""One line from the terminal, without holding up the event loop."""

from __future__ import annotations

import asyncio
import os
import threading

__all__ = ["read_line"]


async def read_line(descriptor: int = 0) -> str | None:
    """The next line somebody types, without its end; None at the end of input.

    A thread waits for it, so that Ctrl-C ends the wait at once; it is a daemon and reads past
    Python's buffers, so that it holds no lock when the program goes.
    """
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()

    def wait() -> None:
        try:
            data = os.read(descriptor, 4096)
        except OSError:
            data = b""
        try:
            loop.call_soon_threadsafe(_give, line, data)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    threading.Thread(target=wait, name="lictor-keyboard", daemon=True).start()
    data = await line
    return data.decode(errors="replace").rstrip("\r\n") if data else None


def _give(line: asyncio.Future[bytes], data: bytes) -> None:
    if not line.done():
        line.set_result(data)
