"""Tools: what a model sends, what is judged, what runs, and what is refused where it is written."""

from __future__ import annotations

import asyncio
import contextvars
import cProfile
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import pstats
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.agent.tools import Tool, ToolContext, fingerprint, foreign_tool, parse_arguments, tool, tool_spec
from lictor.errors import DefinitionError, ToolArgumentsInvalid
from lictor.values import FrozenDict, canonical_json, freeze

LONG = 2512292042121000001
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)


class Colour(enum.Enum):
    RED = "red"


class Address(pydantic.BaseModel):
    street: str
    floor: int = 0


@dataclasses.dataclass
class Line:
    sku: str
    count: int


@tool
async def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    The second paragraph is for people.

    Args:
        a: The left one.
        b (int, optional): The right one,
            with a second line: really.
    """
    return a + b


def problems(call: Callable[[], object]) -> str:
    with pytest.raises(ToolArgumentsInvalid) as caught:
        call()
    return "\n".join(caught.value.problems)


def ran(tool: Tool, arguments: dict[str, Any], context: ToolContext | None = None) -> Any:
    return asyncio.run(tool.run(arguments, context or ToolContext()))


# ---- what a model sent ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("null", "got null"),
        ("[1]", "got a list"),
        ("5", "got a number"),
        ("true", "got a boolean"),
        ('"hello"', "got a string"),
        ('"{\\"a\\":1}"', "encoded twice"),
        ('{"a":1,"a":2}', "'a' appears twice"),
        ('{"b":{"a":1,"a":2}}', "'a' appears twice"),
        ('{"x":1e400}', "1e400 is too large"),
        ('{"x":[-1e999]}', "-1e999 is too large"),
        ('{"x":NaN}', "NaN is not JSON"),
        ('{"x":-Infinity}', "-Infinity is not JSON"),
        ("{'a':1}", "property name"),
        ('{"a":1} {"b":2}', "Extra data"),
        ('{"a":1', "not JSON"),
        ('{"a":1,}', "not JSON"),
        ('{"a":"\\ud83d"}', "lone surrogate"),
        ('{"a":"\ud83d"}', "lone surrogate"),
        ('{"a":"\n"}', "control character"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' + "[" * 101 + "]" * 101 + "}", "nested deeper than 100"),
        ('{"a":' + "9" * 5000 + "}", "too many digits"),
        (b"{}", "got a value of type bytes"),
        (None, "got null"),
        ({"a": float("nan")}, "not a finite number"),
        ({"a": {1: 2}}, "a key of type int"),
        ({"a": (1,)}, "type tuple"),
    ],
)
def test_g09_what_is_no_json_object_is_an_error(text: Any, says: str) -> None:
    """G09, G17: nothing but one exact JSON object is read; nothing is repaired, the echo is short."""
    line = problems(lambda: parse_arguments(text))
    assert says in line
    assert len(line) < 300
    line.encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("  ", {}),
        (' {"a" : 1} ', {"a": 1}),
        ('{"a":"\\ud83c\\udf78"}', {"a": "🍸"}),
        ('{"a":"\ud83c\udf78"}', {"a": "🍸"}),
        ('{"a":"día\\u0000"}', {"a": "día\0"}),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        ('{"x":0.1,"y":-0,"z":1e2}', {"x": 0.1, "y": 0, "z": 100.0}),
        (f'{{"id":{LONG}}}', {"id": str(LONG)}),
        ({"id": LONG}, {"id": str(LONG)}),
        ('{"id":9007199254740991,"t":"2512292042121000001"}', {"id": 2**53 - 1, "t": "2512292042121000001"}),
    ],
)
def test_g09_objects_are_read_exactly(text: Any, expected: dict[str, Any]) -> None:
    """G09, G15, G17: a mapping is taken as it is, pairs become characters, long integers keep every digit."""
    assert parse_arguments(text) == expected


@given(st.dictionaries(st.text(), JSON))
def test_every_json_object_is_read(value: dict[str, Any]) -> None:
    """Whatever is a JSON object, escaped or not, is read as it was written."""
    for escaped in (True, False):
        assert parse_arguments(json.dumps(value, ensure_ascii=escaped)) == value
    assert parse_arguments(value) == value


@given(st.text(st.sampled_from('{}[]":,0123456789eE+-.\\untrlfa \ud83d'), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in another way than its own error."""
    try:
        canonical_json(parse_arguments(text))
    except ToolArgumentsInvalid as error:
        "".join(error.problems).encode()


