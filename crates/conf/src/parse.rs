//! Statements into a tree, with `include` expanded where it stands.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::glob::is_pattern;
use crate::lex::{indent, Head, Lexer, Statement};
use crate::loader::Loader;
use crate::messages;
use crate::raw::is_raw;
use crate::source::{FileId, SourceFile, Sources, Span};
use crate::tree::{Body, Directive, Word};

/// Blocks within blocks, counted over includes.
pub const MAX_BLOCK_DEPTH: usize = 256;
/// Files within files.
pub const MAX_INCLUDE_DEPTH: usize = 64;
/// Files read or read again by one configuration.
pub const MAX_INCLUDES: usize = 65_536;
/// The largest file; spans are 32-bit offsets.
const MAX_FILE_BYTES: usize = 256 << 20;

/// What the language itself leaves open.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the main configuration file, ending in `/`: relative names of
    /// `include` start here.
    pub conf_prefix: Vec<u8>,
}

impl Options {
    /// For a main configuration file of this path.
    pub fn for_main(path: &[u8]) -> Self {
        let is_slash = |byte: &u8| std::path::is_separator(char::from(*byte));
        let dir = path.iter().rposition(is_slash).map_or(0, |slash| slash + 1);
        Options { conf_prefix: path[..dir].to_vec() }
    }
}

/// A tree, and the error that ended it early.
#[derive(Debug)]
pub struct Parsed {
    /// Up to the error: the last directive of each level may then be incomplete.
    pub directives: Vec<Directive>,
    pub error: Option<Diagnostic>,
}

/// Parses a file and all it includes.
pub fn parse(
    sources: &mut Sources,
    loader: &dyn Loader,
    path: &[u8],
    options: &Options,
) -> Result<Vec<Directive>, Diagnostic> {
    parse_partial(sources, loader, path, options).into_result()
}

/// As [`parse`], and on an error gives what came before it.
pub fn parse_partial(
    sources: &mut Sources,
    loader: &dyn Loader,
    path: &[u8],
    options: &Options,
) -> Parsed {
    let mut parser = Parser::new(sources, loader, options);
    let mut directives = Vec::new();
    let error = parser.file(path, None, 0, &mut directives).err();
    Parsed { directives, error }
}

/// Parses the text of `-g`, which has no blocks of its own.
pub fn parse_command_line(
    sources: &mut Sources,
    loader: &dyn Loader,
    text: &[u8],
    options: &Options,
) -> Parsed {
    parse_text(sources, loader, text, options, Within::CommandLine)
}

/// Parses text in which directives without blocks stand, wherever it is from.
pub fn parse_statements(
    sources: &mut Sources,
    loader: &dyn Loader,
    text: &[u8],
    options: &Options,
) -> Parsed {
    parse_text(sources, loader, text, options, Within::Statements)
}

fn parse_text(
    sources: &mut Sources,
    loader: &dyn Loader,
    text: &[u8],
    options: &Options,
    within: Within,
) -> Parsed {
    let text: Arc<[u8]> = text.into();
    let file = SourceFile { path: Box::default(), text: Arc::clone(&text), is_command_line: true };
    let id = sources.add(file);
    let mut parser = Parser::new(sources, loader, options);
    let mut directives = Vec::new();
    let mut lexer = Lexer::new(&text, id, true);
    let error = parser.statements(&mut lexer, &within, 0, &mut directives).err();
    Parsed { directives, error }
}

impl Parsed {
    pub fn into_result(self) -> Result<Vec<Directive>, Diagnostic> {
        match self.error {
            None => Ok(self.directives),
            Some(error) => Err(error),
        }
    }
}

/// `name` as it is when absolute, else behind `prefix`.
pub fn full_name(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    // What makes a name absolute is in its first bytes, which are of text.
    if Path::new(&*String::from_utf8_lossy(name)).has_root() {
        name.to_vec()
    } else {
        [prefix, name].concat()
    }
}

/// What the statements stand in, which decides how they may end.
enum Within {
    File,
    /// The span of the block's name.
    Block(Span),
    CommandLine,
    /// No block may stand there either.
    Statements,
}

struct Parser<'a> {
    sources: &'a mut Sources,
    loader: &'a dyn Loader,
    options: &'a Options,
    /// The files being read, the outermost first.
    active: Vec<FileId>,
    includes: usize,
    /// The name of the first block whose `}` stands further left than the block begins, and the line
    /// of that `}`: if one is missing, it is here.
    suspect: Option<(Span, usize)>,
}

