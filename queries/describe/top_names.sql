-- Question: which models, tenants, namespaces and sessions bring the most prompt tokens?
-- Reads: trace
-- One row per kind of name and each of its 10 names with the most prompt tokens
with named as (
    select
        kind,
        name,
        count(*) as requests,
        cast(sum(prompt_tokens) as bigint) as prompt_tokens,
        -- in whole blocks, where a size of blocks is set
        cast(
            sum(prefix_tokens - prefix_tokens % coalesce(getvariable('block_tokens'), 1)) as bigint
        ) as shared_tokens
    from trace
    unpivot (name for kind in (model, tenant, namespace, session_id))
    group by
        kind,
        name
),
ranked as (
    select
        kind,
        row_number() over (
            partition by kind
            order by
                prompt_tokens desc,
                requests desc,
                name
        ) as position,
        name,
        requests,
        prompt_tokens,
        shared_tokens
    from named
)
select
    kind,
    position,
    name,
    requests,
    prompt_tokens,
    shared_tokens,
    round(shared_tokens / nullif(prompt_tokens, 0), 4) as shared_ratio
from ranked
where position <= 10
order by
    list_position(['model', 'tenant', 'namespace', 'session_id'], kind),
    position;
