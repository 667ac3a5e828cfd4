-- Question: which tenants send the prompts, and how well does the fleet serve each of them?
-- Reads: decisions
-- One row per policy and tenant; requests without a tenant are one row with tenant null
with tenants as (
    select
        policy,
        tenant,
        count(*) as requests,
        count(*) filter (where outcome <> 'served') as rejected,
        cast(
            coalesce(sum(prompt_tokens) filter (where outcome = 'served'), 0) as bigint
        ) as prompt_tokens,
        sum(sum(prompt_tokens) filter (where outcome = 'served')) over (
            partition by policy
        ) as policy_prompt_tokens,
        sum(matched_tokens) as matched_tokens,
        sum(cold_tokens) as cold_tokens,
        sum(evicted_tokens_missed) as evicted_tokens_missed,
        sum(elsewhere_tokens) as elsewhere_tokens,
        sum(recomputed_tokens) as recomputed_tokens,
        -- whole hundredths: a sum of floats depends on threads
        sum(cast(round(ttft_ms * 100) as bigint)) / 100 as sum_ttft_ms,
        count(ttft_ms) as measured,
        quantile_cont(ttft_ms, 0.99) as p99_ttft_ms
    from decisions
    group by
        policy,
        tenant
)
select
    policy,
    tenant,
    requests,
    rejected,
    prompt_tokens,
    round(prompt_tokens / nullif(policy_prompt_tokens, 0), 4) as prompt_tokens_ratio,
    round(matched_tokens / nullif(prompt_tokens, 0), 4) as cache_hit_ratio,
    round(sum_ttft_ms / nullif(measured, 0), 2) as mean_ttft_ms,
    round(p99_ttft_ms, 2) as p99_ttft_ms,
    round(cold_tokens / nullif(prompt_tokens, 0), 4) as cold_ratio,
    round(evicted_tokens_missed / nullif(prompt_tokens, 0), 4) as evicted_ratio,
    round(elsewhere_tokens / nullif(prompt_tokens, 0), 4) as elsewhere_ratio,
    round(recomputed_tokens / nullif(prompt_tokens, 0), 4) as recomputed_ratio
from tenants
order by
    policy,
    prompt_tokens desc,
    tenant nulls last;
