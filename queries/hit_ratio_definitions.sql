-- Question: what is the hit ratio, by each of the definitions that engines and papers use?
-- Reads: all_decisions, settings
-- One row per policy and definition; the headline is what other reports call cache_hit_ratio
with asked as (
    select
        policy,
        not is_warmup as is_counted,
        case when outcome = 'served' then cast(prompt_tokens as bigint) end as prompt_tokens,
        cast(matched_tokens as bigint) as matched_tokens,
        cast(cold_tokens as bigint) as cold_tokens,
        matched_tokens / nullif(prompt_tokens, 0) as hit_ratio,
        settings.block_tokens
    from all_decisions
    cross join settings
),
totals as (
    select
        policy,
        sum(matched_tokens) as run_matched_tokens,
        sum(prompt_tokens) as run_prompt_tokens,
        sum(matched_tokens) filter (where is_counted) as matched_tokens,
        sum(prompt_tokens) filter (where is_counted) as prompt_tokens,
        sum(prompt_tokens - cold_tokens) filter (where is_counted) as known_tokens,
        sum(least(matched_tokens, greatest(prompt_tokens - 1, 0))) filter (
            where is_counted
        ) as capped_tokens,
        -- a partial block counts as one
        sum((matched_tokens + block_tokens - 1) // block_tokens) filter (
            where is_counted
        ) as matched_blocks,
        sum((prompt_tokens + block_tokens - 1) // block_tokens) filter (
            where is_counted
        ) as prompt_blocks,
        -- whole billionths: a sum of floats depends on threads
        sum(cast(round(hit_ratio * 1e9) as bigint)) filter (where is_counted) as billionths,
        count(*) filter (where is_counted and hit_ratio > 0) as requests_with_hit,
        count(hit_ratio) filter (where is_counted) as requests_with_prompt
    from asked
    group by policy
),
defined as (
    select
        totals.policy,
        definitions.*
    from totals
    cross join lateral (
        values
            (
                1,
                'tokens_after_warmup',
                'hit tokens / prompt tokens, of requests served after the warm-up',
                matched_tokens,
                prompt_tokens
            ),
            (
                2,
                'tokens_whole_run',
                'hit tokens / prompt tokens, of requests served in the trace, in its warm-up too',
                run_matched_tokens,
                run_prompt_tokens
            ),
            (
                3,
                'request_mean',
                'mean of the requests'' own hit ratios, short prompts count like long ones',
                cast(billionths / 1e9 as decimal(28, 9)),
                requests_with_prompt
            ),
            (
                4,
                'requests_with_hit',
                'requests with any hit / requests with a prompt',
                requests_with_hit,
                requests_with_prompt
            ),
            (
                5,
                'whole_blocks',
                'hit blocks / blocks of the prompts, a partial block counts as one',
                matched_blocks,
                prompt_blocks
            ),
            (
                6,
                'tokens_but_the_last',
                'hit tokens, at most prompt - 1 of a request, / prompt tokens',
                capped_tokens,
                prompt_tokens
            ),
            (
                7,
                'unlimited_cache',
                'tokens that any replica ever had / prompt tokens, of the same requests: the limit',
                known_tokens,
                prompt_tokens
            )
    ) as definitions(position, definition, meaning, numerator, denominator)
)
select
    policy,
    definition,
    position = 1 as is_headline,
    -- exact: only a mean of ratios has decimals
    cast(coalesce(numerator, 0) as decimal(28, 4)) as numerator,
    cast(coalesce(denominator, 0) as bigint) as denominator,
    round(numerator / nullif(denominator, 0), 4) as hit_ratio,
    meaning
from defined
order by
    policy,
    position;
