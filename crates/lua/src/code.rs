//! Code of the configuration: where it stands and what it is called in errors.

use crate::border::check_syntax;
use std::ffi::CString;
use weir_base::escape::escape_log;
use weir_core::registry::template;
use weir_core::Session;
use weir_module::{Body, Cf, ConfResult, Directive, Span};
use weir_runtime::paths;
use weir_script::template::Template;

/// Lua code as a directive has it.
pub(crate) enum Code {
    /// With the name that it has in errors, `=content_by_lua(nginx.conf:42)`.
    Inline { chunk: Vec<u8>, text: Box<[u8]> },
    /// A file, read when it is first needed; relative paths begin at the prefix.
    File { path: Template, prefix: Vec<u8> },
}

impl Code {
    /// Whether the code can be read and is Lua, as far as that can be told before a request is there.
    ///
    /// # Errors
    ///
    /// Why not, in OpenResty's words.
    pub(crate) fn check(&self, directive: &str) -> Result<(), String> {
        let (text, chunk) = match self {
            Code::Inline { chunk, text } => (text.to_vec(), chunk.clone()),
            Code::File { path, prefix } => {
                let Some(name) = path.as_constant() else { return Ok(()) };
                let full = match paths::is_whole(name) {
                    true => name.to_vec(),
                    false => [prefix.as_slice(), b"/", name].concat(),
                };
                let shown = String::from_utf8_lossy(&full);
                let text = std::fs::read(paths::path(&full)).map_err(|e| {
                    let why = weir_conf::messages::os_error(&e);
                    format!("{directive}_file error: cannot open {shown}: {why}")
                })?;
                (text, [b"@", full.as_slice()].concat())
            }
        };
        // The first line of a script.
        let line = if text.starts_with(b"#") { memchr::memchr(b'\n', &text) } else { Some(0) };
        let text = &text[line.unwrap_or(text.len())..];
        let kind = if matches!(self, Code::File { .. }) { "_file" } else { "" };
        let name = CString::new(chunk).unwrap_or_default();
        check_syntax(text, &name).map_err(|e| format!("{directive}{kind} error: {e}"))
    }
}

/// The code of a directive for sessions of that kind: of a block, of a file's name or of its last argument.
pub(crate) fn of<S: Session>(cf: &mut Cf, d: &Directive) -> ConfResult<Code> {
    let name = d.name.to_str().into_owned();
    if let Some(stem) = name.strip_suffix("_block") {
        let Body::Raw(word) = &d.body else {
            return Err(weir_module::ArgsExt::error(d, "has no block"));
        };
        // Errors count lines from the one that the block begins in.
        let chunk = chunk(cf, stem, d.name.span);
        return Ok(Code::Inline { chunk, text: word.text.clone() });
    }
    let text = d.args.first().map_or(&[][..], |w| &w.text);
    if name.ends_with("_file") {
        let path = template::<S>(cf, d, 0)?;
        return Ok(Code::File { path, prefix: paths::bytes(&cf.prefix).to_vec() });
    }
    let span = d.args.first().map_or(d.name.span, |w| w.span);
    Ok(Code::Inline { chunk: chunk(cf, &name, span), text: text.into() })
}

/// `=content_by_lua(nginx.conf:42)`
fn chunk(cf: &Cf, name: &str, span: Span) -> Vec<u8> {
    let mut chunk = format!("={name}(").into_bytes();
    let (file, line) = cf.place(span);
    escape_log(&mut chunk, &file);
    chunk.extend_from_slice(format!(":{line})").as_bytes());
    chunk
}
