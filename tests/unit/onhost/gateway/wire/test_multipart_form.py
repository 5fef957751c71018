"""A form with a file: its fields, its model replaced, and every other byte as it was."""

import pytest

from lockstep.onhost.gateway.wire import engine_crash_limits
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal
from lockstep.onhost.gateway.wire.multipart_form import MultipartForm
from lockstep.onhost.gateway.wire.request_fields import ModelRequest

KIND = 'multipart/form-data; charset=utf-8; boundary="b--x"'
_FILE = b'Content-Disposition: form-data; name="model"; filename="a.wav"\r\ncontent-type: audio/wav'
SOUND = (_FILE, bytes(range(256)) * 300 + b"\r\n--b-\r\n\r\n")


def form(*parts: tuple[bytes, bytes]) -> bytes:
    """A body, of heads and contents."""
    inside = b"".join(b"--b--x\r\n%b\r\n\r\n%b\r\n" % part for part in parts)
    return inside + b"--b--x--\r\n"


def field(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    return b'Content-Disposition: form-data; name="%b"' % name, value


@pytest.mark.parametrize("preamble", [b"", b"once upon a time\r\n"])
@pytest.mark.parametrize("first", [True, False])
def test_the_model_is_read_and_replaced_wherever_it_stands(first, preamble):
    def form_of(model: bytes) -> bytes:
        # Of several the last counts, and each is replaced: engines may read another one.
        parts = [SOUND, field(b"model", model), field(b"model", model)]
        return preamble + form(*(parts if first else parts[::-1]), field(b"prompt", b"model"))

    model_form = MultipartForm(KIND, form_of(b"coder"))
    model_question = model_form.validate_fields(ModelRequest)
    assert (model_question.model, model_question.prompt) == ("coder", "model")
    assert model_form.body_for_model("Qwen/Q", "/", ()) == (form_of(b"Qwen/Q"), [])
    assert model_form.body_for_model(None, "/", ())[0] == model_form.body == form_of(b"coder")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (form(field(b"prompt", b"a")), "model: Field required"),
        (form(SOUND), "model: Field required"),
        (form(field(b"model", b"")), "model: String should have at least 1"),
        (form(field(b"model", b"m"), field(b"n", b"1000000")), "n must be 1 to 128"),
        (form(field(b"model", b"m"))[:-9], "a part does not end"),
        (form((b"x: " + b"y" * 9000, b"")), "a part does not end"),
        (form(*[field(b"a", b"")] * 1001), "more than 1,000 parts"),
        (b"sound", "it does not begin"),
        (b"", "it does not begin"),
    ],
)
def test_a_form_is_judged_as_any_body(body, words):
    with pytest.raises(GatewayRefusal, match=words) as error:
        engine_crash_limits.refuse_dangerous_fields(
            MultipartForm(KIND, body).validate_fields(ModelRequest)
        )
    assert error.value.status == 400
    with pytest.raises(GatewayRefusal, match="no boundary"):
        MultipartForm("multipart/form-data", body)