# ---- schema -----------------------------------------------------------------------------------


def test_the_schema_comes_from_signature_and_docstring() -> None:
    """Types and defaults come from the signature, texts from the docstring, titles are left out."""
    assert tool_spec(add) == {
        "name": "add",
        "description": "Add two numbers.",
        "schema": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The left one."},
                "b": {"type": "integer", "default": 2, "description": "The right one, with a second line: really."},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
    }


NUMPY = """Search.

    Parameters
    ----------
    query : str
        The words.
    limit, page : int
        Numbers.

    Returns
    -------
    str
    """
REST = """Search.

    :param query: The words.
    :param int limit: Numbers.
    :param page: Numbers.
    :return: text
    """


@pytest.mark.parametrize("doc", [NUMPY, REST])
def test_numpy_and_rest_docstrings_are_read(doc: str) -> None:
    """The other two styles describe arguments as well."""

    def search(query: str, limit: int = 5, page: int = 1) -> str:
        return query

    search.__doc__ = doc
    made = tool(search)
    assert made.description == "Search."
    texts = [form["description"] for form in made.schema["properties"].values()]
    assert texts == ["The words.", "Numbers.", "Numbers."]


def test_descriptions_beside_the_type_win() -> None:
    """`Annotated[int, "text"]` and `Field(description=…)` are nearer than the docstring."""

    @tool(name="find", description="Other.")
    def search(
        a: Annotated[int, "beside"], b: Annotated[int, pydantic.Field(description="field", ge=1)], c: int
    ) -> None:
        """Search
        for it.

        Args:
            a: doc
            b: doc
            c: doc
        """

    assert (search.name, search.description) == ("find", "Other.")
    assert [form["description"] for form in search.schema["properties"].values()] == ["beside", "field", "doc"]
    assert search.schema["properties"]["b"]["minimum"] == 1
    assert "b: Input should be greater than or equal to 1, got 0" in problems(
        lambda: search.parse({"a": 1, "b": 0, "c": 1})
    )


def test_a_docstring_without_sections_is_harmless() -> None:
    """No docstring, one line, several lines, and one that looks like a section describe what they can."""

    def plain(a: int) -> None: ...

    for doc, description in [
        (None, ""),
        ("One line.", "One line."),
        ("One\nparagraph.\n\nTwo.", "One paragraph."),
        ("Example:\n    a: b", ""),
    ]:
        plain.__doc__ = doc
        assert tool(plain).description == description


def test_the_context_is_injected_and_not_shown() -> None:
    """A parameter of any name annotated ToolContext, optional or not, as text or not, gets the context."""
    seen = []

    @tool
    async def one(a: int, ctx: ToolContext) -> None:
        seen.append((a, ctx))

    @tool
    async def two(*, whoever: Optional[ToolContext] = None, a: int) -> None:  # noqa: UP045 - the old spelling
        seen.append((a, whoever))

    @tool
    async def three(me: Annotated[ToolContext | None, "doc"] = None, a: int = 0) -> None:
        seen.append((a, me))

    context = ToolContext(deps="shop")
    for each in (one, two, three):
        assert list(each.schema["properties"]) == ["a"]
        ran(each, {"a": 1}, context)
    assert seen == [(1, context)] * 3
    assert "there is no such argument" in problems(lambda: one.parse({"a": 1, "ctx": {}}))


