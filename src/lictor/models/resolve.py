"""From what a definition says (`"openai:gpt-5-mini"`) to a model."""

from __future__ import annotations

from collections.abc import Callable

from lictor.errors import DefinitionError
from lictor.models.openai_model import OpenAIModel
from lictor.models.protocol import ChatModel
from lictor.models.pydantic_ai_model import PydanticAIModel

__all__ = ["resolve_model"]

FORMS = "openai:NAME, pydantic-ai:PROVIDER:NAME"
PREFIXES: dict[str, Callable[[str], ChatModel]] = {"openai": OpenAIModel, "pydantic-ai": PydanticAIModel}


def resolve_model(spec: object) -> ChatModel:
    """The model that `spec` names.

    Arguments:
        spec: a ChatModel, returned as it is, or text `PREFIX:NAME`. Nothing is connected or imported
            before the first request.

    Raises DefinitionError: neither of these, an unknown prefix, or no name.
    """
    if isinstance(spec, str):
        prefix, colon, name = spec.partition(":")
        if not colon or prefix not in PREFIXES:
            raise DefinitionError(f"model {spec!r} has no known prefix: write one of {FORMS}, or give a ChatModel")
        if not name.strip():
            raise DefinitionError(f"model {spec!r} names no model after {prefix!r}: write {prefix}:NAME")
        return PREFIXES[prefix](name)
    if isinstance(spec, ChatModel) and not isinstance(spec, type):
        return spec
    raise DefinitionError(f"model {spec!r} is not a model: write one of {FORMS}, or give a ChatModel")
