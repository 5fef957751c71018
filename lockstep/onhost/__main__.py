"""The programs on a Spark: `python3 /usr/local/lib/lockstep WORD [ARGUMENTS]`.

Each has a usage text of its own (`WORD --help`, or the docstring of its module).
"""

from __future__ import annotations

import gc
import importlib
import sys

from lockstep.onhost.core import errors, terminal_lines
from lockstep.onhost.engine import start_check_sigterm

#: Word on the command line → module of this package.
MODULES = {
    "alert-test": "monitoring.send_test_alert",
    "apt-turn": "system.apt_lock_wait",
    "backup": "backup.backup",
    "backup-key": "access.backup_ssh_key",
    "boot": "operator.boot_switch",
    "boots": "engine.exec_stop_post",
    "cleanup": "garbage.cleanup",
    "cluster": "cluster.lone_rank_refusal",
    "cluster-agent": "cluster.agent",
    "end-engine": "engine.exec_stop",
    "engine-build": "environment.engine_build",
    "engine-check": "environment.engine_check",
    "fabric": "system.link_netplan_trial",
    "fetch-weights": "weights.fetch_weights",
    "firewall": "system.firewall_trial",
    "minimum": "rollout.speed_check",
    "gate": "switching.start_gate",
    "gateway": "gateway.server",
    "gateway-keys": "gateway.keys_program",
    "gateway-switch": "gateway.privileged_switch",
    "generations": "records.generations",
    "guard-rank": "cluster.rank_memory_guard",
    "image-answer": "images.recipe_check_in_image",
    "image-check": "images.model_recipe_check",
    "job": "systemd.job_command",
    "make-authority": "access.certificate_authority",
    "make-secrets": "access.make_secrets",
    "memory-minimum": "switching.memory_watch",
    "metrics": "monitoring.metrics_writer",
    "netconsole": "monitoring.netconsole_sender",
    "packages": "records.package_changes",
    "peer-certificates": "access.peer_certificates",
    "peer-server": "fetch.peer_server",
    "pull-image": "images.pull_image",
    "ready": "engine.readiness",
    "rollout": "rollout.rollout",
    "sense": "switching.sense_check_of_hot_model",
    "sharing": "fetch.peer_sharing",
    "stop-container": "docker.stop_container",
    "switch": "operator.switch_sh",
    "webui": "webui.update",
    "wedge": "switching.wedge_watch",
}


#: Names of programs in their error messages, if not their word: people search the logs for them.
NAMES = {
    "backup": "lockstep backup",
    "cleanup": "lockstep gc",
    "cluster": "lockstep gate",
    "cluster-agent": "lockstep cluster",
    "switch": "switch.sh",
}
# Checks of a unit's start. `ready` waits for the signal by itself, once it knows which program ends
# the engine; until then the unit's command blocks the signal.
_EXIT_ON_SIGTERM = ("cluster", "gate")
# An engine's imports leave no garbage, and collecting costs a sixth of the processor time (6.4
# instead of 7.8 s: vLLM's CPU build, two cores, 2026-11-21).
_IMPORT_ENGINES = ("engine-check", "image-answer")


def main() -> int:
    """Run the program that the first argument names; return 2 for an unknown name."""
    word, argv = "".join(sys.argv[1:2]), sys.argv[2:]
    if word not in MODULES:
        print(f"usage: python3 /usr/local/lib/lockstep WORD ...\nwords: {', '.join(MODULES)}")
        return 0 if word in ("-h", "--help") else 2
    sys.argv[:2] = [f"lockstep {word}"]
    if word in _EXIT_ON_SIGTERM:
        start_check_sigterm.exit_check_on_sigterm()
    if word in _IMPORT_ENGINES:
        gc.disable()
    program = importlib.import_module(f"lockstep.onhost.{MODULES[word]}")
    # Programs that watch the worker fold its lines themselves.
    is_folded = word == "switch" and not {"--worker", "--finish"} & set(argv)
    shape = terminal_lines.fold_text if is_folded else str
    return errors.run_main(NAMES.get(word, f"lockstep {word}"), lambda: program.main(argv), shape)


if __name__ == "__main__":
    sys.exit(main())