def test_a_tool_without_arguments_takes_an_empty_object() -> None:
    """No parameter means an object without properties, and `""` from the model is fine."""

    @tool
    async def ping() -> str:
        return "pong"

    assert ping.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert ran(ping, ping.parse(parse_arguments(""))) == "pong"
    assert "a: required, but missing" in problems(lambda: add.parse(parse_arguments("")))


def test_annotations_may_name_what_is_local() -> None:
    """A type defined beside the tool, in a function, is found."""

    class Local(pydantic.BaseModel):
        x: int

    @tool(effect="pure")
    def use(value: Local) -> int:
        return value.x

    assert ran(use, {"value": {"x": 1}}) == 1


# ---- judged and run ---------------------------------------------------------------------------


def test_arguments_are_normalised_and_defaults_left_out() -> None:
    """What policies see is validated JSON of what was asked, no more."""
    assert add.parse({"a": "40"}) == {"a": 40}
    assert ran(add, {"a": 40}) == 42
    assert add(1, b=1).close() is None  # called as the function it is


def test_problems_are_lines_a_model_can_act_on() -> None:
    """Each line has the path, what is wrong, and a short echo; there are at most nine."""

    @tool
    def order(lines: list[Line], to: Address) -> None: ...

    text = problems(lambda: order.parse({"lines": [{"sku": 1, "count": "x" * 500}], "too": 1}))
    assert "lines.0.sku: Input should be a valid string, got 1" in text
    assert "(502 characters)" in text
    assert "to: required, but missing" in text
    assert "too: there is no such argument; at the top they are: lines, to" in text
    many = problems(lambda: order.parse({"lines": [{}] * 50, "to": {"street": "x"}}))
    assert many.endswith("… and 92 more")
    assert max(map(len, many.splitlines())) < 400


@tool(effect="pure")
def everything(
    when: datetime.datetime,
    amount: decimal.Decimal,
    colour: Colour,
    mode: Literal["a", "b"],
    address: Address,
    lines: list[Line],
    pair: tuple[int, str],
    tags: set[str],
    more: dict[str, Address] | None = None,
    wait: datetime.timedelta = datetime.timedelta(minutes=1),
) -> dict[str, Any]:
    """Take one of each."""
    return locals()


def test_rich_types_go_both_ways() -> None:
    """Dates, decimals, enums, literals, models, dataclasses and containers are JSON outside, objects inside."""
    shown = everything.parse(
        {
            "when": "2026-01-02T03:04:05Z",
            "amount": 1.10,
            "colour": "red",
            "mode": "a",
            "address": {"street": "x"},
            "lines": [{"sku": "s", "count": "2"}],
            "pair": [1, "x"],
            "tags": ["t"],
            "more": {"k": {"street": "y", "floor": 3}},
        }
    )
    assert shown == {
        "when": "2026-01-02T03:04:05Z",
        "amount": "1.1",
        "colour": "red",
        "mode": "a",
        "address": {"street": "x"},
        "lines": [{"sku": "s", "count": 2}],
        "pair": [1, "x"],
        "tags": ["t"],
        "more": {"k": {"street": "y", "floor": 3}},
    }
    assert everything.parse(shown) == shown
    got = ran(everything, freeze(shown))
    assert got["when"] == datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert got["amount"] == decimal.Decimal("1.1")
    assert (got["colour"], got["pair"], got["tags"]) == (Colour.RED, (1, "x"), {"t"})
    assert got["address"] == Address(street="x")
    assert got["lines"] == [Line("s", 2)]
    assert got["wait"] == datetime.timedelta(minutes=1)
    assert everything.schema["properties"]["wait"]["default"] == "PT1M"


def test_what_would_not_read_back_is_shown_as_asked() -> None:
    """Secrets, one-way aliases and special floats: the judged form is always one that runs."""

    class Mixed(pydantic.BaseModel):
        name: str = pydantic.Field(validation_alias="in", serialization_alias="out")

    @tool(effect="pure")
    def use(password: pydantic.SecretStr, mixed: Mixed) -> tuple[str, str]:
        return password.get_secret_value(), mixed.name

    asked = {"password": "hunter2", "mixed": {"in": "x"}}
    assert use.parse(asked) == asked
    assert ran(use, use.parse(asked)) == ("hunter2", "x")
    assert "x" in problems(lambda: tool(_ratio).parse({"x": "NaN"}))
    assert "x" in problems(lambda: tool(_ratio).parse({"x": "1e400"}))


