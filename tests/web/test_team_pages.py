"""The pages of a team: members, limits, route, decisions, verdicts, and what a decision at a moment does."""

import asyncio
import json
import re

import pytest
from web_agents import SCRIPT, clerk
from web_teams import USED, asking, assign, finish, hook, member, shop

from lictor import Budget, Runtime, Team, Verdict
from lictor.console import query
from lictor.runtime import prune
from lictor.testing import ScriptedModel, call, say


def part(page, heading):
    """The text below a heading, up to the next one, without tags."""
    found = re.search(rf"<h2[^>]*>{heading}</h2>(.*?)(<h2|</main>)", page, re.S)
    return None if found is None else " ".join(re.sub(r"<[^>]+>", " ", found[1]).split())


def page_of(site, run_id, token=None):
    """The page of a run."""
    with site.client(token or site.keys.approver) as client:
        return client.get(f"/runs/{run_id}").text


# ---- the page of a run ------------------------------------------------------------------------


def test_the_page_of_a_team_shows_who_does_what(site):
    """Each member with its state, how often it worked, tokens and last words; limits, route, decisions, verdicts."""
    here = site(shop())
    run_id = here.start(here.definitions["shop"])
    page = page_of(here, run_id)
    team = part(page, "Team")
    for told in (
        "turns 2 of 8",
        "tokens 480 of 10,000",
        "tool calls 1",
        "supervisor idle 2× 240 tokens gave work to cashier",
        "analyst done 1× 120 tokens analyst&#39;s work",
        "auditor skipped no_audit by team:shop/guard",
        "cashier waits for you 1× 120 tokens refund(order=42, amount=30.0)",
        "writer idle",
    ):
        assert told in team, told
    assert '<meter min="0" max="8" high="6.4" optimum="0" value="2" aria-label="turns"></meter>' in page
    assert part(page, "Route") == "analyst done auditor skipped cashier waits for a decision"
    decisions = part(page, "Decisions")
    assert decisions.startswith("1 analyst done Find 42 &lt;script&gt;")
    assert "[Skipped] Cancelled by team:shop/guard: Not &lt;script&gt;" in decisions
    assert decisions.endswith("2 cashier waits for a decision Pay 30 back.")
    verdicts = part(page, "Verdicts at moments")
    assert verdicts.startswith("no before auditor works Not &lt;script&gt;")
    assert verdicts.endswith("him. no_audit, by team:shop/guard")
    assert SCRIPT not in page
    with here.client(here.keys.viewer) as client:
        assert "cashier waits for a decision" in part(client.get(f"/runs/{run_id}").text, "Team")


def test_members_steps_stand_below_them_in_the_timeline(site):
    """Each member's steps are a list of their own where they happened; decisions are told once, without their calls."""
    here = site(shop())
    page = page_of(here, here.start(here.definitions["shop"]))
    assert re.findall(r'<p class="whose">(\w+)</p>', page) == ["analyst", "cashier"]
    timeline = part(page, "Timeline")
    assert "turn 1 analyst: Find 42" in timeline
    assert "denied before auditor works: no_audit, by team:shop/guard" in timeline
    assert "skipped auditor, by team:shop/guard: no_audit" in timeline
    assert "tool runs delegate" not in timeline
    assert page.count('<li class="below">') == page.count("</ol></li>") == 2


def test_the_twin_has_all_of_it(site):
    """Members, turns with work, verdicts, records, limits, as JSON."""
    here = site(shop())
    run_id = here.start(here.definitions["shop"])
    with here.client(here.keys.approver) as client:
        told = client.get(f"/runs/{run_id}.json").json()
    team = told["team"]
    states = {each["name"]: (each["state"], each["worked"], each["tokens"]) for each in team["members"]}
    assert states == {
        "analyst": ("done", 1, 120),
        "auditor": ("skipped", 0, 0),
        "cashier": ("waits", 1, 120),
        "writer": ("idle", 0, 0),
    }
    assert [[(work["member"], work["state"]) for work in turn["work"]] for turn in team["turns"]] == [
        [("analyst", "done"), ("auditor", "skipped")],
        [("cashier", "waits")],
    ]
    assert [(each["point"], each["member"], each["decision"], each["by"]) for each in team["verdicts"]] == [
        ("should_agent_continue", "auditor", "deny", "team:shop/guard")
    ]
    assert (team["name"], team["protocol"], sorted(team["route"])) == ("shop", "hierarchical", ["analyst", "auditor"])
    assert sorted([each["kind"] for each in team["records"]]) == ["decision", "decision", "output", "skip"]
    assert [(each["name"], each["used"], each["limit"]) for each in told["limits"]] == [
        ("turns", 2, 8),
        ("tokens", 480, 10_000),
        ("tool calls", 1, None),
    ]
    assert told["usage"]["total_tokens"] == 480


