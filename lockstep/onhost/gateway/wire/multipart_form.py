"""Multipart forms with files (multipart/form-data), as for audio and pictures."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from email.message import Message
from email.parser import BytesHeaderParser
from typing import NamedTuple

from lockstep.onhost.core.request_kinds_and_refused_shapes import Shape
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal
from lockstep.onhost.gateway.wire.request_fields import Model, validate_fields

_PARTS = 1_000  # The largest form served here has about ten.
_HEAD = 8 * 1024  # Bytes of one part's headers.
_VALUE = 64 * 1024  # Bytes of a field that is parsed.


class _Field(NamedTuple):
    """One field without a file: its name, and the start and end of its value."""

    name: str
    start: int
    end: int


class MultipartForm:
    """A request's body that is a form.

    Raises:
        GatewayRefusal: It is broken, or has too many parts.
    """

    def __init__(self, content_type: str, body: bytes) -> None:
        self.body = body
        head = Message()
        head["content-type"] = content_type
        boundary = head.get_boundary()
        try:
            if not boundary:
                raise ValueError("no boundary")
            self._fields = list(_fields(body, b"--" + boundary.encode("latin-1")))
        except ValueError as error:
            message = f"the body is no form as its content-type says: {error}"
            raise GatewayRefusal(400, message, "form") from error

    def validate_fields(self, model: type[Model]) -> Model:
        """Parse the fields without a file; of several fields of one name the last counts."""
        texts = {
            field.name: self.body[field.start : field.end].decode("utf-8", "replace")
            for field in self._fields
            if field.end - field.start <= _VALUE
        }
        return validate_fields(model, texts)

    def body_for_model(
        self, model: str | None, path: str, shapes: Collection[Shape]
    ) -> tuple[bytes, list[Shape]]:
        """Return the body with another model's name, every other byte unchanged.

        Arguments and result are those of `JsonBody.body_for_model`; a form has no conversation.
        """
        if model is None:
            return self.body, []
        model_fields = [field for field in self._fields if field.name == "model"]
        starts = [0, *(field.end for field in model_fields)]
        ends = [*(field.start for field in model_fields), len(self.body)]
        # Views: a copy of each part would hold a recording three times.
        view = memoryview(self.body)
        between = (view[start:end] for start, end in zip(starts, ends, strict=True))
        return model.encode().join(between), []


def _fields(body: bytes, delimiter: bytes) -> Iterator[_Field]:
    at = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    if at == 1:
        raise ValueError("it does not begin")
    for _ in range(_PARTS):
        at += len(delimiter)
        if body.startswith(b"--", at):
            return
        start = body.find(b"\r\n\r\n", at, at + _HEAD)
        end = body.find(b"\r\n" + delimiter, start + 2)
        if start < 0 or end < 0:
            raise ValueError("a part does not end")
        head = BytesHeaderParser().parsebytes(body[at + 2 : start + 2])
        name = head.get_param("name", header="content-disposition")
        if isinstance(name, str) and head.get_filename() is None:
            yield _Field(name, start + 4, end)
        at = end + 2
    raise ValueError(f"it has more than {_PARTS:,} parts")
