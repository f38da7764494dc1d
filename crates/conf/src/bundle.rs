//! A whole configuration in one buffer, for handing it to another process.
//!
//! Layout: a magic line; the number of files and for each its kind, path and text; the
//! number of globs and for each its pattern and paths; the number of files that
//! go with it (keys) and for each its path and text. Numbers and lengths are 32-bit
//! little-endian.

use std::fmt;

use crate::source::{Globbed, SourceFile, Sources};

const MAGIC: &[u8] = b"weir configuration 1\n";

/// The buffer was not made by [`Sources::to_bundle`] of the same version, or is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BundleError;

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration bundle is damaged or of another version")
    }
}

impl std::error::Error for BundleError {}

impl Sources {
    pub fn to_bundle(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_len(&mut out, self.files().len());
        for file in self.files() {
            out.push(u8::from(file.is_command_line));
            put_bytes(&mut out, &file.path);
            put_bytes(&mut out, &file.text);
        }
        put_len(&mut out, self.globs().len());
        for Globbed { pattern, paths } in self.globs() {
            put_bytes(&mut out, pattern);
            put_len(&mut out, paths.len());
            for path in paths {
                put_bytes(&mut out, path);
            }
        }
        put_len(&mut out, self.attached().len());
        for (path, text) in self.attached() {
            put_bytes(&mut out, path);
            put_bytes(&mut out, text);
        }
        out
    }

    pub fn from_bundle(bundle: &[u8]) -> Result<Sources, BundleError> {
        read(bundle).ok_or(BundleError)
    }
}

/// Lengths fit: files are bounded by `MAX_FILE_BYTES`, their number by `MAX_INCLUDES`.
fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn read(bundle: &[u8]) -> Option<Sources> {
    let mut rest = Reader(bundle.strip_prefix(MAGIC)?);
    let mut sources = Sources::new();
    for _ in 0..rest.len()? {
        let is_command_line = match rest.take(1)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let path = rest.bytes()?.into();
        let text = rest.bytes()?.into();
        sources.add(SourceFile { path, text, is_command_line });
    }
    for _ in 0..rest.len()? {
        let pattern = rest.bytes()?;
        let mut paths = Vec::new();
        for _ in 0..rest.len()? {
            paths.push(rest.bytes()?.to_vec());
        }
        sources.add_glob(pattern, &paths);
    }
    for _ in 0..rest.len()? {
        let path = rest.bytes()?;
        sources.attach(path, rest.bytes()?.into());
    }
    rest.0.is_empty().then_some(sources)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn len(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.len()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Sources {
        let mut sources = Sources::new();
        for (path, text, is_command_line) in [("", "a;", true), ("/x", "\n\u{e9}", false)] {
            let (path, text) = (path.as_bytes().into(), text.as_bytes().into());
            sources.add(SourceFile { path, text, is_command_line });
        }
        sources.add_glob(b"/x/*", &[b"/x/a".to_vec(), b"/x/b".to_vec()]);
        sources.add_glob(b"/none*", &[]);
        sources.attach(b"/key", (*b"secret").into());
        sources
    }

    #[test]
    fn there_and_back() {
        let sources = sample();
        let again = Sources::from_bundle(&sources.to_bundle()).unwrap();
        assert_eq!(again.to_bundle(), sources.to_bundle());
        assert_eq!(again.files()[1].path, sources.files()[1].path);
        assert_eq!(again.files()[1].text, sources.files()[1].text);
        assert!(again.files()[0].is_command_line);
        assert_eq!(again.globs(), sources.globs());
        assert_eq!(again.attached(), sources.attached());
    }

    #[test]
    fn damage_is_refused() {
        let bundle = sample().to_bundle();
        for end in 0..bundle.len() {
            assert!(Sources::from_bundle(&bundle[..end]).is_err(), "{end}");
        }
        let longer = [&bundle[..], b"x"].concat();
        assert!(Sources::from_bundle(&longer).is_err());
        let mut other = bundle;
        other[0] = b'W';
        assert!(Sources::from_bundle(&other).is_err());
    }
}
