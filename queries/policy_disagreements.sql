-- Question: which policies sent the same requests to different replicas, and who did better there?
-- Reads: decisions
-- One row per pair of policies; times and tokens are those of the requests that they disagreed on
with policies_there as (
    select
        policy,
        row_number() over (order by policy) as number
    from decisions
    group by policy
),
tenants as (
    select
        tenant,
        row_number() over (order by tenant nulls last) as tenant_number
    from decisions
    group by tenant
),
-- numbers instead of names: of many policies there are millions of pairs
served as (
    select
        policies_there.number,
        tenants.tenant_number,
        decisions.seq,
        decisions.replica_id,
        decisions.matched_tokens,
        -- whole hundredths: a sum of floats depends on threads
        cast(round(decisions.ttft_ms * 100) as bigint) as ttft_cents
    from decisions
    inner join policies_there on policies_there.policy = decisions.policy
    inner join tenants on tenants.tenant is not distinct from decisions.tenant
    where decisions.outcome = 'served'
),
both_served as (
    select
        served.number,
        others.number as other_number,
        served.tenant_number,
        served.seq,
        served.replica_id <> others.replica_id as disagree,
        served.ttft_cents,
        others.ttft_cents as other_ttft_cents,
        served.matched_tokens,
        others.matched_tokens as other_matched_tokens
    from served
    inner join served as others
        on others.seq = served.seq
        and others.number > served.number
),
by_tenant as (
    select
        number,
        other_number,
        tenant_number,
        count(*) as requests,
        count(*) filter (where disagree) as disagreements,
        min(seq) filter (where disagree) as first_seq,
        sum(ttft_cents) filter (where disagree) as ttft_cents,
        sum(other_ttft_cents) filter (where disagree) as other_ttft_cents,
        sum(matched_tokens) filter (where disagree) as matched_tokens,
        sum(other_matched_tokens) filter (where disagree) as other_matched_tokens,
        count(*) filter (where disagree and ttft_cents < other_ttft_cents) as faster,
        count(*) filter (where disagree and ttft_cents > other_ttft_cents) as slower
    from both_served
    group by
        number,
        other_number,
        tenant_number
),
compared as (
    select
        number,
        other_number,
        cast(sum(requests) as bigint) as requests,
        cast(sum(disagreements) as bigint) as disagreements,
        min(first_seq) as first_seq,
        sum(ttft_cents) / 100 as ttft_ms,
        sum(other_ttft_cents) / 100 as other_ttft_ms,
        sum(matched_tokens) as matched_tokens,
        sum(other_matched_tokens) as other_matched_tokens,
        sum(faster) as faster,
        sum(slower) as slower,
        max(disagreements) as tenant_disagreements,
        -- of equals the first by name
        arg_max(tenant_number, (disagreements, -tenant_number)) filter (
            where disagreements > 0
        ) as tenant_number
    from by_tenant
    group by
        number,
        other_number
),
arrivals as (
    select
        seq,
        min(arrival) as arrival
    from decisions
    group by seq
)
select
    policies_there.policy,
    others.policy as other_policy,
    coalesce(compared.requests, 0) as requests,
    coalesce(compared.disagreements, 0) as disagreements,
    round(compared.disagreements / nullif(compared.requests, 0), 4) as disagreements_ratio,
    compared.first_seq,
    -- without a zone, so that no session's time zone changes what is shown
    make_timestamp(epoch_us(arrivals.arrival)) as first_arrival,
    round(compared.ttft_ms / nullif(compared.disagreements, 0), 2) as mean_ttft_ms,
    round(compared.other_ttft_ms / nullif(compared.disagreements, 0), 2) as mean_other_ttft_ms,
    round(compared.matched_tokens / nullif(compared.disagreements, 0), 2) as mean_matched_tokens,
    round(
        compared.other_matched_tokens / nullif(compared.disagreements, 0), 2
    ) as mean_other_matched_tokens,
    round(compared.faster / nullif(compared.disagreements, 0), 4) as faster_ratio,
    round(compared.slower / nullif(compared.disagreements, 0), 4) as slower_ratio,
    tenants.tenant as most_affected_tenant,
    coalesce(compared.tenant_disagreements, 0) as tenant_disagreements
from policies_there
inner join policies_there as others on others.number > policies_there.number
left join compared
    on compared.number = policies_there.number
    and compared.other_number = others.number
left join tenants on tenants.tenant_number = compared.tenant_number
left join arrivals on arrivals.seq = compared.first_seq
order by
    policies_there.policy,
    others.policy;
