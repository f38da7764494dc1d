//! Blocks in Lua, as lua-nginx-module reads them: up to the brace that closes the first one,
//! not counting braces in strings, long brackets and comments.

use crate::diagnostic::Diagnostic;
use crate::lex::Lexer;
use crate::tree::Word;

/// Whether the block of that name is text in Lua: `content_by_lua_block` and the like.
pub(crate) fn is_raw(name: &[u8]) -> bool {
    name.ends_with(b"_by_lua_block")
}

impl Lexer<'_> {
    /// The text up to the closing brace, which is taken too; the opening one has been.
    pub fn raw_block(&mut self) -> Result<Word, Diagnostic> {
        let start = self.pos;
        let mut at = start;
        let mut depth = 0usize;
        // What is not closed may have its brace in a string that goes on to the end of its line.
        let mut cut_string = None;
        while let Some(&byte) = self.text.get(at) {
            match byte {
                b'{' => depth += 1,
                b'}' if depth == 0 => {
                    self.pos = at + 1;
                    return Ok(Word {
                        text: self.text[start..at].into(),
                        span: self.span(start, at),
                        quoted: false,
                        first_in_line: false,
                    });
                }
                b'}' => depth -= 1,
                b'"' | b'\'' => {
                    let (end, is_closed) = self.short_string(at, byte)?;
                    if !is_closed {
                        cut_string = cut_string.or(Some(at));
                    }
                    at = end;
                    continue;
                }
                b'[' if self.long_bracket(at).is_some() => {
                    at = self.long_text(at)?;
                    continue;
                }
                b'-' if self.text.get(at + 1) == Some(&b'-') => {
                    at = match self.long_bracket(at + 2) {
                        Some(_) => self.long_text(at + 2)?,
                        None => self.line_end(at),
                    };
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        Err(match cut_string {
            Some(open) => {
                self.unclosed_raw(open).hint("this string is not closed on its line".to_owned())
            }
            None => self
                .unclosed_raw(start.saturating_sub(1))
                .hint("this block is not closed".to_owned()),
        })
    }

    fn line_end(&self, at: usize) -> usize {
        memchr::memchr(b'\n', &self.text[at..]).map_or(self.text.len(), |len| at + len)
    }

    /// Past the closing quote. A string not closed on its line is Lua's error to report,
    /// so the line's end closes it here, which is told.
    fn short_string(&self, open: usize, quote: u8) -> Result<(usize, bool), Diagnostic> {
        let mut at = open + 1;
        while let Some(&byte) = self.text.get(at) {
            match byte {
                b'\\' => at = self.escaped(at),
                b'\n' => return Ok((at, false)),
                _ if byte == quote => return Ok((at + 1, true)),
                _ => {}
            }
            at += 1;
        }
        Err(self.unclosed_raw(open).hint("this string is not closed".to_owned()))
    }

    /// The last byte of what a backslash begins: a line's end is one, of whichever kind, and `\z` has all white space behind it.
    fn escaped(&self, at: usize) -> usize {
        let rest = &self.text[at + 1..];
        let is_white = |b: &&u8| b.is_ascii_whitespace() || **b == b'\x0b';
        at + match rest {
            [b'z', rest @ ..] => 1 + rest.iter().take_while(is_white).count(),
            [b'\r', b'\n', ..] | [b'\n', b'\r', ..] => 2,
            _ => 1,
        }
    }

    /// The number of `=` when `[[` or `[==[` stands here.
    fn long_bracket(&self, at: usize) -> Option<usize> {
        let rest = self.text.get(at..)?.strip_prefix(b"[")?;
        let level = rest.iter().take_while(|&&byte| byte == b'=').count();
        (rest.get(level) == Some(&b'[')).then_some(level)
    }

    /// Past the bracket that closes the long one standing here.
    fn long_text(&self, open: usize) -> Result<usize, Diagnostic> {
        let level = self.long_bracket(open).unwrap_or_default();
        let closing = [&b"]"[..], &b"=".repeat(level), b"]"].concat();
        let from = open + level + 2;
        match memchr::memmem::find(&self.text[from..], &closing) {
            Some(len) => Ok(from + len + closing.len()),
            None => {
                let closing = String::from_utf8_lossy(&closing).into_owned();
                let message =
                    format!("Lua code block missing the closing long bracket \"{closing}\"");
                Err(Diagnostic::emerg(message)
                    .at(self.position(self.text.len()))
                    .point(self.span(open, from)))
            }
        }
    }

    fn unclosed_raw(&self, at: usize) -> Diagnostic {
        let message = "unexpected end of file, expecting terminating characters for lua code block";
        Diagnostic::emerg(message.to_owned())
            .at(self.position(self.text.len()))
            .point(self.span(at, at + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Result<(String, usize), String> {
        let mut lexer = Lexer::new(text.as_bytes(), 0, false);
        match lexer.raw_block() {
            Ok(word) => Ok((word.to_str().into_owned(), lexer.pos)),
            Err(diagnostic) => Err(diagnostic.message),
        }
    }

    #[test]
    fn braces_that_count() {
        for text in [
            "",
            " ngx.say(1) ",
            " local t = { a = { 1 } } ",
            " s = \"}\" ",
            " s = '}\\'}' ",
            " s = 'a \\\n} b' ",
            " s = 'a \\\r\n} b' ",
            " s = 'a \\z  \r\n\n\x0b} b' ",
            " s = '\\\\z }' ",
            " s = [[ } ]] ",
            " s = [==[ }]]]=] ]==] ",
            " -- }\n x() ",
            " --[[ }\n } ]] x() ",
            " --[==[ ]] } ]==] ",
            " t[a[1]] = 1 ",
            " t[=1] ",
            " s = \"it's }\" ",
        ] {
            let whole = format!("{text}}} rest;");
            assert_eq!(raw(&whole), Ok((text.to_owned(), text.len() + 1)), "{text}");
        }
    }

    #[test]
    fn not_closed() {
        let end = "unexpected end of file, expecting terminating characters for lua code block";
        for text in ["", " { } ", " \"abc", " '\\", " -- }"] {
            assert_eq!(raw(text), Err(end.to_owned()), "{text}");
        }
        let hint = |text: &str| {
            Lexer::new(text.as_bytes(), 0, false).raw_block().unwrap_err().hint.unwrap()
        };
        for text in ["s = 'abc }\n x()", "s = 'abc\\' }\n x()", "s = '\n { }"] {
            assert_eq!(hint(text), "this string is not closed on its line", "{text}");
        }
        assert_eq!(hint("s = 'abc'\n { }"), "this block is not closed");
        assert_eq!(
            raw("s = [==[ }"),
            Err("Lua code block missing the closing long bracket \"]==]\"".to_owned())
        );
    }
}
