-- Question: how do hit ratio, evictions and queues change while the trace runs?
-- Reads: replicas
-- One row per policy and time window; window_start is in UTC
with windows as (
    select
        policy,
        window_start,
        cast(sum(requests) as bigint) as requests,
        cast(sum(prompt_tokens) as bigint) as prompt_tokens,
        cast(sum(matched_tokens) as bigint) as matched_tokens,
        cast(sum(evicted_tokens) as bigint) as evicted_tokens,
        cast(sum(resident_tokens) as bigint) as resident_tokens,
        max(max_queue_wait_ms) as max_queue_wait_ms
    from replicas
    group by
        policy,
        window_start
)
select
    policy,
    -- without a zone, so that no session's time zone changes what is shown
    make_timestamp(epoch_us(window_start)) as window_start,
    requests,
    prompt_tokens,
    round(matched_tokens / nullif(prompt_tokens, 0), 4) as cache_hit_ratio,
    evicted_tokens,
    resident_tokens,
    round(max_queue_wait_ms, 2) as max_queue_wait_ms
from windows
order by
    policy,
    window_start;
