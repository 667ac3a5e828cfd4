-- Question: how much is in the trace, and when did it come?
-- Reads: trace
-- One row per trace; output_tokens are those of requests whose output is known
with totals as (
    select
        count(*) as requests,
        count(*) filter (where prompt_tokens = 0) as empty_prompts,
        cast(coalesce(sum(prompt_tokens), 0) as bigint) as prompt_tokens,
        count(output_tokens) as requests_with_output,
        cast(sum(output_tokens) as bigint) as output_tokens,
        epoch_us(min(arrival)) as first_us,
        epoch_us(max(arrival)) as last_us
    from trace
)
select
    requests,
    empty_prompts,
    prompt_tokens,
    requests_with_output,
    output_tokens,
    -- without a zone, so that no session's time zone changes what is shown
    make_timestamp(first_us) as first_arrival,
    make_timestamp(last_us) as last_arrival,
    (last_us - first_us) / 1e6 as span_s,
    round(requests / nullif((last_us - first_us) / 1e6, 0), 4) as requests_per_s
from totals
order by requests;
