-- Question: which requests waited longest for their first token, and why?
-- Reads: decisions
-- One row per policy and each of its 20 slowest requests
with ranked as (
    select
        policy,
        row_number() over (
            partition by policy
            order by
                ttft_ms desc,
                seq
        ) as position,
        seq,
        request_id,
        tenant,
        replica_id,
        prompt_tokens,
        matched_tokens,
        ttft_ms,
        queue_wait_ms,
        exec_ms,
        case greatest(cold_tokens, evicted_tokens_missed, elsewhere_tokens, recomputed_tokens)
            when 0 then 'none'
            when cold_tokens then 'cold'
            when evicted_tokens_missed then 'evicted'
            when elsewhere_tokens then 'elsewhere'
            when recomputed_tokens then 'recomputed'
        end as largest_miss_reason
    from decisions
    where ttft_ms is not null
)
select
    policy,
    position,
    seq,
    request_id,
    tenant,
    replica_id,
    prompt_tokens,
    matched_tokens,
    round(ttft_ms, 2) as ttft_ms,
    round(queue_wait_ms, 2) as queue_wait_ms,
    round(exec_ms, 2) as exec_ms,
    largest_miss_reason
from ranked
where position <= 20
order by
    policy,
    position;
