"""Cases of the classes that speak of storage are told twice where they need a Runtime: in memory, and over a file."""

import inspect
import re

import pytest

from lictor import Runtime

OVER_FILES = ("test_class_a", "test_class_c_d", "test_class_e_f_g", "test_class_g")


def pytest_generate_tests(metafunc):
    """Tests that make a Runtime without saying over what get both."""
    source = inspect.getsource(metafunc.function)
    if metafunc.module.__name__.startswith(OVER_FILES) and re.search(r"\bRuntime\((\)|clock=)", source):
        metafunc.parametrize("over", ["memory", "file"], indirect=True)


@pytest.fixture(autouse=True)
def over(request, tmp_path, monkeypatch):
    """What a Runtime opens when nobody says."""
    path = tmp_path / "case.db"
    if getattr(request, "param", "memory") == "file":
        monkeypatch.setattr(Runtime.__init__, "__defaults__", (f"sqlite:///{path}",))
        yield
        assert path.exists()
    else:
        yield
