//! Where configuration texts come from: of whoever has files, or a bundle.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::source::{Attached, Sources};

/// Reads files and expands the patterns of `include`.
pub trait Loader {
    fn read(&self, path: &[u8]) -> io::Result<Arc<[u8]>>;
    /// Sorted; nothing found is no error.
    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<Vec<u8>>>;

    /// Files that were read besides the text and come with it.
    fn attached(&self) -> &[Attached] {
        &[]
    }
}

/// A configuration that was read before: gives the same texts and the same results of
/// globs, and nothing else.
#[derive(Clone, Debug)]
pub struct BundleLoader {
    texts: HashMap<Box<[u8]>, Arc<[u8]>>,
    globs: HashMap<Box<[u8]>, Vec<Box<[u8]>>>,
    attached: Vec<Attached>,
}

impl BundleLoader {
    pub fn new(sources: &Sources) -> Self {
        let files = sources.files().iter().filter(|f| !f.is_command_line);
        BundleLoader {
            texts: files.map(|f| (f.path.clone(), Arc::clone(&f.text))).collect(),
            globs: sources
                .globs()
                .iter()
                .map(|glob| (glob.pattern.clone(), glob.paths.clone()))
                .collect(),
            attached: sources.attached().to_vec(),
        }
    }
}

impl Loader for BundleLoader {
    fn read(&self, path: &[u8]) -> io::Result<Arc<[u8]>> {
        self.texts.get(path).cloned().ok_or_else(not_in_bundle)
    }

    fn attached(&self) -> &[Attached] {
        &self.attached
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let paths = self.globs.get(pattern).ok_or_else(not_in_bundle)?;
        Ok(paths.iter().map(|path| path.to_vec()).collect())
    }
}

fn not_in_bundle() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "not in the bundle")
}
