-- Question: how much of the prompt work would a cache without limit save?
-- Reads: trace
-- One row per trace
with shared as (
    select
        cast(prompt_tokens as bigint) as prompt_tokens,
        -- in whole blocks, where a size of blocks is set
        prefix_tokens - prefix_tokens % coalesce(getvariable('block_tokens'), 1) as hit_tokens
    from trace
),
totals as (
    select
        count(*) filter (where hit_tokens > 0) as requests_with_hit,
        cast(coalesce(sum(hit_tokens), 0) as bigint) as hit_tokens,
        cast(coalesce(sum(prompt_tokens), 0) as bigint) as prompt_tokens
    from shared
)
select
    prompt_tokens,
    requests_with_hit,
    hit_tokens,
    round(hit_tokens / nullif(prompt_tokens, 0), 6) as hit_ratio
from totals
order by prompt_tokens;
