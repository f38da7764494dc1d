//! Strings with `$variables`, compiled once.
//!
//! `$1` to `$9` are captures, `$name` and `${name}` variables; a name is letters, digits and
//! `_`. Every other byte stands for itself, and there is no way to write a plain `$`.

use weir_base::bytes::ByteSet;

const NAME: ByteSet = ByteSet::ALNUM.with(b"_");

/// A variable, as whoever resolved its name numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VarId(pub u32);

/// What a template is evaluated against; each appends to `out`, nothing when not found.
pub trait Env {
    fn var(&mut self, id: VarId, out: &mut Vec<u8>);
    /// `n` is from 1 to 9.
    fn capture(&mut self, n: usize, out: &mut Vec<u8>);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// A run of the source text.
    Literal {
        start: usize,
        end: usize,
    },
    Var(VarId),
    Capture(u8),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    source: Box<[u8]>,
    parts: Box<[Part]>,
    /// Length of all literals: the least an evaluation appends.
    literal_bytes: usize,
}

impl Template {
    /// Errors are nginx's words, or what `resolve` answered for a name.
    pub fn compile(
        text: &[u8],
        resolve: &mut dyn FnMut(&[u8]) -> Result<VarId, String>,
    ) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let len = memchr::memchr(b'$', &text[at..]).unwrap_or(text.len() - at);
            if len > 0 {
                parts.push(Part::Literal { start: at, end: at + len });
                at += len;
                continue;
            }
            let (part, used) = reference(&text[at + 1..], resolve)?;
            parts.push(part);
            at += 1 + used;
        }
        Ok(Self::new(text, parts))
    }

    /// A template without variables: `$` stands for itself.
    pub fn constant(text: &[u8]) -> Template {
        let whole = Part::Literal { start: 0, end: text.len() };
        Self::new(text, if text.is_empty() { Vec::new() } else { vec![whole] })
    }

    /// A template that is one variable, whatever bytes its name has.
    pub fn variable(id: VarId) -> Template {
        Self::new(b"", vec![Part::Var(id)])
    }

    fn new(text: &[u8], parts: Vec<Part>) -> Template {
        let literal_bytes = parts.iter().map(|part| match part {
            Part::Literal { start, end } => end - start,
            Part::Var(_) | Part::Capture(_) => 0,
        });
        Template { source: text.into(), literal_bytes: literal_bytes.sum(), parts: parts.into() }
    }

    /// As it was written.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    pub fn is_constant(&self) -> bool {
        self.as_constant().is_some()
    }

    /// The text, when it does not depend on anything.
    pub fn as_constant(&self) -> Option<&[u8]> {
        match *self.parts {
            [] => Some(b""),
            [Part::Literal { .. }] => Some(&self.source),
            _ => None,
        }
    }

    /// The variable, when there is nothing else.
    pub fn single_var(&self) -> Option<VarId> {
        match *self.parts {
            [Part::Var(id)] => Some(id),
            _ => None,
        }
    }

    pub fn uses_captures(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Capture(_)))
    }

    /// The highest capture used, 0 for none.
    pub fn max_capture(&self) -> usize {
        let numbers = self.parts.iter().map(|part| match part {
            Part::Capture(n) => usize::from(*n),
            Part::Literal { .. } | Part::Var(_) => 0,
        });
        numbers.max().unwrap_or(0)
    }

    /// Every variable in order, as often as it is used.
    pub fn vars(&self) -> impl Iterator<Item = VarId> + '_ {
        self.parts.iter().filter_map(|part| match part {
            Part::Var(id) => Some(*id),
            Part::Literal { .. } | Part::Capture(_) => None,
        })
    }

    /// Appends the value to `out`.
    pub fn eval<E: Env + ?Sized>(&self, env: &mut E, out: &mut Vec<u8>) {
        out.reserve(self.literal_bytes);
        for part in &self.parts {
            match *part {
                Part::Literal { start, end } => out.extend_from_slice(&self.source[start..end]),
                Part::Var(id) => env.var(id, out),
                Part::Capture(n) => env.capture(usize::from(n), out),
            }
        }
    }

    pub fn eval_to_vec<E: Env + ?Sized>(&self, env: &mut E) -> Vec<u8> {
        let mut out = Vec::new();
        self.eval(env, &mut out);
        out
    }
}