def test_a_team_that_ended_shows_its_whole_way(site, ana):
    """The refund is approved in the page; then everybody is done and the route ends with the answer."""
    here = site(shop())
    run_id = here.start(here.definitions["shop"])
    with here.client(here.keys.approver) as client:
        ana(client, client.get(f"/runs/{run_id}"), "approve")
        result = here.result(run_id)
        page = client.get(f"/runs/{run_id}").text
        usage = client.get(f"/runs/{run_id}.json").json()["usage"]
    assert (result.status, part(page, "Answer")) == ("completed", "the end")
    assert part(page, "Route") == "analyst done auditor skipped cashier done answer"
    assert "cashier done 1× 240 tokens Paid." in part(page, "Team")
    assert part(page, "Decisions").endswith("3 finish , with the answer")
    assert usage == result.usage.json()


def test_a_team_whose_code_is_not_known_shows_numbers_only(tmp_path):
    """Members and turns are in the log; the other limits are known to the definition alone."""
    url = f"sqlite:///{tmp_path / 'store.db'}"

    async def start():
        async with Runtime(url) as runtime:
            run = await runtime.start(shop(), "go")
            await run.result()
            return run.id

    async def look(run_id):
        async with Runtime(url, drive=False) as runtime:
            return await query.run_page(runtime, run_id)

    told = asyncio.run(look(asyncio.run(start())))
    limits = {each["name"]: (each["used"], each["limit"]) for each in told["limits"]}
    assert limits == {"turns": (2, 8), "tokens": (480, None), "tool calls": (1, None)}
    assert [each["name"] for each in told["team"]["members"]] == ["analyst", "auditor", "cashier", "writer"]


def test_an_agent_shows_limits_only_where_there_are_some(site):
    """Its page is as it was; a budget is a bar."""
    limited = clerk(name="limited").with_(budget=Budget(max_total_tokens=500))
    here = site(clerk(), limited)
    plain, other = (here.start(here.definitions[name]) for name in ("clerk", "limited"))
    pages = [page_of(here, run_id) for run_id in (plain, other)]
    assert [part(page, "Limits") for page in pages] == [None, "tokens 0 of 500"]
    assert [part(page, name) for page in pages for name in ("Team", "Route", "Decisions")] == [None] * 6
    with here.client(here.keys.approver) as client:
        assert client.get(f"/runs/{plain}.json").json()["team"] is None


@pytest.mark.parametrize(
    ("protocol", "scripts", "route"),
    [
        ("sequential", ([say("one")], [say("two")]), "ada done bob done"),
        ("none", ([say("one")], [say("two")]), "ada done bob done"),
        ("handoff", ([call("transfer_to", member="bob", note="yours")], [say("two")]), "ada done bob done"),
    ],
)
def test_other_protocols_have_a_route_and_no_supervisor(site, protocol, scripts, route):
    """Nobody supervises, so nobody is shown as a supervisor; a transfer says so."""
    members = [member(name, *script) for name, script in zip(("ada", "bob"), scripts, strict=True)]
    here = site(Team("room", members=members, protocol=protocol))
    page = page_of(here, here.start(here.definitions["room"]))
    assert part(page, "Route") == route
    assert "supervisor" not in part(page, "Team")
    assert ("handed over yours" in part(page, "Decisions")) == (protocol == "handoff")
    assert ("hands over to bob: yours" in part(page, "Timeline")) == (protocol == "handoff")


def test_a_team_in_a_team_is_nested(site):
    """The inner team's members stand below it in the timeline; the board is the outer one's."""
    inner = Team("inner", members=[member("ada")], model=ScriptedModel([assign("ada"), finish("inner end")]))
    here = site(Team("outer", members=[inner], model=ScriptedModel([assign("inner"), finish()])))
    page = page_of(here, here.start(here.definitions["outer"]))
    assert re.findall(r'<p class="whose">(\w+)</p>', page) == ["inner", "ada"]
    assert part(page, "Route") == "inner done answer"
    assert "ada" not in part(page, "Team")


