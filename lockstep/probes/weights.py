"""State of every model that a host's specification names. Argument: {"spec": PATH}.

Answers as `weights_state.states` does; {} before that file is there.
"""

from __future__ import annotations

from typing import Any

from lockstep.onhost.weights import weights_spec, weights_state


def main(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        with open(asked["spec"], encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    return weights_state.states(weights_spec.parse(text))
