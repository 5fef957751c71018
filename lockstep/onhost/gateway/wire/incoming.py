"""What a client asks for, as far as the gateway must know it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import pydantic

from lockstep.onhost.core.kind import Shape
from lockstep.onhost.gateway.wire import even_out, json_object
from lockstep.onhost.gateway.wire.answers import Refused

Model = TypeVar("Model", bound=pydantic.BaseModel)

#: Why a JSON object is refused that is too much to read; others may read it.
TOO_MUCH = "values"
_LONGEST_NAME = 256  # Longer than any name of a model; it comes back in messages.


class Asked(pydantic.BaseModel):
    """What can harm an engine. The engine judges what is not named here.

    Types are as lenient as the engines', so that both read the same numbers.
    """

    model_config = pydantic.ConfigDict(extra="ignore", protected_namespaces=())

    stream: bool | None = None
    n: int | None = None
    best_of: int | None = None
    top_logprobs: int | None = None
    logprobs: bool | int | None = None
    prompt_logprobs: int | None = None
    min_tokens: int | None = None
    min_new_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    logit_bias: dict[str, Any] | list[Any] | None = None
    kv_transfer_params: Any = None
    prompt: Any = None
    input: Any = None
    tokens: Any = None


class AskedOfModel(Asked):
    """A request that names its model."""

    model: str = pydantic.Field(min_length=1, max_length=_LONGEST_NAME)


class Switch(pydantic.BaseModel):
    """The body of POST /switch."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    target: str = pydantic.Field(min_length=1, max_length=64)


def read(model: type[Model], values: Mapping[str, Any]) -> Model:
    """What values by key ask. Refused names each key that is wrong, and repeats no value."""
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        said = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'the body'}: {fault['msg']}"
            for fault in faults[:5]
        )
        raise Refused(400, said, "json") from error


class Document:
    """A request's body: its text, and the members of its JSON object.

    Raises:
        Refused: it is no JSON object, or one of too many values.
    """

    def __init__(self, body: bytes) -> None:
        try:
            # As Python's engines read it: they must get nothing that was judged as another text.
            # .NET and PowerShell put a mark of the byte order before it.
            self.text = body.decode(json.detect_encoding(body), "surrogatepass")
            self.members = json_object.members(self.text)
        except (json_object.TooMany, RecursionError) as error:
            said = str(error) if isinstance(error, ValueError) else "the body is nested too deeply"
            raise Refused(400, said, TOO_MUCH) from error
        except ValueError as error:
            raise Refused(400, "the body is no JSON object in UTF-8", "json") from error

    @property
    def body(self) -> bytes:
        """Its bytes."""
        return self.text.encode(errors="surrogatepass")

    def read(self, model: type[Model]) -> Model:
        """What it asks. Refused names each key that is wrong, and repeats no value."""
        return read(model, {key: each.value for key, each in self.members.items()})

    def rewritten(
        self, model: str | None, path: str, shapes: Collection[Shape]
    ) -> tuple[bytes, list[Shape]]:
        """The body with another model's name and shapes evened out; every other byte as it was.

        Args:
            model: The name; None, and its own stays.
            path: Where the request goes, which tells the form of its conversation.
            shapes: What is evened out.

        Returns:
            The body, and the shapes that were there.
        """
        new: dict[str, Any] = {}
        there: list[Shape] = []
        if model is not None and self.members["model"].value != model:
            new["model"] = model
        if shapes and path in even_out.PATHS:
            values, there = even_out.even_out(path, self.members, shapes)
            new |= values
        try:
            text = json_object.replaced(self.text, self.members, new)
            return text.encode(errors="surrogatepass"), there
        except (ValueError, RecursionError) as error:
            # A text may end in the middle of a character, and a number may be none.
            raise Refused(400, "the body has values that JSON has no form for", "json") from error
