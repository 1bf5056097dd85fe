"""Answers typed by `output_type`."""

from __future__ import annotations

from typing import Any

from lictor.errors import DefinitionError

__all__ = ["OutputType"]

MOST_PROBLEMS = 5


class OutputType:
    """A type that the final answer must have; pydantic checks it (imported on first use).

    The model gets its JSON Schema as `response_format`; an answer that does not fit is asked again.
    """

    __slots__ = ("_adapter", "schema")

    def __init__(self, kind: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        try:
            self._adapter: Any = TypeAdapter(kind)
            self.schema: dict[str, Any] = self._adapter.json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError) as exc:
            raise DefinitionError(f"output_type={kind!r}: no JSON Schema can be made from it ({exc})") from exc

    def problem(self, content: Any) -> str | None:
        """What is wrong with an answer, as a text for the model; None when it fits."""
        from pydantic import ValidationError

        try:
            self.value(content)
        except ValidationError as exc:
            lines = [
                f"{'.'.join(str(part) for part in item['loc']) or 'answer'}: {item['msg']}"
                for item in exc.errors(include_url=False, include_input=False, include_context=False)
            ]
            return "Your answer is not the JSON that was asked for: " + "; ".join(lines[:MOST_PROBLEMS])
        return None

    def value(self, content: Any) -> Any:
        """The typed value of an answer; raises pydantic's ValidationError."""
        if isinstance(content, str):
            return self._adapter.validate_json(content)
        return self._adapter.validate_python(content)
