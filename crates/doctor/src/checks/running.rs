//! What the counters say of the server that runs.

use super::{round_up, Case, Judged};
use crate::finding::Finding;
use crate::proc::{self, counter, value};
use std::collections::BTreeMap;

/// Which it is.
pub fn process(case: &Case<'_>) -> Judged {
    let Some(running) = case.running else {
        let shown =
            case.conf.pid.as_ref().map_or("none is configured".into(), |p| p.display().to_string());
        return Ok(vec![Finding::note(
            format!("no server is found by the pid file ({shown})"),
            "what follows of a running server is left out",
        )]);
    };
    let status = case.system.text(&running.file("status"))?;
    let memory = value(&status, "VmRSS").unwrap_or(0).saturating_mul(1024);
    let who = match running.master == running.serving {
        true => format!("process {}", running.serving),
        false => format!("master {}, serving process {}", running.master, running.serving),
    };
    let figure =
        format!("{who}, {} workers, {} of memory", running.workers.len(), super::size(memory));
    let wanted = case.workers();
    Ok(vec![match (running.workers.len() as u64) < wanted {
        false => Finding::ok(figure, ""),
        true => Finding::note(
            figure,
            format!("the configuration says {wanted} workers: it is newer than the server"),
        )
        .mend("weir -s reload"),
    }])
}

/// Descriptors in use.
pub fn files(case: &Case<'_>) -> Judged {
    let Some(running) = case.running else { return Ok(Vec::new()) };
    let used = case.system.names(running.file("fd").as_ref())?.len() as u64;
    let limits = case.system.text(&running.file("limits"))?;
    let (soft, _) =
        proc::nofile(&limits).ok_or_else(|| std::io::Error::other("limits in an unknown form"))?;
    let figure = format!("{used} of {soft} in use");
    let mend = format!("worker_rlimit_nofile {};", round_up(case.conf.files_of_worker()));
    let why = "at the limit no connection is accepted any more (\"Too many open files\")";
    Ok(vec![match used.saturating_mul(100) / soft.max(1) {
        95.. => Finding::error(figure, why, mend),
        75.. => Finding::warn(figure, why, mend),
        _ => Finding::ok(figure, ""),
    }])
}

/// Connections that wait to be accepted.
pub fn queues(case: &Case<'_>) -> Judged {
    let Some(running) = case.running else { return Ok(Vec::new()) };
    let mut table = case.system.text(&running.file("net/tcp"))?;
    let six = case.system.text(&running.file("net/tcp6")).unwrap_or_default();
    table.push('\n');
    table.push_str(&six);
    let mut waiting: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
    for q in proc::queues(&table) {
        let of = waiting.entry(q.port).or_default();
        *of = (of.0.max(q.waiting), of.1 + 1);
    }
    let max = case.system.number("/proc/sys/net/core/somaxconn").unwrap_or(u64::MAX);
    let mut out = Vec::new();
    let mut ports: Vec<(u16, u64)> = Vec::new();
    for l in case.conf.listens.iter().filter(|l| !l.udp) {
        match l.port {
            Some(port) if !ports.iter().any(|(p, _)| *p == port) => {
                ports.push((port, l.backlog.min(max)))
            }
            _ => {}
        }
    }
    for (port, backlog) in ports {
        let Some((longest, sockets)) = waiting.get(&port) else {
            out.push(Finding::warn(
                format!("nobody listens on port {port}"),
                "the configuration names it: it is newer than the server, or the server could not have it",
                "weir -s reload, and the error log",
            ));
            continue;
        };
        let figure = format!("port {port}: {longest} of {backlog} wait, {sockets} sockets");
        let mend = format!(
            "more workers, and backlog={} on listen (with somaxconn)",
            round_up(backlog.saturating_mul(2))
        );
        out.push(match longest.saturating_mul(100) / backlog.max(1) {
            90.. => Finding::error(figure, "the queue is full: connections are dropped", mend),
            25.. => Finding::warn(figure, "workers do not accept as fast as clients come", mend),
            _ => Finding::ok(figure, ""),
        });
    }
    Ok(out)
}

/// Connections that were dropped since the machine, or the container, began.
pub fn overflows(case: &Case<'_>) -> Judged {
    let Some(running) = case.running else { return Ok(Vec::new()) };
    let text = case.system.text(&running.file("net/netstat"))?;
    let of = |name: &str| counter(&text, "TcpExt", name).unwrap_or(0);
    let (full, dropped) = (of("ListenOverflows"), of("ListenDrops"));
    let (memory, syn) = (of("TCPAbortOnMemory"), of("TCPReqQFullDrop"));
    let snmp = case.system.text(&running.file("net/snmp")).unwrap_or_default();
    let (sent, again) = (counter(&snmp, "Tcp", "OutSegs"), counter(&snmp, "Tcp", "RetransSegs"));
    let figure = format!(
        "ListenOverflows {full}, ListenDrops {dropped}, TCPReqQFullDrop {syn}, TCPAbortOnMemory {memory}, \
         {} of {} segments sent again",
        again.unwrap_or(0),
        sent.unwrap_or(0)
    );
    let whose = "of all listening sockets of this network namespace since it began";
    Ok(vec![match (full.max(dropped).max(syn), memory) {
        (0, 0) => Finding::ok(figure, ""),
        (0, _) => Finding::warn(
            figure,
            "connections were cut for want of memory of sockets",
            "a higher net.ipv4.tcp_mem (see TCP memory)",
        ),
        _ => Finding::warn(
            figure,
            format!("clients' connections were dropped because a queue was full, {whose}"),
            "backlog= on listen with net.core.somaxconn, or more workers; nstat -az TcpExtListenOverflows shows whether it goes on",
        ),
    }])
}

