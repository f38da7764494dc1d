//! Receivers of events: their queues' folders, and how the running server does with them.

use super::{size, Case, Judged, Receiver};
use crate::conf::Ship;
use crate::finding::Finding;
use crate::system::Disk;

/// A receiver that is away for less comes back by itself as often as not.
const AWAY_MS: u64 = 60_000;
const SEGMENT: &str = ".seg";
const STATE: &str = ".state";

/// Whether a queue fits its disk, and whether what lies there is the workers'.
pub fn folders(case: &Case<'_>) -> Judged {
    let mut out = Vec::new();
    for ship in &case.conf.ships {
        match case.system.disk(&ship.dir) {
            Ok(disk) => out.push(disk_of(case, ship, &disk)),
            Err(e) => out.push(Finding::unknown(ship.dir.display(), e)),
        }
        out.extend(made(case, ship));
    }
    Ok(out)
}

fn disk_of(case: &Case<'_>, ship: &Ship, disk: &Disk) -> Finding {
    let dir = ship.dir.display();
    // What the queue has already is its own.
    let names = case.system.names(&ship.dir).unwrap_or_default();
    let segments = names.iter().filter(|name| name.ends_with(SEGMENT));
    let stamps = segments.filter_map(|name| case.system.stamp(&ship.dir.join(name)).ok());
    let held = stamps.fold(0, |sum: u64, stamp| sum.saturating_add(stamp.bytes));
    let room = disk.free_bytes.saturating_add(held);
    let figure = format!(
        "\"{}\" in {dir}: up to {}, {} free",
        ship.name,
        size(ship.max_bytes),
        size(disk.free_bytes)
    );
    let fits = format!("queue {dir} size={}m; or a larger disk", (room / 10 * 8) >> 20);
    if disk.is_read_only {
        let why = "nothing can be written there: every event is dropped";
        return Finding::error(figure, why, "mount -o remount,rw on its mount point");
    }
    if ship.max_bytes > room {
        let why = "the disk is full before the queue is: in an outage events are dropped sooner than the bound says, and logs and caches beside them have no room either";
        return Finding::error(figure, why, fits);
    }
    if disk.is_memory {
        let why = "the disk is memory: what waits is gone with the next start of the machine, and counts for the memory's limit";
        return Finding::warn(figure, why, "a folder on a disk");
    }
    if ship.max_bytes > room / 2 {
        let why = "in an outage of the receiver the queue takes most of what is free, which logs and caches on the same disk miss";
        return Finding::warn(figure, why, fits);
    }
    Finding::ok(figure, "")
}

/// Segments are the workers' own: those of somebody else they cannot open.
fn made(case: &Case<'_>, ship: &Ship) -> Option<Finding> {
    let names = case.system.names(&ship.dir).ok()?;
    let owner = case.system.stamp(&ship.dir).ok()?.owner;
    let strange: Vec<&String> = names
        .iter()
        .filter(|name| name.ends_with(SEGMENT) || name.ends_with(STATE))
        .filter(|name| case.system.stamp(&ship.dir.join(name)).is_ok_and(|s| s.owner != owner))
        .collect();
    let first = strange.first()?;
    let dir = ship.dir.display();
    Some(Finding::warn(
        format!("{} files in {dir} are not of the user that the folder is of, {first} for one", strange.len()),
        "the workers may not open what another user has made (\"user\" was changed, or the server was started as somebody else): the events in it are never sent",
        format!("chown -R --reference={dir} {dir}/*"),
    ))
}

/// What the server says; none where none runs or nothing is shipped.
fn told<'a>(case: &Case<'a>, out: &mut Vec<Finding>) -> &'a [Receiver] {
    match case.receivers {
        Ok(receivers) => receivers,
        Err(why) => {
            out.push(Finding::unknown("the running server's receivers", why));
            &[]
        }
    }
}

/// Whether receivers take what they are sent.
pub fn receivers(case: &Case<'_>) -> Judged {
    let mut out = Vec::new();
    for r in told(case, &mut out) {
        let waiting = format!("{} events wait", r.queued_events);
        if r.failing_ms == 0 {
            out.push(Finding::ok(format!("\"{}\" takes what it is sent, {waiting}", r.name), ""));
            continue;
        }
        let secs = r.failing_ms / 1000;
        let figure =
            format!("\"{}\" has not taken all for {secs} s ({}), {waiting}", r.name, r.last_error);
        let why = "events wait in the queue, and are dropped once that is full";
        let mend = "the receiver, or what its \"ship\" block says of it; weir ship status shows whether it goes on";
        out.push(match r.failing_ms {
            AWAY_MS.. => Finding::error(figure, why, mend),
            _ => Finding::warn(figure, why, mend),
        });
    }
    Ok(out)
}

/// How full queues are.
pub fn queues(case: &Case<'_>) -> Judged {
    let Ok(receivers) = case.receivers else { return Ok(Vec::new()) };
    let judged = receivers.iter().map(|r| {
        let percent = r.queued_bytes.saturating_mul(100) / r.max_bytes.max(1);
        let figure = format!(
            "\"{}\": {} of {} ({percent} %), {} events",
            r.name,
            size(r.queued_bytes),
            size(r.max_bytes),
            r.queued_events
        );
        let mend = format!(
            "a receiver that takes more, a larger batch, or queue … size={}m;",
            (r.max_bytes >> 20).saturating_mul(4).max(4)
        );
        match percent {
            90.. => Finding::error(figure, "the queue is full: events are dropped", mend),
            50.. => Finding::warn(
                figure,
                "the receiver does not keep up: when the queue is full events are dropped",
                mend,
            ),
            _ => Finding::ok(figure, ""),
        }
    });
    Ok(judged.collect())
}

