-- Question: which tenants' requests evict whose prefixes, and were these asked for again?
-- Reads: evictions, all_decisions
-- One row per policy, tenant that needed the room and tenant that used it last; null: none known
with tenants as (
    -- a prefix may be from the part of the trace that warms up; of another trace no tenant is known
    select
        policy,
        seq,
        tenant
    from all_decisions
),
lost as (
    select
        evictions.policy,
        evicting.tenant as evicting_tenant,
        losing.tenant as losing_tenant,
        count(*) as evictions,
        cast(sum(evictions.evicted_tokens) as bigint) as evicted_tokens,
        sum(sum(evictions.evicted_tokens)) over (
            partition by evictions.policy
        ) as policy_tokens,
        cast(sum(evictions.asked_again_tokens) as bigint) as asked_again_tokens
    from evictions
    left join tenants as evicting
        on evicting.policy = evictions.policy
        and evicting.seq = evictions.for_seq
    left join tenants as losing
        on losing.policy = evictions.policy
        and losing.seq = evictions.last_used_seq
    where evictions.cause = 'room'
    group by
        evictions.policy,
        evicting.tenant,
        losing.tenant
)
select
    policy,
    evicting_tenant,
    losing_tenant,
    evictions,
    evicted_tokens,
    round(evicted_tokens / nullif(policy_tokens, 0), 4) as evicted_tokens_ratio,
    asked_again_tokens,
    round(asked_again_tokens / nullif(evicted_tokens, 0), 4) as asked_again_tokens_ratio
from lost
order by
    policy,
    evicted_tokens desc,
    evicting_tenant nulls last,
    losing_tenant nulls last;
