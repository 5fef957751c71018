"""Small programs that read a host's state: a deploy asks as many of them at once as it likes.

Each is a module with `main(question)`, which answers with a JSON document. Standard library only,
Python 3.11 or later, of Lockstep nothing but what is sent with it: the host may be wiped.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.files import sent


def document(questions: Mapping[str, object]) -> str:
    """What `sent.COMMAND` reads to ask probes at once; it answers as `together.take` does.

    Args:
        questions: Probe → question.
    """
    probes = (f"lockstep.probes.{name}" for name in questions)
    return sent.document("lockstep.probes.together", dict(questions), *probes)
