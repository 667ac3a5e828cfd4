-- Question: what did each replica do, and what does it hold at the end?
-- Reads: replicas
-- One row per policy and replica, idle replicas too
with loads as (
    select
        policy,
        replica_id,
        cast(sum(requests) as bigint) as requests,
        cast(sum(prompt_tokens) as bigint) as prompt_tokens,
        cast(sum(matched_tokens) as bigint) as matched_tokens,
        cast(sum(computed_tokens) as bigint) as computed_tokens,
        cast(sum(evicted_tokens) as bigint) as evicted_tokens,
        max(max_queue_wait_ms) as max_queue_wait_ms,
        cast(arg_max(resident_tokens, window_start) as bigint) as resident_tokens
    from replicas
    group by
        policy,
        replica_id
)
select
    policy,
    replica_id,
    requests,
    prompt_tokens,
    matched_tokens,
    computed_tokens,
    evicted_tokens,
    round(matched_tokens / nullif(prompt_tokens, 0), 4) as cache_hit_ratio,
    round(max_queue_wait_ms, 2) as max_queue_wait_ms,
    resident_tokens
from loads
order by
    policy,
    replica_id;
