-- Question: how long had evicted tokens not been used: how long does the cache keep a prefix?
-- Reads: evictions, replicas
-- One row per policy; of evicted tokens, 10 % were at most p10 old, half of them p50, and so on
with fleets as (
    select distinct policy
    from replicas
),
ages as (
    select
        policy,
        'ms' as unit,
        age_ms as age,
        evicted_tokens
    from evictions
    where cause = 'room'
    union all
    select
        policy,
        'requests' as unit,
        cast(age_requests as double) as age,
        evicted_tokens
    from evictions
    where cause = 'room'
),
-- tokens, not evictions: leaves differ in size
tokens_by_age as (
    select
        policy,
        unit,
        age,
        sum(evicted_tokens) as tokens
    from ages
    group by
        policy,
        unit,
        age
),
so_far as (
    select
        policy,
        unit,
        age,
        sum(tokens) over (
            partition by policy, unit
            order by age
        ) as tokens,
        sum(tokens) over (partition by policy, unit) as all_tokens
    from tokens_by_age
),
shares as (
    select
        policy,
        unit,
        min(age) filter (where tokens * 10 >= all_tokens) as p10,
        min(age) filter (where tokens * 2 >= all_tokens) as p50,
        min(age) filter (where tokens * 10 >= all_tokens * 9) as p90,
        min(age) filter (where tokens * 100 >= all_tokens * 99) as p99
    from so_far
    group by
        policy,
        unit
),
counts as (
    select
        policy,
        count(*) as evictions,
        cast(sum(evicted_tokens) as bigint) as evicted_tokens,
        cast(sum(evicted_nodes) as bigint) as evicted_nodes
    from evictions
    where cause = 'room'
    group by policy
)
select
    fleets.policy,
    coalesce(counts.evictions, 0) as evictions,
    coalesce(counts.evicted_tokens, 0) as evicted_tokens,
    coalesce(counts.evicted_nodes, 0) as evicted_nodes,
    round(in_ms.p10, 2) as p10_age_ms,
    round(in_ms.p50, 2) as p50_age_ms,
    round(in_ms.p90, 2) as p90_age_ms,
    round(in_ms.p99, 2) as p99_age_ms,
    cast(in_requests.p10 as ubigint) as p10_age_requests,
    cast(in_requests.p50 as ubigint) as p50_age_requests,
    cast(in_requests.p90 as ubigint) as p90_age_requests,
    cast(in_requests.p99 as ubigint) as p99_age_requests
from fleets
left join counts on counts.policy = fleets.policy
left join shares as in_ms
    on in_ms.policy = fleets.policy
    and in_ms.unit = 'ms'
left join shares as in_requests
    on in_requests.policy = fleets.policy
    and in_requests.unit = 'requests'
order by fleets.policy;
