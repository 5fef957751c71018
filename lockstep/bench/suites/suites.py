"""Every suite by its name."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.bench.run import Suite
from lockstep.bench.speed import concurrency, decode, prefill, speculation
from lockstep.bench.suites.coding import coding
from lockstep.bench.suites.sense import sense
from lockstep.bench.suites.thinking import thinking
from lockstep.bench.suites.tools import tools
from lockstep.bench.suites.vision import vision

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("decode", decode, warm=True),
        Suite("prefill", prefill, warm=True),
        Suite("concurrency", concurrency, warm=True),
        Suite("speculation", speculation, warm=True),
        Suite("sense", sense),
        Suite("tools", tools),
        Suite("coding", coding),
        Suite("vision", vision),
        Suite("thinking", thinking),
    )
}
