"""Tool sources: opened when a stint needs them, closed when it is over, and what becomes of tools that go away."""

import asyncio
import copy
import json
from dataclasses import replace

import pytest
from driving import Seen, asked, cancelled, crash_at, decided, park, play, policy, reopened, tools_said

from lictor import Agent, Runtime, ScriptedModel, Verdict, tool
from lictor.agent import SourceTool, foreign_tool
from lictor.errors import DefinitionError, ToolError
from lictor.hooks import ALLOW
from lictor.models import call, say
from lictor.testing import invariants


class Shelf:
    """A source whose tools say their own name; everything that copies of it do goes into one list."""

    def __init__(self, name="shelf", *names, **options):
        self.name = name
        self.names = list(names)
        self.log = []
        self.fail = []
        self.options = options
        self.schemas = {}
        self.hold = None
        self.hold_close = None
        self.task = None
        self.live = None

    def __getitem__(self, name):
        return SourceTool(self, name)

    def tool(self, name):
        async def use(arguments, context):
            self.log.append(f"call {name}")
            return f"{name} of {self.name}"

        schema = self.schemas.get(name, {"type": "object", "properties": {}})
        return replace(foreign_tool(name, use, schema=schema), **self.options.get(name, {}))

    async def open(self):
        self.log.append("open")
        self.task = asyncio.current_task()
        if self.hold is not None:
            self.hold[0].set()
            await self.hold[1].wait()
        if self.fail:
            raise self.fail[0]
        return [self.tool(name) for name in self.names]

    async def close(self):
        assert self.task is asyncio.current_task()
        if self.hold_close is not None:
            self.hold_close[0].set()
            await self.hold_close[1].wait()
        self.log.append("close")


class Changing(Shelf):
    """A shelf that can be asked again."""

    async def listed(self):
        """Say what there is now."""
        self.log.append("listed")
        if self.live is None or [tool.name for tool in self.live] != self.names:
            self.live = [self.tool(name) for name in self.names]
        return self.live


def agent(script, tools, **options):
    """An agent with a scripted model."""
    return Agent("clerk", model=ScriptedModel(script), tools=tools, **options)


def sent(agent, number=-1):
    """Names of the tools that a model call was sent."""
    return [item["name"] for item in asked(agent.models[0], number).tools]


def errors(messages):
    """What the tool messages say that are errors."""
    return [json.loads(said) for said in tools_said(messages) if said.startswith("{")]


async def test_a_source_is_open_from_the_first_model_call_to_the_end():
    """A source is opened after `input` permitted, its tools are sent and run, and it is closed with the run."""
    shelf, seen = Shelf("shelf", "lamp", "sofa"), Seen()

    @tool(effect="pure")
    def own() -> str:
        """A tool of its own."""
        return "own"

    watch = policy("input", lambda context: shelf.log.append("input") or ALLOW)
    clerk = agent([call("sofa"), say("Done.")], [own, shelf], interceptors=[seen, watch])
    played = await play(clerk)
    assert (played.status, played.result_of()) == ("completed", "sofa of shelf")
    assert shelf.log == ["input", "open", "call sofa", "close"]
    assert sent(clerk) == ["own", "lamp", "sofa"]
    assert seen.at("agent_startup") == [{"tools_registered": ["own"]}]


async def test_a_policy_sees_the_tools_that_are_really_sent():
    """`tools` of `pre_model_call` holds what the source listed."""
    shown = []
    watch = policy("pre_model_call", lambda context: shown.append([t["name"] for t in context["tools"]]) or ALLOW)
    await play(agent([say("Hi.")], [Shelf("shelf", "lamp")], interceptors=[watch]))
    assert shown == [["lamp"]]


async def test_nothing_is_opened_for_a_run_that_is_blocked_before():
    """A denied input opens nothing."""
    shelf = Shelf("shelf", "lamp")
    deny = policy("input", lambda context: Verdict.deny("no"))
    played = await play(agent([say("Hi.")], [shelf], interceptors=[deny]))
    assert (played.status, shelf.log) == ("blocked", [])


