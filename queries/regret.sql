-- Question: how much sooner would the best replica in hindsight have answered?
-- Reads: decisions
-- One row per policy; regret is by the estimate of queue + lookup + prefill when a request came
with regrets as (
    select
        policy,
        count(*) as requests,
        count(*) filter (where outcome = 'served') as served,
        count(regret_ms) as estimated,
        count(*) filter (where regret_ms > 0) as regretted,
        -- whole ten-thousandths: a sum of floats depends on threads
        sum(cast(round(regret_ms * 10000) as bigint)) as regret_ticks,
        quantile_cont(regret_ms, 0.5) as p50_regret_ms,
        quantile_cont(regret_ms, 0.99) as p99_regret_ms,
        max(regret_ms) as max_regret_ms,
        sum(cast(round(ttft_ms * 10000) as bigint)) as ttft_ticks,
        count(ttft_ms) as measured
    from decisions
    group by policy
)
select
    policy,
    requests,
    served,
    regretted,
    round(regretted / nullif(estimated, 0), 4) as regretted_ratio,
    round(coalesce(regret_ticks, 0) / 10000, 2) as sum_regret_ms,
    round(regret_ticks / 10000 / nullif(estimated, 0), 2) as mean_regret_ms,
    round(p50_regret_ms, 2) as p50_regret_ms,
    round(p99_regret_ms, 2) as p99_regret_ms,
    round(max_regret_ms, 2) as max_regret_ms,
    round(ttft_ticks / 10000 / nullif(measured, 0), 2) as mean_ttft_ms,
    round(regret_ticks / nullif(ttft_ticks, 0), 4) as regret_of_ttft_ratio
from regrets
order by policy;
