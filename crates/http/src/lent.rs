//! What a module lends to those that do not know it: put here when it is built.

use crate::buf::Buf;
use crate::flow::Flow;
use crate::request::Request;
use crate::special;
use weir_module::{slot, ConfType, Level};
pub use weir_upstream::toward::{self, Toward};

/// Answers with the header as it is and a part of a file.
pub(crate) type SendFile = fn(&mut Request, Buf) -> Flow;

/// Hears of the charset that a server has named for the answer in `X-Accel-Charset`.
pub(crate) type NameCharset = fn(&mut Request, &[u8]);

/// Writes what a page of the server's own says behind its headline, in front of `</body>`: for a status, and with
/// the server's usual name.
pub(crate) type EndPage = fn(&Request, u16, &str, &mut Vec<u8>);

/// Code of handshakes with servers.
pub type TowardCode = toward::Code<Request>;

/// Appends what the directive of that name makes of a value (`set_escape_uri` and its kin): nothing where there is no
/// such directive, else whether it could.
pub(crate) type MakeValue = fn(&[u8], Option<&mut Request>, &[u8], &mut Vec<u8>) -> Option<bool>;

/// What modules have lent. Where none has, the file goes as it is, and nobody hears.
pub struct Lent {
    /// By the module of ranges.
    pub send_file: SendFile,
    /// By `charset`.
    pub name_charset: NameCharset,
    /// By Tengine's `server_info`.
    pub error_page: EndPage,
    /// By Lua.
    pub toward: Option<TowardCode>,
    /// By `set_misc`.
    pub make_value: MakeValue,
}

impl Default for Lent {
    fn default() -> Lent {
        Lent {
            send_file: special::finish,
            name_charset: |_, _| {},
            make_value: |_, _, _, _| None,
            error_page: |_, _, name, page| {
                let parts = ["<hr><center>", name, "</center>\r\n"];
                parts.iter().for_each(|part| page.extend_from_slice(part.as_bytes()));
            },
            toward: None,
        }
    }
}

impl ConfType for Lent {
    const LEVEL: Level = Level::Main;
    slot!();
}
