"""Scenario C: what a team did is archived, and how it ended, whatever happened."""
import asyncio

from lictor import Agent, Team, TeamInterceptor
from lictor.testing import ScriptedModel, call, fail, say

WRITE = call("assign", member="writer", instruction="Write.")
ARCHIVE, ENDINGS = {}, {}


class Archive(TeamInterceptor):
    def on_team_end(self, trace):
        """Only after success; `on_team_finished` comes at every end."""
        ARCHIVE[trace.run_id] = (trace.records, trace.metrics, trace.final_answer)

    def on_team_finished(self, trace, outcome):
        ENDINGS[outcome["run_id"]] = (outcome["status"], trace.record_count)


def team(*script):
    writer = Agent("writer", model=ScriptedModel([say("Dear Ana, it left on Monday.")]))
    return Team("orders", members=[writer], model=ScriptedModel(script), interceptors=[Archive()])


async def main():
    result = await team(WRITE, call("finish", answer="Done.")).run("Write to Ana")
    records, metrics, answer = ARCHIVE[result.run_id]
    assert [each.content for each in records if each.source == "writer"] == ["Dear Ana, it left on Monday."]
    assert (metrics.total_tokens, answer) == (result.usage.total_tokens, "Done.")

    broken = await team(WRITE, fail(status=400)).run("Write to Ana")
    assert broken.status == "failed"
    assert [*ENDINGS.items()] == [(result.run_id, ("completed", 3)), (broken.run_id, ("failed", 2))]
    assert list(ARCHIVE) == [result.run_id]
    print(ENDINGS)


asyncio.run(main())
