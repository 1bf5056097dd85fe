"""The body of a chat completion request: pure, and JSON by construction."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from lictor.errors import ModelError
from lictor.models.messages import well_formed
from lictor.models.protocol import ToolSpec
from lictor.models.untrusted import fields, items

__all__ = ["OURS", "chat_request", "is_strict", "limited_as", "plain_json", "timeout_of"]

TIMEOUT = 120.0  # seconds
OPENAI = "api.openai.com"
HOST = re.compile(r"^https?://|[:/].*$", re.DOTALL)  # what is not the host of an address
OURS = ("messages", "model", "stream", "tools")  # a setting of this name would go past what was judged
RESERVED = ("position", "response_format", "timeout")
WITH_TOOLS = ("parallel_tool_calls", "tool_choice")  # providers refuse them where no tool is offered


def chat_request(
    model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The request body for `messages` and `tools` under `settings`.

    A setting that is None is left out, `stream_options` included. Lone surrogates are replaced.

    Raises ModelError: `bad_request`, a value is no JSON (the message says where), or a setting has the
    name of a part that Lictor writes.
    """
    taken = [key for key in OURS if key in settings]
    if taken:
        raise ModelError("bad_request", f"settings may not contain {taken[0]!r}")
    skipped = RESERVED if tools else (*RESERVED, *WITH_TOOLS)
    body: dict[str, Any] = {"stream_options": {"include_usage": True}}
    body.update((key, value) for key, value in settings.items() if key not in skipped)
    if settings.get("response_format") is not None:
        body["response_format"] = _response_format(settings["response_format"])
    body = {key: value for key, value in body.items() if value is not None}
    body.update(model=model, messages=[_message(message) for message in messages], stream=True)
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
    cleaned: dict[str, Any] = plain_json(body, "request")
    return cleaned


def limited_as(body: dict[str, Any], base_url: str | None) -> dict[str, Any]:
    """The body with the limit of output tokens under the name that the endpoint takes.

    OpenAI's newer models refuse `max_tokens` and take `max_completion_tokens`; many compatible servers
    know only the older name.

    Arguments:
        body: a request body.
        base_url: where it goes; None is OpenAI's own address.
    """
    is_openai = base_url is None or HOST.sub("", base_url.lower()) == OPENAI
    if not is_openai or "max_tokens" not in body:
        return body
    renamed = {key: value for key, value in body.items() if key != "max_tokens"}
    renamed.setdefault("max_completion_tokens", body["max_tokens"])
    return renamed


def timeout_of(settings: Mapping[str, Any]) -> float | None:
    """Seconds a call may wait for its provider, None for no limit. Raises ModelError: no positive number."""
    seconds = settings.get("timeout", TIMEOUT)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ModelError("bad_request", f"settings['timeout'] is {seconds!r}: give seconds above 0, or None")
    return float(seconds)


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the notes that the stored history keeps on its calls: some providers refuse unknown fields."""
    calls = items(fields(message).get("tool_calls"))
    if not any("note" in fields(call) for call in calls):
        return message
    kept = [{key: value for key, value in fields(call).items() if key != "note"} for call in calls]
    return {**message, "tool_calls": kept}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool["name"],
            "description": tool.get("description", ""),
            "parameters": tool.get("schema") or {"type": "object", "properties": {}},
        },
    }


def _response_format(wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """The API's wrapping of a JSON Schema; what is wrapped already stays as it is."""
    if wanted.get("type") in ("json_schema", "json_object", "text"):
        return wanted
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(wanted.get("title") or "answer"))[:64]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": wanted, "strict": is_strict(wanted)}}


def is_strict(schema: object) -> bool:
    """Whether every object in `schema` is closed with all its properties required, as strict mode demands."""
    given = fields(schema)
    if "properties" in given or given.get("type") == "object":
        names = set(fields(given.get("properties")))
        if given.get("additionalProperties") is not False or names != set(items(given.get("required"))):
            return False
    return all(map(is_strict, [*given.values(), *items(schema)]))


def plain_json(value: object, path: str) -> Any:
    """A plain copy of `value` that JSON and UTF-8 can hold."""
    if isinstance(value, str):
        return well_formed(value)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {_key(key, path): plain_json(item, f"{path}.{key}") for key, item in pairs}
    if isinstance(value, list | tuple):
        members = cast("Sequence[object]", value)
        return [plain_json(item, f"{path}[{number}]") for number, item in enumerate(members)]
    raise ModelError("bad_request", f"{path} is no JSON: {type(value).__name__}")


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise ModelError("bad_request", f"{path} is no JSON: it has a key of type {type(key).__name__}")
    return well_formed(key)
