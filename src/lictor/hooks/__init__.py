"""AGENT-HOOKS-0.1: contexts, verdicts, composition, approval, identity and records."""

from lictor.hooks.approval import ApprovalOutcome, ApprovalRequest, ApprovalResolution
from lictor.hooks.asking import Raised, awaited, pending, verdict_of
from lictor.hooks.builder import ContextBuilder
from lictor.hooks.builtins import AllowTools, DenyTools, Mask, MaxCalls
from lictor.hooks.compose import Composition
from lictor.hooks.context import AgentContext, Context
from lictor.hooks.emission import Emission
from lictor.hooks.gate import Gate
from lictor.hooks.governance import Governance
from lictor.hooks.identity import IdentityProvider, context_identity, keyed_identity
from lictor.hooks.interceptor import Bound, Interceptor, interceptor
from lictor.hooks.order import arrange
from lictor.hooks.path import parse_path
from lictor.hooks.points import POINTS, RESERVED_REASONS
from lictor.hooks.record import record_projection
from lictor.hooks.texts import map_texts, texts
from lictor.hooks.verdict import ALLOW, Decision, Evidence, Transform, Verdict, Warning
from lictor.values import canonical_json

__all__ = [
    "ALLOW",
    "POINTS",
    "RESERVED_REASONS",
    "AgentContext",
    "AllowTools",
    "ApprovalOutcome",
    "ApprovalRequest",
    "ApprovalResolution",
    "Bound",
    "Composition",
    "Context",
    "ContextBuilder",
    "Decision",
    "DenyTools",
    "Emission",
    "Evidence",
    "Gate",
    "Governance",
    "IdentityProvider",
    "Interceptor",
    "Mask",
    "MaxCalls",
    "Raised",
    "Transform",
    "Verdict",
    "Warning",
    "arrange",
    "awaited",
    "canonical_json",
    "context_identity",
    "interceptor",
    "keyed_identity",
    "map_texts",
    "parse_path",
    "pending",
    "record_projection",
    "texts",
    "verdict_of",
]
