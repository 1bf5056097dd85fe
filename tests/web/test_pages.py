"""The pages and their twins: what they show, what a decision in them does, what is refused."""

import asyncio
import json
import sqlite3

import pytest
from web_agents import DONE, HIDDEN, IMAGE, SCRIPT, banker, caller, clerk, for_bob, for_finance, writer

from lictor import Runtime
from lictor.errors import SimulatedCrash
from lictor.runtime import prune
from lictor.testing import crash_at

# ---- what is shown ----------------------------------------------------------------------------


def test_the_inbox_tells_all_that_a_reviewer_has_to_know(site):
    """Who asks for what and for whom, exact arguments, why, who may decide, until when, and what will happen."""
    shop = site(clerk(for_finance, amount=249.0))
    run_id = shop.start(shop.definitions["clerk"], user="customer:4711")
    [request] = shop.requests(run_id)
    with shop.client(shop.keys.approver) as client:
        page = client.get("/inbox").text
    for told in (
        "<b>clerk</b> wants to run <code>refund</code>",
        "for <b>customer:4711</b>",
        f'href="/runs/{run_id}"',
        '<th scope="row">amount</th><td>249.0</td><td class="kind">number</td>',
        '<th scope="row">note</th><td><q class="text">Lost</q></td><td class="kind">text</td>',
        "Above 100.",
        "refund needs an approval",
        "group:finance",
        "to be decided in 59 minutes",
        request.digest,
        "refund runs once, with exactly these arguments.",
        "refund does not run. The agent is told why, and goes on.",
        "you decide as <b>human:ana</b>",
    ):
        assert told in page, told


def test_a_long_argument_is_never_cut(site):
    """What somebody decides on is there to its last sign, deep lists included."""
    tags = [f"tag {number} {'x' * 90}" for number in range(200)]
    note = "y" * 20_000 + "END"
    shop = site(clerk(note=note, tags=tags))
    shop.start(shop.definitions["clerk"])
    with shop.client(shop.keys.approver) as client:
        page = client.get("/inbox").text
    assert note in page
    assert all(tag in page for tag in tags)


def test_the_inbox_lists_the_oldest_first_and_goes_on_after_fifty(site):
    """Requests come in the order in which they were asked; those behind are counted."""
    agents = [caller(f"text {number}", name=f"caller{number}") for number in range(52)]
    shop = site(*agents)
    for agent in agents:
        shop.start(agent)
    with shop.client(shop.keys.approver) as client:
        page = client.get("/inbox").text
        assert "52 wait for a decision" in page
        assert "2 more wait behind these" in page
        assert 0 < page.index("text 0<") < page.index("text 1<") < page.index("text 49<")
        assert "text 50<" not in page
        assert len(client.get("/inbox.json").json()["requests"]) == 52


def test_every_page_has_a_twin_that_says_the_same(site):
    """JSON for programs, with a cookie or with the token as a bearer; pure ASCII."""
    shop = site(caller("grüße"))
    run_id = shop.start(shop.definitions["caller"], user="ana")
    [request] = shop.requests(run_id)
    with shop.client(headers={"authorization": f"Bearer {shop.keys.approver}"}) as client:
        [listed] = client.get("/inbox.json").json()["requests"]
        one = client.get(f"/requests/{request.id}.json")
        assert listed == one.json()
        assert one.content.isascii()
        assert (listed["id"], listed["arguments"], listed["user"]) == (request.id, {"text": "grüße"}, "ana")
        [row] = client.get("/runs.json").json()["runs"]
        assert (row["run_id"], row["status"], row["open_requests"]) == (run_id, "waiting", 1)
        told = client.get(f"/runs/{run_id[:8]}.json").json()
        assert told["requests"] == [listed]
        assert (told["outcome"], told["driver"], told["audit"]["intact"]) == (None, None, True)
        assert [each["kind"] for each in told["events"]][-1] == "request_opened"


def test_a_run_that_ended_badly_says_why(site):
    """The page of a cancelled run names the end and who wanted it."""
    shop = site(clerk())
    run_id = shop.start(shop.definitions["clerk"])
    shop.do(shop.runtime.commands.stop(run_id, reason="wrong customer", by="human:bea"))
    shop.result(run_id)
    with shop.client(shop.keys.approver) as client:
        page = client.get(f"/runs/{run_id}").text
        assert client.get("/inbox.json").json() == {"requests": []}
    assert "wrong customer, by <b>human:bea</b>" in page
    assert "withdrawn, the run ended" in page


