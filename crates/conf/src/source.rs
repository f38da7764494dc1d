//! Everything that was read, and places in it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub type FileId = u32;

/// A run of bytes in one file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    pub file: FileId,
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// A byte in one file, or its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Position {
    pub file: FileId,
    pub offset: u32,
}

impl Span {
    pub fn start(self) -> Position {
        Position { file: self.file, offset: self.start }
    }
}

#[derive(Clone, Debug)]
pub struct SourceFile {
    /// As it was opened; empty for the text of `-g`.
    pub path: Box<[u8]>,
    pub text: Arc<[u8]>,
    /// The text of `-g`: errors say `in command line`, and it is not dumped.
    pub is_command_line: bool,
}

impl SourceFile {
    /// The line in which a byte stands, from 1.
    pub fn line(&self, offset: u32) -> usize {
        let before = &self.text[..self.text.len().min(offset as usize)];
        before.iter().filter(|b| **b == b'\n').count() + 1
    }
}

/// A pattern of `include` and the paths it stood for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Globbed {
    pub pattern: Box<[u8]>,
    pub paths: Vec<Box<[u8]>>,
}

/// A file that goes with a configuration and is none: its path and text.
pub type Attached = (Box<[u8]>, Arc<[u8]>);

/// The files of one configuration in order of first reading, and what its globs found.
///
/// A path is read once: to read changed files, as a reload does, begin with new `Sources`.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    files: Vec<SourceFile>,
    by_path: HashMap<Box<[u8]>, FileId>,
    globs: Vec<Globbed>,
    globbed: HashSet<Box<[u8]>>,
    attached: Vec<Attached>,
}

impl Sources {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    pub fn file(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(id as usize)
    }

    /// The file read from exactly this path.
    pub fn find(&self, path: &[u8]) -> Option<FileId> {
        self.by_path.get(path).copied()
    }

    pub fn globs(&self) -> &[Globbed] {
        &self.globs
    }

    /// Files that are no configuration and go with it: certificates and keys.
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    pub fn attach(&mut self, path: &[u8], text: Arc<[u8]>) {
        self.attached.push((path.into(), text));
    }

    pub(crate) fn add(&mut self, file: SourceFile) -> FileId {
        // Bounded by MAX_INCLUDES long before.
        let id = FileId::try_from(self.files.len()).unwrap_or(FileId::MAX);
        if !file.is_command_line {
            self.by_path.entry(file.path.clone()).or_insert(id);
        }
        self.files.push(file);
        id
    }

    pub(crate) fn add_glob(&mut self, pattern: &[u8], paths: &[Vec<u8>]) {
        if !self.globbed.insert(pattern.into()) {
            return;
        }
        let paths = paths.iter().map(|path| path.as_slice().into()).collect();
        self.globs.push(Globbed { pattern: pattern.into(), paths });
    }

    /// The bytes of a span; empty when it is out of bounds.
    pub fn text(&self, span: Span) -> &[u8] {
        self.file(span.file)
            .and_then(|f| f.text.get(span.start as usize..span.end as usize))
            .unwrap_or_default()
    }

    /// The line of a place, from 1.
    pub fn line(&self, at: Position) -> usize {
        let Some(file) = self.file(at.file) else { return 1 };
        let end = (at.offset as usize).min(file.text.len());
        1 + memchr::memchr_iter(b'\n', &file.text[..end]).count()
    }

    /// ` in FILE:LINE` or ` in command line`, as nginx ends the errors of a configuration.
    pub fn location(&self, at: Position) -> String {
        match self.file(at.file) {
            Some(file) if file.is_command_line => " in command line".to_owned(),
            Some(file) => {
                format!(" in {}:{}", String::from_utf8_lossy(&file.path), self.line(at))
            }
            None => String::new(),
        }
    }
}

/// All files as `nginx -T` prints them, each once.
pub fn dump(sources: &Sources) -> Vec<u8> {
    let mut out = Vec::new();
    for file in sources.files.iter().filter(|f| !f.is_command_line) {
        out.extend_from_slice(b"# configuration file ");
        out.extend_from_slice(&file.path);
        out.extend_from_slice(b":\n");
        out.extend_from_slice(&file.text);
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Sources {
        let mut sources = Sources::new();
        for (path, text, is_command_line) in
            [("", "a;", true), ("/x", "one\ntwo\n", false), ("/y", "three", false)]
        {
            sources.add(SourceFile {
                path: path.as_bytes().into(),
                text: text.as_bytes().into(),
                is_command_line,
            });
        }
        sources
    }

    #[test]
    fn places() {
        let sources = sample();
        assert_eq!(sources.line(Position { file: 1, offset: 0 }), 1);
        assert_eq!(sources.line(Position { file: 1, offset: 4 }), 2);
        assert_eq!(sources.line(Position { file: 1, offset: 99 }), 3);
        assert_eq!(sources.location(Position { file: 1, offset: 5 }), " in /x:2");
        assert_eq!(sources.location(Position { file: 0, offset: 1 }), " in command line");
        assert_eq!(sources.text(Span { file: 1, start: 4, end: 7 }), b"two");
        assert_eq!(sources.text(Span { file: 1, start: 4, end: 70 }), b"");
        assert_eq!(sources.find(b"/y"), Some(2));
        assert_eq!(sources.find(b""), None);
    }

    #[test]
    fn dumping() {
        assert_eq!(
            dump(&sample()),
            b"# configuration file /x:\none\ntwo\n\n# configuration file /y:\nthree\n"
        );
    }
}
