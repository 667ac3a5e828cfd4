-- Question: how much of the prompt work did the caches save, and how much could any cache save?
-- Reads: decisions
-- One row per policy
with asked as (
    select
        policy,
        outcome,
        case when outcome = 'served' then prompt_tokens end as prompt_tokens,
        matched_tokens,
        cold_tokens,
        matched_tokens / nullif(prompt_tokens, 0) as hit_ratio
    from decisions
),
totals as (
    select
        policy,
        count(*) as requests,
        count(*) filter (where outcome = 'served') as served,
        cast(coalesce(sum(prompt_tokens), 0) as bigint) as prompt_tokens,
        cast(coalesce(sum(matched_tokens), 0) as bigint) as matched_tokens,
        cast(coalesce(sum(cold_tokens), 0) as bigint) as cold_tokens,
        -- whole billionths: a sum of floats depends on threads
        sum(cast(round(hit_ratio * 1e9) as bigint)) / 1e9 as sum_hit_ratio,
        count(*) filter (where hit_ratio > 0) as requests_with_hit,
        count(hit_ratio) as requests_with_prompt
    from asked
    group by policy
)
select
    policy,
    requests,
    served,
    requests - served as rejected,
    prompt_tokens,
    matched_tokens,
    round(matched_tokens / nullif(prompt_tokens, 0), 4) as cache_hit_ratio,
    round(sum_hit_ratio / nullif(requests_with_prompt, 0), 4) as mean_request_hit_ratio,
    round(requests_with_hit / nullif(requests_with_prompt, 0), 4) as requests_with_hit_ratio,
    round((prompt_tokens - cold_tokens) / nullif(prompt_tokens, 0), 4) as unlimited_hit_ratio
from totals
order by policy;
