//! Descriptors: of the server, and of the whole system.

use super::{Case, Judged};
use crate::finding::Finding;
use crate::proc;

/// What the server may open: the limit that it has, or will set itself.
fn limit(case: &Case<'_>) -> Option<(u64, &'static str)> {
    if let Some(running) = case.running {
        let text = case.system.text(&running.file("limits")).ok()?;
        return Some((proc::nofile(&text)?.0, "of the running server"));
    }
    let workers = case.workers();
    if let Some(told) = case.conf.rlimit_nofile {
        return Some((told.saturating_mul(workers), "by worker_rlimit_nofile"));
    }
    let (soft, hard) = case.system.nofile()?;
    Some((soft.saturating_mul(workers).min(hard.max(soft)), "as this shell has it (ulimit -n)"))
}

/// Enough for clients, servers, files kept open and logs.
pub fn nofile(case: &Case<'_>) -> Judged {
    let Some((all, whose)) = limit(case) else {
        return Err(std::io::ErrorKind::Unsupported.into());
    };
    let (workers, conf) = (case.workers(), case.conf);
    let (each, wanted) = (all / workers, conf.files_of_worker());
    let mut parts = vec![format!("{} clients", conf.connections)];
    if conf.passes {
        parts.push(format!("{} connections to servers, {} idle", conf.connections, conf.idle()));
    }
    if conf.open_files > 0 {
        parts.push(format!("{} kept files", conf.open_files));
    }
    let figure = format!(
        "{all} {whose}, {each} for each of {workers} workers, which may want {wanted} ({})",
        parts.join(", ")
    );
    let mend = format!("worker_rlimit_nofile {};", super::round_up(wanted));
    let more = match case.running.is_some() || conf.rlimit_nofile.is_none() {
        true => format!(
            "{mend}  (not root: LimitNOFILE={} in the service's unit, too)",
            super::round_up(wanted).saturating_mul(workers)
        ),
        false => mend,
    };
    Ok(vec![match each {
        n if n < conf.connections => Finding::error(
            figure,
            format!("worker_connections {} cannot be had: accept() fails (\"Too many open files\")", conf.connections),
            more,
        ),
        n if n < wanted => Finding::warn(
            figure,
            "with all worker_connections in use, connections to servers or files fail (\"Too many open files\")",
            more,
        ),
        _ => Finding::ok(figure, ""),
    }])
}

/// The same for the system as a whole.
pub fn file_max(case: &Case<'_>) -> Judged {
    let text = case.system.text("/proc/sys/fs/file-nr")?;
    let mut words = text.split_ascii_whitespace().map(|n| n.parse::<u64>().unwrap_or(u64::MAX));
    let (used, max) = (words.next().unwrap_or(0), words.nth(1).unwrap_or(u64::MAX));
    let wanted = case.workers().saturating_mul(case.conf.files_of_worker());
    let shown = if max > u64::MAX / 4 { "no end".into() } else { max.to_string() };
    let figure = format!("{used} of {shown} in use, the workers may want {wanted}");
    let mut found = vec![match max.saturating_sub(used) < wanted {
        false => Finding::ok(figure, ""),
        true => Finding::warn(
            figure,
            "the whole machine runs out of files before the workers are at their limits",
            super::sysctl(
                "fs.file-max",
                super::round_up(wanted.saturating_add(used).saturating_mul(2)),
            ),
        ),
    }];
    if let (Some(told), Ok(most)) =
        (case.conf.rlimit_nofile, case.system.number("/proc/sys/fs/nr_open"))
    {
        let all = told.saturating_mul(case.workers());
        if all > most {
            found.push(Finding::error(
                format!(
                    "nr_open {most}, worker_rlimit_nofile {told} for {} workers is {all}",
                    case.workers()
                ),
                "setrlimit() fails, for root too, and the limit stays as it is",
                super::sysctl("fs.nr_open", super::round_up(all)),
            ));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity::{self, Error, Ok as Well, Warn};
    use crate::proc::Running;

    const PASSING: &str =
        "worker_processes 2; events { worker_connections 1000; } http { server { \
                           listen 80; location / { proxy_pass http://10.0.0.1; } } }";

    fn judge(text: &str, limits: (u64, u64)) -> Severity {
        let system = Fake { nofile: Some(limits), ..Fake::default() };
        let conf = conf(text);
        nofile(&Case {
            conf: &conf,
            system: &system,
            running: None,
            receivers: Ok(&[]),
            told: Ok(None),
        })
        .unwrap()[0]
            .severity
    }

    #[test]
    fn open_files() {
        assert_eq!(judge(PASSING, (999, 1 << 20)), Error);
        assert_eq!(judge(PASSING, (1024, 1 << 20)), Warn);
        assert_eq!(judge(PASSING, (4096, 1 << 20)), Well);
        assert_eq!(judge(PASSING, (4096, 4096)), Warn, "two workers share what may be had");
        assert_eq!(judge(&format!("worker_rlimit_nofile 5000; {PASSING}"), (1, 1)), Well);
        assert_eq!(judge("events { worker_connections 900; }", (1024, 4096)), Well);
    }

    #[test]
    fn a_running_server_has_its_own() {
        let limits = "Max open files            1024   4096   files\n";
        let system = Fake::with(&[("/proc/8/limits", limits)]);
        let running = Running { master: 7, serving: 8, workers: Vec::new() };
        let conf = conf(&format!("worker_rlimit_nofile 50000; {PASSING}"));
        let case = Case {
            conf: &conf,
            system: &system,
            running: Some(&running),
            receivers: Ok(&[]),
            told: Ok(None),
        };
        assert_eq!(nofile(&case).unwrap()[0].severity, Error);
    }

    #[test]
    fn the_systems_files() {
        let judge = |text: &str, nr: &str| -> Vec<Severity> {
            let system =
                Fake::with(&[("/proc/sys/fs/file-nr", nr), ("/proc/sys/fs/nr_open", "1048576")]);
            let conf = conf(text);
            let found = file_max(&Case {
                conf: &conf,
                system: &system,
                running: None,
                receivers: Ok(&[]),
                told: Ok(None),
            })
            .unwrap();
            found.into_iter().map(|f| f.severity).collect()
        };
        assert_eq!(judge(PASSING, "100 0 9223372036854775807"), [Well]);
        assert_eq!(judge(PASSING, "100 0 4000"), [Warn]);
        let much = format!("worker_rlimit_nofile 600000; {PASSING}");
        assert_eq!(judge(&much, "100 0 9223372036854775807"), [Well, Error]);
    }
}
