"""Every test of this folder runs twice: over a store in memory, and over a file."""
import pytest


@pytest.fixture(params=["memory", "file"])
def lictor_store(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/lictor.db"
