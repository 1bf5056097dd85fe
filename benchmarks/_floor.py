"""The floor: a bare asyncio loop with dict messages and JSON arguments. Every ratio is to this."""

import asyncio
import json
import platform
from collections.abc import AsyncIterator, Callable
from typing import Any

from _workloads import ARGUMENTS_JSON, CONCURRENT, FINAL, SYSTEM, TASK, TOOL_CALLS, WORDS, Contender, Tally

Message = dict[str, Any]


class Hooks:
    """The cheapest interception there is: four awaited methods, one of which rewrites an argument."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    async def before_model(self, messages: list[Message]) -> list[Message]:
        self.tally.model_hooks += 1
        return messages

    async def after_model(self, response: Message) -> Message:
        return response

    async def before_tool(self, name: str, arguments: Message) -> Message:
        self.tally.tool_hooks += 1
        return {**arguments, "a": arguments["a"] + 1}

    async def after_tool(self, name: str, result: str) -> str:
        return result


class Loop:
    """An agent loop that does what must be done and nothing else."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.hooks = [Hooks(tally)]
        self.tools: dict[str, Callable[..., Any]] = {"add": self.add}

    async def add(self, a: int, b: int) -> str:
        return self.tally.add(a, b)

    async def model(self, messages: list[Message], total: int) -> Message:
        self.tally.models += 1
        if self.tally.yielding:
            await asyncio.sleep(0)
        last = messages[-1]
        done = int(last["tool_call_id"][1:]) + 1 if last["role"] == "tool" else 0
        if done < total:
            call = {"id": f"c{done}", "name": "add", "arguments": ARGUMENTS_JSON[done]}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        return {"role": "assistant", "content": FINAL, "tool_calls": None}

    async def run(self, total: int) -> str:
        messages: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
        while True:
            response = await self.model(messages, total)
            messages.append(response)
            if not response["tool_calls"]:
                return str(response["content"])
            for call in response["tool_calls"]:
                result = await self.tools[call["name"]](**json.loads(call["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def run_hooked(self, total: int) -> str:
        messages: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
        while True:
            view = messages
            for hook in self.hooks:
                view = await hook.before_model(view)
            response = await self.model(view, total)
            for hook in self.hooks:
                response = await hook.after_model(response)
            messages.append(response)
            if not response["tool_calls"]:
                return str(response["content"])
            for call in response["tool_calls"]:
                arguments = json.loads(call["arguments"])
                for hook in self.hooks:
                    arguments = await hook.before_tool(call["name"], arguments)
                result = await self.tools[call["name"]](**arguments)
                for hook in self.hooks:
                    result = await hook.after_tool(call["name"], result)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def streamed_model(self, messages: list[Message], total: int) -> AsyncIterator[Message]:
        response = await self.model(messages, total)
        if not response["tool_calls"]:
            for word in WORDS:
                yield {"delta": word}
        yield response

    async def stream(self, total: int) -> AsyncIterator[Message]:
        messages: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
        while True:
            response: Message = {}
            async for response in self.streamed_model(messages, total):
                yield response
            messages.append(response)
            if not response["tool_calls"]:
                return
            for call in response["tool_calls"]:
                result = await self.tools[call["name"]](**json.loads(call["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def build(name: str, tally: Tally) -> Contender:
    """The contender `floor`."""
    loop = Loop(tally)

    async def concurrent() -> str:
        answers = await asyncio.gather(*[loop.run(1) for _ in range(CONCURRENT)])
        return answers[-1]

    async def streamed() -> str:
        text = ""
        async for update in loop.stream(1):
            text += update.get("delta", "")
        return text

    workloads = {
        "W0": lambda: loop.run(0),
        "W1": lambda: loop.run(1),
        "W2": lambda: loop.run(TOOL_CALLS["W2"]),
        "W4": lambda: loop.run_hooked(1),
        "W5": concurrent,
        "W7": streamed,
    }
    return Contender(name=name, versions={"python": platform.python_version()}, workloads=workloads)
