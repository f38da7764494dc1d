//! What a module lends to those that do not know it: put here when it is built.

use crate::buf::Buf;
use crate::flow::Flow;
use crate::request::Request;
use crate::special;
use weir_module::{slot, ConfType, Level};

/// Answers with the header as it is and a part of a file.
pub(crate) type SendFile = fn(&mut Request, Buf) -> Flow;

/// Hears of the charset that a server has named for the answer in `X-Accel-Charset`.
pub(crate) type NameCharset = fn(&mut Request, &[u8]);

/// What modules have lent. Where none has, the file goes as it is, and nobody hears.
pub struct Lent {
    /// By the module of ranges.
    pub send_file: SendFile,
    /// By `charset`.
    pub name_charset: NameCharset,
}

impl Default for Lent {
    fn default() -> Lent {
        Lent { send_file: special::finish, name_charset: |_, _| {} }
    }
}

impl ConfType for Lent {
    const LEVEL: Level = Level::Main;
    slot!();
}
