//! The configuration Weir runs when it is given none.

use std::io;
use std::sync::Arc;
use weir_conf::Loader;

pub const NAME: &str = "embedded default";

const TEXT: &str = include_str!("../default/weir.conf");

/// Gives the embedded text under its name.
pub struct Embedded;

impl Loader for Embedded {
    fn read(&self, _path: &[u8]) -> io::Result<Arc<[u8]>> {
        Ok(TEXT.as_bytes().into())
    }

    fn glob(&self, _pattern: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
}
