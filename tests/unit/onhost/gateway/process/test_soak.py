"""Clients of two gateways at once, faults among their requests; a longer one runs in the lab."""

from __future__ import annotations

import os
from pathlib import Path

import gateway_process
import gateway_site
import pytest
from gateway_proof import Proof


@pytest.mark.slow
def test_each_request_is_answered_by_its_model_or_refused_with_a_reason(tmp_path: Path) -> None:
    requests = int(os.environ.get("LOCKSTEP_SOAK_REQUESTS", "80"))
    seed = int(os.environ.get("LOCKSTEP_SOAK_SEED", "1"))
    faults = max(6, requests * 30 // 1000)
    settings = {"swap_on_request": True, "least_hot_s": 0.2, "keepalive_s": 0.3}
    with gateway_site.two(tmp_path, **settings) as sites:
        doors = [site.spark.door("open") for site in sites]
        addresses = {
            site.name: (door.address, door.port) for site, door in zip(sites, doors, strict=True)
        }
        given = list(gateway_process.KEYS.values())
        proof = Proof(addresses, given, gateway_site.ENGINES, seed, grace_s=1.0)
        proof.run(requests, faults, gateway_site.thrower(sites, proof, seed, faults))
    print(proof.report(), f"switches      {[site.switches for site in sites]}", sep="\n")
    assert proof.violations == []
    outcomes = [one.outcome for one in proof.asked]
    assert outcomes.count("answered") > requests // 2
    assert "refused" in outcomes
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert "Traceback" not in logs
    assert not [key for key in given if key in logs]
