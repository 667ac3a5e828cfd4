-- Question: does a policy pile requests up on a replica, and which one?
-- Reads: decisions, replicas
-- One row per policy; finding says what is wrong, '' if nothing is
with fleet as (
    select distinct
        policy,
        replica_id
    from replicas
),
served as (
    select
        policy,
        seq,
        replica_id,
        prompt_tokens,
        best_matched_tokens = 0 as is_cold
    from decisions
    where outcome = 'served'
),
loads as (
    select
        fleet.policy,
        fleet.replica_id,
        count(served.seq) as requests,
        cast(coalesce(sum(served.prompt_tokens), 0) as bigint) as prompt_tokens,
        count(*) filter (where served.is_cold) as cold_requests
    from fleet
    left join served
        on served.policy = fleet.policy
        and served.replica_id = fleet.replica_id
    group by
        fleet.policy,
        fleet.replica_id
),
fullest as (
    select
        policy,
        count(*) as replicas,
        count(*) filter (where requests = 0) as idle_replicas,
        coalesce(
            string_agg(cast(replica_id as varchar), ',' order by replica_id)
                filter (where requests = 0),
            ''
        ) as idle_replica_ids,
        cast(sum(requests) as bigint) as requests,
        max(requests) as max_requests,
        cast(sum(prompt_tokens) as bigint) as prompt_tokens,
        max(prompt_tokens) as max_prompt_tokens,
        cast(sum(cold_requests) as bigint) as cold_requests,
        max(cold_requests) as max_cold_requests,
        -- of equals the lowest
        first(replica_id order by requests desc, replica_id) as by_requests,
        first(replica_id order by prompt_tokens desc, replica_id) as by_prompt_tokens,
        first(replica_id order by cold_requests desc, replica_id) as by_cold_requests
    from loads
    group by policy
),
-- requests in a row to one replica are equally far behind in both counts
counted as (
    select
        policy,
        seq,
        replica_id,
        row_number() over (
            partition by policy
            order by seq
        ) - row_number() over (
            partition by policy, replica_id
            order by seq
        ) as run
    from served
),
runs as (
    select
        policy,
        replica_id,
        count(*) as requests,
        min(seq) as first_seq
    from counted
    group by
        policy,
        replica_id,
        run
),
longest as (
    select *
    from runs
    qualify
        row_number() over (
            partition by policy
            order by
                requests desc,
                first_seq
        ) = 1
),
shares as (
    select
        fullest.*,
        longest.replica_id as run_replica_id,
        coalesce(longest.requests, 0) as run_requests,
        longest.first_seq as run_first_seq,
        max_requests / nullif(fullest.requests, 0) as requests_share,
        max_prompt_tokens / nullif(prompt_tokens, 0) as prompt_tokens_share,
        max_cold_requests / nullif(cold_requests, 0) as cold_share,
        -- twice a fair share; of two replicas none can get more than that
        case when replicas > 1 then least(2 / replicas, 0.9) end as too_much
    from fullest
    left join longest on longest.policy = fullest.policy
),
-- less than 8 requests lie somewhere by chance
findings as (
    select
        *,
        case
            when cold_requests >= 8 and cold_share > too_much
                then format(
                    'cold pile-up: replica {} got {} of {} cold requests',
                    by_cold_requests,
                    max_cold_requests,
                    cold_requests
                )
        end as cold_pile_up,
        case
            when requests >= 8 and prompt_tokens_share > too_much
                then format(
                    'hot spot: replica {} got {:.1f} % of prompt tokens of {} replicas',
                    by_prompt_tokens,
                    prompt_tokens_share * 100,
                    replicas
                )
            when requests >= 8 and requests_share > too_much
                then format(
                    'hot spot: replica {} got {:.1f} % of requests of {} replicas',
                    by_requests,
                    requests_share * 100,
                    replicas
                )
        end as hot_spot
    from shares
)
select
    policy,
    concat_ws(
        '; ',
        cold_pile_up,
        hot_spot,
        case
            when coalesce(cold_pile_up, hot_spot) is not null and idle_replicas > 0
                then format('{} of {} replicas idle', idle_replicas, replicas)
        end
    ) as finding,
    replicas,
    idle_replicas,
    idle_replica_ids,
    requests,
    case when requests > 0 then by_requests end as fullest_replica_id,
    round(requests_share, 4) as fullest_requests_ratio,
    round(max_requests * replicas / nullif(requests, 0), 4) as requests_max_over_mean,
    case when prompt_tokens > 0 then by_prompt_tokens end as most_tokens_replica_id,
    round(prompt_tokens_share, 4) as most_tokens_ratio,
    run_replica_id as longest_run_replica_id,
    run_requests as longest_run_requests,
    run_first_seq as longest_run_first_seq,
    cold_requests,
    case when cold_requests > 0 then by_cold_requests end as most_cold_replica_id,
    max_cold_requests as most_cold_requests,
    round(cold_share, 4) as most_cold_ratio
from findings
order by policy;
