//! Ports for connections to servers: every one to the same address needs its own, for a minute after its end too.

use super::{round_up, sysctl, Case, Judged};
use crate::finding::Finding;
use crate::proc::word;

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const WIDE: &str = "\"1024 65535\"";
/// How long an ended connection keeps its port.
const TIME_WAIT_SECS: u64 = 60;

fn range_of(case: &Case<'_>) -> std::io::Result<(u64, u64)> {
    let text = case.system.text(RANGE)?;
    let mut ends = text.split_ascii_whitespace().filter_map(|n| n.parse().ok());
    let range = ends.next().zip(ends.next()).filter(|(low, high)| low <= high);
    range.ok_or_else(|| std::io::Error::other("a range in an unknown form"))
}

/// Enough ports for what the workers may open, and none that is to be listened on.
pub fn range(case: &Case<'_>) -> Judged {
    let (low, high) = range_of(case)?;
    let ports = high - low + 1;
    let mut found = Vec::new();
    // The group of the fewest servers runs out first.
    let groups = case.conf.upstreams.iter().filter(|u| u.servers > 0);
    if let Some(tightest) = groups.min_by_key(|u| u.servers).filter(|_| case.conf.passes) {
        let wanted = case.clients() / tightest.servers;
        let of = match tightest.servers {
            1 => format!("the one server of {}", tightest.name),
            n => format!("each of the {n} servers of {}", tightest.name),
        };
        let figure = format!("{low}-{high}, {ports} ports; up to {wanted} connections to {of}");
        found.push(match wanted > ports {
            false => Finding::ok(figure, ""),
            true => Finding::warn(
                figure,
                "connections to one address need a port each: above that connect() fails (\"Cannot assign \
                 requested address\") and clients get 502",
                match ports < 64_000 {
                    true => sysctl("net.ipv4.ip_local_port_range", WIDE),
                    false => "name the server by several addresses, or lower worker_connections".into(),
                },
            ),
        });
    } else {
        found.push(Finding::ok(format!("{low}-{high}, {ports} ports"), ""));
    }
    let reserved =
        case.system.text("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    let reserved = crate::proc::numbers(&reserved);
    let is_taken = |port: u16| {
        (low..=high).contains(&u64::from(port)) && !reserved.contains(&usize::from(port))
    };
    let mut taken: Vec<u16> = case.conf.listens.iter().filter_map(|l| l.port).collect();
    taken.retain(|p| is_taken(*p));
    taken.sort_unstable();
    taken.dedup();
    if let Some(first) = taken.first().filter(|_| case.conf.passes) {
        let all = taken.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        found.push(
            Finding::note(
                format!("listen {first} is within {low}-{high}"),
                "a connection to a server may have the port when this one starts (\"Address already in use\")",
            )
            .mend(sysctl("net.ipv4.ip_local_reserved_ports", all)),
        );
    }
    Ok(found)
}

/// Ended connections that still hold ports.
pub fn time_wait(case: &Case<'_>) -> Judged {
    let sockstat = case.system.text(&case.of_net("sockstat"))?;
    let Some(waiting) = word(&sockstat, "TCP", "tw") else {
        return Err(std::io::Error::other("figures in an unknown form"));
    };
    let max = case.system.number("/proc/sys/net/ipv4/tcp_max_tw_buckets")?;
    let (low, high) = range_of(case)?;
    let ports = high - low + 1;
    let figure = format!("{waiting} connections of at most {max}, {ports} local ports");
    if waiting.saturating_mul(10) >= max.saturating_mul(9) {
        let why = "above that the kernel ends them early: late packets may meet new connections";
        let mend = sysctl("net.ipv4.tcp_max_tw_buckets", round_up(max.saturating_mul(2)));
        return Ok(vec![Finding::warn(figure, why, mend)]);
    }
    if case.conf.passes && waiting.saturating_mul(2) >= ports {
        let why = format!(
            "connections to servers are opened for each request, about {} a second: they may run out of ports",
            waiting / TIME_WAIT_SECS
        );
        let mend =
            "keepalive in the upstream block (proxy_http_version 1.1), so that they are used again";
        return Ok(vec![Finding::warn(figure, why, mend)]);
    }
    Ok(vec![Finding::ok(figure, "")])
}

/// Ports of ended connections, for new ones to the same servers.
pub fn reuse(case: &Case<'_>) -> Judged {
    let far: Vec<_> = case.conf.upstreams.iter().filter(|u| !u.is_local && u.servers > 0).collect();
    let Some(first) = far.iter().find(|u| u.keepalive == 0).or(far.first()) else {
        return Ok(Vec::new());
    };
    let value = case.system.number("/proc/sys/net/ipv4/tcp_tw_reuse")?;
    let figure = format!("{value}, keepalive of {} {}", first.name, first.keepalive);
    Ok(vec![match (value, first.keepalive) {
        (1, _) | (_, 1..) => Finding::ok(figure, ""),
        _ => Finding::warn(
            figure,
            format!("connections to it are closed after each request and hold their ports for {TIME_WAIT_SECS} seconds"),
            sysctl("net.ipv4.tcp_tw_reuse", 1),
        ),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity;
    use crate::finding::Severity::{Note, Ok as Well, Warn};

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

    fn with(connections: u64, more: &str) -> String {
        format!(
            "worker_processes 2; events {{ worker_connections {connections}; }} http {{ \
             upstream u {{ server 10.0.0.1; server 10.0.0.2; {more} }} \
             server {{ listen 40000; location / {{ proxy_pass http://u; }} }} }}"
        )
    }

    #[test]
    fn ports_for_servers() {
        let files = [(RANGE, "32768\t60999\n")];
        assert_eq!(judge(range, &with(28232, ""), &files), [Well, Note]);
        assert_eq!(judge(range, &with(28233, ""), &files), [Warn, Note]);
        let reserved = ("/proc/sys/net/ipv4/ip_local_reserved_ports", "39999-40001");
        assert_eq!(judge(range, &with(1, ""), &[files[0], reserved]), [Well]);
        assert_eq!(judge(range, "http { server { listen 40000; } }", &files), [Well]);
    }

    #[test]
    fn ended_connections() {
        let max = ("/proc/sys/net/ipv4/tcp_max_tw_buckets", "20000");
        let many = |n: u64| {
            let sockstat = format!("TCP: inuse 5 orphan 0 tw {n} alloc 7 mem 1\n");
            let files = [("/proc/net/sockstat", &*sockstat), max, (RANGE, "32768 60999")];
            judge(time_wait, &with(1, ""), &files)
        };
        assert_eq!(
            (many(14_115), many(14_116), many(18_000)),
            (vec![Well], vec![Warn], vec![Warn])
        );
        let reuses = |value: &str, more: &str| {
            judge(reuse, &with(1, more), &[("/proc/sys/net/ipv4/tcp_tw_reuse", value)])
        };
        assert_eq!(reuses("2", "keepalive 0;"), [Warn]);
        assert_eq!(reuses("1", "keepalive 0;"), [Well]);
        assert_eq!(reuses("0", ""), [Well]);
    }
}