@pytest.mark.parametrize("payload", ["'{}'", "X'7B7D'", "7", "CAST(payload AS TEXT)", "CAST(payload || ' ' AS BLOB)"])
def test_a_changed_log_is_seen_on_the_page_of_its_run(site, tmp_path, payload):
    """Also when it cannot be read any more; the audit state is that of this run alone, another one stays intact."""
    shop = site(clerk(), caller("x"))
    changed, other = shop.start(shop.definitions["clerk"]), shop.start(shop.definitions["caller"])
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.execute(f"UPDATE event SET payload = {payload} WHERE run = ? AND seq = 3", (changed,))
    db.close()
    with shop.client(shop.keys.approver) as client:
        page = client.get(f"/runs/{changed}").text
        assert '<span class="badge bad">changed</span>' in page
        assert f"run {changed}, entry 3: its content was changed" in page
        assert client.get(f"/runs/{changed}.json").json()["audit"]["complete"] is True
        assert client.get(f"/runs/{other}.json").json()["audit"]["intact"] is True


def test_an_erased_run_says_what_is_left(site, ana):
    """Retention took the texts: the pages still open, and show who decided and that the log is whole."""
    shop = site(clerk())
    run_id = shop.start(shop.definitions["clerk"], "a secret task")
    [request] = shop.requests(run_id)
    with shop.client(shop.keys.approver) as client:
        ana(client, client.get("/inbox"), "approve")
        shop.result(run_id)
        shop.do(prune(shop.runtime, older_than=-1.0))
        page, one = client.get(f"/runs/{run_id}"), client.get(f"/requests/{request.id}")
    assert (page.status_code, one.status_code) == (200, 200)
    assert "What it said and did was erased" in page.text
    assert "by human:ana, via web" in page.text
    assert '<span class="badge good">intact</span>' in page.text
    assert [each for each in ("secret", "paid it back", "Lost") if each in page.text + one.text] == []


def test_a_forged_decision_is_seen(site, tmp_path):
    """Somebody wrote into the row of a request: the page of its run says that the log tells nothing of it."""
    shop = site(clerk())
    run_id = shop.start(shop.definitions["clerk"])
    with sqlite3.connect(tmp_path / "store.db") as db:
        body = """CAST(replace(CAST(body AS TEXT), '"pending"', '"cancelled"') AS BLOB)"""
        db.execute(f"UPDATE request SET body = {body}, status = 'cancelled'")
    db.close()
    with shop.client(shop.keys.approver) as client:
        page = client.get(f"/runs/{run_id}").text
    assert "the log tells nothing of it" in page


# ---- decisions --------------------------------------------------------------------------------


def test_an_approval_is_carried_out_by_the_server_itself(site, ana):
    """After the click the run finishes without another process, and the page shows the answer and who decided."""
    shop = site(clerk())
    run_id = shop.start(shop.definitions["clerk"])
    with shop.client(shop.keys.approver) as client:
        answered = ana(client, client.get("/inbox"), "approve")
        assert answered.url.path == f"/runs/{run_id}"
        assert shop.result(run_id).answer == "I paid it back."
        page = client.get(f"/runs/{run_id}").text
        assert "I paid it back." in page
        assert "by human:ana, via web" in page
        assert '<span class="badge good">intact</span>' in page
    [request] = shop.requests(run_id)
    by = request.resolution.decided_by
    assert (str(by), by.via, request.status) == ("human:ana", "web", "approved")
    assert DONE == [{"order": 42, "amount": 30.0, "note": "Lost", "tags": None}]


