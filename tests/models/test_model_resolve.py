"""From text to a model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lictor.errors import DefinitionError
from lictor.models import ChatModel, OpenAIModel, PydanticAIModel, ScriptedModel, resolve_model

SRC = Path(__file__).parents[2] / "src"


def test_a_model_is_returned_as_it_is():
    """What is a ChatModel already needs no resolving."""
    model = ScriptedModel([])
    assert resolve_model(model) is model


def test_the_prefix_chooses_and_the_rest_is_the_name():
    """Only the first colon counts."""
    model = resolve_model("openai:org/model:free")
    assert isinstance(model, OpenAIModel)
    assert (model.id, model.name) == ("openai:org/model:free", "org/model:free")


@pytest.mark.parametrize("spec", ["gpt-5-mini", "other:gpt", "", ":x", "OpenAI:x"])
def test_an_unknown_prefix_is_an_error_that_lists_the_known_ones(spec):
    """The message says what can be written."""
    with pytest.raises(DefinitionError, match="openai:NAME, pydantic-ai:PROVIDER:NAME") as caught:
        resolve_model(spec)
    assert repr(spec) in str(caught.value)


@pytest.mark.parametrize("spec", ["openai:", "openai: ", "pydantic-ai:"])
def test_a_name_is_needed(spec):
    """A prefix alone names no model."""
    with pytest.raises(DefinitionError, match="names no model"):
        resolve_model(spec)


@pytest.mark.parametrize("spec", [None, 5, ["openai:a"], ScriptedModel, object()])
def test_what_is_no_model_is_refused(spec):
    """Lists are for the agent, classes and other objects are mistakes."""
    with pytest.raises(DefinitionError, match="is not a model"):
        resolve_model(spec)


def test_every_model_follows_the_protocol():
    """The shipped models are ChatModels."""
    assert isinstance(PydanticAIModel("test"), ChatModel)
    assert isinstance(ScriptedModel([]), ChatModel)
    assert isinstance(OpenAIModel("x"), ChatModel)


def test_naming_a_model_imports_no_client():
    """The client library is imported with the first request."""
    code = (
        "import sys; from lictor.models import resolve_model; resolve_model('openai:x');"
        "resolve_model('pydantic-ai:openai:x');"
        "print([name for name in ('openai', 'httpx', 'httpx2', 'pydantic', 'pydantic_ai') if name in sys.modules])"
    )
    environ = os.environ | {"PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