impl<'a> Parser<'a> {
    fn new(sources: &'a mut Sources, loader: &'a dyn Loader, options: &'a Options) -> Self {
        Parser { sources, loader, options, active: Vec::new(), includes: 0, suspect: None }
    }

    fn file(
        &mut self,
        path: &[u8],
        from: Option<&Directive>,
        depth: usize,
        out: &mut Vec<Directive>,
    ) -> Result<(), Diagnostic> {
        let id = self.load(path).map_err(|diagnostic| match from {
            Some(from) if diagnostic.level == crate::Level::Emerg => located(diagnostic, from),
            Some(from) => diagnostic.point(argument_span(from)),
            None => diagnostic,
        })?;
        if let Some(from) = from {
            self.check_include(id, path).map_err(|diagnostic| located(diagnostic, from))?;
        }
        let Some(text) = self.sources.file(id).map(|file| Arc::clone(&file.text)) else {
            return Ok(());
        };
        self.active.push(id);
        let mut lexer = Lexer::new(&text, id, false);
        let result = self.statements(&mut lexer, &Within::File, depth, out);
        self.active.pop();
        result
    }

    /// Reads a file once, however often it is included.
    fn load(&mut self, path: &[u8]) -> Result<FileId, Diagnostic> {
        if let Some(id) = self.sources.find(path) {
            return Ok(id);
        }
        let text = self.loader.read(path).map_err(|error| cannot_read(path, &error))?;
        if text.len() > MAX_FILE_BYTES {
            let path = String::from_utf8_lossy(path);
            return Err(Diagnostic::emerg(format!(
                "configuration file \"{path}\" is larger than {MAX_FILE_BYTES} bytes"
            )));
        }
        Ok(self.sources.add(SourceFile { path: path.into(), text, is_command_line: false }))
    }

    fn check_include(&mut self, id: FileId, path: &[u8]) -> Result<(), Diagnostic> {
        self.includes += 1;
        let path = String::from_utf8_lossy(path);
        let problem = if self.active.contains(&id) {
            format!("file \"{path}\" includes itself")
        } else if self.active.len() >= MAX_INCLUDE_DEPTH {
            format!("cannot include \"{path}\": more than {MAX_INCLUDE_DEPTH} files deep")
        } else if self.includes > MAX_INCLUDES {
            format!("cannot include \"{path}\": more than {MAX_INCLUDES} files")
        } else {
            return Ok(());
        };
        Err(Diagnostic::emerg(problem))
    }

    fn statements(
        &mut self,
        lexer: &mut Lexer<'_>,
        within: &Within,
        depth: usize,
        out: &mut Vec<Directive>,
    ) -> Result<(), Diagnostic> {
        loop {
            match lexer.next()? {
                Statement::Eof => return self.at_end(lexer, within),
                Statement::Close => {
                    return match within {
                        Within::Block(name) => {
                            self.closed(lexer, *name);
                            Ok(())
                        }
                        Within::File | Within::CommandLine | Within::Statements => {
                            Err(unexpected_close(lexer))
                        }
                    }
                }
                Statement::Simple(head) => {
                    let directive = directive(lexer, head, Body::None);
                    if directive.name == "include" {
                        self.include(&directive, depth, out)?;
                    } else {
                        out.push(directive);
                    }
                }
                Statement::Block(head) => self.block(lexer, head, within, depth, out)?,
            }
        }
    }

    fn block(
        &mut self,
        lexer: &mut Lexer<'_>,
        head: Head,
        within: &Within,
        depth: usize,
        out: &mut Vec<Directive>,
    ) -> Result<(), Diagnostic> {
        let (name, at) = (head.name.clone(), lexer.position(head.end as usize));
        let refused = |message: String| Err(Diagnostic::emerg(message).at(at).point(name.span));
        if matches!(within, Within::CommandLine) {
            return refused("block directives are not supported in -g option".to_owned());
        }
        if matches!(within, Within::Statements) {
            return refused(format!(
                "\"{}\" has a block, and no block may stand there",
                name.to_str()
            ));
        }
        if name == "include" {
            return refused(messages::not_terminated(&name));
        }
        if depth >= MAX_BLOCK_DEPTH {
            return refused(format!("blocks are nested more than {MAX_BLOCK_DEPTH} deep"));
        }
        if is_raw(&name.text) {
            let text = lexer.raw_block()?;
            out.push(directive(lexer, head, Body::Raw(text)));
            return Ok(());
        }
        let mut children = Vec::new();
        let within = Within::Block(name.span);
        let result = self.statements(lexer, &within, depth + 1, &mut children);
        out.push(directive(lexer, head, Body::Block(children)));
        result
    }

