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
        // One that names nothing is there, for whoever opens it to say so.
        let exists = |path: &[u8]| match paths::checked(path) {
            Ok(path) => path.symlink_metadata().is_ok(),
            Err(_) => true,
        };
        let is_slash = |byte: &u8| paths::BACKSLASH_SEPARATES && *byte == b'\\';
        let slash = |byte: &u8| if is_slash(byte) { b'/' } else { *byte };
        let pattern: Vec<u8> = pattern.iter().map(slash).collect();
        if paths::BACKSLASH_SEPARATES && pattern.starts_with(b"//?/") {
            // The system takes such a path as it stands, and this is no pattern of its names.
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        weir_conf::glob(&pattern, paths::IGNORES_CASE, names, exists)
    }
}

fn names(dir: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let entries = match fs::read_dir(paths::checked(dir)?) {
        Err(e) if paths::is_nothing_to_patterns(&e) => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(paths::bytes(&entry?.file_name()).to_vec())).collect()
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
