"""What `lictor conformance` prints: the report for a terminal, and the page of the claim (§13.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lictor.testing import conformance as kit

__all__ = ["page", "summary"]

WORDS = {"passed": "passed", "failed": "FAILED", "skipped": "skipped", "not_claimed": "not claimed"}
OURS = {"terminate": "terminate_all", "continue": "continue"}
BOUNDS = {"buffered": "nothing before `output` permits", "incremental": "none: release is watermark-gated"}

HEAD = """\
# Conformance

<!-- Written by `lictor conformance --page > docs/conformance.md`; do not edit. -->

The claim after AGENT-HOOKS-0.1, §13.3, and the report it rests on. **It is no security certification**: the kit
drives a real `Agent` over a scripted model and scripted tools, through the code that every run goes through, and
shows that verdicts are honoured. It does not attack the host and says nothing about your policies. What does not hold
is in [security.md](security.md).

```
pip install "{kit}"
lictor conformance            # a line for each part; exit code 1 if a vector fails
lictor conformance --json     # everything
```

## The claim

| | |
|---|---|
| framework | `lictor` |
| version | {version} |
| specification | `agent-hooks/0.1` |
| capabilities | {capabilities} |
| profiles | all four (§7.2), with every value of every knob |
| identity provider | `jcs-sha256`; also host-defined ones and none, as a vector asks for |
| engine | Lictor's own, in Python; kit: `agent-hooks-sdk` {kit_version} |
"""

SURFACES = """\
| streaming | `buffered_output` | exposure bound (§12.1a) | `tool_seam_host_error` | in Lictor | report |
|---|---|---|---|---|---|
{rows}

- `stream="buffered"` is the default. `stream="incremental"` declares `buffered_output: false` and
  `incremental_output`: text reaches the caller piece by piece, each piece after a verdict that covers it, and **a
  deny at `output` cannot call back what was streamed**. What a later verdict denies, and what no verdict covers, is
  neither released nor stored.
- Posture: the contract's `terminate` is `Governance(posture="terminate_all")`. The default of agents, `terminate`,
  differs from it in one place: what policies decided together (`host_error:transform_conflict`,
  `host_error:composition_disagreement`) goes on as any policy's deny does. The contract has no word for that; with it
  the vectors AH-CTK-085 and AH-CTK-087 end `completed` where `terminate` wants `blocked`.
- Identities of `jcs-sha256` are derived from content and not salted. With `identity=None` approvals and records are not
  bound to content, and the records say so.
- An agent without policies gets the visible `lictor/allow-all`. The two vectors about nobody at all (AH-CTK-061,
  AH-CTK-101) therefore run the same loop over a `Gate([])`.
- `DenyRepeats` and `LoopBreaker`, on by default, are left out: the fold of a vector is exactly its interceptors.
"""

REPORT = """\
## The report

Every vector runs in both postures, and those that are not about incremental mediation both buffered and incremental;
it passed if all of these did. For `streaming/incremental` the kit's runner looks at emissions and records only; what
was released and what was stored is asserted from the raw vectors by `lictor.testing.conformance`, and a harness that
does not tell it fails.

| part | {postures} |
|---|{rule}|
{rows}

Not claimed: {not_claimed} vectors of `declaration/*`. Why, for each of them: {because}.
"""


def summary(report: kit.Report) -> Iterator[str]:
    """The lines for a terminal: each part, what failed, and the counts of each posture."""
    width = max(map(len, report.parts()))
    for posture in kit.POSTURES:
        yield f"posture {posture}"
        for part, counts in report.parts(posture).items():
            yield f"  {part:{width}}  {_told(counts)}"
    for each in report.checked:
        if each.status == "failed":
            yield f"{each.id} ({each.posture}, {each.stream}): {each.title}"
            yield from (f"  {line}" for line in each.told)
    yield f"kit {report.kit}: {_told(report.counts())}"
    if report.counts()["not_claimed"]:
        yield f"not claimed: {kit.NOT_CLAIMED}"


def page(report: kit.Report, version: str) -> str:
    """`docs/conformance.md`.

    Arguments:
        report: what the kit said.
        version: of Lictor.
    """
    capabilities = ", ".join(f"`{name}`" for name in kit.CAPABILITIES)
    head = HEAD.format(kit=kit.KIT, version=version, capabilities=capabilities, kit_version=report.kit)
    surfaces = SURFACES.format(rows="\n".join(_surface(report, *each) for each in _surfaces()))
    rows = [
        _row(f"`{part}`", [_told(report.parts(posture)[part]) for posture in kit.POSTURES]) for part in report.parts()
    ]
    rows.append(_row("all", [_told(report.counts(posture=posture)) for posture in kit.POSTURES]))
    told = REPORT.format(
        postures=" | ".join(kit.POSTURES),
        rule="---|" * (len(kit.POSTURES) - 1) + "---",
        rows="\n".join(rows),
        not_claimed=report.counts()["not_claimed"],
        because=kit.NOT_CLAIMED,
    )
    return "\n".join([head, surfaces, told])


def _surfaces() -> list[tuple[str, str]]:
    return [(stream, posture) for stream in kit.STREAMS for posture in kit.POSTURES]


def _surface(report: kit.Report, stream: str, posture: str) -> str:
    counts = report.counts(posture=posture, stream=stream)
    others = len(report.of()) - len(report.of(stream=stream))
    told = _told({**counts, "not_claimed": 0}) + (f", {others} do not apply" if others else "")
    buffers = "true" if stream == "buffered" else "**false**"
    return _row(stream, [buffers, BOUNDS[stream], posture, f'`posture="{OURS[posture]}"`', told])


def _row(first: str, cells: Sequence[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[status]} {word}" for status, word in WORDS.items() if counts.get(status))
