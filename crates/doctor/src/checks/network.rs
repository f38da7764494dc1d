//! Queues of the kernel's network, before a connection is accepted.

use super::{round_up, sysctl, Case, Judged};
use crate::finding::Finding;
use crate::proc::word;

const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";
const PAGE_BYTES: u64 = 4096;

/// The kernel silently cuts every `backlog=` to `somaxconn`.
pub fn backlog(case: &Case<'_>) -> Judged {
    let queued: Vec<_> = case.conf.listens.iter().filter(|l| !l.udp).collect();
    let Some(most) = queued.iter().max_by_key(|l| l.backlog) else { return Ok(Vec::new()) };
    let most_text = format!("listen {} asks for backlog={}", most.text, most.backlog);
    let max = case.system.number(SOMAXCONN)?;
    let cut = queued.iter().filter(|l| l.backlog > max).count();
    let figure = format!("somaxconn {max}, {most_text}");
    if cut == 0 {
        return Ok(vec![Finding::ok(figure, "")]);
    }
    let why = format!(
        "the queue of {cut} of {} sockets is cut to {max}: what a burst brings above that is dropped, and \
         clients wait a second to try again",
        queued.len()
    );
    Ok(vec![Finding::warn(figure, why, sysctl("net.core.somaxconn", round_up(most.backlog)))])
}

/// Half-open connections, where no cookies take over.
pub fn syn(case: &Case<'_>) -> Judged {
    let tcp = case.conf.listens.iter().filter(|l| !l.udp && l.port.is_some());
    let Some(most) = tcp.map(|l| l.backlog).max() else { return Ok(Vec::new()) };
    let max = case.system.number("/proc/sys/net/ipv4/tcp_max_syn_backlog")?;
    let has_cookies = case.system.number("/proc/sys/net/ipv4/tcp_syncookies").is_ok_and(|n| n > 0);
    let somaxconn = case.system.number(SOMAXCONN).unwrap_or(u64::MAX);
    let wanted = most.min(somaxconn);
    let cookies = if has_cookies { "on" } else { "off" };
    let figure = format!("tcp_max_syn_backlog {max}, tcp_syncookies {cookies}");
    let mend = sysctl("net.ipv4.tcp_max_syn_backlog", round_up(wanted));
    Ok(vec![match (has_cookies, max < wanted) {
        (true, false) => Finding::ok(figure, ""),
        (true, true) => Finding::note(
            figure,
            format!("below the listen queues ({wanted}): a burst is answered with cookies, without window scaling where timestamps are off"),
        )
        .mend(mend),
        (false, false) => Finding::warn(
            figure,
            "without cookies a flood of SYN packets to these ports keeps honest clients out",
            sysctl("net.ipv4.tcp_syncookies", 1),
        ),
        (false, true) => Finding::warn(
            figure,
            format!("half-open connections are dropped at {} of {wanted} that the listen queues would hold", max / 4 * 3),
            mend,
        ),
    }])
}

/// Packets that a processor could not take in time.
pub fn netdev(case: &Case<'_>) -> Judged {
    let max = case.system.number("/proc/sys/net/core/netdev_max_backlog")?;
    let table = case.system.text("/proc/net/softnet_stat")?;
    let column = |n: usize| -> u64 {
        let of = |l: &str| u64::from_str_radix(l.split_ascii_whitespace().nth(n)?, 16).ok();
        table.lines().filter_map(of).sum()
    };
    let (seen, dropped) = (column(0), column(1));
    let figure =
        format!("netdev_max_backlog {max}, {dropped} of {seen} packets dropped since the start");
    Ok(vec![match dropped {
        0 => Finding::ok(figure, ""),
        _ => Finding::warn(
            figure,
            "the queue between network card and TCP has been full: each drop is a retransmission for a client",
            sysctl("net.core.netdev_max_backlog", round_up(max.saturating_mul(2))),
        ),
    }])
}

/// A table of connections that a firewall keeps: full, it refuses everybody.
pub fn conntrack(case: &Case<'_>) -> Judged {
    const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
    let max = match case.system.number(MAX) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Ok(vec![Finding::ok("no table", "the kernel tracks no connections here")]);
        }
        other => other?,
    };
    let used = case.system.number("/proc/sys/net/netfilter/nf_conntrack_count")?;
    let sides = if case.conf.passes { 2 } else { 1 };
    let wanted = case.clients().saturating_mul(sides);
    let figure = format!("{used} of {max} entries; the workers may have {wanted} connections");
    let mend =
        sysctl("net.netfilter.nf_conntrack_max", round_up(wanted.max(max.saturating_mul(2))));
    let full = "a full table drops packets of new connections (\"nf_conntrack: table full\")";
    Ok(vec![match used.saturating_mul(100) / max.max(1) {
        95.. => Finding::error(figure, full, mend),
        80.. => Finding::warn(figure, full, mend),
        _ if wanted > max => Finding::warn(
            figure,
            "worker_connections may fill the table, which then refuses everybody",
            mend,
        ),
        _ => Finding::ok(figure, ""),
    }])
}