def _ratio(x: float) -> float:
    return x


def test_g17_long_integers_are_exact_everywhere() -> None:
    """G17: the digits are the model's in the approval, the digest and the function; an edit elsewhere keeps them."""

    @tool(effect="pure")
    def q(id: int, note: str = "", extra: Any = None) -> int:
        return id

    shown = q.parse(parse_arguments(f'{{"id":{LONG},"note":"a"}}'))
    assert shown == {"id": str(LONG), "note": "a"}
    canonical_json(freeze(shown))
    edited = q.parse({**shown, "note": "b"})
    assert ran(q, edited) == LONG
    assert q.parse({"id": LONG, "extra": [LONG]}) == {"id": str(LONG), "extra": [str(LONG)]}
    assert q.parse({"id": 10**40}) == {"id": str(10**40)}
    assert q.parse({"id": 1e17}) == {"id": "100000000000000000"}
    assert q.parse({"id": 2**53 - 1}) == {"id": 2**53 - 1}


def test_a_changed_argument_is_validated_again() -> None:
    """A policy may have transformed the arguments; what does not fit does not run."""
    assert "b: Input should be a valid integer" in problems(lambda: ran(add, {"a": 1, "b": "x"}))
    assert "c: there is no such argument" in problems(lambda: ran(add, {"a": 1, "c": 1}))
    assert ran(add, freeze({"a": 1})) == 3


def test_a_validator_that_fails_is_an_argument_error() -> None:
    """Whatever a validator in an annotation raises becomes a line for the model, not the end of a run."""

    def explode(value: int) -> int:
        raise KeyError("secret")

    @tool
    def use(x: Annotated[int, pydantic.AfterValidator(explode)]) -> None: ...

    assert problems(lambda: use.parse({"x": 1})) == "they could not be checked: KeyError"


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), JSON))
def test_parse_is_idempotent_or_refuses(arguments: dict[str, Any]) -> None:
    """What was parsed once parses to itself, and is what the function gets."""

    try:
        shown = VARIED.parse(arguments)
    except ToolArgumentsInvalid:
        return
    assert VARIED.parse(shown) == shown
    assert VARIED.parse(freeze(shown)) == shown
    canonical_json(shown)
    asyncio.run(VARIED.run(shown, ToolContext()))


@tool(effect="pure")
def varied(a: float | str | None = None, b: list[Any] | dict[str, int] | bool = False, c: Any = 0) -> None:
    """Take what comes."""


VARIED = varied


# ---- running ----------------------------------------------------------------------------------


async def test_sync_functions_run_in_a_worker_thread_with_context_variables() -> None:
    """A `def` tool never blocks the event loop and sees the caller's context variables."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("here")

    @tool
    def where() -> tuple[str, str]:
        return threading.current_thread().name, variable.get()

    assert await where.run({}, ToolContext()) == ("lictor-tool", "here")


async def test_pure_functions_run_at_once_unless_they_block() -> None:
    """`effect="pure"` without `blocking` stays in the loop's thread."""

    def where() -> str:
        return threading.current_thread().name

    inline = tool(effect="pure")(where)
    threaded = tool(effect="pure", blocking=True)(where)
    assert await inline.run({}, ToolContext()) == threading.current_thread().name
    assert await threaded.run({}, ToolContext()) == "lictor-tool"


async def test_threads_are_reused_and_never_run_out() -> None:
    """A hundred tools that hang at once do not keep the next one from running."""
    gate = threading.Event()

    @tool
    def hang() -> None:
        gate.wait()

    @tool
    def quick() -> int:
        return threading.get_ident()

    hanging = [asyncio.create_task(hang.run({}, ToolContext())) for _ in range(100)]
    await asyncio.sleep(0)
    first = await quick.run({}, ToolContext())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*hanging)
    assert first