@pytest.mark.parametrize("how", ["plain", "streamed"])
@pytest.mark.parametrize("end", ["stopped", "failed", "limit"])
async def test_a_source_is_closed_however_the_run_ends(end, how):
    """Stops, faults and limits close what was opened."""
    shelf = Shelf("shelf", "lamp")
    stop = policy("post_tool_call", lambda context: Verdict.stop("enough") if end == "stopped" else ALLOW)
    script = [call("lamp"), "no reply follows"] if end == "failed" else [call("lamp")] * 3
    clerk = agent(script[:1] if end == "failed" else script, [shelf], interceptors=[stop])
    played = await play(clerk, how=how, **({"max_steps": 2} if end == "limit" else {}))
    assert played.status == {"stopped": "stopped", "failed": "failed", "limit": "exhausted"}[end]
    assert (shelf.log[0], shelf.log[-1], shelf.log.count("close")) == ("open", "close", 1)


@pytest.mark.parametrize("how", ["plain", "streamed"])
async def test_a_source_is_closed_when_the_caller_is_cancelled(how):
    """Cancelling the caller in a tool of the source closes it before the caller goes on."""
    shelf, reached = Shelf("shelf", "lamp"), asyncio.Event()

    async def hang(arguments, context):
        reached.set()
        await asyncio.Event().wait()

    shelf.tool = lambda name: foreign_tool(name, hang, schema={"type": "object"})
    played = await cancelled(agent([call("lamp")], [shelf]), reached, how)
    assert (played.status, shelf.log) == ("cancelled", ["open", "close"])


async def test_a_source_that_hangs_while_opening_does_not_hold_a_cancelled_run():
    """A run can be cancelled while a source is being opened; it is closed all the same."""
    shelf = Shelf("shelf", "lamp")
    shelf.hold = (asyncio.Event(), asyncio.Event())
    played = await cancelled(agent([say("Hi.")], [shelf]), shelf.hold[0])
    assert (played.status, shelf.log) == ("cancelled", ["open", "close"])


async def test_a_crash_closes_too():
    """A simulated crash leaves nothing open in this process."""
    shelf = Shelf("shelf", "lamp")
    clerk = agent([call("lamp"), say("Done.")], [shelf])
    with crash_at("effect.after"), pytest.raises(BaseException, match=r"effect\.after"):
        await play(clerk, sure=False)
    assert shelf.log == ["open", "call lamp", "close"]


async def test_a_source_that_cannot_be_opened_fails_the_run_before_its_first_model_call():
    """The failure names each source and why, no model call is made, and the next attempt may succeed."""
    shelf, rack = Shelf("shelf", "lamp"), Shelf("rack", "sofa")
    shelf.fail.append(ConnectionError("nobody there"))
    clerk = agent([call("lamp"), say("Done.")], [shelf, rack])
    async with Runtime() as runtime:
        run, result = await park(runtime, clerk)
        assert (result.status, result.reason, result.resumable) == ("failed", "tool_source", True)
        assert result.error == "tool source 'shelf' (ConnectionError: nobody there) could not be opened"
        assert (clerk.models[0].requests, rack.log) == ([], ["open", "close"])
        shelf.fail.clear()
        await runtime.resume(run.id)
        result = await run.result(wait="end")
        assert (result.status, result.answer) == ("completed", "Done.")
        await invariants(result)


async def test_a_parked_run_holds_nothing_open():
    """The source is closed while a person decides, opened again by the decision, and the approved call runs once."""
    shelf = Shelf("shelf", "lamp", lamp={"requires_approval": True, "responders": ("human:ana",)})
    clerk = agent([call("lamp"), say("Done.")], [shelf])
    async with Runtime() as runtime:
        run, result = await park(runtime, clerk)
        assert result.status == "suspended"
        assert result.requests[0].reasons[0].responders == ("human:ana",)
        assert shelf.log == ["open", "close"]
        result = await decided(runtime, run, (result.requests[0].id, "approve", {}))
        assert (result.status, shelf.log) == ("completed", ["open", "close", "open", "call lamp", "close"])


async def test_another_runtime_opens_the_source_anew():
    """A run resumes in another Runtime over the store, from its definition alone."""
    shelf = Shelf("shelf", "lamp", lamp={"requires_approval": True})
    clerk = agent([call("lamp"), say("Done.")], [shelf])
    async with Runtime() as first:
        run, result = await park(first, clerk)
    async with reopened(first, clerk) as second:
        await second.docket.decide(result.requests[0].id, "approve", by="human:ana")
        result = await (await second.run(run.id)).result()
    assert (result.status, shelf.log.count("call lamp")) == ("completed", 1)