def test_a_rejection_tells_the_agent_why(site, ana):
    """The feedback reaches the model, nothing runs, and a rejection without words is asked for them."""
    shop = site(clerk())
    run_id = shop.start(shop.definitions["clerk"])
    with shop.client(shop.keys.approver) as client:
        answered = ana(client, client.get("/inbox"), "reject", text="  ")
        assert answered.status_code == 422
        assert "write why" in answered.text
        assert shop.requests(run_id)[0].status == "pending"
        ana(client, client.get("/inbox"), "reject", text=f"Not this one. {SCRIPT}\r\nSorry.")
        result = shop.result(run_id)
        [request] = shop.requests(run_id)
        page = client.get(f"/requests/{request.id}").text
    assert (request.status, DONE) == ("rejected", [])
    assert any("Not this one." in str(message["content"]) for message in result.trace.messages)
    assert request.resolution.feedback == f"Not this one. {SCRIPT}\nSorry."
    assert SCRIPT not in page
    assert "Not this one. &lt;script&gt;" in page


def test_an_edit_runs_with_the_changed_arguments(site, ana):
    """One field is changed, the others keep their value and type, and the page shows what ran."""
    shop = site(clerk(note=HIDDEN, tags=["a", "b"]))
    run_id = shop.start(shop.definitions["clerk"])
    with shop.client(shop.keys.approver) as client:
        ana(client, client.get("/inbox"), "edit", **{"argument:amount": "12.5"})
        shop.result(run_id)
        [request] = shop.requests(run_id)
        page = client.get(f"/requests/{request.id}").text
    assert [DONE, request.status] == [[{"order": 42, "amount": 12.5, "note": HIDDEN, "tags": ["a", "b"]}], "edited"]
    assert "<h3>Ran with</h3>" in page


@pytest.mark.parametrize(
    ("field", "text", "told"),
    [
        ("amount", "ten", "is no JSON"),
        ("amount", "NaN", "is no JSON"),
        ("amount", "true", "amount: number expected"),
        ("amount", "30.0", "nothing was changed"),
        ("order", '"42"', "order: integer expected"),
    ],
)
def test_an_edit_that_does_not_fit_is_asked_again_with_what_was_typed(site, ana, field, text, told):
    """Nothing is decided, what is wrong is said, and nobody has to type it twice."""
    shop = site(clerk())
    run_id = shop.start(shop.definitions["clerk"])
    typed = {"argument:note": "Typed by hand"} if told != "nothing was changed" else {}
    with shop.client(shop.keys.approver) as client:
        answered = ana(client, client.get("/inbox"), "edit", **{f"argument:{field}": text}, **typed)
    assert answered.status_code == 422
    assert told in answered.text
    assert "Typed by hand" in answered.text or not typed
    assert (shop.requests(run_id)[0].status, DONE) == ("pending", [])


def test_a_result_given_by_hand_is_what_the_agent_reads(site, ana):
    """Respond: the tool does not run, the text is its result."""
    shop = site(clerk())
    run_id = shop.start(shop.definitions["clerk"])
    with shop.client(shop.keys.approver) as client:
        ana(client, client.get("/inbox"), "respond", text="paid by hand")
    result = shop.result(run_id)
    assert [message["content"] for message in result.trace.messages if message["role"] == "tool"] == ["paid by hand"]
    assert DONE == []


@pytest.mark.parametrize(("verb", "effects"), [("retry", 2), ("skip", 1)])
def test_a_call_that_may_have_run_is_retried_or_skipped(site, ana, verb, effects):
    """A process died inside a tool; the page says that nobody knows, and what each choice will do."""
    shop = site(banker(), first=died_inside)
    with shop.client(shop.keys.approver) as client:
        [row] = client.get("/runs.json").json()["runs"]
        shop.result(row["run_id"], "park")
        page = client.get("/inbox")
        assert "<b>banker</b> may have run, or not, <code>wire</code>" in page.text
        assert "If it did run, it happens twice." in page.text
        assert 'value="approve"' not in page.text
        ana(client, page, verb)
    assert shop.result(row["run_id"]).status == "completed"
    assert [5.0] * effects == DONE


async def died_inside(url, agents):
    """A Runtime that dies after an effect, before it is recorded."""
    with crash_at("effect.after"):
        async with Runtime(url) as runtime:
            run = await runtime.start(agents["banker"], "go")
            with pytest.raises(SimulatedCrash):
                await run.result()


