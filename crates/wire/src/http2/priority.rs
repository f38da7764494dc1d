//! Extensible priorities (RFC 9218): eight urgencies, and whether a response is of use in parts.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 goes first.
    pub urgency: u8,
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// The value of `Priority` or of a PRIORITY_UPDATE: a structured dictionary of which two
    /// members are known; what cannot be read leaves the default.
    pub fn parse(value: &[u8]) -> Priority {
        let mut p = Priority::default();
        for member in value.split(|b| *b == b',') {
            let member = member.split(|b| *b == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', n @ b'0'..=b'7'] => p.urgency = n - b'0',
                b"i" | b"i=?1" => p.incremental = true,
                b"i=?0" => p.incremental = false,
                _ => {}
            }
        }
        p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (text, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=5, i", 5, true),
            ("i=?0, u=7", 7, false),
            ("u=9,i;x=1", 3, true),
            ("u=-1, x, i=?1", 3, true),
        ] {
            let expected = Priority { urgency, incremental };
            assert_eq!(Priority::parse(text.as_bytes()), expected, "{text}");
        }
    }
}
