"""The same team in a terminal."""
import asyncio
import sys

from lictor import Runtime
from lictor.console import terminal
from shop.team import team


async def main(question):
    async with Runtime("sqlite:///orders.db") as runtime:
        run = await runtime.start(team, question, user="ana")
        result = await terminal.watch(run, decide=True)  # the view of `lictor run --watch`; asks at the prompt
    print(f"\n{result.status}: {result.answer or result.reason}  ({result.usage.total_tokens} tokens)")


asyncio.run(main(" ".join(sys.argv[1:])))