async def test_a_late_result_is_dropped_and_told() -> None:
    """After a cancellation the thread goes on; its result is dropped and `late` is told in the loop."""
    gate = threading.Event()
    told: asyncio.Queue[str] = asyncio.Queue()

    @tool
    def slow(fail: bool) -> str:
        gate.wait()
        if fail:
            raise ValueError("late")
        return "late"

    for fail, word in [(False, "returned"), (True, "raised ValueError")]:
        gate.clear()
        task = asyncio.create_task(slow.run({"fail": fail}, ToolContext(late=told.put_nowait)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        assert await told.get() == word


async def test_a_timeout_ends_sync_and_async_tools() -> None:
    """`timeout` raises TimeoutError; an async tool is cancelled, a thread is left behind."""
    gate = threading.Event()
    cancelled = []

    @tool(timeout=datetime.timedelta(milliseconds=5))
    def blocks() -> None:
        gate.wait()

    @tool(timeout=0.005)
    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    for each in (blocks, waits):
        with pytest.raises(TimeoutError):
            await each.run({}, ToolContext())
    gate.set()
    assert cancelled == [True]


async def test_what_a_function_raises_comes_out() -> None:
    """Errors reach the loop as they are; `sys.exit` and StopIteration cannot end the process or hang."""

    def fail(error: str) -> None:
        if error == "exit":
            sys.exit(3)
        raise {"value": ValueError("no"), "stop": StopIteration()}[error]

    for made in (tool(fail), tool(effect="pure")(fail)):
        with pytest.raises(ValueError, match="no"):
            await made.run({"error": "value"}, ToolContext())
        with pytest.raises(RuntimeError, match="exit 3"):
            await made.run({"error": "exit"}, ToolContext())
        with pytest.raises(RuntimeError):
            await made.run({"error": "stop"}, ToolContext())


async def test_an_awaitable_from_a_plain_function_is_awaited() -> None:
    """A partial, a callable object and a lambda that return coroutines work like `async def`."""

    async def inner(a: int, b: int) -> int:
        return a + b

    class Adder:
        async def __call__(self, a: int) -> int:
            return a + 1

    class Plain:
        def __call__(self, a: int) -> Any:
            return inner(a, 2)

    part = tool(name="part")(functools.partial(inner, b=5))
    assert list(part.schema["properties"]) == ["a"]
    assert await part.run({"a": 1}, ToolContext()) == 6
    assert await tool(name="adder")(Adder()).run({"a": 1}, ToolContext()) == 2
    assert await tool(name="plain")(Plain()).run({"a": 1}, ToolContext()) == 3
    assert "b: there is no such argument" in problems(lambda: part.parse({"a": 1, "b": 9}))


async def test_progress_arrives_in_the_loop() -> None:
    """`emit` from a worker thread is delivered in the event loop's thread, in order; without a listener it is lost."""
    seen: list[tuple[Any, int]] = []
    here = threading.get_ident()

    @tool
    def work(context: ToolContext) -> None:
        context.emit(1)
        context.emit({"half": True})

    @tool
    async def awork(context: ToolContext) -> None:
        context.emit(3)

    context = ToolContext(emit=lambda progress: seen.append((progress, threading.get_ident())))
    await awork.run({}, context)
    await work.run({}, context)
    await work.run({}, ToolContext())
    assert seen == [(3, here), (1, here), ({"half": True}, here)]


def test_a_context_has_defaults_for_tests() -> None:
    """Every field of a context can be left out."""
    context = ToolContext()
    assert (context.user, context.run_id, context.path, context.attempt) == (None, "", (), 1)
    with pytest.raises(AttributeError):
        context.other = 1  # type: ignore[attr-defined]


def test_the_hot_path_is_short() -> None:
    """Parsing and running an async tool with two integers takes at most ten function calls."""
    arguments, context = {"a": 1, "b": 2}, ToolContext()

    async def once() -> cProfile.Profile:
        profile = cProfile.Profile()
        await add.run(add.parse(arguments), context)
        profile.enable()
        await add.run(add.parse(arguments), context)
        profile.disable()
        return profile

    calls: int = pstats.Stats(asyncio.run(once())).total_calls  # type: ignore[attr-defined]
    assert calls - 1 <= 10  # one is `disable`


# ---- what is refused where it is written ------------------------------------------------------


def no_annotation(a):  # type: ignore[no-untyped-def]
    ...


def star(*a: int) -> None: ...
def stars(**a: int) -> None: ...
def only(a: int, /) -> None: ...
def hidden(_a: int) -> None: ...
def method(self: Any, a: int) -> None: ...
def german(straße: int) -> None: ...
def callback(a: Callable[[], int]) -> None: ...
def lock(first: int, second: threading.Thread) -> None: ...
def twice(a: ToolContext, b: ToolContext) -> None: ...
def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def broken(a: int[3]) -> None: ...  # type: ignore[misc]
def field(a: int = pydantic.Field(1, ge=1)) -> None: ...
def alias(a: Annotated[int, pydantic.Field(alias="b")]) -> None: ...
def generator(a: int) -> Any:
    yield a


async def agenerator(a: int) -> Any:
    yield a


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (no_annotation, "'a' has no annotation"),
        (star, "takes any arguments"),
        (stars, "takes any arguments"),
        (only, "positional-only"),
        (hidden, "reserved"),
        (method, "decorate no method"),
        (german, "ASCII"),
        (callback, "'a' has no JSON form"),
        (lock, "'second' has no JSON form"),
        (twice, "both take the ToolContext"),
        (unknown, "'Nowhere', which is not known here"),
        (broken, "cannot be read"),
        (field, "Annotated[..., Field(...)]"),
        (alias, "an alias (b)"),
        (generator, "returns one value"),
        (agenerator, "returns one value"),
        (Line, "takes a function"),
        (staticmethod(star), "takes a function"),
        (5, "takes a function"),
        (add, "'add' is a tool already"),
        (lambda: None, "pass name="),
    ],
)
def test_wrong_signatures_are_refused_where_they_are_written(fn: Any, says: str) -> None:
    """A signature that no model can call is a DefinitionError that says what to write."""
    with pytest.raises(DefinitionError) as caught:
        tool(fn)
    assert says in str(caught.value)


