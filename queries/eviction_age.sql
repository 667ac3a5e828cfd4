-- Question: how long had evicted tokens not been used: how long does the cache keep a prefix?
-- Reads: evictions, replicas
-- One row per policy; of evicted tokens, 10 % were at most p10 old, half of them p50, and so on
with fleets as (
    select distinct policy
    from replicas
),
-- tokens, not evictions: leaves differ in size
times as (
    select
        policy,
        age_ms,
        sum(evicted_tokens) as tokens
    from evictions
    group by
        policy,
        age_ms
),
times_so_far as (
    select
        policy,
        age_ms,
        sum(tokens) over (
            partition by policy
            order by age_ms
        ) as tokens,
        sum(tokens) over (partition by policy) as policy_tokens
    from times
),
ages_ms as (
    select
        policy,
        min(age_ms) filter (where tokens * 10 >= policy_tokens) as p10,
        min(age_ms) filter (where tokens * 2 >= policy_tokens) as p50,
        min(age_ms) filter (where tokens * 10 >= policy_tokens * 9) as p90,
        min(age_ms) filter (where tokens * 100 >= policy_tokens * 99) as p99
    from times_so_far
    group by policy
),
requests as (
    select
        policy,
        age_requests,
        sum(evicted_tokens) as tokens
    from evictions
    group by
        policy,
        age_requests
),
requests_so_far as (
    select
        policy,
        age_requests,
        sum(tokens) over (
            partition by policy
            order by age_requests
        ) as tokens,
        sum(tokens) over (partition by policy) as policy_tokens
    from requests
),
ages_requests as (
    select
        policy,
        min(age_requests) filter (where tokens * 10 >= policy_tokens) as p10,
        min(age_requests) filter (where tokens * 2 >= policy_tokens) as p50,
        min(age_requests) filter (where tokens * 10 >= policy_tokens * 9) as p90,
        min(age_requests) filter (where tokens * 100 >= policy_tokens * 99) as p99
    from requests_so_far
    group by policy
),
counts as (
    select
        policy,
        count(*) as evictions,
        cast(sum(evicted_tokens) as bigint) as evicted_tokens,
        cast(sum(evicted_nodes) as bigint) as evicted_nodes
    from evictions
    group by policy
)
select
    fleets.policy,
    coalesce(counts.evictions, 0) as evictions,
    coalesce(counts.evicted_tokens, 0) as evicted_tokens,
    coalesce(counts.evicted_nodes, 0) as evicted_nodes,
    round(ages_ms.p10, 2) as p10_age_ms,
    round(ages_ms.p50, 2) as p50_age_ms,
    round(ages_ms.p90, 2) as p90_age_ms,
    round(ages_ms.p99, 2) as p99_age_ms,
    ages_requests.p10 as p10_age_requests,
    ages_requests.p50 as p50_age_requests,
    ages_requests.p90 as p90_age_requests,
    ages_requests.p99 as p99_age_requests
from fleets
left join counts on counts.policy = fleets.policy
left join ages_ms on ages_ms.policy = fleets.policy
left join ages_requests on ages_requests.policy = fleets.policy
order by fleets.policy;