    /// Notes a block whose end stands where that of an outer one should.
    fn closed(&mut self, lexer: &Lexer<'_>, name: Span) {
        let end = lexer.pos.saturating_sub(1);
        let begins = indent(lexer.text, name.start as usize);
        let (Some(begins), Some(ends)) = (begins, indent(lexer.text, end)) else { return };
        if self.suspect.is_none() && ends.len() < begins.len() {
            self.suspect = Some((name, self.sources.line(lexer.position(end))));
        }
    }

    fn at_end(&self, lexer: &Lexer<'_>, within: &Within) -> Result<(), Diagnostic> {
        let Within::Block(name) = within else { return Ok(()) };
        let message = "unexpected end of file, expecting \"}\"".to_owned();
        let error = Diagnostic::emerg(message).at(lexer.position(lexer.text.len()));
        Err(match self.suspect.filter(|(block, _)| block.file == name.file) {
            Some((block, line)) => error.point(block).hint(format!(
                "this block is closed by the \"}}\" in line {line}, which stands as one of a block \
                 around it: is a \"}}\" missing before that?"
            )),
            None => error.point(*name).hint("this block is not closed".to_owned()),
        })
    }

    fn include(
        &mut self,
        include: &Directive,
        depth: usize,
        out: &mut Vec<Directive>,
    ) -> Result<(), Diagnostic> {
        let [name] = include.args.as_slice() else {
            let message = messages::invalid_number_of_arguments(&include.name);
            return Err(located(Diagnostic::emerg(message), include));
        };
        let path = full_name(&self.options.conf_prefix, &name.text);
        // nginx takes signs of the folder's name for a pattern too, and then finds nothing.
        if !is_pattern(&name.text) {
            return self.file(&path, Some(include), depth, out);
        }
        let paths = self.loader.glob(&path).map_err(|error| {
            let shown = String::from_utf8_lossy(&path);
            let cause = messages::os_error(&error);
            located(Diagnostic::emerg(format!("glob() \"{shown}\" failed ({cause})")), include)
        })?;
        self.sources.add_glob(&path, &paths);
        for path in &paths {
            self.file(path, Some(include), depth, out)?;
        }
        Ok(())
    }
}

fn directive(lexer: &Lexer<'_>, head: Head, body: Body) -> Directive {
    let end = match body {
        Body::None => head.end as usize + 1,
        Body::Block(_) | Body::Raw(_) => lexer.pos,
    };
    Directive {
        span: lexer.span(head.name.span.start as usize, end),
        name: head.name,
        args: head.args,
        body,
        head_end: head.end,
    }
}

fn unexpected_close(lexer: &Lexer<'_>) -> Diagnostic {
    let at = lexer.pos.saturating_sub(1);
    Diagnostic::emerg("unexpected \"}\"".to_owned())
        .at(lexer.position(at))
        .point(lexer.span(at, at + 1))
        .hint("no block of this file is open here".to_owned())
}

fn argument_span(directive: &Directive) -> Span {
    match directive.args.as_slice() {
        [only] => only.span,
        _ => directive.name.span,
    }
}

fn located(diagnostic: Diagnostic, directive: &Directive) -> Diagnostic {
    diagnostic.at(directive.position()).point(argument_span(directive))
}

/// nginx finds out that a directory is none when reading, and says so without a place.
fn cannot_read(path: &[u8], error: &io::Error) -> Diagnostic {
    let shown = String::from_utf8_lossy(path);
    let cause = messages::os_error(error);
    if error.kind() == io::ErrorKind::IsADirectory {
        let message = format!("pread() \"{shown}\" failed ({cause})");
        return Diagnostic::new(crate::Level::Crit, message);
    }
    Diagnostic::emerg(format!("open() \"{shown}\" failed ({cause})"))
}

/// For tests and callers that need a word of their own.
impl Word {
    /// A word that stands nowhere else than at `span`.
    pub fn bare(text: impl Into<Box<[u8]>>, span: Span) -> Self {
        Word { text: text.into(), span, quoted: false, first_in_line: false }
    }
}
