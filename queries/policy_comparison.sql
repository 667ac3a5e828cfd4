-- Question: which routing policy serves this trace best?
-- Reads: decisions, replicas
-- One row per policy
with outcomes as (
    select
        policy,
        count(*) as requests,
        count(*) filter (where outcome = 'served') as served,
        count(*) filter (where outcome = 'failed') as failed,
        sum(prompt_tokens) filter (where outcome = 'served') as prompt_tokens,
        sum(matched_tokens) as matched_tokens,
        sum(cold_tokens) as cold_tokens,
        sum(evicted_tokens_missed) as evicted_tokens_missed,
        sum(elsewhere_tokens) as elsewhere_tokens,
        sum(recomputed_tokens) as recomputed_tokens,
        -- whole hundredths: a sum of floats depends on threads
        sum(cast(round(ttft_ms * 100) as bigint)) / 100 as sum_ttft_ms,
        count(ttft_ms) as measured,
        quantile_cont(ttft_ms, 0.5) as p50_ttft_ms,
        quantile_cont(ttft_ms, 0.99) as p99_ttft_ms,
        max(ttft_ms) as max_ttft_ms
    from decisions
    group by policy
),
loads as (
    select
        policy,
        replica_id,
        sum(requests) as requests,
        sum(evicted_tokens) as evicted_tokens
    from replicas
    group by
        policy,
        replica_id
),
skew as (
    select
        policy,
        cast(sum(evicted_tokens) as bigint) as evicted_tokens,
        max(requests) * count(*) / nullif(sum(requests), 0) as requests_max_over_mean,
        count(*) filter (where requests = 0) as idle_replicas
    from loads
    group by policy
)
select
    outcomes.policy,
    outcomes.requests,
    outcomes.served,
    outcomes.requests - outcomes.served - outcomes.failed as rejected,
    outcomes.failed,
    round(outcomes.matched_tokens / nullif(outcomes.prompt_tokens, 0), 4) as cache_hit_ratio,
    round(outcomes.cold_tokens / nullif(outcomes.prompt_tokens, 0), 4) as cold_ratio,
    round(outcomes.evicted_tokens_missed / nullif(outcomes.prompt_tokens, 0), 4) as evicted_ratio,
    round(outcomes.elsewhere_tokens / nullif(outcomes.prompt_tokens, 0), 4) as elsewhere_ratio,
    round(outcomes.recomputed_tokens / nullif(outcomes.prompt_tokens, 0), 4) as recomputed_ratio,
    round(outcomes.sum_ttft_ms / nullif(outcomes.measured, 0), 2) as mean_ttft_ms,
    round(outcomes.p50_ttft_ms, 2) as p50_ttft_ms,
    round(outcomes.p99_ttft_ms, 2) as p99_ttft_ms,
    round(outcomes.max_ttft_ms, 2) as max_ttft_ms,
    coalesce(skew.evicted_tokens, 0) as evicted_tokens,
    round(skew.requests_max_over_mean, 4) as requests_max_over_mean,
    skew.idle_replicas
from outcomes
left join skew on skew.policy = outcomes.policy
order by outcomes.policy;
