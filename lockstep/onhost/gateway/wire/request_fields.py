"""Models of the requests' bodies, as far as the gateway must know them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import pydantic

from lockstep.onhost.core.request_kinds_and_refused_shapes import Shape
from lockstep.onhost.gateway.wire import json_value_replacement, refused_shape_repair
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal

Model = TypeVar("Model", bound=pydantic.BaseModel)

#: Refusal reason of a JSON object with too many values; other parsers may accept it.
TOO_MUCH = "values"
_LONGEST_NAME = 256  # Longer than any name of a model; it comes back in messages.


class ModelFields(pydantic.BaseModel):
    """Fields that can harm an engine; the engine judges all others.

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


class ModelRequest(ModelFields):
    """A request that names its model."""

    model: str = pydantic.Field(min_length=1, max_length=_LONGEST_NAME)


class SwitchRequest(pydantic.BaseModel):
    """The body of POST /switch."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    model: str = pydantic.Field(min_length=1, max_length=64)


def validate_fields(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Validate values. `GatewayRefusal` names each wrong key, and repeats no value."""
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        message = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'the body'}: {fault['msg']}"
            for fault in faults[:5]
        )
        raise GatewayRefusal(400, message, "json") from error


class JsonBody:
    """A JSON body: its text, and the members of its object.

    Raises:
        GatewayRefusal: It is not a JSON object, or has too many values.
    """

    def __init__(self, body: bytes) -> None:
        try:
            # Decode as Python's engines do, so that they parse the same text that was checked. .NET
            # and PowerShell put a byte order mark before it.
            self.text = body.decode(json.detect_encoding(body), "surrogatepass")
            self.members = json_value_replacement.top_level_members(self.text)
        except (json_value_replacement.TooMany, RecursionError) as error:
            message = (
                str(error) if isinstance(error, ValueError) else "the body is nested too deeply"
            )
            raise GatewayRefusal(400, message, TOO_MUCH) from error
        except ValueError as error:
            raise GatewayRefusal(400, "the body is no JSON object in UTF-8", "json") from error

    @property
    def body(self) -> bytes:
        """The encoded body."""
        return self.text.encode(errors="surrogatepass")

    def validate_fields(self, model: type[Model]) -> Model:
        """Validate the members. `GatewayRefusal` names each wrong key, and repeats no value."""
        return validate_fields(model, {key: member.value for key, member in self.members.items()})

    def body_for_model(
        self, model: str | None, path: str, shapes: Collection[Shape]
    ) -> tuple[bytes, list[Shape]]:
        """Return the body with another model's name and shapes evened out, all else unchanged.

        Args:
            model: The new name; None keeps the body's own.
            path: Path of the request, which determines the form of its conversation.
            shapes: Shapes to even out.

        Returns:
            The body, and the shapes that were found.
        """
        new: dict[str, Any] = {}
        evened_shapes: list[Shape] = []
        if model is not None and self.members["model"].value != model:
            new["model"] = model
        if shapes and path in refused_shape_repair.PATHS:
            values, evened_shapes = refused_shape_repair.rewrite_refused_shapes(
                path, self.members, shapes
            )
            new |= values
        try:
            text = json_value_replacement.replace_members(self.text, self.members, new)
            return text.encode(errors="surrogatepass"), evened_shapes
        except (ValueError, RecursionError) as error:
            # A text may end in the middle of a character, and a number may be infinite or NaN.
            raise GatewayRefusal(
                400, "the body has values that JSON has no form for", "json"
            ) from error
