//! `state FILE`: the servers of an upstream stand in a file of their own.

use crate::asks::Asks;
use crate::conf::UpstreamMain;
use crate::rows::{put_server, with_state};
use std::io;
use std::sync::Arc;
use weir_conf::{parse_statements, Loader, Options, Sources};
use weir_module::{ArgsExt, Cf, ConfResult, Diagnostic, Directive};

/// What stands in the file includes nothing.
struct Nothing;

impl Loader for Nothing {
    fn read(&self, _: &[u8]) -> io::Result<Arc<[u8]>> {
        Err(io::Error::new(io::ErrorKind::NotFound, "a state file includes nothing"))
    }

    fn glob(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.read(b"").map(|_| Vec::new())
    }
}

/// Text in which directives stand, as in the block itself.
pub(crate) fn statements(text: &[u8]) -> ConfResult<Vec<Directive>> {
    let options = Options::for_main(b"");
    parse_statements(&mut Sources::default(), &Nothing, text, &options).into_result()
}

/// What stands in such a file: servers and nothing else.
pub(crate) fn servers(text: &[u8]) -> ConfResult<Vec<Directive>> {
    let all = statements(text)?;
    match all.iter().find(|d| d.name.as_bytes() != b"server" || d.is_block() || d.args.is_empty()) {
        None => Ok(all),
        Some(d) => Err(Diagnostic::emerg(format!("\"{}\" is no server", d.name.to_str()))),
    }
}

/// Reads the file; one that is not there yet has no servers.
pub(crate) fn set<S: Asks>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let u = cf.get::<UpstreamMain>().current();
    if !u.servers.is_empty() {
        return Err(with_state(d));
    }
    let path = cf.full_path(d.arg(0));
    let text: Arc<[u8]> = match cf.read_state(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Arc::default(),
        Err(e) => {
            let why = weir_core::os_text(&e);
            return Err(d.bad(0, format!("open() \"{}\" failed ({why})", path.display())));
        }
    };
    cf.get::<UpstreamMain>().current().state = Some(path.clone());
    // Places in the file are none of the configuration's: what is wrong is told at the directive.
    let wrong =
        |e: Diagnostic| d.bad(0, format!("{} in state file \"{}\"", e.message, path.display()));
    for server in &servers(&text).map_err(wrong)? {
        put_server::<S>(cf, server).map_err(wrong)?;
    }
    Ok(())
}