/// Memory of all sockets together.
pub fn tcp_memory(case: &Case<'_>) -> Judged {
    let limits = case.system.text("/proc/sys/net/ipv4/tcp_mem")?;
    let mut limits = limits.split_ascii_whitespace().filter_map(|n| n.parse::<u64>().ok());
    let (_, pressure, max) = (limits.next(), limits.next(), limits.next());
    let sockstat = case.system.text(&case.of_net("sockstat"))?;
    let used = word(&sockstat, "TCP", "mem");
    let (Some(pressure), Some(max), Some(used)) = (pressure, max, used) else {
        return Err(std::io::Error::other("figures in an unknown form"));
    };
    let shown = |pages: u64| super::size(pages.saturating_mul(PAGE_BYTES));
    let figure =
        format!("{} used, pressure at {}, most {}", shown(used), shown(pressure), shown(max));
    let value = format!("\"{} {} {}\"", max, max.saturating_mul(2), max.saturating_mul(3));
    let mend = sysctl("net.ipv4.tcp_mem", value);
    Ok(vec![match used {
        n if n >= max => Finding::error(
            figure,
            "the kernel refuses memory to sockets: connections are cut",
            mend,
        ),
        n if n >= pressure => Finding::warn(
            figure,
            "the kernel shrinks the windows of all connections: transfers slow down",
            mend,
        ),
        _ => Finding::ok(figure, ""),
    }])
}

/// Sockets of workers of their own.
pub fn reuseport(case: &Case<'_>) -> Judged {
    let with: Vec<_> = case.conf.listens.iter().filter(|l| l.reuseport).collect();
    let Some(first) = with.first() else { return Ok(Vec::new()) };
    let workers = case.workers();
    let figure = format!("{} sockets with reuseport, {workers} workers", with.len());
    if workers < 2 {
        let why = format!("listen {}: with one worker there is nothing to share out", first.text);
        return Ok(vec![Finding::note(figure, why)]);
    }
    let why = "the kernel shares connections out by a hash of addresses; few clients with long connections may \
               meet on one worker";
    Ok(vec![Finding::ok(figure, if case.running.is_some() { "" } else { why })])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity;
    use crate::finding::Severity::{Error, Note, Ok as Well, Unknown, Warn};

    const TEXT: &str = "worker_processes 2; events { worker_connections 1000; } http { server { \
         listen 80; listen 81 backlog=4000; listen 82 udp backlog=9999; \
         location / { proxy_pass http://10.0.0.1; } } }";

    fn judge(check: fn(&Case<'_>) -> Judged, files: &[(&str, &str)]) -> (Severity, String) {
        let (conf, system) = (conf(TEXT), Fake::with(files));
        match check(&Case {
            conf: &conf,
            system: &system,
            running: None,
            receivers: Ok(&[]),
            told: Ok(None),
        }) {
            Err(_) => (Unknown, String::new()),
            Ok(found) => {
                let f = found.into_iter().next().unwrap();
                (f.severity, format!("{} {} {}", f.figure, f.why, f.mend))
            }
        }
    }

    #[test]
    fn a_queue_that_is_cut() {
        let (severity, text) = judge(backlog, &[(SOMAXCONN, "512\n")]);
        assert_eq!(severity, Warn);
        assert!(text.contains("1 of 2 sockets") && text.contains("somaxconn=4096"), "{text}");
        assert_eq!(judge(backlog, &[(SOMAXCONN, "4000\n")]).0, Well);
        assert_eq!(judge(backlog, &[]).0, Unknown);
    }

    #[test]
    fn half_open_connections() {
        let with = |max: &str, cookies: &str| {
            let max = ("/proc/sys/net/ipv4/tcp_max_syn_backlog", max);
            judge(syn, &[max, ("/proc/sys/net/ipv4/tcp_syncookies", cookies), (SOMAXCONN, "4096")])
                .0
        };
        assert_eq!(with("128", "1"), Note);
        assert_eq!(with("4096", "1"), Well);
        assert_eq!(with("128", "0"), Warn);
        assert_eq!(with("4096", "0"), Warn);
    }

    #[test]
    fn packets_that_were_dropped() {
        let max = ("/proc/sys/net/core/netdev_max_backlog", "1000");
        let with = |table: &str| judge(netdev, &[max, ("/proc/net/softnet_stat", table)]);
        assert_eq!(with("00000010 00000000 0\n00000010 00000000 0\n").0, Well);
        let (severity, text) = with("00000010 00000001 0\n00000010 0000000a 0\n");
        assert_eq!(severity, Warn);
        assert!(text.contains("11 of 32 packets") && text.contains("=2048"), "{text}");
    }

    #[test]
    fn a_table_that_fills() {
        let with = |used: &str, max: &str| {
            let dir = "/proc/sys/net/netfilter/nf_conntrack_";
            judge(conntrack, &[(&format!("{dir}count"), used), (&format!("{dir}max"), max)]).0
        };
        assert_eq!(judge(conntrack, &[]).0, Well, "no firewall");
        assert_eq!(with("1", "4000"), Well);
        assert_eq!(with("1", "3999"), Warn);
        assert_eq!(with("8000", "10000"), Warn);
        assert_eq!(with("9500", "10000"), Error);
    }

    #[test]
    fn memory_of_sockets() {
        let with = |used: &str| {
            let sockstat = format!("TCP: inuse 1 mem {used}\n");
            let mem = ("/proc/sys/net/ipv4/tcp_mem", "10 20 30");
            judge(tcp_memory, &[mem, ("/proc/net/sockstat", &sockstat)]).0
        };
        assert_eq!((with("19"), with("20"), with("30")), (Well, Warn, Error));
    }
}
