"""The programs on a Spark: `python3 /usr/local/lib/lockstep WORD [ARGUMENTS]`.

Each has a usage text of its own (`WORD --help`, or the docstring of its module).
"""

from __future__ import annotations

import runpy
import sys

#: Word on the command line → module of this package.
MODULES = {
    "apt-turn": "system.apt_turn",
    "cleanup": "garbage.cleanup",
    "cluster": "cluster.rank_gate",
    "cluster-agent": "cluster.agent",
    "end-engine": "engine.end_engine",
    "engine-build": "environment.engine_build",
    "engine-check": "environment.engine_check",
    "fabric": "system.fabric",
    "fetch-weights": "weights.fetch_weights",
    "firewall": "system.firewall",
    "floor": "rollout.speed_floor",
    "gate": "switching.gate",
    "generations": "records.generations",
    "image-answer": "images.image_answer",
    "image-check": "images.image_check",
    "job": "systemd.job",
    "make-secrets": "access.make_secrets",
    "peer-server": "fetch.peer_server",
    "pull-image": "images.pull_image",
    "ready": "engine.ready",
    "roles-proxy": "access.roles_proxy",
    "rollout": "rollout.rollout",
    "sharing": "fetch.sharing",
    "stop-container": "docker.stop_container",
    "switch": "operator.switch_sh",
    "webui-keys": "access.webui_keys",
    "wedge": "switching.wedge",
}


def main() -> int:
    """Run the program that the first argument names; 2 where there is none of that name."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word not in MODULES:
        print(f"usage: python3 /usr/local/lib/lockstep WORD ...\nwords: {', '.join(MODULES)}")
        return 0 if word in ("-h", "--help") else 2
    sys.argv[:2] = [f"lockstep {word}"]
    runpy.run_module(f"lockstep.onhost.{MODULES[word]}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
