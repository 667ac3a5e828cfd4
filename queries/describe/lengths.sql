-- Question: how long are prompts, outputs and sessions?
-- Reads: trace
-- One row per quantity, with percentiles over the requests (or sessions) that have it
with quantities as (
    select
        'prompt_tokens' as quantity,
        cast(prompt_tokens as bigint) as amount
    from trace
    union all
    select
        'output_tokens' as quantity,
        cast(output_tokens as bigint) as amount
    from trace
    union all
    select
        'requests_per_session' as quantity,
        count(*) as amount
    from trace
    where session_id is not null
    group by session_id
),
shapes as (
    select
        quantity,
        count(amount) as counted,
        sum(amount) as total,
        -- linear between neighbours, as numpy does by default
        quantile_cont(cast(amount as double), [0, 0.1, 0.5, 0.9, 0.99, 1]) as p
    from quantities
    group by quantity
)
select
    wanted.quantity,
    coalesce(shapes.counted, 0) as counted,
    round(shapes.total / nullif(shapes.counted, 0), 2) as mean,
    round(shapes.p[1], 2) as p0,
    round(shapes.p[2], 2) as p10,
    round(shapes.p[3], 2) as p50,
    round(shapes.p[4], 2) as p90,
    round(shapes.p[5], 2) as p99,
    round(shapes.p[6], 2) as p100
from (
    values
        (1, 'prompt_tokens'),
        (2, 'output_tokens'),
        (3, 'requests_per_session')
) as wanted(position, quantity)
left join shapes on shapes.quantity = wanted.quantity
order by wanted.position;