/// Whether workers have done alike.
pub fn balance(case: &Case<'_>) -> Judged {
    /// Below that it is the noise of the start: 2 s of the clock that they are counted by.
    const LITTLE_TICKS: u64 = 200;
    let Some(running) = case.running.filter(|r| r.workers.len() > 1) else { return Ok(Vec::new()) };
    let ticks: Vec<u64> = running.workers.iter().map(|t| t.ticks).collect();
    let all: u64 = ticks.iter().sum();
    let most = ticks.iter().copied().max().unwrap_or(0);
    let average = all / ticks.len() as u64;
    let shares = ticks.iter().map(|t| format!("{} %", (t * 100).checked_div(all).unwrap_or(0)));
    let figure = format!("CPU time of the workers: {}", shares.collect::<Vec<_>>().join(", "));
    let has = case.conf.listens.iter().any(|l| l.reuseport);
    let (why, mend) = match has {
        true => ("reuseport shares connections out by addresses: few clients with much work met on one worker", "listen without reuseport: workers then take what they can serve"),
        false => ("one worker has done most: few connections carry much (HTTP/2, WebSocket), and each stays where it was accepted", "listen with reuseport, or fewer keepalive_requests"),
    };
    Ok(vec![match all > LITTLE_TICKS && most > average.saturating_mul(2) {
        false => Finding::ok(figure, ""),
        true => Finding::note(figure, why).mend(mend),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity::{self, Error, Note, Ok as Well, Warn};
    use crate::proc::{Running, Thread};

    fn judge(
        check: fn(&Case<'_>) -> Judged,
        ticks: &[u64],
        files: &[(&str, &str)],
    ) -> Vec<Severity> {
        let conf =
            conf("worker_processes 2; http { server { listen 80 backlog=100; listen 81; } }");
        let system = Fake::with(files);
        let worker = |t: &u64| Thread { name: "worker".into(), ticks: *t };
        let running =
            Running { master: 7, serving: 8, workers: ticks.iter().map(worker).collect() };
        let found = check(&Case {
            conf: &conf,
            system: &system,
            running: Some(&running),
            receivers: Ok(&[]),
            told: Ok(None),
        })
        .unwrap();
        found.into_iter().map(|f| f.severity).collect()
    }

    #[test]
    fn no_server_is_no_fault() {
        let conf = conf("http { server { listen 80; } }");
        let case = Case {
            conf: &conf,
            system: &Fake::default(),
            running: None,
            receivers: Ok(&[]),
            told: Ok(None),
        };
        assert_eq!(process(&case).unwrap()[0].severity, Note);
        assert!([files, queues, overflows, balance]
            .iter()
            .all(|check| check(&case).unwrap().is_empty()));
    }

    #[test]
    fn queues_that_are_full() {
        let line =
            |port: u16, n: u64| format!(" 0: 00000000:{port:04X} 0:0 0A 00000000:{n:08X} 0\n");
        let with = |a: u64, b: u64| {
            let table = format!("head\n{}{}", line(80, a), line(81, b));
            judge(
                queues,
                &[],
                &[("/proc/8/net/tcp", &table), ("/proc/sys/net/core/somaxconn", "4096")],
            )
        };
        assert_eq!(with(24, 0), [Well, Well]);
        assert_eq!(with(25, 500), [Warn, Error]);
        assert_eq!(
            judge(queues, &[], &[("/proc/8/net/tcp", "head")]),
            [Warn, Warn],
            "nobody listens"
        );
    }

    #[test]
    fn counters_of_drops() {
        let with = |values: &str| {
            let text =
                format!("TcpExt: ListenOverflows ListenDrops TCPAbortOnMemory\nTcpExt: {values}\n");
            judge(overflows, &[], &[("/proc/8/net/netstat", &text)])
        };
        assert_eq!(
            (with("0 0 0"), with("1 0 0"), with("0 0 1")),
            (vec![Well], vec![Warn], vec![Warn])
        );
    }

    #[test]
    fn files_and_balance() {
        let limits = ("/proc/8/limits", "Max open files   4  4  files\n");
        let with = |n: usize| {
            let names: Vec<String> = (0..n).map(|i| format!("/proc/8/fd/{i}")).collect();
            let mut all: Vec<(&str, &str)> = names.iter().map(|n| (&**n, "")).collect();
            all.push(limits);
            judge(files, &[], &all)
        };
        assert_eq!((with(2), with(3), with(4)), (vec![Well], vec![Warn], vec![Error]));
        assert_eq!(judge(balance, &[1000, 900, 1100], &[]), [Well]);
        assert_eq!(judge(balance, &[1000, 10, 10], &[]), [Note]);
        assert_eq!(judge(balance, &[50, 0, 0], &[]), [Well]);
        let status = ("/proc/8/status", "VmRSS: 9 kB\n");
        assert_eq!(
            (judge(process, &[1, 1], &[status]), judge(process, &[1], &[status])),
            (vec![Well], vec![Note])
        );
    }
}
