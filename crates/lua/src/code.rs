//! Code of the configuration: where it stands and what it is called in errors.

use weir_base::escape::escape_log;
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

/// The code of a directive: of a block, of a file's name or of its last argument.
pub(crate) fn of(cf: &mut Cf, d: &Directive) -> ConfResult<Code> {
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
        let path = weir_http::vars::template(cf, d, 0)?;
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
