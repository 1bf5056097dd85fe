"""Models: one protocol for a streamed answer, the `openai` client and pydantic-ai behind it, and a scripted double."""

from __future__ import annotations

from lictor.models.messages import Message, assistant, system, tool_message, user, well_formed
from lictor.models.openai_model import OpenAIModel, Price
from lictor.models.protocol import (
    Call,
    ChatModel,
    HostedCall,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolSpec,
)
from lictor.models.pydantic_ai_model import PydanticAIModel
from lictor.models.resolve import resolve_model
from lictor.models.scripted import Entry, Reply, ScriptedModel, call, chunks, fail, hosted, say

__all__ = [
    "Call",
    "ChatModel",
    "Entry",
    "HostedCall",
    "Message",
    "ModelEvent",
    "ModelRequest",
    "ModelResponse",
    "OpenAIModel",
    "Price",
    "PydanticAIModel",
    "ReasoningDelta",
    "Reply",
    "ScriptedModel",
    "TextDelta",
    "TokenLogprob",
    "ToolSpec",
    "assistant",
    "call",
    "chunks",
    "fail",
    "hosted",
    "resolve_model",
    "say",
    "system",
    "tool_message",
    "user",
    "well_formed",
]
