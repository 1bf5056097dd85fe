"""A request in the words of pydantic-ai: pure. The library is imported when the first one is made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lictor.errors import ModelError
from lictor.models.chat_request import OURS, is_strict, plain_json
from lictor.models.protocol import ToolSpec
from lictor.models.untrusted import fields, is_object, items, text

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponsePart, UserContent
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

__all__ = ["message_history", "model_settings", "request_parameters"]

RESERVED = (*OURS, "position", "response_format", "stop", "timeout")


def message_history(messages: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """The messages (OpenAI chat shape): requests with what was said to the model, responses with what it said.

    Raises ModelError: `bad_request`, a value is no JSON, or a part of a content is neither text nor image.
    """
    from pydantic_ai.messages import ModelRequest, ModelResponse

    history: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    tools: dict[str, str] = {}  # by the id of their call
    cleaned: list[dict[str, Any]] = plain_json(list(messages), "messages")
    for message in cleaned:
        if message["role"] != "assistant":
            parts.append(_request_part(message, tools))
            continue
        if parts:
            history.append(ModelRequest(parts=parts))
            parts = []
        history.append(ModelResponse(parts=_response_parts(message, tools)))
    if parts:
        history.append(ModelRequest(parts=parts))
    return history


def request_parameters(
    tools: Sequence[ToolSpec], settings: Mapping[str, Any], model: Model[Any]
) -> ModelRequestParameters:
    """The tools on offer, and the schema of the answer: by the provider's own means where the model has them.

    Raises ModelError: `bad_request`, a response format that is no JSON Schema.
    """
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    offered = [
        ToolDefinition(
            name=spec["name"],
            description=spec.get("description") or None,
            parameters_json_schema=plain_json(spec["schema"], f"tools.{spec['name']}"),
        )
        for spec in tools
    ]
    schema = _schema(settings.get("response_format"))
    if schema is None:
        return ModelRequestParameters(function_tools=offered)
    wanted = OutputObjectDefinition(
        json_schema=schema, name=text(schema.get("title")) or "answer", strict=is_strict(schema) or None
    )
    return ModelRequestParameters(
        function_tools=offered, output_mode="native" if _has_schemas(model) else "prompted", output_object=wanted
    )


def model_settings(settings: Mapping[str, Any], model: Model[Any]) -> ModelSettings:
    """What goes on as `ModelSettings`: all but our own keys, `stop` under its other name, and no retries inside."""
    kept = {key: value for key, value in settings.items() if key not in RESERVED and value is not None}
    stop = settings.get("stop")
    if stop is not None:
        kept["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if "max_retries" not in getattr(model, "unsupported_settings", ()):
        kept.setdefault("max_retries", 0)  # the loop retries, where it shows
    given: Any = kept
    passed: ModelSettings = given
    return passed


def _request_part(message: Mapping[str, Any], tools: Mapping[str, str]) -> ModelRequestPart:
    from pydantic_ai.messages import SystemPromptPart, ToolReturnPart, UserPromptPart

    role, content = message["role"], message.get("content")
    if role in ("system", "developer"):
        return SystemPromptPart(_text(content))
    if role == "tool":
        call_id = message["tool_call_id"]
        return ToolReturnPart(tools.get(call_id, "unknown"), _text(content), call_id)
    return UserPromptPart([_user_content(part) for part in items(content)] if items(content) else _text(content))


def _user_content(part: Any) -> UserContent:
    from pydantic_ai.messages import BinaryContent, ImageUrl

    kind = text(fields(part).get("type"))
    if kind == "text":
        return text(part.get("text"))
    url = text(fields(fields(part).get("image_url")).get("url"))
    if kind != "image_url" or not url:
        raise ModelError("bad_request", f"a content part of type {kind or type(part).__name__!r} cannot be passed on")
    if not url.startswith("data:"):
        return ImageUrl(url)
    try:
        return BinaryContent.from_data_uri(url)
    except ValueError as error:
        raise ModelError("bad_request", f"an image's data URL cannot be read: {error}") from error


def _response_parts(message: Mapping[str, Any], tools: dict[str, str]) -> list[ModelResponsePart]:
    """Text and calls; `tools` learns which tool each call was for."""
    from pydantic_ai.messages import TextPart, ToolCallPart

    content = message.get("content")
    parts: list[ModelResponsePart] = [TextPart(_text(content))] if content else []
    for call in map(fields, items(message.get("tool_calls"))):
        function, call_id = fields(call.get("function")), text(call.get("id"))
        tools[call_id] = text(function.get("name"))
        parts.append(ToolCallPart(tools[call_id], text(function.get("arguments")), call_id))
    return parts


def _text(content: Any) -> str:
    """Content as text: parts of text joined, other JSON written out."""
    if isinstance(content, str) or content is None:
        return content or ""
    parts = [fields(part).get("text") for part in items(content)]
    if parts and all(isinstance(part, str) for part in parts):
        return "".join(map(str, parts))
    return json.dumps(content, ensure_ascii=False)


def _schema(wanted: Any) -> dict[str, Any] | None:
    """The JSON Schema in a `response_format`, None where any text will do."""
    given = fields(wanted)
    if wanted is None or given.get("type") == "text":
        return None
    if given.get("type") == "json_schema":
        given = fields(fields(given.get("json_schema")).get("schema"))
    if not given or given.get("type") == "json_object" or not is_object(wanted):
        raise ModelError("bad_request", "settings['response_format'] is no JSON Schema")
    schema: dict[str, Any] = plain_json(given, "response_format")
    return schema


def _has_schemas(model: Model[Any]) -> bool:
    try:
        return bool(model.profile.get("supports_json_schema_output"))
    except NotImplementedError:  # a model that is several models
        return False
