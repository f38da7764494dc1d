//! The API's own errors.

use super::places::Kind;
use std::borrow::Cow;
use weir_core::figures::write_text;
use weir_core::shared_file::Failure;

const HREF: &str = "https://nginx.org/en/docs/http/ngx_http_api_module.html";
/// The last version whose errors name path and method, which were empty already.
const WITH_PATH: u8 = 3;

/// Why a request gets nothing else.
#[derive(Debug, PartialEq)]
pub(crate) struct Refusal {
    pub status: u16,
    pub code: &'static str,
    pub text: Cow<'static, str>,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        match failure {
            Failure::Busy => {
                let text =
                    "another process is writing the state file; nothing is changed, try again";
                Refusal::new(503, "StateFileBusy", text)
            }
            Failure::Unread(e) => {
                let text = format!("the state file cannot be read, and nothing is changed ({e})");
                Refusal::new(500, "StateFileError", text)
            }
            Failure::Unwritten(e) => {
                let text = format!(
                    "it is changed, but the state file cannot be written ({e}); it is tried again until it can be"
                );
                Refusal::new(500, "StateFileError", text)
            }
        }
    }
}

/// What is done, or why it is not.
pub(crate) type Outcome<T> = Result<T, Refusal>;

impl Refusal {
    pub(crate) fn new(
        status: u16,
        code: &'static str,
        text: impl Into<Cow<'static, str>>,
    ) -> Refusal {
        Refusal { status, code, text: text.into() }
    }

    pub(crate) fn path() -> Refusal {
        Refusal::new(404, "PathNotFound", "path not found")
    }

    /// There is none of that name.
    pub(crate) fn missing(kind: Kind) -> Refusal {
        match kind {
            Kind::Many(code, what) => Refusal::new(404, code, what),
            _ => Refusal::path(),
        }
    }

    /// What a client has sent is wrong.
    pub(crate) fn format(code: &'static str, text: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(400, code, text)
    }

    pub(crate) fn json(&self, version: u8, request_id: &[u8]) -> Vec<u8> {
        let mut out = b"{".to_vec();
        if (1..=WITH_PATH).contains(&version) {
            out.extend_from_slice(b"\"path\":\"\",\"method\":\"\",");
        }
        out.extend_from_slice(
            format!("\"error\":{{\"status\":{},\"text\":", self.status).as_bytes(),
        );
        write_text(&self.text, &mut out);
        out.extend_from_slice(b",\"code\":");
        write_text(self.code, &mut out);
        out.extend_from_slice(b"},\"request_id\":");
        write_text(&String::from_utf8_lossy(request_id), &mut out);
        out.extend_from_slice(b",\"href\":");
        write_text(HREF, &mut out);
        out.push(b'}');
        out
    }
}
