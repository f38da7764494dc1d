//! Zip archives, for systems that have no `tar`: entries in order, all of one date, so that the same files make the same
//! bytes. What is compressed is `gzip`'s, which says the sum and the length of it, too.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
/// What has to be understood to unpack it: deflate, and folders.
const NEEDED: u16 = 20;
/// Names are UTF-8.
const IS_UTF8: u16 = 1 << 11;
const DEFLATED: u16 = 8;
const IS_FOLDER: u32 = 0x10;
/// Before and behind what `gzip -n` has compressed.
const GZIP_HEAD_BYTES: usize = 10;
const GZIP_TAIL_BYTES: usize = 8;
/// The first of January 1980, as a stamp.
const FIRST: u32 = (1 << 21) + (1 << 16);

#[derive(Default)]
pub struct Zip {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    count: u16,
    stamp: u32,
}

/// What stands beside an entry's name, in both places.
struct Facts {
    method: u16,
    sum: u32,
    packed: u32,
    bytes: u32,
}

impl Zip {
    /// An empty one, whose entries are of that second since 1970.
    pub fn new(epoch: u64) -> Zip {
        Zip { stamp: stamp(epoch), ..Zip::default() }
    }

    /// Adds a folder; its name ends in a slash.
    pub fn folder(&mut self, name: &str) -> Result<(), String> {
        self.entry(name, &Facts { method: 0, sum: 0, packed: 0, bytes: 0 }, &[], IS_FOLDER)
    }

    /// Adds a file.
    pub fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let all = gzip(bytes)?;
        let (Some(middle), Some(tail)) = (
            all.get(GZIP_HEAD_BYTES..all.len().saturating_sub(GZIP_TAIL_BYTES)),
            all.last_chunk::<GZIP_TAIL_BYTES>(),
        ) else {
            return Err(format!("{name}: gzip has made nothing of it"));
        };
        let [a, b, c, d, ..] = *tail;
        let sum = u32::from_le_bytes([a, b, c, d]);
        let facts = Facts {
            method: DEFLATED,
            sum,
            packed: length(name, middle.len())?,
            bytes: length(name, bytes.len())?,
        };
        self.entry(name, &facts, middle, 0)
    }

    fn entry(&mut self, name: &str, facts: &Facts, packed: &[u8], kind: u32) -> Result<(), String> {
        let at = length(name, self.bytes.len())?;
        let name_len = u16::try_from(name.len()).map_err(|_| format!("{name}: too long"))?;
        let mut common = Vec::new();
        for number in [NEEDED, IS_UTF8, facts.method] {
            common.extend(number.to_le_bytes());
        }
        for number in [self.stamp, facts.sum, facts.packed, facts.bytes] {
            common.extend(number.to_le_bytes());
        }
        common.extend(name_len.to_le_bytes());
        // No more fields.
        common.extend([0, 0]);
        self.bytes.extend([LOCAL, &common, name.as_bytes(), packed].concat());
        let mut row = [CENTRAL, &NEEDED.to_le_bytes(), &common].concat();
        // No comment, the first disk, no text.
        row.extend([0; 6]);
        row.extend(kind.to_le_bytes());
        row.extend(at.to_le_bytes());
        row.extend(name.as_bytes());
        self.directory.extend(row);
        self.count += 1;
        Ok(())
    }

    /// The finished archive.
    pub fn write(mut self, to: &Path) -> Result<(), String> {
        let at = length("the archive", self.bytes.len())?;
        let len = length("the archive", self.directory.len())?;
        self.bytes.append(&mut self.directory);
        self.bytes.extend(END);
        // One disk.
        self.bytes.extend([0; 4]);
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend(at.to_le_bytes());
        self.bytes.extend([0; 2]);
        std::fs::write(to, self.bytes).map_err(|e| format!("{}: {e}", to.display()))
    }
}

fn length(what: &str, n: usize) -> Result<u32, String> {
    u32::try_from(n).map_err(|_| format!("{what}: more than a zip has room for"))
}

/// Without a name and a date of its own.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let level = if cfg!(test) { "-n1" } else { "-n9" };
    let mut command = Command::new("gzip");
    command.args([level, "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let failed = |e: std::io::Error| format!("gzip: {e}");
    let mut child = command.spawn().map_err(failed)?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let mut packed = Vec::new();
    std::thread::scope(|scope| {
        // Who writes all before reading waits for ever.
        let writer = scope.spawn(move || input.map_or(Ok(()), |mut i| i.write_all(bytes)));
        let read = output.map_or(Ok(0), |mut o| o.read_to_end(&mut packed));
        let written = writer.join().map_err(|_| "gzip: the writer has ended".to_owned())?;
        written.map_err(failed)?;
        read.map_err(failed)
    })?;
    match child.wait() {
        Ok(status) if status.success() => Ok(packed),
        Ok(status) => Err(format!("gzip ended with {status}")),
        Err(e) => Err(failed(e)),
    }
}

/// Date and time as MS-DOS has them, in UTC and steps of two seconds; it begins in 1980.
fn stamp(epoch: u64) -> u32 {
    let (days, secs) = (epoch / 86400, epoch % 86400);
    let (year, month, day) = date(days);
    if year < 1980 {
        return FIRST;
    }
    let date = ((year - 1980).min(127) << 9) + (month << 5) + day;
    let time = ((secs / 3600) << 11) + ((secs / 60 % 60) << 5) + secs % 60 / 2;
    ((date << 16) + time) as u32
}

/// Year, month and day of a day since 1970.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for len in lengths {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        // 2024-02-29 12:34:56 UTC.
        let known = stamp(1_709_210_096);
        assert_eq!(known >> 16, (44 << 9) + (2 << 5) + 29);
        assert_eq!(known & 0xffff, (12 << 11) + (34 << 5) + 28);
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(stamp(0), FIRST);
    }

    #[test]
    fn the_same_files_are_the_same_archive() {
        let dir = std::env::temp_dir().join(format!("weir-zip-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let made = |name: &str| {
            let mut zip = Zip::new(1_709_210_096);
            zip.folder("a/").unwrap();
            zip.file("a/empty", b"").unwrap();
            zip.file("a/ü.txt", &b"text\n".repeat(50_000)).unwrap();
            let path = dir.join(name);
            zip.write(&path).unwrap();
            path
        };
        let (one, two) = (made("one.zip"), made("two.zip"));
        assert!(std::fs::read(&one).unwrap() == std::fs::read(two).unwrap());
        if crate::child::quiet(Command::new("unzip").arg("-v")) {
            let said = Command::new("unzip").arg("-t").arg(&one).output().unwrap();
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
            let text = Command::new("unzip").arg("-p").arg(&one).output().unwrap().stdout;
            assert_eq!(text, b"text\n".repeat(50_000));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
