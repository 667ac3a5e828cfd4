-- Question: how much of what sets policies apart is chance?
-- Reads: seed_decisions, seed_replicas
-- One row per policy: mean, standard deviation (null for one seed), least and most of its seeds
with outcomes as (
    select
        policy,
        seed,
        sum(matched_tokens) / nullif(
            sum(prompt_tokens) filter (where outcome = 'served'), 0
        ) as cache_hit_ratio,
        -- whole hundredths: a sum of floats depends on threads
        sum(cast(round(ttft_ms * 100) as bigint)) / 100 / nullif(
            count(ttft_ms), 0
        ) as mean_ttft_ms,
        quantile_cont(ttft_ms, 0.99) as p99_ttft_ms
    from seed_decisions
    group by
        policy,
        seed
),
loads as (
    select
        policy,
        seed,
        replica_id,
        sum(requests) as requests,
        sum(evicted_tokens) as evicted_tokens
    from seed_replicas
    group by
        policy,
        seed,
        replica_id
),
skew as (
    select
        policy,
        seed,
        cast(sum(evicted_tokens) as bigint) as evicted_tokens,
        max(requests) * count(*) / nullif(sum(requests), 0) as requests_max_over_mean
    from loads
    group by
        policy,
        seed
),
-- one list a policy, in order of seeds: floats added in any order differ
seeds as (
    select
        outcomes.policy,
        count(*) as seeds,
        list(outcomes.cache_hit_ratio order by outcomes.seed) as hit_ratios,
        list(outcomes.mean_ttft_ms order by outcomes.seed) as means_ms,
        list(outcomes.p99_ttft_ms order by outcomes.seed) as p99s_ms,
        list(coalesce(skew.evicted_tokens, 0) order by outcomes.seed) as evicted_tokens,
        list(skew.requests_max_over_mean order by outcomes.seed) as skews
    from outcomes
    left join skew
        on skew.policy = outcomes.policy
        and skew.seed = outcomes.seed
    group by outcomes.policy
)
select
    policy,
    seeds,
    round(list_avg(hit_ratios), 4) as mean_cache_hit_ratio,
    round(list_stddev_samp(hit_ratios), 4) as stddev_cache_hit_ratio,
    round(list_min(hit_ratios), 4) as min_cache_hit_ratio,
    round(list_max(hit_ratios), 4) as max_cache_hit_ratio,
    round(list_avg(means_ms), 2) as mean_mean_ttft_ms,
    round(list_stddev_samp(means_ms), 2) as stddev_mean_ttft_ms,
    round(list_min(means_ms), 2) as min_mean_ttft_ms,
    round(list_max(means_ms), 2) as max_mean_ttft_ms,
    round(list_avg(p99s_ms), 2) as mean_p99_ttft_ms,
    round(list_stddev_samp(p99s_ms), 2) as stddev_p99_ttft_ms,
    round(list_min(p99s_ms), 2) as min_p99_ttft_ms,
    round(list_max(p99s_ms), 2) as max_p99_ttft_ms,
    round(list_avg(evicted_tokens), 2) as mean_evicted_tokens,
    round(list_stddev_samp(evicted_tokens), 2) as stddev_evicted_tokens,
    list_min(evicted_tokens) as min_evicted_tokens,
    list_max(evicted_tokens) as max_evicted_tokens,
    round(list_avg(skews), 4) as mean_requests_max_over_mean,
    round(list_stddev_samp(skews), 4) as stddev_requests_max_over_mean,
    round(list_min(skews), 4) as min_requests_max_over_mean,
    round(list_max(skews), 4) as max_requests_max_over_mean
from seeds
order by policy;
