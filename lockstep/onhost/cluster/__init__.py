"""Several Sparks that serve one model together.

A switch: `coordinator` runs on the host where it is asked for. `planner` says who has a part in it,
with `launch_check`; `members` asks them. On each of them `agent` answers, over the wire (`seal`,
`wire_client`, `wire_server`): `participant` does the member's part, `progress` tells how far it is,
and `runs` keeps what a restart of the agent must not forget. `rank_gate` lets no rank start alone.

Afterwards `watch` looks after the group, `recovery` starts it again, and `cluster_status` shows how
it stands. `cluster_rollout` is a member's part of a deploy.
"""
