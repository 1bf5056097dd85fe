"""A process that drives nothing: it decides, lets deadlines pass, or cancels, all at one instant.

racer.py URL    then a line for each race: {"at": seconds since the epoch, "actions": [{"do": ..., ...}, ...]}
"""

import asyncio
import json
import sys
import time

import mutations

from lictor import Runtime
from lictor.errors import LictorError
from lictor.values import Clock

mutations.apply()


class Later(Clock):
    """A clock that is an hour fast."""

    def now(self):
        return super().now() + 3600


async def act(runtime, later, do, **options):
    outcome = {"do": do, **options, "error": None, "status": None}
    try:
        if do == "expire":
            outcome["gone"] = [request.id for request in later.docket.expire_due()]
        elif do == "cancel":
            await runtime.commands.cancel(options["run"], by="human:eve")
        else:
            doing = later if do == "decide late" else runtime
            outcome["status"] = (await doing.docket.decide(options.pop("request"), **options)).status
    except LictorError as error:
        outcome["error"] = type(error).__name__
    return outcome


async def main(url):
    async with Runtime(url, drive=False) as runtime, Runtime(url, drive=False, clock=Later()) as later:
        print("open", flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            while time.time() < order["at"]:
                pass
            tasks = [act(runtime, later, **action) for action in order["actions"]]
            print(json.dumps(await asyncio.gather(*tasks)), flush=True)


asyncio.run(main(sys.argv[1]))
