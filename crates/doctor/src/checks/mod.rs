//! The checks: a list, and what runs it.

mod clock;
mod limits;
mod memory;
mod network;
mod ports;
mod processors;
mod running;
mod ship;
pub mod told;
mod written;

use crate::conf::Conf;
use crate::finding::Finding;
use crate::proc::Running;
use crate::system::System;
use crate::tls;
use std::io;

/// What a check is given.
pub struct Case<'a> {
    pub conf: &'a Conf,
    pub system: &'a dyn System,
    /// The server that runs by the configuration.
    pub running: Option<&'a Running>,
    /// What that says of its receivers of events; an error is why it says nothing.
    pub receivers: Result<&'a [Receiver], &'a str>,
    /// What it says of itself; an error is why it says nothing.
    pub told: Result<Option<&'a Told>, &'a str>,
}

/// How much of a moment a worker computed, and how much of it it waited for a processor, in percent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    pub id: String,
    pub works: u64,
    pub waits: u64,
}

/// What the server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Names of upstreams and what their state is, those of `stream` behind those of `http`.
    pub upstreams: Vec<(String, String)>,
    /// Workers, in a moment.
    pub workers: Vec<Busy>,
}

/// A receiver of events (`ship`), as the server tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receiver {
    pub name: String,
    pub queued_events: u64,
    pub queued_bytes: u64,
    pub max_bytes: u64,
    pub dropped: u64,
    pub refused: u64,
    pub lost_bytes: u64,
    /// For how long it has taken nothing that it was sent; 0: it takes all.
    pub failing_ms: u64,
    pub last_error: String,
}

impl Case<'_> {
    /// A file about the network as the server has it, or as whoever asks.
    fn of_net(&self, name: &str) -> String {
        match self.running {
            Some(r) => r.file(&format!("net/{name}")),
            None => format!("/proc/net/{name}"),
        }
    }

    fn workers(&self) -> u64 {
        self.conf.workers_of(self.system.cpus())
    }

    /// Clients that may be served at once.
    fn clients(&self) -> u64 {
        self.workers().saturating_mul(self.conf.connections)
    }
}

/// What a judge says; an error is what it could not read.
type Judged = io::Result<Vec<Finding>>;

