"""Several Sparks that serve one model together.

A switch: `switch_transaction` runs on the host that gets the request. `switch_participants` decides
which members take part, with `launch_check`, and `switch_member_calls` asks them. On each of them
`agent` answers, over the wire (`member_client`, `member_server`): `participant` does the member's
part, `long_work` reports it, and `run_records` keeps what must outlive a restart of the agent.
`lone_rank_refusal` lets no rank start alone. Afterwards `run_watch` looks after the cluster,
`restart_after_fault` starts it again, and `cluster_status` shows its state.
"""
