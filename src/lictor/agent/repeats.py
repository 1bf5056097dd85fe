"""A denied call asked again is denied at once; asked a third time it ends the run."""

from __future__ import annotations

from lictor.hooks import ALLOW, Context, Verdict, interceptor

__all__ = ["DenyRepeats"]


@interceptor(points=["pre_tool_call"], name="deny-repeats", version="1", always_enforce=True)
class DenyRepeats:
    """On by default in every agent.

    Counts, for each tool with exactly these arguments, the denials of this run under this policy
    (verdicts and rejections; never host errors, parks, expiries or what a loop breaker denies). The
    host says the count in `extensions.lictor.denials`, so it survives a restart.

    Arguments:
        deny_after: denials after which the next identical call is denied without asking anybody.
        stop_after: denials after which the next identical call ends the run.
    """

    def __init__(self, *, deny_after: int = 1, stop_after: int = 2) -> None:
        self.deny_after = deny_after
        self.stop_after = stop_after

    def config(self) -> dict[str, int]:
        """What the policy fingerprint covers."""
        return {"deny_after": self.deny_after, "stop_after": self.stop_after}

    def intercept(self, context: Context) -> Verdict:
        """Deny or stop a repeated call (§6.2 lets the host end the turn)."""
        about = context["extensions"]["lictor"] if "extensions" in context else {}
        denials = about["denials"] if "denials" in about else 0
        if denials < self.deny_after:
            return ALLOW
        name = context["tool_call"]["name"]
        if denials >= self.stop_after:
            return Verdict.stop(
                "denied_repeatedly", f"{name} was denied {denials} times with these arguments", scope="member"
            )
        return Verdict.deny("already_denied", f"{name} with these arguments was denied before; do something else")
