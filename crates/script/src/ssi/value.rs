//! Values in commands: text with `$name` and `${name}`. `\` takes the meaning from `$`, quotes and
//! itself, and stays in front of anything else.

use std::borrow::Cow;

/// Why a value is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueError<'a> {
    TooLong,
    /// `${` and this name, with nothing that ends it.
    NoBracket(&'a [u8]),
    NoName,
}

fn is_special(b: u8) -> bool {
    matches!(b, b'$' | b'\\')
}

/// The value of a text, which most texts are themselves. `variable` appends a variable's; what has
/// grown beyond `max_bytes` is given up before more is added to it.
pub fn evaluate<'t>(
    text: &'t [u8],
    max_bytes: usize,
    variable: &mut dyn FnMut(&[u8], &mut Vec<u8>),
) -> Result<Cow<'t, [u8]>, ValueError<'t>> {
    let plain = text.iter().position(|b| is_special(*b)).unwrap_or(text.len());
    if plain > max_bytes {
        return Err(ValueError::TooLong);
    }
    if plain == text.len() {
        return Ok(Cow::Borrowed(text));
    }
    let (mut out, mut rest) = (text[..plain].to_vec(), &text[plain..]);
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if out.len() > max_bytes {
            return Err(ValueError::TooLong);
        }
        match byte {
            b'$' => {
                let (name, behind) = reference(rest)?;
                rest = behind;
                variable(name, &mut out);
            }
            b'\\' => {
                let Some((&quoted, behind)) = rest.split_first() else { break };
                rest = behind;
                if !matches!(quoted, b'\\' | b'\'' | b'"' | b'$') {
                    out.push(b'\\');
                }
                out.push(quoted);
            }
            _ => out.push(byte),
        }
    }
    Ok(Cow::Owned(out))
}

/// The name behind a `$`, and what is behind that.
fn reference(text: &[u8]) -> Result<(&[u8], &[u8]), ValueError<'_>> {
    let bracketed = text.first() == Some(&b'{');
    let from = usize::from(bracketed);
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let len = text[from..].iter().take_while(|b| is_name(b)).count();
    let (name, behind) = text[from..].split_at(len);
    if bracketed && text.len() > 1 && behind.first() != Some(&b'}') {
        return Err(ValueError::NoBracket(name));
    }
    match name.is_empty() {
        true => Err(ValueError::NoName),
        false => Ok((name, &behind[from..])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, ValueError<'_>> {
        let mut shown = |name: &[u8], out: &mut Vec<u8>| {
            out.extend([b"<", name, b">"].concat());
        };
        let value = evaluate(text.as_bytes(), 100, &mut shown);
        value.map(|v| String::from_utf8(v.into_owned()).unwrap())
    }

    #[test]
    fn values() {
        for (text, value) in [
            ("", Ok("")),
            ("a$b.c", Ok("a<b>.c")),
            ("${b}c$D", Ok("<b>c<D>")),
            (r#"\$a \"\'\\ \n \"#, Ok(r#"$a "'\ \n "#)),
            ("$", Err(ValueError::NoName)),
            ("${", Err(ValueError::NoName)),
            ("${}", Err(ValueError::NoName)),
            ("a$-", Err(ValueError::NoName)),
            ("${a", Err(ValueError::NoBracket(b"a"))),
            ("${a-}", Err(ValueError::NoBracket(b"a"))),
        ] {
            assert_eq!(read(text), value.map(str::to_string), "{text}");
        }
        assert_eq!(read(&"x".repeat(200)), Err(ValueError::TooLong));
    }
}
