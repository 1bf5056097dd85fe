"""From a function's signature to a JSON schema and to the call: how JSON arguments bind.

pydantic does the work; it is imported when the first tool is defined, not by `import lictor`.
Decision 003 says why.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union

import orjson

from lictor.agent.arguments import plain, shortened
from lictor.agent.toolcontext import ToolContext
from lictor.errors import DefinitionError, ToolArgumentsInvalid, ValueDomainError

__all__ = ["Binding", "Described", "bind", "describe", "given_schema"]

MAX_PROBLEMS = 8
_JSON_TYPES = frozenset({int, float, str, bool, NoneType, None, list, dict, Any})
_SCHEMA_TYPES: Mapping[type[Any], tuple[str, ...]] = {
    NoneType: ("null",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
}
_DIGITS = re.compile(r"-?[0-9]{16,}")
_LONG_DIGITS = re.compile(rb"[0-9]{16}").search
_PARTIAL: Any = functools.partial
_CONSTRAINTS = "annotated_types"  # the module of Ge, Len, …: they narrow a value and never change it


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """How the JSON arguments of one tool become a call of its function.

    Args:
        schema: JSON schema of the arguments object.
        validate: reads JSON bytes into keyword arguments; raises what pydantic raises.
        dump: turns these back into JSON values; None when they are JSON already.
        context: name of the parameter that takes the `ToolContext`.
    """

    schema: dict[str, Any]
    validate: Callable[[bytes], dict[str, Any]]
    dump: Callable[[dict[str, Any]], Any] | None = None
    context: str | None = None

    def values(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Read arguments into keyword arguments, or say what is wrong with them.

        Raises:
            ToolArgumentsInvalid: one line for each problem, at most 8.
        """
        try:
            return self.validate(_bytes(plain(arguments, spelled=True)))
        except ValueDomainError as error:
            problems = [f"{error.path[:80]}: {error.problem}"]
        except Exception as error:  # noqa: BLE001 - validators in annotations are anybody's code
            problems = self._problems(error)
        raise ToolArgumentsInvalid(tool, problems)

    def shown(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Give the JSON that policies judge and that an approval binds: read once, written plainly.

        If the written form would not read back as the same values (a secret, a model with one-way
        aliases), it is what was asked, which is known to read.

        Raises:
            ToolArgumentsInvalid: as `values`.
        """
        values = self.values(tool, arguments)
        asked: dict[str, Any] = plain(arguments, spelled=True)
        try:
            written = plain(values if self.dump is None else self.dump(values), spelled=True)
            if written == asked or self.validate(_bytes(written)) == values:
                return dict(written)
        except Exception:  # noqa: BLE001 - serializers and `==` are anybody's code, and there is a way without
            return asked
        return asked

    def _problems(self, error: Exception) -> list[str]:
        from pydantic import ValidationError

        if not isinstance(error, ValidationError):
            return [f"they could not be checked: {type(error).__name__}"]
        found = error.errors(include_url=False, include_context=False)
        lines = [self._line(item) for item in found[:MAX_PROBLEMS]]
        return lines if len(found) <= MAX_PROBLEMS else [*lines, f"… and {len(found) - MAX_PROBLEMS} more"]

    def _line(self, item: Mapping[str, Any]) -> str:
        path = ".".join(map(str, item["loc"]))[:80]
        if item["type"] == "missing":
            return f"{path}: required, but missing"
        if item["type"] == "extra_forbidden":
            names = ", ".join(self.schema.get("properties", ())) or "none"
            return f"{path}: there is no such argument; at the top they are: {names}"
        return f"{path}: {item['msg']}, got {shortened(item['input'])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a docstring says: its first paragraph, and a line for each parameter."""

    summary: str
    parameters: Mapping[str, str]


def bind(fn: Callable[..., Any], scope: Mapping[str, Any], described: Described) -> Binding:
    """Derive schema and validator from the signature of `fn`.

    Args:
        fn: the function behind a tool.
        scope: names of the place where it is defined, for annotations written as strings.
        described: what its docstring says.

    Raises:
        DefinitionError: the signature cannot be called by a model; the message says what to write.
    """
    name = getattr(fn, "__qualname__", repr(fn))
    hints = _hints(fn, scope, name)
    wanted: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    context: str | None = None
    for parameter in _parameters(fn):
        _check_parameter(parameter, hints, name)
        hint = hints[parameter.name]
        if _is_context(hint):
            if context is not None:
                raise DefinitionError(f"{name}: {context!r} and {parameter.name!r} both take the ToolContext; keep one")
            context = parameter.name
            continue
        wanted[parameter.name] = hint
        if parameter.default is not parameter.empty:
            defaults[parameter.name] = parameter.default
    adapter, schema = _adapter(name, wanted, defaults)
    for item, form in schema["properties"].items():
        text = _annotated_text(wanted[item]) or described.parameters.get(item)
        if text:
            form.setdefault("description", text)  # one in Field(description=…) stands
    written_as_read = all(map(_is_plain, wanted.values()))
    dump = functools.partial(adapter.serializer.to_python, mode="json", by_alias=True, exclude_unset=True)
    return Binding(
        schema=schema,
        validate=adapter.validator.validate_json,
        dump=None if written_as_read else dump,
        context=context,
    )


def given_schema(schema: Mapping[str, Any], check: Callable[[dict[str, Any]], list[str]] | None) -> Binding:
    """Bind a tool that brings its own schema: the function takes `arguments` and `context`.

    Without `check`, the names and the types at the top are looked at, and the tool's own side does the
    rest.
    """
    required = tuple(schema.get("required", ()))
    known: Mapping[str, Any] = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False

    def top(arguments: dict[str, Any]) -> list[str]:
        lines = [f"{name}: required, but missing" for name in required if name not in arguments]
        for name, value in arguments.items():
            if name in known and not _has_type(value, known[name]):
                lines.append(f"{name[:80]}: Input should be of type {known[name]['type']}, got {shortened(value)}")
            elif closed and name not in known:
                lines.append(f"{name[:80]}: there is no such argument")
        return lines

    def validate(data: bytes) -> dict[str, Any]:
        arguments = orjson.loads(data)
        if _LONG_DIGITS(data):
            arguments = _restored(arguments, schema)
        problems = (check or top)(arguments)
        if problems:
            raise ToolArgumentsInvalid("", problems)
        return {"arguments": arguments}

    return _Given(schema=dict(schema), validate=validate, dump=lambda values: values["arguments"], context="context")


def _restored(value: Any, form: Any) -> Any:
    """The integers again that were written as their digits (§4.4), where the schema wants integers."""
    if not isinstance(form, Mapping):
        return value
    wanted = form.get("type")
    if type(value) is str and "integer" in ((wanted,) if isinstance(wanted, str) else wanted or ()):
        return int(value) if _DIGITS.fullmatch(value) else value
    if isinstance(value, dict):
        known: Mapping[str, Any] = form.get("properties", {})
        return {name: _restored(item, known.get(name)) for name, item in value.items()}
    return [_restored(item, form.get("items")) for item in value] if isinstance(value, list) else value


def _has_type(value: Any, form: Any) -> bool:
    """Whether a JSON value has the type its schema asks for; a schema without `type` asks for none."""
    wanted = form.get("type") if isinstance(form, Mapping) else None
    if wanted is None:
        return True
    types = _SCHEMA_TYPES.get(type(value), ())
    if type(value) is str and _DIGITS.fullmatch(value):
        types = (*types, "integer", "number")  # an integer beyond 2^53-1 is written as its digits (§4.4)
    return any(item in types for item in ([wanted] if isinstance(wanted, str) else wanted))


class _Given(Binding):
    __slots__ = ()

    def shown(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """As `Binding.shown`; texts without long numbers are written as they are read."""
        if [value for value in arguments.values() if type(value) is not str]:
            return Binding.shown(self, tool, arguments)
        try:
            data = orjson.dumps(arguments)
            shown: dict[str, Any] = self.validate(data)["arguments"]
        except Exception:  # noqa: BLE001 - the exact way names the problem
            return Binding.shown(self, tool, arguments)
        return Binding.shown(self, tool, arguments) if _LONG_DIGITS(data) else shown

    def _problems(self, error: Exception) -> list[str]:
        if isinstance(error, ToolArgumentsInvalid):
            return list(error.problems[:MAX_PROBLEMS])
        return Binding._problems(self, error)


def describe(doc: str | None) -> Described:
    """Read a docstring in Google, NumPy or reST style; what cannot be read describes nothing."""
    text = inspect.cleandoc(doc or "")
    if "\n" not in text:
        return Described(summary=text, parameters={})
    import docstring_parser

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Described(summary=_joined(text.split("\n\n")[0]), parameters={})
    summary = parsed.short_description or ""
    if parsed.long_description and not parsed.blank_after_short_description:
        summary += "\n" + parsed.long_description.split("\n\n")[0]
    parameters = {
        name.strip().lstrip("*"): _joined(item.description)
        for item in parsed.params
        if item.description
        for name in item.arg_name.split(",")  # NumPy: "width, height : int"
    }
    return Described(summary=_joined(summary), parameters=parameters)


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _bytes(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a mapping of another kind
        return json.dumps(value).encode()


def _hints(fn: Callable[..., Any], scope: Mapping[str, Any], name: str) -> dict[str, Any]:
    target: Any = fn
    while isinstance(target, _PARTIAL):
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, localns=dict(scope), include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{name}: the annotation names {error.name!r}, which is not known here; "
            "define or import it (outside TYPE_CHECKING) above the tool"
        ) from error
    except Exception as error:
        raise DefinitionError(f"{name}: its annotations cannot be read ({error})") from error


def _parameters(fn: Any) -> list[inspect.Parameter]:
    # what a partial has bound already is not the model's to say
    bound: Mapping[str, Any] = getattr(fn, "keywords", {}) if isinstance(fn, _PARTIAL) else {}
    return [item for item in inspect.signature(fn).parameters.values() if item.name not in bound]


def _check_parameter(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> None:
    from pydantic.fields import FieldInfo

    what = f"{name}: parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise DefinitionError(f"{what} takes any arguments; a model needs them named: write each one, or one `dict`")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise DefinitionError(f"{what} is positional-only; arguments come by name: remove the `/`")
    if parameter.name in ("self", "cls"):
        raise DefinitionError(f"{what}: decorate no method; write `tool(thing.method)` for a bound one")
    if parameter.name.startswith("_"):
        raise DefinitionError(f"{what} is reserved: names that begin with an underscore are not shown to models")
    if not re.fullmatch(r"[A-Za-z0-9_]{1,64}", parameter.name):
        raise DefinitionError(f"{what}: providers accept up to 64 ASCII letters, digits and underscores")
    if parameter.name not in hints:
        raise DefinitionError(
            f"{what} has no annotation; the model's schema comes from it: write `{parameter.name}: str`"
        )
    if isinstance(parameter.default, FieldInfo):
        raise DefinitionError(
            f"{what}: a Field(...) as default would reach the function; write "
            f"`{parameter.name}: Annotated[..., Field(...)]` and a plain default"
        )


def _is_context(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _is_context(hint.__origin__)
    if origin in (Union, UnionType):
        return all(item is NoneType or _is_context(item) for item in typing.get_args(hint))
    return isinstance(hint, type) and issubclass(hint, ToolContext)


def _is_plain(hint: Any) -> bool:
    """Whether what pydantic reads for an annotation is JSON as it stands."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _is_plain(hint.__origin__) and all(map(_is_harmless, hint.__metadata__))
    if origin in (Union, UnionType, list):
        return all(map(_is_plain, arguments))
    if origin is dict:
        return arguments[0] is str and _is_plain(arguments[1])
    if origin is Literal:
        return all(type(item) in _JSON_TYPES for item in arguments)
    return origin is None and hint.__hash__ is not None and hint in _JSON_TYPES


def _is_harmless(metadata: Any) -> bool:
    from pydantic.fields import FieldInfo

    if isinstance(metadata, FieldInfo):
        return all(map(_is_harmless, metadata.metadata))
    return type(metadata).__module__ == _CONSTRAINTS or isinstance(metadata, str)


def _adapter(name: str, wanted: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    from pydantic import ConfigDict, TypeAdapter
    from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

    make: Any = TypedDict
    fields = {item: NotRequired[hint] if item in defaults else Required[hint] for item, hint in wanted.items()}
    kind = make("Arguments", fields)
    kind.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)
    try:
        adapter = TypeAdapter(kind)
        schema = adapter.json_schema(schema_generator=_schema_generator())
    except Exception as error:
        raise DefinitionError(_unschemable(name, wanted, error)) from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    if set(schema["properties"]) != set(wanted):
        aliases = ", ".join(sorted(set(schema["properties"]) - set(wanted)))
        raise DefinitionError(f"{name}: an alias ({aliases}) renames a parameter; rename the parameter itself")
    for item, default in defaults.items():
        _show_default(adapter, schema["properties"][item], item, default)
    return adapter, schema


@functools.cache
def _schema_generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class WithoutTitles(GenerateJsonSchema):
        """`"title": "Order Id"` above `order_id` says nothing and costs tokens in every request."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return WithoutTitles


def _annotated_text(hint: Any) -> str | None:
    """Text given beside the type: `Annotated[int, "the order"]`, or PEP 727's `Doc`."""
    for item in getattr(hint, "__metadata__", ()):
        text = item if isinstance(item, str) else getattr(item, "documentation", None)
        if isinstance(text, str):
            return text
    return None


def _show_default(adapter: Any, form: dict[str, Any], name: str, default: object) -> None:
    """Add a default to the schema where it can be written; it is never validated or filled in."""
    try:
        written = adapter.serializer.to_python({name: default}, mode="json", by_alias=True, warnings="error")[name]
        form["default"] = plain(written)
    except Exception:  # noqa: BLE001 - a default without JSON form stays the function's secret
        form.pop("default", None)


def _unschemable(name: str, wanted: Mapping[str, Any], error: Exception) -> str:
    from pydantic import TypeAdapter

    for item, hint in wanted.items():
        try:
            TypeAdapter(hint).json_schema()
        except Exception as cause:  # noqa: BLE001 - whatever it is, it is this parameter's
            problem = str(cause).strip().splitlines()[0][:200]
            return (
                f"{name}: parameter {item!r} has no JSON form ({problem}); use JSON types, dataclasses, "
                "pydantic models or enums, and take live objects from `ToolContext.deps`"
            )
    return f"{name}: no schema can be made of its signature ({str(error).strip()[:200]})"
