//! Figures of `/proc` and `/sys` in their files' forms, and the server that runs.

use crate::system::System;
use std::io;
use std::path::{Path, PathBuf};

/// A value behind `NAME:` or `NAME ` at a line's beginning.
pub fn value(text: &str, name: &str) -> Option<u64> {
    let behind =
        |line: &str| line.strip_prefix(name)?.strip_prefix([':', ' ', '\t']).map(str::to_owned);
    let found = text.lines().find_map(behind)?;
    found.split_ascii_whitespace().next()?.parse().ok()
}

/// A counter of `/proc/net/netstat` or `snmp`: a line of names and one of values for each protocol.
pub fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut of = text.lines().filter_map(|l| l.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, values) = (of.next()?, of.next()?);
    let at = names.split_ascii_whitespace().position(|n| n == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// A word's value in a line of `/proc/net/sockstat`: `TCP: inuse 5 orphan 0 tw 2 …`.
pub fn word(text: &str, line: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'))?;
    let mut words = line.split_ascii_whitespace().skip_while(|w| *w != name);
    words.nth(1)?.parse().ok()
}

/// A socket that listens: its port, and how many connections wait in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub port: u16,
    pub waiting: u64,
}

/// Those of `/proc/net/tcp` or `tcp6`.
pub fn queues(text: &str) -> Vec<Queue> {
    const LISTENS: &str = "0A";
    let of = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.get(3) != Some(&LISTENS) {
            return None;
        }
        let port = u16::from_str_radix(words[1].rsplit(':').next()?, 16).ok()?;
        let waiting = u64::from_str_radix(words.get(4)?.rsplit(':').next()?, 16).ok()?;
        Some(Queue { port, waiting })
    };
    text.lines().skip(1).filter_map(of).collect()
}

/// Soft and hard limit of open files in `/proc/PID/limits`.
pub fn nofile(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|l| l.strip_prefix("Max open files"))?;
    let number = |w: &str| if w == "unlimited" { Some(u64::MAX) } else { w.parse().ok() };
    let mut words = line.split_ascii_whitespace().map(number);
    Some((words.next()??, words.next()??))
}

/// The numbers of a list such as `0-3,8`: CPUs, nodes, ports.
pub fn numbers(list: &str) -> Vec<usize> {
    const MAX: usize = 65_535;
    let of = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        Some(from..=to.min(MAX))
    };
    list.split(',').filter_map(of).flatten().collect()
}

/// A worker's thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    pub name: String,
    /// What it has used of its processor since it began.
    pub ticks: u64,
}

/// The server that serves by the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The pid file's.
    pub master: u32,
    /// The one whose threads are the workers; the same where there is no master.
    pub serving: u32,
    pub workers: Vec<Thread>,
}

impl Running {
    /// By its pid file; `Ok(None)` if no server runs.
    ///
    /// # Errors
    ///
    /// The pid file or the process may not be read.
    pub fn find(system: &dyn System, pid_file: &Path) -> io::Result<Option<Running>> {
        let text = match system.read(pid_file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let text = String::from_utf8_lossy(&text);
        let Ok(master) = text.trim().parse::<u32>() else { return Ok(None) };
        let Ok(children) = system.text(&format!("/proc/{master}/task/{master}/children")) else {
            return of(system, master, master);
        };
        let children = children.split_ascii_whitespace().filter_map(|n| n.parse().ok());
        for serving in std::iter::once(master).chain(children) {
            if let Some(found) = of(system, master, serving)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A file of the serving process.
    pub fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.serving)
    }
}

/// A process that has workers.
fn of(system: &dyn System, master: u32, serving: u32) -> io::Result<Option<Running>> {
    let dir = PathBuf::from(format!("/proc/{serving}/task"));
    let Ok(tasks) = system.names(&dir) else { return Ok(None) };
    let thread = |id: &String| {
        let at = |name: &str| format!("/proc/{serving}/task/{id}/{name}");
        let name = system.text(&at("comm")).ok().filter(|n| n.starts_with("worker "))?;
        let stat = system.text(&at("stat")).ok()?;
        // The name, in brackets, may have blanks.
        let behind = stat.rsplit_once(')')?.1;
        let mut words = behind.split_ascii_whitespace().skip(11).map(|n| n.parse::<u64>());
        let ticks = words.next()?.ok()? + words.next()?.ok()?;
        Some(Thread { name, ticks })
    };
    let mut workers: Vec<Thread> = tasks.iter().filter_map(thread).collect();
    workers.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    Ok((!workers.is_empty()).then_some(Running { master, serving, workers }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn forms() {
        assert_eq!(value("MemTotal:  7 kB\nSwap: 1", "MemTotal"), Some(7));
        assert_eq!(value("nr_periods 12\n", "nr_periods"), Some(12));
        let netstat = "TcpExt: A ListenDrops\nTcpExt: 1 22\nIpExt: A\nIpExt: 3\n";
        assert_eq!(counter(netstat, "TcpExt", "ListenDrops"), Some(22));
        assert_eq!(counter(netstat, "TcpExt", "B"), None);
        let sockstat = "sockets: used 1\nTCP: inuse 5 orphan 0 tw 9 alloc 7 mem 1\n";
        assert_eq!(word(sockstat, "TCP", "tw"), Some(9));
        let tcp =
            "  sl  local rem st tx:rx\n   0: 00000000:0050 00000000:0000 0A 00000000:00000003 0\n\
                     1: 0100007F:0051 00000000:0000 01 00000000:00000000 0\n";
        assert_eq!(queues(tcp), [Queue { port: 80, waiting: 3 }]);
        let limits = "Limit  Soft  Hard\nMax open files            1024    unlimited   files\n";
        assert_eq!(nofile(limits), Some((1024, u64::MAX)));
        assert_eq!(numbers("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(numbers(""), [0usize; 0]);
    }

    #[test]
    fn the_serving_process_is_found_below_its_master() {
        let stat = "8 (worker 1) S 7 1 1 0 -1 0 0 0 0 0 30 12 0 0 20";
        let system = Fake::with(&[
            ("/run/x.pid", "7\n"),
            ("/proc/7/task/7/children", "8 "),
            ("/proc/7/task/7/comm", "weir\n"),
            ("/proc/8/task/8/comm", "weir\n"),
            ("/proc/8/task/9/comm", "worker 1\n"),
            ("/proc/8/task/9/stat", stat),
        ]);
        let found = Running::find(&system, Path::new("/run/x.pid")).unwrap().unwrap();
        assert_eq!((found.master, found.serving), (7, 8));
        assert_eq!(found.workers, [Thread { name: "worker 1".into(), ticks: 42 }]);
        assert_eq!(found.file("limits"), "/proc/8/limits");
        assert_eq!(Running::find(&system, Path::new("/run/y.pid")).unwrap(), None);
        let closed = Fake { is_closed: true, ..Fake::default() };
        assert!(Running::find(&closed, Path::new("/run/x.pid")).is_err());
    }
}
