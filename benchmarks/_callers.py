"""Where the function calls of one run are made: for each function, the calls below it and by itself.

    python benchmarks/_callers.py [CONTENDER] [WORKLOAD] [HOW_MANY]

Not a benchmark: a reading aid for whoever cuts them. `inclusive` counts every Python and C call made while
the function was on the stack (a function that calls itself is counted once), `own` the calls it makes
directly, `times` how often it was entered; a coroutine counts again each time it is resumed.
"""

import asyncio
import importlib
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from _worker import MODULES
from _workloads import Contender, Tally

HERE = str(Path(__file__).parent.parent)


class Callers:
    """Counts calls by who is on the stack; give `observe` to `sys.setprofile`."""

    def __init__(self) -> None:
        self.total = 0
        self.inclusive: Counter[CodeType] = Counter()
        self.own: Counter[CodeType] = Counter()
        self.times: Counter[CodeType] = Counter()
        self._stack: list[tuple[CodeType, int]] = []

    def observe(self, frame: FrameType, event: str, argument: Any) -> None:
        """One event of the interpreter."""
        if event in ("call", "c_call"):
            if self._stack:
                self.own[self._stack[-1][0]] += 1
            self.total += 1
        if event == "call":
            self.times[frame.f_code] += 1
            self._stack.append((frame.f_code, self.total))
        elif event == "return" and self._stack:
            code, before = self._stack.pop()
            if all(code is not above for above, _ in self._stack):
                self.inclusive[code] += self.total - before


def where(code: CodeType) -> str:
    """`file:function`, short where the file is ours."""
    return f"{code.co_filename.removeprefix(HERE + '/').rpartition('site-packages/')[2]}:{code.co_qualname}"


async def observed(contender: Contender, workload: str) -> Callers:
    """Warm up, then observe one run."""
    run = contender.workloads[workload]
    callers = Callers()
    async with contender.opened():
        for _ in range(3):
            await run()
        sys.setprofile(callers.observe)
        await run()
        sys.setprofile(None)
    return callers


def main() -> None:
    """Print the table."""
    name, workload, many = (sys.argv[1:] + ["lictor-governed", "W1", "40"][len(sys.argv) - 1 :])[:3]
    contender = importlib.import_module(MODULES[name]).build(name, Tally())
    callers = asyncio.run(observed(contender, workload))
    print(f"{name} {workload}: {callers.total} calls")
    print("inclusive    own  times  function")
    for code, inclusive in callers.inclusive.most_common(int(many)):
        print(f"{inclusive:9d} {callers.own[code]:6d} {callers.times[code]:6d}  {where(code)}")


if __name__ == "__main__":
    main()