/// One check.
pub struct Check {
    pub area: &'static str,
    pub name: &'static str,
    /// Where its figures are from, for who wants to look.
    pub reads: &'static str,
    judge: fn(&Case<'_>) -> Judged,
}

const fn row(
    area: &'static str,
    name: &'static str,
    reads: &'static str,
    judge: fn(&Case<'_>) -> Judged,
) -> Check {
    Check { area, name, reads, judge }
}

/// In the order of the report.
pub const CHECKS: &[Check] = &[
    row("network", "listen backlog", "net/core/somaxconn", network::backlog),
    row("network", "SYN backlog", "net/ipv4/tcp_max_syn_backlog", network::syn),
    row("network", "packets waiting", "net/core/netdev_max_backlog, softnet_stat", network::netdev),
    row("network", "local ports", "net/ipv4/ip_local_port_range", ports::range),
    row("network", "TIME_WAIT", "net/ipv4/tcp_max_tw_buckets, sockstat", ports::time_wait),
    row("network", "tcp_tw_reuse", "net/ipv4/tcp_tw_reuse", ports::reuse),
    row("network", "conntrack", "net/netfilter/nf_conntrack_max", network::conntrack),
    row("network", "TCP memory", "net/ipv4/tcp_mem, sockstat", network::tcp_memory),
    row("network", "reuseport", "the configuration", network::reuseport),
    row("limits", "open files", "RLIMIT_NOFILE", limits::nofile),
    row("limits", "files of the system", "fs/file-max, fs/nr_open", limits::file_max),
    row("processors", "workers", "processors, cpu.max", processors::workers),
    row("processors", "affinity", "worker_cpu_affinity", processors::affinity),
    row("processors", "NUMA", "/sys/devices/system/node", processors::numa),
    row("processors", "throttling", "cpu.stat", processors::throttling),
    row("memory", "zones and caches", "MemTotal, memory.max", memory::wanted),
    row("memory", "control group", "memory.current, memory.events", memory::group),
    row("memory", "swap", "SwapTotal", memory::swap),
    row("memory", "huge pages", "transparent_hugepage/enabled", memory::huge),
    row("disks", "space", "statvfs", written::space),
    row("disks", "mounts", "statvfs, /sys/dev/block", written::mounts),
    row("disks", "cache", "max_size, statvfs", written::caches),
    row("shipping", "folders", "queue of ship, statvfs", ship::folders),
    row("shipping", "receivers", "the running server", ship::receivers),
    row("shipping", "queues", "the running server", ship::queues),
    row("shipping", "lost events", "the running server", ship::lost),
    row("clock", "kept right", "adjtimex", clock::kept),
    row("clock", "source", "clocksource0/current_clocksource", clock::source),
    row("clock", "entropy", "random/entropy_avail", clock::entropy),
    row("TLS", "certificates", "ssl_certificate", tls::dates),
    row("TLS", "names", "ssl_certificate, server_name", tls::names),
    row("TLS", "keys", "ssl_certificate_key", tls::keys),
    row("TLS", "resumption", "ssl_session_cache, ssl_session_ticket_key", tls::resumption),
    row("TLS", "stapling", "ssl_stapling, resolver", tls::stapling),
    row("running", "process", "the pid file", running::process),
    row("running", "open files", "/proc/PID/fd, limits", running::files),
    row("running", "queues", "/proc/PID/net/tcp", running::queues),
    row("running", "overflows", "/proc/PID/net/netstat", running::overflows),
    row("running", "balance", "/proc/PID/task", running::balance),
    row("running", "busy workers", "the running server", told::workers),
    row("running", "upstreams", "the running server", told::upstreams),
];

/// A finding, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub area: &'static str,
    pub check: &'static str,
    pub finding: Finding,
}

/// Runs all checks. A check without findings has nothing to look at in this configuration.
pub fn examine(case: &Case<'_>) -> Vec<Judgement> {
    let mut out = Vec::new();
    for check in CHECKS {
        let found = (check.judge)(case).unwrap_or_else(|e| vec![unread(check, &e)]);
        let of = |finding| Judgement { area: check.area, check: check.name, finding };
        out.extend(found.into_iter().map(of));
    }
    out
}

/// A figure that cannot be had.
fn unread(check: &Check, e: &io::Error) -> Finding {
    let why = match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::Unsupported => "not on this system".to_owned(),
        io::ErrorKind::PermissionDenied => "this user may not read it; root may".to_owned(),
        _ => e.to_string(),
    };
    Finding::unknown(check.reads, why)
}

/// The command that sets a figure of the kernel until the next start, and for good.
fn sysctl(name: &str, value: impl std::fmt::Display) -> String {
    format!("sysctl -w {name}={value}  (for good: {name} = {value} in /etc/sysctl.d/90-weir.conf)")
}

/// A round number that is at least this.
fn round_up(n: u64) -> u64 {
    n.checked_next_power_of_two().unwrap_or(n)
}

/// Sizes as people read them.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut at = 0;
    while value >= 1024.0 && at + 1 < UNITS.len() {
        value /= 1024.0;
        at += 1;
    }
    match at {
        0 => format!("{bytes} bytes"),
        _ => format!("{value:.1} {}", UNITS[at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity;

    #[test]
    fn what_cannot_be_read_is_said_and_is_no_judgement() {
        let conf = conf("events {} http { server { listen 80; } }");
        for (system, why) in [
            (Fake { cpus: 1, ..Fake::default() }, "not on this system"),
            (
                Fake { is_closed: true, cpus: 1, ..Fake::default() },
                "this user may not read it; root may",
            ),
        ] {
            let case = Case {
                conf: &conf,
                system: &system,
                running: None,
                receivers: Ok(&[]),
                told: Ok(None),
            };
            let all = examine(&case);
            let backlog = all.iter().find(|j| j.check == "listen backlog").unwrap();
            assert_eq!(backlog.finding, Finding::unknown("net/core/somaxconn", why));
            let bad = all.iter().filter(|j| j.finding.severity > Severity::Unknown);
            assert_eq!(bad.collect::<Vec<_>>(), Vec::<&Judgement>::new());
        }
    }

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<_> = CHECKS.iter().map(|c| (c.area, c.name)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
        assert_eq!((size(5), size(3 << 20)), ("5 bytes".into(), "3.0 MB".into()));
    }
}
