//! The limits of the system that a server comes to, and where it is. Read when somebody looks; `weir doctor` judges them
//! for a configuration.
//!
//! Windows: these are Linux's; what cannot be read is left out.

use std::path::Path;
use weir_core::figures::{Figure, Figures};
use weir_runtime::machine;

/// No file of figures is longer.
const TEXT_MAX_BYTES: u64 = 256 << 10;

fn text(path: &str) -> Option<String> {
    let bytes = machine::beginning(Path::new(path), TEXT_MAX_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The n-th number of a file.
fn number(path: &str, n: usize) -> Option<u64> {
    text(path)?.split_ascii_whitespace().nth(n)?.parse().ok()
}

/// Names and values in two lines, as `/proc/net/netstat` has them.
fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|l| l.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|n| n == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// The number behind a word of a line, as `/proc/net/sockstat` has them.
fn word(text: &str, line: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(line))?;
    let mut words = line.split_ascii_whitespace().skip_while(|w| *w != name);
    words.nth(1)?.parse().ok()
}

fn open_files() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

/// Each with its name, how much of it is used and how much there is, as far as that can be known.
pub(crate) fn limits() -> Figure {
    let netstat = text("/proc/self/net/netstat").unwrap_or_default();
    let sockstat = text("/proc/self/net/sockstat").unwrap_or_default();
    let sys = |name: &str| number(&format!("/proc/sys/{name}"), 0);
    let ports = || {
        let range = "/proc/sys/net/ipv4/ip_local_port_range";
        Some(number(range, 1)?.saturating_sub(number(range, 0)?) + 1)
    };
    let of_tcp = |name| counter(&netstat, "TcpExt", name);
    let rows = [
        ("open files (nofile)", open_files(), machine::nofile().map(|(soft, _)| soft)),
        ("files of the system (file-max)", sys("fs/file-nr"), sys("fs/file-max")),
        ("listen backlog (somaxconn)", None, sys("net/core/somaxconn")),
        ("SYN backlog (tcp_max_syn_backlog)", None, sys("net/ipv4/tcp_max_syn_backlog")),
        ("packets waiting (netdev_max_backlog)", None, sys("net/core/netdev_max_backlog")),
        ("local ports (ip_local_port_range)", word(&sockstat, "TCP:", "inuse"), ports()),
        (
            "TIME_WAIT (tcp_max_tw_buckets)",
            word(&sockstat, "TCP:", "tw"),
            sys("net/ipv4/tcp_max_tw_buckets"),
        ),
        (
            "conntrack (nf_conntrack_max)",
            sys("net/netfilter/nf_conntrack_count"),
            sys("net/netfilter/nf_conntrack_max"),
        ),
        ("listen queue overflows (ListenOverflows)", of_tcp("ListenOverflows"), None),
        ("listen drops (ListenDrops)", of_tcp("ListenDrops"), None),
    ];
    let known = rows.into_iter().filter(|(_, used, max)| used.is_some() || max.is_some());
    Figure::List(known.map(|(name, used, max)| row(name, used, max)).collect())
}

fn row(name: &'static str, used: Option<u64>, max: Option<u64>) -> Figure {
    let mut figures = Figures::default();
    figures.put("name", name);
    if let Some(used) = used {
        figures.put("used", used);
    }
    // "No end" is written in several ways.
    if let Some(max) = max.filter(|max| *max < u64::MAX / 4) {
        figures.put("max", max);
    }
    Figure::Group(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_figures_are_read() {
        let netstat = "TcpExt: A ListenDrops\nTcpExt: 4 7\nIpExt: B\nIpExt: 1\n";
        assert_eq!(counter(netstat, "TcpExt", "ListenDrops"), Some(7));
        assert_eq!(counter(netstat, "TcpExt", "B"), None);
        assert_eq!(word("sockets: used 1\nTCP: inuse 5 orphan 0 tw 12\n", "TCP:", "tw"), Some(12));
        let figure = row("x", Some(3), Some(u64::MAX / 2));
        let mut out = Vec::new();
        figure.write_json(&mut out);
        assert_eq!(out, b"{\"name\":\"x\",\"used\":3}");
    }
}
