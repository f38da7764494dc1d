//! Links that carry a check sum and may expire: nginx's `ngx_http_secure_link_module`.

use std::rc::Rc;
use std::sync::Arc;
use weir_core::Session;

use md5::{Digest, Md5};
use weir_base::base64;
use weir_base::bytes::{parse_hex_bytes, split_once};
use weir_base::units::parse_int;
use weir_http::module::{HttpModule, VarArg, Variable};
use weir_http::vars::template;
use weir_http::Request;
use weir_module::{
    slot, ArgsExt, Arity, ConfResult, ConfType, Context, Diagnostic, Level, Row, SlotVtable, Val,
};
use weir_runtime::clock;
use weir_script::template::Template;

#[derive(Default)]
struct SecureLinkLoc {
    link: Val<Option<Arc<Template>>>,
    md5: Val<Option<Arc<Template>>>,
    /// The older mode: the check sum is part of the path.
    secret: Val<Option<Vec<u8>>>,
}

impl ConfType for SecureLinkLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &SecureLinkLoc) -> ConfResult {
        if self.secret.is_set() {
            if self.link.is_set() || self.md5.is_set() {
                let text = "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \
                            \"secure_link_md5\"";
                return Err(Diagnostic::emerg(text.to_string()));
            }
            self.link.set(None);
            self.md5.set(None);
            return Ok(());
        }
        self.link.merge(&parent.link, || None);
        self.md5.merge(&parent.md5, || None);
        match self.link.is_none() && self.md5.is_none() {
            true => self.secret.merge(&parent.secret, || None),
            false => self.secret.set(None),
        }
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "secure_link",
        Context::HSL,
        Arity::ONE,
        "",
        "Where a link's check sum and, behind a comma, the end of its life come from.",
        |cf, d| {
            let v = Some(Arc::new(template(cf, d, 0)?));
            cf.get::<SecureLinkLoc>().link.once(d, v)
        },
    ),
    Row::new(
        "secure_link_md5",
        Context::HSL,
        Arity::ONE,
        "",
        "What the check sum is made of.",
        |cf, d| {
            let v = Some(Arc::new(template(cf, d, 0)?));
            cf.get::<SecureLinkLoc>().md5.once(d, v)
        },
    ),
    Row::new(
        "secure_link_secret",
        Context::HSL,
        Arity::ONE,
        "",
        "The secret of links of the form /prefix/checksum/link.",
        |cf, d| {
            let v = Some(d.arg(0).to_vec());
            cf.get::<SecureLinkLoc>().secret.once(d, v)
        },
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<SecureLinkLoc>()],
    variables: &[
        Variable::new("secure_link", secure_link).cached(),
        Variable::new("secure_link_expires", expires),
    ],
    ..HttpModule::EMPTY
};

/// The end of the link's life as the link says it, for `$secure_link_expires`.
struct EndsAt(Vec<u8>);

const SUM_BYTES: usize = 16;

fn secure_link(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SecureLinkLoc>();
    if let Some(secret) = conf.secret.as_deref() {
        return match link_in_path(r.unparsed_uri(), secret) {
            Some(link) => {
                out.extend_from_slice(link);
                true
            }
            None => false,
        };
    }
    match check(r, conf) {
        Some(is_alive) => {
            out.push(if is_alive { b'1' } else { b'0' });
            true
        }
        None => false,
    }
}

/// Whether a link with the right check sum is still alive.
fn check(r: &mut Request, conf: &SecureLinkLoc) -> Option<bool> {
    let (link, md5) = (conf.link.as_deref()?, conf.md5.as_deref()?);
    let value = r.eval(link);
    let (sum, end) = match split_once(&value, b',') {
        Some((sum, end)) => (sum, Some(end)),
        None => (value.as_slice(), None),
    };
    let end_secs = match end {
        None => None,
        Some(text) => {
            let secs = parse_int(text).filter(|n| *n > 0)?;
            r.set_ctx(EndsAt(text.to_vec()));
            Some(secs)
        }
    };
    if sum.len() > 24 {
        return None;
    }
    let sum = base64::decode_url(sum)?;
    let text = r.eval(md5);
    if !is_equal(&sum, &Md5::digest(&text)) {
        return None;
    }
    let now = clock::wall_secs() as u64;
    Some(end_secs.is_none_or(|end| end >= now))
}

/// `link` of `/prefix/checksum/link`, when the check sum is that of the link and the secret.
fn link_in_path<'u>(uri: &'u [u8], secret: &[u8]) -> Option<&'u [u8]> {
    let (_, rest) = split_once(uri.get(1..)?, b'/')?;
    let (sum, link) = split_once(rest, b'/')?;
    if sum.len() != 2 * SUM_BYTES || link.is_empty() {
        return None;
    }
    let sum = parse_hex_bytes(sum)?;
    let mut md5 = Md5::new();
    md5.update(link);
    md5.update(secret);
    is_equal(&sum, &md5.finalize()).then_some(link)
}

/// Takes the same time whatever the difference is.
fn is_equal(sum: &[u8], expected: &[u8]) -> bool {
    let difference = sum.iter().zip(expected).fold(0, |all, (a, b)| all | (a ^ b));
    sum.len() == expected.len() && difference == 0
}

fn expires(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match r.ctx::<EndsAt>() {
        Some(end) => {
            out.extend_from_slice(&end.0);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let uri = b"/p/0ec5de2e84ab6a4ad0fb2ed9e55cd1f2/link";
        assert_eq!(link_in_path(uri, b"wrong"), None);
        let sum: String =
            Md5::digest(b"linksecret").iter().map(|byte| format!("{byte:02x}")).collect();
        let uri = format!("/p/{sum}/link");
        assert_eq!(link_in_path(uri.as_bytes(), b"secret"), Some(&b"link"[..]));
        let upper = format!("/p/{}/link", sum.to_uppercase());
        assert_eq!(link_in_path(upper.as_bytes(), b"secret"), Some(&b"link"[..]));
        for uri in ["/", "", "/p", "/p/", "/p/link", "/p/00/link"] {
            assert_eq!(link_in_path(uri.as_bytes(), b"secret"), None, "{uri}");
        }
        assert_eq!(link_in_path(format!("/p/{sum}/").as_bytes(), b"secret"), None);
    }

    #[test]
    fn equality() {
        assert!(is_equal(b"ab", b"ab"));
        assert!(!is_equal(b"ab", b"ac") && !is_equal(b"a", b"ab") && !is_equal(b"", b"a"));
    }
}
