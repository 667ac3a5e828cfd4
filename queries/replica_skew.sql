-- Question: is the load spread over the fleet, or do a few replicas carry it while others idle?
-- Reads: replicas
-- One row per policy
with loads as (
    select
        policy,
        replica_id,
        cast(sum(requests) as bigint) as requests,
        cast(sum(prompt_tokens) as bigint) as prompt_tokens,
        cast(sum(computed_tokens) as bigint) as computed_tokens
    from replicas
    group by
        policy,
        replica_id
)
select
    policy,
    count(*) as replicas,
    count(*) filter (where requests = 0) as idle_replicas,
    coalesce(
        string_agg(cast(replica_id as varchar), ',' order by replica_id)
            filter (where requests = 0),
        ''
    ) as idle_replica_ids,
    max(requests) as max_requests,
    round(sum(requests) / count(*), 2) as mean_requests,
    min(requests) as min_requests,
    round(max(requests) * count(*) / nullif(sum(requests), 0), 4) as requests_max_over_mean,
    round(
        max(prompt_tokens) * count(*) / nullif(sum(prompt_tokens), 0), 4
    ) as prompt_tokens_max_over_mean,
    round(
        max(computed_tokens) * count(*) / nullif(sum(computed_tokens), 0), 4
    ) as computed_tokens_max_over_mean,
    round(max(requests) / nullif(sum(requests), 0), 4) as fullest_replica_requests_ratio
from loads
group by policy
order by policy;
