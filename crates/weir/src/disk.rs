//! Where the text of a configuration is: the file system.

use std::fs;
use std::io;
use std::sync::Arc;
use weir_conf::Loader;
use weir_runtime::paths;

/// Reads files, and finds those that a pattern of `include` means.
pub struct Disk;

impl Loader for Disk {
    fn read(&self, path: &[u8]) -> io::Result<Arc<[u8]>> {
        fs::read(paths::path(path)).map(Arc::from)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let exists = |path: &[u8]| paths::path(path).symlink_metadata().is_ok();
        let is_slash = |byte: &u8| paths::BACKSLASH_SEPARATES && *byte == b'\\';
        let slash = |byte: &u8| if is_slash(byte) { b'/' } else { *byte };
        let pattern: Vec<u8> = pattern.iter().map(slash).collect();
        Ok(weir_conf::glob(&pattern, paths::IGNORES_CASE, names, exists))
    }
}

fn names(dir: &[u8]) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(paths::path(dir)) else { return Vec::new() };
    entries.flatten().map(|entry| paths::bytes(&entry.file_name()).to_vec()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use weir_conf::{parse, Diagnostic, Level, Options, Sources};

    #[test]
    fn patterns_and_directories() {
        let dir = std::env::temp_dir().join(format!("weir-disk-{}", std::process::id()));
        let below = dir.join(paths::path(b"d\xff"));
        fs::create_dir_all(&below).unwrap();
        let main = dir.join("nginx.conf");
        for (name, text) in [(&b"b\xfe.conf"[..], "b;"), (b"a.conf", "a;"), (b".c.conf", "c;")] {
            fs::write(below.join(paths::path(name)), text).unwrap();
        }
        let read = |text: &[u8]| -> Result<Vec<String>, Diagnostic> {
            fs::write(&main, text).unwrap();
            let main = paths::bytes(&main);
            let all = parse(&mut Sources::new(), &Disk, main, &Options::for_main(main))?;
            Ok(all.iter().map(|d| d.name.to_str().into_owned()).collect())
        };
        assert_eq!(read(b"include d*/*.conf;").unwrap(), ["a", "b"]);
        assert_eq!(read(b"include d\xff/b\xfe.conf;").unwrap(), ["b"]);
        let e = read(b"include d\xff;").unwrap_err();
        assert_eq!(e.level, Level::Crit);
        assert!(e.message.ends_with("failed (21: Is a directory)"), "{}", e.message);
        fs::remove_dir_all(&dir).unwrap();
    }
}