def fine(a: int) -> int:
    return a


async def afine(a: int) -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "says"),
    [
        (fine, {"name": "a.b"}, "letters, digits"),
        (fine, {"name": ""}, "letters, digits"),
        (fine, {"name": "x" * 65}, "letters, digits"),
        (fine, {"name": "browser navigate"}, "letters, digits"),
        (fine, {"name": "ｆｉｎｅ"}, "letters, digits"),
        (fine, {"effect": "twice"}, "'pure', 'idempotent', 'once'"),
        (fine, {"timeout": -1}, "above 0"),
        (fine, {"timeout": 0}, "above 0"),
        (fine, {"timeout": float("inf")}, "above 0"),
        (fine, {"timeout": True}, "above 0"),
        (fine, {"deadline": datetime.timedelta(0)}, "above 0"),
        (fine, {"deadline": "1h"}, "above 0"),
        (fine, {"responders": "human:ana"}, "write a list"),
        (fine, {"responders": ["human:ana", "human:ana"]}, "name each once"),
        (fine, {"responders": [""]}, "name each once"),
        (fine, {"read_only": 1}, "True or False"),
        (fine, {"requires_approval": "yes"}, "a function"),
        (fine, {"requires_approval": afine}, "a plain function"),
        (afine, {"blocking": True}, "blocking is for `def`"),
        (fine, {"external": True}, "leave its body"),
        (afine, {"external": True, "timeout": 5}, "no timeout"),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(fn: Any, options: dict[str, Any], says: str) -> None:
    """An option that cannot work is a DefinitionError that names it and what to write."""
    with pytest.raises(DefinitionError) as caught:
        tool(**options)(fn)
    assert says in str(caught.value)


def test_an_external_tool_has_no_body() -> None:
    """`...`, a docstring, `pass` or NotImplementedError are no body."""

    def one(a: int) -> str:
        """Ask the caller."""
        raise NotImplementedError("outside")

    async def two(a: int) -> str: ...

    for fn in (one, two):
        made = tool(external=True, deadline=datetime.timedelta(hours=1))(fn)
        assert made.external
        assert made.deadline == 3600.0


def test_options_are_kept_and_can_be_replaced() -> None:
    """Declared options are there as given; `dataclasses.replace` checks its changes too."""
    made = tool(
        effect="idempotent",
        read_only=True,
        requires_approval=True,
        responders=["group:finance"],
        polling=True,
        timeout=2,
    )(fine)
    assert (made.effect, made.read_only, made.responders, made.timeout) == ("idempotent", True, ("group:finance",), 2.0)
    other = dataclasses.replace(made, name="other", requires_approval=False)
    assert (other.name, other.polling, other.digest) == ("other", True, made.digest)
    with pytest.raises(DefinitionError):
        dataclasses.replace(made, name="not this one")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "x"  # type: ignore[misc]
    assert isinstance(made.schema, FrozenDict)


def test_the_fingerprint_holds_what_was_declared() -> None:
    """The fingerprint is plain JSON and names a callable approval by its place."""

    def large(arguments: Any) -> bool:
        return True

    made = tool(requires_approval=large, responders=["human:ana"], deadline=60)(fine)
    assert fingerprint(made) == {
        "name": "fine",
        "schema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        },
        "effect": "once",
        "read_only": False,
        "requires_approval": f"{__name__}:test_the_fingerprint_holds_what_was_declared.<locals>.large",
        "responders": ["human:ana"],
        "deadline": 60.0,
        "external": False,
    }
    assert fingerprint(add)["requires_approval"] is False
    canonical_json(fingerprint(made))


# ---- tools with a schema of their own ---------------------------------------------------------


async def test_a_foreign_tool_brings_its_schema() -> None:
    """A tool from elsewhere gets the arguments object; names are checked here, or by its own check."""
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string"}},
        "required": ["q"],
        "additionalProperties": False,
    }

    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        return arguments, context.call_id

    made = foreign_tool("web-search", call, schema=schema, description="Search.")
    assert made.schema == schema
    assert made.parse({"q": "x"}) == {"q": "x"}
    assert await made.run(freeze({"q": "x"}), ToolContext(call_id="c1")) == ({"q": "x"}, "c1")
    assert problems(lambda: made.parse({"z": 1})) == "q: required, but missing\nz: there is no such argument"
    assert "q: Input should be of type string, got 5" in problems(lambda: made.parse({"q": 5}))
    wide = {"type": "object", "properties": {"n": {"type": ["integer", "null"]}, "any": {}, "x": {"type": "number"}}}
    other = foreign_tool("other", call, schema=wide)
    for fits in ({"n": LONG, "any": [1]}, {"n": None}, {"x": 1}, {"x": 1.5}, {"more": 1}):
        assert other.parse(fits).keys() == fits.keys()
    for not_fits in ({"n": True}, {"n": 1.5}, {"n": "1"}, {"x": "1"}, {"x": []}):
        assert "should be of type" in problems(functools.partial(other.parse, not_fits))
    assert other.parse({"n": LONG}) == {"n": str(LONG)}
    strict = foreign_tool("s", call, schema={"type": "object"}, check=lambda a: [] if "x" in a else ["x: say it"])
    assert problems(lambda: strict.parse({})) == "x: say it"
    with pytest.raises(DefinitionError, match="'object'"):
        foreign_tool("s", call, schema={"type": "string"})
    with pytest.raises(DefinitionError, match="letters, digits"):
        foreign_tool("Browser.navigate", call, schema=schema)
