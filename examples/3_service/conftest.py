"""A real server for each test, and a client that follows its events."""
import json
import os
import socket
import subprocess
import sys

import httpx
import pytest


@pytest.fixture
def serve(tmp_path):
    """Start `uvicorn shop.site:site` on a socket of ours; each time over the same store."""
    environment = os.environ | {"DATABASE_URL": f"sqlite:///{tmp_path}/service.db", "TILL": str(tmp_path / "till")}
    servers, clients = [], []

    def start():
        listener = socket.create_server(("127.0.0.1", 0))
        command = [sys.executable, "-m", "uvicorn", "shop.site:site", "--fd", str(listener.fileno())]
        servers.append(subprocess.Popen(command, env=environment, pass_fds=[listener.fileno()]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.close()
        clients.append(httpx.Client(base_url=url, timeout=20, trust_env=False))
        return servers[-1], clients[-1]

    yield start
    for client, server in zip(clients, servers, strict=True):
        client.close()
        server.kill()
        server.wait()


@pytest.fixture
def follow():
    return follow_events


def follow_events(client, run, until, after=None, user="tom"):
    """The events of a run up to one of a kind, as (id, data)."""
    headers = {"x-user": user} | ({"last-event-id": after} if after else {})
    found = []
    with client.stream("GET", f"/runs/{run}/events", headers=headers) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = value
            elif name == "data":
                found.append((number, json.loads(value)))
                if found[-1][1]["kind"] == until:
                    break
    return found
