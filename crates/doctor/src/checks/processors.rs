//! Processors: how many there are for the workers, and which.

use super::{Case, Judged};
use crate::conf::Affinity;
use crate::finding::Finding;
use crate::proc::{numbers, value};
use std::collections::HashMap;

/// Where the control group of the server, or of whoever asks, has its files, the innermost first.
pub(super) fn groups(case: &Case<'_>) -> Vec<String> {
    let file = case.running.map_or_else(|| "/proc/self/cgroup".into(), |r| r.file("cgroup"));
    let text = case.system.text(&file).unwrap_or_default();
    let path = text.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/").trim_matches('/');
    let mut all = Vec::new();
    let mut path = path;
    while !path.is_empty() && !path.starts_with("..") {
        all.push(format!("/sys/fs/cgroup/{path}"));
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
    }
    all.push("/sys/fs/cgroup".into());
    all
}

/// Processors' time that the group may use, in hundredths of a processor; `None` without a limit.
pub(super) fn quota(case: &Case<'_>) -> Option<u64> {
    let of = |dir: &String| {
        let text = case.system.text(&format!("{dir}/cpu.max")).ok()?;
        let (quota, period) = text.split_once(' ')?;
        let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
        quota.saturating_mul(100).checked_div(period)
    };
    let old = || {
        let number =
            |name: &str| case.system.number(&format!("/sys/fs/cgroup/cpu/cpu.cfs_{name}_us"));
        number("quota").ok()?.saturating_mul(100).checked_div(number("period").ok()?)
    };
    groups(case).iter().filter_map(of).min().or_else(old)
}

/// As many as there is work for.
pub fn workers(case: &Case<'_>) -> Judged {
    let (workers, cores) = (case.workers(), case.system.cpus() as u64);
    let quota = quota(case);
    let limited = quota.map(|q| format!(", {}.{:02} by cpu.max", q / 100, q % 100));
    let figure = format!("{workers} workers, {cores} processors{}", limited.unwrap_or_default());
    if let Some(q) = quota.filter(|q| workers.saturating_mul(100) > q.next_multiple_of(100)) {
        let why = "the quota of all is used up in a part of each 100 ms, and then all workers stand still";
        let mend = format!("worker_processes {};  (or a higher quota)", q.div_ceil(100).max(1));
        return Ok(vec![Finding::warn(figure, why, mend)]);
    }
    Ok(vec![match workers {
        n if n > cores => Finding::warn(
            figure,
            "workers that share a processor only wait for each other",
            "worker_processes auto;",
        ),
        n if n < cores && quota.is_none() => {
            Finding::note(figure, format!("{} processors serve nobody", cores - n))
                .mend("worker_processes auto;")
        }
        _ => Finding::ok(figure, ""),
    }])
}

/// Masks that name processors which are there, each for one worker.
pub fn affinity(case: &Case<'_>) -> Judged {
    let Some(affinity) = &case.conf.affinity else { return Ok(Vec::new()) };
    let status = case.running.map_or_else(|| "/proc/self/status".into(), |r| r.file("status"));
    let status = case.system.text(&status)?;
    let list =
        status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    // A worker that is bound shows itself alone; the first thread of the process is not.
    let allowed = numbers(list.trim());
    let workers = case.workers() as usize;
    let Affinity::Masks(masks) = affinity else {
        return Ok(vec![Finding::ok(format!("auto, processors {}", list.trim()), "")]);
    };
    let mut found = Vec::new();
    let mut users: HashMap<u128, usize> = HashMap::new();
    for n in 0..workers {
        let Some(mask) = masks.get(n).or(masks.last()) else { continue };
        *users.entry(*mask).or_default() += 1;
        let any = (0..128).any(|c| mask & (1 << c) != 0 && allowed.contains(&c));
        if !any && !allowed.is_empty() {
            found.push(Finding::error(
                format!("worker {n}: mask {mask:b}, processors {}", list.trim()),
                "none of these is there for it: sched_setaffinity() fails and the worker is not bound",
                "worker_cpu_affinity auto;",
            ));
        }
    }
    let crowded = users.iter().filter(|(mask, n)| **n > mask.count_ones() as usize).count();
    if crowded > 0 && workers <= allowed.len() {
        found.push(Finding::warn(
            format!("{} masks for {workers} workers, {crowded} of them for more workers than processors", masks.len()),
            "workers are bound to the same processor while others are free",
            "worker_cpu_affinity auto;",
        ));
    }
    if found.is_empty() {
        found.push(Finding::ok(format!("{} masks for {workers} workers", masks.len()), ""));
    }
    Ok(found)
}