async def test_an_approval_of_a_tool_that_went_away_runs_nothing():
    """When the tool is gone after the park, the call is an unknown tool and the run goes on."""
    shelf = Shelf("shelf", "lamp", "sofa", lamp={"requires_approval": True})
    clerk = agent([call("lamp"), say("Done.")], [shelf])
    async with Runtime() as runtime:
        run, result = await park(runtime, clerk)
        shelf.names.remove("lamp")
        result = await decided(runtime, run, (result.requests[0].id, "approve", {}))
        [error] = errors(result.trace.messages)
        assert (result.status, error["error"], error["reason"]) == ("completed", "unknown_tool", "lamp")
        assert "the tools are: sofa" in error["message"]
        await invariants(result)


async def test_a_source_that_is_lost_after_the_first_stint_is_a_tool_error():
    """A source that cannot be opened again costs its calls, not the run; the next model call tries again."""
    shelf = Shelf("shelf", "lamp", lamp={"requires_approval": True})
    clerk = agent([call("lamp"), call("own"), say("Done.")], [shelf, tool(name="own", effect="pure")(lambda: None)])
    async with Runtime() as runtime:
        run, result = await park(runtime, clerk)
        shelf.fail.append(ConnectionError("gone"))
        await runtime.docket.decide(result.requests[0].id, "approve", by="human:ana")
        result = await run.result()
        [error] = errors(result.trace.messages)
        assert (error["error"], error["reason"]) == ("not_run", "source_lost")
        assert (result.status, sent(clerk, 1)) == ("completed", ["own"])
        assert shelf.log == ["open", "close"] * 4  # the park, the decision, and each of two model calls
        notes = [entry.payload["text"] for entry in runtime.store.entries(run.id) if entry.kind == "note"]
        assert notes == ["tool source 'shelf', not open: ConnectionError: gone"]
        await invariants(result)


async def test_a_source_that_comes_back_is_used_again():
    """What could not be opened is tried again before each model call."""
    shelf = Shelf("shelf", "lamp", lamp={"requires_approval": True})
    fine = policy("post_model_call", lambda context: shelf.fail.clear() or ALLOW)
    clerk = agent(
        [call("lamp"), say("No.", calls=[call("own")]), say("Done.")], [shelf, own_tool()], interceptors=[fine]
    )
    async with Runtime() as runtime:
        run, result = await park(runtime, clerk)
        shelf.fail.append(ConnectionError("gone"))
        result = await decided(runtime, run, (result.requests[0].id, "approve", {}))
        assert (result.status, sent(clerk, 1), sent(clerk, 2)) == ("completed", ["own"], ["own", "lamp"])


def own_tool():
    """A tool of the agent itself."""

    @tool(effect="pure")
    def own() -> str:
        """Do nothing."""
        return ""

    return own


async def test_a_changed_schema_is_asked_again():
    """An approval binds the schema: when it differs after the park, the call is asked again and runs once."""
    shelf = Shelf("shelf", "lamp", lamp={"requires_approval": True})
    clerk = agent([call("lamp"), say("Done.")], [shelf])
    async with Runtime() as runtime:
        run, result = await park(runtime, clerk)
        shelf.schemas["lamp"] = {"type": "object", "properties": {"colour": {"type": "string"}}}
        again = await decided(runtime, run, (result.requests[0].id, "approve", {}))
        assert (again.status, shelf.log.count("call lamp")) == ("suspended", 0)
        [request] = again.requests
        assert request.id != result.requests[0].id
        result = await decided(runtime, run, (request.id, "approve", {}))
        assert (result.status, shelf.log.count("call lamp")) == ("completed", 1)


async def test_a_list_that_changes_counts_from_the_next_model_call():
    """New tools are sent with the next model call; calls of a vanished one are unknown."""
    shelf = Changing("shelf", "lamp", "sofa")

    def change(context):
        shelf.names[:] = ["sofa", "table"]
        return ALLOW

    script = [call("lamp"), [call("lamp"), call("table")], say("Done.")]
    clerk = agent(script, [shelf], interceptors=[policy("post_tool_call", change)])
    played = await play(clerk)
    assert (sent(clerk, 0), sent(clerk, 1)) == (["lamp", "sofa"], ["sofa", "table"])
    assert json.loads(played.result_of(1))["error"] == "unknown_tool"
    assert (played.status, played.result_of(2)) == ("completed", "table of shelf")


