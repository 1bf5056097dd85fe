"""What a team.yaml may hold. The JSON Schema for editors is made from these models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, create_model, model_validator
from pydantic_core import PydanticCustomError

from lictor.runs import Budget

__all__ = ["UNKNOWN", "AgentSection", "File", "MCPSection", "NamedTeam", "Section", "TeamSection", "Use"]

UNKNOWN = "unknown_key"


class Section(BaseModel):
    """A mapping with known keys; any other key is an error that says which one may be meant."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, populate_by_name=True)
    later: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def known(cls, given: Any) -> Any:
        """Refuse the first key that is unknown."""
        if not isinstance(given, dict):
            raise PydanticCustomError("no_section", "write keys with values here, not {what}", {"what": _kind(given)})
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        for key in given:
            if key not in keys:
                raise PydanticCustomError(UNKNOWN, "{told}", {"told": cls.why(key, keys), "key": key})
        return given

    @classmethod
    def why(cls, key: str, keys: list[str]) -> str:
        """What is said about an unknown key."""
        if key in cls.later:
            return cls.later[key]
        near = get_close_matches(key, keys, n=1)
        return f"there is no key {key!r}; " + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(keys)}")


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")


def _reference(value: Any) -> Any:
    place, colon, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not (colon and place and name):
        raise PydanticCustomError("no_reference", "write an import path, module:name, not {value}", {"value": value})
    return value


def _either(value: Any) -> str:
    return "mapping" if isinstance(value, dict) else "list" if isinstance(value, list) else "text"


def _switched(value: Any) -> Any:
    if value is True:
        raise PydanticCustomError("no_part", "write its options, {} for the defaults, or false")
    return None if value is False else value


Reference = Annotated[str, BeforeValidator(_reference), Field(pattern=r"^.+:[^:]+$")]


class Use(BaseModel):
    """`{use: module:name, option: value, …}`: a class built with these options."""

    model_config = ConfigDict(extra="allow")
    use: Reference = Field(description="Import path of a class, which gets the other keys as its options.")
    index: int = Field(0, description="Place in the order: lower ones judge first.")


class ToolUse(Section):
    """`{use: module:function, …}`: a function as a tool, with what is declared about it."""

    use: Reference = Field(description="Import path of a function.")
    name: str | None = None
    effect: Literal["pure", "idempotent", "once"] | None = None
    read_only: bool | None = None
    requires_approval: bool | None = None
    responders: list[str] | None = None
    deadline: float | None = None
    timeout: float | None = None
    blocking: bool | None = None
    polling: bool | None = None


class Declared(Section):
    """What is declared about a tool of an MCP server."""

    name: str | None = Field(None, description="What the model calls it.")
    effect: Literal["pure", "idempotent", "once"] | None = None
    read_only: bool | None = None
    requires_approval: bool | None = None
    responders: list[str] | None = None
    deadline: float | None = None
    timeout: float | None = None
    polling: bool | None = None


class MCPSection(Section):
    """An MCP server whose tools agents may use as `mcp:SERVER/TOOL`, or `mcp:SERVER` for all of them."""

    command: list[str] | None = None
    url: str | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    headers: dict[str, str] | None = None
    default_effect: Literal["pure", "idempotent", "once"] = "once"
    tools: dict[str, Declared] = Field(default_factory=dict[str, Declared])
    prefix: str | None = None
    timeout: float = 60.0


class BreakerSection(Section):
    """LoopBreaker: ends what goes round in circles."""

    window: int | None = None
    similarity: float | None = None
    repeats: int | None = None
    min_length: int | None = None
    on_hit: list[Literal["warn", "tell", "stop"]] | None = None


class RepeatsSection(Section):
    """DenyRepeats: ends identical calls that were denied before."""

    deny_after: int | None = None
    stop_after: int | None = None


class GovernanceSection(Section):
    """How verdicts compose; only on what is run itself, never further in."""

    mode: Literal["enforce", "evaluate_only"] = "enforce"
    composition: str | None = None
    posture: Literal["terminate", "continue", "terminate_all"] | None = None
    timeout: float | None = None
    resolver_timeout: float | None = None
    resolver: Reference | None = None
    record_sink: Reference | None = None
    sink_required: bool | None = None
    sink_timeout: float | None = None


