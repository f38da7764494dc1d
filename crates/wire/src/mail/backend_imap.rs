//! Logging in to an IMAP server (RFC 3501, section 6.2.3): name and password as literals, with the
//! client's tag, so that the server's last answer is the client's.

use super::backend::{Heard, Known, Next};

/// What the server has been told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum State {
    #[default]
    Nothing,
    Login,
    Name,
    Password,
}

impl State {
    pub(super) fn hear(&self, line: &[u8], tag: &[u8]) -> Heard {
        let is_good = match self {
            State::Nothing => line.starts_with(b"* OK"),
            State::Login | State::Name => line.starts_with(b"+"),
            // Some tell their capabilities first (RFC 3501, section 7.2.1).
            State::Password if line.starts_with(b"* ") => return Heard::More,
            State::Password => line.strip_prefix(tag).is_some_and(|rest| rest.starts_with(b"OK")),
        };
        if is_good {
            Heard::Good
        } else {
            Heard::Bad
        }
    }

    pub(super) fn next(&mut self, known: &Known<'_>) -> Next {
        let login = known.credentials.login.as_slice();
        let password = known.credentials.password.as_deref().unwrap_or_default();
        let literal = |len: usize| format!("{{{len}}}\r\n").into_bytes();
        let (state, text) = match self {
            State::Nothing => {
                (State::Login, [known.tag, b"LOGIN ", &literal(login.len())].concat())
            }
            State::Login => (State::Name, [login, b" ", &literal(password.len())].concat()),
            State::Name => (State::Password, [password, b"\r\n"].concat()),
            State::Password => return Next::Join,
        };
        *self = state;
        Next::Send(text)
    }
}
