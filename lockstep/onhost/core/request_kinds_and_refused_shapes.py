"""Kinds of requests to a model, and the shapes of a conversation that it may refuse."""

from typing import Literal, get_args

#: Answers, vectors, or an order of texts.
Kind = Literal["chat", "embedding", "rerank"]
#: Refused by the chat template. `same_role`: two messages of one role in a row. `user_after_tool`:
#: a user's message right after a tool's result. `late_system`: a system message anywhere but first.
#: `developer`: that role. `tool_picture`: a picture in a tool's result.
TemplateShape = Literal["same_role", "user_after_tool", "late_system", "developer", "tool_picture"]
#: Refused by the engine, with any template. `empty_tools`: an empty list of tools.
Shape = Literal[TemplateShape, "empty_tools"]
SHAPES: tuple[TemplateShape, ...] = get_args(TemplateShape)
