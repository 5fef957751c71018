"""A form with files (multipart/form-data), as audio and pictures come: its fields, one replaced."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from email.message import Message
from email.parser import BytesHeaderParser
from typing import NamedTuple

from lockstep.onhost.core.kind import Shape
from lockstep.onhost.gateway.wire.answers import Refused
from lockstep.onhost.gateway.wire.incoming import Model, read

_PARTS = 1_000  # The largest form served here has about ten.
_HEAD = 8 * 1024  # Bytes of one part's headers.
_VALUE = 64 * 1024  # Bytes of a field that is read.


class _Field(NamedTuple):
    """One field without a file: its name, and where its value starts and ends."""

    name: str
    start: int
    end: int


class Form:
    """A request's body that is a form.

    Raises:
        Refused: it is broken, or has too many parts.
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
            said = f"the body is no form as its content-type says: {error}"
            raise Refused(400, said, "form") from error

    def read(self, model: type[Model]) -> Model:
        """What it asks, by its fields without a file; of several of a name the last counts."""
        texts = {
            field.name: self.body[field.start : field.end].decode("utf-8", "replace")
            for field in self._fields
            if field.end - field.start <= _VALUE
        }
        return read(model, texts)

    def rewritten(
        self, model: str | None, path: str, shapes: Collection[Shape]
    ) -> tuple[bytes, list[Shape]]:
        """The body with another model's name, every other byte as it was.

        Arguments and result are those of `Document.rewritten`; a form has no conversation.
        """
        if model is None:
            return self.body, []
        named = [field for field in self._fields if field.name == "model"]
        starts = [0, *(field.end for field in named)]
        ends = [*(field.start for field in named), len(self.body)]
        between = (self.body[start:end] for start, end in zip(starts, ends, strict=True))
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