def test_an_answer_that_is_held_is_shown_and_let_out(site, ana):
    """A step at another point than a tool: the held value is shown, literally, and approve lets it through."""
    shop = site(writer())
    run_id = shop.start(shop.definitions["writer"])
    with shop.client(shop.keys.approver) as client:
        page = client.get("/inbox")
        assert "is held at <code>the answer</code>" in page.text
        assert SCRIPT not in page.text
        assert "Dear &lt;script&gt;alert(" in page.text
        assert [each for each in ("edit", "respond") if f'value="{each}"' in page.text] == []
        ana(client, page, "approve")
    assert shop.result(run_id).answer == f"Dear {SCRIPT}"


def test_two_parties_have_to_agree(site, ana):
    """The first approval is shown as one of two; the page does not pretend that the call runs."""
    shop = site(clerk(for_finance, for_bob, amount=200.0))
    run_id = shop.start(shop.definitions["clerk"])
    [request] = shop.requests(run_id)
    with shop.client(shop.keys.approver) as client:
        answered = ana(client, client.get("/inbox"), "approve")
        assert answered.url.path == f"/requests/{request.id}"
        assert "Approved so far by <b>human:ana</b>" in answered.text
        assert DONE == []
        shop.do(shop.runtime.docket.decide(request.id, "approve", by="human:bob"))
        assert shop.result(run_id).status == "completed"
    assert len(DONE) == 1


def test_a_standing_approval_is_given_only_when_it_is_ticked(site, ana):
    """`same_arguments` becomes a grant; without the tick there is none."""
    shop = site(clerk(name="one"), clerk(name="two"))
    with shop.client(shop.keys.approver) as client:
        for name, fields in (("one", {}), ("two", {"scope": "same_arguments"})):
            run_id = shop.start(shop.definitions[name])
            ana(client, client.get("/inbox"), "approve", **fields)
            shop.result(run_id)
            grants = shop.do(shop.runtime.docket.grants())
            assert len(grants) == (1 if fields else 0)


# ---- refusals ---------------------------------------------------------------------------------


def decided_elsewhere(shop, request):
    shop.do(shop.runtime.docket.decide(request.id, "reject", feedback="no", by="human:bob"))


def expired(shop, request):
    shop.runtime.clock.now = lambda: request.deadline + 1.0


def nothing(shop, request):
    pass


@pytest.mark.parametrize(
    ("agents", "before", "change", "status", "told"),
    [
        ((), decided_elsewhere, {}, 409, "was already rejected by human:bob. A decision stands for ever"),
        ((for_finance,), expired, {}, 410, "The deadline passed before your decision"),
        ((for_bob,), nothing, {}, 403, "it is for human:bob. Nothing was changed."),
        ((), nothing, {"verb": "retry"}, 422, "takes approve, reject, edit, respond, not"),
        ((), nothing, {"verb": ""}, 422, "is no verb"),
        ((), nothing, {"kind": "plan"}, 422, "is a tool_call, not a plan"),
        ((), nothing, {"digest": "sha256:00"}, 409, "shows something else than what was decided"),
        ((), nothing, {"id": "0" * 32}, 404, "there is no request"),
    ],
)
def test_a_refused_decision_says_what_happened_and_changes_nothing(site, agents, before, change, status, told):
    """Each typed refusal has its status, a page in plain words and a way on."""
    shop = site(clerk(*agents, amount=200.0))
    run_id = shop.start(shop.definitions["clerk"])
    [request] = shop.requests(run_id)
    with shop.client(shop.keys.approver) as client:
        csrf = client.get(f"/requests/{request.id}").text.partition('name="csrf" value="')[2].partition('"')[0]
        csrf = csrf or shop.keys.visitor(shop.keys.cookie("approver"), None).csrf
        before(shop, request)
        at_start = shop.requests(run_id)[0].status
        fields = {"csrf": csrf, "digest": request.digest, "verb": "approve"} | change
        answered = client.post(
            f"/requests/{fields.pop('id', request.id)}/decide", data=fields, headers={"origin": shop.address}
        )
    assert (answered.status_code, "Traceback" in answered.text) == (status, False)
    assert told.lower() in answered.text.replace("&#39;", "'").lower()
    assert 'href="/inbox"' in answered.text
    assert shop.requests(run_id)[0].status == (at_start if before is not expired else "expired")
    assert DONE == []


