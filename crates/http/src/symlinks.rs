//! `disable_symlinks`: how a path may be opened. Nothing is remembered from one request to the
//! next: every use of a path walks it again.

use crate::conf::{CoreLoc, DisableSymlinks};
use crate::request::Request;
use crate::vars::template_of;
use std::fs::{File, Metadata};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::Session;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row};

pub(crate) const ROWS: &[Row] = &[Row::new(
    "disable_symlinks",
    Context::HSL,
    Arity::ONE_TWO,
    "off",
    "Whether symbolic links in paths are refused.",
    set,
)
.note("for files that answer requests; log paths with variables are opened as they are")];

fn set(cf: &mut Cf, d: &Directive) -> ConfResult {
    let (mut mode, mut from) = (None, None);
    for i in 0..d.args.len() {
        let shown = || String::from_utf8_lossy(d.arg(i)).into_owned();
        match d.arg(i) {
            b"off" => mode = Some(None),
            b"on" => mode = Some(Some(false)),
            b"if_not_owner" => mode = Some(Some(true)),
            _ => match d.keyed(i, "from") {
                None => return Err(d.bad(i, format!("invalid parameter \"{}\"", shown()))),
                Some(b"") => return Err(d.bad(i, "\"disable_symlinks\" has an empty \"from\"")),
                Some(text) => {
                    let text = text.to_vec();
                    from = Some(template_of(cf, d, i, &text)?);
                }
            },
        }
    }
    let Some(mode) = mode else {
        return Err(d.error("must have \"off\", \"on\" or \"if_not_owner\" parameter"));
    };
    if d.args.len() == 2 && (mode.is_none() || from.is_none()) {
        return Err(d.fail("duplicate parameters or \"from\" with \"off\" in \"disable_symlinks\""));
    }
    let value = mode.map(|same_owner| Arc::new(DisableSymlinks { same_owner, from }));
    cf.get::<CoreLoc>().disable_symlinks.once(d, value)
}

/// How one path is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    /// So many bytes of the path are not looked at.
    trusted: usize,
    same_owner: bool,
}

impl Guard {
    /// `None`: the path is opened like any other.
    pub fn of(r: &mut Request, path: &[u8]) -> Option<Guard> {
        r.loc().core.disable_symlinks.as_ref()?;
        let loc = Rc::clone(r.loc());
        let conf = loc.core.disable_symlinks.as_ref()?;
        let from = conf.from.as_ref().map(|t| r.eval(t)).unwrap_or_default();
        let trusted = match path.strip_prefix(&from[..]) {
            Some(b"") if !from.is_empty() => return None,
            Some([b'/', ..]) => from.len(),
            Some(_) if from.last() == Some(&b'/') => from.len() - 1,
            _ => 0,
        };
        Some(Guard { trusted, same_owner: conf.same_owner })
    }

    /// For reading.
    ///
    /// # Errors
    ///
    /// A link that is not allowed is `ELOOP`.
    pub fn open(self, path: &[u8]) -> io::Result<File> {
        use weir_runtime::beneath::{open, Links};
        let links = if self.same_owner { Links::SameOwner } else { Links::None };
        open(path, self.trusted, links)
    }
}

/// What a path means, by the rules of the request's location.
pub fn metadata(r: &mut Request, path: &[u8]) -> io::Result<Metadata> {
    match Guard::of(r, path) {
        Some(guard) => guard.open(path)?.metadata(),
        None => std::fs::metadata(weir_runtime::paths::path(path)),
    }
}
