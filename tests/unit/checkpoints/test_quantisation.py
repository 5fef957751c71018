"""One word for each way in which checkpoints and recipes say that weights are stored."""

from lockstep.checkpoints.quantisation import scheme_of


def test_what_is_said_is_one_word() -> None:
    for text, scheme in (
        ("modelopt NVFP4", "nvfp4"),
        ("compressed-tensors float-quantized", "fp8"),
        ("compressed-tensors pack-quantized", "int4"),
        ("AutoRound W4A16", "int4"),
        ("bfloat16", "none"),
        ("unheard of", ""),
    ):
        assert scheme_of(text) == scheme
