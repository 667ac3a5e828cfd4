-- Question: how many models, tenants, namespaces and sessions are there, and who names them?
-- Reads: trace
-- One row per kind of name; requests_ratio is the share of requests that have one
with named as (
    select
        kind,
        name,
        count(*) as requests
    from trace
    unpivot (name for kind in (model, tenant, namespace, session_id))
    group by
        kind,
        name
),
counted as (
    select
        kind,
        count(*) as names,
        sum(requests) as requests
    from named
    group by kind
),
asked as (
    select count(*) as requests
    from trace
)
select
    wanted.kind,
    coalesce(counted.names, 0) as names,
    cast(coalesce(counted.requests, 0) as bigint) as requests,
    round(coalesce(counted.requests, 0) / nullif(asked.requests, 0), 4) as requests_ratio
from (
    values
        (1, 'model'),
        (2, 'tenant'),
        (3, 'namespace'),
        (4, 'session_id')
) as wanted(position, kind)
cross join asked
left join counted on counted.kind = wanted.kind
order by wanted.position;
