"""Whatever comes in, the readers of foreign data give a value or their error: no crash, no hang, nothing half read."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import targets
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lictor.testing.wire import chunk, envelope, piece, sse, usage

pytestmark = pytest.mark.fuzz

LONG = settings(max_examples=1000)
SECONDS = 15  # for each guided target
FINISH = b'"finish_reason": "'
SEEDS = [
    sse(chunk("Hel"), chunk("lo"), chunk(finish="stop"), usage(3, 2)),
    sse(chunk(reasoning_content="Hm"), chunk("é🍸"), chunk(finish="length")),
    sse(
        chunk(calls=[piece(0, "a", "read", '{"p":'), piece(1, "b", "write", "")]),
        chunk(calls=[piece(1, arguments='{"q": "é🍸"}'), piece(0, arguments="1}")]),
        chunk(finish="tool_calls"),
    ),
    sse(chunk(calls=[piece(0, "a", "read", '{"p":1}'), piece(0, "b", "read", '{"p":2}')]), chunk(finish="stop")),
    sse(chunk("Half"), {"error": {"message": "lost", "code": 502}}),
    sse(chunk(refusal="no"), chunk(finish="stop")),
    sse(envelope(), usage(1, 0)),
]
SNIPPETS = [
    *(b"\n", b"\n\n", b"\r", b"\r\n", b"data:", b"data: ", b"event: error\n", b": hi\n", b"[DONE]", b"null"),
    *(b"{", b"}", b"[", b'"', b"\\", b"\\ud83c", b"\xff", b"\xc3", b"\x00", b"9" * 30, b"1e400", b"NaN"),
    *(b'"index":0,', b'"finish_reason":"stop"', b'"error":{},', b'{"choices":[]}'),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A body of the seeds with some things cut out, doubled, put in, or turned."""
    body = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(body)))
        end = draw(st.integers(start, min(len(body), start + 60)))
        match draw(st.sampled_from(["cut", "double", "insert", "flip", "end"])):
            case "cut":
                del body[start:end]
            case "double":
                body[end:end] = body[start:end]
            case "insert":
                body[start:start] = draw(st.sampled_from(SNIPPETS))
            case "flip" if start < len(body):
                body[start] = draw(st.integers(0, 255))
            case "end":
                del body[end:]
    return bytes(body)


@st.composite
def unfinished(draw: st.DrawFn) -> bytes:
    """A body that is cut somewhere before its finish reason."""
    body = draw(st.sampled_from(SEEDS[:4]))
    return body[: draw(st.integers(0, body.index(FINISH) + len(FINISH)))]


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=True) | st.text(max_size=8)
names = """choices delta message content tool_calls index id function name arguments finish_reason error usage
prompt_tokens completion_tokens refusal type text logprobs top_logprobs token logprob object model code status"""
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(names.split()), inner, max_size=6),
    max_leaves=25,
)
functions = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["f", "g", ""]) | scalars,
        "arguments": st.sampled_from(["{}", "{", "}", '{"a":1}', ""]) | junk,
    },
)
pieces = st.fixed_dictionaries(
    {"function": functions},
    optional={
        "index": st.sampled_from([0, 0, 1, None]) | scalars,
        "id": st.sampled_from(["a", "b", ""]) | scalars,
    },
)
shaped = st.builds(
    lambda delta, finish, index: {"choices": [{"delta": delta, "finish_reason": finish, "index": index}]},
    st.fixed_dictionaries({}, optional={"content": junk, "tool_calls": st.lists(pieces | junk, max_size=4)}),
    st.none() | st.sampled_from(["stop", "tool_calls", "length", "x"]) | scalars,
    st.sampled_from([0, None, 1]),
)


@LONG
@given(st.lists(shaped | junk, max_size=6))
def test_any_chunks_are_a_response_or_an_error(chunks: list[Any]) -> None:
    """JSON of any shape in place of chunks."""
    targets.chunks(chunks)


@settings(max_examples=40)
@given(st.lists(mutated(), min_size=25, max_size=25))
def test_any_bytes_over_a_socket_are_a_response_or_an_error(bodies: list[bytes]) -> None:
    """Streams that were cut, doubled and turned, through HTTP, the client and the adapter."""
    assert len(targets.bodies(bodies)) == len(bodies)