def test_what_is_not_there_is_404_with_a_way_on(site):
    """Unknown runs, requests, pages and topics, also as JSON; an ambiguous beginning is 400."""
    shop = site(clerk())
    with shop.client(shop.keys.approver) as client:
        for path in ("/runs/nope", "/requests/nope", "/nope", "/requests/nope/decide", "/live?of=nope", "/static/nope"):
            answered = client.get(path)
            assert answered.status_code in (404, 405), path
            assert "Traceback" not in answered.text
        answered = client.get("/runs/nope.json")
        assert (answered.status_code, answered.json()["error"]) == (404, "Not found")


def test_a_store_that_fails_is_said_and_shows_no_inside(site, tmp_path):
    """A damaged file becomes a 503 in words."""
    shop = site(clerk())
    shop.start(shop.definitions["clerk"])
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.execute("ALTER TABLE request RENAME TO gone")
    db.close()
    with shop.client() as client:
        answered = client.get("/inbox", headers={"authorization": f"Bearer {shop.keys.approver}"})
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.execute("ALTER TABLE gone RENAME TO request")
    db.close()
    assert (answered.status_code, "The store cannot be used" in answered.text) == (503, True)
    assert "Traceback" not in answered.text


# ---- nothing from a model becomes markup ------------------------------------------------------


def test_script_in_every_place_is_text(site, ana):
    """Arguments and their names, tool results, answers, tasks, users and conversations are escaped on every page."""
    agent = caller(f"{SCRIPT}{IMAGE}", more={SCRIPT: [IMAGE]})
    shop = site(agent)
    run_id = shop.start(agent, f"task {SCRIPT}", user=f"ana {IMAGE}", conversation=f"talk {SCRIPT}")
    [request] = shop.requests(run_id)
    with shop.client(shop.keys.approver) as client:
        paths = ("/inbox", "/runs", f"/runs/{run_id}", f"/requests/{request.id}")
        pages = [client.get(path).text for path in paths]
        ana(client, client.get("/inbox"), "approve")
        shop.result(run_id)
        pages += [client.get(path).text for path in paths]
    for page in pages:
        assert "<script>alert" not in page
        assert "<img" not in page
        assert page.count("<script") == 1  # our own
    assert "&lt;script&gt;" in pages[0]
    assert "said &lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in pages[6]


def test_signs_that_hide_are_named(site):
    """Control characters and those that turn the direction of writing are shown by their number."""
    shop = site(caller(HIDDEN))
    run_id = shop.start(shop.definitions["caller"], user="an\u202ea")
    with shop.client(shop.keys.approver) as client:
        for path in ("/inbox", "/runs", f"/runs/{run_id}"):
            page = client.get(path).text
            assert [sign for sign in "\u202e\x1b\u200b\x00" if sign in page] == [], path
            assert 'title="RIGHT-TO-LEFT OVERRIDE">U+202E</span>' in page
        page = client.get("/inbox").text
    assert [number for number in ("U+001B", "U+200B", "U+0000", "U+000D", "U+0009") if number not in page] == []
    assert json.dumps(HIDDEN).replace('"', "&#34;") in page  # the field that edits it holds JSON


# ---- live -------------------------------------------------------------------------------------


def test_a_page_hears_of_what_another_process_decides(site, tmp_path):
    """The stream tells a new version, never content; a page that is behind is told at once."""
    shop = site(clerk())
    run_id = shop.start(shop.definitions["clerk"])
    [request] = shop.requests(run_id)
    with shop.client(shop.keys.approver) as client:
        page = client.get("/inbox").text
        version = page.partition('data-version="')[2].partition('"')[0]
        with client.stream("GET", "/live", params={"of": "inbox", "have": version}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            asyncio.run(elsewhere(shop.url, request.id))
            told = [line for line in (next(lines) for _ in range(3)) if line]
        assert told[0] == "event: changed"
        assert told[1].startswith("data: ")
        assert version not in told[1]
        with client.stream("GET", "/live", params={"of": f"run:{run_id}", "have": "old"}) as stream:
            lines = stream.iter_lines()
            assert [next(lines) for _ in range(3)][2] == "event: changed"


async def elsewhere(url, request_id):
    """Decide in a Runtime of its own."""
    async with Runtime(url, drive=False) as runtime:
        await runtime.docket.decide(request_id, "reject", feedback="no", by="human:bob")
