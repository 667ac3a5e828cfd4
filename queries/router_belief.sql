-- Question: how far was what the router believed of the caches from what was there?
-- Reads: decisions
-- One row per policy that looks up what replicas hold
with beliefs as (
    select
        policy,
        cast(prompt_tokens as bigint) as prompt_tokens,
        cast(matched_tokens as bigint) as matched_tokens,
        cast(believed_matched_tokens as bigint) as believed_tokens,
        cast(believed_matched_tokens as bigint) - cast(matched_tokens as bigint) as error_tokens
    from decisions
    where
        outcome = 'served'
        and believed_matched_tokens is not null
),
errors as (
    select
        policy,
        count(*) as requests,
        count(*) filter (where error_tokens = 0) as exact,
        -- believed to be there, but evicted since, or not kept
        count(*) filter (where error_tokens > 0) as overestimates,
        cast(
            coalesce(sum(error_tokens) filter (where error_tokens > 0), 0) as bigint
        ) as overestimated_tokens,
        -- there, but not known to the router yet, or no longer
        count(*) filter (where error_tokens < 0) as underestimates,
        cast(
            coalesce(sum(-error_tokens) filter (where error_tokens < 0), 0) as bigint
        ) as underestimated_tokens,
        sum(believed_tokens) as believed_tokens,
        sum(matched_tokens) as matched_tokens,
        sum(prompt_tokens) as prompt_tokens
    from beliefs
    group by policy
)
select
    policy,
    requests,
    exact,
    round(exact / requests, 4) as exact_ratio,
    overestimates,
    round(overestimates / requests, 4) as overestimates_ratio,
    overestimated_tokens,
    underestimates,
    round(underestimates / requests, 4) as underestimates_ratio,
    underestimated_tokens,
    round((overestimated_tokens + underestimated_tokens) / requests, 2) as mean_error_tokens,
    round(believed_tokens / nullif(prompt_tokens, 0), 4) as believed_hit_ratio,
    round(matched_tokens / nullif(prompt_tokens, 0), 4) as cache_hit_ratio
from errors
order by policy;
