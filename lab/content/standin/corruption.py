"""Nonsense as corrupt engines write it: fast, healthy and wrong.

Each corruption was reported of a real engine, or is the nearest that a stand-in can do.
"""

from __future__ import annotations

import zlib

#: Name → effect on an answer.
CORRUPTIONS = {
    "salad": "words without any order",
    "one-token": "one token until the limit",
    "spliced": "each 750th token of all answers is a foreign one",
    "nan": "log-probabilities are no numbers",
    "empty-call": "a tool call without name and arguments",
    "broken-call": "a tool call whose arguments are no JSON",
    "call-as-text": "a tool call that no parser took out of the text",
    "under-load": "salad as long as another request runs",
    "swapped": "as long as another request runs, the other one's answer",
    "truncated": "half of the answer, as if it were whole",
    "repeated": "one phrase until the limit",
    "other-script": "letters and digits of other scripts",
    "one-letter": "one letter of the answer is another one",
    "empty": "no text, although tokens are counted",
}
#: Corruptions that replace every token.
ENDLESS = {"one-token": ("!",), "repeated": ("as ", "an ", "assistant ", "I ")}
SPLICED_AT = 750
_SALAD = ("Lore", "zijn", " the", "(((", "ucha", " }\n", "quet", " of", "ização", "##", "Ort", "7")
_CHANGED = 36


def token(name: str, number: int, text: str, total: int, alone: bool) -> str:
    """The token that takes the place of the right one.

    Args:
        name: Name of the corruption.
        number: Place of the token in its answer, from 0.
        text: The right token.
        total: Tokens of answers, without thoughts, that the engine has generated with this one.
        alone: True when no other request runs.
    """
    if name in ENDLESS:
        words = ENDLESS[name]
        return words[number % len(words)]
    if name == "salad" or (name == "under-load" and not alone):
        return _SALAD[zlib.crc32(f"{total} {number}".encode()) % len(_SALAD)]
    if name == "spliced" and total % SPLICED_AT == 0:
        return "banana"
    if name == "other-script":
        return text.translate(_LOOKALIKES)
    if name == "one-letter" and number == _CHANGED:
        return text[:-1] + ("7" if text.endswith("3") else "3")
    return "" if name == "empty" else text


_LOOKALIKES = str.maketrans("ABCEHKMOPTX0123456789", "АВСЕНКМОРТХ٠١٢٣٤٥٦٧٨٩")
