//! Strings with variables: a template written with brackets means the same.

use super::Target;
use weir_script::{Env, Template, VarId};

pub const TARGET: Target = Target {
    name: "template",
    seeds: &[
        b"plain",
        b"$scheme://$host$request_uri",
        b"${a}b$1c${d_e}$9",
        b"'$remote_addr - $remote_user [$time_local] \"$request\"'",
        b"a$",
        b"\xff$x\xff",
    ],
    pieces: &[
        b"$", b"${", b"}", b"$1", b"$0", b"a", b"_", b"{", b" ", b"$$", b"\\$", b"\xe9", b"${x}",
    ],
    check: |text, _| check(text),
};

/// Names by their numbers; a value is the reference itself, written with brackets.
#[derive(Default)]
struct Names(Vec<Vec<u8>>);

impl Env for Names {
    fn var(&mut self, id: VarId, out: &mut Vec<u8>) {
        out.extend_from_slice(b"${");
        out.extend_from_slice(&self.0[id.0 as usize]);
        out.push(b'}');
    }

    fn capture(&mut self, n: usize, out: &mut Vec<u8>) {
        assert!((1..=9).contains(&n));
        out.extend_from_slice(format!("${n}").as_bytes());
    }
}

fn compile(text: &[u8], names: &mut Names) -> Result<Template, String> {
    Template::compile(text, &mut |name| {
        assert!(!name.is_empty());
        names.0.push(name.to_vec());
        Ok(VarId(names.0.len() as u32 - 1))
    })
}

fn check(text: &[u8]) {
    let mut names = Names::default();
    let Ok(template) = compile(text, &mut names) else {
        assert!(text.contains(&b'$'));
        return;
    };
    assert_eq!(template.source(), text);
    assert_eq!(template.is_constant(), !text.contains(&b'$'));
    assert_eq!(template.vars().count(), names.0.len());
    assert_eq!(template.uses_captures(), template.max_capture() > 0);
    let written = template.eval_to_vec(&mut names);
    let mut names_again = Names::default();
    let again = compile(&written, &mut names_again);
    assert_eq!(names_again.0, names.0);
    assert_eq!(again.map(|t| t.eval_to_vec(&mut names_again)), Ok(written));
    assert_eq!(Template::constant(text).as_constant(), Some(text));
}
