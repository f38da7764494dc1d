//! The value of a `Set-Cookie` field as nginx takes it apart to rewrite it: attributes between
//! semicolons, spaces around names and values left out. Nothing is checked (RFC 6265 section 5.2 has
//! a client take almost anything), and what is not touched keeps its text.

use weir_base::bytes::{split_once, trim_with};

/// One part: the cookie itself stands first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    pub name: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

impl Attr {
    pub fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Name and value first, then the attributes.
pub fn parse(value: &[u8]) -> Vec<Attr> {
    let trim = |t: &[u8]| trim_with(t, |b| b == b' ').to_vec();
    let attr = |part: &[u8]| match split_once(part, b'=') {
        Some((name, value)) => Attr { name: trim(name), value: Some(trim(value)) },
        None => Attr { name: trim(part), value: None },
    };
    value.split(|b| *b == b';').map(attr).collect()
}

pub fn write(attrs: &[Attr]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, a) in attrs.iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(&a.name);
        if let Some(v) = &a.value {
            out.push(b'=');
            out.extend_from_slice(v);
        }
    }
    out
}

/// What `proxy_cookie_flags` may ask for.
pub mod flag {
    pub const SECURE: u32 = 1;
    pub const NO_SECURE: u32 = 1 << 1;
    pub const HTTPONLY: u32 = 1 << 2;
    pub const NO_HTTPONLY: u32 = 1 << 3;
    pub const STRICT: u32 = 1 << 4;
    pub const LAX: u32 = 1 << 5;
    pub const NONE: u32 = 1 << 6;
    pub const NO_SAMESITE: u32 = 1 << 7;
}

pub const FLAGS: [(&[u8], u32); 8] = [
    (b"secure", flag::SECURE),
    (b"nosecure", flag::NO_SECURE),
    (b"httponly", flag::HTTPONLY),
    (b"nohttponly", flag::NO_HTTPONLY),
    (b"samesite=strict", flag::STRICT),
    (b"samesite=lax", flag::LAX),
    (b"samesite=none", flag::NONE),
    (b"nosamesite", flag::NO_SAMESITE),
];

/// Sets and removes attributes; the cookie itself, which stands first, stays as it is.
pub fn edit_flags(attrs: &mut Vec<Attr>, mask: u32) {
    edit_switch(attrs, b"Secure", mask & flag::SECURE != 0, mask & flag::NO_SECURE != 0);
    edit_switch(attrs, b"HttpOnly", mask & flag::HTTPONLY != 0, mask & flag::NO_HTTPONLY != 0);
    let site: &[u8] = match mask {
        m if m & flag::STRICT != 0 => b"Strict",
        m if m & flag::LAX != 0 => b"Lax",
        m if m & flag::NONE != 0 => b"None",
        m if m & flag::NO_SAMESITE != 0 => {
            let mut first = true;
            attrs.retain(|a| std::mem::take(&mut first) || !a.is(b"SameSite"));
            return;
        }
        _ => return,
    };
    match attrs.iter_mut().skip(1).find(|a| a.is(b"SameSite")) {
        Some(a) if a.value.as_ref().is_some_and(|v| v.eq_ignore_ascii_case(site)) => {}
        Some(a) => *a = Attr { name: b"SameSite".to_vec(), value: Some(site.to_vec()) },
        None => attrs.push(Attr { name: b"SameSite".to_vec(), value: Some(site.to_vec()) }),
    }
}

fn edit_switch(attrs: &mut Vec<Attr>, name: &[u8], on: bool, off: bool) {
    if on {
        if !attrs.iter().skip(1).any(|a| a.is(name)) {
            attrs.push(Attr { name: name.to_vec(), value: None });
        }
    } else if off {
        let mut first = true;
        attrs.retain(|a| std::mem::take(&mut first) || !a.is(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, mask: u32) -> String {
        let mut attrs = parse(text.as_bytes());
        edit_flags(&mut attrs, mask);
        String::from_utf8(write(&attrs)).unwrap()
    }

    #[test]
    fn parts() {
        assert_eq!(edited(" a = b ;c;  ; d=", 0), "a=b; c; ; d=");
        assert_eq!(edited("", 0), "");
    }

    #[test]
    fn the_cookie_itself_is_no_flag() {
        assert_eq!(edited("secure=1; Secure", flag::NO_SECURE), "secure=1");
        assert_eq!(edited("SameSite=1", flag::LAX), "SameSite=1; SameSite=Lax");
        assert_eq!(edited("a=1; samesite=LAX", flag::LAX), "a=1; samesite=LAX");
        assert_eq!(edited("a=1; samesite", flag::STRICT), "a=1; SameSite=Strict");
    }
}
