"""langgraph: a graph of a supervisor and members written by hand, and the package langgraph-supervisor.

Runs under the Python of the environment in which langgraph is installed.
"""

import os
import platform
import warnings
from functools import partial
from importlib.metadata import version
from typing import Any

from _team_workloads import FINAL, MEMBERS, SYSTEM, TASK, TURNS, Script, check_team
from _workloads import Contender, Tally

os.environ.setdefault("LANGSMITH_TRACING", "false")
os.environ.setdefault("LANGCHAIN_TRACING_V2", "false")
warnings.filterwarnings("ignore")

from langchain.agents import create_agent  # noqa: E402 - its settings are read when it is imported
from langchain_core.language_models.chat_models import BaseChatModel  # noqa: E402
from langchain_core.messages import AIMessage  # noqa: E402
from langchain_core.outputs import ChatGeneration, ChatResult  # noqa: E402
from langgraph.graph import END, START, MessagesState, StateGraph  # noqa: E402
from langgraph.types import Command  # noqa: E402

LIMITS = {"recursion_limit": 400}
GIVEN = {"messages": [{"role": "user", "content": TASK}]}


class Model(BaseChatModel):  # type: ignore[misc]
    """Its lowest seam for a model; `say` gives a text or a tool call."""

    say: Any = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self

    def _generate(self, *given: Any, **more: Any) -> Any:
        raise TypeError("langchain wants this method; the benchmark asks asynchronously")

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> Any:
        said = self.say()
        message = AIMessage(content=said) if isinstance(said, str) else AIMessage(content="", tool_calls=[said])
        return ChatResult(generations=[ChatGeneration(message=message)])


def graph(members: dict[str, Any], script: Script) -> Any:
    """A supervisor that names the next node, members that go back to it."""

    def choose() -> str:
        turn = script.decide()
        return FINAL if turn is None else MEMBERS[turn % 3]

    model = Model(say=choose)

    async def supervisor(state: Any) -> Any:
        said = (await model.ainvoke(state["messages"])).content
        return Command(goto=said) if said in MEMBERS else Command(goto=END, update={"messages": [AIMessage(said)]})

    def node(name: str) -> Any:
        async def work(state: Any) -> Any:
            done = await members[name].ainvoke({"messages": state["messages"]})
            said = AIMessage(done["messages"][-1].content, name=name)
            return Command(goto="supervisor", update={"messages": [said]})

        return work

    built = StateGraph(MessagesState)
    built.add_node("supervisor", supervisor, destinations=(*MEMBERS, END))
    for name in MEMBERS:
        built.add_node(name, node(name), destinations=("supervisor",))
    built.add_edge(START, "supervisor")
    return built.compile()


def packaged(members: dict[str, Any], script: Script) -> Any:
    """The same with langgraph-supervisor: hand-overs are tool calls. Raises ImportError if it is not there."""
    from langgraph_supervisor import create_supervisor

    def call() -> Any:
        turn = script.decide()
        if turn is None:
            return FINAL
        return {"name": f"transfer_to_{MEMBERS[turn % 3]}", "args": {}, "id": f"c{turn}", "type": "tool_call"}

    return create_supervisor(list(members.values()), model=Model(say=call), prompt=SYSTEM).compile()


def build(name: str, tally: Tally) -> Contender:
    """The contender `langgraph-graph` or `langgraph-supervisor`."""
    script = Script(tally)
    members = {
        member: create_agent(Model(say=script.work), [], system_prompt=member, name=member) for member in MEMBERS
    }
    team = graph(members, script) if name == "langgraph-graph" else packaged(members, script)

    async def run(turns: int) -> str:
        script.begin(turns)
        return str((await team.ainvoke(GIVEN, LIMITS))["messages"][-1].content)

    versions = {"python": platform.python_version()}
    for package in ("langgraph", "langchain", *(["langgraph-supervisor"] if name.endswith("supervisor") else [])):
        versions[package] = version(package)
    workloads = {workload: partial(run, turns) for workload, turns in TURNS.items()}
    return Contender(name=name, versions=versions, workloads=workloads, shape=check_team)
