//! Keys: the MD5 of a text, and the file that stands for it.

use md5::{Digest, Md5};
use std::hash::{BuildHasherDefault, Hasher};
use std::path::{Path, PathBuf};
use weir_runtime::paths;

/// The MD5 of an entry's key text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Key(pub [u8; 16]);

impl Key {
    pub fn of(text: &[u8]) -> Key {
        Key(Md5::digest(text).into())
    }

    /// The key of one variant of an entry: the values of the fields that the answer varies by.
    pub fn of_parts(main: &Key, parts: &[u8]) -> Key {
        let mut md5 = Md5::new();
        md5.update(main.0);
        md5.update(parts);
        Key(md5.finalize().into())
    }

    pub fn hex(&self) -> String {
        use std::fmt::Write;
        self.0.iter().fold(String::with_capacity(32), |mut text, b| {
            // Writing into a String cannot fail.
            let _ = write!(text, "{b:02x}");
            text
        })
    }

    /// From a file's name.
    pub fn from_hex(name: &str) -> Option<Key> {
        let name = name.as_bytes();
        if name.len() != 32 {
            return None;
        }
        let digit = |b: u8| char::from(b).to_digit(16);
        let mut key = [0; 16];
        for (byte, pair) in key.iter_mut().zip(name.chunks(2)) {
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(Key(key))
    }

    /// The file under `dir`: nginx's layout, directories named by the end of the hash.
    pub fn path(&self, dir: &Path, levels: &[u8; 3]) -> PathBuf {
        let name = self.hex();
        let mut path = dir.to_path_buf();
        let mut end = name.len();
        for level in levels.iter().map(|l| usize::from(*l)).filter(|l| *l > 0) {
            paths::push(&mut path, &name[end - level..end]);
            end -= level;
        }
        paths::push(&mut path, name);
        path
    }

    pub(crate) fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(word)
    }
}

/// An MD5 needs no hashing.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks_exact(8) {
            let mut word = [0; 8];
            word.copy_from_slice(part);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

pub type BuildKeyHasher = BuildHasherDefault<KeyHasher>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        let key = Key::of(b"http://example/");
        assert_eq!(Key::from_hex(&key.hex()), Some(key));
        assert_eq!(Key::from_hex("x"), None);
        assert_eq!(Key::from_hex(&"g".repeat(32)), None);
        let hex = key.hex();
        let want = format!("/c/{}/{}/{hex}", &hex[31..], &hex[29..31]);
        assert_eq!(key.path(Path::new("/c"), &[1, 2, 0]), PathBuf::from(want));
        assert_ne!(Key::of_parts(&key, b"a"), Key::of_parts(&key, b"b"));
    }
}
