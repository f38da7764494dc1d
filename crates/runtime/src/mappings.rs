//! Which program and libraries are where in this process's memory.

/// A part of a file that may be executed; on Windows all of the file, as it is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
}

/// Those of this process as it is now.
#[cfg(not(windows))]
pub fn all() -> Vec<Mapping> {
    parse(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

#[cfg(windows)]
pub use crate::windows::mappings::all;

/// Those of `/proc/self/maps` that have a file.
#[cfg(not(windows))]
fn parse(text: &str) -> Vec<Mapping> {
    let of = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let hex = |t: &str| u64::from_str_radix(t, 16).ok();
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(words.next()?)?);
        let path = words.nth(2)?.trim();
        let is_code = rights.contains('x') && path.starts_with('/');
        is_code.then(|| Mapping { start, end, offset, path: path.to_owned() })
    };
    text.lines().filter_map(of).collect()
}

#[cfg(all(test, not(windows)))]
mod tests {
    use super::*;

    #[test]
    fn code_of_files() {
        let text = "55d0-55d8 r--p 00000000 fe:00 12    /usr/sbin/weir\n\
                    55d8-55f0 r-xp 00000008 fe:00 12    /usr/sbin/a b (deleted)\n\
                    7fff-8000 r-xp 00000000 00:00 0     [vdso]\n\
                    8000-8001 r-xp 00000000 00:00 0\n";
        let path = "/usr/sbin/a b (deleted)".into();
        assert_eq!(parse(text), [Mapping { start: 0x55d8, end: 0x55f0, offset: 8, path }]);
    }
}
