"""What a model is asked for: answers, vectors, or an order of texts."""

from typing import Literal

Kind = Literal["chat", "embedding", "rerank"]