async def test_an_approval_binds_the_schema_of_the_list_that_was_sent():
    """A tool that came, or changed, during a stint is approved with its present schema, and asked about once."""
    shelf = Changing("shelf", "lamp", "sofa", sofa={"requires_approval": True}, table={"requires_approval": True})

    def change(context):
        if "table" in shelf.names:
            return ALLOW
        shelf.live = None
        shelf.names.append("table")
        shelf.schemas["sofa"] = {"type": "object", "properties": {"size": {"type": "integer"}}}
        return ALLOW

    clerk = agent(
        [call("lamp"), [call("sofa"), call("table")], say("Done.")],
        [shelf],
        interceptors=[
            policy("post_tool_call", lambda context: change(context) if "table" not in shelf.names else ALLOW)
        ],
    )
    async with Runtime() as runtime:
        run, result = await park(runtime, clerk)
        decisions = [(request.id, "approve", {}) for request in result.requests]
        assert len(decisions) == 2
        result = await decided(runtime, run, *decisions)
        assert (result.status, shelf.log.count("call sofa"), shelf.log.count("call table")) == ("completed", 1, 1)


async def test_a_new_tool_of_a_taken_name_is_left_out():
    """A list that changes never ends a run: of two tools with one name the first stays, and the log says so."""
    shelf = Changing("shelf", "lamp")
    clash = policy("post_tool_call", lambda context: shelf.names.append("own") or ALLOW)
    played = await play(agent([call("lamp"), say("Done.")], [own_tool(), shelf], interceptors=[clash]))
    assert played.status == "completed"
    [note] = [event.payload["text"] for event in played.events if event.kind == "note"]
    assert note.startswith("tool source 'shelf', problem: two tools are named 'own': agent 'clerk' and")


async def test_a_list_that_cannot_be_read_again_stands():
    """A source that fails to list its tools again keeps those it had."""

    async def listed():
        raise ConnectionError("busy")

    shelf = Shelf("shelf", "lamp")
    shelf.listed = listed
    played = await play(agent([call("lamp"), call("lamp"), say("Done.")], [shelf]))
    assert (played.status, shelf.log.count("call lamp")) == ("completed", 2)
    notes = [event.payload["text"] for event in played.events if event.kind == "note"]
    assert notes == ["tool source 'shelf', not listed again: ConnectionError: busy"]


async def test_what_a_source_leaves_out_is_in_the_log():
    """Tools that a source has and cannot give are named in a note, and cost nothing else."""
    shelf = Shelf("shelf", "lamp")
    shelf.left_out = {"so.fa": "its name cannot be used"}
    played = await play(agent([say("Done.")], [shelf]))
    notes = [event.payload["text"] for event in played.events if event.kind == "note"]
    assert notes == ["tool source 'shelf', left out: so.fa: its name cannot be used"]


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (lambda a, b: [a["lamp"], own_tool(), b["own"]], "two tools are named 'own' (its own and 'b')"),
        (lambda a, b: [a["lamp"], b["lamp"]], "two tools are named 'lamp' ('a' and 'b')"),
        (lambda a, b: [a["lamp"], a["lamp"]], "two tools are named 'lamp' ('a' and 'a')"),
        (lambda a, b: [a, a["lamp"]], "'a' is given whole and once more"),
        (lambda a, b: [a, a], "'a' is given whole and once more"),
        (lambda a, b: [a, Shelf("a")], "two tool sources are named 'a'"),
    ],
)
def test_names_that_clash_where_they_are_written_are_refused_there(tools, words):
    """What is known of a source is checked when the agent is defined."""
    with pytest.raises(DefinitionError) as refused:
        agent([say("Hi.")], tools(Shelf("a"), Shelf("b")))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (lambda a, b: [a, b], "two tools are named 'lamp': tool source 'a' and tool source 'b'; rename one"),
        (lambda a, b: [own_tool(), Shelf("c", "own")], "two tools are named 'own': agent 'clerk' and tool source 'c'"),
        (lambda a, b: [a["lamb"]], "tool source 'a' has no tool lamb; it has: lamp"),
    ],
)
async def test_names_that_do_not_fit_when_opened_fail_the_run(tools, words):
    """Clashes and missing tools that only opening shows fail the run before its first model call, for good."""
    clerk = agent([say("Hi.")], tools(Shelf("a", "lamp"), Shelf("b", "lamp")))
    played = await play(clerk)
    assert (played.status, played.reason) == ("failed", "tool_source")
    assert words in played.error
    assert clerk.models[0].requests == []
    assert played.result is not None
    assert not played.result.resumable