def test_failed_work_and_work_that_never_began(site):
    """A member that fails says how; what the end of the run overtook is not run."""
    ill = member("ill", *[lambda request: 1 / 0] * 5)
    stops = hook("on_agent_end", lambda trace, who, result: Verdict.stop("enough"))
    both = call("delegate", assignments=[{"member": name, "instruction": "go"} for name in ("ill", "late")])
    waits = hook("should_agent_continue", lambda trace, who: Verdict.escalate("look") if who.name == "late" else None)
    here = site(Team("room", members=[ill, member("late")], model=ScriptedModel([both]), interceptors=[waits, stops]))
    page = page_of(here, here.start(here.definitions["room"]))
    assert part(page, "Route") == "ill failed late not run"
    assert "ill failed 1×" in part(page, "Team")


def test_an_erased_team_still_opens(site, ana):
    """Retention took what was said; members and that they worked may be gone, the page is not."""
    here = site(shop())
    run_id = here.start(here.definitions["shop"])
    with here.client(here.keys.approver) as client:
        ana(client, client.get(f"/runs/{run_id}"), "approve")
        here.result(run_id)
        here.do(prune(here.runtime, older_than=-1.0))
        page, twin = client.get(f"/runs/{run_id}"), client.get(f"/runs/{run_id}.json")
    assert (page.status_code, twin.status_code) == (200, 200)
    assert "What it said and did was erased" in page.text
    assert [word for word in ("Find 42", "Paid.", "no_audit") if word in page.text + twin.text] == []


def test_the_list_of_runs_is_filtered_by_status(site):
    """Each status that there is, with its count; the twin takes the same filter, whatever is asked for is escaped."""
    done = member("done")
    here = site(shop(), done)
    waits, over = here.start(here.definitions["shop"]), here.start(done)
    with here.client(here.keys.approver) as client:
        every, some = client.get("/runs").text, client.get("/runs", params={"status": "waiting"}).text
        listed = client.get("/runs.json", params={"status": "completed"}).json()["runs"]
        none = client.get("/runs", params={"status": SCRIPT}).text
    assert [waits[:8] in every, over[:8] in every, waits[:8] in some, over[:8] in some] == [True, True, True, False]
    assert '<a href="/runs?status=waiting" aria-current="page">waits (1)</a>' in some
    assert [each["run_id"] for each in listed] == [over]
    assert "None of them is &lt;script&gt;" in none
    assert SCRIPT not in none


# ---- requests at moments ----------------------------------------------------------------------

AT = {
    "on_team_start": (
        "<b>room</b> wants to begin <code>its work</code>",
        ("The team begins.", "completed"),
        ("The team does not begin; the run is blocked.", "blocked"),
    ),
    "on_node_start": (
        "<b>room</b> wants to begin a step of <code>the supervisor</code>",
        ("The step begins.", "completed"),
        ("The step begins all the same", "completed"),
    ),
    "should_supervisor_continue": (
        "<b>room</b> wants the next decision of <code>the supervisor</code>",
        ("The supervisor is asked who works next.", "completed"),
        ("The supervisor is not asked any more. The run is stopped.", "stopped"),
    ),
    "should_agent_continue": (
        "<b>room</b> wants to give work to <code>ada</code>",
        ("ada works once, on what is shown.", "completed"),
        ("ada is skipped: it does not work, a turn is spent, and the team goes on without it.", "completed"),
    ),
    "on_agent_end": (
        "<b>room</b> waits after the work of <code>ada</code>",
        ("The team goes on.", "completed"),
        ("What is done stays done, and the team goes on.", "completed"),
    ),
    "on_node_end": (
        "<b>room</b> waits after a step of <code>the supervisor</code>",
        ("The team goes on.", "completed"),
        ("What is done stays done, and the team goes on.", "completed"),
    ),
    "on_team_end": (
        "<b>room</b> waits, before it ends, after <code>its answer</code>",
        ("The run ends with its answer.", "completed"),
        ("The run ends with its answer all the same.", "completed"),
    ),
    "on_supervisor_decision": (
        "<b>room</b> wants to decide: <code>assign</code>",
        ("The decision counts: exactly this route is taken.", "completed"),
        ("The decision does not count. The supervisor is told why and asked again", "completed"),
    ),
    "on_model_end": (
        "<b>room</b> is held at <code>the model&#39;s response</code>",
        ("The run goes on with exactly what is shown.", "completed"),
        ("What is shown is not used. The supervisor is told why and asked again", "completed"),
    ),
    "on_model_start": (
        "<b>room</b> is held at <code>the request to the model</code>",
        ("The run goes on with exactly what is shown.", "completed"),
        ("What is shown is not used; the run is blocked there.", "blocked"),
    ),
}