def _budget() -> type[Section]:
    hints = get_type_hints(Budget) | {"per_member": "BudgetSection | None"}
    known: dict[str, Any] = {each.name: (hints[each.name], None) for each in fields(Budget) if each.init}
    return create_model("BudgetSection", __base__=Section, __doc__="Limits of a run and everything below it.", **known)


if TYPE_CHECKING:

    class BudgetSection(Section):
        """The fields of Budget."""
else:
    BudgetSection = _budget()
Text = Annotated[str, Tag("text")]
Used = Annotated[Use, Tag("mapping")]
OneModel = Annotated[Text | Used, Discriminator(_either)]
Models = Annotated[list[OneModel], Tag("list")]
Model = Annotated[
    Annotated[Text | Used | Models, Discriminator(_either)],
    Field(description="`openai:NAME`, {use: module:name, …} for an object or a class, or a list of these (fallbacks)."),
]
Part = Annotated[Annotated[Reference, Tag("text")] | Used, Discriminator(_either)]
Tool = Annotated[Text | Annotated[ToolUse, Tag("mapping")], Discriminator(_either)]
Protocol = Annotated[Text | Used, Discriminator(_either)]
Breaker = Annotated[
    BreakerSection | None, BeforeValidator(_switched, json_schema_input_type=BreakerSection | bool | None)
]
Repeats = Annotated[
    RepeatsSection | None, BeforeValidator(_switched, json_schema_input_type=RepeatsSection | bool | None)
]


class AgentSection(Section):
    """An agent; its name is the key it stands under."""

    model: Model
    instructions: str = ""
    tools: list[Tool] = Field(
        default_factory=list[Any],
        description="`module:function`, `mcp:SERVER/TOOL`, `mcp:SERVER`, `agent:NAME`, or {use: module:function, …}.",
    )
    interceptors: dict[str, Part] = Field(default_factory=dict[str, Any])
    watchers: list[Part] = Field(default_factory=list[Any])
    description: str = ""
    output_type: Reference | None = None
    max_steps: int | None = None
    max_parallel_tools: int | None = None
    max_depth: int | None = None
    max_children: int | None = None
    budget: BudgetSection | None = None
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    stream: Literal["buffered", "incremental"] | None = None
    history_window: int | None = None
    hosted_tools: list[str] | None = None
    governance: GovernanceSection | None = None
    resolver: Reference | None = None
    loop_breaker: Breaker = None
    deny_repeats: Repeats = None


class NamedTeam(Section):
    """A team; its name is the key it stands under. Members are agents and teams of this file, or import paths."""

    members: list[str]
    model: Model | None = None
    protocol: Protocol = Field(
        "hierarchical",
        description="`hierarchical`, `sequential`, `handoff`, `none`, an import path, or {use: module:class, …}.",
    )
    instructions: str = ""
    interceptors: dict[str, Part] = Field(default_factory=dict[str, Any])
    watchers: list[Part] = Field(default_factory=list[Any])
    budget: BudgetSection | None = None
    loop_breaker: Breaker = None
    max_turns: int | None = None
    max_handoffs: int | None = None
    finish_marker: str | None = None
    history_window: int | None = None
    record_window: int | None = None
    retries: int | None = None
    feedback: bool | None = None
    description: str = ""
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    governance: GovernanceSection | None = None
    resolver: Reference | None = None


class TeamSection(NamedTeam):
    """The one team of a file, with its name."""

    name: str


LATER = "comes later: this version reads agents and teams; take the section out"


class File(Section):
    """A team.yaml: agents, and how they work together."""

    later: ClassVar[Mapping[str, str]] = {name: f"{name!r} {LATER}" for name in ("crew", "crews", "supervision")}

    version: Literal[1] = Field(description="The version of this format.")
    store: str | None = Field(None, description="Where runs are kept; the option --store and LICTOR_STORE go first.")
    mcp: dict[str, MCPSection] = Field(default_factory=dict[str, Any])
    agents: dict[str, AgentSection] = Field(default_factory=dict[str, Any])
    team: TeamSection | None = None
    teams: dict[str, NamedTeam] = Field(default_factory=dict[str, Any])
