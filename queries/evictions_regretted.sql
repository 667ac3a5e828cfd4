-- Question: which evicted tokens were asked for again, and how soon: would more cache have helped?
-- Reads: evictions, replicas
-- One row per policy and time from the eviction to the next request for its tokens, 7 a policy
with fleets as (
    select distinct policy
    from replicas
),
waits(position, asked_again_within) as (
    values
        (1, '1 s'),
        (2, '10 s'),
        (3, '1 min'),
        (4, '10 min'),
        (5, '1 h'),
        (6, 'later'),
        (7, 'never')
),
placed as (
    select
        policy,
        case
            when asked_again_ms is null then 7
            when asked_again_ms <= 1e3 then 1
            when asked_again_ms <= 1e4 then 2
            when asked_again_ms <= 6e4 then 3
            when asked_again_ms <= 6e5 then 4
            when asked_again_ms <= 36e5 then 5
            else 6
        end as position,
        evicted_tokens,
        asked_again_tokens,
        asked_again_ms
    from evictions
    where cause = 'room'
),
counted as (
    select
        policy,
        position,
        count(*) as evictions,
        cast(sum(evicted_tokens) as bigint) as evicted_tokens,
        cast(sum(asked_again_tokens) as bigint) as asked_again_tokens,
        quantile_cont(asked_again_ms, 0.5) as p50_asked_again_ms
    from placed
    group by
        policy,
        position
),
all_waits as (
    select
        fleets.policy,
        waits.position,
        waits.asked_again_within,
        coalesce(counted.evictions, 0) as evictions,
        coalesce(counted.evicted_tokens, 0) as evicted_tokens,
        coalesce(counted.asked_again_tokens, 0) as asked_again_tokens,
        counted.p50_asked_again_ms
    from fleets
    cross join waits
    left join counted
        on counted.policy = fleets.policy
        and counted.position = waits.position
),
summed as (
    select
        *,
        sum(evicted_tokens) over (partition by policy) as policy_tokens,
        sum(asked_again_tokens) over (
            partition by policy
            order by position
        ) as asked_again_so_far
    from all_waits
)
select
    policy,
    asked_again_within,
    evictions,
    evicted_tokens,
    round(evicted_tokens / nullif(policy_tokens, 0), 4) as evicted_tokens_ratio,
    asked_again_tokens,
    round(asked_again_tokens / nullif(policy_tokens, 0), 4) as asked_again_tokens_ratio,
    -- of all evicted tokens, asked for again within this time or sooner
    round(asked_again_so_far / nullif(policy_tokens, 0), 4) as asked_again_so_far_ratio,
    round(p50_asked_again_ms, 2) as p50_asked_again_ms
from summed
order by
    policy,
    position;
