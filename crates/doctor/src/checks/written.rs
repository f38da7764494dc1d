//! Disks of logs, caches and temporary files.

use super::{size, Case, Judged};
use crate::conf::{Cache, Use, Written, CACHE_MEMORY_BYTES};
use crate::finding::Finding;
use crate::system::Disk;
use std::path::Path;

const LITTLE_BYTES: u64 = 1 << 30;

fn what(used: Use) -> &'static str {
    match used {
        Use::Log => "logs",
        Use::Cache => "a cache",
        Use::Temporary => "temporary files",
    }
}

/// Each disk once, with the first path on it.
fn disks<'a>(case: &Case<'a>) -> (Vec<(&'a Written, Disk)>, Vec<Finding>) {
    let mut found: Vec<(&Written, Disk)> = Vec::new();
    let mut failed = Vec::new();
    for w in &case.conf.written {
        match case.system.disk(&w.path) {
            Ok(disk) if found.iter().any(|(o, d)| d.device == disk.device && o.what == w.what) => {}
            Ok(disk) => found.push((w, disk)),
            Err(e) => failed.push(Finding::unknown(w.path.display(), e)),
        }
    }
    (found, failed)
}

/// Room, and files that may be made.
pub fn space(case: &Case<'_>) -> Judged {
    let (disks, mut out) = disks(case);
    for (w, disk) in disks {
        let percent =
            |free: u64, all: u64| free.saturating_mul(100).checked_div(all).unwrap_or(100);
        let (bytes, files) =
            (percent(disk.free_bytes, disk.bytes), percent(disk.free_files, disk.files));
        let figure = format!(
            "{}, with {}: {bytes} % free, {}; files: {files} % free",
            w.path.display(),
            what(w.what),
            size(disk.free_bytes)
        );
        let why = match w.what {
            Use::Log => "a full disk has lines of the log dropped, silently for clients",
            Use::Cache => {
                "a full disk keeps answers from being cached, so that servers are asked for all"
            }
            Use::Temporary => "a full disk fails uploads and large answers (500)",
        };
        let mend = match w.what {
            Use::Log => "rotate and compress logs (logrotate), or move them to another disk",
            Use::Cache => "max_size= and min_free= of the cache's path, or a larger disk",
            Use::Temporary => "a larger disk, or its *_temp_path elsewhere",
        };
        let is_little = disk.free_bytes < LITTLE_BYTES && bytes < 20;
        out.push(match bytes.min(files) {
            0 => Finding::error(figure, why, mend),
            1..=9 => Finding::warn(figure, why, mend),
            _ if is_little => Finding::warn(figure, why, mend),
            _ => Finding::ok(figure, ""),
        });
    }
    Ok(out)
}

/// Whether a disk turns.
fn turns(case: &Case<'_>, disk: &Disk) -> bool {
    let dir = format!("/sys/dev/block/{}", disk.device_name);
    let read = |path: String| case.system.number(&path).ok();
    let of_partition = || read(format!("{dir}/../queue/rotational"));
    read(format!("{dir}/queue/rotational")).or_else(of_partition) == Some(1)
}

/// Whether somebody has said how much of a cache is in memory.
fn has_memory(case: &Case<'_>, path: &Path) -> bool {
    case.conf.caches.iter().any(|c| c.path == path && c.memory_bytes > CACHE_MEMORY_BYTES)
}

/// How disks are mounted, and of which kind they are.
pub fn mounts(case: &Case<'_>) -> Judged {
    let mut out = Vec::new();
    for (w, disk) in disks(case).0 {
        let path = w.path.display();
        let place = |text: &str| format!("{path}, with {}: {text}", what(w.what));
        let remount = |options: &str| {
            format!("mount -o remount,{options} on its mount point, and in /etc/fstab")
        };
        if disk.is_read_only {
            let why = "nothing can be written there";
            out.push(Finding::error(place("read-only"), why, remount("rw")));
        } else if disk.is_memory && w.what == Use::Log {
            let why = "the disk is memory: logs are gone with the next start";
            out.push(Finding::warn(place("tmpfs"), why, "a path on a disk, or syslog:"));
        } else if disk.is_memory {
            let text = format!("tmpfs of {}", size(disk.bytes));
            out.push(Finding::note(
                place(&text),
                "the disk is memory, which counts for the machine's and the group's limit",
            ));
        } else if disk.is_atime_strict {
            let why = "every read of a file writes the time of it";
            out.push(Finding::warn(place("strictatime"), why, remount("noatime")));
        } else if w.what == Use::Cache && !has_memory(case, &w.path) && turns(case, &disk) {
            let why = "a hit that is not in memory waits for the disk's arm, some 10 ms";
            let mend =
                "memory=SIZE of the cache's path (more than the 32m that it has), so that often asked answers are not read from it";
            out.push(Finding::note(place("a disk that turns, as the kernel says"), why).mend(mend));
        } else {
            out.push(Finding::ok(place("writable, no atime for each read"), ""));
        }
    }
    Ok(out)
}

/// Caches that fit their disks, and whose answers are renamed rather than copied into them.
pub fn caches(case: &Case<'_>) -> Judged {
    let mut out = Vec::new();
    let disk_of = |path: &Path| case.system.disk(path);
    for cache in &case.conf.caches {
        let path = cache.path.display();
        let disk = disk_of(&cache.path)?;
        let mut is_well = true;
        if let Some(temp) = &cache.temp {
            if disk_of(temp).is_ok_and(|t| t.device != disk.device) {
                is_well = false;
                out.push(Finding::warn(
                    format!("{path}: temporary files are on another disk ({})", temp.display()),
                    "each answer is written twice, and a reader may meet the copy half done: rename() works within one disk",
                    "use_temp_path=off on the cache's path",
                ));
            }
        }
        let needed = cache.max_bytes.map(|max| max.saturating_add(cache.min_free_bytes));
        let asked =
            cache.max_bytes.map_or("no max_size".into(), |m| format!("max_size {}", size(m)));
        let figure =
            format!("{path}: {asked}, disk {}, {} free", size(disk.bytes), size(disk.free_bytes));
        // What else is on the disk stays there; what the cache has already is not known here.
        let mend = format!("max_size={}m", (disk.free_bytes / 10 * 8) >> 20);
        match needed {
            Some(needed) if needed > disk.bytes => {
                let why = "the disk is full before the cache removes anything";
                out.push(Finding::error(figure, why, mend));
            }
            None if cache.min_free_bytes == 0 => {
                let why = "nothing bounds it but inactive=: many different answers fill the disk";
                out.push(Finding::warn(figure, why, mend));
            }
            Some(needed) if needed > disk.free_bytes => {
                out.extend(beyond_free(case, cache, &disk, needed, figure, is_well));
            }
            _ if is_well => out.push(Finding::ok(figure, "")),
            _ => {}
        }
    }
    Ok(out)
}

/// A cache that may have more than is free: what it has already counts for it, what else is on the disk does not.
fn beyond_free(
    case: &Case<'_>,
    cache: &Cache,
    disk: &Disk,
    needed: u64,
    figure: String,
    is_well: bool,
) -> Option<Finding> {
    let Some(held) = case.system.bytes_below(&cache.path) else {
        let why = "more than is free; what is in the cache already is too much to be counted here";
        return Some(Finding::note(figure, why));
    };
    let figure = format!("{figure}, {} in it", size(held));
    let room = disk.free_bytes.saturating_add(held);
    if needed <= room {
        return is_well.then(|| Finding::ok(figure, ""));
    }
    let why = "what else is on the disk stays there: it is full before the cache removes anything";
    Some(Finding::warn(figure, why, format!("max_size={}m", (room / 10 * 8) >> 20)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity::{self, Error, Note, Ok as Well, Unknown, Warn};

    const TEXT: &str = "error_log /log/a; http { access_log /log/a; proxy_temp_path /temp; \
                        proxy_cache_path /cache keys_zone=c:1m max_size=8g; }";

    fn disk(device: u64) -> Disk {
        let bytes = 10 << 30;
        Disk { device, bytes, free_bytes: bytes / 2, files: 100, free_files: 50, ..Disk::default() }
    }

    fn judge(check: fn(&Case<'_>) -> Judged, text: &str, disks: [Disk; 3]) -> Vec<Severity> {
        found(check, text, disks).into_iter().map(|f| f.severity).collect()
    }

    fn found(check: fn(&Case<'_>) -> Judged, text: &str, disks: [Disk; 3]) -> Vec<Finding> {
        let paths = ["/log/a", "/cache", "/temp"];
        let disks = paths.iter().map(std::path::PathBuf::from).zip(disks).collect();
        let bytes_below = Some(3 << 30);
        let system = Fake {
            disks,
            bytes_below,
            ..Fake::with(&[("/sys/dev/block/8:1/../queue/rotational", "1\n")])
        };
        let conf = conf(text);
        check(&Case {
            conf: &conf,
            system: &system,
            running: None,
            receivers: Ok(&[]),
            told: Ok(None),
        })
        .unwrap()
    }

    #[test]
    fn disks_that_fill() {
        let full = |percent: u64| Disk { free_bytes: (10 << 30) / 100 * percent, ..disk(1) };
        assert_eq!(judge(space, TEXT, [disk(1), disk(1), disk(1)]), [Well, Well, Well]);
        assert_eq!(judge(space, TEXT, [full(0), full(9), full(20)]), [Error, Warn, Well]);
        let no_files = Disk { free_files: 0, ..disk(1) };
        assert_eq!(judge(space, TEXT, [disk(1), no_files, disk(1)])[1], Error);
        let as_many = Disk { files: 0, free_files: 0, ..disk(1) };
        assert_eq!(judge(space, TEXT, [as_many, disk(1), disk(1)])[0], Well);
        let nowhere = Fake::default();
        let conf = conf(TEXT);
        let found = space(&Case {
            conf: &conf,
            system: &nowhere,
            running: None,
            receivers: Ok(&[]),
            told: Ok(None),
        })
        .unwrap();
        assert!(found.iter().all(|f| f.severity == Unknown) && found.len() == 3);
    }

    #[test]
    fn kinds_of_disks() {
        let memory = || Disk { is_memory: true, ..disk(2) };
        assert_eq!(judge(mounts, TEXT, [memory(), memory(), memory()]), [Warn, Note, Note]);
        let turning = Disk { device_name: "8:1".into(), ..disk(1) };
        let strict = Disk { is_atime_strict: true, ..disk(1) };
        let closed = Disk { is_read_only: true, ..disk(1) };
        let said = TEXT.replace("max_size", "memory=64m max_size");
        assert_eq!(judge(mounts, &said, [disk(1), turning.clone(), disk(1)]), [Well, Well, Well]);
        assert_eq!(judge(mounts, TEXT, [strict, turning, closed]), [Warn, Note, Error]);
    }

    #[test]
    fn caches_and_their_disks() {
        assert_eq!(judge(caches, TEXT, [disk(1), disk(1), disk(1)]), [Well]);
        assert_eq!(judge(caches, TEXT, [disk(1), disk(1), disk(2)]), [Warn]);
        let direct = TEXT.replace("max_size=8g", "max_size=8g use_temp_path=off");
        assert_eq!(judge(caches, &direct, [disk(1), disk(1), disk(2)]), [Well]);
        // 5 GB are free, and 3 are in it.
        let all = found(caches, &TEXT.replace("8g", "9g"), [disk(1), disk(1), disk(1)]);
        assert!(all[0].severity == Warn && format!("{:?}", all[0]).contains("max_size=6553m"));
        assert_eq!(judge(caches, &TEXT.replace("8g", "11g"), [disk(1), disk(1), disk(1)]), [Error]);
        assert_eq!(
            judge(caches, &TEXT.replace("max_size=8g", ""), [disk(1), disk(1), disk(1)]),
            [Warn]
        );
        let all = found(caches, &TEXT.replace("max_size=8g", ""), [disk(1), disk(1), disk(1)]);
        assert!(format!("{:?}", all[0]).contains("max_size=4096m"), "of 5 GB that are free");
    }
}