@pytest.mark.parametrize("verb", ["approve", "reject"])
@pytest.mark.parametrize("moment", AT)
def test_the_inbox_says_what_a_decision_at_a_moment_does_and_that_is_what_happens(site, ana, moment, verb):
    """In words what is asked and what follows; decided in the page, the run ends as it was said."""
    headline, approved, rejected = AT[moment]
    here = site(asking(moment))
    run_id = here.start(here.definitions["room"])
    with here.client(here.keys.approver) as client:
        inbox = client.get("/inbox")
        for told in (headline, approved[0], rejected[0], "Somebody looks first."):
            assert told in inbox.text, told
        fields = {"text": "rather not"} if verb == "reject" else {}
        assert ana(client, inbox, verb, **fields).status_code == 200
        while (result := here.result(run_id, "park")).status == "suspended":  # the same moment of a later step
            ana(client, client.get(f"/runs/{run_id}"), "approve")
        team = client.get(f"/runs/{run_id}.json").json()["team"]
    assert result.status == (approved if verb == "approve" else rejected)[1]
    if moment in ("should_agent_continue", "on_supervisor_decision"):
        worked = {each["name"]: each["worked"] for each in team["members"]}
        assert worked == {"ada": verb == "approve"}
    if moment == "should_agent_continue" and verb == "reject":
        assert "rather not" in json.dumps(team["records"])


def test_a_request_at_an_admission_shows_the_instruction_whole(site):
    """Member, instruction, where it is: everything the decision binds to, and the member as who waits."""
    instruction = f"Look {'very ' * 3000}closely {SCRIPT}"
    here = site(asking("should_agent_continue", assign("ada", instruction), finish()))
    run_id = here.start(here.definitions["room"])
    with here.client(here.keys.approver) as client:
        page = client.get(f"/runs/{run_id}").text
        [asked] = client.get("/inbox.json").json()["requests"]
    assert "very " * 3000 + "closely &lt;script&gt;" in page
    assert '<th scope="row">member</th><td><q class="text">ada</q></td>' in page
    assert (asked["point"], asked["value"]["instruction"]) == ("should_agent_continue", instruction)
    assert "ada waits for you should_agent_continue: Somebody looks first." in part(page, "Team")
    assert "held before ada works: look, by team:room/guard" in part(page, "Timeline")


def test_a_question_of_the_supervisor_is_answered_in_the_page(site, ana):
    """`ask_human`: what it asks, and that the answer goes to the supervisor."""
    script = [call("ask_human", reason="Which order?"), lambda request: finish(request.messages[-1]["content"])]
    here = site(Team("room", members=[member("ada")], model=ScriptedModel(script), feedback=True))
    run_id = here.start(here.definitions["room"])
    with here.client(here.keys.approver) as client:
        page = client.get(f"/runs/{run_id}")
        assert "Which order?" in page.text
        assert "Your answer. The supervisor reads this." in page.text
        assert part(page.text, "Route") == "a person was asked"
        ana(client, page, "respond", text="Order 42.")
        assert here.result(run_id).answer == "Order 42."
        assert part(client.get(f"/runs/{run_id}").text, "Route") == "a person was asked answer"


def test_a_tool_called_assign_is_no_decision(site):
    """Only what a hook of the team holds is spoken of as a decision of the supervisor."""
    from lictor import tool

    @tool(requires_approval=True)
    async def assign(member: str) -> str:
        """Give a seat to a club member."""
        return "seated"

    host = member("host", call("assign", member="ada"), say("ok"), tools=[assign])
    here = site(host)
    here.start(host)
    with here.client(here.keys.approver) as client:
        page = client.get("/inbox").text
    assert "<b>host</b> wants to run <code>assign</code>" in page
    assert "assign runs once, with exactly these arguments." in page


def test_tokens_of_members_under_way_are_counted():
    """The sums of the page are those of the events, whoever is not done yet."""

    async def both():
        async with Runtime() as runtime:
            run = await runtime.start(shop(), "go")
            result = await run.result()
            told = await query.trace(runtime, run.id)
            await runtime.docket.decide(result.requests[0].id, "approve", by="human:ana")
            return told, await run.result(), await query.trace(runtime, run.id)

    before, result, after = asyncio.run(both())
    assert before["usage"]["total_tokens"] == 4 * USED.total_tokens
    assert after["usage"] == result.usage.json()
