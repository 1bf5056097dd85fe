"""A server's JSON schema as the schema of a tool: whole, safe to store, and closed where it lists its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lictor.agent import safe_value
from lictor.values import MAX_SAFE_INTEGER

__all__ = ["tool_schema"]

BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "default"})
OPENING = frozenset(
    {
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "dependentSchemas",
        "if",
        "oneOf",
        "patternProperties",
        "propertyNames",
        "unevaluatedProperties",
    }
)
"""Keywords by which a schema says more about other names; with one of them it is left as it is."""


def tool_schema(given: Mapping[str, Any]) -> dict[str, Any]:
    """The schema that a model is shown and that arguments are checked against.

    Names that the server does not list are refused here, where the server may drop them without a word: a
    schema with `properties` that is silent about others is closed. Bounds beyond 2^53-1 (the range of an
    int64) are left out, since JSON readers disagree about them.

    Raises:
        NotSerializable: it is too deep or has no JSON form.
        TypeError: `properties` or `required` are not what JSON Schema wants.
    """
    schema: Any = safe_value(_without_wide_bounds(given, 0))[0]
    properties, required = schema.get("properties", {}), schema.get("required", [])
    listed = isinstance(required, list) and all(isinstance(name, str) for name in required)
    if not isinstance(properties, dict) or not listed:
        raise TypeError("its `properties` or `required` are malformed")
    if "properties" in schema and not OPENING & set(schema):
        schema["additionalProperties"] = False
    return dict(schema)


def _without_wide_bounds(form: Any, depth: int) -> Any:
    if depth > 100:  # `safe_value` says so
        return form
    if isinstance(form, Mapping):
        return {
            key: _without_wide_bounds(value, depth + 1)
            for key, value in form.items()
            if not (key in BOUNDS and isinstance(value, int | float) and abs(value) > MAX_SAFE_INTEGER)
        }
    return [_without_wide_bounds(item, depth + 1) for item in form] if isinstance(form, list) else form