async def test_a_picked_tool_is_the_only_one_of_its_source():
    """An agent with one tool of a source is sent and can call no other; startup lists it."""
    shelf, seen = Shelf("shelf", "lamp", "sofa"), Seen()
    clerk = agent([call("sofa"), say("Done.")], [shelf["lamp"]], interceptors=[seen])
    played = await play(clerk)
    assert (sent(clerk), json.loads(played.result_of())["error"]) == (["lamp"], "unknown_tool")
    assert seen.at("agent_startup") == [{"tools_registered": ["lamp"]}]


async def test_runs_at_the_same_time_have_copies_of_their_own():
    """Each run opens and closes its own copy; an agent as a tool has its own too, for as long as it runs."""
    shelf = Shelf("shelf", "lamp")
    inner = Agent("inner", model=ScriptedModel([call("lamp"), say("Lit.")]), tools=[shelf])
    outer = agent([[call("inner", task="a"), call("inner", task="b")], call("lamp"), say("Done.")], [inner, shelf])
    played = await play(outer)
    assert played.status == "completed"
    assert [shelf.log.count(what) for what in ("open", "call lamp", "close")] == [3, 3, 3]
    assert shelf.task is None


def test_the_policy_fingerprint_covers_what_is_declared():
    """Picks and a source's own declaration change the fingerprint; what it lists when open does not."""

    def policy_of(*tools):
        from lictor.agent import NO_GOVERNANCE, plan_for

        return plan_for(agent([say("Hi.")], tools), (), (), NO_GOVERNANCE).policy

    shelf = Shelf("shelf", "lamp")
    other = copy.copy(shelf)
    other.names = ["sofa"]
    assert policy_of(shelf) == policy_of(other)
    declaring = copy.copy(shelf)
    declaring.declared = lambda: {"command": ["shelf"]}
    assert len({policy_of(shelf), policy_of(shelf["lamp"]), policy_of(shelf["sofa"]), policy_of(declaring)}) == 4


async def test_a_stop_while_sources_are_closing_ends_the_run():
    """A stop that comes after the park, while a source is still closing, is not lost."""
    shelf = Shelf("shelf", "lamp", lamp={"requires_approval": True})
    shelf.hold_close = (asyncio.Event(), asyncio.Event())
    async with Runtime() as runtime:
        run = await runtime.start(agent([call("lamp"), say("Done.")], [shelf]), "go")
        await shelf.hold_close[0].wait()
        await runtime.commands.cancel(run.id, by="human:ana")
        shelf.hold_close[1].set()
        result = await run.result(wait="end")
        assert (result.status, result.by, shelf.log) == ("cancelled", "human:ana", ["open", "close"])
        await invariants(result)


async def test_a_decision_while_sources_are_closing_drives_the_run_on():
    """A decision that comes while the stint is closing starts the next one."""
    shelf = Shelf("shelf", "lamp", lamp={"requires_approval": True})
    shelf.hold_close = (asyncio.Event(), asyncio.Event())
    async with Runtime() as runtime:
        run = await runtime.start(agent([call("lamp"), say("Done.")], [shelf]), "go")
        await shelf.hold_close[0].wait()
        [request] = await runtime.docket.pending()
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        shelf.hold_close[1].set()
        result = await run.result(wait="end")
        assert (result.status, shelf.log.count("call lamp"), shelf.log.count("open")) == ("completed", 1, 2)


async def test_a_parked_run_is_cancelled_without_opening_anything():
    """Ending a parked run needs no source."""
    shelf = Shelf("shelf", "lamp", lamp={"requires_approval": True})
    async with Runtime() as runtime:
        run, _ = await park(runtime, agent([call("lamp"), say("Done.")], [shelf]))
        await runtime.commands.cancel(run.id, by="human:ana")
        result = await run.result(wait="end")
        assert (result.status, shelf.log) == ("cancelled", ["open", "close"])


async def test_a_tool_says_why_it_has_no_result():
    """A `ToolError` reaches the model with its own words, whole and as JSON."""

    @tool
    async def use() -> str:
        """Use it."""
        raise ToolError("closed", "the shop \ud800 is closed", kind="not_run", opens={"hour": 2**60})

    played = await play(agent([call("use"), say("Done.")], [use]))
    assert json.loads(played.result_of()) == {
        "error": "not_run",
        "reason": "closed",
        "message": "the shop \ufffd is closed",
        "opens": {"hour": str(2**60)},
    }
