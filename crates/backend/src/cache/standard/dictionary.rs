//! Dictionaries of structured fields (RFC 8941, section 3.2), as much of them as directives need.

/// What a member says. Its parameters are read and mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Bool(bool),
    Integer(i64),
    /// A string without its quotes, or a token.
    Text(Vec<u8>),
    /// A list, bytes, a decimal: nothing that a directive has.
    Other,
}

/// The members in their order; `None`: it is no dictionary.
pub(super) fn parse(text: &[u8]) -> Option<Vec<(&[u8], Value)>> {
    let mut rest = Rest(text.trim_ascii());
    let mut members = Vec::new();
    while !rest.0.is_empty() {
        let key = rest.key()?;
        let value = if rest.eat(b'=') { rest.member()? } else { Value::Bool(true) };
        rest.params()?;
        members.push((key, value));
        rest.skip(b" \t");
        if rest.0.is_empty() {
            break;
        }
        if !rest.eat(b',') {
            return None;
        }
        rest.skip(b" \t");
        if rest.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn skip(&mut self, bytes: &[u8]) {
        while self.0.first().is_some_and(|b| bytes.contains(b)) {
            self.0 = &self.0[1..];
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn take(&mut self, fits: impl Fn(u8) -> bool) -> &'a [u8] {
        let len = self.0.iter().position(|b| !fits(*b)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let begins = self.0.first().is_some_and(|b| b.is_ascii_lowercase() || *b == b'*');
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b);
        begins.then(|| self.take(fits))
    }

    fn params(&mut self) -> Option<()> {
        while self.eat(b';') {
            self.skip(b" ");
            self.key()?;
            if self.eat(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn member(&mut self) -> Option<Value> {
        if !self.eat(b'(') {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.eat(b')') {
                return Some(Value::Other);
            }
            self.item()?;
            self.params()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'"' => self.string(),
            b'?' => match self.0.get(1)? {
                digit @ (b'0' | b'1') => {
                    let value = Value::Bool(*digit == b'1');
                    self.0 = &self.0[2..];
                    Some(value)
                }
                _ => None,
            },
            b':' => {
                self.eat(b':');
                self.take(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
                self.eat(b':').then_some(Value::Other)
            }
            b'-' | b'0'..=b'9' => self.number(),
            b if b.is_ascii_alphabetic() || b == b'*' => {
                let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b);
                Some(Value::Text(self.take(fits).to_vec()))
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value> {
        let is_negative = self.eat(b'-');
        let whole = self.take(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > 15 {
            return None;
        }
        if self.eat(b'.') {
            let part = self.take(|b| b.is_ascii_digit());
            let fits = whole.len() <= 12 && (1..=3).contains(&part.len());
            return fits.then_some(Value::Other);
        }
        // Fifteen digits always fit.
        let n = whole.iter().fold(0_i64, |n, digit| n * 10 + i64::from(digit - b'0'));
        Some(Value::Integer(if is_negative { -n } else { n }))
    }

    fn string(&mut self) -> Option<Value> {
        self.eat(b'"');
        let mut text = Vec::new();
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            match byte {
                b'"' => return Some(Value::Text(text)),
                b'\\' => {
                    let (escaped, rest) = self.0.split_first()?;
                    if !matches!(escaped, b'"' | b'\\') {
                        return None;
                    }
                    self.0 = rest;
                    text.push(*escaped);
                }
                0x20..=0x7e => text.push(*byte),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_what_is_no_dictionary() {
        let all = parse(
            b" a=1;x=\"a,b\";y , b, c=?0, d=\"q\\\"\" ,\te=(1 \"x\";p t);q, f=:aa=:, g=1.5, h=t/x ",
        );
        let text = |t: &[u8]| Value::Text(t.to_vec());
        let wanted: Vec<(&[u8], Value)> = vec![
            (b"a", Value::Integer(1)),
            (b"b", Value::Bool(true)),
            (b"c", Value::Bool(false)),
            (b"d", text(b"q\"")),
            (b"e", Value::Other),
            (b"f", Value::Other),
            (b"g", Value::Other),
            (b"h", text(b"t/x")),
        ];
        assert_eq!(all, Some(wanted));
        assert_eq!(parse(b""), Some(Vec::new()));
        for none in ["A", "a=", "a,", "a b", "a=\"x", "a=(1", "a=(1\"x\")", "a;=1", "a=?2", "=1"] {
            assert_eq!(parse(none.as_bytes()), None, "{none}");
        }
    }
}
