//! Strings in quotes, for SQL and JSON.

/// By MySQL's rules: an empty one is `''`.
pub fn sql(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    for &byte in value {
        let letter = match byte {
            0 => b'0',
            0x08 => b'b',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x1a => b'Z',
            b'\\' | b'\'' | b'"' | b'$' => byte,
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
    out.push(b'\'');
}

/// By PostgreSQL's rules: what is no UTF-8 is written in octal digits.
pub fn pgsql(value: &[u8], out: &mut Vec<u8>) {
    if value.is_empty() {
        return out.extend_from_slice(b"''");
    }
    let mut quoted = b"E".to_vec();
    sql(value, &mut quoted);
    if std::str::from_utf8(value).is_ok() {
        return out.append(&mut quoted);
    }
    for byte in quoted {
        match byte.is_ascii() {
            true => out.push(byte),
            false => {
                let digit = |shift: u8| b'0' + (byte >> shift & 7);
                out.extend_from_slice(&[b'\\', b'\\', digit(6), digit(3), digit(0)]);
            }
        }
    }
}

/// An empty one is `null`.
pub fn json(value: &[u8], out: &mut Vec<u8>) {
    if value.is_empty() {
        return out.extend_from_slice(b"null");
    }
    out.push(b'"');
    for &byte in value {
        let letter = match byte {
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            b'\\' | b'"' => byte,
            0..=0x1f => {
                let digit = |n: u8| b"0123456789abcdef"[usize::from(n & 15)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
                continue;
            }
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes() {
        for (quote, value, expected) in [
            (
                sql as fn(&[u8], &mut Vec<u8>),
                &b"a\n\r'\"\\$\0\x08\t\x1a"[..],
                r#"'a\n\r\'\"\\\$\0\b\t\Z'"#,
            ),
            (sql, b"", "''"),
            (pgsql, b"", "''"),
            (pgsql, b"it's", r"E'it\'s'"),
            (pgsql, "\u{4f60}".as_bytes(), "E'\u{4f60}'"),
            (pgsql, b"\xc4\xe3a", r"E'\\304\\343a'"),
            (json, b"", "null"),
            (json, b"a\n\x01\"\\\x0c", r#""a\n\u0001\"\\\f""#),
        ] {
            let mut out = Vec::new();
            quote(value, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{value:?}");
        }
    }
}
