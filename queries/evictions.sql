-- Question: what did each replica evict for room, how old was it, and was it asked for again?
-- Reads: evictions, replicas
-- One row per policy and replica, replicas without evictions too
with fleet as (
    select distinct
        policy,
        replica_id
    from replicas
),
lost as (
    select
        policy,
        replica_id,
        count(*) as evictions,
        cast(sum(evicted_tokens) as bigint) as evicted_tokens,
        quantile_cont(age_ms, 0.5) as median_age_ms,
        quantile_cont(cast(age_requests as double), 0.5) as median_age_requests,
        count(asked_again_seq) as asked_again,
        cast(sum(asked_again_tokens) as bigint) as asked_again_tokens
    from evictions
    where cause = 'room'
    group by
        policy,
        replica_id
),
restarts as (
    select
        policy,
        replica_id,
        cast(sum(evicted_tokens) as bigint) as restart_tokens
    from evictions
    where cause = 'restart'
    group by
        policy,
        replica_id
)
select
    fleet.policy,
    fleet.replica_id,
    coalesce(lost.evictions, 0) as evictions,
    coalesce(lost.evicted_tokens, 0) as evicted_tokens,
    round(lost.median_age_ms, 2) as median_age_ms,
    round(lost.median_age_requests, 2) as median_age_requests,
    coalesce(lost.asked_again, 0) as asked_again,
    round(lost.asked_again / nullif(lost.evictions, 0), 4) as asked_again_ratio,
    coalesce(lost.asked_again_tokens, 0) as asked_again_tokens,
    coalesce(restarts.restart_tokens, 0) as restart_tokens
from fleet
left join lost
    on lost.policy = fleet.policy
    and lost.replica_id = fleet.replica_id
left join restarts
    on restarts.policy = fleet.policy
    and restarts.replica_id = fleet.replica_id
order by
    fleet.policy,
    fleet.replica_id;
