-- Question: which rule of a policy decided, and how did the requests fare that each one sent?
-- Reads: decisions
-- One row per policy and rule that it went by, of the requests that were served
with rules as (
    select
        policy,
        decided_by,
        count(*) as requests,
        sum(count(*)) over (partition by policy) as policy_requests,
        sum(prompt_tokens) as prompt_tokens,
        sum(matched_tokens) as matched_tokens,
        -- whole hundredths: a sum of floats depends on threads
        sum(cast(round(ttft_ms * 100) as bigint)) / 100 as sum_ttft_ms,
        count(ttft_ms) as measured
    from decisions
    where outcome = 'served'
    group by
        policy,
        decided_by
)
select
    policy,
    decided_by,
    requests,
    round(requests / policy_requests, 4) as requests_ratio,
    round(matched_tokens / nullif(prompt_tokens, 0), 4) as cache_hit_ratio,
    round(sum_ttft_ms / nullif(measured, 0), 2) as mean_ttft_ms
from rules
order by
    policy,
    requests desc,
    decided_by nulls last;