/// What stands behind a `$`, and how long it is.
fn reference(
    text: &[u8],
    resolve: &mut dyn FnMut(&[u8]) -> Result<VarId, String>,
) -> Result<(Part, usize), String> {
    if let Some(digit @ b'1'..=b'9') = text.first() {
        return Ok((Part::Capture(digit - b'0'), 1));
    }
    let bracketed = text.strip_prefix(b"{");
    let rest = bracketed.unwrap_or(text);
    if rest.is_empty() {
        return Err("invalid variable name".to_owned());
    }
    let len = rest.iter().take_while(|&&byte| NAME.contains(byte)).count();
    let name = &rest[..len];
    if bracketed.is_some() && rest.get(len) != Some(&b'}') {
        let shown = String::from_utf8_lossy(name);
        return Err(format!("the closing bracket in \"{shown}\" variable is missing"));
    }
    if name.is_empty() {
        return Err("invalid variable name".to_owned());
    }
    let brackets = if bracketed.is_some() { 2 } else { 0 };
    Ok((Part::Var(resolve(name)?), len + brackets))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&[u8]; 4] = [b"a", b"host", b"b_2", b"0"];

    fn compile(text: &str) -> Result<Template, String> {
        Template::compile(text.as_bytes(), &mut |name| {
            let at = NAMES.iter().position(|known| *known == name);
            at.map(|at| VarId(at as u32))
                .ok_or_else(|| format!("unknown \"{}\" variable", String::from_utf8_lossy(name)))
        })
    }

    struct Show;

    impl Env for Show {
        fn var(&mut self, id: VarId, out: &mut Vec<u8>) {
            out.push(b'<');
            out.extend_from_slice(NAMES[id.0 as usize]);
            out.push(b'>');
        }

        fn capture(&mut self, n: usize, out: &mut Vec<u8>) {
            out.extend_from_slice(format!("({n})").as_bytes());
        }
    }

    #[test]
    fn values() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$a", "<a>"),
            ("x${a}y", "x<a>y"),
            ("$a$host", "<a><host>"),
            ("$b_2-$a.", "<b_2>-<a>."),
            ("$1$12", "(1)(1)2"),
            ("/$9/${host}?$a", "/(9)/<host>?<a>"),
            ("$0", "<0>"),
            ("a}b{", "a}b{"),
        ] {
            let value = compile(text).unwrap().eval_to_vec(&mut Show);
            assert_eq!(String::from_utf8_lossy(&value), expected, "{text}");
        }
    }

    #[test]
    fn errors() {
        for (text, expected) in [
            ("$", "invalid variable name"),
            ("a$", "invalid variable name"),
            ("$-", "invalid variable name"),
            ("$$a", "invalid variable name"),
            ("${", "invalid variable name"),
            ("${}", "invalid variable name"),
            ("${a", "the closing bracket in \"a\" variable is missing"),
            ("${a-b}", "the closing bracket in \"a\" variable is missing"),
            ("${-}", "the closing bracket in \"\" variable is missing"),
            ("$none", "unknown \"none\" variable"),
            ("${1}", "unknown \"1\" variable"),
        ] {
            assert_eq!(compile(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn shapes() {
        assert_eq!(compile("").unwrap().as_constant(), Some(&b""[..]));
        assert_eq!(compile("ab").unwrap().as_constant(), Some(&b"ab"[..]));
        assert_eq!(Template::constant(b"a$b").as_constant(), Some(&b"a$b"[..]));
        assert_eq!(Template::constant(b"").as_constant(), Some(&b""[..]));
        let one = compile("${host}").unwrap();
        assert_eq!((one.single_var(), one.is_constant()), (Some(VarId(1)), false));
        let mixed = compile("$a/$3$1$a").unwrap();
        assert_eq!(mixed.single_var(), None);
        assert!(mixed.uses_captures() && !one.uses_captures());
        assert_eq!((mixed.max_capture(), one.max_capture()), (3, 0));
        assert_eq!(mixed.vars().collect::<Vec<_>>(), [VarId(0), VarId(0)]);
        assert_eq!(mixed.source(), b"$a/$3$1$a");
    }
}
