-- Question: why were prompt tokens computed: new, evicted, on another replica, or once more?
-- Reads: decisions
-- One row per policy
with misses as (
    select
        policy,
        count(*) filter (where outcome = 'served') as served,
        cast(
            coalesce(sum(prompt_tokens) filter (where outcome = 'served'), 0) as bigint
        ) as prompt_tokens,
        cast(coalesce(sum(computed_tokens), 0) as bigint) as computed_tokens,
        cast(coalesce(sum(cold_tokens), 0) as bigint) as cold_tokens,
        cast(coalesce(sum(evicted_tokens_missed), 0) as bigint) as evicted_tokens_missed,
        cast(coalesce(sum(elsewhere_tokens), 0) as bigint) as elsewhere_tokens,
        cast(coalesce(sum(recomputed_tokens), 0) as bigint) as recomputed_tokens,
        count(*) filter (where cold_tokens > 0) as cold_requests,
        count(*) filter (where evicted_tokens_missed > 0) as evicted_requests,
        count(*) filter (where elsewhere_tokens > 0) as elsewhere_requests,
        count(*) filter (where recomputed_tokens > 0) as recomputed_requests
    from decisions
    group by policy
)
select
    policy,
    served,
    prompt_tokens,
    computed_tokens,
    cold_tokens,
    evicted_tokens_missed,
    elsewhere_tokens,
    recomputed_tokens,
    round(computed_tokens / nullif(prompt_tokens, 0), 4) as computed_ratio,
    round(cold_tokens / nullif(prompt_tokens, 0), 4) as cold_ratio,
    round(evicted_tokens_missed / nullif(prompt_tokens, 0), 4) as evicted_ratio,
    round(elsewhere_tokens / nullif(prompt_tokens, 0), 4) as elsewhere_ratio,
    round(recomputed_tokens / nullif(prompt_tokens, 0), 4) as recomputed_ratio,
    cold_requests,
    evicted_requests,
    elsewhere_requests,
    recomputed_requests
from misses
order by policy;