/// Memory near to one processor and far from another.
pub fn numa(case: &Case<'_>) -> Judged {
    let nodes = numbers(&case.system.text("/sys/devices/system/node/online")?).len();
    let figure = format!("{nodes} nodes");
    Ok(vec![match (nodes, &case.conf.affinity) {
        (0 | 1, _) => Finding::ok(figure, ""),
        (_, Some(_)) => Finding::ok(figure, "workers are bound, so their memory stays near"),
        _ => Finding::note(
            figure,
            "workers move between nodes, and their memory is then far from them",
        )
        .mend("worker_cpu_affinity auto;"),
    }])
}

/// Times at which the quota was used up.
pub fn throttling(case: &Case<'_>) -> Judged {
    let Some(quota) = quota(case) else { return Ok(Vec::new()) };
    let dir = groups(case).remove(0);
    let text = case.system.text(&format!("{dir}/cpu.stat"))?;
    let periods = value(&text, "nr_periods").unwrap_or(0);
    let throttled = value(&text, "nr_throttled").unwrap_or(0);
    let figure = format!("{throttled} of {periods} periods throttled");
    Ok(vec![match throttled.saturating_mul(100).checked_div(periods).unwrap_or(0) {
        0..=4 => Finding::ok(figure, ""),
        _ => Finding::warn(
            figure,
            "all workers stood still for the rest of those periods (mostly 100 ms): answers took so much longer",
            format!("a higher quota than {}.{:02} processors (CPUQuota= in the service's unit)", quota / 100, quota % 100),
        ),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity::{self, Error, Note, Ok as Well, Warn};

    fn judge(check: fn(&Case<'_>) -> Judged, text: &str, files: &[(&str, &str)]) -> Vec<Severity> {
        let (conf, system) = (conf(text), Fake::with(files));
        let found = check(&Case {
            conf: &conf,
            system: &system,
            running: None,
            receivers: Ok(&[]),
            told: Ok(None),
        })
        .unwrap();
        found.into_iter().map(|f| f.severity).collect()
    }

    #[test]
    fn workers_for_processors() {
        assert_eq!(judge(workers, "worker_processes 2;", &[]), [Well]);
        assert_eq!(judge(workers, "worker_processes auto;", &[]), [Well]);
        assert_eq!(judge(workers, "worker_processes 3;", &[]), [Warn]);
        assert_eq!(judge(workers, "events {}", &[]), [Note]);
        let files =
            [("/proc/self/cgroup", "0::/a/b\n"), ("/sys/fs/cgroup/a/cpu.max", "50000 100000")];
        assert_eq!(judge(workers, "worker_processes 2;", &files), [Warn], "half a processor");
        assert_eq!(judge(workers, "worker_processes 1;", &files), [Well]);
    }

    #[test]
    fn masks() {
        let status = [("/proc/self/status", "Name: x\nCpus_allowed_list:\t0-1\n")];
        let of = |text: &str| judge(affinity, text, &status);
        assert_eq!(of("worker_processes 2; worker_cpu_affinity 01 10;"), [Well]);
        assert_eq!(of("worker_processes 2; worker_cpu_affinity 01;"), [Warn]);
        assert_eq!(of("worker_processes 2; worker_cpu_affinity 01 100;"), [Error]);
        assert_eq!(of("worker_processes 2; worker_cpu_affinity auto;"), [Well]);
        assert_eq!(of("worker_processes 2;"), []);
        let nodes = |text: &str, list: &str| {
            judge(numa, text, &[("/sys/devices/system/node/online", list)])
        };
        assert_eq!(nodes("", "0"), [Well]);
        assert_eq!(nodes("", "0-1"), [Note]);
        assert_eq!(nodes("worker_cpu_affinity auto;", "0-1"), [Well]);
    }

    #[test]
    fn a_quota_that_is_used_up() {
        let with = |stat: &str| {
            let files =
                [("/sys/fs/cgroup/cpu.max", "50000 100000"), ("/sys/fs/cgroup/cpu.stat", stat)];
            judge(throttling, "", &files)
        };
        assert_eq!(with("nr_periods 100\nnr_throttled 4\n"), [Well]);
        assert_eq!(with("nr_periods 100\nnr_throttled 5\n"), [Warn]);
        assert_eq!(judge(throttling, "", &[("/sys/fs/cgroup/cpu.max", "max 100000")]), []);
    }
}