/// What is gone for good.
pub fn lost(case: &Case<'_>) -> Judged {
    let Ok(receivers) = case.receivers else { return Ok(Vec::new()) };
    let mut out = Vec::new();
    for r in receivers {
        if r.dropped > 0 {
            out.push(Finding::error(
                format!("\"{}\": {} events were dropped since the start", r.name, r.dropped),
                "they found no room in the queue: it was full, its disk was, or they were longer than 64k",
                format!("queue … size={}m; or the receiver, if it was away", (r.max_bytes >> 20).saturating_mul(4).max(4)),
            ));
        }
        if r.refused > 0 {
            out.push(Finding::warn(
                format!("\"{}\": {} events were refused ({})", r.name, r.refused, r.last_error),
                "the receiver will never take them: a field does not fit what it has for it, or it has no such index or topic",
                format!("weir ship install {}, or the receiver's own log", r.name),
            ));
        }
        if r.lost_bytes > 0 {
            out.push(Finding::warn(
                format!("\"{}\": {} of its queue are no events", r.name, size(r.lost_bytes)),
                "a power cut, or somebody who writes the folder, has left what cannot be read",
                "a folder that is the workers' alone",
            ));
        }
        if (r.dropped, r.refused, r.lost_bytes) == (0, 0, 0) {
            out.push(Finding::ok(format!("\"{}\": none", r.name), ""));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity::{self, Error, Ok as Well, Unknown, Warn};
    use crate::system::Stamp;
    use std::collections::HashMap;
    use std::path::PathBuf;

    const TEXT: &str =
        "ship a { to file /x; queue /q size=1g; } ship b { to file /y; queue sub/q; } events {}";

    fn severities(judged: Judged) -> Vec<Severity> {
        judged.unwrap().into_iter().map(|f| f.severity).collect()
    }

    fn folder(disk: Disk, owners: &[(&str, u32)]) -> Vec<Severity> {
        let conf = conf(TEXT);
        assert_eq!(conf.ships[1].dir, PathBuf::from("/prefix/sub/q"));
        assert_eq!(conf.ships[1].max_bytes, 1 << 30);
        let files: Vec<(&str, &str)> = owners.iter().map(|(n, _)| (*n, "")).collect();
        let mut system = Fake::with(&files);
        system.disks = HashMap::from([(PathBuf::from("/q"), disk)]);
        for (name, owner) in owners.iter().chain(&[("/q", 33)]) {
            let stamp = Stamp { owner: *owner, bytes: 8, ..Stamp::default() };
            system.stamps.insert(PathBuf::from(name), stamp);
        }
        let case = Case {
            conf: &conf,
            system: &system,
            running: None,
            receivers: Ok(&[]),
            told: Ok(None),
        };
        let mut found = severities(folders(&case));
        assert_eq!(found.pop(), Some(Unknown), "the disk of b is not known");
        found
    }

    #[test]
    fn folders_and_their_disks() {
        let disk = |free_bytes| Disk { free_bytes, ..Disk::default() };
        assert_eq!(folder(disk(4 << 30), &[]), [Well]);
        assert_eq!(folder(disk(3 << 29), &[]), [Warn]);
        assert_eq!(folder(disk((1 << 30) - 1), &[]), [Error]);
        // What the queue has already is room.
        assert_eq!(folder(disk((1 << 30) - 8), &[("/q/1.seg", 33)]), [Warn]);
        assert_eq!(folder(Disk { is_memory: true, ..disk(4 << 30) }, &[]), [Warn]);
        assert_eq!(folder(Disk { is_read_only: true, ..disk(4 << 30) }, &[]), [Error]);
    }

    #[test]
    fn files_of_another_user() {
        let disk = || Disk { free_bytes: 4 << 30, ..Disk::default() };
        assert_eq!(folder(disk(), &[("/q/1.seg", 33), ("/q/2.seg", 0)]), [Well, Warn]);
        assert_eq!(folder(disk(), &[("/q/other", 0)]), [Well]);
    }

    fn judge(check: fn(&Case<'_>) -> Judged, receiver: Receiver) -> Vec<Severity> {
        let (conf, system) = (conf(TEXT), Fake::default());
        let receivers = [receiver];
        let case = Case {
            conf: &conf,
            system: &system,
            running: None,
            receivers: Ok(&receivers),
            told: Ok(None),
        };
        severities(check(&case))
    }

    #[test]
    fn receivers_that_are_away() {
        let away = |failing_ms| Receiver { failing_ms, ..Receiver::default() };
        assert_eq!(judge(receivers, away(0)), [Well]);
        assert_eq!(judge(receivers, away(1)), [Warn]);
        assert_eq!(judge(receivers, away(60_000)), [Error]);
        let (conf, system) = (conf(TEXT), Fake::default());
        let case = Case {
            conf: &conf,
            system: &system,
            running: None,
            receivers: Err("no"),
            told: Ok(None),
        };
        assert_eq!(severities(receivers(&case)), [Unknown]);
        assert_eq!(severities(queues(&case)), []);
    }

    #[test]
    fn queues_that_fill_and_events_that_are_lost() {
        let full = |queued_bytes| Receiver { queued_bytes, max_bytes: 100, ..Receiver::default() };
        assert_eq!(judge(queues, full(49)), [Well]);
        assert_eq!(judge(queues, full(50)), [Warn]);
        assert_eq!(judge(queues, full(90)), [Error]);
        assert_eq!(judge(lost, full(0)), [Well]);
        let all = Receiver { dropped: 1, refused: 1, lost_bytes: 1, ..Receiver::default() };
        assert_eq!(judge(lost, all), [Error, Warn, Warn]);
    }
}
