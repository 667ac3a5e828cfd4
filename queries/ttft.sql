-- Question: how long do requests wait for their first token, and is it queue or execution?
-- Reads: decisions
-- One row per policy
with waits as (
    select
        policy,
        count(*) as requests,
        count(*) filter (where outcome = 'served') as served,
        count(ttft_ms) as measured,
        -- whole hundredths and ten-thousandths: a sum of floats depends on threads
        sum(cast(round(ttft_ms * 100) as bigint)) / 100 as sum_ttft_ms,
        sum(cast(round(queue_wait_ms * 10000) as bigint)) / 10000 as sum_queue_wait_ms,
        sum(cast(round(exec_ms * 10000) as bigint)) / 10000 as sum_exec_ms,
        count(queue_wait_ms) as queue_waits,
        count(exec_ms) as execs,
        min(ttft_ms) as min_ttft_ms,
        -- linear between neighbours, as numpy does by default
        quantile_cont(ttft_ms, 0.5) as p50_ttft_ms,
        quantile_cont(ttft_ms, 0.9) as p90_ttft_ms,
        quantile_cont(ttft_ms, 0.99) as p99_ttft_ms,
        max(ttft_ms) as max_ttft_ms
    from decisions
    group by policy
)
select
    policy,
    requests,
    served,
    requests - measured as missing,
    round(sum_ttft_ms / nullif(measured, 0), 2) as mean_ttft_ms,
    round(min_ttft_ms, 2) as min_ttft_ms,
    round(p50_ttft_ms, 2) as p50_ttft_ms,
    round(p90_ttft_ms, 2) as p90_ttft_ms,
    round(p99_ttft_ms, 2) as p99_ttft_ms,
    round(max_ttft_ms, 2) as max_ttft_ms,
    round(sum_queue_wait_ms / nullif(queue_waits, 0), 2) as mean_queue_wait_ms,
    round(sum_exec_ms / nullif(execs, 0), 2) as mean_exec_ms
from waits
order by policy;
