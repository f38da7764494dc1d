//! Memory: what the configuration asks for, and what there is.

use super::processors::groups;
use super::{size, Case, Judged};
use crate::finding::Finding;
use crate::proc::value;

/// An idle connection, with TLS: measured by bench/idle.py.
const CONNECTION_BYTES: u64 = 5 << 10;

/// The least that a control group above the server lets it have.
fn limit(case: &Case<'_>) -> Option<(u64, String)> {
    let of =
        |dir: &String| Some((case.system.number(&format!("{dir}/memory.max")).ok()?, dir.clone()));
    groups(case).iter().filter_map(of).min()
}

/// Zones, caches and idle connections against the machine or the group.
pub fn wanted(case: &Case<'_>) -> Judged {
    let text = case.system.text("/proc/meminfo")?;
    let kib = value(&text, "MemTotal").ok_or_else(|| std::io::Error::other("no MemTotal"))?;
    let machine = kib.saturating_mul(1024);
    let (most, whose) = match limit(case) {
        Some((max, _)) if max < machine => (max, "memory.max"),
        _ => (machine, "MemTotal"),
    };
    let fixed = case.conf.memory_bytes();
    let idle = case.clients().saturating_mul(CONNECTION_BYTES);
    let all = fixed.saturating_add(idle);
    let figure = format!(
        "{} for zones and caches, {} for {} idle connections; {whose} {}",
        size(fixed),
        size(idle),
        case.clients(),
        size(most)
    );
    let mend = "smaller zones and memory= of caches, fewer worker_connections, or more memory (MemoryMax=)";
    Ok(vec![match all.saturating_mul(100) / most.max(1) {
        100.. => {
            Finding::error(figure, "filled, they do not fit: the kernel kills the server", mend)
        }
        75.. => Finding::warn(
            figure,
            "filled, they leave too little for requests and the cache of files",
            mend,
        ),
        _ => Finding::ok(figure, ""),
    }])
}

/// What has happened to the server's control group.
pub fn group(case: &Case<'_>) -> Judged {
    let Some((max, dir)) = limit(case) else { return Ok(Vec::new()) };
    let used = case.system.number(&format!("{dir}/memory.current"))?;
    let events = case.system.text(&format!("{dir}/memory.events")).unwrap_or_default();
    let killed = value(&events, "oom_kill").unwrap_or(0);
    let figure = format!("{} of {} used, {killed} processes killed for it", size(used), size(max));
    let mend = "MemoryMax= in the service's unit, or smaller zones and memory= of caches";
    Ok(vec![match used.saturating_mul(100) / max.max(1) {
        _ if killed > 0 => {
            Finding::error(figure, "the limit has been met, and a process was killed", mend)
        }
        90.. => Finding::warn(
            figure,
            "the kernel soon takes cached files away, and then kills the server",
            mend,
        ),
        _ => Finding::ok(figure, ""),
    }])
}

/// A server that is swapped out answers late.
pub fn swap(case: &Case<'_>) -> Judged {
    let text = case.system.text("/proc/meminfo")?;
    let total = value(&text, "SwapTotal").unwrap_or(0).saturating_mul(1024);
    let own = match case.running {
        Some(r) => value(&case.system.text(&r.file("status"))?, "VmSwap"),
        None => None,
    };
    let own = own.unwrap_or(0).saturating_mul(1024);
    let figure = format!("{} of swap, {} of the server in it", size(total), size(own));
    Ok(vec![match own {
        0 => Finding::ok(figure, ""),
        _ => Finding::warn(
            figure,
            "a request that needs what is swapped out waits for the disk, and its worker's other requests with it",
            super::sysctl("vm.swappiness", 1),
        ),
    }])
}

/// Weir declines huge pages for itself, so that whatever the system does is well.
pub fn huge(case: &Case<'_>) -> Judged {
    let text = case.system.text("/sys/kernel/mm/transparent_hugepage/enabled")?;
    let chosen = text.split(['[', ']']).nth(1).unwrap_or("?").to_owned();
    Ok(vec![Finding::ok(format!("{chosen}; Weir's own memory takes none"), "")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity::{self, Error, Ok as Well, Warn};
    use crate::proc::Running;

    fn judge(check: fn(&Case<'_>) -> Judged, text: &str, files: &[(&str, &str)]) -> Vec<Severity> {
        let (conf, system) = (conf(text), Fake::with(files));
        let running = Running { master: 7, serving: 8, workers: Vec::new() };
        let running = files.iter().any(|f| f.0.starts_with("/proc/8")).then_some(&running);
        let found = check(&Case {
            conf: &conf,
            system: &system,
            running,
            receivers: Ok(&[]),
            told: Ok(None),
        })
        .unwrap();
        found.into_iter().map(|f| f.severity).collect()
    }

    #[test]
    fn memory_for_zones() {
        let machine = ("/proc/meminfo", "MemTotal:  1048576 kB\nSwapTotal: 8 kB\n");
        let with = |zone: &str| format!("http {{ limit_conn_zone $a zone=z:{zone}; }}");
        assert_eq!(judge(wanted, &with("10m"), &[machine]), [Well]);
        assert_eq!(judge(wanted, &with("800m"), &[machine]), [Warn]);
        assert_eq!(judge(wanted, &with("1024m"), &[machine]), [Error]);
        let group = ("/sys/fs/cgroup/memory.max", "12582912");
        assert_eq!(judge(wanted, &with("10m"), &[machine, group]), [Error]);
        let unlimited = ("/sys/fs/cgroup/memory.max", "max");
        assert_eq!(judge(wanted, &with("10m"), &[machine, unlimited]), [Well]);
        let status = |kib: &str| judge(swap, "", &[machine, ("/proc/8/status", kib)]);
        assert_eq!((status("VmSwap: 0 kB"), status("VmSwap: 9 kB")), (vec![Well], vec![Warn]));
    }

    #[test]
    fn a_group_that_is_full() {
        let max = ("/sys/fs/cgroup/memory.max", "1000");
        let with = |used: &str, events: &str| {
            let used = ("/sys/fs/cgroup/memory.current", used);
            judge(group, "", &[max, used, ("/sys/fs/cgroup/memory.events", events)])
        };
        assert_eq!(with("899", "oom 0\noom_kill 0\n"), [Well]);
        assert_eq!(with("900", "oom_kill 0\n"), [Warn]);
        assert_eq!(with("1", "oom_kill 1\n"), [Error]);
    }
}