@settings(max_examples=30)
@given(st.lists(unfinished(), min_size=20, max_size=20))
def test_what_ends_before_its_finish_is_never_a_response(bodies: list[bytes]) -> None:
    """A stream that is cut anywhere before its finish reason, and ends as if nothing were wrong."""
    assert targets.bodies(bodies) == [None] * len(bodies)


numbers = st.sampled_from(
    ["0", "-0", "1", "0.1", "1e400", "-1e400", "1e-400", "2512292042121000001", "9" * 5000, "NaN", "01", "1.", "+1"]
)
strings = st.text(max_size=6).map(json.dumps) | st.sampled_from(
    ['"\\ud83c"', '"\\ud83c\\udf78"', '"a', "'a'", '"\\x"', '"\t"']
)
members = st.sampled_from(['"a"', '"b"', "a", '""'])
documents = st.recursive(
    numbers | strings | st.sampled_from(["null", "true", "false", "", "undefined", "Infinity"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.builds("{}: {}".format, members, inner), max_size=3).map(lambda pairs: f"{{{', '.join(pairs)}}}")
    ),
    max_leaves=12,
)
halves = documents.flatmap(lambda text: st.integers(0, len(text)).map(lambda end: text[:end]))


@LONG
@given(documents | halves | st.text())
@example("[" * 100_000)
@example('{"a":' * 100_000)
@example("{" + " " * 1_000_000 + "}")
@example('{"a": "' + "\\" * 100_001)
def test_any_text_is_arguments_or_an_error(text: str) -> None:
    """Documents that are JSON, almost JSON and no JSON: read exactly as they are, or refused."""
    targets.arguments(text)


roots = st.sampled_from(["$target", "$target", "$", "target", "$targets", " $target", ""])
steps = """.a .c-d ["a"] ["c-d"] [0] [1] .b .e [00] [-1] .. . [*] [?(@)] ['a'] [9999999999] [""] .a.b [] ]["""


@LONG
@given(roots, st.lists(st.sampled_from([*steps.split(), ".a b", "\n", " "]) | st.text(max_size=4), max_size=6))
@example("$target", [".a"] * 100_000)
@example("$target", ["[" * 100_000])
def test_any_text_is_a_path_or_an_error(root: str, parts: list[str]) -> None:
    """Paths, almost paths and no paths."""
    targets.path(root + "".join(parts))


parts = "decision reason message transform evidence warnings result_labels approval path value"
known = st.sampled_from(parts.split())
values = st.sampled_from(["allow", "deny", "transform", "escalate", "$target", "$target.a", "x" * 300]) | scalars
nested = st.recursive(
    values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(known, inner, max_size=3), max_leaves=8
)
wires = st.dictionaries(known, nested)
decisions = st.sampled_from(["allow", "deny", "transform", "no"])


@LONG
@given(st.builds(lambda decision, rest: {**rest, "decision": decision}, decisions, wires) | wires)
@example({"decision": "deny", "reason": "\ud83c"})
@example({"decision": "deny", "evidence": {"artifacts": ["x" * 100_000]}})
def test_any_object_is_a_verdict_or_an_error(wire: dict[str, Any]) -> None:
    """Wire forms with members missing, too many, or of another type."""
    targets.verdict(wire)


others = (
    st.none()
    | st.booleans()
    | st.text()
    | st.binary()
    | st.lists(wires, max_size=2)
    | st.just(object())
    | st.just(type)
)


@settings(max_examples=200)
@given(others)
def test_what_is_no_wire_form_is_no_verdict(value: object) -> None:
    """What a policy may return by mistake."""
    targets.verdict(value)


loose = st.recursive(
    scalars | st.binary(max_size=3) | st.integers() | st.just(2**60),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@LONG
@given(loose)
def test_any_object_is_json_or_an_error_with_a_place(value: object) -> None:
    """Python values of all sorts."""
    targets.frozen(value)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed (make slow does it)")
@pytest.mark.parametrize("name", sorted(targets.PROGRAMS))
def test_guided_inputs_find_nothing(name: str, tmp_path: Path) -> None:
    """Inputs that are chosen for the branches they reach, for some seconds."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate([*SEEDS, b'{"a": 1}', b'.a[0]["b"]', b'{"decision": "deny", "reason": "x"}']):
        (corpus / str(number)).write_bytes(seed)
    program = str(Path(targets.__file__).with_name("guided.py"))
    limits = [f"-max_total_time={SECONDS}", "-timeout=5", "-rss_limit_mb=2048"]
    done = subprocess.run(
        [sys.executable, program, name, *limits, str(corpus)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
